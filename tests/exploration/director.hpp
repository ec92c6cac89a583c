// Runs a few fibers, one at a time, and decides at each decision point who goes on: as a plan says, or the next plan of
// a systematic search with few preemptions, or at random. A run is told by its decisions alone, so it can be replayed.
#pragma once

#include <ucontext.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace exploration {

class director {
 public:
  static constexpr int most_fibers = 4;

  enum class mode : std::uint8_t {
    search,  // as the search has it; next() gives its next run
    replay,  // as the plan says, then as the first run of a search
    walk,    // at random
  };

  explicit director(mode how) : mode_(how) {}
  director(const director&) = delete;
  director& operator=(const director&) = delete;

  // A search of all runs with so many preemptions; of the second ones, where that is too many, of one in `one_in`.
  void search(int preemptions, std::uint64_t one_in = 1) {
    points_.clear();
    most_preemptions_ = preemptions;
    one_in_ = one_in;
  }
  void set_plan(const std::string& digits) {
    points_.clear();
    for (const char d : digits) points_.push_back({d - '0', 0});
  }
  void set_seed(std::uint64_t seed) { random_ = seed * 0x9e3779b97f4a7c15U + 1; }
  void record() { records_ = true; }

  // Runs the bodies until all have ended; false: those that have not are all asleep, and stay so for ever.
  bool run(std::vector<std::function<void()>> bodies) {
    bodies_ = std::move(bodies);
    at_ = 0;
    preemptions_ = 0;
    steps_.clear();
    const int count = static_cast<int>(bodies_.size());
    for (int i = 0; i != count; ++i) {
      fiber& f = fibers_[static_cast<std::size_t>(i)];
      if (f.stack == nullptr) f.stack = std::make_unique_for_overwrite<std::byte[]>(stack_size);
      f.state = ready;
      f.on = nullptr;
      f.what = "begins";
      getcontext(&f.context);
      f.context.uc_stack.ss_sp = f.stack.get();
      f.context.uc_stack.ss_size = stack_size;
      f.context.uc_link = nullptr;
      makecontext(&f.context, &director::enter_fiber, 0);
    }
    on_stage = this;
    current_ = -1;
    bool all_ended = true;
    if (const int first = choose(); first >= 0) {
      current_ = first;
      swapcontext(&home_, &fiber_of(first).context);
    }
    for (int i = 0; i != count; ++i) all_ended = all_ended && fiber_of(i).state == ended;
    on_stage = nullptr;
    current_ = -1;
    return all_ended;
  }

  // The next run of a search; false: there is none.
  bool next() {
    while (!points_.empty()) {
      point& last = points_.back();
      if (last.left != 0) {
        last.chosen = lowest(last.left);
        last.left &= last.left - 1;
        return true;
      }
      points_.pop_back();
    }
    return false;
  }

  // Who was chosen wherever there was a choice.
  [[nodiscard]] std::string plan() const {
    std::string digits;
    for (const point& p : points_) digits += static_cast<char>('0' + p.chosen);
    return digits;
  }

  // What was recorded, a column a fiber; and who is asleep.
  [[nodiscard]] std::string columns(const std::vector<std::string>& names) const {
    constexpr std::size_t width = 24;
    std::string out = "  ";
    for (const auto& n : names) {
      out += n;
      out.append(n.size() < width ? width - n.size() : 1, ' ');
    }
    for (const step& s : steps_) {
      out += "\n  ";
      out.append(static_cast<std::size_t>(s.fiber) * width, ' ');
      out += s.text;
    }
    for (std::size_t i = 0; i != names.size(); ++i)
      if (fibers_[i].state == asleep)
        out.append("\n  asleep: ").append(names[i]).append(" ").append(fibers_[i].what).append(label(fibers_[i].on));
    return out;
  }

  // ---- for the fibers

  void decide(const char* what, const void* about) {
    fiber& f = fiber_of(current_);
    f.what = what;
    f.on = about;
    go_on();
    if (records_) note(what, about);
  }
  void sleep(const char* what, const void* on) {
    fiber& f = fiber_of(current_);
    f.state = asleep;
    f.what = what;
    f.on = on;
    if (records_) note(what, on);
    go_on();
  }
  void wake(const void* on) {
    for (std::size_t i = 0; i != bodies_.size(); ++i)
      if (fibers_[i].state == asleep && fibers_[i].on == on) fibers_[i].state = ready;
  }
  [[nodiscard]] int current() const noexcept { return current_; }

