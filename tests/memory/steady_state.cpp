// What is left on the heap while nothing happens, and what a scheduler asks of it that is used again and again.
#include <turnkey/detail/cell_pool.hpp>
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/heap.hpp"
#include "support/plain_executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace heap = support::heap;
using turnkey::policy;

constexpr std::uint64_t million = support::sanitized ? 50'000 : 1'000'000;

// Uses `count` keys that were never used before, `together` of them at a time.
template <class Key, class MakeKey>
void use_once(turnkey::scheduler<Key>& s, support::plain_executor& executor, std::uint64_t& next, std::uint64_t count,
              std::uint64_t together, MakeKey make) {
  for (std::uint64_t i = 0; i != count; ++i) {
    const auto ran = [] {};
    s.submit(make(next), {.policy = static_cast<policy>(next % 3)}, ran);
    ++next;
    if (next % together == 0) executor.run_all();
  }
  executor.run_all();
}

template <class Key, class MakeKey>
void check_keys(std::uint64_t together, MakeKey make) {
  const heap::usage at_first = heap::alive();
  {
    support::plain_executor executor;
    turnkey::testing::manual_time time;
    turnkey::options<Key> o;
    o.time = &time;
    turnkey::scheduler<Key> s(executor, o);
    const heap::usage made = heap::alive();
    std::uint64_t next = 0;
    use_once(s, executor, next, million, together, make);
    const heap::usage first = heap::alive();
    CHECK(s.stats().keys == 0);
    use_once(s, executor, next, million, together, make);
    const heap::usage second = heap::alive();
    CHECK(s.stats().keys == 0);
    CHECK(s.stats().succeeded == 2 * million);
    if (together == million) {
      CHECK(second.blocks == first.blocks);
      CHECK(second.bytes == first.bytes);
    } else {  // spare chunks come and go with how the hashes of a thousand keys spread over the shards
      CHECK(second.bytes - first.bytes < 16 * 8192);
    }
    CHECK(first.bytes - made.bytes < 16 * 4 * 8 * 8192 + 16 * 50'000);  // the caches of 16 shards
  }
  CHECK(heap::alive() == at_first);
}

}  // namespace

TEST_CASE(
    "10.5 a million keys used once, all at one time, leave no entry: the second million leaves what the first left") {
  check_keys<std::uint64_t>(million, [](std::uint64_t n) { return n; });
}

TEST_CASE("10.5 cell_pool: what it keeps from the heap beyond its cells is little, however many there are") {
  turnkey::detail::cell_pool pool(240);
  const std::int64_t before = heap::alive().bytes;
  std::vector<void*> cells;
  cells.reserve(100'000);
  const std::int64_t mine = heap::alive().bytes - before;
  while (cells.size() != cells.capacity()) {
    cells.push_back(pool.take());
    const auto used = static_cast<std::int64_t>(cells.size()) * 240;
    const std::int64_t kept = heap::alive().bytes - before - mine;
    if (kept > used + used / 8 + 2 * 4096) {
      FAIL_CHECK(kept, " bytes for cells of ", used);
      break;
    }
  }
  for (void* cell : cells) pool.give(cell);
}

TEST_CASE("10.5 a million keys used once, a thousand at a time, leave no entry") {
  check_keys<std::string>(
      1000, [](std::uint64_t n) { return "a key that is too long to need no memory " + std::to_string(n); });
}

TEST_CASE(
    "4.3, 10.5 from idle, waves of a thousand tasks over a thousand keys ask the heap at most 0.05 times a task") {
  for (const policy how : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(to_string(how));
    support::plain_executor executor;
    turnkey::testing::manual_time time;
    turnkey::options<int> o{.default_policy = how};
    o.time = &time;
    turnkey::scheduler<int> s(executor, o);
    std::uint64_t sum = 0;
    const auto wave = [&] {
      for (int i = 0; i != 1000; ++i) s.submit(i, [&sum, a = std::uint64_t{1}] { sum += a; });
      executor.run_all();
    };
    wave();
    const std::uint64_t before = heap::allocations();
    for (int i = 0; i != 50; ++i) wave();
    CHECK(static_cast<double>(heap::allocations() - before) / 50'000 <= 0.05);
    CHECK(sum == 51'000);
  }
}

TEST_CASE("10.5 at rest nothing remains of delays, retries, deaths, cancels and holds that are over") {
  support::plain_executor executor;
  turnkey::testing::manual_time time;
  turnkey::options<std::string> o{.default_policy = policy::ordered, .retry = turnkey::retry_policy{}};
  o.time = &time;
  o.dead_action = turnkey::dead_action::hold_key;
  turnkey::scheduler<std::string> s(executor, o);
  heap::usage rest;
  for (int round = 0; round != 3; ++round) {
    turnkey::task_id last{};
    for (int i = 0; i != 2000; ++i)
      last = s.submit("a key that is too long to need no memory " + std::to_string(i % 300),
                      {.policy = static_cast<policy>(i % 3), .delay = (i % 4) * 1s}, [i, own = std::string(100, 'x')] {
                        switch (i % 5) {
                          case 0: return turnkey::outcome::retry();
                          case 1: return turnkey::outcome::dead();
                          default: return turnkey::outcome::success();
                        }
                      });
    s.cancel(last);
    while (s.stats().unfinished() != 0) {
      executor.run_all();
      time.advance(1h);
      s.release_all();
    }
    s.discard_all();
    s.release_all();
    executor.run_all();
    CHECK(s.stats().keys == 0);
    CHECK(s.stats().dead == 0);
    if (round == 1) rest = heap::alive();
    if (round == 2) CHECK(heap::alive() == rest);
  }
}

TEST_CASE("7.1, 7.2, 10.5 at rest nothing remains of leases that were deferred, extended, lost or handed back") {
  support::plain_executor executor;
  turnkey::testing::manual_time time;
  turnkey::options<int> o{.default_policy = policy::exclusive, .retry = turnkey::retry_policy{}};
  o.time = &time;
  o.lease_time = 5s;
  o.lease_expiry = turnkey::lease_expiry::release;
  turnkey::scheduler<int> s(executor, o);
  heap::usage rest;
  for (int round = 0; round != 4; ++round) {
    std::vector<turnkey::completion> all;
    for (int i = 0; i != 2000; ++i)
      s.submit(i % 300, [i, &all, own = std::string(100, 'x')](turnkey::attempt& a) {
        turnkey::completion c = a.defer();
        static_cast<void>(c.stop_token());
        if (i % 3 == 0) c.fail("early");
        if (i % 5 == 0) return;
        c.extend_lease((i % 10) * 1s);
        all.push_back(std::move(c));
      });
    while (s.stats().unfinished() != 0) {
      executor.run_all();
      for (std::size_t i = 0; i < all.size(); i += 2) all[i].succeed();
      all.clear();
      time.advance(1h);
    }
    s.discard_all();
    executor.run_all();
    std::vector<turnkey::completion>().swap(all);
    CHECK(s.stats().keys == 0);
    if (round == 2) rest = heap::alive();
    if (round == 3) CHECK(heap::alive() == rest);
  }
  CHECK(s.stats().leases_lost == 0);  // what was not settled was abandoned
}
