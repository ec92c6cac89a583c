// What becomes of a consumer's messages in an attempt, and when they are cancelled: who drives a key, what a batch's
// outcome means for each message, and which task it goes on in. The rules of tasks are the scheduler's.
#pragma once

#include <turnkey/detail/consumer_core.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <new>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

// ---- drivers

// The promised seat is the new driver's. Lets go of the lock.
template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::hire(entry& e, const promise& p,
                                                       lock& held) noexcept TURNKEY_NO_ANALYSIS {
  const std::uint64_t number = serials_.fetch_add(1) + 1;
  e.driver = number;
  e.busy = false;
  ++e.references;
  held.unlock();
  engine_->keep_promise(p, runner(e, number));
}

// A seat for one more task; false: no memory, or stop() has come.
template <class Key, class Message, class Hash, class KeyEqual>
bool consumer_core<Key, Message, Hash, KeyEqual>::get_promise(const entry& e, promise& to) noexcept {
  try {
    return !engine_->template promise_seat<runner>(e.key, to);
  } catch (...) {
    return false;
  }
}

// Messages of the key wait and nobody drives: finds somebody, if that can be.
template <class Key, class Message, class Hash, class KeyEqual>
bool consumer_core<Key, Message, Hash, KeyEqual>::hire_another(entry& e) noexcept {
  promise p;
  if (!get_promise(e, p)) return false;
  lock lock(shard_of(e.hash).mutex);
  if (e.driver == 0 && e.queue.waiting() != 0) {
    hire(e, p, lock);
  } else {
    lock.unlock();
    engine_->break_promise(p);
  }
  return true;
}

// ---- an attempt

template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::run(runner& r, attempt& a) {
  entry& e = *r.entry_;
  if (r.chunk_ != nullptr) return run_alone(r, a);
  range b;
  bool drives = true;
  bool more = false;
  {
    lock lock(shard_of(e.hash).mutex);
    if (r.number_ != e.driver) return outcome::success();
    TURNKEY_ASSERT(e.queue.waiting() != 0, "who drives, and has no batch in hand, has messages that wait");
    b = e.queue.take(max_batch_);
    if (!b.note(0).doomed) ++shard_of(e.hash).numbers.batches;
    more = e.queue.waiting() != 0;
    if (policy_ == policy::parallel) {
      drives = false;  // the next batch does not wait for this one
      e.driver = 0;
    } else {
      e.busy = true;
    }
  }
  if (policy_ == policy::parallel && more && !hire_another(e)) drives = take_over(r);
  const std::uint32_t failed = b.note(0).failed;
  const bool whole = b.note(0).doomed || handle(e, b, failed + 1, a);
  return policy_ == policy::ordered ? conclude_ordered(r, a, b, whole) : conclude(r, a, b, drives);
}

// Nobody drives: `r` does, beside what it has in hand.
template <class Key, class Message, class Hash, class KeyEqual>
bool consumer_core<Key, Message, Hash, KeyEqual>::take_over(runner& r) noexcept {
  entry& e = *r.entry_;
  lock lock(shard_of(e.hash).mutex);
  if (e.driver != 0) return false;
  r.number_ = e.driver = serials_.fetch_add(1) + 1;
  e.busy = true;
  return true;
}

// Calls the handler, without any lock, and writes down what came of each message; true when it counts for all.
template <class Key, class Message, class Hash, class KeyEqual>
bool consumer_core<Key, Message, Hash, KeyEqual>::handle(entry& e, const range& b, std::uint32_t number,
                                                         attempt& a) noexcept {
  batch_type messages(e.key, b, number, a);
  outcome returned = outcome::success();
  auto reason = failure_reason::asked;
  try {
    returned = handler_->handle(messages);
  } catch (...) {
    returned = engine::failed_by(std::current_exception());
    reason = failure_reason::threw;
  }
  bool whole = true;
  for (std::uint32_t i = 0; i != b.count; ++i) whole = whole && !b.note(i).settled;
  const bool first_only = policy_ == policy::ordered && !whole && returned.what() != outcome::kind::success;
  for (std::uint32_t i = 0; i != b.count; ++i) {
    message_note& n = b.note(i);
    if (n.settled) continue;
    n.said = returned;
    n.reason = reason;
    n.settled = true;
    if (first_only) break;
  }
  return whole;
}

// Whether what was said of a message is its death.
template <class Key, class Message, class Hash, class KeyEqual>
bool consumer_core<Key, Message, Hash, KeyEqual>::dies(const message_note& n) const noexcept {
  const retry_policy retry = options_.retry.value_or(never_retry);
  switch (n.said.what()) {
    case outcome::kind::dead: return true;
    case outcome::kind::postpone: return retry.max_postpones && n.postponed >= *retry.max_postpones;
    default: return n.failed + 1 >= retry.max_attempts;
  }
}