  inline static director* on_stage = nullptr;  // whose run is under way

 private:
  enum condition : std::uint8_t { ready, asleep, ended };
  struct fiber {
    ucontext_t context{};
    std::unique_ptr<std::byte[]> stack{};
    condition state = ended;
    const char* what = "";
    const void* on = nullptr;
  };
  struct point {
    int chosen;
    std::uint32_t left;  // who could be chosen instead, and was not yet: a bit each
  };
  struct step {
    int fiber;
    std::string text;
  };
  static constexpr std::size_t stack_size = 256 * 1024;

  fiber& fiber_of(int i) { return fibers_[static_cast<std::size_t>(i)]; }
  static int lowest(std::uint32_t bits) {
    int i = 0;
    while ((bits >> i & 1U) == 0) ++i;
    return i;
  }
  std::uint64_t random() {
    random_ += 0x9e3779b97f4a7c15U;
    std::uint64_t x = random_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }

  // Who goes on; -1: nobody can. To switch away from a fiber that could go on is a preemption.
  int choose() {
    std::uint32_t can = 0;
    for (std::size_t i = 0; i != bodies_.size(); ++i)
      if (fibers_[i].state == ready) can |= 1U << i;
    if (can == 0) return -1;
    const bool stays = current_ >= 0 && (can >> current_ & 1U) != 0;
    const int first = stays ? current_ : lowest(can);
    if ((can & (can - 1)) == 0) return first;
    if (mode_ == mode::walk) {
      if (stays && random() % 4 != 0) return first;
      std::uint64_t n = random() % most_fibers;
      std::uint32_t left = can;
      for (; n != 0; --n) left = (left & (left - 1)) != 0 ? left & (left - 1) : can;
      return lowest(left);
    }
    if (at_ == points_.size()) {
      const bool thinned = preemptions_ != 0 && one_in_ > 1 && random() % one_in_ != 0;
      const bool may_switch = !stays || (preemptions_ < most_preemptions_ && !thinned);
      points_.push_back({first, may_switch ? can & ~(1U << first) : 0});
    }
    const int chosen = points_[at_++].chosen;
    if (stays && chosen != current_) ++preemptions_;
    return (can >> chosen & 1U) != 0 ? chosen : first;  // a plan of another scenario
  }

  void go_on() {
    const int me = current_;
    const int next = choose();
    if (next == me) return;
    current_ = next;
    swapcontext(&fiber_of(me).context, next < 0 ? &home_ : &fiber_of(next).context);
  }

  static void enter_fiber() {
    director& d = *on_stage;
    const auto me = static_cast<std::size_t>(d.current_);
    d.bodies_[me]();
    d.fibers_[me].state = ended;
    if (d.records_) d.note("ends", nullptr);
    const int next = d.choose();
    d.current_ = next;
    setcontext(next < 0 ? &d.home_ : &d.fiber_of(next).context);
  }

  void note(const char* what, const void* about) { steps_.push_back({current_, what + label(about)}); }
  [[nodiscard]] std::string label(const void* about) const {  // the same letter for the same lock
    if (about == nullptr) return {};
    const auto [at, is_new] = letters_.try_emplace(about, letters_.size());
    static_cast<void>(is_new);
    std::string name(2 + at->second / 26, static_cast<char>('a' + at->second % 26));
    name.front() = ' ';
    return name;
  }

  const mode mode_;
  int most_preemptions_ = 0;
  std::uint64_t one_in_ = 1;
  std::array<fiber, most_fibers> fibers_;
  std::vector<std::function<void()>> bodies_;
  std::vector<point> points_;
  std::size_t at_ = 0;
  int preemptions_ = 0;
  int current_ = -1;
  std::uint64_t random_ = 1;
  bool records_ = false;
  std::vector<step> steps_;
  mutable std::map<const void*, std::size_t> letters_;
  ucontext_t home_{};
};

// ---- what the seam and the callbacks say; nothing where no run is under way

inline void decide(const char* what, const void* about = nullptr) {
  if (director::on_stage != nullptr) director::on_stage->decide(what, about);
}
inline void sleep(const char* what, const void* on) {
  if (director::on_stage != nullptr) return director::on_stage->sleep(what, on);
  std::abort();  // nobody will come
}
inline void wake(const void* on) {
  if (director::on_stage != nullptr) director::on_stage->wake(on);
}
inline int who() noexcept { return director::on_stage != nullptr ? director::on_stage->current() : -1; }

}  // namespace exploration
