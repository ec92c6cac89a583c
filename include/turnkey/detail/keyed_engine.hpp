// The engine with the type of its keys: looking keys up, taking tasks in, and telling the observer. What lists keys and
// tasks is in listing.hpp.
#pragma once

#include <turnkey/detail/callable.hpp>
#include <turnkey/detail/control.hpp>
#include <turnkey/detail/ending.hpp>
#include <turnkey/detail/keyed_slot.hpp>
#include <turnkey/detail/listing.hpp>
#include <turnkey/detail/several.hpp>
#include <turnkey/detail/undo.hpp>
#include <turnkey/detail/validate.hpp>
#include <turnkey/detail/visit.hpp>
#include <turnkey/keys.hpp>
#include <turnkey/options.hpp>
#include <turnkey/task_record.hpp>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

namespace turnkey::inline v1::detail {

template <class Key, class Hash, class KeyEqual>
class keyed_engine final : public engine {
 public:
  using slot_type = keyed_slot<Key>;

  keyed_engine(const options<Key>& options, const engine_settings& settings, std::unique_ptr<erased_executor> executor,
               Hash hash, KeyEqual equal)
      : engine(settings, std::move(executor)), options_(options), hash_(std::move(hash)), equal_(std::move(equal)) {}
  ~keyed_engine() override {
    this->keep();  // not to be destroyed a second time by what it does here
    this->bury();
  }

  [[nodiscard]] const options<Key>& set() const noexcept { return options_; }

  // ---- taking tasks in

  // Takes a task in, or says why not. `K` is `const Key`, or `Key` when it may be moved from; null: no key.
  template <class K, class F>
  submit_result take(K* key, const task_options& wishes, F&& callback) {
    using callable = std::decay_t<F>;
    check_callback<callable>();
    if (const auto flaw = refuse(key != nullptr, wishes, callback)) return *flaw;

    arrival a{.ops = &ops_of<callable>, .policy = policy_for(key != nullptr, wishes)};
    a.delay = wishes.delay;
    a.retry = wishes.retry ? &*wishes.retry : nullptr;
    a.may_rest = may_postpone<callable>();
    const auto construct = [&](void* to) { ::new (to) callable(std::forward<F>(callback)); };
    // Should moving the callback throw, the caller keeps the key: then it is copied.
    if constexpr (!std::is_nothrow_constructible_v<callable, F&&> && std::copy_constructible<Key>) {
      return take_in(static_cast<const Key*>(key), a, construct);
    } else {
      return take_in(key, a, construct);
    }
  }

  // The same for one of several keys, which may be moved from; one that stands twice in the list counts once.
  template <class F>
  submit_result take(keys<Key>& list, const task_options& wishes, F&& callback) {
    using callable = std::decay_t<F>;
    check_callback<callable>();
    if (const auto flaw = refuse(!list.empty(), wishes, callback)) return *flaw;
    if (list.empty()) return reject_reason::needs_key;
    std::vector<line_of_key> lines = lines_of(list.all_);
    if (lines.size() == 1) return take(lines.front().key, wishes, std::forward<F>(callback));

    arrival a{.ops = &ops_of<callable>, .policy = policy_for(true, wishes)};
    if (a.policy == policy::parallel) return reject_reason::invalid_options;
    a.delay = wishes.delay;
    a.retry = wishes.retry ? &*wishes.retry : nullptr;
    a.may_rest = may_postpone<callable>();
    return take_in_several(lines, a, [&](void* to) { ::new (to) callable(std::forward<F>(callback)); });
  }

  // Takes a task in that another scheduler handed back. `record` is empty afterwards, unless it was refused.
  submit_result take(task_record<Key>& record) {
    task& old = *record.task_;
    const Key* const key = record.key();
    arrival a{.ops = old.ops, .policy = policy_for(key != nullptr, {.policy = old.policy})};
    std::optional<retry_policy> own;
    if (old.has_extra && extra_of(old).has_retry) own = extra_of(old).retry;
    a.retry = own ? &*own : nullptr;
    a.may_rest = true;
    const auto construct = [&](void* to) { old.ops->move(callable_of(old), to); };
    const submit_result taken = old.several ? take_in_all(record, a, construct) : take_in(key, a, construct);
    if (taken) task_record<Key>(std::move(record));
    return taken;
  }

