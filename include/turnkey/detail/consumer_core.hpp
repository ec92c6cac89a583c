// What stands behind a consumer: the keys with their queues, and the tasks that take from them. Every rule of who may
// start, of leases, retries and the dead is the scheduler's; here is only which message a task stands for.
//
// A runner is the callable of all tasks of that scheduler. The driver of a key takes batches off its queue; when more
// waits it goes on anew under its id. A runner with a message of its own is one that was put aside, or died.
//
// Always true while a shard is not locked:
//   M1  Where messages wait, there is a driver: `entry::driver` is its number. A runner with another number, and
//       without a message, has nothing to do and ends.
//   M2  An entry stands in the table while a runner, a sender or a message needs it.
//   M3  Memory for a task is promised before a message depends on it; where it is missing after a failure, the messages
//       go back into the queue and the driver stands for the first of them.
//
//   Locks    a shard's: a leaf. The scheduler is never called, and no message destroyed, under it; messages are moved
//            in.
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/batch.hpp>
#include <turnkey/detail/keyed_engine.hpp>
#include <turnkey/detail/message_queue.hpp>
#include <turnkey/detail/sync.hpp>
#include <turnkey/detail/undo.hpp>
#include <turnkey/detail/waiters.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace turnkey::inline v1::detail {

template <class Key, class Message, class Hash, class KeyEqual>
class consumer_core {
 public:
  using engine_type = keyed_engine<Key, Hash, KeyEqual>;
  using batch_type = batch<Key, Message>;
  using chunk = message_chunk<Message>;
  using range = message_range<Message>;

  // The user's handler.
  struct handler {
    virtual ~handler() = default;
    virtual outcome handle(batch_type& messages) = 0;
  };

  // A key and its messages; guarded by the lock of its shard.
  struct entry {
    entry(consumer_core& owner, std::uint64_t hashed, const Key& from) : core(owner), hash(hashed), key(from) {
      core.keep();
    }
    ~entry() { core.drop(); }
    entry(const entry&) = delete;
    entry& operator=(const entry&) = delete;

    consumer_core& core;
    const std::uint64_t hash;
    const Key key;
    message_queue<Message> queue;
    std::uint64_t driver = 0;  // its number; 0: none
    bool busy = false;         // the driver has a batch in hand
    bool in_table = false;
    std::uint32_t references = 0;  // runners, senders, the list of stop()
    std::uint64_t pending = 0;     // unfinished messages
    entry* next = nullptr;         // in its bucket; in the list of stop()
  };

  struct counts {
    std::uint64_t accepted = 0;
    std::uint64_t batches = 0;
    std::uint64_t succeeded = 0;
    std::uint64_t failed_attempts = 0;
    std::uint64_t postponed = 0;
    std::uint64_t cancelled = 0;
    std::uint64_t rejected = 0;
    std::uint64_t waiting = 0;
    std::uint64_t unfinished = 0;
  };

  consumer_core(const options<Key>& set, std::size_t max_batch, std::unique_ptr<handler> handles, const Hash& hash,
                const KeyEqual& equal)
      : options_(set),
        policy_(set.policy_override.value_or(set.default_policy)),
        max_batch_(max_batch),
        handler_(std::move(handles)),
        hash_(hash),
        equal_(equal) {}
  consumer_core(const consumer_core&) = delete;
  consumer_core& operator=(const consumer_core&) = delete;

  void keep() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    // The last one must see all that the others did: release on every decrement, acquire on the last.
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void drive_with(engine_type& engine) noexcept { engine_ = &engine; }
  [[nodiscard]] const options<Key>& set() const noexcept { return options_; }
  [[nodiscard]] engine_type& tasks() noexcept { return *engine_; }
  [[nodiscard]] waiters& room() noexcept { return waiters_; }

  // ---- sending

