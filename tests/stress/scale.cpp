// A million tasks where the cost of one must not depend on the others. Fewer under a sanitizer.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/dice.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>

namespace {

using namespace std::chrono_literals;
using turnkey::policy;

constexpr std::uint64_t million = support::sanitized ? 50'000 : 1'000'000;

std::chrono::microseconds cpu(const rusage& u) {
  return std::chrono::seconds{u.ru_utime.tv_sec + u.ru_stime.tv_sec} +
         std::chrono::microseconds{u.ru_utime.tv_usec + u.ru_stime.tv_usec};
}

rusage used_by(int who) {
  rusage u{};
  getrusage(who, &u);
  return u;
}

std::uintptr_t stack_pointer() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }

}  // namespace

TEST_CASE("2.10 a million tasks behind an ordered head that waits to retry use no processor and wake no thread") {
  turnkey::thread_pool pool{2};
  turnkey::scheduler<int> s{pool, {.default_policy = policy::ordered}};
  const auto head = s.submit(7, {.retry = turnkey::retry_policy{}}, [] { return turnkey::outcome::retry_after(1h); });
  std::uint64_t next = 0;
  bool in_order = true;
  for (std::uint64_t i = 0; i != million; ++i)
    s.submit(7, [&, i] {
      in_order = in_order && next == i;
      ++next;
    });
  while (s.stats().delayed != 1) std::this_thread::yield();
  std::this_thread::sleep_for(100ms);  // the pool's threads go to sleep

  const rusage before = used_by(RUSAGE_SELF);
  const rusage own_before = used_by(RUSAGE_THREAD);
  std::this_thread::sleep_for(2s);
  const rusage own_after = used_by(RUSAGE_THREAD);
  const rusage after = used_by(RUSAGE_SELF);
  CHECK(s.stats().waiting == million);
  if (!support::sanitized) {  // a sanitizer has threads of its own
    CHECK(cpu(after) - cpu(before) < 5ms);
    CHECK((after.ru_nvcsw - before.ru_nvcsw) - (own_after.ru_nvcsw - own_before.ru_nvcsw) == 0);
  }

  CHECK(s.cancel(head));
  CHECK(s.drain() == turnkey::drain_result::drained);
  CHECK(next == million);
  CHECK(in_order);
}

TEST_CASE("8.2 a million tasks behind one key on an inline executor stand on a stack of constant depth") {
  for (const policy how : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(to_string(how));
    turnkey::scheduler<int> s{turnkey::inline_executor{}, {.default_policy = how}};
    std::uintptr_t lowest = ~std::uintptr_t{0};
    std::uintptr_t highest = 0;
    std::uint64_t ran = 0;
    const auto look = [&] {
      lowest = (std::min)(lowest, stack_pointer());
      highest = (std::max)(highest, stack_pointer());
      ++ran;
    };
    s.submit(7, [&] {
      for (std::uint64_t i = 0; i != million; ++i) s.submit(7, [&] { look(); });
    });
    CHECK(ran == million);
    CHECK(highest - lowest < 4096);
  }
}

TEST_CASE("8.2 a chain of a million tasks on an inline executor, each submitted by the one before, stays flat too") {
  turnkey::scheduler<int> s{turnkey::inline_executor{}, {.default_policy = policy::ordered}};
  std::uintptr_t lowest = ~std::uintptr_t{0};
  std::uintptr_t highest = 0;
  std::uint64_t ran = 0;
  struct link {
    void operator()() const {
      *lowest = (std::min)(*lowest, stack_pointer());
      *highest = (std::max)(*highest, stack_pointer());
      if (++*ran != million) s->submit(static_cast<int>(*ran % 3), *this);
    }
    turnkey::scheduler<int>* s;
    std::uintptr_t* lowest;
    std::uintptr_t* highest;
    std::uint64_t* ran;
  };
  s.submit(0, link{&s, &lowest, &highest, &ran});
  CHECK(ran == million);
  CHECK(highest - lowest < 4096);
}

