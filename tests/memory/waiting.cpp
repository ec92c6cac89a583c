// Futures and coroutines when memory runs out: the k-th allocation of asking for one fails, for every k, and after
// acceptance there is none, of ours, to fail.
#include <turnkey/coroutine.hpp>
#include <turnkey/future.hpp>
#include <turnkey/testing.hpp>

#include "support/coroutines.hpp"
#include "support/heap.hpp"
#include "support/plain_executor.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace heap = support::heap;
using support::owned;
using turnkey::policy;

const std::string long_key(200, 'k');

struct world {
  world() : tasks(executor, {.retry = turnkey::retry_policy{.max_attempts = 2}, .time = &time}) {}

  support::plain_executor executor;
  turnkey::testing::manual_time time;
  turnkey::scheduler<std::string> tasks;
};

// Calls `once(w, k)` in a new world for k = 0, 1, 2 ... until it says that no allocation has failed; how many did.
template <class Once>
std::uint64_t for_each_allocation(Once once) {
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    const heap::usage before = heap::alive();
    bool failed = false;
    {
      world w;
      failed = once(w, k);
      CHECK(w.tasks.drain_for(0s) == turnkey::drain_result::drained);
      CHECK(w.tasks.stats().keys == 0);
    }
    CHECK(heap::alive() == before);
    if (!failed) return k;
  }
}

}  // namespace

TEST_CASE("7.5, 4.4 submit_future: when the k-th allocation fails nothing has changed") {
  const std::uint64_t failures = for_each_allocation([](world& w, std::uint64_t k) {
    std::optional<std::future<std::string>> future;
    bool failed = false;
    {
      const heap::failing armed(k);
      try {
        future =
            turnkey::submit_future(w.tasks, long_key, [p = std::make_unique<int>(1)] { return std::string("ok"); });
      } catch (const std::bad_alloc&) {
      }
      failed = heap::failing::happened();
    }
    CHECK(future.has_value() != failed);
    CHECK(w.tasks.stats().submitted == (failed ? 0 : 1));
    w.executor.run_all();
    if (future) CHECK(future->get() == "ok");
    return failed;
  });
  CHECK(failures >= 4);
}

TEST_CASE("7.4, 4.4 enter: when the k-th allocation fails the coroutine goes on with bad_alloc, and nothing waits") {
  const std::uint64_t failures = for_each_allocation([](world& w, std::uint64_t k) {
    bool failed = false;
    bool threw = false;
    bool entered = false;
    const auto run = [&](std::string key) -> owned {
      try {
        const auto lease = co_await w.tasks.enter(std::move(key), policy::exclusive);
        entered = true;
      } catch (const std::bad_alloc&) {
        threw = true;
      }
    };
    {
      std::optional<owned> waits;
      std::string key = long_key;
      {
        const heap::failing armed(k);
        try {
          waits = run(std::move(key));
        } catch (const std::bad_alloc&) {  // its frame
          threw = true;
        }
        failed = heap::failing::happened();
      }
      CHECK(threw == failed);
      CHECK(w.tasks.stats().submitted == (failed ? 0 : 1));
      w.executor.run_all();
      CHECK(entered != failed);
    }
    return failed;
  });
  CHECK(failures >= 4);
}

TEST_CASE("7.4, 7.5, 10.6 entering, giving results, cancelling, stopping and telling of it allocate nothing") {
  world w;
  int ended = 0;
  const auto run = [&](const char* key) -> owned {
    try {
      auto lease = co_await w.tasks.enter(key, policy::ordered);
      if (std::string_view(key) == "dies") lease.settle(turnkey::outcome::dead());
    } catch (const turnkey::task_error&) {
    }
    ++ended;
  };
  std::vector<owned> coroutines;
  std::vector<std::future<int>> futures;
  for (const char* const key : {"a", "a", "dies", "cancelled", "cancelled"}) {
    coroutines.push_back(run(key));
    futures.push_back(turnkey::submit_future(w.tasks, key, [n = std::make_unique<int>(7)] { return *n; }));
    futures.push_back(turnkey::submit_future(w.tasks, key, [](turnkey::attempt& a) -> int { throw a.number(); }));
  }
  const std::string cancelled = "cancelled";
  const std::uint64_t before = heap::allocations();
  CHECK(w.tasks.cancel(cancelled) == 6);
  w.executor.run_all();
  const std::size_t undone = w.tasks.stop().size();
  CHECK(heap::allocations() == before);
  CHECK(undone == 4);  // three rest until their second attempt, and one coroutine waits for one of these
  CHECK(ended == 5);
  for (const std::future<int>& future : futures) CHECK(future.wait_for(0s) == std::future_status::ready);
}
