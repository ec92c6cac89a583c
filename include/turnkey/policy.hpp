// The three policies, and the number that names a task. Only words; the rules they stand for are in
// detail/key_slot.hpp.
#pragma once

#include <cstdint>

namespace turnkey::inline v1 {

// When a task may start, seen from its key.
//   From     the message-key policies of SQLStreams; the ordering keys of Google Pub/Sub.
enum class policy : std::uint8_t {
  parallel,   // at any time: it takes no lease and respects none
  exclusive,  // when the lease of its key is free
  ordered,    // when the lease is free and every task of its key with a smaller id is finished
};

// Names one accepted task. Ids rise among the tasks of one key and are never used twice; at ten million tasks a second
// they last for 3,600 years.
enum class task_id : std::uint64_t {};

constexpr const char* to_string(policy p) noexcept {
  switch (p) {
    case policy::parallel: return "parallel";
    case policy::exclusive: return "exclusive";
    case policy::ordered: return "ordered";
  }
  return "?";
}

}  // namespace turnkey::inline v1
