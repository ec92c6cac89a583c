// What people use in place of a keyed scheduler, each the shortest that the standard library allows, and turnkey on the
// same pool, all behind one interface: X(workers), submit(key, f), wait_idle(), and hold() and let_go() for whoever
// needs a backlog. Each says what it promises; the checks hold it to that. They are not a library: none can fail,
// cancel or retry.
#pragma once

#include <turnkey/turnkey.hpp>

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

namespace bench {

// What holds between tasks of one key.
enum class promise : std::uint8_t {
  nothing,    // they run as they come
  exclusion,  // they never overlap
  order,      // they never overlap, and run in the order in which a producer submitted them
};

// The pool that most people write: threads, one mutex, one queue of std::function.
class task_pool {
 public:
  explicit task_pool(unsigned workers) {
    for (unsigned i = 0; i != workers; ++i) threads_.emplace_back([this] { run(); });
  }
  ~task_pool() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  task_pool(const task_pool&) = delete;
  task_pool& operator=(const task_pool&) = delete;

  template <class F>
  void post(F&& f) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.emplace_back(std::forward<F>(f));
    }
    changed_.notify_one();
  }

  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return tasks_.empty() && active_ == 0; });
  }

  // From hold() to let_go() nothing starts: a backlog builds up.
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopped_ || (!held_ && !tasks_.empty()); });
      if (stopped_) return;
      ++active_;
      {
        const std::function<void()> task = std::move(tasks_.front());
        tasks_.pop_front();
        lock.unlock();
        task();
      }
      lock.lock();
      if (--active_ == 0 && tasks_.empty()) idle_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  std::deque<std::function<void()>> tasks_;
  std::size_t active_ = 0;
  bool held_ = false;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

// No rule by key at all: the price that a keyed scheduler is measured against.
template <class Key>
class bare_pool {
 public:
  static constexpr const char* name = "bare_pool";
  static constexpr promise promises = promise::nothing;

  explicit bare_pool(unsigned workers) : pool_(workers) {}
  template <class F>
  void submit(const Key&, F&& f) {
    pool_.post(std::forward<F>(f));
  }
  void wait_idle() { pool_.wait_idle(); }
  void hold() { pool_.hold(); }
  void let_go() { pool_.let_go(); }

 private:
  task_pool pool_;
};

// One mutex over a map from key to queue, with workers that take turns at the keys. It forgets a key that is done.
template <class Key>
class map_of_queues {
 public:
  static constexpr const char* name = "map_of_queues";
  static constexpr promise promises = promise::order;

  explicit map_of_queues(unsigned workers) {
    for (unsigned i = 0; i != workers; ++i) threads_.emplace_back([this] { run(); });
  }
  ~map_of_queues() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }
  map_of_queues(const map_of_queues&) = delete;
  map_of_queues& operator=(const map_of_queues&) = delete;

  template <class F>
  void submit(const Key& key, F&& f) {
    {
      const std::lock_guard lock(mutex_);
      line& own = *lines_.try_emplace(key).first;
      own.second.emplace_back(std::forward<F>(f));
      if (own.second.size() > 1) return;  // its turn is arranged already
      ready_.push_back(&own);
    }
    changed_.notify_one();
  }

  void wait_idle() {
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return lines_.empty(); });
  }
  void hold() {
    const std::lock_guard lock(mutex_);
    held_ = true;
  }
  void let_go() {
    {
      const std::lock_guard lock(mutex_);
      held_ = false;
    }
    changed_.notify_all();
  }

 private:
  using map = std::unordered_map<Key, std::deque<std::function<void()>>>;
  using line = typename map::value_type;

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return stopped_ || (!held_ && !ready_.empty()); });
      if (stopped_) return;
      line& next = *ready_.front();
      ready_.pop_front();
      {
        const std::function<void()> task = std::move(next.second.front());
        lock.unlock();
        task();
      }
      lock.lock();
      next.second.pop_front();  // only now, so that a submit meanwhile finds the key taken
      if (!next.second.empty()) {
        ready_.push_back(&next);
      } else {
        lines_.erase(lines_.find(next.first));
        if (lines_.empty()) idle_.notify_all();
      }
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::condition_variable idle_;
  map lines_;
  std::deque<line*> ready_;
  bool held_ = false;
  bool stopped_ = false;
  std::vector<std::thread> threads_;
};

// A mutex for every key, which a task locks once it has a worker. Order is lost, and a busy key holds workers.
template <class Key>
class mutex_per_key {
 public:
  static constexpr const char* name = "mutex_per_key";
  static constexpr promise promises = promise::exclusion;

  explicit mutex_per_key(unsigned workers) : pool_(workers) {}
  template <class F>
  void submit(const Key& key, F&& f) {
    pool_.post([&own = mutex_of(key), f = std::forward<F>(f)]() mutable {
      const std::lock_guard lock(own);
      f();
    });
  }
  void wait_idle() { pool_.wait_idle(); }
  void hold() { pool_.hold(); }
  void let_go() { pool_.let_go(); }

