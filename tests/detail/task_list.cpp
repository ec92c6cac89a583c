#include <turnkey/detail/task_list.hpp>

#include "support/tasks.hpp"

#include <doctest/doctest.h>

#include <vector>

namespace {

using support::ids;
using support::tasks;
using turnkey::detail::task_list;
using list = task_list<&turnkey::detail::task::peers>;

std::vector<std::uint64_t> forward(const list& l) {
  std::vector<std::uint64_t> all;
  for (const auto* t = l.first(); t != nullptr; t = list::after(*t)) all.push_back(t->id);
  return all;
}
std::vector<std::uint64_t> backward(const list& l) {
  std::vector<std::uint64_t> all;
  for (const auto* t = l.last(); t != nullptr; t = list::before(*t)) all.push_back(t->id);
  return all;
}

}  // namespace

TEST_CASE("2.10 task_list: an empty one has no ends") {
  list l;
  CHECK(l.empty());
  CHECK(l.first() == nullptr);
  CHECK(l.last() == nullptr);
}

TEST_CASE("2.10 task_list: push_back keeps the order of arrival, read from both ends") {
  tasks t(3);
  list l;
  for (auto& each : t) l.push_back(*each);
  CHECK(forward(l) == ids{1, 2, 3});
  CHECK(backward(l) == ids{3, 2, 1});
}

TEST_CASE("5.2 task_list: insert_after puts a task back into the place of its id") {
  tasks t(4);
  list l;
  l.push_back(*t[1]);
  l.insert_after(nullptr, *t[0]);
  l.push_back(*t[3]);
  l.insert_after(t[1].get(), *t[2]);
  CHECK(forward(l) == ids{1, 2, 3, 4});
  CHECK(backward(l) == ids{4, 3, 2, 1});
}

TEST_CASE("6.5 task_list: a task leaves from either end or from between, and may come again") {
  for (const std::size_t leaver : {0U, 1U, 2U}) {
    tasks t(3);
    list l;
    for (auto& each : t) l.push_back(*each);
    l.remove(*t[leaver]);
    ids rest{1, 2, 3};
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(leaver));
    CHECK(forward(l) == rest);
    CHECK(backward(l) == ids(rest.rbegin(), rest.rend()));
    l.push_back(*t[leaver]);
    CHECK(l.last() == t[leaver].get());
    for (auto& each : t) l.remove(*each);
    CHECK(l.empty());
  }
}
