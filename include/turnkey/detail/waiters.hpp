// Where drain(), stop() and submit_for() sleep. A waiter looks at its condition, and sleeps unless something happened
// since before it looked: no wake-up is lost, and the condition is looked at outside this lock.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/outcome.hpp>

#include <cstdint>
#include <optional>

namespace turnkey::inline v1::detail {

class waiters {
 public:
  // Waits until `done()` is true; false when the time came first. `done` is called without a lock; after the time has
  // come it is asked once more.
  template <class Done>
  bool wait(const std::optional<time_point>& until, Done done) {
    lock lock(mutex_);
    while (true) {
      const std::uint64_t seen = happened_;
      lock.unlock();
      const bool late = until && clock::now() >= *until;
      const bool over = done();
      lock.relock();
      if (over || late) return over;
      while (happened_ == seen) {
        if (!until) {
          changed_.wait(mutex_);
        } else if (clock::now() < *until) {
          changed_.wait_until(mutex_, *until);
        } else {
          break;
        }
      }
    }
  }

  void notify() noexcept {
    lock lock(mutex_);
    ++happened_;
    changed_.notify_all();
  }

 private:
  mutex mutex_;
  condition_variable changed_;
  std::uint64_t happened_ TURNKEY_GUARDED_BY(mutex_) = 0;
};

}  // namespace turnkey::inline v1::detail