  // ---- a task in two steps: what may fail first, then what cannot

  // A seat for a task whose callable comes later.
  struct promise {
    task* t = nullptr;
    key_slot* slot = nullptr;
  };

  // Promises a seat to a callable of type C, or says why not. `to` must be kept or broken.
  //   Throws   std::bad_alloc; std::system_error; what hashing, comparing or copying a key throws. Nothing has changed.
  template <class C>
  std::optional<reject_reason> promise_seat(const Key& key, promise& to) {
    const turnkey::policy how = policy_for(true, {});
    const std::uint64_t hash = hash_of(key);
    this->prepare(true);
    const bool extra = this->settings().lease_time ||
                       (how != policy::parallel && this->settings().dead_action == dead_action::hold_key);
    const block layout = block::of(sizeof(C), alignof(C), extra);
    seat<const Key> at{.key = &key, .hash = hash, .layout = layout, .pool = shard::pool_of(layout)};
    TURNKEY_ASSERT(at.pool != shard::from_heap, "what is promised a seat is small");
    visit v(*this, this->shard_of_hash(hash));
    if (const auto reason = find_seat(v, at)) return *reason;
    ++at.slot->arriving;
    ++v.here().arriving;
    v.changed(*at.slot);
    to = {&build(at, arrival{.ops = &ops_of<C>, .policy = how}), at.slot};
    return {};
  }

  // Seats the callable; `settled` is null, or what came of its first attempt, after `failed` and `postponed` earlier
  // ones. False when stop() has come inside, where it waits for nobody: then nothing has happened.
  struct settled_attempt {
    outcome said;
    failure_reason reason;
    std::uint32_t failed;
    std::uint32_t postponed;
  };
  template <class C>
  bool keep_promise(const promise& p, C&& callable, const settled_attempt* settled = nullptr) noexcept {
    using callable_type = std::decay_t<C>;
    static_assert(std::is_nothrow_constructible_v<callable_type, C&&>);
    const time_point now = this->now_or({});
    visit v(*this, this->shard_of_hash(p.slot->hash()));
    if (v.here().emptied) return leave_promised(v, p), false;  // uncovered: another thread must stop() right here
    --p.slot->arriving;
    --v.here().arriving;
    ::new (callable_of(*p.t)) callable_type(std::forward<C>(callable));
    if (settled == nullptr) {
      this->accept(v, *p.t, *p.slot, now, {});
    } else {
      p.t->failed = settled->failed;
      p.t->postponed = settled->postponed;
      this->accept_settled(v, *p.t, *p.slot, now, settled->said, settled->reason);
    }
    return true;
  }

  void break_promise(const promise& p) noexcept {
    visit v(*this, this->shard_of_hash(p.slot->hash()));
    leave_promised(v, p);
  }

  // As cancel_some() of the engine, for one key.
  template <class Which>
  void cancel_some_of(const Key& key, Which which) {
    const std::uint64_t hash = hash_of(key);
    this->cancel_some(
        this->shard_of_hash(hash), [&](shard& s) { return find(s, hash, key); }, which);
  }

  // ---- keys and the dead

  std::size_t cancel_key(const Key& key) {
    const std::uint64_t hash = hash_of(key);
    return this->cancel_each(this->shard_of_hash(hash), [&](shard& s, auto cancel) {
      key_slot* const slot = find(s, hash, key);
      if (slot == nullptr) return;
      for (task* t = slot->first_task(); t != nullptr;) {
        task* const next = key_slot::task_after(*t);
        cancel(*t);
        t = next;
      }
    });
  }

  bool release_key(const Key& key) {
    return with_slot(key, [](visit& v, key_slot& slot) {
      if (!slot.release()) return false;
      v.changed(slot);
      return true;
    });
  }

  bool resume_key(const Key& key) {
    return with_slot(key, [this](visit& v, key_slot& slot) { return this->resume(v, slot); });
  }