TEST_CASE("2, 8.5 as many parallel tasks run at once as the executor has threads") {
  // Sixteen permits were made with the scheduler, and a burst of submits made no more: a pool of 32 threads ran 16
  // tasks at once, and tasks that wait for each other waited for ever.
  constexpr std::size_t threads = 40;
  turnkey::thread_pool pool{threads};
  turnkey::scheduler<int> s{pool};
  std::atomic<std::size_t> here{0};
  std::atomic<std::size_t> met{0};
  const auto limit = turnkey::clock::now() + 5s;
  for (std::size_t i = 0; i != threads; ++i)
    s.submit([&] {
      ++here;
      while (here != threads && turnkey::clock::now() < limit) std::this_thread::sleep_for(1ms);
      met += here == threads;
    });
  CHECK(s.drain() == turnkey::drain_result::drained);
  CHECK(met == threads);
}

TEST_CASE("8, 8.3 a pool whose threads keep what they ran last does not starve retries of permits") {
  // A std::function pool whose loop variable lives on keeps a permit for each idle thread. Once all spare permits stood
  // in such threads, no line was offered any more, and no permit came back to change that.
  std::deque<turnkey::work> kept;
  turnkey::testing::manual_time time;
  turnkey::options<int> o;
  o.time = &time;
  turnkey::scheduler<int> s(
      [&kept](const turnkey::work& permit) {
        permit();
        kept.push_back(permit);
        if (kept.size() > 32) kept.pop_front();
      },
      o);
  int runs = 0;
  s.submit(7, {.retry = turnkey::retry_policy{.max_attempts = 100}}, [&runs] {
    ++runs;
    return turnkey::outcome::retry();
  });
  for (int i = 0; i != 200; ++i) time.advance(1min);
  CHECK(runs == 100);
}

TEST_CASE("8, 8.5 a permit that comes on a thread that is in a callback already is not lost to the other threads") {
  // Pools that help while they wait run permits inside a callback. Such a permit found the worker below it on the stack
  // and left the work to it; but that one was waiting for this very work, and no other thread was asked.
  std::deque<turnkey::work> queue;
  turnkey::testing::manual_time time;
  turnkey::options<int> o;
  o.time = &time;
  turnkey::scheduler<int> s([&queue](const turnkey::work& permit) { queue.push_back(permit); }, o);
  const auto help = [&queue] {
    while (!queue.empty()) {
      const turnkey::work permit = queue.front();
      queue.pop_front();
      permit();
    }
  };
  std::atomic<bool> second_ran{false};
  bool in_time = false;
  s.submit(1, [&] {
    s.submit(2, [&] { second_ran = true; });
    help();  // it takes the permit for the second task, and cannot use it
    std::thread other([&] {
      for (int i = 0; i != 100 && !second_ran; ++i) {
        time.advance(100ms);
        help();
      }
    });
    other.join();
    in_time = second_ran;
  });
  help();
  CHECK(in_time);
}

namespace {

// Does something when it is moved into the scheduler, which happens without a lock: others submit meanwhile.
class meddler {
 public:
  explicit meddler(std::function<void()> meddle) : meddle_(std::move(meddle)) {}
  meddler(meddler&& other) : meddle_(std::exchange(other.meddle_, nullptr)) {
    if (const auto meddle = std::exchange(meddle_, nullptr)) meddle();
  }
  void operator()() const {}

 private:
  std::function<void()> meddle_;
};

}  // namespace

TEST_CASE("4.4, 4.5 what is accepted while a callback moves in takes no place that was made for that callback") {
  // The ring of ids had room for one more when the callback began to move in. Others took it meanwhile: the search for
  // a free place never ended, under the shard's lock; or the ring, empty again, had gone back to the heap.
  const support::watchdog dog([] { return std::string("a submit that does not return"); }, 20s);
  for (const int others : {16, 64, 40'000}) {
    CAPTURE(others);
    turnkey::testing::manual_executor executor;
    turnkey::scheduler<int> s{executor};
    int ran = 0;
    s.submit(1, meddler([&] {
               for (int i = 0; i != others; ++i) s.submit(1, [&ran] { ++ran; });
               if (others > 1000) executor.run_all();
             }));
    executor.run_all();
    CHECK(ran == others);
    CHECK(s.stats().succeeded == static_cast<std::uint64_t>(others) + 1);
  }
}
