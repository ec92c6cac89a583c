// Lets every single allocation fail once: the k-th of a scenario, for k = 0, 1, 2 ... until none is left to fail.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/heap.hpp"
#include "support/plain_executor.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
namespace heap = support::heap;
using turnkey::policy;

// A scheduler whose permits and clock move when told.
template <class Key>
struct world {
  explicit world(turnkey::options<Key> o = {}) : scheduler(executor, with_time(std::move(o))) {}

  // Runs everything, however late it is due.
  void run() {
    do {
      executor.run_all();
      time.advance(1h);
    } while (scheduler.stats().unfinished() != 0);
  }

  turnkey::options<Key> with_time(turnkey::options<Key> o) {
    o.time = &time;
    return o;
  }

  support::plain_executor executor;
  turnkey::testing::manual_time time;
  turnkey::scheduler<Key> scheduler;
};

// What a failed submit must not change.
std::array<std::uint64_t, 18> numbers(const turnkey::stats& s) {
  return {s.submitted, s.started, s.succeeded,         s.failed_attempts, s.postponed,    s.died,
          s.cancelled, s.undone,  s.redriven,          s.rejected,        s.permits_lost, s.dead_evicted,
          s.waiting,   s.ready,   s.executor_refusals, s.delayed,         s.keys,         s.held_keys};
}

// Calls `once(k)` for k = 0, 1, 2 ... while it says that the k-th allocation failed; how many did. After each call
// as much is alive as before it.
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

// Fails each allocation of `submit(scheduler, ran)`, in a scheduler that is new and in one that has done something.
template <class Key, class Submit>
std::uint64_t fail_submit(const turnkey::options<Key>& options, Submit submit) {
  std::uint64_t failures = 0;
  for (const bool used : {false, true}) {
    failures += for_each_allocation([&](std::uint64_t k) {
      int ran = 0;
      bool thrown = false;
      bool failed = false;
      {
        world<Key> w(options);
        if (used) {
          for (int i = 0; i != 40; ++i) w.scheduler.submit([] {});
          w.run();
        }
        const auto before = numbers(w.scheduler.stats());
        {
          const heap::failing armed(k);
          try {
            submit(w.scheduler, ran);
          } catch (const std::bad_alloc&) {
            thrown = true;
          }
          failed = heap::failing::happened();
        }
        CHECK(thrown == failed);
        if (failed) {
          CHECK(numbers(w.scheduler.stats()) == before);
          CHECK(w.scheduler.drain_for(0s) == turnkey::drain_result::drained);
          submit(w.scheduler, ran);  // now there is memory
        }
        w.run();
        CHECK(ran == 1);
        CHECK(w.scheduler.drain() == turnkey::drain_result::drained);
        CHECK(w.scheduler.stats().keys == 0);
      }
      return failed;
    });
  }
  return failures;
}

const std::string long_key(200, 'k');

}  // namespace

