// A program for the manual world, decoded from bytes: any bytes are a program, so a seed, a shrinker and a fuzzer can
// all write them. Callbacks take their scripts from the same bytes, in the order in which they run; when the bytes are
// used up everything succeeds.
#pragma once

#include "simulation/pool.hpp"
#include "support/rest.hpp"
#include "support/world.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace simulation {

using namespace support;
using namespace std::chrono_literals;

class program {
 public:
  explicit program(std::span<const std::uint8_t> bytes) : bytes_(bytes) { new_world(); }
  program(const program&) = delete;
  program& operator=(const program&) = delete;

  // Runs it to its end, then lets the faults stop, and everything must finish. Gives the first thing that was wrong.
  std::string run() {
    while (!used_up() && all_is_well()) {
      operation();
      look();
    }
    if (all_is_well()) come_to_rest();
    if (all_is_well()) wrong_ = leave_nothing(worlds_, pool_.queue);
    pool_.run_all();
    return wrong_;
  }

  [[nodiscard]] std::uint64_t operations() const { return operations_; }
  [[nodiscard]] std::uint64_t tasks() const {
    std::uint64_t sum = 0;
    for (const auto& w : worlds_) sum += w->judge.tasks().size();
    return sum;
  }

 private:
  // ---- bytes

  [[nodiscard]] bool used_up() const { return at_ == bytes_.size(); }
  std::size_t byte() { return used_up() ? 0 : bytes_[at_++]; }
  std::size_t below(std::size_t n) { return byte() % n; }

  // ---- worlds: the last one is asked; stopped ones stay until their callbacks have returned

  [[nodiscard]] world& now() { return *worlds_.back(); }

