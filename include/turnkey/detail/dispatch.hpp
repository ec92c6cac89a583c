// How tasks get to run: lines into the ready queue, permits to the executor, turns of lines by the workers that come
// with a permit, and the wakes that bring back what is due.
#pragma once

#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/leases.hpp>
#include <turnkey/detail/settle.hpp>
#include <turnkey/detail/visit.hpp>

#include <bit>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

// ---- who is inside

inline void engine::enter(visitor& me) noexcept {
  lock lock(gate_);
  permits_.enter(me);
}

// False once stop() has begun: the executor and the time source may be gone.
inline bool engine::enter_unless_stopped(visitor& me) noexcept {
  lock lock(gate_);
  if (stopping_) return false;
  permits_.enter(me);
  return true;
}

inline void engine::leave(visitor& me) noexcept {
  bool notify;
  {
    lock lock(gate_);
    permits_.leave(me);
    notify = stopping_;
  }
  if (notify) waiters_.notify();
}

inline bool engine::is_inside() const noexcept {
  lock lock(gate_);
  return permits_.mine([](const visitor&) { return true; }) != nullptr;
}

inline bool engine::in_callback() const noexcept {
  lock lock(gate_);
  return permits_.mine([](const visitor& v) { return v.in_callback; }) != nullptr;
}

// ---- lines and permits

// How many workers could start something now.
inline std::size_t engine::startable() const noexcept { return valve_.startable(ready_.size()); }

// A permit to hand to the executor, if one is worth it.
inline offered_permit* engine::next_offer() noexcept {
  if (!permits_.wanted() || settings_.runs_inline) return nullptr;
  if (permits_.none_spare() && startable() != 0) add_permit();
  offered_permit* const p = permits_.offer(startable());
  if (p != nullptr && permits_.scarce()) permits_scarce_.store(true, std::memory_order_relaxed);
  return p;
}

// More threads of the pool hold permits than any submit has foreseen. Without memory for another one, the next that
// comes back is used.
inline void engine::add_permit() noexcept {
  if (auto* const p = new (std::nothrow) offered_permit) permits_.add(made(*p));
}

// Lines that may start something take their places in the fair order.
inline void engine::push(key_slot* lines) noexcept {
  if (settings_.runs_inline) return push_and_serve(lines);
  visitor me;
  offered_permit* permit;
  time_point opens;  // the alarm must be set for the pace, whether anything waits yet or not
  {
    lock lock(gate_);
    ready_.push_all(lines);
    permit = next_offer();
    opens = valve_.shut_until();
    if (permit != nullptr) permits_.enter(me);  // stop() waits for the offer
  }
  if (opens != valve::never) [[unlikely]]
    alarm_at(opens);
  if (permit == nullptr) return;
  keep();  // an executor that runs inline may run a callback that destroys the scheduler
  offer(*permit);
  leave(me);
  drop();
}

// The same under an inline_executor, which needs no permit: this thread becomes the worker.
inline void engine::push_and_serve(key_slot* lines) noexcept {
  worker w;
  look_at_clock(w);
  bool seated;
  time_point opens;
  {
    lock lock(gate_);
    ready_.push_all(lines);
    seated = seat(w);
    opens = valve_.shut_until();
  }
  if (opens != valve::never) [[unlikely]]
    alarm_at(opens);
  if (!seated) return;
  keep();  // a callback may destroy the scheduler
  serve(w);
  drop();
}

// The same when a deferred task has given up its place among those that run.
inline void engine::push_with_place(key_slot* lines) noexcept {
  {
    lock lock(gate_);
    valve_.give_place();
  }
  push(lines);
}

// Hands a permit to the executor: the user's code, so no lock is held.
//   Needs    this thread is inside.
inline void engine::offer(offered_permit& p) noexcept {
  keep();  // until the permit is gone
  p.references.store(1, std::memory_order_relaxed);
  const work permit = work::adopt(static_cast<turnkey::detail::permit*>(&p));
  {
    lock lock(gate_);
    if (executor_ == nullptr || executor_doomed_) return;  // stop() inside waits for nobody
    ++offering_;
  }
  try {
    if (!executor_->offer(permit)) refused(p, nullptr);
  } catch (...) {
    refused(p, std::current_exception());
  }
  std::unique_ptr<erased_executor> last;
  lock lock(gate_);
  if (--offering_ == 0 && executor_doomed_) last = std::move(executor_);
  lock.unlock();
}

// Rule 8.3: nothing is lost; another permit is offered after a pause.
inline void engine::refused(offered_permit& p, std::exception_ptr error) noexcept {
  std::optional<time_point> again;
  const time_point now = now_or({});
  {
    lock lock(gate_);
    ++refusals_;
    if (permits_.failed(p, now)) again = permits_.offer_again();
  }
  if (again) alarm_at(*again);
  tell(event_kind::executor_refused, std::move(error));
  waiters_.notify();  // it may be stalled
}

