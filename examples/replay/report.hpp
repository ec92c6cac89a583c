// What became of the replay: the store beside what processing the lines one after the other gives, the dead tasks, the
// busiest keys. Only figures that the seed decides, so two runs under `ordered` print the same, unless they are
// interrupted and resumed.
#pragma once

#include <turnkey/inspect.hpp>
#include <turnkey/watermark.hpp>

#include "arguments.hpp"
#include "event_log.hpp"
#include "flaky_store.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iostream>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace replay {

// What the log says of one key.
struct history {
  std::size_t lines = 0;
  std::string_view last_state;
};

inline std::map<std::string_view, history> histories(const event_log& log) {
  std::map<std::string_view, history> found;
  for (const entry& e : log.entries()) {
    history& of_key = found[e.key];
    ++of_key.lines;
    of_key.last_state = e.state;
  }
  return found;
}

inline void print_plan(const arguments& asked, const event_log& log, std::size_t keys) {
  std::cout << "log           " << log.name() << "\n";
  std::cout << "tasks         " << log.entries().size() << " of " << keys << " keys; " << log.skipped()
            << " other lines skipped\n";
  std::cout << "run           " << to_string(asked.policy) << ", " << asked.threads << " threads, " << asked.fail * 100
            << " % of the writes fail, seed " << asked.seed
            << (asked.max_attempts ? ", at most " + std::to_string(*asked.max_attempts) + " attempts" : "") << "\n";
}

inline void print_resume(const std::string& file, std::optional<std::uint64_t> mark, const event_log& log) {
  if (mark) {
    std::cout << "resume        at line " << *mark << ", before which all is done; " << log.from(*mark).size()
              << " tasks are left\n";
  } else {
    std::cout << "resume        at the first line: there is no " << file << " yet\n";
  }
}

inline void print_interrupted(std::uint64_t written, const turnkey::watermark& mark) {
  std::cout << "interrupted   after " << written << " writes: before line " << mark.committed() << " all is done, and "
            << mark.span() - mark.open_count() << " tasks from there on, which will be done again\n\n"
            << "Run it once more with the same --resume to go on.\n";
}

inline void print_more(std::size_t all, std::size_t shown) {
  if (all > shown) std::cout << "              and " << all - shown << " more\n";
}

inline void print_dead(std::vector<turnkey::dead_task<std::string_view>> dead, std::uint64_t died) {
  // Ids rise among the tasks of one key, not over all keys.
  std::sort(dead.begin(), dead.end(),
            [](const auto& a, const auto& b) { return std::pair(*a.key, a.id) < std::pair(*b.key, b.id); });
  std::cout << "dead          " << died << "\n";
  const std::size_t shown = (std::min)(dead.size(), std::size_t{5});
  for (std::size_t i = 0; i < shown; ++i)
    std::cout << "              " << *dead[i].key << " (attempts: " << dead[i].attempts << "): " << dead[i].error.text()
              << "\n";
  print_more(dead.size(), shown);
}

// Returns how many keys are wrong.
inline std::size_t print_keys(const std::map<std::string_view, history>& keys, flaky_store& store) {
  std::vector<std::string_view> wrong;
  for (const auto& [key, of_key] : keys)
    if (store.state(key) != of_key.last_state) wrong.push_back(key);

  std::cout << "keys right    " << keys.size() - wrong.size() << " of " << keys.size() << "\n";
  std::cout << "keys wrong    " << wrong.size() << "\n";
  const std::size_t shown = (std::min)(wrong.size(), std::size_t{3});
  for (std::size_t i = 0; i < shown; ++i) {
    const std::string_view ended = store.state(wrong[i]);
    std::cout << "              " << wrong[i] << "\n                is         "
              << (ended.empty() ? "never written" : ended) << "\n                should be  "
              << keys.at(wrong[i]).last_state << "\n";
  }
  print_more(wrong.size(), shown);
  return wrong.size();
}

inline void print_busiest(const std::map<std::string_view, history>& keys) {
  std::vector<std::pair<std::string_view, history>> by_lines(keys.begin(), keys.end());
  std::sort(by_lines.begin(), by_lines.end(), [](const auto& a, const auto& b) {
    return a.second.lines != b.second.lines ? a.second.lines > b.second.lines : a.first < b.first;
  });
  std::cout << "busiest keys  ";
  for (std::size_t i = 0; i < by_lines.size() && i < 3; ++i)
    std::cout << (i == 0 ? "" : ", ") << by_lines[i].first << " (" << by_lines[i].second.lines << ")";
  std::cout << "\n";
}

inline void print_verdict(const arguments& asked, std::size_t wrong, std::uint64_t died) {
  std::cout << "\n";
  if (wrong == 0)
    std::cout << "Every key ended in the state that processing line by line gives.\n";
  else
    std::cout << "Keys that did not end in the state that processing line by line gives: " << wrong << ".\n";
  if (wrong > 0 && asked.policy == turnkey::policy::parallel)
    std::cout << "Under parallel nothing keeps the writes of a key in their order.\n";
  if (wrong > 0 && asked.policy == turnkey::policy::exclusive)
    std::cout << "Under exclusive a write that failed and waits to retry is passed by later ones of its key.\n";
  if (died > 0) std::cout << "What the dead tasks had to write is lost.\n";
}

}  // namespace replay
