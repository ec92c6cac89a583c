// A program of a few operations for the manual world, written as letters: the first names the settings of the
// scheduler, each further one is an operation. What a callback does is decided when a permit is run: the first that it
// starts does what the letter says, those after it succeed.
#pragma once

#include "support/rest.hpp"
#include "support/world.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace small {

using namespace support;
using namespace std::chrono_literals;
using turnkey::testing::on_offer;

class program {
 public:
  explicit program(std::string_view letters) : letters_(letters.substr(1)), settings_(letters.front()) { new_world(); }
  program(const program&) = delete;
  program& operator=(const program&) = delete;

  // Runs it to its end and looks; then the faults stop, time passes while nothing else can happen, and everything must
  // finish. Gives the first thing that was wrong. It looks after the last operation only: shorter programs have looked
  // before.
  std::string run() {
    carry_on();
    if (!idle_ && wrong().empty()) come_to_rest();
    if (const std::string flaw = leave_nothing(worlds_, executor_); !idle_ && !flaw.empty()) now().check(false, flaw);
    return wrong();
  }

  // The last operation found nothing to do, so that the program does what a shorter one does, and was not looked at.
  [[nodiscard]] bool idle() const { return idle_; }

  [[nodiscard]] static std::string in_words(std::string_view letters) {
    std::string words;
    for (const char letter : letters.substr(1))
      words += (words.empty() ? "" : "; ") + std::string(meaning(letter).words);
    return words;
  }

 private:
  struct choice {
    char letter;
    const char* words;
    bool (*act)(program&);  // false: there was nothing to do
  };
  [[nodiscard]] static const choice& meaning(char letter);

  [[nodiscard]] world& now() { return *worlds_.back(); }
  [[nodiscard]] std::string wrong() const {
    for (const auto& w : worlds_)
      if (const auto& complaint = w->judge.complaint(); !complaint.empty()) return complaint;
    return {};
  }
  [[nodiscard]] bool is_inside() const {
    return std::any_of(worlds_.begin(), worlds_.end(), [](const auto& w) { return w->depth != 0; });
  }

  void new_world() {
    turnkey::options<int> o;
    o.jitter_seed = 1;
    if (settings_ != 'n' || !worlds_.empty())  // n: only the schedulers that it moves to retry
      o.retry = turnkey::retry_policy{.max_attempts = 2, .initial_delay = 4ms, .jitter = 0};
    switch (settings_) {
      case 'h': o.dead_action = turnkey::dead_action::hold_key; break;
      case 'n':
      case 'r': o.lease_expiry = turnkey::lease_expiry::release; [[fallthrough]];
      case 'l': o.lease_time = 3ms; break;
      default: break;
    }
    worlds_.push_back(std::make_unique<world>(executor_, o));
  }

  void carry_on() {
    while (at_ != letters_.size() && wrong().empty()) {
      const choice& what = meaning(letters_[at_++]);
      const bool last = at_ == letters_.size();
      const bool done = what.act(*this);
      if (!last) continue;
      idle_ = !done;
      look();
    }
  }
  void look() {
    for (const auto& w : worlds_) static_cast<void>(w->verdict());
  }

  // ---- operations

  bool submit(int k, policy p, turnkey::duration delay = {}) {
    static_cast<void>(now().submit(k, {.policy = p, .delay = delay}, script_of()));
    return true;
  }
  bool enter() {
    now().enter(1, policy::exclusive);
    return true;
  }
  bool leave(const turnkey::outcome& said) {
    for (const auto& w : worlds_)
      if (!w->guests.empty()) return w->leave(0, said), true;
    return false;
  }
  bool submit_both(policy p) {
    static_cast<void>(now().submit_several(turnkey::keys<int>{1, 2}, {.policy = p}, script_of()));
    return true;
  }
  script script_of() {
    return [this](turnkey::attempt& a) { return callback(a); };
  }

  // Another thread runs it while a callback is under way.
  bool run_permit(char how) {
    if (executor_.size() == 0) return false;
    first_ = how;
    if (is_inside()) {
      now().run_elsewhere();
    } else {
      executor_.run_one();
    }
    first_ = 's';
    return true;
  }
  turnkey::outcome callback(turnkey::attempt& a) {
    using turnkey::outcome;
    switch (std::exchange(first_, 's')) {
      case 'f': return outcome::retry();
      case 'p': return outcome::postpone(2ms);
      case 'z': return outcome::postpone({});
      case 'd': return outcome::dead();
      case 'l': defer(a); break;
      case 'o':
        defer(a);
        carry_on();
        break;
      case 'i': carry_on(); break;
      default: break;
    }
    return outcome::success();
  }

  void defer(turnkey::attempt& a) {
    (*std::find_if(worlds_.begin(), worlds_.end(), [&a](const auto& w) { return w->runs(a); }))->defer(a);
  }

