#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::dead_action;
using turnkey::drain_result;
using turnkey::event;
using turnkey::event_kind;
using turnkey::failure_reason;
using turnkey::outcome;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::task_id;
using turnkey::task_options;
using namespace std::chrono_literals;

namespace {

using numbers = std::vector<int>;

const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};

// A stage whose callbacks write down their number; those of `bad` die until they are mended.
struct dying_stage : stage {
  using stage::stage;

  task_id submit(int number, policy p, const std::string& key = "a") {
    return tasks.submit(key, {.policy = p}, [this, number] {
      ran.push_back(number);
      return number >= 100 && !mended ? outcome::dead() : outcome::success();
    });
  }
  numbers take() { return std::exchange(ran, {}); }

  numbers ran;
  bool mended = false;  // numbers from 100 on die until it is set
};

turnkey::options<std::string> holding() { return {.dead_action = dead_action::hold_key}; }

}  // namespace

// The record and the visit that told of it both took themselves for the last owner: the task was freed twice.
TEST_CASE("5.1 an observer may submit the record of an evicted task at once") {
  int runs = 0;
  turnkey::scheduler<std::string>* tasks = nullptr;
  stage on({.max_dead = 0, .observer = [&](const event<std::string>& e) {
              if (e.kind == event_kind::evicted) tasks->submit(std::move(*e.record));
            }});
  tasks = &on.tasks;
  on.tasks.submit("a", [&] { return ++runs == 1 ? outcome::dead() : outcome::success(); });
  on.run();
  CHECK(runs == 2);
  CHECK(on.tasks.stats().unfinished() == 0);
  CHECK(on.tasks.stats().keys == 0);
}

TEST_CASE("5.1 an observer may move the record of an evicted task away and drop it") {
  auto witness = std::make_shared<int>();
  stage on({.max_dead = 0, .observer = [](const event<std::string>& e) {
              if (e.kind == event_kind::evicted) turnkey::task_record<std::string>(std::move(*e.record));
            }});
  on.tasks.submit("a", [witness] { return outcome::dead(); });
  on.run();
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().dead_evicted == 1);
}

// ---- 5.1: what is kept

TEST_CASE("5.1 a dead task keeps id, key, policy, attempts, times, error and callback") {
  stage on({.retry = retry_policy{.max_attempts = 3, .initial_delay = 1s, .multiplier = 1, .jitter = 0}});
  auto witness = std::make_shared<int>();
  const task_id id = on.tasks.submit(
      "a", exclusive, [witness](attempt& a) { throw std::runtime_error("failure " + std::to_string(a.number())); });
  const auto submitted = on.time.now();
  on.pass(1h);
  const auto dead = on.tasks.dead_tasks();
  REQUIRE(dead.size() == 1);
  CHECK(dead[0].id == id);
  CHECK(dead[0].key == "a");
  CHECK(dead[0].policy == policy::exclusive);
  CHECK(dead[0].attempts == 3);
  CHECK(dead[0].submitted == submitted);
  CHECK(dead[0].died == submitted + 2s);
  CHECK(dead[0].error.reason() == failure_reason::threw);
  CHECK(dead[0].error.text() == "failure 3");
  CHECK_THROWS_AS(std::rethrow_exception(dead[0].error.exception()), std::runtime_error);
  CHECK(witness.use_count() == 2);
}

TEST_CASE("5.1 a dead task without a key and without words says so") {
  stage on;
  on.tasks.submit([] { return outcome::dead(); });
  on.tasks.submit([] { throw 5; });
  on.run();
  const auto dead = on.tasks.dead_tasks();
  REQUIRE(dead.size() == 2);
  CHECK(!dead[0].key);
  CHECK(dead[0].error.reason() == failure_reason::asked);
  CHECK(dead[0].error.exception() == nullptr);
  CHECK(dead[0].error.text() == "asked");
  CHECK(dead[1].error.text() == "an exception that is not a std::exception");
}

