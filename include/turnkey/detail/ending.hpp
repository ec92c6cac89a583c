// The beginning and the end of an engine, the waits of rule 10, and what it tells of itself.
#pragma once

#include <turnkey/detail/dispatch.hpp>
#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/visit.hpp>

#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>

namespace turnkey::inline v1::detail {

// ---- the beginning

#ifndef TURNKEY_FIRST_SERIAL
#define TURNKEY_FIRST_SERIAL 1  // a test build starts near the end
#endif

inline engine::engine(const engine_settings& settings, std::unique_ptr<erased_executor> executor)
    : wakeable{[](wakeable& self) noexcept { static_cast<engine&>(self).keep(); },
               [](wakeable& self) noexcept { static_cast<engine&>(self).drop(); },
               [](wakeable& self) noexcept { static_cast<engine&>(self).ring(); }},
      settings_(settings),
      executor_(std::move(executor)),
      own_time_(settings.time == nullptr ? std::make_unique<steady_time_source>() : nullptr),
      time_(settings.time != nullptr ? settings.time : own_time_.get()),
      valve_(settings.max_in_flight, settings.turn_budget),
      alarm_(*time_) {
  for (std::uint32_t i = 0; i != shard_count; ++i)
    shards_[i] = std::make_unique<shard>(i, shard_bits, TURNKEY_FIRST_SERIAL, settings.first_fence,
                                         settings.seed + i * 0x9e3779b97f4a7c15U, settings.slot_size);
  lock lock(gate_);
  for (int i = 0; i != 16; ++i) permits_.add(made(*new offered_permit));
}

inline engine::~engine() = default;

inline offered_permit& engine::made(offered_permit& p) noexcept {
  p.begin = &engine::begin;
  p.gone = &engine::gone;
  p.owner = this;
  return p;
}

// Before a task is accepted: what may be needed for it later, and could fail then, is got now.
//   Throws   std::bad_alloc, std::system_error
inline void engine::prepare(bool may_rest) {
  // Relaxed is enough: it is a hint, looked at again under the lock; a submit that misses it leaves it to the next.
  if (permits_scarce_.load(std::memory_order_relaxed)) {
    offered_permit& p = made(*new offered_permit);
    lock lock(gate_);
    permits_.add(p);
    permits_scarce_.store(permits_.scarce(), std::memory_order_relaxed);
  }
  // Acquire pairs with the release below: whoever sees true sees a started time source.
  if (!may_rest || own_time_ == nullptr || timing_.load(std::memory_order_acquire)) return;
  own_time_->start();
  timing_.store(true, std::memory_order_release);
}

// Takes a place among the unfinished tasks, where max_pending counts them; false when there is none.
inline bool engine::reserve_pending() noexcept {
  // Relaxed is enough: the number guards nothing but itself.
  std::size_t pending = pending_.load(std::memory_order_relaxed);
  while (pending < *settings_.max_pending)
    if (pending_.compare_exchange_weak(pending, pending + 1, std::memory_order_relaxed)) return true;
  return false;
}
inline void engine::unreserve_pending() noexcept { pending_.fetch_sub(1, std::memory_order_relaxed); }

// The same for a submit that failed after it had a place: somebody may have been told `full` meanwhile.
inline void engine::give_back_pending() noexcept {
  unreserve_pending();
  waiters_.notify();
}

inline void engine::count_rejected() noexcept {
  shard& s = shard_number(0);
  lock lock(s.mutex);
  ++s.counts.rejected;
}

// Puts a new task into its line; the last step of a submit, and one that cannot fail.
inline void engine::accept(visit& v, task& t, key_slot& slot, time_point now, duration delay) noexcept {
  shard& s = v.here();
  s.ids.insert(t);
  t.submitted = now;
  ++s.unfinished;
  ++s.counts.submitted;
  time_point due{};
  if (delay > duration::zero()) {
    due = later(now, delay);
    slot.arrive_resting(t);
    v.rest_until(t, due);
  } else {
    slot.arrive(t);
  }
  v.say(event_kind::submitted, t, {0, 0, now}, due);
  v.changed(slot);
}

// The same for a task whose first attempt is over already: `said` is what came of it.
inline void engine::accept_settled(visit& v, task& t, key_slot& slot, time_point now, const outcome& said,
                                   failure_reason reason) noexcept {
  shard& s = v.here();
  s.ids.insert(t);
  t.submitted = now;
  ++s.unfinished;
  ++s.counts.submitted;
  slot.arrive_resting(t);
  v.say(event_kind::submitted, t, {0, 0, now});
  t.place = place::running;  // for nobody to see: the lock is kept
  std::construct_at(&t.run, run_state{0, s.counts.started});
  t.progress = {};
  ++s.counts.running;
  settle(v, t, said, reason, now);
  v.changed(slot);
}

// ---- drain

// Whether nothing is unfinished. All shards' locks are held at once, so that no task hides behind another: a callback
// in one shard may submit into one that was looked at before.
inline bool engine::quiet() noexcept TURNKEY_NO_ANALYSIS {
  const holds_several all;
  for (auto& s : shards_) s->mutex.lock();
  bool quiet = true;
  for (auto& s : shards_) quiet = quiet && s->quiet();
  for (auto& s : shards_) s->watched = s->watched_quiet = !quiet;
  for (auto& s : shards_) s->mutex.unlock();
  return quiet;
}

inline bool engine::stalled() noexcept {
  {
    lock lock(gate_);
    if (!permits_.stalled() || valve_.in_flight() != 0) return false;
  }
  for (auto& s : shards_) {
    lock lock(s->mutex);
    if (s->counts.ready != 0) return true;
  }
  return false;
}

inline drain_result engine::drain(const std::optional<time_point>& until) {
  if (is_inside()) return drain_result::would_deadlock;
  auto answer = drain_result::timed_out;
  waiters_.wait(until, [&] {
    const auto over = [&](drain_result r) {
      answer = r;
      return true;
    };
    bool stopped;
    {
      lock lock(gate_);
      stopped = stopping_;
    }
    if (stopped) return over(drain_result::stopped);
    if (quiet()) return over(drain_result::drained);
    return stalled() && over(drain_result::stalled);
  });
  return answer;
}

// Wakes submit_for() when a task of any shard finishes.
inline void engine::watch_room() noexcept {
  for (auto& s : shards_) {
    lock lock(s->mutex);
    s->watched = s->watched_room = true;
  }
}

// ---- close and stop

inline void engine::close() noexcept {
  for (auto& s : shards_) {
    lock lock(s->mutex);
    s->closed = true;
  }
  waiters_.notify();
}

// Rule 10.3. Returns what was unfinished, linked through peers.next; null for all but the first caller.
inline task* engine::stop() noexcept {
  const bool inside = is_inside();
  bool first;
  {
    lock lock(gate_);
    first = !std::exchange(stopping_, true);
    over_.store(true, std::memory_order_relaxed);
    valve_.stop();
  }
  for (auto& s : shards_) {
    lock lock(s->mutex);
    s->closed = true;
    s->stopped = true;
  }
  waiters_.notify();
  if (!first) {
    if (inside) return nullptr;
    waiters_.wait(std::nullopt, [this] {
      lock lock(gate_);
      return stopped_;
    });
    wait_for_visitors();  // the first may have been inside
    return nullptr;
  }
  for (auto& s : shards_) signal_running(*s, [](const task&) { return true; });
  if (!inside) wait_for_visitors();
  alarm_.stop(!inside);
  if (own_time_ != nullptr) own_time_->stop(!inside);
  task* const undone = take_unfinished();
  tell_undone(undone);
  destroy_executor(inside);
  silent_.store(true, std::memory_order_relaxed);
  {
    lock lock(gate_);
    stopped_ = true;
  }
  waiters_.notify();
  return undone;
}

// Until no callback, observer or executor call is under way, no callable is being moved in, and none is being
// destroyed.
inline void engine::wait_for_visitors() noexcept {
  waiters_.wait(std::nullopt, [this] {
    {
      lock lock(gate_);
      if (permits_.anybody()) return false;
    }
    for (auto& s : shards_) {
      lock lock(s->mutex);
      if (s->settled()) continue;
      s->watched = s->watched_settled = true;
      return false;
    }
    return true;
  });
}

inline task* engine::take_unfinished() noexcept {
  const time_point now = time_->now();
  task* undone = nullptr;
  for (auto& s : shards_) {
    lock lock(s->mutex);
    s->ids.for_each(
        [](task& t) { t.left_as = key_slot::state_of(t); });  // before the first one goes, and lets others be ready
  }
  each_shard_jointly_if_needed([&](visit& v) { take_unfinished(v, undone, now); });
  return undone;
}

inline void engine::take_unfinished(visit& v, task*& undone, time_point now) noexcept {
  shard& s = v.here();
  s.emptied = true;
  s.ids.for_each([&](task& t) {
    if (t.place == place::dead || (t.place == place::running && !t.progress.returned)) return;
    if (t.place == place::resting) {
      s.timers.remove(t);
      --s.counts.delayed;
    } else if (t.place == place::running) {  // deferred: its completion finds nothing any more
      if (t.cancelled) {                     // and it never starts again (rule 6.5)
        settle(v, t, outcome{outcome::kind::postpone}, failure_reason::asked, now);
        return v.changed(*t.slot);
      }
      v.end_attempt(t);
      --s.counts.running;
    }
    key_slot& slot = *t.slot;
    if (t.several) {
      quit_all(v, t);
    } else {
      slot.finish(t);
    }
    each_part(t, [](task& part) { part.slot->unhold(part); });
    v.finished_one();
    ++s.counts.undone;
    t.place = place::withdrawn;
    t.owners = 1;
    t.peers.next = undone;
    undone = &t;
    s.ids.erase(t, s.arriving != 0);
    v.changed(slot);
    if (t.several) others_changed(v, t);
  });
}

inline void engine::tell_undone(task* undone) noexcept {
  if (!settings_.observed) return;
  const time_point now = time_->now();  // the time source outlives stop()
  visitor me;
  enter(me);
  for (task* t = undone; t != nullptr; t = t->peers.next) {
    raw_event e;
    e.kind = event_kind::undone;
    e.slot = t->slot;
    if (t->several) {
      const joint all(*this);
      e.number = next_in_all(*t, &shard::next_event);
    } else {
      shard& s = shard_of_id(t->id);
      lock lock(s.mutex);
      e.number = s.next_event++;
    }
    e.id = task_id{t->id};
    e.policy = t->policy;
    e.attempt = t->failed;
    e.time = now;
    publish(e);
  }
  leave(me);
}

// Inside, another thread may be in the executor right now: then the last one to leave destroys it.
inline void engine::destroy_executor(bool inside) noexcept {
  std::unique_ptr<erased_executor> last;
  lock lock(gate_);
  if (inside && offering_ != 0) {
    executor_doomed_ = true;
  } else {
    last = std::move(executor_);
  }
  lock.unlock();
}

// ---- records

// One of the owners of a withdrawn task lets go of it.
inline void engine::dispose(task& t) noexcept {
  shard& s = shard_of_id(t.id);
  {
    lock lock(s.mutex);
    if (--t.owners != 0) return;
  }
  spend(t, task_state::undone);
  t.error = nullptr;
  if (t.several) dissolve(t);
  visit v(*this, s);
  v.release(t);
}

// Lets go of all that is left after stop(): the dead, and the keys that are held. Nobody is told.
inline void engine::bury() noexcept {
  for (auto& s : shards_) sweep(*s);
  each_shard_jointly_if_needed([this](visit& v) {
    shard& s = v.here();
    while (!s.dead.empty()) {
      task& t = *s.dead.first();
      leave_store(v, t);
      each_part(t, [](task& part) { part.slot->unhold(part); });
      v.depart(t, event_kind::dead, t.failed, t.last.fence);
      v.changed(*t.slot);
      if (t.several) others_changed(v, t);
    }
    s.slots.for_each([&v](key_slot& slot) {
      slot.release();
      if (slot.resume()) --v.here().counts.paused_keys;
      v.changed(slot);
    });
  });
}

// ---- looking

inline stats engine::look() noexcept {
  stats all;
  std::optional<time_point> oldest;
  std::uint64_t unfinished = 0;
  for (auto& s : shards_) {
    lock lock(s->mutex);
    const tally& c = s->counts;
    all.submitted += c.submitted;
    all.started += c.started;
    all.succeeded += c.succeeded;
    all.failed_attempts += c.failed_attempts;
    all.postponed += c.postponed;
    all.died += c.died;
    all.cancelled += c.cancelled;
    all.undone += c.undone;
    all.redriven += c.redriven;
    all.rejected += c.rejected;
    all.dead_evicted += c.dead_evicted;
    all.leases_expired += c.leases_expired;
    all.leases_lost += c.leases_lost;
    all.late_results += c.late_results;
    all.ready += c.ready;
    all.running += c.running;
    all.delayed += c.delayed;
    all.dead += c.dead;
    all.keys += c.keys;
    all.held_keys += c.held_keys;
    all.paused_keys += c.paused_keys;
    unfinished += s->unfinished;
    if (const task* const t = s->ids.oldest([](const task& each) { return each.place < place::dead; }))
      if (!oldest || t->submitted < *oldest) oldest = t->submitted;
  }
  all.waiting = unfinished - all.ready - all.running - all.delayed;
  {
    lock lock(gate_);
    all.executor_refusals = refusals_;
    all.permits_lost = lost_;
  }
  inside_scope inside(*this);
  if (oldest && inside) all.oldest_age = time_->now() - *oldest;
  return all;
}

}  // namespace turnkey::inline v1::detail