TEST_CASE("4.4, 10.5 constructing a scheduler: whichever allocation fails, nothing is left behind") {
  const auto construct = [](auto make) {
    return for_each_allocation([&](std::uint64_t k) {
      bool failed = false;
      {
        const heap::failing armed(k);
        try {
          make();
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      }
      return failed;
    });
  };
  const std::uint64_t plain = construct([] { turnkey::scheduler<int> s{turnkey::inline_executor{}}; });
  CHECK(plain > 10);
  const std::uint64_t rich = construct([owned = std::make_shared<int>(1)] {
    turnkey::options<std::string> o;
    o.observer = [owned](const turnkey::event<std::string>&) {};
    turnkey::scheduler<std::string> s([owned](turnkey::work permit) { permit(); }, o);
  });
  CHECK(rich > plain);
}

TEST_CASE("8.8 constructing a thread_pool: whichever allocation fails, the threads that began are joined") {
  for (std::uint64_t k = 0;; ++k) {
    bool failed = false;
    {
      const heap::failing armed(k);
      try {
        turnkey::thread_pool pool{3};
      } catch (const std::bad_alloc&) {
      }
      failed = heap::failing::happened();
    }
    if (!failed) {
      CHECK(k >= 4);
      break;
    }
  }
}

TEST_CASE("8.3, 8.8 a thread_pool without memory for its queue throws, and the task runs later") {
  turnkey::thread_pool pool{1};
  turnkey::scheduler<int> scheduler{pool};
  scheduler.submit([] {});
  scheduler.drain();
  for (std::uint64_t k = 0; k != 8; ++k) {
    bool ran = false;
    {
      const heap::failing armed(k);
      try {
        scheduler.submit([&ran] { ran = true; });
      } catch (const std::bad_alloc&) {
        continue;
      }
    }
    CHECK(scheduler.drain() == turnkey::drain_result::drained);
    CHECK(ran);
  }
}

TEST_CASE("4.4, 10.6 submit: when the k-th allocation fails nothing has changed, and the next one works") {
  SUBCASE("a plain callable, no key") {
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) { s.submit([&ran] { ++ran; }); }) > 0);
  }
  SUBCASE("a plain callable and a key") {
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) { s.submit(7, [&ran] { ++ran; }); }) > 0);
  }
  SUBCASE("a callable that owns something") {
    CHECK(fail_submit<int>(
              {}, [](auto& s, int& ran) { s.submit(7, [&ran, word = long_key] { ran += word == long_key; }); }) > 0);
  }
  SUBCASE("string keys, short and long, copied and moved") {
    for (const std::string& key : {std::string("short"), long_key}) {
      for (const bool moved : {false, true}) {
        CHECK(fail_submit<std::string>({.default_policy = policy::ordered}, [&](auto& s, int& ran) {
                if (moved) {
                  s.submit(std::string(key), [&ran] { ++ran; });
                } else {
                  s.submit(key, [&ran] { ++ran; });
                }
              }) > 0);
      }
    }
  }
  SUBCASE("large and over-aligned callables") {
    struct alignas(128) wide {
      std::array<char, 300> bytes{};
    };
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) {
            s.submit(7, [&ran, large = std::array<char, 2000>{}] { ran += large[7] == 0; });
          }) > 0);
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) { s.submit(7, [&ran, w = wide{}] { ran += w.bytes[0] == 0; }); }) >
          0);
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) {
            s.submit(7, [&ran, w = wide{}, word = long_key] { ran += word.size() == 200 && w.bytes[0] == 0; });
          }) > 0);
  }
  SUBCASE("a retry policy of its own") {
    CHECK(fail_submit<int>({}, [](auto& s, int& ran) {
            s.submit(7, {.policy = policy::ordered, .retry = turnkey::retry_policy{.max_attempts = 3}, .delay = 1s},
                     [&ran](turnkey::attempt& a) {
                       if (a.number() < 3) return turnkey::outcome::retry();
                       ++ran;
                       return turnkey::outcome::success();
                     });
          }) > 0);
  }
  SUBCASE("a key that is held when its task dies") {
    CHECK(fail_submit<int>({.default_policy = policy::exclusive, .dead_action = turnkey::dead_action::hold_key},
                           [](auto& s, int& ran) { s.submit(7, [&ran] { ++ran; }); }) > 0);
  }
  SUBCASE("several keys") {
    const turnkey::options<std::string> exclusive{.default_policy = policy::exclusive};
    const auto list = [](int count) {
      std::vector<std::string> all;
      for (int i = 0; i != count; ++i) all.push_back(long_key + std::to_string(i));
      return turnkey::keys{std::move(all)};
    };
    for (const int count : {2, 3, 40}) {
      CHECK(fail_submit<std::string>(exclusive, [&](auto& s, int& ran) { s.submit(list(count), [&ran] { ++ran; }); }) >
            0);
      CHECK(fail_submit<std::string>(exclusive, [&](auto& s, int& ran) {
              s.submit(list(count), [&ran, word = long_key] { ran += word == long_key; });
            }) > 0);
    }
    CHECK(fail_submit<int>({.default_policy = policy::ordered}, [](auto& s, int& ran) {
            s.submit(turnkey::keys{1, 2, 1}, {.retry = turnkey::retry_policy{}, .delay = 1s},
                     [&ran, large = std::array<char, 2000>{}] { ran += large[7] == 0; });
          }) > 0);
  }
  SUBCASE("limits") {
    turnkey::options<std::string> o;
    o.max_pending = 64;
    o.max_pending_per_key = 1;
    CHECK(fail_submit<std::string>(
              o, [](auto& s, int& ran) { s.submit(long_key, [&ran, word = long_key] { ++ran; }); }) > 0);
  }
}

