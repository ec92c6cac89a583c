#include <turnkey/turnkey.hpp>

#include <support/lock_probe.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::completion;
using turnkey::dead_action;
using turnkey::drain_result;
using turnkey::duration;
using turnkey::event;
using turnkey::event_kind;
using turnkey::failure_reason;
using turnkey::lease_expiry;
using turnkey::outcome;
using turnkey::pace;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::scheduler;
using turnkey::task_id;
using turnkey::task_options;
using turnkey::task_state;
using turnkey::time_point;
using turnkey::why;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<int>;
using strings = std::vector<std::string>;
using options = turnkey::options<std::string>;

const task_options parallel{.policy = policy::parallel};
const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};
const retry_policy plain_retry{.initial_delay = 1s, .multiplier = 1, .jitter = 0};

// A callback that goes on in `to`.
auto deferring(completion& to) {
  return [&to](attempt& a) { to = a.defer(); };
}
// The same for every attempt.
auto deferring(std::vector<completion>& to) {
  return [&to](attempt& a) { to.push_back(a.defer()); };
}

std::function<void()> noting(numbers& ran, int number) {
  return [&ran, number] { ran.push_back(number); };
}

// A scheduler whose events are kept, as "kind attempt" or "kind attempt: why".
struct heard_stage {
  explicit heard_stage(options set = {}) : on(listening(std::move(set))) {}

  options listening(options set) {
    set.observer = [this](const event<std::string>& e) {
      if (e.kind == event_kind::submitted) return;
      events.push_back(std::string(to_string(e.kind)) + ' ' + std::to_string(e.attempt) +
                       (e.error != nullptr ? ": " + std::string(to_string(e.error->reason())) : ""));
      if (also) also(e);
    };
    return set;
  }

  strings events;
  std::function<void(const event<std::string>&)> also;
  stage on;
};

}  // namespace

// ---- 7.1 defer

TEST_CASE("7.1 a deferred attempt runs on with its lease after its callback has returned, until it is settled") {
  stage on;
  numbers ran;
  completion c;
  const task_id first = on.tasks.submit("a", exclusive, deferring(c));
  const task_id second = on.tasks.submit("a", exclusive, noting(ran, 2));
  on.tasks.submit("b", exclusive, noting(ran, 3));
  on.run();
  CHECK(ran == numbers{3});
  CHECK(on.tasks.stats().running == 1);
  CHECK(on.tasks.find(first)->state == task_state::running);
  CHECK(on.tasks.find(second)->why.kind == why::reason::lease);
  CHECK(c.succeed());
  CHECK(!on.tasks.find(first));
  CHECK(on.pool.size() == 1);  // what waited is offered at once
  on.run();
  CHECK(ran == numbers{3, 2});
  CHECK(on.tasks.stats().succeeded == 3);
  CHECK(on.tasks.stats().unfinished() == 0);
}

TEST_CASE("7.1 ordered successors of a deferred attempt wait, parallel ones of its key do not") {
  stage on;
  numbers ran;
  completion c;
  const task_id first = on.tasks.submit("a", parallel, deferring(c));
  const task_id behind = on.tasks.submit("a", ordered, noting(ran, 2));
  on.tasks.submit("a", parallel, noting(ran, 3));
  on.run();
  CHECK(ran == numbers{3});
  const why reason = on.tasks.find(behind)->why;
  CHECK(reason.kind == why::reason::predecessor);
  CHECK(reason.task == first);
  CHECK(reason.state == task_state::running);
  CHECK(c.succeed());
  on.run();
  CHECK(ran == numbers{3, 2});
}

TEST_CASE("7.1 parallel and keyless attempts can be deferred too: they keep nobody back") {
  stage on;
  std::vector<completion> all;
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", parallel, deferring(all));
  for (int i = 0; i != 3; ++i) on.tasks.submit(deferring(all));
  on.run();
  REQUIRE(all.size() == 6);
  CHECK(on.tasks.stats().running == 6);
  for (const unsigned i : {4U, 0U, 5U, 2U, 1U, 3U}) {
    CHECK(all[i].fence() == 0);
    CHECK(all[i].succeed());
  }
  CHECK(on.tasks.stats().succeeded == 6);
  CHECK(on.tasks.stats().keys == 0);
}

// What a completion can say, before or after the callback has returned, and what must come of it.
TEST_CASE("7.1 a completion says what a callback can say, before the callback has returned or after it") {
  struct said {
    const char* what;
    std::function<bool(const completion&)> say;
    strings events;
  };
  const std::array<said, 10> table{{
      {"succeed", [](const completion& c) { return c.succeed(); }, {"succeeded 1"}},
      {"success", [](const completion& c) { return c.settle(outcome::success()); }, {"succeeded 1"}},
      {"fail", [](const completion& c) { return c.fail(); }, {"failed 1: asked", "succeeded 2"}},
      {"fail why", [](const completion& c) { return c.fail("why"); }, {"failed 1: asked", "succeeded 2"}},
      {"fail with",
       [](const completion& c) { return c.fail(std::make_exception_ptr(std::runtime_error("x"))); },
       {"failed 1: threw", "succeeded 2"}},
      {"retry", [](const completion& c) { return c.settle(outcome::retry("r")); }, {"failed 1: asked", "succeeded 2"}},
      {"retry_after",
       [](const completion& c) { return c.settle(outcome::retry_after(3s)); },
       {"failed 1: asked", "succeeded 2"}},
      {"postpone", [](const completion& c) { return c.settle(outcome::postpone(2s)); }, {"postponed 1", "succeeded 1"}},
      {"postpone by nothing",
       [](const completion& c) { return c.settle(outcome::postpone(0s)); },
       {"postponed 1", "succeeded 1"}},
      {"dead", [](const completion& c) { return c.settle(outcome::dead("d")); }, {"dead 1: asked"}},
  }};
  for (const bool early : {true, false}) {
    for (const said& each : table) {
      CAPTURE(early);
      CAPTURE(each.what);
      heard_stage h({.retry = plain_retry});
      std::optional<completion> c;
      int attempts = 0;
      h.on.tasks.submit("a", ordered, [&](attempt& a) {
        if (++attempts == 2) return;
        c = a.defer();
        if (early) CHECK(each.say(*c));
      });
      h.on.run();
      CHECK(h.on.tasks.stats().running == !early);
      CHECK(each.say(*c) == !early);
      CHECK(!each.say(*c));
      h.on.pass(10s);
      strings expected;
      for (const std::string& end : each.events) {
        expected.push_back(std::string("started ") + end[end.find_first_of("12")]);
        expected.push_back(end);
      }
      CHECK(h.events == expected);
      CHECK(h.on.tasks.stats().unfinished() == 0);
      CHECK(h.on.tasks.stats().late_results == (early ? 2 : 1));
    }
  }
}

TEST_CASE("7.1 a delay that a completion names is exact, early or late") {
  for (const bool early : {true, false}) {
    for (const outcome& said : {outcome::retry_after(3s), outcome::postpone(3s)}) {
      stage on({.retry = plain_retry});
      completion c;
      bool again = false;
      const task_id id = on.tasks.submit("a", [&](attempt& a) {
        if (std::exchange(again, true)) return;
        c = a.defer();
        if (early) c.settle(said);
      });
      on.run();
      if (!early) {
        on.time.jump(5s);
        c.settle(said);
      }
      CHECK(on.tasks.find(id)->due == on.time.now() + 3s);
    }
  }
}

TEST_CASE("7.1 what a completion failed with is kept with the dead task, early or late") {
  for (const bool early : {true, false}) {
    stage on;
    std::vector<completion> all;
    const auto say = [](const completion& c, std::size_t which) {
      if (which == 0) c.fail("words");
      if (which == 1) c.fail(std::make_exception_ptr(std::logic_error("thrown")));
      if (which == 2) c.fail(std::exception_ptr());
      if (which == 3) c.settle(outcome::dead("no use"));
    };
    for (std::size_t i = 0; i != 4; ++i)
      on.tasks.submit("a", ordered, [&all, i, early, say](attempt& a) {
        all.push_back(a.defer());
        if (early) say(all.back(), i);
      });
    for (std::size_t i = 0; i != 4; ++i) {
      on.run();
      if (!early) say(all.at(i), i);
    }
    const auto dead = on.tasks.dead_tasks();
    REQUIRE(dead.size() == 4);
    const strings texts{"words", "thrown", "asked", "no use"};
    const std::array reasons{failure_reason::asked, failure_reason::threw, failure_reason::asked,
                             failure_reason::asked};
    for (std::size_t i = 0; i != 4; ++i) {
      CHECK(dead[i].error.text() == texts[i]);
      CHECK(dead[i].error.reason() == reasons[i]);
    }
  }
}

TEST_CASE("7.1 a completion may settle on another thread, and the next lease may too") {
  stage on;
  numbers ran;
  completion c;
  on.tasks.submit("a", exclusive, deferring(c));
  on.tasks.submit("a", exclusive, noting(ran, 2));
  on.run();
  std::thread([&c] { CHECK(c.succeed()); }).join();
  on.run();
  CHECK(ran == numbers{2});
}

