#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

using turnkey::attempt;
using turnkey::event;
using turnkey::event_kind;
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

}  // namespace

TEST_CASE("6.5 a task that is waiting, ready or delayed is cancelled at once") {
  stage on;
  auto witness = std::make_shared<int>();
  const task_id ready = on.tasks.submit("a", ordered, [witness] {});
  const task_id waiting = on.tasks.submit("a", ordered, [witness] {});
  const task_id delayed = on.tasks.submit("a", {.delay = 1s}, [witness] {});
  for (const task_id id : {waiting, ready, delayed}) CHECK(on.tasks.cancel(id));
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().cancelled == 3);
  CHECK(on.tasks.stats().unfinished() == 0);
  CHECK(on.tasks.stats().keys == 0);
  on.pass(1h);
  CHECK(on.tasks.stats().started == 0);
}

TEST_CASE("6.5 cancel is false for what is finished, unknown or dead") {
  stage on;
  const task_id succeeded = on.tasks.submit("a", [] {});
  const task_id dead = on.tasks.submit("a", [] { return outcome::dead(); });
  const task_id cancelled = on.tasks.submit("a", {.delay = 1h}, [] {});
  CHECK(on.tasks.cancel(cancelled));
  on.run();
  for (const task_id id : {succeeded, dead, cancelled, task_id{0}, task_id{~0ULL}}) CHECK(!on.tasks.cancel(id));
  CHECK(on.tasks.dead_tasks().size() == 1);
  CHECK(on.tasks.stats().cancelled == 1);
}

TEST_CASE("6.5 cancel is false after stop") {
  stage on;
  const task_id id = on.tasks.submit("a", [] {});
  const auto left = on.tasks.stop();
  CHECK(!on.tasks.cancel(id));
  CHECK(on.tasks.cancel("a") == 0);
  CHECK(on.tasks.cancel_all() == 0);
}

TEST_CASE("6.5 what waited for a cancelled task is looked at again") {
  stage on;
  int ran = 0;
  const task_id first = on.tasks.submit("a", {.policy = policy::ordered, .delay = 1h}, [] {});
  on.tasks.submit("a", ordered, [&ran] { ++ran; });
  on.run();
  CHECK(ran == 0);
  CHECK(on.tasks.cancel(first));
  on.run();
  CHECK(ran == 1);
}

TEST_CASE("6.5 a task between two attempts never starts again once it is cancelled") {
  stage on({.retry = retry_policy{.initial_delay = 1s, .jitter = 0}});
  const task_id id = on.tasks.submit("a", ordered, [] { return outcome::retry(); });
  int ran = 0;
  on.tasks.submit("a", ordered, [&ran] { ++ran; });
  on.run();
  CHECK(on.tasks.cancel(id));
  on.pass(1h);
  CHECK(on.tasks.stats().started == 2);
  CHECK(ran == 1);
}

TEST_CASE("6.5 a cancel wins over a retry that is due") {
  stage on({.retry = retry_policy{.initial_delay = 1s, .jitter = 0}});
  const task_id id = on.tasks.submit("a", exclusive, [] { return outcome::retry(); });
  on.run();
  on.time.jump(1s);  // it is ready, with a permit on its way
  CHECK(on.tasks.stats().ready == 1);
  CHECK(on.tasks.cancel(id));
  on.run();
  CHECK(on.tasks.stats().started == 1);
  CHECK(on.tasks.stats().cancelled == 1);
}

TEST_CASE("6.5 a running task that is cancelled and succeeds is succeeded") {
  stage on;
  bool again = false;
  on.tasks.submit("a", [&](attempt& a) {
    CHECK(on.tasks.cancel(a.id()));
    again = on.tasks.cancel(a.id());  // still unfinished
    CHECK(a.stop_requested());
  });
  on.run();
  CHECK(again);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().cancelled == 0);
}

