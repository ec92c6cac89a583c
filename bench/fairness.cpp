// How many tasks start before the last of 99 light keys has started, when a hot key came first with 10^5?
// Baselines: the bare pool and the hand-written keyed ones. turnkey promises one rotation: a turn of each key.
#include "support/batch.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using namespace bench;

constexpr std::size_t heavy = 100'000;
constexpr std::size_t light = 99;

// A task that notes how many started before it.
struct numbered_task {
  checks::task run;
  std::atomic<std::uint32_t>* starts;
  std::uint32_t* before;

  void operator()() const noexcept {
    *before = starts->fetch_add(1, std::memory_order_relaxed);
    run();
  }
};

template <template <class> class System>
void overtake(benchmark::State& state) {
  constexpr bool is_turnkey = std::is_same_v<System<std::uint64_t>, turnkey_ordered<std::uint64_t>>;
  const auto workers = static_cast<unsigned>(state.range(0));
  const workload w = make_workload(light + 1, heavy + light, 1, [](std::size_t i) {
    return static_cast<std::uint32_t>(i < heavy ? 0 : i - heavy + 1);
  });
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys);
  std::uint32_t last = 0;
  cost sum;
  std::string fault;
  for (auto _ : state) {
    state.PauseTiming();
    checks watch(w);
    std::atomic<std::uint32_t> starts{0};
    std::vector<std::uint32_t> before(w.tasks());
    {
      System<std::uint64_t> system(workers);
      system.hold();
      for (std::size_t i = 0; i != w.tasks(); ++i)
        system.submit(keys[w.key_of[i]], numbered_task{watch.at(i, 0), &starts, &before[i]});
      state.ResumeTiming();
      const stopwatch watched;
      system.let_go();
      system.wait_idle();
      sum += watched.elapsed();
      state.PauseTiming();
    }
    last = std::max(last, *std::max_element(before.begin() + heavy, before.end()));
    if (fault.empty()) fault = watch.fault(System<std::uint64_t>::promises);
    // A second worker may lose its processor between the start of a task and its note of it.
    const std::uint32_t rotation = turnkey::options<std::uint64_t>{}.turn_budget + light;
    if (is_turnkey && workers == 1 && last > rotation) fault = "a light key waited for more than one rotation";
    state.ResumeTiming();
  }
  report(state, sum, static_cast<double>(state.iterations()) * static_cast<double>(w.tasks()));
  state.counters["starts_before_last"] = last;
  judge(state, fault);
}

template <template <class> class System>
void add() {
  const std::string name = std::string("fairness/") + System<std::uint64_t>::name;
  benchmark::RegisterBenchmark(name.c_str(), overtake<System>)
      ->ArgName("workers")
      ->Arg(1)
      ->Arg(2)
      ->Unit(benchmark::kMillisecond)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

[[maybe_unused]] const bool registered = [] {
  for_each_system([]<template <class> class System> { add<System>(); });
  return true;
}();

}  // namespace
