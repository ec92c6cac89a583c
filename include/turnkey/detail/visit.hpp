// One visit to a shard: what is done under its lock, and, once the lock is gone, what follows from it: observers are
// told, callables destroyed, the alarm set, waiters woken, lines pushed, permits offered. Every change of a task goes
// through a visit, so none of these is ever forgotten.
#pragma once

#include <turnkey/detail/engine.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

class visit {
 public:
  visit(engine& engine, shard& shard) noexcept TURNKEY_NO_ANALYSIS : engine_(engine), shard_(shard) {
    shard_.mutex.lock();
  }
  // One of those that `all` pays together; it holds the locks.
  visit(engine& engine, shard& shard, joint& all) noexcept : engine_(engine), shard_(shard), all_(&all) {}
  ~visit() {
    if (!left_) leave();
  }
  visit(const visit&) = delete;
  visit& operator=(const visit&) = delete;

  [[nodiscard]] shard& here() noexcept { return shard_; }
  //   Needs    it is one of several visits at once.
  [[nodiscard]] joint& all() noexcept { return *all_; }

  // Must be called after every change of a slot: looks what it means for tasks of several keys, counts it, queues it
  // when it may start something, lets it go when nothing needs it.
  void changed(key_slot& slot) noexcept {
    if (all_ != nullptr) [[unlikely]]
      engine_.stir(*all_, slot);
    const std::uint32_t ready = slot.ready();
    if (ready != slot.counted_ready) {
      shard_.counts.ready += ready;
      shard_.counts.ready -= std::exchange(slot.counted_ready, ready);
    }
    if (ready != 0 && !slot.queued && !shard_.stopped) queue(slot);
    const bool in_use = slot.in_use();
    if (in_use != slot.counted_in_use && slot.has_key) {
      slot.counted_in_use = in_use;
      shard_.counts.keys += in_use ? 1 : -std::uint64_t{1};
    }
    if (const bool held = slot.held(); held != slot.counted_held) {
      slot.counted_held = held;
      shard_.counts.held_keys += held ? 1 : -std::uint64_t{1};
    }
    if (!in_use && slot.dead == 0 && slot.has_key) let_go(slot);
  }
  // The same after a change that means nothing for other tasks of several keys.
  void recount(key_slot& slot) noexcept {
    joint* const all = std::exchange(all_, nullptr);
    changed(slot);
    all_ = all;
  }

  // `t`, a finished task, is told of and destroyed once the lock is gone.
  void depart(task& t, event_kind kind, std::uint32_t attempt, std::uint64_t fence) noexcept {
    t.place = place::leaving;
    more_ = true;
    shard_.ids.erase(t, shard_.arriving != 0);
    ++shard_.busy;
    t.last = {next_number(t), fence, attempt, kind};
    leaving_.push_back(t);
  }

  // The same for one that nobody must be told of and whose callable is gone: at once. changed() must follow.
  void vanish(task& t) noexcept {
    shard_.ids.erase(t, shard_.arriving != 0);
    free(t);
  }

  // A withdrawn task that nobody owns any more.
  void release(task& t) noexcept {
    key_slot& slot = *t.slot;
    free(t);
    if (unneeded(slot)) let_go(slot);
  }

  // Tells the observer that something happened to `t`, which goes on.
  void say(event_kind kind, const task& t, const moment& when, time_point due = {},
           std::optional<failure> error = {}) noexcept {
    if (!engine_.settings().observed) return;
    TURNKEY_ASSERT(said_ != max_said, "a visit has room for what it says");
    more_ = true;
    ++t.slot->references;
    ++shard_.busy;
    raw_event& e = *new (events_ + said_ * sizeof(raw_event)) raw_event;
    ++said_;
    e.kind = kind;
    e.slot = t.slot;
    e.number = next_number(t);
    e.id = task_id{t.id};
    e.policy = t.policy;
    e.attempt = when.attempt;
    e.fence = when.fence;
    e.time = when.time;
    e.due = due;
    e.error = std::move(error);
  }

