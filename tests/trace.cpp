#include <turnkey/testing.hpp>
#include <turnkey/trace.hpp>
#include <turnkey/turnkey.hpp>

#include <support/json.hpp>
#include <support/stage.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iomanip>
#include <latch>
#include <locale>
#include <map>
#include <ostream>
#include <random>
#include <set>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

using support::json;
using turnkey::event;
using turnkey::event_kind;
using turnkey::outcome;
using turnkey::policy;
using turnkey::retry_policy;
using turnkey::task_id;
using turnkey::time_point;
using turnkey::trace;
using namespace std::chrono_literals;

namespace {

template <class Key>
std::string written(const trace<Key>& t) {
  std::ostringstream out;
  t.write(out);
  return out.str();
}

std::string with_ids(std::string text, const std::map<std::string, task_id>& ids) {
  for (const auto& [name, id] : ids)
    for (std::size_t at = text.find(name); at != std::string::npos; at = text.find(name))
      text.replace(at, name.size(), std::to_string(static_cast<std::uint64_t>(id)));
  return text;
}

// What a trace wrote, as a viewer reads it.
class view {
 public:
  template <class Key>
  explicit view(const trace<Key>& t) : file_(support::json_reader::read(written(t))) {
    for (const json& e : events())
      if (e["ph"].text == "M" && e["name"].text == "thread_name") names_[e["tid"].text] = e["args"]["name"].text;
  }

  [[nodiscard]] const json& other() const { return file_["otherData"]; }
  [[nodiscard]] const std::vector<json>& events() const { return file_["traceEvents"].elements; }
  [[nodiscard]] std::vector<std::string> tracks() const {
    std::vector<std::string> all;
    for (const json& e : events())
      if (e["name"].text == "thread_name") all.push_back(e["args"]["name"].text);
    return all;
  }

  // What stands on a track: "phase name @ time + duration", in microseconds.
  [[nodiscard]] std::vector<std::string> on(const std::string& track) const {
    std::vector<std::string> all;
    for (const json& e : events()) {
      const std::string phase = e["ph"].text;
      if (phase == "M" || track != track_of(e)) continue;
      std::string line = phase + ' ' + e["name"].text + " @ " + e["ts"].text;
      if (e.has("dur")) line += " + " + e["dur"].text;
      all.push_back(line);
    }
    return all;
  }

  [[nodiscard]] std::string track_of(const json& e) const {
    const auto found = names_.find(e["tid"].text);
    return found == names_.end() ? std::string() : found->second;
  }

 private:
  json file_;
  std::map<std::string, std::string> names_;
};

using lines = std::vector<std::string>;

struct point {
  int x;
  int y;
  friend std::ostream& operator<<(std::ostream& out, const point& p) { return out << p.x << '/' << p.y; }
};

// Tells a trace of events that are made up. Times are microseconds.
class teller {
 public:
  explicit teller(const trace<std::string>& t) : hear_(t.observer()) {}

  void operator()(event_kind kind, const std::string& key, std::uint64_t number, std::uint64_t id, int time,
                  int due = 0) const {
    hear_({.kind = kind,
           .number = number,
           .id = task_id{id},
           .key = &key,
           .attempt = 1,
           .time = at(time),
           .due = due == 0 ? time_point{} : at(due)});
  }

 private:
  static time_point at(int time) { return time_point{1h + std::chrono::microseconds{time}}; }

  turnkey::observer<std::string> hear_;
};

}  // namespace

