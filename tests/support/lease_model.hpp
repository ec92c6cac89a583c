// The part of the reference model that knows chapter 7: which attempts go on without their callback, what their
// completions may say, and when their time is over. It is told what was asked for, and answers what must be answered.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>

#include "support/modelled_task.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>

namespace support {

class lease_model {
 public:
  explicit lease_model(const turnkey::options<int>& set) : lease_time_(set.lease_time), expiry_(set.lease_expiry) {}

  // ---- an attempt begins, and its callback ends

  void start(modelled_task& t, turnkey::time_point now) const {
    ++t.starts;
    t.started = now;
    t.said.reset();
    t.deferred = t.returned = t.overdue = t.told_to_stop = false;
    if (lease_time_) t.expires = now + *lease_time_;
  }
  // False: it was before, and defer() must throw.
  static bool defer(modelled_task& t) { return !std::exchange(t.deferred, true); }

  // 7.1: after defer() what is returned does not count, an exception does; the first to settle wins.
  // One that called stop(), or ran meanwhile, leaves its deferred attempt undone.
  void callback_returned(modelled_task& t, const turnkey::outcome& what, bool threw, bool stopped) {
    t.returned = true;
    if (t.said) return;
    if (!t.deferred || threw) return decide(t, what, threw ? failure_reason::threw : failure_reason::asked);
    if (t.overdue && expiry_ == turnkey::lease_expiry::release && !stopped) lose(t);
  }

  // ---- what a completion says: of the attempt of `t` that was its `start`th

  // What it must answer. After stop() what is deferred is inert, but a callback that is waited for has its say.
  bool settle(modelled_task& t, std::uint64_t start, const turnkey::outcome& what, failure_reason reason,
              bool stopped) {
    if (!is_open(t, start) || (stopped && t.returned)) {
      counts_.late_results += reason != failure_reason::abandoned;
      return false;
    }
    decide(t, what, reason);
    return true;
  }
  bool extend(modelled_task& t, std::uint64_t start, turnkey::duration d, turnkey::time_point now, bool stopped) const {
    if (!is_open(t, start) || stopped) return false;
    if (!lease_time_) return true;
    t.expires = d < turnkey::time_point::max() - now ? now + (std::max)(d, turnkey::duration::zero()) : never;
    t.overdue = false;
    return true;
  }
  [[nodiscard]] static bool should_stop(const modelled_task& t, std::uint64_t start, bool stopped) {
    return !is_open(t, start) || is_signalled(t, stopped);
  }
  [[nodiscard]] static bool is_signalled(const modelled_task& t, bool stopped) {
    return t.told_to_stop || t.cancelled || stopped;
  }

  // ---- 7.2: its time is over. Gives the rule that the event breaks; null when it may be told.

  const char* expire(modelled_task& t, const turnkey::event<int>& e, turnkey::time_point now) {
    if (!lease_time_ || t.expires > now || t.overdue) return "7.2: its time is not over";
    if (e.fence != t.fence || e.attempt != t.failed + 1) return "7.2, 9.4: another attempt than the one that runs";
    t.expires = never;
    t.overdue = t.told_to_stop = true;
    ++counts_.leases_expired;
    if (expiry_ == turnkey::lease_expiry::release && t.returned) lose(t);
    return nullptr;
  }

  void look(turnkey::stats& s) const {
    s.leases_expired = counts_.leases_expired;
    s.leases_lost = counts_.leases_lost;
    s.late_results = counts_.late_results;
  }

  static constexpr turnkey::time_point never = (turnkey::time_point::max)();

 private:
  [[nodiscard]] static bool is_open(const modelled_task& t, std::uint64_t start) {
    return t.state == task_state::running && t.starts == start && !t.said;
  }
  static void decide(modelled_task& t, const turnkey::outcome& what, failure_reason reason) {
    t.said = what;
    t.reason = reason;
  }
  void lose(modelled_task& t) {
    ++counts_.leases_lost;
    decide(t, turnkey::outcome::retry(), failure_reason::lease_lost);
  }

  const std::optional<turnkey::duration> lease_time_;
  const turnkey::lease_expiry expiry_;
  turnkey::stats counts_;
};

}  // namespace support
