// The part of the reference model that knows chapter 6: pauses, steps, the limit and the pace. It is told what was
// asked for, and answers what the scheduler must answer; of each start it says which rule that breaks.
#pragma once

#include <turnkey/inspect.hpp>
#include <turnkey/pace.hpp>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

namespace support {

class control_model {
 public:
  explicit control_model(std::optional<std::size_t> max_in_flight) : limit_(max_in_flight) {}

  // ---- what is asked of the scheduler: told before it is called

  // 6.1
  bool pause() { return !std::exchange(paused_, true); }
  bool resume() {
    steps_ = sure_steps_ = 0;
    passes_.clear();
    ++changes_;
    return std::exchange(paused_, false);
  }
  bool pause(int key) { return paused_keys_.insert(key).second; }
  bool resume(int key) { return paused_keys_.erase(key) != 0; }

  // 6.2
  bool step(std::size_t n) {
    if (!paused_) return false;
    steps_ += n;
    sure_steps_ += n;
    ++changes_;
    return true;
  }
  bool step(turnkey::task_id ready_one) {
    if (!paused_) return false;
    passes_.push_back(ready_one);
    ++changes_;
    return true;
  }

  void set_max_in_flight(std::optional<std::size_t> limit) { limit_ = limit; }  // 6.3
  void set_pace(const std::optional<turnkey::pace>& pace) {                     // 6.4
    pace_ = pace;
    starts_.clear();
  }

  // ---- what has happened

  // A task starts, as one of `running` that then run. Gives the rule that forbids it; null when it may.
  const char* start(turnkey::task_id id, std::size_t running, turnkey::time_point now) {
    if (paused_ && !pass(id)) return "6.1, 6.2: it starts while all is paused, and no step is left";
    if (limit_ && running > *limit_) return "6.3: more than max_in_flight run";
    starts_.push_back(now);
    if (pace_ && opens_after(starts_.size() - 1) > now) return "6.4: the pace forbids it";
    return nullptr;
  }

  // ---- facts

  [[nodiscard]] bool paused() const { return paused_; }
  [[nodiscard]] bool paused(int key) const { return paused_keys_.count(key) != 0; }
  [[nodiscard]] const std::set<int>& paused_keys() const { return paused_keys_; }
  [[nodiscard]] const std::optional<std::size_t>& max_in_flight() const { return limit_; }

  // Whether step(id) has named the task. It may have been for nothing, if the task was not ready when its time came.
  [[nodiscard]] bool has_pass(turnkey::task_id id) const {
    return std::find(passes_.begin(), passes_.end(), id) != passes_.end();
  }

  // 6.4: the next start is not before this.
  [[nodiscard]] turnkey::time_point opens() const {
    return pace_ ? opens_after(starts_.size()) : (turnkey::time_point::min)();
  }

  // What is ready starts, now or when the pace opens.
  [[nodiscard]] bool lets_one_start(std::size_t running) const {
    return (!paused_ || sure_steps_ != 0) && !(limit_ && running >= *limit_);
  }
  // Nothing starts, whatever is ready, until the next of `changes()`.
  [[nodiscard]] bool shut() const { return paused_ && steps_ == 0 && passes_.empty(); }
  [[nodiscard]] std::uint64_t changes() const { return changes_; }

 private:
  // Uses up a right to pass the pause. It cannot be told which, where there were both: then one step is less sure.
  bool pass(turnkey::task_id id) {
    const auto named = std::find(passes_.begin(), passes_.end(), id);
    if (sure_steps_ != 0) --sure_steps_;
    if (named != passes_.end()) {
      passes_.erase(named);
      return true;
    }
    return steps_ != 0 && steps_-- != 0;
  }

  // The first moment at which, of all windows that end there, none has too many of the first `count` starts and one
  // more.
  [[nodiscard]] turnkey::time_point opens_after(std::size_t count) const {
    auto opens = (turnkey::time_point::min)();
    for (std::size_t i = 0; i != count; ++i) {
      const std::size_t in_window = count - i + 1;
      if (in_window <= pace_->burst) break;
      const double w =
          static_cast<double>(in_window - pace_->burst) * static_cast<double>(pace_->interval.count()) / pace_->n;
      opens = (std::max)(opens, starts_[i] + turnkey::duration(static_cast<turnkey::duration::rep>(std::ceil(w))));
    }
    return opens;
  }

  bool paused_ = false;
  std::uint64_t steps_ = 0;       // at most
  std::uint64_t sure_steps_ = 0;  // at least
  std::vector<turnkey::task_id> passes_;
  std::uint64_t changes_ = 0;  // so far, that let something pass
  std::set<int> paused_keys_;
  std::optional<std::size_t> limit_;
  std::optional<turnkey::pace> pace_;
  std::vector<turnkey::time_point> starts_;  // since the pace was set
};

}  // namespace support
