// The ends of schedulers while other threads are at them: stop() against everything, destruction inside a callback,
// short lives on one pool, permits that outlive their scheduler. The sleeps only vary when the end comes; no check
// rests on one.
#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/hostile_pool.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using support::dice;
using turnkey::policy;
using keyed = turnkey::scheduler<int>;

// Counts the callables that are alive.
class counted {
 public:
  explicit counted(std::atomic<std::int64_t>& alive) : alive_(&alive) { ++*alive_; }
  counted(const counted& other) noexcept : alive_(other.alive_) { ++*alive_; }
  counted& operator=(const counted&) = delete;
  ~counted() { --*alive_; }

 private:
  std::atomic<std::int64_t>* alive_;
};

template <class Once>
void repeat(const char* name, Once once) {
  dice d(support::stress_seed(name));
  std::atomic<std::uint64_t> round{0};
  std::atomic<std::uint64_t> seed{0};
  const auto until = turnkey::clock::now() + support::stress_time();
  const support::watchdog dog(
      [&] { return "round " + std::to_string(round) + ", seed " + std::to_string(seed); },
      std::chrono::seconds{60} + std::chrono::ceil<std::chrono::seconds>(support::stress_time()));
  do {
    seed = d.roll();
    once(dice(seed));
    ++round;
  } while (turnkey::clock::now() < until);
}

void join(std::vector<std::thread>& threads) {
  for (std::thread& t : threads) t.join();
}

turnkey::options<int> some_options(dice& d) {
  turnkey::options<int> o{.default_policy = static_cast<policy>(d.below(3))};
  if (d.chance(50)) o.retry = turnkey::retry_policy{.initial_delay = 50us, .max_delay = 1ms};
  return o;
}

// A callback that may fail, wait a moment, and keeps itself counted.
auto some_callback(dice& d, std::atomic<std::int64_t>& alive) {
  return [how = d.below(8), c = counted(alive)] {
    if (how == 0) std::this_thread::yield();
    if (how == 1) return turnkey::outcome::retry();
    if (how == 2) return turnkey::outcome::postpone(20us);
    return turnkey::outcome::success();
  };
}

// Submits more of itself while the scheduler lives. It holds a share of it meanwhile, which may be the last one.
struct relay {
  std::weak_ptr<keyed> scheduler;
  std::atomic<std::int64_t>* alive;
  std::uint64_t seed;
  counted self;

  void submit(dice& d) const {
    const std::shared_ptr<keyed> share = scheduler.lock();
    if (share == nullptr) return;
    for (std::uint64_t i = 0, n = d.below(10) * 3 / 10; i != n; ++i)
      static_cast<void>(share->try_submit(static_cast<int>(d.below(3)), relay{scheduler, alive, d.roll(), self}));
  }
  void operator()() const {
    dice d(seed);
    submit(d);
  }
};

}  // namespace

TEST_CASE(
    "10.2, 10.3 stop() against submit, cancel and drain on other threads: each task is accepted or refused whole") {
  std::atomic<std::int64_t> alive{0};
  turnkey::thread_pool pool{2};
  repeat("stop", [&](dice d) {
    std::atomic<std::uint64_t> accepted{0};
    {
      const auto options = some_options(d);
      keyed s(pool, options);
      std::atomic<bool> over{false};
      std::vector<std::thread> threads;
      for (int i = 0; i != 2; ++i)
        threads.emplace_back([&, own = dice(d.roll())]() mutable {
          while (!over) {
            const auto id = s.try_submit(static_cast<int>(own.below(5)), some_callback(own, alive));
            if (id) ++accepted;
            if (id && own.chance(20)) s.cancel(*id);
            if (!id && id.reason() != turnkey::reject_reason::closed) std::abort();
          }
        });
      threads.emplace_back([&] {
        while (s.drain() != turnkey::drain_result::stopped) std::this_thread::yield();
      });
      std::this_thread::sleep_for(std::chrono::microseconds(d.below(2000)));
      std::vector<std::thread> stoppers;
      std::atomic<std::size_t> handed_back{0};
      for (int i = 0; i != 2; ++i) stoppers.emplace_back([&] { handed_back += s.stop().size(); });
      join(stoppers);
      const turnkey::stats then = s.stats();
      over = true;
      join(threads);
      const turnkey::stats now = s.stats();
      CHECK(now.submitted == accepted);
      CHECK(now.submitted == now.succeeded + now.died + now.cancelled + now.undone);
      CHECK(now.undone == handed_back);
      CHECK(then.started == now.started);
      CHECK(then.submitted == now.submitted);
      CHECK(now.unfinished() == 0);
    }
    CHECK(alive == 0);
  });
}

