// The locks of a checked test build: each thread knows how many it holds, and holding two at once ends the test, but
// where the library says that it does. The same names as in include/turnkey/detail/sync.hpp, which this stands before.
#pragma once

#include <turnkey/detail/config.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

namespace turnkey::inline v1::detail {

inline thread_local int locks_held = 0;
inline thread_local bool may_hold_several = false;

class TURNKEY_CAPABILITY("mutex") mutex {
 public:
  explicit mutex(unsigned /*patience*/ = 0) noexcept {}
  void lock() noexcept TURNKEY_ACQUIRE() {
    if (locks_held != 0 && !may_hold_several) {
      std::fputs("a thread takes a second lock: locks are leaves\n", stderr);
      std::abort();
    }
    native_.lock();
    ++locks_held;
  }
  void unlock() noexcept TURNKEY_RELEASE() {
    --locks_held;
    native_.unlock();
  }

 private:
  friend class condition_variable;
  std::mutex native_;
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
    held_ = false;
    mutex_.unlock();
  }
  void relock() noexcept TURNKEY_ACQUIRE() {
    mutex_.lock();
    held_ = true;
  }

 private:
  mutex& mutex_;
  bool held_ = true;
};

class condition_variable {
 public:
  void notify_one() noexcept { native_.notify_one(); }
  void notify_all() noexcept { native_.notify_all(); }

  void wait(mutex& mutex) noexcept TURNKEY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.native_, std::adopt_lock);
    native_.wait(lock);
    lock.release();
  }
  void wait_until(mutex& mutex, std::chrono::steady_clock::time_point time) noexcept TURNKEY_REQUIRES(mutex) {
    std::unique_lock<std::mutex> lock(mutex.native_, std::adopt_lock);
    native_.wait_until(lock, time);
    lock.release();
  }

 private:
  std::condition_variable native_;
};

class holds_several {
 public:
  holds_several() noexcept { may_hold_several = true; }
  ~holds_several() { may_hold_several = false; }
  holds_several(const holds_several&) = delete;
  holds_several& operator=(const holds_several&) = delete;
};

using thread_id = std::thread::id;
inline thread_id this_thread() noexcept { return std::this_thread::get_id(); }

}  // namespace turnkey::inline v1::detail
