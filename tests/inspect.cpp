#include <turnkey/inspect.hpp>

#include <doctest/doctest.h>

#include <stdexcept>
#include <string>
#include <type_traits>

using turnkey::reject_reason;
using turnkey::rejected;
using turnkey::stats;
using turnkey::submit_result;
using turnkey::task_id;

TEST_CASE("4.1 submit_result: it has the id or the reason") {
  const submit_result good = task_id{7};
  CHECK(good);
  CHECK(good.has_value());
  CHECK(good.value() == task_id{7});
  CHECK(*good == task_id{7});
  CHECK(!good.reason());
  const submit_result bad = reject_reason::full;
  CHECK(!bad);
  CHECK(!bad.has_value());
  CHECK(bad.reason() == reject_reason::full);
}

TEST_CASE("4.1 submit_result: asked for an id that there is not, it throws the reason") {
  const submit_result bad = reject_reason::key_full;
  CHECK_THROWS_AS(static_cast<void>(bad.value()), rejected);
  try {
    static_cast<void>(*bad);
    FAIL("no exception");
  } catch (const rejected& e) {
    CHECK(e.reason() == reject_reason::key_full);
    CHECK(std::string(e.what()).find("key_full") != std::string::npos);
  }
}

TEST_CASE("4.1 rejected: it is a runtime_error with a reason") {
  static_assert(std::is_base_of_v<std::runtime_error, rejected>);
  const rejected e(reject_reason::closed, "too late");
  CHECK(e.reason() == reject_reason::closed);
  CHECK(std::string(e.what()) == "too late");
}

TEST_CASE("9.1 stats: unfinished is the sum of the four states that are not final") {
  stats s;
  CHECK(s.unfinished() == 0);
  s.waiting = 1;
  s.ready = 10;
  s.running = 100;
  s.delayed = 1000;
  s.dead = 10000;
  CHECK(s.unfinished() == 1111);
}

TEST_CASE("4.2, 9.2, 10.1 to_string: each value has its name, and what is no value has none") {
  using turnkey::drain_result;
  using turnkey::task_state;
  const auto names = []<class Enum>(Enum last) {
    std::string all;
    for (int i = 0; i <= static_cast<int>(last) + 1; ++i) all += std::string(" ") + to_string(static_cast<Enum>(i));
    return all;
  };
  CHECK(names(task_state::undone) == " waiting ready running delayed succeeded dead cancelled undone ?");
  CHECK(names(reject_reason::empty_callback) == " closed full key_full needs_key invalid_options empty_callback ?");
  CHECK(names(drain_result::would_deadlock) == " drained timed_out stalled stopped would_deadlock ?");
}
