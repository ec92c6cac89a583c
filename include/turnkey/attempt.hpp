// What a callback sees of the attempt that it is.
#pragma once

#include <turnkey/policy.hpp>

#include <cstdint>
#include <stop_token>

namespace turnkey::inline v1 {
namespace detail {
class engine;
struct task;
}  // namespace detail

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

 private:
  friend class detail::engine;
  attempt(detail::engine& engine, detail::task& task, task_id id, std::uint32_t number, std::uint64_t fence) noexcept
      : engine_(engine), task_(task), id_(id), number_(number), fence_(fence) {}

  detail::engine& engine_;
  detail::task& task_;
  task_id id_;
  std::uint32_t number_;
  std::uint64_t fence_;
};

}  // namespace turnkey::inline v1
