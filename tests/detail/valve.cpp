#include <turnkey/detail/valve.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <optional>

using turnkey::pace;
using turnkey::time_point;
using turnkey::detail::pass;
using turnkey::detail::schedule;
using turnkey::detail::ticket;
using turnkey::detail::valve;
using namespace std::chrono_literals;

namespace {

const time_point noon{12h};

}  // namespace

TEST_CASE("6.3, 8.5 valve: what may start is limited by the lines and by the places that are free") {
  valve v(2, 16);
  CHECK(v.startable(0) == 0);
  CHECK(v.startable(3) == 2);
  const ticket one = v.take(noon);
  CHECK(one.starts == 16);
  CHECK(v.startable(3) == 1);
  const ticket two = v.take(noon);
  CHECK(v.startable(3) == 0);
  CHECK(v.full());
  v.set_max_in_flight(1);  // fewer than run
  CHECK(v.startable(3) == 0);
  v.give_back(one, true);
  CHECK(v.startable(3) == 0);
  v.give_back(two, true);
  CHECK(v.startable(3) == 1);
  v.set_max_in_flight({});
  CHECK(v.startable(3) == 3);
  v.stop();
  CHECK(v.startable(3) == 0);
}

TEST_CASE("2.11 valve: what is stricter has a new epoch; a second pause has not") {
  valve v({}, 16);
  const std::uint64_t before = v.take(noon).epoch;
  const std::uint64_t paused = v.pause();
  CHECK(paused > before);
  CHECK(v.pause() == paused);
  CHECK(v.set_max_in_flight(1) > paused);
  const std::uint64_t paced = v.set_pace(pace{});
  CHECK(paced > paused);
  CHECK(v.resume() == nullptr);
  CHECK(v.take(noon).epoch == paced);
}

TEST_CASE("6.2 valve: a step that was not used is there again, unless it was of an earlier pause") {
  valve v({}, 16);
  v.pause();
  v.step(1);
  CHECK(v.startable(5) == 1);
  ticket t = v.take(noon);
  CHECK(t.starts == 1);
  CHECK(v.startable(5) == 0);
  v.give_back(t, false);
  CHECK(v.startable(5) == 1);
  t = v.take(noon);
  static_cast<void>(v.resume());
  v.pause();
  v.give_back(t, false);
  CHECK(v.startable(5) == 0);
}

TEST_CASE("6.2 valve: passes go first, in their order; one that was revoked is there again") {
  valve v({}, 16);
  v.pause();
  v.step(1);
  for (const std::uint64_t id : {7U, 8U}) v.step(*new pass{.id = id});
  CHECK(v.startable(0) == 2);
  const ticket first = v.take(noon);
  REQUIRE(first.pass != nullptr);
  CHECK(first.pass->id == 7);
  v.set_max_in_flight(5);  // revokes
  CHECK(v.give_back(first, false) == nullptr);
  const ticket second = v.take(noon);
  CHECK(second.pass->id == 8);
  CHECK(v.give_back(second, true) == second.pass);
  delete second.pass;
  const ticket again = v.take(noon);
  CHECK(again.pass->id == 7);
  CHECK(v.give_back(again, false) == again.pass);  // its task was not ready: nobody else passes
  delete again.pass;
  CHECK(v.take(noon).pass == nullptr);
  v.step(*new pass{.id = 9});  // the destructor's
}

TEST_CASE("6.4 valve: after the burst the pace lets one through in each gap, and gives back what was not used") {
  valve v({}, 16);
  v.set_pace(pace{.n = 2, .interval = 1s, .burst = 2});
  CHECK(v.startable(9) == 9);
  CHECK(v.take(noon).starts == 1);
  CHECK(!v.shut_until());
  const ticket t = v.take(noon);
  CHECK(v.shut_until() == noon + 500ms);
  CHECK(v.startable(9) == 0);
  v.ring(noon + 499ms);
  CHECK(v.startable(9) == 0);
  v.give_back(t, false);
  CHECK(!v.shut_until());
  CHECK(v.take(noon).now == noon + 499ms);  // time does not run backwards
  CHECK(v.shut_until() == noon + 500ms);
  v.ring(noon + 500ms);
  CHECK(v.startable(9) == 9);
  v.set_pace({});
  CHECK(v.take(noon).starts == 16);
}

TEST_CASE("6.4 valve: the schedule saturates at both ends of time") {
  schedule slow(pace{.n = 1e-300, .interval = 1h, .burst = ~std::uint32_t{0}});
  CHECK(slow.opens() == (time_point::min)());
  slow.spend((time_point::min)());
  slow.spend((time_point::max)());
  CHECK(slow.opens() > noon);
  schedule fast(pace{.n = 1e300});
  fast.spend(noon);
  CHECK(fast.opens() <= noon + 1ns);
}