  // A key that was not seen yet gets a slot.
  //   Throws   std::bad_alloc; what hashing, comparing or copying a key throws.
  bool pause_key(const Key& key) {
    const std::uint64_t hash = hash_of(key);
    seat<const Key> to{.key = &key, .hash = hash};
    {
      visit v(*this, this->shard_of_hash(hash));
      shard& s = v.here();
      while (!s.stopped && look_up(v, to)) {
      }
      if (s.stopped) return false;
      if (to.slot == nullptr) to.slot = &new_slot(s, to);
      if (!to.slot->has_parts() || to.slot->paused()) return pause_slot(v, *to.slot);
    }
    joint all(*this);
    key_slot* const slot = find(this->shard_of_hash(hash), hash, key);
    if (slot == nullptr) return all.leave(), pause_key(key);  // its last task has finished meanwhile
    return pause_slot(all.of(hash), *slot);
  }

  // Does something to the dead tasks that name a key; those of several keys may be in any shard.
  template <class Do>
  std::size_t each_dead_of(const Key& key, Do action) {
    const std::uint64_t hash = hash_of(key);
    const auto names_it = [&](const task& part) {
      const Key* const other = part.slot->hash() == hash ? key_of<Key>(*part.slot) : nullptr;
      return other != nullptr && equal_(*other, key);
    };
    const auto any_names_it = [&](const task& t) {
      return t.several ? !group_of(t).all([&](const task& part) { return !names_it(part); }) : names_it(t);
    };
    if (!this->any_several()) return this->each_dead(this->shard_of_hash(hash), any_names_it, action);
    std::size_t done = 0;
    for (std::uint32_t i = 0; i != engine::shard_count; ++i)
      done += this->each_dead(this->shard_number(i), any_names_it, action);
    return done;
  }
  [[nodiscard]] task_records<Key> stop_all() noexcept { return task_records<Key>(*this, this->stop()); }

 private:
  // What is known of a task before it has memory.
  struct arrival {
    const callable_ops* ops;
    turnkey::policy policy;
    duration delay{};
    const retry_policy* retry = nullptr;  // its own
    bool may_rest = false;                // its callback may postpone
  };

  [[nodiscard]] std::uint64_t hash_of(const Key& key) const {
    return mixed(static_cast<std::uint64_t>(hash_(key)) + 0x9e3779b97f4a7c15U);
  }

  [[nodiscard]] key_slot* find(shard& s, std::uint64_t hash, const Key& key) const {
    return s.slots.find(hash,
                        [&](const key_slot& slot) { return equal_(static_cast<const slot_type&>(slot).key, key); });
  }

  // Does something to the slot of a key, if there is one; with all locks where tasks of several keys are concerned.
  template <class Do>
  bool with_slot(const Key& key, Do action) {
    const std::uint64_t hash = hash_of(key);
    shard& s = this->shard_of_hash(hash);
    wide_visit v(*this, s);
    key_slot* slot = find(s, hash, key);
    if (slot != nullptr && slot->has_parts()) {
      v.widen(hash);
      slot = find(s, hash, key);
    }
    return slot != nullptr && action(*v, *slot);
  }

  static bool pause_slot(visit& v, key_slot& slot) noexcept {
    if (!slot.pause()) return false;
    ++v.here().counts.paused_keys;
    v.changed(slot);
    return true;
  }

  // ---- a submit, step by step

  template <class C>
  [[nodiscard]] std::optional<reject_reason> refuse(bool has_key, const task_options& wishes, const C& callback) const {
    if (is_empty(callback)) return reject_reason::empty_callback;
    if ((wishes.policy || wishes.retry) && !flaw_of(wishes).empty()) return reject_reason::invalid_options;
    if (!has_key && wishes.policy && *wishes.policy != policy::parallel) return reject_reason::needs_key;
    return {};
  }

  [[nodiscard]] turnkey::policy policy_for(bool has_key, const task_options& wishes) const noexcept {
    if (!has_key) return policy::parallel;
    return options_.policy_override.value_or(wishes.policy.value_or(options_.default_policy));
  }

