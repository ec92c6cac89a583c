// What does a delayed task cost while 10^2 to 10^6 are pending: to set one and cancel it, and when all fall due at
// once? Baseline: a multimap from time to callback under one mutex. Time is moved by hand, so that nothing sleeps.
#include "support/batch.hpp"
#include "support/queues.hpp"

#include <benchmark/benchmark.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace {

using namespace bench;
using std::chrono::nanoseconds;

constexpr nanoseconds horizon = std::chrono::hours{1};
constexpr std::uint64_t keys = 1'000;

// Delay number i: as good as random, within the horizon.
nanoseconds delay(std::uint64_t i) { return nanoseconds{1 + static_cast<std::int64_t>(mixed(i) % horizon.count())}; }

template <class System>
void set_and_cancel(benchmark::State& state) {
  const auto pending = static_cast<std::uint64_t>(state.range(0));
  constexpr std::uint64_t at_once = 1'000;
  std::size_t ran = 0;
  bool refused = false;
  std::uint64_t i = 0;
  System system;
  for (; i != pending; ++i) system.set(i % keys, delay(i), [&ran] { ++ran; });
  const stopwatch watched;
  for (auto _ : state) {
    for (const std::uint64_t end = i + at_once; i != end; ++i)
      refused |= !system.cancel(system.set(i % keys, delay(i), [&ran] { ++ran; }));
  }
  report(state, watched.elapsed(), static_cast<double>(state.iterations()) * at_once);
  system.fire(horizon);
  judge(state, refused || ran != pending ? "a timer was lost, or ran though it was cancelled" : "");
}

template <class System>
void fire(benchmark::State& state) {
  const auto pending = static_cast<std::uint64_t>(state.range(0));
  const std::uint64_t rounds = std::max<std::uint64_t>(1, 10'000 / pending);
  System system;
  std::vector<std::uint8_t> ran(pending);
  cost sum;
  bool is_right = true;
  for (auto _ : state) {
    cost spent;
    for (std::uint64_t round = 0; round != rounds; ++round) {
      for (std::uint64_t i = 0; i != pending; ++i) system.set(i % keys, delay(i), [&ran, i] { ++ran[i]; });
      const stopwatch watched;
      system.fire(horizon);
      spent += watched.elapsed();
      is_right &= std::all_of(ran.begin(), ran.end(), [](std::uint8_t n) { return n == 1; });
      std::fill(ran.begin(), ran.end(), std::uint8_t{0});
    }
    sum += spent;
    state.SetIterationTime(spent.wall / 1e9);
  }
  report(state, sum, static_cast<double>(state.iterations()) * static_cast<double>(rounds * pending));
  judge(state, is_right ? "" : "a timer did not run exactly once");
}

template <class System>
void add() {
  const std::string name = System::name;
  benchmark::RegisterBenchmark(("timers/set_and_cancel/" + name).c_str(), set_and_cancel<System>)
      ->ArgName("pending")
      ->RangeMultiplier(10)
      ->Range(100, 1'000'000)
      ->Unit(benchmark::kMicrosecond)
      ->Iterations(20);  // to get many pending takes longer than the rest
  benchmark::RegisterBenchmark(("timers/fire/" + name).c_str(), fire<System>)
      ->ArgName("pending")
      ->RangeMultiplier(10)
      ->Range(100, 1'000'000)
      ->Unit(benchmark::kMillisecond)
      ->UseManualTime();
}

[[maybe_unused]] const bool registered = [] {
  add<timer_map>();
  add<held_turnkey>();
  return true;
}();

}  // namespace
