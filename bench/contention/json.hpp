// Every figure as JSON: the conditions, then for each contender and number of keys the medians and each repetition.
#pragma once

#include "arguments.hpp"
#include "measure.hpp"
#include "result.hpp"

#include <array>
#include <cstddef>
#include <cstdio>
#include <ctime>
#include <ostream>
#include <string>
#include <thread>
#include <vector>

namespace contention {

class json {
 public:
  explicit json(std::ostream& out) : out_(out) { out_.precision(8); }

  void write(const arguments& asked, const std::vector<group>& groups) {
    out_ << "{\n  \"conditions\": {";
    write_conditions(asked);
    out_ << "},\n  \"results\": [";
    const char* comma = "";
    for (const group& results : groups) {
      for (const result& each : results) {
        out_ << comma << "\n    ";
        write_result(each, bare_pool_of(results));
        comma = ",";
      }
    }
    out_ << "\n  ]\n}\n";
  }

 private:
  void write_conditions(const arguments& asked) {
    out_ << "\n    \"date\": \"" << now() << "\",\n    \"processors\": " << std::thread::hardware_concurrency()
         << ",\n    \"compiler\": \"" << compiler << "\",\n    \"policy\": \"" << to_string(asked.policy)
         << "\",\n    \"distribution\": \"" << asked.distribution.name << "\",\n    \"key\": \""
         << (asked.string_keys ? "string" : "u64") << "\",\n    \"work_ns\": " << asked.work.count()
         << ",\n    \"fail\": " << asked.fail << ",\n    \"retry_delay_ns\": " << asked.rest().count()
         << ",\n    \"producers\": " << asked.producers << ",\n    \"workers\": " << asked.workers
         << ",\n    \"seconds\": " << asked.seconds << ",\n    \"repetitions\": " << asked.repetitions << "\n  ";
  }

  void write_result(const result& each, const result* bare) {
    out_ << "{\"name\": \"" << each.who.name << "\", \"title\": \"" << each.who.title << "\", \"keys\": " << each.keys;
    write("tasks_per_second", each.of(&measurement::per_second));
    write("ns_per_task", each.of(&measurement::nanoseconds));
    write("cpu_ns_per_task", each.of(&measurement::cpu_nanoseconds));
    if (bare != nullptr) write("times_bare_pool", each.times(*bare));
    out_ << ",\n     \"repetitions\": [";
    const char* comma = "";
    for (const measurement& one : each.repetitions) {
      out_ << comma << "\n       {\"tasks\": " << one.tasks << ", \"seconds\": " << one.seconds
           << ", \"cpu_seconds\": " << one.cpu_seconds << ", \"others\": ";
      if (one.others) out_ << *one.others;
      if (!one.others) out_ << "null";
      out_ << ", \"broken\": \"" << one.broken << "\"}";
      comma = ",";
    }
    out_ << "]}";
  }
  void write(const char* name, const spread& values) {
    out_ << ",\n     \"" << name << "\": {\"median\": " << values.median << ", \"min\": " << values.smallest
         << ", \"max\": " << values.largest << "}";
  }

  static std::string now() {
    const std::time_t time = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 32> text{};
    const std::size_t size = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
    return {text.data(), size};
  }

#if defined(__clang__)
  static constexpr const char* compiler = "clang " __clang_version__;
#else
  static constexpr const char* compiler = "gcc " __VERSION__;
#endif

  std::ostream& out_;
};

}  // namespace contention
