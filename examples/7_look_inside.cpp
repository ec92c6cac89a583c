// What is going on in there? Counters, the reason why a task does not run, the hot keys, and the dead: asked of a
// scheduler in manual time, so that the answers are the same every time.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <iostream>
#include <stdexcept>

using namespace std::chrono_literals;
using turnkey::policy;

namespace {

using orders = turnkey::scheduler<int>;

struct workshop {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  orders tasks{pool,
               {.default_policy = policy::ordered,
                .retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = 1min, .jitter = 0},
                .time = &time}};
};

void counters(workshop& w) {
  std::cout << "counters\n";
  w.tasks.submit(1, [] {});
  w.tasks.submit(1, [] { throw std::runtime_error("no stock"); });
  w.tasks.submit(1, [] {});
  w.pool.run_all();
  w.time.jump(5s);
  const turnkey::stats now = w.tasks.stats();
  std::cout << "  succeeded " << now.succeeded << ", failed attempts " << now.failed_attempts << ", waiting "
            << now.waiting << ", delayed " << now.delayed << ", oldest " << now.oldest_age / 1s << " s\n";
}

void reasons(workshop& w) {
  std::cout << "why does it not run?\n";
  const auto tell = [&w](turnkey::task_id id) {
    const auto info = w.tasks.find(id);
    std::cout << "  order " << *info->key << " is " << to_string(info->state) << ": "
              << to_string(info->why, w.time.now()) << '\n';
  };
  const auto behind = w.tasks.submit(1, [] {});
  tell(behind);  // the failed one of that order rests
  const auto later = w.tasks.submit(2, {.delay = 10s}, [] {});
  tell(later);
  w.tasks.expedite(later);
  tell(later);
  w.tasks.pause(2);
  tell(later);
  w.tasks.resume(2);
  w.tasks.pause();
  tell(later);
  w.tasks.resume();
  w.pool.run_all();
}

void hot_keys(workshop& w) {
  std::cout << "the busiest keys\n";
  for (int order = 3; order != 8; ++order)
    for (int i = 0; i != order; ++i) w.tasks.submit(order, [] {});
  for (const auto& key : w.tasks.busiest_keys(3))
    std::cout << "  order " << key.key << ": " << key.depth << " tasks, the first is " << to_string(key.head_state)
              << '\n';
}

void the_dead(workshop& w) {
  std::cout << "the dead\n";
  w.time.jump(1min);
  w.pool.run_all();
  for (const auto& dead : w.tasks.dead_tasks())
    std::cout << "  order " << *dead.key << " after " << dead.attempts << " attempts: " << dead.error.text() << '\n';
  std::cout << "  redriven: " << w.tasks.redrive(1) << '\n';
  w.pool.run_all();
  const turnkey::stats now = w.tasks.stats();
  std::cout << "  dead " << now.dead << ", delayed " << now.delayed << ", waiting " << now.waiting << '\n';
}

}  // namespace

int main() {
  workshop w;
  counters(w);
  reasons(w);
  hot_keys(w);
  the_dead(w);
}
