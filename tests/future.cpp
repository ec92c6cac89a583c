// Futures of what callbacks return, in manual time: when they are ready, and with what.
#include <turnkey/future.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::completion;
using turnkey::drain_result;
using turnkey::failure_reason;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::retry_policy;
using turnkey::submit_future;
using turnkey::task_id;
using turnkey::task_options;
using namespace std::chrono_literals;

namespace {

const task_options thrice{.retry = retry_policy{.max_attempts = 3, .initial_delay = 1s, .jitter = 0}};

template <class R>
bool ready(const std::future<R>& future) {
  return future.wait_for(0s) == std::future_status::ready;
}

// What get() throws, as text; "" when it does not.
template <class R>
std::string said(std::future<R>& future) {
  try {
    static_cast<void>(future.get());
    return "";
  } catch (const std::exception& e) {
    return e.what();
  }
}

std::string name_of(task_id id) { return "turnkey: task " + std::to_string(static_cast<std::uint64_t>(id)); }

}  // namespace

TEST_CASE("7.5 the future has the result of the callback, whatever its type, once the task has succeeded") {
  stage on;
  int number = 5;
  auto value = submit_future(on.tasks, "a", [] { return 42; });
  auto text = submit_future(on.tasks, "a", thrice, [](attempt& a) { return "attempt " + std::to_string(a.number()); });
  auto nothing = submit_future(on.tasks, [] {});
  auto movable = submit_future(on.tasks, thrice, [] { return std::make_unique<int>(7); });
  auto reference = submit_future(on.tasks, "b", [&]() -> int& { return number; });
  auto obeyed = submit_future(on.tasks, "b", [] { return outcome::success(); });
  static_assert(std::is_same_v<decltype(value), std::future<int>>);
  static_assert(std::is_same_v<decltype(text), std::future<std::string>>);
  static_assert(std::is_same_v<decltype(nothing), std::future<void>>);
  static_assert(std::is_same_v<decltype(reference), std::future<int&>>);
  static_assert(std::is_same_v<decltype(obeyed), std::future<void>>);
  CHECK(!ready(value));
  on.run();
  CHECK(value.get() == 42);
  CHECK(text.get() == "attempt 1");
  nothing.get();
  CHECK(*movable.get() == 7);
  CHECK(&reference.get() == &number);
  obeyed.get();
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("7.5 callbacks that can only be moved, function pointers, and results without a default") {
  struct no_default {
    explicit no_default(int given) : n(given) {}
    int n;
  };
  stage on;
  auto moved = submit_future(on.tasks, [p = std::make_unique<int>(3)] { return no_default(*p); });
  auto pointer = submit_future(
      on.tasks, +[] { return true; });
  on.run();
  CHECK(moved.get().n == 3);
  CHECK(pointer.get());
}

TEST_CASE("7.5 an exception in an attempt that is not the last one retries; the future waits") {
  stage on;
  auto future = submit_future(on.tasks, "a", thrice, [](attempt& a) {
    if (a.number() < 3) throw std::runtime_error("not yet");
    return a.number();
  });
  on.run();
  CHECK(!ready(future));
  on.pass(1s);
  CHECK(!ready(future));
  on.pass(2s);
  REQUIRE(ready(future));
  CHECK(future.get() == 3);
}

TEST_CASE("7.5 a task that dies gives the exception of its last attempt") {
  stage on;
  auto future = submit_future(on.tasks, "a", thrice, [](attempt& a) -> int {
    if (a.number() == 3) throw std::out_of_range("the last");
    throw std::runtime_error("an earlier one");
  });
  auto odd = submit_future(on.tasks, []() -> int { throw 5; });
  auto words = submit_future(on.tasks, [] { return outcome::dead("asked"); });
  on.run();
  CHECK_THROWS_AS(odd.get(), int);
  CHECK_THROWS_AS(words.get(), turnkey::asked_to_fail);
  CHECK(!ready(future));
  on.pass(1h);
  CHECK_THROWS_AS(future.get(), std::out_of_range);
  CHECK(on.tasks.dead_tasks().size() == 3);
}

TEST_CASE("7.5 a task that dies without an exception gives task_died with the reason") {
  stage on({.lease_time = 1h, .lease_expiry = turnkey::lease_expiry::release});
  completion kept;
  struct row {
    failure_reason reason;
    std::function<outcome(attempt&)> callback;
    task_options options;
  };
  const row rows[] = {
      {failure_reason::asked, [](attempt&) { return outcome::dead(); }, {}},
      {failure_reason::asked, [](attempt&) { return outcome::retry(); }, thrice},
      {failure_reason::postponed_out,
       [](attempt&) { return outcome::postpone(1s); },
       {.retry = retry_policy{.max_postpones = 2}}},
      {failure_reason::abandoned,
       [](attempt& a) {
         static_cast<void>(a.defer());
         return outcome::success();
       },
       {}},
      {failure_reason::lease_lost,
       [&](attempt& a) {
         kept = a.defer();
         return outcome::success();
       },
       {}},
  };
  for (const row& r : rows) {
    CAPTURE(to_string(r.reason));
    auto future = submit_future(on.tasks, "a", r.options, r.callback);
    on.pass(2h);
    REQUIRE(ready(future));
    REQUIRE(!on.tasks.dead_tasks().empty());
    const task_id id = on.tasks.dead_tasks().back().id;
    try {
      future.get();
      CHECK(false);
    } catch (const turnkey::task_died& e) {
      CHECK(e.reason() == r.reason);
      CHECK(e.id() == id);
      CHECK(e.what() == name_of(id) + " died: " + to_string(r.reason));
    }
  }
}

TEST_CASE("7.5 a cancelled task gives task_cancelled, whether it waited, rested, or ran and failed") {
  stage on;
  std::optional<task_id> id;
  auto waiting = submit_future(on.tasks, "a", [] { return 1; });
  CHECK(on.tasks.cancel("a") == 1);
  CHECK_THROWS_AS(waiting.get(), turnkey::task_cancelled);

  auto resting = submit_future(on.tasks, "a", thrice, [&](attempt& a) -> int {
    id = a.id();
    throw std::runtime_error("again");
  });
  on.run();
  CHECK(on.tasks.cancel(*id));
  CHECK(said(resting) == name_of(*id) + " was cancelled");

  auto failing = submit_future(on.tasks, "a", [&](attempt& a) -> int {
    on.tasks.cancel(a.id());
    throw std::runtime_error("told to");
  });
  auto succeeding = submit_future(on.tasks, "a", [&](attempt& a) {
    on.tasks.cancel(a.id());
    return 6;
  });
  on.run();
  CHECK_THROWS_AS(failing.get(), turnkey::task_cancelled);
  CHECK(succeeding.get() == 6);
}

TEST_CASE("7.5, 10.3 an undone task gives task_undone when its record is dropped, not before") {
  stage on;
  auto future = submit_future(on.tasks, "a", [] { return 1; });
  task_id id{};
  {
    auto records = on.tasks.stop();
    id = records.begin()->id();
    CHECK(!ready(future));
  }
  REQUIRE(ready(future));
  CHECK(said(future) == name_of(id) + " was not done: its scheduler stopped before");
}

TEST_CASE("7.5, 10.4 the destructor leaves no future waiting") {
  std::future<int> waiting;
  std::future<int> deferred;
  completion kept;
  {
    stage on;
    deferred = submit_future(on.tasks, "b", [&](attempt& a) {
      kept = a.defer();
      return 1;
    });
    on.run();
    waiting = submit_future(on.tasks, "a", [] { return 1; });
  }
  CHECK_THROWS_AS(waiting.get(), turnkey::task_undone);
  CHECK_THROWS_AS(deferred.get(), turnkey::task_undone);
  CHECK(!kept.succeed());
}

TEST_CASE("7.5, 10.3 a record that is submitted again takes the future along") {
  stage second;
  std::future<std::string> future;
  {
    stage first;
    future = submit_future(first.tasks, "a", [] { return std::string("there"); });
    auto records = first.tasks.stop();
    for (auto& record : records) second.tasks.submit(std::move(record));
  }
  CHECK(!ready(future));
  second.run();
  CHECK(future.get() == "there");
}

TEST_CASE("7.5, 5.1 an evicted dead task has told its future before, and its record tells nothing") {
  std::optional<turnkey::task_record<std::string>> record;
  stage on({.max_dead = 1, .observer = [&](const turnkey::event<std::string>& e) {
              if (e.record != nullptr) record.emplace(std::move(*e.record));
            }});
  auto first = submit_future(on.tasks, [] { return outcome::dead("first"); });
  auto second = submit_future(on.tasks, [] { return outcome::dead("second"); });
  on.run();
  CHECK(said(first) == "first");
  CHECK(said(second) == "second");
  REQUIRE(record);
  on.tasks.submit(std::move(*record));
  on.run();
  CHECK(on.tasks.stats().died == 3);
}

TEST_CASE("7.5, 5.2 a dead task that is redriven runs again, and the future keeps what it got") {
  stage on;
  int runs = 0;
  auto future = submit_future(on.tasks, "a", [&] {
    if (++runs == 1) throw std::runtime_error("first life");
    return runs;
  });
  on.run();
  CHECK(ready(future));
  CHECK(on.tasks.redrive_all() == 1);
  on.run();
  CHECK(runs == 2);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(said(future) == "first life");
}

TEST_CASE("7.5, 7.1 a deferred attempt has a result when its completion says success") {
  stage on;
  completion kept;
  auto future = submit_future(on.tasks, "a", thrice, [&](attempt& a) {
    kept = a.defer();
    return a.number() * 10;
  });
  on.run();
  CHECK(!ready(future));
  CHECK(kept.fail("again"));
  on.pass(1s);
  CHECK(!ready(future));
  CHECK(kept.succeed());
  REQUIRE(ready(future));
  CHECK(future.get() == 20);

  auto early = submit_future(on.tasks, "a", [](attempt& a) {
    CHECK(a.defer().succeed());
    return 1;
  });
  auto thrown = submit_future(on.tasks, "a", [](attempt& a) -> int {
    CHECK(a.defer().succeed());
    throw std::runtime_error("no result");
  });
  on.run();
  CHECK(early.get() == 1);
  CHECK(said(thrown) == "no result");
  CHECK(on.tasks.stats().died == 0);
}

TEST_CASE("7.5, 7.1 what an earlier attempt returned is no result of one that throws after its success") {
  stage on;
  auto future = submit_future(on.tasks, "a", thrice, [](attempt& a) {
    if (a.number() == 1) return outcome::retry();
    CHECK(a.defer().succeed());
    throw std::runtime_error("too late");
  });
  on.pass(1h);
  REQUIRE(ready(future));
  CHECK_THROWS_WITH_AS(future.get(), "too late", std::runtime_error);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("7.5 a refusal is thrown, and there is no future") {
  stage on;
  const std::function<int()> empty;
  void (*const null)() = nullptr;
  const auto reason_of = [](auto submit) -> std::optional<reject_reason> {
    try {
      submit();
      return {};
    } catch (const turnkey::rejected& e) {
      return e.reason();
    }
  };
  CHECK(reason_of([&] { submit_future(on.tasks, empty); }) == reject_reason::empty_callback);
  CHECK(reason_of([&] { submit_future(on.tasks, "a", null); }) == reject_reason::empty_callback);
  CHECK(reason_of([&] { submit_future(on.tasks, {.policy = policy::ordered}, [] {}); }) == reject_reason::needs_key);
  on.tasks.close();
  CHECK(reason_of([&] { submit_future(on.tasks, "a", [] {}); }) == reject_reason::closed);
  CHECK(on.tasks.stats().submitted == 0);
}

TEST_CASE("7.5 when the future is ready the callback is destroyed, and drain() leaves none that is not") {
  stage on;
  auto witness = std::make_shared<int>();
  auto done = submit_future(on.tasks, [witness] { return witness.use_count(); });
  auto cancelled = submit_future(on.tasks, "a", [witness] {});
  CHECK(on.tasks.cancel("a") == 1);
  CHECK(witness.use_count() == 2);
  on.run();
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.drain() == drain_result::drained);
  CHECK(ready(done));
  CHECK(ready(cancelled));
}

TEST_CASE("7.5 what the callback captured is gone before the future is told, not after") {
  struct looks {
    explicit looks(std::shared_ptr<std::vector<std::int64_t>> w) : owners(std::move(w)) {}
    looks(looks&& other) noexcept : owners(std::move(other.owners)) { owners->push_back(owners.use_count()); }
    std::shared_ptr<std::vector<std::int64_t>> owners;
  };
  for (const bool deferred : {false, true}) {
    CAPTURE(deferred);
    stage on;
    auto owners = std::make_shared<std::vector<std::int64_t>>();
    auto future = submit_future(on.tasks, [owners, deferred](attempt& a) {
      if (deferred) CHECK(a.defer().succeed());
      return looks(owners);
    });
    on.run();
    static_cast<void>(future.get());
    REQUIRE(owners->size() >= 3);
    CHECK(owners->at(0) == 3);  // kept for the future: the result, the callback, and this one
    CHECK(owners->at(1) == 2);  // told
  }
}

TEST_CASE("7.5 a result whose move throws gives that exception, and the task has succeeded") {
  struct heavy {
    explicit heavy(int left) : moves_left(left) {}
    heavy(heavy&& other) : moves_left(other.moves_left - 1) {
      if (moves_left < 0) throw std::runtime_error("too heavy");
    }
    int moves_left;
  };
  stage on;
  auto future = submit_future(on.tasks, [] { return heavy(1); });
  on.run();
  try {
    future.get();
    CHECK(false);
  } catch (const std::runtime_error& e) {
    CHECK(std::string(e.what()) == "too heavy");
  }
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("7.5 the results of many tasks come from a pool of threads") {
  turnkey::thread_pool pool{2};
  turnkey::scheduler<int> s{pool, {.default_policy = policy::ordered}};
  std::vector<std::future<int>> futures;
  int plain = 0;
  for (int i = 0; i != 100; ++i) futures.push_back(submit_future(s, 1, [&plain] { return ++plain; }));
  for (int i = 0; i != 100; ++i) CHECK(futures[static_cast<std::size_t>(i)].get() == i + 1);
}
