#include <turnkey/detail/validate.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <limits>
#include <stdexcept>
#include <string>

using turnkey::options;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::task_options;
using turnkey::detail::check;
using turnkey::detail::flaw_of;
using namespace std::chrono_literals;

TEST_CASE("11 validate: what makes sense has no flaw") {
  CHECK(flaw_of(retry_policy{}).empty());
  CHECK(flaw_of(task_options{}).empty());
  CHECK(flaw_of(task_options{.policy = policy::ordered, .retry = retry_policy{}, .delay = -1s}).empty());
  CHECK(flaw_of(options<int>{}).empty());
  CHECK_NOTHROW(check(options<int>{}));
}

TEST_CASE("11 validate: a flaw names the option, its value, and what would be right") {
  CHECK(flaw_of(retry_policy{.max_attempts = 0}) == "retry.max_attempts is 0; it counts all attempts: 1 or more");
  CHECK(flaw_of(retry_policy{.max_delay = -2us}) == "retry.max_delay is -2000 ns; it must not be negative");
  CHECK(flaw_of(options<int>{.max_in_flight = 0}) == "max_in_flight is 0; leave it unset for no limit");
}

TEST_CASE("4.2, 11 validate: the retry policy of a task is looked at as that of a scheduler") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  for (const retry_policy& bad :
       {retry_policy{.multiplier = nan}, retry_policy{.jitter = nan}, retry_policy{.jitter = 2},
        retry_policy{.multiplier = 0}, retry_policy{.initial_delay = -1s}}) {
    CHECK(!flaw_of(bad).empty());
    CHECK(flaw_of(task_options{.retry = bad}) == flaw_of(bad));
    CHECK(flaw_of(options<int>{.retry = bad}) == flaw_of(bad));
  }
}

TEST_CASE("11 validate: check throws an invalid_argument that says where it comes from") {
  try {
    check(options<int>{.turn_budget = 0});
    FAIL("no exception");
  } catch (const std::invalid_argument& e) {
    CHECK(std::string(e.what()) == "turnkey: option turn_budget is 0; a turn starts at least 1 task");
  }
}