TEST_CASE("9.4 trace: a whole run as Chrome trace-event JSON") {
  trace<int> trace;
  task_id flaky{};
  task_id dying{};
  task_id resting{};
  task_id cancelled{};
  {
    turnkey::testing::manual_executor pool;
    turnkey::testing::manual_time time;
    turnkey::scheduler<int> tasks(pool, {.retry = retry_policy{.max_attempts = 2, .initial_delay = 100ms, .jitter = 0},
                                         .observer = trace.observer(),
                                         .time = &time});
    flaky = tasks.submit(7, {.policy = policy::ordered}, [&time, n = 0]() mutable {
      time.jump(3ms);
      return ++n < 2 ? outcome::retry("busy") : outcome::success();
    });
    time.jump(1ms);
    pool.run_all();
    dying = tasks.submit(8, [&time] {
      time.jump(2500ns);
      return outcome::dead();
    });
    pool.run_all();
    time.advance(100ms);
    pool.run_all();
    pool.set_mode(turnkey::testing::on_offer::refuse);
    resting = tasks.submit({.delay = 1h}, [] {});
    time.jump(1us);
    cancelled = tasks.submit([] {});
    tasks.cancel(cancelled);
    time.jump(1us);
  }
  const std::string expected =
      R"json({"displayTimeUnit":"ns","otherData":{"events":13,"dropped_older_events":0},"traceEvents":[
{"ph":"M","pid":1,"tid":1,"name":"process_name","args":{"name":"threads"}},
{"ph":"M","pid":2,"tid":2,"name":"process_name","args":{"name":"keys"}},
{"ph":"M","pid":1,"tid":3,"name":"thread_name","args":{"name":"worker 1"}},
{"ph":"M","pid":2,"tid":68,"name":"thread_name","args":{"name":"7"}},
{"ph":"M","pid":2,"tid":69,"name":"thread_name","args":{"name":"8"}},
{"ph":"M","pid":2,"tid":70,"name":"thread_name","args":{"name":"no key"}},
{"ph":"X","pid":1,"tid":3,"ts":0.000,"name":"submit task FLAKY","dur":0.000,"args":{"task":FLAKY,"policy":"ordered"}},
{"ph":"s","pid":1,"tid":3,"ts":0.000,"name":"life 1","cat":"turnkey","id":FLAKY},
{"ph":"X","pid":1,"tid":3,"ts":4000.000,"name":"submit task DYING","dur":0.000,"args":{"task":DYING,"policy":"parallel"}},
{"ph":"s","pid":1,"tid":3,"ts":4000.000,"name":"life 1","cat":"turnkey","id":DYING},
{"ph":"X","pid":1,"tid":3,"ts":107002.500,"name":"submit task RESTING","dur":0.000,"args":{"task":RESTING,"policy":"parallel"}},
{"ph":"s","pid":1,"tid":3,"ts":107002.500,"name":"life 1","cat":"turnkey","id":RESTING},
{"ph":"X","pid":1,"tid":3,"ts":107003.500,"name":"submit task CANCELLED","dur":0.000,"args":{"task":CANCELLED,"policy":"parallel"}},
{"ph":"s","pid":1,"tid":3,"ts":107003.500,"name":"life 1","cat":"turnkey","id":CANCELLED},
{"ph":"X","pid":1,"tid":3,"ts":1000.000,"name":"7","dur":3000.000,"cname":"bad","args":{"task":FLAKY,"policy":"ordered","attempt":1,"fence":1,"end":"failed","reason":"asked"}},
{"ph":"f","pid":1,"tid":3,"ts":1000.000,"name":"life 1","cat":"turnkey","id":FLAKY,"bp":"e"},
{"ph":"X","pid":1,"tid":3,"ts":4000.000,"name":"8","dur":2.500,"cname":"terrible","args":{"task":DYING,"policy":"parallel","attempt":1,"end":"dead","reason":"asked"}},
{"ph":"f","pid":1,"tid":3,"ts":4000.000,"name":"life 1","cat":"turnkey","id":DYING,"bp":"e"},
{"ph":"X","pid":1,"tid":3,"ts":104002.500,"name":"7","dur":3000.000,"args":{"task":FLAKY,"policy":"ordered","attempt":2,"fence":2,"end":"succeeded"}},
{"ph":"X","pid":2,"tid":68,"ts":1000.000,"name":"task FLAKY failed","dur":3000.000,"cname":"bad","args":{"task":FLAKY,"policy":"ordered","attempt":1,"fence":1,"end":"failed","reason":"asked"}},
{"ph":"X","pid":2,"tid":68,"ts":104002.500,"name":"task FLAKY succeeded","dur":3000.000,"args":{"task":FLAKY,"policy":"ordered","attempt":2,"fence":2,"end":"succeeded"}},
{"ph":"X","pid":2,"tid":68,"ts":4000.000,"name":"task FLAKY retry in 0.1 s","dur":100000.000,"cname":"grey"},
{"ph":"X","pid":2,"tid":69,"ts":4000.000,"name":"task DYING dead","dur":2.500,"cname":"terrible","args":{"task":DYING,"policy":"parallel","attempt":1,"end":"dead","reason":"asked"}},
{"ph":"X","pid":2,"tid":70,"ts":107002.500,"name":"task RESTING due in 3600 s","dur":2.000,"cname":"grey"},
{"ph":"i","pid":2,"tid":69,"ts":4002.500,"name":"task DYING dead","s":"t","args":{"reason":"asked"}},
{"ph":"i","pid":1,"tid":3,"ts":107003.500,"name":"executor refused","s":"t"},
{"ph":"i","pid":2,"tid":70,"ts":107003.500,"name":"task CANCELLED cancelled","s":"t"},
{"ph":"i","pid":2,"tid":70,"ts":107004.500,"name":"task RESTING undone","s":"t"}
]}
)json";
  CHECK(written(trace) ==
        with_ids(expected, {{"FLAKY", flaky}, {"DYING", dying}, {"RESTING", resting}, {"CANCELLED", cancelled}}));
}

