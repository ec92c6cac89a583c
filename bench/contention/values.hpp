// The values of options as numbers and times. Whatever makes no sense is refused with a usage_error that names the
// option, its value, and what would be right.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

namespace contention {

class usage_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One option as it was given.
struct setting {
  std::string option;
  std::string value;

  [[noreturn]] void refuse(const std::string& wanted) const {
    throw usage_error(option + " '" + value + "': " + wanted);
  }
};

// Reads all of `text` as a number; false when it is none.
template <class Number>
bool reads_as(std::string_view text, Number& number) {
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, number);
  return error == std::errc{} && stop == end;
}

inline unsigned whole_number(const setting& given, unsigned smallest, unsigned largest) {
  unsigned number{};
  if (!reads_as(given.value, number) || number < smallest || number > largest)
    given.refuse("a whole number from " + std::to_string(smallest) + " to " + std::to_string(largest));
  return number;
}

inline double number_between(const setting& given, double smallest, double largest, const std::string& wanted) {
  double number{};
  if (!reads_as(given.value, number) || !(number >= smallest && number <= largest)) given.refuse(wanted);
  return number;
}

// The parts between commas; an empty value is one empty part.
inline std::vector<std::string> parts(std::string_view list) {
  std::vector<std::string> found;
  for (;;) {
    const std::size_t comma = list.find(',');
    found.emplace_back(list.substr(0, comma));
    if (comma == std::string_view::npos) return found;
    list.remove_prefix(comma + 1);
  }
}

inline constexpr std::uint32_t most_keys = 10'000'000;

// Such as 1, 250, 16k, 1M.
inline std::uint32_t key_count(const setting& given, std::string_view text) {
  std::uint64_t factor = 1;
  if (text.ends_with('k')) factor = 1'000;
  if (text.ends_with('M')) factor = 1'000'000;
  if (factor != 1) text.remove_suffix(1);
  std::uint64_t number{};
  if (!reads_as(text, number) || number == 0 || number > most_keys / factor)
    given.refuse("whole numbers from 1 to 10M, separated by commas, as in 1,16,1k,100k");
  return static_cast<std::uint32_t>(number * factor);
}

// Such as 0, 250ns, 1.5us, 2ms; at most a second.
inline std::chrono::nanoseconds short_time(const setting& given) {
  struct unit {
    std::string_view name;
    double nanoseconds;
  };
  if (given.value == "0") return {};
  for (const auto& [name, nanoseconds] : {unit{"ns", 1}, unit{"us", 1e3}, unit{"ms", 1e6}, unit{"s", 1e9}}) {
    const std::string_view text = given.value;
    double number{};
    if (!text.ends_with(name) || !reads_as(text.substr(0, text.size() - name.size()), number)) continue;
    const double time = number * nanoseconds;
    if (time >= 0 && time <= 1e9) return std::chrono::nanoseconds{static_cast<std::int64_t>(time)};
  }
  given.refuse("0, or a number with its unit (ns, us, ms or s) of at most 1s, as in 1.5us");
}

}  // namespace contention
