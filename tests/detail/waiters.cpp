#include <turnkey/detail/waiters.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <optional>
#include <thread>
#include <vector>

using turnkey::time_point;
using turnkey::detail::waiters;
using namespace std::chrono_literals;

TEST_CASE("10.1 waiters: what is true already is not waited for") {
  waiters w;
  CHECK(w.wait(std::nullopt, [] { return true; }));
  CHECK(w.wait(turnkey::clock::now() - 1h, [] { return true; }));
}

TEST_CASE("10.1 waiters: the condition is looked at without the lock, so that it may notify") {
  waiters w;
  int looks = 0;
  CHECK(w.wait(std::nullopt, [&] {
    w.notify();  // and what is notified during a look is not lost
    return ++looks == 5;
  }));
}

TEST_CASE("10.1 waiters: the time comes in real time, and the condition is asked once more then") {
  waiters w;
  const auto until = turnkey::clock::now() + 20ms;
  int looks = 0;
  CHECK(!w.wait(until, [&looks] { return ++looks < 0; }));
  CHECK(turnkey::clock::now() >= until);
  CHECK(looks == 2);
  CHECK(w.wait(turnkey::clock::now() + 1ms, [&looks] { return ++looks == 4; }));  // true when asked the last time
}

TEST_CASE("10.1 waiters: an endless time is none") {
  waiters w;
  bool done = false;
  std::latch looked{1};
  std::atomic<bool> is = false;
  std::thread waiting([&] {
    bool first = true;
    done = w.wait((time_point::max)(), [&] {
      if (first) looked.count_down();
      first = false;
      return is.load();
    });
  });
  looked.wait();
  is = true;
  w.notify();
  waiting.join();
  CHECK(done);
}

TEST_CASE("10.1 waiters: one notice wakes all") {
  waiters w;
  std::latch looked{4};
  std::atomic<bool> is = false;
  std::vector<std::thread> threads;
  for (int i = 0; i != 4; ++i)
    threads.emplace_back([&, first = true]() mutable {
      w.wait(std::nullopt, [&] {
        if (first) looked.count_down();
        first = false;
        return is.load();
      });
    });
  looked.wait();
  is = true;
  w.notify();
  for (std::thread& t : threads) t.join();  // hangs when one sleeps on
}
