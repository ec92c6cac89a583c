// The door: what a user calls, and what each call promises. No logic is here; the map of the house is in turnkey.hpp.
#pragma once

#include <turnkey/detail/erased_executor.hpp>
#include <turnkey/detail/keyed_engine.hpp>
#include <turnkey/detail/validate.hpp>
#include <turnkey/event.hpp>
#include <turnkey/executor.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/keys.hpp>
#include <turnkey/options.hpp>
#include <turnkey/pace.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/task_record.hpp>

#include <concepts>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {
template <class Scheduler>
class entry;
template <class Key, class Message, class Hash, class KeyEqual>
class consumer;

// Runs tasks on the user's executor so that what belongs together by key keeps the policy it was submitted with:
// parallel, exclusive or ordered, through failures, retries, cancellation and shutdown.
//
// A task is accepted by submit(), gets an id, and reaches exactly one final state: succeeded, dead, cancelled, or
// undone (handed back by stop()). Exclusive and ordered tasks of a key hold its lease while they run, and never
// overlap; ordered ones start only when every task of the key with a smaller id is finished. Between two attempts a
// task holds neither lease nor thread. Keys never wait for each other.
//
//   Needs    Key can be hashed, compared and moved; functions that return keys need it copyable.
//   Threads  every member may be called from any thread at once, also from inside callbacks and observers; the
//            destructor and the constructor as usual. "Inside" nothing waits.
//   Sees     what the submitter did before submit() is visible to the callback; what an attempt did, to the next
//            attempt of its task and to the next lease of its key; and to an ordered task, what every earlier task of
//            its key did. So plain data that only exclusive or ordered tasks of one key touch needs no lock.
//   From     the message-key policies of SQLStreams, the ordering keys of Google Pub/Sub.
template <class Key, class Hash = std::hash<Key>, class KeyEqual = detail::equal_keys>
class scheduler {
 public:
  // Schedules onto `executor`: anything that can be called with a turnkey::work, which it calls on some thread.
  //   Needs    an lvalue executor that cannot be copied outlives stop(). A copyable one is copied, an rvalue is moved
  //            in; both are destroyed by stop() or the destructor.
  //   Throws   std::invalid_argument that names the option and its value; std::bad_alloc.
  template <class E>
    requires(executor<std::remove_reference_t<E>> && !std::same_as<std::remove_cvref_t<E>, scheduler>)
  explicit scheduler(E&& executor, options<Key> options = {}, Hash hash = {}, KeyEqual equal = {})
      : engine_(make(std::forward<E>(executor), std::move(options), std::move(hash), std::move(equal))) {}

  // Is stop() with the list dropped: callbacks that run are waited for, all others are destroyed. Permits that the
  // executor still has do nothing, at any later time. Inside its own callback it waits for nobody.
  ~scheduler() {
    static_cast<void>(stop());
    engine_->bury();
    engine_->drop();
  }
  scheduler(const scheduler&) = delete;
  scheduler& operator=(const scheduler&) = delete;

  // ---- submitting

  // Puts `callback` in line for `key`; it starts when its policy allows.
  //   Needs    the callback is callable as void(), outcome(), void(attempt&) or outcome(attempt&), and movable.
  //   Gives    the id of the accepted task.
  //   Throws   rejected with the reason; std::bad_alloc; std::system_error when the time source finds no thread; what
  //            hashing, comparing, copying or moving throws. Nothing has changed then, but a key that can only be moved
  //            may have been.
  //   Units    delays are steady-clock durations; 0 or less is at once.
  //   Cost     one allocation at most, none for callables up to 48 bytes once blocks are recycled; O(1) amortised.
  template <class F>
  task_id submit(const Key& key, F&& callback) {
    return submit(key, task_options{}, std::forward<F>(callback));
  }
  template <class F>
  task_id submit(Key&& key, F&& callback) {
    return submit(std::move(key), task_options{}, std::forward<F>(callback));
  }
  template <class F>
  task_id submit(const Key& key, const task_options& options, F&& callback) {
    return accepted(engine_->take(&key, options, std::forward<F>(callback)), options);
  }
  template <class F>
  task_id submit(Key&& key, const task_options& options, F&& callback) {
    return accepted(engine_->take(&key, options, std::forward<F>(callback)), options);
  }

  // The same for a task without a key, which runs parallel; exclusive or ordered asked for here is refused.
  template <class F>
  task_id submit(F&& callback) {
    return submit(task_options{}, std::forward<F>(callback));
  }
  template <class F>
  task_id submit(const task_options& options, F&& callback) {
    return accepted(engine_->take(no_key, options, std::forward<F>(callback)), options);
  }

