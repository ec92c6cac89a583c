// What a watermark asks of the heap: its room when it is made, and nothing later.
#include <turnkey/watermark.hpp>

#include "support/heap.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <new>

namespace heap = support::heap;
using turnkey::watermark;

TEST_CASE("watermark: it takes 16 bytes for each of max_span when it is made, and nothing ever after") {
  constexpr std::uint64_t max_span = 1000;
  const heap::usage before = heap::alive();
  heap::usage made;
  heap::usage used;
  std::uint64_t asked = 0;
  std::uint64_t opened = 0;
  {
    watermark mark(0, max_span);
    made = heap::alive();
    asked = heap::allocations();
    for (; opened != 1'000 * max_span; ++opened) {
      if (mark.open(opened * 3)) continue;
      for (std::uint64_t n = opened; n-- != opened - max_span;) mark.finish(watermark::ticket{n});
      if (!mark.open(opened * 3)) break;
    }
    used = heap::alive();
    asked = heap::allocations() - asked;
  }
  const heap::usage after = heap::alive();
  CHECK(opened == 1'000 * max_span);
  CHECK(made.blocks - before.blocks == 1);
  CHECK(made.bytes - before.bytes >= static_cast<std::int64_t>(16 * max_span));
  CHECK(made.bytes - before.bytes < static_cast<std::int64_t>(16 * max_span + 64));  // and what malloc rounds up
  CHECK(asked == 0);
  CHECK(used == made);
  CHECK(after == before);
}

TEST_CASE("watermark: without memory there is none, and nothing is lost") {
  const heap::usage before = heap::alive();
  bool thrown = false;
  try {
    const heap::failing first(0);
    const watermark mark;
    static_cast<void>(mark.committed());  // or the compiler sees that nobody needs the memory
  } catch (const std::bad_alloc&) {
    thrown = true;
  }
  const heap::usage after = heap::alive();
  CHECK(thrown);
  CHECK(after == before);
}
