// The control room. Ten thousand orders become fulfillable at once: each is reserved, then shipped, in that order. Ten
// at a time, so that the database bears it. At a third of the way it goes down; a breaker stops the world before the
// orders walk through all their retries. Two single steps by hand: the first finds it still down, the second succeeds,
// and the world goes on, carefully with two in flight and a thousand a second, then with twenty and no pace.
//
//   6_fulfil_orders [--manual] [--trace FILE]
#include <turnkey/breaker.hpp>
#include <turnkey/testing.hpp>
#include <turnkey/trace.hpp>
#include <turnkey/turnkey.hpp>

#include "fulfil_orders/screen.hpp"

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <functional>
#include <iostream>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using namespace std::chrono_literals;
using fulfil::orders;
using recorder = turnkey::trace<int>;
using fulfil::screen;

constexpr int order_count = 10'000;

// Counts what was done to each order; plain data, since tasks of one order never overlap.
class database {
 public:
  std::atomic<bool> up{true};
  std::atomic<int> writes{0};
  std::chrono::microseconds latency{0};

  void reserve(int order) {
    write();
    ++reserved_[static_cast<std::size_t>(order)];
  }
  void ship(int order) {
    write();
    const auto at = static_cast<std::size_t>(order);
    if (reserved_[at] != 1) wrong_ = true;  // before it was reserved
    ++shipped_[at];
  }

  // Every order was reserved once, then shipped once.
  [[nodiscard]] bool right() const {
    for (std::size_t i = 0; i != reserved_.size(); ++i)
      if (reserved_[i] != 1 || shipped_[i] != 1) return false;
    return !wrong_;
  }

 private:
  void write() {
    if (latency > 0us) std::this_thread::sleep_for(latency);
    if (!up) throw std::runtime_error("the database is down");
    if (++writes == 2 * order_count / 3) up = false;
  }

  std::vector<int> reserved_ = std::vector<int>(order_count);
  std::vector<int> shipped_ = std::vector<int>(order_count);
  std::atomic<bool> wrong_{false};
};

// Time goes by: for real, or when told.
struct world {
  std::function<turnkey::time_point()> now;
  std::function<void()> wait;  // a moment
};

// Plays the story; false when something was not as it should be.
bool play(orders& tasks, turnkey::breaker& breaker, database& store, const world& time, bool live) {
  screen shown(tasks, 2 * order_count, live);
  // Or until nothing is unfinished.
  const auto wait_until = [&](const auto& over) {
    while (!over() && tasks.stats().unfinished() != 0) {
      time.wait();
      shown.draw(time.now());
    }
  };
  const auto done = [&tasks] { return tasks.stats().succeeded; };

  for (int order = 0; order != order_count; ++order) {
    tasks.submit(order, [&store, order] { store.reserve(order); });
    shown.watched = tasks.submit(order, [&store, order] { store.ship(order); });
  }
  shown.say("10000 orders, 10 in flight");

  wait_until([&] { return breaker.is_open() && tasks.paused() && tasks.stats().running == 0; });
  shown.say("the database is down: the breaker stopped the world");
  const auto last = tasks.find(*shown.watched);
  shown.say("  why does the last order wait? " + (last ? to_string(last->why, time.now()) : "it does not"));

  const auto step = [&] {
    const std::uint64_t ended = done() + tasks.stats().failed_attempts;
    tasks.step();
    wait_until([&] { return done() + tasks.stats().failed_attempts > ended; });
  };
  step();
  const bool still_open = breaker.is_open();
  shown.say(std::string("one step by hand: ") + (still_open ? "it failed, all else stays where it is" : "NOT open"));

  store.up = true;
  tasks.set_max_in_flight(2);
  tasks.set_pace(turnkey::pace{.n = 1000, .interval = 1s, .burst = 10});
  shown.limit = "2";
  shown.pace = "1000 a second";
  const std::uint64_t before = done();
  step();
  wait_until([&] { return !breaker.is_open(); });
  shown.say("the database is back, one more step: it succeeded, the breaker closed; two in flight, 1000 a second");

  wait_until([&] { return done() > before + order_count / 10; });
  tasks.set_max_in_flight(20);
  tasks.set_pace({});
  shown.limit = "20";
  shown.pace = "none";
  shown.say("that goes well: twenty in flight, no pace");

  wait_until([] { return false; });
  static_cast<void>(tasks.drain());
  const turnkey::stats s = tasks.stats();
  const bool right = store.right() && s.died == 0 && s.succeeded == 2 * order_count;
  const bool few = s.failed_attempts < order_count / 100;
  shown.say("done: " + std::to_string(s.succeeded) + " tasks, " + std::to_string(s.died) + " dead, " +
            (few ? "few" : "many") + " failed attempts; every order was " + (right ? "" : "NOT ") +
            "reserved once, then shipped once");
  return right && few && still_open;
}

turnkey::options<int> settings(turnkey::breaker& breaker, const recorder* trace) {
  return {.default_policy = turnkey::policy::ordered,
          .retry = turnkey::retry_policy{.initial_delay = 20ms},
          .max_in_flight = 10,
          .observer = breaker.watch<int>(trace != nullptr ? trace->observer() : turnkey::observer<int>{}),
          .jitter_seed = 1};
}

bool play_for_real(turnkey::breaker& breaker, database& store, const recorder* trace) {
  turnkey::thread_pool pool{20};
  store.latency = 1ms;
  orders tasks{pool, settings(breaker, trace)};
  breaker.guard(tasks);
  const world time{.now = [] { return turnkey::clock::now(); }, .wait = [] { std::this_thread::sleep_for(20ms); }};
  return play(tasks, breaker, store, time, isatty(STDOUT_FILENO) != 0);
}

bool play_in_manual_time(turnkey::breaker& breaker, database& store, const recorder* trace) {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time clock;
  auto set = settings(breaker, trace);
  set.time = &clock;
  orders tasks{pool, std::move(set)};
  breaker.guard(tasks);
  const world time{.now = [&clock] { return clock.now(); },
                   .wait =
                       [&] {
                         if (!pool.run_one()) clock.advance(10ms);
                       }};
  return play(tasks, breaker, store, time, false);
}

int usage(std::ostream& out, int status) {
  out << "usage: 6_fulfil_orders [--manual] [--trace FILE]\n"
         "  --manual      in manual time: the same every time\n"
         "  --trace FILE  writes what happened for Perfetto or chrome://tracing\n"
         "exit status: 0 all is well; 1 an order is wrong, a task dead, or the story went otherwise; 2 wrong options\n";
  return status;
}

}  // namespace

int main(int count, char** words) {
  bool manual = false;
  std::optional<std::string> file;
  for (int i = 1; i != count; ++i) {
    const std::string_view word = words[i];
    if (word == "--help") return usage(std::cout, 0);
    if (word == "--manual") {
      manual = true;
    } else if (word == "--trace" && i + 1 != count) {
      file = words[++i];
    } else {
      std::cerr << (word == "--trace" ? "--trace needs a value" : "unknown option '" + std::string(word) + '\'')
                << '\n';
      return usage(std::cerr, 2);
    }
  }
  std::ofstream out;
  if (file) out.open(*file);
  if (file && !out) {
    std::cerr << *file << ": cannot be written\n";
    return 2;
  }
  turnkey::breaker breaker{{.failures = 5, .window = 10}};
  database store;
  std::optional<recorder> trace;
  if (file) trace.emplace();
  const bool right = (manual ? play_in_manual_time : play_for_real)(breaker, store, trace ? &*trace : nullptr);
  if (trace) trace->write(out);
  return right ? 0 : 1;
}