  bool pass_time() {
    const auto wake = now().time.next_wake();
    if (wake) now().time.jump((std::max)(*wake - now().time.now(), turnkey::duration{}));
    return wake.has_value();
  }

  // The oldest or newest task of some kind, to be asked for something.
  template <class Which, class Ask>
  bool oldest(Which which, Ask ask) {
    const auto& tasks = now().judge.tasks();
    const auto t = std::find_if(tasks.begin(), tasks.end(), which);
    if (t == tasks.end()) return false;
    ask(t->id);
    return true;
  }
  bool cancel_oldest() {
    return oldest(model::unfinished, [this](auto id) { now().cancel(id); });
  }
  bool cancel_newest() {
    const auto& tasks = now().judge.tasks();
    const auto t = std::find_if(tasks.rbegin(), tasks.rend(), model::unfinished);
    if (t == tasks.rend()) return false;
    now().cancel(t->id);
    return true;
  }
  bool redrive() {
    return oldest([](const auto& t) { return t.in_store; }, [this](auto id) { now().redrive(id); });
  }
  bool discard() {
    return oldest([](const auto& t) { return t.in_store; }, [this](auto id) { now().discard(id); });
  }
  bool expedite() {
    return oldest([this](const auto& t) { return is(t, task_state::delayed); },
                  [this](auto id) { now().expedite(id); });
  }
  bool step_one() {
    return now().judge.control.paused() &&
           oldest([this](const auto& t) { return is(t, task_state::ready); }, [this](auto id) { now().step(id); });
  }
  [[nodiscard]] bool is(const modelled_task& t, task_state s) { return now().judge.state_of(t, now().time.now()) == s; }

  // What was deferred first. After a result that counted its completion is kept: the next one is too late.
  template <class Use>
  bool completion(Use use) {
    for (const auto& w : worlds_)
      if (!w->deferred.empty()) return use(*w), true;
    return false;
  }
  bool settle(const turnkey::outcome& said) {
    return completion([&said](world& w) {
      if (!w.settle(0, said)) w.abandon(0);
    });
  }

  bool pause_or_resume(int k) { return now().judge.control.paused(k) ? now().resume(k) : now().pause(k); }
  bool pause_or_resume() { return now().judge.control.paused() ? now().resume() : now().pause(); }
  bool limit_or_not() {
    now().set_max_in_flight(now().judge.control.max_in_flight() ? std::nullopt : std::optional<std::size_t>(1));
    return true;
  }
  bool pace_or_not() {
    paced_ = !paced_;
    now().set_pace(paced_ ? std::optional(turnkey::pace{.n = 1, .interval = 5ms}) : std::nullopt);
    return true;
  }
  bool set_mode(on_offer mode) {
    if (std::exchange(mode_, mode) == mode) return false;
    executor_.set_mode(mode);
    return true;
  }

  bool stop_and_move() {
    world& old = now();
    auto records = old.stop();
    new_world();
    paced_ = false;
    for (auto& record : records) now().submit(std::move(record), old);
    return true;
  }

  // ---- the end

  // What was set is taken back, and nothing else is touched: a wake-up that was lost must not be made up for.
  void come_to_rest() {
    set_mode(on_offer::queue);
    if (now().judge.control.max_in_flight()) limit_or_not();
    if (paced_) pace_or_not();
    if (now().judge.control.paused()) now().resume();
    for (const int k : {1, 2})
      if (now().judge.control.paused(k)) now().resume(k);
    bool redriven = false;
    for (int steps = 0; wrong().empty(); ++steps) {
      if (steps == 1000) return now().check(false, "10.1: it never comes to rest");
      if (executor_.size() != 0) {
        executor_.run_one();
      } else if (!now().deferred.empty()) {
        now().settle(0, turnkey::outcome::success());
        now().abandon(0);
      } else if (!now().guests.empty()) {
        now().leave(0, turnkey::outcome::success());
      } else if (now().judge.count_unfinished() == 0) {
        if (std::exchange(redriven, true)) break;
        now().redrive_all();
      } else if (!pass_time() && now().release_all() == 0) {
        return now().check(false, "2.2: unfinished tasks, and nothing will ever start them");
      }
    }
    if (wrong().empty()) look_at_rest(now());
    look();
  }

  std::string_view letters_;
  char settings_;
  std::size_t at_ = 0;
  bool idle_ = false;
  char first_ = 's';  // what the callback does that starts next
  bool paced_ = false;
  on_offer mode_ = on_offer::queue;
  turnkey::testing::manual_executor executor_;
  std::vector<std::unique_ptr<world>> worlds_;  // the last one is asked
};

