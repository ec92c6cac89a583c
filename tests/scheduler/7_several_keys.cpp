// Rule 7.7: tasks of several keys. What runs in a world is judged by the reference model besides what each case looks
// at itself.
#include <turnkey/turnkey.hpp>

#include "support/stage.hpp"
#include "support/world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using support::says;
using support::succeeds;
using support::world;
using turnkey::attempt;
using turnkey::dead_action;
using turnkey::drain_result;
using turnkey::event_kind;
using turnkey::keys;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::retry_policy;
using turnkey::task_id;
using turnkey::task_state;
using turnkey::why;
using turnkey::testing::manual_executor;
using namespace std::chrono_literals;

namespace {

using ids = std::vector<task_id>;

constexpr retry_policy in_a_second{.max_attempts = 3, .initial_delay = 1s, .max_delay = 1s, .jitter = 0};

// While a callback runs with the lease of `k`, does `inside`.
void while_held(world& w, int k, const std::function<void()>& inside) {
  w.submit(k, policy::exclusive, [&](attempt&) {
    inside();
    return outcome::success();
  });
  w.run_all();
}

why::reason reason_of(world& w, task_id id) { return w.scheduler()->find(id)->why.kind; }
task_state state_of(world& w, task_id id) { return w.scheduler()->find(id)->state; }

}  // namespace

// ---- in every line at one instant, all leases or none

TEST_CASE("7.7 several keys: its id is larger than all before and smaller than all after it, in each of its lines") {
  manual_executor pool;
  world w(pool);
  for (int i = 0; i != 40; ++i) w.submit(1, policy::exclusive);  // one shard is far ahead of the others
  for (int k = 2; k != 12; ++k) {
    const task_id before = w.submit(k, policy::exclusive);
    const task_id several = w.submit_several(keys{1, k, k + 20}, policy::ordered);
    const task_id after = w.submit(k, policy::exclusive);
    CHECK(before < several);
    CHECK(several < after);
    CHECK(several < w.submit(k + 20, policy::ordered));
  }
  w.run_all();
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 several keys: it starts when all leases are free, and nobody else has one while it runs") {
  for (const policy p : {policy::exclusive, policy::ordered}) {
    CAPTURE(to_string(p));
    manual_executor pool;
    world w(pool);
    ids others;
    task_id both{};
    while_held(w, 1, [&] {
      both = w.submit_several(keys{2, 1}, p, [&](attempt& a) {
        CHECK(a.has_lease());
        for (const int k : {1, 2}) others.push_back(w.submit(k, policy::exclusive));
        for (const task_id id : others) CHECK(reason_of(w, id) == why::reason::lease);
        for (const int k : {1, 2}) w.submit(k, policy::parallel);
        w.run_elsewhere();
        w.run_elsewhere();
        CHECK(w.scheduler()->stats().succeeded == 3);  // the parallel ones respect no lease
        return outcome::success();
      });
      w.run_elsewhere();
      CHECK(reason_of(w, both) == (p == policy::ordered ? why::reason::predecessor : why::reason::lease));
    });
    w.run_all();
    CHECK(w.scheduler()->stats().unfinished() == 0);
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("7.7 several keys: ordered waits for every earlier task of each key, and later ordered ones for it") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});
  const task_id first = w.submit(1, policy::parallel, says({outcome::retry()}));
  const task_id both = w.submit_several(keys{2, 1}, policy::ordered);
  const task_id behind = w.submit(2, policy::ordered);
  w.run_all();
  CHECK(w.starts == ids{first});  // and it waits to retry
  const auto info = w.scheduler()->find(both);
  CHECK(info->why.kind == why::reason::predecessor);
  CHECK(info->why.task == first);
  CHECK(info->why.state == task_state::delayed);
  CHECK(w.scheduler()->find(behind)->why.task == both);
  CHECK(w.scheduler()->find(behind)->why.state == task_state::waiting);
  w.time.advance(1s);
  w.run_all();
  CHECK(w.starts == ids{first, first, both, behind});
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 several keys: exclusive does not wait for the retry of an earlier task") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});
  const task_id first = w.submit(1, policy::ordered, says({outcome::retry()}));
  w.run_all();
  const task_id both = w.submit_several(keys{1, 2}, policy::exclusive);
  w.run_all();
  CHECK(w.starts == ids{first, both});
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 several keys: duplicates count once; a list of one key is a plain submit") {
  manual_executor pool;
  world w(pool);
  w.submit_several(keys{3, 3}, policy::parallel);  // that may be parallel too
  const task_id plain = w.submit_several(keys{3}, policy::ordered);
  const task_id several = w.submit_several(keys{4, 3, 4, 3, 3}, policy::exclusive);
  CHECK(w.scheduler()->stats().submitted == 3);
  CHECK(reason_of(w, plain) == why::reason::predecessor);
  CHECK(w.scheduler()->busiest_keys(1)[0].depth == 3);
  w.run_all();
  CHECK(w.starts.back() == several);
  CHECK(w.verdict() == "");
}

// ---- refused

