// How keys and numbers become text, and how text becomes UTF-8 in the quotes of a format. For metrics.hpp and
// trace.hpp.
#pragma once

#include <turnkey/outcome.hpp>

#include <array>
#include <charconv>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>

namespace turnkey::inline v1::detail {

template <class Text, class Key>
concept text_of = std::convertible_to<std::invoke_result_t<const Text&, const Key&>, std::string_view>;

// An integer's digits, in place.
class digits {
 public:
  template <std::integral Number>
  explicit digits(Number number) noexcept {
    using wide = std::conditional_t<std::is_signed_v<Number>, std::int64_t, std::uint64_t>;
    const auto end = std::to_chars(text_.data(), text_.data() + text_.size(), static_cast<wide>(number)).ptr;
    size_ = static_cast<std::size_t>(end - text_.data());
  }
  operator std::string_view() const noexcept { return {text_.data(), size_}; }  // NOLINT(google-explicit-constructor)

 private:
  std::array<char, 20> text_;
  std::size_t size_;
};

// How a key reads when nobody says: a string as it is, an integer by its digits, anything else as << prints it.
struct key_text {
  template <class Key>
  auto operator()(const Key& key) const {
    if constexpr (std::convertible_to<const Key&, std::string_view>) {
      return std::string_view(key);
    } else if constexpr (std::integral<Key>) {
      return digits(key);
    } else if constexpr (requires(std::ostream & out) { out << key; }) {
      std::ostringstream out;
      out << key;
      return out.str();
    } else {
      static_assert(std::is_void_v<Key>, "turnkey: this key has no text: pass a callable that says how it reads");
    }
  }
};

// The shortest digits that read back as the same number.
inline std::string in_seconds(duration d) {
  std::array<char, 32> text;
  const double seconds = std::chrono::duration<double>(d).count();
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), seconds).ptr};
}

// How many bytes the character has that `text` begins with; 0 when it begins with none (Unicode, table 3-7).
inline std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [text](std::size_t i) -> unsigned {
    return static_cast<unsigned char>(i < text.size() ? text[i] : 0);
  };
  const unsigned first = byte(0);
  if (first < 0x80) return text.empty() ? 0 : 1;
  if (first < 0xC2 || first > 0xF4) return 0;
  const unsigned low = first == 0xE0 ? 0xA0 : first == 0xF0 ? 0x90 : 0x80;
  const unsigned high = first == 0xED ? 0x9F : first == 0xF4 ? 0x8F : 0xBF;
  if (byte(1) < low || byte(1) > high) return 0;
  const std::size_t length = first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  for (std::size_t i = 2; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

// Appends `text` with every byte that belongs to no character replaced by U+FFFD. `escape(to, c)` appends what stands
// for an ASCII character c, or says false when c stands for itself.
template <class Escape>
void append_escaped(std::string& to, std::string_view text, Escape escape) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    if (length == 0) to += "\xEF\xBF\xBD";
    if (length > 1 || (length == 1 && !escape(to, text.front()))) to += text.substr(0, length);
    text.remove_prefix(length == 0 ? 1 : length);
  }
}

}  // namespace turnkey::inline v1::detail