TEST_CASE("5.1 dead tasks of all keys are listed, the oldest first") {
  stage on;
  std::vector<task_id> died;
  for (int i = 0; i != 40; ++i) {
    died.push_back(on.tasks.submit(std::to_string(i % 20), [] { return outcome::dead(); }));
    on.run();
  }
  std::vector<task_id> listed;
  for (const auto& each : on.tasks.dead_tasks()) listed.push_back(each.id);
  CHECK(listed == died);
}

TEST_CASE("5.1 when the store is full the oldest dead task leaves, with all that is known of it") {
  std::vector<std::string> left;
  stage on({.max_dead = 2, .observer = [&left](const event<std::string>& e) {
              if (e.kind != event_kind::evicted) return;
              REQUIRE(e.record != nullptr);
              CHECK(e.record->id() == e.id);
              CHECK(*e.record->key() == *e.key);
              CHECK(e.record->state() == turnkey::task_state::dead);
              CHECK(e.record->attempts() == 1);
              left.push_back(*e.key + " " + e.error->text());
            }});
  for (const char* key : {"a", "b", "c", "d"}) {
    on.tasks.submit(key, [key] { return outcome::dead(std::string("of ") + key); });
    on.run();
  }
  CHECK(left == std::vector<std::string>{"a of a", "b of b"});
  CHECK(on.tasks.dead_tasks().size() == 2);
  CHECK(on.tasks.dead_tasks()[0].key == "c");
  CHECK(on.tasks.stats().dead_evicted == 2);
}

TEST_CASE("5.1 with max_dead 0 none is kept, and callbacks end") {
  stage on({.max_dead = 0});
  auto witness = std::make_shared<int>();
  const task_id id = on.tasks.submit("a", [witness] { return outcome::dead(); });
  on.run();
  CHECK(on.tasks.dead_tasks().empty());
  CHECK(witness.use_count() == 1);
  CHECK(!on.tasks.redrive(id));
  CHECK(on.tasks.stats().died == 1);
  CHECK(on.tasks.stats().dead == 0);
  CHECK(on.tasks.stats().dead_evicted == 1);
}

TEST_CASE("5.1 an evicted record can be submitted to another scheduler") {
  stage other;
  int runs = 0;
  stage on({.max_dead = 0, .observer = [&other](const event<std::string>& e) {
              if (e.kind == event_kind::evicted) other.tasks.submit(std::move(*e.record));
            }});
  on.tasks.submit("a", ordered, [&runs] { return ++runs == 1 ? outcome::dead() : outcome::success(); });
  on.run();
  CHECK(other.tasks.stats().keys == 1);
  other.run();
  CHECK(runs == 2);
  CHECK(other.tasks.stats().succeeded == 1);
}

// The visit that told of it read the count of owners without a lock: thread sanitizers see it.
TEST_CASE("5.1 another thread may drop the record of an evicted task while the observer returns") {
  auto witness = std::make_shared<int>();
  std::vector<std::thread> threads;
  stage on({.max_dead = 0, .observer = [&threads](const event<std::string>& e) {
              if (e.kind == event_kind::evicted) threads.emplace_back([gone = std::move(*e.record)] {});
            }});
  for (int i = 0; i != 50; ++i) on.tasks.submit("a", [witness] { return outcome::dead(); });
  on.run();
  for (std::thread& t : threads) t.join();
  CHECK(witness.use_count() == 1);
}

// ---- 5.2: redrive and discard

TEST_CASE("5.2 a redrive gives a new life with fresh attempts under the old id") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s, .max_postpones = 1}});
  std::vector<std::uint32_t> seen;
  const task_id id = on.tasks.submit("a", [&seen](attempt& a) {
    seen.push_back(a.number());
    return seen.size() % 3 == 1 ? outcome::postpone(0s) : outcome::retry();
  });
  on.run();
  CHECK(on.tasks.redrive(id));
  CHECK(on.tasks.dead_tasks().empty());
  on.run();
  CHECK(seen == std::vector<std::uint32_t>{1, 1, 2, 1, 1, 2});
  CHECK(on.tasks.dead_tasks().at(0).id == id);
  CHECK(on.tasks.dead_tasks().at(0).attempts == 3);
}

