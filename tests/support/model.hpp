// The reference model: a plain vector of tasks, scanned with the sentences of rule 2. Slow and obvious; it shares no
// code with the library but its public words. It is told what was asked for, hears the observer's events, in order, and
// complains of the first thing that the rules do not allow.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/options.hpp>

#include "support/control_model.hpp"
#include "support/lease_model.hpp"
#include "support/modelled_task.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

namespace support {

class model {
 public:
  explicit model(const turnkey::options<int>& set) : control(set.max_in_flight), leases(set), set_(set) {}

  control_model control;  // chapter 6, but for cancel
  lease_model leases;     // chapter 7

  // ---- rule 2

  [[nodiscard]] static bool unfinished(const modelled_task& t) {
    return t.state == task_state::waiting || t.state == task_state::running || t.state == task_state::delayed;
  }
  [[nodiscard]] static bool in_line(const modelled_task& t, turnkey::time_point now) {
    return t.state == task_state::waiting || (t.state == task_state::delayed && t.due <= now);  // 3.3
  }
  [[nodiscard]] bool lease_is_free(const key& k) const {
    return !any(
        [&](const auto& t) { return t.names(k) && t.state == task_state::running && t.policy != policy::parallel; });
  }
  [[nodiscard]] bool earlier_are_finished(const modelled_task& t) const {
    return !any([&](const auto& other) { return other.id < t.id && unfinished(other) && t.shares_a_key_with(other); });
  }
  [[nodiscard]] bool held_back(const modelled_task& t) const {
    return any([&](const auto& other) {
      return other.id < t.id && std::any_of(other.holds.begin(), other.holds.end(), [&](int k) { return t.names(k); });
    });
  }
  [[nodiscard]] bool held(const key& k) const {
    return k && any([&](const auto& t) { return t.holds.count(*k) != 0; });
  }
  [[nodiscard]] bool may_start(const modelled_task& t, turnkey::time_point now) const {
    if (!in_line(t, now)) return false;
    if (!t.key) return true;  // 2.4
    if (t.several()) return may_start_with_all_leases(t, now);
    if (held_back(t) || control.paused(*t.key)) return false;
    if (t.policy == policy::parallel) return true;
    if (!lease_is_free(t.key) || first_to_reserve(t.key, t, now) != nullptr) return false;
    return t.policy == policy::exclusive || earlier_are_finished(t);
  }

  // 7.7: only leases keep it, so it reserves.
  [[nodiscard]] bool reserves(const modelled_task& t, turnkey::time_point now) const {
    if (!t.several() || !in_line(t, now) || held_back(t)) return false;
    for (const auto& k : t.keys())
      if (control.paused(*k)) return false;
    return t.policy == policy::exclusive || earlier_are_finished(t);
  }
  // The task of several keys that has reserved `k` and comes before `t`.
  [[nodiscard]] const modelled_task* first_to_reserve(const key& k, const modelled_task& t,
                                                      turnkey::time_point now) const {
    const modelled_task* first = nullptr;
    const auto before = [](const modelled_task& a, const modelled_task& b) {
      return std::pair(a.place_to_reserve(), a.id) < std::pair(b.place_to_reserve(), b.id);
    };
    for (const auto& other : tasks_) {
      if (other.id == t.id || !other.names(k) || !reserves(other, now)) continue;
      const bool comes_before =
          t.several() ? before(other, t) : other.place_to_reserve().first < static_cast<std::uint64_t>(t.id);
      if (comes_before && (first == nullptr || before(other, *first))) first = &other;
    }
    return first;
  }
  [[nodiscard]] bool may_start_with_all_leases(const modelled_task& t, turnkey::time_point now) const {
    if (!reserves(t, now)) return false;
    for (const auto& k : t.keys()) {
      if (!lease_is_free(k) || first_to_reserve(k, t, now) != nullptr) return false;
      if (any([&](const auto& other) {  // 2.9
            return !other.several() && other.key == k && other.policy != policy::parallel && may_start(other, now) &&
                   goes_before(other, t);
          }))
        return false;
    }
    return true;
  }
  // 2.9
  [[nodiscard]] static bool goes_before(const modelled_task& a, const modelled_task& b) {
    if (a.came_back != b.came_back) return a.came_back;
    if (a.came_back) return std::pair(a.due, a.id) < std::pair(b.due, b.id);
    return std::tuple(a.place, a.postponement, a.id) < std::tuple(b.place, b.postponement, b.id);
  }
  [[nodiscard]] bool goes_first(const modelled_task& t, turnkey::time_point now) const {
    return !any([&](const auto& other) {
      const bool same_line = other.key == t.key || (t.policy != policy::parallel && other.names(t.key));
      return other.id != t.id && same_line && may_start(other, now) && goes_before(other, t) &&
             !(t.policy == policy::parallel && is_behind_several(other, now));
    });
  }
  // 7.7: the lease that it would take goes to one of several keys, which another line may offer.
  [[nodiscard]] bool is_behind_several(const modelled_task& t, turnkey::time_point now) const {
    return t.policy != policy::parallel && any([&](const auto& other) {
             return other.several() && other.names(t.key) && other.id != t.id && may_start(other, now);
           });
  }