  // Everything that may fail happens before anything has changed, or is undone.
  template <class K, class Construct>
  submit_result take_in(K* key, const arrival& a, Construct construct) {
    const std::uint64_t hash = key != nullptr ? hash_of(*key) : 0;
    const std::uint32_t attempts = a.retry != nullptr ? a.retry->max_attempts : this->retry_attempts();
    this->prepare(a.may_rest || a.delay > duration::zero() || attempts > 1 || !this->settings().runs_inline ||
                  this->settings().lease_time);
    shard& s = this->shard_of_hash(hash);
    if (this->settings().max_pending && !this->reserve_pending())
      return is_closed(s) ? reject_reason::closed : reject_reason::full;
    undo pending([this] {
      if (this->settings().max_pending) this->give_back_pending();
    });

    const bool extra = a.retry != nullptr || this->settings().lease_time ||
                       (a.policy != policy::parallel && this->settings().dead_action == dead_action::hold_key);
    const block layout = block::of(a.ops->size, a.ops->align, extra);
    seat<K> to{.key = key, .hash = hash, .layout = layout, .pool = shard::pool_of(layout)};
    if (to.pool == shard::from_heap) to.memory = engine::new_heap_block(layout);
    undo heap([&to] {
      if (to.pool == shard::from_heap) free_memory(to);
    });

    // A plain callable moves in under the lock: that is copying bytes. The clock is read before, where it is ours.
    if (a.ops->plain && this->settings().time == nullptr) {
      const time_point now = a.delay > duration::zero() ? this->now() : this->lately();
      visit v(*this, s);
      if (const auto reason = find_seat(v, to)) return *reason;
      task& t = build(to, a);
      construct(callable_of(t));
      this->accept(v, t, *to.slot, now, a.delay);
      heap.forget();
      pending.forget();
      return task_id{t.id};
    }

    {
      visit v(*this, s);
      if (const auto reason = find_seat(v, to)) return *reason;
      ++to.slot->arriving;
      ++s.arriving;
      v.changed(*to.slot);
    }
    undo arriving([&] {
      visit v(*this, s);
      leave_seat(v, to);
      v.made_room();  // somebody may have been told `key_full` meanwhile
      if (to.pool != shard::from_heap) s.blocks[to.pool].give(to.memory);
      v.changed(*to.slot);
    });
    task& t = build(to, a);
    undo built([&t] { t.~task(); });
    construct(callable_of(t));  // may throw
    const time_point now = this->now();
    {
      visit v(*this, s);
      if (!s.emptied) {
        arriving.forget();
        built.forget();
        heap.forget();
        pending.forget();
        leave_seat(v, to);
        this->accept(v, t, *to.slot, now, a.delay);
        return task_id{t.id};
      }
    }
    engine::spend(t, task_state::undone);  // stop() came inside, where it waits for nobody
    return reject_reason::closed;
  }

  // Whether this thread may not submit any more.
  [[nodiscard]] bool is_closed(shard& s) const noexcept {
    {
      lock lock(s.mutex);
      if (s.stopped || !s.closed) return s.stopped;
    }
    return !this->in_callback();
  }

  // Where a new task will be.
  template <class K>
  struct seat {
    K* key;
    std::uint64_t hash;
    block layout{};
    std::uint8_t pool = 0;
    void* memory = nullptr;
    key_slot* slot = nullptr;
    std::optional<Key> copy{};  // of a key that must be copied: it dies outside the lock
  };

  // Under the lock, which it may let go of and take again: a slot, memory and an id for the task, or a refusal.
  //   Throws   std::bad_alloc; what comparing or moving a key throws. Nothing has changed then.
  template <class K>
  std::optional<reject_reason> find_seat(visit& v, seat<K>& to) {
    shard& s = v.here();
    bool follow_up = false;
    while (true) {
      if (s.stopped) return reject_reason::closed;
      if (s.closed && !follow_up) {
        v.pause([&] { follow_up = this->in_callback(); });
        if (!follow_up) return reject_reason::closed;
        continue;
      }
      if (!look_up(v, to)) break;
    }
    if (to.slot != nullptr && options_.max_pending_per_key && to.slot->has_key &&
        to.slot->depth() + to.slot->arriving >= *options_.max_pending_per_key)
      return reject_reason::key_full;
    s.ids.reserve(s.arriving);
    if (to.pool != shard::from_heap) to.memory = s.blocks[to.pool].take();
    if (to.slot != nullptr) return {};
    undo memory([&] {
      if (to.pool != shard::from_heap) s.blocks[to.pool].give(to.memory);
    });
    to.slot = &new_slot(s, to);
    memory.forget();
    return {};
  }

