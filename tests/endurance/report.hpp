// What an endurance run tells: a live line, and at the end the account.
#pragma once

#include "endurance/world.hpp"
#include "support/dice.hpp"
#include "support/hostile_pool.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace endurance {

// Over all lives that are over, as their schedulers counted.
struct totals {
  std::uint64_t lives = 0;
  std::uint64_t drains = 0;
  std::uint64_t submitted = 0;
  std::uint64_t started = 0;
  std::uint64_t succeeded = 0;
  std::uint64_t cancelled = 0;
  std::uint64_t returned = 0;
  std::uint64_t dead = 0;  // and never redriven
  std::uint64_t left_in_store = 0;
  std::uint64_t evicted = 0;
  std::uint64_t redriven = 0;
  std::uint64_t lost = 0;  // leases
  std::uint64_t expired = 0;
  std::atomic<std::uint64_t> ends{0};

  // A stopped one, with what its stop returned.
  void add(world& w, life& l, std::size_t records) {
    const turnkey::stats s = l.tasks.stats();
    const auto same = [&](const char* what, std::uint64_t a, std::uint64_t b) {
      if (a != b) w.broken(std::string(what) + ": " + std::to_string(a) + " and " + std::to_string(b));
    };
    same("returned and counted", records, s.undone);
    same("accepted and redriven against ended", s.submitted + s.redriven,
         s.succeeded + s.died + s.cancelled + s.undone);
    same("heard and counted: submitted", l.heard.count(event_kind::submitted), s.submitted);
    same("heard and counted: started", l.heard.count(event_kind::started), s.started);
    same("heard and counted: succeeded", l.heard.count(event_kind::succeeded), s.succeeded);
    same("heard and counted: dead", l.heard.count(event_kind::dead), s.died);
    same("heard and counted: cancelled", l.heard.count(event_kind::cancelled), s.cancelled);
    same("heard and counted: undone", l.heard.count(event_kind::undone), s.undone);
    same("heard and counted: redriven", l.heard.count(event_kind::redriven), s.redriven);
    same("heard and counted: evicted", l.heard.count(event_kind::evicted), s.dead_evicted);
    same("unfinished after a stop", s.unfinished(), 0);
    if (const auto id = l.heard.unbalanced()) w.broken("task " + std::to_string(*id) + " did not end once a life");
    ++lives;
    submitted += s.submitted;
    started += s.started;
    succeeded += s.succeeded;
    cancelled += s.cancelled;
    returned += records;
    dead += s.died - s.redriven;
    left_in_store += s.dead;
    evicted += s.dead_evicted;
    redriven += s.redriven;
    lost += s.leases_lost;
    expired += s.leases_expired;
    ends += l.heard.ends();
  }
};

// Of this process, in MB.
inline double resident_memory() {
  std::ifstream file("/proc/self/statm");
  double all = 0;
  double resident = 0;
  file >> all >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / 1e6;
}

class report {
 public:
  report(world& w, support::hostile_pool& hostile, totals& total)
      : w_(w), hostile_(hostile), total_(total), thread_([this] { tell(); }) {}
  report(const report&) = delete;
  report& operator=(const report&) = delete;
  ~report() { finish(); }

  // None: the one before is over, and its totals will be added.
  void follow(std::shared_ptr<life> now) {
    const std::lock_guard lock(mutex_);
    followed_ = std::move(now);
  }

  // The books: what was submitted has come to one end each.
  void account() {
    finish();
    const totals& t = total_;
    const std::uint64_t discarded = w_.discarded;
    std::printf(
        "\n%llu lives, %llu drains, %llu attempts, %llu redriven, %llu of %llu expired leases taken away, %llu "
        "messages\n",
        n(t.lives), n(t.drains), n(t.started), n(t.redriven), n(t.lost), n(t.expired), n(w_.messages));
    std::printf("faults: %s\n", faults().c_str());
    std::printf("submitted %12llu = succeeded %llu + dead %llu + cancelled %llu + returned %llu\n", n(t.submitted),
                n(t.succeeded), n(t.dead), n(t.cancelled), n(t.returned));
    std::printf("     dead %12llu = in the store %llu + discarded %llu + evicted %llu\n", n(t.dead), n(t.left_in_store),
                n(discarded), n(t.evicted));
    balance("the account", t.submitted, t.succeeded + t.dead + t.cancelled + t.returned);
    balance("the dead", t.dead, t.left_in_store + discarded + t.evicted);
    balance("what was accepted", t.submitted, w_.accepted);
    balance("what callbacks and couriers said succeeded", t.succeeded, w_.succeeded);
    judge_memory();
    std::printf(w_.flaws == 0 ? "all was well\n" : "broken %llu times\n", n(w_.flaws));
  }

 private:
  static unsigned long long n(std::uint64_t number) { return number; }

  void balance(const char* what, std::uint64_t left, std::uint64_t right) {
    if (left != right)
      w_.broken(std::string(what) + " does not balance: " + std::to_string(left) + " and " + std::to_string(right));
  }

  // After the first third the memory at its fullest may not grow by more than a quarter; in a sanitizer it may.
  void judge_memory() {
    std::printf("memory at its fullest: %.0f MB in the first third, %.0f MB after it\n", warm_, full_);
    if (!support::sanitized && full_ > 1.25 * warm_ + 32) w_.broken("memory grows");
  }

  std::string faults() {
    std::string words;
    const auto say = [&words](std::uint64_t count, const char* what) {
      if (count != 0) words += std::to_string(count) + ' ' + what + ' ';
    };
    for (std::size_t i = 0; i != fault_names.size(); ++i) say(w_.faults[i], fault_names[i]);
    const auto done = hostile_.done();
    words += "permits: ";
    say(done.refused, "refused");
    say(done.thrown, "thrown");
    say(done.dropped, "dropped");
    say(done.doubled, "doubled");
    say(done.delayed, "delayed");
    say(done.run_inline, "run inline");
    say(done.died, "deaths");
    words.pop_back();
    return words;
  }

  void finish() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    if (thread_.joinable()) thread_.join();
  }

  void tell() {
    const bool terminal = isatty(STDOUT_FILENO) != 0;
    const auto began = std::chrono::steady_clock::now();
    std::uint64_t before = 0;
    std::unique_lock lock(mutex_);
    for (int second = 1; !changed_.wait_until(lock, began + std::chrono::seconds{second}, [this] { return over_; });
         ++second) {
      const auto now = followed_;
      lock.unlock();
      const std::uint64_t ends = total_.ends + (now ? now->heard.ends() : 0);
      const std::uint64_t keys = now ? now->tasks.stats().keys : 0;
      const double memory = resident_memory();
      double& fullest = second * 3 <= w_.wanted.time.count() ? warm_ : full_;
      fullest = (std::max)(fullest, memory);
      const auto rate = ends > before ? ends - before : 0;
      before = (std::max)(before, ends);
      if (terminal || second % 10 == 0) {
        std::printf("%s%5d s  %llu tasks, %llu/s  %llu keys  %.0f MB (%+.0f)  %s%s", terminal ? "\r" : "", second,
                    n(ends), n(rate), n(keys), memory, warm_ != 0 ? memory - warm_ : 0.0, faults().c_str(),
                    terminal ? "\x1b[K" : "\n");
        std::fflush(stdout);
      }
      lock.lock();
    }
  }

  world& w_;
  support::hostile_pool& hostile_;
  totals& total_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::shared_ptr<life> followed_;
  bool over_ = false;
  double warm_ = 0;  // MB, at the fullest
  double full_ = 0;
  std::thread thread_;
};

}  // namespace endurance
