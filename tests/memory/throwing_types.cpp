// Lets every single call of the user's code throw once: the k-th hash, comparison, copy or move of a key, move or call
// of a callback, executor or observer of a scenario, for k = 0, 1, 2 ... until none is left to throw.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/heap.hpp"

#include <doctest/doctest.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace {

using namespace std::chrono_literals;
using turnkey::policy;

struct planned {};  // what is thrown; not a std::exception

// Counts the calls of the user's code, and throws from the one that was planned.
struct fault {
  std::uint64_t calls = 0;
  std::uint64_t planned_call = ~std::uint64_t{0};
  bool happened = false;

  void point() {
    if (calls++ != planned_call) return;
    happened = true;
    throw planned{};
  }
};
fault* current = nullptr;
void point() {
  if (current != nullptr) current->point();
}

struct key {
  explicit key(int n, std::string w = {}) : number(n), words(std::move(w)) {}
  key(const key& other) : number(other.number), words((point(), other.words)) {}
  key(key&& other) : number(other.number), words((point(), std::move(other.words))) {}
  key& operator=(const key&) = delete;
  ~key() = default;
  bool operator==(const key& other) const {
    point();
    return number == other.number;
  }

  int number;
  std::string words;  // so that a leak shows
};
struct hash_key {
  std::size_t operator()(const key& k) const {
    point();
    return static_cast<std::size_t>(k.number % 2);  // they collide
  }
};

// A callable that counts its lives and owns something.
template <std::size_t Size>
class callable {
 public:
  callable(int& ran, int& alive) : ran_(&ran), alive_(&alive) { ++*alive_; }
  callable(const callable& other) : words_((point(), other.words_)), ran_(other.ran_), alive_(other.alive_) {
    ++*alive_;
  }
  callable(callable&& other) : words_((point(), std::move(other.words_))), ran_(other.ran_), alive_(other.alive_) {
    ++*alive_;
  }
  callable& operator=(const callable&) = delete;
  ~callable() { --*alive_; }

  void operator()() {
    point();
    ++*ran_;
  }

 private:
  std::string words_ = std::string(50, 'w');
  int* ran_;
  int* alive_;
  std::array<std::byte, Size> padding_{};
};

// An executor that keeps permits, and may throw before or after it did.
class executor {
 public:
  executor() = default;
  executor(const executor&) = delete;
  executor& operator=(const executor&) = delete;

  void operator()(const turnkey::work& permit) {
    point();
    permits_.push_back(permit);
    point();
  }
  void run_all() {
    while (!permits_.empty()) {
      const turnkey::work permit = std::move(permits_.front());
      permits_.pop_front();
      permit();
    }
  }

 private:
  std::deque<turnkey::work> permits_;
};

using scheduler = turnkey::scheduler<key, hash_key>;

// Everything that the door offers, each call on its own: what throws is counted, and the rest goes on.
class scenario {
 public:
  explicit scenario(bool observed) : scheduler_(executor_, settings(observed)) {}

  // Submits, cancels, redrives, looks; each refusal to do so must have changed nothing.
  void run() {
    const auto submit = [this](auto put) {
      const turnkey::stats before = scheduler_.stats();
      const bool done = attempt(put);
      const turnkey::stats after = scheduler_.stats();
      accepted_ += done;
      if (after.submitted != before.submitted + done) ++flaws;
      if (!done && (after.keys != before.keys || after.unfinished() != before.unfinished())) ++flaws;
    };
    for (int i = 0; i != 4; ++i) {
      const key lvalue(i, std::string(60, 'k'));
      submit([&] { scheduler_.submit(lvalue, callable<1>(ran, alive)); });
      submit([&] { scheduler_.submit(key(i), {.policy = policy::ordered}, callable<200>(ran, alive)); });
      const callable<1> kept(ran, alive);
      submit([&] { scheduler_.submit(lvalue, {.policy = policy::exclusive, .delay = 1s}, kept); });
      submit([&] { scheduler_.submit(callable<1>(ran, alive)); });
      submit([&] { scheduler_.submit(lvalue, [] {}); });
    }
    submit([&] { scheduler_.submit(key(1), {.policy = policy::ordered}, [] { return turnkey::outcome::dead(); }); });
    executor_.run_all();
    attempt([&] { scheduler_.cancel(key(3)); });
    attempt([&] { static_cast<void>(scheduler_.dead_tasks()); });
    attempt([&] { static_cast<void>(scheduler_.held_keys()); });
    attempt([&] { scheduler_.redrive(key(1)); });
    attempt([&] { scheduler_.release(key(1)); });
    attempt([&] { scheduler_.discard(key(1)); });
    finish();
  }

