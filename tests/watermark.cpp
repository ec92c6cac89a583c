#include <turnkey/turnkey.hpp>
#include <turnkey/watermark.hpp>

#include <support/dice.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::outcome;
using turnkey::watermark;
using ticket = turnkey::watermark::ticket;

namespace {

// What the watermark promises, in the words of its comment: every position that went in, and which of them are open.
struct model {
  model(std::uint64_t begin, std::size_t limit) : max_span(limit), next(begin) {}

  bool open(std::uint64_t position, std::uint64_t after) {
    if (span() == max_span) return false;
    all.push_back(position);
    unfinished.insert(position);
    next = after;
    return true;
  }
  [[nodiscard]] std::uint64_t committed() const { return unfinished.empty() ? next : *unfinished.begin(); }
  [[nodiscard]] std::size_t span() const {
    std::size_t count = 0;
    for (auto at = all.rbegin(); at != all.rend() && *at >= committed(); ++at) ++count;
    return count;
  }

  std::size_t max_span;
  std::uint64_t next;
  std::vector<std::uint64_t> all;
  std::set<std::uint64_t> unfinished;
};

}  // namespace

TEST_CASE("watermark: before anything is open, the mark is where reading begins") {
  CHECK(watermark().committed() == 0);
  CHECK(watermark(42).committed() == 42);
  static_assert(!std::is_copy_constructible_v<watermark> && !std::is_move_constructible_v<watermark>);
  static_assert(noexcept(std::declval<watermark&>().finish(ticket{0})));
}

TEST_CASE("watermark: whatever order positions finish in, the mark is the oldest open one") {
  watermark mark(10);
  const ticket a = *mark.open(10);
  const ticket b = *mark.open(11);
  const ticket c = *mark.open(12);
  CHECK(mark.finish(b));
  CHECK(mark.committed() == 10);
  CHECK(mark.open_count() == 2);
  CHECK(mark.span() == 3);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 12);
  CHECK(mark.span() == 1);
  CHECK(mark.finish(c));
  CHECK(mark.committed() == 13);
  CHECK(mark.open_count() == 0);
  CHECK(mark.span() == 0);
}

TEST_CASE("watermark: what was passed over between two positions counts as finished") {
  watermark mark;
  const ticket a = *mark.open(100);
  CHECK(mark.committed() == 100);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 101);
  const ticket b = *mark.open(200);
  CHECK(mark.committed() == 200);
  CHECK(mark.finish(b));
  CHECK(mark.committed() == 201);
}

TEST_CASE("watermark: byte offsets say where reading goes on, and so does the mark") {
  watermark mark;
  const ticket a = *mark.open(0, 40);
  const ticket b = *mark.open(40, 95);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 40);
  CHECK(mark.finish(b));
  CHECK(mark.committed() == 95);
}

TEST_CASE("watermark: finishing twice, or with a ticket that was never given, is false and changes nothing") {
  watermark mark(0, 4);
  const ticket a = *mark.open(0);
  const ticket b = *mark.open(1);
  CHECK(!mark.finish(ticket{2}));
  CHECK(!mark.finish(ticket{4}));  // would have the place of the first
  CHECK(mark.open_count() == 2);
  CHECK(mark.finish(b));
  CHECK(!mark.finish(b));  // still above the mark
  CHECK(mark.open_count() == 1);
  CHECK(mark.finish(a));
  CHECK(!mark.finish(a));  // below it
  CHECK(!mark.finish(ticket{~std::uint64_t{0}}));
  for (std::uint64_t i = 2; i != 6; ++i) CHECK(mark.open(i));
  CHECK(!mark.finish(a));  // its place has a new tenant
  CHECK(mark.committed() == 2);
  CHECK(mark.open_count() == 4);
}

TEST_CASE("watermark: a position that does not rise is refused in words, and changes nothing") {
  watermark mark(10);
  const auto refused = [&mark](std::uint64_t position, std::uint64_t after, const std::string& why) {
    CHECK_THROWS_WITH_AS(static_cast<void>(mark.open(position, after)), ("turnkey: watermark: position " + why).c_str(),
                         std::invalid_argument);
  };
  refused(9, 10, "9 does not rise: the next one is at least 10");
  const ticket a = *mark.open(10, 20);
  refused(10, 20, "10 does not rise: the next one is at least 20");
  refused(19, 30, "19 does not rise: the next one is at least 20");
  refused(20, 20, "20 goes on at 20, which is not above it");
  refused(20, 3, "20 goes on at 3, which is not above it");
  CHECK_THROWS_AS(static_cast<void>(mark.open((std::numeric_limits<std::uint64_t>::max)())), std::invalid_argument);
  CHECK(mark.open_count() == 1);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 20);
}

TEST_CASE("watermark: with max_span positions from the oldest open one on, there is no ticket until that finishes") {
  watermark mark(0, 3);
  const ticket a = *mark.open(0);
  const ticket b = *mark.open(1);
  const ticket c = *mark.open(2);
  CHECK(!mark.open(3));
  CHECK(mark.finish(b));
  CHECK(mark.finish(c));
  CHECK(!mark.open(3));  // one is open, three are not below the mark
  CHECK(mark.committed() == 0);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 3);  // not 4: what was refused has changed nothing
  for (std::uint64_t i = 3; i != 6; ++i) CHECK(mark.open(i));
  CHECK(!mark.open(6));
}

