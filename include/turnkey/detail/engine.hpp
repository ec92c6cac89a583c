// The corridor: the only part that sees more than one room. Threads come in with a submit, a permit, a wake or a
// request; each visits one shard under its lock, and does what followed from it afterwards, without a lock.
//
//   submit   -> visit: arrive                 -> line into the ready queue -> a permit, if one is worth it
//   permit   -> next line -> visit: start     -> callback -> visit: settle, start the next of the line -> ...
//   wake     -> visit: what is due comes back -> lines into the ready queue -> a permit
//
// This class knows nothing of the type of keys; keyed_engine adds it. It lives as long as any permit, wake or record.
//
//   Locks    a shard's, the gate's, the alarm's, the waiters': leaves, one at a time. Only drain() and what concerns
//            tasks of several keys hold shards' locks together, in index order.
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/detail/alarm.hpp>
#include <turnkey/detail/erased_executor.hpp>
#include <turnkey/detail/fate.hpp>
#include <turnkey/detail/permits.hpp>
#include <turnkey/detail/ready_queue.hpp>
#include <turnkey/detail/shard.hpp>
#include <turnkey/detail/valve.hpp>
#include <turnkey/detail/waiters.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>
#include <turnkey/pace.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

class joint;
class visit;

// An event before its key has a type.
struct raw_event {
  event_kind kind{};
  key_slot* slot = nullptr;
  std::uint64_t number = 0;
  task_id id{};
  turnkey::policy policy{};
  std::uint32_t attempt = 0;
  std::uint64_t fence = 0;
  time_point time{};
  time_point due{};
  std::optional<failure> error;
};

// The attempt that something is told of, and when that was.
struct moment {
  std::uint32_t attempt;
  std::uint64_t fence;
  time_point time;
};

// The memory of a task that is gone, on the way back to the heap.
struct heap_block {
  heap_block* next;
  std::size_t align;
};

// What the engine needs of options<Key>.
struct engine_settings {
  std::optional<retry_policy> retry;
  std::optional<std::size_t> max_in_flight;
  std::optional<std::size_t> max_pending;
  std::uint32_t turn_budget;
  duration turn_time;
  std::size_t max_dead;
  turnkey::dead_action dead_action;
  std::optional<duration> lease_time;
  turnkey::lease_expiry lease_expiry;
  time_source* time;
  std::uint64_t seed;
  std::uint64_t first_fence;
  bool observed;
  bool exact;  // somebody can tell the time of an event from one a little earlier
  bool keys_need_destruction;
  bool runs_inline;  // the executor is an inline_executor: it needs no permits
  std::size_t slot_size;
};

class engine : private wakeable {
 public:
  engine(const engine_settings& settings, std::unique_ptr<erased_executor> executor);
  engine(const engine&) = delete;
  engine& operator=(const engine&) = delete;
  virtual ~engine();

  // ---- lifetime: the handle, permits that are out, wakes and records each hold one
  void keep() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    // The last one must see all that the others did: release on every decrement, acquire on the last.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // ---- submit (detail/ending.hpp, detail/keyed_engine.hpp)
  [[nodiscard]] bool reserve_pending() noexcept;
  void unreserve_pending() noexcept;
  void give_back_pending() noexcept;
  void prepare(bool may_rest);
  void accept(visit& v, task& t, key_slot& slot, time_point now, duration delay) noexcept;
  void accept_settled(visit& v, task& t, key_slot& slot, time_point now, const outcome& said,
                      failure_reason reason) noexcept;

  // ---- permits (detail/dispatch.hpp)
  static void begin(permit& p) noexcept;
  static void gone(permit& p) noexcept;
  void push(key_slot* lines) noexcept;
  void push_with_place(key_slot* lines) noexcept;
  void push_and_serve(key_slot* lines) noexcept;
  void offer(offered_permit& p) noexcept;
  void ring() noexcept;
  void alarm_at(time_point time) noexcept;