TEST_CASE("6.5 a running task that is cancelled and does not succeed is cancelled, whatever it says") {
  for (int how = 0; how != 5; ++how) {
    CAPTURE(how);
    stage on({.retry = retry_policy{}});
    on.tasks.submit("a", [&](attempt& a) {
      on.tasks.cancel(a.id());
      if (how == 0) return outcome::retry();
      if (how == 1) return outcome::retry_after(0s);
      if (how == 2) return outcome::postpone(0s);
      if (how == 3) return outcome::dead();
      throw 1;
    });
    on.pass(1h);
    CHECK(on.tasks.stats().started == 1);
    CHECK(on.tasks.stats().cancelled == 1);
    CHECK(on.tasks.stats().died == 0);
    CHECK(on.tasks.stats().unfinished() == 0);
  }
}

TEST_CASE("6.5 a running task that is cancelled keeps its lease until it settles") {
  stage on;
  numbers ran;
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    on.tasks.cancel(a.id());
    std::thread([&on] { on.run(); }).join();  // another worker finds nothing to start
    ran.push_back(1);
    return outcome::retry();
  });
  on.tasks.submit("a", exclusive, [&ran] { ran.push_back(2); });
  on.run();
  CHECK(ran == numbers{1, 2});
}

TEST_CASE("6.5 the stop token of a cancelled task is signalled once, and those of others are not") {
  stage on;
  int signals = 0;
  bool other = true;
  on.tasks.submit("a", [&](attempt& mine) {
    on.tasks.submit("a", [&](attempt& theirs) {
      const std::stop_callback told(theirs.stop_token(), [&signals] { ++signals; });
      on.tasks.cancel(theirs.id());
      on.tasks.cancel(theirs.id());
    });
    std::thread([&on] { on.run(); }).join();
    other = mine.stop_requested();
  });
  on.run();
  CHECK(signals == 1);
  CHECK(!other);
}

TEST_CASE("6.5 a stop callback may submit and cancel") {
  stage on;
  int ran = 0;
  const task_id other = on.tasks.submit("b", {.delay = 1h}, [] {});
  on.tasks.submit("a", [&](attempt& a) {
    const std::stop_callback told(a.stop_token(), [&] {
      CHECK(on.tasks.cancel(other));
      on.tasks.submit("a", [&ran] { ++ran; });
    });
    on.tasks.cancel(a.id());
  });
  on.run();
  CHECK(ran == 1);
}

TEST_CASE("6.5 cancel(key) cancels the unfinished tasks of that key, in every state, and says how many") {
  stage on;
  std::size_t cancelled = 0;
  bool told = false;
  on.tasks.submit("a", [] { return outcome::dead(); });
  on.tasks.submit("a", exclusive, [&](attempt& a) {
    cancelled = on.tasks.cancel("a");
    told = a.stop_requested();
    return outcome::retry();
  });
  on.tasks.submit("a", ordered, [] {});
  on.tasks.submit("a", {.delay = 1s}, [] {});
  on.tasks.submit("b", ordered, [] {});
  on.tasks.submit(task_options{.delay = 1h}, [] {});
  on.run();
  CHECK(cancelled == 3);
  CHECK(told);
  CHECK(on.tasks.stats().cancelled == 3);
  CHECK(on.tasks.stats().dead == 1);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().unfinished() == 1);
  CHECK(on.tasks.cancel("a") == 0);
  CHECK(on.tasks.cancel("nobody") == 0);
}

TEST_CASE("6.5 cancel_all cancels the unfinished tasks of all keys and of none") {
  stage on;
  auto witness = std::make_shared<int>();
  for (int i = 0; i != 40; ++i) {
    on.tasks.submit(std::to_string(i % 20), ordered, [witness] {});
    on.tasks.submit(task_options{.delay = std::chrono::seconds{i}}, [witness] {});
  }
  CHECK(on.tasks.cancel_all() == 80);
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().cancelled == 80);
  CHECK(on.tasks.stats().unfinished() == 0);
  CHECK(on.tasks.cancel_all() == 0);
  on.pass(1h);
  CHECK(on.tasks.stats().started == 0);
}

TEST_CASE("6.5 a cancelled task counts no failed attempt of its own when it never ran, and is told of once") {
  std::vector<event_kind> told;
  stage on({.observer = [&told](const event<std::string>& e) { told.push_back(e.kind); }});
  on.tasks.cancel(on.tasks.submit("a", [] {}));
  on.run();
  CHECK(told == std::vector{event_kind::submitted, event_kind::cancelled});
  CHECK(on.tasks.stats().failed_attempts == 0);
}
