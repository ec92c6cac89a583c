// What the user asks of the replay. Whatever makes no sense is refused with a usage_error that names the option and
// its value.
#pragma once

#include <turnkey/policy.hpp>

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <system_error>

namespace replay {

inline constexpr const char* help = R"(usage: 3_replay [options] [FILE | -]

Replays an event log through turnkey. Each line is a task under its key; the task writes its line into a store that
refuses a share of the writes, and is retried until it succeeds. At the end the store is compared with what processing
the lines one after the other gives.

FILE is a log of the Debian package manager; - is the standard input; the default is the system's own dpkg.log, or,
where there is none to replay, a checked-in one. Its lines `date time status STATE PACKAGE VERSION` are tasks with the
package as the key; its other lines are skipped and counted.

  --policy NAME       ordered (default), exclusive or parallel
  --threads N         threads of the pool, 1 to 1024 (default 4)
  --fail P            share of the writes that fail, 0 to 1 (default 0.1)
  --seed N            which writes fail: the same seed, line and attempt always agree (default 1)
  --max-attempts N    attempts before a task is dead (default: no limit)
  --resume FILE       keeps in FILE up to which line all is done, and what the store holds; when FILE is there, goes on
                      where it says. Tasks that were done beyond that line are done again
  --stop-after N      is interrupted after N writes; needs --resume

For any other log with columns:
  --key-column N      every line is a task with column N, counted from 1, as the key and the whole line as the state;
                      lines without that column are skipped and counted
  --separator C       the one character between two columns; \t is a tab (default: any run of blanks and tabs)

  --help              this text

exit status: 0 every key is right; 1 a key is wrong or a task is dead; 2 the options or the input are no good;
             3 interrupted
)";

class usage_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct arguments {
  bool help = false;
  std::optional<std::string> file{};  // none: the system's log
  turnkey::policy policy = turnkey::policy::ordered;
  unsigned threads = 4;
  double fail = 0.1;
  std::uint64_t seed = 1;
  std::optional<std::uint32_t> max_attempts{};
  std::optional<std::string> resume{};
  std::optional<std::uint64_t> stop_after{};
  std::optional<std::size_t> key_column{};
  std::optional<char> separator{};
};

[[noreturn]] inline void refuse(const std::string& option, const std::string& value, const std::string& wanted) {
  throw usage_error(option + " '" + value + "': " + wanted);
}

// A number of at least `smallest`, or a usage_error.
template <class Number>
Number whole_number(const std::string& option, const std::string& value, Number smallest,
                    Number largest = (std::numeric_limits<Number>::max)()) {
  Number number{};
  const char* const end = value.data() + value.size();
  const auto [stop, error] = std::from_chars(value.data(), end, number);
  if (error != std::errc{} || stop != end || number < smallest || number > largest)
    refuse(option, value, "a whole number from " + std::to_string(smallest) + " to " + std::to_string(largest));
  return number;
}

inline double share(const std::string& option, const std::string& value) {
  char* stop = nullptr;
  const double number = std::strtod(value.c_str(), &stop);
  const bool plain = !value.empty() && value.find_first_not_of("0123456789.eE+-") == std::string::npos;
  if (!plain || stop != value.c_str() + value.size() || !(number >= 0 && number <= 1))
    refuse(option, value, "a number from 0 to 1");
  return number;
}

inline turnkey::policy named_policy(const std::string& option, const std::string& value) {
  for (const auto policy : {turnkey::policy::parallel, turnkey::policy::exclusive, turnkey::policy::ordered})
    if (value == to_string(policy)) return policy;
  refuse(option, value, "ordered, exclusive or parallel");
}

inline std::string file_name(const std::string& option, const std::string& value) {
  if (value.empty() || value == "-") refuse(option, value, "the name of a file");
  return value;
}

inline char one_character(const std::string& option, const std::string& value) {
  if (value == "\\t") return '\t';
  if (value.size() != 1 || value == "\n") refuse(option, value, "one character that is no line break, or \\t");
  return value.front();
}

inline void set(arguments& asked, const std::string& option, const std::string& value) {
  if (option == "--policy") asked.policy = named_policy(option, value);
  if (option == "--threads") asked.threads = whole_number(option, value, 1U, 1024U);
  if (option == "--fail") asked.fail = share(option, value);
  if (option == "--seed") asked.seed = whole_number<std::uint64_t>(option, value, 0);
  if (option == "--max-attempts") asked.max_attempts = whole_number<std::uint32_t>(option, value, 1);
  if (option == "--resume") asked.resume = file_name(option, value);
  if (option == "--stop-after") asked.stop_after = whole_number<std::uint64_t>(option, value, 1);
  if (option == "--key-column") asked.key_column = whole_number<std::size_t>(option, value, 1);
  if (option == "--separator") asked.separator = one_character(option, value);
}

inline bool is_known(const std::string& option) {
  for (const char* known : {"--policy", "--threads", "--fail", "--seed", "--max-attempts", "--resume", "--stop-after",
                            "--key-column", "--separator"})
    if (option == known) return true;
  return false;
}

// Both `--name value` and `--name=value` are understood.
inline arguments parse(int count, const char* const* words) {
  arguments asked;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t equals = word.find('=');
    const std::string option = word.substr(0, equals);
    if (word == "--help" || word == "-h") {
      asked.help = true;
    } else if (word == "-" || !word.starts_with('-')) {
      if (word.empty()) throw usage_error("the name of the file is empty");
      if (asked.file) throw usage_error("one file at a time: '" + *asked.file + "' or '" + word + "'");
      asked.file = word;
    } else if (!is_known(option)) {
      throw usage_error("unknown option '" + option + "'");
    } else if (equals != std::string::npos) {
      set(asked, option, word.substr(equals + 1));
    } else if (i + 1 < count) {
      set(asked, option, words[++i]);
    } else {
      throw usage_error(option + " needs a value");
    }
  }
  if (asked.separator && !asked.key_column) throw usage_error("--separator needs --key-column");
  if (asked.stop_after && !asked.resume) throw usage_error("--stop-after needs --resume");
  if (asked.fail == 1 && !asked.max_attempts) throw usage_error("--fail 1 never ends without --max-attempts");
  return asked;
}

}  // namespace replay
