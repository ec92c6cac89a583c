// Chapter 2: when a task may start. Each case is judged by the reference model besides what it looks at itself.
#include "support/world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace support;
using turnkey::dead_action;
using turnkey::outcome;
using turnkey::retry_policy;
using turnkey::task_id;
using turnkey::testing::manual_executor;

constexpr policy all_policies[] = {policy::parallel, policy::exclusive, policy::ordered};
constexpr retry_policy often{.max_attempts = 9, .initial_delay = 10ms, .jitter = 0};

bool began(const world& w, task_id id) { return std::count(w.starts.begin(), w.starts.end(), id) != 0; }

// All that can run beside the callback that calls this.
void run_beside(world& w) {
  while (w.executor.size() != 0) w.run_elsewhere();
}

using order = std::vector<task_id>;

// ---- the truth table

enum class situation {
  waits_for_lease,        // another task of the key has it
  waits_for_predecessor,  // an ordered one behind a task that rests
  waits_for_hold,         // a dead task holds the key
  ready,
  running,
  delayed,   // before its first attempt
  retrying,  // between two attempts
  succeeded,
  dead,
  dead_and_holding,
  cancelled,
  cancelled_running,
};
constexpr const char* names[] = {"waits for the lease",
                                 "waits for a predecessor",
                                 "waits for a hold",
                                 "is ready",
                                 "runs",
                                 "is delayed",
                                 "waits to retry",
                                 "has succeeded",
                                 "is dead",
                                 "is dead and holds",
                                 "was cancelled",
                                 "was cancelled while it ran"};

// The words of rules 2 and 5.3.
struct facts {
  bool lease_is_free = true;
  bool earlier_unfinished = true;
  bool held = false;
};
bool rule_2(policy p, const facts& f) {
  if (f.held) return false;
  switch (p) {
    case policy::parallel: return true;
    case policy::exclusive: return f.lease_is_free;
    case policy::ordered: return f.lease_is_free && !f.earlier_unfinished;
  }
  return false;
}

// What holds of the key when the later task comes; none: an earlier task of that policy cannot be so.
std::optional<facts> facts_of(situation s, policy earlier) {
  const bool takes_lease = earlier != policy::parallel;
  switch (s) {
    case situation::waits_for_lease: return takes_lease ? std::optional(facts{.lease_is_free = false}) : std::nullopt;
    case situation::waits_for_predecessor: return earlier == policy::ordered ? std::optional(facts{}) : std::nullopt;
    case situation::waits_for_hold: return facts{.held = true};
    case situation::running: return facts{.lease_is_free = !takes_lease};
    case situation::ready:
    case situation::delayed:
    case situation::retrying: return facts{};
    case situation::succeeded:
    case situation::dead:
    case situation::cancelled:
    case situation::cancelled_running: return facts{.earlier_unfinished = false};
    case situation::dead_and_holding: return facts{.earlier_unfinished = false, .held = takes_lease};
  }
  return {};
}

// Brings the earlier task there, submits the later one, and lets run what can; whether the later one started.
bool later_starts(world& w, situation s, policy earlier, policy later) {
  const auto then_the_later = [&] {
    const task_id id = w.submit(1, later);
    run_beside(w);
    return began(w, id);
  };
  bool started = false;
  switch (s) {
    case situation::waits_for_lease:
      w.submit(1, policy::exclusive, [&](auto&) {
        w.submit(1, earlier);
        started = then_the_later();
        return outcome::success();
      });
      w.run_all();
      return started;
    case situation::waits_for_predecessor:
      static_cast<void>(w.submit(1, {.policy = policy::parallel, .delay = 1h}, succeeds()));
      w.submit(1, earlier);
      return then_the_later();
    case situation::waits_for_hold:
      w.submit(1, policy::exclusive, says({outcome::dead()}));
      w.run_all();
      w.submit(1, earlier);
      return then_the_later();
    case situation::running:
      w.submit(1, earlier, [&](auto&) {
        started = then_the_later();
        return outcome::success();
      });
      w.run_all();
      return started;
    case situation::delayed:
      static_cast<void>(w.submit(1, {.policy = earlier, .delay = 1h}, succeeds()));
      return then_the_later();
    case situation::cancelled_running:
      w.submit(1, earlier, [&](turnkey::attempt& a) {
        w.cancel(a.id());
        return outcome::retry();
      });
      w.run_all();
      return then_the_later();
    case situation::retrying: w.submit(1, earlier, says({outcome::retry_after(1h)})); break;
    case situation::dead:
    case situation::dead_and_holding: w.submit(1, earlier, says({outcome::dead()})); break;
    case situation::cancelled: w.cancel(w.submit(1, earlier)); break;
    default: w.submit(1, earlier); break;
  }
  w.run_all();
  return then_the_later();
}

}  // namespace

