// What turnkey takes for a callback, and the table of operations for each type of one.
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/detail/fate.hpp>
#include <turnkey/detail/task.hpp>
#include <turnkey/outcome.hpp>

#include <concepts>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace turnkey::inline v1::detail {

template <class Result>
concept callback_result = std::is_void_v<Result> || std::same_as<Result, outcome>;

template <class C>
concept takes_attempt = std::invocable<C&, attempt&>;

template <class C>
consteval bool result_is_fine() {
  if constexpr (takes_attempt<C>) {
    return callback_result<std::invoke_result_t<C&, attempt&>>;
  } else if constexpr (std::invocable<C&>) {
    return callback_result<std::invoke_result_t<C&>>;
  } else {
    return true;  // it is not callable at all: that is said first
  }
}

// Refuses at compile time, in words, what no callback may be.
template <class C>
constexpr void check_callback() {
  static_assert(takes_attempt<C> || std::invocable<C&>,
                "turnkey: a callback is callable as an lvalue with nothing or with a turnkey::attempt&");
  static_assert(result_is_fine<C>(), "turnkey: a callback returns void or a turnkey::outcome, nothing else");
  static_assert(std::move_constructible<C>, "turnkey: a callback is at least movable");
}

// Whether the callback can say more than that it succeeded.
template <class C>
constexpr bool may_postpone() {
  if constexpr (takes_attempt<C>) {
    return true;
  } else {
    return !std::is_void_v<std::invoke_result_t<C&>>;
  }
}

// A callable whose move is a copy of its bytes: no code of the user's runs when it is moved or destroyed.
template <class C>
constexpr bool is_plain = std::conjunction_v<std::is_trivially_copyable<C>, std::is_trivially_destructible<C>>;

// A null function pointer, an empty std::function and the like.
template <class C>
bool is_empty(const C& callable) noexcept {
  if constexpr (requires {
                  { callable == nullptr } -> std::convertible_to<bool>;
                }) {
    return static_cast<bool>(callable == nullptr);
  } else {
    return false;
  }
}

template <class C>
outcome invoke_callable(void* callable, [[maybe_unused]] attempt& a) {
  C& c = *std::launder(static_cast<C*>(callable));
  if constexpr (takes_attempt<C>) {
    if constexpr (std::is_void_v<std::invoke_result_t<C&, attempt&>>) {
      c(a);
      return outcome::success();
    } else {
      return c(a);
    }
  } else if constexpr (std::is_void_v<std::invoke_result_t<C&>>) {
    c();
    return outcome::success();
  } else {
    return c();
  }
}

template <class C>
void move_callable(void* from, void* to) {
  ::new (to) C(std::move(*std::launder(static_cast<C*>(from))));
}

template <class C>
void destroy_callable(void* callable) noexcept {
  std::destroy_at(std::launder(static_cast<C*>(callable)));
}

template <class C>
consteval auto destroyer() noexcept -> void (*)(void*) noexcept {
  if constexpr (std::is_trivially_destructible_v<C>) {
    return nullptr;
  } else {
    return &destroy_callable<C>;
  }
}

// A callable that somebody waits for. Its fate() is null once it was moved from.
template <class C>
concept fated = requires(const C& callable) {
  { callable.fate() }
  noexcept->std::same_as<fate*>;
};

template <class C>
consteval auto fate_finder() noexcept -> fate* (*)(void*) noexcept {
  if constexpr (fated<C>) {
    return [](void* callable) noexcept -> fate* { return std::launder(static_cast<C*>(callable))->fate(); };
  } else {
    return nullptr;
  }
}

template <class C>
inline constexpr callable_ops ops_of{&invoke_callable<C>, &move_callable<C>, destroyer<C>(), fate_finder<C>(),
                                     sizeof(C),           alignof(C),        is_plain<C>};

}  // namespace turnkey::inline v1::detail