  // A resting task enters the timers.
  void rest_until(task& t, time_point due) noexcept {
    t.when = due;
    shard_.timers.insert(t);
    ++shard_.counts.delayed;
    if (shard_.timers.first() == &t) ring_at(due);
  }

  // The lease of a running task should be over then.
  void watch_until(task& t, time_point expires) noexcept {
    if (t.progress.watched) shard_.leases.remove(t);
    extra_of(t).expires = expires;
    shard_.leases.insert(t);
    t.progress.watched = true;
    if (shard_.leases.first() == &t) ring_at(expires);
  }

  // The attempt of a running task is over; returns its fence.
  std::uint64_t end_attempt(task& t) noexcept {
    if (t.progress.watched) shard_.leases.remove(t);
    const std::uint64_t fence = t.run.fence;
    if (t.run.stop.stop_possible()) std::swap(ended_, t.run.stop);  // dies outside the lock
    std::destroy_at(&t.run);
    return fence;
  }

  void signal(std::stop_source source) noexcept {
    signal_ = std::move(source);
    more_ = true;
  }
  // Takes an error, to be destroyed without the lock. By a swap: moving one may be copying it.
  void drop_error(std::exception_ptr& error) noexcept {
    std::swap(error_, error);
    more_ = true;
  }
  // Whoever wants to know how `t` ends is told of its first death once the lock is gone.
  void tell_of_death(task& t) noexcept {
    fate& f = *t.ops->fate(callable_of(t));
    if (std::exchange(f.died, true)) return;
    TURNKEY_ASSERT(!died_, "one task dies in a visit");
    f.death = {task_id{t.id}, task_state::dead, t.reason, t.error};
    f.keep();
    fate_ = &f;
    ++shard_.busy;
    more_ = died_ = true;
  }
  void made_room() noexcept { room_ = true; }
  void evict_later() noexcept {
    ++shard_.busy;
    more_ = evict_ = true;
  }

  // A task is not unfinished any more.
  void finished_one() noexcept {
    --shard_.unfinished;
    room_ = true;
    if (engine_.settings().max_pending) engine_.unreserve_pending();
  }

  // Calls `f` without the lock, before anything has been done under it.
  template <class F>
  void pause(F f) TURNKEY_NO_ANALYSIS {
    shard_.mutex.unlock();
    left_ = true;  // should `f` throw
    f();
    left_ = false;
    shard_.mutex.lock();
  }

  // The lines that may start something are left in `lines`, linked through ready_next, for the caller to push: for a
  // worker that goes on to the ready queue at once, and needs nobody to be woken for what it takes itself.
  void leave_lines_in(key_slot*& lines) noexcept { lines_ = &lines; }

  // Lets go of the lock and does what follows. Nothing may be asked of the visit afterwards.
  void leave() noexcept TURNKEY_NO_ANALYSIS {
    left_ = true;
    if (ready_ != nullptr) sort_out_ready();
    unlock();
    follow();
  }

 private:
  friend class engine;
  friend class joint;

  // Under the lock, as the last thing.
  void look_back() noexcept {
    left_ = true;
    if (ready_ != nullptr) sort_out_ready();
    if (shard_.watched) look_at_watches();
  }

  // What follows, once the lock is gone.
  void follow() noexcept {
    if (more_) {
      act();
    } else if (ready_ != nullptr) {
      push();
    }
  }

  [[nodiscard]] std::uint64_t next_number(const task& t) noexcept {
    if (t.several) [[unlikely]]
      return engine_.next_in_all(t, &shard::next_event);
    return shard_.next_event++;
  }

  // The rarer of what follows.
  void act() noexcept {
    engine_.keep();  // the user's code may destroy the scheduler
    if (!leaving_.empty() || said_ != 0 || died_ || signal_.stop_possible()) tell_and_destroy();
    while (heap_blocks_ != nullptr) engine::free_heap_block(std::exchange(heap_blocks_, heap_blocks_->next));
    error_ = nullptr;
    if (due_) engine_.alarm_at(*due_);
    destroy_retired();
    if (doomed_ != nullptr) engine_.forget(*doomed_);
    if (many_doomed_) engine_.sweep(shard_);
    if (evict_) evict();
    if (notify_) engine_.waiters_.notify();
    if (ready_ != nullptr) push();
    engine_.drop();
  }

