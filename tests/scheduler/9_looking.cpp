#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <utility>
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

// ---- 9.2 why a task does not run

namespace {

using turnkey::pace;
using turnkey::task_info;
using turnkey::task_state;
using turnkey::why;

const turnkey::task_options in_order{.policy = policy::ordered};

std::string sentence(stage& on, task_id id) { return to_string(on.tasks.find(id)->why, on.time.now()); }
std::string number(task_id id) { return std::to_string(static_cast<std::uint64_t>(id)); }

}  // namespace

TEST_CASE("9.2 why: a dead task holds the key") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  const task_id dead = on.tasks.submit("a", in_order, [] { throw 1; });
  on.run();
  const task_id id = on.tasks.submit("a", [] {});
  on.tasks.pause("a");  // a hold comes first
  const auto info = on.tasks.find(id);
  REQUIRE(info);
  CHECK(info->state == task_state::waiting);
  CHECK(info->why.kind == why::reason::key_held);
  CHECK(info->why.task == dead);
  CHECK(info->why.state == task_state::dead);
  CHECK(sentence(on, id) == "dead task " + number(dead) + " holds the key: redrive, discard or release it");
  CHECK(!on.tasks.find(dead));

  on.tasks.resume("a");
  on.tasks.pause();
  CHECK(on.tasks.redrive(dead));
  CHECK(on.tasks.find(id)->why.state == task_state::ready);
  CHECK(sentence(on, id) ==
        "task " + number(dead) + ", which died before and is ready now, holds the key until it succeeds");
}

TEST_CASE("9.2 why: the key is paused") {
  stage on;
  on.tasks.pause("a");
  const task_id id = on.tasks.submit("a", {.policy = policy::ordered, .delay = 1h}, [] {});  // comes before the time
  CHECK(on.tasks.find(id)->state == task_state::delayed);
  CHECK(on.tasks.find(id)->why.kind == why::reason::key_paused);
  CHECK(sentence(on, id) == "the key is paused");
}

TEST_CASE("9.2 why: due at a time") {
  stage on;
  on.tasks.submit("a", in_order, [] {});
  const task_id id = on.tasks.submit("a", {.policy = policy::ordered, .delay = 5s}, [] {});  // before the predecessor
  const auto info = on.tasks.find(id);
  CHECK(info->state == task_state::delayed);
  CHECK(info->why.kind == why::reason::not_due);
  CHECK(info->why.time == on.time.now() + 5s);
  CHECK(info->due == info->why.time);
  CHECK(sentence(on, id) == "due in 5000 ms");
}

TEST_CASE("9.2 why: a predecessor, and its state") {
  stage on({.retry = retry_policy{.initial_delay = 1h, .max_delay = 1h, .jitter = 0}});
  const task_id first = on.tasks.submit("a", [](turnkey::attempt& a) {
    if (a.number() == 1) throw 1;
  });
  on.tasks.submit("a", in_order, [] {});
  const task_id id = on.tasks.submit("a", in_order, [] {});
  CHECK(on.tasks.find(id)->why.kind == why::reason::predecessor);
  CHECK(on.tasks.find(id)->why.task == first);
  CHECK(on.tasks.find(id)->why.state == task_state::ready);
  on.run();
  CHECK(on.tasks.find(id)->why.state == task_state::delayed);
  CHECK(sentence(on, id) == "ordered behind task " + number(first) + ", which is delayed");
  CHECK(on.tasks.find(first)->attempts == 1);
}

TEST_CASE("9.2 why: another has the lease") {
  stage on({.retry = retry_policy{.initial_delay = 1s, .jitter = 0}});
  task_id other{};
  bool looked = false;
  const task_id holder = on.tasks.submit("a", {.policy = policy::exclusive}, [&](turnkey::attempt& a) {
    if (a.number() == 1) throw 1;
    on.tasks.pause();  // comes after the lease
    on.time.jump(250ms);
    const auto info = on.tasks.find(other);
    CHECK(info->why.kind == why::reason::lease);
    CHECK(info->why.task == a.id());
    CHECK(info->why.attempt == 2);
    CHECK(info->why.time == on.time.now() - 250ms);
    CHECK(sentence(on, other) == "task " + number(a.id()) + " has the key's lease: attempt 2, for 250 ms");
    const auto self = on.tasks.find(a.id());
    CHECK(self->state == task_state::running);
    CHECK(self->why.kind == why::reason::running);
    CHECK(self->since == on.time.now() - 250ms);
    CHECK(self->attempts == 2);
    CHECK(sentence(on, a.id()) == "nothing: it runs");
    looked = true;
  });
  on.run();
  on.time.jump(1s);
  other = on.tasks.submit("a", {.policy = policy::exclusive}, [] {});
  on.run();
  CHECK(looked);
  CHECK(!on.tasks.find(holder));
}