// The attempt of a driver is over; it comes back when messages wait.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::go_on(runner& r, attempt& a) noexcept {
  entry& e = *r.entry_;
  std::uint32_t failed;
  std::uint32_t postponed;
  {
    lock lock(shard_of(e.hash).mutex);
    if (r.number_ != e.driver) return outcome::success();
    e.busy = false;
    if (e.queue.waiting() == 0) {
      e.driver = 0;
      return outcome::success();
    }
    r.number_ = e.driver = serials_.fetch_add(1) + 1;
    failed = e.queue.front().failed;
    postponed = e.queue.front().postponed;
  }
  stand_for(r, a, failed, postponed);
  return engine::anew();
}

// A driver says of its task what was said of the message that it stands for.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::say(runner& r, attempt& a, outcome said, failure_reason reason,
                                                         std::uint32_t failed, std::uint32_t postponed) {
  stand_for(r, a, failed, postponed);
  if (said.what() == outcome::kind::postpone) count_up(r.postponed_);
  return say(std::move(said), reason);
}

// Under ordered: the first message that did not succeed, and all after it, come back. When it dies the task of the
// driver dies for it, so that its id is in front of all that waits, and another drives.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::conclude_ordered(runner& r, attempt& a, const range& b,
                                                                      bool whole) {
  entry& e = *r.entry_;
  shard& s = shard_of(e.hash);
  std::uint32_t first = 0;
  for (; first != b.count && succeeded(b.note(first)); ++first) destroy(b, first);
  {
    lock lock(s.mutex);
    for (std::uint32_t i = 0; i != first; ++i) free_place(e, b, i);
    s.numbers.succeeded += first;
  }
  if (first != 0) give_back_pending(first);
  if (first == b.count) return go_on(r, a);

  promise next;
  bool starved = false;
  std::uint32_t cancelled = 0;  // of those from `first` on: all, or none
  outcome said = outcome::success();
  while (true) {
    lock lock(s.mutex);
    message_note& n = b.note(first);
    if (n.cancelled) {
      cancelled = b.count - first;
      break;
    }
    const bool fatal = dies(n);
    const bool more = first + 1 != b.count || e.queue.waiting() != 0;
    if (fatal && more && next.t == nullptr && !starved) {
      lock.unlock();
      starved = !get_promise(e, next);
      continue;
    }
    const failure_reason reason = n.reason;
    const std::uint32_t failed = n.failed;
    const std::uint32_t postponed = n.postponed;
    const bool doomed = fatal && starved;
    if (!doomed) {
      said = std::move(n.said);
      n.said = outcome::success();
    }
    for (std::uint32_t i = b.count - 1; i != first; --i) come_back(e, b, i, whole);
    if (!fatal || doomed) {
      if (!doomed) count(n, said, s.numbers);
      n.doomed = doomed;
      e.queue.put_back(*b.chunk, b.first + first);
      e.busy = false;
      r.number_ = e.driver = serials_.fetch_add(1) + 1;
      lock.unlock();
      if (next.t != nullptr) engine_->break_promise(next);
      if (doomed) return engine::anew(patience);
      return say(r, a, std::move(said), reason, failed, postponed);
    }
    count(n, said, s.numbers);
    set_aside(e, r, b, first);
    if (next.t != nullptr) {
      hire(e, next, lock);
    } else {
      e.driver = 0;
      e.busy = false;
      lock.unlock();
    }
    give_back_pending();
    return say(r, a, std::move(said), reason, failed, postponed);
  }
  if (next.t != nullptr) engine_->break_promise(next);
  drop_out(e, b, first, cancelled);
  return go_on(r, a);
}

// The message dies, and the task of `r` with it.
template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::set_aside(entry& e, runner& r, const range& b,
                                                            std::uint32_t i) noexcept {
  message_note& n = b.note(i);
  n.state = message_state::aside;
  n.dead = true;
  n.doomed = false;
  --e.pending;
  r.chunk_ = b.chunk;
  r.at_ = b.first + i;
}

// A message behind the one that failed: counted when what was said counts for all.
template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::come_back(entry& e, const range& b, std::uint32_t i,
                                                            bool whole) noexcept {
  message_note& n = b.note(i);
  if (whole && !succeeded(n) && dies(n)) {
    n.doomed = true;  // it dies when its turn comes
  } else if (whole && !succeeded(n)) {
    count(n, n.said, shard_of(e.hash).numbers);
  }
  e.queue.put_back(*b.chunk, b.first + i);
}

// Cancelled while they were out: they are not tried again.
template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::drop_out(entry& e, const range& b, std::uint32_t first,
                                                           std::uint32_t n) noexcept {
  for (std::uint32_t i = first; i != first + n; ++i) destroy(b, i);
  {
    lock lock(shard_of(e.hash).mutex);
    for (std::uint32_t i = first; i != first + n; ++i) free_place(e, b, i);
    shard_of(e.hash).numbers.cancelled += n;
  }
  give_back_pending(n);
}

