// What an observer heard, and whether the rules allow it: the events of each key, sorted by their numbers, are folded
// over a small picture of that key. It knows the sentences of the rules and nothing of the library's insides.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/policy.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace support {

class history {
 public:
  static constexpr int no_key = -1;

  // As an observer of a scheduler<int>.
  void note(const turnkey::event<int>& e) {
    if (e.kind == turnkey::event_kind::executor_refused || e.kind == turnkey::event_kind::permit_lost) return;
    const std::lock_guard lock(mutex_);
    heard_.push_back({e.key != nullptr ? *e.key : no_key, e.number, static_cast<std::uint64_t>(e.id), e.kind, e.policy,
                      e.attempt, e.fence});
  }

  // Whether an exclusive or ordered task's death holds its key; false too where holds are released, which no event
  // tells.
  void expect_holds() { holds_ = true; }

  // Of a task of several keys, whose events name the first: it is in the others' histories too (rule 7.7).
  void expect_keys(turnkey::task_id id, const std::vector<int>& others) {
    const std::lock_guard lock(mutex_);
    other_keys_[static_cast<std::uint64_t>(id)] = others;
  }

  // Folds; empty when all is well, else what is wrong first. To be asked when the scheduler is quiet or stopped.
  std::string check() {
    for (std::size_t i = 0, n = heard_.size(); i != n; ++i) {
      const auto others = other_keys_.find(heard_[i].id);
      if (others == other_keys_.end()) continue;
      for (const int k : others->second) {
        heard_.push_back(heard_[i]);
        heard_.back().key = k;
      }
    }
    other_keys_.clear();
    std::sort(heard_.begin(), heard_.end(),
              [](const fact& a, const fact& b) { return a.key != b.key ? a.key < b.key : a.number < b.number; });
    picture now;
    const fact* previous = nullptr;
    for (const fact& f : heard_) {
      if (previous == nullptr || previous->key != f.key) {
        if (const std::string flaw = over(now); !flaw.empty()) return flaw;
        now = {};
      } else if (previous->number == f.number) {
        return complaint(f, "two events of one key have the same number");
      }
      if (const char* const flaw = fold(now, f)) return complaint(f, flaw);
      previous = &f;
    }
    return over(now);
  }

  // Of a kind.
  [[nodiscard]] std::uint64_t count(turnkey::event_kind kind) const {
    return static_cast<std::uint64_t>(
        std::count_if(heard_.begin(), heard_.end(), [kind](const fact& f) { return f.kind == kind; }));
  }

  // The ids that were accepted, sorted.
  [[nodiscard]] std::vector<std::uint64_t> accepted() const {
    std::vector<std::uint64_t> ids;
    for (const fact& f : heard_)
      if (f.kind == turnkey::event_kind::submitted) ids.push_back(f.id);
    std::sort(ids.begin(), ids.end());
    return ids;
  }

 private:
  struct fact {
    int key;
    std::uint64_t number;
    std::uint64_t id;
    turnkey::event_kind kind;
    turnkey::policy policy;
    std::uint32_t attempt;
    std::uint64_t fence;
  };
  struct life {
    turnkey::policy policy{};
    bool running = false;
    std::uint32_t failed = 0;
  };
  struct picture {
    std::map<std::uint64_t, life> unfinished;
    std::map<std::uint64_t, turnkey::policy> dead;
    std::set<std::uint64_t> holders;
    std::uint64_t last_id = 0;
    std::uint64_t lease = 0;
    std::uint64_t fence = 0;
  };

  static std::string complaint(const fact& f, const char* flaw) {
    return std::string(flaw) + ": key " + std::to_string(f.key) + ", event " + std::to_string(f.number) + " (" +
           to_string(f.kind) + "), task " + std::to_string(f.id) + " (" + to_string(f.policy) + "), attempt " +
           std::to_string(f.attempt) + ", fence " + std::to_string(f.fence);
  }

  static std::string over(const picture& p) {
    if (p.unfinished.empty()) return {};
    return "task " + std::to_string(p.unfinished.begin()->first) + " has no final state";
  }

  const char* fold(picture& p, const fact& f) const {
    using turnkey::event_kind;
    using turnkey::policy;
    if (f.kind == event_kind::submitted) {
      if (f.id <= p.last_id) return "an id that does not rise";
      p.last_id = f.id;
      p.unfinished[f.id] = {f.policy, false, 0};
      return nullptr;
    }
    if (f.kind == event_kind::redriven) {
      if (p.dead.erase(f.id) == 0) return "a redrive of what is not dead";
      p.unfinished[f.id] = {f.policy, false, 0};
      return nullptr;
    }
    if (f.kind == event_kind::discarded || f.kind == event_kind::evicted) {
      if (f.kind == event_kind::discarded) p.holders.erase(f.id);
      return p.dead.erase(f.id) != 0 ? nullptr : "what is not dead leaves the store";
    }

    const auto at = p.unfinished.find(f.id);
    if (at == p.unfinished.end()) return "something happens to a task that is finished or unknown";
    life& task = at->second;
    if (task.policy != f.policy) return "a policy that changes";
    if (f.kind == event_kind::started) {
      if (task.running) return "a start of what runs";
      if (f.attempt != task.failed + 1) return "an attempt's number that is not failed attempts + 1";
      if (!p.holders.empty() && *p.holders.begin() < f.id) return "a start in spite of a hold";
      task.running = true;
      if (f.policy == policy::parallel) return f.fence == 0 ? nullptr : "a parallel task with a fence";
      if (f.key == no_key) return "a leased task without a key";
      if (p.lease != 0) return "two leases at once";
      if (f.fence <= p.fence) return "a fence that does not grow";
      if (f.policy == policy::ordered && at != p.unfinished.begin()) return "an ordered start before an earlier task";
      p.lease = f.id;
      p.fence = f.fence;
      return nullptr;
    }

    if (f.kind == event_kind::lease_expired) {
      if (f.attempt != task.failed + 1) return "the expiry of another attempt";
      if (f.policy != policy::parallel && (p.lease != f.id || p.fence != f.fence)) return "the expiry of another lease";
      return task.running ? nullptr : "an expiry of what does not run";
    }

    const bool ran = task.running;
    if (p.lease == f.id) p.lease = 0;
    task.running = false;
    switch (f.kind) {
      case event_kind::failed: ++task.failed; return ran ? nullptr : "a failure of what does not run";
      case event_kind::postponed: return ran ? nullptr : "something is postponed that does not run";
      case event_kind::succeeded:
      case event_kind::dead:
        if (!ran) return "an end of what does not run";
        if (f.kind == event_kind::dead) p.dead[f.id] = f.policy;
        if (f.kind == event_kind::succeeded) p.holders.erase(f.id);
        if (f.kind == event_kind::dead && holds_ && f.policy != policy::parallel) p.holders.insert(f.id);
        break;
      case event_kind::cancelled: p.holders.erase(f.id); break;
      default: break;
    }
    p.unfinished.erase(at);
    return nullptr;
  }

  std::mutex mutex_;
  std::vector<fact> heard_;
  std::map<std::uint64_t, std::vector<int>> other_keys_;  // by id
  bool holds_ = false;
};

}  // namespace support
