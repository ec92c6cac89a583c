// Attempts that go on without their callback, on real threads and the real clock: couriers settle them while callbacks
// return, leases expire, tasks are cancelled, and the scheduler stops or dies. The plain data of a key belongs to
// whoever has its lease, a courier too; the history is looked at afterwards. The sleeps only vary who comes first.
#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/history.hpp"
#include "support/hostile_pool.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
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
using support::dice;
using turnkey::attempt;
using turnkey::completion;
using turnkey::drain_result;
using turnkey::event_kind;
using turnkey::lease_expiry;
using turnkey::outcome;
using keyed = turnkey::scheduler<int>;

constexpr int key_count = 6;

// Of one key: plain, touched by who has its lease only.
struct touched {
  bool taken = false;
  std::uint64_t last_fence = 0;
  std::uint64_t leases = 0;
};

struct letter {
  completion handle;
  touched* data = nullptr;  // to be given back before it is settled
};

struct post {
  std::array<touched, key_count> data{};
  bool couriers_touch = true;  // not where a lease may be taken away: they would come too late
  std::atomic<std::uint64_t> callbacks{0};
  std::atomic<std::uint64_t> successes{0};
  std::atomic<std::uint64_t> flaws{0};  // two leases at once, a fence that does not grow, a second result that counts
  std::atomic<std::uint64_t> late{0};   // results that did not count
  std::atomic<std::int64_t> out{0};     // letters that nobody has finished with

  void send(letter l) {
    const std::lock_guard lock(mutex);
    box.push_back(std::move(l));
  }
  std::optional<letter> take(dice& d) {
    const std::lock_guard lock(mutex);
    if (box.empty()) return {};
    std::swap(box[d.below(box.size())], box.back());
    std::optional<letter> taken(std::move(box.back()));
    box.pop_back();
    return taken;
  }
  std::mutex mutex;
  std::vector<letter> box;
};

void give_back(letter& l) {
  if (touched* const mine = std::exchange(l.data, nullptr)) mine->taken = false;
}

void settle(post& p, letter& l, const outcome& said) {
  give_back(l);
  const bool counts = l.handle.settle(said);
  p.late += !counts;
  p.successes += counts && said.what() == outcome::kind::success;
}

outcome some_outcome(dice& d) {
  switch (d.below(16)) {
    case 0: return outcome::retry();
    case 1: return outcome::retry("asked to");
    case 2: return outcome::retry_after(std::chrono::microseconds(d.below(500)));
    case 3: return outcome::postpone(std::chrono::microseconds(d.below(300)));
    case 4: return outcome::postpone({});
    case 5: return d.chance(30) ? outcome::dead("for good") : outcome::retry();
    default: return outcome::success();
  }
}

// What somebody does with a completion; true when it is still to be settled.
bool handle(post& p, letter& l, dice& d) {
  switch (d.below(20)) {
    case 0: l.handle.extend_lease(std::chrono::microseconds(d.below(2000))); return true;
    case 1: static_cast<void>(l.handle.stop_requested()); return true;
    case 2: static_cast<void>(l.handle.stop_token()); return true;
    case 3: std::this_thread::sleep_for(std::chrono::microseconds(d.below(1500))); return true;
    case 4:
    case 5: give_back(l); return false;  // abandoned
    case 6: {
      give_back(l);
      const bool counts = l.handle.fail(std::make_exception_ptr(std::runtime_error("courier")));
      p.late += !counts;
      return false;
    }
    case 7:
      settle(p, l, some_outcome(d));
      if (l.handle.succeed()) ++p.flaws;
      ++p.late;
      return false;
    case 8: {  // two at once
      give_back(l);
      bool other = false;
      std::thread rival([&] { other = l.handle.succeed(); });
      const bool counts = l.handle.fail();
      rival.join();
      if (counts && other) ++p.flaws;
      p.successes += other;
      p.late += !other + !counts;
      return false;
    }
    default: settle(p, l, some_outcome(d)); return false;
  }
}

outcome act(post& p, int key, attempt& a) {
  dice d(p.callbacks.fetch_add(1) * 0x2545f4914f6cdd1dU + static_cast<std::uint64_t>(a.id()));
  touched* const mine = a.has_lease() ? &p.data[static_cast<std::size_t>(key)] : nullptr;
  if (mine != nullptr) {
    if (mine->taken || a.fence() <= mine->last_fence) ++p.flaws;
    mine->taken = true;
    mine->last_fence = a.fence();
    ++mine->leases;
  }
  if (d.chance(10)) std::this_thread::yield();
  if (d.chance(5)) a.extend_lease(std::chrono::microseconds(d.below(500)));
  const auto over = [&] {
    if (mine != nullptr) mine->taken = false;
  };
  const std::uint64_t how = d.below(10);
  if (how < 6) {
    if (!p.couriers_touch) over();
    ++p.out;
    p.send({a.defer(), p.couriers_touch ? mine : nullptr});
    if (d.chance(30)) std::this_thread::yield();
    if (d.chance(5) && p.couriers_touch) std::this_thread::sleep_for(std::chrono::microseconds(d.below(300)));
    return some_outcome(d);  // ignored
  }
  over();
  if (how == 6) {
    letter own{a.defer()};
    static_cast<void>(handle(p, own, d));
    if (d.chance(20)) throw 7;
    return some_outcome(d);
  }
  if (how == 7) throw std::runtime_error("thrown");
  const outcome said = some_outcome(d);
  p.successes += said.what() == outcome::kind::success;
  return said;
}

