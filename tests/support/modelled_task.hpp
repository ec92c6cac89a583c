// A task as the reference model sees it.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/retry_policy.hpp>

#include <cstdint>
#include <memory>
#include <optional>

namespace support {

using turnkey::event_kind;
using turnkey::failure_reason;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::task_state;

using key = std::optional<int>;  // none: the task has no key
class world;

struct modelled_task {
  turnkey::task_id id{};
  support::key key{};
  turnkey::policy policy{};
  std::optional<turnkey::retry_policy> own_retry{};
  std::shared_ptr<world*> home{};  // which world its callback is in; shared with the callback

  // `waiting` stands for ready too; `delayed` is in line once it is due. A dead one outside the store stays `dead`.
  task_state state = task_state::waiting;
  turnkey::time_point submitted{};
  turnkey::time_point due{};
  bool came_back = false;          // 2.9: a due retry, or postponed until a time
  std::uint64_t place = 0;         // 2.9: its id; or the largest id when it was postponed by nothing,
  std::uint64_t postponement = 0;  //      and which postponement that was: behind what is ready
  turnkey::time_point started{};   // of the attempt that runs
  std::uint64_t fence = 0;         // of that too
  std::uint32_t failed = 0;
  std::uint32_t postponed = 0;
  bool cancelled = false;
  bool holds = false;     // 5.3
  bool in_store = false;  // 5.1
  std::uint64_t death = 0;

  // Of the attempt that runs: chapter 7.
  std::uint64_t starts = 0;                                    // which of its attempts that is, over all lives
  bool deferred = false;                                       // a completion is out
  bool returned = false;                                       // its callback has
  bool overdue = false;                                        // its time ran out, and was not extended since
  bool told_to_stop = false;                                   // it ran out once
  turnkey::time_point expires = (turnkey::time_point::max)();  // when it will
  std::optional<turnkey::outcome> said{};                      // what it ends with, a throw is outcome::retry();
  failure_reason reason{};                                     // who said so
};

}  // namespace support
