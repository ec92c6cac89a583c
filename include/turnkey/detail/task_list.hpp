// A list of tasks through links inside them: both ends, any order, O(1). Which pair of links is the template's
// argument, so that a task can stand in two lists.
#pragma once

#include <turnkey/detail/task.hpp>

namespace turnkey::inline v1::detail {

template <list_links task::*Links>
class task_list {
 public:
  [[nodiscard]] bool empty() const noexcept { return first_ == nullptr; }
  [[nodiscard]] task* first() const noexcept { return first_; }
  [[nodiscard]] task* last() const noexcept { return last_; }
  [[nodiscard]] static task* after(const task& t) noexcept { return (t.*Links).next; }
  [[nodiscard]] static task* before(const task& t) noexcept { return (t.*Links).previous; }

  void push_back(task& t) noexcept { insert_after(last_, t); }

  // After `earlier`, or in front of all when it is null.
  void insert_after(task* earlier, task& t) noexcept {
    task* const later = earlier != nullptr ? (earlier->*Links).next : first_;
    (t.*Links) = {earlier, later};
    (earlier != nullptr ? (earlier->*Links).next : first_) = &t;
    (later != nullptr ? (later->*Links).previous : last_) = &t;
  }

  void remove(task& t) noexcept {
    const list_links links = t.*Links;
    (links.previous != nullptr ? (links.previous->*Links).next : first_) = links.next;
    (links.next != nullptr ? (links.next->*Links).previous : last_) = links.previous;
  }

 private:
  task* first_ = nullptr;
  task* last_ = nullptr;
};

}  // namespace turnkey::inline v1::detail
