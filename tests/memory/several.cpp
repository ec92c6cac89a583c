// Tasks of several keys and the heap: what fails at submit changes nothing, and afterwards nothing is allocated.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/heap.hpp"
#include "support/plain_executor.hpp"

#include <doctest/doctest.h>

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
using turnkey::keys;
using turnkey::outcome;
using turnkey::policy;

const std::string long_key(200, 'k');

struct planned {};  // what is thrown

// Throws at the k-th point of the user's code.
struct fault {
  std::uint64_t left;
  bool happened = false;
};
fault* current = nullptr;
void point() {
  if (current == nullptr || current->left-- != 0) return;
  current->happened = true;
  throw planned{};
}

struct key {
  explicit key(int n) : number(n) {}
  key(const key& other) : number(other.number), words((point(), other.words)) {}
  key(key&& other) : number(other.number), words((point(), std::move(other.words))) {}
  key& operator=(const key&) = delete;
  ~key() = default;
  bool operator==(const key& other) const {
    point();
    return number == other.number;
  }

  int number;
  std::string words = long_key;  // so that a leak shows
};
struct hash_key {
  std::size_t operator()(const key& k) const {
    point();
    return static_cast<std::size_t>(k.number % 2);  // they collide
  }
};

// A callable whose move may throw.
struct callable {
  explicit callable(int& r) : ran(&r) {}
  callable(callable&& other) : ran(other.ran), words((point(), std::move(other.words))) {}
  void operator()() const { ++*ran; }
  int* ran;
  std::string words = long_key;
};

}  // namespace

TEST_CASE("4.4, 4.5, 7.7 several keys: whichever hash, comparison, copy or move throws, nothing has changed") {
  std::uint64_t faults = 0;
  for (const bool known : {false, true}) {
    for (std::uint64_t k = 0;; ++k) {
      CAPTURE(k);
      const heap::usage before = heap::alive();
      bool failed = false;
      {
        support::plain_executor executor;
        turnkey::testing::manual_time time;
        turnkey::scheduler<key, hash_key> s(executor, {.default_policy = policy::exclusive, .time = &time});
        int ran = 0;
        if (known) {
          s.pause(key(2));
          s.pause(key(3));
        }
        const auto keys_before = s.stats().keys;
        const std::vector<key> list = [] {
          std::vector<key> all;
          all.reserve(4);
          for (const int n : {1, 2, 3, 1}) all.emplace_back(n);
          return all;
        }();
        callable what(ran);
        {
          fault one{k};
          current = &one;
          try {
            s.submit(keys<key>{list}, std::move(what));
          } catch (const planned&) {
          }
          current = nullptr;
          failed = one.happened;
        }
        if (failed) {
          ++faults;
          CHECK(s.stats().submitted == 0);
          CHECK(s.stats().keys == keys_before);
          CHECK(s.drain_for(0s) == turnkey::drain_result::drained);
          s.submit(keys<key>{list}, callable(ran));
        }
        CHECK(s.stats().keys == 3);
        s.resume(key(2));
        s.resume(key(3));
        executor.run_all();
        CHECK(ran == 1);
        CHECK(s.stats().keys == 0);
      }
      CHECK(heap::alive() == before);
      if (!failed) break;
    }
  }
  CHECK(faults > 20);
}

TEST_CASE(
    "10.3, 4.4, 7.7 resubmitting a record of several keys: when the k-th allocation fails it still has its task") {
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    const heap::usage before = heap::alive();
    bool failed = false;
    {
      int ran = 0;
      support::plain_executor executor;
      turnkey::scheduler<std::string> old(executor, {.default_policy = policy::ordered});
      old.submit(keys<std::string>{long_key + "a", long_key + "b"},
                 [&ran, word = long_key] { ran += word == long_key; });
      turnkey::scheduler<std::string> fresh(executor);
      auto records = old.stop();
      auto& record = *records.begin();
      {
        const heap::failing armed(k);
        try {
          fresh.submit(std::move(record));
        } catch (const std::bad_alloc&) {
        }
        failed = heap::failing::happened();
      }
      CHECK(static_cast<bool>(record) == failed);
      if (failed) {
        CHECK(record.keys().size() == 2);
        CHECK(fresh.stats().submitted == 0);
        CHECK(fresh.stats().keys == 0);
        fresh.submit(std::move(record));
      }
      executor.run_all();
      CHECK(ran == 1);
    }
    CHECK(heap::alive() == before);
    if (!failed) break;
  }
}

TEST_CASE("10.5, 10.6, 7.7 after acceptance several keys allocate nothing, whatever happens; at rest nothing is left") {
  for (const bool observed : {false, true}) {
    CAPTURE(observed);
    const heap::usage at_first = heap::alive();
    {
      std::uint64_t events = 0;
      turnkey::options<int> o{.default_policy = policy::exclusive,
                              .retry = turnkey::retry_policy{.max_attempts = 4, .max_postpones = 3}};
      o.max_dead = 5;
      o.dead_action = turnkey::dead_action::hold_key;
      turnkey::testing::manual_time time;
      o.time = &time;
      if (observed) o.observer = [&events](const turnkey::event<int>&) { ++events; };
      support::plain_executor executor;
      turnkey::scheduler<int> s(executor, o);
      std::vector<turnkey::task_id> ids;
      ids.reserve(300);
      for (int i = 0; i != 300; ++i)
        ids.push_back(s.submit(keys{i % 20, i % 7, i % 11},
                               {.policy = i % 2 != 0 ? policy::ordered : policy::exclusive, .delay = (i % 5) * 1s},
                               [i, pad = std::make_unique<int>(i)](turnkey::attempt& a) {
                                 switch (i % 13) {
                                   case 0: return outcome::retry();
                                   case 1: throw 1;
                                   case 2: return outcome::postpone(a.number() % 2 * 1s);
                                   case 3: return outcome::dead();
                                   default: return outcome::success();
                                 }
                               }));
      for (int k = 0; k != 20; ++k) s.pause(k);
      const std::uint64_t before = heap::allocations();
      for (int step = 0; step != 200; ++step) {
        s.resume(step % 20);
        executor.run_all();
        time.advance(step % 10 == 4 ? 1s : 50ms);
        if (step % 9 == 2) s.cancel(ids[static_cast<std::size_t>(step)]);
        if (step % 20 == 7) s.redrive(step % 13);
        if (step % 20 == 9) s.release(step % 11);
        if (step % 20 == 11) s.discard(step % 7);
        if (step == 150) s.cancel(11);
        static_cast<void>(s.stats());
      }
      const turnkey::stats middle = s.stats();
      std::size_t undone = 0;
      {
        const auto records = s.stop();
        undone = records.size();
      }
      CHECK(heap::allocations() == before);
      CHECK(undone == middle.unfinished());
      CHECK(middle.succeeded > 0);
      CHECK(middle.cancelled > 0);
      CHECK(middle.died > 0);
      CHECK(middle.dead_evicted > 0);
      CHECK(middle.redriven > 0);
      CHECK((events > 0) == observed);
    }
    CHECK(heap::alive() == at_first);
  }
}
