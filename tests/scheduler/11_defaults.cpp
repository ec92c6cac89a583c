#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::dead_action;
using turnkey::duration;
using turnkey::options;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::scheduler;
using turnkey::testing::manual_executor;
using namespace std::chrono_literals;

namespace {

using set = options<std::string>;

// What the constructor says of options without sense.
std::string flaw_of(set options) {
  manual_executor pool;
  try {
    const scheduler<std::string> tasks(pool, std::move(options));
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing";
}

bool names(const std::string& flaw, const std::string& option_and_value) {
  return flaw.find(option_and_value) != std::string::npos;
}

}  // namespace

TEST_CASE("11 the options of a scheduler have the stated defaults") {
  const set defaults;
  CHECK(defaults.default_policy == policy::parallel);
  CHECK(!defaults.policy_override);
  CHECK(!defaults.retry);
  CHECK(!defaults.max_in_flight);
  CHECK(!defaults.max_pending);
  CHECK(!defaults.max_pending_per_key);
  CHECK(defaults.turn_budget == 16);
  CHECK(defaults.turn_time == 1ms);
  CHECK(defaults.max_dead == 1024);
  CHECK(defaults.dead_action == dead_action::release);
  CHECK(!defaults.observer);
  CHECK(defaults.time == nullptr);
  CHECK(!defaults.jitter_seed);
  CHECK(defaults.first_fence == 1);
}

TEST_CASE("11 the options of a task and of retrying have the stated defaults") {
  const turnkey::task_options task;
  CHECK(!task.policy);
  CHECK(!task.retry);
  CHECK(task.delay == duration::zero());
  constexpr retry_policy retry;
  static_assert(retry.max_attempts == 5 && retry.initial_delay == 100ms && retry.max_delay == 30s);
  CHECK(retry.multiplier == 2.0);
  CHECK(retry.jitter == 0.1);
  CHECK(!retry.max_postpones);
}

TEST_CASE("11 a scheduler is neither copied nor moved") {
  using type = scheduler<std::string>;
  static_assert(!std::is_copy_constructible_v<type> && !std::is_move_constructible_v<type>);
  static_assert(!std::is_copy_assignable_v<type> && !std::is_move_assignable_v<type>);
  static_assert(std::is_same_v<type, turnkey::scheduler<std::string, std::hash<std::string>>>);
  static_assert(std::is_aggregate_v<set> && std::is_aggregate_v<turnkey::task_options> &&
                std::is_aggregate_v<retry_policy>);
}

TEST_CASE("11 limits of 0 are refused, by name and value") {
  CHECK(names(flaw_of({.max_in_flight = 0}), "max_in_flight is 0"));
  CHECK(names(flaw_of({.max_pending = 0}), "max_pending is 0"));
  CHECK(names(flaw_of({.max_pending_per_key = 0}), "max_pending_per_key is 0"));
  CHECK(names(flaw_of({.turn_budget = 0}), "turn_budget is 0"));
  CHECK(names(flaw_of({.turn_time = -1ns}), "turn_time is -1 ns"));
  CHECK(names(flaw_of({.first_fence = 0}), "first_fence is 0"));
  CHECK(names(flaw_of({.first_fence = ~std::uint64_t{0}}), "first_fence is 18446744073709551615"));
  CHECK(names(flaw_of({.first_fence = turnkey::last_first_fence + 1}), "first_fence is 18374686479671623681"));
}

TEST_CASE("11 retrying without sense is refused, by name and value") {
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const auto flaw = [](const retry_policy& retry) { return flaw_of({.retry = retry}); };
  CHECK(names(flaw({.max_attempts = 0}), "retry.max_attempts is 0"));
  CHECK(names(flaw({.initial_delay = -5ns}), "retry.initial_delay is -5 ns"));
  CHECK(names(flaw({.multiplier = 0.5}), "retry.multiplier is 0.5"));
  CHECK(names(flaw({.multiplier = nan}), "retry.multiplier is nan"));
  CHECK(names(flaw({.max_delay = -5ns}), "retry.max_delay is -5 ns"));
  CHECK(names(flaw({.jitter = -0.5}), "retry.jitter is -0.5"));
  CHECK(names(flaw({.jitter = 1.5}), "retry.jitter is 1.5"));
  CHECK(names(flaw({.jitter = nan}), "retry.jitter is nan"));
}

TEST_CASE("11 numbers that are no policy and no action are refused, by name and value") {
  CHECK(names(flaw_of({.default_policy = static_cast<policy>(3)}), "default_policy is 3"));
  CHECK(names(flaw_of({.policy_override = static_cast<policy>(4)}), "policy_override is 4"));
  CHECK(names(flaw_of({.dead_action = static_cast<dead_action>(2)}), "dead_action is 2"));
}

TEST_CASE("11 the smallest and largest values that make sense are taken") {
  CHECK(flaw_of({}) == "nothing");
  CHECK(flaw_of({.retry = retry_policy{.max_attempts = 1,
                                       .initial_delay = 0s,
                                       .multiplier = 1,
                                       .max_delay = 0s,
                                       .jitter = 0,
                                       .max_postpones = 0},
                 .max_in_flight = 1,
                 .max_pending = 1,
                 .max_pending_per_key = 1,
                 .turn_budget = 1,
                 .turn_time = 0s,
                 .max_dead = 0,
                 .first_fence = 1}) == "nothing");
  CHECK(flaw_of({.retry = retry_policy{.max_attempts = ~0U,
                                       .initial_delay = (duration::max)(),
                                       .multiplier = (std::numeric_limits<double>::max)(),
                                       .max_delay = (duration::max)(),
                                       .jitter = 1,
                                       .max_postpones = ~0U},
                 .max_in_flight = ~std::size_t{0},
                 .max_pending = ~std::size_t{0},
                 .max_pending_per_key = ~std::size_t{0},
                 .turn_budget = ~0U,
                 .turn_time = (duration::max)(),
                 .max_dead = ~std::size_t{0},
                 .first_fence = turnkey::last_first_fence}) == "nothing");
}

TEST_CASE("11 every word of an enum has a name") {
  CHECK(to_string(policy::ordered) == std::string("ordered"));
  CHECK(to_string(turnkey::task_state::undone) == std::string("undone"));
  CHECK(to_string(turnkey::event_kind::permit_lost) == std::string("permit lost"));
  CHECK(to_string(turnkey::reject_reason::empty_callback) == std::string("empty_callback"));
  CHECK(to_string(turnkey::drain_result::would_deadlock) == std::string("would_deadlock"));
  CHECK(to_string(turnkey::failure_reason::postponed_out) == std::string("postponed out"));
  for (std::uint8_t i = 0; i != 13; ++i) CHECK(to_string(static_cast<turnkey::event_kind>(i)) != std::string("?"));
  CHECK(to_string(static_cast<policy>(9)) == std::string("?"));
}
