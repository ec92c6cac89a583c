// The mutex, the condition variable and the name of a thread that everything else is written with, with the marks that
// clang's thread-safety analysis reads. A test build puts its own file of this name first in the include path.
#pragma once

#include <turnkey/detail/config.hpp>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <thread>

namespace turnkey::inline v1::detail {

// Four bytes, and half the instructions of a std::mutex: a task's way goes through it five times. The third mutex of
// Drepper, "Futexes are tricky" (2011), that sleeps through std::atomic.
class TURNKEY_CAPABILITY("mutex") mutex {
 public:
  // `patience`: how long the first new try waits. Short where everybody comes by once; longer where one thread comes
  // often and keeps what is guarded in its cache, as with a hot key: letting it go on is cheaper than moving the lines.
  explicit mutex(unsigned patience = 4) noexcept : patience_(patience) {}
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  // Acquire: whoever gets it sees what was done under it before.
  void lock() noexcept TURNKEY_ACQUIRE() TURNKEY_NO_ANALYSIS {
    if (!try_lock()) lock_slowly();
  }
  // Release: what was done under it is seen by whoever gets it next, who must not destroy it until this has returned:
  // what lives as long as its last user counts references (see engine::keep).
  void unlock() noexcept TURNKEY_RELEASE() TURNKEY_NO_ANALYSIS {
    if (state_.exchange(unlocked, std::memory_order_release) == awaited) state_.notify_one();
  }

 private:
  static constexpr int unlocked = 0;
  static constexpr int locked = 1;
  static constexpr int awaited = 2;  // locked, and somebody may sleep

  [[nodiscard]] bool try_lock() noexcept {
    int expected = unlocked;
    return state_.compare_exchange_strong(expected, locked, std::memory_order_acquire, std::memory_order_relaxed);
  }

  // What is guarded here is done within a fraction of a microsecond, and a sleep costs many: so it is tried again a few
  // times, at growing distances.
  void lock_slowly() noexcept {
    for (unsigned pauses = patience_; pauses <= 16 * patience_; pauses *= 2) {
      for (unsigned i = 0; i != pauses; ++i) relax();
      if (state_.load(std::memory_order_relaxed) == unlocked && try_lock()) return;
    }
    while (state_.exchange(awaited, std::memory_order_acquire) != unlocked)
      state_.wait(awaited, std::memory_order_relaxed);
  }

  static void relax() noexcept {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#endif
  }

  std::atomic<int> state_{unlocked};
  unsigned patience_;  // in pauses of the processor
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
  void notify_one() noexcept { native_.notify_one(); }
  void notify_all() noexcept { native_.notify_all(); }

  // Both may return early: the caller looks again.
  void wait(mutex& mutex) noexcept TURNKEY_REQUIRES(mutex) { native_.wait(mutex); }
  void wait_until(mutex& mutex, std::chrono::steady_clock::time_point time) noexcept TURNKEY_REQUIRES(mutex) {
    native_.wait_until(mutex, time);
  }

 private:
  std::condition_variable_any native_;
};

// Who asks.
using thread_id = std::thread::id;
inline thread_id this_thread() noexcept { return std::this_thread::get_id(); }

// Stands in the one scope that holds more than one lock. A test build checks that nobody else does.
class holds_several {
 public:
  holds_several() noexcept {}
  ~holds_several() {}
  holds_several(const holds_several&) = delete;
  holds_several& operator=(const holds_several&) = delete;
};

}  // namespace turnkey::inline v1::detail
