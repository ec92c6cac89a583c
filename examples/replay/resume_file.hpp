// What a replay leaves behind for the next one: the mark, below which every line is done, and what the store holds,
// since this store dies with the process. Where the store is a database, the mark alone is enough. The store may be
// ahead of the mark: what is done beyond it is done again, in the order of its key, and ends the same.
#pragma once

#include "event_log.hpp"
#include "flaky_store.hpp"

#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

namespace replay {

// Its first line is `3_replay mark LINE keys COUNT`; then for each key `LINE KEY`, the line that the store holds of it.
class resume_file {
 public:
  using clock = std::chrono::steady_clock;

  // Without a name nothing is kept.
  explicit resume_file(std::optional<std::string> name) : name_(std::move(name)) {}

  // The mark, and the store gets back what it held; none when there is no such file yet. What is no file of this kind,
  // or is one of another log, is refused with an input_error. A log that has grown meanwhile is the same log.
  std::optional<std::uint64_t> load(const event_log& log, flaky_store& store) const {
    if (!name_) return std::nullopt;
    std::error_code error;
    const std::filesystem::file_status found = std::filesystem::status(*name_, error);
    if (found.type() == std::filesystem::file_type::not_found) return std::nullopt;
    if (found.type() != std::filesystem::file_type::regular) refuse("is no regular file");
    std::ifstream in(*name_);
    if (!in) refuse(std::string("cannot be opened: ") + std::strerror(errno));

    std::string line;
    std::getline(in, line);
    const auto [mark, keys] = first_line(line);
    if (mark > log.end())
      refuse("its mark is line " + std::to_string(mark) + ", and " + log.name() + " ends before line " +
             std::to_string(log.end()) + ": it is of another log");
    std::uint64_t restored = 0;
    for (; std::getline(in, line); ++restored) store.restore(held(line, log));
    if (restored != keys)
      refuse("is damaged: it has " + std::to_string(restored) + " of " + std::to_string(keys) + " keys");
    return mark;
  }

  // Whether it is time to save again: a process that is killed loses the marks since then.
  [[nodiscard]] bool due() const noexcept { return name_ && clock::now() - saved_ >= std::chrono::milliseconds(250); }

  // Replaces the file in one step: whatever happens meanwhile, the old one is there or the new one. `mark` was read
  // before the store is, so nothing below it is missing.
  void save(std::uint64_t mark, flaky_store& store) {
    if (!name_) return;
    saved_ = clock::now();
    if (mark == mark_) return;
    std::uint64_t keys = 0;
    std::ostringstream held;
    store.for_each([&](const entry& e) {
      held << e.line << ' ' << e.key << '\n';
      ++keys;
    });
    replace("3_replay mark " + std::to_string(mark) + " keys " + std::to_string(keys) + '\n' + held.str());
    mark_ = mark;
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const { throw input_error(*name_ + ": " + why); }

  [[nodiscard]] std::pair<std::uint64_t, std::uint64_t> first_line(const std::string& line) const {
    std::istringstream words(line);
    std::uint64_t mark = 0;
    std::uint64_t keys = 0;
    std::string program, mark_word, keys_word;
    words >> program >> mark_word >> mark >> keys_word >> keys;
    if (!words || !words.eof() || program != "3_replay" || mark_word != "mark" || keys_word != "keys" || mark == 0)
      refuse("is no file of --resume: its first line does not read `3_replay mark LINE keys COUNT`");
    return {mark, keys};
  }

  [[nodiscard]] const entry& held(std::string_view line, const event_log& log) const {
    std::size_t number = 0;
    const auto [stop, error] = std::from_chars(line.data(), line.data() + line.size(), number);
    const std::string_view key = line.substr(static_cast<std::size_t>(stop - line.data()));
    const entry* const e = error == std::errc{} ? log.find(number) : nullptr;
    if (e == nullptr || !key.starts_with(' ') || key.substr(1) != e->key)
      refuse("`" + std::string(line) + "` is no line and key of " + log.name() + ": it is damaged, or of another log");
    return *e;
  }

  void replace(const std::string& text) const {
    const std::string fresh = *name_ + ".new";
    std::FILE* const file = std::fopen(fresh.c_str(), "wb");
    const bool written = file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size() &&
                         std::fflush(file) == 0 && fsync(fileno(file)) == 0;
    const int error = errno;
    const bool closed = file != nullptr && std::fclose(file) == 0;
    if (!written || !closed) refuse(std::string("cannot be written: ") + std::strerror(written ? errno : error));
    if (std::rename(fresh.c_str(), name_->c_str()) != 0)
      refuse(std::string("cannot be written: ") + std::strerror(errno));
  }

  std::optional<std::string> name_;
  std::optional<std::uint64_t> mark_;  // that is in the file
  clock::time_point saved_ = clock::now();
};

}  // namespace replay
