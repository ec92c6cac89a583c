#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <map>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::drain_result;
using turnkey::event;
using turnkey::event_kind;
using turnkey::inline_executor;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::retry_policy;
using turnkey::scheduler;
using turnkey::task_id;
using turnkey::task_options;
using turnkey::task_record;
using turnkey::task_state;
using turnkey::wake;
using turnkey::work;
using turnkey::testing::manual_executor;
using turnkey::testing::manual_time;
using turnkey::testing::on_offer;
using namespace std::chrono_literals;

namespace {

const task_options exclusive{.policy = policy::exclusive};
const task_options ordered{.policy = policy::ordered};

struct slow_to_die {
  slow_to_die(std::latch& l, std::atomic<bool>& flag) : begun(&l), dead(&flag) {}
  slow_to_die(slow_to_die&& other) noexcept : begun(other.begun), dead(std::exchange(other.dead, nullptr)) {}
  slow_to_die& operator=(slow_to_die&&) = delete;
  ~slow_to_die() {
    if (dead == nullptr) return;
    begun->count_down();
    give_time();
    *dead = true;
  }
  void operator()() const {}
  std::latch* begun;
  std::atomic<bool>* dead;
};

}  // namespace

// The list was made task by task, and each was asked for its state when those before it had left already.
TEST_CASE("10.3 a record tells the state in which stop found its task") {
  stage on;
  const task_id first = on.tasks.submit("a", {.policy = policy::ordered}, [] {});
  const task_id second = on.tasks.submit("a", {.policy = policy::ordered}, [] {});
  const task_id third = on.tasks.submit("a", {.policy = policy::exclusive}, [] {});
  std::map<task_id, task_state> states;
  const auto left = on.tasks.stop();
  for (const auto& record : left) states[record.id()] = record.state();
  CHECK(states[first] == task_state::ready);
  CHECK(states[second] == task_state::waiting);
  CHECK(states[third] == task_state::waiting);
}

// The first stop, inside, waits for nobody and said at once that all had stopped.
TEST_CASE("10.3 a second stop waits for the callback that called the first") {
  stage on;
  std::latch stopped{1};
  std::latch asking{1};
  std::atomic<bool> over = false;
  on.tasks.submit("a", [&] {
    static_cast<void>(on.tasks.stop());
    stopped.count_down();
    asking.wait();
    for (const auto end = std::chrono::steady_clock::now() + 50ms; std::chrono::steady_clock::now() < end;)
      std::this_thread::yield();  // gives a stop that does not wait the time to show it
    over = true;
  });
  std::thread worker([&on] { on.run(); });
  stopped.wait();
  asking.count_down();
  const bool empty = on.tasks.stop().empty();
  const bool waited = over;
  worker.join();
  CHECK(empty);
  CHECK(waited);
}

// The permit died, with the last reference to the engine, before the submit was through with the engine.
TEST_CASE("10.4 a callback that runs inside submit may destroy its scheduler") {
  auto tasks = std::make_unique<scheduler<std::string>>(inline_executor{});
  tasks->submit("a", [&tasks] { tasks.reset(); });
  CHECK(tasks == nullptr);
}

TEST_CASE("10.4 a callback that runs inside cancel may destroy its scheduler") {
  manual_executor pool;
  auto tasks = std::make_unique<scheduler<std::string>>(pool);
  const task_id first = tasks->submit("a", {.policy = policy::ordered, .delay = 1h}, [] {});
  tasks->submit("a", {.policy = policy::ordered}, [&tasks] { tasks.reset(); });
  pool.set_mode(turnkey::testing::on_offer::run);
  CHECK(tasks->cancel(first));
  CHECK(tasks == nullptr);
}

TEST_CASE("10.4 a callback that runs inside a wake may destroy its scheduler") {
  manual_time time;
  auto tasks =
      std::make_unique<scheduler<std::string>>(inline_executor{}, turnkey::options<std::string>{.time = &time});
  tasks->submit("a", {.delay = 1s}, [&tasks] { tasks.reset(); });
  time.advance(1s);
  CHECK(tasks == nullptr);
}

