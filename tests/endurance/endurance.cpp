// Does a scheduler hold for hours what it promises, whatever goes wrong around it? Life after life everything happens
// at once; each life drains now and then, and ends with a stop that hands its tasks to the next. See arguments.hpp.
#include <turnkey/turnkey.hpp>

#include "endurance/arguments.hpp"
#include "endurance/messages.hpp"
#include "endurance/producer.hpp"
#include "endurance/report.hpp"
#include "endurance/world.hpp"
#include "support/dice.hpp"
#include "support/hostile_pool.hpp"
#include "support/watchdog.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace endurance {
namespace {

using namespace std::chrono_literals;
using turnkey::drain_result;

constexpr auto patience = 60s;  // after it a wait is a stall

// ---- lives

turnkey::options<int> some_settings(dice& d, std::uint64_t number) {
  turnkey::options<int> o;
  o.retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 200us, .max_delay = 3ms};
  if (d.chance(25)) o.max_in_flight = 1 + d.below(6);
  o.max_pending = 100 + d.below(20'000);
  if (d.chance(25)) o.max_pending_per_key = 1 + d.below(200);
  if (d.chance(50)) o.turn_budget = static_cast<std::uint32_t>(1 + d.below(40));
  if (d.chance(25)) o.turn_time = {};
  o.max_dead = d.below(100);
  if (d.chance(30)) o.dead_action = turnkey::dead_action::hold_key;
  if (d.chance(60)) o.lease_time = std::chrono::microseconds(200 + d.below(4000));
  if (d.chance(60)) o.lease_expiry = turnkey::lease_expiry::release;
  o.jitter_seed = 1 + number;
  o.first_fence = (number + 1) << 32;  // grows from life to life
  return o;
}

// What a stop has handed back.
struct returned {
  turnkey::task_record<int> record;
  bool late;  // it was redriven
};

class run {
 public:
  explicit run(const arguments& a)
      : w_(a),
        dice_(a.seed),
        end_(turnkey::clock::now() + a.time),
        pool_(a.workers),
        hostile_(a.workers, a.seed, static_cast<unsigned>(a.faults * 100 / 18 + 0.99)),
        report_(w_, hostile_, total_) {
    for (std::size_t i = 0; i != a.producers; ++i)
      threads_.emplace_back([this, i, d = dice(dice_.roll())]() mutable { produce(i, d); });
    threads_.emplace_back(
        [this, d = dice(dice_.roll())]() mutable { meddle([&](life& here) { control(w_, here.tasks, d); }, 1); });
    for (int i = 0; i != 2; ++i) threads_.emplace_back([this, d = dice(dice_.roll())]() mutable { carry(d); });
  }
  run(const run&) = delete;
  run& operator=(const run&) = delete;
  ~run() {
    over_ = true;
    resting_ = false;
    for (std::thread& t : threads_) t.join();
  }

  int operator()() {
    std::vector<returned> undone;
    for (std::uint64_t number = 0; turnkey::clock::now() < end_; ++number) undone = live(number, std::move(undone));
    if (!undone.empty()) w_.broken("tasks were returned after all was drained");
    if (w_.letters == 0 && w_.callables != 0) w_.broken(std::to_string(w_.callables) + " callables are left");
    report_.account();
    return w_.flaws == 0 ? 0 : 1;
  }

 private:
  // ---- threads

  template <class Do>
  void meddle(Do action, int times) {
    while (!over_) {
      if (resting_) {
        ++idle_;
        while (resting_) std::this_thread::sleep_for(100us);
        --idle_;
      }
      if (const auto here = w_.now()) {
        for (int i = 0; i != times; ++i) action(*here);
      } else {
        std::this_thread::sleep_for(100us);
      }
    }
  }
  void produce(std::size_t number, dice& d) {
    producer me(w_, number);
    meddle([&](life& here) { me.act(here, d); }, 64);
  }
  void carry(dice& d) {
    while (true) {
      const bool last = over_;
      if (auto l = w_.take_letter(d)) {
        deliver(w_, std::move(*l), d);
        --w_.letters;
      } else if (last) {
        return;
      } else {
        std::this_thread::sleep_for(50us);
      }
    }
  }

  // ---- a life

  std::shared_ptr<life> born(std::uint64_t number) {
    const std::uint64_t where = dice_.below(10);
    turnkey::inline_executor here;
    if (where == 0) return born_on(here, number);
    return where < 6 ? born_on(hostile_, number) : born_on(pool_, number);
  }
  template <class Executor>
  std::shared_ptr<life> born_on(Executor& executor, std::uint64_t number) {
    auto born = std::make_shared<life>(executor, some_settings(dice_, number), number);
    born->beside = std::make_shared<messages>(w_, executor, number);
    return born;
  }