 private:
  std::mutex& mutex_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    return mutexes_[key];
  }

  std::mutex mutex_;
  std::unordered_map<Key, std::mutex> mutexes_;
  task_pool pool_;
};

// Workers with a queue each; the hash of a key says which. Cheap, and strangers wait for each other.
template <class Key>
class hash_onto_workers {
 public:
  static constexpr const char* name = "hash_onto_workers";
  static constexpr promise promises = promise::order;

  explicit hash_onto_workers(unsigned workers) {
    for (unsigned i = 0; i != workers; ++i) pools_.push_back(std::make_unique<task_pool>(1));
  }
  template <class F>
  void submit(const Key& key, F&& f) {
    pools_[std::hash<Key>{}(key) % pools_.size()]->post(std::forward<F>(f));
  }
  void wait_idle() {
    for (const auto& pool : pools_) pool->wait_idle();
  }
  void hold() {
    for (const auto& pool : pools_) pool->hold();
  }
  void let_go() {
    for (const auto& pool : pools_) pool->let_go();
  }

 private:
  std::vector<std::unique_ptr<task_pool>> pools_;
};

// A strand for every key: it is posted when its first task comes, and runs all that it finds. It is never forgotten,
// since nobody knows when that would be safe.
template <class Key>
class strand_per_key {
 public:
  static constexpr const char* name = "strand_per_key";
  static constexpr promise promises = promise::order;

  explicit strand_per_key(unsigned workers) : pool_(workers) {}
  template <class F>
  void submit(const Key& key, F&& f) {
    strand& own = strand_of(key);
    {
      const std::lock_guard lock(own.mutex);
      own.waiting.emplace_back(std::forward<F>(f));
      if (std::exchange(own.posted, true)) return;
    }
    post(own);
  }
  void wait_idle() { pool_.wait_idle(); }
  void hold() { pool_.hold(); }
  void let_go() { pool_.let_go(); }

 private:
  struct strand {
    std::mutex mutex;
    std::vector<std::function<void()>> waiting;
    bool posted = false;
  };

  strand& strand_of(const Key& key) {
    const std::lock_guard lock(mutex_);
    return strands_[key];
  }

  void post(strand& own) {
    pool_.post([this, &own] { run(own); });
  }

  void run(strand& own) {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(own.mutex);
      tasks.swap(own.waiting);
    }
    for (const std::function<void()>& task : tasks) task();
    {
      const std::lock_guard lock(own.mutex);
      if (own.waiting.empty()) {
        own.posted = false;
        return;
      }
    }
    post(own);
  }

  std::mutex mutex_;
  std::unordered_map<Key, strand> strands_;
  task_pool pool_;
};

// turnkey on that same pool, with nothing left out.
template <class Key, turnkey::policy Policy = turnkey::policy::ordered>
class turnkey_on_pool {
 public:
  static constexpr const char* name = Policy == turnkey::policy::ordered     ? "turnkey"
                                      : Policy == turnkey::policy::exclusive ? "turnkey_exclusive"
                                                                             : "turnkey_parallel";
  static constexpr promise promises = Policy == turnkey::policy::ordered     ? promise::order
                                      : Policy == turnkey::policy::exclusive ? promise::exclusion
                                                                             : promise::nothing;

  explicit turnkey_on_pool(unsigned workers, turnkey::options<Key> options = {.default_policy = Policy})
      : pool_(workers), scheduler_([this](turnkey::work work) { pool_.post(std::move(work)); }, std::move(options)) {}
  template <class F>
  void submit(const Key& key, F&& f) {
    scheduler_.submit(key, std::forward<F>(f));
  }
  void wait_idle() { static_cast<void>(scheduler_.drain()); }
  void hold() { pool_.hold(); }
  void let_go() { pool_.let_go(); }
  turnkey::scheduler<Key>& scheduler() { return scheduler_; }

 private:
  task_pool pool_;
  turnkey::scheduler<Key> scheduler_;
};

// The same for tasks without a key.
template <class Key>
class turnkey_keyless : public turnkey_on_pool<Key, turnkey::policy::parallel> {
 public:
  static constexpr const char* name = "turnkey_keyless";

  using turnkey_on_pool<Key, turnkey::policy::parallel>::turnkey_on_pool;
  template <class F>
  void submit(const Key&, F&& f) {
    this->scheduler().submit(std::forward<F>(f));
  }
};

template <class Key>
using turnkey_ordered = turnkey_on_pool<Key, turnkey::policy::ordered>;
template <class Key>
using turnkey_exclusive = turnkey_on_pool<Key, turnkey::policy::exclusive>;
template <class Key>
using turnkey_parallel = turnkey_on_pool<Key, turnkey::policy::parallel>;

// Calls `add` with each of them as its template argument, turnkey last.
template <class Add>
void for_each_system(Add add) {
  add.template operator()<bare_pool>();
  add.template operator()<map_of_queues>();
  add.template operator()<mutex_per_key>();
  add.template operator()<hash_onto_workers>();
  add.template operator()<strand_per_key>();
  add.template operator()<turnkey_ordered>();
}

}  // namespace bench
