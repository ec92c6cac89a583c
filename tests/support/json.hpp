// Reads JSON as strictly as RFC 8259 says, to judge what we write: a wrong byte is an exception that says where.
#pragma once

#include <charconv>
#include <cstddef>
#include <map>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace support {

struct json {
  std::map<std::string, json> members;  // of an object
  std::vector<json> elements;           // of an array
  std::string text;                     // of a string, decoded; of anything else, as it stands there
  double number = 0;

  const json& operator[](const std::string& name) const { return members.at(name); }
  [[nodiscard]] bool has(const std::string& name) const { return members.contains(name); }
};

class json_reader {
 public:
  static json read(std::string_view text) {
    json_reader reader(text);
    json value = reader.value();
    reader.blanks();
    if (reader.at_ != text.size()) reader.fail("more after the value");
    return value;
  }

 private:
  explicit json_reader(std::string_view text) : text_(text) {}

  json value() {
    blanks();
    switch (peek()) {
      case '{': return object();
      case '[': return array();
      case '"': return string();
      case 't': return word("true");
      case 'f': return word("false");
      case 'n': return word("null");
      default: return number();
    }
  }

  json object() {
    json all;
    take('{');
    blanks();
    for (bool more = peek() != '}'; more; more = comma('}')) {
      blanks();
      const std::string name = string().text;
      blanks();
      take(':');
      if (!all.members.try_emplace(name, value()).second) fail("a name twice");
    }
    take('}');
    return all;
  }

  json array() {
    json all;
    take('[');
    blanks();
    for (bool more = peek() != ']'; more; more = comma(']')) all.elements.push_back(value());
    take(']');
    return all;
  }

  bool comma(char end) {
    blanks();
    if (peek() == end) return false;
    take(',');
    return true;
  }

  json string() {
    json decoded;
    take('"');
    while (peek() != '"') {
      if (static_cast<unsigned char>(peek()) < 0x20) fail("a control character");
      decoded.text += peek() == '\\' ? escaped() : next();
    }
    take('"');
    return decoded;
  }

  // Of \u only what stands for ASCII: nothing else needs it.
  char escaped() {
    take('\\');
    const char c = next();
    if (c == 'u') {
      int code = 0;
      const std::string_view digits = text_.substr(at_, 4);
      if (std::from_chars(digits.data(), digits.data() + digits.size(), code, 16).ptr != digits.data() + 4)
        fail("no four hexadecimal digits");
      if (code > 0x7f) fail("an escape that is not needed");
      at_ += 4;
      return static_cast<char>(code);
    }
    constexpr std::string_view escapes = "\"\\/bfnrt";
    constexpr std::string_view meant = "\"\\/\b\f\n\r\t";
    if (escapes.find(c) == std::string_view::npos) fail("an unknown escape");
    return meant[escapes.find(c)];
  }

  json word(std::string_view expected) {
    for (const char c : expected) take(c);
    return {{}, {}, std::string(expected)};
  }

  json number() {
    const std::size_t begin = at_;
    if (peek() == '-') ++at_;
    if (peek() == '0') {
      ++at_;
    } else {
      digits();
    }
    if (at_ != text_.size() && text_[at_] == '.') {
      ++at_;
      digits();
    }
    if (at_ != text_.size() && (text_[at_] == 'e' || text_[at_] == 'E')) {
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      digits();
    }
    json read{{}, {}, std::string(text_.substr(begin, at_ - begin))};
    read.number = std::stod(read.text);
    return read;
  }
  void digits() {
    const std::size_t begin = at_;
    while (at_ != text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
    if (at_ == begin) fail("no digit");
  }

  void blanks() {
    while (at_ != text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) ++at_;
  }
  char peek() const {
    if (at_ == text_.size()) fail("the end");
    return text_[at_];
  }
  char next() {
    const char c = peek();
    ++at_;
    return c;
  }
  void take(char expected) {
    if (next() != expected) fail(std::string("not ") + expected);
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw std::runtime_error(what + " at " + std::to_string(at_) + ": " + std::string(text_.substr(at_, 40)));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

}  // namespace support
