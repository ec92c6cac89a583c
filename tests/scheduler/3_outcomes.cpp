#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::duration;
using turnkey::event;
using turnkey::event_kind;
using turnkey::failure_reason;
using turnkey::outcome;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::task_id;
using turnkey::task_options;
using turnkey::testing::on_offer;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<int>;
using names = std::vector<std::string>;

// A retry policy without chance.
retry_policy steady(std::uint32_t attempts) { return {.max_attempts = attempts, .jitter = 0}; }

// A stage that notes how long each failed task is to rest.
struct resting_stage {
  explicit resting_stage(turnkey::options<std::string> set = {}) : on(listening(std::move(set))) {}

  turnkey::options<std::string> listening(turnkey::options<std::string> set) {
    set.observer = [this](const event<std::string>& e) {
      if (e.kind == event_kind::failed || e.kind == event_kind::postponed) rests.push_back(e.due - e.time);
    };
    return set;
  }

  std::vector<duration> rests;
  stage on;
};

// The rests of a task that always fails, under a policy and a seed.
std::vector<duration> rests_of(const retry_policy& retry, std::uint64_t seed = 1) {
  resting_stage all({.retry = retry, .jitter_seed = seed});
  all.on.tasks.submit("a", [] { return outcome::retry(); });
  for (std::uint32_t i = 0; i != retry.max_attempts; ++i) {
    all.on.run();
    if (all.on.time.next_wake()) all.on.time.jump(*all.on.time.next_wake() - all.on.time.now());
  }
  return std::move(all.rests);
}

}  // namespace

// ---- 3: what a callback is, and what it says

TEST_CASE("3 a callback takes nothing or an attempt, and returns nothing or an outcome") {
  stage on;
  numbers ran;
  on.tasks.submit("a", [&ran] { ran.push_back(1); });
  on.tasks.submit("a", [&ran](attempt&) { ran.push_back(2); });
  on.tasks.submit("a", [&ran] {
    ran.push_back(3);
    return outcome::success();
  });
  on.tasks.submit("a", [&ran](attempt&) {
    ran.push_back(4);
    return outcome::success();
  });
  on.run();
  CHECK(ran == numbers{1, 2, 3, 4});
  CHECK(on.tasks.stats().succeeded == 4);
}

TEST_CASE("3 a callback is called as an lvalue, once per attempt") {
  struct counting {
    outcome operator()() & { return ++*calls < 3 ? outcome::retry() : outcome::success(); }
    void operator()() && = delete;
    void operator()() const& = delete;
    int* calls;
  };
  stage on({.retry = steady(5)});
  int calls = 0;
  on.tasks.submit("a", counting{&calls});
  on.pass(10s);
  CHECK(calls == 3);
  CHECK(on.tasks.stats().started == 3);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("3 the state of a callback lives from attempt to attempt") {
  stage on({.retry = steady(5)});
  int seen = 0;
  on.tasks.submit("a", [&seen, own = 0]() mutable {
    seen = ++own;
    return own < 4 ? outcome::retry() : outcome::success();
  });
  on.pass(10s);
  CHECK(seen == 4);
}

TEST_CASE("3 an exception fails the attempt, whatever its type") {
  stage on({.retry = steady(2)});
  on.tasks.submit("a", [](attempt& a) {
    if (a.number() == 1) throw std::runtime_error("std");
  });
  on.tasks.submit("b", [](attempt& a) {
    if (a.number() == 1) throw 7;
  });
  on.tasks.submit("c", [](attempt& a) {
    if (a.number() == 1) throw "text";
    return outcome::success();
  });
  on.run();
  CHECK(on.tasks.stats().failed_attempts == 3);
  CHECK(on.tasks.stats().delayed == 3);
  on.pass(10s);
  CHECK(on.tasks.stats().succeeded == 3);
}

TEST_CASE("3 outcome::retry fails the attempt, with its words") {
  names heard;
  stage on({.retry = steady(2), .observer = [&heard](const event<std::string>& e) {
              if (e.error != nullptr) heard.push_back(e.error->text());
            }});
  on.tasks.submit("a", [](attempt& a) { return outcome::retry("busy " + std::to_string(a.number())); });
  on.pass(10s);
  CHECK(heard == names{"busy 1", "busy 2"});
  CHECK(on.tasks.stats().died == 1);
}

TEST_CASE("3 outcome::retry_after rests for exactly its delay, whatever the policy says") {
  resting_stage all({.retry = retry_policy{.initial_delay = 5s, .max_delay = 5s, .jitter = 1}});
  int runs = 0;
  all.on.tasks.submit("a", [&runs] { return ++runs < 3 ? outcome::retry_after(1h) : outcome::success(); });
  all.on.run();
  all.on.pass(1h - 1ns);
  CHECK(runs == 1);
  all.on.pass(1ns);
  CHECK(runs == 2);
  CHECK(all.rests == std::vector<duration>{1h, 1h});
}

TEST_CASE("3 outcome::retry_after with 0 or less is at once, and a failed attempt all the same") {
  for (const duration delay : {duration{0}, duration{-1h}}) {
    stage on({.retry = steady(3)});
    int runs = 0;
    on.tasks.submit("a", [&] {
      ++runs;
      return outcome::retry_after(delay);
    });
    on.run();
    CHECK(runs == 3);
    CHECK(on.tasks.stats().died == 1);
  }
}

TEST_CASE("3 outcome::dead is final, whatever attempts are left") {
  stage on({.retry = steady(5)});
  on.tasks.submit("a", [] { return outcome::dead("no such order"); });
  on.pass(1h);
  CHECK(on.tasks.stats().started == 1);
  CHECK(on.tasks.stats().died == 1);
  CHECK(on.tasks.dead_tasks().at(0).error.text() == "no such order");
}

TEST_CASE("3 outcome::postpone comes back after its delay, and nothing has failed") {
  stage on;  // no retries
  int runs = 0;
  on.tasks.submit("a", [&runs] { return ++runs < 4 ? outcome::postpone(1s) : outcome::success(); });
  on.run();
  CHECK(on.tasks.stats().delayed == 1);
  on.pass(1s - 1ns);
  CHECK(runs == 1);
  on.pass(1ns);
  CHECK(runs == 2);
  on.pass(1s);
  on.pass(1s);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().failed_attempts == 0);
  CHECK(on.tasks.stats().postponed == 3);
}

