// What can be asked of a scheduler: plain values that were true when they were taken.
#pragma once

#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>

namespace turnkey::inline v1 {

// Where an accepted task is. The last four are final; a redrive gives a dead task a new life.
enum class task_state : std::uint8_t {
  waiting,    // its key or its predecessors are against it
  ready,      // nothing of its key is against it
  running,    // an attempt runs, or its completion is still out
  delayed,    // until a time: first delay, retry, postponed
  succeeded,  // final
  dead,       // final
  cancelled,  // final
  undone,     // final: handed back by stop()
};

constexpr const char* to_string(task_state state) noexcept {
  switch (state) {
    case task_state::waiting: return "waiting";
    case task_state::ready: return "ready";
    case task_state::running: return "running";
    case task_state::delayed: return "delayed";
    case task_state::succeeded: return "succeeded";
    case task_state::dead: return "dead";
    case task_state::cancelled: return "cancelled";
    case task_state::undone: return "undone";
  }
  return "?";
}

// Why a submit was refused.
enum class reject_reason : std::uint8_t {
  closed,           // close() or stop() came first
  full,             // max_pending unfinished tasks
  key_full,         // max_pending_per_key unfinished tasks of this key
  needs_key,        // exclusive or ordered asked for without a key
  invalid_options,  // a task option makes no sense
  empty_callback,   // a null function pointer or an empty function wrapper
};

constexpr const char* to_string(reject_reason reason) noexcept {
  switch (reason) {
    case reject_reason::closed: return "closed";
    case reject_reason::full: return "full";
    case reject_reason::key_full: return "key_full";
    case reject_reason::needs_key: return "needs_key";
    case reject_reason::invalid_options: return "invalid_options";
    case reject_reason::empty_callback: return "empty_callback";
  }
  return "?";
}

// What submit() throws when it refuses; what() says what was wrong and what to do.
class rejected : public std::runtime_error {
 public:
  rejected(reject_reason reason, const std::string& what) : std::runtime_error(what), reason_(reason) {}
  [[nodiscard]] reject_reason reason() const noexcept { return reason_; }

 private:
  reject_reason reason_;
};

// What try_submit() and submit_for() return: the id of the accepted task, or the reason of the refusal.
class [[nodiscard]] submit_result {
 public:
  submit_result(task_id id) noexcept : id_(id) {}                    // NOLINT(google-explicit-constructor)
  submit_result(reject_reason reason) noexcept : reason_(reason) {}  // NOLINT(google-explicit-constructor)

  explicit operator bool() const noexcept { return !reason_; }
  [[nodiscard]] bool has_value() const noexcept { return !reason_; }

  //   Throws   rejected when there is no id.
  [[nodiscard]] task_id value() const {
    if (reason_) throw rejected(*reason_, std::string("turnkey: the task was refused: ") + to_string(*reason_));
    return id_;
  }
  [[nodiscard]] task_id operator*() const { return value(); }

  // None when the task was accepted.
  [[nodiscard]] std::optional<reject_reason> reason() const noexcept { return reason_; }

 private:
  task_id id_{};
  std::optional<reject_reason> reason_;
};

// How a wait ended.
enum class drain_result : std::uint8_t {
  drained,         // nothing is unfinished
  timed_out,       // the time was up first
  stalled,         // nothing runs, work is ready, and the last 8 permits were refused or dropped
  stopped,         // stop() came first
  would_deadlock,  // asked on a thread that is inside a callback of this scheduler
};

constexpr const char* to_string(drain_result result) noexcept {
  switch (result) {
    case drain_result::drained: return "drained";
    case drain_result::timed_out: return "timed_out";
    case drain_result::stalled: return "stalled";
    case drain_result::stopped: return "stopped";
    case drain_result::would_deadlock: return "would_deadlock";
  }
  return "?";
}

// What a scheduler has done and what it holds. Exact when it is quiet, else a consistent cut per shard.
struct stats {
  // Counters since construction.
  std::uint64_t submitted = 0;
  std::uint64_t started = 0;  // attempts
  std::uint64_t succeeded = 0;
  std::uint64_t failed_attempts = 0;  // those that killed the task too
  std::uint64_t postponed = 0;
  std::uint64_t died = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t undone = 0;
  std::uint64_t redriven = 0;
  std::uint64_t rejected = 0;
  std::uint64_t executor_refusals = 0;
  std::uint64_t permits_lost = 0;
  std::uint64_t dead_evicted = 0;
  std::uint64_t leases_expired = 0;
  std::uint64_t leases_lost = 0;   // of these, taken away
  std::uint64_t late_results = 0;  // what completions said too late

