#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
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

// As another thread of the pool does it, while a callback runs.
template <class Do>
void elsewhere(Do action) {
  std::thread(action).join();
}

// Callbacks that another one can be started on top of, each on its own thread, while permits are there.
struct nesting_stage : stage {
  using stage::stage;

  // The callback of a task; `at_top` is called once `depth` of them run.
  auto nest(int number, int depth = 0, std::function<void()> at_top = {}) {
    return [this, number, depth, at_top = std::move(at_top)] {
      began.push_back(number);
      ++now;
      most = now > most ? now : most;
      while (pool.size() != 0) elsewhere([this] { pool.run_one(); });
      if (now == depth && at_top) at_top();
      --now;
    };
  }

  numbers began;
  int now = 0;
  int most = 0;
};

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

TEST_CASE("6.1 resuming a key starts what can start, at once") {
  stage on;
  numbers ran;
  on.tasks.pause("a");
  for (int i = 0; i != 2; ++i) on.tasks.submit("a", ordered, [&ran, i] { ran.push_back(i); });
  CHECK(on.pool.size() == 0);
  CHECK(on.tasks.resume("a"));
  CHECK(on.tasks.stats().ready == 1);
  CHECK(on.pool.size() == 1);
  on.run();
  CHECK(ran == numbers{0, 1});
}

TEST_CASE("6.1 a retry that comes due under a pause, of all or of its key, waits for the resume") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    stage on({.retry = retry_policy{.initial_delay = 1s, .jitter = 0}});
    int ran = 0;
    const task_id id = on.tasks.submit("a", exclusive, [&ran] {
      if (++ran == 1) throw 1;
    });
    on.run();
    CHECK((whole ? on.tasks.pause() : on.tasks.pause("a")));
    CHECK(on.tasks.find(id)->state == task_state::delayed);
    on.pass(1h);
    CHECK(ran == 1);
    CHECK(on.tasks.find(id)->state == (whole ? task_state::ready : task_state::waiting));
    CHECK((whole ? on.tasks.resume() : on.tasks.resume("a")));
    on.run();
    CHECK(ran == 2);
  }
}

TEST_CASE("6.1 under a pause of its key a running callback finishes, in each way") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0}});
  int ran = 0;
  on.tasks.submit("fails", [&] {
    on.tasks.pause("fails");
    throw ++ran;
  });
  on.tasks.submit("succeeds", [&] {
    on.tasks.pause("succeeds");
    ++ran;
  });
  on.tasks.submit("postpones", [&] {
    on.tasks.pause("postpones");
    ++ran;
    return outcome::postpone(0s);
  });
  on.pass(1h);
  CHECK(ran == 3);
  CHECK(on.tasks.stats().failed_attempts == 1);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().postponed == 1);
  CHECK(on.tasks.stats().waiting == 2);
  CHECK(on.tasks.stats().delayed == 0);
  CHECK(on.tasks.stats().paused_keys == 3);
}

TEST_CASE("6.1 no key is no key: tasks without one run on, and an empty string can be paused") {
  stage on;
  strings ran;
  CHECK(on.tasks.pause(""));
  on.tasks.submit("", [&ran] { ran.emplace_back("empty"); });
  on.tasks.submit([&ran] { ran.emplace_back("none"); });
  on.run();
  CHECK(ran == strings{"none"});
  CHECK(on.tasks.paused_keys() == strings{""});
  CHECK(on.tasks.resume(""));
  on.run();
  CHECK(ran == strings{"none", "empty"});
}

TEST_CASE("6.1 a key that was forgotten and comes back is not paused any more; one that is paused is not forgotten") {
  stage on;
  int ran = 0;
  on.tasks.pause("a");
  on.tasks.submit("a", [&ran] { ++ran; });
  on.tasks.resume("a");
  on.run();
  CHECK(on.tasks.stats().keys == 0);
  on.tasks.submit("a", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 2);
  on.tasks.pause("a");
  on.tasks.cancel(on.tasks.submit("a", [] {}));
  on.tasks.submit("a", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 2);
}

TEST_CASE("2.11, 6.1 a pause from another thread, in the middle of a turn, is a pause at once") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    stage on;
    numbers ran;
    for (int i = 0; i != 20; ++i)
      on.tasks.submit("a", [&, i] {
        if (i == 3) elsewhere([&] { CHECK((whole ? on.tasks.pause() : on.tasks.pause("a"))); });
        ran.push_back(i);
      });
    on.run();
    CHECK(ran == numbers{0, 1, 2, 3});
    CHECK((whole ? on.tasks.resume() : on.tasks.resume("a")));
    on.run();
    CHECK(ran.size() == 20);
  }
}

TEST_CASE("2.11, 6.1 whoever is paused and resumed in the middle of a turn goes on, in order") {
  stage on;
  numbers ran;
  for (int i = 0; i != 5; ++i)
    on.tasks.submit("a", ordered, [&, i] {
      ran.push_back(i);
      on.tasks.pause();
      on.tasks.pause("a");
      CHECK(on.tasks.resume("a"));
      CHECK(on.tasks.resume());
    });
  on.pool.run_one();  // with one permit
  CHECK(ran == numbers{0, 1, 2, 3, 4});
}

