// Every pair of operations on one key, with a worker beside them, in every order that takes at most two preemptions;
// then random walks over three fibers with more to do. A schedule that fails is printed as columns and as a string:
// TURNKEY_SCHEDULE=string replays it. TURNKEY_EXPLORATION_CAP sets about how many schedules of a meeting are tried (a
// million is all), TURNKEY_EXPLORATION_SECONDS how long the walks take.
#include "exploration/scene.hpp"

#include <doctest/doctest.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace {

using exploration::director;
using exploration::name_of;
using exploration::operation;
using exploration::scene;
using turnkey::policy;

// What meets: the operations of each fiber, and the policies of the tasks that are there.
struct scenario {
  std::vector<std::vector<operation>> fibers;
  policy prepared;
  policy behind;

  [[nodiscard]] std::vector<operation> all() const {
    std::vector<operation> every;
    for (const auto& f : fibers) every.insert(every.end(), f.begin(), f.end());
    return every;
  }
  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> columns;
    for (const auto& f : fibers) {
      std::string name;
      for (const operation o : f) name.append(name.empty() ? "" : ",").append(name_of(o));
      columns.push_back(name);
    }
    columns.emplace_back("worker");
    return columns;
  }
};

// One run; what is wrong, or nothing.
std::string run(const scenario& of, director& d) {
  auto s = std::make_unique<scene>(of.all(), of.prepared, of.behind);
  std::vector<std::function<void()>> bodies;
  for (const auto& f : of.fibers)
    bodies.emplace_back([&s, &f] {
      for (const operation o : f) s->perform(o);
    });
  bodies.emplace_back([&s] { s->work(); });
  if (!d.run(std::move(bodies))) {
    scene::abandon(std::move(s));
    return "deadlock: all are asleep";
  }
  return s->verdict(of.all());
}

// The same run again, told as columns.
std::string story(const scenario& of, director& d, const std::string& wrong) {
  d.record();
  static_cast<void>(run(of, d));
  return wrong + "\n" + d.columns(of.names());
}

std::uint64_t number_in(const char* variable, std::uint64_t otherwise) {
  const char* const set = std::getenv(variable);  // NOLINT(concurrency-mt-unsafe)
  return set != nullptr ? std::strtoull(set, nullptr, 0) : otherwise;
}

constexpr std::array<std::pair<policy, policy>, 5> mixes{{{policy::parallel, policy::exclusive},
                                                          {policy::exclusive, policy::parallel},
                                                          {policy::exclusive, policy::ordered},
                                                          {policy::ordered, policy::exclusive},
                                                          {policy::ordered, policy::ordered}}};

std::string title(const scenario& s) {
  std::string name = name_of(s.fibers[0][0]);
  name.append("+").append(name_of(s.fibers[1][0])).append("/").append(to_string(s.prepared)).append(",");
  return name.append(to_string(s.behind));
}

std::vector<scenario> all_pairs() {
  std::vector<scenario> pairs;
  for (int a = 0; a != exploration::operations; ++a)
    for (int b = a; b != exploration::operations; ++b)
      if (const auto one = static_cast<operation>(a), other = static_cast<operation>(b);
          exploration::may_meet(one, other))
        for (const auto& [prepared, behind] : mixes) pairs.push_back({{{one}, {other}}, prepared, behind});
  return pairs;
}

struct sums {
  std::uint64_t schedules = 0;
  std::uint64_t capped = 0;
};

// All runs of a search; how many there were, 0 when one went wrong.
std::uint64_t try_all(const scenario& s, director& d, sums& sum) {
  std::uint64_t n = 0;
  do {
    INFO("after ", sum.schedules + n, " schedules: TURNKEY_SCHEDULE=", title(s), ":", d.plan());  // should it crash
    const std::string wrong = run(s, d);
    ++n;
    if (wrong.empty()) continue;
    director again(director::mode::replay);
    again.set_plan(d.plan());
    FAIL_CHECK("TURNKEY_SCHEDULE=", title(s), ":", d.plan(), "\n", story(s, again, wrong));
    return 0;
  } while (d.next());
  sum.schedules += n;
  return n;
}