TEST_CASE("9.4 trace: attempts stand on the tracks of their worker and their key, and an arrow leads there") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::submitted, "a", 1, 5, 10);
  std::thread([&tell] { tell(event_kind::started, "a", 2, 5, 20); }).join();
  tell(event_kind::succeeded, "a", 3, 5, 30);
  const view seen(trace);
  CHECK(seen.tracks() == lines{"thread 1", "worker 2", "a"});
  CHECK(seen.on("thread 1") == lines{"X submit task 5 @ 0.000 + 0.000", "s life 1 @ 0.000"});
  CHECK(seen.on("worker 2") == lines{"X a @ 10.000 + 10.000", "f life 1 @ 10.000"});
  CHECK(seen.on("a") == lines{"X task 5 succeeded @ 10.000 + 10.000"});
}

TEST_CASE("9.4 trace: a redriven task has an arrow for each life") {
  trace<std::string> trace;
  const teller tell(trace);
  int time = 0;
  for (const auto kind : {event_kind::submitted, event_kind::started, event_kind::dead, event_kind::redriven,
                          event_kind::started, event_kind::dead, event_kind::discarded}) {
    ++time;
    tell(kind, "a", static_cast<std::uint64_t>(time), 5, time);
  }
  const view seen(trace);
  CHECK(seen.on("worker 1") == lines{"X submit task 5 @ 0.000 + 0.000", "s life 1 @ 0.000",
                                     "X redrive task 5 @ 3.000 + 0.000", "s life 2 @ 3.000", "X a @ 1.000 + 1.000",
                                     "f life 1 @ 1.000", "X a @ 4.000 + 1.000", "f life 2 @ 4.000"});
  CHECK(seen.on("a") == lines{"X task 5 dead @ 1.000 + 1.000", "X task 5 dead @ 4.000 + 1.000", "i task 5 dead @ 2.000",
                              "i task 5 dead @ 5.000", "i task 5 discarded @ 6.000"});
}

TEST_CASE("9.4 trace: events may come in any order") {
  struct told {
    event_kind kind;
    std::uint64_t number;
    std::uint64_t id;
    int time;
  };
  const std::vector<told> all{{event_kind::submitted, 1, 5, 10}, {event_kind::submitted, 2, 6, 10},
                              {event_kind::started, 3, 5, 20},   {event_kind::failed, 4, 5, 30},
                              {event_kind::started, 5, 6, 30},   {event_kind::succeeded, 6, 6, 40},
                              {event_kind::started, 7, 5, 50},   {event_kind::succeeded, 8, 5, 60}};
  std::vector<std::size_t> order{0, 1, 2, 3, 4, 5, 6, 7};
  std::string expected;
  for (int i = 0; i != 100; ++i) {
    CAPTURE(i);
    trace<std::string> trace;
    const teller tell(trace);
    for (const std::size_t each : order) tell(all[each].kind, "a", all[each].number, all[each].id, all[each].time);
    if (expected.empty()) expected = written(trace);
    CHECK(written(trace) == expected);
    std::shuffle(order.begin(), order.end(), std::mt19937{static_cast<unsigned>(i)});
  }
}

