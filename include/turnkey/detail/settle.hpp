// What becomes of a task after an attempt: gone, resting until a time, or dead; and what can be done to it from
// outside: cancel, redrive, discard, release.
#pragma once

#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/several.hpp>
#include <turnkey/detail/visit.hpp>

#include <exception>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

// ---- the end of an attempt

// Chapter 3: what `said` means for `t`, which is running. The caller calls v.changed() for its key.
inline void engine::settle(visit& v, task& t, const outcome& said, failure_reason reason, time_point now) noexcept {
  shard& s = v.here();
  --s.counts.running;
  const auto kind = said.what();
  const moment end{t.failed + 1, v.end_attempt(t), now};
  if (kind == outcome::kind::success) {
    ++s.counts.succeeded;
    finish(v, t, event_kind::succeeded, end);
    return;
  }
  if (kind != outcome::kind::postpone && kind != anew_kind) {
    ++s.counts.failed_attempts;
    ++t.failed;
  }
  if (t.cancelled || s.emptied) {
    ++(t.cancelled ? s.counts.cancelled : s.counts.undone);
    finish(v, t, t.cancelled ? event_kind::cancelled : event_kind::undone, end);
    return;
  }
  t.signalled = false;  // what a lease that expired has said is over
  if (kind == anew_kind) {
    if (said.delay() > duration::zero()) {
      rest(v, t, later(now, said.delay()));
    } else {
      t.slot->come_back_behind(t, s.ids.skip());
    }
    return;
  }
  const retry_policy retry = retry_of(t);
  if (kind == outcome::kind::postpone) {
    const bool too_often = retry.max_postpones && t.postponed >= *retry.max_postpones;
    count_up(t.postponed);
    if (too_often) {
      die(v, t, nullptr, failure_reason::postponed_out, end);
      return;
    }
    ++s.counts.postponed;
    const time_point due = later(now, said.delay());
    if (said.delay() > duration::zero()) {
      rest(v, t, due);
    } else if (t.several) {
      come_back_behind_in_all(v, t);
    } else {
      t.slot->come_back_behind(t, s.ids.skip());
    }
    v.say(event_kind::postponed, t, end, due);
    return;
  }
  if (kind == outcome::kind::dead || t.failed >= retry.max_attempts) {
    die(v, t, said.why(), reason, end);
    return;
  }
  const duration delay =
      kind == outcome::kind::retry_after ? said.delay() : backoff(retry, t.failed, s.random_fraction());
  const time_point due = later(now, delay > duration::zero() ? delay : duration::zero());
  rest(v, t, due);
  if (due <= now) wake_up(v, t);
  v.say_failure(event_kind::failed, t, end, due, reason, said.why());
}

// From now on the attempt that runs is the one after so many failed and postponed ones: the task goes on with something
// else.
inline void engine::recount(attempt& a, std::uint32_t failed, std::uint32_t postponed) noexcept {
  lock lock(a.engine_.shard_of_id(a.task_.id).mutex);
  a.task_.failed = failed;
  a.task_.postponed = postponed;
}

// A running task gives up its lease and its worker until `due`.
inline void engine::rest(visit& v, task& t, time_point due) noexcept {
  if (t.several) {
    rest_in_all(v, t);
  } else {
    t.slot->rest(t);
  }
  v.rest_until(t, due);
}

// A resting task comes back to its line.
inline void engine::wake_up(visit& v, task& t) noexcept {
  shard& s = v.here();
  s.timers.remove(t);
  --s.counts.delayed;
  if (t.several) {
    come_back_in_all(v, t);
  } else {
    t.slot->come_back(t);
  }
}

// An unfinished task ends, and holds no longer.
inline void engine::finish(visit& v, task& t, event_kind kind, const moment& end) noexcept {
  key_slot& slot = *t.slot;
  if (t.several) [[unlikely]] {
    finish_in_all(v, t);
  } else {
    slot.finish(t);
    slot.unhold(t);
  }
  v.finished_one();
  t.when = end.time;
  if (!t.spent || settings_.observed || t.several) {
    v.depart(t, kind, end.attempt, end.fence);
  } else {
    v.vanish(t);
  }
}

