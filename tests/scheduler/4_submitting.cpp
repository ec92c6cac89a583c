#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <support/lock_probe.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <latch>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::duration;
using turnkey::event;
using turnkey::event_kind;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::rejected;
using turnkey::retry_policy;
using turnkey::scheduler;
using turnkey::submit_result;
using turnkey::task_id;
using turnkey::task_options;
using turnkey::work;
using turnkey::testing::manual_executor;
using turnkey::testing::manual_time;
using namespace std::chrono_literals;

namespace {

// A callback whose move does something, and throws then.
struct not_movable_after_all {
  explicit not_movable_after_all(std::function<void()> before = [] {}) : on_move(std::move(before)) {}
  not_movable_after_all(not_movable_after_all&& other) : on_move(other.on_move) {
    on_move();
    throw 1;
  }
  void operator()() const {}
  std::function<void()> on_move;
};

// A key that tells when one of its kind is destroyed.
struct loud_key {
  loud_key(int value, std::function<void()>& told) : number(value), on_end(&told) {}
  loud_key(const loud_key&) = default;
  loud_key& operator=(const loud_key&) = delete;
  ~loud_key() {
    if (*on_end) (*on_end)();
  }
  bool operator==(const loud_key& other) const { return number == other.number; }
  int number;
  std::function<void()>* on_end;
};
struct loud_hash {
  std::size_t operator()(const loud_key& key) const { return static_cast<std::size_t>(key.number); }
};

// A callback that can only be moved, and knows when that happened.
struct only_moved {
  explicit only_moved(int value) : owned(std::make_unique<int>(value)) {}
  void operator()() const { ++*owned; }
  std::unique_ptr<int> owned;
};

// The same, but empty as a function wrapper is.
struct only_moved_but_empty : only_moved {
  using only_moved::only_moved;
  friend bool operator==(const only_moved_but_empty&, std::nullptr_t) { return true; }
};

// What a refused submit says.
template <class Submit>
rejected refusal_of(Submit submit) {
  try {
    submit();
  } catch (const rejected& e) {
    return e;
  }
  FAIL("it was not refused");
  return {reject_reason::closed, ""};
}

bool says(const rejected& refusal, const std::string& words) {
  return std::string(refusal.what()).find(words) != std::string::npos;
}

const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};

}  // namespace

// A failed submit gave its place back and told nobody.
TEST_CASE("4.1 submit_for is woken by the room that a failed submit leaves") {
  stage on({.max_pending = 1});
  std::thread waiting;
  auto waited = 0ns;
  const not_movable_after_all callback([&] {
    waiting = std::thread([&] {
      const auto begin = std::chrono::steady_clock::now();
      static_cast<void>(on.tasks.submit_for(60s, "b", [] {}));
      waited = std::chrono::steady_clock::now() - begin;
    });
    for (const auto end = std::chrono::steady_clock::now() + 200ms; std::chrono::steady_clock::now() < end;)
      std::this_thread::yield();  // time for the other to find no room; the result does not hang on it
  });
  CHECK_THROWS_AS(on.tasks.submit("a", not_movable_after_all(callback.on_move)), int);
  waiting.join();
  CHECK(waited < 60s);
  CHECK(on.tasks.stats().submitted == 1);
}

// The key had been moved into its entry already, and was destroyed with it.
TEST_CASE("4.4 an rvalue key stays with its caller when moving the callback throws") {
  stage on;
  std::string key(100, 'x');
  CHECK_THROWS_AS(on.tasks.submit(std::move(key), not_movable_after_all()), int);
  CHECK(key == std::string(100, 'x'));
  CHECK(on.tasks.stats().keys == 0);
}

// The copy that is made of a key outside the lock was destroyed inside it.
TEST_CASE("4.5 keys are not destroyed under a lock") {
  lock_probe probe;
  manual_executor pool;
  scheduler<loud_key, loud_hash> tasks(pool);
  std::function<void()> on_end;
  const loud_key key{1, on_end};
  on_end = [&] { probe.ask([&tasks] { static_cast<void>(tasks.stats()); }); };
  tasks.submit(key, [] {});
  pool.run_all();
  on_end = nullptr;
  CHECK(probe.asked() > 0);
  CHECK(probe.blocked() == 0);
}

