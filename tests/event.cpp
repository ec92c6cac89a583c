#include <turnkey/event.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>

using turnkey::event;
using turnkey::event_kind;
using turnkey::observer;

TEST_CASE("9.4 observer: empty by default, and any callable that takes an event") {
  const observer<int> none;
  CHECK(!none);
  int heard = 0;
  const observer<int> lambda = [&heard](const event<int>&) { ++heard; };
  const observer<int> with_result = [&heard](const event<int>&) { return ++heard; };
  const observer<int> wrapped = std::function<void(const event<int>&)>([&heard](const auto&) { ++heard; });
  for (const auto* each : {&lambda, &with_result, &wrapped}) {
    CHECK(*each);
    (*each)({});
  }
  CHECK(heard == 3);
}

TEST_CASE("9.4 observer: what it throws is dropped") {
  const observer<int> throwing = [](const event<int>&) { throw 1; };
  const event<int> any;
  static_assert(noexcept(throwing(any)));
  throwing(any);
}

TEST_CASE("9.4 observer: a callable that can only be moved is enough, and copies share it") {
  int heard = 0;
  const observer<int> first = [&heard, count = std::make_unique<int>()](const event<int>&) { heard = ++*count; };
  const observer<int> second = first;  // NOLINT(performance-unnecessary-copy-initialization)
  first({});
  second({});
  CHECK(heard == 2);
}

TEST_CASE("9.4 event: what is not said is empty") {
  const event<std::string> nothing;
  CHECK(nothing.key == nullptr);
  CHECK(nothing.error == nullptr);
  CHECK(nothing.record == nullptr);
  CHECK(nothing.attempt == 0);
  CHECK(nothing.fence == 0);
}

TEST_CASE("9.4 event_kind: each value has its name, and what is no value has none") {
  std::string names;
  for (int i = 0; i <= static_cast<int>(event_kind::lease_expired) + 1; ++i)
    names += std::string(to_string(static_cast<event_kind>(i))) + ";";
  CHECK(names ==
        "submitted;started;succeeded;failed;postponed;dead;cancelled;undone;redriven;discarded;evicted;"
        "executor refused;permit lost;lease expired;?;");
}
