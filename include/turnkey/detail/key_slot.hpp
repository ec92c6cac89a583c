// The heart: one key's lines, its lease and its holds, and every rule of who may start. It knows no lock, no clock and
// no thread: whoever calls holds the lock of the key's shard. Every start, whatever caused it, goes through next() and
// start(): a second way in is how order gets lost.
//
// Always true between two calls:
//   K1  `tasks` has every unfinished task of the key, in id order.
//   K2  A parallel or exclusive task in line stands in its line's fifo, or, when it came back, in one of its line's
//       heaps. An ordered one stands in `tasks` alone: it may start only when it is the first there.
//   K3  `lease` is the one running task of the key that is exclusive or ordered, or the one that it is granted to (K6);
//       null when there is none.
//   K4  `hold` is the smallest id in `holders` and of the evicted holder; nothing with a larger id starts.
//   K5  In `parked` stand only tasks that the hold or a reservation keeps back; a change of these puts them back into
//       `again`.
//   K6  A task of several keys, or its part, stands in `tasks`, and while it is in line in `reservers`, when only
//       leases keep it, or else in `idlers`. Free leases are granted to the first reserver of all its keys when nothing
//       goes before it: then it is next in its own line, and nothing takes the leases of the others.
#pragma once

#include <turnkey/detail/config.hpp>
#include <turnkey/detail/group.hpp>
#include <turnkey/detail/task.hpp>
#include <turnkey/detail/task_heap.hpp>
#include <turnkey/detail/task_list.hpp>

#include <cstdint>
#include <utility>

namespace turnkey::inline v1::detail {

class key_slot {
 public:
  explicit key_slot(std::uint64_t hash) noexcept : hash_(hash) {}
  key_slot(const key_slot&) = delete;
  key_slot& operator=(const key_slot&) = delete;

  // ---- who may start

  // The task that may start now and goes first (rules 2, 2.9); null when none may.
  [[nodiscard]] task* next() noexcept {
    if (paused_) return nullptr;
    if (parallel_.size == 0) return next_leased();
    task* const leased = next_leased();
    task* const parallel = first_of(parallel_, hold_);
    if (leased == nullptr || parallel == nullptr) return leased != nullptr ? leased : parallel;
    return goes_before(*leased, *parallel) ? leased : parallel;
  }

  // Makes a task that is ready run, with the lease unless it is parallel: next(), but for one that passes a pause
  // alone.
  void start(task& t) noexcept {
    TURNKEY_ASSERT(is_ready(t), "K2: only what may start starts");
    leave_line(t);
    t.place = place::running;
    if (t.policy != policy::parallel) lease_ = &t;
  }

  // ---- what happens to its tasks

  // A new task, with the largest id of the key so far.
  void arrive(task& t) noexcept {
    tasks_.push_back(t);
    ++depth_;
    attach(t);
    enter_fifo(t);
  }

  // The same, but it rests first.
  void arrive_resting(task& t) noexcept {
    tasks_.push_back(t);
    ++depth_;
    attach(t);
    t.place = place::resting;
  }

  // A running task gives up its lease and rests until a time.
  void rest(task& t) noexcept {
    give_up_lease(t);
    t.place = place::resting;
    t.retried = true;
  }

  // A resting task is due, at `t.when`.
  void come_back(task& t) noexcept {
    if (!t.retried) t.rank = t.id;  // rule 3.4: the place in line is that of the id
    enter_again(t);
  }

  // A running task wants to run again at once, behind what is ready: in the place of `last`, an id of nobody's.
  void come_back_behind(task& t, std::uint64_t last) noexcept {
    give_up_lease(t);
    t.retried = false;
    t.rank = last;
    enter_again(t);
  }

  // An unfinished task leaves for good: it succeeded, died, was cancelled or withdrawn. `t` stays attached until
  // detach(): the key must outlive what is still said about the task.
  void finish(task& t) noexcept {
    give_up_lease(t);
    if (t.place == place::in_line) leave_line(t);
    tasks_.remove(t);
    --depth_;
  }

  // A dead task has a new life, in the place of its id. Cost: the number of unfinished tasks with smaller ids.
  void revive(task& t) noexcept {
    rejoin(t);
    t.retried = false;
    t.rank = t.id;
    enter_again(t);
  }

  void attach(task& t) noexcept {
    t.slot = this;
    ++references;
  }
  void detach([[maybe_unused]] const task& t) noexcept {
    TURNKEY_ASSERT(t.slot == this, "K1: a task belongs to one key");
    --references;
  }

  // ---- tasks of several keys (rule 7.7): `part` is what stands for one in this line

