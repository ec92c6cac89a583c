#include <turnkey/detail/id_index.hpp>

#include "support/tasks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>

namespace {

using support::ids;
using support::tasks;
using turnkey::detail::id_index;
using turnkey::detail::task;

bool anyone(const task&) { return true; }

void put(id_index& index, task& t) {
  index.reserve();
  index.insert(t);
}

}  // namespace

TEST_CASE("1 id_index: an id is a rising serial number and, in its lowest bits, the shard's") {
  tasks t(3);
  id_index index(5, 4, 1);
  for (auto& each : t) put(index, *each);
  CHECK(t[0]->id == (1 << 4 | 5));
  CHECK(t[1]->id == (2 << 4 | 5));
  CHECK(t[2]->id == (3 << 4 | 5));
}

TEST_CASE("1 id_index: a task is found by its id until it is erased, and ids are never given twice") {
  tasks t(2);
  id_index index(0, 4, 1);
  CHECK(index.find(16) == nullptr);
  put(index, *t[0]);
  const std::uint64_t id = t[0]->id;
  CHECK(index.find(id) == t[0].get());
  CHECK(index.find(id + 1) == nullptr);
  index.erase(*t[0]);
  CHECK(index.find(id) == nullptr);
  put(index, *t[1]);
  CHECK(t[1]->id > id);
  CHECK(index.find(id) == nullptr);
  index.erase(*t[1]);
}

TEST_CASE("1 id_index: an old id that shares its place with a living task finds nothing") {
  tasks t(2);
  id_index index(0, 0, 1);
  put(index, *t[0]);
  for (std::uint64_t i = 0; i != 64; ++i) {
    put(index, *t[1]);
    const std::uint64_t id = t[1]->id;
    CHECK(index.find(id) == t[1].get());
    CHECK(index.find(id - 16) != t[1].get());
    index.erase(*t[1]);
  }
  CHECK(index.find(t[0]->id) == t[0].get());
}

TEST_CASE("1 id_index: random coming and leaving, where some stay for long, loses and mistakes nobody") {
  std::mt19937 random(3);
  tasks t(300);
  id_index index(2, 4, 1);
  std::map<std::uint64_t, task*> in;
  std::uint64_t last = 0;
  for (int step = 0; step != 20'000; ++step) {
    task* const one = t[random() % (step % 1000 < 500 ? 300 : 20)].get();
    if (in.erase(one->id) != 0) {
      index.erase(*one);
    } else {
      put(index, *one);
      REQUIRE(one->id > last);
      last = one->id;
      in[one->id] = one;
    }
    const std::uint64_t asked = 16 * (random() % (last / 16 + 2)) + 2;
    const auto at = in.find(asked);
    REQUIRE(index.find(asked) == (at != in.end() ? at->second : nullptr));
    REQUIRE(index.oldest(anyone) == (in.empty() ? nullptr : in.begin()->second));
  }
  std::size_t seen = 0;
  index.for_each([&](task& each) { seen += in.count(each.id); });
  CHECK(seen == in.size());
}

TEST_CASE("9.1 id_index: the oldest is the smallest id that counts, also one that counts again") {
  tasks t(4);
  id_index index(0, 4, 1);
  for (auto& each : t) put(index, *each);
  CHECK(index.oldest(anyone) == t[0].get());
  const task* dead = t[0].get();
  const auto counts = [&](const task& each) { return &each != dead; };
  CHECK(index.oldest(counts) == t[1].get());
  dead = nullptr;
  index.back(*t[0]);
  CHECK(index.oldest(counts) == t[0].get());
  for (auto& each : t) index.erase(*each);
  CHECK(index.oldest(anyone) == nullptr);
}

TEST_CASE("1 id_index: it begins where it is told, also close to the largest serial numbers") {
  tasks t(100);
  constexpr std::uint64_t first = (std::uint64_t{1} << 60) - 50;
  id_index index(15, 4, first);
  for (std::size_t i = 0; i != 40; ++i) put(index, *t[i]);
  for (std::size_t i = 0; i != 40; ++i) {
    CHECK(t[i]->id == ((first + i) << 4 | 15));
    CHECK(index.find(t[i]->id) == t[i].get());
  }
}
