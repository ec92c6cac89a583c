// How much memory does a waiting task take, a key with one task, a key that was used and is idle; and how often does a
// task allocate once all is warm?
// Baselines: the bare pool and the hand-written keyed ones. Bytes are those of malloc's blocks with their headers, of
// all that operator new gave; this program replaces it.
#include <turnkey/consumer.hpp>
#include <turnkey/turnkey.hpp>

#include "support/batch.hpp"

#include <benchmark/benchmark.h>
#include <malloc.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <span>
#include <string>
#include <vector>

namespace {

std::atomic<std::int64_t> alive{0};
std::atomic<std::int64_t> allocations{0};

std::int64_t block_size(void* p) noexcept { return static_cast<std::int64_t>(malloc_usable_size(p) + sizeof(void*)); }

void* take(std::size_t size, std::size_t align = alignof(std::max_align_t)) {
  void* const p = align <= alignof(std::max_align_t) ? std::malloc(size)
                                                     : std::aligned_alloc(align, (size + align - 1) / align * align);
  if (p == nullptr) throw std::bad_alloc();
  alive.fetch_add(block_size(p), std::memory_order_relaxed);
  allocations.fetch_add(1, std::memory_order_relaxed);
  return p;
}

void give(void* p) noexcept {
  if (p == nullptr) return;
  alive.fetch_sub(block_size(p), std::memory_order_relaxed);
  std::free(p);
}

}  // namespace

// The other forms call these.
void* operator new(std::size_t size) { return take(size); }
void* operator new(std::size_t size, std::align_val_t align) { return take(size, static_cast<std::size_t>(align)); }
void operator delete(void* p) noexcept { give(p); }
void operator delete(void* p, std::size_t) noexcept { give(p); }
void operator delete(void* p, std::align_val_t) noexcept { give(p); }
void operator delete(void* p, std::size_t, std::align_val_t) noexcept { give(p); }

namespace {

using namespace bench;

constexpr std::size_t tasks = 100'000;

// Bytes while all tasks of a workload wait, and once they are done, for each of `per`; and that everything is given
// back at the end.
template <template <class> class System, class Key>
void hold(benchmark::State& state, shape spread, const char* counter, bool when_done) {
  const workload& w = workload_of(spread, tasks, 1);
  const std::vector<Key>& keys = keys_of<Key>(w.keys);
  double bytes = 0;
  std::string fault;
  for (auto _ : state) {
    checks watch(w);
    const std::int64_t before = alive;
    std::int64_t empty = 0;
    std::int64_t full = 0;
    {
      System<Key> system(2);
      empty = alive;
      system.hold();
      produce(system, watch, w, keys, 0);
      if (!when_done) full = alive;
      system.let_go();
      system.wait_idle();
      if (when_done) full = alive;
    }
    bytes = static_cast<double>(full - empty);
    fault = alive != before ? "memory was not given back" : watch.fault(System<Key>::promises);
  }
  state.counters[counter] = bytes / static_cast<double>(tasks);
  if (when_done) state.counters["bytes"] = bytes;  // a cache of bounded size is not a price by key
  judge(state, fault);
}

// Waves of 1,000 tasks over 1,000 keys: allocations in the later ones.
template <template <class> class System>
void allocate(benchmark::State& state) {
  constexpr int waves = 100;
  const workload& w = workload_of(shape::thousand, 1'000, 1);
  const std::vector<std::uint64_t>& keys = keys_of<std::uint64_t>(w.keys);
  double count = 0;
  std::string fault;
  for (auto _ : state) {
    System<std::uint64_t> system(2);
    const auto wave = [&] {
      checks watch(w);
      const std::int64_t before = allocations;
      produce(system, watch, w, keys, 0);
      system.wait_idle();
      const std::int64_t after = allocations;
      if (fault.empty()) fault = watch.fault(System<std::uint64_t>::promises);
      return after - before;
    };
    for (int i = 0; i != waves; ++i) static_cast<void>(wave());
    std::int64_t sum = 0;
    for (int i = 0; i != waves; ++i) sum += wave();
    count = static_cast<double>(sum) / static_cast<double>(waves * w.tasks());
  }
  state.counters["allocations/task"] = count;
  judge(state, fault);
}

// Bytes of a message that waits in a consumer, whose limit is its size and 64.
template <class Message>
void hold_messages(benchmark::State& state, std::uint64_t keys) {
  double bytes = 0;
  std::string fault;
  for (auto _ : state) {
    const std::int64_t before = alive;
    {
      turnkey::thread_pool pool{2};
      turnkey::consumer<std::uint64_t, Message> consumer(
          pool, turnkey::options<std::uint64_t>{.default_policy = turnkey::policy::ordered}, 64,
          [](std::span<Message>) {});
      consumer.pause();
      const std::int64_t empty = alive;
      for (std::size_t i = 0; i != tasks; ++i) consumer.send(i % keys, Message{});
      bytes = static_cast<double>(alive - empty) / static_cast<double>(tasks);
      consumer.resume();
      consumer.drain();
    }
    if (alive != before) fault = "memory was not given back";
    if (bytes > sizeof(Message) + 64) fault = "a message takes more than its size and 64 bytes";
  }
  state.counters["bytes/message"] = bytes;
  judge(state, fault);
}

template <class Function>
void add(const std::string& name, Function function) {
  benchmark::RegisterBenchmark(("memory/" + name).c_str(), function)->Iterations(1)->Unit(benchmark::kMillisecond);
}

template <template <class> class System>
void add() {
  const std::string name = System<std::uint64_t>::name;
  const auto held = [](shape spread, const char* counter, bool when_done) {
    return [=](benchmark::State& state) { hold<System, std::uint64_t>(state, spread, counter, when_done); };
  };
  add("waiting/one_key/" + name, held(shape::hot, "bytes/task", false));
  add("waiting/1k_keys/" + name, held(shape::thousand, "bytes/task", false));
  add("active/u64/" + name, held(shape::distinct, "bytes/key", false));
  add("active/string/" + name,
      [](benchmark::State& state) { hold<System, std::string>(state, shape::distinct, "bytes/key", false); });
  add("idle/u64/" + name, held(shape::distinct, "bytes/key", true));
  add("steady/" + name, allocate<System>);
}

[[maybe_unused]] const bool registered = [] {
  add("waiting/one_key/consumer/u64", [](benchmark::State& s) { hold_messages<std::uint64_t>(s, 1); });
  add("waiting/one_key/consumer/64_bytes",
      [](benchmark::State& s) { hold_messages<std::array<std::uint64_t, 8>>(s, 1); });
  add("waiting/1k_keys/consumer/64_bytes",
      [](benchmark::State& s) { hold_messages<std::array<std::uint64_t, 8>>(s, 1'000); });
  for_each_system([]<template <class> class System> { add<System>(); });
  return true;
}();

}  // namespace
