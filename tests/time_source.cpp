#include <turnkey/time_source.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <latch>
#include <memory>
#include <thread>
#include <type_traits>
#include <utility>

using turnkey::steady_time_source;
using turnkey::time_point;
using turnkey::wake;
using namespace std::chrono_literals;

namespace {

// What a wake calls, here: it counts, and says that it was called.
struct bell : turnkey::detail::wakeable {
  bell()
      : wakeable{[](wakeable& b) noexcept { ++static_cast<bell&>(b).kept; },
                 [](wakeable& b) noexcept { --static_cast<bell&>(b).kept; },
                 [](wakeable& b) noexcept {
                   static_cast<bell&>(b).at = turnkey::clock::now();
                   if (++static_cast<bell&>(b).rings == 1) static_cast<bell&>(b).first.count_down();
                 }} {}
  std::atomic<int> kept = 0;
  std::atomic<int> rings = 0;
  time_point at{};
  std::latch first{1};
};

}  // namespace

TEST_CASE("8.7 wake: every copy keeps what it wakes alive, and lets go of it") {
  bell b;
  {
    const wake first(b);
    wake second = first;
    const wake third = std::move(second);
    CHECK(b.kept == 2);
    second = third;
    CHECK(b.kept == 3);
    third();
    CHECK(first);
  }
  CHECK(b.kept == 0);
  CHECK(b.rings == 1);
}

TEST_CASE("8.7 wake: an empty one does nothing") {
  const wake none;
  CHECK(!none);
  none();
  static_assert(std::is_nothrow_invocable_v<const wake&>);
}

TEST_CASE("8.7 steady_time_source: both functions are noexcept, and its clock is the steady one") {
  steady_time_source source;
  const time_point some{};
  const wake none;
  static_assert(noexcept(source.now())&& noexcept(source.wake_at(some, none)));
  const auto before = turnkey::clock::now();
  const auto now = source.now();
  CHECK(before <= now);
  CHECK(now <= turnkey::clock::now());
  const auto lately = steady_time_source::lately();
  CHECK(lately <= turnkey::clock::now());
}

TEST_CASE("8.7 steady_time_source: it wakes at the time or later") {
  bell b;
  steady_time_source source;
  source.start();
  const auto due = turnkey::clock::now() + 20ms;
  source.wake_at(due, wake(b));
  b.first.wait();
  source.stop();
  CHECK(b.at >= due);
  CHECK(b.rings == 1);
  CHECK(b.kept == 0);
}

TEST_CASE("8.7 steady_time_source: a time that has passed means soon") {
  bell b;
  steady_time_source source;
  source.start();
  source.wake_at(turnkey::clock::now() - 1h, wake(b));
  b.first.wait();
}

TEST_CASE("8.7 steady_time_source: the latest wake_at counts, earlier or later than the one before") {
  bell late;
  bell soon;
  steady_time_source source;
  source.start();
  source.wake_at(turnkey::clock::now() + 1h, wake(late));
  source.wake_at(turnkey::clock::now() + 1ms, wake(soon));
  soon.first.wait();
  source.stop();
  CHECK(late.rings == 0);
  CHECK(late.kept == 0);
}

TEST_CASE("8.7 steady_time_source: never means never, without a busy wait") {
  bell b;
  steady_time_source source;
  source.start();
  source.wake_at((time_point::max)(), wake(b));
  source.stop();
  CHECK(b.rings == 0);
}

TEST_CASE("8.7 steady_time_source: without start it has no thread and wakes nobody") {
  bell b;
  {
    steady_time_source source;
    source.wake_at(turnkey::clock::now() - 1s, wake(b));
  }
  CHECK(b.rings == 0);
  CHECK(b.kept == 0);
}

TEST_CASE("8.7 steady_time_source: stop waits for a wake that is under way, unless it is told not to") {
  struct slow_bell : turnkey::detail::wakeable {
    slow_bell()
        : wakeable{[](wakeable& b) noexcept { ++static_cast<slow_bell&>(b).kept; },
                   [](wakeable& b) noexcept { --static_cast<slow_bell&>(b).kept; },
                   [](wakeable& b) noexcept {
                     auto& mine = static_cast<slow_bell&>(b);
                     mine.begun.count_down();
                     mine.over.wait();
                     mine.done = true;
                   }} {}
    std::atomic<int> kept = 0;
    std::latch begun{1};
    std::latch over{1};
    std::atomic<bool> done = false;
  };
  for (const bool waits : {false, true}) {
    CAPTURE(waits);
    slow_bell b;
    steady_time_source source;
    source.start();
    source.wake_at(turnkey::clock::now(), wake(b));
    b.begun.wait();
    std::thread other;
    if (waits) {
      other = std::thread([&b] {
        std::this_thread::sleep_for(20ms);
        b.over.count_down();
      });
    }
    source.stop(waits);
    CHECK(b.done == waits);
    if (waits) {
      other.join();
    } else {
      b.over.count_down();
      while (b.kept != 0) std::this_thread::yield();
    }
  }
}

TEST_CASE("8.7 steady_time_source: after stop nothing is called, and stop may come twice") {
  bell b;
  steady_time_source source;
  source.start();
  source.start();
  source.stop();
  source.stop();
  source.wake_at(turnkey::clock::now(), wake(b));
  source.start();
  CHECK(b.rings == 0);
  CHECK(b.kept == 0);
}