  int ran = 0;
  int alive = 0;
  int flaws = 0;

 private:
  turnkey::options<key> settings(bool observed) {
    turnkey::options<key> o{.retry = turnkey::retry_policy{.max_attempts = 2}};
    o.time = &time_;
    o.dead_action = turnkey::dead_action::hold_key;
    if (observed) o.observer = [](const turnkey::event<key>&) { point(); };
    return o;
  }

  // Whether `call` did not throw.
  template <class Call>
  bool attempt(Call call) {
    try {
      call();
      return true;
    } catch (const planned&) {
      return false;
    }
  }

  // With faults over, everything that was accepted must come to an end.
  void finish() {
    fault* const paused = std::exchange(current, nullptr);
    for (int i = 0; i != 100; ++i) {
      executor_.run_all();
      time_.advance(1s);
      scheduler_.release_all();
    }
    scheduler_.discard_all();
    scheduler_.release_all();
    executor_.run_all();
    const turnkey::stats s = scheduler_.stats();
    if (s.submitted != accepted_ || s.unfinished() != 0 || s.keys != 0) ++flaws;
    if (s.submitted + s.redriven != s.succeeded + s.died + s.cancelled) ++flaws;
    if (scheduler_.drain_for(0s) != turnkey::drain_result::drained) ++flaws;
    current = paused;
  }

  executor executor_;
  turnkey::testing::manual_time time_;
  scheduler scheduler_;
  std::uint64_t accepted_ = 0;
};

}  // namespace

TEST_CASE("4.4, 4.5, 8.3, 9.4, 10.6 whichever call of the user's code throws, nothing is lost and nothing is left") {
  for (const bool observed : {false, true}) {
    CAPTURE(observed);
    std::uint64_t k = 0;
    for (bool more = true; more; ++k) {
      CAPTURE(k);
      const support::heap::usage before = support::heap::alive();
      fault f{.planned_call = k};
      int alive = 0;
      int flaws = 0;
      {
        scenario s(observed);
        current = &f;
        s.run();
        current = nullptr;
        flaws = s.flaws;
        alive = s.alive;
      }
      more = f.happened;
      CHECK(flaws == 0);
      CHECK(alive == 0);
      CHECK(support::heap::alive() == before);
    }
    CHECK(k > 60);
  }
}

TEST_CASE("10.3, 4.4 resubmitting a record whose callable or key throws when it moves: the record keeps its task") {
  for (std::uint64_t k = 0;; ++k) {
    CAPTURE(k);
    int ran = 0;
    int alive = 0;
    fault f{.planned_call = k};
    {
      turnkey::testing::manual_executor pool;
      scheduler old(pool);
      old.submit(key(1), callable<1>(ran, alive));
      scheduler fresh(pool);
      auto records = old.stop();
      auto& record = *records.begin();
      current = &f;
      bool thrown = false;
      try {
        fresh.submit(std::move(record));
      } catch (const planned&) {
        thrown = true;
      }
      current = nullptr;
      CHECK(thrown == f.happened);
      CHECK(static_cast<bool>(record) == thrown);
      CHECK(fresh.stats().submitted == (thrown ? 0 : 1));
      CHECK(fresh.stats().keys == (thrown ? 0 : 1));
      if (thrown) fresh.submit(std::move(record));
      pool.run_all();
      CHECK(ran == 1);
    }
    CHECK(alive == 0);
    if (!f.happened) break;
  }
}
