// What a callback says of its attempt, and what is kept of one that failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

namespace turnkey::inline v1 {
class completion;
namespace detail {
class engine;
}

using clock = std::chrono::steady_clock;
using duration = clock::duration;
using time_point = clock::time_point;

// Who decided that an attempt failed.
enum class failure_reason : std::uint8_t {
  asked,          // the callback returned retry, retry_after or dead
  threw,          // the callback threw
  abandoned,      // a completion was destroyed unsettled
  lease_lost,     // a deferred attempt outlived its lease
  postponed_out,  // postponed more often than max_postpones allows
};

constexpr const char* to_string(failure_reason reason) noexcept {
  switch (reason) {
    case failure_reason::asked: return "asked";
    case failure_reason::threw: return "threw";
    case failure_reason::abandoned: return "abandoned";
    case failure_reason::lease_lost: return "lease lost";
    case failure_reason::postponed_out: return "postponed out";
  }
  return "?";
}

// What a callback means by outcome::retry("why"), as the exception that carries the words.
class asked_to_fail : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Why an attempt failed: a reason, and what was thrown or said.
//   Threads  a value; copies share the exception object.
class failure {
 public:
  failure(failure_reason reason, std::exception_ptr exception) noexcept
      : reason_(reason), exception_(std::move(exception)) {}

  [[nodiscard]] failure_reason reason() const noexcept { return reason_; }

  // What the callback threw; for `asked`, an asked_to_fail with the words, null when there were none.
  [[nodiscard]] const std::exception_ptr& exception() const noexcept { return exception_; }

  // One line for a person: what() of a std::exception, the words of an outcome, else the reason's name.
  //   Cost     rethrows the exception to look at it.
  [[nodiscard]] std::string text() const {
    if (!exception_) return to_string(reason_);
    try {
      std::rethrow_exception(exception_);
    } catch (const std::exception& e) {
      return e.what();
    } catch (...) {
      return "an exception that is not a std::exception";
    }
  }

 private:
  failure_reason reason_;
  std::exception_ptr exception_;
};

// What becomes of the task after this attempt. A callback that returns void means success().
class [[nodiscard]] outcome {
 public:
  enum class kind : std::uint8_t { success, retry, retry_after, postpone, dead };

  static outcome success() noexcept { return outcome{kind::success}; }

  // Failed: again after the retry policy's backoff, or dead when its attempts are used up.
  static outcome retry(const std::string& why = {}) { return outcome{kind::retry, duration{}, words(why)}; }

  // Failed: again after exactly `delay`; 0 or less is at once.
  static outcome retry_after(duration delay, const std::string& why = {}) {
    return outcome{kind::retry_after, delay, words(why)};
  }

  // Nothing failed, but later: no attempt is counted. 0 or less is at once, behind what is ready.
  static outcome postpone(duration delay) noexcept { return outcome{kind::postpone, delay}; }

  // Failed for good.
  static outcome dead(const std::string& why = {}) { return outcome{kind::dead, duration{}, words(why)}; }

  [[nodiscard]] kind what() const noexcept { return kind_; }
  [[nodiscard]] duration delay() const noexcept { return delay_; }
  [[nodiscard]] const std::exception_ptr& why() const noexcept { return why_; }

 private:
  friend class detail::engine;
  friend class completion;
  explicit outcome(kind what, duration delay = {}, std::exception_ptr why = nullptr) noexcept
      : kind_(what), delay_(delay), why_(std::move(why)) {}

  static std::exception_ptr words(const std::string& why) {
    return why.empty() ? nullptr : std::make_exception_ptr(asked_to_fail(why));
  }

  kind kind_;
  duration delay_;
  std::exception_ptr why_;
};

}  // namespace turnkey::inline v1
