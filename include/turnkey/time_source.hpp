// Time as turnkey sees it: what now is, and a wake when a moment has come. The default is the steady clock and one
// thread; an event loop or a test can take its place.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/outcome.hpp>

#include <chrono>
#include <ctime>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

namespace turnkey::inline v1 {
namespace detail {

// What a `wake` points to, and keeps alive.
struct wakeable {
  void (*keep)(wakeable&) noexcept;
  void (*drop)(wakeable&) noexcept;
  void (*woken)(wakeable&) noexcept;
};

}  // namespace detail

// What a time source calls when the time has come.
//   Gives    looks at what is due and lets it start; early, late and repeated calls are harmless, also after the
//            scheduler is gone.
//   Threads  any; it runs no callback but through the executor (an inline_executor runs them here).
class wake {
 public:
  wake() noexcept = default;
  explicit wake(detail::wakeable& target) noexcept : target_(&target) { keep(); }
  wake(const wake& other) noexcept : target_(other.target_) { keep(); }
  wake(wake&& other) noexcept : target_(std::exchange(other.target_, nullptr)) {}
  wake& operator=(wake other) noexcept {
    std::swap(target_, other.target_);
    return *this;
  }
  ~wake() {
    if (target_ != nullptr) target_->drop(*target_);
  }

  void operator()() const noexcept {
    if (target_ != nullptr) target_->woken(*target_);
  }
  explicit operator bool() const noexcept { return target_ != nullptr; }

 private:
  void keep() noexcept {
    if (target_ != nullptr) target_->keep(*target_);
  }

  detail::wakeable* target_ = nullptr;
};

// A clock and an alarm for one scheduler.
//   Needs    it outlives stop() of the scheduler that it was given to.
//   Threads  both functions are called from any thread, also from within a wake.
class time_source {
 public:
  time_source() = default;
  time_source(const time_source&) = delete;
  time_source& operator=(const time_source&) = delete;
  virtual ~time_source() = default;

  // The time, never running backwards.
  [[nodiscard]] virtual time_point now() noexcept = 0;

  // Calls `wake` at `time` or later; the latest call counts, an earlier setting is forgotten. A time that has passed
  // means soon, time_point::max() means never. It may call `wake` before it returns, once the
  // time has come.
  virtual void wake_at(time_point time, wake wake) noexcept = 0;
};

// The default: std::chrono::steady_clock, and one thread that sleeps until the earliest wake.
class steady_time_source final : public time_source {
 public:
  steady_time_source() = default;
  ~steady_time_source() override { stop(); }

  [[nodiscard]] time_point now() noexcept override { return clock::now(); }

  // The time at the last tick of the system, some milliseconds ago at most, for a fraction of the price of now(). It
  // says how old something is, not when something is due.
  [[nodiscard]] static time_point lately() noexcept {
#if defined(CLOCK_MONOTONIC_COARSE)
    timespec t;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return time_point{std::chrono::seconds{t.tv_sec} + std::chrono::nanoseconds { t.tv_nsec }};
#else
    return clock::now();
#endif
  }

  void wake_at(time_point time, wake wake) noexcept override {
    detail::lock lock(state_->mutex);
    if (state_->stopped) return;
    state_->time = time;
    std::swap(state_->call, wake);
    state_->changed.notify_one();
    lock.unlock();  // what `wake` held before may die now
  }

  // Starts the thread, once.
  //   Throws   std::system_error when there is no thread to be had; nothing has changed then.
  void start() {
    detail::lock lock(state_->mutex);
    if (state_->stopped || thread_.joinable()) return;
    thread_ = std::thread([state = state_] { state->run(); });
  }

  // Ends the thread; nothing is called afterwards. Waits for a wake that is under way, unless it is this one that
  // asks, or `wait` is false.
  void stop(bool wait = true) noexcept {
    wake last;
    {
      detail::lock lock(state_->mutex);
      state_->stopped = true;
      std::swap(last, state_->call);
      state_->changed.notify_one();
    }
    if (!thread_.joinable()) return;
    if (!wait || thread_.get_id() == std::this_thread::get_id()) {
      thread_.detach();
    } else {
      thread_.join();
    }
  }

 private:
  // Shared with the thread, which may outlive the source by the rest of one wake.
  struct state {
    void run() noexcept {
      detail::lock lock(mutex);
      while (!stopped) {
        if (time == (time_point::max)()) {
          changed.wait(mutex);
        } else if (clock::now() < time) {
          changed.wait_until(mutex, time);
        } else {
          time = (time_point::max)();
          {
            const wake due = call;
            lock.unlock();
            due();
          }  // it may hold the last reference to the owner of this source: it dies outside the lock
          lock.relock();
        }
      }
    }

    detail::mutex mutex;
    detail::condition_variable changed;
    time_point time TURNKEY_GUARDED_BY(mutex) = (time_point::max)();
    wake call TURNKEY_GUARDED_BY(mutex);
    bool stopped TURNKEY_GUARDED_BY(mutex) = false;
  };

  std::shared_ptr<state> state_ = std::make_shared<state>();
  std::thread thread_;
};

}  // namespace turnkey::inline v1
