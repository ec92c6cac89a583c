// Gives the tasks of a shard their serial numbers, and finds a task by its number. A number is a place in a ring,
// taken in turn; a place whose task is still there is passed over, so two tasks never share one. No hashing, one store
// to enter and one to leave. Not thread-safe: a shard's lock guards it.
#pragma once

#include <turnkey/detail/task.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

namespace turnkey::inline v1::detail {

class id_index {
 public:
  // Ids are a serial number and, in the lowest bits, the shard's number.
  id_index(std::uint32_t shard, std::uint32_t shard_bits, std::uint64_t first_serial) noexcept
      : next_(first_serial), oldest_(first_serial), shard_(shard), shard_bits_(shard_bits) {}

  // Makes room for one more, beside `promised` ones for which it was made before and that have not come yet.
  //   Throws   std::bad_alloc; nothing has changed then.
  //   Cost     O(1) amortised: it doubles when at least half of the places are taken and the next one is.
  void reserve(std::uint64_t promised = 0) {
    const std::uint64_t taken = size_ + promised;
    if (taken >= capacity_ || (ring_[next_ & (capacity_ - 1)] != nullptr && taken * 2 >= capacity_)) grow();
  }

  // Gives `t` the next id.
  //   Needs    reserve() came before.
  void insert(task& t) noexcept {
    TURNKEY_ASSERT(size_ < capacity_, "reserve() came before");
    while (ring_[next_ & (capacity_ - 1)] != nullptr) ++next_;
    TURNKEY_ASSERT(next_ < ~std::uint64_t{0} >> shard_bits_, "serial numbers do not come to their end");
    ring_[next_ & (capacity_ - 1)] = &t;
    t.id = next_ << shard_bits_ | shard_;
    ++next_;
    ++size_;
  }

  // The next serial number, unless its place is taken; and no later one is smaller than `serial`.
  [[nodiscard]] std::uint64_t next() const noexcept { return next_; }
  void rise_to(std::uint64_t serial) noexcept {
    if (next_ < serial) next_ = serial;
  }

  // The task with this id of this shard; null when there is none any more.
  [[nodiscard]] task* find(std::uint64_t id) const noexcept {
    if (capacity_ == 0) return nullptr;
    task* const t = ring_[place_of(id)];
    return t != nullptr && t->id == id ? t : nullptr;
  }

  // An empty index gives its memory back, unless room was promised.
  void erase(const task& t, bool keeps_room = false) noexcept {
    ring_[place_of(t.id)] = nullptr;
    if (--size_ == 0 && capacity_ > max_spare && !keeps_room) {
      ring_.reset();
      capacity_ = 0;
    }
  }

  // An id that no task gets: behind all that were given, before all that will be.
  [[nodiscard]] std::uint64_t skip() noexcept { return next_++ << shard_bits_ | shard_; }

  // Calls `visit` with every task, in no order; it may erase the task. Cost: the capacity, at most four times the most
  // that were there.
  template <class Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < capacity_; ++i)
      if (ring_[i] != nullptr) visit(*ring_[i]);
  }

  // The task with the smallest id for which `which` says yes; null when there is none.
  //   Cost     O(1) amortised over the ids that were given since it was asked last, at most the capacity.
  template <class Which>
  [[nodiscard]] task* oldest(Which which) noexcept {
    if (next_ - oldest_ > capacity_) {  // places come round: look at each once
      task* found = nullptr;
      for_each([&](task& t) {
        if (which(t) && (found == nullptr || t.id < found->id)) found = &t;
      });
      oldest_ = found != nullptr ? found->id >> shard_bits_ : next_;
      return found;
    }
    for (; oldest_ != next_; ++oldest_)
      if (task* const t = find(oldest_ << shard_bits_ | shard_); t != nullptr && which(*t)) return t;
    return nullptr;
  }

  // A task counts again that oldest() has passed.
  void back(const task& t) noexcept {
    if (t.id >> shard_bits_ < oldest_) oldest_ = t.id >> shard_bits_;
  }

 private:
  static constexpr std::size_t max_spare = 1024;  // places that an empty index keeps

  [[nodiscard]] std::size_t place_of(std::uint64_t id) const noexcept {
    return static_cast<std::size_t>(id >> shard_bits_) & (capacity_ - 1);
  }

  // Places that differ in a small ring differ in a larger one: nothing collides.
  void grow() {
    const std::size_t capacity = capacity_ != 0 ? capacity_ * 2 : 16;
    auto ring = std::make_unique<task*[]>(capacity);
    for (std::size_t i = 0; i != capacity_; ++i)
      if (task* const t = ring_[i]) ring[static_cast<std::size_t>(t->id >> shard_bits_) & (capacity - 1)] = t;
    ring_ = std::move(ring);
    capacity_ = capacity;
  }

  std::unique_ptr<task*[]> ring_;
  std::size_t capacity_ = 0;  // 0 or a power of two
  std::size_t size_ = 0;
  std::uint64_t next_;
  std::uint64_t oldest_;  // no task before it was asked for
  std::uint32_t shard_;
  std::uint32_t shard_bits_;
};

}  // namespace turnkey::inline v1::detail