  // Takes `message` in, or says why not and leaves it unmoved.
  //   Throws   std::bad_alloc, std::system_error; what hashing, comparing, copying a key or moving a message throws.
  std::optional<reject_reason> send(const Key& key, Message&& message) {
    const std::uint64_t hash = hash_of(key);
    shard& s = shard_of(hash);
    if (options_.max_pending && !reserve_pending()) return is_closed(s) ? reject_reason::closed : reject_reason::full;
    undo pending([this] { give_back_pending(); });
    seat to(*this);
    bool follow_up = false;
    while (true) {
      lock lock(s.mutex);
      if (s.stopped) return reject_reason::closed;
      if (s.closed && !follow_up) {
        lock.unlock();
        if (!engine_->in_callback()) return reject_reason::closed;
        follow_up = true;
        continue;
      }
      entry* e = to.at != nullptr ? to.at : find(s, hash, key);
      if (e == nullptr) {
        if (to.fresh == nullptr) {
          lock.unlock();
          to.fresh = std::make_unique<entry>(*this, hash, key);
          continue;
        }
        grow(s);
        e = to.fresh.release();
        insert(s, *e);
      }
      if (to.at == nullptr) {
        to.at = e;
        ++e->references;
      }
      if (options_.max_pending_per_key && e->pending >= *options_.max_pending_per_key) return reject_reason::key_full;
      if (e->driver == 0 && to.promised.t == nullptr) {
        lock.unlock();
        if (const auto reason = engine_->template promise_seat<runner>(key, to.promised)) return reason;
        continue;
      }
      e->queue.reserve(largest_chunk());
      e->queue.push(std::move(message));
      ++e->pending;
      ++s.numbers.accepted;
      pending.forget();
      if (e->driver != 0) return {};
      hire(*e, to.promised, lock);
      to.promised = {};
      return {};
    }
  }

  [[nodiscard]] bool is_closed_for(const Key& key) { return is_closed(shard_of(hash_of(key))); }
  void count_rejected() noexcept {
    lock lock(shards_[0].mutex);
    ++shards_[0].numbers.rejected;
  }
  void watch_room() noexcept { room_watched_.store(true); }

  // ---- cancelling

  // How many unfinished messages of the key there were.
  std::size_t cancel(const Key& key) {
    const std::uint64_t hash = hash_of(key);
    shard& s = shard_of(hash);
    lock lock(s.mutex);
    entry* const e = find(s, hash, key);
    if (e == nullptr) return 0;
    ++e->references;
    lock.unlock();
    const undo let_go([&] { release(*e); });
    return cancel(*e);
  }

  std::size_t cancel_all() {
    std::size_t all = 0;
    for (shard& s : shards_) {
      std::vector<entry*> some;
      std::size_t there = 0;
      for (std::size_t at = 0;; ++at) {
        some.reserve(there);
        {
          lock lock(s.mutex);
          if (at >= s.buckets.size()) break;
          there = 0;
          for (entry* e = s.buckets[at]; e != nullptr; e = e->next) ++there;
          if (there > some.capacity()) {
            --at;  // the same bucket, with room for it
            continue;
          }
          for (entry* e = s.buckets[at]; e != nullptr; e = e->next) {
            ++e->references;
            some.push_back(e);
          }
        }
        const undo let_go([&some] {
          for (entry* e : some) release(*e);
          some.clear();
        });
        for (entry* e : some) all += cancel(*e);
      }
    }
    return all;
  }

  // ---- ending

  void close(bool stop) noexcept {
    for (shard& s : shards_) {
      lock lock(s.mutex);
      s.closed = true;
      s.stopped = s.stopped || stop;
    }
    waiters_.notify();
  }

  // While it lives, a runner that is destroyed gives its message back.
  void give_back(bool does) noexcept { giving_back_.store(does); }

  // The entries with messages that wait leave the table; each is referred to once. Linked through next.
  [[nodiscard]] entry* take_unhandled(std::size_t& messages) noexcept {
    entry* all = nullptr;
    for (shard& s : shards_) {
      lock lock(s.mutex);
      for (entry*& bucket : s.buckets)
        for (entry** at = &bucket; *at != nullptr;) {
          entry& e = **at;
          if (e.queue.waiting() == 0) {
            at = &e.next;
            continue;
          }
          *at = e.next;
          --s.entries;
          e.in_table = false;
          ++e.references;
          messages += e.queue.waiting();
          e.pending -= e.queue.waiting();
          e.next = std::exchange(all, &e);
        }
    }
    return all;
  }