  // A new one, with the largest id of the key so far.
  void join(task& part) noexcept {
    tasks_.push_back(part);
    ++depth_;
    attach(part);
  }
  // One that was dead.
  void rejoin(task& part) noexcept {
    task* earlier = nullptr;
    for (task* later = tasks_.first(); later != nullptr && later->id < part.id; later = task_after(*later))
      earlier = later;
    tasks_.insert_after(earlier, part);
    ++depth_;
  }
  // It finishes.
  void quit(task& part) noexcept {
    tasks_.remove(part);
    --depth_;
  }

  // It comes into line, where it reserves nothing yet; and goes out of it.
  void enter(task& part) noexcept {
    idlers_.push_back(part);
    ++parts_;
  }
  void exit(task& part) noexcept {
    idlers_.remove(part);
    --parts_;
  }

  // Whether nothing of this key but its lease, and others that reserve it, keeps the part.
  [[nodiscard]] bool lets(const task& part) const noexcept {
    return !paused_ && !kept_back(part) && (part.policy != policy::ordered || tasks_.first() == &part);
  }
  void reserve(task& part) noexcept {
    idlers_.remove(part);
    reservers_.insert(part);
    limits_changed();
  }
  void stop_reserving(task& part) noexcept {
    reservers_.remove(part);
    idlers_.push_back(part);
    limits_changed();
  }

  // Whether a task that reserves all its keys may take the lease of this one now.
  [[nodiscard]] bool may_take_lease(const task& part) noexcept {
    if (lease() != nullptr || reservers_.first() != &part) return false;
    const task* const other = next_of_one_key();
    return other == nullptr || goes_before(*group_of(part).home, *other);
  }
  // It may take all of its leases, or may not any more: null.
  void grant(task* home) noexcept { lease_ = home; }
  [[nodiscard]] task* granted() const noexcept {
    return lease_ != nullptr && lease_->place != place::running ? lease_ : nullptr;
  }

  // The one that it is granted to, if that stands in this line.
  [[nodiscard]] const task* granted_here() const noexcept {
    const task* const home = granted();
    return home != nullptr && home->slot == this ? home : nullptr;
  }

  // It starts, with the lease; and gives it up.
  void give_lease(task& part) noexcept {
    reservers_.remove(part);
    limits_changed();
    TURNKEY_ASSERT(lease_ == group_of(part).home, "K6: it was granted");
  }
  void take_lease_back() noexcept {
    lease_ = nullptr;
    --parts_;
  }

  // Whether one is in line or runs: then what changes here may let it start, or keep it, in other lines too.
  [[nodiscard]] bool has_parts() const noexcept { return parts_ != 0; }
  [[nodiscard]] task* first_reserver() const noexcept { return reservers_.first(); }
  [[nodiscard]] task* first_idler() const noexcept { return idlers_.first(); }
  [[nodiscard]] static task* idler_after(const task& part) noexcept { return task_list<&task::line>::after(part); }

  // Whether pause or hold have changed since this was asked last.
  [[nodiscard]] bool conditions_changed() noexcept { return std::exchange(conditions_changed_, false); }

  // ---- holds (rule 5.3)

  // `t` has died, and its key holds. `t` has a task_extra.
  void hold(task& t) noexcept {
    if (!t.holder) {
      t.holder = true;
      task** at = &holders_;
      while (*at != nullptr && (*at)->id < t.id) at = &extra_of(**at).next_holder;
      extra_of(t).next_holder = *at;
      *at = &t;
    }
    hold_changed();
  }

  // `t` holds no longer. Cost: the number of holders with smaller ids.
  void unhold(task& t) noexcept {
    if (!t.holder) return;
    t.holder = false;
    task** at = &holders_;
    while (*at != &t) at = &extra_of(**at).next_holder;
    *at = extra_of(t).next_holder;
    hold_changed();
  }

  // A holder leaves the store: its id goes on holding until release().
  void keep_hold_of(task& t) noexcept {
    if (!t.holder) return;
    if (t.id < evicted_holder_) evicted_holder_ = t.id;
    unhold(t);
  }

  // Ends all holds; true when there was one.
  bool release() noexcept {
    const bool was_held = held();
    while (holders_ != nullptr) {
      holders_->holder = false;
      holders_ = extra_of(*holders_).next_holder;
    }
    evicted_holder_ = nobody;
    hold_changed();
    return was_held;
  }

  [[nodiscard]] bool held() const noexcept { return hold_ != nobody; }

  // The id of the dead task that holds the key, when it is held.
  [[nodiscard]] std::uint64_t held_by() const noexcept { return hold_; }

  // ---- a pause of this key (rule 6.1); both say whether that changed anything

  bool pause() noexcept {
    conditions_changed_ = true;
    return !std::exchange(paused_, true);
  }
  bool resume() noexcept {
    conditions_changed_ = true;
    return std::exchange(paused_, false);
  }
  [[nodiscard]] bool paused() const noexcept { return paused_; }

