// What a future and a coroutine get when their task ended without a success, or an exception, of its own. Not included
// by turnkey.hpp.
#pragma once

#include <turnkey/detail/fate.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <array>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <string_view>

namespace turnkey::inline v1 {

// The common base; what() names the task and says how it ended. Copying never throws.
class task_error : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return text_.data(); }
  [[nodiscard]] task_id id() const noexcept { return id_; }

 protected:
  task_error(task_id id, std::string_view end, std::string_view more = {}) noexcept : id_(id) {
    append("turnkey: task ");
    const auto number =
        std::to_chars(text_.data() + size_, text_.data() + text_.size() - 1, static_cast<std::uint64_t>(id));
    size_ = static_cast<std::size_t>(number.ptr - text_.data());
    append(end);
    append(more);
  }

 private:
  void append(std::string_view words) noexcept {
    for (const char c : words)
      if (size_ + 1 < text_.size()) text_[size_++] = c;  // the last one stays 0
  }

  task_id id_;
  std::size_t size_ = 0;
  std::array<char, 120> text_{};
};

// Somebody called cancel().
class task_cancelled : public task_error {
 public:
  explicit task_cancelled(task_id id) noexcept : task_error(id, " was cancelled") {}
};

// Its scheduler was stopped or destroyed, and the record that stop() made of it was dropped.
class task_undone : public task_error {
 public:
  explicit task_undone(task_id id) noexcept : task_error(id, " was not done: its scheduler stopped before") {}
};

// Its last attempt failed, and left no exception: outcome::dead() without words, a completion that was abandoned, a
// lease that was lost, too many postponements.
class task_died : public task_error {
 public:
  task_died(task_id id, failure_reason reason) noexcept
      : task_error(id, " died: ", to_string(reason)), reason_(reason) {}
  [[nodiscard]] failure_reason reason() const noexcept { return reason_; }

 private:
  failure_reason reason_;
};

namespace detail {

// What a task that did not succeed ended with.
inline std::exception_ptr error_of(const ending& how) noexcept {
  if (how.error) return how.error;
  switch (how.state) {
    case task_state::cancelled: return std::make_exception_ptr(task_cancelled(how.id));
    case task_state::dead: return std::make_exception_ptr(task_died(how.id, how.reason));
    default: return std::make_exception_ptr(task_undone(how.id));
  }
}

}  // namespace detail
}  // namespace turnkey::inline v1