TEST_CASE("7.1 of two threads that settle at once one wins, and the other is told") {
  for (int i = 0; i != 50; ++i) {
    stage on;
    completion c;
    on.tasks.submit("a", exclusive, deferring(c));
    on.run();
    bool one = false;
    std::thread other([&] { one = c.succeed(); });
    const bool two = c.fail("x");
    other.join();
    CHECK(one != two);
    CHECK(on.tasks.stats().succeeded == one);
    CHECK(on.tasks.stats().died == two);
    CHECK(on.tasks.stats().late_results == 1);
  }
}

TEST_CASE("7.1 after defer() the returned value is ignored") {
  for (const outcome& said : {outcome::retry("a"), outcome::dead("b"), outcome::postpone(1s), outcome::success()}) {
    for (const bool early : {true, false}) {
      stage on({.retry = plain_retry});
      completion c;
      on.tasks.submit("a", ordered, [&](attempt& a) {
        c = a.defer();
        if (early) c.succeed();
        return said;
      });
      on.run();
      CHECK(on.tasks.stats().running == !early);
      CHECK(c.succeed() == !early);
      CHECK(on.tasks.stats().succeeded == 1);
      CHECK(on.tasks.stats().failed_attempts == 0);
    }
  }
}

TEST_CASE("7.1 an exception after defer() fails the attempt, and the completion comes too late") {
  heard_stage h({.retry = plain_retry});
  std::vector<completion> all;
  h.on.tasks.submit("a", ordered, [&all](attempt& a) {
    all.push_back(a.defer());
    if (a.number() == 1) throw std::runtime_error("x");
  });
  h.on.run();
  CHECK(all[0].stop_requested());
  CHECK(!all[0].succeed());
  h.on.pass(1s);
  CHECK(!all[0].fail());
  CHECK(h.on.tasks.stats().running == 1);
  CHECK(all[1].succeed());
  CHECK(h.events == strings{"started 1", "failed 1: threw", "started 2", "succeeded 2"});
}

TEST_CASE("7.1 the first to settle wins: an exception after an early success changes nothing") {
  heard_stage h({.retry = plain_retry});
  h.on.tasks.submit("a", ordered, [](attempt& a) {
    CHECK(a.defer().succeed());
    throw 17;
  });
  h.on.run();
  CHECK(h.events == strings{"started 1", "succeeded 1"});
}

TEST_CASE("7.1 a second defer() throws std::logic_error, and the first completion stays what it is") {
  stage on;
  completion c;
  on.tasks.submit("a", [&c](attempt& a) {
    c = a.defer();
    CHECK_THROWS_AS(static_cast<void>(a.defer()), std::logic_error);
  });
  on.run();
  CHECK(on.tasks.stats().running == 1);
  CHECK(c.succeed());
  on.tasks.submit("a", [](attempt& a) {
    const completion first = a.defer();
    static_cast<void>(a.defer());
  });
  on.run();
  CHECK(on.tasks.dead_tasks().at(0).error.reason() == failure_reason::abandoned);  // it went first, as it was unwound
}

TEST_CASE("7.1 the next attempt may defer again, and each has its own completion") {
  stage on({.retry = plain_retry});
  std::vector<completion> all;
  on.tasks.submit("a", ordered, deferring(all));
  for (std::size_t n = 1; n != 5; ++n) {
    on.run();
    REQUIRE(all.size() == n);
    CHECK(all[n - 1].number() == n);
    for (std::size_t old = 0; old + 1 < n; ++old) CHECK(!all[old].succeed());
    CHECK(all[n - 1].fail());
    on.time.jump(1s);
  }
  on.run();
  CHECK(all[4].succeed());
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().late_results == 1 + 2 + 3);
}

TEST_CASE("7.1 a completion that is destroyed unsettled fails the attempt: abandoned") {
  for (const bool early : {true, false}) {
    CAPTURE(early);
    heard_stage h({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0}});
    std::optional<completion> c;
    h.on.tasks.submit("a", ordered, [&](attempt& a) {
      c.emplace(a.defer());
      if (early) c.reset();
    });
    h.on.run();
    c.reset();
    h.on.pass(1s);
    c.reset();
    CHECK(h.events == strings{"started 1", "failed 1: abandoned", "started 2", "dead 2: abandoned"});
    CHECK(h.on.tasks.dead_tasks().at(0).error.text() == "abandoned");
    CHECK(h.on.tasks.stats().late_results == 0);
  }
}

TEST_CASE(
    "7.1 a completion that is destroyed after it was settled, lost or failed changes nothing and counts nothing") {
  stage on({.retry = plain_retry});
  std::vector<completion> all;
  on.tasks.submit("a", ordered, [&all](attempt& a) {
    all.push_back(a.defer());
    if (a.number() == 1) throw 1;
  });
  on.run();
  on.pass(1s);
  REQUIRE(all.size() == 2);
  all.erase(all.begin());
  CHECK(on.tasks.stats().running == 1);
  all[0].succeed();
  all.clear();
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().failed_attempts == 1);
  CHECK(on.tasks.stats().late_results == 0);
}

TEST_CASE("7.1 a completion is move-only; one that stands for no attempt says false to everything") {
  static_assert(!std::is_copy_constructible_v<completion> && !std::is_copy_assignable_v<completion>);
  static_assert(std::is_nothrow_move_constructible_v<completion> && std::is_nothrow_move_assignable_v<completion>);
  static_assert(std::is_nothrow_default_constructible_v<completion>);
  stage on;
  completion source;
  const task_id id = on.tasks.submit("a", exclusive, deferring(source));
  on.run();
  const completion moved(std::move(source));
  const completion none;
  for (const completion* each : {static_cast<const completion*>(&source), &none}) {
    CHECK(!each->succeed());
    CHECK(!each->fail());
    CHECK(!each->fail(std::make_exception_ptr(1)));
    CHECK(!each->settle(outcome::success()));
    CHECK(!each->extend_lease(1s));
    CHECK(each->stop_requested());
    CHECK(each->stop_token().stop_requested());
    CHECK(each->id() == task_id{});
    CHECK(each->number() == 0);
    CHECK(each->fence() == 0);
  }
  CHECK(on.tasks.stats().running == 1);
  CHECK(on.tasks.stats().late_results == 0);
  CHECK(moved.id() == id);
  CHECK(moved.succeed());
}

TEST_CASE("7.1 what a completion was is abandoned when another is assigned to it; moving it to itself is nothing") {
  stage on;
  std::vector<completion> all;
  const task_id first = on.tasks.submit("a", deferring(all));
  const task_id second = on.tasks.submit("b", deferring(all));
  on.run();
  completion& self = all[0];
  all[0] = std::move(self);
  CHECK(on.tasks.stats().running == 2);
  CHECK(all[0].id() == first);
  all[0] = std::move(all[1]);
  CHECK(on.tasks.stats().running == 1);
  CHECK(on.tasks.dead_tasks().at(0).id == first);
  CHECK(on.tasks.dead_tasks().at(0).error.reason() == failure_reason::abandoned);
  CHECK(all[0].id() == second);
  all[0] = completion();
  CHECK(on.tasks.stats().died == 2);
}

TEST_CASE("7.1 a completion knows id, number, fence and stop token of its attempt") {
  stage on({.retry = plain_retry});
  std::vector<completion> all;
  std::stop_token callbacks;
  const task_id id = on.tasks.submit("a", exclusive, [&](attempt& a) {
    callbacks = a.stop_token();
    all.push_back(a.defer());
    CHECK(all.back().id() == a.id());
    CHECK(all.back().number() == a.number());
    CHECK(all.back().fence() == a.fence());
    CHECK(a.has_lease());
    CHECK(all.back().stop_token() == callbacks);
    CHECK(a.extend_lease(1s));  // there is no lease_time: nothing ends
  });
  on.run();
  CHECK(all[0].id() == id);
  CHECK(all[0].stop_token() == callbacks);
  CHECK(!all[0].stop_requested());
  all[0].fail();
  on.pass(1s);
  CHECK(all[1].number() == 2);
  CHECK(all[1].fence() > all[0].fence());
  CHECK(all[1].stop_token() != all[0].stop_token());
  CHECK(all[0].stop_token().stop_requested());  // it is over
  CHECK(!all[1].stop_requested());
  CHECK(all[1].succeed());
}

TEST_CASE("7.1 the callback of a deferred attempt is kept for its next one, and destroyed when none follows") {
  stage on({.retry = plain_retry});
  auto witness = std::make_shared<int>(0);
  std::vector<completion> all;
  on.tasks.submit("a", ordered, [witness, &all](attempt& a) {
    ++*witness;
    all.push_back(a.defer());
  });
  on.run();
  CHECK(witness.use_count() == 2);
  all[0].fail();
  on.pass(1s);
  CHECK(*witness == 2);
  CHECK(witness.use_count() == 2);
  all[1].succeed();
  CHECK(witness.use_count() == 1);
}

