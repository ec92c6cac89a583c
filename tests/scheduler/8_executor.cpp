#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

using turnkey::attempt;
using turnkey::drain_result;
using turnkey::event;
using turnkey::event_kind;
using turnkey::inline_executor;
using turnkey::options;
using turnkey::outcome;
using turnkey::policy;
using turnkey::scheduler;
using turnkey::time_point;
using turnkey::wake;
using turnkey::work;
using turnkey::testing::manual_executor;
using turnkey::testing::manual_time;
using turnkey::testing::on_offer;
using namespace std::chrono_literals;

namespace {

const turnkey::task_options exclusive{.policy = policy::exclusive};
const turnkey::task_options ordered{.policy = policy::ordered};

// How many executors of a kind are alive, and how often one was called.
struct census {
  int alive = 0;
  int copies = 0;
  int calls = 0;
};

// An executor that can be copied and is counted.
struct counted {
  explicit counted(census& c) : all(&c) { ++all->alive; }
  counted(const counted& other) : all(other.all) {
    ++all->alive;
    ++all->copies;
  }
  counted(counted&& other) noexcept : all(other.all) { ++all->alive; }
  counted& operator=(const counted&) = delete;
  ~counted() { --all->alive; }
  void operator()(const work& permit) const {
    ++all->calls;
    permit();
  }
  census* all;
};

// The same, but it can only be moved.
struct counted_only_moved : counted {
  using counted::counted;
  counted_only_moved(counted_only_moved&&) noexcept = default;
  counted_only_moved& operator=(counted_only_moved&&) = delete;
  ~counted_only_moved() = default;
};

// Notes how deep the stack gets.
struct depth_gauge {
  void look() {
    const char here = 0;
    const auto at = reinterpret_cast<std::uintptr_t>(&here);
    lowest = (std::min)(lowest, at);
    highest = (std::max)(highest, at);
  }
  std::uintptr_t lowest = ~std::uintptr_t{0};
  std::uintptr_t highest = 0;
};

// Keeps the first permit; does with a later one what `then` says.
struct second_thoughts {
  second_thoughts() = default;
  second_thoughts(const second_thoughts&) = delete;
  second_thoughts& operator=(const second_thoughts&) = delete;
  void operator()(work w) {
    if (std::exchange(later, true)) return then(std::move(w));
    first = std::move(w);
  }
  void run() { (*std::exchange(first, std::nullopt))(); }

  bool later = false;
  std::optional<work> first;
  std::function<void(work)> then;
};

}  // namespace

// A permit that had run came back only when its last copy died; after 16 of them none was left to offer.
TEST_CASE("8 an executor may keep copies of permits that have run") {
  std::vector<work> kept;
  manual_time time;
  int runs = 0;
  const auto keep_and_run = [&kept](const work& permit) {
    kept.push_back(permit);
    permit();
  };
  scheduler<std::string> tasks(keep_and_run, {.time = &time});
  tasks.submit("a", [&runs] { return ++runs < 100 ? outcome::postpone(1ms) : outcome::success(); });
  time.advance(1s);
  CHECK(runs == 100);
}

TEST_CASE("8 a lost permit loses no task, a doubled one runs nothing twice") {
  stage on;
  int runs = 0;
  for (int i = 0; i != 10; ++i) on.tasks.submit("a", exclusive, [&runs] { ++runs; });
  CHECK(on.pool.drop_all() == 1);
  on.time.advance(1ms);
  for (int i = 0; i != 5; ++i) CHECK(on.pool.double_one());
  on.run();
  CHECK(runs == 10);
  CHECK(on.tasks.stats().started == 10);
}

TEST_CASE("8 a permit is no task: it runs whatever is ready when it begins") {
  stage on;
  std::vector<std::string> ran;
  const auto first = on.tasks.submit("a", [&ran] { ran.push_back("first"); });
  on.tasks.cancel(first);
  on.tasks.submit("b", [&ran] { ran.push_back("second"); });
  CHECK(on.pool.offered() == 1);
  on.run();
  CHECK(ran == std::vector<std::string>{"second"});
}

