// Says on the standard error what is being measured: one line rewritten in place on a terminal, else a plain line for
// each measurement.
#pragma once

#include "axis.hpp"

#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <string>
#include <utility>

namespace contention {

class progress {
 public:
  progress(std::size_t measurements, double seconds) : all_(measurements) {
    std::cerr << all_ << (all_ == 1 ? " measurement" : " measurements") << ", about "
              << short_number(static_cast<double>(all_) * seconds) << " s\n";
  }

  [[nodiscard]] std::chrono::duration<double> interval() const noexcept { return std::chrono::milliseconds(100); }

  void begin(std::string what) {
    ++number_;
    what_ = std::move(what);
  }
  void show(double per_second) const {
    if (terminal_) print("\r\x1b[K", per_second, "");
  }
  void end(double per_second) const {
    if (!terminal_) print("", per_second, "\n");
  }

  // Makes place for what else is printed.
  void clear() const {
    if (terminal_) std::cerr << "\r\x1b[K" << std::flush;
  }

 private:
  void print(const char* before, double per_second, const char* after) const {
    std::cerr << before << number_ << " of " << all_ << "  " << what_ << "  " << short_number(per_second) << " tasks/s"
              << after << std::flush;
  }

  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const std::size_t all_;
  std::size_t number_ = 0;
  std::string what_;
};

}  // namespace contention
