#include <turnkey/executor.hpp>

#include <doctest/doctest.h>

#include <functional>
#include <type_traits>
#include <utility>

using turnkey::work;
using turnkey::detail::permit;

namespace {

// A permit that counts its beginnings and its end.
struct counted_permit : permit {
  counted_permit() {
    references = 1;
    begin = [](permit& p) noexcept { ++static_cast<counted_permit&>(p).begun; };
    gone = [](permit& p) noexcept { ++static_cast<counted_permit&>(p).ended; };
  }
  work adopt() { return work::adopt(static_cast<permit*>(this)); }
  int begun = 0;
  int ended = 0;
};

}  // namespace

TEST_CASE("8.1 work: it is one pointer, nothrow in everything, and callable through const") {
  static_assert(sizeof(work) == sizeof(void*));
  static_assert(std::is_nothrow_copy_constructible_v<work> && std::is_nothrow_move_constructible_v<work>);
  static_assert(std::is_nothrow_copy_assignable_v<work> && std::is_nothrow_move_assignable_v<work>);
  static_assert(std::is_nothrow_destructible_v<work> && std::is_nothrow_invocable_v<const work&>);
  static_assert(turnkey::executor<turnkey::inline_executor> && !turnkey::executor<int>);
}

TEST_CASE("8.1, 8.4 work: its end comes with the last copy, once") {
  counted_permit p;
  {
    work first = p.adopt();
    const work second = first;
    work third = std::move(first);
    third = second;
    third = std::move(third);
    third();
    CHECK(p.references == 2);
    CHECK(p.ended == 0);
  }
  CHECK(p.begun == 1);
  CHECK(p.ended == 1);
}

TEST_CASE("8.1 work: one that was moved from does nothing") {
  counted_permit p;
  work first = p.adopt();
  const work second = std::move(first);
  first();  // NOLINT(bugprone-use-after-move): that is the question
  CHECK(p.begun == 0);
  CHECK(first.release() == nullptr);
}

TEST_CASE("8.1 work: released it lives on, adopted it is what it was") {
  counted_permit p;
  void* raw = nullptr;
  {
    work first = p.adopt();
    raw = first.release();
  }
  CHECK(p.ended == 0);
  { work::adopt(raw)(); }
  CHECK(p.begun == 1);
  CHECK(p.ended == 1);
}

TEST_CASE("8.1 work: a std::function holds it without a wrapper") {
  counted_permit p;
  {
    const std::function<void()> held = p.adopt();
    const std::function<void()> copy = held;  // NOLINT(performance-unnecessary-copy-initialization)
    held();
    copy();
  }
  CHECK(p.begun == 2);
  CHECK(p.ended == 1);
}

TEST_CASE("8.8 inline_executor: it runs the permit before it returns, and keeps none") {
  counted_permit p;
  turnkey::inline_executor{}(p.adopt());
  CHECK(p.begun == 1);
  CHECK(p.ended == 1);
}