TEST_CASE("10.4 an observer may destroy its scheduler inside submit") {
  manual_executor pool;
  std::unique_ptr<scheduler<std::string>> tasks;
  tasks = std::make_unique<scheduler<std::string>>(
      pool, turnkey::options<std::string>{.observer = [&tasks](const event<std::string>& e) {
        if (e.kind == event_kind::submitted) tasks.reset();
      }});
  tasks->submit("a", [] {});
  CHECK(tasks == nullptr);
}

// The end of a callback that did not succeed reads the clock, which its user may have destroyed after stop().
TEST_CASE("10.4 a callback may destroy its scheduler and then the time source") {
  struct world {
    manual_time time;
    std::optional<scheduler<std::string>> tasks;
  };
  manual_executor pool;
  auto all = std::make_unique<world>();
  all->tasks.emplace(pool, turnkey::options<std::string>{.time = &all->time});
  all->tasks->submit("a", [&all] {
    all.reset();
    throw 1;
  });
  pool.run_all();
  CHECK(all == nullptr);
}

// ---- 10: inside

TEST_CASE("10 inside a callback, an observer, a stop callback and the executor nothing waits") {
  std::map<std::string, drain_result> answers;
  scheduler<std::string>* all = nullptr;
  const auto ask = [&](const char* where) {
    answers[where] = all->drain();
    CHECK(all->drain_for(1h) == answers[where]);
  };
  bool once = false;
  const auto executor = [&](const work& permit) {
    if (!std::exchange(once, true)) ask("executor");
    permit();
  };
  scheduler<std::string> tasks(executor, {.observer = [&](const event<std::string>&) { ask("observer"); }});
  all = &tasks;
  tasks.submit("a", [&](attempt& a) {
    const std::stop_callback told(a.stop_token(), [&] { ask("stop callback"); });
    ask("callback");
    tasks.cancel(a.id());
  });
  CHECK(answers.size() == 4);
  for (const auto& [where, answer] : answers) CHECK(answer == drain_result::would_deadlock);
}

TEST_CASE("10 inside a wake of the time source nothing waits") {
  manual_time time;
  std::optional<drain_result> answer;
  scheduler<std::string> tasks(inline_executor{}, {.time = &time});
  tasks.submit("a", {.delay = 1s}, [&] { answer = tasks.drain(); });
  time.advance(1s);
  CHECK(answer == drain_result::would_deadlock);
}

TEST_CASE("10 inside one scheduler another one may be waited for") {
  stage on;
  stage other;
  drain_result answer{};
  on.tasks.submit("a", [&] {
    other.tasks.submit("a", [] {});
    other.run();
    answer = other.tasks.drain();
  });
  on.run();
  CHECK(answer == drain_result::drained);
}

// ---- 10.1: drain

TEST_CASE("10.1 drain of an idle scheduler is drained") {
  stage on;
  CHECK(on.tasks.drain() == drain_result::drained);
  CHECK(on.tasks.drain_for(0s) == drain_result::drained);
  CHECK(on.tasks.drain_for(-1s) == drain_result::drained);
}

TEST_CASE("10.1 drain waits for what is submitted meanwhile, for retries and delays") {
  turnkey::thread_pool pool(2);
  scheduler<std::string> tasks(pool, {.retry = retry_policy{.initial_delay = 1ms}});
  std::atomic<int> runs = 0;
  tasks.submit("a", {.delay = 5ms}, [&](attempt& a) {
    if (a.number() < 3) return outcome::retry();
    tasks.submit("b", [&runs] { ++runs; });
    return outcome::success();
  });
  CHECK(tasks.drain() == drain_result::drained);
  CHECK(runs == 1);
}

TEST_CASE("10.1 drain waits until every callback is destroyed") {
  for (const bool cancels : {false, true}) {
    stage on;
    std::latch begun{1};
    std::atomic<bool> dead = false;
    const task_id id = on.tasks.submit("a", slow_to_die(begun, dead));
    std::thread other([&] { cancels ? static_cast<void>(on.tasks.cancel(id)) : on.run(); });
    begun.wait();
    CHECK(on.tasks.drain() == drain_result::drained);
    CHECK(dead);
    other.join();
  }
}

