// What find() must say, by the reference model: rule 9.2, sentence by sentence.
#pragma once

#include <turnkey/inspect.hpp>

#include "support/model.hpp"

#include <cstdint>
#include <optional>
#include <sstream>
#include <string>

namespace support {

// The first reason that holds of one key, `k`; `turn` when none does.
inline turnkey::why expected_why_of(const key& k, const model& m, const modelled_task& t, turnkey::time_point now) {
  using reason = turnkey::why::reason;
  const auto first_of_key = [&](auto which) {
    const modelled_task* first = nullptr;
    for (const auto& other : m.tasks())
      if (other.names(k) && which(other) && (first == nullptr || other.id < first->id)) first = &other;
    return first;
  };
  if (k) {
    const auto* const holder = first_of_key([&](const auto& other) { return other.holds.count(*k) != 0; });
    if (holder != nullptr && holder->id < t.id)
      return {.kind = reason::key_held, .task = holder->id, .state = m.state_of(*holder, now)};
    if (m.control.paused(*k)) return {.kind = reason::key_paused};
  }
  if (!model::in_line(t, now)) return {.kind = reason::not_due, .time = t.due};
  if (k && t.policy == policy::ordered) {
    const auto* const first = first_of_key([](const auto& other) { return model::unfinished(other); });
    if (first->id < t.id) return {.kind = reason::predecessor, .task = first->id, .state = m.state_of(*first, now)};
  }
  if (k && t.policy != policy::parallel) {
    const auto* const lessee = first_of_key(
        [](const auto& other) { return other.state == task_state::running && other.policy != policy::parallel; });
    if (lessee != nullptr)
      return {.kind = reason::lease,
              .task = lessee->id,
              .state = task_state::running,
              .attempt = lessee->failed + 1,
              .time = lessee->started};
    const auto* const reserver = m.first_to_reserve(k, t, now);
    if (reserver != nullptr) return {.kind = reason::reserved, .task = reserver->id};
  }
  return {.kind = reason::turn};
}

// The first reason that holds. `works` says whether a thread of the executor is at work for the scheduler.
inline turnkey::why expected_why(const model& m, const modelled_task& t, turnkey::time_point now, bool works) {
  using reason = turnkey::why::reason;
  if (t.state == task_state::running) return {.kind = reason::running};
  std::optional<turnkey::why> first;
  for (const auto& k : t.keys())
    if (const turnkey::why one = expected_why_of(k, m, t, now); !first || one.kind < first->kind) first = one;
  if (first->kind != reason::turn) return *first;
  if (m.control.paused()) return {.kind = reason::paused};
  if (m.control.max_in_flight() && m.count_running() >= *m.control.max_in_flight())
    return {.kind = reason::max_in_flight, .number = *m.control.max_in_flight()};
  if (m.control.opens() > now) return {.kind = reason::pace, .time = m.control.opens()};
  return {.kind = works ? reason::turn : reason::executor};
}

// How what find() gave differs from what the model says; empty: not at all.
inline std::string compare(const std::optional<turnkey::task_info<int>>& got, const model& m, const modelled_task& t,
                           turnkey::time_point now, bool works) {
  std::ostringstream out;
  if (!model::unfinished(t)) {
    if (got) out << "9.2: find() knows finished task " << static_cast<std::uint64_t>(t.id);
    return out.str();
  }
  const auto differ = [&](bool same, const char* what) -> std::ostringstream& {
    if (!same)
      out << (out.tellp() == 0 ? "9.2: find() of task " + std::to_string(static_cast<std::uint64_t>(t.id)) : "") << "; "
          << what;
    return out;
  };
  if (!got) return differ(false, "gives nothing").str();
  const task_state state = m.state_of(t, now);
  const turnkey::why why = expected_why(m, t, now, works);
  differ(got->id == t.id && got->key == t.key && got->policy == t.policy && got->submitted == t.submitted,
         "id, key, policy or submitted");
  if (got->state != state) differ(false, "state ") << to_string(got->state) << ", not " << to_string(state);
  differ(got->attempts == t.failed + t.postponed + (state == task_state::running), "attempts");
  differ(got->due == (state == task_state::delayed ? std::optional(t.due) : std::nullopt), "due");
  differ(state != task_state::running || got->since == t.started, "since");
  const turnkey::why& said = got->why;
  if (said.kind != why.kind || said.task != why.task || said.state != why.state || said.attempt != why.attempt ||
      said.time != why.time || said.number != why.number)
    differ(false, "why: ") << to_string(said, now) << "; the model says: " << to_string(why, now);
  return out.str();
}

}  // namespace support
