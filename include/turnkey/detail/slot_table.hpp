// From a key's hash to its slot: one flat array of hash and pointer, linear probing, deletion by moving back (Knuth,
// volume 3, 6.4, algorithm R). The hash is kept, so growing and erasing never call the user's. Not thread-safe: a
// shard's lock guards it.
#pragma once

#include <turnkey/detail/key_slot.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace turnkey::inline v1::detail {

// Spreads a user's hash over all 64 bits: std::hash<int> is the identity. The finaliser of SplitMix64 (Steele, Lea,
// Flood 2014).
constexpr std::uint64_t mixed(std::uint64_t x) noexcept {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

class slot_table {
 public:
  // The slot with this hash for which `same` says yes; null when there is none.
  //   Throws   what `same` throws.
  template <class Same>
  [[nodiscard]] key_slot* find(std::uint64_t hash, Same same) const {
    if (size_ == 0) return nullptr;
    for (std::size_t i = home(hash); entries_[i].slot != nullptr; i = next(i))
      if (entries_[i].hash == hash && same(*entries_[i].slot)) return entries_[i].slot;
    return nullptr;
  }

  // Makes room for one more.
  //   Throws   std::bad_alloc; nothing has changed then.
  //   Cost     O(1) amortised; doubling moves every entry, 16 bytes each.
  void reserve() {
    if ((size_ + 1) * 4 > capacity_ * 3) grow();
  }

  //   Needs    reserve() came before; the slot's key is not in the table.
  void insert(key_slot& slot) noexcept {
    std::size_t i = home(slot.hash());
    while (entries_[i].slot != nullptr) i = next(i);
    entries_[i] = {slot.hash(), &slot};
    ++size_;
  }

  void erase(const key_slot& slot) noexcept {
    std::size_t gap = home(slot.hash());
    while (entries_[gap].slot != &slot) gap = next(gap);
    for (std::size_t i = next(gap); entries_[i].slot != nullptr; i = next(i)) {
      // An entry may move into the gap unless its home lies behind the gap, seen from where it stands.
      if (((i - home(entries_[i].hash)) & mask()) < ((i - gap) & mask())) continue;
      entries_[gap] = entries_[i];
      gap = i;
    }
    entries_[gap] = {};
    if (--size_ == 0 && capacity_ > max_spare) {
      entries_.reset();
      capacity_ = 0;
    }
  }

  [[nodiscard]] std::size_t size() const noexcept { return size_; }

  // Calls `visit` with every slot, in no order; it may erase that slot, and may see one twice. From the back: what an
  // erasure moves, it moves forward, to places that have been seen or to the one that is looked at again.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = capacity_; i-- > 0;) {
      for (const key_slot* seen = nullptr; capacity_ != 0 && entries_[i].slot != seen;) {
        key_slot& slot = *entries_[i].slot;
        seen = &slot;
        visit(slot);
        if (capacity_ == 0) return;
        if (entries_[i].slot == nullptr) break;
      }
    }
  }

 private:
  static constexpr std::size_t max_spare = 1024;  // entries that an empty table keeps

  struct entry {
    std::uint64_t hash = 0;
    key_slot* slot = nullptr;
  };

  // The lowest bits choose the shard; the table takes the ones above.
  [[nodiscard]] std::size_t home(std::uint64_t hash) const noexcept {
    return static_cast<std::size_t>(hash >> 16) & mask();
  }
  [[nodiscard]] std::size_t mask() const noexcept { return capacity_ - 1; }
  [[nodiscard]] std::size_t next(std::size_t i) const noexcept { return (i + 1) & mask(); }

  void grow() {
    slot_table larger;
    larger.capacity_ = capacity_ != 0 ? capacity_ * 2 : 16;
    larger.entries_ = std::make_unique<entry[]>(larger.capacity_);
    for_each([&larger](key_slot& slot) { larger.insert(slot); });
    *this = std::move(larger);
  }

  std::unique_ptr<entry[]> entries_;
  std::size_t capacity_ = 0;  // 0 or a power of two
  std::size_t size_ = 0;
};

}  // namespace turnkey::inline v1::detail