// The same in the lines of one of several keys. Its parts let go of their keys later, in dissolve().
inline void engine::finish_in_all(visit& v, task& t) noexcept {
  quit_all(v, t);
  group_of(t).each([](task& part) { part.slot->unhold(part); });
  others_changed(v, t);
}

// The last attempt failed: the task goes to its shard's store.
inline void engine::die(visit& v, task& t, std::exception_ptr why, failure_reason reason, const moment& end) noexcept {
  shard& s = v.here();
  key_slot& slot = *t.slot;
  if (t.several) {
    quit_all(v, t);
  } else {
    slot.finish(t);
  }
  if (settings_.dead_action == dead_action::hold_key && t.policy != policy::parallel)
    each_part(t, [](task& part) { part.slot->hold(part); });
  v.finished_one();
  t.place = place::dead;
  t.when = end.time;
  t.error = std::move(why);
  t.reason = reason;
  // Relaxed is enough: it only numbers, and the shard's lock publishes the task.
  t.last = {deaths_.fetch_add(1, std::memory_order_relaxed), end.fence, end.attempt, event_kind::dead};
  s.dead.push_back(t);
  each_part(t, [](task& part) { ++part.slot->dead; });
  ++s.counts.died;
  ++s.counts.dead;
  if (dead_.fetch_add(1, std::memory_order_relaxed) >= settings_.max_dead) v.evict_later();
  if (t.several) others_changed(v, t);
  v.say_failure(event_kind::dead, t, end, {}, reason, t.error);
  if (t.ops->fate != nullptr) [[unlikely]]
    v.tell_of_death(t);
}

// ---- the store of the dead

inline void engine::leave_store(visit& v, task& t) noexcept {
  shard& s = v.here();
  s.dead.remove(t);
  --s.counts.dead;
  each_part(t, [](task& part) { --part.slot->dead; });
  dead_.fetch_sub(1, std::memory_order_relaxed);
}

// The oldest dead tasks of all shards leave until no more than max_dead are left (rule 5.1).
inline void engine::evict() noexcept {
  while (dead_.load(std::memory_order_relaxed) > settings_.max_dead) {
    shard* oldest = nullptr;
    std::uint64_t death = 0;
    for (auto& s : shards_) {
      lock lock(s->mutex);
      if (s->dead.empty() || (oldest != nullptr && s->dead.first()->last.number > death)) continue;
      oldest = s.get();
      death = s->dead.first()->last.number;
    }
    if (oldest == nullptr) return;
    wide_visit v(*this, *oldest);
    if (any_several()) v.widen(oldest->dead.empty() ? 0 : oldest->dead.first()->id);
    if (oldest->dead.empty() || oldest->dead.first()->last.number != death) continue;
    task& t = *oldest->dead.first();
    leave_store(*v, t);
    ++oldest->counts.dead_evicted;
    each_part(t, [](task& part) { part.slot->keep_hold_of(part); });
    v->depart(t, event_kind::evicted, t.failed, t.last.fence);
    v->changed(*t.slot);
    if (t.several) others_changed(*v, t);
  }
}

// What an observer hears of a task that leaves.
inline void engine::say_goodbye(task& t) noexcept {
  if (!settings_.observed || t.last.kind == event_kind::dead) return;
  raw_event e;
  e.kind = t.last.kind;
  e.slot = t.slot;
  e.number = t.last.number;
  e.id = task_id{t.id};
  e.policy = t.policy;
  e.attempt = t.last.attempt;
  e.fence = t.last.fence;
  e.time = t.when;
  if (e.kind == event_kind::evicted) {
    e.error.emplace(t.reason, t.error);
    publish_evicted(e, t);
  } else {
    publish(e);
  }
}

// A dead task goes back to its line.
inline void engine::revive(visit& v, task& t) noexcept {
  shard& s = v.here();
  leave_store(v, t);
  ++s.unfinished;
  ++s.counts.redriven;
  if (settings_.max_pending) pending_.fetch_add(1, std::memory_order_relaxed);
  t.failed = 0;
  t.postponed = 0;
  t.cancelled = false;
  t.signalled = false;
  s.ids.back(t);
  if (t.several) {
    group_of(t).each([](task& part) { part.slot->rejoin(part); });
    group_of(t).each([&](task& part) { stir(v.all(), *part.slot); });  // an ordered one that reserved is not first now
    t.retried = false;
    come_back_in_all(v, t);
  } else {
    t.slot->revive(t);
  }
  v.changed(*t.slot);
}