TEST_CASE("6.1 an observer may resume") {
  scheduler<std::string>* tasks = nullptr;
  numbers ran;
  stage on({.observer = [&](const event<std::string>& e) {
    if (e.kind != event_kind::cancelled) return;
    CHECK(tasks->resume());
    CHECK(tasks->resume("a"));
    CHECK(!tasks->step());
  }});
  tasks = &on.tasks;
  on.tasks.pause();
  on.tasks.pause("a");
  on.tasks.submit("a", [&ran] { ran.push_back(0); });
  on.tasks.cancel(on.tasks.submit("b", [] {}));
  on.run();
  CHECK(ran == numbers{0});
}

TEST_CASE("6.1 under an inline executor what is resumed inside a callback runs when that has returned") {
  numbers ran;
  scheduler<int> s{turnkey::inline_executor{}};
  s.pause(2);
  s.submit(2, [&ran] { ran.push_back(2); });
  s.submit(1, [&] {
    CHECK(s.resume(2));
    ran.push_back(1);
  });
  CHECK(ran == numbers{1, 2});
}

TEST_CASE("2.11, 6.1 under an inline executor a pause ends the turn, and each way of going on runs it on the caller") {
  for (const bool whole : {true, false}) {
    CAPTURE(whole);
    numbers ran;
    scheduler<int> s{turnkey::inline_executor{}, {.default_policy = policy::ordered}};
    const auto pause = [&] { CHECK((whole ? s.pause() : s.pause(1))); };
    pause();
    for (int i = 0; i != 4; ++i)
      s.submit(1, [&, i] {
        if (i % 2 == 0) pause();
        ran.push_back(i);
      });
    for (const std::size_t done : {1U, 3U, 4U}) {
      CHECK((whole ? s.resume() : s.resume(1)));
      CHECK(ran.size() == done);
    }
    CHECK(ran == numbers{0, 1, 2, 3});
  }
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

TEST_CASE("2.9, 6.2 an expedited first attempt has the place of its id, and so has an ordered retry") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1h, .max_delay = 1h, .jitter = 0}});
  numbers ran;
  const task_id delayed =
      on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1h}, [&ran] { ran.push_back(0); });
  const task_id retried = on.tasks.submit("b", ordered, [&ran](attempt& a) {
    if (a.number() == 1) throw 1;
    ran.push_back(10);
  });
  on.run();
  on.tasks.pause();
  on.tasks.submit("a", exclusive, [&ran] { ran.push_back(1); });
  on.tasks.submit("b", ordered, [&ran] { ran.push_back(11); });
  for (const task_id id : {delayed, retried}) CHECK(on.tasks.expedite(id));
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{0, 1, 10, 11});
}

TEST_CASE("2.9, 6.2 an expedited retry goes before what is due after that, and tells when it came back") {
  stage on;
  numbers ran;
  std::vector<task_id> ids;
  for (int i = 0; i != 2; ++i)
    ids.push_back(on.tasks.submit("a", exclusive, [&ran, i, n = 0]() mutable {
      if (n++ == 0) return outcome::postpone(i == 0 ? 1h : 2h);
      ran.push_back(i);
      return outcome::success();
    }));
  on.run();
  on.tasks.pause();
  on.pass(30min);
  CHECK(on.tasks.expedite(ids[1]));
  const time_point expedited = on.time.now();
  on.pass(30min);
  for (const task_id id : ids) CHECK(on.tasks.find(id)->state != task_state::delayed);
  CHECK(on.tasks.find(ids[1])->since == expedited);
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{1, 0});
}

TEST_CASE("2.9, 6.2 retries that are expedited at one time keep the order of their ids") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1h, .max_delay = 1h, .jitter = 0}});
  numbers ran;
  std::vector<task_id> ids;
  for (int i = 0; i != 3; ++i)
    ids.push_back(on.tasks.submit("a", exclusive, [&ran, i](attempt& a) {
      if (a.number() == 1) throw 1;
      ran.push_back(i);
    }));
  on.run();
  on.tasks.pause();
  for (const std::size_t i : {2U, 0U, 1U}) CHECK(on.tasks.expedite(ids[i]));
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{0, 1, 2});
}

TEST_CASE("6.2 expedite is false for what is not delayed: waiting, ready, running, finished, dead") {
  stage on;
  task_id waiting{};
  task_id ready{};
  const task_id running = on.tasks.submit("a", ordered, [&](attempt& a) {
    for (const task_id id : {a.id(), waiting, ready}) CHECK(!on.tasks.expedite(id));
    return outcome::dead();
  });
  waiting = on.tasks.submit("a", ordered, [] {});
  ready = on.tasks.submit("b", [] {});
  on.run();
  for (const task_id id : {running, waiting, ready}) CHECK(!on.tasks.expedite(id));
  CHECK(on.tasks.stats().succeeded == 2);
}

