// A world in which everything happens at once: some keys with plain data that only leases may touch, callbacks that
// succeed, fail, throw, postpone, die, submit and cancel, and threads that do whatever the door offers.
#pragma once

#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/history.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace mix {

using keyed = turnkey::scheduler<int>;
using support::dice;
inline constexpr int key_count = 20;

// Of one key: plain, touched by exclusive and ordered callbacks only.
struct touched {
  std::uint64_t leases = 0;
  std::uint64_t last_fence = 0;
  bool inside = false;
};

struct world {
  std::array<touched, key_count> data{};
  std::atomic<keyed*> scheduler{nullptr};
  std::atomic<std::uint64_t> callbacks{0};
  std::atomic<std::uint64_t> successes{0};
  std::atomic<std::uint64_t> flaws{0};  // two leases at once, a fence that does not grow
  std::atomic<std::int64_t> callables{0};

  void accepted(turnkey::task_id id) {
    const std::lock_guard lock(mutex);
    ids.push_back(static_cast<std::uint64_t>(id));
  }
  std::mutex mutex;
  std::vector<std::uint64_t> ids;  // accepted by any scheduler of this world
};

void submit_something(world& w, keyed& s, dice& d, int depth, std::vector<turnkey::task_id>& recent);

// What a callback does.
inline turnkey::outcome act(world& w, int key, int depth, turnkey::attempt& a) {
  using turnkey::outcome;
  dice d(w.callbacks.fetch_add(1) * 0x2545f4914f6cdd1dU + static_cast<std::uint64_t>(a.id()));
  if (a.has_lease()) {
    touched& mine = w.data[static_cast<std::size_t>(key)];
    if (mine.inside || a.fence() <= mine.last_fence) ++w.flaws;
    mine.inside = true;
    mine.last_fence = a.fence();
    ++mine.leases;
    if (d.chance(10)) std::this_thread::yield();
    mine.inside = false;
  } else if (d.chance(10)) {
    std::this_thread::yield();
  }
  keyed& s = *w.scheduler.load();
  std::vector<turnkey::task_id> own;
  if (depth < 3 && d.chance(8)) submit_something(w, s, d, depth + 1, own);
  if (d.chance(2)) s.cancel(a.id());
  if (d.chance(1)) static_cast<void>(s.stats());
  if (d.chance(1) && a.stop_token().stop_requested()) return outcome::retry();
  switch (d.below(24)) {
    case 0: return outcome::retry();
    case 1: return outcome::retry("asked to");
    case 2: return outcome::retry_after(std::chrono::microseconds(d.below(500)));
    case 3: return outcome::postpone(std::chrono::microseconds(d.below(300)));
    case 4: return outcome::postpone({});
    case 5: return d.chance(30) ? outcome::dead("for good") : outcome::retry();
    case 6: throw std::runtime_error("thrown");
    case 7:
      if (d.chance(50)) throw 7;
      break;
    default: break;
  }
  ++w.successes;
  return outcome::success();
}

// A callable that can only be moved, and counts itself. Its size is that of its padding, more or less.
template <std::size_t Padding>
class job {
 public:
  job(world& w, int key, int depth) : world_(&w), key_(key), depth_(depth) { ++w.callables; }
  job(job&& other) noexcept : world_(other.world_), key_(other.key_), depth_(other.depth_) { ++world_->callables; }
  job& operator=(job&&) = delete;
  ~job() { --world_->callables; }

  turnkey::outcome operator()(turnkey::attempt& a) { return act(*world_, key_, depth_, a); }

 private:
  world* world_;
  int key_;
  int depth_;
  std::array<std::byte, Padding> padding_{};
};

inline turnkey::task_options some_options(dice& d, bool has_key) {
  turnkey::task_options o;
  if (has_key && d.chance(80)) o.policy = static_cast<turnkey::policy>(d.below(3));
  if (d.chance(15)) o.delay = std::chrono::microseconds(d.below(1500));
  if (d.chance(15))
    o.retry = turnkey::retry_policy{.max_attempts = static_cast<std::uint32_t>(1 + d.below(6)),
                                    .initial_delay = std::chrono::microseconds(d.below(300)),
                                    .max_delay = std::chrono::milliseconds{1},
                                    .max_postpones = 8};
  return o;
}

