// The mutex and the condition variable that everything else is written with, with the marks that clang's thread-safety
// analysis reads. A test build puts its own file of this name first in the include path.
#pragma once

#include <turnkey/detail/config.hpp>

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace turnkey::inline v1::detail {

class TURNKEY_CAPABILITY("mutex") mutex {
 public:
  // What is guarded here is done within a fraction of a microsecond, and a sleep costs many: so it is tried again a few
  // times, at growing distances.
  void lock() noexcept TURNKEY_ACQUIRE() {
    for (unsigned pauses = 4; pauses <= 64; pauses *= 2) {
      if (native_.try_lock()) return;
      for (unsigned i = 0; i != pauses; ++i) relax();
    }
    native_.lock();
  }
  void unlock() noexcept TURNKEY_RELEASE() { native_.unlock(); }

 private:
  friend class condition_variable;

  static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  std::mutex native_;
};

// Holds a mutex for a scope; may let go of it and take it again.
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

  // Both may return early: the caller looks again.
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

// Stands in the one scope that holds more than one lock. A test build checks that nobody else does.
class holds_several {
 public:
  holds_several() noexcept {}
  ~holds_several() {}
  holds_several(const holds_several&) = delete;
  holds_several& operator=(const holds_several&) = delete;
};

}  // namespace turnkey::inline v1::detail
