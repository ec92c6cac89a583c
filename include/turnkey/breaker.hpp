// Pauses a scheduler when too many attempts fail, so that work that is doomed does not walk through all its retries.
// Not brought by turnkey.hpp.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/event.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {

// When a breaker opens: `failures` of the last `window` attempts failed.
struct breaker_options {
  std::size_t failures = 5;  // 1 or more, at most `window`
  std::size_t window = 10;
};

// A circuit breaker. It watches a scheduler's attempts as its observer; when at least `failures` of the last `window`
// failed it opens: the scheduler is paused, and the user told. It closes, and the scheduler goes on, when an attempt
// that started after that, by step(), succeeds; or when the user calls reset(), or resumes the scheduler and something
// starts. The window begins afresh then. It undoes no pause but its own.
//
//   breaker b{{.failures = 5, .window = 20}, [](bool open) { std::puts(open ? "stopped" : "goes on"); }};
//   scheduler<std::string> s{pool, {.observer = b.watch<std::string>()}};
//   b.guard(s);
//
// What succeeds and what fails counts; what is postponed or cancelled does not. Attempts that already ran when it
// opened still end, and change nothing.
//
//   Needs    it outlives the scheduler; guard() comes before the first submit; no reset() once the scheduler is gone.
//   Threads  every other member from any thread. The user's function is called outside the lock, by one thread at a
//            time, with true and false in turn; what it throws is dropped. It may step, reset and set limits, which
//            hold before anything starts again; it must not wait.
//   Cost     a lock for each start and each end of an attempt, every shard's when it opens; memory: a bit for each
//            attempt of the window, and 64 ids.
//   From     the circuit breaker of Nygard, "Release It!" (2007).
class breaker {
 public:
  //   Throws   std::invalid_argument that names the option and its value; std::bad_alloc.
  explicit breaker(breaker_options options = {}, std::function<void(bool open)> tell = {})
      : failures_(options.failures), outcomes_(checked(options).window), tell_(std::move(tell)) {}
  breaker(const breaker&) = delete;
  breaker& operator=(const breaker&) = delete;

  // The observer for the options of the scheduler; every event goes on to `next`.
  //   Throws   std::bad_alloc.
  template <class Key>
  [[nodiscard]] observer<Key> watch(observer<Key> next = {}) {
    return [this, next = std::move(next)](const event<Key>& e) {
      hear(e.kind, e.id, e.error);
      if (next) next(e);
    };
  }

  // Says which scheduler is paused and resumed. Without one the user is told, and nothing else happens.
  //   Throws   std::bad_alloc.
  template <class Scheduler>
  void guard(Scheduler& scheduler) {
    pause_ = [&scheduler] { return scheduler.pause(); };
    resume_ = [&scheduler] { scheduler.resume(); };
    paused_ = [&scheduler] { return scheduler.paused(); };
    started_in_all_ = [&scheduler] { return scheduler.stats().started; };
  }

  // True from when the scheduler is paused and every earlier start has been heard of: what starts from then on is a
  // step.
  [[nodiscard]] bool is_open() const noexcept {
    const detail::lock lock(mutex_);
    return state_ == state::open;
  }

  // Closes it, and lets the scheduler go on; false when it was closed. When another thread is just opening or closing
  // it, that one lets the scheduler go on.
  bool reset() noexcept {
    {
      const detail::lock lock(mutex_);
      if (state_ == state::closed || state_ == state::closing) return false;
      state_ = state::closing;
    }
    act();
    return true;
  }

 private:
  enum class state : std::uint8_t {
    closed,   // outcomes are counted
    tripped,  // too many failed: the scheduler is to be paused
    halting,  // it is; of what started before, not all has been heard
    open,     // what starts is a step
    closing,  // the user is to be told, then the scheduler resumed
  };

  static const breaker_options& checked(const breaker_options& o) {
    if (o.failures == 0) throw std::invalid_argument("turnkey: breaker.failures is 0; 1 or more");
    if (o.failures > o.window)
      throw std::invalid_argument("turnkey: breaker.failures is " + std::to_string(o.failures) +
                                  ", more than breaker.window, which is " + std::to_string(o.window));
    return o;
  }

  void hear(event_kind kind, task_id id, const failure* error) noexcept {
    switch (kind) {
      case event_kind::started: return started(id);
      case event_kind::succeeded: return ended(id, false);
      case event_kind::dead:
        if (error != nullptr && error->reason() == failure_reason::postponed_out) return;  // nothing failed
        return ended(id, true);
      case event_kind::failed: return ended(id, true);
      default: return;
    }
  }

