#include <turnkey/breaker.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::breaker;
using turnkey::breaker_options;
using turnkey::event;
using turnkey::event_kind;
using turnkey::outcome;
using turnkey::policy;
using turnkey::retry_policy;
using namespace std::chrono_literals;

namespace {

using bools = std::vector<bool>;

// A scheduler with a breaker; tasks fail while the store is down.
struct guarded {
  explicit guarded(breaker_options o, turnkey::options<std::string> set = {})
      : b(o, [this](bool open) { told.push_back(open); }), on(watched(std::move(set))) {
    b.guard(on.tasks);
  }
  turnkey::options<std::string> watched(turnkey::options<std::string> set) {
    set.observer = b.watch<std::string>(std::move(set.observer));
    return set;
  }
  void submit(int count) {
    for (int i = 0; i != count; ++i) on.tasks.submit("k", {.policy = policy::ordered}, [this] { return write(); });
  }
  outcome write() {
    ++attempts;
    return down ? outcome::retry("down") : outcome::success();
  }

  bools told;
  bool down = false;
  int attempts = 0;
  breaker b;
  stage on;
};

// A breaker told of attempts by hand, and what stands in for its scheduler: `during_*` happens inside the call, once.
struct puppet {
  explicit puppet(breaker_options o) : b(o, [this](bool open) { told.push_back(open); }), hear(b.watch<int>()) {
    b.guard(*this);
  }
  bool pause() {
    if (during_pause) std::exchange(during_pause, nullptr)();
    return !std::exchange(is_paused, true);
  }
  void resume() {
    if (during_resume) std::exchange(during_resume, nullptr)();
    is_paused = false;
  }
  bool paused() {
    const bool now = is_paused;
    if (during_paused) std::exchange(during_paused, nullptr)();
    return now;
  }
  turnkey::stats stats() {
    if (during_stats) std::exchange(during_stats, nullptr)();
    return {.started = starts};
  }

  // Starts that the scheduler counts and the breaker hears of, and ends of attempts.
  void start(int id) {
    ++starts;
    tell(event_kind::started, id);
  }
  void fail(int id) { tell(event_kind::failed, id); }
  void succeed(int id) { tell(event_kind::succeeded, id); }
  void tell(event_kind kind, int id) {
    const event<int> e{.kind = kind, .id = turnkey::task_id{static_cast<std::uint64_t>(id)}};
    hear(e);
  }

  bools told;
  bool is_paused = false;
  std::uint64_t starts = 0;
  std::function<void()> during_pause;
  std::function<void()> during_resume;
  std::function<void()> during_paused;
  std::function<void()> during_stats;
  breaker b;
  turnkey::observer<int> hear;
};

}  // namespace

TEST_CASE("6.1 breaker: it opens at so many failures of the last so many attempts, and pauses") {
  guarded g({.failures = 3, .window = 5});
  const auto writes = [&](std::initializer_list<bool> fine) {
    for (const bool f : fine) g.on.tasks.submit("k", [f] { return f ? outcome::success() : outcome::retry(); });
    g.on.run();
  };
  writes({false, false, true, true, true, false, false});  // never 3 of 5
  CHECK(!g.b.is_open());
  CHECK(!g.on.tasks.paused());
  writes({false});
  CHECK(g.b.is_open());
  CHECK(g.on.tasks.paused());
  CHECK(g.told == bools{true});
}

TEST_CASE("6.1 breaker: doomed work does not walk through all its retries") {
  guarded g({.failures = 4, .window = 4}, {.retry = retry_policy{.max_attempts = 3, .initial_delay = 1s, .jitter = 0}});
  g.down = true;
  for (int i = 0; i != 100; ++i) g.on.tasks.submit(std::to_string(i), [&g] { return g.write(); });
  g.on.pass(1h);
  CHECK(g.attempts == 4);
  CHECK(g.on.tasks.stats().died == 0);
  g.down = false;
  CHECK(g.b.reset());
  CHECK(!g.b.reset());
  g.on.pass(1h);
  CHECK(g.on.tasks.stats().succeeded == 100);
  CHECK(g.told == bools{true, false});
}

