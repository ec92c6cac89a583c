// Up to where is everything finished? For those who read positions in order, let the work on them finish in any order,
// and must tell upstream how far they are: the offset of a partition, a line of a log. Not brought by turnkey.hpp; it
// needs no scheduler.
#pragma once

#include <turnkey/detail/sync.hpp>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <stdexcept>
#include <string>

namespace turnkey::inline v1 {

// Positions enter with open(), in rising order, gaps allowed, and leave with finish(), in any order. committed() is the
// mark: every position below it that was opened is finished. Upstream starts again there after a crash.
//
//   watermark mark{first};
//   const auto ticket = mark.open(offset);   // nothing: too far ahead, read on later
//   s.submit(key, [&mark, ticket = *ticket] { work(); mark.finish(ticket); });
//   ... commit(mark.committed()) now and then
//
// finish() is what says that a position is done: called at the end of the callback, so a retry does not count. The
// position of a dead task is open until you finish it: where its message was put aside, say. Until then the mark does
// not pass it, and at most `max_open` positions can be opened beyond it.
//
//   Threads  every member from any thread at once; open() from one at a time, since positions rise.
//   Cost     O(1) amortised, a lock, 16 bytes for each position from the mark on; finish() allocates nothing.
//   From     the committed offsets of Kafka, the cumulative acknowledgement of TCP (RFC 9293).
class watermark {
 public:
  // Names a position that was opened.
  enum class ticket : std::uint64_t {};

  // Everything below `first` counts as finished.
  //   Throws   std::invalid_argument when `max_open` is 0; std::bad_alloc.
  explicit watermark(std::uint64_t first = 0, std::size_t max_open = 65536)
      : max_open_(max_open), committed_(first), next_(first) {
    if (max_open == 0) throw std::invalid_argument("turnkey: watermark.max_open is 0; 1 or more");
  }
  watermark(const watermark&) = delete;
  watermark& operator=(const watermark&) = delete;

  // Takes a position in; `after` is where reading goes on when it is finished, the next number unless positions are
  // byte offsets. Nothing when `max_open` positions stand from the mark on: finish some first.
  //   Throws   std::invalid_argument when it is below the last one's `after`, or `after` is not above it;
  //            std::bad_alloc. Nothing has changed then.
  [[nodiscard]] std::optional<ticket> open(std::uint64_t position) { return open(position, position + 1); }
  [[nodiscard]] std::optional<ticket> open(std::uint64_t position, std::uint64_t after) {
    const detail::lock lock(mutex_);
    if (position < next_) refuse(position, "positions rise: the next one is at least ", next_);
    if (after <= position) refuse(position, "what comes after it is ", after);
    if (entries_.size() == max_open_) return {};
    entries_.push_back({after, false});
    next_ = after;
    ++open_;
    return ticket{first_ + entries_.size() - 1};
  }

  // True the first time; false for one that is finished already or was never given.
  bool finish(ticket which) noexcept {
    const detail::lock lock(mutex_);
    const auto number = static_cast<std::uint64_t>(which);
    if (number < first_ || number - first_ >= entries_.size()) return false;
    entry& e = entries_[static_cast<std::size_t>(number - first_)];
    if (e.finished) return false;
    e.finished = true;
    --open_;
    for (; !entries_.empty() && entries_.front().finished; ++first_) {
      committed_ = entries_.front().after;
      entries_.pop_front();
    }
    return true;
  }

  // Where reading goes on after a crash: nothing below is open. Never falls.
  [[nodiscard]] std::uint64_t committed() const noexcept {
    const detail::lock lock(mutex_);
    return committed_;
  }

  // How many are open, and how many stand from the mark on, open or not.
  [[nodiscard]] std::size_t open_count() const noexcept {
    const detail::lock lock(mutex_);
    return open_;
  }
  [[nodiscard]] std::size_t span() const noexcept {
    const detail::lock lock(mutex_);
    return entries_.size();
  }

 private:
  struct entry {
    std::uint64_t after;
    bool finished;
  };

  [[noreturn]] static void refuse(std::uint64_t position, const char* why, std::uint64_t number) {
    throw std::invalid_argument("turnkey: watermark position " + std::to_string(position) + ": " + why +
                                std::to_string(number));
  }

  mutable detail::mutex mutex_;
  const std::size_t max_open_;
  std::deque<entry> entries_ TURNKEY_GUARDED_BY(mutex_);  // from the mark on; the first one is open
  std::uint64_t first_ TURNKEY_GUARDED_BY(mutex_) = 0;    // the ticket of the first one
  std::uint64_t committed_ TURNKEY_GUARDED_BY(mutex_);
  std::uint64_t next_ TURNKEY_GUARDED_BY(mutex_);
  std::size_t open_ TURNKEY_GUARDED_BY(mutex_) = 0;
};

}  // namespace turnkey::inline v1