TEST_CASE("7.1 a completion may live in its own callback, and settle from there") {
  stage on;
  auto own = std::make_shared<completion>();
  const std::weak_ptr<completion> seen = own;
  on.tasks.submit("a", ordered, [own](attempt& a) { *own = a.defer(); });
  own.reset();
  on.run();
  CHECK(on.tasks.stats().running == 1);
  CHECK(seen.lock()->succeed());
  CHECK(seen.expired());
}

TEST_CASE("7.1 a completion that its own callback keeps for ever dies with the scheduler") {
  std::weak_ptr<completion> seen;
  {
    stage on;
    auto own = std::make_shared<completion>();
    seen = own;
    on.tasks.submit("a", ordered, [own](attempt& a) { *own = a.defer(); });
    own.reset();
    on.run();
    CHECK(!seen.expired());
  }
  CHECK(seen.expired());
}

TEST_CASE("7.1 a completion may be settled in an observer and in a stop callback") {
  heard_stage h;
  completion first;
  completion second;
  const task_id id = h.on.tasks.submit("a", ordered, deferring(first));
  h.on.tasks.submit("b", ordered, deferring(second));
  h.on.run();
  h.also = [&](const event<std::string>& e) {
    if (e.kind == event_kind::succeeded && e.id == id) CHECK(second.succeed());
  };
  bool answer = false;
  {
    const std::stop_callback on_stop(first.stop_token(), [&] { answer = first.succeed(); });
    CHECK(h.on.tasks.cancel(id));
  }
  CHECK(answer);
  CHECK(h.on.tasks.stats().late_results == 0);
  CHECK(h.on.tasks.stats().succeeded == 2);
  CHECK(h.on.tasks.stats().unfinished() == 0);
}

TEST_CASE("7.1 a redriven task is not touched by the completion of its earlier life") {
  stage on;
  std::vector<completion> all;
  const task_id id = on.tasks.submit("a", ordered, deferring(all));
  on.run();
  all[0].fail();
  CHECK(on.tasks.redrive(id));
  CHECK(!all[0].succeed());
  on.run();
  CHECK(!all[0].succeed());
  CHECK(!all[0].extend_lease(1s));
  CHECK(all[0].stop_requested());
  CHECK(on.tasks.find(id)->state == task_state::running);
  CHECK(!all[1].stop_requested());
  CHECK(all[1].succeed());
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("7.1 a late completion does not touch another task of its key that runs") {
  stage on;
  std::vector<completion> all;
  on.tasks.submit("a", exclusive, deferring(all));
  on.tasks.submit("a", exclusive, deferring(all));
  const task_id third = on.tasks.submit("a", exclusive, deferring(all));
  on.run();
  CHECK(all[0].succeed());
  on.run();
  CHECK(!all[0].fail());
  CHECK(!all[0].succeed());
  on.run();
  CHECK(all.size() == 2);
  CHECK(on.tasks.find(third)->why.kind == why::reason::lease);
  CHECK(all[1].succeed());
  on.run();
  CHECK(all.at(2).succeed());
}

TEST_CASE("7.1 hold_key: a deferred attempt that dies holds its key, one that succeeds after a redrive frees it") {
  stage on({.dead_action = dead_action::hold_key});
  numbers ran;
  std::vector<completion> all;
  const task_id id = on.tasks.submit("a", ordered, deferring(all));
  on.tasks.submit("a", ordered, noting(ran, 2));
  on.run();
  all[0].fail();
  on.run();
  CHECK(on.tasks.held_keys() == strings{"a"});
  CHECK(on.tasks.redrive(id));
  on.run();
  CHECK(ran.empty());
  CHECK(all[1].succeed());
  CHECK(on.tasks.held_keys().empty());
  on.run();
  CHECK(ran == numbers{2});
}

// The worker took the error that a redriven task had died of, to drop it outside the lock, while it held one already:
// what the callback of the task before had thrown after its completion. That one stayed with the redriven task, and its
// destructor ran under the lock.
TEST_CASE("7.1, 4.5 found: what is thrown after an early completion dies outside the locks") {
  lock_probe probe;
  stage on({.turn_budget = 16});
  struct thrown {
    std::shared_ptr<void> dies;
  };
  bool redriven = false;
  const task_id dead = on.tasks.submit("a", exclusive, [&redriven] {
    if (!redriven) throw std::runtime_error("first life");
  });
  on.run();
  completion c;
  redriven = true;
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    on.tasks.redrive(dead);
    CHECK(a.defer().succeed());
    throw thrown{
        std::shared_ptr<void>(nullptr, [&](void*) { probe.ask([&] { static_cast<void>(on.tasks.stats()); }); })};
  });
  on.run();
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(probe.asked() == 1);
  CHECK(probe.blocked() == 0);
}

// ---- its place

TEST_CASE("7.1, 6.3 max_in_flight counts deferred attempts, and the next starts when one is settled") {
  stage on({.max_in_flight = 2});
  std::vector<completion> all;
  task_id last{};
  for (int i = 0; i != 5; ++i) last = on.tasks.submit("k" + std::to_string(i), exclusive, deferring(all));
  on.run();
  CHECK(all.size() == 2);
  CHECK(on.pool.size() == 0);
  const why reason = on.tasks.find(last)->why;
  CHECK(reason.kind == why::reason::max_in_flight);
  CHECK(reason.number == 2);
  for (std::size_t n = 2; n != 5; ++n) {
    CHECK(all[n - 2].succeed());
    CHECK(on.pool.size() == 1);
    on.run();
    CHECK(all.size() == n + 1);
    CHECK(on.tasks.stats().running == 2);
  }
  CHECK(all[3].fail());
  CHECK(on.pool.size() == 0);
  all.clear();
  CHECK(on.tasks.stats().unfinished() == 0);
}

TEST_CASE("7.1, 6.3 the places of keyless and parallel attempts are given back one by one") {
  stage on({.max_in_flight = 3});
  std::vector<completion> all;
  all.reserve(20);
  for (int i = 0; i != 10; ++i) on.tasks.submit(deferring(all));
  for (int i = 0; i != 10; ++i) on.tasks.submit("a", parallel, deferring(all));
  std::size_t settled = 0;
  while (settled != 20) {
    on.run();
    CHECK(all.size() == (settled + 3 < 20 ? settled + 3 : 20));
    CHECK(on.tasks.stats().running == all.size() - settled);
    CHECK(all[settled++].succeed());
  }
  on.run();
  CHECK(on.tasks.stats().succeeded == 20);
}

TEST_CASE("7.1, 6.3 an early completion gives its place back with the callback, once") {
  stage on({.max_in_flight = 1});
  int now = 0;
  int most = 0;
  for (int i = 0; i != 20; ++i)
    on.tasks.submit("k" + std::to_string(i % 3), i % 2 == 0 ? exclusive : parallel, [&](attempt& a) {
      most = ++now > most ? now : most;
      CHECK(a.defer().succeed());
      while (on.pool.size() != 0) std::thread([&] { on.pool.run_one(); }).join();
      --now;
    });
  on.run();
  CHECK(on.tasks.stats().succeeded == 20);
  CHECK(most == 1);
}

TEST_CASE("7.1, 6.3 each way in which a deferred attempt ends gives back one place") {
  const std::array<std::function<void(stage&, completion&)>, 9> ends{{
      [](stage&, completion& c) { c.succeed(); },
      [](stage&, completion& c) { c.fail(); },
      [](stage&, completion& c) { c.settle(outcome::dead()); },
      [](stage&, completion& c) { c.settle(outcome::postpone(1s)); },
      [](stage&, completion& c) { c.settle(outcome::postpone(0s)); },
      [](stage&, completion& c) { c.settle(outcome::retry_after(0s)); },
      [](stage&, completion& c) { c = completion(); },
      [](stage& on, completion&) { on.time.jump(10s); },  // lost
      [](stage& on, completion& c) {
        on.tasks.cancel(c.id());
        c.fail();
      },
  }};
  for (std::size_t i = 0; i != ends.size(); ++i) {
    CAPTURE(i);
    stage on({.retry = plain_retry, .max_in_flight = 1, .lease_time = 10s, .lease_expiry = lease_expiry::release});
    numbers ran;
    completion c;
    bool again = false;
    on.tasks.submit("a", exclusive, [&](attempt& a) {
      if (!std::exchange(again, true)) c = a.defer();
    });
    on.tasks.submit("b", exclusive, noting(ran, 2));
    on.run();
    CHECK(ran.empty());
    ends[i](on, c);
    on.run();
    CHECK(ran == numbers{2});
    on.pass(5s);
    CHECK(on.tasks.stats().unfinished() == 0);
    // No place too many either.
    std::vector<completion> more;
    for (int n = 0; n != 3; ++n) on.tasks.submit(deferring(more));
    on.run();
    CHECK(more.size() == 1);
  }
}