// The last copy of a permit died. On the pool's thread, maybe under the pool's lock: nothing is offered here, and the
// observer is told when the alarm rings.
inline void engine::gone(permit& released) noexcept {
  auto& p = static_cast<offered_permit&>(released);
  engine& self = *p.owner;
  visitor me;
  bool lost;
  bool wanted;
  {
    lock lock(self.gate_);
    lost = p.out && !self.stopping_;
    wanted = self.permits_.none_spare() && self.startable() != 0 && self.permits_.out() == 0;
    if (lost || wanted) {
      self.permits_.enter(me);  // stop() waits: the time source is still there
    } else {
      self.permits_.take_back(p);
    }
  }
  if (lost || wanted) {
    const time_point now = self.time_->now();
    time_point again = now;
    {
      lock lock(self.gate_);
      if (lost) {
        self.permits_.failed(p, now);
        again = *self.permits_.offer_again();
        ++self.lost_;
        ++self.lost_untold_;
      }
      self.permits_.take_back(p);
    }
    self.alarm_at(again);
    self.leave(me);
    self.waiters_.notify();  // it may be stalled
  }
  self.drop();
}

// A thread of the pool has come with a permit.
inline void engine::begin(permit& begun) noexcept {
  auto& p = static_cast<offered_permit&>(begun);
  engine& self = *p.owner;
  worker w;
  self.look_at_clock(w);
  offered_permit* another;
  time_point opens;
  {
    lock lock(self.gate_);
    // A pool that helps while a callback waits: nothing runs on top of a callback, so the permit counts as lost, and
    // another is offered for the other threads.
    const visitor* const newest = self.permits_.mine([](const visitor&) { return true; });
    if (newest != nullptr && newest->in_callback && self.startable() != 0) return;
    self.permits_.begun(p);
    if (!self.seat(w)) return;
    another = self.next_offer();
    opens = self.valve_.shut_until();
  }
  if (opens != valve::never) self.alarm_at(opens);
  if (another != nullptr) self.offer(*another);
  self.serve(w);
}

// Gives a worker its first line; false when nothing is ready, or when there is a worker on this stack already, which
// goes on with it (rule 8.2).
inline bool engine::seat(worker& w) noexcept {
  if (startable() == 0 || permits_.mine([](const visitor& v) { return v.has_permit; }) != nullptr) return false;
  w.me.has_permit = true;
  permits_.enter(w.me);
  take_line(w);
  return true;
}

// The worker's next ticket, and the line that it is for, if it is not for one task.
inline void engine::take_line(worker& w) noexcept {
  valve_.take(w.ticket, w.now);
  w.line = w.ticket.pass == nullptr ? &ready_.take() : nullptr;
  w.used = false;
  w.left_behind = false;
}

// A pace is kept by the exact time.
inline void engine::look_at_clock(worker& w) noexcept {
  // Relaxed is enough: an old time lets fewer through, and then the alarm rings.
  w.now = paced_.load(std::memory_order_relaxed) ? now_or({}) : lately();
}

inline void engine::serve(worker& w) noexcept {
  w.began = w.now;
  do {
    turn(w);
  } while (go_on(w));
}

// After a turn: the next line, or the end of the permit.
inline bool engine::go_on(worker& w) noexcept {
  const bool spent = w.starts >= max_starts || w.now - w.began >= max_time;
  offered_permit* another = nullptr;
  bool over = false;
  bool notify = false;
  time_point opens;
  pass* done;
  if (paced_.load(std::memory_order_relaxed)) [[unlikely]]
    w.now = now_or(w.now);  // as in look_at_clock()
  {
    lock lock(gate_);
    done = w.left_behind ? valve::leave_behind(w.ticket) : valve_.give_back(w.ticket, w.used);
    ready_.push_all(std::exchange(w.lines, nullptr));
    over = startable() == 0;
    if (!over && spent) {
      // The pool's other users get their share: a successor takes over, if one is on its way.
      another = next_offer();
      over = another == nullptr && permits_.out() != 0;
    }
    if (over) {
      permits_.leave(w.me);
      notify = stopping_;
    } else if (another == nullptr) {
      take_line(w);
      another = next_offer();
      // Offered below, before the first callback of the turn: a callback that blocks holds nothing back.
    }
    opens = valve_.shut_until();
  }
  if (done != nullptr) [[unlikely]]
    delete done;
  if (opens != valve::never) [[unlikely]]
    alarm_at(opens);
  if (notify) waiters_.notify();
  if (over) return false;
  if (another == nullptr) return true;
  if (!spent) {
    offer(*another);
    return true;
  }
  return hand_over(w, *another);
}

