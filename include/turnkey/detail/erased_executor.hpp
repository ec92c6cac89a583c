// The executor behind a virtual call: copied, moved in or referred to (rule 8.1), and what it returns judged.
#pragma once

#include <turnkey/executor.hpp>

#include <concepts>
#include <memory>
#include <type_traits>
#include <utility>

namespace turnkey::inline v1::detail {

// The executor, its type forgotten.
class erased_executor {
 public:
  virtual ~erased_executor() = default;
  // False: it says that it refuses.
  virtual bool offer(work permit) = 0;
};

// An executor behind a virtual call. `E` is a reference for one that cannot be copied.
template <class E>
class held_executor final : public erased_executor {
 public:
  template <class From>
  explicit held_executor(From&& from) : executor_(std::forward<From>(from)) {}

  bool offer(work permit) override {
    using answer = decltype(executor_(std::move(permit)));
    if constexpr (std::is_void_v<answer>) {
      executor_(std::move(permit));
      return true;
    } else if constexpr (std::is_convertible_v<answer, bool>) {
      return static_cast<bool>(executor_(std::move(permit)));
    } else {
      static_cast<void>(executor_(std::move(permit)));
      return true;
    }
  }

 private:
  E executor_;
};

template <class E>
std::unique_ptr<erased_executor> erase_executor(E&& executor) {
  using plain = std::remove_cvref_t<E>;
  if constexpr (!std::is_lvalue_reference_v<E>) {
    static_assert(std::move_constructible<plain>,
                  "turnkey: an executor given as an rvalue is moved in; give one that cannot move as an lvalue");
    return std::make_unique<held_executor<plain>>(std::forward<E>(executor));
  } else if constexpr (std::copy_constructible<plain>) {
    return std::make_unique<held_executor<plain>>(executor);
  } else {
    return std::make_unique<held_executor<E>>(executor);
  }
}

}  // namespace turnkey::inline v1::detail
