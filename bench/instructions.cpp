// How many instructions does a task take, from its submit until it is settled? Runs one case, for as many tasks as it
// is told, after a warm-up of 10,000; instructions.py counts from outside. One thread does everything, so instructions
// are the same on a quiet and on a busy machine. g++ inlines less the larger a source file is: whoever adds a case here
// moves the figures of the others, by up to 7 % so far, and records all of them anew.
// Baseline: the case called-u64-1k calls the same tasks at once, which is what choosing keys and checking take.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "contention/values.hpp"
#include "support/workload.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace {

using turnkey::policy;

constexpr std::uint64_t batch = 10'000;  // tasks that wait at once, where any do; and the warm-up

// Tasks of keys that are as good as random, and whether each ran once and in its place. What it costs to begin and to
// judge does not depend on the number of tasks.
template <class Key>
class tasks {
 public:
  // The callable to submit: 24 bytes, like most real captures.
  struct task {
    tasks* own;
    std::uint64_t key;
    std::uint64_t number;  // among those of its key

    void operator()() const noexcept { own->wrong_ |= own->ran_[key]++ != number; }
  };
  static_assert(sizeof(task) == 24 && std::is_trivially_copyable_v<task>);

  explicit tasks(std::size_t keys) : keys_(bench::keys_of<Key>(keys)), given_(keys), ran_(keys) {}

  task next() noexcept {
    const std::uint64_t key = bench::mixed(count_++) % given_.size();
    return {this, key, given_[key]++};
  }
  [[nodiscard]] const Key& key_of(const task& t) const noexcept { return keys_[t.key]; }

  [[nodiscard]] bool all_ran() const noexcept { return !wrong_ && ran_ == given_; }
  [[nodiscard]] bool none_ran() const noexcept {
    return std::all_of(ran_.begin(), ran_.end(), [](std::uint64_t n) { return n == 0; });
  }

 private:
  const std::vector<Key>& keys_;
  std::vector<std::uint64_t> given_;
  std::vector<std::uint64_t> ran_;
  std::uint64_t count_ = 0;
  bool wrong_ = false;
};

// Fails the first time.
struct fails_once {
  tasks<std::uint64_t>::task work;

  turnkey::outcome operator()(turnkey::attempt& attempt) const {
    if (attempt.number() == 1) return turnkey::outcome::retry_after({});
    work();
    return turnkey::outcome::success();
  }
};

template <class Key>
turnkey::options<Key> settings(policy p) {
  turnkey::options<Key> options;
  options.default_policy = p;
  options.jitter_seed = 1;
  return options;
}

// Until the tables have grown and blocks are there to be used again, a task costs more.
template <class Run>
void run_warm(std::uint64_t count, Run run) {
  run(batch);
  run(count);
}

template <class Run>
void in_batches(std::uint64_t count, Run run) {
  run_warm(count, [&](std::uint64_t left) {
    for (; left > batch; left -= batch) run(batch);
    run(left);
  });
}