// ---- 8.1: what an executor is

TEST_CASE("8.1 a copyable lvalue executor is copied, and the copy ends with stop") {
  census all;
  const counted mine(all);
  scheduler<std::string> tasks(mine);
  CHECK(all.alive == 2);
  CHECK(all.copies == 1);
  tasks.submit("a", [] {});
  CHECK(all.calls == 1);
  CHECK(all.alive == 2);  // the end of a permit destroys nothing
  static_cast<void>(tasks.stop());
  CHECK(all.alive == 1);
}

TEST_CASE("8.1 an rvalue executor is moved in and owned, until the scheduler ends") {
  census all;
  {
    scheduler<std::string> tasks{counted_only_moved(all)};
    CHECK(all.alive == 1);
    CHECK(all.copies == 0);
    tasks.submit("a", [] {});
    CHECK(all.calls == 1);
  }
  CHECK(all.alive == 0);
}

TEST_CASE("8.1 an lvalue executor that cannot be copied is referred to") {
  census all;
  counted_only_moved mine(all);
  {
    scheduler<std::string> tasks(mine);
    tasks.submit("a", [] {});
    CHECK(all.alive == 1);
    CHECK(all.calls == 1);
  }
  CHECK(all.alive == 1);
}

TEST_CASE("8.1 an owned executor outlives the scheduler that is stopped inside a call of it, until that call ends") {
  census all;
  auto tasks = std::make_unique<scheduler<std::string>>(counted_only_moved(all));
  int alive = 0;
  tasks->submit("a", [&] {
    tasks.reset();
    alive = all.alive;
  });
  CHECK(alive == 1);
  CHECK(all.alive == 0);
}

TEST_CASE("8.1 what an executor returns is ignored, but a false value is a refusal") {
  struct answer {
    operator bool() const { return value; }  // NOLINT(google-explicit-constructor)
    bool value;
  };
  std::vector<work> kept;
  manual_time time;
  scheduler<std::string> refusing([&kept](const work& p) { return kept.push_back(p), answer{false}; }, {.time = &time});
  scheduler<std::string> zero([&kept](const work& p) { return kept.push_back(p), 0; }, {.time = &time});
  scheduler<std::string> true_one([&kept](const work& p) { return kept.push_back(p), answer{true}; }, {.time = &time});
  scheduler<std::string> text([&kept](const work& p) { return kept.push_back(p), std::string(); }, {.time = &time});
  scheduler<std::string> nothing([&kept](const work& p) { kept.push_back(p); }, {.time = &time});
  for (auto* each : {&refusing, &zero, &true_one, &text, &nothing}) each->submit("a", [] {});
  CHECK(refusing.stats().executor_refusals == 1);
  CHECK(zero.stats().executor_refusals == 1);
  CHECK(true_one.stats().executor_refusals == 0);
  CHECK(text.stats().executor_refusals == 0);
  CHECK(nothing.stats().executor_refusals == 0);
}

TEST_CASE("8.1 functions, lambdas, std::function and references to them are executors") {
  static_assert(turnkey::executor<void (*)(work)>);
  static_assert(turnkey::executor<std::function<void(work)>>);
  static_assert(turnkey::executor<std::function<void(const work&)>>);
  static_assert(!turnkey::executor<std::function<void(int)>>);
  int runs = 0;
  scheduler<std::string> by_pointer(+[](work permit) { permit(); });
  scheduler<std::string> by_wrapper(std::function<void(work)>([](const work& permit) { permit(); }));
  by_pointer.submit("a", [&runs] { ++runs; });
  by_wrapper.submit("a", [&runs] { ++runs; });
  CHECK(runs == 2);
}

