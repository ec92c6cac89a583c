// Tasks of several keys on real threads and the real clock: random sets of keys that overlap, in every order, among
// tasks of one key, with failures, cancels, pauses and holds. Plain data of each key, which every lease of it touches,
// is what ThreadSanitizer watches.
#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/history.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using support::dice;
using turnkey::drain_result;
using turnkey::outcome;
using turnkey::policy;
using keyed = turnkey::scheduler<int>;

constexpr int key_count = 12;

struct world {
  struct touched {
    std::uint64_t leases = 0;
    std::uint64_t last_fence = 0;
    bool inside = false;
  };
  std::array<touched, key_count> data{};  // plain
  std::atomic<std::uint64_t> callbacks{0};
  std::atomic<std::uint64_t> successes{0};
  std::atomic<std::uint64_t> flaws{0};
  support::history heard;
  std::atomic<keyed*> scheduler{nullptr};
};

// One to five keys, the first of which is the task's own; in any order.
std::vector<int> some_keys(dice& d) {
  std::vector<int> list;
  for (std::uint64_t n = 1 + d.below(5); n != 0; --n) {
    const int k = static_cast<int>(d.below(key_count));
    if (std::find(list.begin(), list.end(), k) == list.end()) list.push_back(k);
  }
  return list;
}

outcome act(world& w, const std::vector<int>& list, turnkey::attempt& a);

void submit_something(world& w, keyed& s, dice& d, std::vector<turnkey::task_id>& recent) {
  const std::vector<int> list = some_keys(d);
  turnkey::task_options o{.policy = d.chance(50) ? policy::exclusive : policy::ordered};
  if (d.chance(15)) o.delay = std::chrono::microseconds(d.below(1500));
  const auto callback = [&w, list](turnkey::attempt& a) { return act(w, list, a); };
  const auto id = d.chance(3) ? s.submit_for(std::chrono::milliseconds{1}, turnkey::keys{list}, o, callback)
                              : s.try_submit(turnkey::keys{list}, o, callback);
  if (!id) return;
  w.heard.expect_keys(*id, {list.begin() + 1, list.end()});
  if (recent.size() < 32) {
    recent.push_back(*id);
  } else {
    recent[d.below(32)] = *id;
  }
}

outcome act(world& w, const std::vector<int>& list, turnkey::attempt& a) {
  dice d(w.callbacks.fetch_add(1) * 0x2545f4914f6cdd1dU + static_cast<std::uint64_t>(a.id()));
  for (const int k : list) {
    world::touched& mine = w.data[static_cast<std::size_t>(k)];
    if (mine.inside || a.fence() <= mine.last_fence) ++w.flaws;
    mine.inside = true;
    mine.last_fence = a.fence();
  }
  if (d.chance(10)) std::this_thread::yield();
  if (d.chance(3)) w.scheduler.load()->cancel(a.id());
  if (d.chance(3)) {
    std::vector<turnkey::task_id> own;
    submit_something(w, *w.scheduler.load(), d, own);
  }
  for (const int k : list) {
    world::touched& mine = w.data[static_cast<std::size_t>(k)];
    ++mine.leases;
    mine.inside = false;
  }
  switch (d.below(16)) {
    case 0: return outcome::retry();
    case 1: return outcome::retry_after(std::chrono::microseconds(d.below(400)));
    case 2: return outcome::postpone(std::chrono::microseconds(d.below(300)));
    case 3: return outcome::postpone({});
    case 4: return d.chance(30) ? outcome::dead("for good") : outcome::retry();
    case 5: throw std::runtime_error("thrown");
    default: ++w.successes; return outcome::success();
  }
}

void do_something(world& w, keyed& s, dice& d, std::vector<turnkey::task_id>& recent) {
  const auto some_id = [&] { return recent.empty() ? turnkey::task_id{1} : recent[d.below(recent.size())]; };
  const int k = static_cast<int>(d.below(key_count));
  switch (d.below(60)) {
    default: return submit_something(w, s, d, recent);
    case 0:
    case 1:
    case 2: s.cancel(some_id()); return;
    case 3: s.cancel(k); return;
    case 4: s.redrive(k); return;
    case 5: s.redrive(some_id()); return;
    case 6: s.discard(k); return;
    case 7: s.discard(some_id()); return;
    case 8: s.release(k); return;
    case 9: s.pause(k); return;
    case 10:
    case 11:
    case 12: s.resume(k); return;
    case 13: static_cast<void>(s.find(some_id())); return;
    case 14: static_cast<void>(s.busiest_keys(3)); return;
    case 15: s.expedite(some_id()); return;
    case 16:
      if (d.chance(10)) s.cancel_all();
      return;
    case 17:
      if (d.chance(10)) s.release_all();
      return;
    case 18: static_cast<void>(s.stats()); return;
    case 19:
    case 20: std::this_thread::yield(); return;
  }
}

