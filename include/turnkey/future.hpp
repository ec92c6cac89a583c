// submit_future(): a submit whose callback has a result that somebody waits for. Not included by turnkey.hpp.
#pragma once

#include <turnkey/task_error.hpp>
#include <turnkey/turnkey.hpp>

#include <concepts>
#include <cstddef>
#include <exception>
#include <future>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

namespace turnkey::inline v1 {
namespace detail {

template <class F>
struct result_of_callback {
  static_assert(takes_attempt<F> || std::invocable<F&>,
                "turnkey: a callback is callable as an lvalue with nothing or with a turnkey::attempt&");
  using type = void;
};
template <class F>
  requires takes_attempt<F>
struct result_of_callback<F> : std::invoke_result<F&, attempt&> {
};
template <class F>
  requires(!takes_attempt<F> && std::invocable<F&>)
struct result_of_callback<F> : std::invoke_result<F&> {};

// What a future can be of: an outcome is for the scheduler, not for the one who waits.
template <class Result>
using future_result = std::conditional_t<std::same_as<Result, outcome>, void, std::remove_cv_t<Result>>;

// Keeps what the last attempt returned until the task has succeeded, and then gives it to the future.
template <class R>
class promised final : public fate {
  static_assert(!std::is_rvalue_reference_v<R>, "turnkey: no future is of an rvalue reference");

 public:
  [[nodiscard]] std::future<R> get_future() { return promise_.get_future(); }

  // One attempt.
  template <class F, class... Attempt>
  auto run(F& callback, Attempt&... a) {
    using returned = std::invoke_result_t<F&, Attempt&...>;
    value_.reset();
    try {
      if constexpr (std::same_as<returned, outcome>) {
        outcome said = callback(a...);
        value_.emplace();
        return said;
      } else if constexpr (std::is_void_v<R>) {
        callback(a...);
        value_.emplace();
      } else if constexpr (std::is_reference_v<R>) {
        value_.emplace(std::addressof(callback(a...)));
      } else {
        value_.emplace(callback(a...));
      }
    } catch (...) {
      thrown_ = std::current_exception();
      throw;
    }
  }

 private:
  void told(const ending& how) noexcept override {
    how_ = &how;
    promise_();
  }

  // What the future gets.
  R result() {
    if (how_->state != task_state::succeeded) std::rethrow_exception(error_of(*how_));
    if (!value_) std::rethrow_exception(thrown_);  // a completion said success, and then the callback threw
    if constexpr (std::is_reference_v<R>) {
      return **value_;
    } else if constexpr (!std::is_void_v<R>) {
      return std::move(*value_);
    }
  }

  using pointer = std::add_pointer_t<R>;  // to what a reference refers
  using kept =
      std::conditional_t<std::is_void_v<R>, std::true_type, std::conditional_t<std::is_reference_v<R>, pointer, R>>;

  // Not a std::promise: where moving the result throws, setting its value again waits for ever on some platforms.
  std::packaged_task<R()> promise_{[this]() -> R { return result(); }};
  const ending* how_ = nullptr;
  std::optional<kept> value_;
  std::exception_ptr thrown_;
};

// The callback of a task that somebody waits for.
template <class R, class F>
class promising {
 public:
  template <class G>
  promising(const fate_ptr<promised<R>>& promise, G&& callback)
      : promise_(promise), callback_(std::forward<G>(callback)) {}

  auto operator()() requires(!takes_attempt<F>) { return promise_->run(callback_); }
  auto operator()(attempt& a) requires takes_attempt<F> { return promise_->run(callback_, a); }

  [[nodiscard]] detail::fate* fate() const noexcept { return promise_.get(); }
  friend bool operator==(const promising& p, std::nullptr_t) noexcept { return is_empty(p.callback_); }

 private:
  fate_ptr<promised<R>> promise_;
  F callback_;
};

template <class F, class Submit>
auto with_future(F&& callback, Submit submit) {
  using callable = std::decay_t<F>;
  using result = future_result<typename result_of_callback<callable>::type>;
  const fate_ptr<promised<result>> promise(new promised<result>);
  std::future<result> future = promise->get_future();
  submit(promising<result, callable>(promise, std::forward<F>(callback)));
  return future;
}

}  // namespace detail

// Submits `callback` to `s`, and gives the future of its result. An attempt that fails is retried as the task's retry
// policy says; the future gets the result when the task has succeeded, and otherwise, when the task has
//   died        the exception of its last attempt; without one, task_died
//   cancelled   task_cancelled
//   undone      task_undone, once its record is dropped; one that is submitted again takes the future along
// A dead task that is redriven runs again, but what comes of that is not for the future any more.
//   Needs    the callback is callable with nothing or an attempt&, and returns anything movable, a reference, void, or
//            an outcome, which the scheduler obeys: then it is a std::future<void>. After defer() the future is ready
//            when the completion has said success.
//   Throws   what submit() throws; the callback may have been moved from then.
//   Threads  as submit(). Who waits inside a callback keeps a worker from its work; who waits for a task of the same
//            key while holding its lease, or with all workers waiting like that, waits for ever.
//   Sees     what the callback did is visible to the one who got its result; the callback is destroyed by then, and the
//            task may still count as running for a moment.
//   Cost     those of a std::packaged_task and one allocation, beside submit(); an exception is thrown once more.
template <class Key, class Hash, class KeyEqual, class F>
auto submit_future(scheduler<Key, Hash, KeyEqual>& s, std::type_identity_t<Key> key, const task_options& options,
                   F&& callback) {
  return detail::with_future(std::forward<F>(callback), [&](auto&& promising) {
    s.submit(std::move(key), options, std::forward<decltype(promising)>(promising));
  });
}
template <class Key, class Hash, class KeyEqual, class F>
auto submit_future(scheduler<Key, Hash, KeyEqual>& s, std::type_identity_t<Key> key, F&& callback) {
  return submit_future(s, std::move(key), task_options{}, std::forward<F>(callback));
}

// The same for a task without a key.
template <class Key, class Hash, class KeyEqual, class F>
auto submit_future(scheduler<Key, Hash, KeyEqual>& s, const task_options& options, F&& callback) {
  return detail::with_future(std::forward<F>(callback), [&](auto&& promising) {
    s.submit(options, std::forward<decltype(promising)>(promising));
  });
}
template <class Key, class Hash, class KeyEqual, class F>
auto submit_future(scheduler<Key, Hash, KeyEqual>& s, F&& callback) {
  return submit_future(s, task_options{}, std::forward<F>(callback));
}

}  // namespace turnkey::inline v1
