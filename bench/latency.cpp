// How long does a task wait for its start when one worker is busy for 20 or for 70 % of the time?
// Baselines: the bare pool and the hand-written keyed ones. Arrivals are random, over a thousand keys; a body lasts a
// microsecond.
#include "support/batch.hpp"
#include "support/timed.hpp"

#include <benchmark/benchmark.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace bench;

template <template <class> class System>
void wait_for_start(benchmark::State& state) {
  constexpr std::size_t tasks = 20'000;
  const double per_second = 1e6 * static_cast<double>(state.range(0)) / 100;
  const workload& w = workload_of(shape::thousand, tasks, 1);
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys);
  const std::vector<clock::duration> due = random_arrivals(tasks, per_second);
  std::vector<double> waited;
  cost sum;
  std::string fault;
  for (auto _ : state) {
    state.PauseTiming();
    checks watch(w, rounds_per_microsecond());
    {
      System<std::uint64_t> system(1);
      state.ResumeTiming();
      const stopwatch watched;
      const std::vector<double> all = submit_as_due(system, watch, w, keys, due);
      sum += watched.elapsed();
      state.PauseTiming();
      waited.insert(waited.end(), all.begin(), all.end());
    }
    if (fault.empty()) fault = watch.fault(System<std::uint64_t>::promises);
    state.ResumeTiming();
  }
  report(state, sum, static_cast<double>(state.iterations()) * tasks);
  state.counters["p50_us"] = quantile(waited, 0.5) / 1e3;
  state.counters["p99_us"] = quantile(waited, 0.99) / 1e3;
  judge(state, fault);
}

template <template <class> class System>
void add() {
  const std::string name = std::string("latency/") + System<std::uint64_t>::name;
  benchmark::RegisterBenchmark(name.c_str(), wait_for_start<System>)
      ->ArgName("load")
      ->Arg(20)
      ->Arg(70)
      ->Unit(benchmark::kMillisecond)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

[[maybe_unused]] const bool registered = [] {
  for_each_system([]<template <class> class System> { add<System>(); });
  return true;
}();

}  // namespace
