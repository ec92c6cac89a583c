// What runs in an endurance test, and what it checks while it runs: jobs with faults, plain data of each key that only
// leases touch, couriers' letters, and the ledger, which counts the ends of each task in the memory of the unfinished.
#pragma once

#include <turnkey/turnkey.hpp>

#include "endurance/arguments.hpp"
#include "support/dice.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace endurance {

using keyed = turnkey::scheduler<int>;
using support::dice;
using turnkey::event_kind;

// Of one key: plain, touched by who has its lease only.
struct key_data {
  bool taken = false;
  std::uint64_t fence = 0;
  std::array<std::uint64_t, max_producers> begun{};  // the last of each producer's ordered tasks that has begun
};

// Counts, by what observers hear, how often each task has ended. A task whose ends and lives balance is forgotten; only
// the redriven ones are known until the life is over.
class ledger {
 public:
  void note(const turnkey::event<int>& e) {
    ++heard_[static_cast<std::size_t>(e.kind)];
    if (e.kind == event_kind::redriven && e.policy == turnkey::policy::ordered) may_come_late(e.id);
    switch (e.kind) {
      case event_kind::submitted:
      case event_kind::redriven: add(e.id, 1); break;
      case event_kind::succeeded:
      case event_kind::dead:
      case event_kind::cancelled:
      case event_kind::undone: add(e.id, -1); break;
      default: break;
    }
  }

  [[nodiscard]] std::uint64_t count(event_kind kind) const { return heard_[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] std::uint64_t ends() const {
    return count(event_kind::succeeded) + count(event_kind::dead) + count(event_kind::cancelled) +
           count(event_kind::undone);
  }

  // A redriven task has the place of its id, though larger ones may have run meanwhile (rule 5.2).
  void may_come_late(turnkey::task_id id) {
    const std::lock_guard lock(mutex_);
    late_.insert(static_cast<std::uint64_t>(id));
  }
  [[nodiscard]] bool came_late(turnkey::task_id id) {
    const std::lock_guard lock(mutex_);
    return late_.count(static_cast<std::uint64_t>(id)) != 0;
  }

  // When all is quiet: a task that has more lives than ends, or fewer; none when all is well.
  [[nodiscard]] std::optional<std::uint64_t> unbalanced() {
    for (part& p : parts_) {
      const std::lock_guard lock(p.mutex);
      if (!p.lives_without_end.empty()) return p.lives_without_end.begin()->first;
    }
    return {};
  }

 private:
  struct alignas(64) part {
    std::mutex mutex;
    std::unordered_map<std::uint64_t, int> lives_without_end;  // by id; below 0 where the end was heard first
  };

  void add(turnkey::task_id id, int by) {
    const auto number = static_cast<std::uint64_t>(id);
    part& p = parts_[number / 16 % parts_.size()];
    const std::lock_guard lock(p.mutex);
    const auto at = p.lives_without_end.try_emplace(number, 0).first;
    if ((at->second += by) == 0) p.lives_without_end.erase(at);
  }

  std::array<part, 16> parts_;
  std::mutex mutex_;
  std::unordered_set<std::uint64_t> late_;
  std::array<std::atomic<std::uint64_t>, 16> heard_{};  // by kind
};

class messages;

// A scheduler between two stops, and the consumer beside it.
struct life {
  template <class Executor>
  life(Executor& executor, turnkey::options<int> settings, std::uint64_t its_number)
      : number(its_number),
        couriers_touch(!settings.lease_time || settings.lease_expiry == turnkey::lease_expiry::report),
        tasks(executor, observed(std::move(settings))) {}

  const std::uint64_t number;
  const bool couriers_touch;  // the data of a key: not where a lease may be taken away, they would come too late
  ledger heard;
  keyed tasks;
  std::shared_ptr<messages> beside;

 private:
  turnkey::options<int> observed(turnkey::options<int> settings) {
    settings.observer = [this](const turnkey::event<int>& e) { heard.note(e); };
    return settings;
  }
};

// The data of the keys whose leases somebody has, to be given back before the attempt is settled.
class grip {
 public:
  grip() = default;
  grip(grip&& other) noexcept : held_(std::exchange(other.held_, {})) {}
  grip& operator=(grip&& other) noexcept {
    let_go();
    held_ = std::exchange(other.held_, {});
    return *this;
  }
  ~grip() { let_go(); }
  void take(std::size_t place, key_data& data) {
    data.taken = true;
    held_[place] = &data;
  }
  void let_go() noexcept {
    for (key_data*& each : held_)
      if (key_data* const data = std::exchange(each, nullptr)) data->taken = false;
  }