  // 1: `ready` is the one that the lease would go to, and the parallel ones; of those only the first while the key is
  // held.
  [[nodiscard]] task_state state_of(const modelled_task& t, turnkey::time_point now) const {
    if (!in_line(t, now)) return t.state;
    if (!may_start(t, now)) return task_state::waiting;
    const bool parallel = t.policy == policy::parallel;
    if (parallel && !held(t.key)) return task_state::ready;
    const bool behind = any([&](const auto& other) {
      return other.names(t.key) && (other.policy == policy::parallel) == parallel && may_start(other, now) &&
             goes_before(other, t);
    });
    return behind ? task_state::waiting : task_state::ready;
  }

  // ---- what is asked of the scheduler: told before it is called

  // Empty: it must be accepted.
  [[nodiscard]] std::vector<reject_reason> refusals(const modelled_task& of, const turnkey::task_options& wishes,
                                                    bool inside) const {
    const key& k = of.key;
    if (of.several() && policy_of(k, wishes) == policy::parallel) return {reject_reason::invalid_options};
    if (!k && wishes.policy.value_or(policy::parallel) != policy::parallel) return {reject_reason::needs_key};
    std::vector<reject_reason> reasons;
    if (stopped_ || (closed_ && !inside)) reasons.push_back(reject_reason::closed);
    if (set_.max_pending && count_unfinished() >= *set_.max_pending) reasons.push_back(reject_reason::full);
    if (!reasons.empty()) return reasons;
    for (const auto& each : of.keys())
      if (each && set_.max_pending_per_key &&
          count_if([&](const auto& t) { return t.names(each) && unfinished(t); }) >= *set_.max_pending_per_key)
        reasons.push_back(reject_reason::key_full);
    return reasons;
  }
  // 2.4, 2.5
  [[nodiscard]] turnkey::policy policy_of(const key& k, const turnkey::task_options& wishes) const {
    return !k ? policy::parallel : set_.policy_override.value_or(wishes.policy.value_or(set_.default_policy));
  }
  void expect_arrival(modelled_task arrival, const turnkey::task_options& wishes, std::shared_ptr<world*> home) {
    arrival_ = std::move(arrival);
    arrival_->own_retry = wishes.retry;
    arrival_->home = std::move(home);
    arrival_->policy = policy_of(arrival_->key, wishes);
    arrival_delay_ = wishes.delay;
  }
  void refused() {
    arrival_.reset();
    ++counts_.rejected;
  }
  // How many unfinished tasks a cancel covers; the running ones never start again.
  template <class Which>
  std::size_t expect_cancel(Which which) {
    std::size_t covered = 0;
    for (auto& t : tasks_) {
      if (!unfinished(t) || !which(t)) continue;
      ++covered;
      t.cancelled = true;
    }
    return covered;
  }
  bool expect_step(turnkey::task_id id, turnkey::time_point now) {  // 6.2
    const modelled_task* const t = find(id);
    return t != nullptr && state_of(*t, now) == task_state::ready && control.step(id);
  }
  bool expect_expedite(turnkey::task_id id, turnkey::time_point now) {
    modelled_task* const t = known(id);
    if (t == nullptr || state_of(*t, now) != task_state::delayed || stopped_) return false;
    t->due = now;
    return true;
  }
  template <class Which>
  std::size_t expect_dead(Which which, event_kind what) {
    expected_of_dead_ = what;
    return stopped_ && what == event_kind::redriven ? 0
                                                    : count_if([&](const auto& t) { return t.in_store && which(t); });
  }
  template <class Which>
  std::size_t release(Which which) {
    const auto held = held_keys();
    for (auto& t : tasks_)
      for (const int k : held)
        if (which(k)) t.holds.erase(k);
    return static_cast<std::size_t>(std::count_if(held.begin(), held.end(), which));
  }
  void close() { closed_ = true; }
  void stop() { stopped_ = true; }
  void returned(turnkey::task_id id, const turnkey::outcome& what, bool threw) {
    modelled_task* const t = known(id);
    if (t == nullptr) return;
    leases.callback_returned(*t, what, threw, stopped_);
    if (!stopped_) return;
    // 10.3: of a callback that called stop(), or ran meanwhile, the observer hears nothing any more.
    if (!t->said) return end(*t, expected_end_by_stop(*t));
    counts_.failed_attempts += says_failure(*t->said);
    end(*t, expected_end(*t));
  }

