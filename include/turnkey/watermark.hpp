// Up to where is everything finished? For those who read positions in order, let the work on them finish in any order,
// and must tell upstream how far they are: the offset of a partition, a line of a log. It needs no scheduler, keeps
// nothing but numbers, and writes nothing anywhere: what committed() says is the user's to store.
#pragma once

#include <turnkey/detail/sync.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace turnkey::inline v1 {

// Positions enter with open(), rising, and leave with finish(), in any order. committed() is the mark: below it nothing
// is open, so whoever starts there again after a crash misses nothing. What had finished beyond it is done again, less
// than `max_span` positions: at least once, not exactly once.
//
//   turnkey::watermark mark{first_offset};
//   const auto ticket = mark.open(offset);    // none: no room; pause the partition, or wait, and open it again
//   orders.submit(key, [&mark, ticket = *ticket, message] { handle(message); mark.finish(ticket); });
//   commit(mark.committed());                 // now and then
//
// A position is finished where the user says so. At the end of the callback: an attempt that fails does not get there,
// and its retry does. What is dead, cancelled, handed back by stop() or refused by submit() stays open and keeps the
// mark back, until somebody finishes it: the callback itself on its last attempt, say, once the message is put aside.
// If nobody does, it is read again after the next start; until then there is room for `max_span` positions from it on.
//
//   Needs    it outlives the callbacks that finish.
//   Threads  every member from any number at once; who opens from several brings the positions into order himself.
//   Sees     what was done before finish() is visible to whoever gets a committed() beyond that position.
//   Cost     O(1) amortised under a lock of its own: the finish() that moves the mark passes each position once. Memory
//            is 16 bytes for each of `max_span`, taken by the constructor; nothing after it allocates.
//   From     Kafka's committed offsets; the cumulative and the selective acknowledgements of TCP (RFC 9293, 2018); the
//            low watermark of MillWheel (Akidau et al. 2013).
class watermark {
 public:
  // Names a position that was opened, to the watermark that gave it.
  enum class ticket : std::uint64_t {};

  // Everything below `first` counts as finished. `max_span` limits span().
  //   Throws   std::invalid_argument when `max_span` is 0; std::bad_alloc.
  explicit watermark(std::uint64_t first = 0, std::size_t max_span = 65'536)
      : max_span_(checked(max_span)), ring_(std::make_unique_for_overwrite<place[]>(max_span)), next_(first) {}
  watermark(const watermark&) = delete;
  watermark& operator=(const watermark&) = delete;

  // Takes in `position`. Reading goes on at `after`: the next number, unless the user says otherwise, as for byte
  // offsets. What was passed over on the way to it, lines without work or records that are no more, counts as finished.
  //   Gives    the ticket to finish it with; none when span() is `max_span`: nothing has changed then, and there is
  //            room once the oldest open position is finished.
  //   Throws   std::invalid_argument when it is below the last one's `after`, or `after` is not above it. Nothing has
  //            changed then.
  [[nodiscard]] std::optional<ticket> open(std::uint64_t position) { return open(position, position + 1); }
  [[nodiscard]] std::optional<ticket> open(std::uint64_t position, std::uint64_t after) {
    detail::lock lock(mutex_);
    if (position < next_ || after <= position) {
      const std::uint64_t next = next_;
      lock.unlock();
      refuse(position, after, next);
    }
    if (opened_ - oldest_ == max_span_) return std::nullopt;
    at(opened_) = {position, false};
    next_ = after;
    ++open_;
    return ticket{opened_++};
  }

  // That position is finished. False, and nothing has changed, when it was already or the ticket was never given.
  bool finish(ticket which) noexcept {
    const auto number = static_cast<std::uint64_t>(which);
    detail::lock lock(mutex_);
    if (number < oldest_ || number >= opened_ || at(number).finished) return false;
    at(number).finished = true;
    --open_;
    while (oldest_ != opened_ && at(oldest_).finished) ++oldest_;
    return true;
  }

  // The mark, where to start again: the oldest open position; without one, what comes after the last; `first` before
  // any. It never falls.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    detail::lock lock(mutex_);
    return oldest_ != opened_ ? at(oldest_).position : next_;
  }

  [[nodiscard]] std::size_t open_count() const noexcept {
    detail::lock lock(mutex_);
    return open_;
  }

  // How many positions there are from the oldest open one to the newest, finished ones between them too.
  [[nodiscard]] std::size_t span() const noexcept {
    detail::lock lock(mutex_);
    return static_cast<std::size_t>(opened_ - oldest_);
  }

 private:
  struct place {
    std::uint64_t position;
    bool finished;
  };

  static std::size_t checked(std::size_t max_span) {
    if (max_span == 0) throw std::invalid_argument("turnkey: watermark: max_span is 0; it must be at least 1");
    return max_span;
  }

  [[noreturn]] static void refuse(std::uint64_t position, std::uint64_t after, std::uint64_t next) {
    const std::string what = "turnkey: watermark: position " + std::to_string(position);
    if (position < next)
      throw std::invalid_argument(what + " does not rise: the next one is at least " + std::to_string(next));
    throw std::invalid_argument(what + " goes on at " + std::to_string(after) + ", which is not above it");
  }

  [[nodiscard]] place& at(std::uint64_t number) const noexcept TURNKEY_REQUIRES(mutex_) {
    return ring_[static_cast<std::size_t>(number % max_span_)];
  }

  const std::size_t max_span_;
  mutable detail::mutex mutex_;
  const std::unique_ptr<place[]> ring_ TURNKEY_GUARDED_BY(mutex_);  // from oldest_ on, which is open, to opened_
  std::uint64_t oldest_ TURNKEY_GUARDED_BY(mutex_) = 0;             // tickets are counted from 0
  std::uint64_t opened_ TURNKEY_GUARDED_BY(mutex_) = 0;
  std::uint64_t next_ TURNKEY_GUARDED_BY(mutex_);
  std::size_t open_ TURNKEY_GUARDED_BY(mutex_) = 0;
};

}  // namespace turnkey::inline v1