TEST_CASE("watermark: a max_span of 0 is refused") {
  CHECK_THROWS_WITH_AS(watermark(0, 0), "turnkey: watermark: max_span is 0; it must be at least 1",
                       std::invalid_argument);
}

TEST_CASE("watermark: random coming and finishing agrees with a set of what is open") {
  for (std::uint64_t seed = 1; seed != 200; ++seed) {
    CAPTURE(seed);
    support::dice dice(seed);
    const std::uint64_t first = dice.below(1000);
    const std::size_t max_span = 1 + dice.below(20);
    watermark mark(first, max_span);
    model naive(first, max_span);
    std::vector<std::pair<ticket, std::uint64_t>> given;  // finished ones too, to be finished once more
    for (int step = 0; step != 500; ++step) {
      if (dice.chance(50)) {
        const std::uint64_t position = naive.next + dice.below(3);
        const std::uint64_t after = position + 1 + dice.below(3);
        const std::optional<ticket> got = mark.open(position, after);
        REQUIRE(got.has_value() == naive.open(position, after));
        if (got) given.emplace_back(*got, position);
      } else if (!given.empty()) {
        const std::size_t back = dice.below((std::min)(given.size(), max_span + 2));
        const auto [which, position] = given[given.size() - 1 - back];
        REQUIRE(mark.finish(which) == (naive.unfinished.erase(position) == 1));
      }
      REQUIRE(!mark.finish(ticket{given.size() + dice.below(max_span)}));
      REQUIRE(mark.committed() == naive.committed());
      REQUIRE(mark.open_count() == naive.unfinished.size());
      REQUIRE(mark.span() == naive.span());
    }
  }
}

// With a search through what is open, or a look at all that is open, this takes hours.
TEST_CASE("watermark: a million positions that finish the newest first, tens of thousands open, cost O(1) each") {
  constexpr std::size_t open = 65'536;
  watermark mark(0, open);
  std::vector<ticket> given;
  std::uint64_t position = 0;
  for (int round = 0; round != 16; ++round) {
    given.clear();
    while (const auto got = mark.open(position)) {
      given.push_back(*got);
      ++position;
      REQUIRE(mark.committed() == position - given.size());
    }
    REQUIRE(given.size() == open);
    for (auto at = given.rbegin(); at != given.rend(); ++at) {
      REQUIRE(mark.committed() == position - open);
      REQUIRE(mark.finish(*at));
    }
    REQUIRE(mark.committed() == position);
  }
  CHECK(position == 16 * open);
}

TEST_CASE("watermark: a failed attempt does not finish its position, the retry does") {
  stage on({.retry = turnkey::retry_policy{.initial_delay = std::chrono::seconds{1}, .jitter = 0}});
  watermark mark;
  const auto task = [&mark](turnkey::attempt& a, std::uint32_t good, ticket t) {
    if (a.number() < good) return outcome::retry("not yet");
    mark.finish(t);
    return outcome::success();
  };
  on.tasks.submit("a", [task, t = *mark.open(0)](turnkey::attempt& a) { return task(a, 2, t); });
  on.tasks.submit("b", [task, t = *mark.open(1)](turnkey::attempt& a) { return task(a, 1, t); });
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
  CHECK(mark.committed() == 0);
  on.pass(std::chrono::seconds{1});
  CHECK(on.tasks.stats().succeeded == 2);
  CHECK(mark.committed() == 2);
}

TEST_CASE("watermark: a dead task's position stops the mark until it is finished, by a redrive or by hand") {
  stage on;
  watermark mark;
  bool broken = true;
  for (const char* key : {"a", "b"}) {
    const ticket t = *mark.open(key[0] == 'a' ? 0 : 1);
    on.tasks.submit(key, [&, t] {
      if (broken) throw std::runtime_error("broken");
      mark.finish(t);
    });
  }
  on.run();
  CHECK(on.tasks.stats().dead == 2);
  CHECK(mark.committed() == 0);
  CHECK(mark.open_count() == 2);
  broken = false;
  CHECK(on.tasks.redrive("a") == 1);
  on.run();
  CHECK(mark.committed() == 1);
  CHECK(mark.finish(ticket{1}));  // put aside
  CHECK(mark.committed() == 2);
}

TEST_CASE("watermark: what stop() hands back stays open, and finishes where it is submitted again") {
  watermark mark;
  stage first;
  for (std::uint64_t i = 0; i != 3; ++i) first.tasks.submit("a", [&mark, t = *mark.open(i)] { mark.finish(t); });
  turnkey::task_records<std::string> left = first.tasks.stop();
  CHECK(mark.committed() == 0);
  stage second;
  for (auto& record : left) second.tasks.submit(std::move(record));
  second.run();
  CHECK(mark.committed() == 3);
}