TEST_CASE("9.2 why: everything is paused, then the limit, then the pace") {
  stage on({.max_in_flight = 1});
  on.tasks.set_pace(pace{.n = 1, .interval = 10s});
  task_id id{};
  on.tasks.submit("a", [&] {
    CHECK(on.tasks.find(id)->why.kind == why::reason::max_in_flight);
    CHECK(on.tasks.find(id)->why.number == 1);
    CHECK(sentence(on, id) == "max_in_flight allows 1 at a time, and as many run");
    on.tasks.pause();
    CHECK(on.tasks.find(id)->why.kind == why::reason::paused);
    CHECK(sentence(on, id) == "everything is paused");
    on.tasks.resume();
  });
  id = on.tasks.submit("b", [] {});
  on.run();
  const auto info = on.tasks.find(id);
  CHECK(info->state == task_state::ready);
  CHECK(info->why.kind == why::reason::pace);
  CHECK(info->why.time == on.time.now() + 10s);
  CHECK(sentence(on, id) == "the pace lets the next one start in 10000 ms");
}

TEST_CASE("9.2 why: the executor has not come, or workers are busy with what goes first") {
  stage on;
  task_id id{};
  on.tasks.submit("a", [&] {
    CHECK(on.tasks.find(id)->why.kind == why::reason::turn);
    CHECK(sentence(on, id) == "waits for its turn: the workers are busy with what goes first");
  });
  id = on.tasks.submit("b", [] {});
  CHECK(on.tasks.find(id)->why.kind == why::reason::executor);
  CHECK(sentence(on, id) == "waits for the executor: no thread of it has come yet");
  on.run();
}

TEST_CASE("9.2 find tells key, policy and times; nothing for finished, dead and unknown ids") {
  stage on;
  const auto submitted = on.time.now();
  const task_id keyed = on.tasks.submit("a", in_order, [] { return outcome::retry_after(1s); });
  const task_id keyless = on.tasks.submit({.delay = 3s}, [] {});
  on.time.jump(1s);
  CHECK(on.tasks.find(keyed)->id == keyed);
  CHECK(on.tasks.find(keyed)->key == "a");
  CHECK(on.tasks.find(keyed)->policy == policy::ordered);
  CHECK(on.tasks.find(keyed)->submitted == submitted);
  CHECK(on.tasks.find(keyed)->since == submitted);
  CHECK(!on.tasks.find(keyless)->key);
  CHECK(on.tasks.find(keyless)->due == submitted + 3s);
  on.run();
  for (const task_id id : {keyed, task_id{0}, task_id{~0ULL}}) CHECK(!on.tasks.find(id));
  CHECK(on.tasks.dead_tasks().size() == 1);
  CHECK(on.tasks.redrive(keyed));
  CHECK(on.tasks.find(keyed)->state == task_state::ready);
  CHECK(on.tasks.find(keyed)->attempts == 0);
}

TEST_CASE("9.2 since: when a retry came back into its line") {
  stage on({.retry = retry_policy{.max_attempts = 3, .initial_delay = 1s, .jitter = 0}});
  const task_id id = on.tasks.submit("a", [] { throw 1; });
  on.run();
  const auto failed = on.time.now();
  CHECK(on.tasks.find(id)->due == failed + 1s);
  on.tasks.pause();
  on.pass(5s);
  CHECK(on.tasks.find(id)->since == failed + 1s);
  CHECK(!on.tasks.find(id)->due);
}