TEST_CASE("2, 2.1, 2.2, 2.3 every policy behind every policy in every state starts as the rules say") {
  int combinations = 0;
  for (const policy earlier : all_policies)
    for (const policy later : all_policies)
      for (int i = 0; i <= static_cast<int>(situation::cancelled_running); ++i) {
        const auto s = static_cast<situation>(i);
        const auto f = facts_of(s, earlier);
        if (!f || s == situation::ready) continue;
        CAPTURE(to_string(later));
        CAPTURE(to_string(earlier));
        CAPTURE(names[i]);
        const bool holds = s == situation::waits_for_hold || s == situation::dead_and_holding;
        manual_executor pool;
        world w(pool, {.retry = often, .dead_action = holds ? dead_action::hold_key : dead_action::release});
        CHECK(later_starts(w, s, earlier, later) == rule_2(later, *f));
        CHECK(w.verdict() == "");
        ++combinations;
      }
  CHECK(combinations == 9 * 9 + 6 + 3);
}

TEST_CASE("2, 2.3, 2.9 behind a ready task: ready too if the rules let both start, and in any case after it") {
  for (const policy earlier : all_policies)
    for (const policy later : all_policies) {
      CAPTURE(to_string(later));
      CAPTURE(to_string(earlier));
      manual_executor pool;
      world w(pool);
      const task_id first = w.submit(1, earlier);
      const task_id second = w.submit(1, later);
      const bool both = rule_2(later, {}) && (earlier == policy::parallel || later == policy::parallel);
      CHECK(w.scheduler()->stats().ready == (both ? 2 : 1));
      w.run_all();
      CHECK(w.starts == order{first, second});
      CHECK(w.verdict() == "");
    }
}

// ---- 2.1

TEST_CASE("2.1 exclusive: a failed task that waits to retry lets the next one pass") {
  manual_executor pool;
  world w(pool, {.retry = often});
  const task_id failing = w.submit(1, policy::exclusive, says({outcome::retry()}));
  const task_id next = w.submit(1, policy::exclusive);
  w.run_all();
  CHECK(w.starts == order{failing, next});
  w.time.advance(10ms);
  w.run_all();
  CHECK(w.starts == order{failing, next, failing});
  CHECK(w.verdict() == "");
}

TEST_CASE("2.1 ordered: the next one waits for all retries of a failed task") {
  manual_executor pool;
  world w(pool, {.retry = often});
  const task_id failing = w.submit(1, policy::ordered, says({outcome::retry(), outcome::retry()}));
  const task_id next = w.submit(1, policy::ordered);
  w.run_all();
  CHECK(w.starts == order{failing});
  w.time.advance(10ms);
  w.run_all();
  CHECK(w.starts == order{failing, failing});
  w.time.advance(20ms);
  w.run_all();
  CHECK(w.starts == order{failing, failing, failing, next});
  CHECK(w.verdict() == "");
}

TEST_CASE("2.1, 6.3 a task between two attempts has no place in max_in_flight") {
  manual_executor pool;
  world w(pool, {.retry = often, .max_in_flight = 1});
  w.submit(1, policy::ordered, says({outcome::retry()}));
  const task_id other = w.submit(2, policy::ordered);
  w.run_all();
  CHECK(began(w, other));
  CHECK(w.verdict() == "");
}