bool called(std::uint64_t count) {
  tasks<std::uint64_t> from(1'000);
  run_warm(count, [&](std::uint64_t left) {
    for (; left != 0; --left) from.next()();
  });
  return from.all_ran();
}

// Each is settled before the next is submitted.
template <class Key, std::size_t Keys, policy Policy>
bool one_by_one(std::uint64_t count) {
  tasks<Key> from(Keys);
  turnkey::scheduler<Key> scheduler{turnkey::inline_executor{}, settings<Key>(Policy)};
  run_warm(count, [&](std::uint64_t left) {
    for (; left != 0; --left) {
      const auto task = from.next();
      scheduler.submit(from.key_of(task), task);
    }
  });
  return from.all_ran();
}

// All of a batch wait on one key, then run.
bool backlog(std::uint64_t count) {
  tasks<std::uint64_t> from(1);
  turnkey::testing::manual_executor executor;
  turnkey::scheduler<std::uint64_t> scheduler{executor, settings<std::uint64_t>(policy::ordered)};
  in_batches(count, [&](std::uint64_t left) {
    for (; left != 0; --left) scheduler.submit(1, from.next());
    executor.run_all();
  });
  return from.all_ran();
}

// Each fails and runs again before the next is submitted. Time stands still, so that no alarm's thread adds its own.
bool failed_once(std::uint64_t count) {
  tasks<std::uint64_t> from(1'000);
  turnkey::testing::manual_time time;
  turnkey::options<std::uint64_t> options = settings<std::uint64_t>(policy::ordered);
  options.retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = {}, .jitter = 0};
  options.time = &time;
  turnkey::scheduler<std::uint64_t> scheduler{turnkey::inline_executor{}, options};
  run_warm(count, [&](std::uint64_t left) {
    for (; left != 0; --left) {
      const auto task = from.next();
      scheduler.submit(from.key_of(task), fails_once{task});
    }
  });
  return from.all_ran();
}

// All of a batch wait on a thousand keys and are cancelled, those in the middle of a line too.
bool cancelled(std::uint64_t count) {
  constexpr std::uint64_t stride = 16'187;  // a prime above `batch` meets every place once
  tasks<std::uint64_t> from(1'000);
  turnkey::testing::manual_executor executor;
  turnkey::scheduler<std::uint64_t> scheduler{executor, settings<std::uint64_t>(policy::ordered)};
  std::vector<turnkey::task_id> ids;
  ids.reserve(batch);
  bool refused = false;
  in_batches(count, [&](std::uint64_t size) {
    ids.clear();
    for (std::uint64_t i = 0; i != size; ++i) {
      const auto task = from.next();
      ids.push_back(scheduler.submit(from.key_of(task), task));
    }
    for (std::uint64_t i = 0; i != size; ++i) refused |= !scheduler.cancel(ids[i * stride % size]);
    executor.run_all();
  });
  return !refused && from.none_ran();
}

struct counted_case {
  std::string_view name;
  bool (*run)(std::uint64_t count);  // false when a task ran that should not, or did not that should
};
constexpr counted_case cases[] = {
    {"called-u64-1k", called},
    {"ordered-u64-1k", one_by_one<std::uint64_t, 1'000, policy::ordered>},
    {"ordered-u64-100k", one_by_one<std::uint64_t, 100'000, policy::ordered>},
    {"ordered-string-1k", one_by_one<std::string, 1'000, policy::ordered>},
    {"ordered-string-100k", one_by_one<std::string, 100'000, policy::ordered>},
    {"exclusive-u64-1k", one_by_one<std::uint64_t, 1'000, policy::exclusive>},
    {"parallel-u64-1k", one_by_one<std::uint64_t, 1'000, policy::parallel>},
    {"backlog-of-one-key", backlog},
    {"failed-once", failed_once},
    {"cancelled", cancelled},
};

constexpr std::string_view usage =
    "usage: instructions CASE TASKS\n"
    "       instructions --list    the cases\n"
    "       instructions --built   compiler, flags and processor that this was built with and for\n";

const counted_case& case_named(std::string_view name) {
  for (const counted_case& each : cases)
    if (each.name == name) return each;
  contention::setting{"CASE", std::string(name)}.refuse("one of those that --list prints");
}

int run(const std::vector<std::string>& words) {
  if (words == std::vector<std::string>{"--list"}) {
    for (const counted_case& each : cases) std::cout << each.name << "\n";
  } else if (words == std::vector<std::string>{"--built"}) {
    std::cout << TURNKEY_BENCH_BUILT << "\n";
  } else if (words.size() != 2) {
    throw contention::usage_error("a case and a number of tasks are needed");
  } else {
    const counted_case& chosen = case_named(words[0]);
    if (!chosen.run(contention::whole_number({"TASKS", words[1]}, 1, 10'000'000))) {
      std::cerr << "instructions: a task did not run once and in order, or ran though it was cancelled\n";
      return 1;
    }
  }
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    return run({words + 1, words + count});
  } catch (const contention::usage_error& error) {
    std::cerr << "instructions: " << error.what() << "\n" << usage;
  }
  return 2;
}
