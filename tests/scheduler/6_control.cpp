#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

using turnkey::attempt;
using turnkey::event;
using turnkey::event_kind;
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

const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};

why::reason reason(stage& on, task_id id) { return on.tasks.find(id)->why.kind; }

std::string refusal(const std::optional<pace>& p) {
  stage on;
  try {
    on.tasks.set_pace(p);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "nothing";
}

}  // namespace

// ---- 6.1 pauses

TEST_CASE("6.1 pause: nothing starts until resume, which starts what can start at once") {
  stage on;
  numbers ran;
  CHECK(on.tasks.pause());
  CHECK(on.tasks.paused());
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", ordered, [&ran, i] { ran.push_back(i); });
  on.tasks.submit([&ran] { ran.push_back(3); });
  on.run();
  CHECK(ran.empty());
  CHECK(on.tasks.stats().ready == 2);  // a pause of everything changes no state
  CHECK(on.tasks.resume());
  CHECK(!on.tasks.paused());
  CHECK(on.pool.size() == 1);  // a permit is out at once
  on.run();
  CHECK(ran == numbers{0, 1, 2, 3});
}

TEST_CASE("6.1 pause and resume are idempotent and say whether they changed anything") {
  stage on;
  CHECK(!on.tasks.resume());
  CHECK(on.tasks.pause());
  CHECK(!on.tasks.pause());
  CHECK(on.tasks.resume());
  CHECK(!on.tasks.resume());
  CHECK(!on.tasks.resume("a"));
  CHECK(on.tasks.pause("a"));
  CHECK(!on.tasks.pause("a"));
  CHECK(on.tasks.resume("a"));
  CHECK(!on.tasks.resume("a"));
}

TEST_CASE("6.1 while all is paused what runs finishes, and timers go on") {
  stage on;
  numbers ran;
  on.tasks.submit("a", ordered, [&] {
    on.tasks.pause();
    ran.push_back(0);
  });
  const task_id delayed = on.tasks.submit("b", {.delay = 1s}, [&ran] { ran.push_back(1); });
  on.run();
  CHECK(ran == numbers{0});
  CHECK(on.tasks.stats().succeeded == 1);
  on.pass(1s);
  CHECK(ran == numbers{0});
  CHECK(on.tasks.find(delayed)->state == task_state::ready);
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{0, 1});
}

TEST_CASE("2.11, 6.1 a pause from inside a callback ends the turn: no further task of it starts") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    stage on;
    numbers ran;
    for (int i = 0; i != 3; ++i)
      on.tasks.submit("a", ordered, [&, i] {
        if (i == 0) CHECK((whole ? on.tasks.pause() : on.tasks.pause("a")));
        ran.push_back(i);
      });
    on.run();
    CHECK(ran == numbers{0});
    CHECK((whole ? on.tasks.resume() : on.tasks.resume("a")));
    on.run();
    CHECK(ran == numbers{0, 1, 2});
  }
}

TEST_CASE("6.1 a paused key starts nothing of any policy; others go on") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    stage on;
    strings ran;
    for (const char* key : {"a", "b"}) on.tasks.submit(key, {.policy = p}, [&ran, key] { ran.emplace_back(key); });
    CHECK(on.tasks.pause("a"));
    on.run();
    CHECK(ran == strings{"b"});
    CHECK(on.tasks.stats().ready == 0);
    CHECK(on.tasks.stats().waiting == 1);
    CHECK(on.tasks.resume("a"));
    on.run();
    CHECK(ran == strings{"b", "a"});
  }
}

TEST_CASE("6.1 a paused key that was never seen costs an entry until it is resumed, and is listed") {
  stage on;
  CHECK(on.tasks.pause("a"));
  CHECK(on.tasks.pause("b"));
  CHECK(on.tasks.stats().keys == 2);
  CHECK(on.tasks.stats().paused_keys == 2);
  CHECK(on.tasks.paused_keys().size() == 2);
  CHECK(on.tasks.resume("b"));
  CHECK(on.tasks.paused_keys() == strings{"a"});
  on.tasks.submit("a", [] {});
  CHECK(on.tasks.cancel("a") == 1);
  CHECK(on.tasks.stats().keys == 1);  // the pause stays
  CHECK(on.tasks.resume("a"));
  CHECK(on.tasks.stats().keys == 0);
  CHECK(on.tasks.stats().paused_keys == 0);
  CHECK(on.tasks.drain() == turnkey::drain_result::drained);
}

