// One key of a scheduler whose executor and clock move when told; the operations that meet on it, each in a fiber; and
// what must hold when they have met, in whatever order: the history is folded over the rules, nothing starts after
// what forbids it has returned, and all that is left finishes.
#pragma once

#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "exploration/director.hpp"
#include "support/history.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace exploration {

using namespace std::chrono_literals;
using turnkey::policy;

enum class operation : std::uint8_t {
  submit,
  succeed,   // a worker comes with a permit, and a callback succeeds
  fail,      // the same, but the callback fails once
  timer,     // a delayed task is due, and the clock rings
  cancel,    // the task that is next, or delayed; all of the key where one is deferred
  pause,     // everything
  resume,    // after a pause that was there before
  limit,     // lowered to one
  stop,      //
  destroy,   // the scheduler
  complete,  // a deferred attempt, after its callback has returned
  lose,      // the executor drops a permit
  redrive,   // a dead task
};
inline constexpr std::array<const char*, 13> names{"submit",   "succeed", "fail",   "timer", "cancel",
                                                   "pause",    "resume",  "limit",  "stop",  "destroy",
                                                   "complete", "lose",    "redrive"};
inline constexpr int operations = static_cast<int>(names.size());
inline const char* name_of(operation o) { return names[static_cast<std::size_t>(o)]; }

// Who calls a scheduler that is being destroyed has a bug that is not ours.
inline bool calls_the_scheduler(operation o) {
  return o != operation::succeed && o != operation::fail && o != operation::timer && o != operation::complete &&
         o != operation::lose;
}
inline bool may_meet(operation a, operation b) {
  if (a == operation::destroy) return !calls_the_scheduler(b);
  if (b == operation::destroy) return !calls_the_scheduler(a);
  return true;
}