  // ---- what the observer hears

  void hear(const turnkey::event<int>& e, turnkey::time_point now) {
    if (e.kind == event_kind::executor_refused) return void(++counts_.executor_refusals);
    if (e.kind == event_kind::permit_lost) return void(++counts_.permits_lost);
    const support::key k = e.key != nullptr ? support::key(*e.key) : support::key();
    const modelled_task* const of = e.kind == event_kind::submitted && arrival_ ? &*arrival_ : find(e.id);
    for (const auto& each : of != nullptr ? of->keys() : std::vector{k}) number(each, e);
    expect(e.time <= now, e, "9.4: an event of the future");
    if (e.kind == event_kind::submitted) return arrive(e, k, now);
    modelled_task* const t = known(e.id);
    if (t == nullptr) return expect(false, e, "1: no such task");
    expect(t->key == k && t->policy == e.policy, e, "9.4: the event is of another key or policy");
    if (e.kind == event_kind::started) return start(e, *t, now);
    if (e.kind == event_kind::lease_expired) return expire(e, *t, now);
    if (is_deferred(*t) && stopped_) {
      expect(e.kind == expected_end_by_stop(*t), e, "10.3: the wrong end by stop()");
      return end(*t, e.kind);
    }
    if (t->state == task_state::running) return settle(e, *t, now);
    switch (e.kind) {
      case event_kind::cancelled:
        expect(unfinished(*t) && t->cancelled, e, "6.5: nobody cancelled it");
        return end(*t, e.kind);
      case event_kind::undone: expect(unfinished(*t) && stopped_, e, "10.3: nobody stopped"); return end(*t, e.kind);
      case event_kind::redriven:
        expect(t->in_store && expected_of_dead_ == e.kind, e, "5.2: nobody redrove it");
        return redrive(*t);
      case event_kind::discarded:
        expect(t->in_store && expected_of_dead_ == e.kind, e, "5.2: nobody discarded it");
        t->holds.clear();
        return void(t->in_store = false);
      case event_kind::evicted:
        expect(t->in_store && count_if([](const auto& o) { return o.in_store; }) > set_.max_dead, e,
               "5.1: the store is not full");
        expect(!any([&](const auto& o) { return o.in_store && o.death < t->death; }), e, "5.1: the oldest leaves");
        t->in_store = false;
        return void(++counts_.dead_evicted);
      default: return expect(false, e, "1: it does not run");
    }
  }

