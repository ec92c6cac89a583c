// The permits: how many are out, whether another is worth its price, when to offer again after a refusal, and which
// threads are inside. Not thread-safe: the gate's lock guards it.
#pragma once

#include <turnkey/detail/sync.hpp>
#include <turnkey/executor.hpp>
#include <turnkey/outcome.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

class engine;

// A permit that the executor can be handed.
struct offered_permit : permit {
  engine* owner = nullptr;
  offered_permit* next = nullptr;  // spare: the next spare one
  bool out = false;                // offered, and nobody has come with it yet
};

// A thread that runs the user's code for this scheduler; stands on its stack. "Inside" (rule 10) means that the
// thread has one of these.
struct visitor {
  visitor* previous = nullptr;
  visitor* next = nullptr;
  thread_id thread = this_thread();
  bool has_permit = false;
  bool in_callback = false;  // read and written by its own thread only
};

class permits {
 public:
  permits() = default;
  permits(const permits&) = delete;
  permits& operator=(const permits&) = delete;
  ~permits() {
    while (spare_ != nullptr) delete std::exchange(spare_, spare_->next);
  }

  // ---- spare ones

  void add(offered_permit& p) noexcept {
    p.next = spare_;
    spare_ = &p;
    ++spare_count_;
  }
  [[nodiscard]] bool none_spare() const noexcept { return spare_ == nullptr; }
  [[nodiscard]] bool scarce() const noexcept { return spare_count_ < few; }

  // ---- out and back

  // Whether fewer are on their way than may be, and no refusal is being waited out.
  [[nodiscard]] bool wanted() const noexcept { return out_ < max_out && !offer_again_; }

  // A permit to offer now, when `startable` lines may start and fewer permits are on their way; else null.
  [[nodiscard]] offered_permit* offer(std::size_t startable) noexcept {
    if (out_ >= startable || spare_ == nullptr || !wanted()) return nullptr;
    offered_permit* const p = spare_;
    spare_ = p->next;
    --spare_count_;
    p->out = true;
    ++out_;
    return p;
  }

  // Somebody came with it: the executor works.
  void begun(offered_permit& p) noexcept {
    if (p.out) --out_;
    p.out = false;
    refused_ = 0;
    offer_again_.reset();
  }

  // Its last copy died: it is a spare one again.
  void take_back(offered_permit& p) noexcept {
    if (p.out) --out_;
    p.out = false;
    add(p);
  }

  // It was refused or dropped; true when it was still out. The next one is offered not before a pause, which doubles.
  bool failed(offered_permit& p, time_point now) noexcept {
    if (!p.out) return false;
    p.out = false;
    --out_;
    constexpr auto shortest = std::chrono::milliseconds{1};
    constexpr auto longest = std::chrono::milliseconds{100};
    const auto pause = refused_ < 7 ? shortest * (1 << refused_) : longest;
    if (refused_ < hopeless) ++refused_;
    offer_again_ = now + pause;
    return true;
  }

  // The pause after a refusal is over once the time has come.
  void ring(time_point now) noexcept {
    if (offer_again_ && *offer_again_ <= now) offer_again_.reset();
  }

  [[nodiscard]] std::size_t out() const noexcept { return out_; }
  [[nodiscard]] const std::optional<time_point>& offer_again() const noexcept { return offer_again_; }

  // Whether the last 8 permits were all refused or dropped (rule 10.1). One that is on its way may still be run.
  [[nodiscard]] bool stalled() const noexcept { return refused_ == hopeless && out_ == 0; }

  // ---- who is inside

#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdangling-pointer"  // it does not see that leave() takes the visitor out again
#endif
  void enter(visitor& v) noexcept {
    v.previous = nullptr;
    v.next = visitors_;
    if (visitors_ != nullptr) visitors_->previous = &v;
    visitors_ = &v;
  }
#if defined(__GNUC__) && !defined(__clang__) && __GNUC__ >= 12
#pragma GCC diagnostic pop
#endif
  void leave(visitor& v) noexcept {
    (v.previous != nullptr ? v.previous->next : visitors_) = v.next;
    if (v.next != nullptr) v.next->previous = v.previous;
  }
  [[nodiscard]] bool anybody() const noexcept { return visitors_ != nullptr; }

  [[nodiscard]] bool anybody_works() const noexcept {
    for (const visitor* v = visitors_; v != nullptr; v = v->next)
      if (v->has_permit) return true;
    return false;
  }

  // The first visitor of this thread for which `which` says yes; null when there is none.
  template <class Which>
  [[nodiscard]] const visitor* mine(Which which) const noexcept {
    const thread_id self = this_thread();
    for (const visitor* v = visitors_; v != nullptr; v = v->next)
      if (v->thread == self && which(*v)) return v;
    return nullptr;
  }

 private:
  static constexpr std::size_t max_out = 1;  // permits on their way at once: each that begins sends the next
  static constexpr std::size_t few = 8;      // spare ones below which a submit makes more
  static constexpr std::uint32_t hopeless = 8;

  offered_permit* spare_ = nullptr;
  std::size_t spare_count_ = 0;
  std::size_t out_ = 0;
  std::uint32_t refused_ = 0;  // in a row, at most `hopeless`
  std::optional<time_point> offer_again_;
  visitor* visitors_ = nullptr;
};

}  // namespace turnkey::inline v1::detail
