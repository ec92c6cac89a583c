// The manual world: one scheduler on a manual executor and a manual clock, judged by the reference model. Everything
// that is asked of the scheduler goes through here, so that the model knows; every answer and every event is checked.
#pragma once

#include <turnkey/coroutine.hpp>
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include "support/coroutines.hpp"
#include "support/model.hpp"
#include "support/why_model.hpp"

#include <algorithm>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace support {

using namespace std::chrono_literals;

// What a task does: called once for each attempt.
using script = std::function<turnkey::outcome(turnkey::attempt&)>;

[[nodiscard]] inline script succeeds() {
  return [](turnkey::attempt&) { return turnkey::outcome::success(); };
}
// Says these things, attempt by attempt, then succeeds.
[[nodiscard]] inline script says(std::vector<turnkey::outcome> outcomes) {
  return [outcomes = std::move(outcomes), next = std::size_t{0}](turnkey::attempt&) mutable {
    return next < outcomes.size() ? outcomes[next++] : turnkey::outcome::success();
  };
}

class world {
 public:
  using offer = std::function<bool(const turnkey::work&)>;

  // Permits come to `pool`, by way of `by` if there is one.
  explicit world(turnkey::testing::manual_executor& pool, turnkey::options<int> set = {}, offer by = {})
      : executor(pool), judge(set), scheduler_(make(std::move(set), std::move(by))) {}
  world(const world&) = delete;
  world& operator=(const world&) = delete;
  ~world() { destroy(); }

  turnkey::testing::manual_executor& executor;
  turnkey::testing::manual_time time;
  model judge;
  std::vector<turnkey::task_id> starts;            // in the order in which they became running
  std::vector<turnkey::task_record<int>> evicted;  // that left the store, when `keep_evicted`
  bool keep_evicted = false;
  int depth = 0;  // callbacks that are under way

  [[nodiscard]] turnkey::scheduler<int>* scheduler() { return scheduler_.get(); }

  // ---- what can be asked

  turnkey::submit_result submit(const key& k, const turnkey::task_options& wishes, script callback) {
    auto home = std::make_shared<world*>(this);
    const auto refusals = judge.refusals({.key = k}, wishes, depth > 0);
    judge.expect_arrival({.key = k}, wishes, home);
    told what{std::move(home), std::move(callback)};
    const auto result =
        k ? scheduler_->try_submit(*k, wishes, std::move(what)) : scheduler_->try_submit(wishes, std::move(what));
    answered(result.reason(), refusals);
    return result;
  }
  // 7.7
  turnkey::submit_result submit_several(const turnkey::keys<int>& list, const turnkey::task_options& wishes,
                                        script callback) {
    auto home = std::make_shared<world*>(this);
    modelled_task arrival;
    set_keys(arrival, {list.begin(), list.end()});
    const auto refusals =
        list.empty() ? std::vector{reject_reason::needs_key} : judge.refusals(arrival, wishes, depth > 0);
    judge.expect_arrival(std::move(arrival), wishes, home);
    const auto result = scheduler_->try_submit(list, wishes, told{std::move(home), std::move(callback)});
    answered(result.reason(), refusals);
    return result;
  }
  turnkey::task_id submit_several(const turnkey::keys<int>& list, turnkey::policy p, script callback = succeeds()) {
    return submit_several(list, {.policy = p}, std::move(callback)).value();
  }
  turnkey::task_id submit(const key& k, turnkey::policy p, script callback = succeeds()) {
    return submit(k, {.policy = p}, std::move(callback)).value();
  }

  turnkey::task_id submit(const key& k, script callback) {
    return submit(k, turnkey::task_options{}, std::move(callback)).value();
  }

