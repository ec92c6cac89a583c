// What does a failure cost: a task that dies, by an outcome or an exception, and one that fails once and runs again?
// Baseline: a strand per key whose tasks try again in a loop, and keep nothing of those that fail for good.
#include <turnkey/turnkey.hpp>

#include "support/batch.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace bench;

enum class fate : std::uint8_t { succeed, die, throw_and_die, retry, throw_and_retry, postpone };

constexpr const char* to_string(fate f) noexcept {
  switch (f) {
    case fate::succeed: return "succeed";
    case fate::die: return "die";
    case fate::throw_and_die: return "throw_and_die";
    case fate::retry: return "retry";
    case fate::throw_and_retry: return "throw_and_retry";
    case fate::postpone: return "postpone";
  }
  return "?";
}

constexpr bool runs_twice(fate f) noexcept {
  return f == fate::retry || f == fate::throw_and_retry || f == fate::postpone;
}

// A callback with a fate: what runs twice does its work the second time.
struct fated {
  checks::task work;
  std::atomic<std::uint8_t>* attempts;
  fate what;

  turnkey::outcome operator()() const {
    const int before = attempts->fetch_add(1, std::memory_order_relaxed);
    if (runs_twice(what) && before == 0) {
      if (what == fate::retry) return turnkey::outcome::retry_after({});
      if (what == fate::postpone) return turnkey::outcome::postpone({});
      throw std::runtime_error("once");
    }
    work();
    if (what == fate::die) return turnkey::outcome::dead();
    if (what == fate::throw_and_die) throw std::runtime_error("for good");
    return turnkey::outcome::success();
  }
};

turnkey::options<std::uint64_t> settings(fate what) {
  turnkey::options<std::uint64_t> options;
  options.default_policy = turnkey::policy::ordered;
  if (runs_twice(what)) options.retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = {}, .jitter = 0};
  return options;
}

class with_turnkey : public turnkey_on_pool<std::uint64_t> {
 public:
  explicit with_turnkey(fate what) : turnkey_on_pool(2, settings(what)) {}
};

class with_loop {
 public:
  static constexpr const char* name = "strand_with_loop";

  explicit with_loop(fate what) : tries_(runs_twice(what) ? 2 : 1) {}
  void submit(std::uint64_t key, const fated& task) {
    strands_.submit(key, [task, tries = tries_] {
      for (int n = 0; n != tries; ++n) {
        try {
          if (task().what() == turnkey::outcome::kind::success) return;
        } catch (const std::exception&) {  // the next try is all that happens
        }
      }
    });
  }
  void wait_idle() { strands_.wait_idle(); }

 private:
  int tries_;
  strand_per_key<std::uint64_t> strands_{2};
};

// Every task whose number is a multiple of `every` has the fate, the others succeed.
template <class System>
void fail(benchmark::State& state, fate what) {
  const auto every = static_cast<std::size_t>(state.range(0));
  const workload& w = workload_of(shape::thousand, batch_tasks() / 5, 1);
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys);
  cost sum;
  std::string fault;
  for (auto _ : state) {
    state.PauseTiming();
    const auto attempts = std::make_unique<std::atomic<std::uint8_t>[]>(w.tasks());
    checks watch(w);
    {
      System system(what);
      state.ResumeTiming();
      const stopwatch watched;
      for (std::size_t i = 0; i != w.tasks(); ++i)
        system.submit(keys[w.key_of[i]], fated{watch.at(i, 0), &attempts[i], i % every == 0 ? what : fate::succeed});
      system.wait_idle();
      sum += watched.elapsed();
      state.PauseTiming();
    }
    if (fault.empty()) fault = watch.fault(promise::order);
    for (std::size_t i = 0; i != w.tasks(); ++i)
      if (attempts[i] != (i % every == 0 && runs_twice(what) ? 2 : 1)) fault = "a wrong number of attempts";
    state.ResumeTiming();
  }
  report(state, sum, static_cast<double>(state.iterations() * static_cast<std::int64_t>(w.tasks())));
  judge(state, fault);
}

template <class System>
void add(fate what) {
  const std::string name = std::string("failure/") + to_string(what) + '/' + System::name;
  auto* const added =
      benchmark::RegisterBenchmark(name.c_str(), [what](benchmark::State& s) { fail<System>(s, what); });
  added->ArgName("one_in")->Arg(1)->Unit(benchmark::kMillisecond)->MeasureProcessCPUTime()->UseRealTime();
  if (what != fate::succeed) added->Arg(100);
}

[[maybe_unused]] const bool registered = [] {
  for (const fate what : {fate::succeed, fate::die, fate::throw_and_die, fate::retry, fate::throw_and_retry}) {
    add<with_loop>(what);
    add<with_turnkey>(what);
  }
  add<with_turnkey>(fate::postpone);
  return true;
}();

}  // namespace
