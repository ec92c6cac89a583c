#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

using turnkey::drain_result;
using turnkey::event;
using turnkey::event_kind;
using turnkey::outcome;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::scheduler;
using turnkey::stats;
using turnkey::task_id;
using turnkey::testing::on_offer;
using namespace std::chrono_literals;

namespace {

using kinds = std::vector<event_kind>;

}  // namespace

// Each look of submit_for() for room was counted as a refusal of its own.
TEST_CASE("9.1 a submit_for that is refused counts as one refusal") {
  stage on({.max_pending = 1});
  on.tasks.submit("a", [] {});
  CHECK(!on.tasks.submit_for(0s, "b", [] {}));
  CHECK(on.tasks.stats().rejected == 1);
}

TEST_CASE("9.4 what happens between attempts names no fence, and a dead task that leaves names its last one") {
  std::map<event_kind, std::uint64_t> fences;
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1h, .max_delay = 1h, .jitter = 0},
            .max_dead = 1,
            .observer = [&fences](const event<std::string>& e) { fences[e.kind] = e.fence; }});
  const turnkey::task_options exclusive{.policy = policy::exclusive};
  const task_id resting = on.tasks.submit("a", exclusive, [] { throw 1; });
  on.run();
  CHECK(on.tasks.cancel(resting));
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", exclusive, [] { return outcome::dead(); });
  on.run();
  CHECK(on.tasks.discard_all() == 1);
  CHECK(fences[event_kind::submitted] == 0);
  CHECK(fences[event_kind::failed] == 1);
  CHECK(fences[event_kind::cancelled] == 0);
  CHECK(fences[event_kind::dead] == 4);
  CHECK(fences[event_kind::evicted] == 3);
  CHECK(fences[event_kind::discarded] == 4);
}

// Only `started` named the fence: the others were written when the lease was given up already.
TEST_CASE("9.4 the events of an attempt name its fence") {
  std::map<event_kind, std::uint64_t> fences;
  stage on({.observer = [&fences](const event<std::string>& e) { fences[e.kind] = e.fence; }});
  on.tasks.submit("a", {.policy = policy::exclusive}, [] {});
  on.tasks.submit("a", {.policy = policy::exclusive}, [] { throw 1; });
  on.run();
  CHECK(fences[event_kind::started] == 2);
  CHECK(fences[event_kind::succeeded] == 1);
  CHECK(fences[event_kind::dead] == 2);
}

TEST_CASE("9.1 every counter counts its own thing") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0}, .max_dead = 1});
  on.tasks.submit("a", [] {});
  on.tasks.submit("b", [] { return outcome::retry(); });
  on.tasks.submit("c", [] { return outcome::dead(); });
  on.tasks.submit("d", [n = 0]() mutable { return ++n < 4 ? outcome::postpone(0s) : outcome::success(); });
  on.tasks.cancel(on.tasks.submit("e", [] {}));
  CHECK(!on.tasks.try_submit({.policy = policy::ordered}, [] {}));
  on.pass(1min);
  CHECK(on.tasks.redrive_all() == 1);
  on.pass(1min);
  on.tasks.submit("f", {.delay = 1h}, [] {});
  CHECK(on.tasks.stop().size() == 1);
  const stats s = on.tasks.stats();
  CHECK(s.submitted == 6);
  CHECK(s.started == 1 + 2 + 1 + 4 + 2);
  CHECK(s.succeeded == 2);
  CHECK(s.failed_attempts == 2 + 1 + 2);
  CHECK(s.postponed == 3);
  CHECK(s.died == 3);
  CHECK(s.cancelled == 1);
  CHECK(s.undone == 1);
  CHECK(s.redriven == 1);
  CHECK(s.rejected == 1);
  CHECK(s.dead_evicted == 1);
  CHECK(s.executor_refusals == 0);
  CHECK(s.permits_lost == 0);
}

