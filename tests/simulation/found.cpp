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

// ---- tasks of several keys, by random programs while they were made

// A pause that was there before the first of them came was not seen to end: none was looked at again.
TEST_CASE("7.7 found: the end of a pause that was there first lets a task of several keys start") {
  run_bytes({0, 233, 142, 38, 217, 33, 0, 0, 0, 100, 156, 0, 142, 177, 0, 0, 214, 119, 223});
}

// A redriven task reserved before the ordered ones behind it were looked at: these went on reserving other keys.
TEST_CASE("7.7 found: an ordered task of several keys stops reserving when a redriven one comes before it") {
  run_bytes({0, 0, 43, 15, 238, 0, 117, 107, 185, 121, 38, 79, 233, 0, 0, 57, 0, 189, 199, 208, 133, 255});
}

// The lines that a cancel made ready were pushed shard by shard: an inline executor ran one before the observer had
// heard of the cancel.
TEST_CASE("7.7, 9.4 found: what happened in all shards is told before anything that it allows begins") {
  run_bytes({0,   230, 114, 0,   0, 0, 0,   232, 46,  107, 0, 0,   0,   0, 0,   105, 0, 209, 59, 175, 194,
             140, 139, 0,   118, 0, 0, 112, 0,   90,  0,   0, 124, 0,   0, 197, 0,   0, 0,   0,  179, 151,
             0,   0,   0,   148, 0, 0, 0,   0,   234, 83,  0, 0,   245, 0, 0,   114, 0, 201, 0,  71});
}
