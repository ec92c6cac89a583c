// Control while everything else goes on, on real threads and the real clock: what was paused, limited or paced keeps to
// it from the moment at which the call returned; nothing is lost; and what is paused costs nothing.
#include <turnkey/turnkey.hpp>

#include "stress/mix.hpp"
#include "support/dice.hpp"
#include "support/history.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using mix::keyed;
using support::dice;
using turnkey::drain_result;
using turnkey::event_kind;
using turnkey::policy;

template <class Once>
void repeat(const char* name, Once once) {
  dice d(support::stress_seed(name));
  const auto until = turnkey::clock::now() + support::stress_time();
  do {
    const std::uint64_t seed = d.roll();
    CAPTURE(seed);
    once(dice(seed));
  } while (turnkey::clock::now() < until);
}

turnkey::pace some_pace(dice& d) {
  return {.n = static_cast<double>(1 + d.below(3)),
          .interval = std::chrono::microseconds(1 + d.below(1500)),
          .burst = static_cast<std::uint32_t>(1 + d.below(4))};
}

// ---- everything at once

turnkey::task_id some_id(mix::world& w, dice& d) {
  const std::lock_guard lock(w.mutex);
  const std::size_t n = w.ids.size();
  return turnkey::task_id{n != 0 ? w.ids[n - 1 - d.below((std::min)(n, std::size_t{100}))] : 1};
}

void control_something(mix::world& w, keyed& s, dice& d) {
  const int key = static_cast<int>(d.below(mix::key_count));
  switch (d.below(16)) {
    case 0: s.pause(); break;
    case 1:
    case 2: s.resume(); break;
    case 3: s.step(d.below(5)); break;
    case 4: s.step(some_id(w, d)); break;
    case 5: s.pause(key); break;
    case 6:
    case 7: s.resume(key); break;
    case 8: s.expedite(some_id(w, d)); break;
    case 9: s.set_max_in_flight(1 + d.below(4)); break;
    case 10: s.set_max_in_flight({}); break;
    case 11: s.set_pace(some_pace(d)); break;
    case 12: s.set_pace({}); break;
    case 13: static_cast<void>(s.find(some_id(w, d))); break;
    case 14: static_cast<void>(s.busiest_keys(d.below(5))); break;
    default:
      static_cast<void>(s.paused_keys());
      s.cancel(some_id(w, d));
      break;
  }
}

void open_everything(keyed& s) {
  s.set_pace({});
  s.set_max_in_flight({});
  for (const int key : s.paused_keys()) s.resume(key);
  s.resume();
}

template <class Executor>
void race(Executor& executor, dice d) {
  mix::world w;
  support::history heard;
  auto settings = mix::some_settings(d);
  settings.observer = [&](const turnkey::event<int>& e) { heard.note(e); };
  {
    keyed s(executor, settings);
    w.scheduler = &s;
    const support::watchdog dog([&] { return support::in_words(s.stats()); });
    const auto until = turnkey::clock::now() + std::chrono::milliseconds(20 + d.below(80));
    std::vector<std::thread> threads;
    for (int i = 0; i != 2; ++i) {
      threads.emplace_back([&, own = dice(d.roll())]() mutable {
        std::vector<turnkey::task_id> recent;
        while (turnkey::clock::now() < until) mix::do_something(w, s, own, true, recent);
      });
      threads.emplace_back([&, own = dice(d.roll())]() mutable {
        while (turnkey::clock::now() < until) {
          control_something(w, s, own);
          if (own.chance(50)) std::this_thread::yield();
        }
      });
    }
    for (std::thread& t : threads) t.join();
    open_everything(s);
    CHECK(s.drain_for(50s) == drain_result::drained);
    const turnkey::stats at_end = s.stats();
    CHECK(at_end.submitted + at_end.redriven == at_end.succeeded + at_end.died + at_end.cancelled);
    CHECK(at_end.succeeded == w.successes);
    CHECK(at_end.unfinished() == 0);
    CHECK(at_end.keys == 0);
    CHECK(at_end.paused_keys == 0);
    CHECK(heard.check() == "");
    CHECK(heard.count(event_kind::started) == at_end.started);
    std::sort(w.ids.begin(), w.ids.end());
    CHECK(heard.accepted() == w.ids);
  }
  CHECK(w.flaws == 0);
  CHECK(w.callables == 0);
}

// ---- what has returned holds

