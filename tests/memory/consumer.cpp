// A consumer whose allocations fail, one after the other: at send nothing has changed, later nothing is lost or out of
// order. And how many bytes a message of a backlog takes.
#include <turnkey/consumer.hpp>
#include <turnkey/testing.hpp>

#include "support/heap.hpp"
#include "support/plain_executor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace heap = support::heap;
using turnkey::dead_action;
using turnkey::options;
using turnkey::outcome;
using turnkey::policy;

using message = std::unique_ptr<int>;
using message_batch = turnkey::batch<std::string, message>;

constexpr turnkey::retry_policy three{.max_attempts = 3, .initial_delay = 10ms, .multiplier = 1, .jitter = 0};
const std::string key(200, 'k');  // copying it allocates

// Handles numbers: those divisible by five are poison. It writes down, without allocating, in which order they ended.
struct world {
  explicit world(policy p, dead_action dead = dead_action::release)
      : consumer(executor, set(p, dead), 4, [this](message_batch& b) { return handle(b); }) {}

  options<std::string> set(policy p, dead_action dead) {
    return {.default_policy = p, .retry = three, .dead_action = dead, .time = &time};
  }
  outcome handle(message_batch& b) {
    for (std::size_t i = 0; i != b.size(); ++i) {
      if (*b[i] % 5 == 0) {
        ++failures;
        b.settle(i, outcome::retry());
      } else {
        b.succeed(i);
      }
      if (*b[i] % 5 == 0 && stops_at_failure) break;
      if (*b[i] % 5 != 0) ended[count++] = *b[i];
    }
    return outcome::success();
  }
  void send(int from, int to) {
    for (int i = from; i <= to; ++i) consumer.send(key, std::make_unique<int>(i));
  }
  void run() {
    do {
      executor.run_all();
      time.advance(1s);
    } while (consumer.stats().tasks.delayed + consumer.stats().tasks.ready != 0);
  }

  support::plain_executor executor;
  turnkey::testing::manual_time time;
  std::array<int, 1024> ended{};
  std::size_t count = 0;
  std::size_t failures = 0;
  bool stops_at_failure = true;
  turnkey::consumer<std::string, message> consumer;
};

template <class Once>
std::uint64_t for_each_allocation(Once once) {
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    const heap::usage before = heap::alive();
    const bool failed = once(k);
    CHECK(heap::alive() == before);
    if (!failed) return k;
  }
}

}  // namespace

TEST_CASE("7.6, 4.4 consumer: whichever allocation of a send fails, nothing has changed") {
  for (const int there : {0, 1, 8, 40}) {
    CAPTURE(there);
    const std::uint64_t failures = for_each_allocation([&](std::uint64_t k) {
      world w(policy::ordered);
      w.send(1, there);
      message m = std::make_unique<int>(there + 1);
      bool thrown = false;
      bool failed;
      {
        const heap::failing armed(k);
        try {
          w.consumer.send(key, std::move(m));
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        failed = heap::failing::happened();
      }
      CHECK(thrown == failed);
      CHECK((m != nullptr) == failed);
      CHECK(w.consumer.unfinished(key) == static_cast<std::size_t>(there + !failed));
      if (failed) w.consumer.send(key, std::move(m));
      w.run();
      CHECK(w.consumer.stats().succeeded + w.consumer.stats().dead == static_cast<std::uint64_t>(there + 1));
      return failed;
    });
    CHECK(failures >= (there == 0 ? 3 : there == 1 ? 0 : 1));
  }
}

TEST_CASE(
    "7.6, 10.6 consumer: whichever allocation fails after a send, every message ends, and ordered ones in order") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered})
    for (const dead_action dead : {dead_action::release, dead_action::hold_key}) {
      CAPTURE(turnkey::to_string(p));
      std::uint64_t failures = 0;
      for (int messages = 230; messages < 360; messages += 3) {  // the tasks of the dead need more and more chunks
        CAPTURE(messages);
        failures += for_each_allocation([&](std::uint64_t k) {
          world w(p, dead);
          w.stops_at_failure = p == policy::ordered;
          w.send(1, messages);
          bool failed;
          {
            const heap::failing armed(k);
            for (int i = 0; i != 90 && w.consumer.stats().unfinished != 0; ++i) {
              w.run();
              w.consumer.release(key);
            }
            failed = heap::failing::happened();
          }
          const auto dying = static_cast<std::uint64_t>(messages / 5);
          CHECK(w.consumer.drain_for(0s) == turnkey::drain_result::drained);
          CHECK(w.consumer.stats().dead == dying);
          CHECK(w.consumer.stats().failed_attempts == 3 * dying);
          CHECK(w.failures == 3 * dying);
          CHECK(w.consumer.stats().succeeded == static_cast<std::uint64_t>(messages) - dying);
          CHECK(w.count == w.consumer.stats().succeeded);
          if (p == policy::ordered)
            for (std::size_t i = 1; i < w.count; ++i) CHECK(w.ended[i] > w.ended[i - 1]);
          return failed;
        });
      }
      CHECK(failures > 40);
    }
}

TEST_CASE("7.6, 10.3 consumer: stop allocates nothing, and everything is given back to the heap") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    const heap::usage before = heap::alive();
    {
      world w(p);
      w.send(1, 23);
      w.executor.run_all();
      w.send(24, 40);
      const std::uint64_t allocations = heap::allocations();
      {
        const auto all = w.consumer.stop();
        CHECK(all.size() >= 17);
      }
      CHECK(heap::allocations() == allocations);
    }
    CHECK(heap::alive() == before);
  }
}

TEST_CASE("7.6 consumer: a message of a backlog takes at most its size and 64 bytes, and leaves nothing behind") {
  struct row {
    std::array<std::byte, 56> content;
    void* more;
  };
  for (const std::size_t max_batch : {1U, 16U, 100U, 1'000U, 1'000'000U}) {
    CAPTURE(max_batch);
    support::plain_executor executor;
    turnkey::testing::manual_time time;
    turnkey::consumer<int, row> c(executor, {.default_policy = policy::ordered, .time = &time}, max_batch,
                                  [](std::span<row>) {});
    const std::int64_t before = heap::alive().bytes;
    constexpr int messages = 50'000;
    for (int i = 0; i != messages; ++i) c.send(1, row{});
    const double each = static_cast<double>(heap::alive().bytes - before) / messages;
    CHECK(each <= sizeof(row) + 64);
    executor.run_all();
    CHECK(c.stats().unfinished == 0);
    CHECK(heap::alive().bytes - before < 300'000);  // bounded caches
  }
}
