// Messages in place of callbacks: one policy, one handler, and batches of what waits. Not included by turnkey.hpp.
//
// One message's way:
//   send      hash; the key's queue, under its lock: the message moves into its place, where it stays. Where the key
//             has no driver yet, one is submitted: a task of the scheduler, under the key, with the policy.
//   driver    takes the next messages that lie side by side, at most max_batch, and calls the handler with them,
//             without a lock. What has succeeded is destroyed. While more waits it goes on anew, behind what is ready.
//   failure   ordered: the message stays in front, and the driver is the task that is tried again for it. Else it goes
//             on in a task of its own, and the others pass.
//   death     ordered: the driver dies with its message, so the store has it under an id in front of all that waits,
//             and another driver goes on, or is held. Else the task of its own dies.
#pragma once

#include <turnkey/batch.hpp>
#include <turnkey/detail/consumer_core.hpp>
#include <turnkey/detail/consumer_run.hpp>
#include <turnkey/executor.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>
#include <turnkey/scheduler.hpp>

#include <atomic>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {

// What a consumer counts. Exact when quiet.
struct consumer_stats {
  std::uint64_t accepted = 0;         // messages
  std::uint64_t batches = 0;          // calls of the handler
  std::uint64_t succeeded = 0;        // messages
  std::uint64_t failed_attempts = 0;  // of messages: a batch of ten that throws counts ten
  std::uint64_t postponed = 0;        // of messages
  std::uint64_t died = 0;             // messages
  std::uint64_t cancelled = 0;        // messages
  std::uint64_t rejected = 0;         // messages
  std::uint64_t waiting = 0;          // now, in queues
  std::uint64_t unfinished = 0;       // now: waiting, running, between two attempts
  std::uint64_t dead = 0;             // now, in the store
  stats tasks{};                      // of the scheduler below, where batches and lone messages are tasks
};

// What stop() returns: the messages that were not handled, those of a key together and in order.
//   Threads  a value: one thread at a time.
template <class Key, class Message, class Hash = std::hash<Key>, class KeyEqual = detail::equal_keys>
class unhandled_messages {
  using core = detail::consumer_core<Key, Message, Hash, KeyEqual>;
  using entry = typename core::entry;
  using chunk = typename core::chunk;

 public:
  // One of them; the message may be moved from.
  struct unhandled {
    const Key& key;
    Message& message;
    std::uint32_t failed_attempts;
  };

  class iterator {
   public:
    using value_type = unhandled;
    using difference_type = std::ptrdiff_t;

    iterator() noexcept = default;
    unhandled operator*() const noexcept { return {entry_->key, chunk_->messages()[at_], chunk_->note(at_).failed}; }
    iterator& operator++() noexcept {
      ++at_;
      find();
      return *this;
    }
    iterator operator++(int) noexcept {
      const iterator before = *this;
      ++*this;
      return before;
    }
    bool operator==(const iterator&) const noexcept = default;

   private:
    friend class unhandled_messages;
    explicit iterator(entry* e) noexcept : entry_(e), chunk_(e != nullptr ? e->queue.first_chunk() : nullptr) {
      find();
    }
    void find() noexcept {
      while (entry_ != nullptr) {
        for (; chunk_ != nullptr; chunk_ = chunk_->next, at_ = 0)
          for (; at_ < chunk_->filled; ++at_)
            if (chunk_->note(at_).state == detail::message_state::waiting) return;
        entry_ = entry_->next;
        chunk_ = entry_ != nullptr ? entry_->queue.first_chunk() : nullptr;
      }
    }

    entry* entry_ = nullptr;
    chunk* chunk_ = nullptr;
    std::uint32_t at_ = 0;
  };

  unhandled_messages() noexcept = default;
  unhandled_messages(unhandled_messages&& other) noexcept
      : first_(std::exchange(other.first_, nullptr)), size_(std::exchange(other.size_, 0)) {}
  unhandled_messages& operator=(unhandled_messages&& other) noexcept {
    std::swap(first_, other.first_);
    std::swap(size_, other.size_);
    return *this;
  }
  ~unhandled_messages() {
    while (first_ != nullptr) {
      entry& e = *std::exchange(first_, first_->next);
      core::forget_waiting(e);
      core::release(e);
    }
  }

  [[nodiscard]] iterator begin() const noexcept { return iterator(first_); }
  [[nodiscard]] iterator end() const noexcept { return {}; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }

 private:
  template <class, class, class, class>
  friend class consumer;
  unhandled_messages(entry* first, std::size_t size) noexcept : first_(first), size_(size) {}