  [[nodiscard]] turnkey::stats look(turnkey::time_point now) const {
    turnkey::stats s = counts_;
    leases.look(s);
    std::set<int> used;
    for (const auto& t : tasks_) {
      switch (state_of(t, now)) {
        case task_state::waiting: ++s.waiting; break;
        case task_state::ready: ++s.ready; break;
        case task_state::running: ++s.running; break;
        case task_state::delayed: ++s.delayed; break;
        default: break;
      }
      if (t.in_store) ++s.dead;
      if (unfinished(t)) s.oldest_age = (std::max)(s.oldest_age, now - t.submitted);
      if (t.key && unfinished(t))
        for (const auto& k : t.keys()) used.insert(*k);
      used.insert(t.holds.begin(), t.holds.end());
    }
    used.insert(control.paused_keys().begin(), control.paused_keys().end());
    s.keys = used.size();
    s.held_keys = held_keys().size();
    s.paused_keys = control.paused_keys().size();
    return s;
  }

  [[nodiscard]] std::size_t count_unfinished() const {
    return count_if([](const auto& t) { return unfinished(t); });
  }
  [[nodiscard]] std::size_t count_running() const {
    return count_if([](const auto& t) { return t.state == task_state::running; });
  }
  // Its callback has returned, and only its completion is left.
  [[nodiscard]] static bool is_deferred(const modelled_task& t) {
    return t.state == task_state::running && t.returned && !t.said;
  }
  [[nodiscard]] std::size_t count_callbacks() const {
    return count_if([](const auto& t) { return t.state == task_state::running && !is_deferred(t); });
  }
  // Of the unfinished tasks, those that stop() hands back.
  [[nodiscard]] std::size_t count_stopped() const {
    return count_if(
        [](const auto& t) { return t.state == task_state::running ? is_deferred(t) && !t.cancelled : unfinished(t); });
  }
  [[nodiscard]] std::vector<int> held_keys() const {
    std::set<int> keys;
    for (const auto& t : tasks_) keys.insert(t.holds.begin(), t.holds.end());
    return {keys.begin(), keys.end()};
  }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] const std::vector<modelled_task>& tasks() const { return tasks_; }
  [[nodiscard]] const modelled_task* find(turnkey::task_id id) const {
    const auto at = std::find_if(tasks_.begin(), tasks_.end(), [id](const auto& t) { return t.id == id; });
    return at != tasks_.end() ? &*at : nullptr;
  }

  [[nodiscard]] modelled_task* known(turnkey::task_id id) { return const_cast<modelled_task*>(find(id)); }

  [[nodiscard]] const std::string& complaint() const { return complaint_; }  // the first; empty: all is well
  void complain(const std::string& of) {
    if (complaint_.empty()) complaint_ = of;
  }

 private:
  template <class Which>
  [[nodiscard]] std::size_t count_if(Which which) const {
    return static_cast<std::size_t>(std::count_if(tasks_.begin(), tasks_.end(), which));
  }
  template <class Which>
  [[nodiscard]] bool any(Which which) const {
    return std::any_of(tasks_.begin(), tasks_.end(), which);
  }
  [[nodiscard]] static bool says_failure(const turnkey::outcome& o) {
    return o.what() != turnkey::outcome::kind::success && o.what() != turnkey::outcome::kind::postpone;
  }

  void expect(bool holds, const turnkey::event<int>& e, const char* rule) {
    if (holds || !complaint_.empty()) return;
    std::ostringstream out;
    out << rule << "; heard: " << to_string(e.kind) << " task " << static_cast<std::uint64_t>(e.id);
    if (e.key != nullptr) out << " key " << *e.key;
    out << " " << to_string(e.policy) << " attempt " << e.attempt << ", event " << e.number;
    complaint_ = out.str();
  }

