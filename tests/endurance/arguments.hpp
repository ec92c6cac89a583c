// What the user wants endured, as options.
#pragma once

#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <system_error>

namespace endurance {

inline constexpr const char* help =
    R"(usage: endurance [options]

Does everything that a scheduler offers at once, on real threads, with faults, for as long as you say; and checks it all
the time: exclusion and order of each key on plain data, each task's end counted once, nothing lost in a stop, in a
drain nothing left, memory that does not grow.

  --for TIME       such as 30s, 10m, 2h (default 10s)
  --keys N         how many keys there are; half of the tasks go to the first 16 (default 10000)
  --producers N    threads that submit, cancel, redrive and discard, 1 to 8 (default 2)
  --workers N      threads of each pool, 1 to 64 (default 2)
  --faults P       share of the attempts that go wrong, and of the permits too, 0 to 0.5 (default 0.1)
  --seed N         draws everything but what threads do to each other (default: a random one, printed)
  --help           this text

One line a second on a terminal, one every ten otherwise; then the account.
exit status: 0 all was well; 1 a promise was broken; 2 the options are no good
)";

inline constexpr std::size_t max_producers = 8;

struct arguments {
  bool help = false;
  std::chrono::seconds time{10};
  std::size_t keys = 10'000;
  std::size_t producers = 2;
  std::size_t workers = 2;
  double faults = 0.1;
  std::uint64_t seed = std::random_device{}();
};

template <class Number>
Number number_from(std::string_view option, std::string_view text, Number least, Number most) {
  Number n{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size() || !(n >= least && n <= most))
    throw std::invalid_argument(std::string(option) + " is " + std::string(text));
  return n;
}

inline std::chrono::seconds time_from(std::string_view option, std::string_view text) {
  const std::string whole(text);
  int unit = 1;
  if (!text.empty()) {
    switch (text.back()) {
      case 'h': unit *= 60; [[fallthrough]];
      case 'm': unit *= 60; [[fallthrough]];
      case 's': text.remove_suffix(1); break;
      default: throw std::invalid_argument(std::string(option) + " is " + whole + ": it needs a unit, s, m or h");
    }
  }
  return std::chrono::seconds{number_from(option, text, 1, 100'000) * unit};
}

//   Throws   std::invalid_argument that names the option.
inline arguments arguments_from(int argc, const char* const* argv) {
  arguments a;
  for (int i = 1; i < argc; ++i) {
    const std::string_view option = argv[i];
    if (option == "--help") {
      a.help = true;
      return a;
    }
    if (i + 1 == argc) throw std::invalid_argument(std::string(option) + ": unknown, or its value is missing");
    const std::string_view value = argv[++i];
    if (option == "--for") {
      a.time = time_from(option, value);
    } else if (option == "--keys") {
      a.keys = number_from<std::size_t>(option, value, 1, 100'000'000);
    } else if (option == "--producers") {
      a.producers = number_from<std::size_t>(option, value, 1, max_producers);
    } else if (option == "--workers") {
      a.workers = number_from<std::size_t>(option, value, 1, 64);
    } else if (option == "--faults") {
      a.faults = number_from(option, value, 0.0, 0.5);
    } else if (option == "--seed") {
      a.seed = number_from<std::uint64_t>(option, value, 0, ~std::uint64_t{0});
    } else {
      throw std::invalid_argument(std::string(option) + ": unknown");
    }
  }
  return a;
}

}  // namespace endurance