  // ---- settling, dead tasks, cancel (detail/settle.hpp)
  void evict() noexcept;
  void forget(key_slot& slot) noexcept;
  void sweep(shard& s) noexcept;
  bool cancel(task_id id) noexcept;
  bool redrive(task_id id) noexcept;
  bool discard(task_id id) noexcept;
  template <class Each>
  std::size_t cancel_each(shard& s, Each each);
  std::size_t release_all() noexcept;
  template <class Which, class Do>
  std::size_t each_dead(shard& s, Which which, Do action);

  // ---- tasks of several keys (detail/several.hpp)
  void accept_several(joint& all, task& t, time_point now, duration delay) noexcept;
  void stir(joint& all, key_slot& slot) noexcept;
  std::uint64_t next_in_all(const task& t, std::uint64_t shard::*counter) noexcept;
  void dissolve(task& t) noexcept;
  [[nodiscard]] std::optional<why> why_over_all(task_id id) noexcept;
  [[nodiscard]] static bool concerns_several(const task& t) noexcept { return t.several || t.slot->has_parts(); }
  // Whether one is unfinished or dead. Relaxed is enough: a shard's lock publishes the ones that name its keys.
  [[nodiscard]] bool any_several() const noexcept { return several_.load(std::memory_order_relaxed) != 0; }

  // ---- for tasks that stand for something else, one after the other: what a consumer's driver says
  // It has succeeded with what it did, and goes on with more, after `delay` or at once behind what is ready; nothing is
  // counted, and it keeps its id. Not one of the user's outcomes.
  [[nodiscard]] static outcome anew(duration delay = {}) noexcept { return outcome{anew_kind, delay}; }
  [[nodiscard]] static outcome failed_by(std::exception_ptr error) noexcept {
    return outcome{outcome::kind::retry, {}, std::move(error)};
  }
  static void recount(attempt& a, std::uint32_t failed, std::uint32_t postponed) noexcept;
  static void cancel_this(attempt& a) noexcept { a.engine_.cancel(a.id()); }
  template <class Find, class Which>
  void cancel_some(shard& s, Find find, Which which);

  // ---- leases that outlive the callback (detail/leases.hpp)
  bool complete(task_id id, std::uint64_t serial, const outcome& said, failure_reason reason) noexcept;
  bool extend_lease(task_id id, std::uint64_t serial, duration d) noexcept;
  [[nodiscard]] static task* attempt_in(shard& s, task_id id, std::uint64_t serial) noexcept;
  [[nodiscard]] static std::stop_token token_of(task& t, std::stop_source& fresh) noexcept;

  // ---- control (detail/control.hpp)
  bool pause() noexcept;
  bool resume() noexcept;
  [[nodiscard]] bool paused() noexcept;
  bool step(std::uint64_t n) noexcept;
  bool step(task_id id);
  bool expedite(task_id id) noexcept;
  void set_max_in_flight(std::optional<std::size_t> limit) noexcept;
  void set_pace(const std::optional<pace>& p);
  bool resume(visit& v, key_slot& slot) noexcept;
  [[nodiscard]] why why_not_started() noexcept;

  // ---- ending (detail/ending.hpp)
  drain_result drain(const std::optional<time_point>& until);
  void close() noexcept;
  task* stop() noexcept;
  void dispose(task& t) noexcept;
  void bury() noexcept;
  void watch_room() noexcept;
  template <class Done>
  bool wait(const std::optional<time_point>& until, Done done) {
    return waiters_.wait(until, std::move(done));
  }
  void enter(visitor& me) noexcept;
  [[nodiscard]] bool enter_unless_stopped(visitor& me) noexcept;
  void leave(visitor& me) noexcept;
  [[nodiscard]] bool is_inside() const noexcept;
  [[nodiscard]] bool in_callback() const noexcept;

  // ---- looking (detail/ending.hpp)
  [[nodiscard]] stats look() noexcept;