TEST_CASE("6.2 what is expedited still waits for pauses, holds, the limit and the pace") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  int ran = 0;
  on.tasks.submit("held", exclusive, [] { throw 1; });
  on.run();
  std::vector<task_id> ids;
  for (const char* key : {"held", "paused", "free"})
    ids.push_back(on.tasks.submit(key, {.delay = 1h}, [&ran] { ++ran; }));
  on.tasks.pause("paused");
  on.tasks.set_pace(pace{.n = 1, .interval = 10h});
  on.tasks.submit("other", [] {});
  on.run();  // the pace is used up
  for (const task_id id : ids) CHECK(on.tasks.expedite(id));
  on.run();
  CHECK(ran == 0);
  CHECK(on.tasks.stats().delayed == 0);
  CHECK(on.tasks.find(ids[0])->why.kind == why::reason::key_held);
  CHECK(on.tasks.find(ids[1])->why.kind == why::reason::key_paused);
  CHECK(on.tasks.find(ids[2])->why.kind == why::reason::pace);
  on.tasks.set_pace({});
  on.run();
  CHECK(ran == 1);
}

TEST_CASE("6.2 expedite works on what is postponed, and inside a callback") {
  stage on;
  numbers ran;
  const task_id id = on.tasks.submit("a", [&ran, n = 0]() mutable {
    ran.push_back(n);
    return n++ == 0 ? outcome::postpone(1h) : outcome::success();
  });
  on.run();
  on.tasks.submit("b", [&] {
    CHECK(on.tasks.expedite(id));
    ran.push_back(10);
  });
  on.run();
  CHECK(ran == numbers{0, 10, 1});
}

TEST_CASE("6.2 steps of an ordered line are taken one by one, in order, and a retry is a start like any other") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s, .jitter = 0}});
  numbers ran;
  on.tasks.pause();
  for (int i = 0; i != 4; ++i)
    on.tasks.submit("a", ordered, [&ran, i](attempt& a) {
      ran.push_back(i);
      if (i == 1 && a.number() == 1) throw 1;
    });
  CHECK(on.tasks.step(2));
  on.run();
  CHECK(ran == numbers{0, 1});
  CHECK(on.tasks.step(0));
  on.run();
  CHECK(ran == numbers{0, 1});
  CHECK(on.tasks.step(2));
  on.run();
  CHECK(ran == numbers{0, 1, 1, 2});
}

TEST_CASE("6.2 steps go round the lines, as turns do") {
  stage on;
  strings ran;
  on.tasks.pause();
  for (int i = 0; i != 2; ++i)
    for (const char* key : {"a", "b", "c"}) on.tasks.submit(key, [&ran, key] { ran.emplace_back(key); });
  CHECK(on.tasks.step(4));
  on.run();
  CHECK(ran == strings{"a", "b", "c", "a"});
}

TEST_CASE("6.2 steps may be given from inside a callback that a step started") {
  stage on;
  int ran = 0;
  on.tasks.pause();
  for (int i = 0; i != 5; ++i)
    on.tasks.submit("a", ordered, [&] {
      if (++ran < 4) CHECK(on.tasks.step());
    });
  CHECK(on.tasks.step());
  on.run();
  CHECK(ran == 4);
}

TEST_CASE("6.2, 6.3 steps wait for room under the limit, and are used when there is some") {
  stage on({.max_in_flight = 1});
  numbers ran;
  std::vector<task_id> ids;
  on.tasks.submit("a", [&] {
    on.tasks.pause();
    CHECK(on.tasks.step());
    CHECK(on.tasks.step(ids[2]));
    CHECK(on.pool.size() == 0);  // nothing could start
    ran.push_back(10);
  });
  for (int i = 0; i != 4; ++i) ids.push_back(on.tasks.submit("b", [&ran, i] { ran.push_back(i); }));
  on.run();
  CHECK(ran == numbers{10, 2, 0});
}

TEST_CASE("6.2, 6.4 a pass waits for the pace") {
  stage on;
  numbers ran;
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  on.tasks.pause();
  std::vector<task_id> ids;
  for (int i = 0; i != 3; ++i) ids.push_back(on.tasks.submit("a", [&ran, i] { ran.push_back(i); }));
  CHECK(on.tasks.step(ids[2]));
  CHECK(on.tasks.step(ids[1]));
  on.run();
  CHECK(ran == numbers{2});
  on.pass(999ms);
  CHECK(ran == numbers{2});
  on.pass(1ms);
  CHECK(ran == numbers{2, 1});
  on.pass(1h);
  CHECK(ran == numbers{2, 1});
}

TEST_CASE("6.2 step(id) is false for what runs, for what is held, and for what waits for a lease") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  on.tasks.submit("held", ordered, [] { throw 1; });
  on.run();
  const task_id held = on.tasks.submit("held", [] {});
  task_id waiting{};
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    on.tasks.pause();
    for (const task_id id : {a.id(), held, waiting}) CHECK(!on.tasks.step(id));
  });
  waiting = on.tasks.submit("a", exclusive, [] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.step(waiting));
  on.run();
  CHECK(on.tasks.stats().succeeded == 2);
}

TEST_CASE("6.2 step(id) lets a retry pass, of a parallel key the last one, and a task without a key") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1s, .jitter = 0}});
  numbers ran;
  std::vector<task_id> ids;
  for (int i = 0; i != 4; ++i)
    ids.push_back(on.tasks.submit("a", [&ran, i](attempt& a) {
      if (a.number() == 1) throw 1;
      ran.push_back(i);
    }));
  on.run();
  on.tasks.pause();
  on.pass(1s);
  const task_id keyless = on.tasks.submit([&ran] { ran.push_back(10); });
  for (const task_id id : {ids[3], keyless, ids[1]}) CHECK(on.tasks.step(id));
  on.run();
  CHECK(ran == numbers{3, 10, 1});
  on.tasks.resume();
  on.run();
  CHECK(ran == numbers{3, 10, 1, 0, 2});
}