TEST_CASE("2.1 a retry that is due waits for the lease like a first attempt") {
  manual_executor pool;
  world w(pool, {.retry = often});
  const task_id failing = w.submit(1, policy::exclusive, says({outcome::retry()}));
  w.run_all();
  w.submit(1, policy::exclusive, [&](auto&) {
    w.time.advance(10ms);
    run_beside(w);
    CHECK(w.starts.back() != failing);
    CHECK(w.scheduler()->stats().waiting == 1);
    return outcome::success();
  });
  w.run_all();
  CHECK(w.starts.back() == failing);
  CHECK(w.verdict() == "");
}

// ---- 2.2

TEST_CASE("2.2, 6.5 ordered: what waits goes on when a predecessor is cancelled, wherever that one is") {
  for (const bool delayed : {true, false}) {
    manual_executor pool;
    world w(pool, {.retry = often});
    const task_id head =
        w.submit(1, {.policy = policy::ordered, .delay = delayed ? 1h : 0h}, says({outcome::retry_after(1h)})).value();
    const task_id next = w.submit(1, policy::ordered);
    w.run_all();
    CHECK(!began(w, next));
    CHECK(w.cancel(head));
    w.run_all();
    CHECK(began(w, next));
    w.time.advance(2h);  // nothing of the cancelled one is left in the timers
    w.run_all();
    CHECK(w.verdict() == "");
  }
}

// ---- 2.4, 2.5, 2.6

TEST_CASE("2.4 a task without a key runs beside anything, and cannot be asked to be exclusive or ordered") {
  manual_executor pool;
  world w(pool);
  w.submit(1, policy::exclusive, [&](auto&) {
    const task_id free = w.submit({}, policy::parallel);
    run_beside(w);
    CHECK(began(w, free));
    return outcome::success();
  });
  w.run_all();
  for (const policy p : {policy::exclusive, policy::ordered})
    CHECK(w.submit({}, {.policy = p}, succeeds()).reason() == turnkey::reject_reason::needs_key);
  CHECK(w.verdict() == "");
}

TEST_CASE("2.4 a scheduler that wants exclusive or ordered runs tasks without a key in parallel") {
  for (const policy p : {policy::exclusive, policy::ordered})
    for (const bool overrides : {false, true}) {
      turnkey::options<int> set{.default_policy = p};
      if (overrides) set.policy_override = p;
      manual_executor pool;
      world w(pool, set);
      static_cast<void>(w.submit(key(), [&](turnkey::attempt& a) {
        CHECK(!a.has_lease());
        const task_id other = w.submit(key(), succeeds());
        run_beside(w);
        CHECK(began(w, other));
        return outcome::success();
      }));
      w.run_all();
      CHECK(w.verdict() == "");
    }
}

TEST_CASE("2.5 the override decides, then the task, then the default, then parallel") {
  struct row {
    std::optional<policy> override_;
    std::optional<policy> own;
    std::optional<policy> by_default;
    policy expected;
  };
  const row rows[] = {{{}, {}, {}, policy::parallel},
                      {{}, {}, policy::ordered, policy::ordered},
                      {{}, policy::exclusive, policy::ordered, policy::exclusive},
                      {policy::ordered, policy::exclusive, policy::parallel, policy::ordered},
                      {policy::parallel, policy::exclusive, policy::ordered, policy::parallel},
                      {policy::exclusive, {}, {}, policy::exclusive}};
  for (const row& r : rows) {
    manual_executor pool;
    std::optional<policy> seen;
    turnkey::options<int> set{.policy_override = r.override_,
                              .observer = [&](const turnkey::event<int>& e) { seen = e.policy; }};
    if (r.by_default) set.default_policy = *r.by_default;
    turnkey::scheduler<int> tasks(pool, set);
    tasks.submit(1, {.policy = r.own}, [] {});
    CHECK(seen == r.expected);
  }
}

namespace {
struct same_hash {
  std::size_t operator()(int) const noexcept { return 7; }
};
}  // namespace

TEST_CASE("2.6 keys with equal hashes don't wait for each other") {
  manual_executor pool;
  turnkey::scheduler<int, same_hash> tasks(pool, {.default_policy = policy::ordered});
  int beside = 0;
  tasks.submit(1, [&] {
    for (int key = 1; key != 4; ++key) tasks.submit(key, [&, key] { beside = beside * 10 + key; });
    while (pool.size() != 0) std::thread([&] { pool.run_one(); }).join();
    CHECK(beside == 23);
  });
  pool.run_all();
  CHECK(beside == 231);
}

