// Throughput against keys as one SVG that needs nothing else: no script, no font of its own, readable on a light and
// on a dark page, each line labelled where it ends.
#pragma once

#include "axis.hpp"
#include "chart_style.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace contention {

struct chart_point {
  double keys;
  double median;
  double smallest;
  double largest;
};

struct chart_line {
  std::string name;
  bool reference;                   // what the others are compared with: grey and dotted
  std::vector<chart_point> points;  // by rising keys
};

class chart {
 public:
  // The first line is ours, and stands out. Each has a point for the same keys, one at least.
  chart(std::string caption, std::vector<chart_line> lines)
      : caption_(std::move(caption)),
        lines_(std::move(lines)),
        x_(keys_of(lines_.front())),
        y_(throughput_of(lines_)) {}

  void draw(std::ostream& out) const {
    const std::vector<std::string> caption = folded(caption_);
    const double lower = 18 * static_cast<double>(caption.size() - 1);
    out << "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " << width << ' ' << height + lower << "\" width=\""
        << width << "\" height=\"" << height + lower << "\" role=\"img\">\n<title>" << heading << "</title>\n<desc>"
        << escaped(caption_) << "</desc>\n<style>\n"
        << common_style << light_style << "@media (prefers-color-scheme: dark) {\n"
        << dark_style << "}\n</style>\n<rect class=\"card\" x=\"0.5\" y=\"0.5\" width=\"" << width - 1 << "\" height=\""
        << height + lower - 1 << "\" rx=\"8\"/>\n";
    text(out, margin, 34, "title", heading);
    for (std::size_t i = 0; i != caption.size(); ++i)
      text(out, margin, 56 + 18 * static_cast<double>(i), "caption", caption[i]);
    out << "<g transform=\"translate(0 " << lower << ")\">\n";
    draw_axes(out);
    for (std::size_t i = lines_.size(); i-- != 0;) draw_line(out, i);  // ours last, on top
    draw_labels(out);
    out << "</g>\n</svg>\n";
  }

 private:
  static constexpr const char* heading = "Throughput by number of keys";
  static constexpr double width = 860, height = 480;
  static constexpr double margin = 24, left = 68, right = 630, top = 104, bottom = 420;  // of the plot
  static constexpr double label_height = 19;

  static axis keys_of(const chart_line& line) {
    std::vector<double> keys;
    for (const chart_point& point : line.points) keys.push_back(point.keys);
    return axis::of_values(keys);
  }
  static axis throughput_of(const std::vector<chart_line>& lines) {
    double low = lines.front().points.front().smallest;
    double high = low;
    for (const chart_line& line : lines) {
      for (const chart_point& point : line.points) {
        low = (std::min)(low, point.smallest);
        high = (std::max)(high, point.largest);
      }
    }
    return axis::around(low, high);
  }

  [[nodiscard]] double across(double keys) const { return rounded(left + 16 + x_.at(keys) * (right - left - 32)); }
  [[nodiscard]] double down(double throughput) const { return rounded(bottom - y_.at(throughput) * (bottom - top)); }
  static double rounded(double pixels) { return std::round(pixels * 10) / 10; }

  // The colour of a line, as a class: "c" is for strokes, "f" for what is filled. 0 is ours, 1 the reference's.
  [[nodiscard]] std::string colour(const char* letter, std::size_t i) const {
    std::size_t number = lines_[i].reference ? 1 : 0;
    if (i != 0 && number == 0)
      number = 2 + static_cast<std::size_t>(std::count_if(lines_.begin() + 1,
                                                          lines_.begin() + static_cast<std::ptrdiff_t>(i),
                                                          [](const chart_line& line) { return !line.reference; })) %
                       5;
    return letter + std::to_string(number);
  }
  [[nodiscard]] std::string emphasis(std::size_t i) const {
    return i == 0 ? " ours" : lines_[i].reference ? " reference" : "";
  }

  // In two lines, if one is too long, by its last semicolon that lets the first be short enough.
  static std::vector<std::string> folded(const std::string& words) {
    constexpr std::size_t longest = 120;
    const std::size_t at = words.size() > longest ? words.rfind("; ", longest) : std::string::npos;
    if (at == std::string::npos) return {words};
    return {words.substr(0, at), words.substr(at + 2)};
  }

  static std::string escaped(std::string_view plain) {
    std::string safe;
    for (const char c : plain) {
      if (c == '&')
        safe += "&amp;";
      else if (c == '<')
        safe += "&lt;";
      else if (c == '>')
        safe += "&gt;";
      else
        safe += c;
    }
    return safe;
  }

