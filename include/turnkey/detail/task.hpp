// The thing that travels: one accepted task, its links, and its callable behind them in the same block. It knows
// nothing of rules; all fields are guarded by the lock of its key's shard, apart from those of the callable, which
// belong to the worker while the task runs.
#pragma once

#include <turnkey/detail/config.hpp>
#include <turnkey/event.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/retry_policy.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <stop_token>

namespace turnkey::inline v1 {
class attempt;

namespace detail {

class key_slot;
class fate;
struct group;
struct task;

// Where a task is.
enum class place : std::uint8_t {
  in_line,    // in its key's slot: waiting or ready
  in_lines,   // the same for one of several keys: its group knows how it stands in each
  running,    // with a worker
  resting,    // in its shard's timer heap
  dead,       // in its shard's list of dead tasks
  leaving,    // in no room: its callable is being destroyed and its observers are being told
  withdrawn,  // in the list that stop() returned
};

// What is known of a callable's type.
struct callable_ops {
  outcome (*invoke)(void* callable, attempt& attempt);
  void (*move)(void* from, void* to);              // constructs `*to`; `*from` stays to be destroyed
  void (*destroy)(void* callable) noexcept;        // null: nothing to do
  detail::fate* (*fate)(void* callable) noexcept;  // null: nobody wants to know how the task ends
  std::size_t size;
  std::size_t align;
  bool plain;  // moving it is copying its bytes, destroying it is nothing
};

// A place in a list: two neighbours.
struct list_links {
  task* previous;
  task* next;
};

// A place in a heap; see task_heap.
struct heap_links {
  task* parent;
  task* left;
  task* right;
};

// The attempt that runs.
struct run_state {
  std::uint64_t fence;   // 0 without a lease
  std::uint64_t serial;  // of the attempts of its shard; once `settled`: the delay of what was said, in ticks
  std::stop_source stop{std::nostopstate};  // made when the callback asks for a token
};

// How far the attempt that runs has come.
struct progress {
  bool returned : 1;      // the callback has, and only a completion is left
  bool settled : 1;       // the completion came first: what it said is `said`, and in `reason`, `error` and run.serial
  bool watched : 1;       // in its shard's leases
  bool overdue : 1;       // the lease time ran out
  std::uint8_t said : 3;  // an outcome::kind
};
static_assert(sizeof(progress) == 1);

// What is told of a task that is leaving.
struct farewell {
  std::uint64_t number;
  std::uint64_t fence;  // of its last attempt
  std::uint32_t attempt;
  event_kind kind;
};

struct task {
  task(const callable_ops& operations, turnkey::policy how, std::uint8_t from_pool) noexcept
      : ops(&operations), policy(how), pool(from_pool & 15U) {}
  task(const task&) = delete;
  task& operator=(const task&) = delete;
  ~task() {}  // whoever ends an attempt destroys `run`

  const callable_ops* ops;
  std::uint64_t id = 0;
  key_slot* slot = nullptr;

  // All unfinished tasks of the key in id order; all dead or withdrawn ones of the shard; those that leave together.
  list_links peers{};
  union {
    list_links line{};  // in_line: in the fifo of its policy, unless `again`; in_lines: does not reserve
    heap_links heap;    // resting: in the shard's timers; in_line and `again`: in the again-heap of its policy;
                        // in_lines: reserves
    run_state run;      // running
    farewell last;      // leaving: what its observers are told; dead: `number` orders the dead of all shards
    std::byte record[sizeof(heap_links)];  // withdrawn: the task_record that stop() made of it
  };
  // resting: due then. in_line: the order in the again-heap. running: since. dead: died then.
  union {
    time_point when{};
    std::uint64_t rank;
  };
  time_point submitted{};
  std::exception_ptr error;  // dead: what it died of; running and `settled`: what the completion said

  std::uint32_t failed = 0;     // attempts that failed in this life: no more than max_attempts
  std::uint32_t postponed = 0;  // attempts that were postponed in this life, or the largest number

  turnkey::policy policy;
  detail::place place = detail::place::in_line;
  std::uint8_t pool : 4;     // of its shard's pools, the one that its block came from
  bool several : 1 = false;  // it has several keys: its extra names the group
  union {
    std::uint8_t heap_rank = 0;  // in a heap
    detail::progress progress;   // running
  };
  bool has_extra : 1 = false;   // a task_extra stands behind the callable
  bool again : 1 = false;       // in_line: in the again-heap, not in the fifo
  bool retried : 1 = false;     // has run before in this life: in the again-heap by due time, else by rank
  bool holder : 1 = false;      // died while its key holds; stays set until rule 5.3 ends the hold
  bool cancelled : 1 = false;   // while running: it never starts again
  bool signalled : 1 = false;   // running: its stop token says stop
  std::uint8_t owners : 2 = 0;  // outside the engine: a record, the list of stop()
  bool spent = false;  // its callable has been destroyed; the worker's while running, so not one of the bits above
  failure_reason reason = failure_reason::asked;  // with `error`
  task_state left_as = task_state::waiting;       // withdrawn: its state when stop() came
};

// With a callable of 24 bytes: two cache lines.
static_assert(sizeof(void*) != 8 || sizeof(task) <= 104);

// Of what may happen more often than there are numbers, the largest number is counted: who is postponed every
// millisecond is there after 50 days.
inline void count_up(std::uint32_t& n) noexcept {
  if (n != (std::numeric_limits<std::uint32_t>::max)()) ++n;
}

// How many attempts of a task have begun in this life; the largest number stands for more too.
inline std::uint32_t attempts_of(const task& t, bool runs) noexcept {
  const std::uint64_t all = std::uint64_t{t.failed} + t.postponed + (runs ? 1 : 0);
  constexpr auto most = (std::numeric_limits<std::uint32_t>::max)();
  return all < most ? static_cast<std::uint32_t>(all) : most;
}
inline std::uint32_t attempts_of(const task& t) noexcept { return attempts_of(t, t.place == place::running); }

// What few tasks carry: behind the callable, in the same block.
struct task_extra {
  retry_policy retry = never_retry;  // its own, when `has_retry`
  bool has_retry = false;
  std::uint8_t lease_rank = 0;
  task* next_holder = nullptr;     // while `holder`: the next of the key, by id
  heap_links lease{};              // while `watched`: in the shard's leases
  time_point expires{};            // running, where there is a lease_time: the lease should be over then
  detail::group* group = nullptr;  // of a task of several keys
};

constexpr std::size_t rounded_up(std::size_t size, std::size_t align) noexcept {
  return (size + align - 1) / align * align;
}

constexpr std::size_t callable_offset(std::size_t align) noexcept { return rounded_up(sizeof(task), align); }

constexpr std::size_t offset_of_extra(std::size_t size, std::size_t align) noexcept {
  return rounded_up(callable_offset(align) + size, alignof(task_extra));
}

inline void* callable_of(task& t) noexcept { return reinterpret_cast<std::byte*>(&t) + callable_offset(t.ops->align); }

inline task_extra& extra_of(task& t) noexcept {
  TURNKEY_ASSERT(t.has_extra, "only some tasks carry an extra");
  return *reinterpret_cast<task_extra*>(reinterpret_cast<std::byte*>(&t) + offset_of_extra(t.ops->size, t.ops->align));
}
inline const task_extra& extra_of(const task& t) noexcept { return extra_of(const_cast<task&>(t)); }

}  // namespace detail
}  // namespace turnkey::inline v1
