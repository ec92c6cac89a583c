#include <turnkey/detail/valve.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <random>
#include <utility>
#include <vector>

using turnkey::pace;
using turnkey::time_point;
using turnkey::detail::pass;
using turnkey::detail::schedule;
using turnkey::detail::ticket;
using turnkey::detail::valve;
using namespace std::chrono_literals;

namespace {

// A ticket, and the time that it was given for.
struct taken : ticket {
  time_point now{};
};

taken take(valve& v, time_point now) {
  taken t;
  t.now = now;
  v.take(t, t.now);
  return t;
}

const time_point noon{12h};

}  // namespace

TEST_CASE("6.3, 8.5 valve: what may start is limited by the lines and by the places that are free") {
  valve v(2, 16);
  CHECK(v.startable(0) == 0);
  CHECK(v.startable(3) == 2);
  const ticket one = take(v, noon);
  CHECK(one.starts == 16);
  CHECK(v.startable(3) == 1);
  const ticket two = take(v, noon);
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
  const std::uint64_t before = take(v, noon).epoch;
  const std::uint64_t paused = v.pause();
  CHECK(paused > before);
  CHECK(v.pause() == paused);
  CHECK(v.set_max_in_flight(1) > paused);
  const std::uint64_t paced = v.set_pace(pace{});
  CHECK(paced > paused);
  CHECK(v.resume() == nullptr);
  CHECK(take(v, noon).epoch == paced);
}

TEST_CASE("6.2 valve: a step that was not used is there again, unless it was of an earlier pause") {
  valve v({}, 16);
  v.pause();
  v.step(1);
  CHECK(v.startable(5) == 1);
  ticket t = take(v, noon);
  CHECK(t.starts == 1);
  CHECK(v.startable(5) == 0);
  v.give_back(t, false);
  CHECK(v.startable(5) == 1);
  t = take(v, noon);
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
  const ticket first = take(v, noon);
  REQUIRE(first.pass != nullptr);
  CHECK(first.pass->id == 7);
  v.set_max_in_flight(5);  // revokes
  CHECK(v.give_back(first, false) == nullptr);
  const ticket second = take(v, noon);
  CHECK(second.pass->id == 8);
  CHECK(v.give_back(second, true) == second.pass);
  delete second.pass;
  const ticket again = take(v, noon);
  CHECK(again.pass->id == 7);
  CHECK(v.give_back(again, false) == again.pass);  // its task was not ready: nobody else passes
  delete again.pass;
  CHECK(take(v, noon).pass == nullptr);
  v.step(*new pass{.id = 9});  // the destructor's
}

TEST_CASE("6.4 valve: after the burst the pace lets one through in each gap, and gives back what was not used") {
  valve v({}, 16);
  v.set_pace(pace{.n = 2, .interval = 1s, .burst = 2});
  CHECK(v.startable(9) == 9);
  CHECK(take(v, noon).starts == 1);
  CHECK(v.shut_until() == valve::never);
  const taken t = take(v, noon);
  CHECK(v.shut_until() == noon + 500ms);
  CHECK(v.startable(9) == 0);
  v.ring(noon + 499ms);
  CHECK(v.startable(9) == 0);
  v.give_back(t, false);
  CHECK(v.shut_until() == valve::never);
  CHECK(take(v, noon).now == noon + 499ms);  // time does not run backwards
  CHECK(v.shut_until() == noon + 500ms);
  v.ring(noon + 500ms);
  CHECK(v.startable(9) == 9);
  v.set_pace({});
  CHECK(take(v, noon).starts == 16);
}

// An unused right was given back to a schedule that had gone on meanwhile: two started at one time, with a burst of 1.
TEST_CASE("6.4 valve: a right that comes back late lets nobody start too early") {
  valve v({}, 16);
  v.set_pace(pace{.n = 1, .interval = 1s});
  const ticket slow = take(v, noon);
  v.ring(noon + 1s);
  const ticket next = take(v, noon + 1s);
  CHECK(v.give_back(next, true) == nullptr);
  v.give_back(slow, false);
  CHECK(v.startable(1) == 0);
  CHECK(v.shut_until() == noon + 2s);
  v.ring(noon + 2s);
  CHECK(v.startable(1) == 1);
}