  // Takes a task that `from` handed back.
  void submit(turnkey::task_record<int>&& record, const world& from) {
    const modelled_task* const old = from.judge.find(record.id());
    const auto home = old->home;
    const key k = record.key() != nullptr ? key(*record.key()) : key();
    modelled_task arrival{.key = k, .more_keys = old->more_keys, .coroutine = old->coroutine};
    const std::vector<int> keys = record.keys();
    modelled_task named;
    set_keys(named, keys);
    check(named.key == old->key && named.more_keys == old->more_keys && keys.size() == old->keys().size() - !k,
          "10.3: a record has the keys of its task");
    const turnkey::task_options wishes{.policy = k ? std::optional(record.policy()) : std::nullopt,
                                       .retry = old->own_retry};
    const auto refusals = judge.refusals(arrival, wishes, depth > 0);
    judge.expect_arrival(std::move(arrival), wishes, home);
    *home = this;
    std::optional<turnkey::reject_reason> reason;
    try {
      scheduler_->submit(std::move(record));
    } catch (const turnkey::rejected& e) {
      reason = e.reason();
    }
    answered(reason, refusals);
    check(static_cast<bool>(record) == reason.has_value(), "10.3: a record is empty when it was taken");
  }

  bool cancel(turnkey::task_id id) {
    const bool expected = judge.expect_cancel([id](const auto& t) { return t.id == id; }) != 0;
    return same(scheduler_->cancel(id), expected, "cancel(id)");
  }
  std::size_t cancel(int k) {
    const auto expected = judge.expect_cancel([k](const auto& t) { return t.names(k); });
    return same(scheduler_->cancel(k), expected, "cancel(key)");
  }
  std::size_t cancel_all() {
    const auto expected = judge.expect_cancel([](const auto&) { return true; });
    return same(scheduler_->cancel_all(), expected, "cancel_all()");
  }
  bool redrive(turnkey::task_id id) {
    const bool expected = judge.expect_dead([id](const auto& t) { return t.id == id; }, event_kind::redriven) != 0;
    return same(scheduler_->redrive(id), expected, "redrive(id)");
  }
  std::size_t redrive(int k) {
    const auto expected = judge.expect_dead([k](const auto& t) { return t.names(k); }, event_kind::redriven);
    return same(scheduler_->redrive(k), expected, "redrive(key)");
  }
  std::size_t redrive_all() {
    const auto expected = judge.expect_dead([](const auto&) { return true; }, event_kind::redriven);
    return same(scheduler_->redrive_all(), expected, "redrive_all()");
  }
  bool discard(turnkey::task_id id) {
    const bool expected = judge.expect_dead([id](const auto& t) { return t.id == id; }, event_kind::discarded) != 0;
    return same(scheduler_->discard(id), expected, "discard(id)");
  }
  std::size_t discard(int k) {
    const auto expected = judge.expect_dead([k](const auto& t) { return t.names(k); }, event_kind::discarded);
    return same(scheduler_->discard(k), expected, "discard(key)");
  }
  std::size_t discard_all() {
    const auto expected = judge.expect_dead([](const auto&) { return true; }, event_kind::discarded);
    return same(scheduler_->discard_all(), expected, "discard_all()");
  }
  bool release(int k) {
    const bool expected = judge.release([k](int each) { return each == k; }) != 0;
    return same(scheduler_->release(k), expected, "release(key)");
  }
  std::size_t release_all() {
    const auto expected = judge.release([](int) { return true; });
    return same(scheduler_->release_all(), expected, "release_all()");
  }

  // ---- control (chapter 6)

