// Coroutines that enter while others cancel, pause, stop, destroy, and resume them elsewhere; and futures beside them.
// Each coroutine ends, once; each future becomes ready; and what a lease guards is plain data.
#include <turnkey/coroutine.hpp>
#include <turnkey/future.hpp>

#include "support/coroutines.hpp"
#include "support/dice.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using support::detached;
using support::dice;
using support::owned;
using turnkey::outcome;
using turnkey::policy;
using turnkey::task_options;
using keyed = turnkey::scheduler<int>;

constexpr int key_count = 4;

template <class Once>
void repeat(const char* name, Once once) {
  dice d(support::stress_seed(name));
  const auto until = turnkey::clock::now() + support::stress_time();
  do {
    once(dice(d.roll()));
  } while (turnkey::clock::now() < until);
}

// A thread on which coroutines go on that ask for it.
class elsewhere {
 public:
  elsewhere() : thread_([this] { run(); }) {}
  ~elsewhere() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

  auto hop() noexcept {
    struct awaiter {
      elsewhere& to;
      bool await_ready() const noexcept { return false; }
      void await_suspend(std::coroutine_handle<> coroutine) const {
        elsewhere& there = to;
        {
          const std::lock_guard lock(there.mutex_);
          there.waiting_.push_back(coroutine);
        }
        there.changed_.notify_one();
      }
      void await_resume() const noexcept {}
    };
    return awaiter{*this};
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return over_ || !waiting_.empty(); });
      if (waiting_.empty()) return;
      const std::vector<std::coroutine_handle<>> now = std::exchange(waiting_, {});
      lock.unlock();
      for (const std::coroutine_handle<> coroutine : now) coroutine.resume();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::coroutine_handle<>> waiting_;
  bool over_ = false;
  std::thread thread_;
};

struct world {
  // Of one key: plain, touched by those only that hold its lease.
  struct touched {
    std::uint64_t leases = 0;
    bool inside = false;
  };
  std::array<touched, key_count> data{};
  std::optional<elsewhere> other;
  std::atomic<std::int64_t> alive{0};
  std::atomic<std::uint64_t> entered{0};
  std::atomic<std::uint64_t> cancelled{0};
  std::atomic<std::uint64_t> undone{0};
  std::atomic<std::uint64_t> refused{0};
  std::atomic<std::uint64_t> flaws{0};

  [[nodiscard]] std::string evidence() const {
    return "alive " + std::to_string(alive) + ", entered " + std::to_string(entered) + ", cancelled " +
           std::to_string(cancelled) + ", undone " + std::to_string(undone) + ", refused " + std::to_string(refused);
  }
};

// Enters some keys, one after the other, until it is told that there is no use.
detached visitor(world& w, keyed& s, dice d) {
  ++w.alive;
  bool goes_on = true;
  for (std::uint64_t left = 1 + d.below(4); left != 0 && goes_on; --left) {
    try {
      const int key = static_cast<int>(d.below(key_count));
      const auto how = static_cast<policy>(d.below(3));
      auto lease = co_await s.enter(key, how);
      ++w.entered;
      world::touched& mine = w.data[static_cast<std::size_t>(key)];
      if (lease.fence() != 0 && std::exchange(mine.inside, true)) ++w.flaws;
      if (w.other && d.chance(50)) co_await w.other->hop();
      if (d.chance(20)) std::this_thread::yield();
      if (lease.fence() != 0) {
        ++mine.leases;
        mine.inside = false;
      }
      if (d.chance(10)) lease.settle(outcome::dead());
      if (d.chance(10)) static_cast<void>(lease.stop_token());
      if (d.chance(20)) lease.release();
    } catch (const turnkey::task_cancelled&) {
      ++w.cancelled;
    } catch (const turnkey::task_undone&) {
      ++w.undone;
      goes_on = false;
    } catch (const turnkey::rejected&) {
      ++w.refused;
      goes_on = false;
    }
  }
  --w.alive;
}

std::future<int> some_future(keyed& s, dice& d) {
  const task_options options{.policy = static_cast<policy>(d.below(3)),
                             .retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = 10us}};
  return turnkey::submit_future(s, static_cast<int>(d.below(key_count)), options,
                                [how = d.below(4)](turnkey::attempt& a) {
                                  if (how == 0) throw std::runtime_error("always");
                                  if (how == 1 && a.number() == 1) throw std::runtime_error("once");
                                  if (how == 2) std::this_thread::yield();
                                  return 7;
                                });
}

bool is_fine(std::future<int>& future) {
  if (future.wait_for(0s) != std::future_status::ready) return false;
  try {
    return future.get() == 7;
  } catch (const turnkey::task_error&) {
    return true;
  } catch (const std::runtime_error& e) {
    return std::string(e.what()) == "always";
  }
}

