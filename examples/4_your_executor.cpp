// Wraps a hand-written pool of std::function jobs in one line, then breaks it on purpose: once its door throws now
// and then, once it drops jobs now and then. No task is lost, none runs twice and none runs out of order, because the
// pool is handed permits to run what is ready next, not the tasks themselves.
#include <turnkey/turnkey.hpp>

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

// The pool that everybody has written once.
class function_pool {
 public:
  explicit function_pool(int threads) {
    for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
  }

  ~function_pool() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  void post(std::function<void()> job) {
    {
      const std::lock_guard lock(mutex_);
      jobs_.push_back(std::move(job));
    }
    changed_.notify_one();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return closed_ || !jobs_.empty(); });
      if (jobs_.empty()) return;
      const std::function<void()> job = std::move(jobs_.front());
      jobs_.pop_front();
      lock.unlock();
      job();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

constexpr std::size_t keys = 20;
constexpr int tasks_per_key = 500;

// Sends 20 x 500 ordered tasks through `executor` and says what became of them.
template <class Executor>
void try_out(const std::string& name, Executor executor) {
  turnkey::scheduler<std::size_t> scheduler{executor, {.default_policy = turnkey::policy::ordered}};

  // Plain vectors, no lock: ordered tasks of one key happen one after the other, whichever thread runs them.
  std::array<std::vector<int>, keys> ran;
  for (int i = 0; i < tasks_per_key; ++i)
    for (std::size_t key = 0; key < keys; ++key) scheduler.submit(key, [&ran, key, i] { ran[key].push_back(i); });
  const turnkey::drain_result end = scheduler.drain();

  std::size_t in_order = 0;
  std::size_t total = 0;
  for (const std::vector<int>& numbers : ran) {
    total += numbers.size();
    bool each_once_and_in_order = numbers.size() == tasks_per_key;
    for (std::size_t i = 1; i < numbers.size(); ++i) each_once_and_in_order &= numbers[i] == numbers[i - 1] + 1;
    in_order += each_once_and_in_order ? 1 : 0;
  }

  const turnkey::stats seen = scheduler.stats();
  std::cout << name << ":\n  " << total << " tasks of " << keys * tasks_per_key << " ran, " << in_order << " keys of "
            << keys << " have each of theirs once and in order; " << to_string(end)
            << "\n  refusals were noticed: " << (seen.executor_refusals > 0 ? "yes" : "no")
            << "; lost permits were noticed: " << (seen.permits_lost > 0 ? "yes" : "no") << "\n";
  std::cerr << name << ": " << seen.executor_refusals << " refusals, " << seen.permits_lost << " permits lost\n";
}

int main() {
  function_pool pool{4};

  // The one line.
  try_out("a good pool", [&pool](const turnkey::work& work) { pool.post(work); });

  // The first permit and every third after it are refused at the door.
  std::atomic<int> offered{0};
  try_out("a pool that throws now and then", [&](const turnkey::work& work) {
    if (offered++ % 3 == 0) throw std::runtime_error("the queue is full");
    pool.post(work);
  });

  // The first permit and every third after it are taken, and forgotten.
  std::atomic<int> taken{0};
  try_out("a pool that drops now and then", [&](const turnkey::work& work) {
    if (taken++ % 3 == 0) return;
    pool.post(work);
  });
}