  entry* first_ = nullptr;
  std::size_t size_ = 0;
};

namespace detail {

template <class Handler, class Key, class Message>
concept message_handler =
    std::invocable<Handler&, std::span<Message>> || std::invocable<Handler&, const Key&, std::span<Message>> ||
    std::invocable<Handler&, std::add_lvalue_reference_t<batch<Key, Message>>>;

// Calls a handler in the form that it has; a batch is also a span of its messages.
template <class Handler, class Key, class Message>
decltype(auto) call_handler(Handler& handler, batch<Key, Message>& messages) {
  if constexpr (std::invocable<Handler&, batch<Key, Message>&>) {
    return handler(messages);
  } else {
    return handler(messages.key(), messages.messages());
  }
}

}  // namespace detail

// Handles messages by key, with one policy and one handler, in batches of consecutive messages of a key.
//
// Under exclusive and ordered one batch of a key is outstanding. The handler returns void or an outcome, or throws, for
// all of the batch, or settles message by message (see batch). Attempts count per message; one that has failed comes in
// batches of one until it is settled: a poison message takes nobody with it. Under ordered nothing behind it starts
// meanwhile; else the others pass. What is postponed keeps its place under ordered, and comes back alone otherwise.
//
// `options` are those of the scheduler below, which starts, limits, retries and buries. What they count is:
//   default_policy, policy_override   the policy of all messages
//   max_pending, max_pending_per_key  unfinished messages
//   max_in_flight, pace, turns        batches
//   max_dead                          messages: each dies in a task of its own, or its key's driver dies for it
//   observer                          hears of tasks: a driver, which goes on anew after a batch without an event, and
//                                     a message of its own
//
// A dead message is a dead task: listed, redriven and discarded by its id. A redriven one comes alone. Under ordered
// and exclusive it is handled before all messages that wait, and after those with smaller ids that are redriven too:
// under ordered these died in the order of sending, under exclusive they were put aside in the order of failing. It
// does not come before a batch that runs, and under ordered nothing starts until it is settled. hold_key holds all that
// waits behind the dead message; under exclusive, what was put aside before it goes on.
//
//   Needs    Key can be hashed, compared and copied; Message can be moved. Moving one runs under a lock: it must not
//            call back. A message is moved once; where that throws, send() has changed nothing.
//   Threads  as the scheduler's: every member from any thread at once, also from inside the handler.
//   Sees     as the scheduler's: plain data that only handlers of one key touch needs no lock, unless it is parallel.
//   Cost     of a message: a lock, its move and 40 bytes beside it; of a batch, about that of a task. Where memory is
//            missing after a failure, messages wait in their queue for it, in order: nothing is lost. A message that is
//            put aside or dead keeps the chunk of the queue in which it lies: at most max(64, max_batch) places.
template <class Key, class Message, class Hash = std::hash<Key>, class KeyEqual = detail::equal_keys>
class consumer {
 public:
  using batch_type = batch<Key, Message>;
  using unhandled_type = unhandled_messages<Key, Message, Hash, KeyEqual>;

  // Schedules onto `executor`, as a scheduler does, what `handler` is called with.
  //   Needs    the handler is callable, as an lvalue, with a std::span<Message>, with a const Key& and such a span, or
  //            with a batch<Key, Message>&, and returns void or an outcome. By several threads at once.
  //   Throws   std::invalid_argument that names the option and its value; std::bad_alloc.
  template <class E, class Handler>
    requires(executor<std::remove_reference_t<E>>)
  consumer(E&& executor, const options<Key>& options, std::size_t max_batch, Handler&& handler, const Hash& hash = {},
           const KeyEqual& equal = {})
      : core_(make_core(options, max_batch, std::forward<Handler>(handler), hash, equal)) {
    detail::undo failed([this] { core_->drop(); });
    turnkey::options<Key> below = options;
    below.policy_override = options.policy_override.value_or(options.default_policy);
    below.max_pending = below.max_pending_per_key = std::nullopt;
    tasks_ = std::make_unique<scheduler<Key, Hash, KeyEqual>>(std::forward<E>(executor), std::move(below), hash, equal);
    core_->drive_with(*tasks_->engine_);
    failed.forget();
  }

  // Is stop() with the list dropped. Inside its own handler it waits for nobody.
  ~consumer() {
    static_cast<void>(stop());
    tasks_.reset();
    core_->abandon();
    core_->drop();
  }
  consumer(const consumer&) = delete;
  consumer& operator=(const consumer&) = delete;

  // ---- sending

