// Leases that outlive the callback (rule 7): what a completion says, from whatever thread and at whatever time, and
// what happens when the time of a lease runs out.
//
// A completion names its attempt by the task's id and the attempt's serial number, which is used once in a shard: one
// that comes too late finds nothing, whatever has become of the task meanwhile.
#pragma once

#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/settle.hpp>
#include <turnkey/detail/several.hpp>
#include <turnkey/detail/visit.hpp>

#include <cstdint>
#include <optional>
#include <stop_token>
#include <utility>

namespace turnkey::inline v1::detail {

// The task whose attempt that is, while it runs and nothing is settled; else null.
inline task* engine::attempt_in(shard& s, task_id id, std::uint64_t serial) noexcept {
  task* const t = s.ids.find(static_cast<std::uint64_t>(id));
  if (t == nullptr || t->place != place::running || t->progress.settled || t->run.serial != serial) return nullptr;
  return t;
}

// Its stop token; it may take `fresh` for it.
inline std::stop_token engine::token_of(task& t, std::stop_source& fresh) noexcept {
  if (!t.run.stop.stop_possible()) {
    if (t.signalled) fresh.request_stop();
    t.run.stop.swap(fresh);
  }
  return t.run.stop.get_token();
}

// The callback of a deferred attempt has returned, or has thrown; true when its completion is still to come.
inline bool engine::conclude(visit& v, task& t, result& done, time_point now) noexcept {
  const bool threw = done.reason == failure_reason::threw;
  if (t.progress.settled) {  // the first one counts
    std::swap(done.unheard, done.outcome.why_);
    std::swap(done.outcome.why_, t.error);
    done.outcome.kind_ = static_cast<outcome::kind>(t.progress.said);
    done.outcome.delay_ = duration{static_cast<duration::rep>(t.run.serial)};
    settle(v, t, done.outcome, t.reason, now);
    return false;
  }
  if (threw) {
    settle(v, t, done.outcome, done.reason, now);
    return false;
  }
  if (v.here().emptied) {  // stop() has left it to its worker: undone, and nothing failed
    settle(v, t, outcome{outcome::kind::postpone}, failure_reason::asked, now);
    return false;
  }
  t.progress.returned = true;
  if (!t.progress.overdue || settings_.lease_expiry == lease_expiry::report) return true;
  lose(v, t, now);
  return false;
}

// What a completion says; false when it is not the first, or the lease is lost. While the callback runs this is only
// noted, also when stop() has begun: it waits for the callback.
inline bool engine::complete(task_id id, std::uint64_t serial, const outcome& said, failure_reason reason) noexcept {
  const inside_scope inside(*this);
  const time_point now = inside ? time_->now() : time_point{};
  key_slot* lines = nullptr;
  {
    const auto number = static_cast<std::uint64_t>(id);
    shard& s = shard_of_id(number);
    wide_visit v(*this, s);
    task* t = attempt_in(s, id, serial);
    if (t != nullptr && concerns_several(*t)) {
      v.widen(number);
      t = attempt_in(s, id, serial);
    }
    if (t == nullptr || (t->progress.returned && !inside)) {
      if (reason != failure_reason::abandoned) ++s.counts.late_results;
      return false;
    }
    if (!t->progress.returned) {  // the worker will settle it
      t->progress.settled = true;
      t->progress.said = static_cast<std::uint8_t>(said.what()) & 7U;
      t->run.serial = static_cast<std::uint64_t>(said.delay().count());
      t->error = said.why();
      t->reason = reason;
      return true;
    }
    key_slot& slot = *t->slot;
    settle(*v, *t, said, reason, now);
    v->changed(slot);
    v->leave_lines_in(lines);
  }
  push_with_place(lines);
  return true;
}

// The lease of a deferred attempt is taken away: the attempt has failed.
inline void engine::lose(visit& v, task& t, time_point now) noexcept {
  ++v.here().counts.leases_lost;
  settle(v, t, outcome{outcome::kind::retry}, failure_reason::lease_lost, now);
}

// The next lease of a shard whose time has run out; false when there is none: then `next` is when the first one will.
inline bool engine::expire_next(shard& s, time_point now, std::optional<time_point>& next) noexcept {
  key_slot* lines = nullptr;
  {
    wide_visit v(*this, s);
    task* t = s.leases.first();
    if (t != nullptr && extra_of(*t).expires <= now && concerns_several(*t)) {
      v.widen(t->id);
      t = s.leases.first();
    }
    if (t == nullptr) return false;
    if (extra_of(*t).expires > now) {
      next = extra_of(*t).expires;
      return false;
    }
    s.leases.remove(*t);
    t->progress.watched = false;
    t->progress.overdue = true;
    ++s.counts.leases_expired;
    if (!t->signalled) v->signal(t->run.stop);
    t->signalled = true;
    v->say(event_kind::lease_expired, *t, {t->failed + 1, t->run.fence, now});
    if (!t->progress.returned || settings_.lease_expiry == lease_expiry::report) return true;
    key_slot& slot = *t->slot;
    lose(*v, *t, now);
    v->changed(slot);
    v->leave_lines_in(lines);
  }
  push_with_place(lines);
  return true;
}

// The lease ends `d` from now; false when the attempt is over. Without a lease_time no lease ends.
inline bool engine::extend_lease(task_id id, std::uint64_t serial, duration d) noexcept {
  const inside_scope inside(*this);
  if (!inside) return false;
  const time_point now = time_->now();
  visit v(*this, shard_of_id(static_cast<std::uint64_t>(id)));
  task* const t = attempt_in(v.here(), id, serial);
  if (t == nullptr) return false;
  if (!settings_.lease_time) return true;
  t->progress.overdue = false;
  v.watch_until(*t, later(now, d > duration::zero() ? d : duration::zero()));
  return true;
}

}  // namespace turnkey::inline v1::detail
