#include <turnkey/outcome.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <exception>
#include <stdexcept>
#include <string>

using turnkey::asked_to_fail;
using turnkey::duration;
using turnkey::failure;
using turnkey::failure_reason;
using turnkey::outcome;
using namespace std::chrono_literals;

TEST_CASE("3 outcome: each says its kind, its delay and its words") {
  CHECK(outcome::success().what() == outcome::kind::success);
  CHECK(outcome::retry().what() == outcome::kind::retry);
  CHECK(outcome::retry_after(3s).what() == outcome::kind::retry_after);
  CHECK(outcome::retry_after(3s).delay() == 3s);
  CHECK(outcome::postpone(-2s).what() == outcome::kind::postpone);
  CHECK(outcome::postpone(-2s).delay() == -2s);
  CHECK(outcome::dead().what() == outcome::kind::dead);
  for (const outcome& o : {outcome::retry("x"), outcome::retry_after(1s, "x"), outcome::dead("x")}) {
    REQUIRE(o.why() != nullptr);
    CHECK_THROWS_AS(std::rethrow_exception(o.why()), asked_to_fail);
  }
}

TEST_CASE("3 outcome: without words there is no exception") {
  CHECK(outcome::success().why() == nullptr);
  CHECK(outcome::retry().why() == nullptr);
  CHECK(outcome::retry_after(1s).why() == nullptr);
  CHECK(outcome::dead().why() == nullptr);
}

TEST_CASE("5.1 failure: its text is what was thrown or said, else the reason") {
  const auto of = [](auto exception) { return std::make_exception_ptr(exception); };
  CHECK(failure(failure_reason::threw, of(std::runtime_error("no disk"))).text() == "no disk");
  CHECK(failure(failure_reason::asked, outcome::retry("busy").why()).text() == "busy");
  CHECK(failure(failure_reason::threw, of(5)).text() == "an exception that is not a std::exception");
  CHECK(failure(failure_reason::asked, nullptr).text() == "asked");
  CHECK(failure(failure_reason::postponed_out, nullptr).text() == "postponed out");
  CHECK(failure(failure_reason::abandoned, nullptr).text() == "abandoned");
  CHECK(failure(failure_reason::lease_lost, nullptr).text() == "lease lost");
  CHECK(failure(failure_reason::threw, nullptr).text() == "threw");
}

TEST_CASE("5.1 failure: copies share the exception") {
  const failure first(failure_reason::threw, std::make_exception_ptr(1));
  const failure second = first;  // NOLINT(performance-unnecessary-copy-initialization)
  CHECK(second.exception() == first.exception());
  CHECK(second.reason() == failure_reason::threw);
}

TEST_CASE("5.1 failure_reason: what is no value has no name") {
  CHECK(std::string(to_string(static_cast<failure_reason>(99))) == "?");
}
