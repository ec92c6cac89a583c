// Coroutines that wait for a lease, in manual time: who goes on when, on which thread, and what a wait that ends
// otherwise throws. The coroutines are lambdas whose captures outlive them.
#include <turnkey/coroutine.hpp>

#include <support/coroutines.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using support::detached;
using support::gate;
using support::lazy;
using support::owned;
using turnkey::drain_result;
using turnkey::event;
using turnkey::event_kind;
using turnkey::lease;
using turnkey::lease_expiry;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::task_id;
using turnkey::task_state;
using namespace std::chrono_literals;

namespace {

using words = std::vector<std::string>;
using strings = turnkey::scheduler<std::string>;

// Waits, and keeps what came of it.
struct guest {
  owned wait(strings& s, std::string key, policy how) {
    try {
      auto entry = s.enter(std::move(key), how);
      door = &entry;
      held = co_await entry;
    } catch (const turnkey::rejected& e) {
      reason = e.reason();
      said = e.what();
    } catch (const turnkey::task_cancelled& e) {
      cancelled = e.id();
      said = e.what();
    } catch (const turnkey::task_undone& e) {
      undone = e.id();
      said = e.what();
    }
    on = std::this_thread::get_id();
    door = nullptr;
  }
  [[nodiscard]] task_id id() const { return door->id().value(); }

  turnkey::entry<strings>* door = nullptr;
  lease held;
  std::optional<reject_reason> reason;
  std::optional<task_id> cancelled;
  std::optional<task_id> undone;
  std::string said;
  std::thread::id on;
};

std::string name_of(task_id id) { return "task " + std::to_string(static_cast<std::uint64_t>(id)); }

}  // namespace

