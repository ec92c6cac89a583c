// Those who submit, cancel, redrive, discard and send; and the one who pauses, limits, paces and looks.
#pragma once

#include <turnkey/turnkey.hpp>

#include "endurance/messages.hpp"
#include "endurance/world.hpp"
#include "support/dice.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

namespace endurance {

inline turnkey::task_options some_options(dice& d, turnkey::policy how) {
  turnkey::task_options o{.policy = how};
  if (d.chance(5)) o.delay = std::chrono::microseconds(d.below(5000));
  if (d.chance(10))
    o.retry = turnkey::retry_policy{.max_attempts = static_cast<std::uint32_t>(1 + d.below(6)),
                                    .initial_delay = std::chrono::microseconds(d.below(500)),
                                    .max_delay = std::chrono::milliseconds{2},
                                    .max_postpones = 2};
  return o;
}

// What one thread does to the scheduler of the moment: mostly it submits.
class producer {
 public:
  producer(world& w, std::size_t number) : w_(w), number_(number), submitted_(w.data.size()) {}

  void act(life& here, dice& d) {
    keyed& s = here.tasks;
    const int key = w_.some_key(d);
    switch (d.below(200)) {
      case 0:
      case 1:
      case 2: s.cancel(recent(d)); break;
      case 3: s.redrive(recent(d)); break;
      case 4: w_.discarded += s.discard(recent(d)); break;
      case 5: s.redrive(key); break;
      case 6: w_.discarded += s.discard(key); break;
      case 7:
        if (d.chance(2)) s.cancel(key);
        break;
      case 8:
        if (d.chance(1)) s.redrive_all();
        break;
      case 9:
        if (d.chance(1)) w_.discarded += s.discard_all();
        break;
      case 10:
        if (d.below(2000) == 0) s.cancel_all();
        break;
      case 11: here.beside->cancel_some(d); break;
      case 12:
      case 13:
      case 14:
      case 15:
      case 16: here.beside->send(number_, d); break;
      default: submit(s, d, key);
    }
  }

 private:
  void submit(keyed& s, dice& d, int key) {
    job next(w_);
    const auto how = static_cast<turnkey::policy>(d.below(3));
    const turnkey::task_options o = some_options(d, how);
    if (how == turnkey::policy::parallel && d.chance(30)) return accept(s.try_submit(o, std::move(next)), d);
    next.add_key(key);
    std::vector<int> all{key};
    if (how != turnkey::policy::parallel && d.chance(3))
      for (std::size_t n = 1 + d.below(2); n != 0; --n)
        if (const int other = w_.some_key(d); std::find(all.begin(), all.end(), other) == all.end()) {
          next.add_key(other);
          all.push_back(other);
        }
    if (how == turnkey::policy::ordered) next.is_ordered(number_, submitted_);
    if (all.size() != 1) return accept(s.try_submit(turnkey::keys<int>(all), o, std::move(next)), d);
    if (d.chance(5)) return accept(s.submit_for(std::chrono::milliseconds{2}, key, o, std::move(next)), d);
    accept(s.try_submit(key, o, std::move(next)), d);
  }

  void accept(const turnkey::submit_result& taken, dice& d) {
    if (!taken) return std::this_thread::yield();
    ++w_.accepted;
    if (recent_.size() < 64) recent_.push_back(*taken);
    recent_[d.below(recent_.size())] = *taken;
  }

  turnkey::task_id recent(dice& d) const {
    return recent_.empty() ? turnkey::task_id{} : recent_[d.below(recent_.size())];
  }

  world& w_;
  const std::size_t number_;
  std::vector<std::uint64_t> submitted_;  // ordered tasks, by key
  std::vector<turnkey::task_id> recent_;
};

// Nothing keeps anything any more.
inline void open_all(keyed& s) {
  s.set_pace({});
  s.set_max_in_flight({});
  for (const int key : s.paused_keys()) s.resume(key);
  s.resume();
  s.release_all();
}

// Pauses, limits, paces and looks; what it closes it opens soon.
inline void control(world& w, keyed& s, dice& d) {
  const int key = w.some_key(d);
  switch (d.below(12)) {
    case 0:
      s.pause();
      s.step(d.below(20));
      break;
    case 1:
    case 2: s.pause(key); break;
    case 3: s.set_max_in_flight(1 + d.below(4)); break;
    case 4:
      s.set_pace(turnkey::pace{
          .n = 1.0 + static_cast<double>(d.below(20)), .interval = std::chrono::microseconds{100}, .burst = 4});
      break;
    case 5: s.release(key); break;
    case 6: static_cast<void>(s.held_keys()); break;
    case 7: static_cast<void>(s.dead_tasks()); break;
    case 8:
      for (const auto& each : s.busiest_keys(3)) {
        s.expedite(each.head);
        if (const auto info = s.find(each.head)) static_cast<void>(to_string(info->why));
      }
      break;
    default: break;
  }
  std::this_thread::sleep_for(std::chrono::microseconds(d.below(3000)));
  if (d.chance(80)) open_all(s);
}

}  // namespace endurance