TEST_CASE("10.1 drain waits until every observer call has returned") {
  for (const event_kind last : {event_kind::succeeded, event_kind::dead, event_kind::evicted, event_kind::cancelled}) {
    CAPTURE(to_string(last));
    std::latch begun{1};
    std::atomic<bool> told = false;
    stage on({.max_dead = 0, .observer = [&](const event<std::string>& e) {
                if (e.kind != last) return;
                begun.count_down();
                give_time();
                told = true;
              }});
    const task_id id = on.tasks.submit("a", [last] {
      if (last != event_kind::succeeded) throw 1;
    });
    std::thread other([&] { last == event_kind::cancelled ? static_cast<void>(on.tasks.cancel(id)) : on.run(); });
    begun.wait();
    CHECK(on.tasks.drain() == drain_result::drained);
    CHECK(told);
    other.join();
  }
}

TEST_CASE("10.1 drain does not wait for dead tasks") {
  stage on;
  on.tasks.submit("a", [] { throw 1; });
  on.run();
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("10.1 drain_for gives up when its time is over, in real time") {
  stage on;
  on.tasks.submit("a", {.delay = 1h}, [] {});
  const auto begin = std::chrono::steady_clock::now();
  CHECK(on.tasks.drain_for(20ms) == drain_result::timed_out);
  CHECK(std::chrono::steady_clock::now() - begin >= 20ms);
  CHECK(on.tasks.drain_for(-1h) == drain_result::timed_out);
}

TEST_CASE("10.1, 8.6 drain is stalled when the last 8 permits were refused or dropped, and work is ready") {
  for (const on_offer how : {on_offer::refuse, on_offer::fail, on_offer::drop}) {
    stage on;
    on.pool.set_mode(how);
    on.tasks.submit("a", [] {});
    for (int offers = 1; offers != 8; ++offers) {
      CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
      on.time.jump(100ms);
    }
    CHECK(on.tasks.drain() == drain_result::stalled);
    on.pool.set_mode(on_offer::queue);
    on.pass(1s);
    CHECK(on.tasks.drain() == drain_result::drained);
  }
}

// A pool that was full for a while took a permit again and had not come to it yet: drain() gave up as stalled, because
// eight others had been refused before.
TEST_CASE("10.1, 8.6 drain is not stalled while the executor has a permit, however many it refused before") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  for (int offers = 1; offers != 8; ++offers) on.time.jump(100ms);
  CHECK(on.tasks.drain() == drain_result::stalled);
  on.pool.set_mode(on_offer::queue);
  on.time.jump(100ms);
  CHECK(on.pool.size() == 1);
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
  on.pool.set_mode(on_offer::refuse);
  on.pool.drop_all();
  CHECK(on.tasks.drain() == drain_result::stalled);
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("10.1, 8.6 drain is not stalled while nothing is ready, however many permits were refused") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  const task_id ready = on.tasks.submit("a", [] {});
  on.tasks.submit("b", {.delay = 1h}, [] {});
  for (int offers = 1; offers != 8; ++offers) on.time.jump(100ms);
  CHECK(on.tasks.drain() == drain_result::stalled);
  on.tasks.cancel(ready);
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
}

TEST_CASE("10.1 drain that waits is told of the stall") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  drain_result answer{};
  std::thread waiting([&] { answer = on.tasks.drain_for(60s); });
  for (int offers = 1; offers != 8; ++offers) on.time.jump(100ms);
  waiting.join();
  CHECK(answer == drain_result::stalled);
}

TEST_CASE("10.1 drain says when stop came first") {
  stage on;
  on.tasks.submit("a", {.delay = 1h}, [] {});
  drain_result answer{};
  std::thread waiting([&] { answer = on.tasks.drain_for(60s); });
  give_time();
  static_cast<void>(on.tasks.stop());
  waiting.join();
  CHECK(answer == drain_result::stopped);
  CHECK(on.tasks.drain() == drain_result::stopped);
}

TEST_CASE("10.1, 2.7 the end of every attempt happens before drain returns") {
  turnkey::thread_pool pool(2);
  scheduler<std::string> tasks(pool);
  int plain[8] = {};
  for (int round = 0; round != 50; ++round) {
    for (int i = 0; i != 8; ++i) tasks.submit([&plain, i] { ++plain[i]; });
    CHECK(tasks.drain() == drain_result::drained);
    for (const int p : plain) CHECK(p == round + 1);
  }
}

// ---- 10.2: close

