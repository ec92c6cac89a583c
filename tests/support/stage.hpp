// A scheduler with string keys whose executor and clock move when told.
#pragma once

#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <string>
#include <thread>
#include <utility>

// Lets other threads have the processor for a while: time to do what they should not; no result hangs on it.
inline void give_time() {
  for (const auto end = turnkey::clock::now() + std::chrono::milliseconds{30}; turnkey::clock::now() < end;)
    std::this_thread::yield();
}

struct stage {
  explicit stage(turnkey::options<std::string> set = {}) : tasks(pool, with_time(std::move(set), time)) {}

  // Runs all that may start now.
  void run() { pool.run_all(); }

  // Runs all that may start, now and at every wake until `by` has passed.
  void pass(turnkey::duration by) {
    const turnkey::time_point end = turnkey::detail::later(time.now(), by);
    run();
    while (const auto next = time.next_wake()) {
      if (*next > end) break;
      time.jump(*next - time.now());
      run();
    }
    time.jump(end - time.now());
  }

  static turnkey::options<std::string> with_time(turnkey::options<std::string> set, turnkey::time_source& time) {
    set.time = &time;
    return set;
  }

  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  turnkey::scheduler<std::string> tasks;
};