 private:
  std::array<key_data*, 3> held_{};
};

// An ordered task that came after a later one: wrong, unless it was redriven, which shows when its life is over.
struct suspicion {
  turnkey::task_id id;
  std::string what;
};

// An attempt that goes on without its callback.
struct letter {
  turnkey::completion handle;
  grip data;
};

enum class fault : std::uint8_t { thrown, failed, killed, postponed, slow, deferred, abandoned, twice, late };
inline constexpr std::array fault_names{"thrown", "failed",    "killed", "postponed", "slow",
                                        "late",   "abandoned", "twice",  "ignored"};

struct world {
  explicit world(const arguments& a)
      : wanted(a), data(a.keys), faults_in_a_million(static_cast<std::uint64_t>(a.faults * 1'000'000)) {}

  const arguments wanted;
  std::vector<key_data> data;
  const std::uint64_t faults_in_a_million;
  std::atomic<std::uint64_t> calls{0};
  std::atomic<std::uint64_t> accepted{0};
  std::atomic<std::uint64_t> succeeded{0};
  std::atomic<std::uint64_t> discarded{0};
  std::atomic<std::uint64_t> messages{0};
  std::atomic<std::uint64_t> flaws{0};
  std::atomic<std::int64_t> callables{0};
  std::atomic<std::int64_t> letters{0};  // that nobody has finished with
  std::array<std::atomic<std::uint64_t>, fault_names.size()> faults{};

  void broken(const std::string& what) {
    if (++flaws <= 10) std::fprintf(stderr, "\nbroken: %s\n", what.c_str());
  }
  void suspect(suspicion s) {
    const std::lock_guard lock(mutex);
    suspicions.push_back(std::move(s));
  }
  void inject(fault f) { ++faults[static_cast<std::size_t>(f)]; }
  bool goes_wrong(dice& d) const { return d.below(1'000'000) < faults_in_a_million; }
  int some_key(dice& d) const {
    return static_cast<int>(d.below(d.chance(50) ? (std::min)(data.size(), std::size_t{16}) : data.size()));
  }

  // Whose callbacks run; and where others may submit: none between two lives.
  std::atomic<life*> running{nullptr};
  std::shared_ptr<life> now() {
    const std::lock_guard lock(mutex);
    return current;
  }
  void go_on_with(std::shared_ptr<life> next) {
    const std::lock_guard lock(mutex);
    current = std::move(next);
  }

  void send(letter l) {
    ++letters;
    const std::lock_guard lock(mutex);
    box.push_back(std::move(l));
  }
  std::optional<letter> take_letter(dice& d) {
    const std::lock_guard lock(mutex);
    if (box.empty()) return {};
    std::swap(box[d.below(box.size())], box.back());
    std::optional<letter> taken(std::move(box.back()));
    box.pop_back();
    return taken;
  }

  std::mutex mutex;
  std::shared_ptr<life> current;
  std::vector<letter> box;
  std::vector<suspicion> suspicions;  // of this life
};

// What every task runs: a callable that can only be moved, and counts itself.
class job {
 public:
  explicit job(world& w, int depth = 0) : world_(&w), depth_(depth) { ++w.callables; }
  job(job&& other) noexcept
      : world_(other.world_),
        depth_(other.depth_),
        keys_(other.keys_),
        numbers_(other.numbers_),
        count_(other.count_),
        producer_(other.producer_),
        ordered_(other.ordered_) {
    ++world_->callables;
  }
  job& operator=(job&&) = delete;
  ~job() { --world_->callables; }

  void add_key(int key) { keys_[count_++] = key; }
  // In each key it is the n-th ordered task of this producer.
  void is_ordered(std::size_t producer, std::vector<std::uint64_t>& submitted) {
    ordered_ = true;
    producer_ = producer;
    for (std::size_t i = 0; i != count_; ++i) numbers_[i] = ++submitted[static_cast<std::size_t>(keys_[i])];
  }

  turnkey::outcome operator()(turnkey::attempt& a);

 private:
  grip enter(turnkey::attempt& a);
  turnkey::outcome defer(turnkey::attempt& a, grip data, dice& d);
  void submit_another(keyed& s, dice& d) const;