  // The same for a task of several keys, exclusive or ordered: it stands in the line of each at one instant, and holds
  // the leases of all while it runs, or none. However such tasks overlap they never wait for each other in a circle.
  // Once only leases keep it from starting it reserves its keys: nobody with a larger id takes their leases any more.
  //   Needs    at least one key; a list that names one key only is a submit with that key.
  //   Cost     the locks of its keys' shards together, at submit and at start; three allocations more; O(1) for each
  //            key. While such a task is in line, what settles on its keys takes all shards' locks.
  template <class K, class F>
  task_id submit(keys<K> all, F&& callback) {
    return submit(std::move(all), task_options{}, std::forward<F>(callback));
  }
  template <class K, class F>
  task_id submit(keys<K> all, const task_options& options, F&& callback) {
    keys<Key> list(std::move(all));
    const submit_result taken = engine_->take(list, options, std::forward<F>(callback));
    if (taken.reason() == reject_reason::needs_key) static_cast<void>(tried(taken)), detail::throw_no_keys();
    return accepted(taken, options);
  }

  // Takes a task that a scheduler handed back, with its keys, policy and callback, as a new one.
  //   Needs    `record` is not empty. It is afterwards, unless this throws.
  task_id submit(task_record<Key>&& record) { return accepted(engine_->take(record), {}); }

  // As submit(), but a refusal is returned, not thrown, and leaves `callback` unmoved.
  template <class F>
  submit_result try_submit(const Key& key, F&& callback) {
    return tried(engine_->take(&key, {}, std::forward<F>(callback)));
  }
  template <class F>
  submit_result try_submit(Key&& key, F&& callback) {
    return tried(engine_->take(&key, {}, std::forward<F>(callback)));
  }
  template <class F>
  submit_result try_submit(const Key& key, const task_options& options, F&& callback) {
    return tried(engine_->take(&key, options, std::forward<F>(callback)));
  }
  template <class F>
  submit_result try_submit(Key&& key, const task_options& options, F&& callback) {
    return tried(engine_->take(&key, options, std::forward<F>(callback)));
  }
  template <class K, class F>
  submit_result try_submit(keys<K> all, F&& callback) {
    return try_submit(std::move(all), task_options{}, std::forward<F>(callback));
  }
  template <class K, class F>
  submit_result try_submit(keys<K> all, const task_options& options, F&& callback) {
    keys<Key> list(std::move(all));
    return tried(engine_->take(list, options, std::forward<F>(callback)));
  }
  template <class F>
  submit_result try_submit(F&& callback) {
    return tried(engine_->take(no_key, {}, std::forward<F>(callback)));
  }
  template <class F>
  submit_result try_submit(const task_options& options, F&& callback) {
    return tried(engine_->take(no_key, options, std::forward<F>(callback)));
  }

  // As try_submit(), but waits up to `timeout` of real steady time while the answer is `full` or `key_full`; close()
  // and stop() end the wait. Inside it does not wait.
  template <class F>
  submit_result submit_for(duration timeout, const Key& key, F&& callback) {
    return submit_for(timeout, key, task_options{}, std::forward<F>(callback));
  }
  template <class F>
  submit_result submit_for(duration timeout, const Key& key, const task_options& options, F&& callback) {
    return when_there_is_room(timeout, [&] { return engine_->take(&key, options, std::forward<F>(callback)); });
  }
  template <class F>
  submit_result submit_for(duration timeout, Key&& key, F&& callback) {
    return submit_for(timeout, std::move(key), task_options{}, std::forward<F>(callback));
  }
  template <class F>
  submit_result submit_for(duration timeout, Key&& key, const task_options& options, F&& callback) {
    return when_there_is_room(timeout, [&] { return engine_->take(&key, options, std::forward<F>(callback)); });
  }
  template <class K, class F>
  submit_result submit_for(duration timeout, keys<K> all, F&& callback) {
    return submit_for(timeout, std::move(all), task_options{}, std::forward<F>(callback));
  }
  template <class K, class F>
  submit_result submit_for(duration timeout, keys<K> all, const task_options& options, F&& callback) {
    keys<Key> list(std::move(all));
    return when_there_is_room(timeout, [&] { return engine_->take(list, options, std::forward<F>(callback)); });
  }
  template <class F>
  submit_result submit_for(duration timeout, F&& callback) {
    return submit_for(timeout, task_options{}, std::forward<F>(callback));
  }
  template <class F>
  submit_result submit_for(duration timeout, const task_options& options, F&& callback) {
    return when_there_is_room(timeout, [&] { return engine_->take(no_key, options, std::forward<F>(callback)); });
  }

