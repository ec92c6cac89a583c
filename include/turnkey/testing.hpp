// For tests of callbacks: an executor that runs permits when told, in any order and with every misbehaviour that a
// pool may show, and a clock that moves when told. Not included by turnkey.hpp.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/executor.hpp>
#include <turnkey/retry_policy.hpp>
#include <turnkey/time_source.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <utility>

namespace turnkey::inline v1::testing {

// What a manual_executor does with a permit that it is handed.
enum class on_offer : std::uint8_t {
  queue,             // keeps it until told to run or drop it
  run,               // runs it inline, as inline_executor does
  refuse,            // returns false
  fail,              // throws
  queue_and_refuse,  // keeps it, and returns false nevertheless
  queue_and_fail,    // keeps it, and throws nevertheless
  drop,              // takes it and lets it die
};

// Keeps permits until told to run them.
//   Needs    it outlives stop() of the scheduler, which refers to it.
//   Threads  any number at once; permits are run on the thread that asks.
class manual_executor {
 public:
  manual_executor() = default;
  manual_executor(const manual_executor&) = delete;
  manual_executor& operator=(const manual_executor&) = delete;
  ~manual_executor() { drop_all(); }

  bool operator()(const work& permit) {
    on_offer what;
    {
      detail::lock lock(mutex_);
      ++offered_;
      what = mode_;
      if (what == on_offer::queue || what == on_offer::queue_and_refuse || what == on_offer::queue_and_fail)
        permits_.push_back(permit);
    }
    if (what == on_offer::run) permit();
    if (what == on_offer::fail || what == on_offer::queue_and_fail)
      throw std::runtime_error("manual_executor: told to fail");
    return what != on_offer::refuse && what != on_offer::queue_and_refuse;
  }

  // From now on, permits fare like this.
  void set_mode(on_offer what) noexcept {
    detail::lock lock(mutex_);
    mode_ = what;
  }

  // Runs the permit at `index`, the oldest by default; false when there is none. A permit runs tasks until nothing is
  // ready, or its budget is used up.
  bool run_one(std::size_t index = 0) {
    const std::optional<work> permit = take(index);
    if (permit) (*permit)();
    return permit.has_value();
  }

  // Runs permits, the oldest first, also those that are offered meanwhile, until there is none; how many there were.
  std::size_t run_all() {
    std::size_t ran = 0;
    while (run_one()) ++ran;
    return ran;
  }

  // Drops the permit at `index`, as a pool does that was shut down; false when there is none.
  bool drop_one(std::size_t index = 0) { return take(index).has_value(); }
  std::size_t drop_all() {
    std::size_t dropped = 0;
    while (drop_one()) ++dropped;
    return dropped;
  }

  // Puts a copy of the permit at `index` behind the others; false when there is none.
  bool double_one(std::size_t index = 0) {
    detail::lock lock(mutex_);
    if (index >= permits_.size()) return false;
    permits_.push_back(permits_[index]);
    return true;
  }

  [[nodiscard]] std::size_t size() const noexcept {
    detail::lock lock(mutex_);
    return permits_.size();
  }

  // How many permits it was handed so far.
  [[nodiscard]] std::size_t offered() const noexcept {
    detail::lock lock(mutex_);
    return offered_;
  }

 private:
  std::optional<work> take(std::size_t index) {
    detail::lock lock(mutex_);
    if (index >= permits_.size()) return {};
    std::optional<work> taken(std::move(permits_[index]));
    permits_.erase(permits_.begin() + static_cast<std::ptrdiff_t>(index));
    return taken;
  }

  mutable detail::mutex mutex_;
  std::deque<work> permits_ TURNKEY_GUARDED_BY(mutex_);
  std::size_t offered_ TURNKEY_GUARDED_BY(mutex_) = 0;
  on_offer mode_ TURNKEY_GUARDED_BY(mutex_) = on_offer::queue;
};

// A clock that stands still until told.
//   Needs    it outlives stop() of the scheduler that it was given to.
//   Threads  any number at once; wakes are called on the thread that moves it.
class manual_time final : public time_source {
 public:
  // Where the clock begins: late enough that times before it can be told.
  static constexpr time_point start{std::chrono::hours{24}};

  [[nodiscard]] time_point now() noexcept override {
    detail::lock lock(mutex_);
    return now_;
  }

  void wake_at(time_point time, wake call) noexcept override {
    detail::lock lock(mutex_);
    wake_at_ = time;
    std::swap(call_, call);
    lock.unlock();  // what `call` was before may die now
  }

  // Moves the clock by `by`, stopping at every wake on the way.
  void advance(duration by) {
    const time_point end = detail::later(now(), by);
    while (const std::optional<time_point> next = next_wake()) {
      if (*next > end) break;
      move_to(*next);
    }
    move_to(end);
  }

  // Moves the clock at once, as a machine does that slept; then wakes, if it is time.
  void jump(duration by) { move_to(detail::later(now(), by)); }

  // Wakes now, whether it is time or not: early and repeated wakes are harmless.
  void ring() {
    wake call;
    {
      detail::lock lock(mutex_);
      call = call_;
    }
    call();
  }

  // When the scheduler wants to be woken next.
  [[nodiscard]] std::optional<time_point> next_wake() const noexcept {
    detail::lock lock(mutex_);
    return wake_at_;
  }

 private:
  void move_to(time_point time) {
    wake due;
    {
      detail::lock lock(mutex_);
      if (time > now_) now_ = time;
      if (!wake_at_ || *wake_at_ > now_) return;
      wake_at_.reset();
      due = call_;
    }
    due();
  }

  mutable detail::mutex mutex_;
  time_point now_ TURNKEY_GUARDED_BY(mutex_) = start;
  std::optional<time_point> wake_at_ TURNKEY_GUARDED_BY(mutex_);
  wake call_ TURNKEY_GUARDED_BY(mutex_);
};

}  // namespace turnkey::inline v1::testing
