// An event log as tasks: who each line is about, and what it says. What cannot be read as such a log is refused with
// an input_error that names the file.
#pragma once

#include "arguments.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace replay {

class input_error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

// One line that is a task.
struct entry {
  std::size_t line = 0;  // counted from 1
  std::string_view key;
  std::string_view state;
};

class event_log {
 public:
  // Reads `file`, "-" being the standard input.
  event_log(const std::string& file, const arguments& asked) : name_(file == "-" ? "the standard input" : file) {
    read(file, asked.separator.value_or('\t'));
    if (text_.empty()) throw input_error(name_ + ": is empty");
    split(asked);
    if (entries_.empty()) throw input_error(name_ + ": " + why_nothing(asked));
  }
  event_log(const event_log&) = delete;  // the entries point into the text
  event_log& operator=(const event_log&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::vector<entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] std::size_t skipped() const noexcept { return skipped_; }

  // The number of the line that would be next.
  [[nodiscard]] std::size_t end() const noexcept { return end_; }

  // The entries from `line` on.
  [[nodiscard]] std::span<const entry> from(std::size_t line) const noexcept {
    const auto at = std::lower_bound(entries_.begin(), entries_.end(), line,
                                     [](const entry& e, std::size_t wanted) { return e.line < wanted; });
    return {at, entries_.end()};
  }

  // The entry of that line; null when it has none.
  [[nodiscard]] const entry* find(std::size_t line) const noexcept {
    const std::span<const entry> found = from(line);
    return !found.empty() && found.front().line == line ? &found.front() : nullptr;
  }

  // The line where reading goes on after `e`, which is one of the entries.
  [[nodiscard]] std::size_t after(const entry& e) const noexcept {
    return &e != &entries_.back() ? (&e + 1)->line : end_;
  }

 private:
  struct closer {
    void operator()(std::FILE* file) const noexcept {
      if (file != stdin) std::fclose(file);
    }
  };

  void read(const std::string& file, char separator) {
    const std::unique_ptr<std::FILE, closer> stream(file == "-" ? stdin : std::fopen(file.c_str(), "rb"));
    if (!stream) throw input_error(name_ + ": cannot be opened: " + std::strerror(errno));
    std::array<char, 65536> chunk{};
    while (const std::size_t size = std::fread(chunk.data(), 1, chunk.size(), stream.get())) {
      const std::string_view fresh(chunk.data(), size);
      refuse_binary(fresh, separator);
      text_ += fresh;
    }
    if (std::ferror(stream.get()) != 0) throw input_error(name_ + ": cannot be read: " + std::strerror(errno));
  }

  // Looked at piece by piece, so that an endless device is refused and not swallowed.
  void refuse_binary(std::string_view fresh, char separator) const {
    for (std::size_t i = 0; i < fresh.size(); ++i) {
      const char c = fresh[i];
      const bool control = (c >= 0 && c < ' ' && std::strchr("\t\n\r\f\v\x1b", c) == nullptr) || c == '\x7f' || c == 0;
      if (control && c != separator)
        throw input_error(name_ + ": is not text: byte " + std::to_string(text_.size() + i + 1) +
                          " is the control character " + std::to_string(static_cast<int>(c)));
    }
  }

  void split(const arguments& asked) {
    std::string_view rest = text_;
    for (; !rest.empty(); ++end_) {
      std::string_view line = rest.substr(0, rest.find('\n'));
      rest.remove_prefix(line.size() < rest.size() ? line.size() + 1 : line.size());
      if (line.ends_with('\r')) line.remove_suffix(1);
      const auto found = asked.key_column ? any_line(end_, line, asked) : dpkg_line(end_, line);
      if (found) {
        entries_.push_back(*found);
      } else {
        ++skipped_;
      }
    }
  }

  // date time status STATE PACKAGE VERSION
  std::optional<entry> dpkg_line(std::size_t number, std::string_view line) {
    const std::vector<std::string_view>& words = columns(line, std::nullopt);
    if (words.size() != 6 || words[2] != "status") return std::nullopt;
    return entry{number, words[4], line.substr(static_cast<std::size_t>(words[3].data() - line.data()))};
  }

  std::optional<entry> any_line(std::size_t number, std::string_view line, const arguments& asked) {
    const std::vector<std::string_view>& words = columns(line, asked.separator);
    if (words.size() > widest_) widest_ = words.size();
    if (words.size() < *asked.key_column) return std::nullopt;
    return entry{number, words[*asked.key_column - 1], line};
  }

  const std::vector<std::string_view>& columns(std::string_view line, std::optional<char> separator) {
    columns_.clear();
    const std::string_view separators = separator ? std::string_view(&*separator, 1) : std::string_view(" \t");
    while (!line.empty()) {
      const std::string_view word = line.substr(0, line.find_first_of(separators));
      const bool last = word.size() == line.size();
      if (separator || !word.empty()) columns_.push_back(word);
      line.remove_prefix(last ? word.size() : word.size() + 1);
      if (separator && !last && line.empty()) columns_.push_back(line);  // it ended with a separator
    }
    return columns_;
  }

  [[nodiscard]] std::string why_nothing(const arguments& asked) const {
    if (asked.key_column)
      return "no line has a column " + std::to_string(*asked.key_column) + " (--key-column); the widest has " +
             std::to_string(widest_);
    return "no line reads `date time status STATE PACKAGE VERSION`; for another kind of log name the column of its key "
           "with --key-column";
  }

  std::string name_;
  std::string text_;
  std::vector<entry> entries_;
  std::vector<std::string_view> columns_;  // of the line that is being read
  std::size_t widest_ = 0;
  std::size_t skipped_ = 0;
  std::size_t end_ = 1;
};

}  // namespace replay
