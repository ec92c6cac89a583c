// co_await scheduler.enter(key, policy): a coroutine waits for the lease of a key as a task does, and holds it across
// whatever it awaits. For coroutines of any type; there is no task type here. Not included by turnkey.hpp.
#pragma once

#include <turnkey/task_error.hpp>
#include <turnkey/turnkey.hpp>

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <utility>

namespace turnkey::inline v1 {

// What a coroutine has after enter(): it runs as an attempt of its own, with a lease unless it is parallel, until this
// is settled or destroyed, which is a success. Move-only; one that was moved from or default-constructed holds nothing.
// After stop() it is inert.
//   Threads  a value; but the tokens it gives may be used anywhere. Destroying it may run other tasks, where the
//            executor runs them inline.
//   Cost     as of a completion.
class lease {
 public:
  lease() noexcept = default;
  explicit lease(completion&& held) noexcept : held_(std::move(held)), holds_(true) {}
  lease(lease&& other) noexcept : held_(std::move(other.held_)), holds_(std::exchange(other.holds_, false)) {}
  lease& operator=(lease&& other) noexcept {
    lease was(std::move(*this));  // is released at the end, when this one has the other already
    held_ = std::move(other.held_);
    holds_ = std::exchange(other.holds_, false);
    return *this;
  }
  ~lease() { release(); }

  // Whether it is still to be settled.
  explicit operator bool() const noexcept { return holds_; }

  // Ends it now, with success. As settle().
  bool release() noexcept { return settle(outcome::success()); }

  // Ends it with an outcome. There is one attempt: anything but success makes the task a dead one, which stays in the
  // store like others; redriven it succeeds at once, since nobody waits for it any more. False when it holds nothing,
  // when the lease was lost, and after stop().
  bool settle(const outcome& said) noexcept {
    if (!std::exchange(holds_, false)) return false;
    return held_.settle(said.what() == outcome::kind::postpone ? outcome::dead() : said);
  }

  // Of its attempt; these stay after it was settled.
  [[nodiscard]] task_id id() const noexcept { return held_.id(); }
  [[nodiscard]] std::uint64_t fence() const noexcept { return held_.fence(); }  // 0: parallel, it holds no key's lease

  // Whether it should end: cancelled, stopped, its time over; also when it has ended.
  [[nodiscard]] bool stop_requested() const noexcept { return held_.stop_requested(); }
  [[nodiscard]] std::stop_token stop_token() const { return held_.stop_token(); }  // Throws std::bad_alloc.

  // The lease ends `d` from now, if there is a lease_time; false when it is lost already, or settled.
  bool extend_lease(duration d) const noexcept { return held_.extend_lease(d); }

 private:
  completion held_;
  bool holds_ = false;
};

namespace detail {

// A coroutine in line. Its task's callable shares it, and the entry, which lives in the coroutine's frame.
class waiter final : public fate {
 public:
  explicit waiter(engine& engine) noexcept : engine_(engine) { engine.keep(); }

  // The coroutine is suspended from now on.
  void suspend(std::coroutine_handle<> coroutine) {
    if (coroutine_) throw std::logic_error("turnkey: an entry is awaited once; call enter() again");
    coroutine_ = coroutine;
  }

  void named(task_id id) noexcept { id_.store(static_cast<std::uint64_t>(id), std::memory_order_relaxed); }
  [[nodiscard]] std::optional<task_id> id() const noexcept {
    const std::uint64_t id = id_.load(std::memory_order_relaxed);
    return id != 0 ? std::optional(task_id{id}) : std::nullopt;
  }

  // The task starts: the coroutine goes on here, inside its callback.
  void start(attempt& a) {
    if (!claim()) return;  // it does not wait any more
    granted_.emplace(a.defer());
    coroutine_.resume();
  }

  // The coroutine has been resumed.
  [[nodiscard]] lease result() {
    if (!granted_) std::rethrow_exception(error_of(refused_));
    return lease(std::move(*granted_));
  }

  // The frame of the coroutine goes, maybe while it waits.
  void abandon() noexcept {
    if (!claim()) return;
    if (const auto waiting = id()) engine_.cancel(*waiting);
  }

 private:
  ~waiter() override { engine_.drop(); }

  void told(const ending& how) noexcept override {
    refused_ = how;
    try {
      coroutine_.resume();
    } catch (...) {  // of a promise type that lets exceptions out: there is nobody to give it to
    }
  }