// A worker reads its clock before it takes the lock under which it starts a task: the start may seem to precede the
// submit, or the end of the key's last attempt, and viewers then drop the arrow, or draw the one inside the other.
TEST_CASE("9.4 trace: what a number says came later is not drawn earlier") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::submitted, "a", 1, 5, 10);
  tell(event_kind::submitted, "a", 2, 6, 12);
  tell(event_kind::started, "a", 3, 5, 9);
  tell(event_kind::succeeded, "a", 4, 5, 20);
  std::thread([&tell] { tell(event_kind::started, "a", 5, 6, 19); }).join();
  tell(event_kind::succeeded, "a", 6, 6, 30);
  const view seen(trace);
  CHECK(seen.on("a") == lines{"X task 5 succeeded @ 2.000 + 8.000", "X task 6 succeeded @ 10.000 + 10.000"});
  CHECK(seen.on("worker 2") == lines{"X a @ 10.000 + 10.000", "f life 1 @ 10.000"});
}

TEST_CASE("9.4 trace: that holds for each task where keys share a track, and only for each task") {
  trace<std::string> trace({.max_keys = 1});
  const teller tell(trace);
  tell(event_kind::evicted, "a", 1, 1, 10);
  tell(event_kind::submitted, "b", 4, 5, 20);
  tell(event_kind::started, "b", 5, 5, 19);
  tell(event_kind::succeeded, "b", 6, 5, 30);
  tell(event_kind::evicted, "c", 9, 6, 15);
  CHECK(view(trace).on("other keys") == lines{"X task 5 succeeded @ 10.000 + 10.000", "i task 6 evicted @ 5.000"});
}

TEST_CASE("9.4 trace: attempts and rests of a key that overlap stand side by side") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::started, "a", 1, 5, 10);
  std::thread([&tell] { tell(event_kind::started, "a", 2, 6, 20); }).join();
  tell(event_kind::failed, "a", 3, 5, 30, 45);
  tell(event_kind::succeeded, "a", 4, 6, 40);
  tell(event_kind::started, "a", 5, 5, 50);
  tell(event_kind::succeeded, "a", 6, 5, 60);
  const view seen(trace);
  CHECK(seen.tracks() == lines{"worker 1", "worker 2", "a", "a (2)"});
  CHECK(seen.on("a") == lines{"X task 5 failed @ 0.000 + 20.000", "X task 5 succeeded @ 40.000 + 10.000",
                              "X task 5 retry in 1.5e-05 s @ 20.000 + 15.000"});
  CHECK(seen.on("a (2)") == lines{"X task 6 succeeded @ 10.000 + 20.000"});
}

TEST_CASE("9.4 trace: the attempts of an exclusive key stand on one track, whatever rests meanwhile") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::started, "a", 1, 5, 10);
  tell(event_kind::failed, "a", 2, 5, 20, 45);
  tell(event_kind::started, "a", 3, 6, 30);
  tell(event_kind::failed, "a", 4, 6, 40, 50);
  tell(event_kind::started, "a", 5, 5, 50);
  tell(event_kind::succeeded, "a", 6, 5, 60);
  const view seen(trace);
  CHECK(seen.on("a") == lines{"X task 5 failed @ 0.000 + 10.000", "X task 6 failed @ 20.000 + 10.000",
                              "X task 5 succeeded @ 40.000 + 10.000", "X task 6 retry in 1e-05 s @ 30.000 + 10.000"});
  CHECK(seen.on("a (2)") == lines{"X task 5 retry in 2.5e-05 s @ 10.000 + 25.000"});
}

TEST_CASE("9.4 trace: a rest ends early with what ended it, and does not outlast the trace") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::submitted, "a", 1, 5, 10, 90);
  tell(event_kind::cancelled, "a", 2, 5, 20);
  tell(event_kind::started, "b", 3, 6, 10);
  tell(event_kind::postponed, "b", 4, 6, 20, 1'000'000'000);
  const view seen(trace);
  CHECK(seen.on("a") == lines{"X task 5 due in 8e-05 s @ 0.000 + 10.000", "i task 5 cancelled @ 10.000"});
  CHECK(seen.on("b") == lines{"X task 6 postponed @ 0.000 + 10.000", "X task 6 due in 999.99998 s @ 10.000 + 0.000"});
}