TEST_CASE("6.2 step(id) takes the lease: nobody passes together with it") {
  stage on;
  numbers ran;
  on.tasks.pause();
  const task_id first = on.tasks.submit("a", exclusive, [&] {
    elsewhere([&] { on.run(); });
    ran.push_back(0);
  });
  on.tasks.submit("a", exclusive, [&ran] { ran.push_back(1); });
  CHECK(on.tasks.step(first));
  CHECK(on.tasks.step());
  on.run();
  CHECK(ran == numbers{0, 1});
}

TEST_CASE("6.2 under an inline executor step(id) and expedite run the task on the caller") {
  turnkey::testing::manual_time time;
  numbers ran;
  scheduler<int> s{turnkey::inline_executor{}, {.time = &time}};
  const task_id delayed = s.submit(1, {.delay = 1h}, [&ran] { ran.push_back(0); });
  CHECK(s.expedite(delayed));
  CHECK(ran == numbers{0});
  s.pause();
  s.submit(1, [&ran] { ran.push_back(1); });
  const task_id second = s.submit(1, [&ran] { ran.push_back(2); });
  CHECK(s.step(second));
  CHECK(ran == numbers{0, 2});
}

// ---- 6.3 the limit

TEST_CASE("6.3 the limit counts what runs, of every key and of none") {
  for (const std::size_t limit : {1U, 2U, 5U}) {
    nesting_stage on({.max_in_flight = limit});
    for (int i = 0; i != 6; ++i) on.tasks.submit(std::to_string(i % 3), on.nest(i));
    for (int i = 6; i != 9; ++i) on.tasks.submit(on.nest(i));
    on.run();
    CHECK(on.most == static_cast<int>(limit));
    CHECK(on.began.size() == 9);
  }
}

TEST_CASE("6.3 raising the limit starts as many as now fit, at once; none lifts it") {
  struct row {
    std::optional<std::size_t> limit;
    int most;
  };
  for (const row& r : {row{1, 1}, row{2, 2}, row{4, 4}, row{std::nullopt, 6}}) {
    CAPTURE(r.most);
    nesting_stage on({.max_in_flight = 1});
    on.tasks.submit([&] {
      CHECK(on.pool.size() == 0);
      on.tasks.set_max_in_flight(r.limit);
      CHECK(on.pool.size() == (r.most == 1 ? 0 : 1));  // at once: this one still runs
      on.nest(0)();
    });
    for (int i = 1; i != 6; ++i) on.tasks.submit(on.nest(i));
    on.run();
    CHECK(on.most == r.most);
    CHECK(on.tasks.stats().succeeded == 6);
  }
}

TEST_CASE("2.11, 6.3 under a lowered limit nothing starts until fewer run, and those that run finish") {
  nesting_stage on;
  numbers ended;
  for (int i = 0; i != 3; ++i)
    on.tasks.submit([&, i] {
      on.nest(i, 3, [&] {
        on.tasks.set_max_in_flight(2);
        for (int j = 3; j != 6; ++j) on.tasks.submit(on.nest(j));
        CHECK(on.pool.size() == 0);
      })();
      ended.push_back(i);
      CHECK(on.began.size() == (i == 0 ? 6 : 3));
    });
  on.run();
  // When 2 had ended, two still ran: no room. When 1 had, its worker took the others, one after the other.
  CHECK(on.began == numbers{0, 1, 2, 3, 4, 5});
  CHECK(ended == numbers{2, 1, 0});
  CHECK(on.most == 3);
}

TEST_CASE("6.3 the limit of the options and that of the call are one: the latest counts") {
  nesting_stage on({.max_in_flight = 2});
  const auto most = [&on] {
    on.most = 0;
    for (int i = 0; i != 4; ++i) on.tasks.submit(on.nest(i));
    on.run();
    return on.most;
  };
  CHECK(most() == 2);
  on.tasks.set_max_in_flight(3);
  CHECK(most() == 3);
  CHECK_THROWS_AS(on.tasks.set_max_in_flight(0), std::invalid_argument);
  CHECK(most() == 3);  // a refusal changes nothing
  on.tasks.set_max_in_flight({});
  CHECK(most() == 4);
  on.tasks.set_max_in_flight(~std::size_t{0});
  CHECK(most() == 4);
  on.tasks.set_max_in_flight(1);
  CHECK(most() == 1);
}

TEST_CASE("6.3 a task between two attempts leaves its place to others, and its retry needs one") {
  stage on({.retry = retry_policy{.initial_delay = 1s, .jitter = 0}, .max_in_flight = 1});
  numbers ran;
  on.tasks.submit("a", [&ran](attempt& a) {
    ran.push_back(0);
    if (a.number() == 1) throw 1;
  });
  on.tasks.submit("b", [&] {
    on.time.jump(1s);  // the retry is due
    CHECK(on.pool.size() == 0);
    ran.push_back(1);
  });
  on.run();
  CHECK(ran == numbers{0, 1, 0});
}

