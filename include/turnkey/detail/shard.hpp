// One shard of the key table: its slots and their tasks, its ids, its timers, its dead, its counters, and the memory of
// all of these. One lock guards it; no operation but drain() and stop() holds more than one.
//
// A task is always findable by its id from its acceptance to its end, in whatever room it is.
#pragma once

#include <turnkey/detail/cell_pool.hpp>
#include <turnkey/detail/id_index.hpp>
#include <turnkey/detail/key_slot.hpp>
#include <turnkey/detail/slot_table.hpp>
#include <turnkey/detail/sync.hpp>
#include <turnkey/detail/task_heap.hpp>
#include <turnkey/detail/task_list.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <new>

namespace turnkey::inline v1::detail {

// How a task's block is laid out: the task, its callable, its extra.
struct block {
  std::size_t size;
  std::size_t align;
  std::uint32_t extra_offset;  // 0: none

  static constexpr block of(std::size_t callable_size, std::size_t callable_align, bool with_extra) noexcept {
    const std::size_t extra = offset_of_extra(callable_size, callable_align);
    const std::size_t align = callable_align > alignof(task) ? callable_align : alignof(task);
    if (with_extra) return {extra + sizeof(task_extra), align, static_cast<std::uint32_t>(extra)};
    return {callable_offset(callable_align) + callable_size, align, 0};
  }
};

// What a shard counts; nothing happens 2^64 times, and all numbers that are given in turn, of attempts, events, deaths
// and fences, have as many bits. The first ones change with every task. `waiting` is derived when asked.
struct tally {
  std::uint64_t submitted = 0;
  std::uint64_t started = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t ready = 0;
  std::uint64_t running = 0;
  std::uint64_t keys = 0;
  std::uint64_t failed_attempts = 0;
  std::uint64_t postponed = 0;
  std::uint64_t died = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t undone = 0;
  std::uint64_t redriven = 0;
  std::uint64_t rejected = 0;
  std::uint64_t dead_evicted = 0;
  std::uint64_t delayed = 0;
  std::uint64_t dead = 0;
  std::uint64_t held_keys = 0;
  std::uint64_t paused_keys = 0;
  std::uint64_t leases_expired = 0;
  std::uint64_t leases_lost = 0;
  std::uint64_t late_results = 0;
};

struct alignas(64) shard {
  shard(std::uint32_t number, std::uint32_t bits, std::uint64_t first_serial, std::uint64_t first_fence,
        std::uint64_t seed, std::size_t slot_size) noexcept
      : next_fence(first_fence), ids(number, bits, first_serial), slot_cells(slot_size), random(seed) {}

  // What the way of every task touches stands together, in few cache lines.
  mutable detail::mutex mutex{16};  // patient: a hot key's tasks all come here
  std::uint64_t next_fence;
  std::uint64_t unfinished = 0;  // accepted and in no final state
  bool closed = false;           // nothing is let in but follow-up work
  bool stopped = false;          // nothing is let in and nothing starts
  bool watched = false;          // one of the watches below is set
  id_index ids;
  slot_table slots;

  // Blocks of callables up to 16, 32 and 48 bytes, and those with an extra; larger ones come from the heap.
  static constexpr std::array<std::size_t, 4> block_sizes{sizeof(task) + 16, sizeof(task) + 32, sizeof(task) + 48,
                                                          sizeof(task) + 64 + sizeof(task_extra)};
  cell_pool slot_cells;
  std::array<cell_pool, 4> blocks{cell_pool{block_sizes[0]}, cell_pool{block_sizes[1]}, cell_pool{block_sizes[2]},
                                  cell_pool{block_sizes[3]}};

  std::uint64_t epoch = 0;  // tickets of an earlier one are revoked
  tally counts;
  task_heap<by_due_time> timers;
  task_heap<by_expiry> leases;   // of attempts that run, where there is a lease_time
  task_list<&task::peers> dead;  // oldest first
  std::uint64_t busy = 0;        // finished or told of, but a destructor or an observer still runs
  std::uint64_t arriving = 0;    // let in, their callable is being moved
  std::uint64_t next_event = 1;
  std::uint64_t random;          // state of the jitter's generator
  bool emptied = false;          // stop() has taken what was unfinished
  bool watched_quiet = false;    // somebody waits for unfinished, busy and arriving to be 0
  bool watched_settled = false;  // somebody waits for busy and arriving to be 0
  bool watched_room = false;     // somebody waits for a task to finish

  static constexpr std::uint8_t from_heap = block_sizes.size();

  // Which pool a block comes from.
  static constexpr std::uint8_t pool_of(const block& b) noexcept {
    if (b.align > 16) return from_heap;
    for (std::uint8_t i = 0; i != block_sizes.size(); ++i)
      if (b.size <= cell_pool::rounded(block_sizes[i])) return i;
    return from_heap;
  }

  [[nodiscard]] bool settled() const noexcept { return busy == 0 && arriving == 0; }
  [[nodiscard]] bool quiet() const noexcept { return unfinished == 0 && settled(); }

  // A number from [0, 1). The generator is SplitMix64 (Steele, Lea, Flood 2014).
  [[nodiscard]] double random_fraction() noexcept {
    random += 0x9e3779b97f4a7c15U;
    return static_cast<double>(mixed(random) >> 11) * 0x1p-53;
  }
};

}  // namespace turnkey::inline v1::detail