TEST_CASE("9.4 trace: an attempt that runs is drawn up to the last event; an end without its start is an instant") {
  trace<std::string> trace({.max_events = 2});
  const teller tell(trace);
  tell(event_kind::started, "a", 1, 5, 10);
  tell(event_kind::started, "a", 2, 6, 20);
  tell(event_kind::succeeded, "a", 3, 5, 50);
  const view seen(trace);
  CHECK(seen.on("a") == lines{"X task 6 runs @ 0.000 + 30.000", "i task 5 succeeded @ 30.000"});
}

TEST_CASE("9.4 trace: a worker that went on is done with an attempt whose end came later") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::started, "a", 1, 5, 10);
  tell(event_kind::started, "b", 1, 6, 20);
  tell(event_kind::succeeded, "b", 2, 6, 30);
  tell(event_kind::succeeded, "a", 2, 5, 40);
  const view seen(trace);
  CHECK(seen.on("worker 1") == lines{"X a @ 0.000 + 10.000", "X b @ 10.000 + 10.000"});
  CHECK(seen.on("a") == lines{"X task 5 succeeded @ 0.000 + 30.000"});
}

TEST_CASE("7.1, 9.4 trace: a deferred attempt that another thread settles is drawn to its end on its key's track") {
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::started, "a", 1, 5, 10);
  tell(event_kind::started, "b", 1, 6, 20);
  tell(event_kind::succeeded, "b", 2, 6, 30);
  tell(event_kind::started, "b", 3, 7, 35);
  std::thread([&tell] {
    tell(event_kind::succeeded, "a", 2, 5, 50);
    tell(event_kind::failed, "b", 4, 7, 60, 70);
  }).join();
  const view seen(trace);
  CHECK(seen.tracks() == lines{"worker 1", "a", "b"});  // who settles is no worker
  CHECK(seen.on("worker 1") == lines{"X a @ 0.000 + 10.000", "X b @ 10.000 + 10.000", "X b @ 25.000 + 25.000"});
  CHECK(seen.on("a") == lines{"X task 5 succeeded @ 0.000 + 40.000"});
  CHECK(seen.on("b") == lines{"X task 6 succeeded @ 10.000 + 10.000", "X task 7 failed @ 25.000 + 25.000",
                              "X task 7 retry in 1e-05 s @ 50.000 + 0.000"});
}

TEST_CASE("7.2, 9.4 trace: an expired lease is an instant inside its attempt, a lost one ends it") {
  trace<std::string> trace;
  stage on({.lease_time = 5s, .lease_expiry = turnkey::lease_expiry::release, .observer = trace.observer()});
  turnkey::completion c;
  const auto lost = on.tasks.submit("a", {.policy = policy::exclusive}, [&c](turnkey::attempt& a) { c = a.defer(); });
  const auto next = on.tasks.submit("a", {.policy = policy::exclusive}, [&on] { on.time.jump(7s); });
  on.run();
  on.pass(5s);
  const auto id = [](task_id t) { return std::to_string(static_cast<std::uint64_t>(t)); };
  CHECK(view(trace).on("a") == lines{"X task " + id(lost) + " dead @ 0.000 + 5000000.000",
                                     "X task " + id(next) + " succeeded @ 5000000.000 + 7000000.000",
                                     "i task " + id(lost) + " lease expired @ 5000000.000",
                                     "i task " + id(lost) + " dead @ 5000000.000",
                                     "i task " + id(next) + " lease expired @ 12000000.000"});
}

// ---- bounds

