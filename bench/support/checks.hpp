// Whether what was measured was right: every task of a workload ran exactly once, tasks of a key did not overlap, and
// came in order. The same for all that are compared, and part of every figure: two loads and three stores a task.
#pragma once

#include "support/baselines.hpp"
#include "support/workload.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace bench {

// Watches one run of a workload.
//   Threads  tasks run on any threads at once; the rest is for the time before the first and after the last.
class checks {
 public:
  // The callable to submit: 24 bytes, more than std::function keeps without allocating, like most real captures.
  class task {
   public:
    void operator()() const noexcept {
      watch_->begin(key_, line_, number_);
      if (watch_->rounds_ != 0) spin(watch_->rounds_);
      watch_->end(key_, index_);
    }
    [[nodiscard]] std::uint32_t index() const noexcept { return index_; }

   private:
    friend class checks;
    task(checks& watch, std::uint32_t key, std::uint32_t line, std::uint32_t number, std::uint32_t index) noexcept
        : watch_(&watch), key_(key), line_(line), number_(number), index_(index) {}

    checks* watch_;
    std::uint32_t key_;
    std::uint32_t line_;    // one for each key and producer
    std::uint32_t number_;  // in that line
    std::uint32_t index_;   // in the workload
  };

  // Bodies spin for `rounds`; see rounds_per_microsecond().
  explicit checks(const workload& workload, std::uint32_t rounds = 0)
      : workload_(workload),
        rounds_(rounds),
        busy_(std::make_unique<std::atomic<bool>[]>(workload.keys)),
        next_(std::make_unique<std::atomic<std::uint32_t>[]>(std::size_t{workload.keys} * workload.producers)),
        ran_(std::make_unique<std::atomic<std::uint8_t>[]>(workload.tasks())) {}

  [[nodiscard]] task at(std::size_t index, unsigned producer) noexcept {
    const std::uint32_t key = workload_.key_of[index];
    return task(*this, key, key * workload_.producers + producer, workload_.number_of[index],
                static_cast<std::uint32_t>(index));
  }

  // Whether any task ran.
  [[nodiscard]] bool any() const noexcept {
    for (std::size_t i = 0; i != workload_.tasks(); ++i)
      if (ran_[i] != 0) return true;
    return false;
  }

  // What went wrong with respect to `promised`; empty when nothing did.
  [[nodiscard]] std::string fault(promise promised) const {
    std::size_t not_once = 0;
    for (std::size_t i = 0; i != workload_.tasks(); ++i) not_once += ran_[i] != 1;
    std::string found;
    const auto report = [&found](std::size_t count, const char* what) {
      if (count != 0) found += (found.empty() ? "" : ", ") + std::to_string(count) + what;
    };
    report(not_once, " tasks did not run exactly once");
    if (promised >= promise::exclusion) report(overlaps_, " overlaps");
    if (promised >= promise::order) report(disorders_, " tasks out of order");
    return found;
  }

 private:
  // Plain loads and stores: where the promise holds nothing races, and where it does not, a miss is only a fault that
  // goes unseen this time.
  void begin(std::uint32_t key, std::uint32_t line, std::uint32_t number) noexcept {
    if (busy_[key].load(relaxed)) overlaps_.fetch_add(1, relaxed);
    busy_[key].store(true, relaxed);
    if (next_[line].load(relaxed) != number) disorders_.fetch_add(1, relaxed);
    next_[line].store(number + 1, relaxed);
  }
  void end(std::uint32_t key, std::uint32_t index) noexcept {
    ran_[index].store(static_cast<std::uint8_t>(ran_[index].load(relaxed) + 1), relaxed);
    busy_[key].store(false, relaxed);
  }

  static constexpr auto relaxed = std::memory_order_relaxed;

  const workload& workload_;
  const std::uint32_t rounds_;
  std::unique_ptr<std::atomic<bool>[]> busy_;
  std::unique_ptr<std::atomic<std::uint32_t>[]> next_;
  std::unique_ptr<std::atomic<std::uint8_t>[]> ran_;
  std::atomic<std::size_t> overlaps_{0};
  std::atomic<std::size_t> disorders_{0};
};

}  // namespace bench
