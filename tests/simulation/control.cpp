// What random programs seldom meet: control from inside a callback while another worker is in the middle of its turn.
// The model judges each step, as it does those of random programs.
#include "support/world.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <vector>

using namespace support;

namespace {

using turnkey::policy;

// Two workers: what `inner` does is done in a callback of key 2, on another thread, while a callback of key 1 is under
// way. Both keys have a task more, which nothing but `inner` keeps back. Gives how many tasks started before the outer
// callback returned.
template <class Inner>
std::size_t starts_of_two_workers(Inner inner) {
  turnkey::testing::manual_executor pool;
  world w(pool);
  std::size_t started = 0;
  w.submit(1, policy::ordered, [&](turnkey::attempt&) {
    w.run_elsewhere();
    CHECK(w.verdict() == "");
    started = w.starts.size();
    return turnkey::outcome::success();
  });
  w.submit(2, policy::ordered, [&](turnkey::attempt&) {
    inner(w);
    return turnkey::outcome::success();
  });
  for (const int key : {1, 2}) w.submit(key, policy::ordered);
  w.run_all();
  CHECK(w.verdict() == "");
  w.set_max_in_flight({});
  w.set_pace({});
  w.resume();
  for (const int key : {1, 2}) w.resume(key);
  w.run_all();
  CHECK(w.drain() == turnkey::drain_result::drained);
  CHECK(w.verdict() == "");
  return started;
}

}  // namespace

TEST_CASE("2.11 control from inside a callback ends its worker's turn, and the other's") {
  CHECK(starts_of_two_workers([](world&) {}) == 3);
  CHECK(starts_of_two_workers([](world& w) { w.pause(); }) == 2);
  CHECK(starts_of_two_workers([](world& w) { w.pause(2); }) == 2);
  CHECK(starts_of_two_workers([](world& w) { w.pause(1); }) == 3);
  CHECK(starts_of_two_workers([](world& w) { w.set_max_in_flight(1); }) == 2);
  CHECK(starts_of_two_workers([](world& w) { w.set_max_in_flight(2); }) == 3);
  CHECK(starts_of_two_workers([](world& w) { w.set_pace(turnkey::pace{.n = 1, .interval = 1s}); }) == 3);
}

TEST_CASE("2.11, 6.2 a pause inside, and steps after it: only these pass") {
  for (const std::size_t steps : {0U, 1U, 2U}) {
    const auto started = starts_of_two_workers([steps](world& w) {
      w.pause();
      w.step(steps);
    });
    CHECK(started == 2 + (steps != 0));  // key 1 is busy
  }
}

// The lowered limit is no pre-emption, and no pause either: what runs finishes, and then one after the other starts.
TEST_CASE("6.3 a limit that was lowered under what runs is kept from the next start on") {
  turnkey::testing::manual_executor pool;
  world w(pool, {.turn_budget = 1});
  std::size_t inside = 0;
  std::size_t most = 0;
  const auto callback = [&](turnkey::attempt&) {
    most = (std::max)(most, ++inside);
    if (w.starts.size() < 4) {
      w.run_elsewhere();
      if (inside == 3) w.set_max_in_flight(1);
    }
    --inside;
    return turnkey::outcome::success();
  };
  for (int i = 0; i != 8; ++i) w.submit(i, policy::parallel, callback);
  w.run_all();
  CHECK(most == 4);
  CHECK(w.verdict() == "");
  CHECK(w.drain() == turnkey::drain_result::drained);
}

TEST_CASE("6.4 while the callback that took the last start of the pace is under way, another worker is sent for") {
  turnkey::testing::manual_executor pool;
  world w(pool);
  w.set_pace(turnkey::pace{.n = 2, .interval = 2s});
  std::vector<std::size_t> starts;
  w.submit(1, policy::parallel, [&](turnkey::attempt&) {
    w.time.advance(1s);
    w.run_elsewhere();
    starts.push_back(w.starts.size());
    return turnkey::outcome::success();
  });
  w.submit(2, policy::parallel);
  w.submit(3, policy::parallel);
  w.run_all();
  CHECK(starts == std::vector<std::size_t>{2});
  CHECK(w.verdict() == "");
  w.time.advance(1s);
  w.run_all();
  CHECK(w.starts.size() == 3);
  CHECK(w.verdict() == "");
}

TEST_CASE("2.9, 6.2 an expedited retry stands in its line by the time at which it was made due") {
  turnkey::testing::manual_executor pool;
  world w(pool);
  const turnkey::task_options retried{.policy = policy::exclusive, .retry = turnkey::retry_policy{}};
  const auto slow = w.submit(1, retried, says({turnkey::outcome::retry_after(10ms)})).value();
  const auto quick = w.submit(1, retried, says({turnkey::outcome::retry_after(4ms)})).value();
  w.run_all();
  w.pause();
  CHECK(w.expedite(slow));
  w.time.advance(5ms);
  w.resume();
  w.run_all();
  CHECK(w.starts == std::vector{slow, quick, slow, quick});
  CHECK(w.verdict() == "");
}
