// Bare tasks for the tests of the small parts: no callable, no scheduler; ids from 1.
#pragma once

#include <turnkey/detail/callable.hpp>
#include <turnkey/detail/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <vector>

namespace support {

using ids = std::vector<std::uint64_t>;

struct task_eraser {
  void operator()(turnkey::detail::task* t) const noexcept {
    t->~task();
    ::operator delete(t);
  }
};
using task_ptr = std::unique_ptr<turnkey::detail::task, task_eraser>;

// A task that holds no callable but has an extra, as one needs that may hold its key.
inline task_ptr make_task(std::uint64_t id, turnkey::policy how = turnkey::policy::exclusive) {
  using nothing = void (*)();
  using namespace turnkey::detail;
  const std::size_t extra = offset_of_extra(sizeof(nothing), alignof(nothing));
  void* const memory = ::operator new(extra + sizeof(task_extra));
  auto* const t = ::new (memory) task(ops_of<nothing>, how, 0);
  t->has_extra = true;
  ::new (static_cast<std::byte*>(memory) + extra) task_extra;
  t->id = id;
  return task_ptr(t);
}

class tasks {
 public:
  explicit tasks(std::size_t count, turnkey::policy how = turnkey::policy::exclusive) {
    for (std::size_t i = 0; i != count; ++i) all_.push_back(make_task(i + 1, how));
  }
  [[nodiscard]] task_ptr& operator[](std::size_t i) { return all_[i]; }
  [[nodiscard]] auto begin() { return all_.begin(); }
  [[nodiscard]] auto end() { return all_.end(); }

 private:
  std::vector<task_ptr> all_;
};

}  // namespace support
