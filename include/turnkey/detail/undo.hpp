// Undoes something at the end of its scope, unless told to forget it: how a submit that throws changes nothing.
#pragma once

#include <utility>

namespace turnkey::inline v1::detail {

template <class F>
class undo {
 public:
  explicit undo(F f) noexcept : f_(std::move(f)) {}
  ~undo() {
    if (!forgotten_) f_();
  }
  undo(const undo&) = delete;
  undo& operator=(const undo&) = delete;

  void forget() noexcept { forgotten_ = true; }

 private:
  F f_;
  bool forgotten_ = false;
};

}  // namespace turnkey::inline v1::detail