TEST_CASE("5.2 redrive and discard know only dead tasks") {
  stage on;
  const task_id succeeded = on.tasks.submit("a", [] {});
  on.run();
  const task_id waiting = on.tasks.submit("a", {.delay = 1h}, [] {});
  for (const task_id id : {succeeded, waiting, task_id{0}, task_id{~0ULL}}) {
    CHECK(!on.tasks.redrive(id));
    CHECK(!on.tasks.discard(id));
  }
  CHECK(on.tasks.redrive("a") == 0);
  CHECK(on.tasks.discard("nobody") == 0);
  CHECK(on.tasks.redrive_all() == 0);
  CHECK(on.tasks.stats().unfinished() == 1);
}

TEST_CASE("5.2 a redriven task stands before waiting larger ids, never before one that runs") {
  dying_stage on;
  const task_id dead = on.submit(100, policy::ordered);
  on.run();
  on.mended = true;
  on.tasks.submit("a", ordered, [&] {
    on.ran.push_back(1);
    CHECK(on.tasks.redrive(dead));
  });
  on.submit(2, policy::ordered);
  on.submit(3, policy::ordered);
  on.run();
  CHECK(on.ran == numbers{100, 1, 100, 2, 3});
}

TEST_CASE("5.2 exclusive and parallel tasks are redriven into the place of their ids too") {
  for (const policy p : {policy::exclusive, policy::parallel}) {
    dying_stage on;
    const task_id dead = on.submit(100, p);
    on.run();
    on.mended = true;
    on.submit(1, p);
    CHECK(on.tasks.redrive(dead));
    on.submit(2, p);
    on.run();
    CHECK(on.ran == numbers{100, 100, 1, 2});
  }
}

TEST_CASE("5.2 redrive(key) and redrive_all revive in id order, whatever the order of deaths") {
  dying_stage on({.retry = retry_policy{.jitter = 0}});
  on.tasks.submit("a", [&on] {
    on.ran.push_back(100);
    return on.mended ? outcome::success() : on.ran.size() == 1 ? outcome::postpone(1s) : outcome::dead();
  });
  on.submit(101, policy::parallel);
  on.submit(102, policy::parallel);
  on.submit(103, policy::parallel, "b");
  on.pass(1s);
  CHECK(on.take() == numbers{100, 101, 102, 103, 100});
  on.mended = true;
  CHECK(on.tasks.redrive("a") == 3);
  CHECK(on.tasks.stats().dead == 1);
  on.run();
  CHECK(on.take() == numbers{100, 101, 102});
  CHECK(on.tasks.redrive_all() == 1);
  on.run();
  CHECK(on.take() == numbers{103});
}

TEST_CASE("5.2 redriven tasks follow the rules of starting") {
  dying_stage on;
  const task_id first = on.submit(100, policy::ordered);
  const task_id second = on.submit(101, policy::ordered);
  on.run();
  CHECK(on.tasks.redrive(second));
  CHECK(on.tasks.redrive(first));
  CHECK(on.tasks.stats().ready == 1);
  CHECK(on.tasks.stats().waiting == 1);
  on.mended = true;
  on.run();
  CHECK(on.ran == numbers{100, 101, 100, 101});
}

TEST_CASE("5.2 a redrive ignores the limits, and counts for them afterwards") {
  dying_stage on({.max_pending = 1, .max_pending_per_key = 1});
  const task_id dead = on.submit(100, policy::ordered);
  on.run();
  on.submit(1, policy::ordered);
  CHECK(on.tasks.redrive(dead));
  CHECK(!on.tasks.try_submit("a", [] {}));
  on.mended = true;
  on.run();
  CHECK(on.ran == numbers{100, 100, 1});
  CHECK(on.tasks.try_submit("a", [] {}));
}

TEST_CASE("5.2 redriving and discarding work after close, and not after stop") {
  dying_stage on;
  const task_id first = on.submit(100, policy::ordered);
  const task_id second = on.submit(101, policy::ordered);
  const task_id third = on.submit(102, policy::ordered);
  on.run();
  on.tasks.close();
  on.mended = true;
  CHECK(on.tasks.redrive(first));
  CHECK(on.tasks.discard(second));
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
  static_cast<void>(on.tasks.stop());
  CHECK(!on.tasks.redrive(third));
  CHECK(on.tasks.redrive_all() == 0);
  CHECK(!on.tasks.discard(third));
}