// SplitMix64.
struct dice {
  std::uint64_t state;
  std::uint64_t operator()(std::uint64_t n) {
    state += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return (x ^ (x >> 31)) % n;
  }
};

scenario scenario_of(std::uint64_t seed) {
  dice random{seed};
  const auto& [prepared, behind] = mixes[random(mixes.size())];
  scenario s{{}, prepared, behind};
  for (int f = 0; f != 3; ++f) {
    std::vector<operation> todo;
    for (std::uint64_t n = 1 + random(3); n != 0; --n) {
      auto o = static_cast<operation>(random(exploration::operations));
      if (o == operation::destroy) o = operation::stop;  // what comes after it would call what is gone
      todo.push_back(o);
    }
    s.fibers.push_back(todo);
  }
  return s;
}

bool walk(std::uint64_t seed, director& d) {
  const scenario s = scenario_of(seed);
  d.set_seed(seed);
  const std::string wrong = run(s, d);
  if (wrong.empty()) return true;
  d.set_seed(seed);
  FAIL_CHECK("TURNKEY_SCHEDULE=walk:", seed, "\n", story(s, d, wrong));
  return false;
}

void replay(const std::string& schedule) {
  if (schedule.rfind("walk:", 0) == 0) {
    director d(director::mode::walk);
    CHECK(walk(std::strtoull(schedule.c_str() + 5, nullptr, 0), d));
    return;
  }
  const std::size_t colon = schedule.find(':');
  for (const scenario& s : all_pairs()) {
    if (title(s) != schedule.substr(0, colon)) continue;
    director d(director::mode::replay);
    if (colon != std::string::npos) d.set_plan(schedule.substr(colon + 1));
    d.record();
    const std::string wrong = run(s, d);
    MESSAGE(d.columns(s.names()));
    CHECK(wrong == "");
    return;
  }
  FAIL("TURNKEY_SCHEDULE names no pair: ", schedule);
}

}  // namespace

TEST_CASE(
    "1, 2, 2.11, 3.3, 6.1, 6.3, 6.5, 7.1, 8.4, 10.1, 10.3, 10.4 every meeting of two operations on a key ends "
    "well, whoever goes first") {
  if (const char* const one = std::getenv("TURNKEY_SCHEDULE")) return replay(one);  // NOLINT(concurrency-mt-unsafe)
  const auto began = std::chrono::steady_clock::now();
  const std::uint64_t cap = number_in("TURNKEY_EXPLORATION_CAP", 4000);
  sums sum;
  const auto pairs = all_pairs();
  for (const scenario& s : pairs) {
    director d(director::mode::search);
    d.search(1);
    const std::uint64_t with_one = try_all(s, d, sum);
    const std::uint64_t one_in = with_one * with_one / 2 / cap;
    d.search(2, one_in);
    if (with_one != 0) try_all(s, d, sum);
    sum.capped += one_in > 1;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  MESSAGE(sum.schedules, " schedules of ", pairs.size(), " meetings with at most 2 preemptions, ",
          static_cast<std::uint64_t>(static_cast<double>(sum.schedules) / took.count()), " a second; ", sum.capped,
          " meetings have more than ", cap, ": all first preemptions, and evenly as many second ones");
}

TEST_CASE("1, 2, 2.11, 3.3, 6.1, 6.3, 6.5, 7.1, 8.4, 10.1, 10.3 walks over three threads end well") {
  if (std::getenv("TURNKEY_SCHEDULE") != nullptr) return;  // NOLINT(concurrency-mt-unsafe)
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(number_in("TURNKEY_EXPLORATION_SECONDS", 5));
  director d(director::mode::walk);
  std::uint64_t seed = 1;
  for (; seed <= 200 || std::chrono::steady_clock::now() < end; ++seed)
    if (!walk(seed, d)) break;
  --seed;
  MESSAGE(seed, " random walks");
}