// ---- 4.1: the three ways to submit

TEST_CASE("4.1 submit returns the id that the attempt sees, with and without a key and options") {
  stage on;
  std::vector<task_id> ran;
  const auto note = [&ran](attempt& a) { ran.push_back(a.id()); };
  const std::string key = "a";
  std::vector<task_id> ids;
  ids.push_back(on.tasks.submit(key, note));
  ids.push_back(on.tasks.submit("a", note));
  ids.push_back(on.tasks.submit(key, ordered, note));
  ids.push_back(on.tasks.submit("a", ordered, note));
  on.run();
  ids.push_back(on.tasks.submit(note));
  ids.push_back(on.tasks.submit(task_options{}, note));
  on.run();
  CHECK(ran == ids);
}

TEST_CASE("4.1 try_submit returns the id that the attempt sees, with and without a key and options") {
  stage on;
  std::vector<task_id> ran;
  const auto note = [&ran](attempt& a) { ran.push_back(a.id()); };
  const std::string key = "a";
  std::vector<task_id> ids;
  ids.push_back(on.tasks.try_submit(key, note).value());
  ids.push_back(on.tasks.try_submit("a", note).value());
  ids.push_back(on.tasks.try_submit(key, ordered, note).value());
  ids.push_back(*on.tasks.try_submit("a", ordered, note));
  on.run();
  ids.push_back(on.tasks.try_submit(note).value());
  ids.push_back(on.tasks.try_submit(task_options{}, note).value());
  on.run();
  CHECK(ran == ids);
}

TEST_CASE("4.1 submit_for returns the id that the attempt sees, with and without a key and options") {
  stage on;
  std::vector<task_id> ran;
  const auto note = [&ran](attempt& a) { ran.push_back(a.id()); };
  const std::string key = "a";
  std::vector<task_id> ids;
  ids.push_back(on.tasks.submit_for(1h, key, note).value());
  ids.push_back(on.tasks.submit_for(1h, "a", note).value());
  ids.push_back(on.tasks.submit_for(1h, key, ordered, note).value());
  ids.push_back(on.tasks.submit_for(1h, "a", ordered, note).value());
  on.run();
  ids.push_back(on.tasks.submit_for(1h, note).value());
  ids.push_back(on.tasks.submit_for(1h, task_options{}, note).value());
  on.run();
  CHECK(ran == ids);
}

TEST_CASE("4.1, 4.2 a refused callback is left unmoved with its caller, whatever the reason") {
  stage on({.max_pending = 2, .max_pending_per_key = 1});
  on.tasks.submit("taken", [] {});
  only_moved callback(1);
  only_moved_but_empty empty(1);
  const task_options senseless{.retry = retry_policy{.max_attempts = 0}};
  CHECK(on.tasks.try_submit("taken", std::move(callback)).reason() == reject_reason::key_full);
  CHECK(on.tasks.submit_for(1ms, "taken", std::move(callback)).reason() == reject_reason::key_full);
  CHECK(on.tasks.try_submit(exclusive, std::move(callback)).reason() == reject_reason::needs_key);
  CHECK(on.tasks.try_submit("a", senseless, std::move(callback)).reason() == reject_reason::invalid_options);
  CHECK(on.tasks.try_submit("a", std::move(empty)).reason() == reject_reason::empty_callback);
  on.tasks.submit("b", [] {});
  CHECK(on.tasks.try_submit("c", std::move(callback)).reason() == reject_reason::full);
  CHECK(on.tasks.submit_for(1ms, "c", std::move(callback)).reason() == reject_reason::full);
  CHECK_THROWS_AS(on.tasks.submit("c", std::move(callback)), rejected);
  on.run();
  on.tasks.close();
  CHECK(on.tasks.try_submit("c", std::move(callback)).reason() == reject_reason::closed);
  CHECK(on.tasks.submit_for(1h, "c", std::move(callback)).reason() == reject_reason::closed);
  CHECK(callback.owned != nullptr);
  CHECK(empty.owned != nullptr);
  CHECK(on.tasks.stats().rejected == 10);
}

