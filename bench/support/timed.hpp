// Tasks that arrive at set times, and how long each waited for its start.
#pragma once

#include "support/checks.hpp"
#include "support/workload.hpp"

#include <chrono>
#include <cstddef>
#include <random>
#include <vector>

namespace bench {

// When each of `count` tasks is due, counted from the first submit, if they come at random at this rate.
inline std::vector<clock::duration> random_arrivals(std::size_t count, double per_second) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> gap(per_second);
  std::vector<clock::duration> due(count);
  double at = 0;
  for (clock::duration& each : due)
    each = std::chrono::duration_cast<clock::duration>(std::chrono::duration<double>(at += gap(random)));
  return due;
}

// A task of a workload that notes when it started.
struct timed_task {
  checks::task run;
  clock::time_point* started;

  void operator()() const noexcept {
    *started = clock::now();
    run();
  }
};

// Submits each task of a workload, of one producer, when it is due, and waits for the last one.
//   Gives    the nanoseconds from just before each submit to the start of the task. A producer that lost its processor
//            submits late, and that is not counted.
template <class System, class Key>
std::vector<double> submit_as_due(System& system, checks& watch, const workload& w, const std::vector<Key>& keys,
                                  const std::vector<clock::duration>& due) {
  std::vector<clock::time_point> submitted(w.tasks());
  std::vector<clock::time_point> started(w.tasks());
  const clock::time_point start = clock::now();
  for (std::size_t i = 0; i != w.tasks(); ++i) {
    do submitted[i] = clock::now();
    while (submitted[i] - start < due[i]);
    system.submit(keys[w.key_of[i]], timed_task{watch.at(i, 0), &started[i]});
  }
  system.wait_idle();
  std::vector<double> waited(w.tasks());
  for (std::size_t i = 0; i != w.tasks(); ++i) waited[i] = nanoseconds(started[i] - submitted[i]);
  return waited;
}

}  // namespace bench
