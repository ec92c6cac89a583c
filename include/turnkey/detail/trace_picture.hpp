// What there is to see in the events that a trace_log has kept: slices and instants, and the tracks they stand on. A
// viewer wants that slices of one track nest or follow each other.
#pragma once

#include <turnkey/detail/trace_log.hpp>
#include <turnkey/event.hpp>
#include <turnkey/outcome.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace turnkey::inline v1::detail {

// Something that takes time: an attempt from `begin` to `end`; the rest after `begin`; a submit, which takes none.
struct trace_slice {
  const trace_entry* begin;
  const trace_entry* end;  // null: nothing has ended it
  time_point from;
  time_point to;
  std::size_t life = 0;  // of a submit, and of the attempt that it led to, from 1; 0: of no other
  std::size_t lane = 0;  // among those of its key
};

enum class thread_use : std::uint8_t { unseen, seen, works };

class trace_picture {
 public:
  explicit trace_picture(trace_log::copy log)
      : threads(log.threads.size() + std::size_t{1}), lanes(log.keys.size() + std::size_t{2}), log_(std::move(log)) {
    put_in_order();
    find_lives();
    one_at_a_time(on_threads);
    side_by_side(on_keys);
  }
  trace_picture(const trace_picture&) = delete;
  trace_picture& operator=(const trace_picture&) = delete;

  std::vector<trace_slice> submits;
  std::vector<trace_slice> on_threads;  // attempts
  std::vector<trace_slice> on_keys;     // attempts and rests
  std::vector<const trace_entry*> instants;
  std::vector<thread_use> threads;  // the last one stands for all others
  std::vector<std::size_t> lanes;   // how many a key has; the last two stand for other keys and for no key
  time_point first{};
  time_point last{};

  [[nodiscard]] std::size_t events() const noexcept { return log_.entries.size(); }
  [[nodiscard]] std::uint64_t dropped() const noexcept { return log_.dropped; }
  [[nodiscard]] std::string_view key_name(std::size_t key) const noexcept {
    if (key < other_keys()) return log_.keys.text(static_cast<std::uint32_t>(key));
    return key == other_keys() ? "other keys" : "no key";
  }

 private:
  [[nodiscard]] std::size_t other_keys() const noexcept { return log_.keys.size(); }

  // Those of no task first, then each task's side by side. An event's time is read before its lock is taken and its
  // number given under it: it happened no earlier than what has a smaller number, whatever the clock said.
  void put_in_order() {
    std::vector<trace_entry>& all = log_.entries;
    const auto not_before = [&all](auto follows) {
      for (std::size_t i = 1; i < all.size(); ++i)
        if (follows(all[i], all[i - 1])) all[i].time = (std::max)(all[i].time, all[i - 1].time);
    };
    std::sort(all.begin(), all.end(), [](const trace_entry& a, const trace_entry& b) {
      return std::tie(a.key, a.number) < std::tie(b.key, b.number);
    });
    not_before([this](const auto& a, const auto& b) { return a.key == b.key && a.key < other_keys(); });
    std::sort(all.begin(), all.end(), [](const trace_entry& a, const trace_entry& b) {
      return std::tuple(a.names_task(), a.id, a.number, a.time) < std::tuple(b.names_task(), b.id, b.number, b.time);
    });
    not_before([](const auto& a, const auto& b) { return a.names_task() && b.names_task() && a.id == b.id; });
  }

  void find_lives() {
    const std::vector<trace_entry>& all = log_.entries;
    if (all.empty()) return;
    const auto earlier = [](const trace_entry& a, const trace_entry& b) { return a.time < b.time; };
    first = std::min_element(all.begin(), all.end(), earlier)->time;
    last = std::max_element(all.begin(), all.end(), earlier)->time;
    for (std::size_t i = 0, next = 0; i != all.size(); i = next) {
      ++next;
      if (!all[i].names_task()) {
        stand_alone(all[i]);
        continue;
      }
      while (next != all.size() && all[next].id == all[i].id) ++next;
      tell_lives(all.data() + i, all.data() + next);
    }
    std::sort(submits.begin(), submits.end(), [](const trace_slice& a, const trace_slice& b) {
      return std::tie(a.from, a.begin) < std::tie(b.from, b.begin);
    });
    std::sort(instants.begin(), instants.end(),
              [](const trace_entry* a, const trace_entry* b) { return std::tie(a->time, a) < std::tie(b->time, b); });
  }

