#include <turnkey/retry_policy.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <limits>

using turnkey::duration;
using turnkey::retry_policy;
using turnkey::time_point;
using turnkey::detail::backoff;
using turnkey::detail::later;
using namespace std::chrono_literals;

namespace {

constexpr duration longest = (duration::max)();
constexpr double infinite = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("3.1 backoff: delay n is initial_delay times multiplier to the n-1") {
  constexpr retry_policy twice{.jitter = 0};
  static_assert(backoff(twice, 1, 0) == 100ms && backoff(twice, 2, 0) == 200ms && backoff(twice, 5, 0) == 1600ms);
  constexpr retry_policy thrice{.initial_delay = 1ms, .multiplier = 3, .jitter = 0};
  static_assert(backoff(thrice, 4, 0) == 27ms && backoff(thrice, 7, 0) == 729ms);
  constexpr retry_policy even{.initial_delay = 7ms, .multiplier = 1, .jitter = 0};
  static_assert(backoff(even, 1, 0) == 7ms && backoff(even, 4'000'000'000U, 0) == 7ms);
}

TEST_CASE("3.1 backoff: it saturates at max_delay, and stays there") {
  for (const double multiplier : {2.0, 1e10, (std::numeric_limits<double>::max)(), infinite}) {
    const retry_policy retry{.multiplier = multiplier, .jitter = 0};
    CHECK(backoff(retry, 1, 0) == 100ms);
    for (const std::uint32_t failed : {10U, 100U, 1'000'000U, ~0U}) CHECK(backoff(retry, failed, 0) == 30s);
  }
  CHECK(backoff({.initial_delay = 1h, .max_delay = 1s, .jitter = 0}, 1, 0) == 1s);
}

TEST_CASE("3.1 backoff: the longest delays do not overflow, with jitter neither") {
  for (const double random : {0.0, 0.5, 0.999}) {
    const retry_policy retry{.initial_delay = longest, .multiplier = infinite, .max_delay = longest, .jitter = 1};
    for (const std::uint32_t failed : {1U, 2U, ~0U}) CHECK(backoff(retry, failed, random) == longest);
  }
}

TEST_CASE("3.1 backoff: no delay stays none, whatever the multiplier") {
  CHECK(backoff({.initial_delay = 0s, .multiplier = infinite}, 9, 0.9) == 0s);
  CHECK(backoff({.max_delay = 0s}, 9, 0.9) == 0s);
}

TEST_CASE("3.1 backoff: jitter only lengthens, by its fraction of what is drawn") {
  const retry_policy retry{.initial_delay = 1s, .max_delay = 2s, .jitter = 0.5};
  CHECK(backoff(retry, 1, 0) == 1s);
  CHECK(backoff(retry, 1, 0.5) == 1250ms);
  CHECK(backoff(retry, 9, 0.5) == 2500ms);
  CHECK(backoff({.initial_delay = 1s, .jitter = 0}, 1, 0.9) == 1s);
}

TEST_CASE("8.7 later: it saturates at both ends of time") {
  constexpr time_point last = (time_point::max)();
  constexpr time_point first = (time_point::min)();
  constexpr time_point some{24h};
  static_assert(later(some, 1s) == some + 1s && later(some, -1s) == some - 1s);
  static_assert(later(some, longest) == last && later(last, 1ns) == last && later(last, longest) == last);
  static_assert(later(last, -1s) == last - 1s);
  static_assert(later(first, -1ns) == first && later(time_point{-24h}, (duration::min)()) == first);
}
