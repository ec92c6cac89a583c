// Do the others feel it when the tasks of one key block for 10 ms each, with two workers?
// Baselines: the bare pool and the hand-written keyed ones. Each is measured without the slow key, then with it.
#include "support/batch.hpp"
#include "support/timed.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

namespace {

using namespace bench;

template <template <class> class System>
void block_one_key(benchmark::State& state) {
  constexpr std::size_t tasks = 2'000;
  constexpr double per_second = 20'000;
  constexpr int blocks = 10;  // they last as long as the arrivals
  const workload& w = workload_of(shape::thousand, tasks, 1);
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys + 1);
  const std::uint64_t slow_key = keys[w.keys];
  const std::vector<clock::duration> due = random_arrivals(tasks, per_second);
  std::vector<double> alone;
  std::vector<double> beside;
  cost sum;
  std::string fault;
  for (auto _ : state) {
    for (const bool is_slow : {false, true}) {
      std::atomic<int> blocked{0};
      checks watch(w);
      {
        System<std::uint64_t> system(2);
        for (int i = 0; is_slow && i != blocks; ++i) {
          system.submit(slow_key, [&blocked] {
            std::this_thread::sleep_for(std::chrono::milliseconds{10});
            ++blocked;
          });
        }
        const stopwatch watched;
        const std::vector<double> waited = submit_as_due(system, watch, w, keys, due);
        sum += watched.elapsed();
        (is_slow ? beside : alone).insert((is_slow ? beside : alone).end(), waited.begin(), waited.end());
      }
      if (fault.empty()) fault = watch.fault(System<std::uint64_t>::promises);
      if (blocked != (is_slow ? blocks : 0)) fault = "a slow task did not run exactly once";
    }
  }
  state.counters["cpu_ns/task"] = sum.cpu / (static_cast<double>(state.iterations()) * 2 * tasks);
  state.counters["p50_us_alone"] = quantile(alone, 0.5) / 1e3;
  state.counters["p99_us_alone"] = quantile(alone, 0.99) / 1e3;
  state.counters["p50_us"] = quantile(beside, 0.5) / 1e3;
  state.counters["p99_us"] = quantile(beside, 0.99) / 1e3;
  judge(state, fault);
}

template <template <class> class System>
void add() {
  const std::string name = std::string("isolation/") + System<std::uint64_t>::name;
  benchmark::RegisterBenchmark(name.c_str(), block_one_key<System>)
      ->Unit(benchmark::kMillisecond)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

[[maybe_unused]] const bool registered = [] {
  for_each_system([]<template <class> class System> { add<System>(); });
  return true;
}();

}  // namespace
