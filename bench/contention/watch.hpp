// Looks at every task that runs: that each finishes once, that no two of a key run at once, that those of one producer
// and one key keep their order. What it finds is counted, and it counts alike for all that are compared, at about ten
// nanoseconds a task.
#pragma once

#include "support/baselines.hpp"
#include "support/workload.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace contention {

// One task's name: its producer in the upper byte, below it how many that producer submitted before.
enum class task_name : std::uint64_t {};
constexpr task_name name_task(std::size_t producer, std::uint64_t number) {
  return task_name{producer << 56U | number};
}

class watch {
 public:
  watch(std::uint32_t keys, unsigned producers)
      : stride_(producers + std::size_t{1}), slots_(std::make_unique<cell[]>(keys * stride_)) {}

  // Brackets each attempt. Threads: those of one pool, `most_threads` at most.
  void enter(std::uint32_t key) noexcept {
    cell& busy = slots_[key * stride_];
    tally& own = mine();
    if (busy.load(relaxed) != 0) add(own.overlaps, 1);
    busy.store(own.mark, relaxed);
  }
  void leave(std::uint32_t key) noexcept {
    cell& busy = slots_[key * stride_];
    tally& own = mine();
    if (busy.load(relaxed) != own.mark) add(own.overlaps, 1);
    busy.store(0, relaxed);
  }

  // Comes between the two in the attempt that succeeds; `once` is mixed(task).
  void finish(std::uint32_t key, task_name task, std::uint64_t once) noexcept {
    const auto name = static_cast<std::uint64_t>(task);
    cell& latest = slots_[key * stride_ + 1 + (name >> 56U)];
    tally& own = mine();
    if (latest.load(relaxed) > name) add(own.disorders, 1);
    latest.store(name + 1, relaxed);
    add(own.sum, once);
    add(own.finished, 1);
  }

  [[nodiscard]] std::uint64_t finished() const noexcept { return total(&tally::finished); }

  // What was broken, in words; empty when nothing was. Needs: nothing runs any more; `submitted` has a count for each
  // producer.
  [[nodiscard]] std::string broken(bench::promise promised, const std::vector<std::uint64_t>& submitted) const {
    std::uint64_t count = 0;
    std::uint64_t sum = 0;  // of all names, mixed: alike only if the same tasks finished
    for (std::size_t p = 0; p != submitted.size(); ++p) {
      count += submitted[p];
      for (std::uint64_t i = 0; i != submitted[p]; ++i)
        sum += bench::mixed(static_cast<std::uint64_t>(name_task(p, i)));
    }
    std::string found;
    const auto report = [&](const std::string& words) { found += (found.empty() ? "" : "; ") + words; };
    if (finished() != count)
      report(std::to_string(count) + " tasks were submitted, " + std::to_string(finished()) + " finished");
    else if (total(&tally::sum) != sum)
      report("a task finished twice, and another never");
    if (const auto overlaps = total(&tally::overlaps); promised >= bench::promise::exclusion && overlaps != 0)
      report("two tasks of one key ran at once (" + std::to_string(overlaps) + " times)");
    if (const auto disorders = total(&tally::disorders); promised >= bench::promise::order && disorders != 0)
      report("tasks of one key finished out of order (" + std::to_string(disorders) + " times)");
    return found;
  }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;  // every cell says one thing, and joins tell the rest
  static constexpr std::size_t most_threads = 512;
  using cell = std::atomic<std::uint64_t>;

  // What one thread has seen; only that thread writes it.
  struct alignas(64) tally {
    std::uint64_t mark = 0;  // not 0, and another for each thread
    cell finished{0};
    cell sum{0};
    cell overlaps{0};
    cell disorders{0};
  };

  static void add(cell& to, std::uint64_t value) noexcept { to.store(to.load(relaxed) + value, relaxed); }

  tally& mine() noexcept {
    thread_local std::uint64_t of = 0;
    thread_local tally* found = nullptr;
    if (of != serial_) {
      of = serial_;
      const std::size_t number = threads_.fetch_add(1, relaxed);
      found = &tallies_[number % most_threads];
      found->mark = number + 1;
    }
    return *found;
  }

  [[nodiscard]] std::uint64_t total(cell tally::*which) const noexcept {
    std::uint64_t sum = 0;
    const std::size_t threads = (std::min)(threads_.load(relaxed), most_threads);
    for (std::size_t i = 0; i != threads; ++i) sum += (tallies_[i].*which).load(relaxed);
    return sum;
  }

  inline static std::atomic<std::uint64_t> latest_serial_{0};

  const std::uint64_t serial_ = ++latest_serial_;  // threads know by it whether their tally is of this watch
  std::size_t stride_;                             // cells of a key: who runs it, then the latest task of each producer
  std::unique_ptr<cell[]> slots_;
  std::atomic<std::size_t> threads_{0};
  std::array<tally, most_threads> tallies_;
};

}  // namespace contention
