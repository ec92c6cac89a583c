// A std::function pool with threads, as people write them by hand, that now and then misbehaves in every way that a
// pool can: it throws, refuses, both also after it queued, drops, doubles, runs inline, blocks, dies with all that it
// has, keeps what it ran, and keeps for ever what nobody runs.
#pragma once

#include <turnkey/executor.hpp>

#include "support/dice.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace support {

class hostile_pool {
 public:
  // So far, each counted when it was done.
  struct misdeeds {
    std::uint64_t refused = 0;
    std::uint64_t thrown = 0;
    std::uint64_t dropped = 0;
    std::uint64_t run_inline = 0;
    std::uint64_t died = 0;
    std::uint64_t delayed = 0;
    std::uint64_t doubled = 0;
  };

  // Of a hundred calls about 18 x `malice` go wrong; `for_ever` says whether it may keep what nobody runs, until it
  // dies.
  enum class keeping { what_it_ran, for_ever };
  hostile_pool(std::size_t threads, std::uint64_t seed, unsigned malice = 1, keeping keeps = keeping::what_it_ran)
      : dice_(seed), malice_(malice), keeps_(keeps) {
    for (std::size_t i = 0; i != threads; ++i) threads_.emplace_back([this] { run(); });
  }
  hostile_pool(const hostile_pool&) = delete;
  hostile_pool& operator=(const hostile_pool&) = delete;
  ~hostile_pool() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  bool operator()(turnkey::work permit) {
    std::unique_lock lock(mutex_);
    const std::uint64_t what = dice_.below(100);
    if (what < 2 * malice_) return ++done_.refused, false;
    if (what < 4 * malice_) {
      ++done_.thrown;
      throw std::runtime_error("the pool throws");
    }
    if (what < 6 * malice_) {  // drops, outside the lock
      ++done_.dropped;
      lock.unlock();
      return true;
    }
    if (what < 8 * malice_) {
      ++done_.run_inline;
      lock.unlock();
      permit();
      return true;
    }
    if (what < 9 * malice_) {  // the next one is another pool
      ++done_.died;
      lock.unlock();
      die();
      return what % 2 != 0;
    }
    if (what < 10 * malice_ && keeps_ == keeping::for_ever && dice_.chance(30)) {
      kept_.push_back(permit);
      return true;
    }
    const bool delays = what >= 10 * malice_ && what < 12 * malice_;
    done_.delayed += delays;
    const auto pause = std::chrono::microseconds(delays ? dice_.below(300) : 0);
    jobs_.emplace_back([permit, pause] {
      if (pause.count() != 0) std::this_thread::sleep_for(pause);
      permit();
    });
    changed_.notify_one();
    if (what < 12 * malice_) return true;
    if (what < 14 * malice_) {
      ++done_.doubled;
      jobs_.push_back(jobs_.back());
    }
    if (what < 16 * malice_ && what % 2 == 0) return ++done_.refused, false;  // and has queued it
    if (what < 18 * malice_ && what % 3 == 0) {
      ++done_.thrown;
      throw 12;  // and has queued it
    }
    return true;
  }

  [[nodiscard]] misdeeds done() {
    const std::lock_guard lock(mutex_);
    return done_;
  }

  // Loses all that it has.
  void die() {
    std::deque<std::function<void()>> jobs;
    std::vector<turnkey::work> kept;
    const std::lock_guard lock(mutex_);  // is unlocked before they die
    jobs.swap(jobs_);
    kept.swap(kept_);
  }

 private:
  void run() {
    std::function<void()> job;  // it keeps what it ran until the next one comes
    while (true) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return over_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      std::function<void()> next = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job = std::move(next);
      job();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  std::vector<turnkey::work> kept_;
  dice dice_;
  unsigned malice_;
  keeping keeps_;
  misdeeds done_;
  bool over_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace support