TEST_CASE("7.4 enter: the coroutine goes on in the executor, and holds the lease until its lease object dies") {
  stage on;
  words log;
  gate work;
  const auto run = [&]() -> detached {
    auto lease = co_await on.tasks.enter("a", policy::exclusive);
    log.emplace_back("holds");
    co_await work.opened();
    log.emplace_back("done");
  };
  run();
  CHECK(log.empty());
  on.run();
  on.tasks.submit("a", {.policy = policy::exclusive}, [&] { log.emplace_back("next"); });
  on.run();
  CHECK(log == words{"holds"});
  CHECK(on.tasks.stats().running == 1);
  work.open();
  on.run();
  CHECK(log == words{"holds", "done", "next"});
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("7.4 enter: ordered coroutines enter in the order of their co_await, among the tasks of the key") {
  stage on;
  words log;
  const auto run = [&](std::string name) -> detached {
    auto lease = co_await on.tasks.enter("a", policy::ordered);
    log.push_back(name);
  };
  run("1");
  on.tasks.submit("a", {.policy = policy::ordered}, [&] { log.emplace_back("2"); });
  run("3");
  run("4");
  on.run();
  CHECK(log == words{"1", "2", "3", "4"});
}

TEST_CASE("7.4 enter: nothing is in line before it is awaited, and then the entry knows the id") {
  stage on;
  auto entry = on.tasks.enter("a", policy::exclusive);
  CHECK(!entry.id());
  CHECK(on.tasks.stats().submitted == 0);
  guest one;
  const owned waits = one.wait(on.tasks, "a", policy::ordered);
  const auto found = on.tasks.find(one.id());
  REQUIRE(found);
  CHECK(found->key == "a");
  CHECK(found->policy == policy::ordered);
  CHECK(found->state == task_state::ready);
}

TEST_CASE("7.4 enter: an entry that is awaited a second time says so") {
  stage on;
  std::string said;
  const auto run = [&]() -> detached {
    auto entry = on.tasks.enter("a", policy::exclusive);
    static_cast<void>(co_await entry);
    try {
      static_cast<void>(co_await entry);
    } catch (const std::logic_error& e) {
      said = e.what();
    }
  };
  run();
  on.run();
  CHECK(said == "turnkey: an entry is awaited once; call enter() again");
}

TEST_CASE("7.4 enter without a key runs parallel, and keeps its place among those in flight") {
  stage on({.policy_override = policy::exclusive, .max_in_flight = 2});
  words log;
  gate first;
  const auto run = [&](std::string name) -> detached {
    auto lease = co_await on.tasks.enter();
    log.push_back(name);
    CHECK(lease.fence() == 0);
    if (name == "1") co_await first.opened();
  };
  run("1");
  run("2");
  on.run();
  CHECK(log == words{"1", "2"});
  on.tasks.set_max_in_flight(1);
  run("3");
  on.run();
  CHECK(log.size() == 2);
  first.open();
  on.run();
  CHECK(log == words{"1", "2", "3"});
}

TEST_CASE("7.4 enter works in a coroutine that starts others, whose promises see and move what is awaited") {
  stage on;
  const auto inner = [&](int n) -> lazy<int> {
    auto lease = co_await on.tasks.enter("a", policy::exclusive);
    if (n == 0) throw std::runtime_error("none");
    co_return n * 2;
  };
  int sum = 0;
  bool threw = false;
  const auto outer = [&]() -> detached {
    sum += co_await inner(1);
    sum += co_await inner(2);
    try {
      sum += co_await inner(0);
    } catch (const std::runtime_error&) {
      threw = true;
    }
  };
  outer();
  on.run();
  CHECK(sum == 6);
  CHECK(threw);
  CHECK(on.tasks.stats().succeeded == 3);
}

TEST_CASE("7.4 enter: on an inline executor a coroutine that enters a thousand times does not grow the stack") {
  turnkey::scheduler<int> s{turnkey::inline_executor{}};
  std::vector<const void*> places;
  const auto run = [&]() -> detached {
    for (int i = 0; i != 1000; ++i) {
      auto lease = co_await s.enter(i % 3, policy::ordered);
      const char here = 0;
      places.push_back(&here);
      static_cast<void>(here);
    }
  };
  run();
  CHECK(places.size() == 1000);
  CHECK(s.stats().succeeded == 1000);
  CHECK(s.drain() == drain_result::drained);
}

TEST_CASE("7.4 lease: settling decides the outcome, once; only success is none of death") {
  struct row {
    const char* name;
    outcome said;
    bool dies;
  };
  const row rows[] = {{"success", outcome::success(), false},
                      {"retry", outcome::retry("why"), true},
                      {"retry after", outcome::retry_after(1s, "why"), true},
                      {"postpone", outcome::postpone(1s), true},
                      {"dead", outcome::dead("why"), true}};
  for (const row& r : rows) {
    CAPTURE(r.name);
    stage on({.retry = turnkey::retry_policy{}});
    guest one;
    const owned waits = one.wait(on.tasks, "a", policy::exclusive);
    on.run();
    REQUIRE(one.held);
    CHECK(one.held.settle(r.said));
    CHECK(!one.held);
    CHECK(!one.held.settle(outcome::success()));
    CHECK(!one.held.release());
    on.pass(1h);
    CHECK(on.tasks.stats().started == 1);
    CHECK(on.tasks.stats().late_results == 0);
    CHECK(on.tasks.dead_tasks().size() == (r.dies ? 1 : 0));
  }
}

TEST_CASE("7.4 lease: a dead one that is redriven succeeds at once, and lets its key go") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  guest one;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  on.run();
  one.held.settle(outcome::dead("broken"));
  CHECK(on.tasks.held_keys() == words{"a"});
  CHECK(on.tasks.redrive_all() == 1);
  on.run();
  CHECK(on.tasks.held_keys().empty());
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("7.4 lease: moving takes it along; the one that is assigned over is released") {
  static_assert(!std::is_copy_constructible_v<lease> && std::is_nothrow_move_constructible_v<lease>);
  stage on;
  guest one;
  guest two;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  const owned waits_too = two.wait(on.tasks, "b", policy::exclusive);
  on.run();
  const task_id second = two.held.id();
  lease moved(std::move(one.held));
  CHECK(!one.held);
  CHECK(on.tasks.stats().running == 2);
  moved = std::move(two.held);
  CHECK(on.tasks.stats().running == 1);
  CHECK(moved.id() == second);
  moved = lease();
  CHECK(on.tasks.stats().running == 0);
  CHECK(on.tasks.stats().succeeded == 2);
}

TEST_CASE("7.4 lease: one that holds nothing says no to everything") {
  lease none;
  CHECK(!none);
  CHECK(!none.release());
  CHECK(!none.settle(outcome::success()));
  CHECK(!none.extend_lease(1s));
  CHECK(none.stop_requested());
  CHECK(none.fence() == 0);
}

TEST_CASE("7.4 lease: it has a growing fence and a lease time, which can be extended or lost") {
  stage on({.lease_time = 1s, .lease_expiry = lease_expiry::release});
  guest one;
  guest two;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  const owned waits_too = two.wait(on.tasks, "a", policy::exclusive);
  on.run();
  on.pass(900ms);
  CHECK(one.held.extend_lease(1s));
  on.pass(900ms);
  CHECK(!one.held.stop_requested());
  CHECK(!two.held);
  on.pass(100ms);
  CHECK(one.held.stop_requested());
  CHECK(!one.held.extend_lease(1s));
  REQUIRE(two.held);
  CHECK(two.held.fence() > one.held.fence());
  CHECK(!one.held.release());
  CHECK(on.tasks.stats().leases_lost == 1);
}

TEST_CASE("7.4 lease: cancelling the holder signals it, and it holds on until it lets go") {
  stage on;
  guest one;
  guest two;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  const owned waits_too = two.wait(on.tasks, "a", policy::exclusive);
  on.run();
  const std::stop_token token = one.held.stop_token();
  CHECK(on.tasks.cancel(one.held.id()));
  CHECK(token.stop_requested());
  CHECK(one.held.stop_requested());
  CHECK(!two.held);
  CHECK(one.held.settle(outcome::retry()));
  on.run();
  CHECK(two.held);
  CHECK(on.tasks.stats().cancelled == 1);
}

TEST_CASE("7.4 a waiter that is cancelled, by id, by key or with all, goes on with the exception, where it is done") {
  for (const int how : {0, 1, 2}) {
    CAPTURE(how);
    stage on;
    guest one;
    guest two;
    const owned holds = one.wait(on.tasks, "a", policy::exclusive);
    on.run();
    const owned waits = two.wait(on.tasks, "a", policy::ordered);
    const task_id id = two.id();
    std::thread elsewhere([&] {
      if (how == 0) CHECK(on.tasks.cancel(id));
      if (how == 1) CHECK(on.tasks.cancel("a") == 2);
      if (how == 2) CHECK(on.tasks.cancel_all() == 2);
    });
    const std::thread::id other = elsewhere.get_id();
    elsewhere.join();
    CHECK(waits.done());
    CHECK(two.cancelled == id);
    CHECK(two.said == "turnkey: " + name_of(id) + " was cancelled");
    CHECK(two.on == other);
    CHECK(one.held.release());
    CHECK(on.tasks.drain() == drain_result::drained);
  }
}

TEST_CASE("7.4 a waiter whose wait is cancelled may enter again, submit and look, but not wait") {
  stage on;
  words log;
  const auto run = [&]() -> detached {
    try {
      static_cast<void>(co_await on.tasks.enter("a", policy::ordered));
    } catch (const turnkey::task_error& e) {
      log.emplace_back(e.what());
      CHECK(on.tasks.drain() == drain_result::would_deadlock);
      CHECK(!on.tasks.cancel(e.id()));
    }
    auto lease = co_await on.tasks.enter("a", policy::ordered);
    log.emplace_back("entered");
  };
  run();
  CHECK(on.tasks.cancel("a") == 1);
  CHECK(log.size() == 1);
  on.run();
  CHECK(log.size() == 2);
}

TEST_CASE("7.4 a waiter that is refused goes on at once, on its own thread, with the reason") {
  SUBCASE("full") {
    stage on({.max_pending = 1});
    on.tasks.submit([] {});
    guest one;
    CHECK(one.wait(on.tasks, "a", policy::exclusive).done());
    CHECK(one.reason == reject_reason::full);
    CHECK(one.on == std::this_thread::get_id());
    CHECK(on.tasks.stats().rejected == 1);
  }
  SUBCASE("the key is full") {
    stage on({.max_pending_per_key = 1});
    on.tasks.submit("a", [] {});
    guest one;
    CHECK(one.wait(on.tasks, "a", policy::exclusive).done());
    CHECK(one.reason == reject_reason::key_full);
  }
  SUBCASE("closed") {
    stage on;
    on.tasks.close();
    guest one;
    CHECK(one.wait(on.tasks, "a", policy::exclusive).done());
    CHECK(one.reason == reject_reason::closed);
  }
  SUBCASE("a policy that is none") {
    stage on;
    guest one;
    CHECK(one.wait(on.tasks, "a", static_cast<policy>(7)).done());
    CHECK(one.reason == reject_reason::invalid_options);
  }
}

TEST_CASE("7.4 after close() a coroutine that is resumed inside may still enter") {
  stage on;
  words log;
  const auto run = [&]() -> detached {
    {
      auto lease = co_await on.tasks.enter("a", policy::exclusive);
      on.tasks.close();
      log.emplace_back("first");
    }
    auto lease = co_await on.tasks.enter("b", policy::exclusive);
    log.emplace_back("second");
  };
  run();
  on.run();
  CHECK(log == words{"first", "second"});
}

TEST_CASE("7.4, 10.3 stop: a waiter is in the records, and goes on with the exception when its record is dropped") {
  stage on;
  guest one;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  const task_id id = one.id();
  {
    auto records = on.tasks.stop();
    REQUIRE(records.size() == 1);
    CHECK(records.begin()->id() == id);
    CHECK(!waits.done());
  }
  CHECK(waits.done());
  CHECK(one.undone == id);
  CHECK(one.said == "turnkey: " + name_of(id) + " was not done: its scheduler stopped before");
  CHECK(one.wait(on.tasks, "a", policy::exclusive).done());
  CHECK(one.reason == reject_reason::closed);
}

TEST_CASE("7.4, 10.4 the destructor resumes who waits, and leaves who holds a lease that does nothing") {
  guest waiting;
  guest holding;
  std::optional<stage> on(std::in_place);
  const owned holds = holding.wait(on->tasks, "a", policy::exclusive);
  on->run();
  const owned waits = waiting.wait(on->tasks, "a", policy::exclusive);
  on.reset();
  CHECK(waits.done());
  CHECK(waiting.undone);
  REQUIRE(holding.held);
  CHECK(holding.held.stop_requested());
  CHECK(!holding.held.extend_lease(1s));
  CHECK(!holding.held.release());
}

TEST_CASE("7.4, 10.3 a waiter whose record is submitted to another scheduler enters there") {
  stage second;
  guest one;
  std::optional<owned> waits;
  {
    stage first;
    waits = one.wait(first.tasks, "a", policy::ordered);
    auto records = first.tasks.stop();
    for (auto& record : records) second.tasks.submit(std::move(record));
  }
  CHECK(!waits->done());
  second.run();
  CHECK(waits->done());
  REQUIRE(one.held);
  CHECK(second.tasks.stats().running == 1);
  CHECK(one.held.release());
  CHECK(second.tasks.drain() == drain_result::drained);
}

// Random programs found it: a coroutine that waited where nothing is retried brought no retry policy of its own along
// to the scheduler that took its record, and was tried again there. Nobody waited any more, so it succeeded.
TEST_CASE("7.4, 10.3 a waiter whose record goes to a scheduler that retries has one attempt there as well") {
  stage second({.retry = turnkey::retry_policy{}});
  stage first;
  guest one;
  const owned waits = one.wait(first.tasks, "a", policy::exclusive);
  for (auto& record : first.tasks.stop()) second.tasks.submit(std::move(record));
  second.run();
  REQUIRE(one.held);
  CHECK(one.held.settle(outcome::retry("broken")));
  second.pass(1h);
  CHECK(second.tasks.stats().started == 1);
  CHECK(second.tasks.dead_tasks().size() == 1);
}

TEST_CASE("7.4, 10.3 the record of one that already holds does nothing, dropped or submitted again") {
  stage second;
  stage first;
  guest one;
  const owned waits = one.wait(first.tasks, "a", policy::ordered);
  first.run();
  auto records = first.tasks.stop();
  REQUIRE(records.size() == 1);
  CHECK(records.begin()->state() == task_state::running);
  second.tasks.submit(std::move(*records.begin()));
  second.run();
  CHECK(second.tasks.stats().succeeded == 1);
  CHECK(!one.held.release());
  CHECK(!one.undone);
}

TEST_CASE("7.4, 10.3 a record that is refused keeps its waiter") {
  stage first;
  stage second;
  guest one;
  const owned waits = one.wait(first.tasks, "a", policy::ordered);
  second.tasks.close();
  {
    auto records = first.tasks.stop();
    CHECK_THROWS_AS(second.tasks.submit(std::move(*records.begin())), turnkey::rejected);
    CHECK(!waits.done());
  }
  CHECK(one.undone);
}

TEST_CASE("7.4 a frame that is destroyed while it waits takes its task with it") {
  stage on;
  guest one;
  guest two;
  {
    const owned holds = one.wait(on.tasks, "a", policy::ordered);
    const owned waits = two.wait(on.tasks, "a", policy::ordered);
    on.tasks.submit("a", {.policy = policy::ordered}, [] {});
    CHECK(on.tasks.stats().unfinished() == 3);
  }
  CHECK(on.tasks.stats().cancelled == 2);
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(!one.cancelled);
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("7.4 a frame that is destroyed when its task is in a record, or its scheduler is gone, leaves nothing") {
  std::optional<turnkey::task_records<std::string>> records;
  guest one;
  guest two;
  {
    std::optional<owned> gone;
    {
      stage on;
      gone = one.wait(on.tasks, "a", policy::ordered);
      const owned gone_before = two.wait(on.tasks, "a", policy::ordered);
      records = on.tasks.stop();
      CHECK(records->size() == 2);
    }
  }
  stage other;
  other.tasks.submit(std::move(*records->begin()));
  other.run();
  CHECK(other.tasks.stats().succeeded == 1);
  records.reset();
  CHECK(!one.undone);
  CHECK(!two.undone);
}

TEST_CASE("7.4 an entry that is never awaited costs the key nothing") {
  stage on;
  {
    auto entry = on.tasks.enter("a", policy::exclusive);
    auto moved = std::move(entry);
    CHECK(!moved.id());
  }
  CHECK(on.tasks.stats().submitted == 0);
  CHECK(on.tasks.stats().keys == 0);
}

#ifndef __clang__  // up to 19 it destroys what such a frame has destroyed once more

TEST_CASE("7.4 what leaves the coroutine of a promise that lets it out goes nowhere") {
  stage on;
  const auto run = [&]() -> owned {
    auto lease = co_await on.tasks.enter("a", policy::exclusive);
    throw std::runtime_error("out");
  };
  const owned entered = run();
  on.run();
  CHECK(entered.done());
  CHECK(on.tasks.stats().succeeded == 1);  // the lease was gone before
  const owned cancelled = run();
  CHECK(on.tasks.cancel("a") == 1);
  CHECK(cancelled.done());
}

TEST_CASE("7.4 an exception that leaves the callback fails a lease that was put elsewhere") {
  stage on;
  lease kept;
  const auto run = [&]() -> owned {
    kept = co_await on.tasks.enter("a", policy::exclusive);
    throw std::runtime_error("out");
  };
  const owned entered = run();
  on.run();
  REQUIRE(on.tasks.dead_tasks().size() == 1);
  CHECK(on.tasks.dead_tasks()[0].error.text() == "out");
  CHECK(!kept.release());
}

#endif

TEST_CASE("7.4 the events of a coroutine are those of a task with one attempt") {
  std::vector<event_kind> kinds;
  stage on(
      {.retry = turnkey::retry_policy{}, .observer = [&](const event<std::string>& e) { kinds.push_back(e.kind); }});
  guest one;
  const owned waits = one.wait(on.tasks, "a", policy::exclusive);
  on.run();
  one.held.release();
  CHECK(kinds == std::vector{event_kind::submitted, event_kind::started, event_kind::succeeded});
}

TEST_CASE("7.4 keys that can only be moved, and other hashes, are entered as well") {
  struct by_value {
    std::size_t operator()(const std::unique_ptr<int>& key) const noexcept { return static_cast<std::size_t>(*key); }
    bool operator()(const std::unique_ptr<int>& a, const std::unique_ptr<int>& b) const noexcept { return *a == *b; }
  };
  turnkey::testing::manual_executor pool;
  turnkey::scheduler<std::unique_ptr<int>, by_value, by_value> s{pool};
  int entered = 0;
  const auto run = [&]() -> detached {
    auto lease = co_await s.enter(std::make_unique<int>(7), policy::exclusive);
    ++entered;
  };
  run();
  run();
  CHECK(s.stats().keys == 1);
  pool.run_all();
  CHECK(entered == 2);
}

TEST_CASE("7.4 enter: what a coroutine throws that is resumed without the lease, and does not keep, harms nobody") {
  stage on;
  const auto run = [&]() -> owned {
    auto lease = co_await on.tasks.enter("a", policy::exclusive);
    FAIL_CHECK("it has no lease");
  };
  const owned frame = run();  // lets its exceptions out
  CHECK(on.tasks.cancel("a") == 1);
  on.tasks.submit("a", [] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.drain() == drain_result::drained);
}
