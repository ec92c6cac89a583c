// Does everything at once on real threads and the real clock, round after round, each with a scheduler of its own that
// ends in one of the four ways; and looks at the history afterwards. The sleeps only vary when the end comes.
#include "stress/mix.hpp"

#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/history.hpp"
#include "support/hostile_pool.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace mix;
using turnkey::drain_result;
using turnkey::event_kind;

enum class observing { no, yes };

// What a pool keeps for ever stands in the way until it dies.
template <class Executor>
void die(Executor&) {}
void die(support::hostile_pool& pool) { pool.die(); }

// Until nothing is unfinished, whatever the pool does and whatever is held.
template <class Executor>
void drain(keyed& s, bool releases, Executor& executor) {
  while (s.drain_for(std::chrono::milliseconds{20}) != drain_result::drained) {
    die(executor);
    if (releases) {
      s.release_all();
    } else {
      s.discard_all();
    }
  }
}

void check_counters(const turnkey::stats& s) {
  CHECK(s.unfinished() == 0);
  CHECK(s.waiting == 0);
  CHECK(s.ready == 0);
  CHECK(s.running == 0);
  CHECK(s.delayed == 0);
  CHECK(s.submitted + s.redriven == s.succeeded + s.died + s.cancelled + s.undone);
  CHECK(s.keys == s.held_keys);
}

void check_history(support::history& heard, const turnkey::stats& s) {
  CHECK(heard.check() == "");
  CHECK(heard.count(event_kind::submitted) == s.submitted);
  CHECK(heard.count(event_kind::started) == s.started);
  CHECK(heard.count(event_kind::succeeded) == s.succeeded);
  CHECK(heard.count(event_kind::dead) == s.died);
  CHECK(heard.count(event_kind::cancelled) == s.cancelled);
  CHECK(heard.count(event_kind::undone) == s.undone);
  CHECK(heard.count(event_kind::redriven) == s.redriven);
  CHECK(heard.count(event_kind::evicted) == s.dead_evicted);
  CHECK(heard.count(event_kind::postponed) == s.postponed);
}

template <class Executor>
void round(Executor& executor, observing observed, std::uint64_t seed) {
  CAPTURE(seed);
  dice d(seed);
  world w;
  support::history first_heard;
  support::history second_heard;

  turnkey::options<int> settings = some_settings(d);
  const bool holds = d.chance(50);
  const bool releases = !holds || d.chance(50);
  if (holds) settings.dead_action = turnkey::dead_action::hold_key;
  settings.max_dead = releases ? d.below(100) : 1'000'000;
  turnkey::options<int> second_settings = settings;
  second_settings.first_fence = std::uint64_t{1} << 40;
  if (observed == observing::yes) {
    settings.observer = [&](const turnkey::event<int>& e) { first_heard.note(e); };
    second_settings.observer = [&](const turnkey::event<int>& e) { second_heard.note(e); };
    if (holds && !releases) first_heard.expect_holds();
  }

  turnkey::stats at_end;
  {
    keyed first(executor, settings);
    keyed second(executor, second_settings);
    w.scheduler = &first;
    const support::watchdog dog([&] {
      return "round " + std::to_string(seed) + "\n" + support::in_words(first.stats()) + "\n" +
             support::in_words(second.stats());
    });

    const auto until = turnkey::clock::now() + std::chrono::milliseconds(20 + d.below(100));
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0, n = 2 + d.below(2); i != n; ++i)
      threads.emplace_back([&, own = dice(seed * 31 + i)]() mutable {
        std::vector<turnkey::task_id> recent;
        while (turnkey::clock::now() < until) do_something(w, first, own, releases, recent);
      });
    threads.emplace_back([&] {
      while (turnkey::clock::now() < until)
        if (first.drain_for(std::chrono::milliseconds{3}) != drain_result::drained) die(executor);
    });
    const auto join = [&] {
      for (std::thread& t : threads) t.join();
    };

    switch (d.below(4)) {
      case 0:  // all is done
        join();
        drain(first, releases, executor);
        at_end = first.stats();
        break;
      case 1:  // closed while threads submit
        std::this_thread::sleep_until(until - std::chrono::milliseconds{15});
        first.close();
        join();
        drain(first, releases, executor);
        at_end = first.stats();
        break;
      default: {  // stopped while threads do everything; what is unfinished goes to another scheduler
        if (d.chance(50)) std::this_thread::sleep_until(until - std::chrono::milliseconds{15});
        if (d.chance(30)) join();
        auto undone = first.stop();
        at_end = first.stats();
        if (threads.front().joinable()) join();
        CHECK(undone.size() == at_end.undone);
        CHECK(first.stop().empty());
        w.scheduler = &second;
        for (auto& record : undone) {
          CHECK((record.state() == turnkey::task_state::waiting || record.state() == turnkey::task_state::ready ||
                 record.state() == turnkey::task_state::delayed));
          while (true) {
            try {
              w.accepted(second.submit(std::move(record)));
              break;
            } catch (const turnkey::rejected&) {  // full: its room comes
              if (second.drain_for(std::chrono::milliseconds{1}) != drain_result::drained) die(executor);
              if (holds) second.release_all();
            }
          }
        }
      }
    }
    drain(second, true, executor);
    check_counters(at_end);
    check_counters(second.stats());
    if (observed == observing::yes) check_history(second_heard, second.stats());
    CHECK(w.successes == at_end.succeeded + second.stats().succeeded);
  }
  if (observed == observing::yes) {
    check_history(first_heard, at_end);
    auto accepted = first_heard.accepted();
    const auto more = second_heard.accepted();
    accepted.insert(accepted.end(), more.begin(), more.end());
    std::sort(accepted.begin(), accepted.end());
    std::sort(w.ids.begin(), w.ids.end());
    CHECK(accepted == w.ids);
  }
  CHECK(w.flaws == 0);
  CHECK(w.callables == 0);
}

