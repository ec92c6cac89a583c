// What options make no sense, in words: which option, which value, what would be right.
#pragma once

#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>
#include <turnkey/pace.hpp>
#include <turnkey/retry_policy.hpp>

#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>

namespace turnkey::inline v1::detail {

inline std::string flaw(const char* option, const std::string& value, const char* right) {
  return std::string(option) + " is " + value + "; " + right;
}

inline std::string in_words(duration d) {
  return std::to_string(std::chrono::duration_cast<std::chrono::nanoseconds>(d).count()) + " ns";
}

// Empty when all is well.
inline std::string flaw_of(const retry_policy& r) {
  if (r.max_attempts == 0) return flaw("retry.max_attempts", "0", "it counts all attempts: 1 or more");
  if (r.initial_delay < duration::zero())
    return flaw("retry.initial_delay", in_words(r.initial_delay), "it must not be negative");
  if (!(r.multiplier >= 1)) return flaw("retry.multiplier", std::to_string(r.multiplier), "it must be 1 or more");
  if (r.max_delay < duration::zero()) return flaw("retry.max_delay", in_words(r.max_delay), "it must not be negative");
  if (!(r.jitter >= 0 && r.jitter <= 1)) return flaw("retry.jitter", std::to_string(r.jitter), "it is from 0 to 1");
  return {};
}

inline std::string flaw_of(policy p, const char* option) {
  if (p <= policy::ordered) return {};
  return flaw(option, std::to_string(static_cast<unsigned>(p)), "it is parallel, exclusive or ordered");
}

inline std::string flaw_of(const task_options& o) {
  if (auto f = flaw_of(o.policy.value_or(policy::parallel), "policy"); !f.empty()) return f;
  return o.retry ? flaw_of(*o.retry) : std::string();
}

template <class Key>
std::string flaw_of(const options<Key>& o) {
  constexpr auto not_none = "leave it unset for no limit";
  if (auto f = flaw_of(o.default_policy, "default_policy"); !f.empty()) return f;
  if (o.policy_override)
    if (auto f = flaw_of(*o.policy_override, "policy_override"); !f.empty()) return f;
  if (o.retry)
    if (auto f = flaw_of(*o.retry); !f.empty()) return f;
  if (o.max_in_flight && *o.max_in_flight == 0) return flaw("max_in_flight", "0", not_none);
  if (o.max_pending && *o.max_pending == 0) return flaw("max_pending", "0", not_none);
  if (o.max_pending_per_key && *o.max_pending_per_key == 0) return flaw("max_pending_per_key", "0", not_none);
  if (o.turn_budget == 0) return flaw("turn_budget", "0", "a turn starts at least 1 task");
  if (o.turn_time < duration::zero()) return flaw("turn_time", in_words(o.turn_time), "it must not be negative");
  if (o.dead_action > dead_action::hold_key)
    return flaw("dead_action", std::to_string(static_cast<unsigned>(o.dead_action)), "it is release or hold_key");
  if (o.lease_time && *o.lease_time <= duration::zero())
    return flaw("lease_time", in_words(*o.lease_time), "more than 0; leave it unset for none");
  if (o.lease_expiry > lease_expiry::release)
    return flaw("lease_expiry", std::to_string(static_cast<unsigned>(o.lease_expiry)), "it is report or release");
  if (o.first_fence == 0) return flaw("first_fence", "0", "0 means no lease: 1 or more");
  if (o.first_fence > last_first_fence)
    return flaw("first_fence", std::to_string(o.first_fence), "too few larger ones are left: at most 2^64 - 2^56");
  return {};
}

template <class Key>
void check(const options<Key>& o) {
  if (const std::string f = flaw_of(o); !f.empty()) throw std::invalid_argument("turnkey: option " + f);
}

inline std::string flaw_of(const pace& p) {
  if (!(p.n > 0)) return flaw("n", std::to_string(p.n), "more than 0 starts; pause() lets none start");
  if (p.interval <= duration::zero()) return flaw("interval", in_words(p.interval), "it must be more than 0");
  if (p.burst == 0) return flaw("burst", "0", "1 or more");
  return {};
}

inline void check_pace(const std::optional<pace>& p) {
  if (!p) return;
  if (const std::string f = flaw_of(*p); !f.empty()) throw std::invalid_argument("turnkey: pace." + f);
}

inline void check_limit(const std::optional<std::size_t>& max_in_flight) {
  if (max_in_flight && *max_in_flight == 0)
    throw std::invalid_argument("turnkey: max_in_flight is 0; pause() starts nothing, none is no limit");
}

// Throws what submit() throws for an empty list of keys.
[[noreturn]] inline void throw_no_keys() {
  throw rejected(reject_reason::needs_key,
                 "turnkey: submit refused (needs_key): the list of keys is empty; a task without a key has no list");
}

// Throws what submit() throws when it refuses: why, which option, which value.
template <class Key>
[[noreturn]] void throw_rejected(reject_reason reason, const task_options& wishes, const options<Key>& set) {
  std::string what = std::string("turnkey: submit refused (") + to_string(reason) + "): ";
  switch (reason) {
    case reject_reason::closed: what += "close() or stop() came first"; break;
    case reject_reason::full:
      what += "max_pending = " + std::to_string(set.max_pending.value_or(0)) +
              " tasks are unfinished; submit_for() waits for room";
      break;
    case reject_reason::key_full:
      what += "max_pending_per_key = " + std::to_string(set.max_pending_per_key.value_or(0)) +
              " tasks of this key are unfinished; submit_for() waits for room";
      break;
    case reject_reason::needs_key:
      what += std::string("policy is ") + to_string(wishes.policy.value_or(policy::parallel)) +
              "; without a key only parallel makes sense";
      break;
    case reject_reason::invalid_options:
      what += flaw_of(wishes).empty() ? "the policy is parallel; several keys need exclusive or ordered"
                                      : "task option " + flaw_of(wishes);
      break;
    case reject_reason::empty_callback: what += "the callback is null or an empty function wrapper"; break;
  }
  throw rejected(reason, what);
}

}  // namespace turnkey::inline v1::detail
