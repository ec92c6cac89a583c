// One line on the standard error that says how far the replay is: rewritten in place on a terminal ten times a second,
// a plain line each second otherwise.
#pragma once

#include <turnkey/inspect.hpp>

#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <iostream>
#include <string>

namespace replay {

class progress {
 public:
  using clock = std::chrono::steady_clock;

  [[nodiscard]] bool due() const noexcept { return clock::now() - shown_ >= interval_; }

  void show(const turnkey::stats& now) {
    shown_ = clock::now();
    const double seconds = std::chrono::duration<double>(shown_ - begin_).count();
    const double rate = static_cast<double>(now.succeeded) / seconds;
    std::cerr << (terminal_ ? "\r\x1b[K" : "") << "done " << now.succeeded << " of " << now.submitted << ", running "
              << now.running << ", delayed " << now.delayed << ", dead " << now.died << ", "
              << static_cast<std::uint64_t>(rate) << " per second" << (terminal_ ? "" : "\n") << std::flush;
  }

  void finish(const turnkey::stats& last) {
    show(last);
    std::cerr << (terminal_ ? "\n" : "") << "time " << std::chrono::duration<double>(shown_ - begin_).count() << " s\n";
  }

 private:
  const bool terminal_ = isatty(STDERR_FILENO) != 0;
  const clock::duration interval_ = std::chrono::milliseconds(terminal_ ? 100 : 1000);
  const clock::time_point begin_ = clock::now();
  clock::time_point shown_ = begin_;
};

}  // namespace replay