TEST_CASE("5.2 discard drops callbacks and keys: by id, by key, all") {
  dying_stage on;
  auto witness = std::make_shared<int>();
  for (const char* key : {"a", "a", "a", "b", "b", "c"}) on.tasks.submit(key, [witness] { return outcome::dead(); });
  on.run();
  CHECK(on.tasks.discard(on.tasks.dead_tasks()[0].id));
  CHECK(witness.use_count() == 6);
  CHECK(on.tasks.discard("a") == 2);
  CHECK(witness.use_count() == 4);
  CHECK(on.tasks.discard_all() == 3);
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().dead == 0);
}

// ---- 5.3: holds

TEST_CASE("5.3 by default a death lets the key go on") {
  dying_stage on;
  on.submit(100, policy::ordered);
  on.submit(1, policy::ordered);
  on.run();
  CHECK(on.ran == numbers{100, 1});
  CHECK(on.tasks.held_keys().empty());
}

TEST_CASE("5.3 the death of an exclusive or ordered task holds larger ids back, whatever their policy") {
  for (const policy holder : {policy::exclusive, policy::ordered}) {
    dying_stage on(holding());
    on.submit(100, holder);
    on.run();
    on.submit(1, policy::ordered);
    on.submit(2, policy::exclusive);
    on.submit(3, policy::parallel);
    on.submit(4, policy::ordered, "b");
    on.tasks.submit([&on] { on.ran.push_back(5); });
    on.run();
    CHECK(on.ran == numbers{100, 4, 5});
    CHECK(on.tasks.held_keys() == std::vector<std::string>{"a"});
    CHECK(on.tasks.stats().held_keys == 1);
    CHECK(on.tasks.stats().waiting == 3);
  }
}

TEST_CASE("5.3 the death of a parallel task holds nothing") {
  dying_stage on(holding());
  on.submit(100, policy::parallel);
  on.run();
  on.submit(1, policy::ordered);
  on.run();
  CHECK(on.ran == numbers{100, 1});
}

TEST_CASE("5.3 smaller ids go on while the key is held") {
  dying_stage on(holding());
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1s}, [&on] { on.ran.push_back(1); });
  on.tasks.submit("a", {.policy = policy::parallel, .delay = 2s}, [&on] { on.ran.push_back(2); });
  on.submit(100, policy::exclusive);
  on.submit(3, policy::exclusive);
  on.pass(3s);
  CHECK(on.ran == numbers{100, 1, 2});
}

TEST_CASE("5.3 a hold ends when its holder succeeds after a redrive, not before") {
  dying_stage on(holding());
  const task_id dead = on.submit(100, policy::exclusive);
  on.submit(1, policy::parallel);
  on.run();
  CHECK(on.take() == numbers{100});
  CHECK(on.tasks.redrive(dead));
  on.run();  // and dies again
  CHECK(on.take() == numbers{100});
  on.mended = true;
  CHECK(on.tasks.redrive(dead));
  CHECK(on.tasks.held_keys().size() == 1);
  on.run();
  CHECK(on.take() == numbers{100, 1});
  CHECK(on.tasks.held_keys().empty());
}

TEST_CASE("5.3 a hold ends when its holder is discarded, cancelled after a redrive, or the key released") {
  for (int how = 0; how != 4; ++how) {
    CAPTURE(how);
    dying_stage on(holding());
    const task_id dead = on.submit(100, policy::exclusive);
    on.run();
    on.submit(1, policy::ordered);
    on.run();
    CHECK(on.take() == numbers{100});
    if (how == 0) CHECK(on.tasks.discard(dead));
    if (how == 1) CHECK((on.tasks.redrive(dead) && on.tasks.cancel(dead)));
    if (how == 2) CHECK(on.tasks.release("a"));
    if (how == 3) CHECK(on.tasks.release_all() == 1);
    on.run();
    CHECK(on.take() == numbers{1});
    CHECK(on.tasks.held_keys().empty());
    CHECK(!on.tasks.release("a"));
    CHECK(on.tasks.release_all() == 0);
  }
}