TEST_CASE("6.2 breaker: a step that fails leaves it open, one that succeeds closes it") {
  guarded g({.failures = 2, .window = 2}, {.retry = retry_policy{.max_attempts = 9, .initial_delay = 1s, .jitter = 0}});
  g.down = true;
  g.submit(1);
  g.on.pass(1min);
  CHECK(g.attempts == 2);
  CHECK(g.on.tasks.step());
  g.on.pass(1min);
  CHECK(g.attempts == 3);
  CHECK(g.b.is_open());
  g.down = false;
  g.submit(5);
  CHECK(g.on.tasks.step());
  g.on.pass(1min);
  CHECK(!g.b.is_open());
  CHECK(!g.on.tasks.paused());
  CHECK(g.on.tasks.stats().succeeded == 6);
  CHECK(g.told == bools{true, false});
}

TEST_CASE("6.1 breaker: what ran already when it opened changes nothing") {
  guarded g({.failures = 1, .window = 1});
  g.on.tasks.submit("slow", [&g] {
    g.down = true;
    std::thread([&g] { g.on.pool.run_one(); }).join();  // fails meanwhile
    CHECK(g.b.is_open());
  });
  g.submit(1);
  g.on.pool.run_one();
  CHECK(g.on.tasks.stats().succeeded == 1);
  CHECK(g.b.is_open());
  CHECK(g.on.tasks.paused());
}

TEST_CASE("6.1 breaker: resuming by hand closes it, with a fresh window") {
  guarded g({.failures = 2, .window = 3});
  g.down = true;
  g.submit(2);
  g.on.run();
  CHECK(g.b.is_open());
  CHECK(g.on.tasks.resume());
  CHECK(g.b.is_open());  // until something starts
  g.submit(1);
  g.on.run();
  CHECK(!g.b.is_open());  // one failure of the new window
  g.submit(1);
  g.on.run();
  CHECK(g.b.is_open());
  CHECK(g.told == bools{true, false, true});
}

TEST_CASE("6.1 breaker: what started in the visit that told of the failure is no step") {
  // It was: the breaker heard of that start when it had paused the scheduler already, and closed when it succeeded.
  guarded g({.failures = 1, .window = 1});
  g.on.tasks.submit("k", {.policy = policy::ordered}, [] { return outcome::dead(); });
  g.submit(2);
  g.on.run();
  CHECK(g.attempts == 1);
  CHECK(g.b.is_open());
  CHECK(g.told == bools{true});
  CHECK(g.on.tasks.stats().ready == 1);
}

TEST_CASE("6.1 breaker: it is open when every start before the pause has been heard of") {
  puppet p({.failures = 1, .window = 1});
  p.start(1);
  ++p.starts;  // of 2, whose event is late
  p.fail(1);
  CHECK(p.is_paused);
  CHECK(!p.b.is_open());
  CHECK(p.told.empty());
  p.tell(event_kind::started, 2);
  CHECK(p.b.is_open());
  p.succeed(2);
  CHECK(p.b.is_open());
  p.start(3);
  p.succeed(3);
  CHECK(!p.b.is_open());
  CHECK(!p.is_paused);
  CHECK(p.told == bools{true, false});
}

TEST_CASE("6.1 breaker: failed and dead attempts count, postponed and cancelled ones do not") {
  struct row {
    const char* name;
    turnkey::outcome (*callback)(guarded&, attempt&);
    bool opens;
  };
  const row rows[] = {
      {"succeeds", [](guarded&, attempt&) { return outcome::success(); }, false},
      {"retry", [](guarded&, attempt&) { return outcome::retry(); }, true},
      {"retry_after", [](guarded&, attempt&) { return outcome::retry_after(1h); }, true},
      {"dead by asking", [](guarded&, attempt&) { return outcome::dead(); }, true},
      {"throws", [](guarded&, attempt&) -> outcome { throw 1; }, true},
      {"postponed", [](guarded&, attempt&) { return outcome::postpone(1h); }, false},
      {"postponed once too often", [](guarded&, attempt&) { return outcome::postpone(0s); }, false},
      {"cancelled",
       [](guarded& g, attempt& a) {
         g.on.tasks.cancel(a.id());
         return outcome::retry();
       },
       false},
  };
  for (const row& each : rows) {
    CAPTURE(each.name);
    guarded g({.failures = 1, .window = 1}, {.retry = retry_policy{.max_attempts = 2, .max_postpones = 1}});
    g.on.tasks.submit("k", [&](attempt& a) { return each.callback(g, a); });
    g.on.run();
    CHECK(g.b.is_open() == each.opens);
    CHECK(g.on.tasks.paused() == each.opens);
  }
}