// Under exclusive and parallel: each message that did not succeed goes on in a task of its own. Where one that dies
// may hold the key, another drives, with a larger id than all of these.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::conclude(runner& r, attempt& a, const range& b, bool drives) {
  entry& e = *r.entry_;
  shard& s = shard_of(e.hash);
  std::uint32_t good = 0;
  for (std::uint32_t i = 0; i != b.count; ++i)
    if (succeeded(b.note(i))) {
      destroy(b, i);
      ++good;
    }
  if (good != 0) {
    lock lock(s.mutex);
    // Backwards, and the others keep the chunk: `b` stays good while one of its messages is alive.
    for (std::uint32_t i = b.count; i-- != 0;)
      if (good == b.count || succeeded(b.note(i))) free_place(e, b, i);
    s.numbers.succeeded += good;
    lock.unlock();
    give_back_pending(good);
  }
  if (good == b.count) return drives ? go_on(r, a) : outcome::success();

  promise next;
  const bool hands_over = drives && policy_ == policy::exclusive && options_.dead_action == dead_action::hold_key;
  bool starved = hands_over && !get_promise(e, next);
  std::optional<settled_attempt> mine;  // of the first message that found no memory
  bool waits = false;                   // it is doomed
  std::uint32_t left = b.count - good;
  for (std::uint32_t i = 0; left != 0; ++i) {
    message_note& n = b.note(i);
    if (n.state == message_state::done) continue;
    --left;
    promise own;
    starved = starved || !get_promise(e, own);
    lock lock(s.mutex);
    if (n.cancelled) {
      lock.unlock();
      if (own.t != nullptr) engine_->break_promise(own);
      drop_out(e, b, i, 1);
      continue;
    }
    const bool fatal = dies(n);
    if (starved) {
      n.doomed = fatal;
      if (!mine && !waits) {
        waits = fatal;
        if (!fatal) mine.emplace(settled_attempt{n.said, n.reason, n.failed, n.postponed});
      }
      if (!fatal) count(n, n.said, s.numbers);
      e.queue.put_back(*b.chunk, b.first + i);
      continue;
    }
    settled_attempt settled{std::move(n.said), n.reason, n.failed, n.postponed};
    n.said = outcome::success();
    count(n, settled.said, s.numbers);
    n.state = message_state::aside;
    n.doomed = false;
    n.dead = fatal;
    if (fatal) --e.pending;
    ++e.references;
    lock.unlock();
    if (fatal) give_back_pending();
    engine_->keep_promise(own, runner(e, *b.chunk, b.first + i), &settled);
  }
  if (mine || waits) return come_back_starved(r, a, drives, next, std::move(mine));
  if (next.t == nullptr) return drives ? go_on(r, a) : outcome::success();
  lock lock(s.mutex);
  if (r.number_ == e.driver && e.queue.waiting() != 0) {
    hire(e, next, lock);
    return outcome::success();
  }
  if (r.number_ == e.driver) e.driver = 0;
  lock.unlock();
  engine_->break_promise(next);
  return outcome::success();
}

// There was no memory for tasks of their own: the messages are back in the queue, and this driver stands for the
// first of them. Beside another driver it has nothing to do, and the message may come before its time.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::come_back_starved(runner& r, attempt& a, bool drives,
                                                                       const promise& next,
                                                                       std::optional<settled_attempt> mine) {
  entry& e = *r.entry_;
  if (next.t != nullptr) engine_->break_promise(next);
  if (!drives) drives = take_over(r);
  {
    lock lock(shard_of(e.hash).mutex);
    if (!drives || r.number_ != e.driver) return outcome::success();
    e.busy = false;
    r.number_ = e.driver = serials_.fetch_add(1) + 1;
  }
  if (!mine) return engine::anew(patience);
  return say(r, a, std::move(mine->said), mine->reason, mine->failed, mine->postponed);
}