// ---- 2.7

TEST_CASE("2.7 plain data of a key needs no lock under ordered and exclusive, and drain() sees it") {
  for (const policy p : {policy::exclusive, policy::ordered}) {
    turnkey::thread_pool pool(2);
    turnkey::scheduler<int> tasks(pool, {.default_policy = p, .retry = retry_policy{.initial_delay = 0ms}});
    int counters[3] = {};
    for (int i = 0; i != 300; ++i)
      tasks.submit(i % 3, [&counter = counters[i % 3], failed = false]() mutable {
        ++counter;
        return std::exchange(failed, true) ? outcome::success() : outcome::retry();
      });
    CHECK(tasks.drain() == turnkey::drain_result::drained);
    for (const int counter : counters) CHECK(counter == 200);
  }
}

// ---- 2.8

TEST_CASE("2.8 a line starts up to turn_budget tasks, then the next has its turn") {
  for (const std::uint32_t budget : {1U, 3U}) {
    manual_executor pool;
    world w(pool, {.default_policy = policy::ordered, .turn_budget = budget});
    std::vector<int> lines;
    for (const int key : {1, 2})
      for (int i = 0; i != 6; ++i)
        static_cast<void>(w.submit(key, [&lines, key](auto&) {
          lines.push_back(key);
          return outcome::success();
        }));
    w.run_all();
    std::vector<int> expected;
    for (std::uint32_t i = 0; i != 12; ++i) expected.push_back(i / budget % 2 == 0 ? 1 : 2);
    CHECK(lines == expected);
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("2.8 a line at place p starts after at most p turns, however deep the backlogs are") {
  for (const policy p : all_policies) {
    constexpr std::uint32_t budget = 4;
    constexpr int lines = 5;
    manual_executor pool;
    world w(pool, {.default_policy = p, .turn_budget = budget});
    for (int key = 0; key != lines; ++key)
      for (int i = 0; i != 40; ++i) static_cast<void>(w.submit(key, succeeds()));
    const task_id last = w.submit(lines, succeeds());
    w.run_all();
    const auto at = std::find(w.starts.begin(), w.starts.end(), last) - w.starts.begin();
    CHECK(at <= static_cast<std::ptrdiff_t>(lines * budget));
  }
}

TEST_CASE("2.8 tasks without a key share one line and take turns with the keys") {
  manual_executor pool;
  world w(pool, {.turn_budget = 2});
  for (int i = 0; i != 10; ++i) w.submit({}, policy::parallel);
  const task_id keyed = w.submit(1, policy::exclusive);
  w.run_all();
  CHECK(std::find(w.starts.begin(), w.starts.end(), keyed) - w.starts.begin() == 2);
}

TEST_CASE("2.8 a turn ends early once it has used turn_time while others wait, and only then") {
  for (const bool others : {true, false}) {
    manual_executor pool;
    world w(pool, {.default_policy = policy::exclusive, .turn_budget = 100, .turn_time = 3ms});
    for (int i = 0; i != 8; ++i)
      static_cast<void>(w.submit(1, [&](auto&) {
        w.time.advance(2ms);
        return outcome::success();
      }));
    const task_id other = w.submit(others ? 2 : 1, succeeds());
    w.run_all();
    CHECK(std::find(w.starts.begin(), w.starts.end(), other) - w.starts.begin() == (others ? 2 : 8));
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("2.8 a turn of exclusive tasks is one worker's, one of parallel tasks is run by all that come") {
  for (const policy p : all_policies) {
    manual_executor pool;
    world w(pool, {.default_policy = p});
    std::size_t beside = 0;
    static_cast<void>(w.submit(1, [&](auto&) {
      const std::size_t before = w.starts.size();
      run_beside(w);
      beside = w.starts.size() - before;
      return outcome::success();
    }));
    for (int i = 0; i != 3; ++i) static_cast<void>(w.submit(1, succeeds()));
    w.run_all();
    CHECK(beside == (p == policy::parallel ? 3 : 0));
    CHECK(w.verdict() == "");
  }
}

// ---- 2.9

TEST_CASE("2.9 due retries go before tasks that never ran, by due time and then id") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    manual_executor pool;
    world w(pool, {.default_policy = p, .retry = often});
    const auto fails = [&](turnkey::duration delay) { return w.submit(1, says({outcome::retry_after(delay)})); };
    const task_id late = fails(3ms);
    const task_id soon = fails(1ms);
    const task_id soon_too = fails(1ms);
    w.run_all();
    w.starts.clear();
    const task_id fresh = w.submit(1, succeeds());
    w.time.jump(5ms);
    w.run_all();
    CHECK(w.starts == order{soon, soon_too, late, fresh});
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("2.9 ordered: the id alone decides") {
  manual_executor pool;
  world w(pool, {.retry = often});
  const task_id first = w.submit(1, policy::ordered, says({outcome::retry_after(5ms)}));
  const task_id second = w.submit(1, policy::ordered, says({outcome::postpone(0s)}));
  const task_id third = w.submit(1, policy::ordered);
  w.run_all();
  w.time.jump(5ms);
  w.run_all();
  CHECK(w.starts == order{first, first, second, second, third});
  CHECK(w.verdict() == "");
}

TEST_CASE("2.9, 3.4 a delayed task that is due has the place of its id") {
  manual_executor pool;
  world w(pool, {.default_policy = policy::exclusive});
  const task_id delayed = w.submit(1, {.delay = 5ms}, succeeds()).value();
  const task_id fresh = w.submit(1, succeeds());
  w.time.advance(5ms);
  w.run_all();
  CHECK(w.starts == order{delayed, fresh});
  CHECK(w.verdict() == "");
}

// Two tasks polled by postponing themselves by nothing. Both had the place of the largest id given so far, the tie went
// to the smaller id, and so the first one ran for ever and the second never again.
TEST_CASE("2.9, 3 postponed by nothing goes behind what is ready, also behind what was postponed before") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    manual_executor pool;
    world w(pool, {.default_policy = p});
    const auto polls = says({outcome::postpone(0s), outcome::postpone(0s)});
    const task_id a = w.submit(1, polls);
    const task_id b = w.submit(1, polls);
    w.run_all();
    CHECK(w.starts == order{a, b, a, b, a, b});
    CHECK(w.verdict() == "");
  }
}

// ---- 2.10

TEST_CASE("2.10 ordered: what waits behind a task that rests asks nothing of the executor or the clock") {
  manual_executor pool;
  turnkey::testing::manual_time time;
  turnkey::scheduler<int> tasks(pool, {.default_policy = policy::ordered, .retry = often, .time = &time});
  int ran = 0;
  tasks.submit(1, [&, failed = false]() mutable {
    return std::exchange(failed, true) ? outcome::success() : outcome::retry_after(1h);
  });
  pool.run_all();
  const std::size_t offered = pool.offered();
  for (int i = 0; i != 100'000; ++i) tasks.submit(1, [&] { ++ran; });
  for (int i = 0; i != 100; ++i) time.ring();
  CHECK(pool.offered() == offered);
  CHECK(tasks.stats().waiting == 100'000);
  time.advance(1h);
  pool.run_all();
  CHECK(ran == 100'000);
}

// ---- 2.11

TEST_CASE("2.11, 6.5 inside a turn nothing starts that was cancelled before") {
  for (const policy p : all_policies) {
    manual_executor pool;
    world w(pool, {.default_policy = p});
    const task_id first = w.submit(1, [&](auto&) {
      CHECK(w.cancel(1) == 3);
      return outcome::success();
    });
    for (int i = 0; i != 2; ++i) static_cast<void>(w.submit(1, succeeds()));
    w.run_all();
    CHECK(w.starts == order{first});
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("2.11, 10.3 inside a turn nothing starts after stop()") {
  manual_executor pool;
  world w(pool, {.default_policy = policy::ordered});
  std::size_t undone = 0;
  const task_id first = w.submit(1, [&](auto&) {
    undone = w.stop().size();
    return outcome::success();
  });
  for (int i = 0; i != 2; ++i) static_cast<void>(w.submit(1, succeeds()));
  w.run_all();
  CHECK(undone == 2);
  CHECK(w.starts == order{first});
}