  void new_world() {
    using turnkey::policy;
    turnkey::options<int> o;
    o.jitter_seed = 1;
    const std::size_t which = byte();
    if (which & 1)
      o.retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 4ms, .max_delay = 6ms, .jitter = 0};
    if (which & 2) o.dead_action = turnkey::dead_action::hold_key;
    if (which & 4) o.turn_budget = 1;
    switch ((which >> 3) % 8) {
      case 1: o.max_in_flight = 1; break;
      case 2: o.max_in_flight = 2; break;
      case 3: o.max_pending = 6; break;
      case 4: o.max_pending_per_key = 3; break;
      case 5: o.max_dead = 1; break;
      case 6:
        o.policy_override = std::array{policy::parallel, policy::exclusive, policy::ordered}[which >> 6 & 1 ? 1 : 2];
        break;
      case 7: o.max_dead = 0; break;
      default: o.default_policy = which >> 6 & 1 ? policy::ordered : policy::exclusive; break;
    }
    const std::size_t lease = byte();
    if (lease % 2) o.lease_time = 1ms * static_cast<int>(1 + lease / 8 % 16);
    if (lease & 2) o.lease_expiry = turnkey::lease_expiry::release;
    if ((lease & 6) == 4) pool_.treat_each();
    worlds_.push_back(std::make_unique<world>(
        pool_.queue, o, [this, i = worlds_.size()](const turnkey::work& permit) { return pool_.offer(i, permit); }));
    now().keep_evicted = (which >> 7) != 0;
  }

  [[nodiscard]] bool all_is_well() {
    for (const auto& w : worlds_)
      if (wrong_.empty()) wrong_ = w->judge.complaint();
    return wrong_.empty();
  }

  // Compares everything that can be looked at with the model.
  void look() {
    if (!all_is_well()) return;
    for (const auto& w : worlds_)
      if (wrong_.empty()) wrong_ = w->verdict();
    const turnkey::stats s = now().judge.look(now().time.now());
    if (wrong_.empty() && depth() == 0 && now().judge.count_callbacks() != 0)
      wrong_ = "a task runs, and neither is a callback under way nor a completion out";
    if (wrong_.empty() && !moving_) look_at_offers(s);
    if (wrong_.empty() && !moving_) look_at_leases();
  }

  // What is ready and may start has a permit, or will have one after a refusal, or is woken when the pace opens; while
  // all is paused there are no offers.
  void look_at_offers(const turnkey::stats& s) {
    const control_model& control = now().judge.control;
    const auto wake = now().time.next_wake();
    if (!pool_.is_sound()) trouble();
    if (s.ready != 0 && control.lets_one_start(s.running)) {
      if (control.opens() > now().time.now()) {
        if (!wake || *wake > control.opens()) wrong_ = "6.4: nobody will be woken when the pace opens";
      } else if (!pool_.has_one_of(worlds_.size() - 1) && !(wake && *wake <= now().time.now()) &&
                 !(now().time.now() <= trouble_until_ && (wake || depth() != 0))) {
        wrong_ = "8.5: a task is ready, and no permit is out nor will one be offered";
      }
    }
    const shut_world shut{control.shut() ? &now() : nullptr, control.changes(), pool_.offered()};
    if (shut.where != nullptr && shut.where == shut_.where && shut.changes == shut_.changes &&
        shut.offered != shut_.offered)
      wrong_ = "8.5: a permit is offered while all is paused";
    shut_ = shut;
  }

  // Whose time runs out will be told.
  void look_at_leases() {
    const auto wake = now().time.next_wake();
    for (const auto& t : now().judge.tasks())
      if (t.state == task_state::running && t.expires != lease_model::never && !now().judge.stopped() &&
          !(wake && *wake <= t.expires))
        wrong_ = "7.2: nobody will be woken when the time of a lease is over";
  }

  // The next permit may be offered as late as this; or never inside a callback, which the same worker goes on from.
  void trouble() { trouble_until_ = now().time.now() + 100ms; }

  [[nodiscard]] int depth() const {
    int sum = 0;
    for (const auto& w : worlds_) sum += w->depth;
    return sum;
  }

  // ---- operations

  void operation() {
    ++operations_;
    pool_.pass();
    const std::size_t what = byte();
    if (what < 82) return call(&program::submit);
    if (what < 126) return run_permit(0);
    if (what < 140) return run_permit(pool_.queue.size() != 0 ? below(pool_.queue.size()) : 0);
    if (what < 156) return advance(1ms * static_cast<int>(below(8)));
    if (what < 164) return jump(1ms * static_cast<int>(below(64)));
    if (what < 178) return call(&program::disturb);
    if (what < 208) return call(&program::ask);
    if (what < 230) return call(&program::complete);
    call(&program::control);
  }

  void call(void (program::*what)()) {
    ++calls_;
    (this->*what)();
    --calls_;
  }

  // The pool and the clock misbehave, and somebody ends it all.
  void disturb() {
    switch (below(24)) {
      case 0:
      case 1:
      case 2:
        trouble();
        pool_.drop_one(below(3));
        return;
      case 3:
      case 4:
      case 5: static_cast<void>(pool_.queue.double_one(below(3))); return;
      case 6:
      case 7:
      case 8: return moving_ ? void() : now().time.ring();
      case 9: return now().close();
      case 10:
      case 11: return stop_and_move();
      case 12: return destroy();
      case 22:
      case 23: return pool_.treat_each();
      default: return set_mode();
    }
  }

  void ask() {
    switch (below(40)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4:
      case 5: now().cancel(any_task()); return;
      case 6:
      case 7: {
        const int k = any_key();
        without_inline([&] { now().cancel(k); });
        return;
      }
      case 8: without_inline([&] { now().cancel_all(); }); return;
      case 9:
      case 10:
      case 11:
      case 12: now().redrive(any_task()); return;
      case 13:
      case 14:
      case 15: without_inline([&] { now().redrive(any_key()); }); return;
      case 16:
      case 17: without_inline([&] { now().redrive_all(); }); return;
      case 18:
      case 19: now().discard(any_task()); return;
      case 20:
      case 21: without_inline([&] { now().discard(any_key()); }); return;
      case 22: without_inline([&] { now().discard_all(); }); return;
      case 23:
      case 24:
      case 25: now().release(any_key()); return;
      case 26: without_inline([&] { now().release_all(); }); return;
      case 27:
      case 28:
      case 29:
      case 30: now().drain(); return;
      case 31:
      case 32:
      case 33: return resubmit_evicted();
      default: return list();
    }
  }

  void control() {
    switch (below(32)) {
      case 0:
      case 1:
      case 2: now().pause(); return;
      case 3:
      case 4:
      case 5:
      case 6: now().resume(); return;
      case 7:
      case 8:
      case 9: now().step(below(4)); return;
      case 10:
      case 11:
      case 12: now().step(any_task()); return;
      case 13:
      case 14: now().pause(any_key()); return;
      case 15:
      case 16:
      case 17: now().resume(any_key()); return;
      case 18:
      case 19:
      case 20:
      case 21: now().expedite(any_task()); return;
      case 22:
      case 23:
      case 24:
      case 25: now().set_max_in_flight(1 + below(16) / 7); return;
      case 26: now().set_max_in_flight({}); return;
      case 27:
      case 28:
      case 29: return set_pace();
      case 30: now().set_pace({}); return;
      default: return list_busy();
    }
  }

  void set_pace() {
    const std::size_t b = byte();
    const auto n = static_cast<int>(1 + b % 3);
    const auto gap = 1ms * static_cast<int>(b / 3 % 12);
    now().set_pace(turnkey::pace{.n = static_cast<double>(n),
                                 .interval = n * (gap + 500us),
                                 .burst = static_cast<std::uint32_t>(1 + b / 36 % 4)});
  }

  // Somebody has a result, the first, a late one or one more; or he asks for time, or gives up.
  void complete() {
    const std::size_t b = byte();
    world& w = b % 8 == 0 ? *worlds_[b / 8 % worlds_.size()] : now();
    if (!w.guests.empty() && (w.deferred.empty() || b & 8)) return let_go(w, b / 16);
    if (w.deferred.empty()) return;
    const std::size_t which = below(w.deferred.size());
    switch (b / 16) {
      case 0:
      case 1: w.extend(which, 1ms * static_cast<int>(below(16)) - 2ms); return;
      case 2: w.extend(which, below(2) != 0 ? (turnkey::duration::max)() : (turnkey::duration::min)()); return;
      case 3:
      case 4: w.abandon(which); return;
      case 5: w.fail(which, below(2) != 0 ? std::make_exception_ptr(5) : std::exception_ptr()); return;
      case 6: now().cancel(w.deferred[which]->id); return;
      case 7:
      case 8:
      case 9:
      case 10:
      case 11: w.settle(which, turnkey::outcome::success()); return;
      default: w.settle(which, some_outcome(byte())); return;
    }
  }

  // A coroutine asks for time, or leaves.
  void let_go(world& w, std::size_t how) {
    const std::size_t which = below(w.guests.size());
    if (how < 3) {
      w.extend_guest(which, 1ms * static_cast<int>(below(16)) - 2ms);
    } else {
      w.leave(which, how < 10 ? turnkey::outcome::success() : some_outcome(byte()));
    }
  }

  [[nodiscard]] static turnkey::outcome some_outcome(std::size_t b) {
    using turnkey::outcome;
    switch (b % 16) {
      case 5:
      case 6: return outcome::retry("again");
      case 7: return outcome::retry_after(1ms * static_cast<int>(b / 16));
      case 8: return outcome::retry_after(-1ms);
      case 9:
      case 10: return outcome::postpone(0s);
      case 11: return outcome::postpone(1ms * static_cast<int>(b / 16));
      case 12: return outcome::dead("no");
      case 15: return outcome::dead();
      default: return outcome::success();
    }
  }

  [[nodiscard]] int any_key() { return static_cast<int>(below(4)); }
  [[nodiscard]] turnkey::task_id any_task() {
    const auto& tasks = now().judge.tasks();
    const std::size_t back = below(32);
    return back < tasks.size() ? tasks[tasks.size() - 1 - back].id : turnkey::task_id{back};
  }

  void submit() {
    const std::size_t b = byte();
    const key k = b % 8 == 7 ? key() : key(static_cast<int>(b % 8 < 4 ? 0 : b % 4));
    turnkey::task_options wishes;
    switch (b / 8 % 8) {
      case 0: wishes.policy = turnkey::policy::parallel; break;
      case 1:
      case 2:
      case 3: wishes.policy = turnkey::policy::exclusive; break;
      case 4:
      case 5:
      case 6: wishes.policy = turnkey::policy::ordered; break;
      default: break;
    }
    if (!k && b & 128) wishes.policy.reset();  // mostly not refused
    const std::size_t more = byte();
    if (k && more % 32 == 28) return now().enter(*k, wishes.policy.value_or(policy::exclusive));
    if (more % 4 == 1) wishes.delay = 1ms * static_cast<int>(more / 16) - 2ms;
    if (wishes.delay < 0s) wishes.delay = {};
    if (more % 8 == 2)
      wishes.retry = turnkey::retry_policy{.max_attempts = static_cast<std::uint32_t>(1 + more / 64),
                                           .initial_delay = 1ms * static_cast<int>(more / 8 % 4),
                                           .multiplier = 3,
                                           .max_delay = 5ms,
                                           .jitter = 0,
                                           .max_postpones = static_cast<std::uint32_t>(more / 32 % 2)};
    if (more % 8 == 6) wishes.retry = turnkey::retry_policy{.max_attempts = 4, .initial_delay = 0ms, .jitter = 0};
    const auto run = [this](turnkey::attempt& a) { return callback(a); };
    if (more % 4 == 3) {
      static_cast<void>(now().submit_several(some_keys(), wishes, run));
    } else {
      static_cast<void>(now().submit(k, wishes, run));
    }
  }

  // A set of the four keys, from one of them on, and maybe the first once more.
  [[nodiscard]] turnkey::keys<int> some_keys() {
    const std::size_t b = byte();
    std::vector<int> list;
    for (std::size_t i = 0; i != 4; ++i)
      if (const std::size_t k = (b / 16 + i) % 4; (b >> k & 1) != 0) list.push_back(static_cast<int>(k));
    if (b >= 192 && !list.empty()) list.push_back(list.front());
    return turnkey::keys<int>(list);
  }

  void run_permit(std::size_t index) {
    if (depth() == 0 || index % 4 == 3) {
      if (depth() != 0) trouble();  // nothing runs on top of a callback: a lost permit
      pool_.queue.run_one(index);
    } else if (threads_ < 3) {
      ++threads_;
      now().run_elsewhere(index);
      --threads_;
    }
  }

  void set_mode() {
    using turnkey::testing::on_offer;
    static constexpr std::array modes{on_offer::queue,
                                      on_offer::queue,
                                      on_offer::queue,
                                      on_offer::run,
                                      on_offer::refuse,
                                      on_offer::fail,
                                      on_offer::queue_and_refuse,
                                      on_offer::queue_and_fail,
                                      on_offer::drop,
                                      on_offer::run};
    const on_offer mode = modes[below(modes.size())];
    if (!pool_.treats_each() || below(4) == 0) pool_.treat_all(mode);
  }

  // What visits many tasks would let some run before it has seen the others, or told them to stop, under an executor
  // that runs inline: then its answer could not be foreseen.
  template <class Do>
  void without_inline(Do action) {
    pool_.without_inline(action);
  }

  void advance(turnkey::duration by) {
    world& w = now();
    const turnkey::time_point end = w.time.now() + by;
    for (auto wake = w.time.next_wake(); !moving_ && wake && *wake <= end && &w == &now(); wake = w.time.next_wake())
      jump((std::max)(*wake - w.time.now(), turnkey::duration{}));
    if (&w == &now() && w.time.now() < end) jump(end - w.time.now());
  }

  // A wake looks at the shards one after the other; under an executor that runs inline, a key whose retry is due may
  // be looked at last. So it must not run inline when several keys come back, nor several tasks while one of several
  // keys is there, and what runs inline must not move the clock again.
  void jump(turnkey::duration by) {
    world& w = now();
    if (std::exchange(moving_, true)) return;
    std::vector<key> due;
    const auto& tasks = w.judge.tasks();
    const bool several =
        std::any_of(tasks.begin(), tasks.end(), [](const auto& t) { return t.several() && model::unfinished(t); });
    for (const auto& t : tasks)
      if (((t.state == task_state::delayed && t.due <= w.time.now() + by) ||
           (t.state == task_state::running && t.expires <= w.time.now() + by)) &&
          (several || std::find(due.begin(), due.end(), t.key) == due.end()))
        due.push_back(t.key);
    if (due.size() > 1) {
      without_inline([&] { w.time.jump(by); });
    } else {
      w.time.jump(by);
    }
    moving_ = false;
  }

  void list() {
    const auto listed = now().scheduler()->dead_tasks();
    std::vector<const modelled_task*> expected;
    for (const auto& t : now().judge.tasks())
      if (t.in_store) expected.push_back(&t);
    std::sort(expected.begin(), expected.end(), [](auto* a, auto* b) { return a->death < b->death; });
    const bool same =
        std::equal(listed.begin(), listed.end(), expected.begin(), expected.end(), [](const auto& a, auto* b) {
          return a.id == b->id && a.key == b->key && a.policy == b->policy && a.submitted == b->submitted;
        });
    now().check(same, "5.2: dead_tasks() lists the store, the oldest first");
  }

  void list_busy() {
    const std::size_t n = below(6);
    const auto busy = now().scheduler()->busiest_keys(n);
    std::map<int, std::vector<const modelled_task*>> lines;
    for (const auto& t : now().judge.tasks())
      if (t.key && model::unfinished(t))
        for (const auto& k : t.keys()) lines[*k].push_back(&t);
    std::vector<std::pair<std::size_t, turnkey::time_point>> depths;  // how the rule sorts them
    for (const auto& [k, line] : lines) {
      const auto oldest =
          *std::min_element(line.begin(), line.end(), [](auto* a, auto* b) { return a->submitted < b->submitted; });
      depths.emplace_back(line.size(), oldest->submitted);
    }
    std::sort(depths.begin(), depths.end(), [](const auto& a, const auto& b) {
      return a.first != b.first ? a.first > b.first : a.second < b.second;
    });
    bool same = busy.size() == (std::min)(n, lines.size());
    for (std::size_t i = 0; same && i != busy.size(); ++i) {
      const auto& [depth, oldest] = depths[i];
      const auto& line = lines[busy[i].key];
      const auto* const head =
          line.empty() ? nullptr
                       : *std::min_element(line.begin(), line.end(), [](auto* a, auto* b) { return a->id < b->id; });
      same = head != nullptr && busy[i].depth == depth && line.size() == depth &&
             busy[i].oldest_age == now().time.now() - oldest && busy[i].head == head->id &&
             busy[i].head_state == now().judge.state_of(*head, now().time.now()) &&
             busy[i].paused == now().judge.control.paused(busy[i].key) && busy[i].held == now().judge.held(busy[i].key);
    }
    now().check(same, "9.3: busiest_keys()");
  }

  void resubmit_evicted() {
    world& w = now();
    if (w.evicted.empty()) return;
    turnkey::task_record<int> record = std::move(w.evicted.back());
    w.evicted.pop_back();
    w.submit(std::move(record), w);
  }

  // stop(), and most of what it returns goes to a new scheduler.
  void stop_and_move() {
    world& old = now();
    if (worlds_.size() > 6) return;
    auto records = old.stop();
    new_world();
    for (auto& record : records)
      if (below(8) != 7) now().submit(std::move(record), old);
    for (auto& record : old.evicted) now().submit(std::move(record), old);
    old.evicted.clear();
  }

  void destroy() {
    if (worlds_.size() > 6) return;
    now().destroy();
    new_world();
  }

  // ---- what a task does in one attempt

  turnkey::outcome callback(turnkey::attempt& a) {
    look();
    for (int actions = 0; !used_up(); ++actions) {
      const std::size_t what = byte();
      if (what >= 128 && actions < 3) {
        if (what % 16 == 0) {
          now().cancel(a.id());  // itself, unless it has moved on
        } else if (what % 16 < 6) {
          run_permit(0);
        } else if (what % 16 < 9) {
          defer(a);
        } else {
          operation();
        }
        look();
        continue;
      }
      if (what % 16 == 13) throw std::runtime_error("thrown");
      if (what % 16 == 14) throw 14;
      return some_outcome(what);
    }
    return turnkey::outcome::success();
  }

  // It goes on without its callback, unless it is settled at once.
  void defer(turnkey::attempt& a) {
    world& w = **std::find_if(worlds_.begin(), worlds_.end(), [&a](const auto& each) { return each->runs(a); });
    w.defer(a);
    const std::size_t b = byte();
    if (w.deferred.empty()) return;  // a second time, and the first is gone
    switch (b % 8) {
      case 0: w.extend(a, 1ms * static_cast<int>(b / 8) - 2ms); return;
      case 1: w.settle(w.deferred.size() - 1, some_outcome(b / 8)); return;
      case 2: w.abandon(w.deferred.size() - 1); return;
      default: return;
    }
  }

  // ---- the end

  // Faults stop and time passes while nothing else can happen: all that is unfinished must finish.
  void come_to_rest() {
    trouble();
    pool_.treat_all(turnkey::testing::on_offer::queue);
    pool_.unblock_all();
    now().set_max_in_flight({});
    now().set_pace({});
    now().resume();
    for (const int k : std::set<int>(now().judge.control.paused_keys())) now().resume(k);
    look();
    redriven_all_ = false;
    for (int steps = 0; all_is_well(); ++steps) {
      if (steps == 100'000) return now().check(false, "10.1: it never comes to rest");
      if (pool_.queue.size() != 0) {
        pool_.queue.run_one();
        look();
      } else if (!now().deferred.empty()) {
        if (now().settle(0, some_outcome(static_cast<std::size_t>(steps)))) look();
        now().abandon(0);
      } else if (!now().guests.empty()) {
        now().leave(0, some_outcome(static_cast<std::size_t>(steps)));
        look();
      } else if (now().judge.count_unfinished() == 0) {
        if (std::exchange(redriven_all_, true)) break;
        now().redrive_all();
      } else if (const auto wake = now().time.next_wake()) {
        jump((std::max)(*wake - now().time.now(), turnkey::duration{}));
        look();
      } else if (pool_.keeps_one_of(worlds_.size() - 1)) {
        lose_what_is_kept();
      } else if (now().release_all() == 0) {
        return now().check(false, "2.2: unfinished tasks, and nothing will ever start them");
      }
    }
    if (!all_is_well()) return;
    look_at_rest(now());
    look();
  }

  // 8.6: all else is done, and the executor will never run the permit that it has: drain() cannot know. The executor
  // dies, or the scheduler goes to another one.
  void lose_what_is_kept() {
    now().check(now().drain() == turnkey::drain_result::timed_out, "8.6: an executor that keeps a permit is timed out");
    if (operations_ % 2 != 0 && worlds_.size() <= 6) {
      stop_and_move();
    } else {
      pool_.lose_all();
    }
    trouble();
    look();
  }

  std::span<const std::uint8_t> bytes_;
  std::size_t at_ = 0;
  pool pool_{[this] { return byte(); }};
  std::vector<std::unique_ptr<world>> worlds_;
  int threads_ = 0;
  int calls_ = 0;  // of the scheduler that are under way
  bool moving_ = false;
  bool redriven_all_ = false;
  std::uint64_t operations_ = 0;
  turnkey::time_point trouble_until_{};
  struct shut_world {
    const world* where = nullptr;  // null: something may start
    std::uint64_t changes = 0;
    std::size_t offered = 0;
  } shut_;  // when it was looked at last
  std::string wrong_;
};

}  // namespace simulation
