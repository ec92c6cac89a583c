// What the user wants measured, as options.
#pragma once

#include <turnkey/policy.hpp>

#include "values.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace contention {

// Printed between two halves of the help that the list of baselines joins; see help().
inline constexpr const char* help_before = R"(usage: contention [options]

Measures turnkey on your shape of work, beside the bare pool that knows no keys and the simple ways of keeping the tasks
of one key in order. All run on the same pool of threads, in turns, so that what disturbs the machine disturbs all of
them. Every run checks that each task ran exactly once and that its key kept the order or the exclusion it was promised.

The work
  --keys N[,N...]       how many keys there are; a list is measured one after the other (default 1,1k,100k)
  --distribution NAME   whose turn it is: uniform, every key alike (default); zipf:S, the n-th key has a share like
                        1/n^S, S from 0 to 10, often 0.99; hot:P, one key has the share P, the others the rest alike
  --key KIND            u64 (default) or string, of 16 characters
  --policy NAME         turnkey's: ordered (default), exclusive or parallel; the baselines do what they do
  --work TIME           how long a task computes, such as 250ns, 1us, 2ms (default 0)
  --fail P              share of the first attempts that fail, 0 to 1, and are retried (default 0). Only turnkey
                        retries, so the baselines are left out then
  --retry-delay TIME    how long a failed task rests (default 1ms)

The threads
  --producers N         that submit, 1 to 64 (default 1)
  --workers N           of the pool, 1 to 256 (default: as many as the machine has)

The measurement
  --seconds S           of each, 0.01 to 3600 (default 1)
  --repetitions N       of all, interleaved, 1 to 1000; medians are printed (default 3)
  --against LIST        baselines, separated by commas; all; or none (default bare,strand):
)";

inline constexpr const char* help_after = R"(
What is printed
  --json FILE           every figure of every repetition too; - is the standard output, and the table is left out
  --svg FILE            throughput against keys too, as a chart
  --help                this text

A table on the standard output, per number of keys: tasks and nanoseconds per task by the wall clock; CPU time of the
whole process per task, producers included; and the throughput as a multiple of the bare pool's in the same repetition,
with its smallest and largest value. Each is warmed up for a tenth of --seconds first. Producers never pause but when
65,536 tasks are unfinished, or as many as take a tenth of --seconds; what is unfinished at the end is not counted, but
waited for and checked.

exit status: 0 measured; 1 a promise was broken; 2 the options are no good or a file cannot be written
)";

enum class distribution_kind : std::uint8_t { uniform, zipf, hot };

struct distribution {
  distribution_kind kind = distribution_kind::uniform;
  double parameter = 0;  // zipf: the exponent; hot: the share of the hot key
  std::string name = "uniform";
};

struct arguments {
  bool help = false;
  std::vector<std::uint32_t> keys{1, 1'000, 100'000};  // rising, each once
  contention::distribution distribution{};
  bool string_keys = false;
  turnkey::policy policy = turnkey::policy::ordered;
  std::chrono::nanoseconds work{};
  double fail = 0;
  std::optional<std::chrono::nanoseconds> retry_delay{};
  unsigned producers = 1;
  unsigned workers = (std::max)(1U, std::thread::hardware_concurrency());
  double seconds = 1;
  unsigned repetitions = 3;
  std::vector<std::string> against{"bare", "strand"};
  std::optional<std::string> json{};
  std::optional<std::string> svg{};

  [[nodiscard]] std::chrono::nanoseconds rest() const { return retry_delay.value_or(std::chrono::milliseconds(1)); }
};

inline std::vector<std::uint32_t> key_counts(const setting& given) {
  std::vector<std::uint32_t> counts;
  for (const std::string& part : parts(given.value)) counts.push_back(key_count(given, part));
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

inline distribution named_distribution(const setting& given) {
  const std::string_view text = given.value;
  const auto shaped = [&](std::string_view prefix, double largest, distribution_kind kind) {
    double parameter{};
    if (!text.starts_with(prefix) || !reads_as(text.substr(prefix.size()), parameter))
      return std::optional<distribution>{};
    if (!(parameter >= 0 && parameter <= largest)) return std::optional<distribution>{};
    return std::optional(distribution{kind, parameter, given.value});
  };
  if (text == "uniform") return {};
  if (const auto zipf = shaped("zipf:", 10, distribution_kind::zipf)) return *zipf;
  if (const auto hot = shaped("hot:", 1, distribution_kind::hot)) return *hot;
  given.refuse("uniform, zipf:S with S from 0 to 10 as in zipf:0.99, or hot:P with P from 0 to 1 as in hot:0.5");
}

inline bool is_string(const setting& given) {
  if (given.value != "u64" && given.value != "string") given.refuse("u64 or string");
  return given.value == "string";
}

inline turnkey::policy named_policy(const setting& given) {
  for (const auto policy : {turnkey::policy::parallel, turnkey::policy::exclusive, turnkey::policy::ordered})
    if (given.value == to_string(policy)) return policy;
  given.refuse("ordered, exclusive or parallel");
}

// A list of `known` names, "all" or "none".
inline std::vector<std::string> named(const setting& given, const std::vector<std::string>& known) {
  if (given.value == "all") return known;
  if (given.value == "none") return {};
  const std::vector<std::string> wanted = parts(given.value);
  for (const std::string& name : wanted) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const auto joined = [](const std::string& list, const std::string& next) { return list + ", " + next; };
    given.refuse("there is no '" + name + "'; there are " +
                 std::accumulate(known.begin() + 1, known.end(), known[0], joined) + "; or all, or none");
  }
  return wanted;
}