// Until nothing is unfinished.
void drain(keyed& s) {
  while (s.drain_for(20ms) != drain_result::drained) {
    s.release_all();
  }
}

void check(support::history& heard, const turnkey::stats& s) {
  CHECK(s.unfinished() == 0);
  CHECK(s.submitted + s.redriven == s.succeeded + s.died + s.cancelled + s.undone);
  CHECK(s.leases_lost <= s.leases_expired);
  CHECK(heard.check() == "");
  CHECK(heard.count(event_kind::started) == s.started);
  CHECK(heard.count(event_kind::succeeded) == s.succeeded);
  CHECK(heard.count(event_kind::dead) == s.died);
  CHECK(heard.count(event_kind::cancelled) == s.cancelled);
  CHECK(heard.count(event_kind::undone) == s.undone);
  CHECK(heard.count(event_kind::lease_expired) == s.leases_expired);
}

turnkey::options<int> some_settings(dice& d) {
  turnkey::options<int> o;
  o.default_policy = turnkey::policy::exclusive;
  o.retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 50us, .max_delay = 500us, .max_postpones = 10};
  if (d.chance(50)) o.max_in_flight = 1 + d.below(6);
  if (d.chance(60)) o.lease_time = std::chrono::microseconds(20 + d.below(2000));
  if (d.chance(60)) o.lease_expiry = lease_expiry::release;
  if (d.chance(20)) o.dead_action = turnkey::dead_action::hold_key;
  return o;
}

template <class Executor>
void round(Executor& executor, std::uint64_t seed) {
  CAPTURE(seed);
  dice d(seed);
  post p;
  support::history heard;
  support::history heard_after;
  auto settings = some_settings(d);
  p.couriers_touch = !settings.lease_time || settings.lease_expiry == lease_expiry::report;
  auto settings_after = settings;
  settings_after.first_fence = std::uint64_t{1} << 40;
  settings.observer = [&](const turnkey::event<int>& e) { heard.note(e); };
  settings_after.observer = [&](const turnkey::event<int>& e) { heard_after.note(e); };
  std::uint64_t accepted = 0;
  turnkey::stats at_end;
  turnkey::stats at_end_after;
  {
    auto first = std::make_unique<keyed>(executor, settings);
    keyed second(executor, settings_after);
    const support::watchdog dog([&] {
      return "round " + std::to_string(seed) + "\n" + support::in_words(first->stats()) + "\n" +
             support::in_words(second.stats()) + "\n" + std::to_string(p.out) + " letters are out";
    });
    std::atomic<bool> over{false};
    std::vector<std::thread> couriers;
    for (std::uint64_t i = 0; i != 3; ++i)
      couriers.emplace_back([&, own = dice(seed * 31 + i)]() mutable {
        while (true) {
          const bool last = over;
          std::optional<letter> l = p.take(own);
          if (!l && last) return;
          if (!l) {
            std::this_thread::yield();
          } else if (handle(p, *l, own)) {
            p.send(std::move(*l));
          } else {
            l.reset();
            --p.out;
          }
        }
      });
    const auto no_letter_is_out = [&] {
      while (p.out != 0) std::this_thread::yield();
    };
    std::vector<turnkey::task_id> ids;
    for (std::uint64_t i = 0, n = 50 + d.below(400); i != n; ++i) {
      const int key = static_cast<int>(d.below(key_count));
      const auto id = first->submit(key, {.policy = static_cast<turnkey::policy>(d.below(3))},
                                    [&p, key](attempt& a) { return act(p, key, a); });
      ++accepted;
      ids.push_back(id);
      if (d.chance(10)) first->cancel(ids[d.below(ids.size())]);
      if (d.chance(1)) first->cancel(key);
      if (d.chance(5)) first->redrive(ids[d.below(ids.size())]);
      if (d.chance(2)) first->set_max_in_flight(1 + d.below(6));
      if (d.chance(2) && first->pause()) first->resume();
      if (d.chance(2)) static_cast<void>(first->find(ids[d.below(ids.size())]));
    }
    const std::uint64_t end = d.below(3);
    if (end == 0) {
      drain(*first);
      at_end = first->stats();
    } else {
      if (d.chance(70)) std::this_thread::sleep_for(std::chrono::microseconds(d.below(3000)));
      auto undone = first->stop();
      at_end = first->stats();
      CHECK(undone.size() == at_end.undone);
      if (end == 1) first.reset();
      no_letter_is_out();                               // whoever works for a lease that stop() handed back
      for (touched& each : p.data) each.taken = false;  // and what was deferred and never sent: nothing
      for (auto& record : undone) {
        CHECK(record.attempts() >= (record.state() == turnkey::task_state::running));
        second.submit(std::move(record));
      }
    }
    drain(second);
    at_end_after = second.stats();
    no_letter_is_out();
    if (first) at_end = first->stats();
    over = true;
    for (std::thread& t : couriers) t.join();
    if (first) CHECK(first->stats().late_results + second.stats().late_results == p.late);
  }
  check(heard, at_end);
  check(heard_after, at_end_after);
  CHECK(at_end.submitted == accepted);
  CHECK(at_end_after.submitted == at_end.undone);
  CHECK(p.successes == at_end.succeeded + at_end_after.succeeded);
  CHECK(p.flaws == 0);
}