  static void text(std::ostream& out, double x, double y, const std::string& style, std::string_view words) {
    out << "<text x=\"" << x << "\" y=\"" << y << "\" class=\"" << style << "\">" << escaped(words) << "</text>\n";
  }
  static void stroke(std::ostream& out, const std::string& style, double x1, double y1, double x2, double y2) {
    out << "<path class=\"" << style << "\" d=\"M" << x1 << ' ' << y1 << "L" << x2 << ' ' << y2 << "\"/>\n";
  }

  void draw_axes(std::ostream& out) const {
    text(out, margin, top - 18, "unit", y_.by_decades() ? "tasks per second (log scale)" : "tasks per second");
    for (const double tick : y_.ticks()) {
      const double y = down(tick);
      stroke(out, y == bottom ? "base" : "grid", left, y, right, y);
      text(out, left - 10, y + 4.5, "end", short_number(tick));
    }
    double last = -width;
    for (const double tick : x_.ticks()) {
      const double x = across(tick);
      stroke(out, "base", x, bottom, x, bottom + 5);
      if (x - last < 44) continue;  // no room for the number
      text(out, x, bottom + 22, "middle", short_number(tick));
      last = x;
    }
    text(out, (left + right) / 2, bottom + 44, "middle", x_.ticks().size() > 1 ? "keys (log scale)" : "keys");
  }

  void draw_line(std::ostream& out, std::size_t i) const {
    const chart_line& line = lines_[i];
    for (const chart_point& point : line.points)
      stroke(out, "whisker " + colour("c", i), across(point.keys), down(point.smallest), across(point.keys),
             down(point.largest));
    out << "<path class=\"line " << colour("c", i) << emphasis(i) << "\" d=\"";
    const char* move = "M";
    for (const chart_point& point : line.points) {
      out << move << across(point.keys) << ' ' << down(point.median);
      move = "L";
    }
    out << "\"/>\n";
    for (const chart_point& point : line.points) {
      out << "<circle class=\"" << colour("f", i) << "\" cx=\"" << across(point.keys) << "\" cy=\""
          << down(point.median) << "\" r=\"" << (i == 0 ? 5 : 3.5) << "\"><title>" << escaped(line.name) << ", "
          << short_number(point.keys) << " keys: " << short_number(point.median) << " tasks/s, "
          << short_number(point.smallest) << " to " << short_number(point.largest) << "</title></circle>\n";
    }
  }

  // Each where its line ends, or as near as the others let it be, joined to the end by a thin line then.
  void draw_labels(std::ostream& out) const {
    std::vector<std::size_t> order(lines_.size());
    for (std::size_t i = 0; i != order.size(); ++i) order[i] = i;
    const auto end = [this](std::size_t i) { return down(lines_[i].points.back().median); };
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return end(a) < end(b); });
    const std::vector<double> places = spread(order, end);
    for (std::size_t n = 0; n != order.size(); ++n) {
      const std::size_t i = order[n];
      const double from = across(lines_[i].points.back().keys) + 8;
      stroke(out, "lead " + colour("c", i), from, end(i), right + 12, places[n]);
      text(out, right + 18, places[n] + 4.5, colour("f", i) + emphasis(i),
           lines_[i].name + " " + short_number(lines_[i].points.back().median));
    }
  }

  // Heights for labels that want to be at end(i), in that order, none over another: whoever is too near joins the group
  // above it, and a group is centred on what its members want.
  template <class End>
  static std::vector<double> spread(const std::vector<std::size_t>& order, End end) {
    struct group {
      double sum = 0;  // of what the first member's place must be for each member to have its wish
      double members = 0;
      [[nodiscard]] double first() const {
        return std::clamp(sum / members, top, (std::max)(top, bottom - label_height * (members - 1)));
      }
    };
    std::vector<group> groups;
    for (const std::size_t i : order) {
      groups.push_back({end(i), 1});
      while (groups.size() > 1) {
        group& above = groups[groups.size() - 2];
        const group below = groups.back();
        if (above.first() + label_height * above.members <= below.first()) break;
        above = {above.sum + below.sum - label_height * above.members * below.members, above.members + below.members};
        groups.pop_back();
      }
    }
    std::vector<double> places;
    for (const group& each : groups)
      for (double n = 0; n < each.members; ++n) places.push_back(rounded(each.first() + label_height * n));
    return places;
  }

  std::string caption_;
  std::vector<chart_line> lines_;
  axis x_;
  axis y_;
};

}  // namespace contention
