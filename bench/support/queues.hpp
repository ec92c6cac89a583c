// What a careful person would write by hand to cancel in the middle of a line, and to wait for a time; and turnkey with
// the same few functions. One mutex, no threads: whoever calls run_all() or fire() runs the tasks.
#pragma once

#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <list>
#include <map>
#include <mutex>
#include <unordered_map>
#include <utility>

namespace bench {

// A list for every key, the keys with work in turn, and an index from the id of a task to its place.
template <class Key>
class indexed_queues {
 public:
  static constexpr const char* name = "indexed_lists";
  using id = std::uint64_t;

  template <class F>
  id submit(const Key& key, F&& f) {
    const std::lock_guard lock(mutex_);
    line& own = *lines_.try_emplace(key).first;
    own.second.push_back({next_, std::forward<F>(f)});
    places_.emplace(next_, place{&own, std::prev(own.second.end())});
    if (own.second.size() == 1) ready_.push_back(key);
    return next_++;
  }

  bool cancel(id task) {
    std::list<entry> taken;  // dies outside the lock
    const std::lock_guard lock(mutex_);
    const auto found = places_.find(task);
    if (found == places_.end()) return false;
    auto& entries = found->second.own->second;
    taken.splice(taken.begin(), entries, found->second.at);
    if (entries.empty()) lines_.erase(lines_.find(found->second.own->first));  // in ready_ it is skipped
    places_.erase(found);
    return true;
  }

  void run_all() {
    std::unique_lock lock(mutex_);
    while (!ready_.empty()) {
      const auto found = lines_.find(ready_.front());
      if (found == lines_.end()) {
        ready_.pop_front();
        continue;
      }
      {
        std::list<entry> taken;
        taken.splice(taken.begin(), found->second, found->second.begin());
        places_.erase(taken.front().id);
        lock.unlock();
        taken.front().run();
      }
      lock.lock();
      if (!found->second.empty()) {
        ready_.push_back(std::move(ready_.front()));
      } else {
        lines_.erase(found);
      }
      ready_.pop_front();
    }
  }

 private:
  struct entry {
    std::uint64_t id;
    std::function<void()> run;
  };
  using map = std::unordered_map<Key, std::list<entry>>;
  using line = typename map::value_type;
  struct place {
    line* own;
    typename std::list<entry>::iterator at;
  };

  std::mutex mutex_;
  map lines_;
  std::unordered_map<id, place> places_;
  std::deque<Key> ready_;
  id next_ = 1;
};

// Callbacks by the time at which they are due.
class timer_map {
 public:
  static constexpr const char* name = "multimap";
  using duration = std::chrono::nanoseconds;
  using place = std::multimap<duration, std::function<void()>>::iterator;

  template <class F>
  place set(std::uint64_t, duration delay, F&& f) {
    const std::lock_guard lock(mutex_);
    return timers_.emplace(now_ + delay, std::forward<F>(f));
  }
  bool cancel(place timer) {
    const std::lock_guard lock(mutex_);
    timers_.erase(timer);
    return true;
  }

  // Moves the time, and runs what is due then.
  void fire(duration by) {
    std::unique_lock lock(mutex_);
    now_ += by;
    while (!timers_.empty() && timers_.begin()->first <= now_) {
      {
        const auto due = timers_.extract(timers_.begin());
        lock.unlock();
        due.mapped()();
      }
      lock.lock();
    }
  }

 private:
  std::mutex mutex_;
  duration now_{0};
  std::multimap<duration, std::function<void()>> timers_;
};

// turnkey behind the functions of both.
class held_turnkey {
 public:
  static constexpr const char* name = "turnkey";
  using duration = std::chrono::nanoseconds;

  template <class F>
  turnkey::task_id submit(std::uint64_t key, F&& f) {
    return scheduler_.submit(key, std::forward<F>(f));
  }
  template <class F>
  turnkey::task_id set(std::uint64_t key, duration delay, F&& f) {
    return scheduler_.submit(key, {.policy = turnkey::policy::exclusive, .retry = {}, .delay = delay},
                             std::forward<F>(f));
  }
  bool cancel(turnkey::task_id task) { return scheduler_.cancel(task); }
  void run_all() { executor_.run_all(); }
  void fire(duration by) {
    time_.jump(by);
    executor_.run_all();
  }
  turnkey::scheduler<std::uint64_t>& scheduler() { return scheduler_; }

 private:
  static turnkey::options<std::uint64_t> settings(turnkey::time_source& time) {
    turnkey::options<std::uint64_t> options;
    options.default_policy = turnkey::policy::ordered;
    options.time = &time;
    return options;
  }

  turnkey::testing::manual_time time_;
  turnkey::testing::manual_executor executor_;
  turnkey::scheduler<std::uint64_t> scheduler_{executor_, settings(time_)};
};

}  // namespace bench
