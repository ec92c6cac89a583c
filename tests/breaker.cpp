#include <turnkey/breaker.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
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

TEST_CASE("6.1 breaker: postponed and cancelled attempts do not count") {
  guarded g({.failures = 1, .window = 1});
  g.on.tasks.submit("k", [](attempt&) { return outcome::postpone(1h); });
  g.on.tasks.submit("k", [&g](attempt& a) {
    g.on.tasks.cancel(a.id());
    return outcome::retry();
  });
  g.on.run();
  CHECK(!g.b.is_open());
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
  std::atomic<bool> down{false};
  std::atomic<int> opened{0};
  breaker b({.failures = 3, .window = 4}, [&opened](bool open) { opened += open; });
  turnkey::thread_pool pool{3};
  turnkey::scheduler<int> s{pool,
                            {.default_policy = policy::ordered,
                             .retry = retry_policy{.max_attempts = ~0U, .initial_delay = 10us, .jitter = 0},
                             .observer = b.watch<int>()}};
  b.guard(s);
  for (int i = 0; i != 2000; ++i) {
    s.submit(i % 7, [&down] { return down ? outcome::retry() : outcome::success(); });
    if (i % 200 == 0) down = !down;
  }
  down = false;
  while (s.drain_for(1ms) != turnkey::drain_result::drained) b.reset();
  CHECK(s.stats().succeeded == 2000);
  CHECK(s.stats().died == 0);
}
