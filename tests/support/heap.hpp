// The heap as a test sees it: how much is alive, how often it was asked, and allocations that fail on demand. Works
// where memory/heap.cpp is linked, which replaces the global operator new.
#pragma once

#include <cstddef>
#include <cstdint>

namespace support::heap {

struct usage {
  std::int64_t blocks = 0;
  std::int64_t bytes = 0;
  bool operator==(const usage&) const = default;
};

// What operator new has given and operator delete has not taken back.
usage alive() noexcept;

// How often operator new was called, by any thread.
std::uint64_t allocations() noexcept;

// While it lives, the k-th allocation of this thread throws std::bad_alloc; 0 is the next one. The others succeed.
class failing {
 public:
  explicit failing(std::uint64_t k) noexcept;
  ~failing();
  failing(const failing&) = delete;
  failing& operator=(const failing&) = delete;

  // Whether that allocation was asked for.
  [[nodiscard]] static bool happened() noexcept;
};

}  // namespace support::heap