// An attempt with a message that has a task of its own: what was said of it is said of the task.
template <class Key, class Message, class Hash, class KeyEqual>
outcome consumer_core<Key, Message, Hash, KeyEqual>::run_alone(runner& r, attempt& a) {
  entry& e = *r.entry_;
  shard& s = shard_of(e.hash);
  const range b{r.chunk_, r.at_, 1};
  message_note& n = b.note(0);
  bool again = false;
  {
    lock lock(s.mutex);
    n.state = message_state::out;
    n.settled = false;
    n.failed = a.number() - 1;  // a redrive begins anew
    again = std::exchange(n.dead, false);
    if (again) {
      ++e.pending;
      n.postponed = 0;
    }
    ++s.numbers.batches;
  }
  if (again && options_.max_pending) pending_.fetch_add(1, std::memory_order_relaxed);
  static_cast<void>(handle(e, b, a.number(), a));
  if (succeeded(n)) {
    destroy(b, 0);
    {
      lock lock(s.mutex);
      r.chunk_ = nullptr;
      free_place(e, b, 0);
      ++s.numbers.succeeded;
    }
    give_back_pending();
    return outcome::success();
  }
  bool fatal = dies(n);
  bool cancelled;
  outcome said = std::move(n.said);
  n.said = outcome::success();
  {
    lock lock(s.mutex);
    cancelled = n.cancelled;
    fatal = fatal && !cancelled;
    count(n, said, s.numbers);
    n.state = message_state::aside;
    n.dead = fatal;
    if (fatal) --e.pending;
  }
  if (fatal) give_back_pending();
  if (cancelled) engine::cancel_this(a);
  return say(std::move(said), n.reason);
}

// A runner is destroyed: its task is over, was cancelled, discarded or handed back.
template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::retire(runner& r) noexcept {
  entry& e = *r.entry_;
  consumer_core& core = e.core;
  shard& s = core.shard_of(e.hash);
  lock lock(s.mutex);
  if (r.chunk_ == nullptr) {
    if (e.driver == r.number_) e.driver = 0;
  } else if (core.giving_back_.load()) {
    message_note& n = r.chunk_->note(r.at_);
    if (std::exchange(n.dead, false)) ++e.pending;
    e.queue.put_back(*r.chunk_, r.at_);
  } else {
    const range b{r.chunk_, r.at_, 1};
    lock.unlock();
    destroy(b, 0);
    lock.relock();
    const message_note& n = b.note(0);
    const bool dead = n.dead;
    if (n.cancelled) ++s.numbers.cancelled;
    if (dead) ++e.pending;
    core.free_place(e, b, 0);
    if (!dead) {
      lock.unlock();
      core.give_back_pending();
      lock.relock();
    }
  }
  release(e, lock);
}

// ---- cancel

template <class Key, class Message, class Hash, class KeyEqual>
std::size_t consumer_core<Key, Message, Hash, KeyEqual>::cancel(entry& e) {
  std::size_t dropped;
  std::uint64_t stale;
  {
    lock lock(shard_of(e.hash).mutex);
    dropped = drop(e);
    stale = serials_.load();
  }
  return dropped + cancel_tasks(e, stale, dropped);
}

// Under the lock: what waits is dropped, what runs is not tried again; how many there were. A driver that does not
// run drives no more.
template <class Key, class Message, class Hash, class KeyEqual>
std::size_t consumer_core<Key, Message, Hash, KeyEqual>::drop(entry& e) noexcept {
  ++dropping_;
  std::size_t n = e.queue.drop_waiting();
  e.queue.for_each([&n](chunk& c, std::uint32_t i) {
    if (c.note(i).state != message_state::out) return;
    if (!c.note(i).cancelled) ++n;
    c.note(i).cancelled = true;
  });
  if (!e.busy) e.driver = 0;
  return n;
}

// Destroys what was dropped, and cancels the tasks of the key that have a message, or that drove before.
template <class Key, class Message, class Hash, class KeyEqual>
std::size_t consumer_core<Key, Message, Hash, KeyEqual>::cancel_tasks(entry& e, std::uint64_t stale,
                                                                      std::size_t dropped) {
  const undo over([this] {
    --dropping_;
    waiters_.notify();
  });
  if (dropped != 0) destroy_dropped(e);
  std::size_t alone = 0;
  engine_->cancel_some_of(e.key, [&alone, stale](task& t) {
    const runner& r = *std::launder(static_cast<const runner*>(callable_of(t)));
    if (r.chunk_ != nullptr) ++alone;
    return r.chunk_ != nullptr || r.number_ <= stale;
  });
  lock lock(shard_of(e.hash).mutex);
  shard_of(e.hash).numbers.cancelled += alone;
  return alone;
}

template <class Key, class Message, class Hash, class KeyEqual>
void consumer_core<Key, Message, Hash, KeyEqual>::destroy_dropped(entry& e) noexcept {
  shard& s = shard_of(e.hash);
  lock lock(s.mutex);
  std::size_t n = 0;
  for (range b = e.queue.first_dropped(); b.count != 0;) {
    lock.unlock();
    for (std::uint32_t i = 0; i != b.count; ++i) destroy(b, i);
    lock.relock();
    const range next = e.queue.next_dropped(b);
    for (std::uint32_t i = 0; i != b.count; ++i) free_place(e, b, i);
    n += b.count;
    b = next;
  }
  s.numbers.cancelled += n;
  lock.unlock();
  if (n != 0) give_back_pending(n);
}

}  // namespace turnkey::inline v1::detail