  // Looks the slot up; true when the lock was let go of meanwhile, so that everything must be looked at again. A key
  // that must be copied for a new slot is copied then.
  template <class K>
  [[nodiscard]] bool look_up(visit& v, seat<K>& to) {
    to.slot = to.key == nullptr ? &this->keyless() : find(v.here(), to.hash, *to.key);
    if constexpr (copies_outside<K>) {
      if (to.slot != nullptr || to.copy) return false;
      v.pause([&] { to.copy.emplace(*to.key); });
      return true;
    }
    return false;
  }

  //   Throws   std::bad_alloc; what moving the key throws. Nothing has changed then.
  template <class K>
  [[nodiscard]] key_slot& new_slot(shard& s, seat<K>& to) {
    s.slots.reserve();
    void* const cell = s.slot_cells.take();
    undo cell_taken([&] { s.slot_cells.give(cell); });
    key_slot* slot;
    if constexpr (copies_outside<K>) {
      slot = ::new (cell) slot_type(to.hash, std::move(*to.copy));
    } else {
      slot = ::new (cell) slot_type(to.hash, std::forward<K>(*to.key));
    }
    cell_taken.forget();
    s.slots.insert(*slot);
    slot->in_table = true;
    return *slot;
  }

  template <class K>
  static constexpr bool copies_outside = std::is_const_v<K> && !std::is_trivially_copyable_v<Key>;

  template <class K>
  static task& build(const seat<K>& to, const arrival& a) noexcept {
    auto& t = *::new (to.memory) task(*a.ops, a.policy, to.pool);
    t.has_extra = to.layout.extra_offset != 0;
    if (t.has_extra) {
      auto& extra = *::new (static_cast<std::byte*>(to.memory) + to.layout.extra_offset) task_extra;
      extra.has_retry = a.retry != nullptr;
      if (extra.has_retry) extra.retry = *a.retry;
    }
    return t;
  }

  template <class K>
  static void leave_seat(visit& v, const seat<K>& to) noexcept {
    --to.slot->arriving;
    --v.here().arriving;
  }

  void leave_promised(visit& v, const promise& p) noexcept {
    const std::uint8_t pool = p.t->pool;
    --p.slot->arriving;
    --v.here().arriving;
    p.t->~task();
    v.here().blocks[pool].give(p.t);
    v.changed(*p.slot);
  }

  template <class K>
  static void free_memory(const seat<K>& to) noexcept {
    engine::free_heap_block(::new (to.memory) heap_block{nullptr, to.layout.align});
  }

  // ---- a submit of a task of several keys

  struct line_of_key {
    Key* key;  // may be moved from
    std::uint64_t hash;
    key_slot* slot = nullptr;
  };

  //   Throws   std::bad_alloc; what hashing and comparing keys throw.
  [[nodiscard]] std::vector<line_of_key> lines_of(std::vector<Key>& list) const {
    std::vector<line_of_key> lines;
    lines.reserve(list.size());
    for (Key& key : list) {
      const std::uint64_t hash = hash_of(key);
      bool is_new = true;
      for (const line_of_key& other : lines) is_new = is_new && !(other.hash == hash && equal_(*other.key, key));
      if (is_new) lines.push_back({&key, hash});
    }
    return lines;
  }

  template <class Construct>
  submit_result take_in_all(const task_record<Key>& record, const arrival& a, Construct construct) {
    if (a.policy == policy::parallel) return reject_reason::invalid_options;
    std::vector<Key> copies = record.keys();
    std::vector<line_of_key> lines = lines_of(copies);
    return take_in_several(lines, a, construct);
  }

