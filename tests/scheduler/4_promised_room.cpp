// What a submit was promised while its callback moves in, nobody else may take.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <doctest/doctest.h>

#include <utility>

namespace {

// A callback whose move into the scheduler does something.
template <class F>
class busy_mover {
 public:
  explicit busy_mover(F f) : f_(std::move(f)) {}
  busy_mover(busy_mover&& other) : f_(other.f_) { f_(); }
  void operator()() const {}

 private:
  F f_;
};

}  // namespace

// A submit found room for its id, moved its callback, and found the room taken by submits of other threads: it then
// looked for a free place for ever, under the shard's lock. Seen as a thread that spun for half an hour in the stress
// test.
TEST_CASE("4.4, 4.5 a submit has its place though others come while its callback moves in") {
  turnkey::testing::manual_executor executor;
  turnkey::scheduler<int> scheduler{executor};
  scheduler.submit(1, busy_mover([&] {
                     for (int i = 0; i != 100; ++i) scheduler.submit(1, [] {});
                   }));
  CHECK(scheduler.stats().waiting + scheduler.stats().ready == 101);
  executor.run_all();
  CHECK(scheduler.drain_for({}) == turnkey::drain_result::drained);
}

TEST_CASE("4.4, 4.5 a submit has its place though the last task leaves while its callback moves in") {
  turnkey::testing::manual_executor executor;
  turnkey::scheduler<int> scheduler{executor};
  for (int i = 0; i != 2000; ++i) scheduler.submit(1, [] {});
  scheduler.submit(1, busy_mover([&] { executor.run_all(); }));
  executor.run_all();
  CHECK(scheduler.drain_for({}) == turnkey::drain_result::drained);
  CHECK(scheduler.stats().succeeded == 2001);
}