TEST_CASE("6.3 an observer may change the limit") {
  scheduler<std::string>* tasks = nullptr;
  nesting_stage on({.max_in_flight = 1, .observer = [&](const event<std::string>& e) {
                      if (e.kind == event_kind::started) tasks->set_max_in_flight(2);
                    }});
  tasks = &on.tasks;
  for (int i = 0; i != 4; ++i) on.tasks.submit(on.nest(i));
  on.run();
  CHECK(on.most == 2);
}

TEST_CASE("6.3 under an inline executor whoever raises the limit runs what has room now") {
  numbers ran;
  scheduler<int> s{turnkey::inline_executor{}, {.max_in_flight = 1}};
  s.submit(1, [&] {
    elsewhere([&] {
      s.submit(2, [&ran] { ran.push_back(2); });
      CHECK(ran.empty());
      s.set_max_in_flight(2);
      CHECK(ran == numbers{2});
    });
    ran.push_back(1);
  });
  CHECK(ran == numbers{2, 1});
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

TEST_CASE("6.4 a pace that is refused leaves the one that was") {
  stage on;
  int ran = 0;
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  for (int i = 0; i != 2; ++i) on.tasks.submit([&ran] { ++ran; });
  on.run();
  for (const pace p : {pace{.n = -0.0}, pace{.n = -std::numeric_limits<double>::infinity()}, pace{.interval = -1ns},
                       pace{.interval = turnkey::duration::min()}, pace{.burst = 0}})
    CHECK_THROWS_AS(on.tasks.set_pace(p), std::invalid_argument);
  on.pass(59min);
  CHECK(ran == 1);
  on.pass(1min);
  CHECK(ran == 2);
}

TEST_CASE("6.4 what was saved up while nothing started is a burst, and no more") {
  stage on;
  int ran = 0;
  on.tasks.set_pace(pace{.n = 1, .interval = 1s, .burst = 3});
  on.pass(1h);
  for (int i = 0; i != 10; ++i) on.tasks.submit([&ran] { ++ran; });
  on.run();
  CHECK(ran == 3);
  on.pass(2s);
  CHECK(ran == 5);
}

TEST_CASE("6.4 what has started before a pace was set does not count") {
  stage on;
  int ran = 0;
  for (int i = 0; i != 4; ++i) on.tasks.submit([&ran] { ++ran; });
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  on.run();
  CHECK(ran == 1);
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  on.run();
  CHECK(ran == 2);
}

TEST_CASE("6.4 a right to start that was revoked is there again") {
  stage on;
  numbers ran;
  on.tasks.set_pace(pace{.n = 1, .interval = 1h, .burst = 2});
  for (int i = 0; i != 3; ++i)
    on.tasks.submit("a", ordered, [&, i] {
      on.tasks.pause();
      on.tasks.resume();
      on.tasks.set_max_in_flight(7);
      ran.push_back(i);
    });
  on.run();
  CHECK(ran == numbers{0, 1});
  on.pass(1h);
  CHECK(ran == numbers{0, 1, 2});
}

namespace {

// A clock during whose next wake_at() something happens: after a worker got the right to start, before it starts.
struct meddled_time final : turnkey::time_source {
  [[nodiscard]] time_point now() noexcept override { return time; }
  void wake_at(time_point, turnkey::wake call) noexcept override {
    if (const auto meddle = std::exchange(next, {})) meddle(call);
  }

  time_point time{1h};
  std::function<void(const turnkey::wake&)> next;
};

}  // namespace

// The right of a worker that found nothing came back after the next one had started: a third started with that one.
TEST_CASE("6.4 a right that comes back late lets nobody start too early") {
  meddled_time time;
  turnkey::testing::manual_executor pool;
  std::vector<time_point> starts;
  scheduler<std::string> s{pool, {.time = &time}};
  const auto note = [&] { starts.push_back(time.time); };
  s.set_pace(pace{.n = 1, .interval = 1s});
  const task_id gone = s.submit("a", note);
  s.submit("b", note);
  s.submit("c", note);
  time.next = [&](const turnkey::wake& ring) {
    s.cancel(gone);
    time.time += 1s;
    elsewhere([&] {
      ring();
      pool.run_one();
    });
  };
  pool.run_all();
  CHECK(starts == std::vector{time_point{1h + 1s}});
  CHECK(s.stats().ready == 1);
}

TEST_CASE("6.4 an observer may change the pace") {
  scheduler<std::string>* tasks = nullptr;
  stage on({.observer = [&](const event<std::string>& e) {
    if (e.kind == event_kind::cancelled) tasks->set_pace({});
    if (e.kind == event_kind::submitted && !e.key) tasks->set_pace(pace{.n = 1, .interval = 1h});
  }});
  tasks = &on.tasks;
  int ran = 0;
  on.tasks.submit([&ran] { ++ran; });
  const task_id id = on.tasks.submit("a", {.delay = 10h}, [] {});
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 1);
  on.tasks.cancel(id);
  on.run();
  CHECK(ran == 4);
}

