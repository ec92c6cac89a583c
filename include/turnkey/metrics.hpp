// What stats() says, as a page for Prometheus. It serves nothing: whoever has an HTTP server sends the page. Not
// included by turnkey.hpp.
#pragma once

#include <turnkey/detail/text.hpp>
#include <turnkey/inspect.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <ostream>
#include <ranges>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace turnkey::inline v1 {
namespace detail {

struct metric_family {
  const char* name;
  const char* type;
  const char* help;
};

// One field of stats: where it stands on the page.
struct metric_row {
  metric_family family;
  const char* state;  // empty: the family has one row
  std::uint64_t stats::*count;
  duration stats::*age = nullptr;
};

inline constexpr metric_family metric_ends{"tasks_finished_total", "counter",
                                           "Lives of tasks that ended, by final state."};
inline constexpr metric_family metric_states{"tasks", "gauge", "Unfinished tasks, by state."};

// Every field, families together.
inline constexpr metric_row metric_rows[] = {
    {{"tasks_submitted_total", "counter", "Tasks accepted."}, "", &stats::submitted},
    {{"tasks_rejected_total", "counter", "Submits refused."}, "", &stats::rejected},
    {{"tasks_redriven_total", "counter", "Dead tasks given a new life."}, "", &stats::redriven},
    {metric_ends, "succeeded", &stats::succeeded},
    {metric_ends, "dead", &stats::died},
    {metric_ends, "cancelled", &stats::cancelled},
    {metric_ends, "undone", &stats::undone},
    {{"attempts_started_total", "counter", "Attempts begun."}, "", &stats::started},
    {{"attempts_failed_total", "counter", "Attempts that failed, the last of a task too."},
     "",
     &stats::failed_attempts},
    {{"attempts_postponed_total", "counter", "Attempts that said later."}, "", &stats::postponed},
    {{"leases_expired_total", "counter", "Times that an attempt outlived its lease time."}, "", &stats::leases_expired},
    {{"leases_lost_total", "counter", "Leases taken away from deferred attempts."}, "", &stats::leases_lost},
    {{"late_results_total", "counter", "Results that came too late and were ignored."}, "", &stats::late_results},
    {{"executor_refusals_total", "counter", "Permits that the executor refused or threw at."},
     "",
     &stats::executor_refusals},
    {{"permits_lost_total", "counter", "Permits that the executor dropped."}, "", &stats::permits_lost},
    {{"dead_tasks_evicted_total", "counter", "Dead tasks that left a full store."}, "", &stats::dead_evicted},
    {metric_states, "waiting", &stats::waiting},
    {metric_states, "ready", &stats::ready},
    {metric_states, "running", &stats::running},
    {metric_states, "delayed", &stats::delayed},
    {{"dead_tasks", "gauge", "Dead tasks in the store."}, "", &stats::dead},
    {{"keys", "gauge", "Keys with an unfinished task, a pause or a hold."}, "", &stats::keys},
    {{"held_keys", "gauge", "Keys that a dead task holds."}, "", &stats::held_keys},
    {{"paused_keys", "gauge", "Keys that are paused."}, "", &stats::paused_keys},
    {{"oldest_task_age_seconds", "gauge", "Age of the oldest unfinished task."}, "", nullptr, &stats::oldest_age},
};

inline constexpr metric_family metric_key_tasks{"key_tasks", "gauge", "Unfinished tasks of a busy key."};
inline constexpr metric_family metric_key_age{"key_oldest_task_age_seconds", "gauge",
                                              "Age of a busy key's oldest unfinished task."};

}  // namespace detail

// A page of metrics, of one scheduler or several: add what was asked of each, then write.
//
//   turnkey::metrics().add(orders.stats(), {{"scheduler", "orders"}}).write(response);
//
//   Needs    labels that tell what is added to one page apart.
//   Gives    counters that end in _total, states as a label, seconds; HELP and TYPE once for each name.
//   Throws   std::invalid_argument that names what is wrong and says what is right; std::bad_alloc.
//   Threads  a value.
//   From     the Prometheus text exposition format 0.0.4 and its naming conventions.
class metrics {
 public:
  using labels = std::vector<std::pair<std::string, std::string>>;

  // The Content-Type of the page.
  static constexpr const char* content_type = "text/plain; version=0.0.4; charset=utf-8";

  // `prefix` and an underscore begin every name.
  explicit metrics(std::string prefix = "turnkey") : prefix_(std::move(prefix)) {
    if (!is_name(prefix_)) refuse("prefix", prefix_, "it is letters, digits and underscores, and begins with no digit");
  }

