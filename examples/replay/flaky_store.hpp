// A store that keeps one state for each key and refuses a share of the writes, always the same ones for the same seed.
// Writers of one key exclude each other for as long as a write lasts and no longer: who comes last wins, whatever its
// line. It is not what keeps the order; turnkey is.
#pragma once

#include "event_log.hpp"

#include <cstdint>
#include <mutex>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace replay {

class flaky_store {
 public:
  flaky_store(const std::vector<entry>& entries, double fail, std::uint64_t seed) : fail_(fail), seed_(seed) {
    for (const entry& e : entries) cells_.try_emplace(e.key);
  }

  // False, and nothing changed, when the store refuses.
  bool write(const entry& e, std::uint32_t attempt) {
    if (chance(e.line, attempt) < fail_) return false;
    cell& target = cells_.find(e.key)->second;
    const std::lock_guard lock(target.mutex);
    target.written = &e;
    return true;
  }

  [[nodiscard]] std::string_view state(std::string_view key) {
    cell& target = cells_.find(key)->second;
    const std::lock_guard lock(target.mutex);
    return target.written != nullptr ? target.written->state : std::string_view();
  }

  // What it held when it was looked through.
  void restore(const entry& e) {
    cell& target = cells_.find(e.key)->second;
    const std::lock_guard lock(target.mutex);
    target.written = &e;
  }

  // Calls `look` with the entry that was written last of each key that has one.
  template <class Look>
  void for_each(Look look) {
    for (auto& [key, target] : cells_) {
      const std::lock_guard lock(target.mutex);
      if (target.written != nullptr) look(*target.written);
    }
  }

 private:
  struct cell {
    std::mutex mutex;
    const entry* written = nullptr;
  };

  // From [0, 1), the same for the same seed, line and attempt, whichever thread asks when.
  [[nodiscard]] double chance(std::uint64_t line, std::uint64_t attempt) const noexcept {
    const std::uint64_t bits = mixed(mixed(mixed(seed_) + line) + attempt);
    return static_cast<double>(bits >> 11U) * 0x1p-53;
  }

  // The finaliser of splitmix64.
  static std::uint64_t mixed(std::uint64_t x) noexcept {
    x += 0x9e3779b97f4a7c15U;
    x = (x ^ (x >> 30U)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27U)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31U);
  }

  double fail_;
  std::uint64_t seed_;
  std::unordered_map<std::string_view, cell> cells_;  // complete before the first write, then only looked up
};

}  // namespace replay