namespace turnkey::inline v1 {

// ---- what a callback sees of its attempt

inline attempt::attempt(detail::engine& engine, detail::task& task) noexcept
    : engine_(engine),
      task_(task),
      id_(task_id{task.id}),
      number_(task.failed + 1),
      fence_(task.run.fence),
      serial_(task.run.serial) {}

inline bool attempt::stop_requested() const noexcept {
  detail::lock lock(engine_.shard_of_id(task_.id).mutex);
  return task_.signalled;
}

inline std::stop_token attempt::stop_token() {
  std::stop_source fresh;
  detail::lock lock(engine_.shard_of_id(task_.id).mutex);
  return detail::engine::token_of(task_, fresh);
}

inline bool attempt::extend_lease(duration d) noexcept { return engine_.extend_lease(id_, serial_, d); }

inline completion attempt::defer() {
  if (deferred_) throw std::logic_error("turnkey: defer() was called before in this attempt: it has one completion");
  deferred_ = true;
  return completion(*this);
}

// ---- what settles it later

inline completion::completion(const attempt& a) noexcept
    : of_{&a.engine_, a.id_, a.number_, a.fence_, a.serial_}, settled_(false) {
  of_.engine->keep();
}

inline completion::completion(completion&& other) noexcept
    : of_(std::exchange(other.of_, {})), settled_(other.settled_.exchange(true, std::memory_order_relaxed)) {}

inline completion& completion::operator=(completion&& other) noexcept {
  completion was(std::move(other));
  std::swap(of_, was.of_);
  was.settled_ = settled_.exchange(was.settled_, std::memory_order_relaxed);
  return *this;
}

inline completion::~completion() {
  if (!settled_) settle(outcome{outcome::kind::retry}, failure_reason::abandoned);
  if (of_.engine != nullptr) of_.engine->drop();
}

inline bool completion::settle(const outcome& said) const noexcept { return settle(said, failure_reason::asked); }

inline bool completion::settle(const outcome& said, failure_reason reason) const noexcept {
  if (of_.engine == nullptr) return false;
  // Relaxed is enough: it spares the destructor a look.
  settled_.store(true, std::memory_order_relaxed);
  return of_.engine->complete(of_.id, of_.serial, said, reason);
}

inline bool completion::fail(std::exception_ptr error) const noexcept {
  const auto reason = error ? failure_reason::threw : failure_reason::asked;
  return settle(outcome{outcome::kind::retry, {}, std::move(error)}, reason);
}

inline bool completion::extend_lease(duration d) const noexcept {
  return of_.engine != nullptr && of_.engine->extend_lease(of_.id, of_.serial, d);
}

inline bool completion::stop_requested() const noexcept {
  if (of_.engine == nullptr) return true;
  detail::shard& s = of_.engine->shard_of_id(static_cast<std::uint64_t>(of_.id));
  detail::lock lock(s.mutex);
  const detail::task* const t = detail::engine::attempt_in(s, of_.id, of_.serial);
  return t == nullptr || t->signalled;
}

inline std::stop_token completion::stop_token() const {
  std::stop_source fresh;
  if (of_.engine != nullptr) {
    detail::shard& s = of_.engine->shard_of_id(static_cast<std::uint64_t>(of_.id));
    detail::lock lock(s.mutex);
    if (detail::task* const t = detail::engine::attempt_in(s, of_.id, of_.serial))
      return detail::engine::token_of(*t, fresh);
  }
  fresh.request_stop();
  return fresh.get_token();
}

}  // namespace turnkey::inline v1