  world* world_;
  int depth_;
  std::array<int, 3> keys_{};
  std::array<std::uint64_t, 3> numbers_{};
  std::size_t count_ = 0;
  std::size_t producer_ = 0;
  bool ordered_ = false;
};

// What only the holder of all its leases may do.
inline grip job::enter(turnkey::attempt& a) {
  grip mine;
  for (std::size_t i = 0; i != count_; ++i) {
    key_data& k = world_->data[static_cast<std::size_t>(keys_[i])];
    const auto name = [&] { return " of key " + std::to_string(keys_[i]); };
    if (k.taken) world_->broken("two leases" + name());
    if (a.fence() <= k.fence) world_->broken("a fence" + name() + " that does not grow: " + std::to_string(a.fence()));
    k.fence = a.fence();
    mine.take(i, k);
    if (!ordered_) continue;
    std::uint64_t& begun = k.begun[producer_];
    if (numbers_[i] < begun)
      world_->suspect(
          {a.id(), "ordered task " + std::to_string(numbers_[i]) + name() + " after " + std::to_string(begun)});
    begun = (std::max)(begun, numbers_[i]);
  }
  return mine;
}

inline turnkey::outcome job::operator()(turnkey::attempt& a) {
  using turnkey::outcome;
  world& w = *world_;
  dice d(w.wanted.seed ^ w.calls.fetch_add(1) * 0x2545f4914f6cdd1dU);
  life& here = *w.running.load();
  grip mine = a.has_lease() ? enter(a) : grip{};
  if (d.chance(5)) std::this_thread::yield();
  if (depth_ < 2 && d.chance(4)) submit_another(here.tasks, d);
  if (d.chance(1)) a.extend_lease(std::chrono::microseconds(d.below(2000)));
  if (d.chance(5)) return defer(a, here.couriers_touch ? std::move(mine) : grip{}, d);
  if (w.goes_wrong(d)) {
    switch (d.below(12)) {
      case 0:
      case 1: w.inject(fault::thrown); throw std::runtime_error("thrown");
      case 2: w.inject(fault::thrown); throw 7;
      case 3:
      case 4:
      case 5: w.inject(fault::failed); return outcome::retry("asked to");
      case 6: w.inject(fault::failed); return outcome::retry_after(std::chrono::microseconds(d.below(2000)));
      case 7: w.inject(fault::killed); return outcome::dead("for good");
      case 8:
      case 9:
        w.inject(fault::postponed);
        return outcome::postpone(std::chrono::microseconds(d.chance(50) ? 0 : d.below(1000)));
      default:
        w.inject(fault::slow);
        std::this_thread::sleep_for(std::chrono::microseconds(d.below(1000)));
        break;
    }
  }
  ++w.succeeded;
  return outcome::success();
}

// A courier settles it; what is returned does not count.
inline turnkey::outcome job::defer(turnkey::attempt& a, grip data, dice& d) {
  world_->inject(fault::deferred);
  world_->send({a.defer(), std::move(data)});
  if (d.chance(30)) std::this_thread::yield();
  return turnkey::outcome::dead("ignored");
}

inline void job::submit_another(keyed& s, dice& d) const {
  job next(*world_, depth_ + 1);
  turnkey::submit_result taken = turnkey::reject_reason::closed;
  if (d.chance(30)) {
    taken = s.try_submit(std::move(next));
  } else {
    const int key = world_->some_key(d);
    next.add_key(key);
    const auto how = d.chance(50) ? turnkey::policy::parallel : turnkey::policy::exclusive;
    taken = s.try_submit(key, {.policy = how}, std::move(next));
  }
  world_->accepted += taken.has_value();
}

// What a courier does with a letter.
inline void deliver(world& w, letter l, dice& d) {
  using turnkey::outcome;
  if (d.chance(20)) std::this_thread::sleep_for(std::chrono::microseconds(d.below(3000)));
  if (d.chance(10)) static_cast<void>(l.handle.extend_lease(std::chrono::microseconds(d.below(3000))));
  l.data.let_go();
  if (!w.goes_wrong(d)) {
    const bool counts = l.handle.succeed();
    w.succeeded += counts;
    if (!counts) w.inject(fault::late);
    return;
  }
  switch (d.below(4)) {
    case 0: w.inject(fault::abandoned); break;
    case 1: {
      w.inject(fault::twice);
      const bool counts = l.handle.succeed();
      w.succeeded += counts;
      if (l.handle.fail()) w.broken("the second result of an attempt counts");
      break;
    }
    case 2:
      w.inject(fault::failed);
      l.handle.fail(std::make_exception_ptr(std::runtime_error("courier")));
      break;
    default: w.inject(fault::postponed); l.handle.settle(outcome::postpone(std::chrono::microseconds(d.below(500))));
  }
}

}  // namespace endurance