TEST_CASE("10, 10.4 a scheduler that dies inside a callback while others submit from inside") {
  std::atomic<std::int64_t> alive{0};
  repeat("destruction inside", [&](dice d) {
    {
      const std::size_t threads = 2 + d.below(2);
      std::optional<turnkey::thread_pool> pool(std::in_place, threads);
      auto owner =
          std::make_shared<keyed>(*pool, turnkey::options<int>{.default_policy = static_cast<policy>(d.below(3))});
      const relay first{owner, &alive, d.roll(), counted(alive)};
      for (int i = 0; i != 8; ++i) first.submit(d);
      std::this_thread::sleep_for(std::chrono::microseconds(d.below(300)));
      if (d.chance(50)) {
        static_cast<void>(owner->try_submit([share = owner] {}));  // it may die with its own callback
      }
      const std::weak_ptr<keyed> watched = owner;
      owner = nullptr;
      while (!watched.expired()) std::this_thread::yield();
      pool.reset();  // joins the threads: the destructor has returned then
    }
    CHECK(alive == 0);
  });
}

TEST_CASE("10, 10.3, 10.4 stop() inside a callback hands back what waits while other callbacks submit") {
  std::atomic<std::int64_t> alive{0};
  repeat("stop inside", [&](dice d) {
    {
      turnkey::thread_pool pool{3};
      keyed s(pool, some_options(d));
      std::atomic<std::uint64_t> accepted{0};
      std::mutex mutex;
      turnkey::task_records<int> back;
      for (int i = 0; i != 20; ++i) {
        const auto id = s.try_submit(i % 4, [&, own = dice(d.roll()), c = counted(alive)]() mutable {
          for (int n = 0; n != 3; ++n)
            if (s.try_submit(static_cast<int>(own.below(4)), some_callback(own, alive))) ++accepted;
          if (!own.chance(20)) return;
          auto records = s.stop();
          const std::lock_guard lock(mutex);
          if (!records.empty()) back = std::move(records);
        });
        if (id) ++accepted;
      }
      std::this_thread::sleep_for(std::chrono::microseconds(d.below(500)));
      static_cast<void>(s.stop());
      pool.stop();
      while (s.stats().running != 0) std::this_thread::yield();
      const turnkey::stats now = s.stats();
      CHECK(now.submitted == accepted);
      CHECK(now.submitted == now.succeeded + now.died + now.cancelled + now.undone);
    }
    CHECK(alive == 0);
  });
}

TEST_CASE("8.6, 10.4 many short lives on one pool: permits survive their schedulers and do nothing") {
  std::atomic<std::int64_t> alive{0};
  const auto live = [&](auto& pool, dice& d) {
    std::vector<std::thread> threads;
    for (int i = 0; i != 2; ++i)
      threads.emplace_back([&, own = dice(d.roll())]() mutable {
        for (int n = 0; n != 20; ++n) {
          keyed s(pool, some_options(own));
          for (std::uint64_t k = 0, tasks = own.below(6); k != tasks; ++k)
            s.submit(static_cast<int>(own.below(3)), some_callback(own, alive));
          if (own.chance(30)) static_cast<void>(s.drain_for(1ms));
          if (own.chance(30)) static_cast<void>(s.stop());
        }
      });
    join(threads);
  };
  SUBCASE("thread_pool") {
    repeat("short lives, thread_pool", [&](dice d) {
      {
        turnkey::thread_pool pool{2};
        live(pool, d);
      }
      CHECK(alive == 0);
    });
  }
  SUBCASE("hostile pool") {
    repeat("short lives, hostile pool", [&](dice d) {
      {
        support::hostile_pool pool(2, d.roll(), 3);
        live(pool, d);
      }
      CHECK(alive == 0);
    });
  }
}

TEST_CASE("8.6, 10.4 the executor is destroyed at once after stop(), with permits in its queue and copies elsewhere") {
  std::atomic<std::int64_t> alive{0};
  repeat("permits elsewhere", [&](dice d) {
    std::mutex mutex;
    std::vector<turnkey::work> copies;
    {
      auto pool = std::make_unique<turnkey::thread_pool>(2);
      auto s = std::make_unique<keyed>(
          [&, p = pool.get()](const turnkey::work& permit) {
            {
              const std::lock_guard lock(mutex);
              if (copies.size() < 12) copies.push_back(permit);
            }
            return (*p)(permit);
          },
          some_options(d));
      for (int i = 0; i != 30; ++i) s->submit(i % 7, some_callback(d, alive));
      static_cast<void>(s->stop());
      if (d.chance(50)) s = nullptr;
      pool = nullptr;
    }
    CHECK(alive == 0);
    for (const turnkey::work& permit : copies) permit();
  });
}
