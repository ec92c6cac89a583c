#include <turnkey/options.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <memory>
#include <string>
#include <type_traits>

using turnkey::options;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::task_options;
using namespace std::chrono_literals;

TEST_CASE("11 options: any fields can be named, the others keep their defaults") {
  const options<int> some{.retry = retry_policy{.max_attempts = 3}, .max_pending = 7, .first_fence = 9};
  CHECK(some.default_policy == policy::parallel);
  CHECK(some.retry->max_attempts == 3);
  CHECK(some.retry->multiplier == 2.0);
  CHECK(some.max_pending == 7);
  CHECK(!some.max_in_flight);
  CHECK(some.first_fence == 9);
}

TEST_CASE("11 task_options: any fields can be named, the others keep their defaults") {
  const task_options some{.delay = 3s};
  CHECK(!some.policy);
  CHECK(!some.retry);
  CHECK(some.delay == 3s);
}

TEST_CASE("11 options: they need nothing of the key but its name, and are copied as values") {
  struct incomplete;
  static_assert(std::is_default_constructible_v<options<std::unique_ptr<int>>>);
  static_assert(std::is_copy_constructible_v<options<incomplete>>);
  static_assert(std::is_nothrow_move_constructible_v<task_options>);
}