  // Nobody will ask for what still waits.
  void abandon() noexcept {
    for (shard& s : shards_) {
      lock lock(s.mutex);
      s.abandoned = true;
    }
    std::size_t none = 0;
    for (entry* e = take_unhandled(none); e != nullptr;) release(*std::exchange(e, e->next));
  }

  // Waits until no message is being destroyed by a cancel.
  void wait_for_dropped() noexcept {
    waiters_.wait(std::nullopt, [this] { return dropping_.load() == 0; });
  }

  [[nodiscard]] counts look() noexcept {
    counts all;
    for (shard& s : shards_) {
      lock lock(s.mutex);
      const counts& c = s.numbers;
      all.accepted += c.accepted;
      all.batches += c.batches;
      all.succeeded += c.succeeded;
      all.failed_attempts += c.failed_attempts;
      all.postponed += c.postponed;
      all.cancelled += c.cancelled;
      all.rejected += c.rejected;
      for (const entry* e : s.buckets)
        for (; e != nullptr; e = e->next) {
          all.waiting += e->queue.waiting();
          all.unfinished += e->pending;
        }
    }
    return all;
  }

  [[nodiscard]] std::size_t unfinished(const Key& key) {
    const std::uint64_t hash = hash_of(key);
    shard& s = shard_of(hash);
    lock lock(s.mutex);
    const entry* const e = find(s, hash, key);
    return e != nullptr ? static_cast<std::size_t>(e->pending) : 0;
  }

  // Lets go of an entry; the last one destroys it.
  static void release(entry& e) noexcept {
    shard& s = e.core.shard_of(e.hash);
    lock lock(s.mutex);
    release(e, lock);
  }

  // Destroys the messages that wait, of an entry that stop() has taken.
  static void forget_waiting(entry& e) noexcept {
    shard& s = e.core.shard_of(e.hash);
    lock lock(s.mutex);
    e.queue.drop_waiting();
    for (range b = e.queue.first_dropped(); b.count != 0;) {
      lock.unlock();
      for (std::uint32_t i = 0; i != b.count; ++i) destroy(b, i);
      lock.relock();
      const range next = e.queue.next_dropped(b);
      for (std::uint32_t i = 0; i != b.count; ++i) e.queue.done(*b.chunk, b.first + i);
      b = next;
    }
  }

  // A message of an entry that nobody else knows any more.
  static void forget(entry& e, chunk& c, std::uint32_t i) noexcept {
    std::destroy_at(c.messages() + i);
    std::destroy_at(&c.note(i));
    ::new (static_cast<void*>(&c.note(i))) message_note;
    lock lock(e.core.shard_of(e.hash).mutex);
    e.queue.done(c, i);
  }

 private:
  struct alignas(64) shard {
    detail::mutex mutex{16};
    std::vector<entry*> buckets;
    std::size_t entries = 0;
    bool closed = false;
    bool stopped = false;
    bool abandoned = false;
    counts numbers;
  };

  // ---- the callable of all tasks

  class runner {
   public:
    runner(entry& e, std::uint64_t number) noexcept : entry_(&e), number_(number) {}
    runner(entry& e, chunk& c, std::uint32_t i) noexcept : entry_(&e), chunk_(&c), at_(i) {}
    runner(runner&& other) noexcept
        : entry_(std::exchange(other.entry_, nullptr)),
          chunk_(std::exchange(other.chunk_, nullptr)),
          number_(other.number_),
          at_(other.at_),
          postponed_(other.postponed_) {}
    runner& operator=(runner&&) = delete;
    ~runner() {
      if (entry_ != nullptr) consumer_core::retire(*this);
    }
    outcome operator()(attempt& a) { return entry_->core.run(*this, a); }

    entry* entry_;            // referred to
    chunk* chunk_ = nullptr;  // where its own message is; null: it drives, or has nothing to do
    std::uint64_t number_ = 0;
    std::uint32_t at_ = 0;
    std::uint32_t postponed_ = 0;  // as its task counts
  };