// Everything that can be against a task, in each combination: the first in the order of rule 9.2 is named.
TEST_CASE("9.2 why: of several reasons that hold the first is told, for every combination") {
  enum : unsigned { held = 1, key_paused = 2, not_due = 4, predecessor = 8, lease = 16, paused = 32, limit = 64 };
  constexpr unsigned the_pace = 128;
  for (unsigned is = 0; is != 256; ++is) {
    CAPTURE(is);
    stage on({.dead_action = turnkey::dead_action::hold_key});
    bool looked = false;
    const auto look = [&] {
      const task_id id = on.tasks.submit("a",
                                         {.policy = (is & predecessor) != 0 ? policy::ordered : policy::exclusive,
                                          .delay = (is & not_due) != 0 ? 1h : 0h},
                                         [] {});
      if ((is & key_paused) != 0) on.tasks.pause("a");
      if ((is & paused) != 0) on.tasks.pause();
      if ((is & limit) != 0) on.tasks.set_max_in_flight(1);
      const auto info = on.tasks.find(id);
      unsigned expected = 0;
      while (expected != 8 && (is >> expected & 1) == 0) ++expected;
      if (expected > 4) ++expected;                                 // nothing reserves: see 7_several_keys.cpp
      CHECK(info->why.kind == static_cast<why::reason>(expected));  // with none of them: turn
      CHECK((info->state == task_state::delayed) == ((is & not_due) != 0));
      CHECK((info->state == task_state::ready) == ((is & (held | key_paused | not_due | predecessor | lease)) == 0));
      looked = true;
    };
    // Who looks runs with the lease of the key, or beside it. It has a smaller id than the holder: it may start.
    on.tasks.submit((is & lease) != 0 ? "a" : "other", {.policy = policy::exclusive, .delay = 1s}, look);
    if ((is & predecessor) != 0) on.tasks.submit("a", {.delay = 10h}, [] {});
    if ((is & held) != 0) on.tasks.submit("a", {.policy = policy::exclusive}, [] { throw 1; });
    on.run();
    if ((is & the_pace) != 0) on.tasks.set_pace(pace{.n = 1, .interval = 10h});
    on.pass(1s);
    CHECK(looked);
  }
}

TEST_CASE("9.2 why: when nobody works it is the executor, and never a turn") {
  stage on;
  const task_id exclusive = on.tasks.submit("a", {.policy = policy::exclusive}, [] {});
  const task_id behind = on.tasks.submit("a", {.policy = policy::exclusive}, [] {});  // nothing but its turn keeps it
  const task_id keyless = on.tasks.submit([] {});
  for (const task_id id : {exclusive, behind, keyless}) CHECK(on.tasks.find(id)->why.kind == why::reason::executor);
  CHECK(on.tasks.find(exclusive)->state == task_state::ready);
  CHECK(on.tasks.find(behind)->state == task_state::waiting);
  on.pool.set_mode(on_offer::refuse);
  on.pool.drop_all();
  CHECK(on.tasks.find(keyless)->why.kind == why::reason::executor);
}

// The time was one that had come already, where nothing had started since.
TEST_CASE("9.2 why: a pace whose time has come is no reason any more") {
  stage on;
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  on.tasks.submit("a", [] {});
  on.run();
  on.time.jump(2s);
  const task_id id = on.tasks.submit("a", [] {});
  CHECK(on.tasks.find(id)->why.kind == why::reason::executor);
  on.pass(0s);
  CHECK(!on.tasks.find(id));
}

TEST_CASE("9.2 why: fields that a reason does not name are as they were made") {
  stage on;
  on.tasks.pause("a");
  const task_id id = on.tasks.submit("a", in_order, [] {});
  const auto nothing_but = [&](why::reason reason) {
    const why w = on.tasks.find(id)->why;
    CHECK(w.kind == reason);
    CHECK(w.task == task_id{});
    CHECK(w.state == task_state{});
    CHECK(w.attempt == 0);
    CHECK(w.time == turnkey::time_point{});
    CHECK(w.number == 0);
  };
  nothing_but(why::reason::key_paused);
  on.tasks.pause();
  on.tasks.resume("a");
  nothing_but(why::reason::paused);
  on.tasks.resume();
  nothing_but(why::reason::executor);
}

TEST_CASE("9.2 why: every reason has a name and a sentence") {
  for (std::uint8_t i = 0; i != 12; ++i) {
    CHECK(to_string(static_cast<why::reason>(i)) != std::string("?"));
    CHECK(to_string(why{.kind = static_cast<why::reason>(i)}) != "?");
  }
  CHECK(to_string(static_cast<why::reason>(12)) == std::string("?"));
  CHECK(to_string(why{.kind = static_cast<why::reason>(12)}) == "?");
  CHECK(to_string(why::reason::max_in_flight) == std::string("max_in_flight"));
}