TEST_CASE("7.1, 6.3 a limit that is lowered counts what is deferred; a raised one starts what fits beside it") {
  stage on;
  std::vector<completion> all;
  all.reserve(8);
  for (int i = 0; i != 4; ++i) on.tasks.submit(deferring(all));
  on.run();
  on.tasks.set_max_in_flight(2);
  for (int i = 0; i != 4; ++i) on.tasks.submit(deferring(all));
  on.run();
  CHECK(all.size() == 4);
  all[0].succeed();
  all[1].succeed();
  on.run();
  CHECK(all.size() == 4);
  all[2].succeed();
  on.run();
  CHECK(all.size() == 5);
  on.tasks.set_max_in_flight(4);
  on.run();
  CHECK(all.size() == 7);
  on.tasks.set_max_in_flight({});
  on.run();
  CHECK(all.size() == 8);
}

TEST_CASE("7.1, 6.3 inline_executor: who settles runs what then fits") {
  turnkey::testing::manual_time time;
  scheduler<std::string> tasks(turnkey::inline_executor{}, options{.max_in_flight = 1, .time = &time});
  std::vector<completion> all;
  for (int i = 0; i != 3; ++i) tasks.submit("a", exclusive, deferring(all));
  CHECK(all.size() == 1);
  CHECK(all[0].succeed());
  CHECK(all.size() == 2);
  std::thread([&] { CHECK(all[1].fail()); }).join();
  CHECK(all.size() == 3);
  CHECK(all[2].succeed());
  CHECK(tasks.drain() == drain_result::drained);
}

TEST_CASE("7.1, 8.2 inline_executor: a completion that is settled inside a callback starts nothing on top of it") {
  turnkey::testing::manual_time time;
  scheduler<std::string> tasks(turnkey::inline_executor{}, options{.max_in_flight = 2, .time = &time});
  std::optional<completion> first;
  int depth = 0;
  numbers ran;
  tasks.submit("a", exclusive, [&first](attempt& a) { first = a.defer(); });
  tasks.submit("a", exclusive, [&] {
    CHECK(depth == 0);
    ran.push_back(2);
  });
  tasks.submit("b", exclusive, [&] {
    ++depth;
    CHECK(first->succeed());
    ran.push_back(3);
    --depth;
  });
  CHECK(ran == numbers{3, 2});
}

TEST_CASE("7.1, 8.2 inline_executor: a long chain of completions that settle each other's successors ends") {
  turnkey::testing::manual_time time;
  scheduler<std::string> tasks(turnkey::inline_executor{}, options{.max_in_flight = 1, .time = &time});
  completion before;
  int ran = 0;
  for (int i = 0; i != 20'000; ++i)
    tasks.submit("a", ordered, [&](attempt& a) {
      ++ran;
      before = a.defer();
    });
  while (before.succeed()) {
  }
  CHECK(ran == 20'000);
}

TEST_CASE("7.1, 6.4 a pace counts the start of a deferred attempt once") {
  stage on;
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  std::vector<completion> all;
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", exclusive, deferring(all));
  on.run();
  CHECK(all[0].succeed());
  on.run();
  CHECK(all.size() == 1);
  on.time.jump(1s);
  on.run();
  CHECK(all.size() == 2);
  on.time.jump(1s);
  on.run();
  CHECK(all.size() == 2);
  CHECK(all[1].succeed());
  on.run();
  CHECK(all.size() == 3);
}

TEST_CASE("7.1, 6.1 a pause does not touch what is deferred: it settles, and what follows waits for resume") {
  stage on;
  std::vector<completion> all;
  for (int i = 0; i != 2; ++i) on.tasks.submit("a", exclusive, deferring(all));
  on.run();
  on.tasks.pause();
  CHECK(all[0].succeed());
  on.run();
  CHECK(all.size() == 1);
  CHECK(on.tasks.stats().ready == 1);
  on.tasks.resume();
  on.run();
  CHECK(all.size() == 2);
  on.tasks.pause("a");
  on.tasks.submit("a", exclusive, deferring(all));
  CHECK(all[1].succeed());
  on.run();
  CHECK(all.size() == 2);
  on.tasks.resume("a");
  on.run();
  CHECK(all.size() == 3);
}

TEST_CASE("7.1, 6.2 a step that starts a deferred attempt is used up, step(id) too, and its place is given back") {
  stage on({.max_in_flight = 1});
  std::vector<completion> all;
  on.tasks.pause();
  for (int i = 0; i != 2; ++i) on.tasks.submit("a", exclusive, deferring(all));
  CHECK(on.tasks.step());
  on.run();
  CHECK(all.size() == 1);
  CHECK(all[0].succeed());
  on.run();
  CHECK(all.size() == 1);
  const task_id third = on.tasks.submit("b", exclusive, deferring(all));
  CHECK(on.tasks.step(third));
  on.run();
  CHECK(all.size() == 2);
  CHECK(all[1].id() == third);
  CHECK(on.tasks.step());
  on.run();
  CHECK(all.size() == 2);  // max_in_flight
  CHECK(all[1].succeed());
  on.run();
  CHECK(all.size() == 3);
}

TEST_CASE("7.1 a deferred attempt ends its worker's turn of the key, and the worker goes on to others") {
  stage on;
  std::vector<completion> all;
  all.reserve(6);
  numbers ran;
  for (int i = 0; i != 2; ++i) on.tasks.submit("a", exclusive, deferring(all));
  for (int i = 0; i != 2; ++i) on.tasks.submit("b", exclusive, deferring(all));
  on.tasks.submit("c", exclusive, noting(ran, 1));
  for (int i = 0; i != 2; ++i) on.tasks.submit("c", exclusive, deferring(all));
  CHECK(on.pool.run_one());
  CHECK(all.size() == 3);
  CHECK(ran == numbers{1});
  on.run();
  CHECK(all.size() == 3);
}

TEST_CASE("7.1, 10.1 drain waits for deferred attempts, and is not stalled by them") {
  stage on({.max_in_flight = 1});
  completion c;
  on.tasks.submit("a", ordered, deferring(c));
  on.tasks.submit("b", ordered, [] {});
  on.run();
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
  on.tasks.set_max_in_flight({});
  on.pool.set_mode(turnkey::testing::on_offer::refuse);
  on.pool.drop_all();
  on.pass(10s);
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);  // something runs
  on.pool.set_mode(turnkey::testing::on_offer::queue);
  on.pass(1s);
  std::thread other([&c] { c.succeed(); });
  CHECK(on.tasks.drain() == drain_result::drained);
  other.join();
}

TEST_CASE("7.1, 10.2 after close() what is deferred settles, and its retries go on") {
  stage on({.retry = plain_retry});
  std::vector<completion> all;
  on.tasks.submit("a", ordered, deferring(all));
  on.run();
  on.tasks.close();
  CHECK(all[0].fail());
  on.pass(1s);
  CHECK(all.at(1).succeed());
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("7.1, 9.2 a deferred attempt is looked at as one that runs") {
  stage on({.retry = plain_retry});
  std::vector<completion> all;
  const task_id id = on.tasks.submit("a", exclusive, deferring(all));
  const task_id behind = on.tasks.submit("a", exclusive, [] {});
  on.run();
  all[0].fail();
  on.run();  // what is behind
  const task_id blocked = on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1s}, [] {});
  on.pass(1s);
  const time_point began = on.time.now();
  on.time.jump(7s);
  const auto info = on.tasks.find(id);
  REQUIRE(info);
  CHECK(info->state == task_state::running);
  CHECK(info->attempts == 2);
  CHECK(info->since == began);
  CHECK(!info->due);
  CHECK(info->why.kind == why::reason::running);
  CHECK(!on.tasks.find(behind));
  const why reason = on.tasks.find(blocked)->why;
  CHECK(reason.kind == why::reason::lease);
  CHECK(reason.task == id);
  CHECK(reason.attempt == 2);
  CHECK(reason.time == began);
  const auto busy = on.tasks.busiest_keys(9);
  REQUIRE(busy.size() == 1);
  CHECK(busy[0].depth == 2);
  CHECK(busy[0].head == id);
  CHECK(busy[0].head_state == task_state::running);
  CHECK(busy[0].oldest_age == 8s);
  CHECK(on.tasks.stats().running == 1);
  CHECK(!on.tasks.expedite(id));
  CHECK(!on.tasks.redrive(id));
  CHECK(!on.tasks.discard(id));
}

// ---- 6.5 cancel