// Offers the successor of a spent worker; goes on when it was refused, or came back on this stack.
inline bool engine::hand_over(worker& w, offered_permit& successor) noexcept {
  offer(successor);
  offered_permit* another = nullptr;
  time_point opens;
  bool goes_on;
  bool notify;
  {
    lock lock(gate_);
    goes_on = permits_.out() == 0 && startable() != 0;
    if (goes_on) {
      w.starts = 0;
      take_line(w);
      another = next_offer();
    } else {
      permits_.leave(w.me);
    }
    opens = valve_.shut_until();
    notify = stopping_;
  }
  if (opens != valve::never) [[unlikely]]
    alarm_at(opens);
  if (notify) waiters_.notify();
  if (another != nullptr) offer(*another);
  w.began = w.now;
  return goes_on;
}

// ---- a turn

// Makes the line's next task run, or the one that passes the pause, when it may; the only place where tasks start.
inline task* engine::start_next(visit& v, worker& w) noexcept {
  shard& s = v.here();
  if (s.stopped || w.ticket.epoch < s.epoch) return nullptr;  // stopped, or the ticket was revoked
  task* t;
  if (w.ticket.pass == nullptr) [[likely]] {
    t = w.line->next();
  } else {
    t = passing(s, w);
  }
  if (t == nullptr) return nullptr;
  std::uint64_t fence = 0;
  if (t->several) [[unlikely]] {
    fence = start_in_all(v, *t);
  } else {
    w.line->start(*t);
    if (t->policy != policy::parallel) fence = s.next_fence++;
  }
  std::construct_at(&t->run, run_state{fence, ++s.counts.started});
  t->progress = {};
  ++s.counts.running;
  ++w.starts;
  w.used = true;
  t->when = w.now;
  w.has_more = w.line->depth() > 1;
  if (t->error) v.drop_error(t->error);  // of an earlier life
  if (settings_.lease_time) v.watch_until(*t, later(w.now, *settings_.lease_time));
  v.say(event_kind::started, *t, {t->failed + 1, t->run.fence, w.now});
  return t;
}

// The task that the worker's ticket names, if only the pause of everything keeps it.
inline task* engine::passing(shard& s, worker& w) noexcept {
  task* const t = s.ids.find(w.ticket.pass->id);
  if (t == nullptr || key_slot::state_of(*t) != task_state::ready) return nullptr;
  w.line = t->slot;
  return t;
}

// The task of several keys that starts next in the worker's line, or passes the pause: that needs more locks. Else
// null.
inline const task* engine::several_to_start(shard& s, const worker& w) noexcept {
  if (w.line != nullptr) [[likely]]
    return w.line->granted_here();
  const task* const t = s.ids.find(w.ticket.pass->id);
  return t != nullptr && t->several ? t : nullptr;
}

// Runs up to turn_budget tasks of the worker's line; fewer when turn_time is used up and others wait. The clock is
// looked at after the 1st, 2nd, 4th ... task, and only while the line has more.
inline void engine::turn(worker& w) noexcept {
  shard& s = w.line != nullptr ? shard_of_hash(w.line->hash()) : shard_of_id(w.ticket.pass->id);
  const time_point began = w.now;
  task* t = begin_line(w, s);
  for (std::uint32_t started = 1; t != nullptr; ++started) {
    result done = run(w, *t);
    bool more = started < w.ticket.starts;
    if (more && w.has_more && std::has_single_bit(started)) {
      if (!done.clock_read) w.now = now_or(w.now);
      more = w.now - began < settings_.turn_time || !others_wait();
    }
    t = follow_line(w, s, *t, done, more);
  }
}

// The first task of a turn; null when none may start.
inline task* engine::begin_line(worker& w, shard& s) noexcept {
  {
    visit v(*this, s);
    if (several_to_start(s, w) == nullptr) [[likely]]
      return begin_line(v, w);
  }
  return begin_line_jointly(w, s);
}
[[gnu::always_inline]] inline task* engine::begin_line(visit& v, worker& w) noexcept {
  if (w.line != nullptr) w.line->queued = false;
  task* const t = start_next(v, w);
  if (w.line != nullptr) v.changed(*w.line);
  if (t == nullptr) v.leave_lines_in(w.lines);
  return t;
}
// The same when a task of several keys is next, which needs the locks of all of them.
[[gnu::cold]] inline task* engine::begin_line_jointly(worker& w, shard& s) noexcept {
  wide_visit v(*this, s);
  while (const task* const several = several_to_start(s, w)) {
    if (v.has(group_of(*several).shards)) break;
    v.widen(several->id, group_of(*several).shards);
  }
  return begin_line(*v, w);
}

