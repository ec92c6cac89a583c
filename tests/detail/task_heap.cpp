#include <turnkey/detail/task_heap.hpp>

#include "support/tasks.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

namespace {

using namespace std::chrono_literals;
using support::ids;
using support::tasks;
using turnkey::time_point;
using turnkey::detail::by_due_time;
using turnkey::detail::by_turn;
using turnkey::detail::task_heap;

template <class Order>
ids emptied(task_heap<Order>& heap) {
  ids order;
  while (!heap.empty()) {
    order.push_back(heap.first()->id);
    heap.remove(*heap.first());
  }
  return order;
}

}  // namespace

TEST_CASE("3.3 task_heap: the earliest time is first, equal times by id, whatever the order of arrival") {
  tasks t(5);
  const std::vector<turnkey::duration> due{3s, 1s, 2s, 1s, 3s};
  std::vector<std::size_t> arrival{0, 1, 2, 3, 4};
  do {
    task_heap<by_due_time> heap;
    for (const std::size_t i : arrival) {
      t[i]->when = time_point{due[i]};
      heap.insert(*t[i]);
    }
    CHECK(emptied(heap) == ids{2, 4, 3, 1, 5});
  } while (std::next_permutation(arrival.begin(), arrival.end()));
}

TEST_CASE("2.9 task_heap: what has run before goes by due time, and before all others, which go by rank") {
  tasks t(6);
  for (const std::size_t i : {0U, 1U, 2U}) t[i]->retried = true;
  t[0]->when = time_point{2s};
  t[1]->when = time_point{1s};
  t[2]->when = time_point{2s};
  t[3]->rank = 9;
  t[4]->rank = 5;
  t[5]->rank = 9;
  task_heap<by_turn> heap;
  for (const std::size_t i : {5U, 4U, 3U, 2U, 1U, 0U}) heap.insert(*t[i]);
  CHECK(emptied(heap) == ids{2, 1, 3, 5, 4, 6});
}

TEST_CASE("6.5 task_heap: any task can leave, and the others keep their order") {
  for (std::size_t leaver = 0; leaver != 20; ++leaver) {
    tasks t(20);
    task_heap<by_due_time> heap;
    for (std::size_t i = 0; i != 20; ++i) {
      t[i]->when = time_point{std::chrono::seconds((i * 7) % 20)};
      heap.insert(*t[i]);
    }
    heap.remove(*t[leaver]);
    const ids order = emptied(heap);
    REQUIRE(order.size() == 19);
    CHECK(std::find(order.begin(), order.end(), leaver + 1) == order.end());
    CHECK(std::is_sorted(order.begin(), order.end(), [&](auto a, auto b) { return t[a - 1]->when < t[b - 1]->when; }));
  }
}

TEST_CASE("5.3 task_heap: two that are merged are one, and the other is empty") {
  tasks t(4);
  task_heap<by_turn> a;
  task_heap<by_turn> b;
  for (std::size_t i = 0; i != 4; ++i) {
    t[i]->rank = i;
    (i % 2 == 0 ? a : b).insert(*t[i]);
  }
  a.merge(b);
  CHECK(b.empty());
  a.remove(*t[1]);
  CHECK(emptied(a) == ids{1, 3, 4});
}

TEST_CASE("2.10, 3.3 task_heap: a random mix of coming and leaving is what sorting would give") {
  std::mt19937 random(7);
  tasks t(200);
  task_heap<by_due_time> heap;
  std::vector<turnkey::detail::task*> in;
  for (int step = 0; step != 5'000; ++step) {
    auto* const one = t[random() % 200].get();
    if (const auto at = std::find(in.begin(), in.end(), one); at != in.end()) {
      heap.remove(*one);
      in.erase(at);
    } else {
      one->when = time_point{std::chrono::seconds(random() % 50)};
      heap.insert(*one);
      in.push_back(one);
    }
    const auto first = std::min_element(
        in.begin(), in.end(), [](auto* a, auto* b) { return std::pair(a->when, a->id) < std::pair(b->when, b->id); });
    REQUIRE(heap.first() == (in.empty() ? nullptr : *first));
  }
}