// Steps were counted up without a look at the largest number.
TEST_CASE("6.2 valve: an unused step comes back to the largest number of steps") {
  valve v({}, 16);
  v.pause();
  v.step(~std::uint64_t{0});
  const taken t = take(v, noon);
  v.step(~std::uint64_t{0});
  v.give_back(t, false);
  CHECK(v.startable(5) == 5);
}

TEST_CASE("6.4 valve: what comes back of a burst is there again, in whatever order") {
  for (const bool first_first : {true, false}) {
    valve v({}, 16);
    v.set_pace(pace{.n = 1, .interval = 1s, .burst = 3});
    std::vector<taken> out;
    for (int i = 0; i != 3; ++i) out.push_back(take(v, noon));
    CHECK(v.startable(1) == 0);
    v.give_back(out[first_first ? 0 : 2], false);
    v.give_back(out[1], true);
    CHECK(v.startable(1) == 1);
    v.give_back(take(v, noon), true);
    CHECK(v.startable(1) == 0);
    CHECK(v.shut_until() == noon + 1s);
  }
}

TEST_CASE("6.4 valve: no window has too many starts, whatever comes back unused and when") {
  for (std::uint32_t seed = 0; seed != 200; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const auto below = [&random](std::uint32_t n) { return static_cast<std::uint32_t>(random() % n); };
    const pace p{.n = 1, .interval = 10ns, .burst = 1 + below(4)};
    valve v({}, 16);
    v.set_pace(p);
    time_point now = noon;
    std::vector<taken> out;
    std::vector<time_point> starts;
    for (int i = 0; i != 200; ++i) {
      if (below(2) == 0) now += turnkey::duration{below(12)};
      v.ring(now);
      if (v.startable(9) != 0) out.push_back(take(v, now));
      if (out.empty() || below(2) == 0) continue;
      const std::size_t which = below(static_cast<std::uint32_t>(out.size()));
      const taken t = out[which];
      out.erase(out.begin() + static_cast<std::ptrdiff_t>(which));
      const bool used = below(3) != 0;
      if (used) starts.push_back(t.now);
      v.give_back(t, used);
    }
    bool too_many = false;
    for (const time_point from : starts)
      for (const time_point to : starts) {
        std::int64_t within = 0;
        for (const time_point each : starts) within += from <= each && each <= to;
        too_many = too_many || (from <= to && (within - p.burst) * 10 > (to - from).count());
      }
    CHECK(!too_many);
    CHECK(starts.size() > 20);
  }
}

TEST_CASE("6.4 valve: a right of an earlier pace is given back to nobody") {
  valve v({}, 16);
  v.set_pace(pace{.n = 1, .interval = 1h});
  const ticket before = take(v, noon);
  v.set_pace(pace{.n = 1, .interval = 1h});  // what started before does not count
  CHECK(v.startable(1) == 1);
  v.give_back(take(v, noon), true);
  v.give_back(before, false);
  CHECK(v.shut_until() == noon + 1h);
  v.set_pace({});
  CHECK(v.shut_until() == valve::never);
  CHECK(take(v, noon).pace == 0);
}

TEST_CASE("6.4 valve: a clock that is behind lets nobody start earlier") {
  valve v({}, 16);
  v.set_pace(pace{.n = 1, .interval = 1s});
  v.ring(noon);
  CHECK(take(v, noon - 1h).now == noon);
  CHECK(v.shut_until() == noon + 1s);
  v.ring(noon - 1h);
  CHECK(v.startable(1) == 0);
  CHECK(take(v, noon + 1s).now == noon + 1s);
}