TEST_CASE("10.2 close refuses submits, and what was accepted goes on, its retries too") {
  stage on({.retry = retry_policy{.max_attempts = 2}});
  int runs = 0;
  on.tasks.submit("a", [&runs] { return ++runs == 1 ? outcome::retry() : outcome::success(); });
  on.tasks.close();
  on.tasks.close();
  CHECK(on.tasks.try_submit("a", [] {}).reason() == reject_reason::closed);
  on.pass(1min);
  CHECK(runs == 2);
  CHECK(on.tasks.drain() == drain_result::drained);
}

TEST_CASE("10.2 after close callbacks may submit follow-up work, until stop") {
  stage on;
  int left = 3;
  std::vector<std::optional<reject_reason>> reasons;
  on.tasks.submit("a", [&] {
    reasons.push_back(on.tasks.try_submit("b", [&left] { --left; }).reason());
    reasons.push_back(on.tasks.try_submit("a", ordered, [&left] { --left; }).reason());
    reasons.push_back(on.tasks.try_submit([&left] { --left; }).reason());
    bool other = true;
    std::thread([&] { other = on.tasks.try_submit("b", [] {}).has_value(); }).join();
    CHECK(!other);  // only callbacks
    return outcome::success();
  });
  on.tasks.close();
  on.run();
  CHECK(reasons == std::vector<std::optional<reject_reason>>(3));
  CHECK(left == 0);
}

TEST_CASE("10.2 after stop not even callbacks may submit") {
  stage on;
  std::optional<reject_reason> reason;
  on.tasks.submit("a", [&] {
    static_cast<void>(on.tasks.stop());
    reason = on.tasks.try_submit("a", [] {}).reason();
  });
  on.run();
  CHECK(reason == reject_reason::closed);
}

TEST_CASE("10.2 a submit that races with close is refused or fully accepted") {
  for (int round = 0; round != 50; ++round) {
    stage on;
    std::latch start{2};
    std::uint64_t accepted = 0;
    std::thread submitting([&] {
      start.arrive_and_wait();
      for (int i = 0; i != 100; ++i)
        if (on.tasks.try_submit("a", [] {})) ++accepted;
    });
    start.arrive_and_wait();
    on.tasks.close();
    submitting.join();
    on.run();
    CHECK(on.tasks.stats().succeeded == accepted);
    CHECK(on.tasks.stats().rejected == 100 - accepted);
  }
}

// ---- 10.3: stop

TEST_CASE("10.3 stop returns every unfinished task with all that is known of it") {
  stage on({.retry = retry_policy{}});
  auto witness = std::make_shared<int>();
  const task_id delayed = on.tasks.submit("a", exclusive, [witness] { return outcome::retry(); });
  on.run();
  on.tasks.submit([witness] {});
  on.tasks.submit("b", [] { return outcome::dead(); });
  on.run();
  const task_id waits = on.tasks.submit("a", ordered, [witness] {});
  std::map<task_id, const task_record<std::string>*> found;
  {
    const auto left = on.tasks.stop();
    CHECK(left.size() == 2);
    CHECK(!left.empty());
    for (const auto& record : left) found[record.id()] = &record;
    REQUIRE(found.count(delayed) == 1);
    CHECK(found[delayed]->state() == task_state::delayed);
    CHECK(found[delayed]->attempts() == 1);
    CHECK(*found[delayed]->key() == "a");
    CHECK(found[delayed]->policy() == policy::exclusive);
    CHECK(found[delayed]->submitted() == manual_time::start);
    REQUIRE(found.count(waits) == 1);
    CHECK(found[waits]->state() == task_state::waiting);
    CHECK(found[waits]->attempts() == 0);
    CHECK(witness.use_count() == 3);
  }
  CHECK(witness.use_count() == 1);
}

