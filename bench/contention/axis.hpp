// Numbers as people read them, and the axes of a chart: which stretch of values is shown, linear or by decades, where
// the ticks are. No drawing.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace contention {

// Three digits at most, with k, M or G: 950, 1k, 4.12M.
inline std::string short_number(double value) {
  constexpr std::array<const char*, 4> suffixes{"", "k", "M", "G"};
  std::size_t thousands = 0;
  while (value >= 999.5 && thousands + 1 != suffixes.size()) {
    value /= 1000;
    ++thousands;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.3g%s", value, suffixes[thousands]);
  return text.data();
}

class axis {
 public:
  // Shows exactly the given rising values and has its ticks there, by decades; one value alone is in the middle.
  static axis of_values(const std::vector<double>& values) {
    const double margin = values.size() == 1 ? 2 : 1;
    return axis(true, values.front() / margin, values.back() * margin, values);
  }

  // Shows from `low` to `high` and a little more, up to the next round numbers: by decades when there is one between
  // them, else from 0.
  static axis around(double low, double high) {
    if (high < 10 * low) return linear(high);
    const double first = round_down(low);
    std::vector<double> ticks{first};
    while (ticks.back() < high) ticks.push_back(next_round(ticks.back()));
    const double last = ticks.back();
    if (ticks.size() > 9) {
      std::erase_if(ticks,
                    [](double tick) { return std::abs(std::log10(tick) - std::round(std::log10(tick))) > 1e-6; });
    }
    return axis(true, first, last, ticks);
  }

  // Where a value is between the two ends, from 0 to 1.
  [[nodiscard]] double at(double value) const {
    if (!by_decades_) return (value - low_) / (high_ - low_);
    return std::log(value / low_) / std::log(high_ / low_);
  }
  [[nodiscard]] bool by_decades() const { return by_decades_; }
  [[nodiscard]] const std::vector<double>& ticks() const { return ticks_; }

 private:
  axis(bool by_decades, double low, double high, std::vector<double> ticks)
      : by_decades_(by_decades), low_(low), high_(high), ticks_(std::move(ticks)) {}

  static axis linear(double high) {
    double step = round_down(high / 4);
    if (high / step > 6) step = next_round(step);
    std::vector<double> ticks{0};
    while (ticks.back() < high) ticks.push_back(static_cast<double>(ticks.size()) * step);
    const double last = ticks.back();
    return axis(false, 0, last, ticks);
  }

  // Round are 1, 2 and 5 times a power of ten.
  static double round_down(double value) {
    const double decade = std::pow(10, std::floor(std::log10(value)));
    const double digit = value / decade;
    return decade * (digit >= 5 ? 5 : digit >= 2 ? 2 : 1);
  }
  static double next_round(double round) {
    const double decade = std::pow(10, std::floor(std::log10(round) + 1e-9));
    const double digit = round / decade;
    return decade * (digit > 3 ? 10 : digit > 1.5 ? 5 : 2);
  }

  bool by_decades_;
  double low_;
  double high_;
  std::vector<double> ticks_;
};

}  // namespace contention
