#include <turnkey/metrics.hpp>
#include <turnkey/turnkey.hpp>

#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iomanip>
#include <locale>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

using turnkey::metrics;
using turnkey::stats;
using namespace std::chrono_literals;

namespace {

// What is known of a busy key, as a scheduler may tell it.
template <class Key>
struct key_info {
  Key key;
  std::size_t depth = 0;
  turnkey::duration oldest_age{};
};

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

bool has(const std::string& text, const std::string& part) { return count(text, part) == 1; }

std::string refusal_of(const std::string& prefix, const metrics::labels& labels) {
  try {
    metrics(prefix).add(stats{}, labels);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return {};
}

}  // namespace

TEST_CASE("9.1 metrics: the page shows every field of stats, with its unit, in the text format") {
  static_assert(sizeof(stats) == 25 * sizeof(std::uint64_t), "a new field of stats has its row in metrics.hpp too");
  stats s;
  std::uint64_t n = 0;
  for (auto* field :
       {&s.submitted,    &s.started,   &s.succeeded,   &s.failed_attempts, &s.postponed,         &s.died,
        &s.cancelled,    &s.undone,    &s.redriven,    &s.rejected,        &s.executor_refusals, &s.permits_lost,
        &s.dead_evicted, &s.waiting,   &s.ready,       &s.running,         &s.delayed,           &s.dead,
        &s.keys,         &s.held_keys, &s.paused_keys, &s.leases_expired,  &s.leases_lost,       &s.late_results})
    *field = ++n;
  s.oldest_age = 1500ms;
  CHECK(metrics().add(s).text() == R"(# HELP turnkey_tasks_submitted_total Tasks accepted.
# TYPE turnkey_tasks_submitted_total counter
turnkey_tasks_submitted_total 1
# HELP turnkey_tasks_rejected_total Submits refused.
# TYPE turnkey_tasks_rejected_total counter
turnkey_tasks_rejected_total 10
# HELP turnkey_tasks_redriven_total Dead tasks given a new life.
# TYPE turnkey_tasks_redriven_total counter
turnkey_tasks_redriven_total 9
# HELP turnkey_tasks_finished_total Lives of tasks that ended, by final state.
# TYPE turnkey_tasks_finished_total counter
turnkey_tasks_finished_total{state="succeeded"} 3
turnkey_tasks_finished_total{state="dead"} 6
turnkey_tasks_finished_total{state="cancelled"} 7
turnkey_tasks_finished_total{state="undone"} 8
# HELP turnkey_attempts_started_total Attempts begun.
# TYPE turnkey_attempts_started_total counter
turnkey_attempts_started_total 2
# HELP turnkey_attempts_failed_total Attempts that failed, the last of a task too.
# TYPE turnkey_attempts_failed_total counter
turnkey_attempts_failed_total 4
# HELP turnkey_attempts_postponed_total Attempts that said later.
# TYPE turnkey_attempts_postponed_total counter
turnkey_attempts_postponed_total 5
# HELP turnkey_leases_expired_total Times that an attempt outlived its lease time.
# TYPE turnkey_leases_expired_total counter
turnkey_leases_expired_total 22
# HELP turnkey_leases_lost_total Leases taken away from deferred attempts.
# TYPE turnkey_leases_lost_total counter
turnkey_leases_lost_total 23
# HELP turnkey_late_results_total Results that came too late and were ignored.
# TYPE turnkey_late_results_total counter
turnkey_late_results_total 24
# HELP turnkey_executor_refusals_total Permits that the executor refused or threw at.
# TYPE turnkey_executor_refusals_total counter
turnkey_executor_refusals_total 11
# HELP turnkey_permits_lost_total Permits that the executor dropped.
# TYPE turnkey_permits_lost_total counter
turnkey_permits_lost_total 12
# HELP turnkey_dead_tasks_evicted_total Dead tasks that left a full store.
# TYPE turnkey_dead_tasks_evicted_total counter
turnkey_dead_tasks_evicted_total 13
# HELP turnkey_tasks Unfinished tasks, by state.
# TYPE turnkey_tasks gauge
turnkey_tasks{state="waiting"} 14
turnkey_tasks{state="ready"} 15
turnkey_tasks{state="running"} 16
turnkey_tasks{state="delayed"} 17
# HELP turnkey_dead_tasks Dead tasks in the store.
# TYPE turnkey_dead_tasks gauge
turnkey_dead_tasks 18
# HELP turnkey_keys Keys with an unfinished task, a pause or a hold.
# TYPE turnkey_keys gauge
turnkey_keys 19
# HELP turnkey_held_keys Keys that a dead task holds.
# TYPE turnkey_held_keys gauge
turnkey_held_keys 20
# HELP turnkey_paused_keys Keys that are paused.
# TYPE turnkey_paused_keys gauge
turnkey_paused_keys 21
# HELP turnkey_oldest_task_age_seconds Age of the oldest unfinished task.
# TYPE turnkey_oldest_task_age_seconds gauge
turnkey_oldest_task_age_seconds 1.5
)");
}

TEST_CASE("9.1 metrics: a scheduler's stats go straight to the page") {
  stage on;
  on.tasks.submit("a", {.delay = 1h}, [] {});
  on.time.jump(90s);
  const std::string page = metrics().add(on.tasks.stats(), {{"scheduler", "orders"}}).text();
  CHECK(has(page, "turnkey_tasks{scheduler=\"orders\",state=\"delayed\"} 1\n"));
  CHECK(has(page, "turnkey_oldest_task_age_seconds{scheduler=\"orders\"} 90\n"));
}

TEST_CASE("7.2, 9.1 metrics: what became of leases stands on the page") {
  stage on({.lease_time = 1s, .lease_expiry = turnkey::lease_expiry::release});
  turnkey::completion late;
  on.tasks.submit("a", {.policy = turnkey::policy::exclusive}, [&late](turnkey::attempt& a) { late = a.defer(); });
  on.run();
  on.time.jump(1s);
  CHECK(!late.succeed());
  const std::string page = metrics().add(on.tasks.stats()).text();
  for (const char* name : {"leases_expired", "leases_lost", "late_results"})
    CHECK(has(page, std::string("turnkey_") + name + "_total 1\n"));
}

TEST_CASE("9.1 metrics: several schedulers share a page, with HELP and TYPE once for each name, before its rows") {
  const std::string page = metrics("jobs").add(stats{}, {{"scheduler", "a"}}).add(stats{}, {{"scheduler", "b"}}).text();
  CHECK(count(page, "# TYPE ") == 19);
  CHECK(count(page, "# HELP ") == 19);
  CHECK(has(
      page,
      "# TYPE jobs_keys gauge\njobs_keys{scheduler=\"a\"} 0\njobs_keys{scheduler=\"b\"} 0\n# HELP jobs_held_keys "));
  CHECK(has(page, "# TYPE jobs_tasks gauge\n"));
  CHECK(count(page, "jobs_tasks{") == 8);
}

TEST_CASE("9.1 metrics: nothing was added, nothing is written") { CHECK(metrics().text().empty()); }

TEST_CASE("9.1 metrics: label values are escaped, and bytes that are no UTF-8 replaced") {
  const std::string page = metrics().add(stats{}, {{"x", "a\\b\"c\nd\xff\xc3\xa4" + std::string(1, '\0')}}).text();
  CHECK(has(page, "turnkey_keys{x=\"a\\\\b\\\"c\\nd\xEF\xBF\xBD\xc3\xa4\xEF\xBF\xBD\"} 0\n"));
}

TEST_CASE("9.1 metrics: names without sense are refused by name") {
  for (const char* bad : {"", "9lives", "a-b", "a:b", "ä", "a b"}) {
    CAPTURE(bad);
    CHECK(refusal_of(bad, {}).find(std::string("prefix '") + bad + "'") != std::string::npos);
    CHECK(refusal_of("turnkey", {{bad, "x"}}).find(std::string("label '") + bad + "'") != std::string::npos);
  }
  for (const char* taken : {"__name", "state", "key"})
    CHECK(refusal_of("turnkey", {{taken, "x"}}).find(std::string("label '") + taken + "'") != std::string::npos);
  CHECK(refusal_of("turnkey", {{"a", "x"}, {"b", "y"}, {"a", "z"}}).find("label 'a'") != std::string::npos);
  CHECK(refusal_of("_Turn9key", {{"_a9", ""}, {"A", "any \"thing\""}}).empty());
}

TEST_CASE("9.1 metrics: the same labels a second time are refused, in any order, and change nothing") {
  metrics page;
  page.add(stats{}, {{"a", "1"}, {"b", "2"}});
  const std::string before = page.text();
  CHECK_THROWS_WITH_AS(page.add(stats{}, {{"b", "2"}, {"a", "1"}}),
                       "turnkey: metrics labels '{a=\"1\",b=\"2\"}'; they are on this page already",
                       std::invalid_argument);
  CHECK(page.text() == before);
}

TEST_CASE("9.1 metrics: keys have labels only when asked for, and never more than the maximum") {
  const std::vector<key_info<std::string>> keys{{"busy", 7, 2s}, {"less\n", 3, 250ms}, {"least", 1, 1s}};
  CHECK(metrics().add(stats{}).text().find("key=") == std::string::npos);
  CHECK(metrics().add_keys(keys, 2, {{"scheduler", "orders"}}).text() ==
        R"(# HELP turnkey_key_tasks Unfinished tasks of a busy key.
# TYPE turnkey_key_tasks gauge
turnkey_key_tasks{scheduler="orders",key="busy"} 7
turnkey_key_tasks{scheduler="orders",key="less\n"} 3
# HELP turnkey_key_oldest_task_age_seconds Age of a busy key's oldest unfinished task.
# TYPE turnkey_key_oldest_task_age_seconds gauge
turnkey_key_oldest_task_age_seconds{scheduler="orders",key="busy"} 2
turnkey_key_oldest_task_age_seconds{scheduler="orders",key="less\n"} 0.25
)");
  CHECK(metrics().add_keys(keys, 0).text().empty());
  CHECK(count(metrics().add_keys(keys, 9).text(), "key=") == 6);
}

TEST_CASE("9.1 metrics: a key is shown as asked; of those that read the same the first counts") {
  const std::vector<key_info<int>> keys{{-17, 3, 1s}, {27, 2, 1s}};
  CHECK(has(metrics().add_keys(keys, 9).text(), "turnkey_key_tasks{key=\"-17\"} 3\n"));
  const auto even = [](int key) { return key % 2 == 0 ? "even" : "odd"; };
  const std::string page = metrics().add_keys(keys, 9, {}, even).text();
  CHECK(count(page, "turnkey_key_tasks{") == 1);
  CHECK(has(page, "turnkey_key_tasks{key=\"odd\"} 3\n"));
}

TEST_CASE("9.1 metrics: the stream's flags and locale do not show") {
  struct grouped : std::numpunct<char> {
    std::string do_grouping() const override { return "\3"; }
    char do_thousands_sep() const override { return '.'; }
    char do_decimal_point() const override { return ','; }
  };
  stats s;
  s.submitted = 1234567;
  s.oldest_age = 1234500ms;
  const metrics page = metrics().add(s);
  std::ostringstream out;
  out.imbue(std::locale(std::locale::classic(), new grouped));
  out << std::hex << std::setw(9999) << std::setprecision(1);
  page.write(out);
  CHECK(out.str() == page.text());
  CHECK(has(page.text(), "turnkey_tasks_submitted_total 1234567\n"));
  CHECK(has(page.text(), "turnkey_oldest_task_age_seconds 1234.5\n"));
}
