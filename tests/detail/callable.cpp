#include <turnkey/detail/callable.hpp>

#include <doctest/doctest.h>

#include <concepts>
#include <cstddef>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <utility>

using turnkey::attempt;
using turnkey::outcome;
namespace detail = turnkey::detail;

namespace {

struct wants_attempt {
  void operator()(attempt&) {}
};
struct takes_both {
  outcome operator()() { return outcome::success(); }
  void operator()(attempt&) {}
};
struct says_number {
  int operator()() { return 1; }
};
struct rvalue_only {
  void operator()() && {}
};

}  // namespace

TEST_CASE("3 callable: what a callback may take and return") {
  static_assert(detail::takes_attempt<wants_attempt> && detail::takes_attempt<takes_both>);
  static_assert(!detail::takes_attempt<void (*)()>);
  static_assert(detail::result_is_fine<void (*)()>() && detail::result_is_fine<outcome (*)(attempt&)>());
  static_assert(!detail::result_is_fine<says_number>());
  static_assert(!detail::takes_attempt<rvalue_only> && !std::invocable<rvalue_only&>);
}

TEST_CASE("3 callable: only what is void and takes nothing can say no more than success") {
  static_assert(!detail::may_postpone<void (*)()>());
  static_assert(detail::may_postpone<outcome (*)()>() && detail::may_postpone<wants_attempt>());
}

TEST_CASE("4.2 callable: null pointers and empty wrappers are empty, all others are not") {
  void (*const pointer)() = nullptr;
  CHECK(detail::is_empty(pointer));
  CHECK(detail::is_empty(std::function<void()>()));
  CHECK(!detail::is_empty(std::function<void()>([] {})));
  CHECK(!detail::is_empty(wants_attempt{}));
  CHECK(!detail::is_empty(+[] {}));
}

TEST_CASE("4.5 callable: plain is what runs no code of the user's when it moves and ends") {
  const auto with_int = [n = 1] { static_cast<void>(n); };
  const auto with_string = [s = std::string()] { static_cast<void>(s); };
  static_assert(detail::is_plain<decltype(with_int)> && !detail::is_plain<decltype(with_string)>);
  CHECK(!detail::ops_of<decltype(with_int)>.destroy);
  CHECK(static_cast<bool>(detail::ops_of<decltype(with_string)>.destroy));
}

TEST_CASE("4.3 callable: the table moves and destroys, and knows size and alignment") {
  struct alignas(64) wide {
    std::shared_ptr<int> witness;
    void operator()() const {}
  };
  const auto& ops = detail::ops_of<wide>;
  CHECK(ops.size == sizeof(wide));
  CHECK(ops.align == 64);
  auto witness = std::make_shared<int>();
  alignas(wide) std::byte from[sizeof(wide)];
  alignas(wide) std::byte to[sizeof(wide)];
  ::new (from) wide{witness};
  ops.move(from, to);
  CHECK(witness.use_count() == 2);
  ops.destroy(from);
  ops.destroy(to);
  CHECK(witness.use_count() == 1);
}
