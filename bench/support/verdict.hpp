// Whether what was measured was right. A benchmark that found a fault says so in its row, and the program returns 1.
#pragma once

#include <benchmark/benchmark.h>

#include <atomic>
#include <string>

namespace bench {

inline std::atomic<bool>& found_a_fault() {
  static std::atomic<bool> found{false};
  return found;
}

// To call once after the loop; an empty `fault` is none.
inline void judge(benchmark::State& state, const std::string& fault) {
  if (fault.empty()) return;
  found_a_fault() = true;
  state.SkipWithError(fault.c_str());
}

}  // namespace bench