TEST_CASE("5.3 of several holders the smallest counts") {
  dying_stage on(holding());
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1s}, [&on] {
    on.ran.push_back(99);
    return outcome::dead();
  });
  const task_id second = on.submit(100, policy::exclusive);
  on.run();
  on.submit(1, policy::parallel);
  on.pass(1s);  // the smaller one dies too
  CHECK(on.take() == numbers{100, 99});
  on.mended = true;
  CHECK(on.tasks.redrive(second));
  on.run();
  CHECK(on.take() == numbers{});  // held by the first
  CHECK(on.tasks.discard("a") == 1);
  on.run();
  CHECK(on.take() == numbers{100, 1});
}

TEST_CASE("5.3 with a smaller holder gone, the next one goes on holding") {
  dying_stage on(holding());
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1s}, [] { return outcome::dead(); });
  on.submit(100, policy::exclusive);
  on.pass(1s);
  on.submit(1, policy::parallel);
  CHECK(on.tasks.discard(on.tasks.dead_tasks().at(1).id));  // the smaller id died later
  on.run();
  CHECK(on.take() == numbers{100});
  CHECK(on.tasks.held_keys().size() == 1);
}

TEST_CASE("5.3 a holder that left the store holds until the key is released") {
  dying_stage on({.max_dead = 0, .dead_action = dead_action::hold_key});
  on.submit(100, policy::exclusive);
  on.run();
  on.submit(1, policy::parallel);
  on.run();
  CHECK(on.take() == numbers{100});
  CHECK(on.tasks.held_keys() == std::vector<std::string>{"a"});
  CHECK(on.tasks.discard("a") == 0);
  CHECK(on.tasks.release("a"));
  on.run();
  CHECK(on.take() == numbers{1});
}

TEST_CASE("5.3 the smallest holder counts, also beside one that left the store") {
  dying_stage on({.max_dead = 1, .dead_action = dead_action::hold_key});
  on.tasks.submit("a", {.policy = policy::exclusive, .delay = 1s}, [] { return outcome::dead(); });
  on.tasks.submit("a", {.delay = 2s}, [&on] { on.ran.push_back(1); });
  on.submit(100, policy::exclusive);  // dies first, and leaves the store when the first one dies
  on.pass(3s);
  CHECK(on.tasks.stats().dead_evicted == 1);
  CHECK(on.take() == numbers{100});
  on.tasks.discard("a");
  on.run();
  CHECK(on.take() == numbers{1});
  CHECK(on.tasks.held_keys().size() == 1);  // by the one that left
}

TEST_CASE("5.3 release_all frees every key and says how many") {
  dying_stage on(holding());
  for (int i = 0; i != 20; ++i) {
    on.submit(100, policy::exclusive, std::to_string(i));
    on.run();
    on.submit(1, policy::ordered, std::to_string(i));
  }
  CHECK(on.tasks.held_keys().size() == 20);
  CHECK(on.tasks.release_all() == 20);
  on.take();
  on.run();
  CHECK(on.ran == numbers(20, 1));
  CHECK(on.tasks.stats().dead == 20);
}

TEST_CASE("5.3 drain counts held tasks, and not the dead one") {
  dying_stage on(holding());
  on.submit(100, policy::ordered);
  on.run();
  CHECK(on.tasks.drain() == drain_result::drained);
  on.submit(1, policy::ordered);
  on.run();
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
  on.tasks.release("a");
  on.run();
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("5.3 retries that are due while the key is held wait for its release") {
  dying_stage on({.retry = retry_policy{}, .dead_action = dead_action::hold_key});
  on.tasks.submit("a", exclusive, [&on] {
    on.ran.push_back(100);
    return on.ran.size() == 1 ? outcome::retry_after(5s) : outcome::dead();
  });
  on.tasks.submit("a", exclusive, [&on] {
    on.ran.push_back(1);
    return on.ran.size() == 2 ? outcome::retry_after(10s) : outcome::success();
  });
  on.pass(1min);
  CHECK(on.take() == numbers{100, 1, 100});
  on.tasks.release("a");
  on.run();
  CHECK(on.take() == numbers{1});
}
