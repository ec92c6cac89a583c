// What random programs found once, as a program or, where it is clearer, as a case of its own: each opens with its
// story.
#include "simulation/program.hpp"

#include <doctest/doctest.h>

#include <cstdint>
#include <vector>

namespace {

using namespace std::chrono_literals;

void run_bytes(const std::vector<std::uint8_t>& bytes) { CHECK(simulation::program(bytes).run() == ""); }

}  // namespace

TEST_CASE("2 found: any bytes are a program, none at all is one too") {
  run_bytes({});
  run_bytes({255});
  for (int b = 0; b != 256; ++b) run_bytes(std::vector<std::uint8_t>(40, static_cast<std::uint8_t>(b)));
}

// Eight refusals in a row, and then the task that was ready is cancelled: its line still stood in the ready queue, and
// drain() said that it stalled, although all that is unfinished waits for its time and the executor is not needed.
TEST_CASE("10.1 found: drain() is not stalled when nothing is ready any more") {
  turnkey::testing::manual_executor pool;
  support::world w(pool, {.default_policy = turnkey::policy::exclusive});
  static_cast<void>(w.submit(1, {.delay = 1h}, support::succeeds()));
  pool.set_mode(turnkey::testing::on_offer::refuse);
  const auto ready = w.submit(1, support::succeeds());
  while (w.scheduler()->stats().executor_refusals < 8) w.time.advance(100ms);
  CHECK(w.drain() == turnkey::drain_result::stalled);
  CHECK(w.cancel(ready));
  CHECK(w.drain() == turnkey::drain_result::timed_out);
  CHECK(w.verdict() == "");
}

// max_pending was looked at before close() was: a submit_for() that waited for room was not woken by close().
TEST_CASE("4.1, 4.2 found: a full scheduler that is closed refuses because it is closed") {
  turnkey::testing::manual_executor pool;
  turnkey::scheduler<int> tasks(pool, {.max_pending = 1});
  tasks.submit(1, [] {});
  tasks.close();
  CHECK(tasks.try_submit(1, [] {}).reason() == turnkey::reject_reason::closed);
}

// The valve hears from the alarm that the pace has opened, and no alarm is set while nothing waits for it: find() said
// of a task that came later that the pace keeps it, until a time in the past.
TEST_CASE("6.4, 9.2 found: a pace that opened while nothing waited keeps nothing") {
  turnkey::testing::manual_executor pool;
  support::world w(pool);
  w.set_pace(turnkey::pace{});
  w.submit(1, support::succeeds());
  w.run_all();
  w.time.advance(2s);
  const auto later = w.submit(1, support::succeeds());
  CHECK(w.scheduler()->find(later)->why.kind == turnkey::why::reason::executor);
  CHECK(w.verdict() == "");
  w.time.ring();
  w.run_all();
  CHECK(w.drain() == turnkey::drain_result::drained);
}