TEST_CASE("9.2 why: of several predecessors the first unfinished one is named, of every policy and in every state") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  const task_id first = on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1h}, [] {});
  const task_id second = on.tasks.submit("a", [] {});
  const task_id id = on.tasks.submit("a", in_order, [] {});
  CHECK(on.tasks.find(id)->why.task == first);
  CHECK(on.tasks.find(id)->why.state == task_state::delayed);
  on.tasks.cancel(first);
  CHECK(on.tasks.find(id)->why.task == second);
  CHECK(on.tasks.find(id)->why.state == task_state::ready);
  CHECK(sentence(on, id) == "ordered behind task " + number(second) + ", which is ready");
  on.tasks.cancel(second);
  CHECK(on.tasks.find(id)->why.kind == why::reason::executor);
}

TEST_CASE("9.2 why: a task that was postponed is due; a running predecessor is told as running") {
  stage on;
  task_id behind{};
  const task_id id = on.tasks.submit("a", in_order, [&] {
    CHECK(on.tasks.find(behind)->why.kind == why::reason::predecessor);  // before the lease
    CHECK(on.tasks.find(behind)->why.state == task_state::running);
    return outcome::postpone(2s);
  });
  behind = on.tasks.submit("a", in_order, [] {});
  on.run();
  const auto info = on.tasks.find(id);
  CHECK(info->state == task_state::delayed);
  CHECK(info->attempts == 1);
  CHECK(info->why.kind == why::reason::not_due);
  CHECK(info->why.time == on.time.now() + 2s);
  CHECK(sentence(on, id) == "due in 2000 ms");
}

TEST_CASE("9.2 find works from inside callbacks and observers, and after close()") {
  scheduler<std::string>* tasks = nullptr;
  std::vector<std::optional<task_state>> seen;
  stage on({.observer = [&](const event<std::string>& e) {
    const auto info = tasks->find(e.id);
    seen.push_back(info ? std::optional(info->state) : std::nullopt);
  }});
  tasks = &on.tasks;
  const task_id id = on.tasks.submit("a", [] {});
  on.tasks.close();
  CHECK(on.tasks.find(id)->state == task_state::ready);
  on.run();
  CHECK(seen == std::vector<std::optional<task_state>>{task_state::ready, task_state::running, std::nullopt});
}

TEST_CASE("9.2 find gives nothing after stop(), and for a task that was handed back") {
  stage on;
  const task_id id = on.tasks.submit("a", [] {});
  const task_id delayed = on.tasks.submit([] {});
  const auto left = on.tasks.stop();
  CHECK(left.size() == 2);
  CHECK(!on.tasks.find(id));
  CHECK(!on.tasks.find(delayed));
  CHECK(on.tasks.busiest_keys(3).empty());
}

TEST_CASE("9.2 find gives nothing once a task has succeeded, died or was cancelled, and its key may go on") {
  stage on;
  const task_id succeeded = on.tasks.submit("a", [] {});
  const task_id dead = on.tasks.submit("a", [] { return outcome::dead(); });
  const task_id cancelled = on.tasks.submit("a", {.delay = 1h}, [] {});
  on.tasks.cancel(cancelled);
  on.run();
  on.tasks.submit("a", [] {});
  for (const task_id id : {succeeded, dead, cancelled}) CHECK(!on.tasks.find(id));
}

// ---- 9.3 the hot keys

TEST_CASE("9.3 busiest_keys: the deepest first, equal ones by age, with head and flags") {
  stage on;
  on.tasks.submit([] {});  // no key: not listed
  const task_id old = on.tasks.submit("old", in_order, [] {});
  on.time.jump(1s);
  for (int i = 0; i != 3; ++i) on.tasks.submit("deep", in_order, [] {});
  const task_id young = on.tasks.submit("young", {.delay = 1h}, [] {});
  on.tasks.pause("deep");
  on.tasks.pause("empty");
  const auto all = on.tasks.busiest_keys(10);
  REQUIRE(all.size() == 3);
  CHECK(all[0].key == "deep");
  CHECK(all[0].depth == 3);
  CHECK(all[0].paused);
  CHECK(!all[0].held);
  CHECK(all[0].head_state == task_state::waiting);
  CHECK(all[1].key == "old");
  CHECK(all[1].head == old);
  CHECK(all[1].head_state == task_state::ready);
  CHECK(all[1].oldest_age == 1s);
  CHECK(all[2].key == "young");
  CHECK(all[2].head == young);
  CHECK(all[2].head_state == task_state::delayed);
  CHECK(on.tasks.busiest_keys(0).empty());
  CHECK(on.tasks.busiest_keys(1)[0].key == "deep");
}