  void started(task_id id) noexcept {
    std::uint64_t opening;
    {
      detail::lock lock(mutex_);
      ++started_;
      if (state_ == state::halting) {
        lock.unlock();
        return act();
      }
      if (state_ != state::open) return;
      steps_[next_step_++ % steps_.size()] = id;
      opening = openings_;
    }
    if (paused_()) return;
    {
      const detail::lock lock(mutex_);  // resumed by hand, unless it was closed meanwhile
      if (state_ != state::open || openings_ != opening) return;
      state_ = state::closing;
    }
    act();
  }

  void ended(task_id id, bool failed) noexcept {
    {
      detail::lock lock(mutex_);
      if (state_ == state::open) {
        if (failed || !is_step(id)) return;
        state_ = state::closing;
      } else {
        if (state_ != state::closed || !note(failed)) return;
        state_ = state::tripped;
        lock.unlock();
        pause();  // at once: who acts may be below this, in a resume() that runs tasks inline
      }
    }
    act();
  }

  // Brings the scheduler and the user up to date. One thread at a time does, until nothing is left to do; others leave
  // it to that one.
  void act() noexcept {
    detail::lock lock(mutex_);
    if (std::exchange(acting_, true)) return;
    for (;;) {
      if (state_ == state::tripped) {
        lock.unlock();
        pause();  // again: a resume() may have been on its way
        const std::uint64_t all = started_in_all_();
        lock.relock();
        if (state_ == state::tripped) state_ = state::halting;
        started_before_ = all;
      } else if (state_ == state::halting && started_ >= started_before_) {
        state_ = state::open;
        ++openings_;
        told_ = true;
        lock.unlock();
        tell(true);
        lock.relock();
      } else if (state_ == state::closing) {
        start_afresh();
        const bool was_told = std::exchange(told_, false);
        lock.unlock();
        if (was_told) tell(false);
        lock.relock();
      } else if (state_ == state::closed && pause_is_ours_) {
        pause_is_ours_ = false;
        lock.unlock();
        resume_();
        lock.relock();
      } else {
        acting_ = false;
        return;
      }
    }
  }

  void pause() noexcept {
    if (!pause_()) return;
    const detail::lock lock(mutex_);
    pause_is_ours_ = true;
  }

  void tell(bool open) noexcept {
    try {
      if (tell_) tell_(open);
    } catch (...) {  // as with an observer: one that throws harms nothing
    }
  }

  // True when so many have failed now.
  [[nodiscard]] bool note(bool failed) noexcept TURNKEY_REQUIRES(mutex_) {
    failed_ -= outcomes_[next_];
    failed_ += failed;
    outcomes_[next_] = failed;
    next_ = (next_ + 1) % outcomes_.size();
    return failed_ >= failures_;
  }

  [[nodiscard]] bool is_step(task_id id) const noexcept TURNKEY_REQUIRES(mutex_) {
    for (std::size_t i = 0; i != steps_.size() && i != next_step_; ++i)
      if (steps_[i] == id) return true;
    return false;
  }

  void start_afresh() noexcept TURNKEY_REQUIRES(mutex_) {
    state_ = state::closed;
    outcomes_.assign(outcomes_.size(), false);
    next_ = failed_ = next_step_ = 0;
  }

  mutable detail::mutex mutex_;
  const std::size_t failures_;
  state state_ TURNKEY_GUARDED_BY(mutex_) = state::closed;
  bool acting_ TURNKEY_GUARDED_BY(mutex_) = false;         // a thread is in act()
  bool told_ TURNKEY_GUARDED_BY(mutex_) = false;           // that it is open
  bool pause_is_ours_ TURNKEY_GUARDED_BY(mutex_) = false;  // not the user's
  std::vector<bool> outcomes_ TURNKEY_GUARDED_BY(mutex_);  // the window, a ring: which failed
  std::size_t next_ TURNKEY_GUARDED_BY(mutex_) = 0;
  std::size_t failed_ TURNKEY_GUARDED_BY(mutex_) = 0;            // in the window
  std::uint64_t started_ TURNKEY_GUARDED_BY(mutex_) = 0;         // attempts, as far as heard
  std::uint64_t started_before_ TURNKEY_GUARDED_BY(mutex_) = 0;  // the pause
  std::uint64_t openings_ TURNKEY_GUARDED_BY(mutex_) = 0;
  std::array<task_id, 64> steps_ TURNKEY_GUARDED_BY(mutex_){};  // a ring: what started while it is open
  std::size_t next_step_ TURNKEY_GUARDED_BY(mutex_) = 0;
  // Set before the first event, read without the lock.
  std::function<bool()> pause_ = [] { return false; };
  std::function<void()> resume_;  // is there when pause_is_ours_
  std::function<bool()> paused_ = [] { return true; };
  std::function<std::uint64_t()> started_in_all_ = [] { return std::uint64_t{0}; };
  std::function<void(bool open)> tell_;
};

}  // namespace turnkey::inline v1
