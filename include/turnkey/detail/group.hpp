// A task of several keys (rule 7.7): the task itself stands in the line of its first key, and a part in each other one.
// A part has the task's id, policy and place, and nothing to run; what is told to users is told of the task.
//
// What the task is, and how it stands in its lines, changes only while the locks of all its keys' shards are held: so
// any one of these is enough to look. Parts live as long as their task.
#pragma once

#include <turnkey/detail/task.hpp>

#include <cstddef>
#include <cstdint>

namespace turnkey::inline v1::detail {

// What stands in the line of a key but the first: laid out as a task whose callable has no size.
struct part {
  explicit part(const task& home) noexcept;

  task in_line;
  task_extra extra;
};

inline constexpr callable_ops no_callable{nullptr, nullptr, nullptr, nullptr, 0, 1, true};
static_assert(sizeof(task) % alignof(task_extra) == 0);

inline part::part(const task& home) noexcept : in_line(no_callable, home.policy, 0) {
  in_line.has_extra = true;
  in_line.several = true;
  in_line.place = place::in_lines;
  extra.group = extra_of(home).group;
}

// Stands in a block with its parts behind it.
struct group {
  task* home;
  std::uint32_t others;    // parts
  std::uint16_t shards;    // of its keys: a bit for each
  bool reserving = false;  // in line, and only leases keep it
  bool granted = false;    // and nothing does: `ready`

  [[nodiscard]] task& other(std::size_t i) noexcept { return reinterpret_cast<part*>(this + 1)[i].in_line; }

  // Calls `f` with what stands in each line: the task, and its parts.
  template <class F>
  void each(F f) {
    f(*home);
    each_other(f);
  }
  template <class F>
  void each_other(F f) {
    for (std::uint32_t i = 0; i != others; ++i) f(other(i));
  }
  // Whether `f` says yes to all of them.
  template <class F>
  [[nodiscard]] bool all(F f) {
    bool yes = f(*home);
    for (std::uint32_t i = 0; yes && i != others; ++i) yes = f(other(i));
    return yes;
  }

  static constexpr std::size_t bytes(std::size_t others) noexcept { return sizeof(group) + others * sizeof(part); }
};
static_assert(sizeof(group) % alignof(part) == 0);

inline group& group_of(const task& t) noexcept { return *extra_of(t).group; }

// The task that `t` is a part of; itself, when it is no part.
inline const task& whole(const task& t) noexcept { return t.several ? *group_of(t).home : t; }
inline task& whole(task& t) noexcept { return t.several ? *group_of(t).home : t; }

// Calls `f` with what stands for `t` in each of its lines.
template <class F>
void each_part(task& t, F f) {
  if (t.several) {
    group_of(t).each(f);
  } else {
    f(t);
  }
}

}  // namespace turnkey::inline v1::detail
