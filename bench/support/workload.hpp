// What the benchmarks submit: how tasks spread over keys, what keys are, and how long a body lasts; and the clocks and
// figures that they are judged by.
#pragma once

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace bench {

using clock = std::chrono::steady_clock;

// How tasks spread over keys.
enum class shape : std::uint8_t {
  hot,       // one key
  few,       // 16
  thousand,  // 1,000, uniform
  many,      // 100,000, uniform
  distinct,  // every task its own
  zipf,      // 100,000; the k-th most frequent comes k^-0.99 as often as the first
};
inline constexpr std::array shapes{shape::hot, shape::few, shape::thousand, shape::many, shape::distinct, shape::zipf};

constexpr const char* to_string(shape s) noexcept {
  switch (s) {
    case shape::hot: return "hot";
    case shape::few: return "16";
    case shape::thousand: return "1k";
    case shape::many: return "100k";
    case shape::distinct: return "distinct";
    case shape::zipf: return "zipf0.99";
  }
  return "?";
}

// SplitMix64 (Steele, Lea, Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

// Chooses keys as a Zipf law says: number k, counted from 0, with a chance in proportion to (k + 1)^-exponent.
class zipf {
 public:
  zipf(std::size_t keys, double exponent) : sums_(keys) {
    double sum = 0;
    for (std::size_t k = 0; k != keys; ++k) sums_[k] = sum += std::pow(static_cast<double>(k + 1), -exponent);
  }
  template <class Generator>
  std::uint32_t operator()(Generator& random) const {
    const double at = std::uniform_real_distribution<double>(0, sums_.back())(random);
    const auto found = std::lower_bound(sums_.begin(), sums_.end() - 1, at);
    return static_cast<std::uint32_t>(found - sums_.begin());
  }

 private:
  std::vector<double> sums_;
};

// Which key each task has, and which number among the tasks that its producer submits for that key. Producer p submits
// the tasks from first_of(p) to first_of(p + 1), in that order.
struct workload {
  std::uint32_t keys = 0;
  unsigned producers = 1;
  std::vector<std::uint32_t> key_of{};
  std::vector<std::uint32_t> number_of{};

  [[nodiscard]] std::size_t tasks() const noexcept { return key_of.size(); }
  [[nodiscard]] std::size_t first_of(unsigned producer) const noexcept { return tasks() * producer / producers; }
};

// The workload in which task i has the key `choose(i)`, below `keys`.
template <class Choose>
workload make_workload(std::uint32_t keys, std::size_t tasks, unsigned producers, Choose choose) {
  workload w{.keys = keys, .producers = producers, .key_of{}, .number_of{}};
  w.key_of.resize(tasks);
  w.number_of.resize(tasks);
  for (std::size_t i = 0; i != tasks; ++i) w.key_of[i] = choose(i);
  for (unsigned p = 0; p != producers; ++p) {
    std::vector<std::uint32_t> next(keys);
    for (std::size_t i = w.first_of(p); i != w.first_of(p + 1); ++i) w.number_of[i] = next[w.key_of[i]]++;
  }
  return w;
}

inline workload make_workload(shape s, std::size_t tasks, unsigned producers) {
  std::mt19937_64 random(1);  // the same for all that are compared
  const auto uniform = [&](std::uint32_t keys) {
    return make_workload(keys, tasks, producers,
                         [&](std::size_t) { return static_cast<std::uint32_t>(random() % keys); });
  };
  switch (s) {
    case shape::hot: return uniform(1);
    case shape::few: return uniform(16);
    case shape::thousand: return uniform(1'000);
    case shape::many: return uniform(100'000);
    case shape::distinct:
      return make_workload(static_cast<std::uint32_t>(tasks), tasks, producers,
                           [](std::size_t i) { return static_cast<std::uint32_t>(i); });
    case shape::zipf: {
      const zipf chosen(100'000, 0.99);
      return make_workload(100'000, tasks, producers, [&](std::size_t) { return chosen(random); });
    }
  }
  return {};
}

// The same, made once.
inline const workload& workload_of(shape s, std::size_t tasks, unsigned producers) {
  static std::map<std::tuple<shape, std::size_t, unsigned>, workload> made;
  const auto [at, is_new] = made.try_emplace({s, tasks, producers});
  if (is_new) at->second = make_workload(s, tasks, producers);
  return at->second;
}

// Key number i: a number that is as good as random, or 16 characters.
template <class Key>
Key make_key(std::uint64_t i) {
  if constexpr (std::is_same_v<Key, std::string>) {
    std::string key = "customer-0000000";
    for (std::size_t at = key.size(); i != 0; i /= 10) key[--at] = static_cast<char>('0' + i % 10);
    return key;
  } else {
    return static_cast<Key>(mixed(i));
  }
}

// The first `count` keys at least, made once.
template <class Key>
const std::vector<Key>& keys_of(std::size_t count) {
  static std::vector<Key> made;
  while (made.size() < count) made.push_back(make_key<Key>(made.size()));
  return made;
}

inline void spin(std::uint32_t rounds) noexcept {
  std::uint32_t x = 1;
  for (std::uint32_t i = 0; i != rounds; ++i) {
    x = x * 1664525U + 1013904223U;
    asm volatile("" : "+r"(x));
  }
}

// How many rounds of spin() last a microsecond of an undisturbed core.
inline std::uint32_t rounds_per_microsecond() {
  static const std::uint32_t measured = [] {
    constexpr std::uint32_t rounds = 20'000;
    auto best = clock::duration::max();
    for (int i = 0; i != 50; ++i) {
      const clock::time_point start = clock::now();
      spin(rounds);
      best = std::min(best, clock::now() - start);
    }
    return static_cast<std::uint32_t>(rounds / std::chrono::duration<double, std::micro>(best).count());
  }();
  return measured;
}

// Nanoseconds of processor time that all threads of this process have used.
inline double cpu_nanoseconds() noexcept {
  timespec t{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) * 1e9 + static_cast<double>(t.tv_nsec);
}

inline double nanoseconds(clock::duration d) noexcept { return std::chrono::duration<double, std::nano>(d).count(); }

// The value below which the share `q` of `values` lies, which it puts in order; 0 when there are none.
inline double quantile(std::vector<double>& values, double q) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[std::min(values.size() - 1, static_cast<std::size_t>(q * static_cast<double>(values.size())))];
}

}  // namespace bench
