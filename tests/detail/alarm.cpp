#include <turnkey/detail/alarm.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <functional>
#include <latch>
#include <thread>
#include <utility>
#include <vector>

using turnkey::time_point;
using turnkey::wake;
using namespace std::chrono_literals;

namespace {

// Notes what it is asked for, and does something meanwhile, the first time.
class noting_time final : public turnkey::time_source {
 public:
  [[nodiscard]] time_point now() noexcept override { return {}; }
  void wake_at(time_point time, wake) noexcept override {
    asked.push_back(time);
    if (meanwhile) std::exchange(meanwhile, nullptr)();
  }
  std::vector<time_point> asked;
  std::function<void()> meanwhile;
};

using times = std::vector<time_point>;

time_point at(std::chrono::seconds s) { return time_point{s}; }

}  // namespace

TEST_CASE("3.3, 8.7 alarm: only an earlier time is asked for") {
  noting_time source;
  turnkey::detail::alarm a(source);
  for (const auto s : {5s, 7s, 5s, 3s, 4s}) a.want(at(s), {});
  CHECK(source.asked == times{at(5s), at(3s)});
}

TEST_CASE("3.3, 8.7 alarm: once it rang, any time is asked for") {
  noting_time source;
  turnkey::detail::alarm a(source);
  a.want(at(3s), {});
  a.rung();
  a.want(at(9s), {});
  a.rung();
  a.want(at(9s), {});
  CHECK(source.asked == times{at(3s), at(9s), at(9s)});
}

TEST_CASE("8.7 alarm: a time that is wanted while it asks is asked for afterwards, never within") {
  noting_time source;
  turnkey::detail::alarm a(source);
  source.meanwhile = [&] {
    a.want(at(2s), {});
    a.want(at(4s), {});
    CHECK(source.asked.size() == 1);
  };
  a.want(at(3s), {});
  CHECK(source.asked == times{at(3s), at(2s)});
}

TEST_CASE("8.7 alarm: ringing while it asks loses no time that is wanted after it") {
  noting_time source;
  turnkey::detail::alarm a(source);
  source.meanwhile = [&] {
    a.rung();
    a.want(at(9s), {});
  };
  a.want(at(3s), {});
  CHECK(source.asked == times{at(3s), at(9s)});
}

TEST_CASE("10.3 alarm: after stop nothing is asked for") {
  noting_time source;
  turnkey::detail::alarm a(source);
  a.stop(true);
  a.want(at(3s), {});
  CHECK(source.asked.empty());
}

TEST_CASE("10.3 alarm: stop waits for the call that is under way, unless it is told not to") {
  for (const bool waits : {false, true}) {
    noting_time source;
    turnkey::detail::alarm a(source);
    std::latch inside{1};
    std::latch go_on{1};
    bool over = false;
    source.meanwhile = [&] {
      inside.count_down();
      if (waits) {
        for (int i = 0; i != 1000; ++i) std::this_thread::yield();
      } else {
        go_on.wait();
      }
      over = true;
    };
    std::thread asking([&] { a.want(at(3s), {}); });
    inside.wait();
    a.stop(waits);
    if (waits) CHECK(over);
    go_on.count_down();
    asking.join();
  }
}