TEST_CASE("8.1 a permit fits through a void*") {
  std::vector<void*> queue;
  scheduler<std::string> tasks([&queue](work permit) { queue.push_back(permit.release()); });
  int runs = 0;
  tasks.submit("a", [&runs] { ++runs; });
  while (!queue.empty()) {
    work::adopt(std::exchange(queue.back(), nullptr))();
    queue.pop_back();
  }
  CHECK(runs == 1);
  CHECK(tasks.stats().permits_lost == 0);
}

TEST_CASE("8.1 a std::function queue and a thread each are executors") {
  std::vector<std::function<void()>> queue;
  std::vector<std::thread> threads;
  scheduler<std::string> queued([&queue](work permit) { queue.emplace_back(permit); });
  scheduler<std::string> threaded([&threads](work permit) { threads.emplace_back(permit); });
  int runs = 0;
  bool on_thread = false;
  queued.submit("a", [&runs] { ++runs; });
  for (std::size_t i = 0; i != queue.size(); ++i) queue[i]();
  threaded.submit("a",
                  [&on_thread, here = std::this_thread::get_id()] { on_thread = std::this_thread::get_id() != here; });
  for (std::thread& t : threads) t.join();
  CHECK(runs == 1);
  CHECK(on_thread);
}

// ---- 8.2: inline

TEST_CASE("8.2 an executor that runs inline stays at depth one, whatever is submitted from inside") {
  for (const bool by_type : {false, true}) {
    const auto lambda = [](const work& permit) { permit(); };
    auto tasks = by_type ? std::make_unique<scheduler<std::string>>(inline_executor{})
                         : std::make_unique<scheduler<std::string>>(lambda);
    depth_gauge stack;
    int depth = 0;
    int deepest = 0;
    int left = 100'000;
    std::function<void()> next = [&] {
      deepest = (std::max)(deepest, ++depth);
      stack.look();
      if (--left > 0) tasks->submit(left % 2 == 0 ? "a" : "b", ordered, std::ref(next));
      --depth;
    };
    tasks->submit("a", ordered, std::ref(next));
    CHECK(left == 0);
    CHECK(deepest == 1);
    CHECK(stack.highest - stack.lowest < 4096);
  }
}

TEST_CASE("8.2 100,000 tasks submitted inside one callback start after it, at depth one") {
  scheduler<std::string> tasks([](const work& permit) { permit(); });
  depth_gauge stack;
  int runs = 0;
  tasks.submit("a", ordered, [&] {
    for (int i = 0; i != 100'000; ++i)
      tasks.submit("a", ordered, [&] {
        ++runs;
        stack.look();
      });
    CHECK(runs == 0);
  });
  CHECK(runs == 100'000);
  CHECK(stack.highest - stack.lowest < 4096);
}

// ---- 8.3, 8.4: refusals and losses

TEST_CASE("8.3 an executor that throws or refuses, before or after it queued, loses and repeats nothing") {
  for (const on_offer how :
       {on_offer::refuse, on_offer::fail, on_offer::queue_and_refuse, on_offer::queue_and_fail, on_offer::drop}) {
    CAPTURE(static_cast<int>(how));
    std::map<event_kind, int> told;
    stage on({.observer = [&told](const event<std::string>& e) { ++told[e.kind]; }});
    std::vector<std::uint32_t> numbers;
    on.pool.set_mode(how);
    for (int i = 0; i != 3; ++i)
      CHECK_NOTHROW(on.tasks.submit("a", exclusive, [&numbers](attempt& a) { numbers.push_back(a.number()); }));
    on.pool.set_mode(on_offer::queue);
    on.pass(1s);
    CHECK(numbers == std::vector<std::uint32_t>{1, 1, 1});
    CHECK(on.tasks.stats().started == 3);
    CHECK(told[how == on_offer::drop ? event_kind::permit_lost : event_kind::executor_refused] == 1);
  }
}

TEST_CASE("8.3 after a refusal the next offer follows after 1 ms, and the pauses grow to 100 ms") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  std::vector<turnkey::duration> pauses;
  for (int i = 0; i != 10; ++i) {
    REQUIRE(on.time.next_wake());
    pauses.push_back(*on.time.next_wake() - on.time.now());
    const std::size_t before = on.pool.offered();
    on.time.jump(pauses.back() - 1ns);
    CHECK(on.pool.offered() == before);
    on.time.jump(1ns);
    CHECK(on.pool.offered() == before + 1);
  }
  CHECK(pauses == std::vector<turnkey::duration>{1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 100ms, 100ms, 100ms});
}

TEST_CASE("8.3 the pauses begin anew once the executor works again") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  for (int i = 0; i != 5; ++i) on.time.jump(100ms);
  on.pool.set_mode(on_offer::queue);
  on.pass(1s);
  on.pool.set_mode(on_offer::refuse);
  on.tasks.submit("a", [] {});
  CHECK(on.time.next_wake() == on.time.now() + 1ms);
}

