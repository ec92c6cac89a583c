// What a trace asks of the heap: all at the start.
#include <turnkey/trace.hpp>

#include "support/heap.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>

namespace heap = support::heap;

TEST_CASE("9.4 trace: an event allocates nothing, whatever keys come and go") {
  turnkey::trace<std::string> strings({.max_events = 64, .max_keys = 8});
  turnkey::trace<std::uint64_t> numbers({.max_events = 64, .max_keys = 8});
  const auto hear_string = strings.observer();
  const auto hear_number = numbers.observer();
  std::string key(200, 'k');
  const std::uint64_t before = heap::allocations();
  for (std::uint64_t n = 0; n != 10'000; ++n) {
    key[n % key.size()] = static_cast<char>('a' + n % 26);
    hear_string({.number = n, .id = turnkey::task_id{n}, .key = &key});
    const std::uint64_t number = ~n;
    hear_number({.number = n, .id = turnkey::task_id{n}, .key = n % 3 == 0 ? nullptr : &number});
  }
  CHECK(heap::allocations() == before);
}

TEST_CASE("9.4 trace: what it holds is said by its options, not by how much happened") {
  const heap::usage at_first = heap::alive();
  {
    turnkey::trace<std::uint64_t> trace;
    const std::int64_t taken = heap::alive().bytes - at_first.bytes;
    CHECK(taken < 65536 * 56 + (256 + 64) * 88 + 16384);
    const auto hear = trace.observer();
    for (std::uint64_t n = 0; n != 100'000; ++n) hear({.number = n, .key = &n});
    CHECK(heap::alive().bytes - at_first.bytes == taken);
  }
  CHECK(heap::alive() == at_first);
}