TEST_CASE("3 a postponed task gives up lease and place, and ordered successors keep waiting") {
  stage on({.max_in_flight = 1});
  names ran;
  on.tasks.submit("a", {.policy = policy::ordered}, [&ran, n = 0]() mutable {
    ran.push_back("first");
    return ++n == 1 ? outcome::postpone(1s) : outcome::success();
  });
  on.tasks.submit("a", {.policy = policy::ordered}, [&ran] { ran.push_back("ordered"); });
  on.tasks.submit("a", {.policy = policy::exclusive}, [&ran] { ran.push_back("exclusive"); });
  on.tasks.submit("b", [&ran] { ran.push_back("another key"); });
  on.run();
  CHECK(ran.size() == 3);
  on.pass(1s);
  CHECK(ran == names{"first", "exclusive", "another key", "first", "ordered"});
}

TEST_CASE("3 postponed by 0 or less, a task goes behind what is ready") {
  for (const duration delay : {duration{0}, duration{-1s}}) {
    for (const policy p : {policy::parallel, policy::exclusive}) {
      stage on;
      numbers ran;
      on.tasks.submit("a", {.policy = p}, [&ran, delay, n = 0]() mutable {
        ran.push_back(1);
        return ++n == 1 ? outcome::postpone(delay) : outcome::success();
      });
      on.tasks.submit("a", {.policy = p}, [&ran] { ran.push_back(2); });
      on.tasks.submit("a", {.policy = p}, [&ran] { ran.push_back(3); });
      on.run();
      CHECK(ran == numbers{1, 2, 3, 1});
    }
  }
}

TEST_CASE("3, 3.1 a task is postponed at most max_postpones times, then it is dead") {
  stage on({.retry = retry_policy{.max_postpones = 2}});
  int runs = 0;
  on.tasks.submit("a", [&runs] {
    ++runs;
    return outcome::postpone(0s);
  });
  on.run();
  CHECK(runs == 3);
  CHECK(on.tasks.stats().postponed == 2);
  CHECK(on.tasks.stats().failed_attempts == 0);
  REQUIRE(on.tasks.dead_tasks().size() == 1);
  CHECK(on.tasks.dead_tasks()[0].error.reason() == failure_reason::postponed_out);
}

TEST_CASE("3.1 without max_postpones there is no end to postponing") {
  stage on;
  int runs = 0;
  on.tasks.submit("a", [&runs] { return ++runs <= 1000 ? outcome::postpone(0s) : outcome::success(); });
  on.run();
  CHECK(on.tasks.stats().postponed == 1000);
  CHECK(on.tasks.stats().succeeded == 1);
}

// ---- 3.1: retries

