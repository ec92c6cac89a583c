#include <turnkey/task_record.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

using turnkey::policy;
using turnkey::task_record;
using turnkey::task_records;

using record = task_record<std::string>;
using records = task_records<std::string>;

namespace {

// `count` records whose callbacks share a witness.
records some(std::size_t count, const std::shared_ptr<int>& witness) {
  stage on;
  for (std::size_t i = 0; i != count; ++i) on.tasks.submit(std::to_string(i), [witness] { ++*witness; });
  return on.tasks.stop();
}

}  // namespace

TEST_CASE("10.3 task_record: it can only be moved, without exceptions") {
  static_assert(!std::is_copy_constructible_v<record> && std::is_nothrow_move_constructible_v<record>);
  static_assert(!std::is_copy_assignable_v<record> && std::is_nothrow_move_assignable_v<record>);
  static_assert(!std::is_copy_constructible_v<records> && std::is_nothrow_move_constructible_v<records>);
  static_assert(std::forward_iterator<records::iterator>);
}

TEST_CASE("10.3 task_record: moved out of the list it is whole, and the list goes on without it") {
  auto witness = std::make_shared<int>();
  std::vector<record> kept;
  {
    records list = some(3, witness);
    kept.push_back(std::move(*list.begin()));
    CHECK(!*list.begin());
    CHECK(list.size() == 3);
  }
  CHECK(witness.use_count() == 2);
  REQUIRE(kept[0]);
  stage on;
  on.tasks.submit(std::move(kept[0]));
  on.run();
  CHECK(*witness == 1);
  CHECK(witness.use_count() == 1);
}

// The list owns its tasks beside the records in it: the callback lived on until the list died.
TEST_CASE("10.3 task_record: what is moved out of the list and dropped is destroyed at once") {
  auto witness = std::make_shared<int>();
  records list = some(1, witness);
  { const record dropped = std::move(*list.begin()); }
  CHECK(witness.use_count() == 1);
}

TEST_CASE("10.3 task_record: assigned to, it has the other's task") {
  auto first = std::make_shared<int>();
  auto second = std::make_shared<int>();
  {
    records a = some(1, first);
    records b = some(1, second);
    *a.begin() = std::move(*b.begin());
    CHECK(*a.begin());
    CHECK(!*b.begin());
    stage on;
    on.tasks.submit(std::move(*a.begin()));
    on.run();
  }
  CHECK(*first == 0);
  CHECK(*second == 1);
  CHECK(first.use_count() == 1);
  CHECK(second.use_count() == 1);
}

TEST_CASE("10.3 task_record: assigned to, it belongs to the other's scheduler") {
  struct counting {  // an executor that its scheduler owns
    std::shared_ptr<int> alive;
    void operator()(const turnkey::work&) const {}
  };
  const auto one = std::make_shared<int>();
  const auto other = std::make_shared<int>();
  const auto record_of = [](const std::shared_ptr<int>& witness) {
    turnkey::scheduler<std::string> s(counting{witness});
    s.submit("a", [witness] {});
    return std::move(*s.stop().begin());
  };
  record kept = record_of(one);
  {
    record second = record_of(other);
    kept = std::move(second);
    CHECK(one.use_count() == 1);
  }
  stage on;
  on.tasks.submit(std::move(kept));
  on.run();
  CHECK(other.use_count() == 1);
}

TEST_CASE("10.3 task_records: an empty one, a moved one and an assigned one") {
  auto witness = std::make_shared<int>();
  records none;
  CHECK(none.empty());
  CHECK(none.begin() == none.end());
  records list = some(4, witness);
  records moved = std::move(list);
  CHECK(list.empty());  // NOLINT(bugprone-use-after-move): that is the question
  CHECK(std::distance(moved.begin(), moved.end()) == 4);
  moved = records();
  none = std::move(moved);
  CHECK(witness.use_count() == 1);
}

TEST_CASE("10.3 task_record: a record without a key has none") {
  stage on;
  on.tasks.submit([] {});
  const auto list = on.tasks.stop();
  REQUIRE(list.size() == 1);
  CHECK(list.begin()->key() == nullptr);
  CHECK(list.begin()->policy() == policy::parallel);
}