inline void submit_something(world& w, keyed& s, dice& d, int depth, std::vector<turnkey::task_id>& recent) {
  const int key = d.chance(10) ? support::history::no_key : static_cast<int>(d.below(key_count));
  const auto submit = [&](auto callback) {
    const turnkey::task_options o = some_options(d, key >= 0);
    const auto by = [&](auto&& call) { return key >= 0 ? call(key) : call(); };
    const turnkey::submit_result id = by([&](const auto&... k) {
      if (d.chance(5)) {
        try {
          return turnkey::submit_result(s.submit(k..., o, std::move(callback)));
        } catch (const turnkey::rejected& e) {
          return turnkey::submit_result(e.reason());
        }
      }
      if (d.chance(5)) return s.submit_for(std::chrono::milliseconds{2}, k..., o, std::move(callback));
      return s.try_submit(k..., o, std::move(callback));
    });
    if (!id) return;
    w.accepted(*id);
    if (recent.size() < 64) {
      recent.push_back(*id);
    } else {
      recent[d.below(64)] = *id;
    }
  };
  switch (d.below(3)) {
    case 0: submit([&w, key, depth](turnkey::attempt& a) { return act(w, key, depth, a); }); break;
    case 1: submit(job<1>(w, key, depth)); break;
    default: submit(job<100>(w, key, depth)); break;
  }
}

// One of the things that a thread may do from outside.
inline void do_something(world& w, keyed& s, dice& d, bool releases, std::vector<turnkey::task_id>& recent) {
  const auto some_id = [&] { return recent.empty() ? turnkey::task_id{1} : recent[d.below(recent.size())]; };
  const int key = static_cast<int>(d.below(key_count));
  switch (d.below(120)) {
    default: submit_something(w, s, d, 0, recent); break;
    case 0:
    case 1:
    case 2:
    case 3:
    case 4:
    case 5: s.cancel(some_id()); break;
    case 6: s.cancel(key); break;
    case 7: s.redrive(some_id()); break;
    case 8: s.discard(some_id()); break;
    case 9: s.redrive(key); break;
    case 10: s.discard(key); break;
    case 11:
      if (releases) s.release(key);
      break;
    case 12:
      if (releases && d.chance(20)) s.release_all();
      break;
    case 13:
      if (d.chance(20)) s.redrive_all();
      break;
    case 14:
      if (d.chance(20)) s.discard_all();
      break;
    case 15:
      if (d.chance(5)) s.cancel_all();
      break;
    case 16: static_cast<void>(s.dead_tasks()); break;
    case 17: static_cast<void>(s.held_keys()); break;
    case 18:
    case 19: static_cast<void>(s.stats()); break;
    case 20:
    case 21:
    case 22:
    case 23: std::this_thread::yield(); break;
    case 24:
      if (d.chance(20)) std::this_thread::sleep_for(std::chrono::microseconds(d.below(500)));
      break;
  }
}

inline turnkey::options<int> some_settings(dice& d) {
  turnkey::options<int> o;
  o.default_policy = static_cast<turnkey::policy>(d.below(3));
  o.retry = turnkey::retry_policy{.max_attempts = 3,
                                  .initial_delay = std::chrono::microseconds{100},
                                  .max_delay = std::chrono::milliseconds{2},
                                  .max_postpones = 20};
  if (d.chance(30)) o.max_in_flight = 1 + d.below(3);
  o.max_pending = 50 + d.below(2000);
  if (d.chance(30)) o.max_pending_per_key = 1 + d.below(50);
  if (d.chance(50)) o.turn_budget = static_cast<std::uint32_t>(1 + d.below(20));
  if (d.chance(30)) o.turn_time = {};
  return o;
}

}  // namespace mix