TEST_CASE("4.4, 4.5 submit from inside a callback: a failed allocation is the callback's own exception") {
  for_each_allocation([](std::uint64_t k) {
    bool failed = false;
    {
      world<std::string> w({.default_policy = policy::ordered});
      int ran = 0;
      w.scheduler.submit(long_key, [&] {
        const heap::failing armed(k);
        try {
          w.scheduler.submit(long_key + "2", [&ran, word = long_key] { ++ran; });
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      });
      w.run();
      CHECK(ran == (failed ? 0 : 1));
      CHECK(w.scheduler.stats().succeeded == (failed ? 1 : 2));
    }
    return failed;
  });
}

TEST_CASE("10.3, 4.4 resubmitting a record: when the k-th allocation fails the record still has its task") {
  for_each_allocation([](std::uint64_t k) {
    bool failed = false;
    {
      int ran = 0;
      world<std::string> old({.default_policy = policy::ordered});
      old.scheduler.submit(long_key, {.retry = turnkey::retry_policy{}},
                           [&ran, word = long_key] { ran += word == long_key; });
      world<std::string> fresh;
      auto records = old.scheduler.stop();
      auto& record = *records.begin();
      {
        const heap::failing armed(k);
        try {
          fresh.scheduler.submit(std::move(record));
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      }
      CHECK(static_cast<bool>(record) == failed);
      if (failed) {
        CHECK(*record.key() == long_key);
        CHECK(fresh.scheduler.stats().submitted == 0);
        fresh.scheduler.submit(std::move(record));
      }
      fresh.run();
      CHECK(ran == 1);
    }
    return failed;
  });
}

TEST_CASE("5.1, 5.3, 4.4 dead_tasks() and held_keys(): when the k-th allocation fails nothing has changed") {
  for_each_allocation([](std::uint64_t k) {
    bool failed = false;
    {
      world<std::string> w({.default_policy = policy::ordered, .dead_action = turnkey::dead_action::hold_key});
      for (int i = 0; i != 300; ++i)
        w.scheduler.submit(long_key + std::to_string(i), [] { return turnkey::outcome::dead("gone for good"); });
      w.run();
      const auto before = numbers(w.scheduler.stats());
      {
        const heap::failing armed(k);
        try {
          static_cast<void>(w.scheduler.dead_tasks());
          static_cast<void>(w.scheduler.held_keys());
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      }
      CHECK(numbers(w.scheduler.stats()) == before);
      if (k % 64 == 0 || !failed) {
        CHECK(w.scheduler.dead_tasks().size() == 300);
        CHECK(w.scheduler.held_keys().size() == 300);
      }
      CHECK(w.scheduler.redrive(long_key + "7") == 1);
      CHECK(w.scheduler.discard_all() == 299);
      w.scheduler.release_all();
      w.run();
      CHECK(w.scheduler.discard_all() == 1);
      CHECK(w.scheduler.stats().keys == 0);
    }
    return failed;
  });
}

TEST_CASE(
    "10.6, 10.3 after acceptance nothing is allocated: not by starting, retrying, cancelling, dying or stopping") {
  for (const bool observed : {false, true}) {
    CAPTURE(observed);
    std::uint64_t events = 0;
    turnkey::options<int> o{.retry = turnkey::retry_policy{.max_attempts = 4, .max_postpones = 3}};
    o.max_dead = 5;
    o.dead_action = turnkey::dead_action::hold_key;
    if (observed) o.observer = [&events](const turnkey::event<int>&) { ++events; };
    world<int> w(o);
    std::vector<turnkey::task_id> ids;
    ids.reserve(400);
    for (int i = 0; i != 400; ++i)
      ids.push_back(w.scheduler.submit(i % 20, {.policy = static_cast<policy>(i % 3), .delay = (i % 5) * 1s},
                                       [i, pad = std::make_unique<int>(i)](turnkey::attempt& a) {
                                         switch (i % 7) {
                                           case 0: return turnkey::outcome::retry();
                                           case 1: throw 1;
                                           case 2: return turnkey::outcome::postpone(a.number() % 2 * 1s);
                                           case 3: return turnkey::outcome::dead();
                                           default: return turnkey::outcome::success();
                                         }
                                       }));
    const std::uint64_t before = heap::allocations();
    std::uint64_t cancelled = 0;
    for (int step = 0; step != 200; ++step) {
      w.executor.refuses = step % 10 == 3;
      w.executor.run_all();
      w.time.advance(step % 10 == 4 ? 1s : 50ms);
      if (step % 3 == 0) w.executor.drop_all();
      cancelled += w.scheduler.cancel(ids[static_cast<std::size_t>(step)]);
      if (step % 20 == 7) w.scheduler.redrive(step % 13);
      if (step % 20 == 9) w.scheduler.release(step % 11);
      if (step % 20 == 11) w.scheduler.discard(step % 7);
      if (step == 150) w.scheduler.cancel(11);
      static_cast<void>(w.scheduler.stats());
      static_cast<void>(w.scheduler.drain_for(0s));
    }
    const turnkey::stats middle = w.scheduler.stats();
    std::size_t undone = 0;
    {
      const auto records = w.scheduler.stop();
      undone = records.size();
    }
    CHECK(heap::allocations() == before);
    CHECK(cancelled > 0);
    CHECK(undone == middle.unfinished());
    CHECK(undone > 0);
    CHECK(middle.died > 0);
    CHECK(middle.dead_evicted > 0);
    CHECK(middle.redriven > 0);
    CHECK(middle.permits_lost > 0);
    CHECK(middle.executor_refusals > 0);
    CHECK((events > 0) == observed);
  }
}

// Deferred attempts that settle in every way, early, late and never, lose their lease, are extended and cancelled,
// while every allocation is counted; the words of a failure are made before, by whoever says them.
TEST_CASE("7.1, 7.2, 10.6 deferring, settling, expiring, losing and handing back a lease allocates nothing") {
  for (const bool observed : {false, true}) {
    CAPTURE(observed);
    std::uint64_t events = 0;
    turnkey::options<int> o{.retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 1s, .max_postpones = 3}};
    o.max_dead = 5;
    o.max_in_flight = 30;
    o.lease_time = 4s;
    o.lease_expiry = turnkey::lease_expiry::release;
    if (observed) o.observer = [&events](const turnkey::event<int>&) { ++events; };
    world<int> w(o);
    std::vector<turnkey::completion> all;
    all.reserve(5000);
    const auto words = turnkey::outcome::retry("words");
    const auto error = std::make_exception_ptr(1);
    const auto say = [&](const turnkey::completion& c, std::size_t how) {
      switch (how % 6) {
        case 0: return c.succeed();
        case 1: return c.settle(words);
        case 2: return c.fail(error);
        case 3: return c.settle(turnkey::outcome::postpone(how % 2 * 1s));
        case 4: return c.settle(turnkey::outcome::dead());
        default: return c.fail();
      }
    };
    for (int i = 0; i != 400; ++i)
      w.scheduler.submit(i % 20, {.policy = static_cast<policy>(i % 3), .delay = (i % 5) * 1s},
                         [&, i, pad = std::make_unique<int>(i)](turnkey::attempt& a) {
                           turnkey::completion c = a.defer();
                           if (i % 7 == 0) say(c, static_cast<std::size_t>(i) / 7);
                           if (i % 11 == 0) return;  // abandoned
                           if (all.size() != all.capacity()) all.push_back(std::move(c));
                           if (i % 13 == 0) throw 1;
                         });
    const std::uint64_t before = heap::allocations();
    const heap::failing armed(0);
    std::uint64_t counted = 0;
    for (std::size_t step = 0; step != 400; ++step) {
      w.executor.refuses = step % 10 == 3;
      w.executor.run_all();
      w.time.advance(step % 10 == 4 ? 1s : 50ms);
      if (step % 3 == 0) w.executor.drop_all();
      if (all.size() > 20) {
        const turnkey::completion& c = all[all.size() - 1 - step % 20];
        if (step % 4 == 0) c.extend_lease(step % 8 * 1s);
        if (step % 50 == 1) w.scheduler.cancel(c.id());
        static_cast<void>(c.stop_requested());
        if (step % 4 != 0) counted += say(c, step);
        if (step % 9 == 0) all.erase(all.end() - 5);
      }
    }
    const turnkey::stats middle = w.scheduler.stats();
    {
      const auto records = w.scheduler.stop();
      CHECK(records.size() > 0);
    }
    all.clear();
    CHECK(!heap::failing::happened());
    CHECK(heap::allocations() == before);
    CHECK(counted > 20);
    CHECK(middle.succeeded > 0);
    CHECK(middle.died > 0);
    CHECK(middle.postponed > 0);
    CHECK(middle.leases_lost > 0);
    CHECK(middle.late_results > 0);
    CHECK((events > 0) == observed);
  }
}

TEST_CASE("7.1 a stop token that cannot be made is the caller's exception, and the attempt goes on") {
  for_each_allocation([](std::uint64_t k) {
    bool failed = false;
    {
      world<int> w;
      turnkey::completion c;
      w.scheduler.submit(1, [&c](turnkey::attempt& a) { c = a.defer(); });
      w.executor.run_all();
      {
        const heap::failing armed(k);
        try {
          static_cast<void>(c.stop_token());
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      }
      CHECK(c.succeed());
      CHECK(w.scheduler.stats().succeeded == 1);
    }
    return failed;
  });
}

TEST_CASE("7.1 the words of a failure that cannot be made leave the attempt unsettled") {
  for_each_allocation([](std::uint64_t k) {
    bool failed = false;
    {
      world<int> w;
      turnkey::completion c;
      w.scheduler.submit(1, [&c](turnkey::attempt& a) { c = a.defer(); });
      w.executor.run_all();
      bool thrown = false;
      {
        const heap::failing armed(k);
        try {
          c.fail(long_key);
        } catch (const std::bad_alloc&) {
          thrown = true;
        }
        failed = heap::failing::happened();
      }
      CHECK(w.scheduler.stats().running == thrown);
      CHECK(c.succeed() == thrown);
    }
    return failed;
  });
}

TEST_CASE("4.4, 7.2 submit with a lease_time: when the k-th allocation fails nothing has changed") {
  CHECK(fail_submit<std::string>({.default_policy = policy::exclusive, .lease_time = 1s}, [](auto& s, int& ran) {
          s.submit(long_key, [&ran, word = long_key](turnkey::attempt& a) {
            ++ran;
            a.defer().succeed();
          });
        }) > 0);
}

TEST_CASE("10.3, 10.6 stop() with 100 tasks of every kind allocates nothing") {
  turnkey::thread_pool pool{1};
  turnkey::scheduler<int> scheduler{pool};
  for (int i = 0; i != 100; ++i)
    scheduler.submit(i % 10, {.policy = static_cast<policy>(i % 3), .delay = 1h}, [word = long_key] {});
  const std::uint64_t before = heap::allocations();
  const auto records = scheduler.stop();
  CHECK(heap::allocations() == before);
  CHECK(records.size() == 100);
}