TEST_CASE("6.1 under an inline executor resume runs what waits on the caller's thread") {
  numbers ran;
  scheduler<int> s{turnkey::inline_executor{}, {.default_policy = policy::ordered}};
  s.pause();
  for (int i = 0; i != 3; ++i)
    s.submit(1, [&ran, i, here = std::this_thread::get_id()] {
      CHECK(std::this_thread::get_id() == here);
      ran.push_back(i);
    });
  CHECK(s.step(2));
  CHECK(ran == numbers{0, 1});
  s.resume();
  CHECK(ran == numbers{0, 1, 2});
}

TEST_CASE("6.1 pausing and resuming from an observer works") {
  numbers ran;
  scheduler<std::string>* tasks = nullptr;
  stage on({.observer = [&](const event<std::string>& e) {
    if (e.kind != event_kind::succeeded) return;
    tasks->pause();
    tasks->pause("b");
  }});
  tasks = &on.tasks;
  for (int i = 0; i != 2; ++i) on.tasks.submit("a", ordered, [&ran, i] { ran.push_back(i); });
  on.run();
  CHECK(ran == numbers{0, 1});  // the next had been started before the observer was called
  CHECK(on.tasks.paused());
  CHECK(on.tasks.paused_keys() == strings{"b"});
}

// ---- 6.2 steps

TEST_CASE("6.2 step(n): n starts pass the pause, now or when there is something to start") {
  stage on;
  int ran = 0;
  CHECK(!on.tasks.step(3));
  on.tasks.pause();
  CHECK(on.tasks.step(3));
  on.run();
  for (int i = 0; i != 5; ++i) on.tasks.submit(i % 2 != 0 ? "a" : "b", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 3);
  CHECK(on.tasks.step());
  on.run();
  CHECK(ran == 4);
  CHECK(on.tasks.step(std::numeric_limits<std::size_t>::max()));
  CHECK(on.tasks.step(std::numeric_limits<std::size_t>::max()));  // saturates
  on.run();
  CHECK(ran == 5);
}

TEST_CASE("6.2 resume drops unused steps") {
  stage on;
  int ran = 0;
  on.tasks.pause();
  on.tasks.step(100);
  on.tasks.resume();
  on.tasks.pause();
  on.tasks.submit("a", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 0);
  on.tasks.step(on.tasks.submit("b", [&ran] { ++ran; }));
  on.tasks.resume();
  on.tasks.pause();
  on.pool.run_all();
  CHECK(ran == 0);
}

TEST_CASE("6.2 a step is not wasted: on a line that has nothing to start, by a second pause, by a new limit") {
  stage on;
  int ran = 0;
  on.tasks.pause();
  const task_id gone = on.tasks.submit("a", ordered, [&ran] { ++ran; });
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 1h}, [] {});
  CHECK(on.tasks.step());
  on.tasks.pause();
  on.tasks.set_max_in_flight(5);
  on.tasks.set_pace(pace{.n = 1000});
  CHECK(on.tasks.cancel(gone));
  on.run();  // its line has nothing now
  on.tasks.submit("b", [&ran] { ++ran; });
  on.tasks.submit("b", [&ran] { ++ran; });
  on.pass(1s);
  CHECK(ran == 1);
}

TEST_CASE("6.2 a key's pause, a hold, the limit and the pace still apply to a step") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  numbers ran;
  on.tasks.submit("held", ordered, [] { throw 1; });
  on.tasks.submit("held", ordered, [&ran] { ran.push_back(0); });
  on.run();
  on.tasks.pause();
  on.tasks.pause("paused");
  const task_id kept = on.tasks.submit("paused", [&ran] { ran.push_back(1); });
  CHECK(on.tasks.step(5));
  CHECK(!on.tasks.step(kept));
  on.run();
  CHECK(ran.empty());
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  for (int i = 2; i != 4; ++i) on.tasks.submit("free", [&ran, i] { ran.push_back(i); });
  on.run();
  CHECK(ran == numbers{2});
  on.pass(1s);
  CHECK(ran == numbers{2, 3});
}

TEST_CASE("6.2 step(id) lets that one task pass, the second of a parallel key too") {
  stage on;
  numbers ran;
  on.tasks.pause();
  std::vector<task_id> ids;
  for (int i = 0; i != 4; ++i) ids.push_back(on.tasks.submit("a", [&ran, i] { ran.push_back(i); }));
  CHECK(on.tasks.step(ids[2]));
  CHECK(on.tasks.step(ids[1]));
  on.run();
  CHECK(ran == numbers{2, 1});
  CHECK(!on.tasks.step(ids[2]));
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{2, 1, 0, 3});
}

