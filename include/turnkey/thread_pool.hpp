// A small pool for those who have none: threads and one queue of permits. Not a general pool: it runs turnkey's work.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/executor.hpp>

#include <cstddef>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {

// An executor with threads of its own. Several schedulers may share one.
//   Needs    it outlives stop() of the schedulers that refer to it.
//   Threads  operator() and stop() from any thread at once.
class thread_pool {
 public:
  // Starts the threads; 0 means as many as the machine has.
  //   Throws   std::system_error when one cannot be started; std::bad_alloc. The ones that were started are ended then.
  explicit thread_pool(std::size_t threads = 0) {
    if (threads == 0) threads = std::thread::hardware_concurrency();
    if (threads == 0) threads = 1;
    threads_.reserve(threads);
    try {
      while (threads_.size() != threads) threads_.emplace_back([state = state_] { state->run(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~thread_pool() { end(); }
  thread_pool(const thread_pool&) = delete;
  thread_pool& operator=(const thread_pool&) = delete;

  // Queues a permit; false, and it is not queued, after stop().
  //   Throws   std::bad_alloc; it is not queued then.
  bool operator()(work permit) {
    detail::lock lock(state_->mutex);
    if (state_->stopped) return false;
    state_->coming.push_back(std::move(permit));
    if (state_->sleeping != 0) state_->changed.notify_one();
    return true;
  }

  // Drops what is queued, takes no more, and lets running permits end; does not wait for them.
  void stop() noexcept {
    detail::lock lock(state_->mutex);
    state_->stopped = true;
    state_->changed.notify_all();
    while (!state_->empty()) {
      {
        const work dropped = state_->take();
        lock.unlock();
      }  // it dies outside the lock
      lock.relock();
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }

 private:
  // Shared with the threads: one of them may destroy the pool, and then ends on its own.
  struct state {
    void run() noexcept {
      detail::lock lock(mutex);
      while (!stopped) {
        if (empty()) {
          ++sleeping;
          changed.wait(mutex);
          --sleeping;
          continue;
        }
        {
          const work permit = take();
          lock.unlock();
          permit();
        }
        lock.relock();
      }
    }

    [[nodiscard]] bool empty() const noexcept TURNKEY_REQUIRES(mutex) { return next == going.size() && coming.empty(); }
    // The oldest permit. A queue of two vectors: what comes in is turned over when all that goes out is gone.
    [[nodiscard]] work take() noexcept TURNKEY_REQUIRES(mutex) {
      if (next == going.size()) {
        going.clear();
        going.swap(coming);
        next = 0;
      }
      return std::move(going[next++]);
    }

    detail::mutex mutex;
    detail::condition_variable changed;
    std::vector<work> coming TURNKEY_GUARDED_BY(mutex);
    std::vector<work> going TURNKEY_GUARDED_BY(mutex);
    std::size_t next TURNKEY_GUARDED_BY(mutex) = 0;  // in `going`
    std::size_t sleeping TURNKEY_GUARDED_BY(mutex) = 0;
    bool stopped TURNKEY_GUARDED_BY(mutex) = false;
  };

  void end() noexcept {
    stop();
    for (std::thread& thread : threads_) {
      if (thread.get_id() == std::this_thread::get_id()) {
        thread.detach();
      } else {
        thread.join();
      }
    }
  }

  std::shared_ptr<state> state_ = std::make_shared<state>();
  std::vector<std::thread> threads_;
};

}  // namespace turnkey::inline v1