  [[nodiscard]] static task_state state_of(const task& t) noexcept {
    const task& all = whole(t);
    switch (all.place) {
      case place::in_line: return all.slot->is_ready(all) ? task_state::ready : task_state::waiting;
      case place::in_lines: return group_of(all).granted ? task_state::ready : task_state::waiting;
      case place::running: return task_state::running;
      case place::resting: return task_state::delayed;
      case place::dead: return task_state::dead;
      case place::leaving:
      case place::withdrawn: break;
    }
    return task_state::undone;
  }

  // ---- why a task that does not run does not start (rule 9.2)

  // What of its key keeps `t`; `turn` when nothing does.
  [[nodiscard]] why why_not_started(const task& t) const noexcept {
    if (kept_back(t)) return {.kind = why::reason::key_held, .task = task_id{hold_}, .state = state_of_holder()};
    if (paused_) return {.kind = why::reason::key_paused};
    if (const task& all = whole(t); all.place == place::resting)
      return {.kind = why::reason::not_due, .time = all.when};
    const task* const first = tasks_.first();
    if (t.policy == policy::ordered && first != &t)
      return {.kind = why::reason::predecessor, .task = task_id{first->id}, .state = state_of(*first)};
    if (t.policy != policy::parallel && lease() != nullptr)
      return {.kind = why::reason::lease,
              .task = task_id{lease_->id},
              .state = task_state::running,
              .attempt = lease_->failed + 1,
              .time = lease_->when};
    if (t.policy != policy::parallel && reserved_before(t))
      return {.kind = why::reason::reserved, .task = task_id{reservers_.first()->id}};
    return {.kind = why::reason::turn};
  }

  // ---- facts

  [[nodiscard]] std::uint64_t hash() const noexcept { return hash_; }
  [[nodiscard]] std::uint32_t depth() const noexcept { return depth_; }
  [[nodiscard]] task* first_task() const noexcept { return tasks_.first(); }
  [[nodiscard]] static task* task_after(const task& t) noexcept { return task_list<&task::peers>::after(t); }
  [[nodiscard]] const task* lease() const noexcept {
    return lease_ != nullptr && lease_->place == place::running ? lease_ : nullptr;
  }

  // Whether an unfinished task, a pause or a hold needs the key.
  [[nodiscard]] bool in_use() const noexcept { return depth_ != 0 || arriving != 0 || paused_ || held(); }

  // How many of its tasks are `ready`: the one that the lease would go to, and all parallel ones in line; of those
  // only the first while the key is held.
  [[nodiscard]] std::uint32_t ready() noexcept {
    if (paused_) return 0;
    const std::uint32_t parallel = held() ? (first_of(parallel_, hold_) != nullptr) : parallel_.size;
    return parallel + (next_leased() != nullptr);
  }

  // Whether a task in line is `ready`: see ready().
  [[nodiscard]] bool is_ready(const task& t) noexcept {
    if (paused_) return false;
    if (t.policy != policy::parallel) return next_leased() == &t;
    return held() ? first_of(parallel_, hold_) == &t : true;
  }

 private:
  // The parallel or the exclusive tasks in line.
  struct line {
    task_heap<by_turn> parked;    // of those that came back, the ones that a hold or a reservation keeps back
    task_heap<by_turn> again;     // came back: retried, delayed, redriven
    task_list<&task::line> fifo;  // in id order
    std::uint32_t size = 0;
  };

  static bool goes_before(const task& a, const task& b) noexcept {
    const bool a_retries = a.again && a.retried;
    const bool b_retries = b.again && b.retried;
    if (a_retries != b_retries) return a_retries;
    if (a_retries) return by_turn::before(a, b);
    const std::uint64_t a_rank = a.again ? a.rank : a.id;
    const std::uint64_t b_rank = b.again ? b.rank : b.id;
    if (a_rank != b_rank) return a_rank < b_rank;
    return a.again != b.again ? b.again : a.id < b.id;
  }

  [[nodiscard]] bool kept_back(const task& t) const noexcept { return t.id > hold_; }

  // Of the task that holds the key, which is dead, unless it was redriven. One that left the store is dead.
  [[nodiscard]] task_state state_of_holder() const noexcept {
    return holders_ != nullptr && holders_->id == hold_ ? state_of(*holders_) : task_state::dead;
  }

  // Whom the lease would go to: the first of the ordered, if it is the first of all, or the first exclusive one.
  [[nodiscard]] task* next_leased() noexcept {
    if (lease_ == nullptr) return next_of_one_key();
    return lease_->place != place::running && lease_->slot == this ? lease_ : nullptr;
  }

