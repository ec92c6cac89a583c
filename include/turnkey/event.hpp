// What an observer is told. Plain values; nothing here decides anything.
#pragma once

#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <concepts>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>

namespace turnkey::inline v1 {

template <class Key>
class task_record;

enum class event_kind : std::uint8_t {
  submitted,         // accepted
  started,           // an attempt begins
  succeeded,         // final
  failed,            // an attempt failed, the task will be tried again at `due`
  postponed,         // the callback said later; the task comes back at `due`
  dead,              // final, until a redrive
  cancelled,         // final
  undone,            // final: handed back by stop()
  redriven,          // a dead task has a new life
  discarded,         // a dead task was dropped by discard()
  evicted,           // a dead task left a full store; `record` holds it
  executor_refused,  // the executor threw or refused; no task is named
  permit_lost,       // the executor dropped a permit; no task is named
  lease_expired,     // an attempt runs longer than lease_time; its stop token says stop
};

constexpr const char* to_string(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::submitted: return "submitted";
    case event_kind::started: return "started";
    case event_kind::succeeded: return "succeeded";
    case event_kind::failed: return "failed";
    case event_kind::postponed: return "postponed";
    case event_kind::dead: return "dead";
    case event_kind::cancelled: return "cancelled";
    case event_kind::undone: return "undone";
    case event_kind::redriven: return "redriven";
    case event_kind::discarded: return "discarded";
    case event_kind::evicted: return "evicted";
    case event_kind::executor_refused: return "executor refused";
    case event_kind::permit_lost: return "permit lost";
    case event_kind::lease_expired: return "lease expired";
  }
  return "?";
}

// One thing that happened. The pointers are good until the observer returns.
template <class Key>
struct event {
  event_kind kind{};
  std::uint64_t number = 0;  // rises among the events of one key: observers may run concurrently and out of order
  task_id id{};              // not meaningful for the two kinds that name no task
  const Key* key = nullptr;  // null: the task has no key
  turnkey::policy policy{};
  std::uint32_t attempt = 0;           // the attempt that this is about, from 1; 0 before the first
  std::uint64_t fence = 0;             // of the attempt that begins or ends; evicted, discarded: of the last; else 0
  time_point time{};                   // when it happened
  time_point due{};                    // failed, postponed, submitted: not before this time
  const failure* error = nullptr;      // failed, dead, evicted; executor_refused, if it threw
  task_record<Key>* record = nullptr;  // evicted: may be submitted again or moved away
};

// Any callable that takes a const event<Key>&; empty by default. It is called outside all locks, from any thread,
// maybe by several at once. What it throws is dropped. It may submit and cancel; it must not wait for the scheduler.
template <class Key>
class observer {
 public:
  observer() noexcept = default;

  template <class F>
    requires(!std::same_as<std::remove_cvref_t<F>, observer> &&
             std::invocable<std::remove_cvref_t<F>&, const event<Key>&>)
  observer(F&& callable)  // NOLINT(google-explicit-constructor): options take a plain lambda
      : target_(std::make_shared<std::remove_cvref_t<F>>(std::forward<F>(callable))),
        call_([](void* target, const event<Key>& e) {
          static_cast<void>((*static_cast<std::remove_cvref_t<F>*>(target))(e));
        }) {}

  explicit operator bool() const noexcept { return call_ != nullptr; }

  void operator()(const event<Key>& e) const noexcept {
    try {
      call_(target_.get(), e);
    } catch (...) {  // rule 9.4: one that throws harms nothing
    }
  }

 private:
  std::shared_ptr<void> target_;
  void (*call_)(void*, const event<Key>&) = nullptr;
};

}  // namespace turnkey::inline v1