  void arrive(const turnkey::event<int>& e, const key& k, turnkey::time_point now) {
    if (!arrival_) return expect(false, e, "4.1: nobody submitted it");
    expect(arrival_->key == k && arrival_->policy == e.policy, e, "2.5: the wrong key or policy");
    expect(!any([&](const auto& t) { return t.id == e.id || (t.shares_a_key_with(*arrival_) && t.id > e.id); }), e,
           "1: ids of a key rise");
    modelled_task t = *std::exchange(arrival_, std::nullopt);
    t.id = e.id;
    t.place = static_cast<std::uint64_t>(e.id);
    t.submitted = now;
    if (arrival_delay_ > turnkey::duration::zero()) {
      t.state = task_state::delayed;
      t.due = now + arrival_delay_;
      expect(e.due == t.due, e, "3.4: due after the delay");
    }
    tasks_.push_back(std::move(t));
    ++counts_.submitted;
  }

  void start(const turnkey::event<int>& e, modelled_task& t, turnkey::time_point now) {
    expect(unfinished(t) && t.state != task_state::running, e, "1: only what is unfinished and does not run starts");
    expect(!t.cancelled, e, "6.5: it was cancelled");
    expect(!stopped_, e, "10.3: it starts after stop()");
    expect(in_line(t, now), e, "3.3: it is not due");
    expect(!held_back(t), e, "5.3: its key is held");
    expect(may_start(t, now), e, "2: it may not start");
    expect(goes_first(t, now) || control.has_pass(t.id), e, "2.9: another one of its key goes first");
    expect(e.attempt == t.failed + 1, e, "3.2: the attempt's number is failed attempts + 1");
    for (const auto& k : t.keys())
      expect(t.policy == policy::parallel ? e.fence == 0 : e.fence > std::exchange(last_fence_[k], e.fence), e,
             "1: fences of a key rise; without a lease there is none");
    t.state = task_state::running;
    t.fence = e.fence;
    leases.start(t, now);
    ++counts_.started;
    if (t.coroutine == modelled_task::guest::left)
      leases.callback_returned(t, turnkey::outcome::success(), false, stopped_);
    if (t.coroutine == modelled_task::guest::waits) t.coroutine = modelled_task::guest::left;
    if (const char* const flaw = control.start(t.id, count_running(), now)) expect(false, e, flaw);
  }

  // Of what cancel(key) ends, tasks of several keys may be told of in another order.
  void number(const key& k, const turnkey::event<int>& e) {
    expect(numbers_[k].insert(e.number).second, e, "9.4: two events of a key have one number");
    expect(e.number == *numbers_[k].rbegin() || e.kind == event_kind::cancelled, e,
           "9.4: the numbers of a key's events rise");
  }

  void expire(const turnkey::event<int>& e, modelled_task& t, turnkey::time_point now) {
    expect(t.state == task_state::running, e, "7.2: it does not run");
    if (const char* const flaw = leases.expire(t, e, now)) expect(false, e, flaw);
  }