  // ---- callables and their blocks
  // The callable of a task that ends is destroyed, once; `how` is what those learn who want to know.
  static void spend(task& t, task_state how) noexcept {
    if (!t.spent && t.ops->destroy != nullptr) {
      if (t.ops->fate == nullptr) [[likely]] {
        t.ops->destroy(callable_of(t));
      } else {
        spend_fated(t, how);
      }
    }
    t.spent = true;
  }
  [[gnu::noinline]] static void spend_fated(task& t, task_state how) noexcept {
    fate* const f = t.ops->fate(callable_of(t));
    if (f != nullptr) f->keep();
    t.ops->destroy(callable_of(t));
    if (f == nullptr) return;
    f->tell({task_id{t.id}, how, {}, nullptr});
    f->drop();
  }
  [[nodiscard]] static void* new_heap_block(const block& b) {
    return ::operator new (b.size, std::align_val_t{b.align > 16 ? b.align : 16});
  }
  static void free_heap_block(heap_block* b) noexcept {
    const std::size_t align = b->align;
    ::operator delete (b, std::align_val_t{align > 16 ? align : 16});
  }

  // A refused submit, once.
  void count_rejected() noexcept;

  // ---- the shards
  static constexpr std::uint32_t shard_bits = 4;
  static constexpr std::uint32_t shard_count = 1U << shard_bits;
  [[nodiscard]] shard& shard_of_hash(std::uint64_t hash) noexcept { return *shards_[hash & (shard_count - 1)]; }
  [[nodiscard]] shard& shard_of_id(std::uint64_t id) noexcept { return *shards_[id & (shard_count - 1)]; }
  [[nodiscard]] shard& shard_number(std::uint32_t number) noexcept { return *shards_[number]; }
  [[nodiscard]] key_slot& keyless() noexcept { return keyless_; }
  [[nodiscard]] time_point now() noexcept { return time_->now(); }

  // Now, unless stop() has begun on this thread: then the user's time source may be gone, and it is `last`.
  [[nodiscard]] time_point now_or(time_point last) noexcept {
    return over_.load(std::memory_order_relaxed) ? last : time_->now();
  }

  // Whether stop() has returned: nobody is told anything more.
  [[nodiscard]] bool silent() const noexcept { return silent_.load(std::memory_order_relaxed); }

  // Now, or a little earlier where nobody can tell; a user's time source is exact.
  [[nodiscard]] time_point lately() noexcept {
    return settings_.time == nullptr && !settings_.exact ? steady_time_source::lately() : time_->now();
  }
  [[nodiscard]] const engine_settings& settings() const noexcept { return settings_; }
  [[nodiscard]] std::uint32_t retry_attempts() const noexcept {
    return settings_.retry.value_or(never_retry).max_attempts;
  }
  [[nodiscard]] retry_policy retry_of(task& t) const noexcept {
    if (t.has_extra && extra_of(t).has_retry) return extra_of(t).retry;
    return settings_.retry.value_or(never_retry);
  }

 protected:
  virtual void publish(const raw_event& e) noexcept = 0;
  virtual void publish_evicted(const raw_event& e, task& t) noexcept = 0;
  virtual void destroy_slot(key_slot& slot) noexcept = 0;  // its key; the memory stays

 private:
  friend class visit;
  friend class joint;
  friend class turnkey::attempt;
  friend class turnkey::completion;

  // A worker: a permit that has begun, on its thread's stack.
  struct worker {
    visitor me{};
    detail::ticket ticket{};
    key_slot* line = nullptr;   // whose turn it is
    key_slot* lines = nullptr;  // that the turn has made ready, on the way to the ready queue
    std::uint32_t starts = 0;   // by this permit, over all its lines
    bool used = false;          // something was started with the ticket
    bool left_behind = false;   // and is deferred: it keeps the ticket's place
    time_point now{};           // as last read
    time_point began{};
    bool has_more = false;  // its key had more tasks when it started
  };
  static constexpr auto anew_kind = static_cast<outcome::kind>(5);
  static constexpr std::uint32_t max_starts = 256;  // of a permit; then the pool's other users get their share
  static constexpr duration max_time = std::chrono::milliseconds{10};