  // As take_in(), with the locks of all the keys' shards.
  template <class Construct>
  submit_result take_in_several(std::vector<line_of_key>& lines, const arrival& a, Construct construct) {
    const std::uint32_t attempts = a.retry != nullptr ? a.retry->max_attempts : this->retry_attempts();
    this->prepare(a.may_rest || a.delay > duration::zero() || attempts > 1 || !this->settings().runs_inline ||
                  this->settings().lease_time);
    shard& s = this->shard_of_hash(lines.front().hash);
    if (this->settings().max_pending && !this->reserve_pending())
      return is_closed(s) ? reject_reason::closed : reject_reason::full;
    undo pending([this] {
      if (this->settings().max_pending) this->give_back_pending();
    });
    const block layout = block::of(a.ops->size, a.ops->align, true);
    seat<Key> to{.key = nullptr, .hash = lines.front().hash, .layout = layout, .pool = shard::pool_of(layout)};
    if (to.pool == shard::from_heap) to.memory = engine::new_heap_block(layout);
    undo heap([&to] {
      if (to.pool == shard::from_heap) free_memory(to);
    });
    void* const parts = engine::new_heap_block({group::bytes(lines.size() - 1), alignof(group), 0});
    undo grouped([parts] { engine::free_heap_block(::new (parts) heap_block{nullptr, alignof(group)}); });
    const std::uint32_t shards = shards_of(lines);
    const bool at_once = a.ops->plain && this->settings().time == nullptr;
    const time_point early = !at_once ? time_point{} : a.delay > duration::zero() ? this->now() : this->lately();
    std::optional<task_id> id;
    for (bool follow_up = false;;) {
      joint all(*this, shards);
      if (s.stopped) return reject_reason::closed;
      if (s.closed && !follow_up) {
        all.leave();
        follow_up = this->in_callback();
        if (!follow_up) return reject_reason::closed;
        continue;
      }
      if (const auto reason = find_seats(all, lines, to)) return *reason;
      if (at_once) {
        task& t = build(to, a);
        construct(callable_of(t));
        id = accept_in_all(all, t, lines, parts, early, a.delay);
        break;
      }
      for (const line_of_key& line : lines) {
        ++line.slot->arriving;
        all.of(line.hash).recount(*line.slot);
      }
      ++s.arriving;
      break;
    }
    undo arriving([&] {
      if (at_once) return;
      joint all(*this, shards);
      leave_seats(lines, s);
      all.of(to.hash).made_room();
      if (to.pool != shard::from_heap) s.blocks[to.pool].give(to.memory);
      for (const line_of_key& line : lines) all.of(line.hash).recount(*line.slot);
    });
    if (!at_once) {
      task& t = build(to, a);
      undo built([&t] { t.~task(); });
      construct(callable_of(t));  // may throw
      const time_point now = this->now();
      {
        joint all(*this, shards);
        if (!s.emptied) {
          arriving.forget();
          built.forget();
          leave_seats(lines, s);
          id = accept_in_all(all, t, lines, parts, now, a.delay);
        }
      }
      if (!id) {  // stop() came inside, where it waits for nobody
        engine::spend(t, task_state::undone);
        return reject_reason::closed;
      }
    }
    arriving.forget();
    grouped.forget();
    heap.forget();
    pending.forget();
    return *id;
  }

  // As find_seat(), for a task's keys together.
  std::optional<reject_reason> find_seats(joint& all, std::vector<line_of_key>& lines, seat<Key>& to) {
    shard& s = this->shard_of_hash(to.hash);
    for (line_of_key& line : lines) {
      line.slot = find(this->shard_of_hash(line.hash), line.hash, *line.key);
      if (line.slot != nullptr && options_.max_pending_per_key &&
          line.slot->depth() + line.slot->arriving >= *options_.max_pending_per_key)
        return reject_reason::key_full;
    }
    s.ids.reserve(s.arriving);
    if (to.pool != shard::from_heap) to.memory = s.blocks[to.pool].take();
    undo memory([&] {
      if (to.pool != shard::from_heap) s.blocks[to.pool].give(to.memory);
    });
    std::size_t made = 0;  // all before it have a slot
    undo slots([&] {
      while (made-- != 0) all.of(lines[made].hash).recount(*lines[made].slot);
    });
    for (; made != lines.size(); ++made) {
      line_of_key& line = lines[made];
      if (line.slot != nullptr) continue;
      seat<Key> one{.key = line.key, .hash = line.hash};
      line.slot = &new_slot(this->shard_of_hash(line.hash), one);
    }
    slots.forget();
    memory.forget();
    return {};
  }

