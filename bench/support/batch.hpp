// One workload after the other through one of the baselines or turnkey, timed from the first submit until all is done,
// with the same workload through the bare pool in between, so that the ratio is a paired one.
#pragma once

#include "support/baselines.hpp"
#include "support/checks.hpp"
#include "support/verdict.hpp"
#include "support/workload.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace bench {

// TURNKEY_BENCH_ALL=1 asks for all combinations, not only the telling ones.
inline bool wants_all() {
  const char* const set = std::getenv("TURNKEY_BENCH_ALL");
  return set != nullptr && *set != '\0' && *set != '0';
}

// How many tasks a batch has: TURNKEY_BENCH_TASKS, 100,000 by default; a fifth of it when bodies last.
inline std::size_t batch_tasks(std::uint32_t rounds = 0) {
  const char* const set = std::getenv("TURNKEY_BENCH_TASKS");
  const std::size_t tasks = set != nullptr ? std::strtoull(set, nullptr, 10) : 100'000;
  return rounds == 0 ? tasks : tasks / 5;
}

template <class Key>
constexpr const char* key_name() noexcept {
  return std::is_same_v<Key, std::string> ? "string" : "u64";
}

// Time that passed on the wall, and that the process used of its processors, in nanoseconds.
struct cost {
  double wall = 0;
  double cpu = 0;

  cost& operator+=(const cost& other) noexcept {
    wall += other.wall;
    cpu += other.cpu;
    return *this;
  }
};

class stopwatch {
 public:
  [[nodiscard]] cost elapsed() const noexcept {
    return {.wall = nanoseconds(clock::now() - start_), .cpu = cpu_nanoseconds() - cpu_};
  }

 private:
  double cpu_ = cpu_nanoseconds();
  clock::time_point start_ = clock::now();
};

// Submits producer `p`'s share of the workload.
template <class System, class Key>
void produce(System& system, checks& watch, const workload& w, const std::vector<Key>& keys, unsigned p) {
  const std::size_t end = w.first_of(p + 1);
  for (std::size_t i = w.first_of(p); i != end; ++i) system.submit(keys[w.key_of[i]], watch.at(i, p));
}

// Submits the workload from its producers, and waits until all is done.
//   Gives    the time from the first submit on; the threads of further producers exist by then.
template <class System, class Key, class Start>
cost run_through(System& system, checks& watch, const workload& w, const std::vector<Key>& keys, Start start) {
  std::atomic<bool> started{false};
  std::vector<std::thread> others;
  for (unsigned p = 1; p < w.producers; ++p) {
    others.emplace_back([&, p] {
      started.wait(false);
      produce(system, watch, w, keys, p);
    });
  }
  start();
  const stopwatch watched;
  started.store(true);
  started.notify_all();
  produce(system, watch, w, keys, 0);
  for (std::thread& other : others) other.join();
  system.wait_idle();
  return watched.elapsed();
}

// What one row of a table is about.
struct batch {
  shape keys = shape::hot;
  unsigned producers = 1;
  unsigned workers = 2;
  std::uint32_t rounds = 0;  // of spin() in each body
};

// Reports what a task took, over `tasks` of them.
inline void report(benchmark::State& state, const cost& sum, double tasks) {
  state.counters["ns/task"] = sum.wall / tasks;
  state.counters["cpu_ns/task"] = sum.cpu / tasks;
  state.counters["tasks/s"] = 1e9 * tasks / sum.wall;
}

// Every iteration is a whole workload through a new System<Key>. The counter x is the median of the bare pool's time
// over this one's: above 1 is faster than no rule at all.
template <template <class> class System, class Key>
void run_batches(benchmark::State& state, const batch& batch) {
  constexpr bool is_bare = std::is_same_v<System<Key>, bare_pool<Key>>;
  const workload& w = workload_of(batch.keys, batch_tasks(batch.rounds), batch.producers);
  const std::vector<Key>& keys = keys_of<Key>(w.keys);
  cost sum;
  std::vector<double> ratios;
  std::string fault;
  for (auto _ : state) {
    state.PauseTiming();
    double bare = 0;
    if constexpr (!is_bare) {
      bare_pool<Key> system(batch.workers);
      checks watch(w, batch.rounds);
      bare = run_through(system, watch, w, keys, [] {}).wall;
    }
    {
      System<Key> system(batch.workers);
      checks watch(w, batch.rounds);
      const cost measured = run_through(system, watch, w, keys, [&state] { state.ResumeTiming(); });
      state.PauseTiming();
      sum += measured;
      ratios.push_back(bare / measured.wall);
      if (fault.empty()) fault = watch.fault(System<Key>::promises);
    }
    state.ResumeTiming();
  }
  report(state, sum, static_cast<double>(state.iterations() * static_cast<std::int64_t>(w.tasks())));
  if (!is_bare) state.counters["x"] = quantile(ratios, 0.5);
  judge(state, fault);
}

// Registers run_batches as `question/shape/key/body/producers/workers/system`.
template <template <class> class System, class Key>
void add_batches(const char* question, const batch& batch) {
  const std::string name = std::string(question) + '/' + to_string(batch.keys) + '/' + key_name<Key>() + '/' +
                           (batch.rounds == 0 ? "empty" : "1us") + "/producers:" + std::to_string(batch.producers) +
                           "/workers:" + std::to_string(batch.workers) + '/' + System<Key>::name;
  benchmark::RegisterBenchmark(name.c_str(),
                               [batch](benchmark::State& state) { run_batches<System, Key>(state, batch); })
      ->Unit(benchmark::kMillisecond)
      ->MeasureProcessCPUTime()
      ->UseRealTime();
}

}  // namespace bench