  // What came of a callback.
  struct result {
    turnkey::outcome outcome = turnkey::outcome::success();
    failure_reason reason = failure_reason::asked;
    std::exception_ptr unheard{};  // what it said after its completion: dies outside the lock
    bool deferred = false;         // the outcome does not count, unless it is an exception
    bool clock_read = false;       // worker::now is the time of its end
  };
  void turn(worker& w) noexcept;
  [[nodiscard]] task* begin_line(worker& w, shard& s) noexcept;
  [[nodiscard]] task* begin_line(visit& v, worker& w) noexcept;
  [[nodiscard]] task* begin_line_jointly(worker& w, shard& s) noexcept;
  [[nodiscard]] task* follow_line(worker& w, shard& s, task& t, result& done, bool more) noexcept;
  [[nodiscard]] task* follow_line(visit& v, worker& w, task& t, result& done, bool more) noexcept;
  [[nodiscard]] task* follow_line_jointly(worker& w, task& t, result& done, bool more) noexcept;
  [[nodiscard]] static const task* several_to_start(shard& s, const worker& w) noexcept;
  [[nodiscard]] result run(worker& w, task& t) noexcept;
  [[nodiscard]] bool seat(worker& w) noexcept TURNKEY_REQUIRES(gate_);
  void take_line(worker& w) noexcept TURNKEY_REQUIRES(gate_);
  [[nodiscard]] std::size_t startable() const noexcept TURNKEY_REQUIRES(gate_);
  void look_at_clock(worker& w) noexcept;
  [[nodiscard]] static task* passing(shard& s, worker& w) noexcept;
  void revoke(std::uint64_t epoch) noexcept;
  void reopen() noexcept;
  [[nodiscard]] offered_permit* next_offer() noexcept TURNKEY_REQUIRES(gate_);
  void serve(worker& w) noexcept;
  [[nodiscard]] bool others_wait() noexcept;
  [[nodiscard]] bool go_on(worker& w) noexcept;
  [[nodiscard]] bool hand_over(worker& w, offered_permit& successor) noexcept;
  [[nodiscard]] task* start_next(visit& v, worker& w) noexcept;
  void die(visit& v, task& t, std::exception_ptr why, failure_reason reason, const moment& end) noexcept;
  void refused(offered_permit& p, std::exception_ptr error) noexcept;
  void tell(event_kind kind, std::exception_ptr error) noexcept;
  void say_goodbye(task& t) noexcept;
  void settle(visit& v, task& t, const outcome& said, failure_reason reason, time_point now) noexcept;
  [[nodiscard]] bool conclude(visit& v, task& t, result& done, time_point now) noexcept;
  void lose(visit& v, task& t, time_point now) noexcept;
  [[nodiscard]] bool expire_next(shard& s, time_point now, std::optional<time_point>& next) noexcept;
  void rest(visit& v, task& t, time_point due) noexcept;
  void wake_up(visit& v, task& t) noexcept;
  void finish(visit& v, task& t, event_kind kind, const moment& end) noexcept;
  void revive(visit& v, task& t) noexcept;
  void leave_store(visit& v, task& t) noexcept;
  void consider(joint& all, group& g) noexcept;
  void set_reserving(joint& all, group& g, bool reserving) noexcept;
  void set_granted(joint& all, group& g) noexcept;
  void enter_lines(joint& all, group& g) noexcept;
  void leave_lines(joint& all, group& g) noexcept;
  [[nodiscard]] std::uint64_t start_in_all(visit& v, task& t) noexcept;
  void come_back_in_all(visit& v, task& t) noexcept;
  void come_back_behind_in_all(visit& v, task& t) noexcept;
  void rest_in_all(visit& v, task& t) noexcept;
  void finish_in_all(visit& v, task& t) noexcept;
  void quit_all(visit& v, task& t) noexcept;
  void others_changed(visit& v, task& t) noexcept;
  void rise_over_all(task& t) noexcept;
  bool cancel_in(visit& v, task& t, time_point now) noexcept;
  void discard_in(visit& v, task& t, time_point now) noexcept;
  template <class Do>
  bool with_task(task_id id, Do action) noexcept;
  template <class Which>
  void signal_running(shard& s, Which which) noexcept;
  template <class Do>
  void each_shard_jointly_if_needed(Do action) noexcept;
  offered_permit& made(offered_permit& p) noexcept;
  void add_permit() noexcept TURNKEY_REQUIRES(gate_);
  [[nodiscard]] bool quiet() noexcept;
  [[nodiscard]] bool stalled() noexcept;
  void wait_for_visitors() noexcept;
  [[nodiscard]] task* take_unfinished() noexcept;
  void take_unfinished(visit& v, task*& undone, time_point now) noexcept;
  void tell_undone(task* undone) noexcept;
  void destroy_executor(bool inside) noexcept;