  using promise = typename engine_type::promise;
  using settled_attempt = typename engine_type::settled_attempt;

  // What a send holds until it is over.
  struct seat {
    explicit seat(consumer_core& owner) noexcept : core(owner) {}
    ~seat() {
      if (promised.t != nullptr) core.engine_->break_promise(promised);
      if (at != nullptr) release(*at);
    }
    seat(const seat&) = delete;
    seat& operator=(const seat&) = delete;

    consumer_core& core;
    entry* at = nullptr;
    std::unique_ptr<entry> fresh{};
    promise promised{};
  };

  // ---- keys

  [[nodiscard]] std::uint64_t hash_of(const Key& key) const {
    return mixed(static_cast<std::uint64_t>(hash_(key)) + 0x9e3779b97f4a7c15U);
  }
  [[nodiscard]] shard& shard_of(std::uint64_t hash) noexcept { return shards_[hash & (shards_.size() - 1)]; }
  [[nodiscard]] static std::size_t bucket_of(const shard& s, std::uint64_t hash) noexcept {
    return static_cast<std::size_t>(hash >> 8) & (s.buckets.size() - 1);
  }
  [[nodiscard]] entry* find(shard& s, std::uint64_t hash, const Key& key) const {
    if (s.buckets.empty()) return nullptr;
    entry* e = s.buckets[bucket_of(s, hash)];
    while (e != nullptr && (e->hash != hash || !equal_(e->key, key))) e = e->next;
    return e;
  }
  static void grow(shard& s) {
    if (s.entries < s.buckets.size()) return;
    std::vector<entry*> before(s.buckets.empty() ? 16 : 2 * s.buckets.size());
    before.swap(s.buckets);
    for (entry* e : before)
      while (e != nullptr) {
        entry* const next = e->next;
        entry*& bucket = s.buckets[bucket_of(s, e->hash)];
        e->next = std::exchange(bucket, e);
        e = next;
      }
  }
  static void insert(shard& s, entry& e) noexcept {
    entry*& bucket = s.buckets[bucket_of(s, e.hash)];
    e.next = std::exchange(bucket, &e);
    e.in_table = true;
    ++s.entries;
  }
  static void release(entry& e, lock& held) noexcept TURNKEY_NO_ANALYSIS {
    shard& s = e.core.shard_of(e.hash);
    const bool unneeded = --e.references == 0 && (e.queue.alive() == 0 || s.abandoned || !e.in_table);
    if (unneeded && e.in_table) {
      entry** at = &s.buckets[bucket_of(s, e.hash)];
      while (*at != &e) at = &(*at)->next;
      *at = e.next;
      --s.entries;
    }
    consumer_core& core = e.core;
    core.keep();
    held.unlock();
    if (unneeded) {
      for (chunk* c = e.queue.first_chunk(); e.queue.alive() != 0;) {
        chunk* const next = c->next;
        for (std::uint32_t i = 0, end = c->filled; i != end && e.queue.alive() != 0; ++i)
          if (c->note(i).state != message_state::done) {
            const bool last = c->alive == 1;
            forget(e, *c, i);
            if (last) break;
          }
        c = next;
      }
      delete &e;
    }
    core.drop();
  }

  // ---- limits

  [[nodiscard]] bool is_closed(shard& s) noexcept {
    {
      lock lock(s.mutex);
      if (s.stopped || !s.closed) return s.stopped;
    }
    return !engine_->in_callback();
  }
  [[nodiscard]] bool reserve_pending() noexcept {
    // Relaxed is enough: the number guards nothing but itself.
    std::size_t pending = pending_.load(std::memory_order_relaxed);
    while (pending < *options_.max_pending)
      if (pending_.compare_exchange_weak(pending, pending + 1, std::memory_order_relaxed)) return true;
    return false;
  }
  void give_back_pending(std::size_t n = 1) noexcept {
    if (options_.max_pending) pending_.fetch_sub(n, std::memory_order_relaxed);
    made_room();
  }
  void made_room() noexcept {
    if (room_watched_.load()) waiters_.notify();
  }
  [[nodiscard]] std::uint32_t largest_chunk() const noexcept {
    return static_cast<std::uint32_t>(max_batch_ < 64 ? 64 : max_batch_ > 4096 ? 4096 : max_batch_);
  }

