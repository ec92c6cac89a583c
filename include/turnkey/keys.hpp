// The keys of one task: submit(turnkey::keys{from, to}, ...) puts it into the line of each at one instant.
#pragma once

#include <concepts>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {
namespace detail {
template <class Key, class Hash, class KeyEqual>
class keyed_engine;
}  // namespace detail

// A list of keys, in any order; one that stands there twice counts once. The first one's shard numbers the task, and
// its line offers it; for the rules they are all alike.
//
//   turnkey::keys{from, to}                    of one type
//   turnkey::keys{accounts}                    from a std::vector
//   turnkey::keys<std::string>{names_in_a_set} from any range
//
//   Threads  a value.
template <class Key>
class keys {
 public:
  keys() noexcept = default;  // none: submit() refuses that

  template <class First, class... More>
    requires(std::convertible_to<First, Key> && (std::convertible_to<More, Key> && ...) &&
             !std::same_as<std::remove_cvref_t<First>, std::vector<Key>>)
  explicit keys(First&& first, More&&... more) {
    all_.reserve(1 + sizeof...(More));
    all_.emplace_back(std::forward<First>(first));
    (all_.emplace_back(std::forward<More>(more)), ...);
  }

  explicit keys(std::vector<Key> all) noexcept : all_(std::move(all)) {}

  template <class Range>
    requires(!std::convertible_to<const Range&, Key> && !std::same_as<Range, std::vector<Key>> &&
             requires(const Range& range) {
               { *range.begin() } -> std::convertible_to<Key>;
               range.begin() != range.end();
             })
  explicit keys(const Range& range) {
    for (auto&& each : range) all_.emplace_back(each);
  }

  // keys{"a", "b"} for a scheduler<std::string>.
  template <class Other>
    requires(!std::same_as<Other, Key> && std::convertible_to<Other, Key>)
  keys(const keys<Other>& other) {  // NOLINT(google-explicit-constructor)
    all_.reserve(other.size());
    for (const Other& each : other) all_.emplace_back(each);
  }

  [[nodiscard]] auto begin() const noexcept { return all_.begin(); }
  [[nodiscard]] auto end() const noexcept { return all_.end(); }
  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  [[nodiscard]] bool empty() const noexcept { return all_.empty(); }

 private:
  template <class, class, class>
  friend class detail::keyed_engine;

  std::vector<Key> all_;
};

template <class First, class... More>
keys(First, More...) -> keys<First>;
template <class Key>
keys(std::vector<Key>) -> keys<Key>;

}  // namespace turnkey::inline v1