TEST_CASE("7.7 several keys: parallel and an empty list are refused in words, and leave the callback unmoved") {
  stage on({.default_policy = policy::parallel});
  auto what = std::make_unique<int>(1);
  auto callback = [what = std::move(what)] {};
  const auto refusal = [](auto submit) -> std::string {
    try {
      submit();
    } catch (const turnkey::rejected& e) {
      return e.what();
    }
    return {};
  };
  CHECK(on.tasks.try_submit(keys{"a", "b"}, std::move(callback)).reason() == reject_reason::invalid_options);
  CHECK(on.tasks.try_submit(keys<std::string>{}, std::move(callback)).reason() == reject_reason::needs_key);
  const turnkey::task_options parallel{.policy = policy::parallel};
  CHECK(on.tasks.submit_for(1h, keys{"a", "b"}, parallel, std::move(callback)).reason() ==
        reject_reason::invalid_options);
  CHECK(refusal([&] {
          on.tasks.submit(keys{"a", "b"}, [] {});
        }) ==
        "turnkey: submit refused (invalid_options): the policy is parallel; several keys need exclusive or ordered");
  CHECK(refusal([&] { on.tasks.submit(keys<std::string>{}, [] {}); }) ==
        "turnkey: submit refused (needs_key): the list of keys is empty; a task without a key has no list");
  CHECK(refusal([&] {
          on.tasks.submit(keys{"a", "b"}, {.policy = static_cast<policy>(9)}, [] {});
        }).find("task option policy is 9") != std::string::npos);
  CHECK(on.tasks.try_submit(keys{"a", "b"}, {.policy = policy::ordered}, std::function<void()>()).reason() ==
        reject_reason::empty_callback);
  CHECK(on.tasks.stats().rejected == 7);
  CHECK(on.tasks.stats().keys == 0);
  CHECK(on.tasks.try_submit(keys{"a", "b"}, {.policy = policy::ordered}, std::move(callback)).has_value());
}