  // Gauges.
  std::uint64_t waiting = 0;
  std::uint64_t ready = 0;
  std::uint64_t running = 0;
  std::uint64_t delayed = 0;
  std::uint64_t dead = 0;  // in the store
  std::uint64_t keys = 0;  // with an unfinished task, a pause or a hold
  std::uint64_t held_keys = 0;
  std::uint64_t paused_keys = 0;
  duration oldest_age{};  // of the unfinished task that was submitted first; 0 without one

  [[nodiscard]] std::uint64_t unfinished() const noexcept { return waiting + ready + running + delayed; }
};

// Why an unfinished task does not run: the first that holds, in this order.
struct why {
  enum class reason : std::uint8_t {
    key_held,       // `task`, which died and is in `state` now, holds the key
    key_paused,     // pause(key)
    not_due,        // until `time`
    predecessor,    // it is ordered, and `task`, the first unfinished one of its key, is in `state`
    lease,          // `task` has the lease of the key: attempt `attempt`, since `time`
    reserved,       // `task`, which has several keys and a smaller id, comes first
    paused,         // pause()
    max_in_flight,  // as many run as this limit, `number`, allows
    pace,           // the next start is at `time`
    turn,           // workers are busy with what goes first
    executor,       // no thread of the executor has come yet
    running,        // nothing: it runs
  };
  reason kind = reason::running;
  task_id task{};
  task_state state{};
  std::uint32_t attempt = 0;
  time_point time{};
  std::size_t number = 0;
};

constexpr const char* to_string(why::reason reason) noexcept {
  switch (reason) {
    case why::reason::key_held: return "key_held";
    case why::reason::key_paused: return "key_paused";
    case why::reason::not_due: return "not_due";
    case why::reason::predecessor: return "predecessor";
    case why::reason::lease: return "lease";
    case why::reason::reserved: return "reserved";
    case why::reason::paused: return "paused";
    case why::reason::max_in_flight: return "max_in_flight";
    case why::reason::pace: return "pace";
    case why::reason::turn: return "turn";
    case why::reason::executor: return "executor";
    case why::reason::running: return "running";
  }
  return "?";
}

// The same as a sentence. Times are told from `now`.
//   Throws   std::bad_alloc.
inline std::string to_string(const why& w, time_point now = clock::now()) {
  const auto id = [&w] { return "task " + std::to_string(static_cast<std::uint64_t>(w.task)); };
  const auto ms = [](duration d) {
    return std::to_string(std::chrono::duration_cast<std::chrono::milliseconds>(d).count()) + " ms";
  };
  switch (w.kind) {
    case why::reason::key_held:
      if (w.state == task_state::dead) return "dead " + id() + " holds the key: redrive, discard or release it";
      return id() + ", which died before and is " + to_string(w.state) + " now, holds the key until it succeeds";
    case why::reason::key_paused: return "the key is paused";
    case why::reason::not_due: return "due in " + ms(w.time - now);
    case why::reason::predecessor: return "ordered behind " + id() + ", which is " + to_string(w.state);
    case why::reason::lease:
      return id() + " has the key's lease: attempt " + std::to_string(w.attempt) + ", for " + ms(now - w.time);
    case why::reason::reserved: return "the key is reserved for " + id() + ", which waits for several keys";
    case why::reason::paused: return "everything is paused";
    case why::reason::max_in_flight:
      return "max_in_flight allows " + std::to_string(w.number) + " at a time, and as many run";
    case why::reason::pace: return "the pace lets the next one start in " + ms(w.time - now);
    case why::reason::turn: return "waits for its turn: the workers are busy with what goes first";
    case why::reason::executor: return "waits for the executor: no thread of it has come yet";
    case why::reason::running: return "nothing: it runs";
  }
  return "?";
}

// An unfinished task as find() tells of it.
template <class Key>
struct task_info {
  task_id id{};
  std::optional<Key> key{};
  turnkey::policy policy{};
  task_state state{};
  std::uint32_t attempts = 0;  // that began, in this life
  time_point submitted{};
  time_point since{};               // running: the start; back from a retry: when it was due; else when submitted
  std::optional<time_point> due{};  // delayed: until then
  turnkey::why why{};
};

// A key as busiest_keys() tells of it.
template <class Key>
struct key_info {
  Key key;
  std::size_t depth = 0;  // unfinished tasks
  duration oldest_age{};  // of the one that was submitted first
  task_id head{};         // of these, the one with the smallest id
  task_state head_state{};
  bool paused = false;
  bool held = false;
};

// A dead task as dead_tasks() lists it.
template <class Key>
struct dead_task {
  task_id id{};
  std::optional<Key> key{};
  turnkey::policy policy{};
  std::uint32_t attempts = 0;
  time_point submitted{};
  time_point died{};
  failure error{failure_reason::asked, nullptr};
};

}  // namespace turnkey::inline v1