  [[nodiscard]] static std::uint16_t shards_of(const std::vector<line_of_key>& lines) noexcept {
    std::uint32_t shards = 0;
    for (const line_of_key& line : lines) shards |= 1U << (line.hash & (engine::shard_count - 1));
    return static_cast<std::uint16_t>(shards);
  }

  static void leave_seats(const std::vector<line_of_key>& lines, shard& s) noexcept {
    for (const line_of_key& line : lines) --line.slot->arriving;
    --s.arriving;
  }

  // Makes the group of `t` in the block `parts`, and takes both in.
  task_id accept_in_all(joint& all, task& t, const std::vector<line_of_key>& lines, void* parts, time_point now,
                        duration delay) noexcept {
    static_assert(engine::shard_count <= 16, "a group has a bit for each shard");
    auto& g = *::new (parts) group{&t, static_cast<std::uint32_t>(lines.size() - 1), shards_of(lines)};
    extra_of(t).group = &g;
    t.several = true;
    t.slot = lines.front().slot;
    for (std::uint32_t i = 0; i != g.others; ++i) (::new (&g.other(i)) part(t))->in_line.slot = lines[i + 1].slot;
    this->accept_several(all, t, now, delay);
    return task_id{t.id};
  }

  // ---- what the engine asks of the one who knows the keys

  void publish(const raw_event& e) noexcept override {
    if (!this->silent()) options_.observer(typed(e));
  }

  void publish_evicted(const raw_event& e, task& t) noexcept override {
    t.owners = 2;  // the record, and the visit that tells of it
    t.left_as = task_state::dead;
    task_record<Key> record(*this, t);
    event<Key> typed_event = typed(e);
    typed_event.record = &record;
    if (!this->silent()) options_.observer(typed_event);
    if (!record) {  // taken: its new owner disposes of it
      t.place = place::withdrawn;
      return;
    }
    t.owners = 0;
    record.task_ = nullptr;
  }

  static event<Key> typed(const raw_event& e) noexcept {
    return {.kind = e.kind,
            .number = e.number,
            .id = e.id,
            .key = e.slot != nullptr ? key_of<Key>(*e.slot) : nullptr,
            .policy = e.policy,
            .attempt = e.attempt,
            .fence = e.fence,
            .time = e.time,
            .due = e.due,
            .error = e.error ? &*e.error : nullptr};
  }

  void destroy_slot(key_slot& slot) noexcept override { std::destroy_at(static_cast<slot_type*>(&slot)); }

  const options<Key> options_;
  const Hash hash_;
  const KeyEqual equal_;
};

// ---- what the scheduler's constructor needs

template <class Key>
engine_settings settings_of(const options<Key>& o, bool runs_inline) {
  return {.retry = o.retry,
          .max_in_flight = o.max_in_flight,
          .max_pending = o.max_pending,
          .turn_budget = o.turn_budget,
          .turn_time = o.turn_time,
          .max_dead = o.max_dead,
          .dead_action = o.dead_action,
          .lease_time = o.lease_time,
          .lease_expiry = o.lease_expiry,
          .time = o.time,
          .seed = o.jitter_seed ? *o.jitter_seed : static_cast<std::uint64_t>(clock::now().time_since_epoch().count()),
          .first_fence = o.first_fence,
          .observed = static_cast<bool>(o.observer),
          .exact = o.observer || o.lease_time,
          .keys_need_destruction = !std::is_trivially_destructible_v<Key>,
          .runs_inline = runs_inline,
          .slot_size = sizeof(keyed_slot<Key>)};
}

}  // namespace turnkey::inline v1::detail
