// What does a message of a consumer cost, from its send until it is handled, when one thread sends and two handle?
// Baseline: one submit for each message, whose closure carries it; in the same run, one after the other.
#include <turnkey/consumer.hpp>
#include <turnkey/turnkey.hpp>

#include "support/verdict.hpp"

#include <benchmark/benchmark.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace {

using policy = turnkey::policy;
constexpr std::uint64_t messages = 200'000;

struct message {
  std::uint64_t number;
  std::uint64_t more[3];
};

using options = turnkey::options<std::uint64_t>;

// Nanoseconds for each message of a run, whose parts are `send(key, message)` and `drain()`.
template <class Send, class Drain>
double time_of(std::uint64_t keys, Send send, Drain drain) {
  const auto begin = std::chrono::steady_clock::now();
  for (std::uint64_t i = 0; i != messages; ++i) send(i % keys, message{i, {}});
  drain();
  const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - begin;
  return took.count() / static_cast<double>(messages);
}

// `waits`: all messages are there before the first is handled, so batches are full.
void compare(benchmark::State& state, std::uint64_t keys, std::size_t max_batch, bool waits) {
  double batches = 0;
  double submits = 0;
  double size = 0;
  std::string fault;
  for (auto _ : state) {
    turnkey::thread_pool pool{2};
    std::atomic<std::uint64_t> handled{0};
    {
      turnkey::consumer<std::uint64_t, message> consumer(pool, options{.default_policy = policy::ordered}, max_batch,
                                                         [&handled](std::span<message> all) {
                                                           std::uint64_t sum = 0;
                                                           for (const message& m : all) sum += m.number;
                                                           handled.fetch_add(sum, std::memory_order_relaxed);
                                                         });
      if (waits) consumer.pause();
      batches += time_of(
          keys, [&](std::uint64_t key, message&& m) { consumer.send(key, std::move(m)); },
          [&] {
            consumer.resume();
            consumer.drain();
          });
      size = static_cast<double>(messages) / static_cast<double>(consumer.stats().batches);
    }
    {
      turnkey::scheduler<std::uint64_t> scheduler(pool, options{.default_policy = policy::ordered});
      if (waits) scheduler.pause();
      submits += time_of(
          keys,
          [&](std::uint64_t key, message&& m) {
            scheduler.submit(key, [&handled, m] { handled.fetch_add(m.number, std::memory_order_relaxed); });
          },
          [&] {
            scheduler.resume();
            scheduler.drain();
          });
    }
    if (handled != messages * (messages - 1)) fault = "messages were lost or handled twice";
  }
  const auto n = static_cast<double>(state.iterations());
  state.counters["ns/message"] = batches / n;
  state.counters["ns/submit"] = submits / n;
  state.counters["ratio"] = submits / batches;
  state.counters["messages/batch"] = size;
  bench::judge(state, fault);
}

[[maybe_unused]] const bool registered = [] {
  for (const std::uint64_t keys : {1U, 1'000U})
    for (const std::size_t max_batch : {1U, 16U, 256U})
      for (const bool waits : {false, true}) {
        const std::string name = std::string("consumer/") + (keys == 1 ? "one_key" : "1k_keys") +
                                 "/max_batch:" + std::to_string(max_batch) + (waits ? "/backlog" : "/live");
        benchmark::RegisterBenchmark(name.c_str(),
                                     [=](benchmark::State& state) { compare(state, keys, max_batch, waits); })
            ->Iterations(5)
            ->Unit(benchmark::kMillisecond);
      }
  return true;
}();

}  // namespace
