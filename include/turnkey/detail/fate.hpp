// Who wants to know how a task ends: a future, a coroutine that waits. An ordinary callback has no such thing.
#pragma once

#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <atomic>
#include <cstdint>
#include <exception>
#include <utility>

namespace turnkey::inline v1::detail {

// How a task ended.
struct ending {
  task_id id{};
  task_state state{};
  failure_reason reason{};   // dead: why,
  std::exception_ptr error;  // and with what, if anything was thrown or said
};

// Shared by the callable, with which it travels from record to record, and by whoever waits. It is told once, of the
// first ending, outside all locks, and after the callable was destroyed, unless the task died.
class fate {
 public:
  fate() noexcept = default;
  fate(const fate&) = delete;
  fate& operator=(const fate&) = delete;

  void keep() noexcept { owners_.fetch_add(1, std::memory_order_relaxed); }
  void drop() noexcept {
    // As engine::drop().
    if (owners_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

  // True for the first one who asks: it decides, and nobody is told after that. Acquire and release, so that it sees
  // what the one who waits has written.
  [[nodiscard]] bool claim() noexcept { return !claimed_.exchange(true, std::memory_order_acq_rel); }

  void tell(const ending& how) noexcept {
    if (claim()) told(how);
  }

  // Of the first death; written once, under the lock of the task's shard.
  ending death{};
  bool died = false;

 protected:
  virtual ~fate() = default;

 private:
  virtual void told(const ending& how) noexcept = 0;

  std::atomic<std::uint32_t> owners_{1};
  std::atomic<bool> claimed_{false};
};

// Owns a share of a fate; null after a move.
template <class Fate>
class fate_ptr {
 public:
  explicit fate_ptr(Fate* owned) noexcept : fate_(owned) {}
  fate_ptr(const fate_ptr& other) noexcept : fate_(other.fate_) {
    if (fate_ != nullptr) fate_->keep();
  }
  fate_ptr(fate_ptr&& other) noexcept : fate_(std::exchange(other.fate_, nullptr)) {}
  fate_ptr& operator=(const fate_ptr&) = delete;
  ~fate_ptr() {
    if (fate_ != nullptr) fate_->drop();
  }

  [[nodiscard]] Fate* get() const noexcept { return fate_; }
  Fate* operator->() const noexcept { return fate_; }

 private:
  Fate* fate_;
};

}  // namespace turnkey::inline v1::detail