TEST_CASE("10.3 what stop returns can be submitted to another scheduler, and runs there as it was") {
  stage on;
  std::vector<std::string> ran;
  for (const char* what : {"first", "second"})
    on.tasks.submit("a", {.policy = policy::ordered, .retry = retry_policy{.max_attempts = 2}},
                    [&ran, what, n = 0]() mutable {
                      ran.push_back(what);
                      return ++n == 1 ? outcome::retry_after(1s) : outcome::success();
                    });
  on.tasks.submit([&ran] { ran.push_back("no key"); });
  auto left = on.tasks.stop();
  std::map<task_id, task_record<std::string>*> by_id;
  for (auto& record : left) by_id[record.id()] = &record;
  stage other;
  for (auto& [id, record] : by_id) {
    CHECK(*record);
    other.tasks.submit(std::move(*record));
    CHECK(!*record);
  }
  other.pass(1min);
  CHECK(ran == std::vector<std::string>{"no key", "first", "first", "second", "second"});
}

TEST_CASE("10.3 a record that is refused keeps its task") {
  stage on;
  int ran = 0;
  on.tasks.submit("a", [&ran] { ++ran; });
  auto left = on.tasks.stop();
  auto& record = *left.begin();
  CHECK_THROWS_AS(on.tasks.submit(std::move(record)), turnkey::rejected);
  REQUIRE(record);
  stage other;
  other.tasks.submit(std::move(record));
  other.run();
  CHECK(ran == 1);
}

TEST_CASE("10.3 records outlive their scheduler and its executor") {
  turnkey::task_records<std::string> left;
  int ran = 0;
  {
    stage on;
    on.tasks.submit("a", [&ran, owned = std::make_unique<int>(3)] { ran = *owned; });
    left = on.tasks.stop();
  }
  stage other;
  for (auto& record : left) other.tasks.submit(std::move(record));
  other.run();
  CHECK(ran == 3);
}