// A scheduler that never runs out of tasks: threads keep it full while this lives.
class busy {
 public:
  explicit busy(dice& d, turnkey::thread_pool& pool)
      : scheduler(pool,
                  {.max_pending = 500,
                   .turn_budget = static_cast<std::uint32_t>(1 + d.below(16)),
                   .observer = [this](const turnkey::event<int>& e) { heard += e.kind == event_kind::started; }}) {
    for (int i = 0; i != 2; ++i)
      threads_.emplace_back([this, own = dice(d.roll())]() mutable {
        while (!over_)
          if (!submit(own)) std::this_thread::yield();
      });
  }
  busy(const busy&) = delete;
  busy& operator=(const busy&) = delete;
  ~busy() {
    over_ = true;
    for (std::thread& t : threads_) t.join();
    open_everything(scheduler);
    CHECK(scheduler.drain_for(50s) == drain_result::drained);
    CHECK(too_many == 0);
    CHECK(begun == scheduler.stats().started);
  }

  static constexpr int keys = 6;
  std::atomic<std::uint64_t> heard{0};  // `started` events
  std::atomic<std::uint64_t> begun{0};  // callbacks
  std::array<std::atomic<std::uint64_t>, keys> begun_of_key{};
  std::atomic<std::size_t> inside{0};
  std::atomic<std::size_t> allowed{(std::numeric_limits<std::size_t>::max)()};  // inside
  std::atomic<std::uint64_t> too_many{0};
  keyed scheduler;

 private:
  // Key 0 has ordered tasks alone.
  bool submit(dice& own) {
    const auto key = static_cast<std::size_t>(own.below(keys));
    const auto how = key == 0 ? policy::ordered : static_cast<policy>(own.below(3));
    return scheduler
        .try_submit(static_cast<int>(key), {.policy = how},
                    [this, key] {
                      ++begun;
                      ++begun_of_key[key];
                      if (++inside > allowed) ++too_many;
                      std::this_thread::yield();
                      --inside;
                    })
        .has_value();
  }

  std::atomic<bool> over_{false};
  std::vector<std::thread> threads_;
};

template <class Check>
void for_a_while(dice& d, Check check) {
  for (std::uint64_t i = 0, n = 5 + d.below(50); i != n; ++i) {
    std::this_thread::yield();
    check();
  }
}

// ---- a paused scheduler at rest

struct usage {
  std::chrono::microseconds cpu{};  // of the process
  long switches = 0;                // that the threads other than this one asked for
};
usage used_so_far() {
  rusage all{};
  rusage own{};
  getrusage(RUSAGE_SELF, &all);
  getrusage(RUSAGE_THREAD, &own);
  const auto of = [](const timeval& t) {
    return std::chrono::seconds{t.tv_sec} + std::chrono::microseconds{t.tv_usec};
  };
  return {of(all.ru_utime) + of(all.ru_stime), all.ru_nvcsw - own.ru_nvcsw};
}

}  // namespace

TEST_CASE("2.7, 6.1, 6.2, 6.3, 6.4, 6.6, 10.1 control on a thread_pool races with all else: every rule is kept") {
  repeat("control, thread_pool", [](dice d) {
    turnkey::thread_pool pool{2 + d.below(3)};
    race(pool, d);
  });
}

TEST_CASE("6.1, 6.2, 6.3, 6.4, 8.2 control under an inline executor races with all else") {
  repeat("control, inline", [](dice d) {
    turnkey::inline_executor executor;
    race(executor, d);
  });
}

// A start is counted under its key's lock: so what was not counted when pause() had returned must not be started later.
TEST_CASE("2.11, 6.1, 6.2 when pause() has returned nothing becomes running but what is stepped") {
  turnkey::thread_pool pool{3};
  repeat("pause", [&](dice d) {
    busy b(d, pool);
    const support::watchdog dog([&] { return support::in_words(b.scheduler.stats()); });
    for (int i = 0; i != 30; ++i) {
      b.scheduler.pause();
      std::uint64_t started = b.scheduler.stats().started;
      std::uint64_t wrong = 0;
      const auto look = [&] {
        wrong += b.scheduler.stats().started != started || b.begun > started || b.heard > started;
      };
      for_a_while(d, look);
      if (d.chance(50)) {
        const std::uint64_t steps = 1 + d.below(6);
        started += steps;
        b.scheduler.step(steps);
        while (b.scheduler.stats().started < started) std::this_thread::yield();
        for_a_while(d, look);
      }
      CHECK(wrong == 0);
      b.scheduler.resume();
      for_a_while(d, [] {});
    }
  });
}

