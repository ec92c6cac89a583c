// Who is measured: turnkey, and the baselines by the names that --against knows.
#pragma once

#include <turnkey/turnkey.hpp>

#include "arguments.hpp"
#include "load.hpp"
#include "measure.hpp"
#include "progress.hpp"
#include "support/baselines.hpp"

#include <array>
#include <limits>
#include <string>
#include <vector>

namespace contention {

struct contender {
  const char* name;   // as --against knows it
  const char* title;  // as the table and the chart have it
  const char* what;   // for the help
};

inline constexpr contender ours{"turnkey", "turnkey", ""};
inline constexpr std::array<contender, 5> baselines{{
    {"bare", "bare pool", "no rule by key, only the pool: what the others are compared with"},
    {"map", "map of queues", "one mutex over a map from key to queue"},
    {"mutex", "mutex per key", "that the worker waits for: no order, and a busy key takes all workers"},
    {"hash", "hash onto workers", "the key's hash says which worker: strangers wait for each other"},
    {"strand", "strand per key", "made with the key's first task, and never forgotten"},
}};

inline std::vector<std::string> baseline_names() {
  std::vector<std::string> names;
  for (const contender& each : baselines) names.emplace_back(each.name);
  return names;
}

inline std::string help() {
  std::string list;
  for (const contender& each : baselines)
    list += std::string(26, ' ') + each.name + std::string(8 - std::string(each.name).size(), ' ') + each.what + "\n";
  return help_before + list + help_after;
}

template <class Key, template <class> class Baseline>
measurement measure_baseline(const arguments& asked, const load<Key>& load, progress& progress) {
  measuring<Key, infallible_task, Baseline<Key>> measuring(asked, load);
  Baseline<Key> baseline(asked.workers);
  return measuring.run(baseline, Baseline<Key>::promises, progress);
}

template <class Key, class Task>
measurement measure_turnkey(const arguments& asked, const load<Key>& load, progress& progress) {
  turnkey::options<Key> options{.default_policy = asked.policy};
  if (asked.fail > 0)
    options.retry =
        turnkey::retry_policy{.max_attempts = 2, .initial_delay = asked.rest(), .max_delay = asked.rest(), .jitter = 0};
  const bench::promise promised = asked.policy == turnkey::policy::ordered     ? bench::promise::order
                                  : asked.policy == turnkey::policy::exclusive ? bench::promise::exclusion
                                                                               : bench::promise::nothing;
  measuring<Key, Task, bench::turnkey_on_pool<Key>> measuring(asked, load);
  bench::turnkey_on_pool<Key> scheduler(asked.workers, options);
  return measuring.run(scheduler, promised, progress);
}

template <class Key>
measurement measure(const contender& who, const arguments& asked, const load<Key>& load, progress& progress) {
  const std::string name = who.name;
  if (name == "bare") return measure_baseline<Key, bench::bare_pool>(asked, load, progress);
  if (name == "map") return measure_baseline<Key, bench::map_of_queues>(asked, load, progress);
  if (name == "mutex") return measure_baseline<Key, bench::mutex_per_key>(asked, load, progress);
  if (name == "hash") return measure_baseline<Key, bench::hash_onto_workers>(asked, load, progress);
  if (name == "strand") return measure_baseline<Key, bench::strand_per_key>(asked, load, progress);
  if (asked.fail > 0) return measure_turnkey<Key, fallible_task>(asked, load, progress);
  return measure_turnkey<Key, infallible_task>(asked, load, progress);
}

}  // namespace contention