  // The same, of the tasks of this key alone.
  [[nodiscard]] task* next_of_one_key() noexcept {
    task* ordered = tasks_.first();
    if (ordered != nullptr &&
        (ordered->policy != policy::ordered || ordered->place != place::in_line || kept_back(*ordered)))
      ordered = nullptr;
    if (exclusive_.size == 0) return ordered;
    task* const exclusive = first_of(exclusive_, lease_limit_);
    if (ordered == nullptr || exclusive == nullptr) return ordered != nullptr ? ordered : exclusive;
    return goes_before(*ordered, *exclusive) ? ordered : exclusive;
  }

  // The first of a line with no larger id than the limit. What that keeps back is parked once for each change of it,
  // so the cost is amortised.
  [[nodiscard]] static task* first_of(line& l, std::uint64_t limit) noexcept {
    task* back = l.again.first();
    while (back != nullptr && back->id > limit) {
      l.again.remove(*back);
      l.parked.insert(*back);
      back = l.again.first();
    }
    task* const fresh = l.fifo.first();
    if (fresh == nullptr || fresh->id > limit) return back;
    return back != nullptr && goes_before(*back, *fresh) ? back : fresh;
  }

  [[nodiscard]] line& line_of(const task& t) noexcept { return t.policy == policy::exclusive ? exclusive_ : parallel_; }

  void enter_fifo(task& t) noexcept {
    t.place = place::in_line;
    t.again = false;
    if (t.policy == policy::ordered) return;
    line& l = line_of(t);
    ++l.size;
    l.fifo.push_back(t);
  }
  void enter_again(task& t) noexcept {
    t.place = place::in_line;
    t.again = true;
    if (t.policy == policy::ordered) return;
    line& l = line_of(t);
    ++l.size;
    l.again.insert(t);
  }
  void leave_line(task& t) noexcept {
    if (t.policy == policy::ordered) return;
    line& l = line_of(t);
    --l.size;
    if (!t.again) {
      l.fifo.remove(t);
    } else if (l.parked.first() == &t) {
      l.parked.remove(t);
    } else {
      l.again.remove(t);  // or it is inside `parked`: but for the first, a heap does not know its tasks
    }
  }
  void give_up_lease(const task& t) noexcept {
    if (lease_ == &t) lease_ = nullptr;
  }

  void hold_changed() noexcept {
    hold_ = holders_ != nullptr && holders_->id < evicted_holder_ ? holders_->id : evicted_holder_;
    conditions_changed_ = true;
    parallel_.again.merge(parallel_.parked);
    limits_changed();
  }
  void limits_changed() noexcept {
    const task* const first = reservers_.first();
    lease_limit_ = first != nullptr && place_in_line(*first) < hold_ ? place_in_line(*first) : hold_;
    exclusive_.again.merge(exclusive_.parked);
  }

  // Whether a task of several keys that is not `t` has reserved the lease, and `t` is no smaller id.
  [[nodiscard]] bool reserved_before(const task& t) const noexcept {
    const task* const first = reservers_.first();
    return first != nullptr && first != &t && place_in_line(*first) < (t.several ? place_in_line(t) : t.id);
  }

  static constexpr std::uint64_t nobody = ~std::uint64_t{0};  // larger than any id

  // First what few keys need; what every start looks at stands together, at the end, next to the key.
  std::uint64_t evicted_holder_ = nobody;
  task* holders_ = nullptr;  // by id; dead ones in the store, and redriven ones that have not succeeded yet
  task_heap<by_place> reservers_;
  task_list<&task::line> idlers_;
  line exclusive_;
  line parallel_;
  task_list<&task::peers> tasks_;
  task* lease_ = nullptr;
  std::uint64_t hold_ = nobody;
  std::uint64_t lease_limit_ = nobody;  // of the ids of exclusive tasks: the hold's, and that of the first reserver
  std::uint64_t hash_;
  std::uint32_t depth_ = 0;
  std::uint32_t parts_ = 0;  // of tasks of several keys that are in line or run
  bool paused_ = false;
  bool conditions_changed_ = false;  // pause or hold, since conditions_changed() was asked

 public:
  // Set and read by whoever holds the shard's lock.
  bool queued = false;       // in the ready queue, or on the way into or out of it: whoever takes it out will look here
  bool just_queued = false;  // queued by the visit that is under way
  bool has_key = false;      // it is a keyed_slot
  bool in_table = false;
  bool counted_in_use = false;  // in_use(), as last added to the shard's gauge
  bool counted_held = false;
  bool in_ready_queue = false;      // this and the links: guarded by the lock of the ready queue
  std::uint32_t references = 0;     // tasks that name this slot, wherever they are: 2^32 would take 500 GB
  std::uint32_t dead = 0;           // of these, dead ones in the store
  std::uint32_t arriving = 0;       // let in, their callable is being moved
  std::uint32_t counted_ready = 0;  // ready(), as last added to the shard's gauge
  key_slot* ready_next = nullptr;
  key_slot* ready_previous = nullptr;
};

}  // namespace turnkey::inline v1::detail