// ---- from outside: one task

inline bool engine::cancel(task_id id) noexcept {
  return with_task(id, [this](visit& v, task& t, time_point now) { return cancel_in(v, t, now); });
}

inline bool engine::redrive(task_id id) noexcept {
  return with_task(id, [this](visit& v, task& t, time_point now) {
    if (t.place != place::dead) return false;
    revive(v, t);
    v.say(event_kind::redriven, t, {0, 0, now});
    return true;
  });
}

inline bool engine::discard(task_id id) noexcept {
  return with_task(id, [this](visit& v, task& t, time_point now) {
    if (t.place != place::dead) return false;
    discard_in(v, t, now);
    return true;
  });
}

// Looks the task up and does something to it under its shard's lock; false when it is gone or the scheduler stopped.
template <class Do>
bool engine::with_task(task_id id, Do action) noexcept {
  inside_scope inside(*this);
  if (!inside) return false;
  const time_point now = settings_.observed ? time_->now() : time_point{};
  const auto number = static_cast<std::uint64_t>(id);
  shard& s = shard_of_id(number);
  wide_visit v(*this, s);
  task* t = s.ids.find(number);
  if (t != nullptr && concerns_several(*t)) [[unlikely]] {
    v.widen(number);
    t = s.ids.find(number);
  }
  return t != nullptr && action(*v, *t, now);
}

// Rule 6.5; true when the task was unfinished. The running ones are signalled when the lock is gone.
inline bool engine::cancel_in(visit& v, task& t, time_point now) noexcept {
  shard& s = v.here();
  switch (t.place) {
    case place::running:
      t.cancelled = true;
      if (!t.signalled) v.signal(t.run.stop);
      t.signalled = true;
      return true;
    case place::resting:
      s.timers.remove(t);
      --s.counts.delayed;
      break;
    case place::in_line:
    case place::in_lines: break;
    default: return false;
  }
  ++s.counts.cancelled;
  finish(v, t, event_kind::cancelled, {t.failed, 0, now});
  v.changed(*t.slot);
  return true;
}

inline void engine::discard_in(visit& v, task& t, time_point now) noexcept {
  leave_store(v, t);
  t.when = now;
  each_part(t, [](task& part) { part.slot->unhold(part); });
  v.depart(t, event_kind::discarded, t.failed, t.last.fence);
  v.changed(*t.slot);
  if (t.several) others_changed(v, t);
}

// ---- from outside: many tasks

// Tells the running tasks of a shard for which `which` says yes that they should stop.
template <class Which>
void engine::signal_running(shard& s, Which which) noexcept {
  for (bool more = true; more;) {
    visit v(*this, s);
    more = false;
    s.ids.for_each([&](task& t) {
      if (more || t.place != place::running || t.signalled || !which(t)) return;
      t.signalled = true;
      more = true;
      v.signal(t.run.stop);
    });
  }
}

// Cancels the unfinished tasks of a shard that `each` names; `each(s, f)` calls f for every candidate.
//   Cost     all under one lock: about a tenth of a microsecond each.
template <class Each>
std::size_t engine::cancel_each(shard& s, Each each) {
  inside_scope inside(*this);
  if (!inside) return 0;
  const time_point now = settings_.observed ? time_->now() : time_point{};
  std::size_t cancelled = 0;
  bool several;
  {
    wide_visit v(*this, s);
    several = any_several();
    if (several) v.widen(0);
    each(s, [&](task& part) {
      task& t = whole(part);
      if (t.place == place::running) {
        t.cancelled = true;
        ++cancelled;
      } else if (cancel_in(several ? v.all().of(t.id) : *v, t, now)) {
        ++cancelled;
      }
    });
  }
  const auto is_cancelled = [](const task& t) { return t.cancelled; };
  if (several) {  // the first key of a task may be in any shard
    for (auto& any : shards_) signal_running(*any, is_cancelled);
  } else {
    signal_running(s, is_cancelled);
  }
  return cancelled;
}

