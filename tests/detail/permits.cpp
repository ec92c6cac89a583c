#include <turnkey/detail/permits.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <thread>

namespace {

using namespace std::chrono_literals;
using turnkey::time_point;
using turnkey::detail::offered_permit;
using turnkey::detail::permits;
using turnkey::detail::visitor;

constexpr time_point now{1h};

// Permits belong to whoever has them: what is not given back is deleted here.
struct box {
  explicit box(int count) {
    for (int i = 0; i != count; ++i) all.add(*new offered_permit);
  }
  permits all;
};

bool anybody(const visitor&) { return true; }

}  // namespace

TEST_CASE("8.5 permits: no more are out than lines may start, and one at a time is on its way") {
  box b(2);
  CHECK(b.all.offer(0) == nullptr);
  offered_permit* const first = b.all.offer(1);
  REQUIRE(first != nullptr);
  CHECK(b.all.offer(5) == nullptr);
  CHECK(b.all.out() == 1);
  b.all.begun(*first);
  CHECK(b.all.out() == 0);
  offered_permit* const second = b.all.offer(5);
  REQUIRE(second != nullptr);
  b.all.take_back(*first);
  CHECK(b.all.out() == 1);
  b.all.take_back(*second);
  CHECK(b.all.out() == 0);
}

TEST_CASE("8.3 permits: after a refusal the next one is offered after 1 ms, and the pause doubles up to 100 ms") {
  box b(1);
  const std::chrono::milliseconds pauses[] = {1ms, 2ms, 4ms, 8ms, 16ms, 32ms, 64ms, 100ms, 100ms};
  for (const auto pause : pauses) {
    offered_permit* const p = b.all.offer(1);
    REQUIRE(p != nullptr);
    CHECK(b.all.failed(*p, now));
    CHECK(b.all.offer_again() == now + pause);
    b.all.take_back(*p);
    CHECK(b.all.offer(1) == nullptr);
    b.all.ring(now + pause - 1ns);
    CHECK(b.all.offer(1) == nullptr);
    b.all.ring(now + pause);
  }
}

TEST_CASE("8.3 permits: one that is refused after it has begun is no refusal") {
  box b(2);
  offered_permit* const p = b.all.offer(1);
  b.all.begun(*p);
  CHECK(!b.all.failed(*p, now));
  CHECK(!b.all.offer_again());
  b.all.take_back(*p);
}

TEST_CASE("10.1 permits: stalled after eight refusals in a row, until one is taken") {
  box b(1);
  for (int i = 0; i != 8; ++i) {
    CHECK(!b.all.stalled());
    offered_permit* const p = b.all.offer(1);
    REQUIRE(p != nullptr);
    b.all.failed(*p, now);
    b.all.take_back(*p);
    b.all.ring(now + 1s);
  }
  CHECK(b.all.stalled());
  offered_permit* const p = b.all.offer(1);
  REQUIRE(p != nullptr);
  CHECK(!b.all.stalled());
  b.all.begun(*p);
  CHECK(!b.all.stalled());
  b.all.take_back(*p);
}

TEST_CASE("10 permits: a thread finds itself among the visitors, and nobody else") {
  box b(0);
  visitor here;
  CHECK(!b.all.anybody());
  b.all.enter(here);
  CHECK(b.all.anybody());
  CHECK(b.all.mine(anybody) == &here);
  std::thread([&] {
    CHECK(b.all.mine(anybody) == nullptr);
    visitor there;
    b.all.enter(there);
    CHECK(b.all.mine(anybody) == &there);
    b.all.leave(there);
  }).join();
  b.all.leave(here);
  CHECK(!b.all.anybody());
}
