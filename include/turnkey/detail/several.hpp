// Tasks of several keys (rule 7.7): how they stand in all their lines at one instant, and when they reserve and start.
//
// What changes such a task, or may change how it stands, is done under all shards' locks: then a change of one key and
// all that follows from it in others is one instant, and nothing is looked at twice. That is every settling on a key
// that such a task stands in line for. Its submit and its start concern nobody else: the former comes last in every
// line, the latter is first in every one and takes the lease. So these need the locks of its own keys' shards only.
//
// Why nobody waits for ever. Say a task is eligible when it is in line and only leases, and those that reserve, keep
// it. Eligible tasks reserve each of their keys, and in each key the one with the smallest id counts. Ids are one order
// for all keys, so of all eligible tasks the one with the smallest id is first in every one of its lines: a circle,
// each waiting for what the next has reserved, cannot be. It waits for leases only, and these are held by attempts that
// run: no task holds some leases while it waits for others. As they end, no larger id takes what it has reserved, and
// the smaller ones that may are finitely many, so its turn comes, whatever arrives meanwhile: nobody starves. A task
// that is kept by a predecessor, a time, a pause or a hold reserves nothing, so these never keep anybody else.
#pragma once

#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/group.hpp>
#include <turnkey/detail/visit.hpp>

#include <cstddef>
#include <cstdint>
#include <new>
#include <optional>

namespace turnkey::inline v1::detail {

// A visit to several shards at once: their locks are taken together, in index order, and what follows from what was
// done under them is done when all of them are gone.
class joint {
 public:
  static constexpr std::uint32_t everywhere = (1U << engine::shard_count) - 1;

  // `shards` has a bit for each shard; with none, begin() comes later, or never.
  explicit joint(engine& engine, std::uint32_t shards = everywhere) noexcept : engine_(engine) {
    if (shards != 0) begin(shards);
  }
  ~joint() {
    if (begun()) leave();
  }
  joint(const joint&) = delete;
  joint& operator=(const joint&) = delete;

  void begin(std::uint32_t shards = everywhere) noexcept TURNKEY_NO_ANALYSIS {
    shards_ = shards;
    together_.emplace();
    each_shard([](shard& s) TURNKEY_NO_ANALYSIS { s.mutex.lock(); });
  }
  [[nodiscard]] bool begun() const noexcept { return shards_ != 0; }
  [[nodiscard]] bool has(std::uint32_t shards) const noexcept { return (shards & ~shards_) == 0; }

  // The visit to the shard of a key's hash, or of an id: each has its shard's number in the lowest bits.
  [[nodiscard]] visit& of(std::uint64_t hash_or_id) noexcept {
    const std::size_t number = hash_or_id & (engine::shard_count - 1);
    void* const place = visits_ + number * sizeof(visit);
    if ((visited_ >> number & 1U) != 0) return *std::launder(static_cast<visit*>(place));
    visited_ |= 1U << number;
    return *::new (place) visit(engine_, engine_.shard_of_id(number), *this);
  }
  [[nodiscard]] visit& of(const key_slot& slot) noexcept { return of(slot.hash()); }

  // Lets go of the locks and does what follows. Nothing may be asked of the visits afterwards.
  void leave() noexcept TURNKEY_NO_ANALYSIS {
    engine_.keep();  // the user's code may destroy the scheduler
    each_visit([](visit& v) { v.look_back(); });
    each_shard([](shard& s) TURNKEY_NO_ANALYSIS { s.mutex.unlock(); });
    together_.reset();
    // All that has happened is told before anything that it allows begins.
    key_slot* lines = nullptr;
    key_slot** to = &lines;
    each_visit([&to](visit& v) {
      if (v.lines_ != nullptr) to = v.lines_;
    });
    each_visit([to](visit& v) {
      v.lines_ = to;
      v.follow();
      v.~visit();
    });
    shards_ = 0;
    visited_ = 0;
    if (lines != nullptr) engine_.push(lines);
    engine_.drop();
  }

 private:
  template <class Do>
  void each_shard(Do action) noexcept {
    for (std::uint32_t i = 0; i != engine::shard_count; ++i)
      if ((shards_ >> i & 1U) != 0) action(engine_.shard_number(i));
  }
  template <class Do>
  void each_visit(Do action) noexcept {
    for (std::uint32_t i = 0; i != engine::shard_count; ++i)
      if ((visited_ >> i & 1U) != 0) action(of(i));
  }

  engine& engine_;
  std::uint32_t shards_ = 0;  // whose locks are held
  std::uint32_t visited_ = 0;
  std::optional<holds_several> together_;
  alignas(visit) std::byte visits_[engine::shard_count * sizeof(visit)];
};

// A visit to one shard that becomes one to all, where that turns out to be needed before anything is done in it.
class wide_visit {
 public:
  wide_visit(engine& engine, shard& shard) noexcept : all_(engine, 0), here_(engine, shard) {}