  // Lets a coroutine wait for the lease of `key`: defined in turnkey/coroutine.hpp.
  [[nodiscard]] entry<scheduler> enter(Key key, turnkey::policy policy);
  [[nodiscard]] entry<scheduler> enter();

  // ---- cancelling

  // True when the task was unfinished. One that does not run is cancelled at once, and what waited for it goes on. One
  // that runs is signalled through its stop token and keeps its lease until it returns: success then makes it
  // succeeded, anything else cancelled; it never starts again.
  //   Cost     O(1); O(log n) for a task that rests until a time.
  bool cancel(task_id id) noexcept { return engine_->cancel(id); }

  // The same for all unfinished tasks of a key, or of all; how many there were.
  //   Throws   what hashing and comparing keys throw.
  std::size_t cancel(const Key& key) { return engine_->cancel_key(key); }
  std::size_t cancel_all() noexcept {
    return sum_of_shards([this](detail::shard& s) {
      return engine_->cancel_each(s, [](detail::shard& each, auto cancel) { each.ids.for_each(cancel); });
    });
  }

  // ---- dead tasks

  // Those that are kept, the oldest first.
  //   Throws   std::bad_alloc; what copying a key throws.
  [[nodiscard]] std::vector<dead_task<Key>> dead_tasks() { return list().dead(); }

  // A new life for a dead task, with fresh attempts, under its id and in the place of its id: before waiting larger
  // ids, never before one that runs. False when there is no such dead task, or after stop(). Limits do not count.
  //   Cost     the number of unfinished tasks of its key with smaller ids.
  bool redrive(task_id id) noexcept { return engine_->redrive(id); }
  std::size_t redrive(const Key& key) {
    return engine_->each_dead_of(key, [this](task_id id) { return engine_->redrive(id); });
  }
  std::size_t redrive_all() noexcept {
    return sum_of_shards([this](detail::shard& s) {
      return engine_->each_dead(s, all_of_them, [this](task_id id) { return engine_->redrive(id); });
    });
  }

  // Drops dead tasks; what they held goes on.
  bool discard(task_id id) noexcept { return engine_->discard(id); }
  std::size_t discard(const Key& key) {
    return engine_->each_dead_of(key, [this](task_id id) { return engine_->discard(id); });
  }
  std::size_t discard_all() noexcept {
    return sum_of_shards([this](detail::shard& s) {
      return engine_->each_dead(s, all_of_them, [this](task_id id) { return engine_->discard(id); });
    });
  }

  // Ends the hold of a key that its dead tasks keep (dead_action::hold_key); false when there is none.
  bool release(const Key& key) { return engine_->release_key(key); }

  // Ends all holds; how many keys were held.
  std::size_t release_all() noexcept { return engine_->release_all(); }

  // The keys that are held.
  //   Throws   std::bad_alloc; what copying a key throws.
  //   Cost     O(keys).
  [[nodiscard]] std::vector<Key> held_keys() {
    return list().keys([](const detail::key_slot& slot) { return slot.held(); });
  }

  // ---- control: each of these is independent of the others, live, and allowed inside

  // Nothing starts any more once pause() has returned, until resume(); what runs finishes, timers go on. Each says
  // whether it changed anything; after stop() neither does. A callback whose task became running before may still be
  // about to begin. drain() waits for what is paused.
  //   Cost     every shard's lock, one after the other.
  bool pause() noexcept { return engine_->pause(); }
  bool resume() noexcept { return engine_->resume(); }
  [[nodiscard]] bool paused() const noexcept { return engine_->paused(); }

  // The same for one key, also one that was never seen: it costs an entry until it is resumed.
  //   Throws   std::bad_alloc; what hashing, comparing and copying keys throw.
  bool pause(const Key& key) { return engine_->pause_key(key); }
  bool resume(const Key& key) { return engine_->resume_key(key); }

  // While all is paused: the next `n` starts pass that pause, now or when there is something to start; a key's pause,
  // holds, limits and the pace still apply. False when not paused. resume() drops steps that were not used.
  bool step(std::size_t n = 1) noexcept { return engine_->step(n); }

  // The same for one task that is `ready`; false for any other, whose find(id)->why says what keeps it.
  // Asked again before it has started, it says true and changes nothing.
  //   Throws   std::bad_alloc.
  //   Cost     the number of such tasks that have not started yet.
  bool step(task_id id) { return engine_->step(id); }

  // A delayed task is due at once; false for any other.
  bool expedite(task_id id) noexcept { return engine_->expedite(id); }