TEST_CASE("6.5, 7.1 a deferred attempt that is cancelled is signalled and keeps its lease and place until it settles") {
  stage on({.max_in_flight = 1});
  numbers ran;
  completion c;
  const task_id id = on.tasks.submit("a", exclusive, deferring(c));
  on.tasks.submit("a", exclusive, noting(ran, 2));
  on.tasks.submit("b", exclusive, noting(ran, 3));
  on.run();
  const std::stop_token token = c.stop_token();
  CHECK(on.tasks.cancel(id));
  CHECK(token.stop_requested());
  CHECK(c.stop_requested());
  CHECK(on.tasks.cancel(id));  // still unfinished
  CHECK(on.tasks.cancel("a") == 2);
  CHECK(on.tasks.cancel_all() == 2);
  on.run();
  CHECK(ran.empty());
  CHECK(on.tasks.stats().running == 1);
  CHECK(c.succeed());
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().cancelled == 2);
  CHECK(!on.tasks.cancel(id));
}

TEST_CASE("6.5, 7.1 a deferred attempt that is cancelled and does not succeed is cancelled, and never starts again") {
  const std::array<std::function<void(completion&)>, 6> ends{{
      [](completion& c) { c.fail("x"); },
      [](completion& c) { c.settle(outcome::retry_after(0s)); },
      [](completion& c) { c.settle(outcome::postpone(0s)); },
      [](completion& c) { c.settle(outcome::postpone(1s)); },
      [](completion& c) { c.settle(outcome::dead()); },
      [](completion& c) { c = completion(); },
  }};
  for (const auto& end : ends) {
    for (const bool early : {true, false}) {
      heard_stage h({.retry = plain_retry});
      completion c;
      h.on.tasks.submit("a", ordered, [&](attempt& a) {
        c = a.defer();
        if (!early) return;
        end(c);
        CHECK(h.on.tasks.cancel(a.id()));  // its callback runs
      });
      h.on.run();
      if (!early) {
        CHECK(h.on.tasks.cancel(c.id()));
        end(c);
      }
      h.on.pass(1h);
      CHECK(h.events == strings{"started 1", "cancelled 1"});
      CHECK(h.on.tasks.stats().cancelled == 1);
    }
  }
}