TEST_CASE("9.4 trace: the newest events are kept, and the dropped ones counted where a reader sees it") {
  trace<std::string> trace({.max_events = 4});
  const teller tell(trace);
  for (int i = 0; i != 4; ++i) tell(event_kind::evicted, "a", 1, static_cast<std::uint64_t>(i), i);
  CHECK(view(trace).other()["dropped_older_events"].number == 0);
  for (int i = 4; i != 11; ++i) tell(event_kind::evicted, "a", 1, static_cast<std::uint64_t>(i), i);
  const view seen(trace);
  CHECK(seen.on("a") == lines{"i task 7 evicted @ 0.000", "i task 8 evicted @ 1.000", "i task 9 evicted @ 2.000",
                              "i task 10 evicted @ 3.000"});
  CHECK(seen.other()["events"].number == 4);
  CHECK(seen.other()["dropped_older_events"].number == 7);
  CHECK(seen.on("") == lines{"i 7 older events were dropped @ 0.000"});
}

TEST_CASE("9.4 trace: the first max_keys keys have tracks, the others share one; a key that left makes room") {
  trace<std::string> trace({.max_events = 4, .max_keys = 2});
  const teller tell(trace);
  auto evict = [&tell, id = 0](const char* key) mutable {
    ++id;
    tell(event_kind::evicted, key, 1, static_cast<std::uint64_t>(id), id);
  };
  for (const char* key : {"a", "b", "c", "d"}) evict(key);
  CHECK(view(trace).tracks() == lines{"a", "b", "other keys"});
  for (const char* key : {"b", "b", "c"}) evict(key);
  CHECK(view(trace).tracks() == lines{"c", "b", "other keys"});  // an older c is among the others
  for (const char* key : {"e", "f", "e", "f"}) evict(key);
  CHECK(view(trace).tracks().size() == 2 + 1);
  for (const char* key : {"g", "h", "g", "h"}) evict(key);
  CHECK(view(trace).tracks().size() <= 2 + 1);
}

TEST_CASE("9.4 trace: threads beyond max_threads share a track") {
  trace<std::string> trace({.max_threads = 2});
  const teller tell(trace);
  std::latch all{4};  // who is gone may leave its id to the next
  std::vector<std::thread> threads;
  for (std::uint64_t id = 1; id != 5; ++id)
    threads.emplace_back([&tell, &all, id] {
      tell(event_kind::submitted, "a", id, id, 1);
      all.arrive_and_wait();
    });
  for (std::thread& each : threads) each.join();
  const view seen(trace);
  CHECK(seen.tracks() == lines{"thread 1", "thread 2", "other threads"});
  CHECK(seen.on("other threads").size() == 2 * 2);
}

// ---- keys as text

TEST_CASE("9.4 trace: names are JSON strings whatever is in the key") {
  trace<std::string> trace;
  const teller tell(trace);
  const std::string odd("a\"b\\c\n\t\x01\x1f\0z\x7f\xc3\xa4\xff\xed\xa0\x80", 18);
  tell(event_kind::evicted, odd, 1, 1, 1);
  const std::string bad = "\xEF\xBF\xBD";
  const view seen(trace);
  CHECK(seen.tracks() == lines{std::string("a\"b\\c\n\t\x01\x1f\0z\x7f\xc3\xa4", 14) + bad + bad + bad + bad});
}

TEST_CASE("9.4 trace: a key reads as a string, by its digits, as << prints it, or as asked") {
  const auto shown = [](const auto& trace, const auto& key) {
    trace.observer()({.kind = event_kind::evicted, .key = &key});
    return view(trace).tracks().at(0);
  };
  CHECK(shown(trace<std::string_view>(), std::string_view("view")) == "view");
  CHECK(shown(trace<std::int64_t>(), INT64_MIN) == "-9223372036854775808");
  CHECK(shown(trace<std::uint64_t>(), UINT64_MAX) == "18446744073709551615");
  CHECK(shown(trace<point>(), point{1, 2}) == "1/2");
  CHECK(shown(trace<point>({}, [](const point& p) { return "x" + std::to_string(p.x); }), point{1, 2}) == "x1");
  CHECK(shown(trace<std::string>(), std::string(100, 'k')) == std::string(64, 'k'));
}

TEST_CASE("9.4 trace: long keys that begin alike are told apart") {
  trace<std::string> trace;
  const teller tell(trace);
  for (const char* end : {"a", "b"}) tell(event_kind::evicted, std::string(100, 'k') + end, 1, 1, 1);
  CHECK(view(trace).tracks().size() == 2);
}