  void push() noexcept {
    if (lines_ == nullptr) {
      engine_.push(ready_);
    } else {
      last_ready_->ready_next = *lines_;
      *lines_ = ready_;
    }
  }

  // The store is over-full. The shard counts as busy meanwhile: drain() waits for what is told of the evicted ones.
  void evict() noexcept TURNKEY_NO_ANALYSIS {
    engine_.evict();
    shard_.mutex.lock();
    --shard_.busy;
    unlock();
  }

  void ring_at(time_point time) noexcept {
    if (!due_ || time < *due_) due_ = time;
    more_ = true;
  }

  static constexpr std::size_t max_said = 2;

  [[nodiscard]] raw_event& said(std::size_t i) noexcept {
    return *std::launder(reinterpret_cast<raw_event*>(events_ + i * sizeof(raw_event)));
  }

  void queue(key_slot& slot) noexcept {
    slot.queued = true;
    slot.just_queued = true;
    slot.ready_next = nullptr;
    (ready_ != nullptr ? last_ready_->ready_next : ready_) = &slot;
    last_ready_ = &slot;
  }

  // The key is not needed any more. Its memory lives on while a task names it or the ready queue does.
  void let_go(key_slot& slot) noexcept {
    if (slot.in_table) {
      shard_.slots.erase(slot);
      slot.in_table = false;
      if (slot.queued && !slot.just_queued) doom(slot);
    }
    if (slot.references != 0 || slot.queued) return;
    if (engine_.settings().keys_need_destruction) {
      slot.ready_next = retired_;
      retired_ = &slot;
      more_ = true;
    } else {
      shard_.slot_cells.give(&slot);
    }
  }

  // It still stands in the ready queue, or is on its way there: it must come out.
  void doom(key_slot& slot) noexcept {
    if (doomed_ != nullptr) {
      more_ = many_doomed_ = true;
      return;
    }
    doomed_ = &slot;
    more_ = true;
    ++slot.references;  // whoever takes it out of the queue first must not free it
  }

  // Of the lines that were to be queued, those stay behind that can start nothing any more.
  void sort_out_ready() noexcept {
    key_slot* lines = std::exchange(ready_, nullptr);
    while (lines != nullptr) {
      key_slot& slot = *std::exchange(lines, lines->ready_next);
      slot.just_queued = false;
      if (slot.counted_ready != 0) {
        slot.ready_next = nullptr;
        (ready_ != nullptr ? last_ready_->ready_next : ready_) = &slot;
        last_ready_ = &slot;
      } else {
        slot.queued = false;
        if (unneeded(slot)) let_go(slot);
      }
    }
  }

  [[nodiscard]] bool unneeded(const key_slot& slot) noexcept {
    return !slot.in_use() && slot.dead == 0 && slot.has_key;
  }

  void unlock() noexcept TURNKEY_NO_ANALYSIS {
    if (shard_.watched) look_at_watches();
    shard_.mutex.unlock();
  }
  void look_at_watches() noexcept {
    if (shard_.watched_quiet && shard_.quiet()) {
      shard_.watched_quiet = false;
      more_ = notify_ = true;
    }
    if (shard_.watched_settled && shard_.settled()) {
      shard_.watched_settled = false;
      more_ = notify_ = true;
    }
    if (shard_.watched_room && room_) {
      shard_.watched_room = false;
      more_ = notify_ = true;
    }
    shard_.watched = shard_.watched_quiet || shard_.watched_settled || shard_.watched_room;
  }

  void free(task& t) noexcept {
    t.slot->detach(t);
    const std::uint8_t pool = t.pool;
    const std::size_t align = t.ops->align;
    if (t.several) free_group(group_of(t));
    t.~task();
    if (pool == shard::from_heap) {
      heap_blocks_ = new (&t) heap_block{heap_blocks_, align};
      more_ = true;
    } else {
      shard_.blocks[pool].give(&t);
    }
  }

