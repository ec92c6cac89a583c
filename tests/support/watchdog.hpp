// Turns a hang into evidence: unless it is destroyed in time, it prints what it is told to and aborts.
#pragma once

#include <turnkey/inspect.hpp>

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace support {

// The stats of a scheduler in one line.
inline std::string in_words(const turnkey::stats& s) {
  std::string words;
  const auto say = [&words](const char* what, std::uint64_t n) {
    words += (words.empty() ? "" : ", ") + std::string(what) + ' ' + std::to_string(n);
  };
  say("submitted", s.submitted);
  say("started", s.started);
  say("succeeded", s.succeeded);
  say("failed attempts", s.failed_attempts);
  say("postponed", s.postponed);
  say("died", s.died);
  say("cancelled", s.cancelled);
  say("undone", s.undone);
  say("redriven", s.redriven);
  say("rejected", s.rejected);
  say("refusals", s.executor_refusals);
  say("permits lost", s.permits_lost);
  say("evicted", s.dead_evicted);
  say("expired", s.leases_expired);
  say("lost", s.leases_lost);
  say("late", s.late_results);
  say("waiting", s.waiting);
  say("ready", s.ready);
  say("running", s.running);
  say("delayed", s.delayed);
  say("dead", s.dead);
  say("keys", s.keys);
  say("held", s.held_keys);
  say("paused", s.paused_keys);
  return words;
}

class watchdog {
 public:
  // `evidence` is called on a thread of the watchdog's own.
  explicit watchdog(std::function<std::string()> evidence, std::chrono::seconds limit = std::chrono::seconds{60})
      : thread_([this, evidence = std::move(evidence), limit] {
          std::unique_lock lock(mutex_);
          if (changed_.wait_for(lock, limit, [this] { return over_; })) return;
          std::fprintf(stderr, "watchdog: nothing has ended for %lld s\n", static_cast<long long>(limit.count()));
          std::fprintf(stderr, "watchdog: %s\n", evidence().c_str());
          std::abort();
        }) {}
  watchdog(const watchdog&) = delete;
  watchdog& operator=(const watchdog&) = delete;
  ~watchdog() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace support