  // What a scheduler has done and what it holds.
  metrics& add(const stats& figures, const labels& constant = {}) {
    std::string all = checked(constant);
    if (!stats_.try_emplace(all, figures).second) refuse("labels", '{' + all + '}', "they are on this page already");
    return *this;
  }

  // The figures of some keys: for each of the first `max_keys` of `keys`, a label `key` with what `text` says of it. Of
  // keys that read the same the first counts.
  //   Needs    elements with key, depth and oldest_age; text(key) becomes a std::string_view.
  //   Throws   what text throws.
  template <std::ranges::input_range Keys, class Text = detail::key_text>
    requires(detail::text_of<Text, decltype(std::ranges::range_value_t<Keys>::key)>)
  metrics& add_keys(const Keys& keys, std::size_t max_keys, const labels& constant = {}, const Text& text = {}) {
    const std::string others = checked(constant);
    for (const auto& each : keys) {
      if (max_keys-- == 0) break;
      keys_.try_emplace(joined(others, label("key", text(each.key))),
                        key_figures{static_cast<std::uint64_t>(each.depth), each.oldest_age});
    }
    return *this;
  }

  [[nodiscard]] std::string text() const {
    std::string page;
    std::string_view last;
    for (const detail::metric_row& row : detail::metric_rows) {
      if (last != row.family.name && !stats_.empty()) head(page, row.family);
      last = row.family.name;
      const std::string state = *row.state == '\0' ? std::string() : label("state", row.state);
      for (const auto& [constant, figures] : stats_)
        sample(page, row.family, joined(constant, state),
               row.age == nullptr ? std::to_string(figures.*row.count) : detail::in_seconds(figures.*row.age));
    }
    if (keys_.empty()) return page;
    head(page, detail::metric_key_tasks);
    for (const auto& [all, key] : keys_) sample(page, detail::metric_key_tasks, all, std::to_string(key.depth));
    head(page, detail::metric_key_age);
    for (const auto& [all, key] : keys_) sample(page, detail::metric_key_age, all, detail::in_seconds(key.oldest_age));
    return page;
  }

  // Writes text(), whatever the stream's locale and flags are.
  void write(std::ostream& out) const {
    const std::string page = text();
    out.write(page.data(), static_cast<std::streamsize>(page.size()));
  }

 private:
  struct key_figures {
    std::uint64_t depth;
    duration oldest_age;
  };

  // Colons are for recording rules.
  static bool is_name(std::string_view name) noexcept {
    const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
    const auto fits = [&](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c);
    };
    return !name.empty() && !is_digit(name.front()) && std::all_of(name.begin(), name.end(), fits);
  }

  [[noreturn]] static void refuse(const char* what, const std::string& value, const char* right) {
    throw std::invalid_argument(std::string("turnkey: metrics ") + what + " '" + value + "'; " + right);
  }

  // The labels as the page shows them, by name: the same ones in another order read the same.
  static std::string checked(labels constant) {
    std::sort(constant.begin(), constant.end());
    std::string all;
    for (std::size_t i = 0; i != constant.size(); ++i) {
      const std::string& name = constant[i].first;
      if (!is_name(name) || name.starts_with("__"))
        refuse("label", name, "it is letters, digits and underscores, and begins with no digit and no two underscores");
      if (name == "state" || name == "key") refuse("label", name, "the metrics have one of that name");
      if (i != 0 && name == constant[i - 1].first) refuse("label", name, "it is there twice");
      all = joined(all, label(name, constant[i].second));
    }
    return all;
  }

  static std::string label(std::string_view name, std::string_view value) {
    std::string shown(name);
    shown += "=\"";
    detail::append_escaped(shown, value, [](std::string& to, char c) {
      switch (c) {
        case '\\': to += "\\\\"; return true;
        case '"': to += "\\\""; return true;
        case '\n': to += "\\n"; return true;
        case '\0': to += "\xEF\xBF\xBD"; return true;  // ends the label for some readers
        default: return false;
      }
    });
    return shown += '"';
  }
  static std::string joined(const std::string& some, const std::string& more) {
    return some.empty() || more.empty() ? some + more : some + ',' + more;
  }

  void head(std::string& page, const detail::metric_family& family) const {
    page += "# HELP " + prefix_ + '_' + family.name + ' ' + family.help + '\n';
    page += "# TYPE " + prefix_ + '_' + family.name + ' ' + family.type + '\n';
  }
  void sample(std::string& page, const detail::metric_family& family, const std::string& all,
              const std::string& value) const {
    page += prefix_ + '_' + family.name + (all.empty() ? all : '{' + all + '}') + ' ' + value + '\n';
  }

  std::string prefix_;
  std::map<std::string, stats> stats_;  // by labels
  std::map<std::string, key_figures> keys_;
};

}  // namespace turnkey::inline v1
