#include <turnkey/detail/slot_table.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <set>

namespace {

using turnkey::detail::key_slot;
using turnkey::detail::mixed;
using turnkey::detail::slot_table;

key_slot* find(const slot_table& table, const key_slot& slot) {
  return table.find(slot.hash(), [&](const key_slot& each) { return &each == &slot; });
}
void put(slot_table& table, key_slot& slot) {
  table.reserve();
  table.insert(slot);
}

}  // namespace

TEST_CASE("2.6 slot_table: keys with one hash are told apart by the comparison, and each leaves alone") {
  std::deque<key_slot> slots;
  slot_table table;
  for (int i = 0; i != 40; ++i) put(table, slots.emplace_back(std::uint64_t{42}));
  for (auto& slot : slots) CHECK(find(table, slot) == &slot);
  for (std::size_t i = 0; i != 40; i += 2) table.erase(slots[i]);
  CHECK(table.size() == 20);
  for (std::size_t i = 0; i != 40; ++i) CHECK(find(table, slots[i]) == (i % 2 == 0 ? nullptr : &slots[i]));
}

TEST_CASE("2.6 slot_table: the comparison is asked only about keys with that very hash") {
  key_slot near(std::uint64_t{1} << 40);
  key_slot far((std::uint64_t{1} << 40) + 1);
  slot_table table;
  put(table, near);
  CHECK(table.find(far.hash(), [](const key_slot&) -> bool { throw 1; }) == nullptr);
}

TEST_CASE("10.5 slot_table: random coming and leaving with colliding hashes loses nobody") {
  for (const std::uint64_t hashes : {4U, 64U, 100'000U}) {
    std::mt19937 random(11);
    std::deque<key_slot> slots;
    for (int i = 0; i != 500; ++i) slots.emplace_back((random() % hashes) << 16);
    std::set<key_slot*> in;
    slot_table table;
    for (int step = 0; step != 20'000; ++step) {
      key_slot& one = slots[random() % slots.size()];
      if (in.erase(&one) != 0) {
        table.erase(one);
      } else {
        put(table, one);
        in.insert(&one);
      }
      key_slot& asked = slots[random() % slots.size()];
      REQUIRE(find(table, asked) == (in.count(&asked) != 0 ? &asked : nullptr));
      REQUIRE(table.size() == in.size());
    }
  }
}

TEST_CASE("10.4 slot_table: for_each sees every slot, also while it erases what it sees") {
  for (const std::uint64_t hashes : {3U, 40U, 1'000'000U}) {
    std::mt19937 random(5);
    std::deque<key_slot> slots;
    slot_table table;
    for (int i = 0; i != 1000; ++i) put(table, slots.emplace_back((random() % hashes) << 16));
    std::set<key_slot*> seen;
    table.for_each([&](key_slot& slot) {
      if (!seen.insert(&slot).second || slot.hash() >> 16 & 1) return;
      if (slot.references++ % 2 == 0) table.erase(slot);
    });
    CHECK(seen.size() == 1000);
    table.for_each([&](key_slot& slot) { table.erase(slot); });
    CHECK(table.size() == 0);
  }
}

TEST_CASE("2.6 mixed: neighbours differ in the bits that choose the shard and the place") {
  std::set<std::uint64_t> places;
  for (std::uint64_t i = 0; i != 256; ++i) places.insert(mixed(i + 0x9e3779b97f4a7c15U) >> 16 & 0xfff);
  CHECK(places.size() > 200);
}