  // Read by every submit and every worker, written next to never: kept apart from what changes.
  const engine_settings settings_;
  std::unique_ptr<erased_executor> executor_;  // destroyed by stop()
  std::unique_ptr<steady_time_source> own_time_;
  time_source* time_;
  std::array<std::unique_ptr<shard>, shard_count> shards_;
  std::atomic<bool> timing_{false};          // own_time_ has been started
  std::atomic<bool> paced_{false};           // written under the gate's lock; a hint to read the clock
  std::atomic<bool> permits_scarce_{false};  // written under the gate's lock; a hint for the next submit
  // Written once by stop(). Relaxed is enough: they matter to the thread that stops inside its own callback; everybody
  // else is waited for, or is none of stop()'s business.
  std::atomic<bool> over_{false};
  std::atomic<bool> silent_{false};

  alignas(64) mutable mutex gate_;
  ready_queue ready_ TURNKEY_GUARDED_BY(gate_);
  valve valve_ TURNKEY_GUARDED_BY(gate_);
  permits permits_ TURNKEY_GUARDED_BY(gate_);
  bool stopping_ TURNKEY_GUARDED_BY(gate_) = false;
  bool stopped_ TURNKEY_GUARDED_BY(gate_) = false;
  std::size_t offering_ TURNKEY_GUARDED_BY(gate_) = 0;  // calls of the executor under way
  bool executor_doomed_ TURNKEY_GUARDED_BY(gate_) = false;
  std::uint64_t refusals_ TURNKEY_GUARDED_BY(gate_) = 0;
  std::uint64_t lost_ TURNKEY_GUARDED_BY(gate_) = 0;
  std::uint64_t lost_untold_ TURNKEY_GUARDED_BY(gate_) = 0;  // the observer does not know yet

  alignas(64) std::atomic<std::size_t> references_{1};
  std::atomic<std::size_t> dead_{0};      // in all stores
  std::atomic<std::size_t> pending_{0};   // counted only where max_pending is set
  std::atomic<std::uint64_t> deaths_{0};  // orders the dead of different shards
  std::atomic<std::size_t> several_{0};   // tasks of several keys that are not gone
  key_slot keyless_{0};
  alarm alarm_;
  waiters waiters_;
};

// Registers a thread as inside for a scope in which it may call the user's code; false once stop() has begun.
class inside_scope {
 public:
  explicit inside_scope(engine& engine) noexcept : engine_(engine), entered_(engine.enter_unless_stopped(me_)) {
    engine_.keep();
  }
  ~inside_scope() {
    if (entered_) engine_.leave(me_);
    engine_.drop();
  }
  inside_scope(const inside_scope&) = delete;
  inside_scope& operator=(const inside_scope&) = delete;

  explicit operator bool() const noexcept { return entered_; }

 private:
  engine& engine_;  // kept alive: the user's code may destroy the scheduler
  visitor me_;
  bool entered_;
};

}  // namespace turnkey::inline v1::detail
