// How fast tasks may start.
#pragma once

#include <turnkey/outcome.hpp>

#include <chrono>
#include <cstdint>

namespace turnkey::inline v1 {

// At most `n` starts in each `interval`, spread evenly, of which up to `burst` may follow each other at once: in any
// window of length w no more than burst + n * w / interval tasks start. Retries are starts too.
struct pace {
  double n = 1;                                 // more than 0
  duration interval = std::chrono::seconds{1};  // more than 0
  std::uint32_t burst = 1;                      // 1 or more
};

}  // namespace turnkey::inline v1