TEST_CASE("3.1, 7.7 several keys: it has a retry policy of its own") {
  stage on({.retry = in_a_second});
  int attempts = 0;
  on.tasks.submit(keys{"a", "b"},
                  {.policy = policy::ordered, .retry = retry_policy{.max_attempts = 5, .initial_delay = 1ms}},
                  [&attempts] { return ++attempts < 5 ? outcome::retry() : outcome::success(); });
  on.pass(900ms);
  CHECK(attempts == 5);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("7.7 several keys: the override of the scheduler counts") {
  stage exclusive({.policy_override = policy::exclusive});
  CHECK(exclusive.tasks.try_submit(keys{"a", "b"}, {.policy = policy::parallel}, [] {}).has_value());
  stage parallel({.policy_override = policy::parallel});
  CHECK(parallel.tasks.try_submit(keys{"a", "b"}, {.policy = policy::ordered}, [] {}).reason() ==
        reject_reason::invalid_options);
}

TEST_CASE("4.2, 7.7 several keys: it counts once for max_pending, and for each key of max_pending_per_key") {
  stage on({.default_policy = policy::exclusive, .max_pending = 3, .max_pending_per_key = 2});
  on.tasks.submit(keys{"a", "b"}, [] {});
  on.tasks.submit(keys{"a", "c"}, [] {});
  CHECK(on.tasks.try_submit(keys{"d", "a"}, [] {}).reason() == reject_reason::key_full);
  CHECK(on.tasks.try_submit("a", [] {}).reason() == reject_reason::key_full);
  CHECK(on.tasks.stats().keys == 3);  // d was not left behind
  on.tasks.submit(keys{"b", "c"}, [] {});
  CHECK(on.tasks.try_submit(keys{"x", "y"}, [] {}).reason() == reject_reason::full);
  on.run();
  CHECK(on.tasks.submit_for(0s, keys{"x", "y"}, [] {}).has_value());
}

TEST_CASE("10.2, 7.7 several keys: refused after close, but from inside a callback until stop") {
  stage on({.default_policy = policy::ordered});
  std::optional<turnkey::submit_result> inside;
  on.tasks.submit(keys{"a", "b"}, [&] { inside = on.tasks.try_submit(keys{"b", "c"}, [] {}); });
  on.tasks.close();
  CHECK(on.tasks.try_submit(keys{"a", "b"}, [] {}).reason() == reject_reason::closed);
  on.run();
  CHECK(inside->has_value());
  CHECK(on.tasks.drain() == drain_result::drained);
  static_cast<void>(on.tasks.stop());
  CHECK(on.tasks.try_submit(keys{"a", "b"}, [] {}).reason() == reject_reason::closed);
}

// ---- reservations

TEST_CASE("7.7 a reserved key: no larger id takes its free lease, smaller ones and parallel ones do") {
  manual_executor pool;
  world w(pool);
  const task_id smaller = w.submit(1, {.policy = policy::exclusive, .delay = 1s}, succeeds()).value();
  while_held(w, 2, [&] {
    const task_id both = w.submit_several(keys{1, 2}, policy::exclusive);
    const task_id larger = w.submit(1, policy::exclusive);
    const task_id parallel = w.submit(1, policy::parallel);
    CHECK(reason_of(w, larger) == why::reason::reserved);
    CHECK(w.scheduler()->find(larger)->why.task == both);
    CHECK(to_string(w.scheduler()->find(larger)->why).find("reserved for task") != std::string::npos);
    CHECK(state_of(w, larger) == task_state::waiting);
    w.run_elsewhere();
    CHECK(w.starts.back() == parallel);
    w.run_elsewhere();
    CHECK(w.starts.back() == parallel);
    w.time.advance(1s);
    w.run_elsewhere();
    CHECK(w.starts.back() == smaller);
    CHECK(w.verdict() == "");
  });
  CHECK(w.scheduler()->stats().succeeded == 5);
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 a task that a time, a pause, a hold or a predecessor keeps reserves nothing") {
  enum class kept_by { time, pause, hold, predecessor };
  for (const kept_by by : {kept_by::time, kept_by::pause, kept_by::hold, kept_by::predecessor}) {
    CAPTURE(static_cast<int>(by));
    manual_executor pool;
    world w(pool, {.dead_action = dead_action::hold_key});
    if (by == kept_by::hold) {
      w.submit(3, policy::exclusive, says({outcome::dead()}));
      w.run_all();
    }
    if (by == kept_by::pause) w.pause(3);
    if (by == kept_by::predecessor)
      static_cast<void>(w.submit(3, {.policy = policy::parallel, .delay = 1h}, succeeds()));
    const task_id several =
        w.submit_several(keys{1, 2, 3}, {.policy = policy::ordered, .delay = by == kept_by::time ? 1h : 0h}, succeeds())
            .value();
    while_held(w, 2, [&] {
      const task_id larger = w.submit(1, policy::exclusive);
      w.run_elsewhere();
      CHECK(w.starts.back() == larger);
      CHECK(reason_of(w, several) < why::reason::lease);
      // Once that is over it reserves.
      if (by == kept_by::hold) CHECK(w.release(3));
      if (by == kept_by::pause) CHECK(w.resume(3));
      if (by == kept_by::time || by == kept_by::predecessor) {
        w.time.advance(1h);
        if (by == kept_by::predecessor) w.run_elsewhere();
      }
      CHECK(reason_of(w, several) == why::reason::lease);
      CHECK(reason_of(w, w.submit(1, policy::exclusive)) == why::reason::reserved);
    });
    CHECK(w.scheduler()->stats().unfinished() == 0);
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("7.7 of several reservations the smallest id counts, in each key on its own") {
  manual_executor pool;
  world w(pool);
  ids order;
  while_held(w, 1, [&] {
    const task_id a = w.submit_several(keys{1, 2}, policy::exclusive);
    const task_id b = w.submit_several(keys{2, 3}, policy::exclusive);
    const task_id c = w.submit_several(keys{3, 4}, policy::exclusive);
    const task_id d = w.submit_several(keys{4, 5}, policy::exclusive);
    CHECK(reason_of(w, a) == why::reason::lease);
    CHECK(w.scheduler()->find(b)->why.task == a);
    CHECK(w.scheduler()->find(c)->why.task == b);
    CHECK(w.scheduler()->find(d)->why.task == c);
    const task_id e = w.submit(5, policy::exclusive);  // d waits for 4 and has reserved 5
    CHECK(reason_of(w, e) == why::reason::reserved);
    w.run_elsewhere();
    CHECK(w.starts.size() == 1);
    CHECK(w.cancel(b));  // so c and d come first everywhere, but for each other
    w.run_elsewhere();
    order = {c, d, e, a};
    CHECK(w.verdict() == "");
  });
  CHECK(std::is_permutation(w.starts.begin() + 1, w.starts.end(), order.begin(), order.end()));
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 the first to reserve yields to smaller ids that come back, and they to it by rule 2.9") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});
  const task_id early = w.submit(1, policy::exclusive, says({outcome::retry()}));
  const task_id both = w.submit_several(keys{1, 2}, policy::exclusive, says({outcome::retry()}));
  const task_id fresh = w.submit(2, {.policy = policy::exclusive, .delay = 1s}, succeeds()).value();
  w.run_all();
  CHECK(w.starts == ids{early, both});
  w.time.jump(1s);  // both retries are due, and so is the fresh one: retries first, by id
  w.run_all();
  CHECK(w.starts == ids{early, both, early, both, fresh});
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 a due retry of several keys goes before a smaller id that never ran") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});
  const task_id smaller = w.submit(1, {.policy = policy::exclusive, .delay = 1s}, succeeds()).value();
  const task_id both = w.submit_several(keys{2, 1}, policy::exclusive, says({outcome::retry()}));
  w.run_all();
  w.time.jump(1s);
  CHECK(state_of(w, both) == task_state::ready);
  CHECK(state_of(w, smaller) == task_state::waiting);
  w.run_all();
  CHECK(w.starts == ids{both, both, smaller});
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 a task of several keys that postpones by nothing goes behind what is ready in its lines") {
  manual_executor pool;
  world w(pool);
  const task_id both = w.submit_several(keys{1, 2}, policy::exclusive, says({outcome::postpone(0s)}));
  const task_id one = w.submit(1, policy::exclusive);
  const task_id two = w.submit(2, policy::exclusive);
  w.run_all();
  CHECK(w.starts.front() == both);
  CHECK(w.starts.back() == both);
  CHECK(w.starts.size() == 4);
  CHECK(w.scheduler()->find(one) == std::nullopt);
  CHECK(w.scheduler()->find(two) == std::nullopt);
  CHECK(w.verdict() == "");
}

TEST_CASE("7.7 what a paused task of several keys gives up is there for others, whether it postpones, fails or dies") {
  for (const outcome& end : {outcome::postpone(0s), outcome::postpone(1s), outcome::retry(), outcome::dead()}) {
    manual_executor pool;
    world w(pool, {.retry = in_a_second});
    const task_id both = w.submit_several(keys{1, 2, 3}, policy::exclusive, [&](attempt&) {
      w.pause(1);
      return end;
    });
    const task_id two = w.submit(2, policy::exclusive);
    const task_id three = w.submit(3, policy::exclusive);
    w.run_all();
    CHECK(w.starts == ids{both, two, three});
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("7.7 keys in every order: nobody waits for ever") {
  manual_executor pool;
  world w(pool, {.retry = retry_policy{.max_attempts = 3, .initial_delay = 0s, .jitter = 0}});
  std::size_t submitted = 0;
  for (int a = 0; a != 5; ++a)
    for (int b = 0; b != 5; ++b)
      for (int c = 0; c != 5; ++c) {
        const policy p = (a + b + c) % 2 == 0 ? policy::exclusive : policy::ordered;
        w.submit_several(keys{a, b, c}, p, (a + 2 * c) % 3 == 0 ? says({outcome::retry()}) : succeeds());
        ++submitted;
      }
  w.run_all();
  CHECK(w.scheduler()->stats().succeeded == submitted);
  CHECK(w.verdict() == "");
}

// ---- between attempts

TEST_CASE("7.7 several keys: between two attempts it holds no lease, and its retry enters all lines again") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});
  const task_id both = w.submit_several(keys{1, 2}, policy::exclusive, says({outcome::retry()}));
  w.run_all();
  const task_id one = w.submit(1, policy::exclusive);
  const task_id two = w.submit(2, policy::exclusive);
  w.run_all();
  CHECK(w.starts == ids{both, one, two});
  while_held(w, 2, [&] {
    w.time.advance(1s);
    CHECK(reason_of(w, both) == why::reason::lease);
    CHECK(w.scheduler()->find(both)->since == w.time.now());
    CHECK(reason_of(w, w.submit(1, policy::exclusive)) == why::reason::reserved);
  });
  CHECK(w.scheduler()->stats().unfinished() == 0);
  CHECK(w.verdict() == "");
}

TEST_CASE("3.4, 7.7 several keys: a delayed one has the place of its id in each line; expedite makes it due") {
  manual_executor pool;
  world w(pool);
  const auto both = w.submit_several(keys{1, 2}, {.policy = policy::ordered, .delay = 1h}, succeeds()).value();
  const task_id one = w.submit(1, policy::ordered);
  const task_id two = w.submit(2, policy::ordered);
  w.run_all();
  CHECK(w.starts.empty());
  CHECK(w.expedite(both));
  w.run_all();
  CHECK(w.starts.front() == both);
  CHECK(w.starts.size() == 3);
  CHECK(one != two);
  CHECK(w.verdict() == "");
}

// ---- cancel

TEST_CASE("6.5, 7.7 cancel of a task of several keys: waiting, ready, delayed; by id and by any of its keys") {
  for (int state = 0; state != 3; ++state)
    for (int how = 0; how != 4; ++how) {
      CAPTURE(state);
      CAPTURE(how);
      manual_executor pool;
      world w(pool);
      const auto act = [&] {
        const auto id =
            w.submit_several(keys{2, 1, 3}, {.policy = policy::ordered, .delay = state == 2 ? 1h : 0h}, succeeds())
                .value();
        const task_id behind = w.submit(3, policy::ordered);
        CHECK(w.verdict() == "");
        if (how == 0) CHECK(w.cancel(id));
        if (how == 3) CHECK(w.cancel_all() == (state == 0 ? 3 : 2));
        if (how == 1) CHECK(w.cancel(1) == (state == 0 ? 2 : 1));
        if (how == 2) CHECK(w.cancel(3) == 2);
        CHECK(!w.cancel(id));
        CHECK(!w.scheduler()->find(id));
        if (how < 2) CHECK(state_of(w, behind) == task_state::ready);
        CHECK(w.verdict() == "");
      };
      if (state == 0) {
        while_held(w, 1, act);
      } else {
        act();
      }
      w.run_all();
      CHECK(w.scheduler()->stats().keys == 0);
      CHECK(w.verdict() == "");
    }
}

TEST_CASE("6.5, 7.7 cancel of one that runs: by a key that is not its first; it keeps all leases until it settles") {
  stage on({.default_policy = policy::exclusive, .retry = in_a_second});
  bool signalled = false;
  on.tasks.submit(keys{"a", "b"}, [&](attempt& a) {
    const auto token = a.stop_token();
    CHECK(on.tasks.cancel("b") == 1);
    signalled = token.stop_requested() && a.stop_requested();
    const task_id other = on.tasks.submit("b", [] {});
    CHECK(on.tasks.find(other)->why.kind == why::reason::lease);
    return outcome::retry();
  });
  on.run();
  CHECK(signalled);
  CHECK(on.tasks.stats().cancelled == 1);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().keys == 0);
}

TEST_CASE("6.5, 7.7 cancelling what has reserved lets the larger ids go on") {
  manual_executor pool;
  world w(pool);
  while_held(w, 2, [&] {
    const task_id both = w.submit_several(keys{1, 2}, policy::exclusive);
    const task_id larger = w.submit(1, policy::exclusive);
    CHECK(w.cancel(both));
    CHECK(state_of(w, larger) == task_state::ready);
    w.run_elsewhere();
    CHECK(w.starts.back() == larger);
  });
  CHECK(w.verdict() == "");
}

// ---- pause

TEST_CASE("6.1, 7.7 the pause of any of its keys keeps it, and resuming lets it start") {
  for (const int k : {1, 2, 3}) {
    manual_executor pool;
    world w(pool);
    w.pause(k);
    const task_id several = w.submit_several(keys{1, 2, 3}, policy::exclusive);
    CHECK(reason_of(w, several) == why::reason::key_paused);
    w.run_all();
    CHECK(w.starts.empty());
    CHECK(w.resume(k));
    CHECK(w.pause(k));  // before anybody came
    w.run_all();
    CHECK(w.starts.empty());
    CHECK(w.resume(k));
    w.run_all();
    CHECK(w.starts == ids{several});
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("6.1, 7.7 a pause ends the reservations of every task that names the key, in all their keys") {
  manual_executor pool;
  world w(pool);
  while_held(w, 9, [&] {
    for (int k = 1; k != 5; ++k) w.submit_several(keys{k, 9, 8}, policy::exclusive);
    ids others;
    for (int k = 1; k != 5; ++k) others.push_back(w.submit(k, policy::exclusive));
    for (const task_id id : others) CHECK(reason_of(w, id) == why::reason::reserved);
    CHECK(w.pause(8));
    for (const task_id id : others) CHECK(state_of(w, id) == task_state::ready);
    CHECK(w.resume(8));
    for (const task_id id : others) CHECK(reason_of(w, id) == why::reason::reserved);
    CHECK(w.verdict() == "");
  });
  CHECK(w.scheduler()->stats().unfinished() == 0);
  CHECK(w.verdict() == "");
}

// ---- the dead, and holds

TEST_CASE("5.3, 7.7 a dead task of several keys holds each of them; release() ends that for one key") {
  manual_executor pool;
  world w(pool, {.dead_action = dead_action::hold_key});
  const task_id both = w.submit_several(keys{1, 2}, policy::exclusive, says({outcome::dead()}));
  w.run_all();
  const task_id one = w.submit(1, policy::parallel);
  const task_id two = w.submit(2, policy::exclusive);
  const task_id again = w.submit_several(keys{3, 2}, policy::ordered);
  w.run_all();
  CHECK(w.starts == ids{both});
  CHECK(w.scheduler()->find(two)->why.task == both);
  CHECK(w.scheduler()->find(again)->why.kind == why::reason::key_held);
  CHECK(w.scheduler()->find(again)->why.state == task_state::dead);
  CHECK(w.release(1));
  w.run_all();
  CHECK(w.starts == ids{both, one});
  CHECK(w.release_all() == 1);
  w.run_all();
  CHECK(w.starts == ids{both, one, two, again});
  CHECK(w.verdict() == "");
}

TEST_CASE("5.2, 7.7 redrive and discard by any key; the redriven one has the place of its id in all lines") {
  for (int how = 0; how != 3; ++how) {
    CAPTURE(how);
    manual_executor pool;
    world w(pool, {.dead_action = dead_action::hold_key});
    const task_id both = w.submit_several(keys{1, 2}, policy::ordered, says({outcome::dead()}));
    w.run_all();
    const task_id one = w.submit(1, policy::ordered);
    const task_id two = w.submit(2, policy::exclusive);
    CHECK(w.scheduler()->dead_tasks().size() == 1);
    CHECK(w.scheduler()->dead_tasks()[0].id == both);
    if (how == 0) CHECK(w.redrive(2) == 1);
    if (how == 1) CHECK(w.redrive(both));
    if (how == 2) CHECK(w.discard(2) == 1);
    CHECK(w.verdict() == "");
    w.run_all();
    CHECK(w.starts.size() == (how == 2 ? 3 : 4));
    if (how != 2) CHECK(w.starts[1] == both);
    CHECK((w.starts.back() == one || w.starts.back() == two));
    CHECK(w.scheduler()->stats().keys == 0);
    CHECK(w.verdict() == "");
  }
}

TEST_CASE("5.2, 7.7 a redriven task pushes larger ids that had reserved and were ready from the front") {
  manual_executor pool;
  world w(pool);
  const task_id early = w.submit_several(keys{1, 2}, policy::ordered, says({outcome::dead()}));
  w.run_all();
  w.pause();
  const task_id later = w.submit_several(keys{2, 3}, policy::ordered);
  const task_id larger = w.submit(3, policy::exclusive);
  CHECK(state_of(w, later) == task_state::ready);
  CHECK(w.redrive(early));
  CHECK(state_of(w, early) == task_state::ready);
  CHECK(reason_of(w, later) == why::reason::predecessor);
  CHECK(state_of(w, larger) == task_state::ready);  // what a predecessor keeps reserves nothing
  w.resume();
  w.run_all();
  CHECK(w.scheduler()->stats().succeeded == 3);
  CHECK(w.verdict() == "");
}

TEST_CASE("5.1, 7.7 an evicted task of several keys: its record has them all, and its hold stays on each") {
  manual_executor pool;
  world w(pool, {.max_dead = 0, .dead_action = dead_action::hold_key});
  w.keep_evicted = true;
  w.submit_several(keys{4, 2, 3}, policy::exclusive, says({outcome::dead()}));
  w.run_all();
  CHECK(w.evicted.size() == 1);
  CHECK(w.evicted[0].keys() == std::vector<int>{4, 2, 3});
  CHECK(*w.evicted[0].key() == 4);
  CHECK(w.scheduler()->held_keys().size() == 3);
  CHECK(w.release_all() == 3);
  w.submit(std::move(w.evicted[0]), w);
  w.evicted.clear();
  w.run_all();
  CHECK(w.scheduler()->stats().succeeded == 1);
  CHECK(w.scheduler()->stats().keys == 0);
  CHECK(w.verdict() == "");
}

TEST_CASE("5.1, 7.7 an evicted task of several keys that nobody takes is destroyed, and lets go of its keys") {
  auto alive = std::make_shared<int>();
  stage on({.default_policy = policy::exclusive, .max_dead = 1});
  for (int i = 0; i != 3; ++i) on.tasks.submit(keys{"a", "b"}, [alive] { return outcome::dead(); });
  on.run();
  CHECK(alive.use_count() == 2);
  CHECK(on.tasks.stats().dead_evicted == 2);
  CHECK(on.tasks.discard_all() == 1);
  CHECK(alive.use_count() == 1);
}

// ---- leases that outlive the callback

TEST_CASE("7.7 a deferred attempt keeps all leases until its completion is settled") {
  stage on({.default_policy = policy::exclusive});
  turnkey::completion later;
  on.tasks.submit(keys{"a", "b"}, [&](attempt& a) { later = a.defer(); });
  const task_id one = on.tasks.submit("a", [] {});
  const task_id two = on.tasks.submit("b", [] {});
  on.run();
  for (const task_id id : {one, two}) CHECK(on.tasks.find(id)->why.kind == why::reason::lease);
  CHECK(later.succeed());
  on.run();
  CHECK(on.tasks.stats().succeeded == 3);
  CHECK(!later.succeed());
  CHECK(on.tasks.stats().late_results == 1);
}

TEST_CASE("7.7 a lease that is lost is lost for all keys") {
  stage on({.default_policy = policy::exclusive, .lease_time = 1s, .lease_expiry = turnkey::lease_expiry::release});
  turnkey::completion later;
  on.tasks.submit(keys{"a", "b"}, [&](attempt& a) { later = a.defer(); });
  on.run();
  on.tasks.submit("a", [] {});
  on.tasks.submit("b", [] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 0);
  on.pass(1s);
  CHECK(on.tasks.stats().leases_lost == 1);
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(!later.succeed());
}

TEST_CASE("7.7 its fence is larger than all earlier and smaller than all later ones of each of its keys") {
  std::map<std::string, std::vector<std::uint64_t>> fences;
  stage on({.default_policy = policy::exclusive});
  const auto note = [&](std::vector<std::string> of) {
    return [&fences, of = std::move(of)](attempt& a) {
      for (const auto& k : of) fences[k].push_back(a.fence());
    };
  };
  for (int i = 0; i != 20; ++i) on.tasks.submit("a", note({"a"}));
  for (int i = 0; i != 8; ++i) {
    const std::string other = "k" + std::to_string(i);
    on.tasks.submit(keys<std::string>{other, "a"}, note({"a", other}));
    on.run();
    on.tasks.submit(other, note({other}));
    on.tasks.submit("a", note({"a"}));
    on.run();
  }
  for (const auto& [k, all] : fences) {
    CHECK(std::is_sorted(all.begin(), all.end()));
    CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  }
}

// ---- limits, steps, turns

TEST_CASE("6.2, 6.3, 6.4, 7.7 steps, the limit and the pace count a task of several keys once") {
  manual_executor pool;
  world w(pool);
  w.pause();
  const task_id first = w.submit_several(keys{1, 2}, policy::exclusive);
  const task_id second = w.submit_several(keys{2, 3}, policy::exclusive);
  CHECK(!w.step(second));  // it is not ready
  CHECK(w.step(first));
  w.run_all();
  CHECK(w.starts == ids{first});
  CHECK(w.step(1));
  w.run_all();
  CHECK(w.starts == ids{first, second});
  w.resume();
  w.set_max_in_flight(1);
  w.submit_several(keys{1, 2}, policy::exclusive, [&](attempt&) {
    w.submit(7, policy::exclusive);
    w.run_elsewhere();
    CHECK(w.starts.size() == 3);
    return outcome::success();
  });
  w.run_all();
  CHECK(w.starts.size() == 4);
  w.set_pace(turnkey::pace{.n = 1, .interval = 1s});
  for (int i = 0; i != 3; ++i) w.submit_several(keys{1, 2}, policy::exclusive);
  w.run_all();
  CHECK(w.starts.size() == 5);
  w.time.advance(2s);
  w.run_all();
  w.time.advance(2s);
  w.run_all();
  CHECK(w.starts.size() == 7);
  CHECK(w.verdict() == "");
}

TEST_CASE("8.2, 7.7 an inline executor runs tasks of several keys, one inside the other's callback too") {
  turnkey::scheduler<int> tasks{turnkey::inline_executor{}, {.default_policy = policy::exclusive}};
  std::string order;
  tasks.submit(keys{1, 2}, [&] {
    order += "a";
    tasks.submit(keys{2, 3}, [&] { order += "c"; });
    tasks.submit(keys{4, 5}, [&] { order += "d"; });
    order += "b";
  });
  CHECK(order.substr(0, 2) == "ab");
  CHECK(order.size() == 4);
  CHECK(tasks.drain() == drain_result::drained);
}

// ---- looking

TEST_CASE("9.2, 7.7 find names the first reason that holds over all keys") {
  manual_executor pool;
  world w(pool, {.dead_action = dead_action::hold_key});
  w.submit(3, policy::exclusive, says({outcome::dead()}));
  w.run_all();
  static_cast<void>(w.submit(2, {.policy = policy::parallel, .delay = 1h}, succeeds()));
  while_held(w, 1, [&] {
    const task_id id = w.submit_several(keys{1, 2, 3, 4}, policy::ordered);
    w.pause(4);
    const task_id other = w.submit_several(keys{5, 1}, policy::exclusive);
    CHECK(reason_of(w, id) == why::reason::key_held);
    w.release(3);
    CHECK(reason_of(w, id) == why::reason::key_paused);
    w.resume(4);
    CHECK(reason_of(w, id) == why::reason::predecessor);
    CHECK(reason_of(w, other) == why::reason::lease);
    w.time.advance(1h);
    w.run_elsewhere();
    CHECK(reason_of(w, id) == why::reason::predecessor);  // behind who holds 1
    CHECK(w.verdict() == "");
    const auto info = w.scheduler()->find(id);
    CHECK(info->key == 1);
    CHECK(info->state == task_state::waiting);
  });
  CHECK(w.verdict() == "");
}

TEST_CASE("9.4, 7.7 the numbers of its events rise among those of every one of its keys") {
  manual_executor pool;
  world w(pool, {.retry = in_a_second});  // the model looks at the numbers
  for (int k = 1; k != 9; ++k) {
    w.submit(k, policy::parallel);
    w.submit_several(keys{k, 9 - k, 30 + k}, policy::exclusive, says({outcome::retry()}));
    w.submit(30 + k, policy::ordered);
    w.run_all();
  }
  w.time.advance(1s);
  w.run_all();
  CHECK(w.scheduler()->stats().unfinished() == 0);
  CHECK(w.verdict() == "");
}

TEST_CASE("9.4, 7.7 the events of a task of several keys tell of the same attempt and fence as those of one key") {
  const auto told_of = [](auto submit) {
    manual_executor pool;
    std::vector<std::string> told;
    turnkey::options<int> o{.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s}, .first_fence = 7};
    o.observer = [&told](const turnkey::event<int>& e) {
      told.push_back(std::string(to_string(e.kind)) + ' ' + std::to_string(e.attempt) + ' ' + std::to_string(e.fence));
    };
    turnkey::scheduler<int> s(pool, o);
    submit(s);
    pool.run_all();
    return told;
  };
  const auto fails = [] { return outcome::retry(); };
  const auto of_two = told_of([&](auto& s) { s.submit(keys{1, 2}, {.policy = policy::ordered}, fails); });
  CHECK(of_two == told_of([&](auto& s) { s.submit(1, {.policy = policy::ordered}, fails); }));
  CHECK(of_two == std::vector<std::string>{"submitted 0 0", "started 1 7", "failed 1 7", "started 2 8", "dead 2 8"});
}

TEST_CASE("9.3, 7.7 busiest_keys counts it in each of its keys") {
  stage on({.default_policy = policy::exclusive});
  on.tasks.pause();
  const task_id id = on.tasks.submit(keys{"a", "b"}, [] {});
  const auto busy = on.tasks.busiest_keys(5);
  CHECK(busy.size() == 2);
  for (const auto& k : busy) {
    CHECK(k.depth == 1);
    CHECK(k.head == id);
    CHECK(k.head_state == task_state::ready);
  }
  CHECK(on.tasks.stats().ready == 1);
  CHECK(on.tasks.stats().keys == 2);
  CHECK(on.tasks.stats().unfinished() == 1);
}

// ---- the end

TEST_CASE("10.3, 7.7 stop returns it once, with all its keys, and another scheduler puts it into all lines") {
  manual_executor pool;
  world w(pool, {.dead_action = dead_action::hold_key});
  w.pause(3);
  w.submit_several(keys{3, 1, 2}, policy::ordered);
  CHECK(w.submit_several(keys{1, 2}, {.policy = policy::exclusive, .delay = 1h}, succeeds()).has_value());
  w.submit_several(keys{5, 4}, policy::exclusive);
  auto records = w.stop();
  CHECK(records.size() == 3);
  world other(pool);
  std::set<std::vector<int>> seen;
  for (auto& record : records) {
    seen.insert(record.keys());
    other.submit(std::move(record), w);
  }
  CHECK(seen == std::set<std::vector<int>>{{3, 1, 2}, {1, 2}, {5, 4}});
  other.run_all();
  CHECK(other.scheduler()->stats().succeeded == 3);
  CHECK(other.verdict() == "");
}

TEST_CASE("10.3, 7.7 stop while one runs or is deferred; records outlive their scheduler") {
  auto alive = std::make_shared<int>();
  std::optional<turnkey::task_records<std::string>> records;
  turnkey::completion later;
  {
    stage on({.default_policy = policy::exclusive});
    on.tasks.submit(keys{"a", "b"}, [&, alive](attempt& a) { later = a.defer(); });
    on.tasks.submit(keys{"b", "c"}, [alive] {});
    on.run();
    records = on.tasks.stop();
  }
  CHECK(records->size() == 2);
  for (const auto& record : *records) CHECK(record.keys().size() == 2);
  CHECK(!later.succeed());
  records.reset();
  CHECK(alive.use_count() == 1);
}

TEST_CASE("10.4, 10.5, 7.7 nothing is left of it: no key at rest, and no callback after the destructor") {
  auto alive = std::make_shared<int>();
  {
    stage on({.default_policy = policy::exclusive, .retry = in_a_second, .dead_action = dead_action::hold_key});
    for (int i = 0; i != 5; ++i) on.tasks.submit(keys<std::string>{"a", std::to_string(i)}, [alive] {});
    on.run();
    CHECK(on.tasks.drain() == drain_result::drained);
    CHECK(on.tasks.stats().keys == 0);
    CHECK(alive.use_count() == 1);
    on.tasks.submit(keys{"a", "b"}, [alive] { return outcome::dead(); });
    on.run();
    on.tasks.submit(keys{"b", "c"}, [alive] {});
    on.tasks.submit(keys{"x", "y"}, {.delay = 1h}, [alive] {});
    on.tasks.submit(keys{"v", "w"}, [alive] { return outcome::retry(); });
    on.run();
    CHECK(on.tasks.stats().unfinished() == 3);
    CHECK(on.tasks.stats().dead == 1);
  }
  CHECK(alive.use_count() == 1);
}

// ---- keys

TEST_CASE("7.7 many keys, of one shard and of all: every one is leased, and equal hashes are different keys") {
  struct same {
    std::size_t operator()(int) const noexcept { return 7; }
  };
  const auto all_at_once = [](auto& tasks, manual_executor& pool, int count) {
    std::vector<int> list;
    for (int i = 0; i != count; ++i) list.push_back(i);
    int ran = 0;
    tasks.submit(keys{list}, [&] {
      for (const int k : list) CHECK(tasks.find(tasks.submit(k, [&] { ++ran; }))->why.kind == why::reason::lease);
    });
    CHECK(tasks.stats().keys == static_cast<std::uint64_t>(count));
    pool.run_all();
    CHECK(ran == count);
    CHECK(tasks.stats().keys == 0);
  };
  manual_executor pool;
  turnkey::scheduler<int> spread(pool, {.default_policy = policy::exclusive});
  all_at_once(spread, pool, 500);
  turnkey::scheduler<int, same> crowded(pool, {.default_policy = policy::exclusive});
  all_at_once(crowded, pool, 60);
}

TEST_CASE("7.7 keys from a vector, from any range, from literals, and keys that can only be moved") {
  stage on({.default_policy = policy::exclusive});
  const std::vector<std::string> in_a_vector{"a", "b"};
  const std::set<std::string> in_a_set{"b", "c", "d"};
  int ran = 0;
  const auto count = [&ran] { ++ran; };
  on.tasks.submit(keys{in_a_vector}, count);
  on.tasks.submit(keys<std::string>{in_a_set}, count);
  on.tasks.submit(keys{"a", "c"}, count);
  on.tasks.submit(keys<std::string>{"a", std::string("c")}, turnkey::task_options{}, count);
  CHECK(on.tasks.try_submit(keys{in_a_vector}, count).has_value());
  CHECK(on.tasks.stats().keys == 4);
  on.run();
  CHECK(ran == 5);
  CHECK(keys{in_a_vector}.size() == 2);
  CHECK(keys{1, 2, 1}.size() == 3);
  CHECK(keys<int>{}.empty());

  using only_moved = std::unique_ptr<int>;
  struct by_value {
    std::size_t operator()(const only_moved& k) const noexcept { return static_cast<std::size_t>(*k); }
    bool operator()(const only_moved& a, const only_moved& b) const noexcept { return *a == *b; }
  };
  manual_executor pool;
  turnkey::scheduler<only_moved, by_value, by_value> moved(pool, {.default_policy = policy::exclusive});
  moved.submit(keys<only_moved>{std::make_unique<int>(1), std::make_unique<int>(2), std::make_unique<int>(1)}, count);
  CHECK(moved.stats().keys == 2);
  pool.run_all();
  CHECK(ran == 6);
}

// Its callable is taken in outside the locks, since its copy may throw; and then a stop() inside waits for nobody.
TEST_CASE("7.7, 10.3 submit of several keys whose callable calls stop while it is copied is refused as closed") {
  struct stops_when_copied {
    explicit stops_when_copied(std::function<void()> f) : stop(std::move(f)) {}
    stops_when_copied(const stops_when_copied& other) : stop(other.stop) { stop(); }
    void operator()() const { FAIL_CHECK("it was refused"); }
    std::function<void()> stop;
  };
  manual_executor pool;
  turnkey::scheduler<std::string> tasks(pool);
  std::optional<reject_reason> reason;
  tasks.submit([&] {
    const stops_when_copied callback([&tasks] { static_cast<void>(tasks.stop()); });
    reason = tasks.try_submit(keys{"a", "b"}, {.policy = policy::exclusive}, callback).reason();
  });
  pool.run_all();
  CHECK(reason == reject_reason::closed);
  CHECK(tasks.stats().keys == 0);
}

TEST_CASE("7.7, 10.3 several keys: a record is refused where the override is parallel, and keeps its task") {
  stage first;
  int ran = 0;
  first.tasks.submit(keys{"a", "b"}, {.policy = policy::ordered}, [&ran] { ++ran; });
  auto left = first.tasks.stop();
  auto& record = *left.begin();
  stage parallel({.policy_override = policy::parallel});
  CHECK_THROWS_AS(parallel.tasks.submit(std::move(record)), turnkey::rejected);
  REQUIRE(record);
  stage exclusive({.policy_override = policy::exclusive});
  exclusive.tasks.submit(std::move(record));
  exclusive.run();
  CHECK(ran == 1);
}