// Starts coroutines and futures while another thread disturbs them.
std::vector<std::future<int>> start_all(world& w, keyed& s, dice& d) {
  std::vector<std::future<int>> futures;
  std::thread disturber([&, own = dice(d.roll())]() mutable {
    for (int i = 0; i != 30; ++i) {
      switch (own.below(8)) {
        case 0: s.cancel_all(); break;
        case 1:
        case 2: s.cancel(static_cast<int>(own.below(key_count))); break;
        case 3: s.pause(); break;
        case 4: s.redrive_all(); break;
        case 5: visitor(w, s, dice(own.roll())); break;
        default: s.resume(); std::this_thread::yield();
      }
    }
    s.resume();
  });
  for (std::uint64_t i = 0, n = d.below(60); i != n; ++i) {
    visitor(w, s, dice(d.roll()));
    if (!d.chance(30)) continue;
    try {
      futures.push_back(some_future(s, d));
    } catch (const turnkey::rejected&) {
      ++w.refused;
    }
  }
  disturber.join();
  return futures;
}

void wait_for_the_last(const world& w) {
  while (w.alive != 0) std::this_thread::yield();
}

}  // namespace

TEST_CASE("7.4, 7.5, 10.3 coroutines enter, hop, are cancelled, stopped and handed over: each one ends, once") {
  turnkey::thread_pool pool{2};
  repeat("coroutines, stop", [&](dice d) {
    world w;
    if (d.chance(50)) w.other.emplace();
    const support::watchdog dog([&] { return w.evidence(); });
    std::vector<std::future<int>> futures;
    {
      keyed second(pool);
      keyed s(pool);
      std::optional<turnkey::task_records<int>> records;
      std::thread stopper([&, stops = d.chance(70), nap = d.below(300)] {
        std::this_thread::sleep_for(std::chrono::microseconds(nap));
        if (stops) records.emplace(s.stop());
      });
      futures = start_all(w, s, d);
      stopper.join();
      const bool stopped = records.has_value();
      // Who holds a lease elsewhere, when stop() comes, goes on with one that is none: only without such are the keys
      // as exclusive in the second scheduler as in the first.
      if (stopped && !w.other && d.chance(50))
        for (auto& record : *records) second.submit(std::move(record));
      records.reset();
      wait_for_the_last(w);
      CHECK(second.drain() == turnkey::drain_result::drained);
      if (!stopped) CHECK(s.drain() == turnkey::drain_result::drained);
      const turnkey::stats now = s.stats();
      CHECK(now.submitted == now.succeeded + now.dead + now.cancelled + now.undone);
    }
    CHECK(w.flaws == 0);
    for (auto& future : futures) CHECK(is_fine(future));
  });
}

TEST_CASE("7.4, 7.5, 10.4 a scheduler that is destroyed leaves no coroutine and no future waiting") {
  turnkey::thread_pool pool{2};
  repeat("coroutines, destruction", [&](dice d) {
    world w;
    const support::watchdog dog([&] { return w.evidence(); });
    std::vector<std::future<int>> futures;
    {
      keyed s(pool);
      futures = start_all(w, s, d);
      if (d.chance(50)) s.pause();
      visitor(w, s, dice(d.roll()));
    }
    CHECK(w.alive == 0);
    CHECK(w.flaws == 0);
    for (auto& future : futures) CHECK(is_fine(future));
  });
}

TEST_CASE("7.4 frames are destroyed while they wait, against submit, cancel, pause and stop of others") {
  turnkey::thread_pool pool{2};
  repeat("coroutines, frames", [&](dice d) {
    constexpr int paused_key = key_count;
    world w;
    const support::watchdog dog([&] { return w.evidence(); });
    std::optional<turnkey::task_records<int>> records;
    std::atomic<std::uint64_t> resumed{0};
    const auto wait = [&](keyed& s) -> owned {
      const auto lease = co_await s.enter(paused_key, policy::ordered);
      ++resumed;
    };
    {
      keyed s(pool);
      s.pause(paused_key);
      std::vector<owned> frames;
      for (std::uint64_t i = 0, n = d.below(20); i != n; ++i) frames.push_back(wait(s));
      std::thread destroyer([&, own = dice(d.roll())]() mutable {
        while (!frames.empty()) {
          std::swap(frames[own.below(frames.size())], frames.back());
          frames.pop_back();
          if (own.chance(20)) std::this_thread::yield();
        }
      });
      std::thread stopper([&, stops = d.chance(50), nap = d.below(50)] {
        std::this_thread::sleep_for(std::chrono::microseconds(nap));
        if (stops) records.emplace(s.stop());
      });
      for (std::uint64_t i = 0, n = d.below(20); i != n; ++i) {
        visitor(w, s, dice(d.roll()));
        if (d.chance(20)) s.cancel(static_cast<int>(d.below(key_count)));
        if (d.chance(10)) s.pause();
        s.resume();
      }
      destroyer.join();
      stopper.join();
      if (d.chance(50)) s.resume(paused_key);
    }
    records.reset();  // of a scheduler that is gone, with frames that are gone
    CHECK(resumed == 0);
    CHECK(w.alive == 0);
  });
}
