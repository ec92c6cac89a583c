// What is shown while the orders are fulfilled: a few lines that are drawn over and over on a terminal, else one line
// for each thing that happens.
#pragma once

#include <turnkey/turnkey.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

namespace fulfil {

using orders = turnkey::scheduler<int>;

class screen {
 public:
  screen(orders& of, std::uint64_t all, bool live) : orders_(of), all_(all), live_(live) {}

  std::string limit = "10";
  std::string pace = "none";
  std::optional<turnkey::task_id> watched{};

  // Something happened: a line that stays.
  void say(const std::string& what) {
    rub_out();
    std::cout << what << '\n' << std::flush;
  }

  // How it stands now; only on a terminal.
  void draw(turnkey::time_point now) {
    if (!live_) return;
    rub_out();
    const std::string text = picture(now);
    lines_ = std::count(text.begin(), text.end(), '\n');
    std::cout << text << std::flush;
  }

  // No line wraps on a terminal of 80 columns: it would not be rubbed out.
  [[nodiscard]] std::string picture(turnkey::time_point now) {
    const turnkey::stats s = orders_.stats();
    std::ostringstream out;
    out << '[' << bar(s) << "]\n"
        << "  # done " << s.succeeded << "   > running " << s.running << "   = ready " << s.ready << '\n'
        << "  . waiting " << s.waiting << "   ~ delayed " << s.delayed << "   x dead " << s.dead << '\n'
        << "  in flight " << s.running << " of " << limit << (orders_.paused() ? ", paused" : "") << "; pace " << pace
        << "; failed attempts " << s.failed_attempts << '\n';
    out << "  busiest orders:";
    for (const auto& key : orders_.busiest_keys(3))
      out << "  " << key.key << " (" << key.depth << ", " << to_string(key.head_state) << ')';
    out << '\n';
    if (watched) {
      const auto info = orders_.find(*watched);
      out << "  the last order: " << (info ? to_string(info->why, now) : "done") << '\n';
    }
    return out.str();
  }

 private:
  [[nodiscard]] std::string bar(const turnkey::stats& s) const {
    constexpr std::size_t width = 60;
    const auto part = [this](std::uint64_t n) { return (n * width + all_ - 1) / all_; };
    std::string text;
    text.append(s.succeeded * width / all_, '#').append(part(s.running), '>').append(part(s.delayed), '~');
    text.append(part(s.ready), '=').append(part(s.dead), 'x');
    text.resize(width, '.');
    return text;
  }

  void rub_out() {
    for (; lines_ > 0; --lines_) std::cout << "\x1b[1A\x1b[2K";
  }

  orders& orders_;
  const std::uint64_t all_;
  const bool live_;
  std::ptrdiff_t lines_ = 0;
};

}  // namespace fulfil