  bool pause() {
    const bool expected = judge.control.pause();
    return same(scheduler_->pause(), expected, "pause()");
  }
  bool resume() {
    const bool expected = judge.control.resume();
    return same(scheduler_->resume(), expected, "resume()");
  }
  bool pause(int k) {
    const bool expected = judge.control.pause(k);
    return same(scheduler_->pause(k), expected, "pause(key)");
  }
  bool resume(int k) {
    const bool expected = judge.control.resume(k);
    return same(scheduler_->resume(k), expected, "resume(key)");
  }
  bool step(std::size_t n) {
    const bool expected = judge.control.step(n);
    return same(scheduler_->step(n), expected, "step(n)");
  }
  bool step(turnkey::task_id id) {
    const bool expected = judge.expect_step(id, time.now());
    return same(scheduler_->step(id), expected, "step(id)");
  }
  bool expedite(turnkey::task_id id) {
    const bool expected = judge.expect_expedite(id, time.now());
    return same(scheduler_->expedite(id), expected, "expedite(id)");
  }
  void set_max_in_flight(std::optional<std::size_t> limit) {
    judge.control.set_max_in_flight(limit);
    scheduler_->set_max_in_flight(limit);
  }
  void set_pace(const std::optional<turnkey::pace>& pace) {
    judge.control.set_pace(pace);
    scheduler_->set_pace(pace);
  }

  // ---- leases that outlive the callback (chapter 7)

  // What was deferred; late and double results are tried with it as long as it is kept.
  struct deferred_attempt {
    turnkey::task_id id;
    std::uint64_t start;  // which attempt of the task
    turnkey::completion handle;
  };
  std::vector<std::shared_ptr<deferred_attempt>> deferred;

  [[nodiscard]] bool runs(const turnkey::attempt& a) const {
    return std::find(attempts_.begin(), attempts_.end(), &a) != attempts_.end();
  }
  void defer(turnkey::attempt& a) {
    modelled_task& t = *judge.known(a.id());
    const bool expected = lease_model::defer(t);
    bool done = false;
    try {
      deferred.push_back(std::make_shared<deferred_attempt>(deferred_attempt{a.id(), t.starts, a.defer()}));
      done = true;
    } catch (const std::logic_error&) {
    }
    same(done, expected, "defer()");
  }
  bool settle(std::size_t which, const turnkey::outcome& said) {
    const auto d = deferred[which];
    const bool expected = expect_settled(*d, said, turnkey::failure_reason::asked);
    return same(d->handle.settle(said), expected, "settle()");
  }
  bool fail(std::size_t which, const std::exception_ptr& error) {
    const auto d = deferred[which];
    const auto reason = error ? turnkey::failure_reason::threw : turnkey::failure_reason::asked;
    const bool expected = expect_settled(*d, turnkey::outcome::retry(), reason);
    return same(d->handle.fail(error), expected, "fail()");
  }
  bool extend(std::size_t which, turnkey::duration d) {
    const auto& it = *deferred[which];
    const bool expected = judge.leases.extend(*judge.known(it.id), it.start, d, time.now(), judge.stopped());
    return same(it.handle.extend_lease(d), expected, "extend_lease()");
  }
  bool extend(turnkey::attempt& a, turnkey::duration d) {
    modelled_task& t = *judge.known(a.id());
    return same(a.extend_lease(d), judge.leases.extend(t, t.starts, d, time.now(), judge.stopped()),
                "attempt::extend_lease()");
  }
  void abandon(std::size_t which) {
    const auto d = std::move(deferred[which]);
    deferred.erase(deferred.begin() + static_cast<std::ptrdiff_t>(which));
    // Unless somebody below is at it: then it is settled already.
    static_cast<void>(expect_settled(*d, turnkey::outcome::retry(), turnkey::failure_reason::abandoned));
  }

  // ---- coroutines that hold a lease (7.4)

  // One that has entered, until it is told to leave.
  struct guest {
    turnkey::task_id id;
    std::uint64_t start;
    turnkey::lease* held;  // in its frame
    turnkey::outcome* said;
    bool** counted;  // where to say whether that counted
    std::coroutine_handle<> frame;
  };
  std::vector<guest> guests;

