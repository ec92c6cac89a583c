#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <vector>

using turnkey::options;
using turnkey::outcome;
using turnkey::scheduler;
using turnkey::time_point;
using turnkey::work;
using turnkey::testing::manual_executor;
using turnkey::testing::manual_time;
using turnkey::testing::on_offer;
using namespace std::chrono_literals;

namespace {

// Permits that write down their number when they begin and when they end.
struct permit_maker {
  struct numbered : turnkey::detail::permit {
    int number = 0;
    permit_maker* maker = nullptr;
  };
  work make(int i) {
    numbered& p = all[static_cast<std::size_t>(i)];
    p.references = 1;
    p.number = i;
    p.maker = this;
    p.begin = [](permit& come) noexcept {
      auto& self = static_cast<numbered&>(come);
      self.maker->begun.push_back(self.number);
    };
    p.gone = [](permit& dead) noexcept { ++static_cast<numbered&>(dead).maker->ended; };
    return work::adopt(static_cast<permit*>(&p));
  }
  using permit = turnkey::detail::permit;
  numbered all[8];
  std::vector<int> begun;
  int ended = 0;
};

}  // namespace

TEST_CASE("8.8 manual_executor: it runs permits when told, the oldest first, or the one that is named") {
  permit_maker maker;
  manual_executor pool;
  for (int i = 0; i != 5; ++i) CHECK(pool(maker.make(i)));
  CHECK(maker.begun.empty());
  CHECK(pool.size() == 5);
  CHECK(pool.run_one(3));
  CHECK(pool.run_one());
  CHECK(!pool.run_one(3));
  CHECK(pool.run_all() == 3);
  CHECK(maker.begun == std::vector{3, 0, 1, 2, 4});
  CHECK(maker.ended == 5);
  CHECK(pool.offered() == 5);
  CHECK(!pool.run_one());
}

TEST_CASE("8.8 manual_executor: it can drop and double permits") {
  permit_maker maker;
  manual_executor pool;
  for (int i = 0; i != 3; ++i) pool(maker.make(i));
  CHECK(pool.double_one(1));
  CHECK(pool.drop_one());
  CHECK(maker.ended == 1);
  CHECK(!pool.drop_one(7));
  CHECK(!pool.double_one(7));
  CHECK(pool.run_all() == 3);
  CHECK(maker.begun == std::vector{1, 2, 1});
  pool(maker.make(3));
  CHECK(pool.drop_all() == 1);
}

TEST_CASE("8.8 manual_executor: each mode does what its name says") {
  permit_maker maker;
  manual_executor pool;
  pool.set_mode(on_offer::run);
  CHECK(pool(maker.make(0)));
  pool.set_mode(on_offer::refuse);
  CHECK(!pool(maker.make(1)));
  pool.set_mode(on_offer::fail);
  CHECK_THROWS(static_cast<void>(pool(maker.make(2))));
  pool.set_mode(on_offer::drop);
  CHECK(pool(maker.make(3)));
  CHECK(pool.size() == 0);
  CHECK(maker.ended == 4);
  pool.set_mode(on_offer::queue_and_refuse);
  CHECK(!pool(maker.make(4)));
  pool.set_mode(on_offer::queue_and_fail);
  CHECK_THROWS(static_cast<void>(pool(maker.make(5))));
  CHECK(pool.run_all() == 2);
  CHECK(maker.begun == std::vector{0, 4, 5});
}

TEST_CASE("8.8 manual_executor: its end drops what it still has") {
  permit_maker maker;
  {
    manual_executor pool;
    pool(maker.make(0));
  }
  CHECK(maker.ended == 1);
  CHECK(maker.begun.empty());
}

TEST_CASE("8.8 manual_time: it stands still until told") {
  manual_time time;
  CHECK(time.now() == manual_time::start);
  time.advance(3s);
  time.jump(2s);
  CHECK(time.now() == manual_time::start + 5s);
  time.jump(-1h);  // it never runs backwards
  CHECK(time.now() == manual_time::start + 5s);
  time.advance((turnkey::duration::max)());
  CHECK(time.now() == (time_point::max)());
}

TEST_CASE("8.8 manual_time: advance stops at every wake on the way, jump at none") {
  for (const bool jumps : {false, true}) {
    manual_time time;
    std::vector<turnkey::duration> ran;
    scheduler<std::string> tasks(turnkey::inline_executor{}, {.time = &time});
    for (const auto delay : {3s, 1s, 2s})
      tasks.submit({.delay = delay}, [&] { ran.push_back(time.now() - time.start); });
    CHECK(time.next_wake() == time.now() + 1s);
    if (jumps) {
      time.jump(5s);
      CHECK(ran == std::vector<turnkey::duration>{5s, 5s, 5s});
    } else {
      time.advance(5s);
      CHECK(ran == std::vector<turnkey::duration>{1s, 2s, 3s});
    }
    CHECK(!time.next_wake());
    CHECK(time.now() == time.start + 5s);
  }
}

TEST_CASE("8.8 manual_time: ring wakes at once, and without a wake it does nothing") {
  manual_time time;
  time.ring();
  int runs = 0;
  scheduler<std::string> tasks(turnkey::inline_executor{}, {.time = &time});
  tasks.submit("a", {.delay = 1s}, [&runs] { ++runs; });
  time.ring();
  CHECK(runs == 0);
  CHECK(time.next_wake() == time.now() + 1s);
}