TEST_CASE("6.5, 7.2 a cancel wins over the expiry: a lease that is taken away leaves the task cancelled, not retried") {
  heard_stage h({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  numbers ran;
  completion c;
  const task_id id = h.on.tasks.submit("a", exclusive, deferring(c));
  h.on.tasks.submit("a", exclusive, noting(ran, 2));
  h.on.run();
  CHECK(h.on.tasks.cancel(id));
  h.on.pass(4s);
  CHECK(ran.empty());
  h.on.pass(1s);
  CHECK(ran == numbers{2});
  CHECK(!c.succeed());
  h.on.pass(1h);
  CHECK(h.events == strings{"started 1", "lease expired 1", "cancelled 1", "started 1", "succeeded 1"});
}

TEST_CASE("6.5, 7.2 cancelled after its lease was taken away, a task does not come back") {
  heard_stage h({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  completion c;
  const task_id id = h.on.tasks.submit("a", exclusive, deferring(c));
  h.on.run();
  h.on.pass(5s);
  CHECK(h.on.tasks.find(id)->state == task_state::delayed);
  CHECK(h.on.tasks.cancel(id));
  h.on.pass(1h);
  CHECK(!c.succeed());
  CHECK(h.events == strings{"started 1", "lease expired 1", "failed 1: lease lost", "cancelled 1"});
}

TEST_CASE("6.5, 7.2 cancelled or expired, the stop token is signalled once, and report goes on holding") {
  stage on({.lease_time = 5s});
  numbers ran;
  int signals = 0;
  completion c;
  const task_id id = on.tasks.submit("a", exclusive, deferring(c));
  on.tasks.submit("a", exclusive, noting(ran, 2));
  on.run();
  const std::stop_callback count(c.stop_token(), [&signals] { ++signals; });
  on.pass(5s);
  CHECK(signals == 1);
  CHECK(on.tasks.cancel(id));
  CHECK(c.extend_lease(5s));
  on.pass(5s);
  CHECK(signals == 1);
  CHECK(ran.empty());
  CHECK(on.tasks.stats().leases_expired == 2);
  CHECK(c.fail());
  CHECK(on.tasks.stats().cancelled == 1);
}

// ---- 10 the end

TEST_CASE(
    "7.1, 10.3 stop() does not wait for what is deferred, returns it as running, and makes its completion inert") {
  stage on({.retry = plain_retry});
  numbers ran;
  std::vector<completion> all;
  int attempts = 0;
  const task_id id = on.tasks.submit("a", exclusive, [&](attempt& a) {
    ++attempts;
    ran.push_back(1);
    all.push_back(a.defer());
  });
  on.tasks.submit("a", exclusive, noting(ran, 2));
  on.run();
  all[0].settle(outcome::postpone(1s));
  on.pass(1s);
  all.at(1).fail();
  on.pass(1s);
  REQUIRE(all.size() == 3);
  const std::stop_token token = all[2].stop_token();
  bool in_stop = true;
  const std::stop_callback on_stop(token, [&] { in_stop = all[2].succeed(); });
  auto records = on.tasks.stop();
  CHECK(token.stop_requested());
  CHECK(!in_stop);
  CHECK(all[2].stop_requested());
  CHECK(!all[2].succeed());
  CHECK(!all[2].extend_lease(1s));
  REQUIRE(records.size() == 1);
  auto& record = *records.begin();
  CHECK(record.id() == id);
  CHECK(record.state() == task_state::running);
  CHECK(record.attempts() == 3);
  CHECK(*record.key() == "a");
  CHECK(record.policy() == policy::exclusive);
  CHECK(on.tasks.stats().running == 0);
  CHECK(on.tasks.stats().undone == 1);
  CHECK(on.tasks.stats().failed_attempts == 1);

  stage other;
  other.tasks.submit(std::move(record));
  all.erase(all.begin(), all.begin() + 3);  // abandons nothing
  other.run();
  REQUIRE(all.size() == 1);
  CHECK(all[0].number() == 1);
  CHECK(all[0].succeed());
  CHECK(other.tasks.stats().succeeded == 1);
}

TEST_CASE("7.1, 10.3 stop() is told to the observer as undone, and what waited behind is returned as waiting") {
  heard_stage h;
  completion c;
  h.on.tasks.submit("a", ordered, deferring(c));
  h.on.tasks.submit("a", ordered, [] {});
  h.on.run();
  std::multiset<task_state> states;
  for (const auto& record : h.on.tasks.stop()) states.insert(record.state());
  CHECK(states == std::multiset<task_state>{task_state::waiting, task_state::running});
  CHECK(h.events == strings{"started 1", "undone 0", "undone 0"});
  CHECK(h.on.tasks.stop().empty());
}

// Handed back and submitted elsewhere it would start again, although cancel() had said true.
TEST_CASE("6.5, 7.1, 10.3 found: a deferred attempt that was cancelled is cancelled by stop(), not handed back") {
  heard_stage h;
  std::vector<completion> all;
  auto witness = std::make_shared<int>();
  for (int i = 0; i != 3; ++i)
    h.on.tasks.submit("k" + std::to_string(i), ordered, [witness, &all](attempt& a) { all.push_back(a.defer()); });
  h.on.run();
  CHECK(h.on.tasks.cancel(all[1].id()));
  {
    const auto records = h.on.tasks.stop();
    CHECK(records.size() == 2);
    for (const auto& record : records) CHECK(record.id() != all[1].id());
    CHECK(witness.use_count() == 3);
  }
  CHECK(!all[1].succeed());
  CHECK(h.on.tasks.stats().cancelled == 1);
  CHECK(h.on.tasks.stats().undone == 2);
  CHECK(h.on.tasks.stats().running == 0);
  CHECK(h.events.size() == 6);
  CHECK(std::count(h.events.begin(), h.events.end(), "cancelled 1") == 1);
}

// A callback that says success while stop() waits for it has succeeded, with a completion or without.
TEST_CASE("7.1, 10.3 a completion counts while its callback runs, also when stop() has begun") {
  for (const bool succeeds : {true, false}) {
    stage on({.retry = plain_retry});
    completion c;
    std::size_t left = 0;
    std::thread stopping;
    on.tasks.submit("a", ordered, [&](attempt& a) {
      stopping = std::thread([&] { left = on.tasks.stop().size(); });
      while (!a.stop_requested()) std::this_thread::yield();
      c = a.defer();
      CHECK((succeeds ? c.succeed() : c.fail()));
      CHECK(!c.succeed());
    });
    on.run();
    stopping.join();
    CHECK(left == !succeeds);
    CHECK(on.tasks.stats().succeeded == succeeds);
    CHECK(on.tasks.stats().undone == !succeeds);
  }
}

TEST_CASE("7.1, 10.3 a callback that defers while stop() waits for it is returned as running") {
  stage on;
  completion c;
  std::vector<task_state> states;
  std::thread stopping;
  on.tasks.submit("a", ordered, [&](attempt& a) {
    stopping = std::thread([&] {
      for (const auto& record : on.tasks.stop()) states.push_back(record.state());
    });
    while (!a.stop_requested()) std::this_thread::yield();
    c = a.defer();
  });
  on.run();
  stopping.join();
  CHECK(states == std::vector{task_state::running});
  CHECK(!c.succeed());
}

TEST_CASE("7.1, 10.3 a callback that called stop() may have settled before; what it leaves deferred is undone") {
  enum class when { before, after, never };
  for (const when each : {when::before, when::after, when::never}) {
    stage on;
    completion c;
    bool answer = false;
    std::size_t left = 9;
    on.tasks.submit("a", ordered, [&](attempt& a) {
      c = a.defer();
      if (each == when::before) answer = c.succeed();
      left = on.tasks.stop().size();
      if (each == when::after) answer = c.succeed();
    });
    on.run();
    CHECK(left == 0);
    CHECK(answer == (each != when::never));
    CHECK(!c.succeed());
    CHECK(on.tasks.stats().succeeded == (each != when::never));
    CHECK(on.tasks.stats().undone == (each == when::never));
    CHECK(on.tasks.stats().failed_attempts == 0);
    CHECK(on.tasks.stats().leases_lost == 0);
    CHECK(on.tasks.stats().running == 0);
  }
}

TEST_CASE("7.1, 10.3 stop() inside a callback returns the other attempts that are deferred") {
  stage on({.lease_time = 1s, .lease_expiry = lease_expiry::release});
  completion c;
  std::vector<task_id> returned;
  const task_id deferred = on.tasks.submit("a", ordered, deferring(c));
  on.tasks.submit("b", ordered, [&] {
    for (const auto& record : on.tasks.stop()) returned.push_back(record.id());
  });
  on.run();
  CHECK(returned == std::vector{deferred});
  on.time.jump(1h);
  CHECK(!c.succeed());
  CHECK(on.tasks.stats().leases_expired == 0);
}

TEST_CASE("7.1, 10.4 a completion outlives its scheduler, its executor and its clock") {
  std::vector<completion> all;
  std::stop_token token;
  {
    stage on({.lease_time = 1s});
    for (int i = 0; i != 3; ++i) on.tasks.submit("k" + std::to_string(i), ordered, deferring(all));
    on.run();
    token = all[0].stop_token();
  }
  CHECK(token.stop_requested());
  CHECK(!all[0].succeed());
  CHECK(!all[0].fail("x"));
  CHECK(!all[1].extend_lease(1s));
  CHECK(all[1].stop_requested());
  CHECK(all[1].stop_token().stop_requested());
  all[0] = std::move(all[2]);
}

TEST_CASE("7.1, 10.4 a callback may defer, destroy its scheduler and settle") {
  for (const bool settles : {true, false}) {
    turnkey::testing::manual_executor pool;
    turnkey::testing::manual_time time;
    auto tasks = std::make_unique<scheduler<std::string>>(
        pool, options{.lease_time = 1s, .lease_expiry = lease_expiry::release, .time = &time});
    completion c;
    auto witness = std::make_shared<int>();
    tasks->submit("a", ordered, [&, witness](attempt& a) {
      c = a.defer();
      tasks.reset();
      if (settles) CHECK(c.succeed());
    });
    pool.run_all();
    CHECK(!tasks);
    CHECK(witness.use_count() == 1);
    time.advance(1h);
    CHECK(!c.succeed());
  }
}

TEST_CASE("7.1, 10.4 what a completion starts on an inline_executor may destroy the scheduler") {
  turnkey::testing::manual_time time;
  auto tasks = std::make_unique<scheduler<std::string>>(turnkey::inline_executor{}, options{.time = &time});
  completion c;
  tasks->submit("a", ordered, deferring(c));
  tasks->submit("a", ordered, [&tasks] { tasks.reset(); });
  CHECK(c.succeed());
  CHECK(!tasks);
}

TEST_CASE("7.2, 10.4 what a lost lease starts on an inline_executor may destroy the scheduler") {
  turnkey::testing::manual_time time;
  auto tasks = std::make_unique<scheduler<std::string>>(
      turnkey::inline_executor{}, options{.lease_time = 1s, .lease_expiry = lease_expiry::release, .time = &time});
  std::vector<completion> all;
  for (int i = 0; i != 3; ++i) tasks->submit("k" + std::to_string(i), ordered, deferring(all));
  tasks->submit("k0", ordered, [&tasks] { tasks.reset(); });
  time.advance(1s);
  CHECK(!tasks);
  for (const completion& c : all) CHECK(!c.succeed());
}

// ---- 7.2 lease_time

TEST_CASE("7.2 when lease_time runs out the stop token is signalled and the observer told, once") {
  for (const auto expiry : {lease_expiry::report, lease_expiry::release}) {
    heard_stage h({.lease_time = 5s, .lease_expiry = expiry});
    std::vector<event<std::string>> expired;
    h.also = [&](const event<std::string>& e) {
      if (e.kind == event_kind::lease_expired) expired.push_back(e);
    };
    int signals = 0;
    std::uint64_t fence = 0;
    const time_point began = h.on.time.now();
    const task_id id = h.on.tasks.submit("a", exclusive, [&](attempt& a) {
      fence = a.fence();
      const std::stop_callback count(a.stop_token(), [&signals] { ++signals; });
      h.on.time.advance(5s - 1ns);
      CHECK(!a.stop_requested());
      CHECK(signals == 0);
      h.on.time.advance(1ns);
      CHECK(a.stop_requested());
      CHECK(signals == 1);
      h.on.time.advance(1h);
    });
    h.on.run();
    CHECK(signals == 1);
    CHECK(h.events == strings{"started 1", "lease expired 1", "succeeded 1"});
    REQUIRE(expired.size() == 1);
    CHECK(expired[0].id == id);
    CHECK(expired[0].policy == policy::exclusive);
    CHECK(expired[0].attempt == 1);
    CHECK(expired[0].fence == fence);
    CHECK(expired[0].time == began + 5s);
    CHECK(h.on.tasks.stats().leases_expired == 1);
    CHECK(h.on.tasks.stats().leases_lost == 0);
  }
}

TEST_CASE("7.2 a lease never lapses under a running callback") {
  for (const auto expiry : {lease_expiry::report, lease_expiry::release}) {
    stage on({.retry = plain_retry, .lease_time = 1s, .lease_expiry = expiry});
    numbers ran;
    completion c;
    task_id second{};
    on.tasks.submit("a", exclusive, [&](attempt& a) {
      c = a.defer();
      second = on.tasks.submit("a", exclusive, noting(ran, 2));
      on.time.advance(1h);
      std::thread([&on] { on.run(); }).join();
      CHECK(ran.empty());
      CHECK(on.tasks.find(second)->why.kind == why::reason::lease);
      CHECK(on.tasks.find(a.id())->state == task_state::running);
    });
    CHECK(on.pool.run_one());
    on.run();
    if (expiry == lease_expiry::report) {
      CHECK(ran.empty());
      CHECK(c.succeed());
      on.run();
    } else {
      CHECK(!c.succeed());  // its time is over, and only the completion was left
      CHECK(on.tasks.stats().leases_lost == 1);
    }
    CHECK(ran == numbers{2});
  }
}

TEST_CASE("7.2 the time begins with the attempt, not with the submit, and anew with each attempt") {
  stage on({.retry = plain_retry, .lease_time = 5s});
  std::vector<completion> all;
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 20s}, deferring(all));
  on.time.advance(60s);
  on.run();
  REQUIRE(all.size() == 1);
  on.pass(4s);
  CHECK(on.tasks.stats().leases_expired == 0);
  all[0].fail();
  on.pass(2s);
  REQUIRE(all.size() == 2);
  on.pass(3s);
  CHECK(on.tasks.stats().leases_expired == 0);
  on.pass(1s);
  CHECK(on.tasks.stats().leases_expired == 1);
}

TEST_CASE("7.2 of tasks in one turn each has the whole lease_time, whatever the ones before it took") {
  stage on({.turn_time = 1h, .lease_time = 5s});
  for (int i = 0; i != 10; ++i)
    on.tasks.submit("a", exclusive, [&on](attempt& a) {
      on.time.advance(4s);
      CHECK(!a.stop_requested());
    });
  on.run();
  CHECK(on.tasks.stats().leases_expired == 0);
  CHECK(on.tasks.stats().succeeded == 10);
}

TEST_CASE("7.2 a settled attempt expires no more, and no timer of it is left") {
  stage on({.retry = plain_retry, .lease_time = 5s});
  for (int i = 0; i != 3; ++i) {
    std::vector<completion> all;
    const task_id id = on.tasks.submit("a", exclusive, [&all, i](attempt& a) {
      all.push_back(a.defer());
      if (i == 1) all.back().succeed();
    });
    on.run();
    if (i == 0) all[0].succeed();
    if (i == 2) all[0].settle(outcome::dead());
    on.pass(1h);
    CHECK(!on.tasks.find(id));
  }
  CHECK(on.tasks.stats().leases_expired == 0);
  CHECK(!on.time.next_wake());
}

TEST_CASE("7.2 report: a deferred attempt goes on holding after its time, and its result counts") {
  heard_stage h({.retry = plain_retry, .lease_time = 5s});
  numbers ran;
  completion c;
  h.on.tasks.submit("a", exclusive, deferring(c));
  h.on.tasks.submit("a", exclusive, noting(ran, 2));
  h.on.run();
  h.on.pass(1h);
  CHECK(c.stop_requested());
  CHECK(ran.empty());
  CHECK(h.on.tasks.stats().leases_expired == 1);
  CHECK(c.succeed());
  h.on.run();
  CHECK(h.events == strings{"started 1", "lease expired 1", "succeeded 1", "started 1", "succeeded 1"});
  CHECK(h.on.tasks.stats().leases_lost == 0);
  CHECK(h.on.tasks.stats().late_results == 0);
}

TEST_CASE("7.2 release: the lease of a deferred attempt is taken away, which fails it, and the key goes on") {
  heard_stage h({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  numbers ran;
  std::vector<completion> all;
  const task_id id = h.on.tasks.submit("a", exclusive, deferring(all));
  h.on.tasks.submit("a", exclusive, noting(ran, 2));
  h.on.run();
  const std::stop_token token = all[0].stop_token();
  h.on.time.jump(5s);
  CHECK(token.stop_requested());
  CHECK(h.on.tasks.find(id)->state == task_state::delayed);
  h.on.run();
  CHECK(ran == numbers{2});
  // Its late result is ignored, counted, and touches nothing.
  CHECK(!all[0].succeed());
  CHECK(!all[0].fail("x"));
  CHECK(h.on.tasks.stats().late_results == 2);
  CHECK(h.on.tasks.find(id)->state == task_state::delayed);
  h.on.pass(1s);
  REQUIRE(all.size() == 2);
  CHECK(!all[0].succeed());
  CHECK(h.on.tasks.find(id)->state == task_state::running);
  CHECK(!all[1].stop_requested());  // the next attempt is told afresh
  CHECK(!all[1].stop_token().stop_requested());
  CHECK(all[1].number() == 2);
  CHECK(all[1].fence() > all[0].fence());
  CHECK(all[1].succeed());
  CHECK(h.events == strings{"started 1", "lease expired 1", "failed 1: lease lost", "started 1", "succeeded 1",
                            "started 2", "succeeded 2"});
  CHECK(h.on.tasks.stats().leases_expired == 1);
  CHECK(h.on.tasks.stats().leases_lost == 1);
  CHECK(h.on.tasks.stats().late_results == 3);
}

TEST_CASE("7.2 release: an attempt that was deferred, settled and is over its time while its callback runs counts") {
  stage on({.lease_time = 1s, .lease_expiry = lease_expiry::release});
  for (const bool settle_first : {true, false})
    on.tasks.submit("a", exclusive, [&on, settle_first](attempt& a) {
      const completion c = a.defer();
      if (settle_first) CHECK(c.succeed());
      on.time.advance(1h);
      if (!settle_first) CHECK(c.succeed());
    });
  on.run();
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(on.tasks.stats().leases_expired == 2);
  CHECK(on.tasks.stats().leases_lost == 0);
}

TEST_CASE("7.2 release: extended after its time while its callback runs, a lease is not lost when that returns") {
  stage on({.lease_time = 1s, .lease_expiry = lease_expiry::release});
  completion c;
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    c = a.defer();
    on.time.advance(1h);
    CHECK(a.extend_lease(5s));
  });
  on.run();
  CHECK(on.tasks.stats().leases_lost == 0);
  CHECK(on.tasks.stats().running == 1);
  on.pass(5s - 1ns);
  CHECK(on.tasks.stats().running == 1);
  on.pass(1ns);
  CHECK(on.tasks.stats().leases_lost == 1);
  CHECK(on.tasks.stats().leases_expired == 2);
}

TEST_CASE("7.2 release: an observer that is told may still extend the lease of a callback that runs") {
  heard_stage h({.lease_time = 1s, .lease_expiry = lease_expiry::release});
  completion c;
  bool extended = false;
  h.also = [&](const event<std::string>& e) {
    if (e.kind == event_kind::lease_expired && !std::exchange(extended, true)) CHECK(c.extend_lease(1h));
  };
  h.on.tasks.submit("a", exclusive, [&](attempt& a) {
    c = a.defer();
    h.on.time.advance(2s);
  });
  h.on.run();
  CHECK(extended);
  CHECK(c.succeed());
}

TEST_CASE("7.2 release: the last attempt that loses its lease kills the task") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0},
            .dead_action = dead_action::hold_key,
            .lease_time = 5s,
            .lease_expiry = lease_expiry::release});
  numbers ran;
  std::vector<completion> all;
  const task_id id = on.tasks.submit("a", exclusive, deferring(all));
  on.tasks.submit("a", exclusive, noting(ran, 2));
  on.run();
  on.tasks.pause("a");
  on.pass(5s);
  on.tasks.resume("a");
  on.pass(1s);
  CHECK(ran == numbers{2});
  on.tasks.submit("a", exclusive, noting(ran, 3));
  on.pass(5s);
  const auto dead = on.tasks.dead_tasks();
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].attempts == 2);
  CHECK(dead[0].error.reason() == failure_reason::lease_lost);
  CHECK(dead[0].error.text() == "lease lost");
  CHECK(on.tasks.held_keys() == strings{"a"});
  CHECK(ran == numbers{2});
  CHECK(on.tasks.redrive(id));
  on.run();
  REQUIRE(all.size() == 3);
  CHECK(!all[0].succeed());
  CHECK(!all[1].succeed());
  CHECK(!all[2].stop_requested());
  CHECK(all[2].number() == 1);
  CHECK(all[2].succeed());
  on.run();
  CHECK(ran == numbers{2, 3});
}