// What has run is settled, and the line's next one starts if there may be more; null when none does.
inline task* engine::follow_line(worker& w, shard& s, task& t, result& done, bool more) noexcept {
  {
    visit v(*this, s);
    if (!w.line->has_parts()) [[likely]]
      return follow_line(v, w, t, done, more);
  }
  return follow_line_jointly(w, t, done, more);
}
[[gnu::cold]] inline task* engine::follow_line_jointly(worker& w, task& t, result& done, bool more) noexcept {
  joint all(*this);
  return follow_line(all.of(*w.line), w, t, done, more);
}
[[gnu::always_inline]] inline task* engine::follow_line(visit& v, worker& w, task& t, result& done,
                                                        bool more) noexcept {
  if (done.deferred) [[unlikely]] {
    w.left_behind = conclude(v, t, done, w.now);
    more = more && !w.left_behind;
  } else {
    settle(v, t, done.outcome, done.reason, w.now);
  }
  if (v.is_joint()) [[unlikely]]
    stir(v.all(), *w.line);  // what has ended may let a task of several keys go first
  task* const next = more ? start_next(v, w) : nullptr;
  v.changed(*w.line);
  if (next == nullptr) v.leave_lines_in(w.lines);
  return next;
}

// Calls a callback, without any lock. Its callable is destroyed at once when it will not be needed again.
inline engine::result engine::run(worker& w, task& t) noexcept {
  result done;
  attempt a(*this, t);
  w.me.in_callback = true;
  try {
    done.outcome = t.ops->invoke(callable_of(t), a);
  } catch (...) {
    done.outcome = outcome{outcome::kind::retry, {}, std::current_exception()};
    done.reason = failure_reason::threw;
  }
  done.deferred = a.deferred_;
  const bool succeeded = done.outcome.what() == outcome::kind::success && !done.deferred;
  if (succeeded) spend(t, task_state::succeeded);
  w.me.in_callback = false;
  done.clock_read = !succeeded || settings_.exact;
  if (done.clock_read) w.now = now_or(w.now);
  return done;
}

inline bool engine::others_wait() noexcept {
  lock lock(gate_);
  return !ready_.empty();
}

// Tells of what happened to no task.
inline void engine::tell(event_kind kind, std::exception_ptr error) noexcept {
  if (!settings_.observed) return;
  raw_event e;
  e.kind = kind;
  e.time = now_or({});
  if (error) e.error.emplace(failure_reason::threw, std::move(error));
  publish(e);
}

// ---- time

inline void engine::alarm_at(time_point time) noexcept {
  if (time != (time_point::max)()) alarm_.want(time, wake(*this));
}

// The time source calls: what is due comes back, shard by shard, and permits are offered again.
inline void engine::ring() noexcept {
  visitor me;
  if (!enter_unless_stopped(me)) return;
  alarm_.rung();
  const time_point now = time_->now();
  std::optional<time_point> next;
  const auto by = [&next](time_point time) {
    if (!next || time < *next) next = time;
  };
  for (std::uint32_t i = 0; i != shard_count; ++i) {
    const auto& s = shards_[i];
    for (bool more = true; more;) {
      wide_visit v(*this, *s);
      more = false;
      for (int n = 0; !s->timers.empty() && s->timers.first()->when <= now; ++n) {
        const bool several = !v.is_wide() && concerns_several(*s->timers.first());
        if (several && n == 0) v.widen(i);
        if (n == 64 || (several && n != 0)) {  // others want the lock too
          more = true;
          break;
        }
        if (s->timers.empty() || s->timers.first()->when > now) continue;  // it was widened
        task& t = *s->timers.first();
        wake_up(*v, t);
        v->changed(*t.slot);
      }
      if (more) continue;
      if (!s->timers.empty()) by(s->timers.first()->when);
    }
    if (!settings_.lease_time) continue;
    std::optional<time_point> expires;
    while (expire_next(*s, now, expires)) {  // after what is due: that goes first (rule 2.9)
    }
    if (expires) by(*expires);
  }
  offered_permit* permit;
  std::uint64_t lost;
  {
    lock lock(gate_);
    permits_.ring(now);
    valve_.ring(now);
    permit = next_offer();
    if (valve_.shut_until() != valve::never) by(valve_.shut_until());
    if (permits_.offer_again()) by(*permits_.offer_again());
    lost = std::exchange(lost_untold_, 0);
  }
  if (next) alarm_at(*next);
  for (; lost != 0; --lost) tell(event_kind::permit_lost, nullptr);
  if (permit != nullptr) offer(*permit);
  if (settings_.runs_inline) push_and_serve(nullptr);
  leave(me);
}

}  // namespace turnkey::inline v1::detail