TEST_CASE("8.3 a submit offers no second permit while the pause lasts") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  for (int i = 0; i != 100; ++i) on.tasks.submit(std::to_string(i), [] {});
  CHECK(on.pool.offered() == 1);
}

TEST_CASE("8.3 nothing is offered again when nothing is ready any more") {
  stage on;
  on.pool.set_mode(on_offer::refuse);
  const auto id = on.tasks.submit("a", [] {});
  on.tasks.cancel(id);
  on.time.advance(1h);
  CHECK(on.pool.offered() == 1);
}

TEST_CASE("8.4 a dropped permit is noticed when its last copy dies, and replaced after a pause") {
  stage on;
  on.tasks.submit("a", [] {});
  CHECK(on.pool.double_one());
  CHECK(on.pool.drop_one());
  CHECK(on.tasks.stats().permits_lost == 0);
  CHECK(!on.time.next_wake());
  CHECK(on.pool.drop_one());
  CHECK(on.tasks.stats().permits_lost == 1);
  CHECK(on.pool.offered() == 1);  // not from the permit's destructor
  CHECK(on.time.next_wake() == on.time.now() + 1ms);
  on.pass(1ms);
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("8.4 a permit that has run is not lost when it dies") {
  stage on;
  on.tasks.submit("a", [] {});
  on.run();
  CHECK(on.tasks.stats().permits_lost == 0);
  CHECK(!on.time.next_wake());
}

// ---- 8.5: no more permits than starts

TEST_CASE("8.5 no permit is offered for what cannot start") {
  stage on;
  on.tasks.submit("a", {.policy = policy::ordered, .delay = 1h}, [] {});
  for (int i = 0; i != 10; ++i) on.tasks.submit("a", ordered, [] {});
  CHECK(on.pool.offered() == 0);
  on.time.advance(1h);
  CHECK(on.pool.offered() == 1);
}

TEST_CASE("8.5 while permits are out that suffice, none is offered") {
  stage on;
  for (int i = 0; i != 10; ++i) on.tasks.submit("a", exclusive, [] {});
  CHECK(on.pool.size() == 1);
  on.run();
  CHECK(on.pool.offered() == 1);
}

// The end of every turn offered a permit for the line that the same worker took next: on a pool that slept, a thread
// was woken for nothing every turn_budget tasks.
TEST_CASE("8.5 a worker wakes nobody for the line that it goes on with") {
  stage on;
  for (int i = 0; i != 100; ++i) on.tasks.submit("a", {.policy = policy::ordered}, [] {});
  on.pool.run_one();
  CHECK(on.tasks.stats().succeeded == 100);
  CHECK(on.pool.offered() == 1);
}

TEST_CASE("8.5 permits that are out never exceed what can start, max_in_flight included") {
  stage on({.max_in_flight = 2});
  std::size_t most = 0;
  int running = 0;
  for (int i = 0; i != 10; ++i)
    on.tasks.submit(std::to_string(i), [&] {
      ++running;
      most = (std::max)(most, on.pool.size());
      if (running == 2) CHECK(on.pool.size() == 0);
      if (on.pool.size() != 0) std::thread([&on] { on.pool.run_one(); }).join();
      --running;
    });
  on.run();
  CHECK(most == 1);
  CHECK(on.tasks.stats().succeeded == 10);
}

TEST_CASE("8.5 as many workers run at once as tasks can start and permits are run") {
  stage on;
  int most = 0;
  int running = 0;
  for (int i = 0; i != 4; ++i)
    on.tasks.submit(std::to_string(i), [&] {
      most = (std::max)(most, ++running);
      std::thread([&on] { on.pool.run_one(); }).join();
      --running;
    });
  on.pool.run_one();
  CHECK(most == 4);
}

TEST_CASE("8.5 more workers than there were permits at first are no limit") {
  stage on;
  int most = 0;
  int running = 0;
  for (int i = 0; i != 40; ++i)
    on.tasks.submit(std::to_string(i), [&] {
      most = (std::max)(most, ++running);
      if (running == 12) on.tasks.submit("more", [] {});  // makes more permits
      std::thread([&on] { on.pool.run_one(); }).join();
      --running;
    });
  on.pool.run_one();
  CHECK(most == 40);
  on.run();
  CHECK(on.tasks.stats().succeeded == 41);
}

TEST_CASE("8.5 a permit that finds nothing ends at once") {
  stage on;
  const auto id = on.tasks.submit("a", [] {});
  on.tasks.cancel(id);
  CHECK(on.pool.run_all() == 1);
  CHECK(on.tasks.stats().started == 0);
  on.tasks.submit("a", [] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
}

// ---- 8.6

TEST_CASE("8.6 after stop the executor may die, with its permits, before the scheduler") {
  auto pool = std::make_unique<manual_executor>();
  scheduler<std::string> tasks(*pool);
  tasks.submit("a", [] {});
  CHECK(tasks.stop().size() == 1);
  pool.reset();
  CHECK(tasks.stats().undone == 1);
}

TEST_CASE("8.6 a pool that keeps permits without running them makes drain time out") {
  stage on;
  on.tasks.submit("a", [] {});
  on.time.advance(1h);
  CHECK(on.tasks.drain_for(0s) == drain_result::timed_out);
}

// ---- 8.7: time

namespace {

// A time source that can wake in the middle of the next wake_at(), and remembers what it was asked for.
class eager_time final : public turnkey::time_source {
 public:
  [[nodiscard]] time_point now() noexcept override { return time; }
  void wake_at(time_point at, wake call) noexcept override {
    asked.push_back(at);
    given = call;
    if (std::exchange(eager, false)) call();
  }
  time_point time{24h};
  bool eager = false;
  std::vector<time_point> asked;
  wake given;
};

}  // namespace

TEST_CASE("8.7 early and repeated wakes are harmless") {
  stage on;
  int runs = 0;
  on.tasks.submit("a", {.delay = 1s}, [&runs] { ++runs; });
  for (int i = 0; i != 10; ++i) on.time.ring();
  on.run();
  CHECK(runs == 0);
  on.time.jump(1s);
  for (int i = 0; i != 10; ++i) on.time.ring();
  on.run();
  CHECK(runs == 1);
}

TEST_CASE("8.7 an early wake asks for another one") {
  stage on;
  on.tasks.submit("a", {.delay = 1s}, [] {});
  on.time.jump(999ms);
  on.time.ring();
  CHECK(on.time.next_wake() == on.time.now() + 1ms);
}

TEST_CASE("8.7 a late wake starts all that is due") {
  stage on;
  int runs = 0;
  for (int i = 1; i != 6; ++i) on.tasks.submit("a", {.delay = std::chrono::seconds{i}}, [&runs] { ++runs; });
  on.time.jump(1h);
  on.run();
  CHECK(runs == 5);
  CHECK(!on.time.next_wake());
}

TEST_CASE("8.7 wakes in the middle of wake_at are harmless") {
  eager_time time;
  manual_executor pool;
  scheduler<std::string> tasks(pool, {.time = &time});
  int runs = 0;
  tasks.submit("a", {.delay = 2s}, [&runs] { ++runs; });
  time.eager = true;
  time.time += 3s;
  tasks.submit("a", {.delay = 1s}, [&runs] { ++runs; });
  time.given();
  pool.run_all();
  CHECK(runs == 1);
  time.time += 1s;
  time.given();
  pool.run_all();
  CHECK(runs == 2);
}

TEST_CASE("8.7 a wake is asked for only when it is earlier than the one that is set") {
  eager_time time;
  manual_executor pool;
  scheduler<std::string> tasks(pool, {.time = &time});
  for (const auto delay : {3s, 5s, 4s, 2s, 2s}) tasks.submit("a", {.delay = delay}, [] {});
  CHECK(time.asked == std::vector<time_point>{time.time + 3s, time.time + 2s});
}

TEST_CASE("8.7 no wake is asked for when nothing has to wait") {
  eager_time time;
  manual_executor pool;
  scheduler<std::string> tasks(pool, {.time = &time});
  for (int i = 0; i != 10; ++i) tasks.submit("a", ordered, [] {});
  pool.run_all();
  CHECK(time.asked.empty());
}

TEST_CASE("8.7 endless delays saturate and never come") {
  stage on({.retry = turnkey::retry_policy{}});
  int runs = 0;
  on.tasks.submit("a", {.delay = (turnkey::duration::max)()}, [&runs] { ++runs; });
  on.tasks.submit("b", [n = 0]() mutable {
    return ++n == 1 ? outcome::retry_after((turnkey::duration::max)()) : outcome::success();
  });
  on.tasks.submit("c", [] { return outcome::postpone((turnkey::duration::max)()); });
  on.run();
  CHECK(!on.time.next_wake());  // time_point::max() means never
  on.pass(24h * 365 * 100);
  CHECK(runs == 0);
  CHECK(on.tasks.stats().delayed == 3);
  CHECK(on.tasks.cancel_all() == 3);
}

TEST_CASE("8.7 a wake that comes after the scheduler is gone does nothing") {
  eager_time time;
  manual_executor pool;
  {
    scheduler<std::string> tasks(pool, {.time = &time});
    tasks.submit("a", {.delay = 1s}, [] {});
  }
  time.time += 1h;
  time.given();
  CHECK(pool.offered() == 0);
}

TEST_CASE("8.7 the default time source wakes by itself") {
  turnkey::thread_pool pool(1);
  scheduler<std::string> tasks(pool);
  const auto begin = turnkey::clock::now();
  turnkey::time_point ran;
  tasks.submit("a", {.delay = 20ms}, [&ran] { ran = turnkey::clock::now(); });
  CHECK(tasks.drain() == drain_result::drained);
  CHECK(ran - begin >= 20ms);
}

TEST_CASE("8.5, 6.4 a worker whose successor used up the pace leaves it to the clock to go on") {
  second_thoughts pool;
  manual_time time;
  turnkey::scheduler<std::string> tasks(pool, {.time = &time});
  tasks.set_pace(turnkey::pace{.n = 1, .interval = 1s, .burst = 257});
  int ran = 0;
  for (int i = 0; i != 258; ++i) tasks.submit("a", {.policy = policy::ordered}, [&ran] { ++ran; });
  pool.then = [](work w) { std::thread([&w] { w(); }).join(); };
  pool.run();
  CHECK(ran == 257);
  time.advance(1s);
  CHECK(ran == 258);
}

TEST_CASE("10, 10.3 the executor may stop the scheduler when it is offered the successor of a worker") {
  second_thoughts pool;
  manual_time time;
  turnkey::scheduler<std::string> tasks(pool, {.time = &time});
  int ran = 0;
  for (int i = 0; i != 300; ++i) tasks.submit("a", {.policy = policy::ordered}, [&ran] { ++ran; });
  std::size_t left = 0;
  pool.then = [&](const work&) { left = tasks.stop().size(); };
  pool.run();
  CHECK(ran == 256);
  CHECK(left == 44);
}