  // Puts a message in line for its key.
  //   Throws   rejected with the reason; std::bad_alloc; std::system_error when the time source finds no thread; what
  //            hashing, comparing and copying a key, and making or moving a message throw. Nothing has changed then.
  //   Cost     no allocation while the key's chunk has room; O(1) amortised.
  template <class M>
  void send(const Key& key, M&& message) {
    if (const auto reason = try_send(key, std::forward<M>(message))) throw_rejected(*reason);
  }

  // The same, but a refusal is returned, and leaves a Message&& unmoved; none: accepted.
  template <class M>
  [[nodiscard]] std::optional<reject_reason> try_send(const Key& key, M&& message) {
    return counted(offer(key, std::forward<M>(message)));
  }

  // As try_send(), but waits up to `timeout` of real steady time while the answer is `full` or `key_full`; close()
  // and stop() end the wait. Inside it does not wait.
  template <class M>
  [[nodiscard]] std::optional<reject_reason> send_for(duration timeout, const Key& key, M&& message) {
    auto reason = offer(key, std::forward<M>(message));
    if (!full(reason) || core_->tasks().is_inside()) return counted(reason);
    core_->watch_room();
    core_->room().wait(detail::later(clock::now(), timeout), [&] {
      reason = offer(key, std::forward<M>(message));
      return !full(reason);
    });
    return counted(reason);
  }

  // A message without a key is refused by the compiler: parallel, a scheduler does that.
  template <class M>
  void send(M&&) {
    static_assert(sizeof(M) == 0, "turnkey: a message needs a key: send(key, message)");
  }

  // ---- cancelling

  // How many unfinished messages of the key, or of all keys, there were. What waits is destroyed at once; for what
  // runs the stop token says so, and it is not tried again: it has succeeded or is cancelled.
  //   Throws   what hashing and comparing keys throw; cancel_all(): std::bad_alloc.
  std::size_t cancel(const Key& key) { return core_->cancel(key); }
  std::size_t cancel_all() { return core_->cancel_all(); }

  // ---- dead messages: as the scheduler's dead tasks

  [[nodiscard]] std::vector<dead_task<Key>> dead_messages() { return tasks_->dead_tasks(); }
  bool redrive(task_id id) noexcept { return tasks_->redrive(id); }
  std::size_t redrive(const Key& key) { return tasks_->redrive(key); }
  std::size_t redrive_all() noexcept { return tasks_->redrive_all(); }
  bool discard(task_id id) noexcept { return tasks_->discard(id); }
  std::size_t discard(const Key& key) { return tasks_->discard(key); }
  std::size_t discard_all() noexcept { return tasks_->discard_all(); }
  bool release(const Key& key) { return tasks_->release(key); }
  std::size_t release_all() noexcept { return tasks_->release_all(); }
  [[nodiscard]] std::vector<Key> held_keys() { return tasks_->held_keys(); }

  // ---- control: as the scheduler's, with batches for tasks

  bool pause() noexcept { return tasks_->pause(); }
  bool resume() noexcept { return tasks_->resume(); }
  [[nodiscard]] bool paused() const noexcept { return tasks_->paused(); }
  bool pause(const Key& key) { return tasks_->pause(key); }
  bool resume(const Key& key) { return tasks_->resume(key); }
  [[nodiscard]] std::vector<Key> paused_keys() { return tasks_->paused_keys(); }
  bool step(std::size_t n = 1) noexcept { return tasks_->step(n); }
  void set_max_in_flight(std::optional<std::size_t> limit) { tasks_->set_max_in_flight(limit); }
  void set_pace(const std::optional<turnkey::pace>& pace) { tasks_->set_pace(pace); }

  // ---- looking

  //   Cost     O(keys).
  [[nodiscard]] consumer_stats stats() const noexcept {
    const auto c = core_->look();
    consumer_stats all{.accepted = c.accepted,
                       .batches = c.batches,
                       .succeeded = c.succeeded,
                       .failed_attempts = c.failed_attempts,
                       .postponed = c.postponed,
                       .died = 0,
                       .cancelled = c.cancelled,
                       .rejected = c.rejected,
                       .waiting = c.waiting,
                       .unfinished = c.unfinished,
                       .dead = 0,
                       .tasks = tasks_->stats()};
    all.died = all.tasks.died;
    all.dead = all.tasks.dead;
    return all;
  }

  // How many unfinished messages a key has.
  [[nodiscard]] std::size_t unfinished(const Key& key) { return core_->unfinished(key); }

  // ---- ending: as the scheduler's