  void enter(int k, policy p) {
    auto home = std::make_shared<world*>(this);
    const turnkey::task_options wishes{.policy = p, .retry = turnkey::retry_policy{.max_attempts = 1}};
    const auto refusals = judge.refusals({.key = k}, wishes, depth > 0);
    judge.expect_arrival({.key = k, .coroutine = modelled_task::guest::waits}, wishes, home);
    std::optional<turnkey::reject_reason> reason;
    visit(std::move(home), *scheduler_, k, p, &reason);
    answered(reason, refusals);
  }
  // It goes on and settles its lease. Then it is at its end.
  void leave(std::size_t which, turnkey::outcome said) {
    const guest g = guests[which];
    guests.erase(guests.begin() + static_cast<std::ptrdiff_t>(which));
    const bool dies = said.what() == turnkey::outcome::kind::postpone;  // there is one attempt
    const bool expected = judge.leases.settle(*judge.known(g.id), g.start, dies ? turnkey::outcome::dead() : said,
                                              turnkey::failure_reason::asked, judge.stopped());
    bool counted = false;
    *g.said = std::move(said);
    *g.counted = &counted;
    g.frame.resume();
    same(counted, expected, "lease::settle()");
  }
  bool extend_guest(std::size_t which, turnkey::duration d) {
    const guest& g = guests[which];
    const bool expected = judge.leases.extend(*judge.known(g.id), g.start, d, time.now(), judge.stopped());
    return same(g.held->extend_lease(d), expected, "lease::extend_lease()");
  }

  // ---- the end

  void close() {
    judge.close();
    scheduler_->close();
  }
  [[nodiscard]] turnkey::task_records<int> stop() {
    const std::size_t expected = judge.stopped() ? 0 : judge.count_stopped();
    judge.stop();
    auto records = scheduler_->stop();
    same(records.size(), expected, "stop()");
    return records;
  }
  void destroy() {
    if (!scheduler_) return;
    judge.stop();
    evicted.clear();
    scheduler_.reset();
  }
  turnkey::drain_result drain() {
    const turnkey::drain_result result = scheduler_->drain_for(0s);
    const turnkey::stats expected = judge.look(time.now());
    if (depth > 0) return same(result, turnkey::drain_result::would_deadlock, "drain inside");
    if (judge.stopped()) return same(result, turnkey::drain_result::stopped, "drain after stop()");
    if (expected.unfinished() == 0) return same(result, turnkey::drain_result::drained, "drain");
    if (result == turnkey::drain_result::stalled && expected.ready != 0 && expected.running == 0) return result;
    return same(result, turnkey::drain_result::timed_out, "drain");
  }

  // Runs a permit as another thread of the pool does, while the caller's callback is under way. Strictly handed over:
  // nothing here ever runs at the same time.
  void run_elsewhere(std::size_t index = 0) {
    std::thread([this, index] { executor.run_one(index); }).join();
  }

  // Runs all that can run without time passing; `pool_mode` was queue.
  void run_all() { executor.run_all(); }

  // ---- the verdict

  // What was wrong so far, or how stats() or what is told of the tasks differ from the model's; empty: all is well.
  [[nodiscard]] std::string verdict() {
    if (judge.complaint().empty() && scheduler_) {
      compare(scheduler_->stats(), judge.look(time.now()));
      check(scheduler_->paused() == judge.control.paused(), "6.1: paused()");
      look_at_tasks();
      look_at_keys();
      look_at_deferred();
    }
    return judge.complaint();
  }

  void check(bool holds, const std::string& rule) {
    if (!holds) judge.complain(rule);
  }

 private:
  // What the scheduler calls: runs the script, and tells the model what it said.
  struct told {
    std::shared_ptr<world*> home;
    script callback;