class scene {
 public:
  // `prepared` are what the operations need; `behind` stands in line behind them.
  scene(const std::vector<operation>& of, policy prepared, policy behind) {
    const auto needs = [&of](operation o) { return std::find(of.begin(), of.end(), o) != of.end(); };
    tasks_ = std::make_unique<turnkey::scheduler<int>>(
        pool_, turnkey::options<int>{.retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 1ms},
                                     .max_in_flight = 4,
                                     .lease_time = 1s,
                                     .lease_expiry = turnkey::lease_expiry::release,
                                     .observer = [this](const turnkey::event<int>& e) { history_.note(e); },
                                     .time = &time_});
    if (needs(operation::redrive)) {
      const auto dies = tasks_->submit(1, {.policy = prepared, .retry = turnkey::retry_policy{.max_attempts = 1}},
                                       [this, first = true]() mutable { return works(std::exchange(first, false)); });
      pool_.run_all();
      dead_ = dies;
    }
    if (needs(operation::complete)) {
      tasks_->submit(1, {.policy = prepared}, [this](turnkey::attempt& a) { deferred_.emplace(a.defer()); });
      pool_.run_all();
    }
    std::optional<turnkey::task_id> delayed;
    if (needs(operation::timer))
      delayed = tasks_->submit(1, {.policy = prepared, .delay = 1ms}, [this] { return works(false); });
    if (needs(operation::resume)) tasks_->pause();
    if (needs(operation::fail))
      tasks_->submit(1, {.policy = prepared},
                     [this, first = true]() mutable { return works(std::exchange(first, false)); });
    next_ = tasks_->submit(1, {.policy = prepared}, [this] { return works(false); });
    if (delayed) next_ = *delayed;
    tasks_->submit(1, {.policy = behind}, [this] { return works(false); });
    submits_ = behind;
  }

  void perform(operation o) {
    switch (o) {
      case operation::submit:
        static_cast<void>(tasks_->try_submit(1, {.policy = submits_}, [this] { return works(false); }));
        return;
      case operation::succeed:
      case operation::fail: pool_.run_one(); return;
      case operation::timer: time_.advance(deferred_ ? 1s : 1ms); return;  // then a lease is over too
      case operation::cancel:
        if (deferred_) {
          tasks_->cancel(1);
        } else {
          tasks_->cancel(next_);
        }
        return;
      case operation::pause:
        tasks_->pause();
        started_then_ = tasks_->stats().started;
        return;
      case operation::resume: tasks_->resume(); return;
      case operation::limit:
        tasks_->set_max_in_flight(1);
        running_then_ = tasks_->stats().running;
        return;
      case operation::stop: {
        auto back = tasks_->stop();
        stopped_ = true;
        started_then_ = tasks_->stats().started;
        for (auto& record : back) returned_.push_back(std::move(record));
        return;
      }
      case operation::destroy: tasks_.reset(); return;
      case operation::complete:
        if (deferred_) deferred_->succeed();
        return;
      case operation::lose: pool_.drop_one(); return;
      case operation::redrive: tasks_->redrive(dead_); return;
    }
  }

  // A thread of the pool that has nothing else to do.
  void work() { pool_.run_all(); }

  // When all have met. Empty, or the first thing that is wrong.
  std::string verdict(const std::vector<operation>& met) {
    const auto has = [&met](operation o) { return std::find(met.begin(), met.end(), o) != met.end(); };
    if (!flaw_.empty()) return flaw_;
    if (tasks_ != nullptr && started_then_ && !has(operation::resume) && tasks_->stats().started != *started_then_)
      return has(operation::stop) ? "10.3: something has started after stop()"
                                  : "2.11: something has started after pause()";
    if (tasks_ != nullptr && !stopped_) {
      tasks_->resume();
      tasks_->set_max_in_flight(std::nullopt);
      running_then_.reset();
      for (int i = 0; i != 20; ++i) {
        pool_.run_all();
        time_.advance(200ms);
      }
      if (tasks_->drain_for(0ns) != turnkey::drain_result::drained) return "1: not all has finished: " + why_not();
    }
    deferred_.reset();
    if (tasks_ != nullptr) {
      const turnkey::stats s = tasks_->stats();
      if (s.submitted != s.succeeded + s.died - s.redriven + s.cancelled + s.undone) return "9.1: the sums are wrong";
      if (s.waiting + s.ready + s.running + s.delayed != 0) return "9.1: something is counted that is not there";
    }
    tasks_.reset();
    pool_.run_all();  // permits that are left over do nothing
    if (!flaw_.empty()) return flaw_;
    return history_.check();
  }

  // Fibers of it are asleep for ever, on what it has: it must stay.
  static void abandon(std::unique_ptr<scene> s) { static_cast<void>(s.release()); }

 private:
  turnkey::outcome works(bool fails) {
    ++inside_;
    if (running_then_ && inside_ > (std::max<std::uint64_t>)(1, *running_then_))
      flaw_ = "6.3: more run than max_in_flight allows";
    decide("callback");
    --inside_;
    return fails ? turnkey::outcome::retry("told to") : turnkey::outcome::success();
  }

  std::string why_not() {
    const auto busy = tasks_->busiest_keys(1);
    if (busy.empty()) return "nothing is unfinished";
    const auto info = tasks_->find(busy.front().head);
    return info ? to_string(info->why) : "it is gone";
  }

  turnkey::testing::manual_time time_;
  turnkey::testing::manual_executor pool_;
  support::history history_;
  std::unique_ptr<turnkey::scheduler<int>> tasks_;
  std::optional<turnkey::completion> deferred_;
  std::vector<turnkey::task_record<int>> returned_;
  turnkey::task_id next_{};
  turnkey::task_id dead_{};
  policy submits_{};
  std::uint64_t inside_ = 0;
  std::optional<std::uint64_t> started_then_;
  std::optional<std::uint64_t> running_then_;
  bool stopped_ = false;
  std::string flaw_;
};

}  // namespace exploration
