// Finds out whether the library holds a lock where it calls the user's code, without hanging when it does.
#pragma once

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

class lock_probe {
 public:
  ~lock_probe() {
    for (std::thread& thread : threads_) thread.join();
  }

  // Calls `f`, which takes the lock in question, on another thread; counts it as blocked when it does not come back
  // within two seconds.
  template <class F>
  void ask(F f) {
    std::promise<void> done;
    std::future<void> answer = done.get_future();
    std::thread thread([f = std::move(f), done = std::move(done)]() mutable {
      f();
      done.set_value();
    });
    if (answer.wait_for(std::chrono::seconds{2}) != std::future_status::ready) ++blocked_;
    ++asked_;
    std::lock_guard lock(mutex_);
    threads_.push_back(std::move(thread));
  }

  [[nodiscard]] int asked() const { return asked_; }
  [[nodiscard]] int blocked() const { return blocked_; }

 private:
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::atomic<int> asked_{0};
  std::atomic<int> blocked_{0};
};