TEST_CASE("4.1 a refused key stays with its caller too") {
  stage on({.max_pending = 1});
  on.tasks.submit("a", [] {});
  std::string key(100, 'x');
  CHECK(!on.tasks.try_submit(std::move(key), [] {}));
  CHECK(!on.tasks.submit_for(1ms, std::move(key), [] {}));
  CHECK_THROWS_AS(on.tasks.submit(std::move(key), [] {}), rejected);
  CHECK(key == std::string(100, 'x'));
}

TEST_CASE("4.1 an accepted rvalue is moved in, an lvalue is copied") {
  stage on;
  only_moved callback(1);
  on.tasks.submit("a", std::move(callback));
  CHECK(callback.owned == nullptr);
  const auto witness = std::make_shared<int>();
  const auto copied = [witness] {};
  on.tasks.submit("a", copied);
  CHECK(witness.use_count() == 3);
}

TEST_CASE("4.1 submit_for gives up when its time is over, in real time") {
  stage on({.max_pending = 1});
  on.tasks.submit("a", [] {});
  const auto begin = std::chrono::steady_clock::now();
  CHECK(on.tasks.submit_for(20ms, "b", [] {}).reason() == reject_reason::full);
  CHECK(std::chrono::steady_clock::now() - begin >= 20ms);
  CHECK(on.time.now() == manual_time::start);
}

TEST_CASE("4.1 submit_for waits until a task of its key or of all is finished") {
  for (const bool of_key : {false, true}) {
    stage on(of_key ? turnkey::options<std::string>{.max_pending_per_key = 1}
                    : turnkey::options<std::string>{.max_pending = 1});
    on.tasks.submit("a", [] {});
    submit_result result = reject_reason::closed;
    std::atomic<bool> over = false;
    std::thread waiting([&] {
      result = on.tasks.submit_for(60s, "a", [] {});
      over = true;
    });
    give_time();
    CHECK(!over);
    on.run();
    waiting.join();
    CHECK(result.has_value());
    CHECK(on.tasks.stats().submitted == 2);
  }
}

TEST_CASE("4.1 submit_for is woken by a death and by a cancel") {
  for (const bool dies : {false, true}) {
    stage on({.max_pending = 1});
    const task_id first = on.tasks.submit("a", [] { throw 1; });
    submit_result result = reject_reason::closed;
    std::thread waiting([&] { result = on.tasks.submit_for(60s, "a", [] {}); });
    give_time();
    if (dies) {
      on.run();
    } else {
      on.tasks.cancel(first);
    }
    waiting.join();
    CHECK(result.has_value());
  }
}

// After close() there was still no room, and a submit asked for room first: it was `full` until the time was over.
TEST_CASE("4.1 close and stop wake a submit_for that waits") {
  for (const bool stops : {false, true}) {
    stage on({.max_pending = 1});
    on.tasks.submit("a", [] {});
    submit_result result{task_id{}};
    std::thread waiting([&] { result = on.tasks.submit_for(60s, "b", [] {}); });
    give_time();
    if (stops) {
      static_cast<void>(on.tasks.stop());
    } else {
      on.tasks.close();
    }
    waiting.join();
    CHECK(result.reason() == reject_reason::closed);
  }
}

TEST_CASE("4.1, 10 submit_for does not wait inside a callback or an observer") {
  std::vector<std::optional<reject_reason>> reasons;
  scheduler<std::string>* tasks = nullptr;
  stage on({.max_pending = 1, .observer = [&](const event<std::string>& e) {
              if (e.kind == event_kind::submitted) reasons.push_back(tasks->submit_for(1h, "b", [] {}).reason());
            }});
  tasks = &on.tasks;
  on.tasks.submit("a", [&] { reasons.push_back(on.tasks.submit_for(1h, "b", [] {}).reason()); });
  on.run();
  CHECK(reasons == std::vector<std::optional<reject_reason>>{reject_reason::full, reject_reason::full});
}

