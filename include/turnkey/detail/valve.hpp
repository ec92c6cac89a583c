// How many tasks may start, over all keys: the pause of everything with the steps that pass it, the limit of running
// tasks, and the pace. Changing one never changes another (rule 6.6). Not thread-safe: the gate's lock guards it.
//
// A worker is let through with a ticket, which it shows to the shard at every start. When a rule gets stricter the
// tickets that are out are revoked: the shards refuse those of an earlier epoch, so once pause() or a lowered limit has
// returned nothing starts against it (rule 2.11).
#pragma once

#include <turnkey/detail/config.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/pace.hpp>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

// The right of one task to pass the pause of everything: step(id).
struct pass {
  std::uint64_t id = 0;
  pass* next = nullptr;
};

// The right to start some tasks, and a place among those that run.
struct ticket {
  std::uint64_t epoch = 0;
  std::uint32_t starts = 0;      // at most
  std::uint32_t pause = 0;       // which pause it passes; 0: none
  std::uint32_t pace = 0;        // which pace it took a start of; 0: none
  std::uint64_t start = 0;       // which start of that pace
  detail::pass* pass = nullptr;  // whose it is; null: for the next line
};

// The pace as a virtual schedule: the generic cell rate algorithm (ITU-T I.371). A start moves the schedule on by one
// gap; whoever is early by more than the slack waits.
class schedule {
 public:
  explicit schedule(const pace& p) noexcept
      : gap_(rounded_up(static_cast<double>(p.interval.count()) / p.n)),
        slack_(rounded_up(static_cast<double>(gap_.count()) * (p.burst - 1))) {}

  // The next start is not before this.
  [[nodiscard]] time_point opens() const noexcept {
    return due_ < (time_point::min)() + slack_ ? (time_point::min)() : due_ - slack_;
  }
  // A start, not before the latest.
  void spend(time_point now) noexcept {
    latest_ = now;
    if (due_ < now) due_ = now;
    due_ = due_ > (time_point::max)() - gap_ ? (time_point::max)() : due_ + gap_;
    ++spent_;
  }
  [[nodiscard]] std::uint64_t spent() const noexcept { return spent_; }

  // The start after which spent() was `number` did not happen. The later ones did, so the schedule goes back no further
  // than they alone may have moved it.
  void give_back(std::uint64_t number) noexcept {
    const auto later = static_cast<duration::rep>(spent_ - number);
    if (gap_ == duration::zero() || (due_ - latest_) / gap_ < later) return;
    const time_point alone = latest_ + gap_ * later;
    due_ = due_ - gap_ > alone ? due_ - gap_ : alone;
  }

 private:
  static duration rounded_up(double ticks) noexcept {
    constexpr auto most = (std::numeric_limits<duration::rep>::max)() / 4;
    if (!(ticks < static_cast<double>(most))) return duration{most};
    const auto whole = static_cast<duration::rep>(ticks);
    return duration{static_cast<double>(whole) < ticks ? whole + 1 : whole};
  }

  duration gap_;
  duration slack_;
  time_point due_ = (time_point::min)();
  time_point latest_ = (time_point::min)();  // of the starts
  std::uint64_t spent_ = 0;                  // starts so far
};

class valve {
 public:
  valve(std::optional<std::size_t> max_in_flight, std::uint32_t turn_budget) noexcept
      : turn_budget_(turn_budget), max_in_flight_(max_in_flight) {
    look_whether_free();
  }
  valve(const valve&) = delete;
  valve& operator=(const valve&) = delete;
  ~valve() {
    while (first_pass_ != nullptr) delete std::exchange(first_pass_, first_pass_->next);
  }

  // ---- who may start

  // With how many of `lines`, which have something to start, a worker may go now.
  [[nodiscard]] std::size_t startable(std::size_t lines) const noexcept {
    if (free_) return lines;
    if (stopped_ || shut_until_ != never) return 0;
    if (paused_) lines = (steps_ < lines ? static_cast<std::size_t>(steps_) : lines) + passes_;
    if (!max_in_flight_) return lines;
    const std::size_t room = in_flight_ < *max_in_flight_ ? *max_in_flight_ - in_flight_ : 0;
    return room < lines ? room : lines;
  }

  // A worker goes through. `now` counts where there is a pace, and may be put forward.
  //   Needs    startable() is not 0.
  void take(ticket& t, time_point& now) noexcept {
    ++in_flight_;
    t.epoch = epoch_;
    t.starts = turn_budget_;
    t.pause = t.pace = 0;
    t.pass = nullptr;
    if (free_) return;
    if (paused_) {
      t.starts = 1;
      t.pause = pauses_;
      if ((t.pass = first_pass_) != nullptr) {
        first_pass_ = first_pass_->next;
        if (first_pass_ == nullptr) end_of_passes_ = &first_pass_;
        --passes_;
      } else {
        --steps_;
      }
    }
    if (schedule_) {
      if (latest_ < now) latest_ = now;
      now = latest_;
      t.starts = 1;
      t.pace = paces_;
      schedule_->spend(now);
      if (schedule_->opens() > now) shut_until_ = schedule_->opens();
      t.start = schedule_->spent();
    }
  }