TEST_CASE("9.3 busiest_keys finds the right ones among many") {
  scheduler<int> s{[](turnkey::work) {}};
  for (int key = 0; key != 10'000; ++key)
    for (int i = 0; i <= (key % 1000 == 7 ? key / 1000 + 1 : 0); ++i) s.submit(key, [] {});
  const auto hot = s.busiest_keys(5);
  REQUIRE(hot.size() == 5);
  for (int i = 0; i != 5; ++i) {
    CHECK(hot[static_cast<std::size_t>(i)].key == (9 - i) * 1000 + 7);
    CHECK(hot[static_cast<std::size_t>(i)].depth == static_cast<std::size_t>(11 - i));
  }
  CHECK(s.busiest_keys(~std::size_t{0}).size() == 10'000);
}

TEST_CASE("9.3 busiest_keys: n larger than the keys gives all of them, 0 none; tasks without a key are not listed") {
  stage on;
  CHECK(on.tasks.busiest_keys(5).empty());
  for (int i = 0; i != 9; ++i) on.tasks.submit([] {});
  CHECK(on.tasks.busiest_keys(5).empty());
  for (const char* key : {"a", "b", "a"}) on.tasks.submit(key, [] {});
  for (const std::size_t n : {0U, 1U, 2U, 3U, 1000U}) CHECK(on.tasks.busiest_keys(n).size() == (n < 2 ? n : 2));
  CHECK(on.tasks.busiest_keys(1)[0].key == "a");
}

TEST_CASE("9.3 busiest_keys: of equally deep keys the one with the oldest task comes first, and is kept") {
  stage on;
  for (int i = 0; i != 40; ++i) {
    on.tasks.submit(std::to_string(i), [] {});
    on.time.jump(1s);
  }
  const auto three = on.tasks.busiest_keys(3);
  REQUIRE(three.size() == 3);
  for (int i = 0; i != 3; ++i) {
    CHECK(three[static_cast<std::size_t>(i)].key == std::to_string(i));
    CHECK(three[static_cast<std::size_t>(i)].oldest_age == std::chrono::seconds{40 - i});
  }
  CHECK(on.tasks.busiest_keys(40)[39].key == "39");
}

TEST_CASE("9.3 busiest_keys: keys of one depth and age are each listed once") {
  stage on;
  for (int i = 0; i != 100; ++i) on.tasks.submit(std::to_string(i % 50), [] {});
  std::map<std::string, int> listed;
  for (const auto& each : on.tasks.busiest_keys(50)) {
    CHECK(each.depth == 2);
    ++listed[each.key];
  }
  CHECK(listed.size() == 50);
  CHECK(on.tasks.busiest_keys(7).size() == 7);
}

TEST_CASE("9.3 busiest_keys: the head is the unfinished task with the smallest id, in each of its states") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  std::map<std::string, turnkey::key_info<std::string>> all;
  const auto look = [&] {
    for (const auto& each : on.tasks.busiest_keys(9)) all[each.key] = each;
  };
  on.tasks.submit("held", in_order, [] { throw 1; });
  on.tasks.submit("dead alone", [] { throw 1; });
  on.run();
  const task_id held = on.tasks.submit("held", [] {});
  const task_id resting = on.tasks.submit("resting", {.policy = policy::ordered, .delay = 1h}, [] {});
  on.tasks.submit("resting", in_order, [] {});
  const task_id running = on.tasks.submit("running", look);
  const task_id ready = on.tasks.submit("last", [] {});
  on.pool.run_one();
  CHECK(all.size() == 4);  // neither what is paused or held without a task, nor what only the dead have
  CHECK(all["held"].head == held);
  CHECK(all["held"].head_state == task_state::waiting);
  CHECK(all["held"].held);
  CHECK(all["held"].depth == 1);
  CHECK(!all["held"].paused);
  CHECK(all["resting"].head == resting);
  CHECK(all["resting"].head_state == task_state::delayed);
  CHECK(all["resting"].depth == 2);
  CHECK(all["running"].head == running);
  CHECK(all["running"].head_state == task_state::running);
  CHECK(all["last"].head == ready);
  CHECK(all["last"].head_state == task_state::ready);
}

TEST_CASE("9.3 busiest_keys: the flags are those of the key, apart and together") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  for (const char* key : {"held", "both"}) on.tasks.submit(key, in_order, [] { throw 1; });
  on.run();
  for (const char* key : {"paused", "both"}) on.tasks.pause(key);
  for (const char* key : {"held", "both", "paused", "free"}) on.tasks.submit(key, [] {});
  on.tasks.pause();  // is no flag of a key
  const auto all = on.tasks.busiest_keys(9);
  CHECK(all.size() == 4);
  for (const auto& each : all) {
    CHECK(each.held == (each.key == "held" || each.key == "both"));
    CHECK(each.paused == (each.key == "paused" || each.key == "both"));
  }
}

