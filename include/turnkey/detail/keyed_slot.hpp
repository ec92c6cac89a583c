// A slot with its key.
#pragma once

#include <turnkey/detail/key_slot.hpp>

#include <cstdint>
#include <utility>

namespace turnkey::inline v1::detail {

template <class Key, class Hash, class KeyEqual>
class keyed_engine;

template <class Key>
struct keyed_slot : key_slot {
  template <class K>
  keyed_slot(std::uint64_t hash, K&& from) : key_slot(hash), key(std::forward<K>(from)) {
    has_key = true;
  }

  const Key key;
};

// The key of a slot; null for the slot of the tasks without a key.
template <class Key>
const Key* key_of(const key_slot& slot) noexcept {
  return slot.has_key ? &static_cast<const keyed_slot<Key>&>(slot).key : nullptr;
}

// The default comparison: ==, without the header that std::equal_to needs.
struct equal_keys {
  template <class Key>
  bool operator()(const Key& a, const Key& b) const noexcept(noexcept(a == b)) {
    return a == b;
  }
};

}  // namespace turnkey::inline v1::detail
