// The locks of the exploration: cooperative ones, on fibers. Who takes one lets the director decide who goes on. The
// same names as in include/turnkey/detail/sync.hpp, which this stands before.
#pragma once

#include <turnkey/detail/config.hpp>

#include "exploration/director.hpp"

#include <chrono>

namespace turnkey::inline v1::detail {

class TURNKEY_CAPABILITY("mutex") mutex {
 public:
  explicit mutex(unsigned /*patience*/ = 0) noexcept {}
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept TURNKEY_ACQUIRE() TURNKEY_NO_ANALYSIS {
    exploration::decide("lock", this);
    while (taken_) exploration::sleep("wants", this);
    taken_ = true;
  }
  void unlock() noexcept TURNKEY_RELEASE() TURNKEY_NO_ANALYSIS {
    taken_ = false;
    exploration::wake(this);
  }

 private:
  bool taken_ = false;
};

class TURNKEY_SCOPED_CAPABILITY lock {
 public:
  explicit lock(mutex& mutex) noexcept TURNKEY_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~lock() TURNKEY_RELEASE() {
    if (held_) mutex_.unlock();
  }
  lock(const lock&) = delete;
  lock& operator=(const lock&) = delete;

  void unlock() noexcept TURNKEY_RELEASE() {
    TURNKEY_ASSERT(held_, "what is let go of is held");
    held_ = false;
    mutex_.unlock();
  }
  void relock() noexcept TURNKEY_ACQUIRE() {
    TURNKEY_ASSERT(!held_, "what is taken again was let go of");
    mutex_.lock();
    held_ = true;
  }

 private:
  mutex& mutex_;
  bool held_ = true;
};

class condition_variable {
 public:
  void notify_one() noexcept { exploration::wake(this); }
  void notify_all() noexcept { exploration::wake(this); }

  void wait(mutex& mutex) noexcept TURNKEY_REQUIRES(mutex) TURNKEY_NO_ANALYSIS {
    mutex.unlock();
    exploration::sleep("waits", this);
    mutex.lock();
  }
  void wait_until(mutex& mutex, std::chrono::steady_clock::time_point) noexcept TURNKEY_REQUIRES(mutex) {
    wait(mutex);  // no scenario has a time of the real clock in it
  }
};

class holds_several {
 public:
  holds_several() noexcept {}
  ~holds_several() {}
  holds_several(const holds_several&) = delete;
  holds_several& operator=(const holds_several&) = delete;
};

using thread_id = int;
inline thread_id this_thread() noexcept { return exploration::who(); }

}  // namespace turnkey::inline v1::detail
