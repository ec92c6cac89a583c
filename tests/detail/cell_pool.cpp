#include <turnkey/detail/cell_pool.hpp>

#include <doctest/doctest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <set>
#include <utility>
#include <vector>

using turnkey::detail::cell_pool;

TEST_CASE("4.3 cell_pool: cells are aligned to 16 bytes, whole, and apart from each other") {
  for (const std::size_t size : {16U, 24U, 200U, 1000U, 3000U}) {
    cell_pool pool(size);
    std::vector<unsigned char*> cells;
    for (int i = 0; i != 100; ++i) {
      auto* const cell = static_cast<unsigned char*>(pool.take());
      CHECK(reinterpret_cast<std::uintptr_t>(cell) % 16 == 0);
      std::memset(cell, i, size);
      cells.push_back(cell);
    }
    for (int i = 0; i != 100; ++i) {
      CHECK(cells[static_cast<std::size_t>(i)][0] == i);
      CHECK(cells[static_cast<std::size_t>(i)][size - 1] == i);
    }
    for (auto* cell : cells) pool.give(cell);
  }
}

TEST_CASE("10.5 cell_pool: a cell that came back is handed out again") {
  cell_pool pool(64);
  void* const cell = pool.take();
  pool.give(cell);
  CHECK(pool.take() == cell);
  pool.give(cell);
}

TEST_CASE("10.5 cell_pool: random taking and giving never hands out a cell twice") {
  std::mt19937 random(1);
  cell_pool pool(240);
  std::vector<std::pair<std::uint64_t*, std::uint64_t>> out;
  for (std::uint64_t step = 0; step != 50'000; ++step) {
    const bool grows = step / 5'000 % 2 == 0;
    if (out.empty() || random() % 8 < (grows ? 5U : 3U)) {
      auto* const cell = static_cast<std::uint64_t*>(pool.take());
      *cell = step;
      cell[29] = step;
      out.emplace_back(cell, step);
    } else {
      std::swap(out[random() % out.size()], out.back());
      const auto [cell, value] = out.back();
      REQUIRE(cell[0] == value);
      REQUIRE(cell[29] == value);
      pool.give(cell);
      out.pop_back();
    }
  }
  for (const auto& each : out) pool.give(each.first);
}

TEST_CASE("10.5 cell_pool: of a large pool the pages lie side by side, so the heap's gaps between chunks are few") {
  // Each page was a chunk of its own, asked for 16 bytes short so that malloc would put them side by side. The library
  // rounds the size of an aligned block up: they stood 16 KB apart, and waiting tasks took twice their memory. The
  // tests that count bytes did not see the gaps.
  constexpr std::uintptr_t page = 8192;
  cell_pool pool(128);
  std::vector<void*> cells;
  std::set<std::uintptr_t> pages;
  for (int i = 0; i != 100'000; ++i) {
    cells.push_back(pool.take());
    pages.insert(reinterpret_cast<std::uintptr_t>(cells.back()) / page);
  }
  std::size_t followed = 0;
  for (const std::uintptr_t each : pages) followed += pages.count(each + 1);
  CHECK(followed * 10 > pages.size() * 8);
  for (void* const cell : cells) pool.give(cell);
}

TEST_CASE("10.5 cell_pool: however many pages a chunk has, all its cells can be used, and no cell overlaps another") {
  for (const std::size_t size : {16U, 112U, 500U, 2500U, 4000U}) {
    cell_pool pool(size);
    std::set<std::uintptr_t> at;
    for (std::size_t i = 0; i != 2'000'000 / size; ++i) at.insert(reinterpret_cast<std::uintptr_t>(pool.take()));
    std::uintptr_t before = 0;
    bool apart = true;
    for (const std::uintptr_t cell : at) {
      apart = apart && cell >= before + size;
      before = cell;
    }
    CHECK(apart);
    CHECK(at.size() == 2'000'000 / size);
    for (const std::uintptr_t cell : at) pool.give(reinterpret_cast<void*>(cell));
  }
}