  // Waits until no message is unfinished and all but the dead ones are destroyed.
  drain_result drain() { return drained(tasks_->drain()); }
  drain_result drain_for(duration timeout) { return drained(tasks_->drain_for(timeout)); }

  // From now on sends are refused, but those from inside the handler are accepted until stop().
  void close() noexcept {
    core_->close(false);
    tasks_->close();
  }

  // Closes, starts nothing more, signals what runs, waits for the handler, and returns every unfinished message. A
  // second stop() waits likewise and returns nothing. Inside it waits for nobody, and a batch that runs is not
  // returned.
  //   Cost     O(unfinished messages); it allocates nothing.
  [[nodiscard]] unhandled_type stop() noexcept {
    core_->close(true);
    const bool first = !stopped_.exchange(true);
    {
      const auto records = tasks_->stop();
      if (!first) return {};
      core_->give_back(true);
    }
    core_->give_back(false);
    std::size_t size = 0;
    auto* const all = core_->take_unhandled(size);
    return unhandled_type(all, size);
  }

 private:
  using core = detail::consumer_core<Key, Message, Hash, KeyEqual>;

  template <class Handler>
  struct calls final : core::handler {
    template <class H>
    explicit calls(H&& from) : handler(std::forward<H>(from)) {}
    outcome handle(batch_type& messages) override {
      if constexpr (std::is_void_v<decltype(detail::call_handler(handler, messages))>) {
        detail::call_handler(handler, messages);
        return outcome::success();
      } else {
        return detail::call_handler(handler, messages);
      }
    }
    Handler handler;
  };

  template <class Handler>
  static core* make_core(const options<Key>& options, std::size_t max_batch, Handler&& handler, const Hash& hash,
                         const KeyEqual& equal) {
    using type = std::decay_t<Handler>;
    static_assert(detail::message_handler<type, Key, Message>,
                  "turnkey: a handler is callable as an lvalue with a std::span<Message>, with a const Key& and a "
                  "std::span<Message>, or with a turnkey::batch<Key, Message>&");
    static_assert(std::copy_constructible<Key>, "turnkey: the keys of a consumer can be copied");
    static_assert(std::move_constructible<Message>, "turnkey: a message is at least movable");
    if constexpr (detail::message_handler<type, Key, Message>) {
      using result = decltype(detail::call_handler(std::declval<type&>(), std::declval<batch_type&>()));
      static_assert(detail::callback_result<result>,
                    "turnkey: a handler returns void or a turnkey::outcome, nothing else");
    }
    detail::check(options);
    if (max_batch == 0) throw std::invalid_argument("turnkey: max_batch is 0; a batch has at least 1 message");
    if (detail::is_empty(handler))
      throw std::invalid_argument("turnkey: the handler is null or an empty function wrapper");
    return new core(options, max_batch, std::make_unique<calls<type>>(std::forward<Handler>(handler)), hash, equal);
  }

  // A message that must be made or copied is so before any lock.
  template <class M>
  std::optional<reject_reason> offer(const Key& key, M&& message) {
    if constexpr (std::same_as<M, Message>) {
      return core_->send(key, std::forward<M>(message));
    } else {
      return core_->send(key, Message(std::forward<M>(message)));
    }
  }

  static bool full(const std::optional<reject_reason>& reason) noexcept {
    return reason == reject_reason::full || reason == reject_reason::key_full;
  }

  std::optional<reject_reason> counted(std::optional<reject_reason> reason) noexcept {
    if (reason) core_->count_rejected();
    return reason;
  }

  [[noreturn]] void throw_rejected(reject_reason reason) const {
    const auto limit = [](const std::optional<std::size_t>& n) { return std::to_string(n.value_or(0)); };
    std::string what = std::string("turnkey: send refused (") + to_string(reason) + "): ";
    if (reason == reject_reason::full) {
      what +=
          "max_pending = " + limit(core_->set().max_pending) + " messages are unfinished; send_for() waits for room";
    } else if (reason == reject_reason::key_full) {
      what += "max_pending_per_key = " + limit(core_->set().max_pending_per_key) +
              " messages of this key are unfinished; send_for() waits for room";
    } else {
      what += "close() or stop() came first";
    }
    throw rejected(reason, what);
  }

  drain_result drained(drain_result result) noexcept {
    if (result == drain_result::drained) core_->wait_for_dropped();
    return result;
  }

  core* const core_;
  std::unique_ptr<scheduler<Key, Hash, KeyEqual>> tasks_;
  std::atomic<bool> stopped_{false};
};

}  // namespace turnkey::inline v1
