// A seeded generator for tests, and what the environment says about seed and time of the stress tests:
// TURNKEY_STRESS_SEED (default: a random one, printed) and TURNKEY_STRESS_SECONDS (per case; default 5).
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>

namespace support {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr bool sanitized = true;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr bool sanitized = true;
#else
inline constexpr bool sanitized = false;
#endif
#else
inline constexpr bool sanitized = false;
#endif

// SplitMix64 (Steele, Lea, Flood 2014).
class dice {
 public:
  explicit dice(std::uint64_t seed) noexcept : state_(seed) {}

  std::uint64_t roll() noexcept {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }
  std::uint64_t below(std::uint64_t n) noexcept { return roll() % n; }
  bool chance(unsigned percent) noexcept { return below(100) < percent; }

 private:
  std::uint64_t state_;
};

// The seed of a case, printed so that a run can be repeated.
inline std::uint64_t stress_seed(const char* name) {
  const char* const set = std::getenv("TURNKEY_STRESS_SEED");
  const std::uint64_t seed = set != nullptr ? std::strtoull(set, nullptr, 10) : std::random_device{}();
  std::printf("%s: TURNKEY_STRESS_SEED=%llu\n", name, static_cast<unsigned long long>(seed));
  std::fflush(stdout);
  return seed;
}

inline std::chrono::milliseconds stress_time() {
  const char* const set = std::getenv("TURNKEY_STRESS_SECONDS");
  const double seconds = set != nullptr ? std::strtod(set, nullptr) : 5.0;
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

}  // namespace support