inline const program::choice& program::meaning(char letter) {
  using turnkey::outcome;
  static constexpr auto choices = std::to_array<choice>({
      {'P', "submit a parallel task", [](program& p) { return p.submit(1, policy::parallel); }},
      {'E', "submit an exclusive task", [](program& p) { return p.submit(1, policy::exclusive); }},
      {'O', "submit an ordered task", [](program& p) { return p.submit(1, policy::ordered); }},
      {'D', "submit an ordered task with a delay", [](program& p) { return p.submit(1, policy::ordered, 1ms); }},
      {'A', "submit an exclusive task of key 2", [](program& p) { return p.submit(2, policy::exclusive); }},
      {'B', "submit an ordered task of key 2", [](program& p) { return p.submit(2, policy::ordered); }},
      {'S', "submit an exclusive task of both keys", [](program& p) { return p.submit_both(policy::exclusive); }},
      {'T', "submit an ordered task of both keys", [](program& p) { return p.submit_both(policy::ordered); }},
      {'s', "run a permit", [](program& p) { return p.run_permit('s'); }},
      {'f', "run a permit, the first callback fails", [](program& p) { return p.run_permit('f'); }},
      {'p', "run a permit, the first callback postpones", [](program& p) { return p.run_permit('p'); }},
      {'z', "run a permit, the first callback postpones by nothing", [](program& p) { return p.run_permit('z'); }},
      {'d', "run a permit, the first callback dies", [](program& p) { return p.run_permit('d'); }},
      {'l', "run a permit, the first callback defers", [](program& p) { return p.run_permit('l'); }},
      {'i', "run a permit, what follows is done inside the first callback",
       [](program& p) { return p.run_permit('i'); }},
      {'o', "run a permit, the first callback defers, and what follows is done inside it",
       [](program& p) { return p.run_permit('o'); }},
      {'t', "time passes until the next wake", [](program& p) { return p.pass_time(); }},
      {'c', "cancel the oldest", [](program& p) { return p.cancel_oldest(); }},
      {'n', "cancel the newest", [](program& p) { return p.cancel_newest(); }},
      {'r', "redrive the oldest dead", [](program& p) { return p.redrive(); }},
      {'h', "discard the oldest dead", [](program& p) { return p.discard(); }},
      {'e', "release the key", [](program& p) { return p.now().release(1); }},
      {'k', "pause or resume the key", [](program& p) { return p.pause_or_resume(1); }},
      {'K', "pause or resume key 2", [](program& p) { return p.pause_or_resume(2); }},
      {'U', "pause or resume everything", [](program& p) { return p.pause_or_resume(); }},
      {'1', "step(1)", [](program& p) { return p.now().step(1); }},
      {'j', "step(the oldest that is ready)", [](program& p) { return p.step_one(); }},
      {'v', "expedite the oldest that is delayed", [](program& p) { return p.expedite(); }},
      {'L', "set or remove a limit of one in flight", [](program& p) { return p.limit_or_not(); }},
      {'G', "set or remove a pace", [](program& p) { return p.pace_or_not(); }},
      {'w', "settle what was deferred first", [](program& p) { return p.settle(outcome::success()); }},
      {'b', "settle what was deferred first as failed", [](program& p) { return p.settle(outcome::retry()); }},
      {'a', "abandon what was deferred first", [](program& p) { return p.completion([](world& w) { w.abandon(0); }); }},
      {'g', "extend the lease of what was deferred first",
       [](program& p) { return p.completion([](world& w) { w.extend(0, 2ms); }); }},
      {'C', "a coroutine enters the key, exclusive", [](program& p) { return p.enter(); }},
      {'q', "the coroutine that entered first leaves", [](program& p) { return p.leave(outcome::success()); }},
      {'u', "the coroutine that entered first fails", [](program& p) { return p.leave(outcome::retry()); }},
      {'m', "stop, and move to another scheduler", [](program& p) { return p.stop_and_move(); }},
      {'x', "the pool drops its oldest permit", [](program& p) { return p.executor_.drop_one(); }},
      {'2', "the pool doubles its oldest permit", [](program& p) { return p.executor_.double_one(); }},
      {'Q', "the pool queues from now on", [](program& p) { return p.set_mode(on_offer::queue); }},
      {'I', "the pool runs inline from now on", [](program& p) { return p.set_mode(on_offer::run); }},
      {'R', "the pool refuses from now on", [](program& p) { return p.set_mode(on_offer::refuse); }},
      {'F', "the pool throws from now on", [](program& p) { return p.set_mode(on_offer::fail); }},
      {'N', "the pool queues and refuses from now on",
       [](program& p) { return p.set_mode(on_offer::queue_and_refuse); }},
      {'Y', "the pool queues and throws from now on", [](program& p) { return p.set_mode(on_offer::queue_and_fail); }},
      {'X', "the pool drops what it is handed from now on", [](program& p) { return p.set_mode(on_offer::drop); }},
  });
  const auto* const at =
      std::find_if(choices.begin(), choices.end(), [letter](const auto& c) { return c.letter == letter; });
  if (at == choices.end()) throw std::invalid_argument(std::string("no operation is called ") + letter);
  return *at;
}

}  // namespace small