TEST_CASE("6.4 under an inline executor the thread that moves the clock runs what the pace lets through") {
  turnkey::testing::manual_time time;
  numbers ran;
  scheduler<int> s{turnkey::inline_executor{}, {.time = &time}};
  s.set_pace(pace{.n = 1, .interval = 1s});
  for (int i = 0; i != 4; ++i) s.submit(1, [&ran, i] { ran.push_back(i); });
  CHECK(ran == numbers{0});
  time.advance(2s);
  CHECK(ran == numbers{0, 1, 2});
  s.set_pace({});
  CHECK(ran == numbers{0, 1, 2, 3});
}

TEST_CASE("6.1, 6.2, 6.3, 6.4 a pause, steps, the limit and the pace at once: all of them apply") {
  nesting_stage on({.max_in_flight = 1});
  on.tasks.set_pace(pace{.n = 1, .interval = 1s, .burst = 2});
  on.tasks.pause();
  for (int i = 0; i != 6; ++i) on.tasks.submit(on.nest(i));
  on.pass(10s);
  CHECK(on.began.empty());
  on.tasks.step(3);
  on.run();
  CHECK(on.began.size() == 2);  // the burst
  on.pass(10s);
  CHECK(on.began.size() == 3);  // the steps
  on.tasks.resume();
  on.run();
  CHECK(on.began.size() == 5);  // the burst
  on.pass(1s);
  CHECK(on.began.size() == 6);
  CHECK(on.most == 1);  // the limit
}

// Random operations of every kind; the rule is looked at for every pair of starts, in whole numbers.
TEST_CASE("6.4 in a random program no window between two starts has too many") {
  for (std::uint32_t seed = 0; seed != 60; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::uint32_t n) { return static_cast<int>(random() % n); };
    std::vector<time_point> starts;
    bool wrong = false;
    std::optional<pace> now;
    const auto look = [&] {
      for (std::size_t i = 0; now && i != starts.size(); ++i)
        for (std::size_t j = i; j != starts.size(); ++j) {
          const auto count = static_cast<std::int64_t>(j - i + 1);
          const auto allowed = static_cast<std::int64_t>(now->n) * (starts[j] - starts[i]).count();
          wrong = wrong || (count - now->burst) * now->interval.count() > allowed;
        }
      starts.clear();
    };
    stage on({.retry = retry_policy{.max_attempts = 3, .initial_delay = 5ms, .jitter = 0.5},
              .observer =
                  [&starts](const event<std::string>& e) {
                    if (e.kind == event_kind::started) starts.push_back(e.time);
                  },
              .jitter_seed = seed});
    std::vector<task_id> ids;
    for (int i = 0; i != 250; ++i) {
      const std::string key(1, static_cast<char>('a' + below(3)));
      switch (below(12)) {
        case 0:
        case 1:
        case 2:
          ids.push_back(on.tasks.submit(key, {.policy = static_cast<policy>(below(3)), .delay = below(3) * 3ms},
                                        [fails = below(3)](attempt& a) {
                                          if (static_cast<int>(a.number()) <= fails) throw 1;
                                        }));
          break;
        case 3: on.tasks.pause(); break;
        case 4: on.tasks.resume(); break;
        case 5: on.tasks.step(static_cast<std::size_t>(below(3))); break;
        case 6: on.tasks.pause(key); break;
        case 7: on.tasks.resume(key); break;
        case 8:
          on.tasks.set_max_in_flight(below(2) == 0 ? std::nullopt : std::optional<std::size_t>(1 + below(2)));
          break;
        case 9:
          if (ids.empty()) break;
          if (below(2) == 0) {
            on.tasks.expedite(ids[static_cast<std::size_t>(below(static_cast<std::uint32_t>(ids.size())))]);
          } else {
            on.tasks.cancel(ids[static_cast<std::size_t>(below(static_cast<std::uint32_t>(ids.size())))]);
          }
          break;
        case 10:
          if (below(4) != 0) break;
          look();
          now.reset();
          if (below(4) != 0)
            now = pace{.n = static_cast<double>(1 + below(5)),
                       .interval = (1 + below(40)) * 1ms,
                       .burst = static_cast<std::uint32_t>(1 + below(4))};
          on.tasks.set_pace(now);
          break;
        default: on.pass(below(20) * 1ms + turnkey::duration{below(3)}); break;
      }
      if (below(3) != 0) on.run();
    }
    look();
    CHECK(!wrong);
    on.tasks.set_pace({});
    on.tasks.resume();
    for (const char* key : {"a", "b", "c"}) on.tasks.resume(key);
    on.pass(1h);
    CHECK(on.tasks.stats().unfinished() == 0);
  }
}

// ---- 6.6 all independent

namespace {

// A stage in whose only callback everything can be against one task, each switched off on its own.
struct blocked_stage : stage {
  static constexpr std::array all{why::reason::key_held, why::reason::key_paused, why::reason::paused,
                                  why::reason::max_in_flight, why::reason::pace};

  blocked_stage() : stage({.dead_action = turnkey::dead_action::hold_key}) {
    tasks.submit("a", ordered, [] { throw 1; });
    run();
    tasks.set_pace(pace{.n = 1, .interval = 1h});
  }