TEST_CASE("10.3 stop starts nothing more, signals what runs and waits for it") {
  stage on;
  std::latch begun{1};
  std::atomic<bool> over = false;
  std::atomic<int> later = 0;
  on.tasks.submit("a", [&](attempt& a) {
    begun.count_down();
    while (!a.stop_requested()) std::this_thread::yield();
    give_time();
    over = true;
  });
  on.tasks.submit("a", [&later] { ++later; });
  std::thread worker([&on] { on.run(); });
  begun.wait();
  const auto left = on.tasks.stop();
  const bool waited = over;
  worker.join();
  CHECK(waited);
  CHECK(later == 0);
  CHECK(left.size() == 1);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("10.3 what runs while stop is called and does not succeed is returned too") {
  stage on({.retry = retry_policy{}});
  std::latch begun{1};
  const task_id id = on.tasks.submit("a", exclusive, [&](attempt& a) {
    begun.count_down();
    while (!a.stop_requested()) std::this_thread::yield();
    return outcome::retry();
  });
  std::thread worker([&on] { on.run(); });
  begun.wait();
  const auto left = on.tasks.stop();
  worker.join();
  REQUIRE(left.size() == 1);
  CHECK(left.begin()->id() == id);
  CHECK(left.begin()->attempts() == 1);
}

// The copy is made outside the locks, since it may throw.
TEST_CASE("10.3, 10.2 stop waits for a submit whose callable is being copied, and returns its task") {
  struct slow_to_copy {
    slow_to_copy(std::latch& b, std::latch& e) : begun(&b), over(&e) {}
    slow_to_copy(const slow_to_copy& other) : begun(nullptr), over(nullptr) {
      if (other.begun == nullptr) return;
      other.begun->count_down();
      other.over->wait();
    }
    void operator()() const {}
    std::latch* begun;
    std::latch* over;
  };
  stage on;
  std::latch begun{1};
  std::latch over{1};
  bool accepted = false;
  std::thread other([&] {
    const slow_to_copy callback(begun, over);
    accepted = on.tasks.try_submit("a", callback).has_value();
  });
  begun.wait();
  std::thread later([&over] {
    give_time();
    over.count_down();
  });
  const std::size_t left = on.tasks.stop().size();
  other.join();
  later.join();
  CHECK(left == (accepted ? 1 : 0));
}

TEST_CASE("10.3 stop waits until a callback that another thread destroys is destroyed") {
  stage on;
  std::latch begun{1};
  std::atomic<bool> dead = false;
  const task_id id = on.tasks.submit("a", slow_to_die(begun, dead));
  std::thread other([&] { on.tasks.cancel(id); });
  begun.wait();
  CHECK(on.tasks.stop().empty());
  CHECK(dead);
  other.join();
}

TEST_CASE("10.3 stop inside, while another thread is in the executor: that one destroys it when it leaves") {
  const auto alive = std::make_shared<int>();
  std::latch begun{1};
  std::latch over{1};
  std::optional<work> first;
  const auto executor = [alive, &begun, &over, &first](work permit) {
    if (!first) {
      first = std::move(permit);
    } else {
      begun.count_down();
      over.wait();
    }
  };
  scheduler<std::string> tasks(executor);
  std::thread other;
  tasks.submit("a", [&] {
    other = std::thread([&tasks] { tasks.submit("b", [] {}); });
    begun.wait();
    static_cast<void>(tasks.stop());
  });
  work permit = *std::move(first);
  permit();
  CHECK(alive.use_count() == 3);  // here, in `executor`, in its copy
  over.count_down();
  other.join();
  CHECK(alive.use_count() == 2);
}

TEST_CASE("10.3 after stop neither executor nor observer is called") {
  std::atomic<int> heard = 0;
  stage on({.retry = retry_policy{}, .observer = [&heard](const event<std::string>&) { ++heard; }});
  on.tasks.submit("a", {.delay = 1s}, [] {});
  on.tasks.submit("b", [] { return outcome::retry(); });
  on.tasks.submit("c", [] { return outcome::dead(); });
  on.run();
  on.tasks.submit("d", [] {});
  const auto left = on.tasks.stop();
  const int before = heard;
  const std::size_t offered = on.pool.offered();
  on.pass(1h);
  on.tasks.redrive_all();
  on.tasks.discard_all();
  CHECK(!on.tasks.try_submit("a", [] {}));
  CHECK(heard == before);
  CHECK(on.pool.offered() == offered);
  CHECK(on.tasks.stats().started == 2);
}

TEST_CASE("10.3 a second stop returns an empty list") {
  stage on;
  on.tasks.submit("a", [] {});
  CHECK(on.tasks.stop().size() == 1);
  CHECK(on.tasks.stop().empty());
  CHECK(on.tasks.stop().begin() == on.tasks.stop().end());
}

TEST_CASE("10, 10.3 stop inside a callback waits for nobody and returns the others") {
  stage on;
  std::size_t left = 0;
  on.tasks.submit("a", ordered, [&] { left = on.tasks.stop().size(); });
  on.tasks.submit("a", ordered, [] {});
  on.tasks.submit("b", {.delay = 1h}, [] {});
  on.run();
  CHECK(left == 2);
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(on.tasks.stats().undone == 2);
}

TEST_CASE("10.3 after a stop inside a callback the observer is not called either") {
  int heard = 0;
  int before = 0;
  stage on({.observer = [&heard](const event<std::string>&) { ++heard; }});
  on.tasks.submit("a", [&] {
    static_cast<void>(on.tasks.stop());
    before = heard;
    throw 1;
  });
  on.run();
  CHECK(before == 2);
  CHECK(heard == before);
}

// ---- 10.4: the destructor

TEST_CASE("10.4 the destructor destroys every callback, the dead ones and their keys too") {
  auto witness = std::make_shared<int>();
  {
    stage on({.dead_action = turnkey::dead_action::hold_key});
    on.tasks.submit("a", exclusive, [witness] { return outcome::dead(); });
    on.run();
    on.tasks.submit("a", [witness] {});
    on.tasks.submit("b", {.delay = 1h}, [witness] {});
    on.tasks.submit([witness] {});
  }
  CHECK(witness.use_count() == 1);
}

TEST_CASE("10.4 the destructor waits for callbacks that run") {
  turnkey::thread_pool pool(1);
  std::atomic<bool> over = false;
  std::latch begun{1};
  {
    scheduler<std::string> tasks(pool);
    tasks.submit("a", [&] {
      begun.count_down();
      give_time();
      over = true;
    });
    begun.wait();
  }
  CHECK(over);
}

TEST_CASE("10.4 permits that are left over do nothing, at any later time") {
  manual_executor pool;
  manual_time time;
  int runs = 0;
  {
    scheduler<std::string> tasks(pool, {.time = &time});
    tasks.submit("a", [&runs] { ++runs; });
    pool.double_one();
    pool.double_one();
  }
  CHECK(pool.run_one());
  CHECK(pool.drop_one());
  CHECK(pool.run_one());
  CHECK(runs == 0);
  CHECK(pool.offered() == 1);
}

TEST_CASE("10.4 a scheduler may be destroyed inside its own callback, on a thread_pool") {
  turnkey::thread_pool pool(2);
  for (int round = 0; round != 20; ++round) {
    std::latch gone{1};
    auto* const tasks = new scheduler<std::string>(pool);
    tasks->submit("a", ordered, [&gone, tasks] {
      delete tasks;
      gone.count_down();
    });
    gone.wait();
  }
}

TEST_CASE("10.4 a scheduler may be destroyed inside its own callback on the time source's thread") {
  std::latch gone{1};
  auto* const tasks = new scheduler<std::string>(inline_executor{});
  tasks->submit("a", {.delay = 1ms}, [&gone, tasks] {
    delete tasks;
    gone.count_down();
  });
  gone.wait();
}

TEST_CASE("10.4 a callback may destroy its scheduler and its thread_pool") {
  struct world {
    turnkey::thread_pool pool{1};
    scheduler<std::string> tasks{pool};
  };
  std::latch gone{1};
  auto* const all = new world;
  all->tasks.submit("a", [&gone, all] {
    delete all;
    gone.count_down();
  });
  gone.wait();
}

TEST_CASE("10.4 a callback that destroyed its scheduler may fail, postpone or die") {
  for (int how = 0; how != 4; ++how) {
    auto tasks = std::make_unique<scheduler<std::string>>(inline_executor{});
    auto witness = std::make_shared<int>();
    tasks->submit("a", exclusive, [&tasks, witness, how] {
      tasks.reset();
      if (how == 0) return outcome::retry();
      if (how == 1) return outcome::postpone(1s);
      if (how == 2) return outcome::dead();
      throw 1;
    });
    CHECK(tasks == nullptr);
    CHECK(witness.use_count() == 1);
  }
}

// ---- 10.5

TEST_CASE("10.5 at rest no key, timer, wake or callback is left") {
  auto witness = std::make_shared<int>();
  stage on({.retry = retry_policy{.max_attempts = 3}, .dead_action = turnkey::dead_action::hold_key});
  for (int i = 0; i != 50; ++i) {
    const std::string key = std::to_string(i);
    on.tasks.submit(key, ordered,
                    [witness](attempt& a) { return a.number() < 2 ? outcome::retry() : outcome::success(); });
    on.tasks.submit(key, {.delay = 1s}, [witness] {});
    on.tasks.submit(key, exclusive, [witness] { return outcome::dead(); });
    on.tasks.cancel(on.tasks.submit(key, {.delay = 1h}, [witness] {}));
  }
  on.pass(1min);
  CHECK(on.tasks.discard_all() == 50);
  on.pass(1min);
  CHECK(witness.use_count() == 1);
  CHECK(on.tasks.stats().keys == 0);
  CHECK(on.tasks.stats().unfinished() == 0);
  CHECK(!on.time.next_wake());
  CHECK(on.pool.size() == 0);
}

TEST_CASE("10.5 a hold that was set stays") {
  stage on({.dead_action = turnkey::dead_action::hold_key});
  on.tasks.submit("a", exclusive, [] { return outcome::dead(); });
  on.run();
  CHECK(on.tasks.stats().keys == 1);
  on.tasks.release("a");
  CHECK(on.tasks.stats().keys == 0);
}

// ---- 10.6

TEST_CASE("10.6 what follows acceptance is noexcept") {
  using type = scheduler<std::string>;
  static_assert(noexcept(std::declval<type&>().stop()));
  static_assert(noexcept(std::declval<type&>().close()));
  static_assert(noexcept(std::declval<type&>().cancel(task_id{})));
  static_assert(noexcept(std::declval<type&>().cancel_all()));
  static_assert(noexcept(std::declval<type&>().redrive(task_id{})));
  static_assert(noexcept(std::declval<type&>().redrive_all()));
  static_assert(noexcept(std::declval<type&>().discard(task_id{})));
  static_assert(noexcept(std::declval<type&>().release_all()));
  static_assert(noexcept(std::declval<const type&>().stats()));
  static_assert(noexcept(std::declval<const work&>()()));
  static_assert(noexcept(std::declval<const wake&>()()));
}
