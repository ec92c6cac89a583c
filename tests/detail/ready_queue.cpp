#include <turnkey/detail/ready_queue.hpp>

#include <doctest/doctest.h>

#include <deque>

using turnkey::detail::key_slot;
using turnkey::detail::ready_queue;

TEST_CASE("2.8 ready_queue: who comes first is taken first, and whoever comes back is last") {
  std::deque<key_slot> lines;
  for (std::uint64_t i = 0; i != 3; ++i) lines.emplace_back(i);
  ready_queue queue;
  for (auto& line : lines) queue.push(line);
  CHECK(&queue.take() == &lines[0]);
  queue.push(lines[0]);
  CHECK(&queue.take() == &lines[1]);
  CHECK(&queue.take() == &lines[2]);
  CHECK(&queue.take() == &lines[0]);
  CHECK(queue.empty());
}

TEST_CASE("10.5 ready_queue: a line can leave from any place") {
  for (const std::size_t leaver : {0U, 1U, 2U}) {
    std::deque<key_slot> lines;
    for (std::uint64_t i = 0; i != 3; ++i) lines.emplace_back(i);
    ready_queue queue;
    for (auto& line : lines) queue.push(line);
    queue.remove(lines[leaver]);
    CHECK(!lines[leaver].in_ready_queue);
    CHECK(queue.size() == 2);
    for (std::size_t i = 0; i != 3; ++i)
      if (i != leaver) CHECK(&queue.take() == &lines[i]);
    CHECK(queue.empty());
  }
}
