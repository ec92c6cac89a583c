// What a trace keeps: the newest events in a ring, and which keys and threads they name. All memory is taken at the
// start. It knows no Key: a key is its text.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/event.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace turnkey::inline v1::detail {

// Numbers below size() for at most so many names. A name keeps its number while it is in use; then another gets it.
class trace_names {
 public:
  static constexpr std::size_t max_text = 64;

  explicit trace_names(std::size_t size) : names_(size), buckets_(std::bit_ceil(2 * size + 1), none) {
    for (std::uint32_t i = 0; i != size; ++i) names_[i].next = i + 1;
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(names_.size()); }
  [[nodiscard]] std::string_view text(std::uint32_t number) const noexcept {
    return {names_[number].text.data(), names_[number].size};
  }

  // The number of the name that reads `text` and whose whole text has this hash; size() when all numbers are taken.
  std::uint32_t use(std::uint64_t hash, std::string_view text) noexcept {
    text = text.substr(0, max_text);
    std::uint32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
    for (std::uint32_t i = bucket; i != none; i = names_[i].next) {
      if (names_[i].hash != hash || this->text(i) != text) continue;
      ++names_[i].uses;
      return i;
    }
    if (free_ == size()) return size();
    const std::uint32_t number = free_;
    name& n = names_[number];
    free_ = std::exchange(n.next, bucket);
    bucket = number;
    n.hash = hash;
    n.uses = 1;
    n.size = static_cast<std::uint8_t>(text.copy(n.text.data(), max_text));
    return number;
  }

  // Ends one use of what use() returned.
  void drop(std::uint32_t number) noexcept {
    if (number >= size() || --names_[number].uses != 0) return;
    std::uint32_t* link = &buckets_[names_[number].hash & (buckets_.size() - 1)];
    while (*link != number) link = &names_[*link].next;
    *link = std::exchange(names_[number].next, free_);
    free_ = number;
  }

 private:
  static constexpr std::uint32_t none = 0xffffffff;

  struct name {
    std::uint64_t hash = 0;
    std::uint32_t uses = 0;
    std::uint32_t next = 0;  // in its bucket, or among the free ones
    std::uint8_t size = 0;
    std::array<char, max_text> text;
  };
  std::vector<name> names_;
  std::vector<std::uint32_t> buckets_;
  std::uint32_t free_ = 0;
};

struct trace_entry {
  std::uint64_t number = 0;
  std::uint64_t id = 0;
  std::uint64_t fence = 0;
  time_point time{};
  time_point due{};
  std::uint32_t attempt = 0;
  std::uint32_t key = 0;     // in the names of keys; their size: another key; size + 1: no key
  std::uint32_t thread = 0;  // in the names of threads; their size: another thread
  event_kind kind{};
  turnkey::policy policy{};
  bool failed = false;  // `reason` says why
  failure_reason reason{};

  [[nodiscard]] bool names_task() const noexcept {
    return kind != event_kind::executor_refused && kind != event_kind::permit_lost;
  }
};

class trace_log {
 public:
  struct copy {
    std::vector<trace_entry> entries;  // in the order in which they came
    trace_names keys;
    trace_names threads;
    std::uint64_t dropped;  // older ones
  };

  trace_log(std::size_t max_events, std::size_t max_keys, std::size_t max_threads)
      : max_events_(max_events),
        max_keys_(max_keys),
        max_threads_(max_threads),
        ring_(max_events),
        keys_(max_keys),
        threads_(max_threads) {}

  // Keeps `e`, in place of the oldest when there is no room. It happened on this thread.
  void note(trace_entry e, std::optional<std::string_view> key) noexcept {
    const std::uint64_t key_hash = key ? std::hash<std::string_view>{}(*key) : 0;
    const std::uint64_t thread_hash = std::hash<std::thread::id>{}(std::this_thread::get_id());
    lock lock(mutex_);
    trace_entry& place = ring_[next_];
    if (count_ >= max_events_) {
      keys_.drop(place.key);
      threads_.drop(place.thread);
    }
    e.key = key ? keys_.use(key_hash, *key) : keys_.size() + 1;
    e.thread = threads_.use(thread_hash, {});
    place = e;
    ++count_;
    if (++next_ == max_events_) next_ = 0;
  }

  [[nodiscard]] copy look() const {
    copy taken{std::vector<trace_entry>(max_events_), trace_names(max_keys_), trace_names(max_threads_), 0};
    lock lock(mutex_);
    std::copy(ring_.begin(), ring_.end(), taken.entries.begin());
    taken.keys = keys_;  // of the same size: nothing is allocated
    taken.threads = threads_;
    const std::uint64_t count = count_;
    const std::size_t oldest = next_;
    lock.unlock();
    if (count < max_events_) {
      taken.entries.resize(oldest);
    } else {
      std::rotate(taken.entries.begin(), taken.entries.begin() + static_cast<std::ptrdiff_t>(oldest),
                  taken.entries.end());
      taken.dropped = count - max_events_;
    }
    return taken;
  }

 private:
  const std::size_t max_events_;
  const std::size_t max_keys_;
  const std::size_t max_threads_;
  mutable mutex mutex_;
  std::vector<trace_entry> ring_ TURNKEY_GUARDED_BY(mutex_);
  trace_names keys_ TURNKEY_GUARDED_BY(mutex_);
  trace_names threads_ TURNKEY_GUARDED_BY(mutex_);
  std::size_t next_ TURNKEY_GUARDED_BY(mutex_) = 0;
  std::uint64_t count_ TURNKEY_GUARDED_BY(mutex_) = 0;
};

}  // namespace turnkey::inline v1::detail
