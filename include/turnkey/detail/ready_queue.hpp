// The fair order of lines: whoever comes to the front has its turn and goes to the back (rule 2.8); and how many tasks
// run. A line is in here once; what it may start only its slot knows. Not thread-safe: the gate's lock guards it.
#pragma once

#include <turnkey/detail/key_slot.hpp>

#include <cstddef>
#include <optional>
#include <utility>

namespace turnkey::inline v1::detail {

class ready_queue {
 public:
  explicit ready_queue(std::optional<std::size_t> max_in_flight) noexcept : max_in_flight_(max_in_flight) {}

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

  // How many of the lines may start a task now.
  [[nodiscard]] std::size_t startable() const noexcept {
    if (stopped_) return 0;
    const std::size_t room = max_in_flight_ ? *max_in_flight_ - in_flight_ : size_;
    return room < size_ ? room : size_;
  }

  // The next line, and a place among the running tasks for whoever visits it.
  //   Needs    startable() is not 0.
  [[nodiscard]] key_slot& take() noexcept {
    key_slot& line = *first_;
    remove(line);
    ++in_flight_;
    return line;
  }
  void give_place() noexcept { --in_flight_; }

  void stop() noexcept { stopped_ = true; }
  [[nodiscard]] bool stopped() const noexcept { return stopped_; }
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] key_slot* first() const noexcept { return first_; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] std::size_t in_flight() const noexcept { return in_flight_; }

 private:
  key_slot* first_ = nullptr;
  key_slot* last_ = nullptr;
  std::size_t size_ = 0;
  std::size_t in_flight_ = 0;
  std::optional<std::size_t> max_in_flight_;
  bool stopped_ = false;
};

}  // namespace turnkey::inline v1::detail