template <class MakeExecutor>
void rounds(const char* name, MakeExecutor make) {
  dice d(support::stress_seed(name));
  const auto until = turnkey::clock::now() + support::stress_time();
  do {
    const std::uint64_t seed = d.roll();
    auto executor = make(seed);
    round(*executor, seed);
  } while (turnkey::clock::now() < until);
}

}  // namespace

TEST_CASE("7.1, 7.2, 7.3, 10.3 a thread_pool: completions against returns, expiry, cancel, stop and destruction") {
  rounds("leases, thread_pool",
         [](std::uint64_t seed) { return std::make_unique<turnkey::thread_pool>(2 + seed % 3); });
}

TEST_CASE("7.1, 7.2, 8.3 a pool that throws, refuses, drops and doubles: the same of completions") {
  rounds("leases, hostile pool",
         [](std::uint64_t seed) { return std::make_unique<support::hostile_pool>(2 + seed % 3, seed, seed % 4); });
}

TEST_CASE("7.1, 7.2, 8.2 an inline executor: couriers and the clock run what they free") {
  rounds("leases, inline", [](std::uint64_t) { return std::make_unique<turnkey::inline_executor>(); });
}

TEST_CASE("7.1, 6.5, 7.2 one task: two that settle, one that cancels, an expiry and a destructor, all at once") {
  dice d(support::stress_seed("one deferred task"));
  const auto until = turnkey::clock::now() + support::stress_time();
  turnkey::thread_pool pool{2};
  std::atomic<std::uint64_t> round{0};
  const support::watchdog dog([&] { return "round " + std::to_string(round); });
  do {
    ++round;
    turnkey::stats at_end;
    bool one = false;
    bool two = false;
    bool dies = d.chance(30);
    {
      auto s = std::make_unique<keyed>(
          pool, turnkey::options<int>{.default_policy = turnkey::policy::exclusive,
                                      .lease_time = std::chrono::microseconds(1 + d.below(100)),
                                      .lease_expiry = d.chance(50) ? lease_expiry::release : lease_expiry::report});
      std::atomic<bool> go{false};
      completion c;
      bool behind = false;
      const auto id = s->submit(1, [&](attempt& a) {
        c = a.defer();
        go = true;
      });
      s->submit(1, [&behind] { behind = true; });
      const auto wait = [&] {
        while (!go) std::this_thread::yield();
      };
      std::thread first([&] {
        wait();
        one = c.succeed();
      });
      std::thread second([&] {
        wait();
        two = c.fail();
      });
      std::thread third([&, cancels = d.chance(50)] {
        wait();
        if (cancels && !dies) s->cancel(id);
        c.extend_lease(10us);
        static_cast<void>(c.stop_requested());
      });
      wait();
      if (dies) {
        at_end = {};
        s.reset();
      } else {
        CHECK(s->drain() == drain_result::drained);
        at_end = s->stats();
        CHECK(behind);
      }
      for (std::thread* t : {&first, &second, &third}) t->join();
      if (s) CHECK(s->stats().late_results == static_cast<std::uint64_t>(!one + !two));
    }
    CHECK(!(one && two));
    if (dies) continue;
    CHECK(at_end.succeeded == 1 + static_cast<std::uint64_t>(one));
    CHECK(at_end.succeeded + at_end.died + at_end.cancelled == 2);
    CHECK((one || two || at_end.leases_lost == 1));
  } while (turnkey::clock::now() < until);
}