TEST_CASE("6.2 step(id) is false for what is not ready, unknown, or not paused") {
  stage on;
  const task_id first = on.tasks.submit("a", ordered, [] {});
  CHECK(!on.tasks.step(first));
  on.tasks.pause();
  const task_id second = on.tasks.submit("a", ordered, [] {});
  const task_id delayed = on.tasks.submit("b", {.delay = 1h}, [] {});
  for (const task_id id : {second, delayed, task_id{0}, task_id{~0ULL}}) CHECK(!on.tasks.step(id));
  CHECK(on.tasks.step(first));
  on.run();
  CHECK(!on.tasks.find(first));
  CHECK(!on.tasks.step(first));
  CHECK(on.tasks.step(second));
}

TEST_CASE("6.2 a pass whose task was cancelled meanwhile passes nobody else") {
  stage on;
  int ran = 0;
  on.tasks.pause();
  const task_id one = on.tasks.submit("a", [&ran] { ++ran; });
  on.tasks.submit("a", [&ran] { ++ran; });
  CHECK(on.tasks.step(one));
  CHECK(on.tasks.cancel(one));
  on.run();
  CHECK(ran == 0);
}

TEST_CASE("6.2 expedite: a delayed task is due at once, its first attempt or a retry") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1h, .max_delay = 1h, .jitter = 0}});
  numbers ran;
  const task_id first = on.tasks.submit("a", {.delay = 1h}, [&ran] { ran.push_back(1); });
  const task_id retried = on.tasks.submit("b", [&ran](attempt& a) {
    if (a.number() == 1) throw 1;
    ran.push_back(2);
  });
  on.run();
  CHECK(on.tasks.expedite(first));
  CHECK(!on.tasks.expedite(first));  // it is ready
  CHECK(on.tasks.expedite(retried));
  on.run();
  CHECK(ran == numbers{1, 2});
  CHECK(on.tasks.stats().delayed == 0);
  for (const task_id id : {first, task_id{0}}) CHECK(!on.tasks.expedite(id));
  on.pass(2h);
  CHECK(on.tasks.stats().started == 3);
}

TEST_CASE("2.9, 6.2 an expedited retry is due now: behind what was due before, in front of what never ran") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1h, .max_delay = 1h, .jitter = 0}});
  numbers ran;
  const auto fails_once = [&ran](int i) {
    return [&ran, i](attempt& a) {
      if (a.number() == 1) throw 1;
      ran.push_back(i);
    };
  };
  const task_id early = on.tasks.submit("a", exclusive, fails_once(0));
  on.run();
  on.pass(30min);
  const task_id late = on.tasks.submit("a", exclusive, fails_once(1));
  on.run();
  on.tasks.pause();
  on.pass(30min);  // `early` is due
  CHECK(on.tasks.find(early)->state == task_state::ready);
  on.tasks.submit("a", exclusive, [&ran] { ran.push_back(2); });
  CHECK(on.tasks.expedite(late));
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{0, 1, 2});
}

// ---- 6.3 the limit

TEST_CASE("6.3 raising the limit starts as many as now fit, at once; none lifts it") {
  stage on({.max_in_flight = 1});
  int inside = 0;
  int most = 0;
  const auto nested = [&](auto& self) -> void {
    ++inside;
    most = inside > most ? inside : most;
    while (on.pool.size() != 0) std::thread([&] { on.pool.run_one(); }).join();
    static_cast<void>(self);
    --inside;
  };
  for (int i = 0; i != 6; ++i) on.tasks.submit([&] { nested(nested); });
  SUBCASE("raised") {
    on.tasks.set_max_in_flight(3);
    on.run();
    CHECK(most == 3);
  }
  SUBCASE("as it was") {
    on.run();
    CHECK(most == 1);
  }
  SUBCASE("none") {
    on.tasks.set_max_in_flight({});
    on.run();
    CHECK(most == 6);
  }
  CHECK(on.tasks.stats().succeeded == 6);
}

TEST_CASE("2.11, 6.3 lowering the limit pre-empts nobody, and nothing starts against it, inside a turn either") {
  stage on({.max_in_flight = 2});
  numbers ran;
  on.tasks.submit("b", ordered, [&] {
    std::thread([&] { on.pool.run_one(); }).join();  // "a" begins, lowers the limit, and goes back: 0 1
    ran.push_back(10);
  });
  for (int i = 0; i != 3; ++i)
    on.tasks.submit("a", ordered, [&, i] {
      if (i == 0) on.tasks.set_max_in_flight(1);
      ran.push_back(i);
    });
  on.pool.run_one();
  CHECK(ran == numbers{0, 10, 1, 2});  // the two others of the turn wait until there is room
}

