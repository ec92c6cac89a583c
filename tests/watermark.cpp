#include <turnkey/turnkey.hpp>
#include <turnkey/watermark.hpp>

#include <support/dice.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

using turnkey::watermark;
using ticket = turnkey::watermark::ticket;

TEST_CASE("watermark: the mark is below everything that is open") {
  watermark mark(100);
  CHECK(mark.committed() == 100);
  const ticket a = *mark.open(100);
  const ticket b = *mark.open(101);
  const ticket c = *mark.open(105);  // a gap
  CHECK(mark.committed() == 100);
  CHECK(mark.finish(b));
  CHECK(mark.committed() == 100);
  CHECK(mark.open_count() == 2);
  CHECK(mark.span() == 3);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 102);
  CHECK(mark.finish(c));
  CHECK(mark.committed() == 106);
  CHECK(mark.open_count() == 0);
  CHECK(mark.span() == 0);
}

TEST_CASE("watermark: byte offsets say where reading goes on") {
  watermark mark;
  const ticket a = *mark.open(0, 40);
  const ticket b = *mark.open(40, 95);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 40);
  CHECK(mark.finish(b));
  CHECK(mark.committed() == 95);
}

TEST_CASE("watermark: finishing twice, or what was never opened, is false and harmless") {
  watermark mark;
  const ticket a = *mark.open(0);
  const ticket b = *mark.open(1);
  CHECK(mark.finish(b));
  CHECK(!mark.finish(b));
  CHECK(mark.finish(a));
  CHECK(!mark.finish(a));
  CHECK(!mark.finish(b));
  CHECK(!mark.finish(ticket{2}));
  CHECK(!mark.finish(ticket{~0ULL}));
  CHECK(mark.committed() == 2);
}

TEST_CASE("watermark: positions that do not rise are refused in words, and nothing changes") {
  watermark mark(10);
  CHECK_THROWS_WITH_AS(static_cast<void>(mark.open(9)),
                       "turnkey: watermark position 9: positions rise: the next one is at least 10",
                       std::invalid_argument);
  const ticket a = *mark.open(10, 20);
  CHECK_THROWS_WITH_AS(static_cast<void>(mark.open(19)),
                       "turnkey: watermark position 19: positions rise: the next one is at least 20",
                       std::invalid_argument);
  CHECK_THROWS_WITH_AS(static_cast<void>(mark.open(30, 30)),
                       "turnkey: watermark position 30: what comes after it is 30", std::invalid_argument);
  CHECK_THROWS_AS(static_cast<void>(mark.open(std::numeric_limits<std::uint64_t>::max())), std::invalid_argument);
  CHECK_THROWS_AS(watermark(0, 0), std::invalid_argument);
  CHECK(mark.open_count() == 1);
  CHECK(mark.finish(a));
  CHECK(mark.committed() == 20);
}

TEST_CASE("watermark: so many stand from the mark on, and no more") {
  watermark mark(0, 3);
  const ticket a = *mark.open(0);
  const ticket b = *mark.open(1);
  static_cast<void>(*mark.open(2));
  CHECK(!mark.open(3));
  CHECK(mark.finish(b));  // the first one is still open: no room
  CHECK(!mark.open(3));
  CHECK(mark.finish(a));
  CHECK(mark.open(3));
  CHECK(mark.open(4));
  CHECK(!mark.open(5));
}

TEST_CASE("watermark: random positions against a set of what is open") {
  for (std::uint64_t seed = 1; seed != 50; ++seed) {
    support::dice dice(seed);
    watermark mark(0, 64);
    std::vector<std::pair<ticket, std::uint64_t>> open;
    std::set<std::uint64_t> open_positions;
    std::uint64_t position = 0;
    std::uint64_t last = 0;
    for (int i = 0; i != 2000; ++i) {
      if (dice.below(2) == 0) {
        if (const auto t = mark.open(position)) {
          open.emplace_back(*t, position);
          open_positions.insert(position);
          position += 1 + dice.below(3);
        } else {
          CHECK(mark.span() == 64);
        }
      } else if (!open.empty()) {
        const auto at = open.begin() + static_cast<std::ptrdiff_t>(dice.below(open.size()));
        CHECK(mark.finish(at->first));
        open_positions.erase(at->second);
        open.erase(at);
      }
      const std::uint64_t now = mark.committed();
      CHECK(now >= last);
      CHECK(mark.open_count() == open.size());
      if (open_positions.empty()) {
        CHECK(now <= position);
      } else {
        CHECK(now <= *open_positions.begin());
        if (*open_positions.begin() == 0) CHECK(now == 0);
      }
      last = now;
    }
    for (const auto& [t, at] : open) CHECK(mark.finish(t));
    CHECK(mark.span() == 0);
  }
}

TEST_CASE("watermark: a million that finish backwards") {
  constexpr std::uint64_t many = 1'000'000;
  watermark mark(0, many);
  for (std::uint64_t i = 0; i != many; ++i) static_cast<void>(mark.open(i));
  for (std::uint64_t i = many; i-- > 1;) mark.finish(ticket{i});
  CHECK(mark.committed() == 0);
  CHECK(mark.finish(ticket{0}));
  CHECK(mark.committed() == many);
}

TEST_CASE("watermark: finished by many threads while one opens") {
  watermark mark;
  turnkey::thread_pool pool{3};
  turnkey::scheduler<int> s{pool};
  std::uint64_t last = 0;
  for (std::uint64_t i = 0; i != 20'000; ++i) {
    auto t = mark.open(i);
    for (; !t; t = mark.open(i)) std::this_thread::yield();
    s.submit(static_cast<int>(i % 17), [&mark, t = *t] { mark.finish(t); });
    const std::uint64_t now = mark.committed();
    CHECK(now >= last);
    CHECK(now <= i + 1);
    last = now;
  }
  CHECK(s.drain() == turnkey::drain_result::drained);
  CHECK(mark.committed() == 20'000);
}

TEST_CASE("watermark: a retry does not finish a position, and a dead task's stays open until it is finished") {
  watermark mark;
  stage on({.retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = std::chrono::seconds{1}, .jitter = 0}});
  const ticket t = *mark.open(0);
  on.tasks.submit("a", [&mark, t](turnkey::attempt& a) {
    if (a.number() < 3) throw 1;
    mark.finish(t);
  });
  on.pass(std::chrono::minutes{1});
  CHECK(on.tasks.stats().dead == 1);
  CHECK(mark.committed() == 0);
  CHECK(mark.finish(t));
  CHECK(mark.committed() == 1);
}