template <class MakeExecutor>
void rounds(const char* name, observing observed, MakeExecutor make) {
  dice d(support::stress_seed(name));
  const auto until = turnkey::clock::now() + support::stress_time();
  do {
    const std::uint64_t seed = d.roll();
    auto executor = make(seed);
    round(*executor, observed, seed);
  } while (turnkey::clock::now() < until);
}

}  // namespace

TEST_CASE("1, 2, 2.7, 6.5, 9.1, 10.1, 10.3 a thread_pool: what happens at once keeps every rule, seen by an observer") {
  rounds("thread_pool, observed", observing::yes,
         [](std::uint64_t seed) { return std::make_unique<turnkey::thread_pool>(2 + seed % 3); });
}

TEST_CASE("2.7, 10.1, 10.3 a thread_pool and nobody who observes: plain data of a key needs no lock") {
  rounds("thread_pool, not observed", observing::no,
         [](std::uint64_t seed) { return std::make_unique<turnkey::thread_pool>(2 + seed % 3); });
}

TEST_CASE("8, 8.3, 8.4, 8.6 a pool that misbehaves in every way loses nothing and runs nothing twice") {
  rounds("hostile pool, observed", observing::yes,
         [](std::uint64_t seed) { return std::make_unique<support::hostile_pool>(2 + seed % 3, seed, seed % 4); });
}

TEST_CASE("8, 8.2, 8.3, 8.4, 8.6 a pool that also keeps permits for ever, until it dies") {
  const auto make = [](std::uint64_t seed) {
    return std::make_unique<support::hostile_pool>(2 + seed % 3, seed, 1 + seed % 4,
                                                   support::hostile_pool::keeping::for_ever);
  };
  rounds("pool that keeps, observed", observing::yes, make);
}

TEST_CASE("2.7, 8, 8.3 a hostile pool and nobody who observes") {
  rounds("hostile pool, not observed", observing::no,
         [](std::uint64_t seed) { return std::make_unique<support::hostile_pool>(2 + seed % 3, seed, seed % 4); });
}

TEST_CASE("8.2, 2.7 an inline executor under several threads, and under the time source's") {
  rounds("inline, observed", observing::yes,
         [](std::uint64_t) { return std::make_unique<turnkey::inline_executor>(); });
  rounds("inline, not observed", observing::no,
         [](std::uint64_t) { return std::make_unique<turnkey::inline_executor>(); });
}
