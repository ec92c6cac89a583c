#include <turnkey/thread_pool.hpp>
#include <turnkey/turnkey.hpp>

#include <doctest/doctest.h>

#include <atomic>
#include <cstddef>
#include <latch>
#include <string>
#include <thread>
#include <type_traits>

using turnkey::drain_result;
using turnkey::scheduler;
using turnkey::thread_pool;
using turnkey::work;

TEST_CASE("8.8 thread_pool: it has as many threads as it is told, 0 means as many as the machine") {
  CHECK(thread_pool(3).size() == 3);
  CHECK(thread_pool(1).size() == 1);
  const std::size_t of_the_machine = std::thread::hardware_concurrency();  // 0 where nobody knows
  CHECK(thread_pool().size() == (of_the_machine != 0 ? of_the_machine : 1));
  static_assert(!std::is_copy_constructible_v<thread_pool> && !std::is_move_constructible_v<thread_pool>);
  static_assert(turnkey::executor<thread_pool>);
}

TEST_CASE("8.8 thread_pool: its threads run at once") {
  thread_pool pool(3);
  scheduler<std::string> tasks(pool);
  std::latch all{3};
  for (int i = 0; i != 3; ++i) tasks.submit([&all] { all.arrive_and_wait(); });  // hangs with fewer
  CHECK(tasks.drain() == drain_result::drained);
}

TEST_CASE("8.8 thread_pool: several schedulers share one") {
  thread_pool pool(2);
  scheduler<std::string> first(pool);
  scheduler<int> second(pool);
  std::atomic<int> runs = 0;
  for (int i = 0; i != 100; ++i) {
    first.submit("a", [&runs] { ++runs; });
    second.submit(i, [&runs] { ++runs; });
  }
  CHECK(first.drain() == drain_result::drained);
  CHECK(second.drain() == drain_result::drained);
  CHECK(runs == 200);
}

TEST_CASE("8.8, 8.6 thread_pool: after stop it refuses, and a scheduler that uses it is stalled") {
  thread_pool pool(1);
  pool.stop();
  pool.stop();
  scheduler<std::string> tasks(pool);
  tasks.submit("a", [] {});
  CHECK(tasks.drain() == drain_result::stalled);
  CHECK(tasks.stats().executor_refusals >= 8);
}

TEST_CASE("8.8 thread_pool: stop drops what is queued, outside its lock") {
  thread_pool pool(1);
  scheduler<std::string> tasks(pool);
  std::latch begun{1};
  std::latch go_on{1};
  tasks.submit([&] {
    begun.count_down();
    go_on.wait();
  });
  begun.wait();
  tasks.submit("a", [] {});  // its permit is queued
  pool.stop();
  CHECK(tasks.stats().permits_lost == 1);
  go_on.count_down();
  CHECK(tasks.drain() == drain_result::drained);  // by the worker that was running
}

TEST_CASE("8.8, 10.4 thread_pool: one of its own threads may destroy it") {
  std::latch gone{1};
  auto* const pool = new thread_pool(2);
  auto* const tasks = new scheduler<std::string>(*pool);
  tasks->submit([&, pool, tasks] {
    delete tasks;
    delete pool;
    gone.count_down();
  });
  gone.wait();
}
