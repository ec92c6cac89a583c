// What lists keys and tasks. A shard's lock is held while its part is collected, never two at once; keys are copied
// outside the locks, and what names them is kept meanwhile.
#pragma once

#include <turnkey/detail/control.hpp>
#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/keyed_slot.hpp>
#include <turnkey/detail/undo.hpp>
#include <turnkey/detail/visit.hpp>
#include <turnkey/inspect.hpp>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace turnkey::inline v1::detail {

template <class Key>
class listing {
 public:
  explicit listing(engine& engine) noexcept : engine_(engine) {}

  // The keys whose slot says yes.
  template <class Which>
  [[nodiscard]] std::vector<Key> keys(Which which) {
    struct nothing {};
    std::vector<listed<nothing>> all;
    for (std::uint32_t i = 0; i != engine::shard_count; ++i)
      collect(engine_.shard_number(i), all, [&which](shard& s, auto note) {
        s.slots.for_each([&](key_slot& slot) {
          if (which(slot)) note(slot, nothing{});
        });
      });
    std::vector<Key> keys;
    keys.reserve(all.size());
    for (auto& each : all) keys.push_back(std::move(*each.key));
    return keys;
  }

  // Oldest first: the shards' lists are, so they are merged.
  [[nodiscard]] std::vector<dead_task<Key>> dead() {
    struct death {
      dead_task<Key> task;
      std::uint64_t number;
    };
    std::vector<listed<death>> all;
    std::array<std::size_t, engine::shard_count + 1> ends{};
    for (std::uint32_t i = 0; i != engine::shard_count; ++i) {
      collect(engine_.shard_number(i), all, [](shard& s, auto note) {
        for (task* t = s.dead.first(); t != nullptr; t = s.dead.after(*t))
          note(*t->slot, death{{.id = task_id{t->id},
                                .key = {},
                                .policy = t->policy,
                                .attempts = attempts_of(*t),
                                .submitted = t->submitted,
                                .died = t->when,
                                .error = failure{t->reason, t->error}},
                               t->last.number});
      });
      ends[i + 1] = all.size();
    }
    std::vector<dead_task<Key>> merged;
    merged.reserve(all.size());
    auto at = ends;
    while (merged.size() != all.size()) {
      listed<death>* oldest = nullptr;
      std::size_t from = 0;
      for (std::size_t i = 0; i != engine::shard_count; ++i) {
        if (at[i] == ends[i + 1] || (oldest != nullptr && all[at[i]].found.number > oldest->found.number)) continue;
        oldest = &all[at[i]];
        from = i;
      }
      ++at[from];
      if (oldest->key) oldest->found.task.key.emplace(std::move(*oldest->key));
      merged.push_back(std::move(oldest->found.task));
    }
    return merged;
  }

  // The deepest first; equal ones by the age of their oldest task.
  [[nodiscard]] std::vector<key_info<Key>> busiest(std::size_t n) {
    struct busy {
      std::size_t depth;
      time_point oldest;
      task_id head;
      task_state state;
      bool paused;
      bool held;
    };
    constexpr auto busier = [](const auto& a, const auto& b) {
      return a.depth != b.depth ? a.depth > b.depth : a.oldest < b.oldest;
    };
    std::vector<listed<busy>> all;
    for (std::uint32_t i = 0; i != engine::shard_count; ++i) {
      shard& s = engine_.shard_number(i);
      struct candidate {
        std::size_t depth;
        time_point oldest;
        key_slot* slot;
      };
      std::vector<candidate> best;
      collect(
          s, all,
          [&](shard& here, auto note) {
            best.clear();
            here.slots.for_each([&](key_slot& slot) {
              if (slot.depth() == 0) return;
              const candidate next{slot.depth(), slot.first_task()->submitted, &slot};
              if (best.size() == n) {  // a heap with the least busy one in front
                if (n == 0 || !busier(next, best.front())) return;
                std::swap(best.front(), best.back());
                best.pop_back();
                sift_down(best, best.size(), busier);
              }
              if (best.size() == best.capacity()) return note.more();
              best.push_back(next);
              sift_up(best, best.size() - 1, busier);
            });
            for (const candidate& c : best) {
              const task& head = *c.slot->first_task();
              note(*c.slot, busy{c.depth, c.oldest, task_id{head.id}, key_slot::state_of(head), c.slot->paused(),
                                 c.slot->held()});
            }
          },
          [&](std::size_t room) { best.reserve(room < n ? room : n); });
    }
    sort(all, [&](const auto& a, const auto& b) { return busier(a.found, b.found); });
    while (all.size() > n) all.pop_back();
    const inside_scope inside(engine_);
    const time_point now = inside ? engine_.now() : time_point{};
    std::vector<key_info<Key>> infos;
    infos.reserve(all.size());
    for (auto& each : all)
      infos.push_back({.key = std::move(*each.key),
                       .depth = each.found.depth,
                       .oldest_age = inside ? now - each.found.oldest : duration::zero(),
                       .head = each.found.head,
                       .head_state = each.found.state,
                       .paused = each.found.paused,
                       .held = each.found.held});
    return infos;
  }