TEST_CASE("9.1 refusals of the executor and lost permits are counted") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  on.pool.set_mode(on_offer::drop);
  on.time.advance(1ms);
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  CHECK(on.tasks.stats().executor_refusals == 1);
  CHECK(on.tasks.stats().permits_lost == 1);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("9.1 the gauges say what is there now") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  on.tasks.submit("held", {.policy = policy::exclusive}, [] { return outcome::dead(); });
  on.run();
  on.tasks.submit("held", [] {});                            // waiting
  on.tasks.submit("a", {.policy = policy::ordered}, [] {});  // ready
  on.tasks.submit("a", {.policy = policy::ordered}, [] {});  // waiting
  on.tasks.submit("b", [] {});                               // ready
  on.tasks.submit("b", [] {});                               // ready
  on.tasks.submit([] {});                                    // ready, of no key
  on.tasks.submit("c", {.delay = 1h}, [] {});                // delayed
  const stats s = on.tasks.stats();
  CHECK(s.waiting == 2);
  CHECK(s.ready == 4);
  CHECK(s.running == 0);
  CHECK(s.delayed == 1);
  CHECK(s.dead == 1);
  CHECK(s.keys == 4);
  CHECK(s.held_keys == 1);
  CHECK(s.unfinished() == 7);
}

TEST_CASE("9.1 keys counts those with an unfinished task or a hold, not those of the dead alone") {
  stage on;
  on.tasks.submit("a", [] { return outcome::dead(); });
  CHECK(on.tasks.stats().keys == 1);
  on.run();
  CHECK(on.tasks.stats().keys == 0);
  CHECK(on.tasks.stats().dead == 1);
  on.tasks.redrive("a");
  CHECK(on.tasks.stats().keys == 1);
}

TEST_CASE("9.1 oldest_age is that of the unfinished task that was submitted first") {
  stage on;
  CHECK(on.tasks.stats().oldest_age == 0s);
  const task_id first = on.tasks.submit("a", {.delay = 1h}, [] {});
  on.time.advance(10s);
  on.tasks.submit("b", {.delay = 1h}, [] {});
  on.time.advance(5s);
  CHECK(on.tasks.stats().oldest_age == 15s);
  on.tasks.cancel(first);
  CHECK(on.tasks.stats().oldest_age == 5s);
  on.tasks.cancel_all();
  CHECK(on.tasks.stats().oldest_age == 0s);
}

// ---- 9.4: the observer

TEST_CASE("9.4 the observer is told of every step of a life, in order") {
  kinds told;
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0},
            .observer = [&told](const event<std::string>& e) { told.push_back(e.kind); }});
  on.tasks.submit("a", [n = 0]() mutable {
    ++n;
    if (n == 1) return outcome::postpone(1s);
    return n < 4 ? outcome::retry() : outcome::success();
  });
  on.pass(1min);
  CHECK(told == kinds{event_kind::submitted, event_kind::started, event_kind::postponed, event_kind::started,
                      event_kind::failed, event_kind::started, event_kind::dead});
  told.clear();
  on.tasks.redrive_all();
  on.pass(1min);
  CHECK(told == kinds{event_kind::redriven, event_kind::started, event_kind::succeeded});
}

TEST_CASE("9.4 the observer is told of discarding, eviction, cancelling and undoing") {
  std::map<event_kind, int> told;
  stage on({.max_dead = 1, .observer = [&told](const event<std::string>& e) { ++told[e.kind]; }});
  for (const char* key : {"a", "b"}) on.tasks.submit(key, [] { return outcome::dead(); });
  on.run();
  on.tasks.discard_all();
  on.tasks.cancel(on.tasks.submit("a", [] {}));
  on.tasks.submit("a", [] {});
  static_cast<void>(on.tasks.stop());
  CHECK(told[event_kind::dead] == 2);
  CHECK(told[event_kind::evicted] == 1);
  CHECK(told[event_kind::discarded] == 1);
  CHECK(told[event_kind::cancelled] == 1);
  CHECK(told[event_kind::undone] == 1);
}

TEST_CASE("9.4 the observer is told of refusals, with the error, and of lost permits") {
  std::vector<std::string> told;
  stage on({.observer = [&told](const event<std::string>& e) {
    if (e.kind == event_kind::executor_refused) told.push_back(e.error != nullptr ? e.error->text() : "refused");
    if (e.kind == event_kind::permit_lost) told.push_back("lost");
  }});
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  on.pool.set_mode(on_offer::fail);
  on.time.advance(1ms);
  on.pool.set_mode(on_offer::drop);
  on.time.advance(2ms);
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  CHECK(told == std::vector<std::string>{"refused", "manual_executor: told to fail", "lost"});
}