  // From now on at most this many tasks run at once; none: no limit. More start at once where there is room now, and
  // nothing that runs is stopped.
  //   Throws   std::invalid_argument for 0: that would be a pause.
  void set_max_in_flight(std::optional<std::size_t> limit) {
    detail::check_limit(limit);
    engine_->set_max_in_flight(limit);
  }

  // From now on no more tasks start than the pace allows; none: no pace. What has started before does not count.
  //   Throws   std::invalid_argument that names the field and its value; std::system_error when the time source finds
  //            no thread.
  void set_pace(const std::optional<turnkey::pace>& pace) {
    detail::check_pace(pace);
    engine_->set_pace(pace);
  }

  // The keys that are paused.
  //   Throws   std::bad_alloc; what copying a key throws.
  //   Cost     O(keys).
  [[nodiscard]] std::vector<Key> paused_keys() {
    return list().keys([](const detail::key_slot& slot) { return slot.paused(); });
  }

  // ---- looking

  [[nodiscard]] turnkey::stats stats() const noexcept { return engine_->look(); }

  // An unfinished task, and the one reason that keeps it from running; nothing for finished and unknown ids.
  //   Throws   std::bad_alloc; what copying a key throws.
  //   Cost     O(1).
  [[nodiscard]] std::optional<task_info<Key>> find(task_id id) { return list().find(id); }

  // The n keys with the most unfinished tasks, the deepest first.
  //   Throws   std::bad_alloc; what copying a key throws.
  //   Cost     O(keys * log n), a shard's lock at a time.
  [[nodiscard]] std::vector<key_info<Key>> busiest_keys(std::size_t n) { return list().busiest(n); }

  // ---- ending

  // Waits until nothing is unfinished, retries and what is submitted meanwhile included, every callback but those of
  // dead tasks is destroyed, and every observer call about them has returned. The end of every attempt happens before
  // it returns. Inside, it does not wait: would_deadlock.
  drain_result drain() { return engine_->drain(std::nullopt); }

  // The same, for at most `timeout` of real steady time.
  drain_result drain_for(duration timeout) { return engine_->drain(detail::later(clock::now(), timeout)); }

  // From now on submits are refused, but follow-up work from inside callbacks is accepted until stop(). Idempotent.
  void close() noexcept { engine_->close(); }

  // Closes, starts nothing more, signals what runs, waits for executing callbacks, and returns every unfinished task.
  // Afterwards the executor and the observer are not called any more, and the executor may be destroyed with permits
  // in it. A second stop() waits likewise and returns nothing. Inside it waits for nobody.
  //   Cost     O(unfinished tasks); it allocates nothing.
  [[nodiscard]] task_records<Key> stop() noexcept { return engine_->stop_all(); }

 private:
  template <class, class, class, class>
  friend class consumer;

  using engine_type = detail::keyed_engine<Key, Hash, KeyEqual>;
  static constexpr Key* no_key = nullptr;

  detail::listing<Key> list() noexcept { return detail::listing<Key>(*engine_); }

  static constexpr auto all_of_them = [](const detail::task&) { return true; };

  template <class E>
  static engine_type* make(E&& executor, options<Key> options, Hash hash, KeyEqual equal) {
    detail::check(options);
    const auto settings = detail::settings_of(options, std::same_as<std::remove_cvref_t<E>, inline_executor>);
    return new engine_type(std::move(options), settings, detail::erase_executor(std::forward<E>(executor)),
                           std::move(hash), std::move(equal));
  }

  submit_result tried(const submit_result& result) const noexcept {
    if (!result) engine_->count_rejected();
    return result;
  }

  task_id accepted(const submit_result& result, const task_options& options) const {
    if (!tried(result)) detail::throw_rejected(*result.reason(), options, engine_->set());
    return result.value();
  }

  template <class Submit>
  submit_result when_there_is_room(duration timeout, Submit submit) {
    const auto full = [](const submit_result& r) {
      return r.reason() == reject_reason::full || r.reason() == reject_reason::key_full;
    };
    submit_result result = submit();
    if (!full(result) || engine_->is_inside()) return tried(result);
    engine_->wait(detail::later(clock::now(), timeout), [&] {
      engine_->watch_room();
      result = submit();
      return !full(result);
    });
    return tried(result);
  }

  template <class Do>
  std::size_t sum_of_shards(Do action) {
    std::size_t sum = 0;
    for (std::uint32_t i = 0; i != detail::engine::shard_count; ++i) sum += action(engine_->shard_number(i));
    return sum;
  }

  engine_type* const engine_;
};

}  // namespace turnkey::inline v1
