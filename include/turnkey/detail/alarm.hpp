// Asks the time source for the earliest wake that anybody wants. Threads may ask at once; the calls of wake_at() never
// overlap, so the latest one is the right one.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/time_source.hpp>

#include <optional>

namespace turnkey::inline v1::detail {

class alarm {
 public:
  explicit alarm(time_source& source) : source_(source) {}

  // `call` is called at `time` or before it.
  void want(time_point time, const wake& call) noexcept {
    lock lock(mutex_);
    if (stopped_ || (wanted_ && *wanted_ <= time)) return;
    wanted_ = time;
    if (setting_) return;  // whoever is at it will see the new time
    setting_ = true;
    while (!stopped_ && wanted_ && wanted_ != set_) {
      const time_point earliest = *wanted_;
      set_ = wanted_;
      lock.unlock();
      source_.wake_at(earliest, call);
      lock.relock();
    }
    setting_ = false;
    if (stopped_) idle_.notify_all();
  }

  // The time source has called: nothing is set any more.
  void rung() noexcept {
    lock lock(mutex_);
    wanted_.reset();
    set_.reset();
  }

  // No wake_at() follows, and none is under way when this has returned, unless `wait` says not to wait for it.
  void stop(bool wait) noexcept {
    lock lock(mutex_);
    stopped_ = true;
    while (wait && setting_) idle_.wait(mutex_);
  }

 private:
  time_source& source_;
  mutex mutex_;
  condition_variable idle_;
  std::optional<time_point> wanted_ TURNKEY_GUARDED_BY(mutex_);
  std::optional<time_point> set_ TURNKEY_GUARDED_BY(mutex_);
  bool setting_ TURNKEY_GUARDED_BY(mutex_) = false;
  bool stopped_ TURNKEY_GUARDED_BY(mutex_) = false;
};

}  // namespace turnkey::inline v1::detail