TEST_CASE("3.1 a scheduler without a retry policy never runs a callback twice") {
  stage on;
  int runs = 0;
  on.tasks.submit("a", [&runs] {
    ++runs;
    throw 1;
  });
  on.tasks.submit("b", [&runs] {
    ++runs;
    return outcome::retry();
  });
  on.tasks.submit("c", [&runs] {
    ++runs;
    return outcome::retry_after(1s);
  });
  on.pass(24h);
  CHECK(runs == 3);
  CHECK(on.tasks.stats().died == 3);
}

TEST_CASE("3.1 max_attempts counts all attempts, the first one too") {
  for (const std::uint32_t most : {1U, 2U, 5U}) {
    stage on({.retry = steady(most)});
    on.tasks.submit("a", [] { throw 1; });
    on.pass(1h);
    CHECK(on.tasks.stats().started == most);
    CHECK(on.tasks.stats().died == 1);
  }
}

TEST_CASE("3.1 the rests grow by the multiplier, and stay at max_delay") {
  CHECK(rests_of({.max_attempts = 6, .max_delay = 1s, .jitter = 0}) ==
        std::vector<duration>{100ms, 200ms, 400ms, 800ms, 1s});
  CHECK(rests_of({.max_attempts = 4, .initial_delay = 10ms, .multiplier = 1, .jitter = 0}) ==
        std::vector<duration>{10ms, 10ms, 10ms});
  CHECK(rests_of({.max_attempts = 3, .initial_delay = 2h, .max_delay = 1h, .jitter = 0}) ==
        std::vector<duration>{1h, 1h});
}

TEST_CASE("3.1 huge multipliers and delays saturate") {
  const double huge = (std::numeric_limits<double>::max)();
  CHECK(rests_of({.max_attempts = 5, .multiplier = huge, .max_delay = 1h, .jitter = 0}) ==
        std::vector<duration>{100ms, 1h, 1h, 1h});
  stage on({.retry = retry_policy{
                .initial_delay = (duration::max)(), .multiplier = huge, .max_delay = (duration::max)(), .jitter = 1}});
  on.tasks.submit("a", [] { return outcome::retry(); });
  on.pass(24h * 365 * 50);
  CHECK(on.tasks.stats().started == 1);
  CHECK(on.tasks.stats().delayed == 1);
}

TEST_CASE("3.1 jitter only lengthens, by up to its fraction") {
  const auto rests = rests_of({.max_attempts = 200, .initial_delay = 1s, .multiplier = 1, .jitter = 0.5});
  REQUIRE(rests.size() == 199);
  bool differs = false;
  for (const duration rest : rests) {
    CHECK(rest >= 1s);
    CHECK(rest <= 1500ms);
    differs = differs || rest > 1250ms;
  }
  CHECK(differs);
}

TEST_CASE("3.1 jitter lengthens max_delay too") {
  const auto rests = rests_of({.max_attempts = 100, .initial_delay = 1h, .max_delay = 1h, .jitter = 1});
  CHECK(*std::max_element(rests.begin(), rests.end()) > 90min);
  CHECK(*std::min_element(rests.begin(), rests.end()) >= 1h);
}

TEST_CASE("3.1 equal seeds give equal jitter, and other seeds another") {
  const retry_policy retry{.max_attempts = 10};
  CHECK(rests_of(retry, 7) == rests_of(retry, 7));
  CHECK(rests_of(retry, 7) != rests_of(retry, 8));
}

TEST_CASE("3.1 a task's own retry policy goes before the scheduler's") {
  resting_stage all({.retry = steady(5)});
  all.on.tasks.submit("a", {.retry = retry_policy{.max_attempts = 2, .initial_delay = 7s, .jitter = 0}},
                      [] { throw 1; });
  all.on.pass(1h);
  CHECK(all.rests == std::vector<duration>{7s});
  CHECK(all.on.tasks.stats().started == 2);
}

TEST_CASE("3.1 a task's own retry policy counts where the scheduler has none") {
  stage on;
  on.tasks.submit("a", {.retry = steady(3)}, [] { throw 1; });
  on.tasks.submit("b", [] { throw 1; });
  on.pass(1h);
  CHECK(on.tasks.stats().started == 4);
}

// ---- 3.2: what counts

TEST_CASE("3.2 the attempt's number is failed attempts + 1, and postponing does not count") {
  stage on({.retry = steady(3)});
  std::vector<std::uint32_t> seen;
  on.tasks.submit("a", [&seen](attempt& a) {
    seen.push_back(a.number());
    return seen.size() % 2 == 1 ? outcome::postpone(0s) : outcome::retry();
  });
  on.pass(1h);
  CHECK(seen == std::vector<std::uint32_t>{1, 1, 2, 2, 3, 3});
  CHECK(on.tasks.stats().failed_attempts == 3);
}