  // The events of one task, or what is left of them: the older ones may be gone.
  void tell_lives(const trace_entry* begin, const trace_entry* end) {
    const trace_entry* running = nullptr;  // its start
    std::size_t lives = 0;
    std::size_t begun = 0;  // the life that has no attempt yet
    const auto end_attempt = [&](const trace_entry* by) {
      if (running == nullptr) return;
      const trace_slice attempt{running, by, running->time, by != nullptr ? by->time : last, std::exchange(begun, 0)};
      threads[running->thread] = thread_use::works;
      on_threads.push_back(attempt);
      on_keys.push_back(attempt);
      running = nullptr;
    };
    for (const trace_entry* e = begin; e != end; ++e) {
      switch (e->kind) {
        case event_kind::submitted:
        case event_kind::redriven:
          begun = ++lives;
          see(e->thread);
          submits.push_back({e, e, e->time, e->time, begun});
          break;
        case event_kind::started: running = e; break;
        case event_kind::succeeded:
        case event_kind::failed:
        case event_kind::postponed:
        case event_kind::dead:
        case event_kind::cancelled:
        case event_kind::undone:
          if (running == nullptr || e->kind == event_kind::dead) stand_alone(*e);
          end_attempt(e);
          break;
        default: stand_alone(*e);
      }
      const time_point next = e + 1 != end ? e[1].time : last;
      if (e->due > e->time) on_keys.push_back({e, nullptr, e->time, (std::min)(e->due, next)});
    }
    end_attempt(nullptr);
  }

  void stand_alone(const trace_entry& e) {
    instants.push_back(&e);
    if (e.names_task()) {
      lanes[e.key] = (std::max)(lanes[e.key], std::size_t{1});
    } else {
      see(e.thread);
    }
  }
  void see(std::uint32_t thread) { threads[thread] = (std::max)(threads[thread], thread_use::seen); }

  // A worker is done with an attempt when it begins the next, though its completion may still be out.
  static void one_at_a_time(std::vector<trace_slice>& all) {
    std::sort(all.begin(), all.end(), [](const trace_slice& a, const trace_slice& b) {
      return std::tie(a.begin->thread, a.from, a.to, a.begin->id) <
             std::tie(b.begin->thread, b.from, b.to, b.begin->id);
    });
    for (std::size_t i = 1; i < all.size(); ++i)
      if (all[i].begin->thread == all[i - 1].begin->thread) all[i - 1].to = (std::min)(all[i - 1].to, all[i].from);
  }

  // What overlaps on a key goes to lanes. Attempts choose first, so that those under a lease stand on one where only
  // such attempts are.
  void side_by_side(std::vector<trace_slice>& all) {
    const auto rests = [](const trace_slice& s) { return s.begin->kind != event_kind::started; };
    std::sort(all.begin(), all.end(), [&rests](const trace_slice& a, const trace_slice& b) {
      return std::tuple(a.begin->key, rests(a), a.from, a.to, a.begin->id) <
             std::tuple(b.begin->key, rests(b), b.from, b.to, b.begin->id);
    });
    std::vector<std::map<time_point, time_point>> taken;  // by lane: from when, to when
    for (std::size_t i = 0; i != all.size(); ++i) {
      trace_slice& each = all[i];
      if (i != 0 && all[i - 1].begin->key != each.begin->key) taken.clear();
      while (each.lane != taken.size() && !fits(taken[each.lane], each)) ++each.lane;
      if (each.lane == taken.size()) taken.emplace_back();
      taken[each.lane][each.from] = each.to;
      lanes[each.begin->key] = (std::max)(lanes[each.begin->key], taken.size());
    }
  }
  static bool fits(const std::map<time_point, time_point>& lane, const trace_slice& s) {
    const auto next = lane.upper_bound(s.from);
    return (next == lane.end() || next->first >= s.to) && (next == lane.begin() || std::prev(next)->second <= s.from);
  }

  trace_log::copy log_;
};

}  // namespace turnkey::inline v1::detail
