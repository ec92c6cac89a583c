#include <turnkey/detail/message_queue.hpp>

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <vector>

using turnkey::detail::message_queue;
using turnkey::detail::message_state;

namespace {

using queue = message_queue<int>;

void fill(queue& q, int messages) {
  for (int i = 0; i != messages; ++i) {
    q.reserve(1000);
    q.push(int{i});
  }
}
std::vector<int> taken(queue& q, std::size_t max) {
  const queue::range r = q.take(max);
  return {r.messages(), r.messages() + r.count};
}
// What came back, by its number.
queue::chunk& put_back(queue& q, std::uint32_t i) {
  queue::chunk& c = *q.first_chunk();
  q.put_back(c, i);
  return c;
}
void empty(queue& q) {
  q.for_each([](queue::chunk& c, std::uint32_t i) {
    if (c.note(i).state != message_state::done) c.note(i).state = message_state::dropped;
  });
  for (queue::range r = q.first_dropped(); r.count != 0;) {
    const queue::range next = q.next_dropped(r);
    for (std::uint32_t i = 0; i != r.count; ++i) q.done(*r.chunk, r.first + i);
    r = next;
  }
}

using numbers = std::vector<int>;

}  // namespace

TEST_CASE("7.6 message_queue: takes what waits side by side, at most so many") {
  queue q;
  fill(q, 8);
  CHECK(taken(q, 3) == numbers{0, 1, 2});
  CHECK(taken(q, 100) == numbers{3, 4, 5, 6, 7});
  CHECK(q.waiting() == 0);
  put_back(q, 1);
  put_back(q, 2);
  put_back(q, 4);  // beside what is out
  CHECK(q.waiting() == 3);
  CHECK(taken(q, 100) == numbers{1, 2});
  CHECK(taken(q, 100) == numbers{4});
  CHECK(q.waiting() == 0);
  empty(q);
  CHECK(q.alive() == 0);
}

TEST_CASE("7.6 message_queue: a chunk goes with the last of its messages, but the last chunk is used again") {
  queue q;
  fill(q, 8);
  queue::chunk* const small = q.first_chunk();
  fill(q, 3);
  CHECK(taken(q, 100).size() == 8);
  CHECK(taken(q, 100).size() == 3);
  for (std::uint32_t i = 0; i != 8; ++i) {
    CHECK(q.first_chunk() == small);
    q.done(*small, i);
  }
  queue::chunk* const large = q.first_chunk();
  CHECK(large != small);
  CHECK(large->previous == nullptr);
  for (std::uint32_t i = 0; i != 3; ++i) q.done(*large, i);
  CHECK(q.first_chunk() == large);
  CHECK(large->filled == 0);
  fill(q, 2);
  CHECK(taken(q, 100) == numbers{0, 1});
  empty(q);
}

TEST_CASE("7.6 message_queue: what has failed or is doomed comes alone, and nobody is taken along with it") {
  for (const bool failed : {false, true}) {
    queue q;
    fill(q, 5);
    CHECK(taken(q, 5).size() == 5);
    for (std::uint32_t i = 0; i != 5; ++i) put_back(q, i);
    auto& note = q.first_chunk()->note(2);
    note.failed = failed ? 1 : 0;
    note.doomed = !failed;
    CHECK(taken(q, 5) == numbers{0, 1});
    CHECK(taken(q, 5) == numbers{2});
    CHECK(taken(q, 5) == numbers{3, 4});
    empty(q);
  }
}