TEST_CASE(
    "7.2 release: keyless and parallel attempts lose their place too, and with it a task that is ordered goes on") {
  stage on({.max_in_flight = 2, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  numbers ran;
  std::vector<completion> all;
  on.tasks.submit(deferring(all));
  on.tasks.submit("a", parallel, deferring(all));
  on.tasks.submit("a", ordered, noting(ran, 2));
  on.run();
  CHECK(on.tasks.stats().running == 2);
  on.pass(5s);
  CHECK(ran == numbers{2});
  CHECK(on.tasks.stats().leases_lost == 2);
  for (const completion& c : all) CHECK(!c.succeed());
  CHECK(on.tasks.stats().died == 2);
}

TEST_CASE("7.2 a pause does not stop the clock of a lease") {
  stage on({.lease_time = 5s, .lease_expiry = lease_expiry::release});
  completion c;
  on.tasks.submit("a", exclusive, deferring(c));
  on.run();
  on.tasks.pause();
  on.tasks.pause("a");
  on.pass(5s);
  CHECK(on.tasks.stats().leases_lost == 1);
}

TEST_CASE("7.2 a settle before the time wins, one at the time is late") {
  for (const duration d : {5s - 1ns, duration(5s)}) {
    stage on({.lease_time = 5s, .lease_expiry = lease_expiry::release});
    completion c;
    on.tasks.submit("a", exclusive, deferring(c));
    on.run();
    on.time.jump(d);
    CHECK(c.succeed() == (d < 5s));
  }
}

TEST_CASE("7.2 a lease whose time is over, but of which nobody was woken, is still there") {
  stage on({.lease_time = 5s, .lease_expiry = lease_expiry::release});
  std::vector<completion> all;
  on.tasks.submit("a", exclusive, [&](attempt& a) { all.push_back(a.defer()); });
  on.run();
  CHECK(all[0].extend_lease(1s));
  on.time.ring();  // early and repeated wakes are harmless
  on.time.ring();
  CHECK(on.tasks.stats().leases_expired == 0);
  on.pass(1s);
  CHECK(on.tasks.stats().leases_lost == 1);
}

TEST_CASE("7.2 extend_lease: the time ends d from now, later or earlier than it would") {
  for (const duration d : {duration(1ns), duration(2s), duration(100s)}) {
    stage on({.lease_time = 10s, .lease_expiry = lease_expiry::release});
    completion c;
    on.tasks.submit("a", exclusive, deferring(c));
    on.run();
    on.pass(7s);
    CHECK(c.extend_lease(d));
    on.pass(d - 1ns);
    CHECK(on.tasks.stats().running == 1);
    CHECK(on.tasks.stats().leases_expired == 0);
    on.pass(1ns);
    CHECK(on.tasks.stats().leases_lost == 1);
    CHECK(!c.extend_lease(1s));
    CHECK(on.tasks.stats().running == 0);
  }
}

TEST_CASE("7.2 extend_lease: 0 or less ends it now, as much as there is never") {
  for (const duration d : {duration(0s), duration(-1s), (duration::min)()}) {
    stage on({.lease_time = 10s, .lease_expiry = lease_expiry::release});
    completion c;
    on.tasks.submit("a", exclusive, deferring(c));
    on.run();
    CHECK(c.extend_lease(d));
    on.time.jump(0s);
    CHECK(on.tasks.stats().leases_lost == 1);
    CHECK(!c.succeed());
  }
  stage on({.lease_time = 10s, .lease_expiry = lease_expiry::release});
  std::vector<completion> all;
  for (int i = 0; i != 2; ++i) on.tasks.submit(deferring(all));
  on.run();
  CHECK(all[0].extend_lease((duration::max)()));
  on.pass(100'000h);
  CHECK(on.tasks.stats().leases_lost == 1);
  CHECK(all[0].extend_lease(1s));
  on.pass(1s);
  CHECK(on.tasks.stats().leases_lost == 2);
}

TEST_CASE("7.2 extend_lease: a huge lease_time never ends") {
  stage on({.lease_time = (duration::max)(), .lease_expiry = lease_expiry::release});
  completion c;
  on.tasks.submit("a", exclusive, deferring(c));
  on.run();
  CHECK(!on.time.next_wake());
  on.pass(100'000h);
  CHECK(c.extend_lease(1s));
  CHECK(c.succeed());
}

TEST_CASE(
    "7.2 extend_lease: true while the attempt is there, also after its time under report; false when it is over") {
  stage on({.retry = plain_retry, .lease_time = 5s});
  std::vector<completion> all;
  on.tasks.submit("a", exclusive, deferring(all));
  on.run();
  on.pass(5s);
  CHECK(all[0].extend_lease(5s));
  on.pass(5s);
  CHECK(on.tasks.stats().leases_expired == 2);
  CHECK(all[0].stop_requested());  // a signal is not taken back
  CHECK(all[0].fail());
  CHECK(!all[0].extend_lease(5s));
  on.pass(1s);
  CHECK(!all[0].extend_lease(1h));
  REQUIRE(all.size() == 2);
  on.pass(5s);
  CHECK(on.tasks.stats().leases_expired == 3);  // the old one moved nothing
}

TEST_CASE("7.2 extend_lease: without a lease_time no lease ends") {
  stage on;
  completion c;
  on.tasks.submit("a", exclusive, deferring(c));
  on.run();
  CHECK(c.extend_lease(1s));
  on.pass(1h);
  CHECK(!c.stop_requested());
  CHECK(on.tasks.stats().leases_expired == 0);
  CHECK(c.succeed());
  CHECK(!c.extend_lease(1s));
}

TEST_CASE("7.2 stop callbacks and observers of an expiry may use the scheduler") {
  lock_probe probe;
  heard_stage h({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  completion c;
  const task_id id = h.on.tasks.submit("a", exclusive, deferring(c));
  h.on.run();
  const auto look = [&] {
    probe.ask([&] {
      static_cast<void>(h.on.tasks.stats());
      static_cast<void>(h.on.tasks.find(id));
    });
  };
  h.also = [&](const event<std::string>&) { look(); };
  bool answer = true;
  {
    const std::stop_callback on_stop(c.stop_token(), [&] {
      look();
      answer = c.succeed();  // it is lost already
    });
    h.on.time.jump(5s);
  }
  CHECK(!answer);
  h.also = {};
  CHECK(probe.asked() == 3);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("7.2 many leases expire in the order of their times, whatever was extended, settled or cancelled meanwhile") {
  for (unsigned seed = 1; seed != 30; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    std::map<task_id, time_point> expires;
    std::vector<completion> all;
    heard_stage h({.lease_time = 100s, .lease_expiry = lease_expiry::release});
    bool right = true;
    h.also = [&](const event<std::string>& e) {
      if (e.kind != event_kind::lease_expired) return;
      right = right && expires.count(e.id) != 0 && expires[e.id] == e.time;
      expires.erase(e.id);
    };
    for (int step = 0; step != 400; ++step) {
      switch (random() % 4) {
        case 0:
          h.on.tasks.submit("k" + std::to_string(random() % 40), parallel, deferring(all));
          h.on.run();
          expires[all.back().id()] = h.on.time.now() + 100s;
          break;
        case 1: h.on.time.advance(std::chrono::seconds(random() % 20)); break;
        default: {
          if (all.empty()) break;
          const completion& c = all[random() % all.size()];
          const bool there = expires.count(c.id()) != 0;
          if (random() % 4 == 0) {
            right = right && c.succeed() == there;
            expires.erase(c.id());
          } else {
            const auto d = std::chrono::seconds(1 + random() % 150);
            right = right && c.extend_lease(d) == there;
            if (there) expires[c.id()] = h.on.time.now() + d;
          }
        }
      }
      for (const auto& [id, time] : expires) right = right && time > h.on.time.now();
      right = right && h.on.tasks.stats().running == expires.size();
    }
    h.on.time.advance(1h);
    CHECK(right);
    CHECK(expires.empty());
  }
}

TEST_CASE("7.2, 11 lease options without sense are refused by name") {
  const auto refusal = [](const options& set) -> std::string {
    try {
      const stage on(set);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return {};
  };
  CHECK(refusal({.lease_time = 0s}).find("lease_time is 0") != std::string::npos);
  CHECK(refusal({.lease_time = -3s}).find("lease_time is -3") != std::string::npos);
  CHECK(refusal({.lease_expiry = static_cast<lease_expiry>(2)}).find("lease_expiry is 2") != std::string::npos);
  CHECK(refusal({.lease_time = 1ns, .lease_expiry = lease_expiry::release}).empty());
  CHECK(!options{}.lease_time);
  CHECK(options{}.lease_expiry == lease_expiry::report);
}

TEST_CASE("7.2 the scheduler's own clock takes a lease away too") {
  turnkey::thread_pool pool(2);
  scheduler<int> tasks(pool, {.lease_time = 20ms, .lease_expiry = lease_expiry::release});
  completion c;
  tasks.submit(1, {.policy = policy::exclusive}, [&c](attempt& a) { c = a.defer(); });
  tasks.submit(1, {.policy = policy::exclusive}, [] {});
  CHECK(tasks.drain() == drain_result::drained);
  CHECK(!c.succeed());
  CHECK(tasks.stats().leases_lost == 1);
  CHECK(tasks.stats().succeeded == 1);
}

// ---- 7.3 fences

TEST_CASE(
    "7.3 the fences of a key rise from lease to lease, through retries, lost leases and keys that were forgotten") {
  stage on({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release, .first_fence = 1000});
  std::uint64_t last = 999;
  std::vector<completion> all;
  for (int i = 0; i != 5; ++i) {
    on.tasks.submit("a", i % 2 == 0 ? exclusive : ordered, deferring(all));
    on.run();
    CHECK(all.back().fence() > last);
    last = all.back().fence();
    if (i % 3 == 0) {
      on.pass(5s);  // lost
    } else {
      all.back().fail();
    }
    on.pass(1s);
    CHECK(all.back().number() == 2);
    CHECK(all.back().fence() > last);
    last = all.back().fence();
    CHECK(all.back().succeed());
    CHECK(on.tasks.stats().keys == 0);
  }
}

TEST_CASE("7.3 the first fence is first_fence, and 0 is refused") {
  for (const std::uint64_t first : {std::uint64_t{1}, std::uint64_t{1} << 40}) {
    stage on({.first_fence = first});
    completion c;
    on.tasks.submit("a", exclusive, deferring(c));
    on.run();
    CHECK(c.fence() == first);
  }
  CHECK_THROWS_AS(stage(options{.first_fence = 0}), std::invalid_argument);
}

TEST_CASE("7.3 from the largest first_fence on fences grow too, for one key and for several") {
  // One was taken that left no larger ones: the next lease had fence 0, which says that there is no lease, and the
  // outside world would have refused all that followed.
  stage on({.first_fence = turnkey::last_first_fence});
  std::vector<std::uint64_t> fences;
  const auto note = [&fences](attempt& a) {
    CHECK(a.has_lease());
    fences.push_back(a.fence());
  };
  for (int i = 0; i != 3; ++i) {
    on.tasks.submit("a", exclusive, note);
    on.tasks.submit(turnkey::keys<std::string>{"b", "a"}, exclusive, note);
  }
  on.run();
  REQUIRE(fences.size() == 6);
  CHECK(fences[0] == turnkey::last_first_fence);
  for (std::size_t i = 1; i != 6; ++i) CHECK(fences[i] > fences[i - 1]);
}

TEST_CASE("7.3 by its fence the outside world can refuse a late writer") {
  stage on({.retry = plain_retry, .lease_time = 5s, .lease_expiry = lease_expiry::release});
  std::uint64_t highest = 0;
  strings stored;
  const auto write = [&](std::uint64_t fence, const char* what) {
    if (fence < highest) return;
    highest = fence;
    stored.emplace_back(what);
  };
  completion slow;
  on.tasks.submit("a", exclusive, deferring(slow));
  on.tasks.submit("a", exclusive, [&](attempt& a) { write(a.fence(), "second"); });
  on.run();
  on.pass(5s);
  write(slow.fence(), "first");
  CHECK(stored == strings{"second"});
}
