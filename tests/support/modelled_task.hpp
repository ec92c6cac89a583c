// A task as the reference model sees it.
#pragma once

#include <turnkey/event.hpp>
#include <turnkey/inspect.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>
#include <turnkey/retry_policy.hpp>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

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
  std::vector<int> more_keys{};  // 7.7
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
  std::set<int> holds{};  // 5.3: of its keys, those that it holds
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

  // 7.4: a coroutine waits for it, or did so once. Then nobody goes on when it starts again, and it has succeeded.
  enum class guest : std::uint8_t { none, waits, left };
  guest coroutine = guest::none;

  // 7.7
  [[nodiscard]] bool several() const { return !more_keys.empty(); }
  [[nodiscard]] bool names(const support::key& k) const {
    return key == k || (k && std::count(more_keys.begin(), more_keys.end(), *k) != 0);
  }
  [[nodiscard]] std::vector<support::key> keys() const {
    std::vector<support::key> all{key};
    all.insert(all.end(), more_keys.begin(), more_keys.end());
    return all;
  }
  [[nodiscard]] bool shares_a_key_with(const modelled_task& other) const {
    return other.names(key) ||
           std::any_of(more_keys.begin(), more_keys.end(), [&other](int k) { return other.names(k); });
  }
  // Where one of several keys stands among those that reserve.
  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> place_to_reserve() const {
    if (policy == turnkey::policy::ordered || came_back) return {static_cast<std::uint64_t>(id), 0};
    return {place, postponement};
  }
};

// The keys of a list, where one that stands twice counts once, as a task has them.
inline void set_keys(modelled_task& t, const std::vector<int>& list) {
  for (const int k : list) {
    if (!t.key) t.key = k;
    if (!t.names(k)) t.more_keys.push_back(k);
  }
}

}  // namespace support