  // ---- drivers
  void hire(entry& e, const promise& p, lock& held) noexcept TURNKEY_NO_ANALYSIS;
  [[nodiscard]] bool get_promise(const entry& e, promise& to) noexcept;
  [[nodiscard]] bool hire_another(entry& e) noexcept;

  // ---- an attempt
  outcome run(runner& r, attempt& a);
  [[nodiscard]] bool take_over(runner& r) noexcept;
  [[nodiscard]] bool handle(entry& e, const range& b, std::uint32_t number, attempt& a) noexcept;
  [[nodiscard]] static bool succeeded(const message_note& n) noexcept {
    return n.settled && n.said.what() == outcome::kind::success;
  }
  [[nodiscard]] bool dies(const message_note& n) const noexcept;

  // One more attempt of a message that has not succeeded.
  static void count(message_note& n, const outcome& said, counts& numbers) noexcept {
    const bool postponed = said.what() == outcome::kind::postpone;
    count_up(postponed ? n.postponed : n.failed);
    ++(postponed ? numbers.postponed : numbers.failed_attempts);
  }

  // Destroys a message that is `out`, without a lock.
  static void destroy(const range& b, std::uint32_t i) noexcept {
    std::destroy_at(b.messages() + i);
    b.note(i).said = outcome::success();
  }

  // Under the lock: the place of a destroyed message is free.
  void free_place(entry& e, const range& b, std::uint32_t i) noexcept {
    e.queue.done(*b.chunk, b.first + i);
    --e.pending;
  }

  outcome go_on(runner& r, attempt& a) noexcept;

  // The task of `r` counts as its message does.
  static void stand_for(runner& r, attempt& a, std::uint32_t failed, std::uint32_t postponed) noexcept {
    if (a.number() != failed + 1 || r.postponed_ != postponed) engine::recount(a, failed, postponed);
    r.postponed_ = postponed;
  }

  outcome say(runner& r, attempt& a, outcome said, failure_reason reason, std::uint32_t failed,
              std::uint32_t postponed);
  static outcome say(outcome said, failure_reason reason) {
    if (reason == failure_reason::threw && said.why()) std::rethrow_exception(said.why());
    return said;
  }

  outcome conclude_ordered(runner& r, attempt& a, const range& b, bool whole);
  void set_aside(entry& e, runner& r, const range& b, std::uint32_t i) noexcept;
  void come_back(entry& e, const range& b, std::uint32_t i, bool whole) noexcept;
  void drop_out(entry& e, const range& b, std::uint32_t first, std::uint32_t n) noexcept;
  outcome conclude(runner& r, attempt& a, const range& b, bool drives);
  outcome come_back_starved(runner& r, attempt& a, bool drives, const promise& next,
                            std::optional<settled_attempt> mine);
  outcome run_alone(runner& r, attempt& a);
  static void retire(runner& r) noexcept;

  // ---- cancel
  std::size_t cancel(entry& e);
  std::size_t drop(entry& e) noexcept;
  std::size_t cancel_tasks(entry& e, std::uint64_t stale, std::size_t dropped);
  void destroy_dropped(entry& e) noexcept;

  // Until memory for the task of a message that died is asked for again.
  static constexpr duration patience = std::chrono::milliseconds{100};

  const options<Key> options_;
  const policy policy_;
  const std::size_t max_batch_;
  const std::unique_ptr<handler> handler_;
  const Hash hash_;
  const KeyEqual equal_;
  engine_type* engine_ = nullptr;
  std::array<shard, 16> shards_;
  std::atomic<std::uint64_t> references_{1};
  std::atomic<std::uint64_t> serials_{0};  // of drivers
  std::atomic<std::size_t> pending_{0};    // counted only where max_pending is set
  std::atomic<std::size_t> dropping_{0};   // cancels that still destroy
  std::atomic<bool> room_watched_{false};
  std::atomic<bool> giving_back_{false};
  waiters waiters_;
};

}  // namespace turnkey::inline v1::detail
