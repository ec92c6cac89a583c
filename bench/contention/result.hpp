// What was measured, as figures: several repetitions of who did how much on how many keys, and the table of it.
#pragma once

#include "arguments.hpp"
#include "axis.hpp"
#include "contenders.hpp"
#include "measure.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <ostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace contention {

struct spread {
  double median;
  double smallest;
  double largest;
};

inline spread spread_of(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  const double median = values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
  return {median, values.front(), values.back()};
}

// One contender on one number of keys.
struct result {
  std::uint32_t keys;
  contender who;
  std::vector<measurement> repetitions;

  template <class Figure>
  [[nodiscard]] spread of(Figure figure) const {
    std::vector<double> values;
    for (const measurement& each : repetitions) values.push_back((each.*figure)());
    return spread_of(values);
  }

  // The throughput as a multiple of that of `base` in the same repetition.
  [[nodiscard]] spread times(const result& base) const {
    std::vector<double> values;
    for (std::size_t i = 0; i != repetitions.size(); ++i)
      values.push_back(repetitions[i].per_second() / base.repetitions[i].per_second());
    return spread_of(values);
  }
};

// All contenders on one number of keys, turnkey first.
using group = std::vector<result>;

// Null when it was not measured.
inline const result* bare_pool_of(const group& results) {
  for (const result& each : results)
    if (std::string(each.who.name) == "bare") return &each;
  return nullptr;
}

// The conditions in one line.
inline std::string conditions(const arguments& asked) {
  std::ostringstream words;
  const auto time = [&](std::chrono::nanoseconds value) {
    const auto count = static_cast<double>(value.count());
    if (count < 1e3)
      words << count << " ns";
    else if (count < 1e6)
      words << count / 1e3 << " us";
    else
      words << count / 1e6 << " ms";
  };
  words << to_string(asked.policy) << ", " << asked.distribution.name << " over "
        << (asked.string_keys ? "string" : "u64") << " keys, ";
  if (asked.work.count() == 0) words << "empty tasks";
  if (asked.work.count() != 0) words << "tasks of ", time(asked.work);
  if (asked.fail > 0) words << ", " << asked.fail * 100 << " % fail once and rest ", time(asked.rest());
  words << "; " << asked.producers << (asked.producers == 1 ? " producer, " : " producers, ") << asked.workers
        << (asked.workers == 1 ? " worker; " : " workers; ");
  if (asked.repetitions > 1)
    words << (asked.repetitions > 2 ? "medians of " : "means of ") << asked.repetitions << " x ";
  words << asked.seconds << " s";
  return words.str();
}

// 1234567 as 1,234,567.
inline std::string with_commas(double value) {
  std::string digits = std::to_string(static_cast<std::uint64_t>(value + 0.5));
  for (std::size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, 1, ',');
  return digits;
}

// Nanoseconds with a tenth where it says anything.
inline std::string time_of(double nanoseconds) {
  if (nanoseconds >= 10'000) return with_commas(nanoseconds);
  std::ostringstream words;
  words << std::fixed << std::setprecision(1) << nanoseconds;
  return words.str();
}

inline void print_head(std::ostream& out, const arguments& asked) {
  out << conditions(asked) << "\n";
  if (asked.fail > 0) out << "Only turnkey retries what fails: the baselines are left out.\n";
  out << "\n"
      << std::setw(10) << "keys" << std::setw(32) << "tasks/s" << std::setw(13) << "ns/task" << std::setw(13)
      << "CPU ns/task" << std::setw(9) << "x bare"
      << "  min..max\n";
}

inline void print_group(std::ostream& out, const group& results) {
  const result* const bare = bare_pool_of(results);
  for (const result& each : results) {
    out << std::setw(10) << with_commas(each.keys) << "  " << std::left << std::setw(18) << each.who.title << std::right
        << std::setw(12) << with_commas(each.of(&measurement::per_second).median) << std::setw(13)
        << time_of(each.of(&measurement::nanoseconds).median) << std::setw(13)
        << time_of(each.of(&measurement::cpu_nanoseconds).median);
    if (bare != nullptr && bare != &each) {
      const spread times = each.times(*bare);
      out << std::fixed << std::setprecision(2) << std::setw(9) << times.median << "  " << times.smallest << ".."
          << times.largest;
    }
    out << "\n";
  }
  out << std::flush;
}

// Whether the machine was quiet; nothing when it was, or when nobody knows.
inline void print_others(std::ostream& out, const std::vector<group>& groups) {
  double busy = 0;
  double seconds = 0;
  for (const group& results : groups) {
    for (const result& each : results) {
      for (const measurement& one : each.repetitions) {
        busy += one.others.value_or(0) * one.seconds;
        seconds += one.seconds;
      }
    }
  }
  const unsigned processors = std::thread::hardware_concurrency();
  if (busy / seconds < 0.05 * processors) return;
  out << std::setprecision(2) << "Other processes kept " << busy / seconds << " of the " << processors
      << " processors busy meanwhile: repeat it on a quiet machine.\n";
}

// What was broken, a line each; how many.
inline std::size_t print_broken(std::ostream& out, const std::vector<group>& groups) {
  std::size_t count = 0;
  for (const group& results : groups) {
    for (const result& each : results) {
      for (std::size_t i = 0; i != each.repetitions.size(); ++i) {
        const std::string& broken = each.repetitions[i].broken;
        if (broken.empty()) continue;
        ++count;
        out << "BROKEN: " << each.who.title << " on " << with_commas(each.keys) << (each.keys == 1 ? " key" : " keys")
            << ", repetition " << i + 1 << ": " << broken << "\n";
      }
    }
  }
  return count;
}

}  // namespace contention
