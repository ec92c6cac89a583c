#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::event;
using turnkey::event_kind;
using turnkey::outcome;
using turnkey::policy;
using turnkey::scheduler;
using turnkey::task_id;
using turnkey::task_options;
using namespace std::chrono_literals;

namespace {

const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};

// A callback that notes the fence of its attempt.
auto note_fence(std::vector<std::uint64_t>& fences) {
  return [&fences](attempt& a) { fences.push_back(a.fence()); };
}

}  // namespace

TEST_CASE("1 the ids of one key rise, and none is used twice") {
  stage on;
  std::set<task_id> all;
  std::map<std::string, task_id> last;
  for (int round = 0; round != 3; ++round) {
    for (int i = 0; i != 100; ++i) {
      const std::string key(1, static_cast<char>('a' + i % 5));
      const task_id id = on.tasks.submit(key, [] {});
      CHECK(id > last[key]);
      last[key] = id;
      CHECK(all.insert(id).second);
    }
    on.run();  // the keys are forgotten
  }
}

TEST_CASE("1 ids of tasks without a key rise too, beside those with one") {
  stage on;
  const task_id first = on.tasks.submit([] {});
  const task_id other = on.tasks.submit("a", [] {});
  const task_id second = on.tasks.submit([] {});
  CHECK(first < second);
  CHECK(other != first);
  CHECK(other != second);
}

TEST_CASE("1 a redriven task keeps its id, and no later task gets it") {
  stage on;
  std::vector<task_id> ran;
  const task_id dead = on.tasks.submit("a", [&ran](attempt& a) {
    ran.push_back(a.id());
    return ran.size() == 1 ? outcome::dead() : outcome::success();
  });
  on.run();
  CHECK(on.tasks.submit("a", [] {}) > dead);
  CHECK(on.tasks.redrive(dead));
  on.run();
  CHECK(ran == std::vector{dead, dead});
  CHECK(on.tasks.submit("a", [] {}) != dead);
}

TEST_CASE("1 every lease of a key has a larger fence, those of retries too") {
  stage on({.retry = turnkey::retry_policy{}});
  std::vector<std::uint64_t> fences;
  on.tasks.submit("a", exclusive, [&fences](attempt& a) {
    fences.push_back(a.fence());
    return a.number() < 3 ? outcome::retry() : outcome::success();
  });
  on.tasks.submit("a", exclusive, note_fence(fences));
  on.tasks.submit("a", ordered, note_fence(fences));
  on.pass(1s);
  REQUIRE(fences.size() == 5);
  for (std::size_t i = 1; i != fences.size(); ++i) CHECK(fences[i] > fences[i - 1]);
}

TEST_CASE("1 fences grow across the key being forgotten") {
  stage on;
  std::vector<std::uint64_t> fences;
  for (int i = 0; i != 5; ++i) {
    on.tasks.submit("a", exclusive, note_fence(fences));
    on.run();
    CHECK(on.tasks.stats().keys == 0);
  }
  REQUIRE(fences.size() == 5);
  for (std::size_t i = 1; i != fences.size(); ++i) CHECK(fences[i] > fences[i - 1]);
}

TEST_CASE("1 without a lease the fence is 0") {
  stage on;
  std::vector<std::uint64_t> fences;
  on.tasks.submit("a", exclusive, [] {});
  on.tasks.submit("a", note_fence(fences));
  on.tasks.submit(note_fence(fences));
  on.run();
  CHECK(fences == std::vector<std::uint64_t>{0, 0});
}

TEST_CASE("1 an empty string is a key like any other, and no key is none") {
  stage on;
  std::vector<std::string> ran;
  on.tasks.submit("", {.policy = policy::ordered, .delay = 1s}, [&ran] { ran.push_back("first of the empty key"); });
  on.tasks.submit("", ordered, [&ran] { ran.push_back("second of the empty key"); });
  on.tasks.submit([&ran] { ran.push_back("no key"); });
  CHECK(on.tasks.stats().keys == 1);
  on.run();
  on.pass(1s);
  CHECK(ran == std::vector<std::string>{"no key", "first of the empty key", "second of the empty key"});
}