TEST_CASE("9.3 busiest_keys agrees with a plain sort of 10,000 keys, for every n") {
  turnkey::testing::manual_time time;
  scheduler<int> s{[](turnkey::work) {}, {.time = &time}};
  std::mt19937 random(3);
  std::vector<std::pair<int, int>> plain;  // depth, key: with larger keys later
  for (int key = 0; key != 10'000; ++key) {
    const int depth = 1 + static_cast<int>(random() % 5);
    for (int i = 0; i != depth; ++i) s.submit(key, [] {});
    plain.emplace_back(-depth, key);
    time.jump(1ns);
  }
  std::sort(plain.begin(), plain.end());
  for (const std::size_t n : {1U, 2U, 17U, 1000U, 9999U, 10'000U, 10'001U}) {
    const auto hot = s.busiest_keys(n);
    REQUIRE(hot.size() == (n < 10'000 ? n : 10'000));
    bool same = true;
    for (std::size_t i = 0; i != hot.size(); ++i)
      same = same && hot[i].key == plain[i].second && static_cast<int>(hot[i].depth) == -plain[i].first;
    CHECK(same);
  }
}

// ---- 9.1: pauses

TEST_CASE("9.1 paused_keys counts the keys that are paused, with and without tasks, and not the pause of everything") {
  stage on;
  on.tasks.pause();
  CHECK(on.tasks.stats().paused_keys == 0);
  CHECK(on.tasks.paused_keys().empty());
  for (int i = 0; i != 40; ++i) CHECK(on.tasks.pause(std::to_string(i)));
  for (int i = 0; i != 40; ++i) CHECK(!on.tasks.pause(std::to_string(i)));
  for (int i = 20; i != 60; ++i) on.tasks.submit(std::to_string(i), [] {});
  CHECK(on.tasks.stats().paused_keys == 40);
  CHECK(on.tasks.stats().keys == 60);
  CHECK(on.tasks.paused_keys().size() == 40);
  CHECK(on.tasks.stats().waiting == 20);
  CHECK(on.tasks.stats().ready == 20);
  on.tasks.resume();
  on.run();
  CHECK(on.tasks.stats().keys == 40);
  CHECK(on.tasks.cancel_all() == 20);
  CHECK(on.tasks.stats().paused_keys == 40);
  for (int i = 0; i != 40; ++i) CHECK(on.tasks.resume(std::to_string(i)));
  CHECK(on.tasks.stats().paused_keys == 0);
  CHECK(on.tasks.stats().keys == 0);
}

TEST_CASE("9.1 paused_keys lists each paused key once; a held one is not paused") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  on.tasks.submit("held", in_order, [] { throw 1; });
  on.run();
  std::map<std::string, int> listed;
  for (int i = 0; i != 100; ++i) on.tasks.pause(std::to_string(i));
  for (const auto& key : on.tasks.paused_keys()) ++listed[key];
  CHECK(listed.size() == 100);
  CHECK(!listed.contains("held"));
  CHECK(on.tasks.stats().held_keys == 1);
  CHECK(on.tasks.release("held"));
  CHECK(on.tasks.stats().paused_keys == 100);
}
