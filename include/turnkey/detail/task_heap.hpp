// A priority queue of tasks through links inside them: no allocation, so nothing here can fail. A leftist tree (Crane
// 1972; Knuth, volume 3, 5.2.3): two of them merge in O(log n), and insert, pop and remove are merges. With parent
// links any task can leave in O(log n).
#pragma once

#include <turnkey/detail/task.hpp>

#include <utility>

namespace turnkey::inline v1::detail {

// Timers: the earliest first, equal times by id (rule 3.3).
struct by_due_time {
  static bool before(const task& a, const task& b) noexcept { return a.when != b.when ? a.when < b.when : a.id < b.id; }
};

// Tasks that come back into a line (rule 2.9): what has run before, by due time; then the others, by rank.
struct by_turn {
  static bool before(const task& a, const task& b) noexcept {
    if (a.retried != b.retried) return a.retried;
    if (a.retried && a.when != b.when) return a.when < b.when;
    if (!a.retried && a.rank != b.rank) return a.rank < b.rank;
    return a.id < b.id;
  }
};

template <class Order>
class task_heap {
 public:
  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }
  [[nodiscard]] task* first() const noexcept { return root_; }

  void insert(task& t) noexcept {
    t.heap = {nullptr, nullptr, nullptr};
    t.heap_rank = 1;
    set_root(merged(root_, &t));
  }

  void remove(task& t) noexcept {
    task* const rest = merged(t.heap.left, t.heap.right);
    task* const parent = t.heap.parent;
    if (parent == nullptr) {
      set_root(rest);
      return;
    }
    (parent->heap.left == &t ? parent->heap.left : parent->heap.right) = rest;
    if (rest != nullptr) rest->heap.parent = parent;
    repair(parent);
  }

  // Takes all of `other`.
  void merge(task_heap& other) noexcept { set_root(merged(root_, std::exchange(other.root_, nullptr))); }

 private:
  static std::uint8_t rank(const task* t) noexcept { return t != nullptr ? t->heap_rank : std::uint8_t{0}; }

  void set_root(task* t) noexcept {
    root_ = t;
    if (t != nullptr) t->heap.parent = nullptr;
  }

  // The right spines are at most log2(n) long: down along them, then up again to set ranks.
  static task* merged(task* a, task* b) noexcept {
    if (a == nullptr) return b;
    if (b == nullptr) return a;
    if (Order::before(*b, *a)) std::swap(a, b);
    task* const top = a;
    task* lowest = a;
    while (true) {
      task* const right = lowest->heap.right;
      if (right == nullptr) {
        lowest->heap.right = b;
        b->heap.parent = lowest;
        break;
      }
      if (Order::before(*b, *right)) {
        lowest->heap.right = b;
        b->heap.parent = lowest;
        lowest = b;
        b = right;
      } else {
        lowest = right;
      }
    }
    top->heap.parent = nullptr;
    for (task* t = lowest; t != nullptr; t = t->heap.parent) order_children(*t);
    return top;
  }

  // Puts the shallower child to the right; true when the rank of `t` changed.
  static bool order_children(task& t) noexcept {
    if (rank(t.heap.left) < rank(t.heap.right)) std::swap(t.heap.left, t.heap.right);
    const auto depth = static_cast<std::uint8_t>(rank(t.heap.right) + 1);
    return std::exchange(t.heap_rank, depth) != depth;
  }

  static void repair(task* t) noexcept {
    while (t != nullptr && order_children(*t)) t = t->heap.parent;
  }

  task* root_ = nullptr;
};

}  // namespace turnkey::inline v1::detail