  // It has used its ticket, and leaves its place to the task that it has started.
  //   Gives    the pass, to be deleted.
  static pass* leave_behind(const ticket& t) noexcept { return t.pass; }

  // Such a task does not run any more.
  void give_place() noexcept { --in_flight_; }

  // It comes back. A right that was not used is there again, but a pass only where the ticket had been revoked.
  //   Gives    the pass, to be deleted, unless it is there again.
  pass* give_back(const ticket& t, bool used) noexcept {
    --in_flight_;
    if (used) return t.pass;
    if (t.pace != 0 && t.pace == paces_) {
      schedule_->give_back(t.start);
      shut_until_ = schedule_->opens() > latest_ ? schedule_->opens() : never;
    }
    if (t.pause != pauses_ || !paused_) return t.pass;
    if (t.pass == nullptr) {
      step(1);
    } else if (t.epoch != epoch_) {
      step(*t.pass);
      return nullptr;
    }
    return t.pass;
  }

  // Time has passed: the pace may let the next one through.
  void ring(time_point now) noexcept {
    if (latest_ < now) latest_ = now;
    if (shut_until_ <= now) shut_until_ = never;
  }

  // When the pace lets the next one through; never, the largest time, when it is not the pace that keeps it.
  [[nodiscard]] time_point shut_until() const noexcept { return shut_until_; }
  static constexpr time_point never = (time_point::max)();

  // ---- control; what returns an epoch wants the tickets of earlier ones revoked

  std::uint64_t pause() noexcept {
    if (std::exchange(paused_, true)) return epoch_;
    look_whether_free();
    if (++pauses_ == 0) ++pauses_;
    return ++epoch_;
  }
  // Steps that were not used are dropped; the passes are the caller's to delete.
  [[nodiscard]] pass* resume() noexcept {
    paused_ = false;
    look_whether_free();
    steps_ = 0;
    passes_ = 0;
    end_of_passes_ = &first_pass_;
    return std::exchange(first_pass_, nullptr);
  }
  void step(std::uint64_t n) noexcept { steps_ = n > ~steps_ ? ~std::uint64_t{0} : steps_ + n; }
  [[nodiscard]] bool has_pass(std::uint64_t id) const noexcept {
    const pass* p = first_pass_;
    while (p != nullptr && p->id != id) p = p->next;
    return p != nullptr;
  }
  void step(pass& p) noexcept {
    p.next = nullptr;
    *end_of_passes_ = &p;
    end_of_passes_ = &p.next;
    ++passes_;
  }
  std::uint64_t set_max_in_flight(std::optional<std::size_t> limit) noexcept {
    max_in_flight_ = limit;
    look_whether_free();
    return ++epoch_;
  }
  std::uint64_t set_pace(const std::optional<pace>& p) noexcept {
    schedule_.reset();
    if (p) schedule_.emplace(*p);
    look_whether_free();
    shut_until_ = never;
    if (++paces_ == 0) ++paces_;
    return ++epoch_;
  }
  void stop() noexcept {
    stopped_ = true;
    look_whether_free();
  }

  // ---- facts

  [[nodiscard]] bool paused() const noexcept { return paused_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }
  [[nodiscard]] const std::optional<std::size_t>& max_in_flight() const noexcept { return max_in_flight_; }
  [[nodiscard]] bool full() const noexcept { return max_in_flight_ && in_flight_ >= *max_in_flight_; }

 private:
  void look_whether_free() noexcept { free_ = !stopped_ && !paused_ && !max_in_flight_ && !schedule_; }

  // What every worker looks at stands together, in the cache line of the gate's lock.
  std::uint32_t turn_budget_;
  bool free_ = true;  // nothing limits the starts
  std::size_t in_flight_ = 0;
  std::uint64_t epoch_ = 1;
  time_point shut_until_ = never;

  std::optional<std::size_t> max_in_flight_;
  bool stopped_ = false;
  bool paused_ = false;
  std::uint32_t pauses_ = 0;  // so far: no callback runs for 2^32 of them, nor for as many paces
  std::uint32_t paces_ = 0;
  std::uint64_t steps_ = 0;
  std::size_t passes_ = 0;
  pass* first_pass_ = nullptr;
  pass** end_of_passes_ = &first_pass_;
  std::optional<schedule> schedule_;
  time_point latest_ = (time_point::min)();  // of all times that were told
};

}  // namespace turnkey::inline v1::detail