TEST_CASE("4.1 endless and negative timeouts of submit_for are what they say") {
  stage on({.max_pending = 1});
  CHECK(on.tasks.submit_for((duration::max)(), "a", [] {}));
  CHECK(on.tasks.submit_for((duration::min)(), "a", [] {}).reason() == reject_reason::full);
}

// ---- 4.2: reasons

TEST_CASE("4.2 full: max_pending counts unfinished tasks over all keys, in whatever state") {
  stage on({.max_pending = 4});
  std::optional<reject_reason> inside;
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 1s}, [] {});
  on.tasks.submit("a", ordered, [] {});
  on.tasks.submit([] {});
  on.tasks.submit("b", [&] { inside = on.tasks.try_submit("c", [] {}).reason(); });
  CHECK(on.tasks.try_submit("c", [] {}).reason() == reject_reason::full);
  CHECK(on.tasks.try_submit([] {}).reason() == reject_reason::full);
  on.run();
  CHECK(!inside);  // the one before it had finished
  CHECK(on.tasks.stats().unfinished() == 2);
}

TEST_CASE("4.2 a running task counts for max_pending, and one between two attempts") {
  stage on({.retry = retry_policy{}, .max_pending = 1});
  std::optional<reject_reason> inside;
  on.tasks.submit("a", [&] {
    inside = on.tasks.try_submit("b", [] {}).reason();
    return outcome::retry();
  });
  on.run();
  CHECK(inside == reject_reason::full);
  CHECK(on.tasks.try_submit("b", [] {}).reason() == reject_reason::full);
}

TEST_CASE("4.2 every final state makes room") {
  stage on({.max_pending = 1, .max_pending_per_key = 1});
  on.tasks.submit("a", [] {});
  on.run();
  on.tasks.submit("a", [] { throw 1; });
  on.run();
  on.tasks.cancel(on.tasks.submit("a", [] {}));
  on.tasks.cancel(on.tasks.submit("a", {.delay = 1h}, [] {}));
  CHECK(on.tasks.try_submit("a", [] {}));
  CHECK(!on.tasks.try_submit("a", [] {}));
}

TEST_CASE("4.2 key_full: max_pending_per_key counts those of one key, and none without a key") {
  stage on({.max_pending_per_key = 2});
  for (int i = 0; i != 3; ++i) on.tasks.submit([] {});
  on.tasks.submit("a", [] {});
  on.tasks.submit("a", {.delay = 1h}, [] {});
  CHECK(on.tasks.try_submit("a", [] {}).reason() == reject_reason::key_full);
  CHECK(on.tasks.try_submit("b", [] {}));
}

TEST_CASE("4.2 closed: after close and after stop") {
  stage on;
  on.tasks.close();
  CHECK(on.tasks.try_submit("a", [] {}).reason() == reject_reason::closed);
  CHECK(on.tasks.try_submit([] {}).reason() == reject_reason::closed);
  static_cast<void>(on.tasks.stop());
  CHECK(on.tasks.try_submit("a", [] {}).reason() == reject_reason::closed);
}

TEST_CASE("4.2 needs_key: exclusive or ordered asked for without a key") {
  stage on;
  CHECK(on.tasks.try_submit(exclusive, [] {}).reason() == reject_reason::needs_key);
  CHECK(on.tasks.try_submit(ordered, [] {}).reason() == reject_reason::needs_key);
  CHECK(on.tasks.try_submit({.policy = policy::parallel}, [] {}));
}