inline std::string file_name(const setting& given, bool or_standard_output) {
  if (given.value.empty()) given.refuse("the name of the file is empty");
  if (given.value == "-" && !or_standard_output) given.refuse("a file; only --json goes to the standard output");
  return given.value;
}

struct option {
  const char* name;
  void (*set)(arguments& asked, const setting& given, const std::vector<std::string>& baselines);
};

inline constexpr option all_options[] = {
    {"--keys", [](auto& asked, auto& given, auto&) { asked.keys = key_counts(given); }},
    {"--distribution", [](auto& asked, auto& given, auto&) { asked.distribution = named_distribution(given); }},
    {"--key", [](auto& asked, auto& given, auto&) { asked.string_keys = is_string(given); }},
    {"--policy", [](auto& asked, auto& given, auto&) { asked.policy = named_policy(given); }},
    {"--work", [](auto& asked, auto& given, auto&) { asked.work = short_time(given); }},
    {"--fail",
     [](auto& asked, auto& given, auto&) { asked.fail = number_between(given, 0, 1, "a number from 0 to 1"); }},
    {"--retry-delay", [](auto& asked, auto& given, auto&) { asked.retry_delay = short_time(given); }},
    {"--producers", [](auto& asked, auto& given, auto&) { asked.producers = whole_number(given, 1, 64); }},
    {"--workers", [](auto& asked, auto& given, auto&) { asked.workers = whole_number(given, 1, 256); }},
    {"--seconds",
     [](auto& asked, auto& given, auto&) {
       asked.seconds = number_between(given, 0.01, 3600, "a number of seconds from 0.01 to 3600, without a unit");
     }},
    {"--repetitions", [](auto& asked, auto& given, auto&) { asked.repetitions = whole_number(given, 1, 1000); }},
    {"--against", [](auto& asked, auto& given, auto& baselines) { asked.against = named(given, baselines); }},
    {"--json", [](auto& asked, auto& given, auto&) { asked.json = file_name(given, true); }},
    {"--svg", [](auto& asked, auto& given, auto&) { asked.svg = file_name(given, false); }},
};

// How many letters one must add, drop or change to get from one word to the other.
inline std::size_t distance(std::string_view from, std::string_view to) {
  std::vector<std::size_t> row(to.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i != from.size(); ++i) {
    std::size_t diagonal = row[0]++;
    for (std::size_t j = 0; j != to.size(); ++j) {
      const std::size_t changed = diagonal + (from[i] == to[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = (std::min)({changed, diagonal + 1, row[j] + 1});
    }
  }
  return row.back();
}

inline const option& find_option(const std::string& name) {
  const option* nearest = all_options;
  for (const option& each : all_options) {
    if (name == each.name) return each;
    if (distance(name, each.name) < distance(name, nearest->name)) nearest = &each;
  }
  const bool near = distance(name, nearest->name) <= 2;
  throw usage_error("unknown option '" + name + "'" +
                    (near ? std::string("; did you mean ") + nearest->name + "?" : ""));
}

// Both `--name value` and `--name=value` are understood.
inline arguments parse(int count, const char* const* words, const std::vector<std::string>& baselines) {
  arguments asked;
  for (int i = 1; i < count; ++i) {
    const std::string word = words[i];
    const std::size_t equals = word.find('=');
    if (word == "--help" || word == "-h") {
      asked.help = true;
      continue;
    }
    if (!word.starts_with('-')) throw usage_error("'" + word + "' is no option; they start with --");
    const option& found = find_option(word.substr(0, equals));
    if (equals == std::string::npos && i + 1 == count) throw usage_error(word + " needs a value");
    found.set(asked, {found.name, equals == std::string::npos ? words[++i] : word.substr(equals + 1)}, baselines);
  }
  if (asked.retry_delay && asked.fail == 0)
    throw usage_error("--retry-delay needs --fail: without it nothing is retried");
  if (std::chrono::duration<double>(asked.work).count() > asked.seconds / 10)
    throw usage_error("--work is longer than a tenth of --seconds: too few tasks would finish to say anything");
  if (asked.fail > 0) asked.against.clear();
  return asked;
}

}  // namespace contention
