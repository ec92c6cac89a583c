// How many instructions does a task take, from its submit until it is settled? Runs one case, for as many tasks as it
// is told; instructions.py counts them. Unlike times, instructions are the same on every quiet and every busy machine.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/workload.hpp"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <type_traits>
#include <vector>

namespace {

using turnkey::policy;

std::uint64_t done = 0;

// 24 bytes, as most callbacks that capture something.
struct body {
  std::uint64_t* sum;
  std::uint64_t a;
  std::uint64_t b;
  void operator()() const { *sum += a ^ b; }
};

template <class Key>
std::vector<Key> some_keys(std::size_t count) {
  std::vector<Key> keys;
  for (std::size_t i = 0; i != count; ++i) {
    if constexpr (std::is_same_v<Key, std::string>) {
      std::string text = std::to_string(bench::mixed(i));
      text.resize(16, '-');
      keys.push_back(std::move(text));
    } else {
      keys.push_back(bench::mixed(i));
    }
  }
  return keys;
}

turnkey::options<std::uint64_t> as(policy p) { return {.default_policy = p, .jitter_seed = 1}; }

// Submitted, run and settled one by one.
template <class Key, std::size_t Keys, policy Policy>
void one_by_one(std::uint64_t tasks) {
  turnkey::scheduler<Key> s{turnkey::inline_executor{}, {.default_policy = Policy, .jitter_seed = 1}};
  const auto keys = some_keys<Key>(Keys);
  for (std::uint64_t i = 0; i != tasks; ++i) s.submit(keys[bench::mixed(i) % Keys], body{&done, i, tasks});
}

// All wait on one key, then run.
void backlog(std::uint64_t tasks) {
  turnkey::testing::manual_executor pool;
  turnkey::scheduler<std::uint64_t> s{pool, as(policy::ordered)};
  for (std::uint64_t i = 0; i != tasks; ++i) s.submit(1, body{&done, i, tasks});
  pool.run_all();
}

// Every task fails once and is tried again at once.
void retried(std::uint64_t tasks) {
  turnkey::scheduler<std::uint64_t> s{turnkey::inline_executor{}, as(policy::ordered)};
  const turnkey::task_options twice{.retry = turnkey::retry_policy{.max_attempts = 2}};
  for (std::uint64_t i = 0; i != tasks; ++i)
    s.submit(i % 1024, twice, [](turnkey::attempt& a) {
      return a.number() == 1 ? turnkey::outcome::retry_after({}) : turnkey::outcome::success();
    });
}

// Every task waits and is cancelled.
void cancelled(std::uint64_t tasks) {
  turnkey::testing::manual_executor pool;
  turnkey::scheduler<std::uint64_t> s{pool, as(policy::ordered)};
  std::vector<turnkey::task_id> ids;
  for (std::uint64_t i = 0; i != tasks; ++i) ids.push_back(s.submit(i % 1024, body{&done, i, tasks}));
  for (const turnkey::task_id id : ids) s.cancel(id);
}

struct measured_case {
  const char* name;
  void (*run)(std::uint64_t tasks);
};
constexpr measured_case cases[] = {
    {"ordered-u64-1k", &one_by_one<std::uint64_t, 1000, policy::ordered>},
    {"ordered-u64-100k", &one_by_one<std::uint64_t, 100'000, policy::ordered>},
    {"ordered-string-1k", &one_by_one<std::string, 1000, policy::ordered>},
    {"ordered-string-100k", &one_by_one<std::string, 100'000, policy::ordered>},
    {"exclusive-u64-1k", &one_by_one<std::uint64_t, 1000, policy::exclusive>},
    {"parallel-u64-1k", &one_by_one<std::uint64_t, 1000, policy::parallel>},
    {"backlog-of-one-key", &backlog},
    {"failed-once", &retried},
    {"cancelled", &cancelled},
};

}  // namespace

int main(int count, char** words) {
  if (count == 2 && std::string(words[1]) == "--list") {
    for (const measured_case& c : cases) std::puts(c.name);
    return 0;
  }
  const std::uint64_t tasks = count == 3 ? std::strtoull(words[2], nullptr, 10) : 0;
  for (const measured_case& c : cases) {
    if (tasks == 0 || c.name != std::string(words[1])) continue;
    c.run(tasks);
    return done != 0 || c.run == &retried || c.run == &cancelled ? 0 : 1;
  }
  std::fputs("usage: instructions CASE TASKS, with one of the cases that instructions --list prints\n", stderr);
  return 2;
}