  // An unfinished task.
  [[nodiscard]] std::optional<task_info<Key>> find(task_id id) {
    const auto number = static_cast<std::uint64_t>(id);
    std::vector<listed<task_info<Key>>> found;
    bool several = false;
    collect(engine_.shard_of_id(number), found, [&](shard& s, auto note) {
      const task* const t = s.ids.find(number);
      if (t == nullptr || t->place >= place::dead) return;
      const key_slot& slot = *t->slot;
      several = t->several;
      task_info<Key> info{.id = id,
                          .key = {},
                          .policy = t->policy,
                          .state = key_slot::state_of(*t),
                          .attempts = attempts_of(*t),
                          .submitted = t->submitted,
                          .since = t->submitted,
                          .due = {},
                          .why = {}};
      const bool in_line = t->place == place::in_line || t->place == place::in_lines;
      if (t->place == place::running || (in_line && t->again && t->retried)) info.since = t->when;
      if (t->place == place::resting) info.due = t->when;
      if (t->place != place::running) info.why = slot.why_not_started(*t);
      note(*t->slot, std::move(info));
    });
    if (found.empty()) return {};
    task_info<Key> info = std::move(found.front().found);
    if (found.front().key) info.key.emplace(std::move(*found.front().key));
    if (several) info.why = engine_.why_over_all(id).value_or(info.why);
    if (info.why.kind == why::reason::turn) info.why = engine_.why_not_started();
    return info;
  }

 private:
  // A heap in a vector, the last by `before` in front: <algorithm> would bring every user a seventh more lines.
  template <class T, class Before>
  static void sift_up(std::vector<T>& heap, std::size_t at, Before before) {
    for (; at != 0 && before(heap[(at - 1) / 2], heap[at]); at = (at - 1) / 2) std::swap(heap[(at - 1) / 2], heap[at]);
  }
  template <class T, class Before>
  static void sift_down(std::vector<T>& heap, std::size_t end, Before before) {
    for (std::size_t at = 0, child = 1; child < end; at = child, child = 2 * at + 1) {
      if (child + 1 < end && before(heap[child], heap[child + 1])) ++child;
      if (!before(heap[at], heap[child])) return;
      std::swap(heap[at], heap[child]);
    }
  }
  template <class T, class Before>
  static void sort(std::vector<T>& all, Before before) {
    for (std::size_t i = 1; i < all.size(); ++i) sift_up(all, i, before);
    for (std::size_t end = all.size(); end > 1;) {
      std::swap(all.front(), all[--end]);
      sift_down(all, end, before);
    }
  }

  template <class Found>
  struct listed {
    std::optional<Key> key;
    Found found;
  };

  // What `each` calls with what it finds; more() asks to be called again with more room.
  template <class Found>
  struct notes {
    void operator()(key_slot& slot, Found&& found) noexcept {
      fits = fits && slots.size() < room;
      if (!fits) return;
      ++slot.references;
      slots.push_back(&slot);
      all.push_back({{}, std::move(found)});
    }
    void more() noexcept { fits = false; }

    std::vector<listed<Found>>& all;
    std::vector<key_slot*>& slots;
    std::size_t room;
    bool& fits;
  };

  static void nothing_to_reserve(std::size_t) noexcept {}

  // Appends what `each` notes in a shard, under its lock; what it needs room for, `reserve` gets before.
  template <class Found, class Each, class Reserve = decltype(&nothing_to_reserve)>
  void collect(shard& s, std::vector<listed<Found>>& all, Each each, Reserve reserve = &nothing_to_reserve) {
    std::vector<key_slot*> slots;
    const std::size_t before = all.size();
    for (std::size_t room = 16;; room *= 2) {
      all.reserve(before + room);
      slots.reserve(room);
      reserve(room);
      visit v(engine_, s);
      bool fits = true;
      each(s, notes<Found>{all, slots, room, fits});
      if (fits) break;
      unpin(v, slots);
      v.leave();
      while (all.size() != before) all.pop_back();
    }
    undo pinned([&] {
      visit v(engine_, s);
      unpin(v, slots);
    });
    for (std::size_t i = 0; i != slots.size(); ++i)
      if (const Key* const key = key_of<Key>(*slots[i])) all[before + i].key.emplace(*key);
  }
  static void unpin(visit& v, std::vector<key_slot*>& slots) noexcept {
    for (key_slot* slot : slots) {
      --slot->references;
      v.changed(*slot);
    }
    slots.clear();
  }

  engine& engine_;
};

}  // namespace turnkey::inline v1::detail