TEST_CASE("4.2 invalid_options: each task option without sense") {
  stage on;
  const auto nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<task_options> senseless{
      {.policy = static_cast<policy>(3)},
      {.retry = retry_policy{.max_attempts = 0}},
      {.retry = retry_policy{.initial_delay = -1ns}},
      {.retry = retry_policy{.multiplier = 0.5}},
      {.retry = retry_policy{.multiplier = nan}},
      {.retry = retry_policy{.max_delay = -1ns}},
      {.retry = retry_policy{.jitter = -0.1}},
      {.retry = retry_policy{.jitter = 1.1}},
      {.retry = retry_policy{.jitter = nan}},
  };
  for (const task_options& options : senseless)
    CHECK(on.tasks.try_submit("a", options, [] {}).reason() == reject_reason::invalid_options);
  CHECK(on.tasks.stats().keys == 0);
}

TEST_CASE("4.2 empty_callback: null function pointers and empty function wrappers") {
  stage on;
  void (*const pointer)() = nullptr;
  CHECK(on.tasks.try_submit("a", pointer).reason() == reject_reason::empty_callback);
  CHECK(on.tasks.try_submit("a", std::function<void()>()).reason() == reject_reason::empty_callback);
  CHECK(on.tasks.try_submit(std::function<outcome(attempt&)>()).reason() == reject_reason::empty_callback);
  CHECK(on.tasks.try_submit("a", std::function<void()>([] {})));
}

TEST_CASE("4.2 what submit throws names the reason, the option and its value") {
  stage on({.max_pending = 17, .max_pending_per_key = 3});
  for (int i = 0; i != 3; ++i) on.tasks.submit("a", [] {});
  const rejected key_full = refusal_of([&] { on.tasks.submit("a", [] {}); });
  CHECK(key_full.reason() == reject_reason::key_full);
  CHECK(says(key_full, "max_pending_per_key = 3"));
  for (int i = 3; i != 17; ++i) on.tasks.submit([] {});
  const rejected full = refusal_of([&] { on.tasks.submit("b", [] {}); });
  CHECK(full.reason() == reject_reason::full);
  CHECK(says(full, "max_pending = 17"));
  const rejected no_key = refusal_of([&] { on.tasks.submit(exclusive, [] {}); });
  CHECK(no_key.reason() == reject_reason::needs_key);
  CHECK(says(no_key, "policy is exclusive"));
  const rejected invalid = refusal_of([&] { on.tasks.submit("a", {.retry = retry_policy{.jitter = 1.5}}, [] {}); });
  CHECK(invalid.reason() == reject_reason::invalid_options);
  CHECK(says(invalid, "retry.jitter is 1.5"));
  CHECK(refusal_of([&] { on.tasks.submit("a", std::function<void()>()); }).reason() == reject_reason::empty_callback);
  on.run();
  on.tasks.close();
  const rejected closed = refusal_of([&] { on.tasks.submit("a", [] {}); });
  CHECK(closed.reason() == reject_reason::closed);
  CHECK(says(closed, "close()"));
}

// ---- 4.3: what a callback may be

TEST_CASE("4.3 a callback that can only be moved runs, and its state with it") {
  stage on;
  int seen = 0;
  on.tasks.submit("a", [&seen, owned = std::make_unique<int>(7)] { seen = *owned; });
  on.run();
  CHECK(seen == 7);
}

TEST_CASE("4.3 callbacks of any size run whole") {
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s}});
  int right = 0;
  const auto run = [&]<std::size_t Size>(std::array<unsigned char, Size> bytes) {
    bytes.fill(0x5a);
    on.tasks.submit("a", [&right, bytes](attempt& a) {
      for (const unsigned char b : bytes)
        if (b != 0x5a) return outcome::dead();
      ++right;
      return a.number() == 1 ? outcome::retry() : outcome::success();
    });
  };
  run(std::array<unsigned char, 1>());
  run(std::array<unsigned char, 8>());
  run(std::array<unsigned char, 39>());
  run(std::array<unsigned char, 40>());
  run(std::array<unsigned char, 41>());
  run(std::array<unsigned char, 200>());
  run(std::array<unsigned char, 5000>());
  on.run();
  CHECK(right == 14);
}

