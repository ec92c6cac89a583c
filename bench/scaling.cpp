// Does an operation cost the same however many tasks there are, from 10^3 to 10^6, in one line or in as many as tasks?
// Baselines: a list for every key with an index of places, and a multimap of timers. Whoever submits runs the tasks.
#include "support/batch.hpp"
#include "support/queues.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;

// The hand-written things that do between them what turnkey does.
class hand_written : public indexed_queues<std::uint64_t> {
 public:
  static constexpr const char* name = "hand_written";
  using duration = timer_map::duration;

  template <class F>
  timer_map::place set(std::uint64_t key, duration delay, F&& f) {
    return timers_.set(key, delay, std::forward<F>(f));
  }
  void fire(duration by) { timers_.fire(by); }

 private:
  timer_map timers_;
};

// What each operation took, all tasks together.
struct costs {
  cost submit;
  cost settle;
  cost cancel;
  cost timer_set;
  cost timer_fire;

  [[nodiscard]] cost sum() const noexcept {
    cost all = submit;
    for (const cost& each : {settle, cancel, timer_set, timer_fire}) all += each;
    return all;
  }
};

template <class What>
void timed(cost& sum, What what) {
  const stopwatch watched;
  what();
  sum += watched.elapsed();
}

// Submits all tasks and lets them run; submits all and cancels them; sets all as timers and lets them run.
//   Gives    what went wrong, if anything.
template <class System>
std::string go_round(System& system, const workload& w, const std::vector<std::uint64_t>& keys, costs& spent) {
  using std::chrono::nanoseconds;
  std::vector<decltype(system.submit(0, [] {}))> ids(w.tasks());
  std::size_t ran = 0;
  std::size_t cancelled = 0;
  checks watch(w);
  timed(spent.submit, [&] { produce(system, watch, w, keys, 0); });
  timed(spent.settle, [&] { system.run_all(); });

  for (std::size_t i = 0; i != w.tasks(); ++i) ids[i] = system.submit(keys[w.key_of[i]], [&ran] { ++ran; });
  timed(spent.cancel, [&] {
    for (const auto& id : ids) cancelled += system.cancel(id);
  });
  system.run_all();
  if (ran != 0 || cancelled != w.tasks()) return "a task was not cancelled, or ran";

  timed(spent.timer_set, [&] {
    for (std::size_t i = 0; i != w.tasks(); ++i)
      system.set(keys[w.key_of[i]], nanoseconds{1 + mixed(i) % 1'000'000'000}, [&ran] { ++ran; });
  });
  timed(spent.timer_fire, [&] { system.fire(std::chrono::seconds{1}); });
  if (ran != w.tasks()) return "a timer did not run exactly once";
  return watch.fault(promise::order);
}

template <class System>
void scale(benchmark::State& state, bool one_line) {
  const auto tasks = static_cast<std::size_t>(state.range(0));
  const std::size_t rounds = std::max<std::size_t>(1, 10'000 / tasks);
  const workload& w = workload_of(one_line ? shape::hot : shape::distinct, tasks, 1);
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys);
  System system;
  std::string fault;
  costs spent;
  for (auto _ : state) {
    const double before = spent.sum().wall;
    for (std::size_t round = 0; round != rounds && fault.empty(); ++round) fault = go_round(system, w, keys, spent);
    state.SetIterationTime((spent.sum().wall - before) / 1e9);
  }
  const double all = static_cast<double>(state.iterations()) * static_cast<double>(rounds * tasks);
  state.counters["submit_ns"] = spent.submit.wall / all;
  state.counters["settle_ns"] = spent.settle.wall / all;
  state.counters["cancel_ns"] = spent.cancel.wall / all;
  state.counters["timer_set_ns"] = spent.timer_set.wall / all;
  state.counters["timer_fire_ns"] = spent.timer_fire.wall / all;
  state.counters["cpu_ns/task"] = spent.sum().cpu / all;
  judge(state, fault);
}

template <class System>
void add(bool one_line) {
  const std::string name = std::string("scaling/") + (one_line ? "one_line/" : "all_distinct/") + System::name;
  benchmark::RegisterBenchmark(name.c_str(), [one_line](benchmark::State& state) { scale<System>(state, one_line); })
      ->ArgName("tasks")
      ->RangeMultiplier(10)
      ->Range(1'000, 1'000'000)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime();
}

[[maybe_unused]] const bool registered = [] {
  for (const bool one_line : {true, false}) {
    add<hand_written>(one_line);
    add<held_turnkey>(one_line);
  }
  return true;
}();

}  // namespace