  engine& engine_;  // kept alive
  std::coroutine_handle<> coroutine_;
  std::atomic<std::uint64_t> id_{0};  // no task has this one. Relaxed: it says nothing of anything else
  std::optional<completion> granted_;
  ending refused_;
};

// The callback of a task that a coroutine waits for.
class coroutine_start {
 public:
  explicit coroutine_start(const fate_ptr<waiter>& who) noexcept : waiter_(who) {}
  void operator()(attempt& a) { waiter_->start(a); }
  [[nodiscard]] detail::fate* fate() const noexcept { return waiter_.get(); }

 private:
  fate_ptr<waiter> waiter_;
};

}  // namespace detail

// What scheduler::enter() gives: it is awaited, once, and gives a lease.
//   Threads  id() may be asked from any thread as long as this lives.
template <class Scheduler>
class entry;

template <class Key, class Hash, class KeyEqual>
class [[nodiscard]] entry<scheduler<Key, Hash, KeyEqual>> {
 public:
  entry(entry&&) noexcept = default;
  entry& operator=(entry&&) = delete;
  ~entry() {
    if (waiter_.get() != nullptr) waiter_->abandon();
  }

  // Of the task that waits, for cancel() and find(); none before it is in line.
  [[nodiscard]] std::optional<task_id> id() const noexcept { return waiter_->id(); }

  [[nodiscard]] bool await_ready() const noexcept { return false; }

  // Once the task is accepted the coroutine may run, and end, on another thread: nothing of its frame is touched then.
  // Inlined into the frame's code some compilers would do so (LLVM issue 56301).
  [[gnu::noinline]] void await_suspend(std::coroutine_handle<> coroutine) {
    const detail::fate_ptr<detail::waiter> waiter = waiter_;
    waiter->suspend(coroutine);
    try {
      waiter->named(submit(*scheduler_, std::move(key_), options_, detail::coroutine_start(waiter)));
    } catch (...) {
      if (waiter->claim()) throw;
    }
  }

  [[nodiscard]] lease await_resume() { return waiter_->result(); }

 private:
  friend class scheduler<Key, Hash, KeyEqual>;

  entry(scheduler<Key, Hash, KeyEqual>& s, detail::engine& engine, std::optional<Key>&& key,
        std::optional<turnkey::policy> policy)
      : scheduler_(&s), waiter_(new detail::waiter(engine)), key_(std::move(key)), options_{.policy = policy} {
    options_.retry = detail::never_retry;  // in a scheduler that its record goes to, too
  }

  // By value: the frame may be gone before it returns.
  static task_id submit(scheduler<Key, Hash, KeyEqual>& s, std::optional<Key> key, task_options options,
                        detail::coroutine_start start) {
    return key ? s.submit(std::move(*key), options, std::move(start)) : s.submit(options, std::move(start));
  }

  scheduler<Key, Hash, KeyEqual>* scheduler_;
  detail::fate_ptr<detail::waiter> waiter_;
  std::optional<Key> key_;
  task_options options_;
};

// Waits, in a coroutine of any type, until a task of `key` with this policy may start, and holds the lease until it is
// destroyed:
//
//   auto lease = co_await s.enter("account 7", turnkey::policy::exclusive);
//
// The place in line is that of the moment of co_await. It is one task with one attempt, for limits, pauses, stats,
// events and drain() too, and it runs until the lease is settled, however often the coroutine is suspended meanwhile.
// The coroutine goes on inside a callback, on the executor; who enters a key whose lease it holds, or drains while it
// holds one elsewhere, waits for itself.
//   Throws   rejected and whatever submit() throws, out of co_await. Out of co_await too, when the wait ends otherwise:
//            task_cancelled; task_undone when the scheduler was stopped and the record that holds the waiter is
//            dropped, the destructor included. A record that is submitted to another scheduler waits there.
//   Threads  in these cases the coroutine goes on on the thread that cancels, or drops the record, outside all locks.
//            A frame may be destroyed while it waits: the task is withdrawn. As with any frame it may not be destroyed
//            while it is being resumed; use cancel() from threads that cannot know.
//   Cost     an allocation beside those of submit().
template <class Key, class Hash, class KeyEqual>
entry<scheduler<Key, Hash, KeyEqual>> scheduler<Key, Hash, KeyEqual>::enter(Key key, turnkey::policy policy) {
  return entry<scheduler>(*this, *engine_, std::move(key), policy);
}

// The same without a key: it runs parallel, and waits for pauses, max_in_flight and the pace only.
template <class Key, class Hash, class KeyEqual>
entry<scheduler<Key, Hash, KeyEqual>> scheduler<Key, Hash, KeyEqual>::enter() {
  return entry<scheduler>(*this, *engine_, std::nullopt, std::nullopt);
}

}  // namespace turnkey::inline v1