  // The attempt of `t` has ended: chapter 3.
  void settle(const turnkey::event<int>& e, modelled_task& t, turnkey::time_point now) {
    using kind = turnkey::outcome::kind;
    if (!t.said || !t.returned) return expect(false, e, "1, 7.1: its callback has not returned, or nobody settled it");
    const kind what = t.said->what();
    expect(e.kind == expected_end(t), e, "3: the wrong end of this attempt");
    expect(e.fence == t.fence, e, "9.4: another fence than the attempt's");
    if (e.kind != event_kind::cancelled && e.kind != event_kind::undone)
      expect(e.attempt == t.failed + 1, e, "3.2: the attempt's number is failed attempts + 1");
    if (e.kind == event_kind::failed || e.kind == event_kind::dead)
      expect(e.error != nullptr &&
                 e.error->reason() == (what == kind::postpone ? failure_reason::postponed_out : t.reason),
             e, "5.1: the wrong reason");
    t.failed += says_failure(*t.said);
    counts_.failed_attempts += says_failure(*t.said);
    switch (e.kind) {
      case event_kind::succeeded:
      case event_kind::cancelled:
      case event_kind::undone: return end(t, e.kind);
      case event_kind::dead:
        t.state = task_state::dead;
        t.in_store = true;
        if (set_.dead_action == turnkey::dead_action::hold_key && t.policy != policy::parallel)
          for (const auto& k : t.keys()) t.holds.insert(*k);
        return void(t.death = ++counts_.died);
      case event_kind::failed: {
        const turnkey::duration delay = what == kind::retry_after ? t.said->delay() : backoff(retry_of(t), t.failed);
        t.state = task_state::delayed;
        t.came_back = true;
        t.due = now + (std::max)(delay, turnkey::duration::zero());
        return expect(e.due == t.due, e, "3.1: due after the backoff");
      }
      case event_kind::postponed: {
        ++t.postponed;
        ++counts_.postponed;
        t.came_back = t.said->delay() > turnkey::duration::zero();
        t.state = t.came_back ? task_state::delayed : task_state::waiting;
        t.due = now + t.said->delay();
        for (const auto& other : tasks_)
          if (!t.came_back && t.shares_a_key_with(other))
            t.place = (std::max)({t.place, other.place, static_cast<std::uint64_t>(other.id)});
        t.postponement = ++postponements_;
        return expect(e.due == t.due, e, "3: due after the delay");
      }
      default: return;
    }
  }

  [[nodiscard]] turnkey::retry_policy retry_of(const modelled_task& t) const {
    return t.own_retry ? *t.own_retry : set_.retry.value_or(turnkey::retry_policy{.max_attempts = 1});
  }
  [[nodiscard]] event_kind expected_end(const modelled_task& t) const {
    using kind = turnkey::outcome::kind;
    const kind what = t.said->what();
    if (what == kind::success) return event_kind::succeeded;
    if (t.cancelled) return event_kind::cancelled;
    if (stopped_) return event_kind::undone;
    const turnkey::retry_policy retry = retry_of(t);
    if (what == kind::postpone)
      return retry.max_postpones && t.postponed >= *retry.max_postpones ? event_kind::dead : event_kind::postponed;
    return what == kind::dead || t.failed + 1 >= retry.max_attempts ? event_kind::dead : event_kind::failed;
  }

  // Of a deferred attempt, whose completion does not count any more.
  [[nodiscard]] static event_kind expected_end_by_stop(const modelled_task& t) {
    return t.cancelled ? event_kind::cancelled : event_kind::undone;
  }

  [[nodiscard]] static turnkey::duration backoff(const turnkey::retry_policy& retry, std::uint32_t failed) {
    auto delay = static_cast<double>(retry.initial_delay.count());
    for (std::uint32_t n = 1; n != failed; ++n) delay *= retry.multiplier;
    delay = (std::min)(delay, static_cast<double>(retry.max_delay.count()));
    return turnkey::duration(static_cast<turnkey::duration::rep>(delay));
  }

  void redrive(modelled_task& t) {
    t.in_store = t.came_back = t.cancelled = false;
    t.state = task_state::waiting;
    t.failed = t.postponed = 0;
    t.place = static_cast<std::uint64_t>(t.id);
    t.postponement = 0;
    ++counts_.redriven;
  }
  void end(modelled_task& t, event_kind how) {
    if (how == event_kind::succeeded) ++counts_.succeeded, t.state = task_state::succeeded;
    if (how == event_kind::cancelled) ++counts_.cancelled, t.state = task_state::cancelled;
    if (how == event_kind::undone) ++counts_.undone, t.state = task_state::undone;
    t.holds.clear();
  }

  const turnkey::options<int> set_;
  std::vector<modelled_task> tasks_;
  std::optional<modelled_task> arrival_;
  turnkey::duration arrival_delay_{};
  std::optional<event_kind> expected_of_dead_;
  std::map<key, std::set<std::uint64_t>> numbers_;
  std::map<key, std::uint64_t> last_fence_;
  std::uint64_t postponements_ = 0;
  bool closed_ = false;
  bool stopped_ = false;
  turnkey::stats counts_;
  std::string complaint_;
};

}  // namespace support