TEST_CASE("6.3 a limit of 0 is refused: it is not pause") {
  stage on;
  CHECK_THROWS_WITH_AS(on.tasks.set_max_in_flight(0),
                       "turnkey: max_in_flight is 0; pause() starts nothing, none is no limit", std::invalid_argument);
  on.tasks.submit([] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
}

// ---- 6.4 the pace

TEST_CASE("6.4 in any window at most burst + n * w / interval tasks start, retries too") {
  for (const pace p : {pace{.n = 2, .interval = 1s}, pace{.n = 3, .interval = 1s, .burst = 4},
                       pace{.n = 0.5, .interval = 100ms, .burst = 2}, pace{.n = 7, .interval = 3s, .burst = 1}}) {
    CAPTURE(p.n);
    std::vector<time_point> starts;
    stage on({.retry = retry_policy{.max_attempts = 3, .initial_delay = 30ms, .jitter = 0},
              .observer = [&starts](const event<std::string>& e) {
                if (e.kind == event_kind::started) starts.push_back(e.time);
              }});
    on.tasks.set_pace(p);
    for (int i = 0; i != 40; ++i) {
      on.tasks.submit(
          std::string(1, static_cast<char>('a' + i % 5)), {.policy = i % 2 != 0 ? policy::ordered : policy::parallel},
          [i](attempt& a) { return a.number() == 1 && i % 4 == 0 ? outcome::retry() : outcome::success(); });
      if (i % 7 == 0) on.pass(217ms);
    }
    on.pass(1h);
    REQUIRE(starts.size() == 50);
    for (std::size_t i = 0; i != starts.size(); ++i)
      for (std::size_t j = i; j != starts.size(); ++j) {
        const std::chrono::duration<double> w = starts[j] - starts[i];
        const std::chrono::duration<double> interval = p.interval;
        CHECK(static_cast<double>(j - i + 1) <= p.burst + p.n * (w / interval) + 1e-6);
      }
    // And not much slower than it may be.
    const std::chrono::duration<double> took = starts.back() - starts.front();
    CHECK(took.count() <= 50 / p.n * std::chrono::duration<double>(p.interval).count() + 2);
  }
}

TEST_CASE("6.4 a callback that blocks does not keep the next start from coming in its time") {
  stage on;
  numbers ran;
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  on.tasks.submit("b", [&] {
    CHECK(on.pool.size() == 0);
    on.time.jump(1s);  // the alarm rings while this one runs
    CHECK(on.pool.size() == 1);
    std::thread([&] { on.pool.run_one(); }).join();
    ran.push_back(0);
  });
  on.tasks.submit("a", [&ran] { ran.push_back(1); });
  on.pool.run_one();
  CHECK(ran == numbers{1, 0});
}

TEST_CASE("6.4 the pace is changed and removed at any time") {
  stage on;
  int ran = 0;
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  for (int i = 0; i != 10; ++i) on.tasks.submit("a", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 1);
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  on.run();
  CHECK(ran == 2);
  on.pass(2s);
  CHECK(ran == 4);
  on.tasks.set_pace({});
  on.run();
  CHECK(ran == 10);
}

TEST_CASE("2.11, 6.4 a pace that comes in the middle of a turn holds at once") {
  stage on;
  int ran = 0;
  for (int i = 0; i != 5; ++i)
    on.tasks.submit("a", ordered, [&] {
      if (ran++ == 0) on.tasks.set_pace(pace{.n = 1, .interval = 1s});
    });
  on.run();
  CHECK(ran == 2);  // the one of the old rule, and the first of the new
  on.pass(1s);
  CHECK(ran == 3);
}

TEST_CASE("6.4 a right to start that was not used is there again") {
  stage on;
  int ran = 0;
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  const task_id gone = on.tasks.submit("a", ordered, [] {});
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 10h}, [] {});
  on.tasks.cancel(gone);
  on.run();  // the line had nothing
  on.tasks.submit("b", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 1);
}

TEST_CASE("6.4 huge and tiny paces saturate") {
  for (const pace p : {pace{.n = 1e-300}, pace{.n = 1e300}, pace{.n = 1, .interval = turnkey::duration::max()},
                       pace{.n = 1e-9, .interval = 1h, .burst = ~std::uint32_t{0}},
                       pace{.n = std::numeric_limits<double>::infinity()}, pace{.n = 5, .interval = 1ns}}) {
    stage on;
    int ran = 0;
    on.tasks.set_pace(p);
    for (int i = 0; i != 3; ++i) on.tasks.submit("a", [&ran] { ++ran; });
    on.pass(1s);
    CHECK(ran >= 1);
    on.tasks.set_pace({});
    on.run();
    CHECK(ran == 3);
  }
}