void round(std::uint64_t seed) {
  CAPTURE(seed);
  dice d(seed);
  world w;
  const bool observed = d.chance(50);
  turnkey::options<int> o;
  o.retry = turnkey::retry_policy{.max_attempts = 3,
                                  .initial_delay = std::chrono::microseconds{100},
                                  .max_delay = std::chrono::milliseconds{1},
                                  .max_postpones = 20};
  if (d.chance(50)) o.dead_action = turnkey::dead_action::hold_key;
  if (d.chance(30)) o.max_in_flight = 1 + d.below(3);
  if (d.chance(30)) o.max_pending_per_key = 1 + d.below(20);
  o.max_pending = 20 + d.below(300);
  o.max_dead = d.below(20);
  if (d.chance(50)) o.turn_budget = static_cast<std::uint32_t>(1 + d.below(8));
  if (observed) o.observer = [&w](const turnkey::event<int>& e) { w.heard.note(e); };
  turnkey::stats at_end;
  {
    turnkey::thread_pool pool{2 + d.below(3)};
    keyed s(pool, o);
    w.scheduler = &s;
    const support::watchdog dog([&] { return "round " + std::to_string(seed) + "\n" + support::in_words(s.stats()); });
    const auto until = turnkey::clock::now() + std::chrono::milliseconds(20 + d.below(60));
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i != 3; ++i)
      threads.emplace_back([&, own = dice(seed * 31 + i)]() mutable {
        std::vector<turnkey::task_id> recent;
        while (turnkey::clock::now() < until) do_something(w, s, own, recent);
      });
    for (std::thread& t : threads) t.join();
    if (d.chance(30)) {
      const auto undone = s.stop();
      at_end = s.stats();
      CHECK(undone.size() == at_end.undone);
      for (const auto& record : undone) CHECK(!record.keys().empty());
    } else {
      for (int k = 0; k != key_count; ++k) s.resume(k);
      while (s.drain_for(std::chrono::milliseconds{20}) != drain_result::drained) s.release_all();
      s.release_all();
      at_end = s.stats();
      s.discard_all();
      CHECK(s.drain() == drain_result::drained);
      CHECK(s.stats().keys == 0);
    }
  }
  CHECK(w.flaws == 0);
  CHECK(at_end.unfinished() == 0);
  CHECK(at_end.submitted + at_end.redriven == at_end.succeeded + at_end.died + at_end.cancelled + at_end.undone);
  CHECK(w.successes == at_end.succeeded);
  if (observed) CHECK(w.heard.check() == "");
}

}  // namespace

TEST_CASE("2.7, 7.7 random sets of keys from several threads: leases of a key never overlap, and everything ends") {
  dice d(support::stress_seed("several keys"));
  const auto until = turnkey::clock::now() + support::stress_time();
  do {
    round(d.roll());
  } while (turnkey::clock::now() < until);
}

TEST_CASE("7.7 transfers between accounts: plain numbers, no lock, and the sum stays") {
  dice d(support::stress_seed("transfers"));
  constexpr std::size_t accounts = 10;
  const auto until = turnkey::clock::now() + support::stress_time() / 2;
  do {
    std::array<std::int64_t, accounts> balance{};
    balance.fill(100);
    turnkey::thread_pool pool{4};
    turnkey::scheduler<std::size_t> bank(
        pool, {.default_policy = policy::exclusive,
               .retry = turnkey::retry_policy{.max_attempts = 5, .initial_delay = {}, .jitter = 0}});
    const support::watchdog dog([&] { return support::in_words(bank.stats()); });
    std::vector<std::thread> clerks;
    for (int i = 0; i != 3; ++i)
      clerks.emplace_back([&, own = dice(d.roll())]() mutable {
        for (int n = 0; n != 300; ++n) {
          const std::size_t from = own.below(accounts);
          const std::size_t to = own.below(accounts);
          const auto amount = static_cast<std::int64_t>(own.below(30));
          const bool fails = own.chance(10);
          const auto id = bank.submit(turnkey::keys{from, to}, [&, from, to, amount, fails](turnkey::attempt& a) {
            if (fails && a.number() < 3) return outcome::retry();
            balance[from] -= amount;
            balance[to] += amount;
            return outcome::success();
          });
          if (own.chance(5)) bank.cancel(id);
          if (own.chance(2)) {
            bank.pause(from);
            std::this_thread::yield();
            bank.resume(from);
          }
        }
      });
    for (std::thread& t : clerks) t.join();
    for (std::size_t i = 0; i != accounts; ++i) bank.resume(i);  // two clerks may have paused one, and resumed it once
    CHECK(bank.drain() == drain_result::drained);
    std::int64_t sum = 0;
    for (const std::int64_t each : balance) sum += each;
    CHECK(sum == 100 * static_cast<std::int64_t>(accounts));
    CHECK(bank.stats().keys == 0);
  } while (turnkey::clock::now() < until);
}