// Plain bytes are taken in under the lock where no clock of the user's is asked: on another way than in manual time.
TEST_CASE("4.3, 7.7 large callbacks of plain bytes run whole, in a scheduler with a clock of its own too") {
  manual_executor pool;
  scheduler<std::string> tasks(pool);
  int right = 0;
  for (unsigned char i = 0; i != 10; ++i) {
    std::array<unsigned char, 5000> bytes{};
    bytes.fill(i);
    const auto callback = [&right, bytes, i] {
      for (const unsigned char b : bytes)
        if (b != i) return;
      ++right;
    };
    static_assert(std::is_trivially_copyable_v<decltype(callback)>);
    tasks.submit("a", callback);
    tasks.submit(turnkey::keys{"a", "b"}, {.policy = policy::exclusive}, callback);
  }
  pool.run_all();
  CHECK(right == 20);
}

TEST_CASE("4.3 over-aligned callbacks stand where they must") {
  struct alignas(128) wide {
    std::array<std::uint64_t, 16> numbers{};
    bool* aligned;
    void operator()() const { *aligned = reinterpret_cast<std::uintptr_t>(this) % 128 == 0; }
  };
  stage on;
  std::array<bool, 20> aligned{};
  for (bool& a : aligned) on.tasks.submit("a", {.retry = retry_policy{}}, wide{.aligned = &a});
  on.run();
  for (const bool a : aligned) CHECK(a);
}

// ---- 4.4: a submit that throws

namespace {

// A key, its hash and its comparison; each throws when told.
struct faulty {
  enum what : std::uint8_t { nothing, hash, compare, copy };
  struct key {
    key(int n, what& when) : number(n), fails(&when) {}
    key(const key& other) : number(other.number), fails(other.fails) {
      if (*fails == copy) throw copy;
    }
    key(key&& other) : key(static_cast<const key&>(other)) {}
    key& operator=(const key&) = delete;
    ~key() = default;
    bool operator==(const key& other) const {
      if (*fails == compare) throw compare;
      return number == other.number;
    }
    int number;
    what* fails;
  };
  struct hashing {
    std::size_t operator()(const key& k) const {
      if (*k.fails == hash) throw hash;
      return 1;
    }
  };
};

}  // namespace

TEST_CASE("4.4 when hashing, comparing or moving a key throws in submit, nothing has changed") {
  for (const faulty::what fails : {faulty::hash, faulty::compare, faulty::copy}) {
    for (const bool rvalue : {false, true}) {
      int events = 0;
      manual_executor pool;
      scheduler<faulty::key, faulty::hashing> tasks(
          pool, {.max_pending = 2, .max_pending_per_key = 1, .observer = [&](const auto&) { ++events; }});
      faulty::what now = faulty::nothing;
      tasks.submit(faulty::key{1, now}, [] {});  // to be compared with: all hashes are equal
      faulty::key key{2, now};
      only_moved callback(1);
      now = fails;
      for (int i = 0; i != 3; ++i) {
        if (rvalue) {
          CHECK_THROWS_AS(tasks.submit(std::move(key), std::move(callback)), faulty::what);
        } else {
          CHECK_THROWS_AS(tasks.submit(key, std::move(callback)), faulty::what);
        }
      }
      now = faulty::nothing;
      CHECK(callback.owned != nullptr);
      CHECK(events == 1);
      CHECK(tasks.stats().submitted == 1);
      CHECK(tasks.stats().keys == 1);
      CHECK(tasks.stats().rejected == 0);
      CHECK(tasks.try_submit(key, std::move(callback)));  // its places had been given back
      pool.run_all();
      CHECK(tasks.stats().succeeded == 2);
    }
  }
}

TEST_CASE("4.4 when moving the callback throws in submit, nothing has changed") {
  int events = 0;
  stage on({.max_pending = 1, .max_pending_per_key = 1, .observer = [&](const auto&) { ++events; }});
  for (int i = 0; i != 3; ++i) {
    CHECK_THROWS_AS(on.tasks.submit("a", not_movable_after_all()), int);
    CHECK_THROWS_AS(static_cast<void>(on.tasks.try_submit(not_movable_after_all())), int);
  }
  CHECK(events == 0);
  CHECK(on.tasks.stats().submitted == 0);
  CHECK(on.tasks.stats().keys == 0);
  CHECK(on.pool.offered() == 0);
  CHECK(on.tasks.try_submit("a", [] {}));
  on.run();
  CHECK(on.tasks.drain() == turnkey::drain_result::drained);
}

