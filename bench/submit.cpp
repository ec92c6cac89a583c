// What does a task cost from its submit until it is settled, when one thread does both and keys are one or many?
// Baseline: a map of queues under one mutex, the least that keeps order by key.
#include <turnkey/turnkey.hpp>

#include "support/batch.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace {

using namespace bench;

template <class Key>
class inline_queues {
 public:
  template <class F>
  void submit(const Key& key, F&& f) {
    std::unique_lock lock(mutex_);
    const auto line = lines_.try_emplace(key).first;
    auto& queue = line->second;
    queue.emplace_back(std::forward<F>(f));
    if (queue.size() > 1) return;  // whoever runs the first one goes on
    while (!queue.empty()) {
      {
        const std::function<void()> next = std::move(queue.front());
        lock.unlock();
        next();
      }
      lock.lock();
      queue.pop_front();
    }
    lines_.erase(lines_.find(key));
  }

 private:
  std::mutex mutex_;
  std::unordered_map<Key, std::deque<std::function<void()>>> lines_;
};

template <class Key>
struct inline_turnkey {
  turnkey::scheduler<Key> scheduler{turnkey::inline_executor{}, {.default_policy = turnkey::policy::ordered}};

  template <class F>
  void submit(const Key& key, F&& f) {
    scheduler.submit(key, std::forward<F>(f));
  }
};

template <class System, class Key>
void submit(benchmark::State& state) {
  const auto count = static_cast<std::size_t>(state.range(0));
  const std::vector<Key>& keys = keys_of<Key>(count);
  System system;
  std::vector<std::uint32_t> ran(count);
  std::size_t next = 0;
  const stopwatch watched;
  for (auto _ : state) {
    const std::size_t key = next;
    next = key + 1 == count ? 0 : key + 1;
    system.submit(keys[key], [at = &ran[key]] { ++*at; });
  }
  report(state, watched.elapsed(), static_cast<double>(state.iterations()));
  std::string fault;
  const auto rounds = static_cast<std::size_t>(state.iterations()) / count;
  for (std::size_t key = 0; key != count; ++key) {
    if (ran[key] != rounds + (key < next ? 1 : 0)) fault = "a task did not run exactly once";
  }
  judge(state, fault);
}

template <class Key>
void add() {
  const auto named = [](const char* system) { return std::string("submit/") + key_name<Key>() + '/' + system; };
  for (auto* const each :
       {benchmark::RegisterBenchmark(named("map_of_queues").c_str(), submit<inline_queues<Key>, Key>),
        benchmark::RegisterBenchmark(named("turnkey").c_str(), submit<inline_turnkey<Key>, Key>)})
    each->ArgName("keys")->Arg(1)->Arg(1'000)->Arg(100'000);
}

[[maybe_unused]] const bool registered = [] {
  add<std::uint64_t>();
  add<std::string>();
  return true;
}();

}  // namespace
