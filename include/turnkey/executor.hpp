// The border to the user's pool: `work`, the permit that a pool is handed, and the executor that hands it over.
// A permit is the right to run whatever is ready next, not a task: a lost one loses no task, a doubled one runs
// nothing twice.
#pragma once

#include <atomic>
#include <concepts>
#include <cstdint>
#include <utility>

namespace turnkey::inline v1 {
namespace detail {

// What a `work` points to. Its owner gives it out with one reference and gets it back when the last copy died.
struct permit {
  std::atomic<std::uint32_t> references{0};
  void (*begin)(permit&) noexcept = nullptr;  // a thread of the pool has come
  void (*gone)(permit&) noexcept = nullptr;   // the last copy died
};

}  // namespace detail

// A permit: call it on any thread, once; copy it, move it, drop it as the pool likes.
//   Gives    operator() runs tasks that are ready, or returns at once when nothing is. It never throws.
//   Threads  distinct copies from any threads; it may be called, and may die, at any later time, also after the
//            scheduler did.
//   Cost     one pointer; a copy is one atomic increment.
class work {
 public:
  work(const work& other) noexcept : permit_(other.permit_) {
    // Relaxed is enough: whoever copies holds a reference already.
    if (permit_ != nullptr) permit_->references.fetch_add(1, std::memory_order_relaxed);
  }
  work(work&& other) noexcept : permit_(std::exchange(other.permit_, nullptr)) {}
  work& operator=(work other) noexcept {
    std::swap(permit_, other.permit_);
    return *this;
  }
  ~work() {
    // The last one must see all that the other holders did: release on every decrement, acquire on the last.
    if (permit_ != nullptr && permit_->references.fetch_sub(1, std::memory_order_acq_rel) == 1) permit_->gone(*permit_);
  }

  void operator()() const noexcept {
    if (permit_ != nullptr) permit_->begin(*permit_);
  }

  // For pools that carry a void*: release() lets go of the permit, adopt() takes it up again; exactly one adopt() for
  // each release(), or the permit leaks.
  [[nodiscard]] void* release() noexcept { return std::exchange(permit_, nullptr); }
  static work adopt(void* released) noexcept { return work(static_cast<detail::permit*>(released)); }

 private:
  explicit work(detail::permit* permit) noexcept : permit_(permit) {}

  detail::permit* permit_;
};

// Anything that can be called with a `work`. What it returns is ignored, but for a value that converts to a false
// bool: that, like an exception, reports a refusal, and turnkey offers another permit later.
template <class E>
concept executor = std::invocable<E&, work>;

// Runs callbacks on the thread that submits, or, for retries, on the time source's.
struct inline_executor {
  void operator()(const work& permit) const noexcept { permit(); }
};

}  // namespace turnkey::inline v1
