// A priority queue of tasks through links inside them: no allocation, so nothing here can fail. A leftist tree (Crane
// 1972; Knuth, volume 3, 5.2.3): two of them merge in O(log n), and insert, pop and remove are merges. With parent
// links any task can leave in O(log n). `Order` says which task is before which, and where its links are.
#pragma once

#include <turnkey/detail/task.hpp>

#include <utility>

namespace turnkey::inline v1::detail {

struct in_task {
  static heap_links& links(task& t) noexcept { return t.heap; }
  static std::uint8_t& rank(task& t) noexcept { return t.heap_rank; }
};

// Timers: the earliest first, equal times by id (rule 3.3).
struct by_due_time : in_task {
  static bool before(const task& a, const task& b) noexcept { return a.when != b.when ? a.when < b.when : a.id < b.id; }
};

// Tasks that come back into a line (rule 2.9): what has run before, by due time; then the others, by rank.
struct by_turn : in_task {
  static bool before(const task& a, const task& b) noexcept {
    if (a.retried != b.retried) return a.retried;
    if (a.retried && a.when != b.when) return a.when < b.when;
    if (!a.retried && a.rank != b.rank) return a.rank < b.rank;
    return a.id < b.id;
  }
};

// The place of a task of several keys among those that reserve (rule 7.7): that of its id, unless it was postponed by
// nothing, and stands behind what was ready then.
inline std::uint64_t place_in_line(const task& t) noexcept {
  return t.policy != policy::ordered && t.again && !t.retried ? t.rank : t.id;
}
struct by_place : in_task {
  static bool before(const task& a, const task& b) noexcept { return place_in_line(a) < place_in_line(b); }
};

// Leases that have a time: the first to expire first.
struct by_expiry {
  static heap_links& links(task& t) noexcept { return extra_of(t).lease; }
  static std::uint8_t& rank(task& t) noexcept { return extra_of(t).lease_rank; }
  static bool before(task& a, task& b) noexcept {
    return extra_of(a).expires != extra_of(b).expires ? extra_of(a).expires < extra_of(b).expires : a.id < b.id;
  }
};

template <class Order>
class task_heap {
 public:
  [[nodiscard]] bool empty() const noexcept { return root_ == nullptr; }
  [[nodiscard]] task* first() const noexcept { return root_; }

  void insert(task& t) noexcept {
    links(t) = {nullptr, nullptr, nullptr};
    Order::rank(t) = 1;
    set_root(merged(root_, &t));
  }

  void remove(task& t) noexcept {
    task* const rest = merged(links(t).left, links(t).right);
    task* const parent = links(t).parent;
    if (parent == nullptr) {
      set_root(rest);
      return;
    }
    (links(*parent).left == &t ? links(*parent).left : links(*parent).right) = rest;
    if (rest != nullptr) links(*rest).parent = parent;
    repair(parent);
  }

  // Takes all of `other`.
  void merge(task_heap& other) noexcept { set_root(merged(root_, std::exchange(other.root_, nullptr))); }

 private:
  static std::uint8_t rank(task* t) noexcept { return t != nullptr ? Order::rank(*t) : std::uint8_t{0}; }
  static heap_links& links(task& t) noexcept { return Order::links(t); }

  void set_root(task* t) noexcept {
    root_ = t;
    if (t != nullptr) links(*t).parent = nullptr;
  }

  // The right spines are at most log2(n) long: down along them, then up again to set ranks.
  static task* merged(task* a, task* b) noexcept {
    if (a == nullptr) return b;
    if (b == nullptr) return a;
    if (Order::before(*b, *a)) std::swap(a, b);
    task* const top = a;
    task* lowest = a;
    while (true) {
      task* const right = links(*lowest).right;
      if (right == nullptr) {
        links(*lowest).right = b;
        links(*b).parent = lowest;
        break;
      }
      if (Order::before(*b, *right)) {
        links(*lowest).right = b;
        links(*b).parent = lowest;
        lowest = b;
        b = right;
      } else {
        lowest = right;
      }
    }
    links(*top).parent = nullptr;
    for (task* t = lowest; t != nullptr; t = links(*t).parent) order_children(*t);
    return top;
  }

  // Puts the shallower child to the right; true when the rank of `t` changed.
  static bool order_children(task& t) noexcept {
    if (rank(links(t).left) < rank(links(t).right)) std::swap(links(t).left, links(t).right);
    const auto depth = static_cast<std::uint8_t>(rank(links(t).right) + 1);
    return std::exchange(Order::rank(t), depth) != depth;
  }

  static void repair(task* t) noexcept {
    while (t != nullptr && order_children(*t)) t = links(*t).parent;
  }

  task* root_ = nullptr;
};

}  // namespace turnkey::inline v1::detail