TEST_CASE("6.2 breaker: a step that is postponed leaves it open") {
  guarded g({.failures = 1, .window = 1});
  g.down = true;
  g.submit(1);
  g.on.run();
  g.on.tasks.submit("other", [] { return outcome::postpone(1h); });
  CHECK(g.on.tasks.step());
  g.on.run();
  CHECK(g.on.tasks.stats().postponed == 1);
  CHECK(g.b.is_open());
}

TEST_CASE("6.2 breaker: of more steps at once than it remembers, the last ones close it") {
  puppet p({.failures = 1, .window = 1});
  p.start(1);
  p.fail(1);
  for (int id = 100; id != 165; ++id) p.start(id);  // one too many
  p.succeed(100);
  CHECK(p.b.is_open());
  p.succeed(101);
  CHECK(!p.b.is_open());
}

TEST_CASE("6.1 breaker: the user's function may set a limit before anything starts again") {
  breaker* own = nullptr;
  stage* at = nullptr;
  breaker b({.failures = 1, .window = 1}, [&](bool open) {
    CHECK(at->tasks.paused());
    CHECK(own->is_open() == open);
    if (!open) at->tasks.set_max_in_flight(1);
  });
  stage on({.observer = b.watch<std::string>()});
  own = &b;
  at = &on;
  b.guard(on.tasks);
  int running = 0;
  int most = 0;
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  for (int i = 0; i != 3; ++i)
    on.tasks.submit([&] {
      most = std::max(most, ++running);
      std::thread([&] { on.run(); }).join();
      --running;
    });
  CHECK(b.reset());
  on.run();
  CHECK(most == 1);
}

TEST_CASE("6.1 breaker: the user's function may step and reset") {
  breaker* own = nullptr;
  bools told;
  breaker b({.failures = 1, .window = 1}, [&](bool open) {
    told.push_back(open);
    if (open) CHECK(own->reset());
    CHECK(!own->reset());
  });
  stage on({.observer = b.watch<std::string>()});
  own = &b;
  b.guard(on.tasks);
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  CHECK(!b.is_open());
  CHECK(!on.tasks.paused());
  CHECK(told == bools{true, false});
}

TEST_CASE("6.1 breaker: a pause of the user's own is not undone") {
  guarded g({.failures = 1, .window = 1});
  g.down = true;
  g.on.tasks.pause();
  g.submit(2);
  g.on.tasks.step();
  g.on.run();
  CHECK(g.b.is_open());
  g.down = false;
  g.on.tasks.step();
  g.on.run();
  CHECK(!g.b.is_open());
  CHECK(g.on.tasks.paused());
}

TEST_CASE("6.2 breaker: a step that outlives its opening closes no later one") {
  puppet p({.failures = 1, .window = 1});
  p.start(1);
  p.fail(1);
  p.start(2);
  CHECK(p.b.reset());
  p.start(3);
  p.fail(3);
  p.succeed(2);
  CHECK(p.b.is_open());
}

TEST_CASE("6.1 breaker: reset while it pauses the scheduler lets it go on") {
  for (const auto during : {&puppet::during_pause, &puppet::during_stats}) {
    puppet p({.failures = 1, .window = 1});
    p.start(1);
    p.*during = [&p] { CHECK(p.b.reset()); };
    p.fail(1);
    CHECK(!p.is_paused);
    CHECK(!p.b.is_open());
    CHECK(p.told.empty());
  }
}

TEST_CASE("6.1 breaker: resumed by hand, reset, and opened again meanwhile, it is open") {
  for (const bool late : {false, true}) {
    puppet p({.failures = 1, .window = 1});
    p.start(1);
    p.start(2);
    p.fail(1);
    p.is_paused = false;  // by hand
    p.during_paused = [&] {
      CHECK(p.b.reset());
      p.starts += late;
      p.fail(2);
    };
    p.start(3);
    if (late) p.tell(event_kind::started, 4);
    CHECK(p.b.is_open());
    CHECK(p.is_paused);
  }
}

TEST_CASE("6.1 breaker: failures while it resumes the scheduler open it again") {
  puppet p({.failures = 1, .window = 1});
  p.start(1);
  p.start(2);
  p.fail(1);
  p.during_resume = [&p] { p.fail(2); };
  CHECK(p.b.reset());
  CHECK(p.b.is_open());
  CHECK(p.is_paused);
  CHECK(p.told == bools{true, false, true});
}

