// What does it cost to cancel one of 10,000 waiting tasks, in one line or in a thousand?
// Baselines: a flag that the task looks at when it runs, which frees nothing; a search in the queue of the key; a list
// for every key with an index of places.
#include "support/batch.hpp"
#include "support/queues.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <numeric>
#include <random>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace bench;

// The id of a task is the flag that it will find set.
class flags {
 public:
  static constexpr const char* name = "flags";
  using id = std::shared_ptr<std::atomic<bool>>;

  id submit(std::uint64_t, const checks::task& task) {
    auto cancelled = std::make_shared<std::atomic<bool>>(false);
    tasks_.emplace_back([cancelled, task] {
      if (!cancelled->load()) task();
    });
    return cancelled;
  }
  static bool cancel(const id& task) { return !task->exchange(true); }
  void run_all() {
    for (; !tasks_.empty(); tasks_.pop_front()) tasks_.front()();
  }

 private:
  std::deque<std::function<void()>> tasks_;
};

class searched_queues {
 public:
  static constexpr const char* name = "searched_queues";
  struct id {
    std::uint64_t key;
    std::uint64_t number;
  };

  id submit(std::uint64_t key, const checks::task& task) {
    const std::lock_guard lock(mutex_);
    queues_[key].emplace_back(next_, task);
    return {.key = key, .number = next_++};
  }
  bool cancel(const id& task) {
    const std::lock_guard lock(mutex_);
    queue& own = queues_[task.key];
    const auto at = std::find_if(own.begin(), own.end(), [&](const auto& each) { return each.first == task.number; });
    if (at == own.end()) return false;
    own.erase(at);
    return true;
  }
  void run_all() {
    for (auto& [key, tasks] : queues_)
      for (; !tasks.empty(); tasks.pop_front()) tasks.front().second();
  }

 private:
  using queue = std::deque<std::pair<std::uint64_t, std::function<void()>>>;

  std::mutex mutex_;
  std::unordered_map<std::uint64_t, queue> queues_;
  std::uint64_t next_ = 1;
};

constexpr std::size_t waiting = 10'000;
constexpr std::size_t cancelled = 1'000;

// Which of the waiting tasks are cancelled, and in which order. The workload `all` has every task; `stays` has those
// that run, since the gaps that the others leave would look like disorder.
struct plan {
  explicit plan(std::uint32_t keys)
      : all(make_workload(keys, waiting, 1, [keys](std::size_t i) { return static_cast<std::uint32_t>(i % keys); })) {
    std::iota(places.begin(), places.end(), std::size_t{0});
    std::shuffle(places.begin(), places.end(), std::mt19937_64(1));
    places.resize(cancelled);
    for (const std::size_t i : places) is_cancelled[i] = true;
    std::vector<std::uint32_t> kept;
    for (std::size_t i = 0; i != waiting; ++i)
      if (!is_cancelled[i]) kept.push_back(all.key_of[i]);
    stays = make_workload(keys, kept.size(), 1, [&kept](std::size_t i) { return kept[i]; });
  }

  workload all;
  workload stays;
  std::vector<std::size_t> places = std::vector<std::size_t>(waiting);
  std::vector<bool> is_cancelled = std::vector<bool>(waiting);
};

// Cancels tasks at random places of a backlog; then the rest runs.
template <class System>
void cancel_some(benchmark::State& state) {
  const plan chosen(static_cast<std::uint32_t>(state.range(0)));
  cost sum;
  std::string fault;
  for (auto _ : state) {
    System system;
    checks watch(chosen.stays);
    checks forbidden(chosen.all);
    std::vector<decltype(system.submit(0, watch.at(0, 0)))> ids;
    ids.reserve(waiting);
    std::size_t next = 0;
    for (std::size_t i = 0; i != waiting; ++i) {
      const auto task = chosen.is_cancelled[i] ? forbidden.at(i, 0) : watch.at(next++, 0);
      ids.push_back(system.submit(chosen.all.key_of[i], task));
    }
    bool refused = false;
    const stopwatch watched;
    for (const std::size_t i : chosen.places) refused |= !system.cancel(ids[i]);
    const cost spent = watched.elapsed();
    sum += spent;
    state.SetIterationTime(spent.wall / 1e9);
    system.run_all();
    if (refused) fault = "a waiting task could not be cancelled";
    if (forbidden.any()) fault = "a cancelled task ran";
    if (fault.empty()) fault = watch.fault(promise::order);
  }
  report(state, sum, static_cast<double>(state.iterations()) * static_cast<double>(cancelled));
  judge(state, fault);
}

// Cancels a whole backlog by its keys, or all of it.
void cancel_many(benchmark::State& state, bool by_key) {
  const auto keys = static_cast<std::uint64_t>(state.range(0));
  std::size_t ran = 0;
  bool is_right = true;
  cost sum;
  for (auto _ : state) {
    held_turnkey system;
    for (std::size_t i = 0; i != waiting; ++i) system.submit(i % keys, [&ran] { ++ran; });
    std::size_t count = 0;
    const stopwatch watched;
    if (by_key) {
      for (std::uint64_t key = 0; key != keys; ++key) count += system.scheduler().cancel(key);
    } else {
      count = system.scheduler().cancel_all();
    }
    const cost spent = watched.elapsed();
    sum += spent;
    state.SetIterationTime(spent.wall / 1e9);
    system.run_all();
    is_right &= count == waiting && ran == 0;
  }
  report(state, sum, static_cast<double>(state.iterations()) * static_cast<double>(waiting));
  judge(state, is_right ? "" : "a task was not cancelled, or ran");
}

template <class Function>
void add(const std::string& name, Function function) {
  benchmark::RegisterBenchmark(("cancel/" + name).c_str(), function)
      ->ArgName("keys")
      ->Arg(1)
      ->Arg(1'000)
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(20)  // to build the backlog takes longer than to cancel
      ->UseManualTime();
}

template <class System>
void add_some() {
  add(std::string("one/") + System::name, cancel_some<System>);
}

[[maybe_unused]] const bool registered = [] {
  add_some<flags>();
  add_some<searched_queues>();
  add_some<indexed_queues<std::uint64_t>>();
  add_some<held_turnkey>();
  add("by_key/turnkey", [](benchmark::State& state) { cancel_many(state, true); });
  add("all/turnkey", [](benchmark::State& state) { cancel_many(state, false); });
  return true;
}();

}  // namespace