// ---- 4.5: from anywhere, and no lock around the user's code

TEST_CASE("4.5 a callback may submit, cancel and look") {
  stage on({.max_dead = 1});
  int ran = 0;
  const task_id other = on.tasks.submit("b", {.delay = 1h}, [] {});
  on.tasks.submit("a", ordered, [&] {
    on.tasks.submit("a", ordered, [&ran] { ++ran; });  // its own key
    on.tasks.submit([&ran] { ++ran; });
    CHECK(on.tasks.cancel(other));
    CHECK(on.tasks.stats().running == 1);
    CHECK(on.tasks.dead_tasks().empty());
    CHECK(on.tasks.held_keys().empty());
  });
  on.run();
  CHECK(ran == 2);
}

TEST_CASE("4.5 any thread may submit, cancel and look at once") {
  stage on;
  std::latch start{4};
  std::vector<std::thread> threads;
  for (int i = 0; i != 4; ++i)
    threads.emplace_back([&on, &start, key = std::to_string(i % 2)] {
      start.arrive_and_wait();
      for (int n = 0; n != 200; ++n) {
        const task_id id = on.tasks.submit(key, ordered, [] {});
        if (n % 2 == 0) on.tasks.cancel(id);
        static_cast<void>(on.tasks.stats());
      }
    });
  for (std::thread& t : threads) t.join();
  on.run();
  CHECK(on.tasks.stats().submitted == 800);
  CHECK(on.tasks.stats().cancelled == 400);
  CHECK(on.tasks.stats().succeeded == 400);
}

namespace {

// Takes every lock that a scheduler has, one after the other.
template <class Key, class Hash>
void take_all_locks(scheduler<Key, Hash>& tasks) {
  static_cast<void>(tasks.stats());
  static_cast<void>(tasks.dead_tasks());
  static_cast<void>(tasks.drain_for(0s));
}

// Calls back when it is destroyed, unless it was moved from.
struct last_will {
  explicit last_will(std::function<void()> f) : will(std::move(f)) {}
  last_will(last_will&& other) noexcept : will(std::exchange(other.will, nullptr)) {}
  last_will& operator=(last_will&&) = delete;
  ~last_will() {
    if (will) will();
  }
  void operator()() const {}
  std::function<void()> will;
};

}  // namespace