  // Everything is switched on in a callback; `then` is called in it.
  template <class Then>
  void block(Then then) {
    tasks.submit("b", [this, then] {
      id = tasks.submit("a", ordered, [this] { ran = true; });
      tasks.pause();
      tasks.pause("a");
      tasks.set_max_in_flight(1);
      then();
    });
    run();
  }
  void undo(why::reason which) {
    switch (which) {
      case why::reason::key_held: CHECK(tasks.release("a")); break;
      case why::reason::key_paused: CHECK(tasks.resume("a")); break;
      case why::reason::paused: CHECK(tasks.resume()); break;
      case why::reason::max_in_flight: tasks.set_max_in_flight({}); break;
      default: tasks.set_pace({});
    }
  }
  // Whether exactly `on` are on, as far as one can see.
  void look(const std::array<bool, 5>& on) {
    CHECK(tasks.held_keys().size() == on[0]);
    CHECK(tasks.paused_keys().size() == on[1]);
    CHECK(tasks.paused() == on[2]);
    CHECK(tasks.stats().held_keys == on[0]);
    CHECK(tasks.stats().paused_keys == on[1]);
    for (std::size_t i = 0; i != all.size(); ++i)
      if (on[i]) {
        CHECK(tasks.find(id)->why.kind == all[i]);  // the first that holds
        return;
      }
  }

  task_id id{};
  bool ran = false;
};

}  // namespace

TEST_CASE("6.6 limits, pauses and holds are independent: undoing one never undoes another, in whatever order") {
  std::array order{0, 1, 2, 3, 4};
  do {
    blocked_stage on;
    on.block([&] {
      std::array left{true, true, true, true, true};
      on.look(left);
      for (const int each : order) {
        elsewhere([&] { on.run(); });
        CHECK(!on.ran);
        const auto which = static_cast<std::size_t>(each);
        on.undo(blocked_stage::all[which]);
        left[which] = false;
        on.look(left);
      }
      elsewhere([&] { on.run(); });
      CHECK(on.ran);
    });
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST_CASE("6.6 setting one, or setting it again, never changes another") {
  blocked_stage on;
  on.block([&] {
    std::array is{true, true, true, true, true};
    std::mt19937 random(6);
    for (int i = 0; i != 200; ++i) {
      const std::size_t which = 1 + random() % 3;
      const bool set = random() % 2 != 0;
      if (which == 1) CHECK((set ? on.tasks.pause("a") : on.tasks.resume("a")) == (set != is[1]));
      if (which == 2) CHECK((set ? on.tasks.pause() : on.tasks.resume()) == (set != is[2]));
      if (which == 3) on.tasks.set_max_in_flight(set ? std::optional<std::size_t>(1) : std::nullopt);
      is[which] = set;
      on.look(is);
    }
    CHECK(on.tasks.release("a"));
    is[0] = false;
    on.look(is);
  });
  CHECK(!on.ran);
}

TEST_CASE("6.5, 6.6 cancel works in every state, and undoes no pause and no hold") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  auto witness = std::make_shared<int>();
  const task_id holder = on.tasks.submit("held", ordered, [] { throw 1; });
  on.run();
  on.tasks.set_pace(pace{.n = 1, .interval = 1h});
  on.tasks.submit("other", [] {});
  on.run();  // the pace is used up
  on.tasks.pause();
  on.tasks.pause("paused");
  std::vector<task_id> ids;
  for (const char* key : {"held", "paused", "stepped", "stepped", "resting"})
    ids.push_back(on.tasks.submit(key, {.delay = key == std::string("resting") ? 1h : 0h}, [witness] {}));
  for (const std::size_t i : {2U, 3U}) CHECK(on.tasks.step(ids[i]));
  for (const task_id id : ids) {
    CHECK(on.tasks.cancel(id));
    CHECK(!on.tasks.cancel(id));
  }
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().cancelled == 5);
  CHECK(on.tasks.stats().unfinished() == 0);
  CHECK(on.tasks.paused());
  CHECK(on.tasks.paused_keys() == strings{"paused"});
  CHECK(on.tasks.held_keys() == strings{"held"});
  CHECK(on.tasks.stats().keys == 2);
  CHECK(!on.tasks.cancel(holder));
  on.tasks.set_pace({});
  on.tasks.resume();
  on.pass(2h);
  CHECK(on.tasks.stats().started == 2);
}

TEST_CASE("6.2, 6.5 steps that a cancelled task had are there for others") {
  stage on;
  int ran = 0;
  on.tasks.pause();
  on.tasks.step(2);
  on.run();
  const task_id id = on.tasks.submit("a", [] {});
  CHECK(on.tasks.cancel(id));
  on.run();
  for (int i = 0; i != 3; ++i) on.tasks.submit("b", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 2);
}

TEST_CASE("6.5 a running task under pauses is cancelled as ever") {
  stage on({.retry = retry_policy{}});
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    on.tasks.pause();
    on.tasks.pause("a");
    CHECK(on.tasks.cancel("a") == 1);
    CHECK(a.stop_requested());
    throw 1;
  });
  on.pass(1h);
  CHECK(on.tasks.stats().cancelled == 1);
  CHECK(on.tasks.stats().started == 1);
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