// At most one task of the key is running when pause(key) returns, and its callback may still be about to begin.
TEST_CASE("2.11, 6.1 when pause(key) has returned nothing of an ordered key becomes running") {
  turnkey::thread_pool pool{3};
  repeat("pause(key)", [&](dice d) {
    busy b(d, pool);
    const support::watchdog dog([&] { return support::in_words(b.scheduler.stats()); });
    for (int i = 0; i != 30; ++i) {
      b.scheduler.pause(0);
      const std::uint64_t begun = b.begun_of_key[0];
      std::uint64_t wrong = 0;
      for_a_while(d, [&] { wrong += b.begun_of_key[0] > begun + 1; });
      CHECK(wrong == 0);
      b.scheduler.resume(0);
      for_a_while(d, [] {});
    }
  });
}

// The first start that the lowered limit allows is one at which no more run than it says; and then it stays so.
TEST_CASE("2.11, 6.3 when set_max_in_flight() has returned nothing becomes running against it") {
  turnkey::thread_pool pool{4};
  repeat("limit", [&](dice d) {
    busy b(d, pool);
    const support::watchdog dog([&] { return support::in_words(b.scheduler.stats()); });
    for (int i = 0; i != 30; ++i) {
      const std::size_t limit = 1 + d.below(3);
      b.scheduler.set_max_in_flight(limit);
      const std::uint64_t started = b.scheduler.stats().started;
      while (b.scheduler.stats().started == started) std::this_thread::yield();
      b.allowed = limit;
      for_a_while(d, [] {});
      b.allowed = (std::numeric_limits<std::size_t>::max)();
      b.scheduler.set_max_in_flight({});
      for_a_while(d, [] {});
    }
  });
}

// Each pace has keys of its own, and is set before they have tasks.
TEST_CASE("6.4 in no window do more tasks start than the pace allows, retries too") {
  turnkey::thread_pool pool{3};
  repeat("pace", [&](dice d) {
    std::mutex mutex;
    std::map<int, std::vector<turnkey::time_point>> starts;
    keyed s(pool,
            {.retry = turnkey::retry_policy{.initial_delay = 100us}, .observer = [&](const turnkey::event<int>& e) {
               if (e.kind != event_kind::started) return;
               const std::lock_guard lock(mutex);
               starts[*e.key / 8].push_back(e.time);
             }});
    const support::watchdog dog([&] { return support::in_words(s.stats()); });
    std::vector<turnkey::pace> paces;
    for (int phase = 0; phase != 4; ++phase) {
      paces.push_back(some_pace(d));
      s.set_pace(paces.back());
      for (int i = 0; i != 60; ++i)
        s.submit(phase * 8 + static_cast<int>(d.below(8)), {.policy = static_cast<policy>(d.below(3))},
                 [fails = d.chance(20)](turnkey::attempt& a) {
                   return fails && a.number() == 1 ? turnkey::outcome::retry() : turnkey::outcome::success();
                 });
      if (d.chance(50)) {
        s.pause();
        for_a_while(d, [] {});
        s.resume();
      }
      if (s.drain_for(std::chrono::milliseconds(d.below(20))) == drain_result::drained) continue;
      if (d.chance(50)) s.cancel_all();
      CHECK(s.drain_for(50s) == drain_result::drained);
    }
    std::uint64_t wrong = 0;
    for (auto& [phase, times] : starts) {
      const turnkey::pace& p = paces[static_cast<std::size_t>(phase)];
      std::sort(times.begin(), times.end());
      for (std::size_t i = 0; i != times.size(); ++i)
        for (std::size_t j = i; j != times.size(); ++j) {
          const auto w = static_cast<double>((times[j] - times[i]).count());
          wrong += static_cast<double>(j - i + 1) > p.burst + p.n * w / static_cast<double>(p.interval.count()) + 1e-6;
        }
    }
    CHECK(wrong == 0);
  });
}

TEST_CASE("2.10, 8.5 a paused scheduler full of tasks on a thread_pool uses no processor and wakes no thread") {
  turnkey::thread_pool pool{2};
  keyed s(pool, {.observer = [](const turnkey::event<int>&) {}});
  s.pause();
  std::atomic<int> ran{0};
  constexpr int tasks = 100'000;
  for (int i = 0; i != tasks; ++i)
    s.submit(i / 10, {.policy = static_cast<policy>(i % 3), .delay = i % 7 == 0 ? 1h : 0h}, [&ran] { ++ran; });
  std::this_thread::sleep_for(100ms);  // the threads that have just begun find nothing to do
  const usage before = used_so_far();
  std::this_thread::sleep_for(2s);
  const usage after = used_so_far();
  if (!support::sanitized) {  // they have threads of their own
    CHECK(after.cpu - before.cpu < 5ms);
    CHECK(after.switches == before.switches);
  }
  CHECK(ran == 0);
  CHECK(s.cancel_all() == tasks);
}
