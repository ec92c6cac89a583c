// What lists keys and tasks. A shard's lock is held while its part is collected, never two at once; keys are copied
// outside the locks, and what names them is kept meanwhile.
#pragma once

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

 private:
  template <class Found>
  struct listed {
    std::optional<Key> key;
    Found found;
  };

  // Appends what `each` notes in a shard, under its lock; it is called again when there was no room for all.
  template <class Found, class Each>
  void collect(shard& s, std::vector<listed<Found>>& all, Each each) {
    std::vector<key_slot*> slots;
    const std::size_t before = all.size();
    for (std::size_t room = 16;; room *= 2) {
      all.reserve(before + room);
      slots.reserve(room);
      visit v(engine_, s);
      bool fits = true;
      each(s, [&](key_slot& slot, Found&& found) {
        fits = fits && slots.size() < room;
        if (!fits) return;
        ++slot.references;
        slots.push_back(&slot);
        all.push_back({{}, std::move(found)});
      });
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
