// What a user may set: for one task, and for a scheduler. Every field has a default; fields are only ever appended.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/retry_policy.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace turnkey::inline v1 {

class time_source;

// For one task. What is not set here comes from the scheduler.
struct task_options {
  std::optional<turnkey::policy> policy{};
  std::optional<retry_policy> retry{};
  duration delay{};  // the first attempt is not due before; the place in line is that of the id
};

// What the death of a task means for its key.
enum class dead_action : std::uint8_t {
  release,   // the key goes on
  hold_key,  // no task of the key with a larger id starts until the dead one is dealt with (rule 5.3)
};

// What happens when lease_time has run out and only a completion is left.
enum class lease_expiry : std::uint8_t {
  report,   // it goes on holding
  release,  // the lease is taken away: the attempt has failed (lease lost), and what its completion says is ignored
};

// Fences never come round to small numbers: what is left above this one lasts for two centuries at ten million leases a
// second.
inline constexpr std::uint64_t last_first_fence = 0xff00'0000'0000'0000;

// For a scheduler<Key>. A value that makes no sense is refused by the constructor, which names it.
template <class Key>
struct options {
  turnkey::policy default_policy = turnkey::policy::parallel;  // for tasks that do not say
  std::optional<turnkey::policy> policy_override{};            // for all tasks, whatever they say
  std::optional<retry_policy> retry{};                         // none: one attempt, nothing runs twice unasked

  std::optional<std::size_t> max_in_flight{};        // running tasks; not 0
  std::optional<std::size_t> max_pending{};          // unfinished tasks over all; not 0
  std::optional<std::size_t> max_pending_per_key{};  // unfinished tasks of one key; not 0

  std::uint32_t turn_budget = 16;                     // starts of one line before the next has its turn; not 0
  duration turn_time = std::chrono::milliseconds{1};  // a turn ends early after it, if others wait

  std::size_t max_dead = 1024;  // dead tasks that are kept; the oldest leaves
  turnkey::dead_action dead_action = turnkey::dead_action::release;

  std::optional<duration> lease_time{};  // of an attempt, from its start: after it the stop token says stop; above 0
  turnkey::lease_expiry lease_expiry = turnkey::lease_expiry::report;

  turnkey::observer<Key> observer{};
  time_source* time = nullptr;  // null: the steady clock and a thread of its own; else it must outlive stop()

  std::optional<std::uint64_t> jitter_seed{};  // none: a random one
  std::uint64_t first_fence = 1;               // of the first lease; 1 to last_first_fence
};

}  // namespace turnkey::inline v1