// Cancels the tasks of a key that do not run and for which `which` says yes, and tells those that run to stop. `find`
// gives the slot of the key in its shard, under the lock; null: none.
template <class Find, class Which>
void engine::cancel_some(shard& s, Find find, Which which) {
  cancel_each(s, [&](shard& here, auto cancel) {
    key_slot* const slot = find(here);
    for (task* t = slot != nullptr ? slot->first_task() : nullptr; t != nullptr;) {
      task* const next = key_slot::task_after(*t);
      if (t->place != place::running && which(*t)) cancel(*t);
      t = next;
    }
  });
  for (bool more = true; more;) {
    visit v(*this, s);
    more = false;
    key_slot* const slot = find(s);
    for (task* t = slot != nullptr ? slot->first_task() : nullptr; t != nullptr && !more;
         t = key_slot::task_after(*t)) {
      if (t->place != place::running || t->signalled) continue;
      t->signalled = more = true;
      v.signal(t->run.stop);
    }
  }
}

// Does something to the dead tasks of a shard for which `which` says yes, one visit each, in id order (rule 5.2).
template <class Which, class Do>
std::size_t engine::each_dead(shard& s, Which which, Do action) {
  std::size_t done = 0;
  std::uint64_t last = 0;
  bool first = true;
  while (true) {
    // The smallest ids that come next, sorted by insertion.
    std::array<std::uint64_t, 64> ids;
    std::size_t count = 0;
    {
      lock lock(s.mutex);
      for (const task* t = s.dead.first(); t != nullptr; t = s.dead.after(*t)) {
        if ((!first && t->id <= last) || !which(*t)) continue;
        if (count == ids.size() && t->id > ids[count - 1]) continue;
        std::size_t at = count < ids.size() ? count++ : count - 1;
        for (; at != 0 && ids[at - 1] > t->id; --at) ids[at] = ids[at - 1];
        ids[at] = t->id;
      }
    }
    if (count == 0) return done;
    for (std::size_t i = 0; i != count; ++i) done += action(task_id{ids[i]});
    last = ids[count - 1];
    first = false;
  }
}

inline std::size_t engine::release_all() noexcept {
  std::size_t released = 0;
  each_shard_jointly_if_needed([&](visit& v) {
    v.here().slots.for_each([&](key_slot& slot) {
      if (!slot.release()) return;
      ++released;
      v.changed(slot);
    });
  });
  return released;
}

// Visits one shard after the other, with all locks while there are tasks of several keys.
template <class Do>
void engine::each_shard_jointly_if_needed(Do action) noexcept {
  for (std::uint32_t i = 0; i != shard_count; ++i) {
    wide_visit v(*this, shard_number(i));
    if (any_several()) v.widen(i);
    action(*v);
  }
}

// ---- lines that must come out of the ready queue because nothing needs their key any more

// One of them; if it is not there any more, whoever has it lets it go.
inline void engine::forget(key_slot& slot) noexcept {
  bool taken;
  {
    lock lock(gate_);
    taken = slot.in_ready_queue;
    if (taken) ready_.remove(slot);
  }
  visit v(*this, shard_of_hash(slot.hash()));
  if (taken) slot.queued = false;
  --slot.references;
  v.changed(slot);
}

// All lines of a shard come out; those that may start something go back in.
inline void engine::sweep(shard& s) noexcept {
  key_slot* taken = nullptr;
  {
    lock lock(gate_);
    for (key_slot* line = ready_.first(); line != nullptr;) {
      key_slot* const next = line->ready_next;
      if (&shard_of_hash(line->hash()) == &s) {
        ready_.remove(*line);
        line->ready_next = taken;
        taken = line;
      }
      line = next;
    }
  }
  visit v(*this, s);
  while (taken != nullptr) {
    key_slot& slot = *std::exchange(taken, taken->ready_next);
    slot.queued = false;
    v.changed(slot);
  }
}

}  // namespace turnkey::inline v1::detail