  // Takes what the last one left unfinished, and leaves it to the next.
  std::vector<returned> live(std::uint64_t number, std::vector<returned> undone) {
    auto here = born(number);
    keyed& s = here->tasks;
    const support::watchdog dog([&] { return stall(s); }, 3 * patience);
    w_.running = here.get();
    for (returned& each : undone) {
      const turnkey::task_id id = resubmit(s, each.record);
      if (each.late) here->heard.may_come_late(id);
    }
    w_.go_on_with(here);
    report_.follow(here);
    do {
      std::this_thread::sleep_until(
          (std::min)(end_, turnkey::clock::now() + std::chrono::milliseconds(50 + dice_.below(1000))));
      if (turnkey::clock::now() >= end_ || dice_.chance(30)) drain(*here);
    } while (turnkey::clock::now() < end_ && dice_.chance(50));

    const bool last = turnkey::clock::now() >= end_;
    if (last) rest();
    if (last) drain(*here);
    auto handed_back = s.stop();
    here->beside->stop();
    w_.go_on_with(nullptr);
    report_.follow(nullptr);
    std::vector<returned> records;
    for (auto& each : handed_back) {
      const bool late = here->heard.came_late(each.id());
      records.push_back({std::move(each), late});
    }
    wait_until("whoever holds an old scheduler lets it go", s, [&] { return here.use_count() == 1; });
    wait_until("the couriers deliver what is of no use any more", s, [&] { return w_.letters == 0; });
    total_.add(w_, *here, records.size());
    here->beside->check();
    for (const suspicion& each : std::exchange(w_.suspicions, {}))
      if (!here->heard.came_late(each.id)) w_.broken(each.what);
    // Rule 10.3 knows no order across keys: that of the ids is right for each.
    std::sort(records.begin(), records.end(),
              [](const auto& a, const auto& b) { return a.record.id() < b.record.id(); });
    return records;
  }

  turnkey::task_id resubmit(keyed& s, turnkey::task_record<int>& record) {
    while (true) {
      try {
        const turnkey::task_id id = s.submit(std::move(record));
        ++w_.accepted;
        return id;
      } catch (const turnkey::rejected&) {  // full, or this key is: room comes
        s.release_all();
        static_cast<void>(s.drain_for(1ms));
      }
    }
  }

  // ---- rests

  void rest() {
    resting_ = true;
    const auto limit = turnkey::clock::now() + patience;
    while (idle_ != threads_.size() - couriers && turnkey::clock::now() < limit) std::this_thread::sleep_for(100us);
  }

  // Until nothing is unfinished; then nothing may be left, and the books must balance.
  void drain(life& here) {
    const bool rested = resting_;
    if (!rested) rest();
    keyed& s = here.tasks;
    open_all(s);
    wait_until("everything is finished", s, [&] {
      s.release_all();  // what dies meanwhile may hold its key
      return s.drain_for(20ms) == drain_result::drained;
    });
    wait_until("all messages are handled", s, [&] { return here.beside->drained(); });
    s.release_all();
    const turnkey::stats now = s.stats();
    if (now.unfinished() != 0 || now.keys != 0) w_.broken("after a drain something is left: " + support::in_words(now));
    if (const auto id = here.heard.unbalanced()) w_.broken("task " + std::to_string(*id) + " did not end once a life");
    ++total_.drains;
    resting_ = rested;
  }

  template <class Condition>
  void wait_until(const char* what, keyed& s, Condition condition) {
    const auto limit = turnkey::clock::now() + patience;
    while (!condition()) {
      if (turnkey::clock::now() < limit) {
        std::this_thread::sleep_for(100us);
        continue;
      }
      std::fprintf(stderr, "\nstalled: %lld s and still not: %s\n%s\n", static_cast<long long>(patience.count()), what,
                   stall(s).c_str());
      std::_Exit(1);  // threads may be stuck
    }
  }

  // What a stalled scheduler says of itself and of its oldest task.
  std::string stall(keyed& s) {
    std::string words = support::in_words(s.stats()) + ", letters " + std::to_string(w_.letters);
    auto keys = s.busiest_keys(w_.data.size());
    const auto oldest = std::max_element(keys.begin(), keys.end(),
                                         [](const auto& a, const auto& b) { return a.oldest_age < b.oldest_age; });
    if (oldest == keys.end()) return words;
    words += "\nthe oldest is of key " + std::to_string(oldest->key) + ", whose first task is " +
             to_string(oldest->head_state);
    if (const auto info = s.find(oldest->head)) words += ": " + to_string(info->why);
    return words;
  }

  static constexpr std::size_t couriers = 2;
  world w_;
  totals total_;
  dice dice_;
  const turnkey::time_point end_;
  turnkey::thread_pool pool_;
  support::hostile_pool hostile_;
  std::atomic<bool> over_{false};
  std::atomic<bool> resting_{false};
  std::atomic<std::size_t> idle_{0};
  report report_;
  std::vector<std::thread> threads_;
};

}  // namespace
}  // namespace endurance

int main(int argc, char** argv) {
  endurance::arguments a;
  try {
    a = endurance::arguments_from(argc, argv);
  } catch (const std::invalid_argument& e) {
    std::fprintf(stderr, "endurance: %s\n\n%s", e.what(), endurance::help);
    return 2;
  }
  if (a.help) return std::fputs(endurance::help, stdout), 0;
  std::printf("endurance --for %llds --keys %zu --producers %zu --workers %zu --faults %g --seed %llu\n",
              static_cast<long long>(a.time.count()), a.keys, a.producers, a.workers, a.faults,
              static_cast<unsigned long long>(a.seed));
  std::fflush(stdout);
  return endurance::run(a)();
}