TEST_CASE("6.1 breaker: it opens again inside the resume that runs tasks inline") {
  int attempts = 0;
  bools told;
  breaker b({.failures = 3, .window = 3}, [&told](bool open) { told.push_back(open); });
  turnkey::scheduler<int> s{turnkey::inline_executor{}, {.observer = b.watch<int>()}};
  b.guard(s);
  s.pause();
  for (int i = 0; i != 100; ++i)
    s.submit(i, [&attempts] {
      ++attempts;
      return outcome::dead();
    });
  s.resume();
  CHECK(attempts == 3);
  CHECK(b.reset());
  CHECK(attempts == 6);
  CHECK(b.is_open());
  CHECK(told == bools{true, false, true});
}

TEST_CASE("6.1 breaker: without a scheduler it tells") {
  bools told;
  breaker b({.failures = 1, .window = 1}, [&told](bool open) { told.push_back(open); });
  stage on({.observer = b.watch<std::string>()});
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  CHECK(b.is_open());
  CHECK(b.reset());
  CHECK(told == bools{true, false});
}

TEST_CASE("6.2 breaker: without a scheduler the next attempt is its step") {
  bools told;
  breaker b({.failures = 1, .window = 1}, [&told](bool open) { told.push_back(open); });
  stage on({.observer = b.watch<std::string>()});
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  CHECK(b.is_open());
  on.tasks.submit([] {});
  on.run();
  CHECK(!b.is_open());
  CHECK(told == bools{true, false});
}

TEST_CASE("6.1 breaker: nobody needs to be told") {
  breaker b({.failures = 1, .window = 1}, nullptr);
  stage on({.observer = b.watch<std::string>()});
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  CHECK(b.is_open());
  CHECK(b.reset());
  CHECK(!b.is_open());
}

TEST_CASE("9.4 breaker: a user's function that throws harms nothing") {
  std::size_t heard = 0;
  breaker b({.failures = 1, .window = 1}, [](bool) { throw std::runtime_error("told"); });
  stage on({.observer = b.watch<std::string>([&heard](const event<std::string>&) { ++heard; })});
  b.guard(on.tasks);
  on.tasks.submit([] { return outcome::dead(); });
  on.run();
  CHECK(heard == 3);
  CHECK(on.tasks.paused());
  CHECK(b.reset());
  CHECK(!on.tasks.paused());
}

TEST_CASE("9.4 breaker: every event goes on to the next observer") {
  std::vector<event_kind> heard;
  guarded g({}, {.observer = [&heard](const event<std::string>& e) { heard.push_back(e.kind); }});
  g.submit(1);
  g.on.run();
  CHECK(heard == std::vector{event_kind::submitted, event_kind::started, event_kind::succeeded});
}

TEST_CASE("6.1 breaker: options that make no sense are refused") {
  CHECK_THROWS_WITH_AS(breaker({.failures = 0}), "turnkey: breaker.failures is 0; 1 or more", std::invalid_argument);
  CHECK_THROWS_WITH_AS(breaker({.failures = 3, .window = 2}),
                       "turnkey: breaker.failures is 3, more than breaker.window, which is 2", std::invalid_argument);
}

TEST_CASE("6.1 breaker: opened and closed while many threads work, nothing is lost") {
  std::atomic<unsigned> writes{0};
  bools told;  // plain: one thread at a time tells
  breaker b({.failures = 3, .window = 4}, [&told](bool open) { told.push_back(open); });
  turnkey::thread_pool pool{3};
  turnkey::scheduler<int> s{
      pool,
      {.default_policy = policy::ordered,
       .retry = retry_policy{.max_attempts = ~0U, .initial_delay = 10us, .multiplier = 1, .jitter = 0},
       .observer = b.watch<int>()}};
  b.guard(s);
  for (int i = 0; i != 2000; ++i)
    s.submit(i % 7, [&writes] { return writes++ / 40 % 2 == 1 ? outcome::retry() : outcome::success(); });
  for (unsigned turn = 0; s.drain_for(100us) != turnkey::drain_result::drained; ++turn) {
    if (!b.is_open()) continue;
    if (turn % 3 == 0) s.step(2);
    if (turn % 3 == 1) b.reset();
    if (turn % 3 == 2) s.resume();
  }
  static_cast<void>(s.stop());
  CHECK(s.stats().succeeded == 2000);
  CHECK(s.stats().died == 0);
  CHECK(!told.empty());
  for (std::size_t i = 0; i != told.size(); ++i) CHECK(told[i] == (i % 2 == 0));
}
