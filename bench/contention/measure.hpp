// One measurement: producers submit as fast as they may for a while.
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/outcome.hpp>

#include "arguments.hpp"
#include "load.hpp"
#include "machine.hpp"
#include "progress.hpp"
#include "support/workload.hpp"
#include "watch.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <latch>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace contention {

struct measurement {
  std::uint64_t tasks = 0;
  double seconds = 0;
  double cpu_seconds = 0;          // of the whole process meanwhile
  std::optional<double> others{};  // processors that other processes kept busy meanwhile; none where nobody knows
  std::string broken{};            // empty: every promise was kept

  [[nodiscard]] double per_second() const { return static_cast<double>(tasks) / seconds; }
  [[nodiscard]] double nanoseconds() const { return seconds * 1e9 / static_cast<double>(tasks); }
  [[nodiscard]] double cpu_nanoseconds() const { return cpu_seconds * 1e9 / static_cast<double>(tasks); }
};

// How much longer than --seconds a measurement takes, since it is warmed up first.
inline constexpr double warm_up = 0.1;

class too_short : public std::runtime_error {
 public:
  too_short() : std::runtime_error("no task finished within --seconds: give it longer, or shorter --work") {}
};

// All counters at one time.
struct reading {
  explicit reading(const watch& watched)
      : tasks(watched.finished()),
        seconds(std::chrono::duration<double>(bench::clock::now().time_since_epoch()).count()),
        cpu_seconds(bench::cpu_nanoseconds() / 1e9),
        busy_seconds(machine_busy_seconds()) {}

  measurement operator-(const reading& earlier) const {
    measurement found{tasks - earlier.tasks, seconds - earlier.seconds, cpu_seconds - earlier.cpu_seconds};
    if (busy_seconds && earlier.busy_seconds)
      found.others = (std::max)(0.0, (*busy_seconds - *earlier.busy_seconds - found.cpu_seconds) / found.seconds);
    return found;
  }

  std::uint64_t tasks;
  double seconds;
  double cpu_seconds;
  std::optional<double> busy_seconds;
};

// What is the same for all tasks of a measurement.
struct course {
  course(std::uint32_t keys, const arguments& asked)
      : watched(keys, asked.producers),
        rounds(static_cast<std::uint32_t>(std::chrono::duration<double, std::micro>(asked.work).count() *
                                          bench::rounds_per_microsecond())),
        fail(asked.fail) {}

  watch watched;
  std::uint32_t rounds;  // that a task spins
  double fail;           // the share of the first attempts that fail
};

// A task of 24 bytes, like most captures more than fits into a std::function.
struct infallible_task {
  course* on;
  task_name name;
  std::uint32_t key;

  void operator()() const noexcept {
    on->watched.enter(key);
    bench::spin(on->rounds);
    on->watched.finish(key, name, bench::mixed(static_cast<std::uint64_t>(name)));
    on->watched.leave(key);
  }
};

// The same for --fail: a share of the first attempts fails, after having worked.
struct fallible_task : infallible_task {
  turnkey::outcome operator()(const turnkey::attempt& attempt) const {
    const bool fails = attempt.number() == 1 && chance(static_cast<std::uint64_t>(name)) < on->fail;
    if (!fails) {
      infallible_task::operator()();
      return turnkey::outcome::success();
    }
    on->watched.enter(key);
    bench::spin(on->rounds);
    on->watched.leave(key);
    return turnkey::outcome::retry();
  }
};

// How many tasks may be unfinished at once: so many that no worker ever waits for a producer that rests, so few that
// the busiest key is through with its part in a tenth of the measurement.
inline std::uint64_t most_unfinished(const arguments& asked, double busiest) {
  const auto seconds = [](std::chrono::nanoseconds time) { return std::chrono::duration<double>(time).count(); };
  const double on_its_key = (seconds(asked.work) + asked.fail * seconds(asked.rest())) * busiest;
  const double on_a_worker = seconds(asked.work) / asked.workers;
  const double each = (std::max)(on_its_key, on_a_worker);
  const double most = 65'536;
  const double fit = each > 0 ? asked.seconds / 10 / each : most;
  return static_cast<std::uint64_t>(std::clamp(fit, 4.0 * asked.workers, most));
}

template <class Key, class Task, class Contender>
class measuring {
 public:
  measuring(const arguments& asked, const load<Key>& load)
      : asked_(asked), load_(load), course_(load.size(), asked), submitted_(asked.producers) {}

  // Submits to `contender`, which is fresh. The figures are of the time between a start that warms it up and the last
  // submit: what is unfinished then is waited for, and checked like the rest.
  measurement run(Contender& contender, bench::promise promised, progress& progress) {
    std::latch ready(asked_.producers + 1);
    std::vector<std::thread> producers;
    for (std::size_t p = 0; p != asked_.producers; ++p) {
      producers.emplace_back([&, p] {
        ready.arrive_and_wait();
        produce(contender, p);
      });
    }
    ready.arrive_and_wait();
    std::this_thread::sleep_for(std::chrono::duration<double>(asked_.seconds * warm_up));
    const reading begin(course_.watched);
    reading now = begin;
    while (now.seconds - begin.seconds < asked_.seconds) {
      const double rest = asked_.seconds - (now.seconds - begin.seconds);
      std::this_thread::sleep_for((std::min)(std::chrono::duration<double>(rest), progress.interval()));
      now = reading(course_.watched);
      progress.show((now - begin).per_second());
    }
    ended_ = true;
    for (std::thread& producer : producers) producer.join();
    contender.wait_idle();
    measurement found = now - begin;
    found.broken = course_.watched.broken(promised, submitted_);
    if (found.tasks == 0) throw too_short();
    return found;
  }

 private:
  void produce(Contender& contender, std::size_t producer) {
    const std::vector<std::uint32_t>& turns = load_.turns(producer);
    const std::uint64_t most = most_unfinished(asked_, load_.busiest());
    const std::uint64_t block = std::clamp<std::uint64_t>(most / asked_.producers / 4, 1, 256);
    std::uint64_t count = 0;
    std::size_t turn = 0;
    do {
      if (accepted_.fetch_add(block, std::memory_order_relaxed) + block > course_.watched.finished() + most) {
        accepted_.fetch_sub(block, std::memory_order_relaxed);
        std::this_thread::sleep_for(std::chrono::microseconds(50));
        continue;
      }
      for (std::uint64_t i = 0; i != block; ++i) {
        const std::uint32_t key = turns[turn];
        if (++turn == turns.size()) turn = 0;
        contender.submit(load_.key(key), Task{&course_, name_task(producer, count++), key});
      }
    } while (!ended_.load(std::memory_order_relaxed));
    submitted_[producer] = count;
  }

  const arguments& asked_;
  const load<Key>& load_;
  course course_;
  std::atomic<bool> ended_{false};
  std::atomic<std::uint64_t> accepted_{0};  // and what a producer is about to submit
  std::vector<std::uint64_t> submitted_;    // by producer, each written by it at its end
};

}  // namespace contention