TEST_CASE("3.2 waiting, a refusing executor and a dropped permit count no attempt") {
  stage on;
  std::uint32_t number = 0;
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 1s}, [] {});
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", {.policy = policy::ordered}, [&number](attempt& a) { number = a.number(); });
  on.pass(2s);
  on.pool.set_mode(on_offer::drop);
  on.pass(1s);
  CHECK(number == 0);
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  CHECK(number == 1);
  CHECK(on.tasks.stats().started == 2);
}

TEST_CASE("3.2 a shutdown counts no attempt") {
  stage on({.retry = steady(3)});
  on.tasks.submit("a", [] { return outcome::retry(); });
  on.run();
  auto left = on.tasks.stop();
  REQUIRE(left.size() == 1);
  CHECK(left.begin()->attempts() == 1);
  stage other({.retry = steady(3)});
  other.tasks.submit(std::move(*left.begin()));
  other.pass(1h);
  CHECK(other.tasks.stats().started == 3);
}

// ---- 3.3: due

TEST_CASE("3.3 a task is due at its due time, and not before") {
  stage on;
  int runs = 0;
  on.tasks.submit("a", {.delay = 1s}, [&runs] { ++runs; });
  on.time.jump(1s - 1ns);
  on.time.ring();
  on.run();
  CHECK(runs == 0);
  on.time.jump(1ns);
  on.run();
  CHECK(runs == 1);
}

TEST_CASE("3.3 an earlier timer that is set later wakes in time") {
  stage on;
  names ran;
  on.tasks.submit("late", {.delay = 1h}, [&ran] { ran.push_back("late"); });
  on.tasks.submit("early", {.delay = 1s}, [&ran] { ran.push_back("early"); });
  CHECK(on.time.next_wake() == on.time.now() + 1s);
  on.pass(1s);
  CHECK(ran == names{"early"});
  CHECK(on.time.next_wake() == on.time.now() + 1h - 1s);
  on.pass(1h);
  CHECK(ran == names{"early", "late"});
}

TEST_CASE("3.3 a wake for one task brings back all that is due by then") {
  stage on;
  int runs = 0;
  for (int i = 0; i != 200; ++i)
    on.tasks.submit(std::to_string(i), {.delay = std::chrono::seconds{i}}, [&runs] { ++runs; });
  on.time.jump(150s);  // one late wake
  on.run();
  CHECK(runs == 151);
  CHECK(on.time.next_wake() == on.time.now() + 1s);
}

TEST_CASE("3.3 tasks of one key that are due together start by id") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    stage on({.retry = steady(2)});
    numbers ran;
    for (int i = 0; i != 20; ++i)
      on.tasks.submit("a", {.policy = p}, [&ran, i](attempt& a) {
        if (a.number() == 1) return outcome::retry_after(1s);
        ran.push_back(i);
        return outcome::success();
      });
    on.run();
    on.pass(1s);
    REQUIRE(ran.size() == 20);
    for (int i = 0; i != 20; ++i) CHECK(ran[static_cast<std::size_t>(i)] == i);
  }
}

// ---- 3.4: a first delay

TEST_CASE("3.4 a delay keeps the first attempt back, and no later one") {
  stage on({.retry = steady(2)});
  int runs = 0;
  on.tasks.submit("a", {.delay = 1h}, [&runs] { return ++runs == 1 ? outcome::retry_after(0s) : outcome::success(); });
  on.run();
  on.pass(1h - 1ns);
  CHECK(runs == 0);
  on.pass(1ns);
  CHECK(runs == 2);
}

TEST_CASE("3.4 a delay of 0 or less is none") {
  for (const duration delay : {duration{0}, duration{-1s}, (duration::min)()}) {
    stage on;
    int runs = 0;
    on.tasks.submit("a", {.delay = delay}, [&runs] { ++runs; });
    on.run();
    CHECK(runs == 1);
  }
}

TEST_CASE("3.4 a delayed ordered task keeps the place of its id") {
  stage on;
  numbers ran;
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 1s}, [&ran] { ran.push_back(1); });
  on.tasks.submit("a", {.policy = policy::ordered}, [&ran] { ran.push_back(2); });
  on.tasks.submit("a", {.policy = policy::exclusive}, [&ran] { ran.push_back(3); });
  on.run();
  CHECK(ran == numbers{3});
  on.pass(1s);
  CHECK(ran == numbers{3, 1, 2});
}