TEST_CASE("1 a key that can only be moved is enough to submit") {
  struct owned_hash {
    std::size_t operator()(const std::unique_ptr<int>& p) const { return static_cast<std::size_t>(*p); }
  };
  struct owned_equal {
    bool operator()(const std::unique_ptr<int>& a, const std::unique_ptr<int>& b) const { return *a == *b; }
  };
  turnkey::testing::manual_executor pool;
  scheduler<std::unique_ptr<int>, owned_hash, owned_equal> tasks(pool);
  std::vector<int> ran;
  tasks.submit(std::make_unique<int>(1), ordered, [&ran] { ran.push_back(1); });
  tasks.submit(std::make_unique<int>(1), ordered, [&ran] { ran.push_back(2); });
  int without = 0;
  tasks.submit([&without] { ++without; });  // it used to ask for a copy of the key that it does not have
  CHECK(tasks.stats().keys == 1);
  pool.run_all();
  CHECK(ran == std::vector{1, 2});
  CHECK(without == 1);
}

TEST_CASE("1 keys are told apart by the hash and the comparison that were given") {
  struct first_letter {
    std::size_t operator()(const std::string& s) const { return static_cast<std::size_t>(s[0]); }
  };
  struct same_letter {
    bool operator()(const std::string& a, const std::string& b) const { return a[0] == b[0]; }
  };
  turnkey::testing::manual_executor pool;
  scheduler<std::string, first_letter, same_letter> tasks(pool);
  tasks.submit("apple", [] {});
  tasks.submit("avocado", [] {});
  tasks.submit("banana", [] {});
  CHECK(tasks.stats().keys == 2);
}

TEST_CASE("1 unfinished tasks are waiting, ready, running or delayed") {
  stage on;
  turnkey::stats inside;
  on.tasks.submit("a", ordered, [&] { inside = on.tasks.stats(); });
  on.tasks.submit("a", ordered, [] {});        // waiting for the first
  on.tasks.submit("b", exclusive, [] {});      // ready
  on.tasks.submit("c", {.delay = 1s}, [] {});  // delayed
  CHECK(on.tasks.stats().running == 0);
  CHECK(on.tasks.stats().ready == 2);
  CHECK(on.tasks.stats().waiting == 1);
  CHECK(on.tasks.stats().delayed == 1);
  on.run();
  CHECK(inside.running == 1);
  CHECK(inside.ready == 1);
  CHECK(inside.waiting == 1);
  CHECK(inside.delayed == 1);
  CHECK(on.tasks.stats().unfinished() == 1);
}

TEST_CASE("1 every accepted task reaches exactly one final state") {
  std::map<task_id, std::vector<event_kind>> ends;
  stage on({.retry = turnkey::retry_policy{.max_attempts = 2}, .observer = [&ends](const event<std::string>& e) {
              if (e.kind == event_kind::succeeded || e.kind == event_kind::dead || e.kind == event_kind::cancelled ||
                  e.kind == event_kind::undone)
                ends[e.id].push_back(e.kind);
            }});
  const task_id succeeds = on.tasks.submit("a", [] {});
  const task_id dies = on.tasks.submit("a", ordered, [] { throw 1; });
  const task_id cancelled = on.tasks.submit("a", ordered, [] {});
  const task_id undone = on.tasks.submit("a", {.delay = 1h}, [] {});
  CHECK(on.tasks.cancel(cancelled));
  on.pass(1s);
  CHECK(on.tasks.stop().size() == 1);
  CHECK(ends[succeeds] == std::vector{event_kind::succeeded});
  CHECK(ends[dies] == std::vector{event_kind::dead});
  CHECK(ends[cancelled] == std::vector{event_kind::cancelled});
  CHECK(ends[undone] == std::vector{event_kind::undone});
}
