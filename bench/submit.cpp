// What does a task cost from its submit until it is settled, when one thread does both and keys are many or one?
// Baseline: a map of queues under one mutex, the least that keeps order by key.
#include <turnkey/turnkey.hpp>

#include <benchmark/benchmark.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace {

class map_of_queues {
 public:
  void submit(std::uint64_t key, std::function<void()> callback) {
    std::unique_lock lock(mutex_);
    auto& queue = queues_[key];
    queue.push_back(std::move(callback));
    if (queue.size() > 1) return;  // whoever runs the first one goes on
    while (!queue.empty()) {
      const auto next = std::move(queue.front());
      lock.unlock();
      next();
      lock.lock();
      queue.pop_front();
    }
    queues_.erase(key);
  }

 private:
  std::mutex mutex_;
  std::unordered_map<std::uint64_t, std::deque<std::function<void()>>> queues_;
};

template <class Submit>
void run(benchmark::State& state, Submit submit) {
  const auto keys = static_cast<std::uint64_t>(state.range(0));
  std::uint64_t done = 0;
  std::uint64_t key = 0;
  for (auto _ : state) {
    submit(key, [&done] { ++done; });
    if (++key == keys) key = 0;
  }
  if (done != static_cast<std::uint64_t>(state.iterations())) state.SkipWithError("a task was lost");
}

void baseline(benchmark::State& state) {
  map_of_queues queues;
  run(state, [&](std::uint64_t key, auto callback) { queues.submit(key, callback); });
}

void turnkey_ordered(benchmark::State& state) {
  turnkey::scheduler<std::uint64_t> scheduler{turnkey::inline_executor{}, {.default_policy = turnkey::policy::ordered}};
  run(state, [&](std::uint64_t key, auto callback) { scheduler.submit(key, callback); });
}

BENCHMARK(baseline)->Arg(1)->Arg(10'000);
BENCHMARK(turnkey_ordered)->Arg(1)->Arg(10'000);

}  // namespace