TEST_CASE("9.4 an event names id, key, policy, attempt, times and error") {
  std::vector<event_kind> seen;
  std::optional<task_id> id;
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 3s, .jitter = 0},
            .observer = [&](const event<std::string>& e) {
              if (!id) id = e.id;
              CHECK(e.id == *id);
              CHECK(*e.key == "a");
              CHECK(e.policy == policy::exclusive);
              seen.push_back(e.kind);
              if (e.kind == event_kind::submitted) CHECK(e.attempt == 0);
              if (e.kind == event_kind::submitted) CHECK(e.due == e.time + 5s);
              if (e.kind == event_kind::failed) CHECK(e.attempt == 1);
              if (e.kind == event_kind::failed) CHECK(e.due == e.time + 3s);
              if (e.kind == event_kind::failed) CHECK(e.error->text() == "once");
              if (e.kind == event_kind::dead) CHECK(e.attempt == 2);
              if (e.kind == event_kind::dead) CHECK(e.time == on.time.now());
              if (e.kind == event_kind::dead) CHECK(e.error->reason() == turnkey::failure_reason::threw);
            }});
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 5s}, [n = 0]() mutable {
    if (++n == 2) throw std::runtime_error("twice");
    return outcome::retry("once");
  });
  on.pass(1min);
  CHECK(seen.size() == 5);
}

TEST_CASE("9.4 an event of a task without a key has no key") {
  bool told = false;
  stage on({.observer = [&told](const event<std::string>& e) {
    told = true;
    CHECK(e.key == nullptr);
  }});
  on.tasks.submit([] {});
  on.run();
  CHECK(told);
}

TEST_CASE("9.4 the numbers of a key's events rise in the order of what happened") {
  std::map<std::string, std::vector<std::uint64_t>> numbers;
  std::map<std::string, kinds> told;
  stage on({.retry = retry_policy{.initial_delay = 0s}, .observer = [&](const event<std::string>& e) {
              numbers[*e.key].push_back(e.number);
              told[*e.key].push_back(e.kind);
            }});
  for (int i = 0; i != 30; ++i)
    on.tasks.submit(std::to_string(i % 3), {.policy = policy::ordered},
                    [n = 0]() mutable { return ++n == 1 ? outcome::retry() : outcome::success(); });
  on.run();
  for (const auto& [key, each] : numbers) {
    CHECK(each.size() == 10 * 5);
    std::map<std::uint64_t, event_kind> in_order;
    for (std::size_t i = 0; i != each.size(); ++i) in_order[each[i]] = told[key][i];
    CHECK(in_order.size() == each.size());  // none twice
    kinds tail;
    for (const auto& [number, kind] : in_order) tail.push_back(kind);
    for (std::size_t i = 10; i != tail.size(); i += 4)
      CHECK(kinds(tail.begin() + static_cast<std::ptrdiff_t>(i), tail.begin() + static_cast<std::ptrdiff_t>(i) + 4) ==
            kinds{event_kind::started, event_kind::failed, event_kind::started, event_kind::succeeded});
  }
}

TEST_CASE("9.4 an observer that throws harms nothing") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s},
            .max_dead = 0,
            .observer = [](const event<std::string>&) { throw 1; }});
  CHECK_NOTHROW(on.tasks.submit("a", {.policy = policy::ordered}, [] { throw 2; }));
  CHECK_NOTHROW(on.tasks.submit("a", {.policy = policy::ordered}, [] {}));
  on.pool.set_mode(on_offer::refuse);
  CHECK_NOTHROW(on.tasks.submit("b", [] {}));
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(on.tasks.stats().dead_evicted == 1);
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("9.4 an observer may submit, cancel and look, and does not wait") {
  scheduler<std::string>* tasks = nullptr;
  int follow_ups = 0;
  std::vector<drain_result> waits;
  stage on({.observer = [&](const event<std::string>& e) {
    static_cast<void>(tasks->stats());
    waits.push_back(tasks->drain());
    if (e.kind == event_kind::succeeded && *e.key == "a") tasks->submit("b", [&follow_ups] { ++follow_ups; });
    if (e.kind == event_kind::submitted && *e.key == "c") CHECK(tasks->cancel(e.id));
  }});
  tasks = &on.tasks;
  on.tasks.submit("a", [] {});
  on.tasks.submit("c", [] {});
  on.run();
  CHECK(follow_ups == 1);
  CHECK(on.tasks.stats().cancelled == 1);
  CHECK(waits == std::vector(waits.size(), drain_result::would_deadlock));
}
