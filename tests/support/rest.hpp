// What must be so at the end of every run in the manual world.
#pragma once

#include "support/world.hpp"

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

namespace support {

// All tasks have finished, and the store is empty.
inline void look_at_rest(world& w) {
  w.check(w.drain() == turnkey::drain_result::drained, "10.1: drained");
  w.release_all();
  w.time.ring();
  const turnkey::stats s = w.scheduler()->stats();
  w.check(s.keys == 0 && s.held_keys == 0 && s.paused_keys == 0 && s.dead == 0, "10.5: at rest no key remains");
  w.check(s.permits_lost == w.judge.look(w.time.now()).permits_lost, "9.4: each lost permit is told of");
}

// Every scheduler dies, and its callbacks with it; permits that the executor still has do nothing, nor do completions.
// Gives what was wrong. A task that was handed back and submitted again is one in both worlds.
inline std::string leave_nothing(const std::vector<std::unique_ptr<world>>& worlds,
                                 turnkey::testing::manual_executor& executor) {
  for (const auto& w : worlds) w->destroy();
  executor.run_all();
  for (const auto& w : worlds)
    while (!w->deferred.empty()) {
      if (w->settle(0, turnkey::outcome::success())) return "7.1: a completion without a scheduler says true";
      w->abandon(0);
    }
  for (const auto& w : worlds)
    while (!w->guests.empty()) w->leave(0, turnkey::outcome::success());
  const auto owners = [&worlds](const modelled_task& t) {
    long sum = 0;
    for (const auto& w : worlds)
      for (const auto& other : w->judge.tasks()) sum += other.home == t.home;
    return sum;
  };
  for (const auto& w : worlds)
    for (const auto& t : w->judge.tasks())
      if (t.home.use_count() > owners(t)) return "10.4: a callback was not destroyed";
  return {};
}

}  // namespace support