    turnkey::outcome operator()(turnkey::attempt& a) {
      world& here = **home;
      const modelled_task* const t = here.judge.find(a.id());
      here.check(t != nullptr && t->state == task_state::running && t->home == home,
                 "1: a callback runs that has not started");
      here.check(t == nullptr || (a.number() == t->failed + 1 && a.has_lease() == (t->policy != policy::parallel)),
                 "3.5: what the attempt knows");
      here.check(t == nullptr || a.stop_requested() == lease_model::is_signalled(*t, here.judge.stopped()),
                 "7.2: an attempt is told to stop that nobody tells so");
      ++here.depth;
      here.attempts_.push_back(&a);
      auto said = turnkey::outcome::retry();
      try {
        said = callback(a);
      } catch (...) {
        here.over(a);
        here.judge.returned(a.id(), said, true);
        throw;
      }
      here.over(a);
      here.judge.returned(a.id(), said, false);
      return said;
    }
  };

  // Suspends a coroutine that has entered; what it is resumed for is in `said`.
  struct stay {
    world& here;
    turnkey::lease& held;
    turnkey::outcome said = turnkey::outcome::success();
    bool* counted = nullptr;

    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> frame) { here.entered(*this, frame); }
    void await_resume() const noexcept {}
  };
  static detached visit(std::shared_ptr<world*> home, turnkey::scheduler<int>& scheduler, int k, policy p,
                        std::optional<turnkey::reject_reason>* reason) {
    try {
      turnkey::lease held = co_await scheduler.enter(k, p);
      stay until_told{**home, held};
      co_await until_told;
      *until_told.counted = held.settle(until_told.said);
    } catch (const turnkey::rejected& e) {
      *reason = e.reason();
    } catch (const turnkey::task_cancelled&) {
    } catch (const turnkey::task_undone&) {
    }
  }
  // The callback of its task has nothing more to do.
  void entered(stay& how, std::coroutine_handle<> frame) {
    modelled_task& t = *judge.known(how.held.id());
    check(t.state == task_state::running && how.held.fence() == t.fence, "7.4: what a coroutine has entered");
    check(how.held.stop_requested() == lease_model::is_signalled(t, judge.stopped()), "7.4: it is told to stop");
    lease_model::defer(t);
    guests.push_back({t.id, t.starts, &how.held, &how.said, &how.counted, frame});
    judge.returned(t.id, turnkey::outcome::success(), false);
  }

  void over(const turnkey::attempt& a) {
    --depth;
    attempts_.erase(std::find(attempts_.begin(), attempts_.end(), &a));
  }

  bool expect_settled(const deferred_attempt& d, const turnkey::outcome& said, turnkey::failure_reason reason) {
    return judge.leases.settle(*judge.known(d.id), d.start, said, reason, judge.stopped());
  }

  std::unique_ptr<turnkey::scheduler<int>> make(turnkey::options<int> set, offer by) {
    set.time = &time;
    set.observer = [this](const turnkey::event<int>& e) {
      judge.hear(e, time.now());
      if (e.kind == event_kind::started) starts.push_back(e.id);
      if (e.kind == event_kind::evicted && keep_evicted) evicted.push_back(std::move(*e.record));
    };
    return by ? std::make_unique<turnkey::scheduler<int>>(std::move(by), std::move(set))
              : std::make_unique<turnkey::scheduler<int>>(executor, std::move(set));
  }

  void answered(const std::optional<turnkey::reject_reason>& reason,
                const std::vector<turnkey::reject_reason>& refusals) {
    if (reason) {
      check(std::find(refusals.begin(), refusals.end(), *reason) != refusals.end(),
            std::string("4.2: refused without cause: ") + to_string(*reason));
      judge.refused();
    } else {
      check(refusals.empty(), "4.2: accepted what had to be refused");
    }
  }

  template <class Value>
  Value same(Value got, Value expected, const char* of) {
    if (got == expected || !judge.complaint().empty()) return got;
    std::ostringstream out;
    out << of << " gave " << static_cast<std::uint64_t>(got) << ", the model says "
        << static_cast<std::uint64_t>(expected);
    judge.complain(out.str());
    return got;
  }

  void compare(const turnkey::stats& got, const turnkey::stats& expected) {
    std::ostringstream out;
    const auto one = [&](const char* name, std::uint64_t a, std::uint64_t b) {
      if (a != b) out << " " << name << " " << a << ", the model says " << b << ";";
    };
    one("submitted", got.submitted, expected.submitted);
    one("started", got.started, expected.started);
    one("succeeded", got.succeeded, expected.succeeded);
    one("failed_attempts", got.failed_attempts, expected.failed_attempts);
    one("postponed", got.postponed, expected.postponed);
    one("died", got.died, expected.died);
    one("cancelled", got.cancelled, expected.cancelled);
    one("undone", got.undone, expected.undone);
    one("redriven", got.redriven, expected.redriven);
    one("rejected", got.rejected, expected.rejected);
    one("executor_refusals", got.executor_refusals, expected.executor_refusals);
    one("dead_evicted", got.dead_evicted, expected.dead_evicted);
    one("leases_expired", got.leases_expired, expected.leases_expired);
    one("leases_lost", got.leases_lost, expected.leases_lost);
    one("late_results", got.late_results, expected.late_results);
    one("waiting", got.waiting, expected.waiting);
    one("ready", got.ready, expected.ready);
    one("running", got.running, expected.running);
    one("delayed", got.delayed, expected.delayed);
    one("dead", got.dead, expected.dead);
    one("keys", got.keys, expected.keys);
    one("held_keys", got.held_keys, expected.held_keys);
    one("paused_keys", got.paused_keys, expected.paused_keys);
    if (!judge.stopped())
      one("oldest_age", static_cast<std::uint64_t>(got.oldest_age.count()),
          static_cast<std::uint64_t>(expected.oldest_age.count()));
    // A lost permit is told of when the clock rings next.
    if (got.permits_lost < expected.permits_lost) out << " permits_lost " << got.permits_lost << ";";
    if (!out.str().empty()) judge.complain("9.1: stats:" + out.str());
  }

  // Of the finished ones, those that were looked at as such are not looked at again, but for the latest.
  void look_at_tasks() {
    const auto& tasks = judge.tasks();
    for (std::size_t i = 0; i != tasks.size() && judge.complaint().empty(); ++i) {
      if (i < looked_at_.size() && looked_at_[i] && i + 4 < tasks.size() && !model::unfinished(tasks[i])) continue;
      judge.complain(support::compare(scheduler_->find(tasks[i].id), judge, tasks[i], time.now(), depth > 0));
      looked_at_.resize((std::max)(looked_at_.size(), i + 1));
      looked_at_[i] = !model::unfinished(tasks[i]);
    }
  }

  void look_at_keys() {
    const auto sorted = [](std::vector<int> keys) {
      std::sort(keys.begin(), keys.end());
      return keys;
    };
    const auto& paused = judge.control.paused_keys();
    check(sorted(scheduler_->paused_keys()) == std::vector<int>(paused.begin(), paused.end()), "6.1: paused_keys()");
    check(sorted(scheduler_->held_keys()) == judge.held_keys(), "5.3: held_keys()");
  }

  void look_at_deferred() {
    for (const auto& d : deferred) {
      const bool expected = lease_model::should_stop(*judge.known(d->id), d->start, judge.stopped());
      check(d->handle.stop_requested() == expected, "7.1: stop_requested() of a completion");
      if (d->start % 4 == 0) check(d->handle.stop_token().stop_requested() == expected, "7.1: stop_token()");
    }
    for (const guest& g : guests) {
      const bool expected = lease_model::should_stop(*judge.known(g.id), g.start, judge.stopped());
      check(g.held->stop_requested() == expected, "7.4: stop_requested() of a lease");
    }
  }

  std::unique_ptr<turnkey::scheduler<int>> scheduler_;
  std::vector<bool> looked_at_;
  std::vector<const turnkey::attempt*> attempts_;  // whose callbacks are under way
};

}  // namespace support