// ---- living together

TEST_CASE("9.4 trace: options without sense are refused by name") {
  for (const std::size_t bad : {std::size_t{0}, ~std::size_t{0}}) {
    const std::string value = std::to_string(bad) + "; from 1 to 1073741824";
    CHECK_THROWS_WITH_AS(trace<int>({.max_events = bad}), ("turnkey: trace option max_events is " + value).c_str(),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(trace<int>({.max_keys = bad}), ("turnkey: trace option max_keys is " + value).c_str(),
                         std::invalid_argument);
    CHECK_THROWS_WITH_AS(trace<int>({.max_threads = bad}), ("turnkey: trace option max_threads is " + value).c_str(),
                         std::invalid_argument);
  }
}

TEST_CASE("9.4 trace: nothing happened, and the file is whole") {
  const view seen{trace<int>()};
  CHECK(seen.events().size() == 2);  // the names of the two processes
  CHECK(seen.other()["events"].number == 0);
}

TEST_CASE("9.4 trace: the observer may outlive the trace") {
  turnkey::options<std::string> options;
  {
    const trace<std::string> trace;
    options.observer = trace.observer();
  }
  stage on(std::move(options));
  on.tasks.submit("a", [] {});
  on.run();
  CHECK(on.tasks.stats().succeeded == 1);
}

TEST_CASE("9.4 trace: the stream's flags and locale do not show") {
  struct grouped : std::numpunct<char> {
    std::string do_grouping() const override { return "\3"; }
    char do_thousands_sep() const override { return '.'; }
  };
  trace<std::string> trace;
  const teller tell(trace);
  tell(event_kind::evicted, "a", 1, 1234567, 1);
  std::ostringstream out;
  out.imbue(std::locale(std::locale::classic(), new grouped));
  out << std::hex << std::setw(9999);
  trace.write(out);
  CHECK(out.str() == written(trace));
}

TEST_CASE("9.4 trace: no text is lost when much is written") {
  trace<std::string> trace;
  const teller tell(trace);
  for (int i = 0; i != 5000; ++i) tell(event_kind::evicted, "a", 1, static_cast<std::uint64_t>(i), i);
  CHECK(view(trace).on("a").size() == 5000);
}

TEST_CASE("9.4 trace: threads may tell and write at once, and slices of a track never overlap") {
  trace<int> trace;
  std::atomic<bool> over{false};
  std::thread reader([&] {
    while (!over) static_cast<void>(view(trace));
  });
  {
    turnkey::thread_pool pool(3);
    turnkey::scheduler<int> tasks(
        pool, {.retry = retry_policy{.max_attempts = 2, .initial_delay = 1us}, .observer = trace.observer()});
    for (int i = 0; i != 2000; ++i)
      tasks.submit(i % 7, {.policy = static_cast<policy>(i % 3)},
                   [i, n = 0]() mutable { return ++n == 1 && i % 5 == 0 ? outcome::retry() : outcome::success(); });
    CHECK(tasks.drain() == turnkey::drain_result::drained);
  }
  over = true;
  reader.join();
  const view seen(trace);
  std::map<std::string, std::vector<std::pair<double, double>>> slices;  // by track
  std::map<std::string, int> phases;
  std::set<std::string> arrows;
  for (const json& e : seen.events()) {
    ++phases[e["ph"].text];
    if (e["ph"].text == "s") arrows.insert(e["id"].text);
    if (e["ph"].text == "f") CHECK(arrows.contains(e["id"].text));
    if (e["ph"].text == "X" && e["dur"].number > 0)
      slices[e["tid"].text].emplace_back(e["ts"].number, e["ts"].number + e["dur"].number);
  }
  CHECK(phases["s"] == 2000);
  CHECK(phases["f"] == 2000);
  CHECK(arrows.size() == 2000);
  bool overlap = false;
  for (auto& [track, all] : slices) {
    std::sort(all.begin(), all.end());
    for (std::size_t i = 1; i < all.size(); ++i) overlap = overlap || all[i].first < all[i - 1].second - 0.0005;
  }
  CHECK(!overlap);
}