TEST_CASE("2.9, 3.4 a delayed task that is due goes before waiting larger ids") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    stage on;
    numbers ran;
    on.tasks.submit("a", {.policy = p, .delay = 1s}, [&ran] { ran.push_back(1); });
    on.tasks.submit("a", {.policy = p}, [&ran] { ran.push_back(2); });
    on.time.jump(1s);
    on.run();
    CHECK(ran == numbers{1, 2});
  }
}

// ---- the largest numbers

TEST_CASE("3, 3.1, 9.2 a task that is postponed 2^32 times and more has had as many attempts as a number can say") {
  // The count came round to 0: after 50 days of a postpone every millisecond, a task had hardly ever run, and the
  // largest max_postpones was never used up.
  constexpr std::uint32_t most = ~0U;
  const auto postponed = [](std::uint32_t times) {  // before
    return [times](attempt& a) {
      turnkey::detail::engine::recount(a, 0, times);
      return outcome::postpone(1s);
    };
  };
  stage on;
  for (const std::uint32_t times : {most - 1, most}) {
    const task_id unlimited = on.tasks.submit("a", postponed(times));
    on.run();
    CHECK(on.tasks.find(unlimited)->attempts == most);
    const task_id limited = on.tasks.submit("a", {.retry = retry_policy{.max_postpones = most}}, postponed(times));
    on.run();
    CHECK(on.tasks.find(limited).has_value() == (times < most));
  }
  REQUIRE(on.tasks.dead_tasks().size() == 1);
  CHECK(on.tasks.dead_tasks().front().attempts == most);
}

// ---- 3.5: what the attempt knows

TEST_CASE("3.5 an attempt knows its id, its number, its fence and its lease") {
  stage on({.retry = steady(2), .first_fence = 41});
  std::vector<task_id> ids;
  std::vector<std::uint64_t> fences;
  std::vector<bool> leases;
  const auto note = [&](attempt& a) {
    ids.push_back(a.id());
    fences.push_back(a.fence());
    leases.push_back(a.has_lease());
    return a.number() == 1 ? outcome::retry() : outcome::success();
  };
  const task_id leased = on.tasks.submit("a", {.policy = policy::exclusive}, note);
  on.pass(1s);
  const task_id parallel = on.tasks.submit("a", note);
  on.pass(1s);
  CHECK(ids == std::vector{leased, leased, parallel, parallel});
  CHECK(fences == std::vector<std::uint64_t>{41, 42, 0, 0});
  CHECK(leases == std::vector{true, true, false, false});
}

TEST_CASE("3.5 an attempt is told to stop when its task is cancelled") {
  stage on;
  names seen;
  const auto note = [&seen](const char* what, bool stop) { seen.push_back(what + std::string(stop ? " yes" : " no")); };
  on.tasks.submit("a", [&](attempt& a) {
    const std::stop_token before = a.stop_token();
    note("asked", a.stop_requested());
    note("token", before.stop_requested());
    on.tasks.cancel(a.id());
    note("asked", a.stop_requested());
    note("token", before.stop_requested());
    note("later token", a.stop_token().stop_requested());
  });
  on.run();
  CHECK(seen == names{"asked no", "token no", "asked yes", "token yes", "later token yes"});
}

TEST_CASE("3.5 a stop token that is asked for after the cancel says stop") {
  stage on;
  bool stop = false;
  on.tasks.submit("a", [&](attempt& a) {
    on.tasks.cancel(a.id());
    stop = a.stop_token().stop_requested();
  });
  on.run();
  CHECK(stop);
}

TEST_CASE("3.5 an attempt is told to stop when the scheduler stops") {
  stage on;
  bool token = false;
  bool asked = false;
  on.tasks.submit("a", [&](attempt& a) {
    const std::stop_token told = a.stop_token();
    static_cast<void>(on.tasks.stop());
    token = told.stop_requested();
    asked = a.stop_requested();
  });
  on.run();
  CHECK(token);
  CHECK(asked);
}

TEST_CASE("3.5 the next attempt of a task is not told to stop because of another task's cancel") {
  stage on({.retry = steady(2)});
  bool stop = true;
  const task_id other = on.tasks.submit("a", {.delay = 1h}, [] {});
  on.tasks.submit("a", [&](attempt& a) {
    static_cast<void>(a.stop_token());
    if (a.number() == 1) {
      on.tasks.cancel(other);
      return outcome::retry_after(0s);
    }
    stop = a.stop_requested() || a.stop_token().stop_requested();
    return outcome::success();
  });
  on.run();
  CHECK(!stop);
}