  void free_group(group& g) noexcept {
    g.each_other([](task& part) { part.~task(); });
    heap_blocks_ = new (&g) heap_block{heap_blocks_, alignof(group)};
    more_ = true;
  }

  void tell_and_destroy() noexcept TURNKEY_NO_ANALYSIS {
    visitor me;
    engine_.enter(me);
    if (signal_.stop_possible()) signal_.request_stop();
    std::size_t told = 0;  // in the order of the numbers
    for (task* t = leaving_.first(); t != nullptr; t = leaving_.after(*t)) {
      while (told != said_ && said(told).number < t->last.number) engine_.publish(said(told++));
      engine_.say_goodbye(*t);
    }
    while (told != said_) engine_.publish(said(told++));
    for (task* t = leaving_.first(); t != nullptr; t = leaving_.after(*t)) destroy_contents(*t);
    if (died_) fate_->tell(fate_->death);
    engine_.leave(me);

    task_list<&task::peers> taken;  // an observer took its record: this visit is an owner beside it
    shard_.mutex.lock();
    while (!leaving_.empty()) {
      task& t = *leaving_.first();
      leaving_.remove(t);
      --shard_.busy;
      if (t.place == place::withdrawn) {
        taken.push_back(t);
      } else {
        release(t);
      }
    }
    for (std::size_t i = 0; i != said_; ++i) {
      key_slot& slot = *said(i).slot;
      --slot.references;
      --shard_.busy;
      if (unneeded(slot)) let_go(slot);
    }
    if (died_) --shard_.busy;
    unlock();
    if (died_) fate_->drop();
    for (std::size_t i = 0; i != said_; ++i) said(i).~raw_event();
    while (!taken.empty()) {
      task& t = *taken.first();
      taken.remove(t);
      engine_.dispose(t);
    }
  }

  void destroy_contents(task& t) noexcept {
    if (t.place == place::withdrawn) return;  // an observer took its record
    engine::spend(t, state_after(t.last.kind));
    if (t.several) [[unlikely]]
      engine_.dissolve(t);
    t.error = nullptr;
  }
  static constexpr task_state state_after(event_kind kind) noexcept {
    switch (kind) {
      case event_kind::succeeded: return task_state::succeeded;
      case event_kind::cancelled: return task_state::cancelled;
      case event_kind::undone: return task_state::undone;
      default: return task_state::dead;
    }
  }

  void destroy_retired() noexcept TURNKEY_NO_ANALYSIS {
    if (retired_ == nullptr) return;
    for (key_slot* slot = retired_; slot != nullptr; slot = slot->ready_next) engine_.destroy_slot(*slot);
    shard_.mutex.lock();
    while (retired_ != nullptr) shard_.slot_cells.give(std::exchange(retired_, retired_->ready_next));
    shard_.mutex.unlock();
  }

  engine& engine_;
  shard& shard_;
  joint* all_ = nullptr;  // null: this shard's lock alone is held
  bool left_ = false;
  bool more_ = false;  // act() has something to do
  bool room_ = false;
  bool notify_ = false;
  bool evict_ = false;
  bool died_ = false;  // `fate_` wants to know of it
  std::size_t said_ = 0;
  fate* fate_;
  key_slot* ready_ = nullptr;  // lines to push, through ready_next
  key_slot* last_ready_ = nullptr;
  key_slot** lines_ = nullptr;   // where these go instead
  key_slot* retired_ = nullptr;  // keys to destroy, through ready_next
  key_slot* doomed_ = nullptr;
  bool many_doomed_ = false;
  task_list<&task::peers> leaving_;
  heap_block* heap_blocks_ = nullptr;
  std::optional<time_point> due_;
  std::exception_ptr error_;
  std::stop_source signal_{std::nostopstate};
  std::stop_source ended_{std::nostopstate};                           // of an attempt that is over
  alignas(raw_event) std::byte events_[max_said * sizeof(raw_event)];  // the first `said_` are alive
};

}  // namespace turnkey::inline v1::detail