TEST_CASE("6, 10.2 after close() control works as before") {
  stage on;
  numbers ran;
  on.tasks.pause();
  on.tasks.pause("a");
  on.tasks.submit("a", [&ran] { ran.push_back(0); });
  for (int i = 1; i != 4; ++i) on.tasks.submit("b", ordered, [&ran, i] { ran.push_back(i); });
  const task_id delayed = on.tasks.submit("c", {.delay = 1h}, [&ran] { ran.push_back(4); });
  on.tasks.close();
  CHECK(on.tasks.step());
  on.run();
  CHECK(ran == numbers{1});
  CHECK(on.tasks.expedite(delayed));
  CHECK(on.tasks.step(delayed));
  on.run();
  CHECK(ran == numbers{1, 4});
  on.tasks.set_max_in_flight(1);
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});
  CHECK(on.tasks.resume());
  on.pass(2s);
  CHECK(ran == numbers{1, 4, 2, 3});
  CHECK(on.tasks.resume("a"));
  CHECK(on.tasks.pause("new"));
  CHECK(on.tasks.resume("new"));
  on.pass(2s);
  CHECK(ran == numbers{1, 4, 2, 3, 0});
  CHECK(on.tasks.drain() == turnkey::drain_result::drained);
}

TEST_CASE("6, 10.3 after stop() every answer is defined, whatever was set before") {
  for (const bool before : {true, false}) {
    CAPTURE(before);
    stage on;
    if (before) {
      on.tasks.pause();
      on.tasks.pause("a");
      on.tasks.step(5);
      on.tasks.set_pace(pace{.n = 1, .interval = 1h});
    }
    on.tasks.submit("a", [] {});
    const task_id id = on.tasks.submit("b", {.delay = 1h}, [] {});
    CHECK(on.tasks.stop().size() == 2);
    for (int i = 0; i != 2; ++i) {
      CHECK(!on.tasks.step(3));
      CHECK(!on.tasks.step(id));
      CHECK(!on.tasks.expedite(id));
      CHECK(!on.tasks.pause("a"));
      CHECK(!on.tasks.pause("new"));
      CHECK(!on.tasks.resume("new"));
      CHECK(!on.tasks.find(id));
      CHECK_THROWS_AS(on.tasks.set_max_in_flight(0), std::invalid_argument);
      CHECK_THROWS_AS(on.tasks.set_pace(pace{.n = 0}), std::invalid_argument);
      on.tasks.set_max_in_flight(1);
      on.tasks.set_pace(pace{});
      on.tasks.set_pace({});
      CHECK(!on.tasks.pause());
      CHECK(!on.tasks.resume());
      CHECK(on.tasks.paused() == before);
    }
    CHECK(on.tasks.paused_keys().size() == (before ? 1 : 0));
    CHECK(on.tasks.resume("a") == before);
    CHECK(on.tasks.paused_keys().empty());
    CHECK(on.tasks.stats().paused_keys == 0);
    on.pass(2h);
    CHECK(on.tasks.stats().started == 0);
  }
}

TEST_CASE("6, 10.3 after a stop() inside, in that callback, nothing starts and nothing hangs") {
  stage on;
  int ran = 0;
  on.tasks.submit("a", [&](attempt& a) {
    on.tasks.pause();
    CHECK(on.tasks.stop().size() == 1);
    CHECK(!on.tasks.step());
    CHECK(!on.tasks.step(a.id()));
    CHECK(!on.tasks.expedite(a.id()));
    CHECK(!on.tasks.pause("a"));
    CHECK(!on.tasks.resume("a"));
    on.tasks.set_max_in_flight(9);
    on.tasks.set_pace(pace{});
    CHECK(!on.tasks.resume());
    ++ran;
  });
  on.tasks.submit("b", [&ran] { ++ran; });
  on.run();
  CHECK(ran == 1);
  CHECK(on.pool.size() == 0);
}

TEST_CASE("6.1, 10.1 drain waits for what is paused") {
  stage on;
  on.tasks.pause("a");
  on.tasks.submit("a", [] {});
  on.run();
  CHECK(on.tasks.drain_for(0s) == turnkey::drain_result::timed_out);
  on.tasks.resume("a");
  on.run();
  CHECK(on.tasks.drain() == turnkey::drain_result::drained);
}

TEST_CASE("6.1, 10.4 a scheduler may be destroyed with everything paused and steps and passes unused") {
  auto witness = std::make_shared<int>();
  {
    stage on;
    on.tasks.pause();
    on.tasks.pause("a");
    on.tasks.step(on.tasks.submit("b", [witness] {}));
    on.tasks.submit("a", [witness] {});
    on.tasks.step(4);
  }
  CHECK(witness.use_count() == 1);
}

// A second step(id) let the retry of the task pass, too (found by the simulation).
TEST_CASE("6.2 step(id) twice lets the task pass once") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 1ms, .jitter = 0}});
  on.tasks.pause();
  on.tasks.set_pace(pace{.n = 1, .interval = 1s});  // the second pass would have to wait
  const task_id id = on.tasks.submit("a", [] { throw 1; });
  CHECK(on.tasks.step(id));
  CHECK(on.tasks.step(id));
  on.pass(1min);
  CHECK(on.tasks.stats().started == 1);
}
