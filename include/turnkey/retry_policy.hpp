// When a failed task runs again. The arithmetic of delays is here, and only here.
#pragma once

#include <turnkey/outcome.hpp>

#include <chrono>
#include <cstdint>
#include <optional>

namespace turnkey::inline v1 {

// How often a task is tried, and how long it rests in between.
//   Units    delay n, after the n-th failed attempt, is initial_delay x multiplier^(n-1), at most max_delay;
//            jitter then lengthens it by a random part of up to that fraction.
struct retry_policy {
  std::uint32_t max_attempts = 5;  // all attempts, the first one too; 1 never retries
  duration initial_delay = std::chrono::milliseconds{100};
  double multiplier = 2;
  duration max_delay = std::chrono::seconds{30};
  double jitter = 0.1;
  std::optional<std::uint32_t> max_postpones{};
};

namespace detail {

// The retries of a scheduler that was given no policy: none.
inline constexpr retry_policy never_retry{.max_attempts = 1};

// A duration of `count` ticks, saturated where it would not fit.
constexpr duration saturated(double count) noexcept {
  constexpr duration longest = (duration::max)();
  return count >= static_cast<double>(longest.count()) ? longest : duration{static_cast<duration::rep>(count)};
}

// The rest after the `failed`-th failed attempt, `failed` >= 1; `random` is from [0, 1).
constexpr duration backoff(const retry_policy& retry, std::uint32_t failed, double random) noexcept {
  const auto longest = static_cast<double>(retry.max_delay.count());
  auto delay = static_cast<double>(retry.initial_delay.count());
  double factor = retry.multiplier;
  // Powers by squaring: 2^32 attempts with a multiplier just above 1 take 32 steps.
  for (std::uint32_t n = failed - 1; n != 0 && delay > 0 && delay < longest; n >>= 1) {
    if (n & 1) delay *= factor;
    factor *= factor;
  }
  if (!(delay < longest)) delay = longest;
  return saturated(delay + delay * retry.jitter * random);
}

// `base + delay`, saturated at both ends of time.
constexpr time_point later(time_point base, duration delay) noexcept {
  if (delay > duration::zero() && base > (time_point::max)() - delay) return (time_point::max)();
  if (delay < duration::zero() && base < (time_point::min)() - delay) return (time_point::min)();
  return base + delay;
}

}  // namespace detail
}  // namespace turnkey::inline v1
