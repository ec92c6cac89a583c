// What a callback sees of the attempt that it is, and what settles an attempt that goes on without it.
#pragma once

#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <stop_token>
#include <string>

namespace turnkey::inline v1 {
namespace detail {
class engine;
struct task;
}  // namespace detail
class completion;

// One run of a task's callback; handed to a callback that takes an attempt&.
//   Threads  of the callback's thread only, and only until the callback returns.
class attempt {
 public:
  attempt(const attempt&) = delete;
  attempt& operator=(const attempt&) = delete;

  [[nodiscard]] task_id id() const noexcept { return id_; }

  // Failed attempts + 1: what was postponed counts for nothing.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  // Larger than that of every earlier lease of the key; 0 without a lease. The outside world can refuse a late writer
  // by it.
  [[nodiscard]] std::uint64_t fence() const noexcept { return fence_; }

  // Whether this attempt holds the lease of its key.
  [[nodiscard]] bool has_lease() const noexcept { return fence_ != 0; }

  // Whether somebody cancelled the task or stops the scheduler. Cost: the shard's lock.
  [[nodiscard]] bool stop_requested() const noexcept;

  // The same as a token, for callbacks and waits. Stop callbacks run on the thread that cancels.
  //   Throws   std::bad_alloc, the first time.
  [[nodiscard]] std::stop_token stop_token();

  // The attempt goes on when the callback has returned, with its lease and its place, until the completion is settled;
  // then what the callback returns does not count. An exception fails the attempt all the same.
  //   Throws   std::logic_error, the second time in an attempt.
  [[nodiscard]] completion defer();

  // The time of the lease ends `d` from now, if there is a lease_time; false when the attempt is over.
  bool extend_lease(duration d) noexcept;

 private:
  friend class detail::engine;
  friend class completion;
  attempt(detail::engine& engine, detail::task& task) noexcept;

  detail::engine& engine_;
  detail::task& task_;
  task_id id_;
  std::uint32_t number_;
  bool deferred_ = false;
  std::uint64_t fence_;
  std::uint64_t serial_;
};

// What settles a deferred attempt: once, from any thread, before or after the callback has returned, also when the
// scheduler is gone. Destroyed unsettled it fails the attempt (abandoned). Move-only; one that was moved from or
// default-constructed belongs to no attempt, and says false to everything.
//   Threads  all const members, at once; what settled it happens before the next lease of the key.
//   Cost     of settling: the locks of a shard and of the ready queue; it may call the executor.
class completion {
 public:
  completion() noexcept = default;
  completion(completion&& other) noexcept;
  completion& operator=(completion&& other) noexcept;  // what this one was is abandoned
  ~completion();

  // Of the attempt: see there.
  [[nodiscard]] task_id id() const noexcept { return of_.id; }
  [[nodiscard]] std::uint32_t number() const noexcept { return of_.number; }
  [[nodiscard]] std::uint64_t fence() const noexcept { return of_.fence; }

  // Whether the attempt should stop, or is over.
  [[nodiscard]] bool stop_requested() const noexcept;
  [[nodiscard]] std::stop_token stop_token() const;  // the same. Throws std::bad_alloc.

  // The lease ends `d` from now, if there is a lease_time; false when it is lost already, or the attempt is over.
  bool extend_lease(duration d) const noexcept;

  // The outcome of the attempt. The first one counts; false for later ones, when the lease is lost, after stop().
  //   Throws   only what makes the words of `why`: std::bad_alloc.
  bool settle(const outcome& said) const noexcept;
  bool succeed() const noexcept { return settle(outcome::success()); }
  bool fail(const std::string& why = {}) const { return settle(outcome::retry(why)); }
  bool fail(std::exception_ptr error) const noexcept;

 private:
  friend class attempt;
  explicit completion(const attempt& a) noexcept;
  bool settle(const outcome& said, failure_reason reason) const noexcept;

  struct what {
    detail::engine* engine = nullptr;  // kept alive
    task_id id{};
    std::uint32_t number = 0;
    std::uint64_t fence = 0;
    std::uint64_t serial = 0;
  };
  what of_{};
  mutable std::atomic<bool> settled_{true};  // nothing is left to abandon
};

}  // namespace turnkey::inline v1
