#include <turnkey/detail/text.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <string_view>

using namespace turnkey::detail;
using namespace std::chrono_literals;

TEST_CASE("9.1, 9.4 text: what is a character in UTF-8, and how long it is") {
  struct row {
    std::string_view text;
    std::size_t length;
  };
  for (const row& each : {row{"", 0},
                          {"a", 1},
                          {std::string_view("\0", 1), 1},
                          {"\x7f", 1},
                          {"\x80", 0},
                          {"\xc1\xbf", 0},  // longer than needed, as are e0 9f and f0 8f
                          {"\xc2\x80", 2},
                          {"\xdf\xbf!", 2},
                          {"\xc2", 0},
                          {"\xc2!", 0},
                          {"\xe0\x9f\xbf", 0},
                          {"\xe0\xa0\x80", 3},
                          {"\xed\x9f\xbf", 3},
                          {"\xed\xa0\x80", 0},  // a surrogate
                          {"\xef\xbf\xbf", 3},
                          {"\xef\xbf", 0},
                          {"\xf0\x8f\xbf\xbf", 0},
                          {"\xf0\x90\x80\x80", 4},
                          {"\xf4\x8f\xbf\xbf", 4},
                          {"\xf4\x90\x80\x80", 0},  // beyond U+10FFFF
                          {"\xf4\x8f\xbf", 0},
                          {"\xf5\x80\x80\x80", 0},
                          {"\xff", 0}}) {
    CAPTURE(std::string(each.text));
    CHECK(utf8_length(each.text) == each.length);
  }
}

TEST_CASE("9.1, 9.4 text: characters are escaped as asked, and bytes that belong to none replaced one by one") {
  std::string to = ">";
  append_escaped(to, "a!\xe2\x82\xac\xe2\x82!", [](std::string& out, char c) {
    if (c == '!') out += "\\!";
    return c == '!';
  });
  CHECK(to == ">a\\!\xe2\x82\xac\xEF\xBF\xBD\xEF\xBF\xBD\\!");
}

TEST_CASE("9.1, 9.4 text: durations in seconds, exactly and without a locale") {
  CHECK(in_seconds(0s) == "0");
  CHECK(in_seconds(90min) == "5400");
  CHECK(in_seconds(100ms) == "0.1");
  CHECK(in_seconds(-1500ms) == "-1.5");
  CHECK(in_seconds(1ns) == "1e-09");
}
