// What can be changed while it runs: the pause of everything and the steps that pass it, the limit of running tasks,
// the pace; and what is asked about a task that these keep back.
#pragma once

#include <turnkey/detail/dispatch.hpp>
#include <turnkey/detail/ending.hpp>
#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/settle.hpp>
#include <turnkey/detail/visit.hpp>

#include <memory>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

// ---- stricter: no ticket of an earlier epoch starts anything when this has returned (rule 2.11)

inline void engine::revoke(std::uint64_t epoch) noexcept {
  for (auto& s : shards_) {
    lock lock(s->mutex);
    if (s->epoch < epoch) s->epoch = epoch;
  }
}

// ---- looser: what may start now starts

inline void engine::reopen() noexcept { push(nullptr); }

// ---- the pause of everything

inline bool engine::pause() noexcept {
  bool changed;
  std::uint64_t epoch;
  {
    lock lock(gate_);
    if (stopping_) return false;
    changed = !valve_.paused();
    epoch = valve_.pause();
  }
  revoke(epoch);
  return changed;
}

inline bool engine::resume() noexcept {
  const inside_scope inside(*this);
  if (!inside) return false;
  pass* dropped;
  bool changed;
  {
    lock lock(gate_);
    changed = valve_.paused();
    dropped = valve_.resume();
  }
  while (dropped != nullptr) delete std::exchange(dropped, dropped->next);
  if (changed) reopen();
  return changed;
}

inline bool engine::paused() noexcept {
  lock lock(gate_);
  return valve_.paused();
}

inline bool engine::step(std::uint64_t n) noexcept {
  const inside_scope inside(*this);
  if (!inside) return false;
  {
    lock lock(gate_);
    if (!valve_.paused()) return false;
    valve_.step(n);
  }
  reopen();
  return true;
}

// Lets one task pass that only the pause, a limit or the pace keeps back.
inline bool engine::step(task_id id) {
  const inside_scope inside(*this);
  if (!inside) return false;
  const auto number = static_cast<std::uint64_t>(id);
  auto fresh = std::make_unique<pass>(pass{.id = number});
  shard& s = shard_of_id(number);
  {
    lock lock(s.mutex);
    task* const t = s.ids.find(number);
    if (t == nullptr || key_slot::state_of(*t) != task_state::ready) return false;
  }
  {
    lock lock(gate_);
    if (!valve_.paused()) return false;
    if (!valve_.has_pass(number)) valve_.step(*fresh.release());  // once, however often it is asked for
  }
  reopen();
  return true;
}

// ---- limit and pace

inline void engine::set_max_in_flight(std::optional<std::size_t> limit) noexcept {
  const inside_scope inside(*this);
  std::uint64_t epoch;
  {
    lock lock(gate_);
    epoch = valve_.set_max_in_flight(limit);
  }
  revoke(epoch);
  if (inside) reopen();
}

//   Throws   std::system_error when the time source finds no thread; nothing has changed then.
inline void engine::set_pace(const std::optional<pace>& p) {
  const inside_scope inside(*this);
  if (!inside) return;
  if (p) prepare(true);
  std::uint64_t epoch;
  {
    lock lock(gate_);
    epoch = valve_.set_pace(p);
    paced_.store(p.has_value(), std::memory_order_relaxed);
  }
  revoke(epoch);
  reopen();
}

// ---- one task, one key

inline bool engine::expedite(task_id id) noexcept {
  const inside_scope inside(*this);
  if (!inside) return false;
  const time_point now = time_->now();
  return with_task(id, [&](visit& v, task& t, time_point) {
    if (t.place != place::resting) return false;
    t.when = now;  // a heap lets go of a task whatever its time is
    wake_up(v, t);
    v.changed(*t.slot);
    return true;
  });
}

inline bool engine::resume(visit& v, key_slot& slot) noexcept {
  if (!slot.resume()) return false;
  --v.here().counts.paused_keys;
  v.changed(slot);
  return true;
}

// ---- why

// What over all keys keeps a task that its key would let start.
inline why engine::why_not_started() noexcept {
  const inside_scope inside(*this);
  const time_point now = inside ? time_->now() : (time_point::min)();
  lock lock(gate_);
  if (valve_.paused()) return {.kind = why::reason::paused};
  if (valve_.full()) return {.kind = why::reason::max_in_flight, .number = *valve_.max_in_flight()};
  if (valve_.shut_until() != valve::never && valve_.shut_until() > now)
    return {.kind = why::reason::pace, .time = valve_.shut_until()};
  return {.kind = permits_.anybody_works() ? why::reason::turn : why::reason::executor};
}

}  // namespace turnkey::inline v1::detail
