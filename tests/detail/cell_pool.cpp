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
