// The fair order of lines: whoever comes to the front has its turn and goes to the back (rule 2.8). A line is in here
// once; what it may start only its slot knows. Not thread-safe: the gate's lock guards it.
#pragma once

#include <turnkey/detail/key_slot.hpp>

#include <cstddef>
#include <utility>

namespace turnkey::inline v1::detail {

class ready_queue {
 public:
  void push(key_slot& line) noexcept {
    line.ready_previous = last_;
    line.ready_next = nullptr;
    (last_ != nullptr ? last_->ready_next : first_) = &line;
    last_ = &line;
    line.in_ready_queue = true;
    ++size_;
  }

  // All of a list that is linked through ready_next.
  void push_all(key_slot* lines) noexcept {
    while (lines != nullptr) push(*std::exchange(lines, lines->ready_next));
  }

  void remove(key_slot& line) noexcept {
    (line.ready_previous != nullptr ? line.ready_previous->ready_next : first_) = line.ready_next;
    (line.ready_next != nullptr ? line.ready_next->ready_previous : last_) = line.ready_previous;
    line.in_ready_queue = false;
    --size_;
  }

  //   Needs    it is not empty.
  [[nodiscard]] key_slot& take() noexcept {
    key_slot& line = *first_;
    remove(line);
    return line;
  }

  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] key_slot* first() const noexcept { return first_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  key_slot* first_ = nullptr;
  key_slot* last_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace turnkey::inline v1::detail