TEST_CASE("6.4 a pace that makes no sense is refused: which field, which value") {
  CHECK(refusal(pace{}) == "nothing");
  CHECK(refusal(std::nullopt) == "nothing");
  CHECK(refusal(pace{.n = 0}) == "turnkey: pace.n is 0.000000; more than 0 starts; pause() lets none start");
  CHECK(refusal(pace{.n = -1}).find("pace.n is -1") != std::string::npos);
  CHECK(refusal(pace{.n = std::numeric_limits<double>::quiet_NaN()}).find("nan") != std::string::npos);
  CHECK(refusal(pace{.interval = 0s}) == "turnkey: pace.interval is 0 ns; it must be more than 0");
  CHECK(refusal(pace{.interval = -1s}).find("pace.interval is -1000000000 ns") != std::string::npos);
  CHECK(refusal(pace{.burst = 0}) == "turnkey: pace.burst is 0; 1 or more");
}

// ---- 6.6 all independent

TEST_CASE("6.6 limits, pauses and holds are independent: undoing one never undoes another") {
  enum : unsigned { all = 1, one_key = 2, limit = 4, the_pace = 8, hold = 16, every = 31 };
  for (unsigned first = 1; first <= hold; first *= 2) {
    CAPTURE(first);
    stage on({.dead_action = turnkey::dead_action::hold_key});
    int ran = 0;
    on.tasks.submit("a", ordered, [] { throw 1; });
    on.run();  // the hold
    on.tasks.set_pace(pace{.n = 1, .interval = 1h});
    on.tasks.submit("other", [] {});
    on.run();  // the pace is used up
    on.tasks.set_max_in_flight(1);
    on.tasks.pause();
    on.tasks.pause("a");
    // The limit is reached by a callback that runs on another thread's behalf, below.
    on.tasks.submit("a", ordered, [&ran] { ++ran; });
    const auto undo = [&](unsigned what) {
      if (what == all) CHECK(on.tasks.resume());
      if (what == one_key) CHECK(on.tasks.resume("a"));
      if (what == limit) on.tasks.set_max_in_flight({});
      if (what == the_pace) on.tasks.set_pace({});
      if (what == hold) CHECK(on.tasks.release("a"));
    };
    undo(first);
    unsigned left = every & ~first;
    for (unsigned what = 1; what <= hold; what *= 2) {
      if ((left & what) == 0) continue;
      on.run();
      const bool only_limit = left == limit;
      CHECK(ran == (only_limit ? 1 : 0));
      undo(what);
      left &= ~what;
    }
    on.run();
    CHECK(ran == 1);
  }
}

TEST_CASE("6.5, 6.6 cancel works on what is paused, held, stepped and paced") {
  stage on;
  on.tasks.pause();
  on.tasks.pause("b");
  const task_id a = on.tasks.submit("a", [] {});
  const task_id b = on.tasks.submit("b", [] {});
  CHECK(on.tasks.step(a));
  CHECK(on.tasks.cancel(a));
  CHECK(on.tasks.cancel(b));
  CHECK(on.tasks.stats().unfinished() == 0);
  on.tasks.resume();
  on.tasks.resume("b");
  on.run();
  CHECK(on.tasks.stats().started == 0);
  CHECK(on.tasks.stats().keys == 0);
}

// ---- afterwards

TEST_CASE("6, 10.3 after stop() nothing changes and nothing hangs") {
  stage on;
  on.tasks.pause();
  on.tasks.pause("a");
  const task_id id = on.tasks.submit("b", [] {});
  CHECK(on.tasks.stop().size() == 1);
  CHECK(!on.tasks.step());
  CHECK(!on.tasks.step(id));
  CHECK(!on.tasks.expedite(id));
  CHECK(!on.tasks.pause("c"));
  CHECK(!on.tasks.find(id));
  on.tasks.set_max_in_flight(3);
  on.tasks.set_pace(pace{});
  static_cast<void>(on.tasks.resume());
  CHECK(on.tasks.busiest_keys(3).empty());
  CHECK(on.pool.run_all() == 0);
}

TEST_CASE("6, 10.3 stop() hands back what was paused") {
  stage on;
  on.tasks.pause();
  on.tasks.submit("a", [] {});
  on.tasks.submit("a", ordered, [] {});
  CHECK(on.tasks.drain_for(0s) == turnkey::drain_result::timed_out);
  CHECK(on.tasks.stop().size() == 2);
}