TEST_CASE("4.5 no lock is held where a callback runs, moves and ends") {
  lock_probe probe;
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s}});
  const auto ask = [&] { probe.ask([&on] { take_all_locks(on.tasks); }); };
  on.tasks.submit("a", [&](attempt& a) {
    ask();
    return a.number() == 1 ? outcome::retry() : outcome::success();
  });
  on.tasks.submit("a", last_will(ask));
  on.run();
  CHECK(probe.asked() == 3);
  on.tasks.cancel(on.tasks.submit("a", last_will(ask)));
  on.tasks.submit("a", [will = last_will(ask)] { return outcome::dead(); });
  on.run();
  on.tasks.discard_all();
  on.tasks.submit("a", last_will(ask));
  { const auto left = on.tasks.stop(); }
  CHECK(probe.asked() == 6);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("4.5 no lock is held where an observer runs") {
  lock_probe probe;
  scheduler<std::string>* tasks = nullptr;
  stage on({.retry = retry_policy{.max_attempts = 2, .initial_delay = 0s},
            .max_dead = 1,
            .observer = [&](const event<std::string>&) { probe.ask([&] { take_all_locks(*tasks); }); }});
  tasks = &on.tasks;
  on.tasks.submit("a", [] { throw 1; });                 // submitted, twice started, failed, dead
  on.tasks.submit("b", [] { return outcome::dead(); });  // submitted, started, dead, evicted
  on.run();
  on.tasks.redrive_all();  // redriven
  on.run();                // started, dead
  on.tasks.discard_all();  // discarded
  on.tasks.submit("c", [n = 0]() mutable { return ++n == 1 ? outcome::postpone(0s) : outcome::success(); });
  on.run();  // submitted, 2 started, postponed, succeeded
  on.pool.set_mode(turnkey::testing::on_offer::refuse);
  on.tasks.submit("d", [] {});  // submitted, refused
  on.tasks.cancel_all();        // cancelled
  CHECK(probe.asked() == 21);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("4.5 no lock is held where a key is hashed and copied") {
  struct asking_hash {
    std::size_t operator()(const std::string& s) const {
      if (*ask) (*ask)();
      return std::hash<std::string>()(s);
    }
    std::function<void()>* ask;
  };
  lock_probe probe;
  std::function<void()> ask;
  manual_executor pool;
  scheduler<std::string, asking_hash> tasks(pool, {}, asking_hash{&ask});
  ask = [&] { probe.ask([&tasks] { static_cast<void>(tasks.stats()); }); };
  tasks.submit("a", [] { throw 1; });
  tasks.cancel("b");
  pool.run_all();
  tasks.redrive("a");
  tasks.discard("a");
  tasks.release("a");
  CHECK(probe.asked() == 5);
  CHECK(probe.blocked() == 0);
  ask = nullptr;
}

TEST_CASE("4.5 no lock is held where the executor is called and destroyed") {
  struct asking {
    explicit asking(std::function<void()>& f) : ask(&f) {}
    asking(asking&& other) noexcept : ask(std::exchange(other.ask, nullptr)) {}
    asking& operator=(asking&&) = delete;
    ~asking() {
      if (ask != nullptr && *ask) (*ask)();
    }
    void operator()(const work& permit) const {
      (*ask)();
      permit();
      (*ask)();
    }
    std::function<void()>* ask;
  };
  lock_probe probe;
  std::function<void()> ask;
  scheduler<std::string> tasks(asking{ask});
  ask = [&] { probe.ask([&tasks] { take_all_locks(tasks); }); };
  tasks.submit("a", [] {});
  CHECK(probe.asked() == 2);
  static_cast<void>(tasks.stop());
  CHECK(probe.asked() == 3);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("4.5 no lock is held where an error is destroyed") {
  struct error {
    explicit error(std::function<void()> f) : will(std::make_shared<last_will>(std::move(f))) {}
    std::shared_ptr<last_will> will;
  };
  lock_probe probe;
  stage on;
  const auto ask = [&] { probe.ask([&on] { take_all_locks(on.tasks); }); };
  int runs = 0;
  on.tasks.submit("a", [&] {
    if (++runs < 3) throw error(ask);
  });
  on.run();
  on.tasks.redrive_all();
  on.run();  // the first error ends
  CHECK(probe.asked() == 1);
  on.tasks.discard_all();
  CHECK(probe.asked() == 2);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("4.5, 6.5 no lock is held where a stop callback runs") {
  lock_probe probe;
  stage on;
  std::thread::id ran_on;
  on.tasks.submit("a", [&](attempt& a) {
    const std::stop_callback told(a.stop_token(), [&] {
      ran_on = std::this_thread::get_id();
      probe.ask([&on] { take_all_locks(on.tasks); });
    });
    std::thread([&, id = a.id()] {
      CHECK(on.tasks.cancel(id));
      CHECK(ran_on == std::this_thread::get_id());
    }).join();
  });
  on.run();
  CHECK(probe.asked() == 1);
  CHECK(probe.blocked() == 0);
}

TEST_CASE("4.5 what a destructor of a callback submits is accepted") {
  stage on;
  int ran = 0;
  on.tasks.submit("a", ordered, last_will([&] { on.tasks.submit("a", ordered, [&ran] { ++ran; }); }));
  on.run();
  CHECK(ran == 1);
}
