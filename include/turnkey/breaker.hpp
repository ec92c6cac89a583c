// Pauses a scheduler when too many attempts fail, so that work that is doomed does not walk through all its retries.
// Not brought by turnkey.hpp.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/event.hpp>
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
// starts beyond the steps. The window begins afresh then.
//
//   breaker b{{.failures = 5, .window = 20}, [](bool open) { std::puts(open ? "stopped" : "goes on"); }};
//   scheduler<std::string> s{pool, {.observer = b.watch<std::string>()}};
//   b.guard(s);
//
// What succeeds and what fails counts; what is postponed or cancelled does not. Attempts that already ran when it
// opened still end, and change nothing.
//
//   Needs    it outlives the scheduler; guard() comes before the first submit.
//   Threads  every member from any thread; the user's function is called outside the lock, maybe concurrently.
//   Cost     a lock for each attempt; memory: a bit of the window each, and the ids of what was stepped.
//   From     the circuit breaker of Nygard, "Release It!" (2007).
class breaker {
 public:
  //   Throws   std::invalid_argument that names the option and its value; std::bad_alloc.
  explicit breaker(breaker_options options = {}, std::function<void(bool open)> tell = {})
      : failures_(options.failures), outcomes_(checked(options).window), tell_(std::move(tell)) {}
  breaker(const breaker&) = delete;
  breaker& operator=(const breaker&) = delete;

  // The observer for the options of the scheduler; every event goes on to `next`.
  template <class Key>
  [[nodiscard]] observer<Key> watch(observer<Key> next = {}) {
    return [this, next = std::move(next)](const event<Key>& e) {
      hear(e.kind, e.id);
      if (next) next(e);
    };
  }

  // Says which scheduler is paused and resumed.
  template <class Scheduler>
  void guard(Scheduler& scheduler) {
    const detail::lock lock(mutex_);
    pause_ = [&scheduler] { scheduler.pause(); };
    resume_ = [&scheduler] { scheduler.resume(); };
    paused_ = [&scheduler] { return scheduler.paused(); };
  }

  [[nodiscard]] bool is_open() const {
    const detail::lock lock(mutex_);
    return open_;
  }

  // Closes it, and lets the scheduler go on; false when it was closed.
  bool reset() {
    if (!close()) return false;
    changed(false);
    return true;
  }

 private:
  static const breaker_options& checked(const breaker_options& o) {
    if (o.failures == 0) throw std::invalid_argument("turnkey: breaker.failures is 0; 1 or more");
    if (o.failures > o.window)
      throw std::invalid_argument("turnkey: breaker.failures is " + std::to_string(o.failures) +
                                  ", more than breaker.window, which is " + std::to_string(o.window));
    return o;
  }

  void hear(event_kind kind, task_id id) {
    switch (kind) {
      case event_kind::started: return started(id);
      case event_kind::succeeded: return ended(id, false);
      case event_kind::failed:
      case event_kind::dead: return ended(id, true);
      default: return;
    }
  }

  void started(task_id id) {
    {
      const detail::lock lock(mutex_);
      if (!shut_) return;
      tried_[next_tried_++ % tried_.size()] = id;
    }
    if (!paused_()) reset();  // by hand
  }

  void ended(task_id id, bool failed) {
    bool opened = false;
    bool closed = false;
    {
      const detail::lock lock(mutex_);
      if (open_) {
        closed = shut_ && !failed && was_tried(id);
        if (closed) start_afresh();
      } else {
        opened = note(failed);
      }
    }
    if (opened) changed(true);
    if (closed) changed(false);
  }

  // True when that opens it.
  [[nodiscard]] bool note(bool failed) TURNKEY_REQUIRES(mutex_) {
    failed_ -= outcomes_[next_];
    failed_ += failed;
    outcomes_[next_] = failed;
    next_ = (next_ + 1) % outcomes_.size();
    open_ = failed_ >= failures_;
    return open_;
  }

  [[nodiscard]] bool was_tried(task_id id) const TURNKEY_REQUIRES(mutex_) {
    for (std::size_t i = 0; i != tried_.size() && i != next_tried_; ++i)
      if (tried_[i] == id) return true;
    return false;
  }

  [[nodiscard]] bool close() {
    const detail::lock lock(mutex_);
    if (!open_) return false;
    start_afresh();
    return true;
  }

  void start_afresh() TURNKEY_REQUIRES(mutex_) {
    open_ = shut_ = false;
    outcomes_.assign(outcomes_.size(), false);
    next_ = failed_ = next_tried_ = 0;
  }

  void changed(bool open) {
    if (open && pause_) {
      pause_();
      bool reset_meanwhile;
      {
        const detail::lock lock(mutex_);
        reset_meanwhile = !open_;
        shut_ = open_;
      }
      if (reset_meanwhile) resume_();
    } else if (!open && resume_) {
      resume_();
    }
    if (tell_) tell_(open);
  }

  mutable detail::mutex mutex_;
  const std::size_t failures_;
  bool open_ TURNKEY_GUARDED_BY(mutex_) = false;
  bool shut_ TURNKEY_GUARDED_BY(mutex_) = false;           // open, and the scheduler is paused
  std::vector<bool> outcomes_ TURNKEY_GUARDED_BY(mutex_);  // the window, a ring: which failed
  std::size_t next_ TURNKEY_GUARDED_BY(mutex_) = 0;
  std::size_t failed_ TURNKEY_GUARDED_BY(mutex_) = 0;           // in the window
  std::array<task_id, 64> tried_ TURNKEY_GUARDED_BY(mutex_){};  // started while open: the last ones
  std::size_t next_tried_ TURNKEY_GUARDED_BY(mutex_) = 0;
  // Set before the first event, read without the lock.
  std::function<void()> pause_;
  std::function<void()> resume_;
  std::function<bool()> paused_;
  std::function<void(bool open)> tell_;
};

}  // namespace turnkey::inline v1