  // What was found before must be looked for again.
  void widen(std::uint64_t hash_or_id, std::uint32_t shards = joint::everywhere) noexcept {
    // uncovered: wide already, it is when another thread changes what is first in the line, between two looks at it
    is_wide() ? all_.leave() : here_.leave();
    all_.begin(shards);
    visit_ = &all_.of(hash_or_id);
  }
  [[nodiscard]] bool has(std::uint32_t shards) const noexcept { return is_wide() && all_.has(shards); }
  [[nodiscard]] bool is_wide() const noexcept { return visit_ != &here_; }
  [[nodiscard]] visit& operator*() noexcept { return *visit_; }
  [[nodiscard]] visit* operator->() noexcept { return visit_; }
  [[nodiscard]] joint& all() noexcept { return all_; }

 private:
  joint all_;
  visit here_;
  visit* visit_ = &here_;
};

// ---- who reserves, and who may start

// Something about a key has changed: what that means for the tasks of several keys in its line. Only the first of all
// and the first that reserves can be concerned, unless a pause or a hold has come or gone.
inline void engine::stir(joint& all, key_slot& slot) noexcept {
  if (!slot.has_parts() || !all.has(joint::everywhere)) return;
  if (slot.conditions_changed()) {
    while (task* const part = slot.first_reserver()) set_reserving(all, group_of(*part), false);
    for (task* part = slot.first_idler(); part != nullptr;) {
      task* const next = key_slot::idler_after(*part);
      consider(all, group_of(*part));
      part = next;
    }
  }
  if (task* const first = slot.first_task(); first != nullptr && first->several) consider(all, group_of(*first));
  if (task* const first = slot.first_reserver()) consider(all, group_of(*first));
}

// Looks at a task of several keys again: whether it reserves, and whether it may start.
inline void engine::consider(joint& all, group& g) noexcept {
  const bool eligible =
      g.home->place == place::in_lines && g.all([](const task& part) { return part.slot->lets(part); });
  if (eligible != g.reserving) return set_reserving(all, g, eligible);
  set_granted(all, g);
}

// It begins to reserve all its keys, or stops: so somebody else may be first in some of them.
inline void engine::set_reserving(joint& all, group& g, bool reserving) noexcept {
  g.reserving = reserving;
  g.each([reserving](task& part) { reserving ? part.slot->reserve(part) : part.slot->stop_reserving(part); });
  g.each([&](task& part) {  // whom it has pushed from the front
    if (task* const other = part.slot->granted();
        other != nullptr && other != g.home && part.slot->first_reserver() == &part)
      set_granted(all, group_of(*other));
  });
  set_granted(all, g);
  g.each([&](task& part) {  // whom it has let to the front
    if (task* const first = part.slot->first_reserver(); first != nullptr && !reserving)
      set_granted(all, group_of(*first));
    all.of(*part.slot).recount(*part.slot);
  });
}

// It may start when it comes first for the lease of every one of its keys, and all are free.
inline void engine::set_granted(joint& all, group& g) noexcept {
  const bool may = g.reserving && g.all([](const task& part) { return part.slot->may_take_lease(part); });
  if (may == g.granted) return;
  g.granted = may;
  g.each([&](task& part) {
    part.slot->grant(may ? g.home : nullptr);
    all.of(*part.slot).recount(*part.slot);
  });
}

// ---- what happens to one

// Into all its lines.
inline void engine::enter_lines(joint& all, group& g) noexcept {
  g.home->place = place::in_lines;
  g.each_other([&g](task& part) {
    part.again = true;
    part.rank = place_in_line(*g.home);
  });
  g.each([](task& part) { part.slot->enter(part); });
  consider(all, g);
}

// Out of all its lines, or it gives up its leases.
inline void engine::leave_lines(joint& all, group& g) noexcept {
  if (g.home->place == place::running) {
    g.each([](task& part) { part.slot->take_lease_back(); });
  } else if (g.home->place == place::in_lines) {
    if (g.reserving) set_reserving(all, g, false);
    g.each([](task& part) { part.slot->exit(part); });
  }
}

// For each of its keys but the first, which the caller sees to.
inline void engine::others_changed(visit& v, task& t) noexcept {
  group_of(t).each_other([&v](task& part) { v.all().of(*part.slot).changed(*part.slot); });
}

// The next of the numbers that each shard counts, larger than all that were given in any shard of the task's keys.
inline std::uint64_t engine::next_in_all(const task& t, std::uint64_t shard::*counter) noexcept {
  std::uint64_t next = 0;
  group& g = group_of(t);
  g.each([&](const task& part) {
    const std::uint64_t here = shard_of_hash(part.slot->hash()).*counter;
    if (next < here) next = here;
  });
  g.each([&](const task& part) { shard_of_hash(part.slot->hash()).*counter = next + 1; });
  return next;
}

// The ids that come next in the shards of the task's keys are larger than all that were given there.
inline void engine::rise_over_all(task& t) noexcept {
  std::uint64_t serial = 0;
  group& g = group_of(t);
  g.each([&](const task& part) {
    const std::uint64_t here = shard_of_hash(part.slot->hash()).ids.next();
    if (serial < here) serial = here;
  });
  g.each([&](const task& part) { shard_of_hash(part.slot->hash()).ids.rise_to(serial); });
}

// The last step of a submit, as accept(): `t` and its parts name their slots. Nobody else is concerned by what has the
// largest id of all its keys, so the locks of their shards are enough.
inline void engine::accept_several(joint& all, task& t, time_point now, duration delay) noexcept {
  group& g = group_of(t);
  visit& v = all.of(*t.slot);
  shard& s = v.here();
  several_.fetch_add(1, std::memory_order_relaxed);
  rise_over_all(t);
  s.ids.insert(t);
  rise_over_all(t);
  t.submitted = now;
  ++s.unfinished;
  ++s.counts.submitted;
  g.each([&t](task& part) {
    part.id = t.id;
    part.submitted = t.submitted;
    part.slot->join(part);
  });
  time_point due{};
  if (delay > duration::zero()) {
    due = later(now, delay);
    t.place = place::resting;
    v.rest_until(t, due);
  } else {
    enter_lines(all, g);
  }
  v.say(event_kind::submitted, t, {0, 0, now}, due);
  g.each([&all](task& part) { all.of(*part.slot).recount(*part.slot); });
}

// It becomes running, with all its leases. Gives its fence.
inline std::uint64_t engine::start_in_all(visit& v, task& t) noexcept {
  group& g = group_of(t);
  TURNKEY_ASSERT(g.granted, "K6: only what may start starts");
  g.reserving = false;
  g.granted = false;
  g.each([](task& part) { part.slot->give_lease(part); });
  t.place = place::running;
  g.each_other([&v](task& part) { v.all().of(*part.slot).recount(*part.slot); });
  return next_in_all(t, &shard::next_fence);
}

// It comes back from a rest, or from the dead, into all its lines.
inline void engine::come_back_in_all(visit& v, task& t) noexcept {
  if (!t.retried) t.rank = t.id;  // rule 3.4: the place in line is that of the id
  t.again = true;
  enter_lines(v.all(), group_of(t));
  others_changed(v, t);
}

// It wants to run again at once, behind what is ready in each of its lines.
inline void engine::come_back_behind_in_all(visit& v, task& t) noexcept {
  leave_lines(v.all(), group_of(t));
  rise_over_all(t);
  t.rank = v.here().ids.skip();
  rise_over_all(t);
  t.retried = false;
  t.again = true;
  enter_lines(v.all(), group_of(t));
  others_changed(v, t);
}

// It gives up its leases and rests.
inline void engine::rest_in_all(visit& v, task& t) noexcept {
  leave_lines(v.all(), group_of(t));
  t.place = place::resting;
  t.retried = true;
  others_changed(v, t);
}

// It finishes. The caller says what holds, and calls others_changed().
inline void engine::quit_all(visit& v, task& t) noexcept {
  leave_lines(v.all(), group_of(t));
  group_of(t).each([](task& part) { part.slot->quit(part); });
}

// The parts of a task that is gone let go of their keys. No lock is held.
inline void engine::dissolve(task& t) noexcept {
  group_of(t).each_other([this](task& part) {
    visit v(*this, shard_of_hash(part.slot->hash()));
    part.slot->detach(part);
    v.changed(*part.slot);
  });
  several_.fetch_sub(1, std::memory_order_relaxed);
}

// ---- why

// The first reason that holds over all keys of a task; none when it is finished meanwhile.
inline std::optional<why> engine::why_over_all(task_id id) noexcept {
  const joint all(*this);
  const auto number = static_cast<std::uint64_t>(id);
  const task* const t = shard_of_id(number).ids.find(number);
  if (t == nullptr || t->place >= place::dead) return {};
  if (t->place == place::running) return why{};
  why first{.kind = why::reason::turn};
  group_of(*t).each([&first](const task& part) {
    const why here = part.slot->why_not_started(part);
    if (here.kind < first.kind) first = here;
  });
  return first;
}

}  // namespace turnkey::inline v1::detail