TEST_CASE("6.2, 6.4 valve: a pace alone does not use up steps, and steps do not open a pace") {
  valve v({}, 16);
  v.set_pace(pace{.n = 1, .interval = 1s});
  v.pause();
  CHECK(v.startable(5) == 0);
  v.step(2);
  CHECK(v.startable(5) == 2);
  v.give_back(take(v, noon), true);
  CHECK(v.startable(5) == 0);
  v.ring(noon + 1s);
  CHECK(v.startable(5) == 1);
  v.give_back(take(v, noon + 1s), true);
  v.ring(noon + 2s);
  CHECK(v.startable(5) == 0);
}

TEST_CASE("6.2 valve: resume drops steps and passes, and hands the passes out for deletion") {
  valve v({}, 16);
  v.pause();
  v.step(3);
  for (const std::uint64_t id : {7U, 8U}) v.step(*new pass{.id = id});
  pass* dropped = v.resume();
  for (const std::uint64_t id : {7U, 8U}) {
    REQUIRE(dropped != nullptr);
    CHECK(dropped->id == id);
    delete std::exchange(dropped, dropped->next);
  }
  CHECK(dropped == nullptr);
  v.pause();
  CHECK(v.startable(5) == 0);
  v.step(*new pass{.id = 9});  // after the list was emptied
  const taken t = take(v, noon);
  CHECK(t.pass->id == 9);
  CHECK(v.resume() == nullptr);
  CHECK(v.give_back(t, false) == t.pass);  // of a pause that is over: not there again
  delete t.pass;
}

TEST_CASE("6.6 valve: pause, limit and pace each keep their own") {
  valve v(2, 16);
  v.set_pace(pace{.n = 1, .interval = 1s, .burst = 5});
  v.pause();
  v.step(3);
  v.set_max_in_flight(1);
  CHECK(v.paused());
  CHECK(v.startable(9) == 1);
  v.set_max_in_flight({});
  CHECK(v.startable(9) == 3);  // the steps are still there
  v.set_pace({});
  CHECK(v.startable(9) == 3);
  CHECK(!v.max_in_flight());
  v.set_max_in_flight(7);
  static_cast<void>(v.resume());
  CHECK(v.max_in_flight() == 7U);
  CHECK(v.startable(9) == 7);
}

TEST_CASE("6.4 valve: the schedule is rounded to the slower side") {
  schedule s(pace{.n = 3, .interval = 10ns});
  s.spend(noon);
  CHECK(s.opens() == noon + 4ns);
  schedule exact(pace{.n = 5, .interval = 10ns, .burst = 3});
  for (int i = 0; i != 3; ++i) {
    CHECK(exact.opens() <= noon);
    exact.spend(noon);
  }
  CHECK(exact.opens() == noon + 2ns);
}

TEST_CASE("6.4 valve: a schedule that was idle has its burst, and no more") {
  schedule s(pace{.n = 1, .interval = 1s, .burst = 2});
  s.spend(noon);
  s.spend(noon + 1h);
  CHECK(s.opens() <= noon + 1h);
  s.spend(noon + 1h);
  CHECK(s.opens() == noon + 1h + 1s);
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

TEST_CASE("6.4 valve: a gap without end lets the first one through, and takes it back") {
  for (const time_point now : {(time_point::min)(), noon, (time_point::max)() - 1ns, (time_point::max)()}) {
    schedule s(pace{.n = 1e-300, .interval = turnkey::duration::max()});
    CHECK(s.opens() <= now);
    s.spend(now);
    CHECK((s.opens() > now || now == (time_point::max)()));
    s.give_back(s.spent());
    CHECK(s.opens() <= now);
  }
}

TEST_CASE("6.4 valve: without a gap everybody starts, and giving back is harmless") {
  schedule s(pace{.n = std::numeric_limits<double>::infinity()});
  for (int i = 0; i != 3; ++i) s.spend(noon);
  s.give_back(1);
  s.give_back(3);
  CHECK(s.opens() <= noon);
}
