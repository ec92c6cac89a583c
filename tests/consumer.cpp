// Rule 7.6, sentence by sentence, and a random run against a simple model of what each message must see.
#include <turnkey/consumer.hpp>
#include <turnkey/testing.hpp>

#include "support/dice.hpp"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using turnkey::batch;
using turnkey::dead_action;
using turnkey::drain_result;
using turnkey::options;
using turnkey::outcome;
using turnkey::policy;
using turnkey::reject_reason;
using turnkey::retry_policy;

using int_batch = batch<std::string, int>;
using int_consumer = turnkey::consumer<std::string, int>;

constexpr retry_policy three{.max_attempts = 3, .initial_delay = 10ms, .multiplier = 1, .jitter = 0};

options<std::string> under(policy p, std::optional<retry_policy> retry = three) {
  return {.default_policy = p, .retry = retry};
}

// A consumer of numbers whose executor and clock move when told; it writes down its batches as "key:1,2,3".
struct stage {
  explicit stage(options<std::string> o, std::size_t max_batch = 4)
      : messages(pool, with_time(std::move(o)), max_batch, [this](int_batch& b) { return handle(b); }) {}

  outcome handle(int_batch& b) {
    std::string line = b.key() + ":";
    for (std::size_t i = 0; i != b.size(); ++i) line += (i != 0 ? "," : "") + std::to_string(b[i]);
    if (b.number() != 1) line += "#" + std::to_string(b.number());
    seen.push_back(line);
    return says ? says(b) : outcome::success();
  }
  void send(const std::string& key, int from, int to) {
    for (int i = from; i <= to; ++i) messages.send(key, int{i});
  }
  void run() { pool.run_all(); }
  void pass(turnkey::duration by) {
    const turnkey::time_point end = time.now() + by;
    run();
    while (const auto next = time.next_wake()) {
      if (*next > end) break;
      time.jump(*next - time.now());
      run();
    }
    time.jump(end - time.now());
  }
  std::string all_seen() {
    std::string all;
    for (const std::string& s : seen) all += (all.empty() ? "" : " ") + s;
    seen.clear();
    return all;
  }
  options<std::string> with_time(options<std::string> o) {
    o.time = &time;
    return o;
  }

  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  std::function<outcome(int_batch&)> says;
  std::vector<std::string> seen;
  int_consumer messages;
};

// Fails message `bad` while `times` lasts, the others succeed; a batch with it fails from it on.
auto poison(int bad, int times = 1'000) {
  return [bad, left = times](int_batch& b) mutable {
    for (std::size_t i = 0; i != b.size(); ++i) {
      if (b[i] != bad || left == 0) continue;
      --left;
      b.fail(i, "poison");
    }
    return outcome::success();
  };
}

std::string given_back(int_consumer& c) {
  std::string all;
  for (const auto& each : c.stop()) all += (all.empty() ? "" : " ") + each.key + std::to_string(each.message);
  return all;
}

}  // namespace

TEST_CASE("7.6 consumer: takes consecutive waiting messages of one key, at most max_batch, in order") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.send("a", 1, 6);
    s.send("b", 7, 7);
    s.run();
    const std::string seen = s.all_seen();
    CHECK(seen.find("a:1,2,3,4") != std::string::npos);
    CHECK(seen.find("a:5,6") != std::string::npos);
    CHECK(seen.find("b:7") != std::string::npos);
    CHECK(s.messages.drain() == drain_result::drained);
    const auto stats = s.messages.stats();
    CHECK(stats.accepted == 7);
    CHECK(stats.succeeded == 7);
    CHECK(stats.batches == 3);
    CHECK(stats.unfinished == 0);
    CHECK(stats.tasks.keys == 0);
  }
}

TEST_CASE("7.6 consumer: a key with more to do goes on behind what is ready, so keys take turns") {
  stage s(under(policy::ordered), 2);
  s.send("a", 1, 80);
  s.send("b", 100, 100);
  s.run();
  std::size_t at = 0;
  while (s.seen[at] != "b:100") ++at;
  CHECK(at <= 16);  // a turn
}

TEST_CASE("7.6 consumer: a handler may take a span, a key and a span, or a batch; messages may be move-only") {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  options<int> o{.default_policy = policy::ordered, .time = &time};
  using message = std::unique_ptr<int>;
  int sum = 0;
  turnkey::consumer<int, message> spans(pool, o, 8, [&](std::span<message> all) {
    for (message& m : all) sum += *std::exchange(m, nullptr);
  });
  turnkey::consumer<int, message> keyed(pool, o, 8, [&](const int& key, std::span<message> all) {
    sum += key;
    for (const message& m : all) sum += *m;
  });
  turnkey::consumer<int, message> whole(pool, o, 8, [&](batch<int, message>& b) {
    sum += static_cast<int>(b.size()) * b.key();
    CHECK(b.has_lease());
    CHECK(b.fence() != 0);
    CHECK_FALSE(b.stop_requested());
    return outcome::success();
  });
  spans.send(1, std::make_unique<int>(10));
  keyed.send(100, std::make_unique<int>(1000));
  whole.send(10'000, std::make_unique<int>(3));
  pool.run_all();
  CHECK(sum == 11'110);
}

TEST_CASE("7.6 consumer: under exclusive and ordered one batch of a key is outstanding, under parallel several") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p), 1);
    int depth = 0;
    int deepest = 0;
    s.says = [&](int_batch&) {
      deepest = std::max(deepest, ++depth);
      std::thread([&] { s.pool.run_all(); }).join();  // what else may run, does
      --depth;
      return outcome::success();
    };
    s.send("a", 1, 3);
    s.run();
    CHECK(deepest == (p == policy::parallel ? 3 : 1));
    CHECK(s.seen.size() == 3);
  }
}

TEST_CASE("7.6 ordered: what the handler returns counts for all of the batch, and each comes again alone") {
  stage s(under(policy::ordered));
  bool first = true;
  s.says = [&](int_batch&) { return std::exchange(first, false) ? outcome::retry("busy") : outcome::success(); };
  s.send("a", 1, 6);
  s.run();
  CHECK(s.all_seen() == "a:1,2,3,4");
  CHECK(s.messages.stats().failed_attempts == 4);
  s.pass(10ms);
  CHECK(s.all_seen() == "a:1#2 a:2#2 a:3#2 a:4#2 a:5,6");
  CHECK(s.messages.stats().succeeded == 6);
}

TEST_CASE("7.6 consumer: an exception counts for all of the batch") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p, std::nullopt));
    s.says = [](int_batch&) -> outcome { throw std::runtime_error("no"); };
    s.send("a", 1, 3);
    s.run();
    CHECK(s.all_seen() == "a:1,2,3");
    const auto dead = s.messages.dead_messages();
    REQUIRE(dead.size() == 3);
    for (const auto& d : dead) {
      CHECK(d.error.reason() == turnkey::failure_reason::threw);
      CHECK(d.error.text() == "no");
      CHECK(d.attempts == 1);
      CHECK(d.key == "a");
    }
    CHECK(s.messages.stats().died == 3);
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 ordered: failing message i leaves those before it succeeded and brings it and all after it back") {
  stage s(under(policy::ordered));
  s.says = poison(2, 1);
  s.send("a", 1, 6);
  s.run();
  CHECK(s.all_seen() == "a:1,2,3,4");
  CHECK(s.messages.stats().succeeded == 1);
  CHECK(s.messages.stats().failed_attempts == 1);
  s.pass(9ms);
  CHECK(s.all_seen() == "");
  s.pass(1ms);
  CHECK(s.all_seen() == "a:2#2 a:3,4,5,6");  // those not reached: their first attempt
}

TEST_CASE("7.6 ordered: thrown after some were settled, only the first unsettled one has failed") {
  stage s(under(policy::ordered));
  bool first = true;
  s.says = [&](int_batch& b) {
    if (!std::exchange(first, false)) return outcome::success();
    b.succeed(0);
    throw std::runtime_error("at the second");
  };
  s.send("a", 1, 4);
  s.pass(10ms);
  CHECK(s.all_seen() == "a:1,2,3,4 a:2#2 a:3,4");
  CHECK(s.messages.stats().failed_attempts == 1);
}

TEST_CASE("7.6 exclusive, parallel: a failed message retries alone and the others pass it") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.says = poison(2, 2);
    s.send("a", 1, 6);
    s.run();
    CHECK(s.messages.stats().succeeded == 5);
    s.all_seen();
    s.pass(10ms);
    CHECK(s.all_seen() == "a:2#2");
    s.send("a", 7, 8);
    s.run();
    CHECK(s.all_seen() == "a:7,8");
    s.pass(10ms);
    CHECK(s.all_seen() == "a:2#3");
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: a poison message takes nobody with it, dies by its own attempts and lies in the dead store") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.says = poison(2);
    s.send("a", 1, 6);
    s.pass(1s);
    const auto stats = s.messages.stats();
    CHECK(stats.succeeded == 5);
    CHECK(stats.failed_attempts == 3);
    CHECK(stats.died == 1);
    CHECK(stats.dead == 1);
    CHECK(stats.unfinished == 0);
    CHECK(s.messages.drain() == drain_result::drained);
    const auto dead = s.messages.dead_messages();
    REQUIRE(dead.size() == 1);
    CHECK(dead[0].attempts == 3);
    CHECK(dead[0].error.text() == "poison");
  }
}

TEST_CASE("7.6 consumer: a dead message is redriven with fresh attempts, or discarded") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.says = poison(2, 4);
    s.send("a", 1, 3);
    s.pass(1s);
    s.all_seen();
    CHECK(s.messages.redrive("a") == 1);
    CHECK(s.messages.dead_messages().empty());
    s.run();
    CHECK(s.all_seen() == "a:2");
    s.pass(10ms);
    CHECK(s.all_seen() == "a:2#2");
    CHECK(s.messages.stats().succeeded == 3);
    s.says = poison(5);
    s.send("a", 5, 5);
    s.pass(1s);
    REQUIRE(s.messages.dead_messages().size() == 1);
    CHECK(s.messages.discard(s.messages.dead_messages()[0].id));
    CHECK(s.messages.stats().dead == 0);
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 ordered, exclusive: redriven messages go in their order, before all that wait") {
  for (const policy p : {policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p, std::nullopt), 2);
    s.says = [](int_batch& b) { return b[0] < 5 ? outcome::dead("no") : outcome::success(); };
    s.send("a", 1, 4);
    s.run();
    REQUIRE(s.messages.dead_messages().size() == 4);
    s.all_seen();
    s.says = nullptr;
    s.messages.pause();
    s.send("a", 5, 7);
    CHECK(s.messages.redrive_all() == 4);
    s.messages.resume();
    s.run();
    CHECK(s.all_seen() == "a:1 a:2 a:3 a:4 a:5,6 a:7");
  }
}

TEST_CASE("7.6 ordered, exclusive: a redriven message goes before a driver that has gone on anew meanwhile") {
  for (const policy p : {policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p, std::nullopt), 1);
    s.says = [&](int_batch& b) {
      if (b[0] == 4) CHECK(s.messages.redrive("a") == 1);
      return b[0] == 2 ? outcome::dead() : outcome::success();
    };
    s.send("a", 1, 6);
    s.run();
    CHECK(s.all_seen() == "a:1 a:2 a:3 a:4 a:2 a:5 a:6");
    s.says = nullptr;
    CHECK(s.messages.redrive_all() == 1);
    s.run();
    CHECK(s.all_seen() == "a:2");
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: dropped with messages and dead ones in it, it destroys all of them") {
  const auto alive = std::make_shared<int>(0);
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    turnkey::testing::manual_executor pool;
    turnkey::testing::manual_time time;
    {
      turnkey::consumer<int, std::shared_ptr<int>> c(
          pool, {.default_policy = p, .retry = three, .time = &time}, 2,
          [](batch<int, std::shared_ptr<int>>& b) { return b.key() == 1 ? outcome::dead() : outcome::retry(); });
      for (int i = 0; i != 30; ++i) c.send(i % 3, std::shared_ptr<int>(alive));
      pool.run_one();
    }
    CHECK(alive.use_count() == 1);
  }
}

TEST_CASE("7.6 consumer: hold_key holds what waits behind a dead message until it is dealt with") {
  for (const policy p : {policy::exclusive, policy::ordered})
    for (const int how : {0, 1, 2}) {
      CAPTURE(turnkey::to_string(p));
      CAPTURE(how);
      options<std::string> o = under(p, std::nullopt);
      o.dead_action = dead_action::hold_key;
      stage s(o, 1);
      s.says = poison(2, 1);
      s.send("a", 1, 4);
      s.run();
      CHECK(s.all_seen() == "a:1 a:2");
      CHECK(s.messages.held_keys() == std::vector<std::string>{"a"});
      CHECK(s.messages.unfinished("a") == 2);
      CHECK(s.messages.drain_for(0s) == drain_result::timed_out);
      const auto dead = s.messages.dead_messages();
      REQUIRE(dead.size() == 1);
      if (how == 0) CHECK(s.messages.redrive(dead[0].id));
      if (how == 1) CHECK(s.messages.discard(dead[0].id));
      if (how == 2) CHECK(s.messages.release("a"));
      s.run();
      CHECK(s.all_seen() == (how == 0 ? "a:2 a:3 a:4" : "a:3 a:4"));
      CHECK(s.messages.drain() == drain_result::drained);
    }
}

TEST_CASE("7.6 consumer: postponed, nothing is counted; ordered keeps the place, and too often is death") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    retry_policy twice = three;
    twice.max_postpones = 2;
    stage s(under(p, twice));
    s.says = [](int_batch& b) { return b[0] == 1 ? outcome::postpone(1s) : outcome::success(); };
    s.send("a", 1, 1);
    s.run();
    s.send("a", 2, 3);
    s.run();
    CHECK(s.all_seen() == (p == policy::ordered ? "a:1" : "a:1 a:2,3"));
    s.pass(1s);
    CHECK(s.messages.stats().failed_attempts == 0);
    CHECK(s.messages.stats().postponed == (p == policy::ordered ? 4 : 2));  // 2 and 3 came with 1
    s.pass(1s);
    REQUIRE(s.messages.dead_messages().size() == 1);
    CHECK(s.messages.dead_messages()[0].error.reason() == turnkey::failure_reason::postponed_out);
    CHECK(s.messages.stats().succeeded == 2);
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: bad input is refused in clear words") {
  turnkey::testing::manual_executor pool;
  const auto ignore = [](std::span<int>) {};
  const options<std::string> ordered{.default_policy = policy::ordered};
  CHECK_THROWS_WITH_AS(int_consumer(pool, ordered, 0, ignore),
                       "turnkey: max_batch is 0; a batch has at least 1 message", std::invalid_argument);
  CHECK_THROWS_WITH_AS(int_consumer(pool, ordered, 1, std::function<void(std::span<int>)>()),
                       "turnkey: the handler is null or an empty function wrapper", std::invalid_argument);
  options<std::string> wrong = ordered;
  wrong.max_pending = 0;
  CHECK_THROWS_WITH_AS(int_consumer(pool, wrong, 1, ignore),
                       "turnkey: option max_pending is 0; leave it unset for no limit", std::invalid_argument);
  int_consumer c(pool, ordered, 1, [](int_batch& b) {
    CHECK_THROWS_WITH_AS(b.succeed(1), "turnkey: batch: there is no message 1 in a batch of 1", std::out_of_range);
    CHECK(b.succeed(0));
    CHECK_FALSE(b.fail(0, "too late"));
  });
  c.send("a", 1);
  pool.run_all();
  CHECK(c.stats().succeeded == 1);
  c.close();
  CHECK_THROWS_WITH_AS(c.send("a", 1), "turnkey: send refused (closed): close() or stop() came first",
                       turnkey::rejected);
}

TEST_CASE("7.6 consumer: max_pending and max_pending_per_key count messages; a refused one is left unmoved") {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  using message = std::unique_ptr<int>;
  options<int> o{.default_policy = policy::ordered, .max_pending = 3, .max_pending_per_key = 2, .time = &time};
  turnkey::consumer<int, message> c(pool, o, 8, [](std::span<message>) {});
  message m = std::make_unique<int>(1);
  c.send(1, std::make_unique<int>(1));
  c.send(1, std::make_unique<int>(1));
  CHECK(c.try_send(1, std::move(m)) == reject_reason::key_full);
  c.send(2, std::make_unique<int>(1));
  CHECK(c.try_send(3, std::move(m)) == reject_reason::full);
  CHECK(c.send_for(1ms, 3, std::move(m)) == reject_reason::full);
  REQUIRE(m != nullptr);
  CHECK_THROWS_WITH_AS(
      c.send(3, std::move(m)),
      "turnkey: send refused (full): max_pending = 3 messages are unfinished; send_for() waits for room",
      turnkey::rejected);
  CHECK_THROWS_WITH_AS(
      c.send(1, std::move(m)),
      "turnkey: send refused (full): max_pending = 3 messages are unfinished; send_for() waits for room",
      turnkey::rejected);
  CHECK(c.stats().rejected == 5);
  pool.run_all();
  c.send(1, std::make_unique<int>(1));
  c.send(1, std::make_unique<int>(1));
  CHECK_THROWS_WITH_AS(c.send(1, std::move(m)),
                       "turnkey: send refused (key_full): max_pending_per_key = 2 messages of this key are unfinished; "
                       "send_for() waits for room",
                       turnkey::rejected);
  c.send(3, std::move(m));
  CHECK(m == nullptr);
  c.close();
  CHECK(c.try_send(3, std::make_unique<int>(1)) == reject_reason::closed);  // and full, which does not matter any more
}

TEST_CASE("7.6 consumer: send_for waits until there is room, of all or of its key, and sends then") {
  for (const bool of_key : {false, true}) {
    CAPTURE(of_key);
    options<std::string> o = under(policy::ordered);
    (of_key ? o.max_pending_per_key : o.max_pending) = 1;
    stage s(o);
    s.send("a", 1, 1);
    std::thread other([&s] {
      std::this_thread::sleep_for(20ms);
      s.run();
    });
    CHECK(s.messages.send_for(1h, "a", 2) == std::nullopt);
    other.join();
    s.run();
    CHECK(s.all_seen() == "a:1 a:2");
    CHECK(s.messages.stats().rejected == 0);
  }
}

TEST_CASE("7.6 consumer: cancel drops what waits and what rests; what runs succeeds or is cancelled") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p), 2);
    s.says = poison(1);
    s.send("a", 1, 2);
    s.run();
    s.send("a", 3, 5);
    s.send("b", 6, 6);
    CHECK(s.messages.unfinished("a") == (p == policy::ordered ? 5 : 4));
    CHECK(s.messages.cancel("a") == (p == policy::ordered ? 5 : 4));
    CHECK(s.messages.unfinished("a") == 0);
    s.all_seen();
    s.pass(1s);
    CHECK(s.all_seen() == "b:6");
    s.says = [&](int_batch& b) {
      CHECK(s.messages.cancel("a") == 3);  // the batch, and what waits
      CHECK(b.stop_requested());
      b.succeed(0);
      return outcome::retry();
    };
    s.send("a", 7, 9);
    s.pass(1s);
    s.says = nullptr;
    CHECK(s.all_seen() == "a:7,8");
    CHECK(s.messages.drain() == drain_result::drained);
    const auto stats = s.messages.stats();
    CHECK(stats.accepted == stats.succeeded + stats.cancelled);
    s.send("a", 10, 10);
    s.send("c", 11, 11);
    CHECK(s.messages.cancel_all() == 2);
    CHECK(s.messages.drain() == drain_result::drained);
    s.send("a", 12, 12);
    s.run();
    CHECK(s.all_seen() == "a:12");
  }
}

TEST_CASE("7.6 consumer: what is sent while a cancel is under way is handled") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    turnkey::testing::manual_executor pool;
    turnkey::testing::manual_time time;
    using message = std::shared_ptr<void>;
    int handled = 0;
    turnkey::consumer<int, message> c(pool, {.default_policy = p, .time = &time}, 4,
                                      [&](std::span<message> all) { handled += static_cast<int>(all.size()); });
    c.send(1, message(nullptr, [&c](void*) { c.send(1, message()); }));  // sends when it is destroyed
    CHECK(c.cancel(1) == 1);
    CHECK(c.unfinished(1) == 1);
    pool.run_all();
    CHECK(handled == 1);
    CHECK(c.drain_for(0s) == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: a paused consumer that was cancelled is drained") {
  stage s(under(policy::ordered));
  s.messages.pause();
  s.send("a", 1, 5);
  CHECK(s.messages.cancel("a") == 5);
  CHECK(s.messages.drain() == drain_result::drained);
}

TEST_CASE("7.6 consumer: stop gives back what was not handled, with keys, in order, once") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.says = [](int_batch& b) {
      for (std::size_t i = 0; i != b.size(); ++i)
        if (b[i] == 2)
          b.fail(i);
        else if (b[i] == 4)
          b.settle(i, outcome::dead());
      return outcome::success();
    };
    s.send("a", 1, 4);
    s.run();
    s.messages.pause();
    s.send("a", 5, 7);
    CHECK(given_back(s.messages) == (p == policy::ordered ? "a2 a3 a4 a5 a6 a7" : "a2 a5 a6 a7"));
    CHECK(given_back(s.messages) == "");
    CHECK(s.messages.try_send("a", 1) == reject_reason::closed);
    CHECK(s.messages.drain() == drain_result::stopped);
    CHECK(s.messages.dead_messages().size() == (p == policy::ordered ? 0 : 1));
  }
}

TEST_CASE("7.6 consumer: stop gives back the messages of every key, however many chunks they fill") {
  stage s(under(policy::ordered));
  std::map<std::string, std::vector<int>> expected;
  for (int k = 0; k != 40; ++k) {
    const std::string key = std::to_string(k);
    for (int i = 0; i != 1 + k % 20; ++i) {
      s.messages.send(key, int{i});
      expected[key].push_back(i);
    }
  }
  std::map<std::string, std::vector<int>> given;
  for (const auto& each : s.messages.stop()) given[each.key].push_back(each.message);
  CHECK(given == expected);
}

TEST_CASE("7.6 consumer: messages that stop gave back can be moved to another consumer") {
  stage s(under(policy::ordered));
  stage other(under(policy::ordered));
  s.send("a", 1, 10);
  {
    auto all = s.messages.stop();
    CHECK(all.size() == 10);
    for (const auto& each : all) other.messages.send(each.key, std::move(each.message));
  }
  other.run();
  CHECK(other.all_seen() == "a:1,2,3,4 a:5,6,7,8 a:9,10");
}

TEST_CASE("7.6 consumer: close lets the handler send on, but nobody else") {
  stage s(under(policy::ordered));
  s.says = [&](int_batch& b) {
    if (b[0] < 3) s.messages.send("b", b[0] + 1);
    return outcome::success();
  };
  s.send("b", 1, 1);
  s.messages.close();
  CHECK(s.messages.try_send("b", 9) == reject_reason::closed);
  s.run();
  CHECK(s.all_seen() == "b:1 b:2 b:3");
  CHECK(s.messages.drain() == drain_result::drained);
}

TEST_CASE("7.6 consumer: full and closed, it is closed to others, and full to its handler") {
  options<std::string> o = under(policy::ordered);
  o.max_pending = 2;
  stage s(o, 1);
  std::optional<reject_reason> inside;
  s.says = [&](int_batch& b) {
    if (b[0] == 1) inside = s.messages.try_send("b", 9);
    return outcome::success();
  };
  s.send("b", 1, 2);
  s.messages.close();
  CHECK(s.messages.try_send("b", 9) == reject_reason::closed);
  CHECK(s.messages.send_for(1h, "b", 9) == reject_reason::closed);
  s.run();
  CHECK(inside == reject_reason::full);
  static_cast<void>(s.messages.stop());
  CHECK(s.messages.try_send("b", 9) == reject_reason::closed);
}

TEST_CASE("7.6 consumer: on an inline_executor a send handles at once, and a send from inside waits for its turn") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    std::string seen;
    std::unique_ptr<int_consumer> c;
    int depth = 0;
    c = std::make_unique<int_consumer>(turnkey::inline_executor{}, options<std::string>{.default_policy = p}, 4,
                                       [&](int_batch& b) {
                                         CHECK(++depth == 1);
                                         for (const int m : b) {
                                           seen += std::to_string(m);
                                           if (m < 6) c->send("a", m + 1);
                                         }
                                         --depth;
                                       });
    c->send("a", 1);
    CHECK(seen == "123456");
    CHECK(c->drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: a hot key and equal hashes; cancel_all finds every key") {
  struct same {
    std::size_t operator()(int) const noexcept { return 7; }
  };
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  int handled = 0;
  turnkey::consumer<int, int, same> c(pool, {.default_policy = policy::ordered, .time = &time}, 4,
                                      [&](std::span<int> all) { handled += static_cast<int>(all.size()); });
  for (int i = 0; i != 100; ++i) c.send(i % 50, int{i});
  CHECK(c.cancel(7) == 2);
  CHECK(c.cancel_all() == 98);
  for (int i = 0; i != 100; ++i) c.send(i % 50, int{i});
  pool.run_all();
  CHECK(handled == 100);
  CHECK(c.stats().tasks.keys == 0);
}

TEST_CASE("7.6 consumer: a dead message that leaves a full store is counted and gone") {
  options<std::string> o = under(policy::ordered, std::nullopt);
  o.max_dead = 2;
  stage s(o, 1);
  s.says = [](int_batch&) { return outcome::dead("no"); };
  s.send("a", 1, 5);
  s.run();
  CHECK(s.messages.dead_messages().size() == 2);
  CHECK(s.messages.stats().died == 5);
  CHECK(s.messages.stats().tasks.dead_evicted == 3);
  CHECK(s.messages.drain() == drain_result::drained);
}

TEST_CASE("7.6 consumer: limits, pauses of a key and steps count batches") {
  stage s(under(policy::ordered), 2);
  s.messages.pause("a");
  s.send("a", 1, 4);
  s.send("b", 5, 5);
  s.run();
  CHECK(s.all_seen() == "b:5");
  CHECK(s.messages.paused_keys() == std::vector<std::string>{"a"});
  s.messages.pause();
  s.messages.resume("a");
  CHECK(s.messages.step());
  s.run();
  CHECK(s.all_seen() == "a:1,2");
  s.messages.resume();
  s.run();
  CHECK(s.all_seen() == "a:3,4");
}

TEST_CASE("7.6 consumer: it may be destroyed inside its own handler") {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  options<std::string> o{.default_policy = policy::ordered, .time = &time};
  std::unique_ptr<int_consumer> c;
  int calls = 0;
  c = std::make_unique<int_consumer>(pool, o, 2, [&](int_batch&) {
    ++calls;
    c.reset();
    return outcome::retry();
  });
  for (int i = 0; i != 5; ++i) c->send("a", int{i});
  pool.run_all();
  CHECK(calls == 1);
}

namespace {
struct touchy {
  explicit touchy(int v) : value(v) {}
  touchy(touchy&& other) : value(other.value) {
    if (throws) throw std::runtime_error("no move");
    other.value = -1;
  }
  int value;
  static inline bool throws = false;
};
}  // namespace

TEST_CASE("7.6 consumer: a message whose move throws is not sent, and nothing has changed") {
  turnkey::testing::manual_executor pool;
  turnkey::testing::manual_time time;
  std::string seen;
  turnkey::consumer<std::string, touchy> c(pool, {.default_policy = policy::ordered, .time = &time}, 4,
                                           [&](std::span<touchy> all) {
                                             for (const touchy& t : all) seen += std::to_string(t.value);
                                           });
  touchy one(1);
  touchy::throws = true;
  CHECK_THROWS_AS(c.send("a", std::move(one)), std::runtime_error);
  CHECK(one.value == 1);
  CHECK(c.stats().unfinished == 0);
  CHECK(c.stats().tasks.unfinished() == 0);
  CHECK(c.drain() == drain_result::drained);
  touchy::throws = false;
  c.send("a", std::move(one));
  c.send("a", touchy(2));
  pool.run_all();
  CHECK(seen == "12");
}

// ---- at random

namespace {

// What the model knows of a message: sent in this order; how often it failed; where it is.
struct known {
  int failed = 0;
  bool finished = false;
  bool dead = false;
};

void play(policy p, std::uint64_t seed) {
  CAPTURE(turnkey::to_string(p));
  CAPTURE(seed);
  support::dice dice(seed);
  stage s(under(p), 1 + dice.below(6));
  std::map<std::string, std::map<int, known>> keys;  // by number, in the order of sending
  std::map<std::string, int> dead_ones;
  int next = 0;
  s.says = [&](int_batch& b) {
    auto& sent = keys[b.key()];
    for (std::size_t i = 0; i != b.size(); ++i) {
      const known& k = sent[b[i]];
      CHECK_FALSE(k.finished);
      CHECK(static_cast<int>(b.number()) == k.failed + 1);
      if (k.failed != 0) CHECK(b.size() == 1);
      if (i != 0) CHECK(b[i] > b[i - 1]);
    }
    if (p == policy::ordered)  // nothing unfinished was sent before; nothing between them is left out
      for (const auto& [number, k] : sent)
        if (number <= b[b.size() - 1] && !k.finished) CHECK(number >= b[0]);
    const auto fails = [&](int m) {
      known& k = sent[m];
      k.finished = k.dead = ++k.failed == 3;
      dead_ones[b.key()] += k.dead;
    };
    const auto roll = dice.below(10);
    if (roll == 0) {
      for (int m : b.messages()) fails(m);
      return outcome::retry();
    }
    if (roll == 1) {
      for (int m : b.messages()) fails(m);
      throw 1;
    }
    bool stuck = false;
    for (std::size_t i = 0; i != b.size(); ++i) {
      if (dice.chance(25)) {
        b.fail(i);
        if (!stuck) fails(b[i]);
        stuck = stuck || p == policy::ordered;
      } else {
        b.succeed(i);
        if (!stuck) sent[b[i]].finished = true;
      }
    }
    return outcome::success();
  };
  for (int step = 0; step != 150; ++step) {
    const std::string key(1, static_cast<char>('a' + dice.below(3)));
    switch (dice.below(8)) {
      case 0: s.pool.run_one(); break;
      case 1: s.pass(std::chrono::milliseconds(dice.below(15))); break;
      case 2:
        if (dice.chance(20)) {
          std::size_t there = 0;
          for (auto& [number, k] : keys[key])
            if (!k.finished) there += k.finished = true;
          CHECK(s.messages.cancel(key) == there);
        }
        break;
      default:
        for (auto n = dice.below(4); n-- != 0; ++next) {
          keys[key][next];
          s.messages.send(key, int{next});
        }
    }
  }
  s.pass(1h);
  CHECK(s.messages.drain_for(0s) == drain_result::drained);
  std::uint64_t died = 0;
  for (auto& [key, sent] : keys)
    for (auto& [number, k] : sent) {
      CHECK(k.finished);
      died += k.dead;
    }
  const auto stats = s.messages.stats();
  CHECK(stats.died == died);
  CHECK(stats.accepted == stats.succeeded + stats.died + stats.cancelled);
  CHECK(stats.unfinished == 0);
  CHECK(stats.tasks.unfinished() == 0);
}

}  // namespace

TEST_CASE("7.6 consumer: at random, each message sees what a simple model says") {
  for (std::uint64_t seed = 1; seed != 300; ++seed)
    for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) play(p, seed);
}

TEST_CASE("7.6 consumer: a message may be given as what a message is made of") {
  turnkey::testing::manual_executor pool;
  std::string all;
  turnkey::consumer<int, std::string> c(pool, {}, 8, [&](std::span<std::string> some) {
    for (const std::string& each : some) all += each;
  });
  const std::string kept = "kept";
  c.send(1, "made");
  c.send(1, kept);
  pool.run_all();
  CHECK(all == "madekept");
}

TEST_CASE("7.6 consumer: a message that is failed with an exception, or with none, dies with it") {
  stage s(under(policy::ordered, std::nullopt));
  s.says = [](int_batch& b) {
    const bool with_one = b[0] == 1;
    CHECK(b.fail(0, with_one ? std::make_exception_ptr(std::runtime_error("no disk")) : std::exception_ptr()));
    CHECK(!b.fail(0, std::make_exception_ptr(1)));  // that was said before
    return outcome::success();
  };
  s.send("a", 1, 2);
  s.run();
  const auto dead = s.messages.dead_messages();
  REQUIRE(dead.size() == 2);
  CHECK(dead[0].error.text() == "no disk");
  CHECK(dead[0].error.reason() == turnkey::failure_reason::threw);
  CHECK(dead[1].error.text() == "asked");
  CHECK(dead[1].error.reason() == turnkey::failure_reason::asked);
}

// Its seats are promised, so that nothing but a promise starts the clock.
TEST_CASE("7.6 consumer: with a clock of its own, what failed comes again in time") {
  turnkey::testing::manual_executor pool;
  int attempts = 0;
  int_consumer c(pool, {.retry = retry_policy{.max_attempts = 2, .initial_delay = 1ms}}, 1,
                 [&attempts](int_batch&) { return ++attempts == 1 ? outcome::retry() : outcome::success(); });
  c.send("a", 1);
  const auto end = std::chrono::steady_clock::now() + 10s;
  while (c.stats().succeeded == 0 && std::chrono::steady_clock::now() < end)
    if (pool.run_all() == 0) std::this_thread::sleep_for(1ms);
  CHECK(attempts == 2);
  CHECK(c.stats().succeeded == 1);
}

TEST_CASE("7.6 consumer: cancelled while it is tried again, a message that fails is not tried once more, nor dead") {
  for (const policy p : {policy::parallel, policy::exclusive}) {
    CAPTURE(turnkey::to_string(p));
    stage s(under(p));
    s.says = [&](int_batch& b) {
      if (b.number() == 2) CHECK(s.messages.cancel("a") == 1);
      return outcome::retry();
    };
    s.send("a", 1, 1);
    s.pass(1h);
    CHECK(s.all_seen() == "a:1 a:1#2");
    CHECK(s.messages.stats().cancelled == 1);
    CHECK(s.messages.stats().tasks.dead == 0);
    CHECK(s.messages.drain() == drain_result::drained);
  }
}

TEST_CASE("7.6 consumer: what was not handled is moved about, and walked through, in either way") {
  stage s(under(policy::ordered));
  s.send("a", 1, 3);
  auto left = s.messages.stop();
  auto at = left.begin();
  const auto first = at++;
  CHECK((*first).message == 1);
  CHECK((*at).message == 2);
  CHECK(first != at);
  stage other(under(policy::ordered));
  other.send("b", 4, 4);
  left = other.messages.stop();
  REQUIRE(left.size() == 1);
  CHECK((*left.begin()).message == 4);
}

// While a driver looks for another one, the user's hash sends a message of the key, which finds one too.
TEST_CASE("7.6 parallel: of two that look for somebody to drive, one is enough") {
  struct hash {
    std::size_t operator()(int key) const {
      if (*during) std::exchange(*during, nullptr)();
      return static_cast<std::size_t>(key);
    }
    std::function<void()>* during;
  };
  turnkey::testing::manual_executor pool;
  std::function<void()> during;
  std::vector<int> seen;
  turnkey::consumer<int, int, hash> c(
      pool, {}, 1, [&](std::span<int> some) { seen.push_back(some[0]); }, hash{&during});
  c.send(7, 1);
  c.send(7, 2);
  during = [&c] { c.send(7, 3); };
  pool.run_all();
  CHECK(during == nullptr);
  CHECK(seen == std::vector<int>{1, 2, 3});
  CHECK(c.drain() == drain_result::drained);
  CHECK(c.stats().tasks.keys == 0);
}

TEST_CASE("7.6 consumer: whatever ends a message gives its place in max_pending back, once; redriven it takes one") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    options<std::string> o = under(p);
    o.max_pending = 2;
    stage s(o, 2);
    const auto takes_two = [&s] {
      CHECK(!s.messages.try_send("a", 1));
      CHECK(!s.messages.try_send("a", 2));
      CHECK(s.messages.try_send("a", 3) == reject_reason::full);
    };
    takes_two();
    s.run();  // both succeed
    takes_two();
    CHECK(s.messages.cancel("a") == 2);  // both wait
    s.says = [](int_batch&) { return outcome::retry(); };
    takes_two();
    s.run();
    CHECK(s.messages.cancel("a") == 2);  // both rest
    takes_two();
    s.pass(1h);  // both die
    takes_two();
    CHECK(s.messages.cancel("a") == 2);
    s.says = [](int_batch& b) { return b.number() == 1 ? outcome::retry() : outcome::dead(); };
    CHECK(s.messages.redrive_all() == 2);
    s.pass(1h);  // both die before their last attempt
    takes_two();
    CHECK(s.messages.cancel("a") == 2);
    s.says = [put_off = std::set<int>()](int_batch& b) mutable {
      if (b.number() < 3) return outcome::retry();
      return put_off.insert(b[0]).second ? outcome::postpone(1s) : outcome::success();
    };
    CHECK(s.messages.redrive_all() == 2);
    s.pass(1h);  // both postpone their last attempt, and succeed
    takes_two();
    CHECK(s.messages.cancel("a") == 2);
    s.says = nullptr;
    CHECK(s.messages.redrive_all() == 0);
    takes_two();
    s.pass(1h);  // both succeed
    takes_two();
    s.says = [](int_batch&) { return outcome::dead(); };
    s.pass(1h);
    CHECK(s.messages.discard_all() == 2);
    takes_two();
    s.says = [&s](int_batch& b) {
      s.messages.cancel("a");
      return b[0] == 1 ? outcome::retry() : outcome::success();
    };
    s.pass(1h);  // cancelled while they run
    takes_two();
  }
}

TEST_CASE("7.6, 7.2 consumer: a handler that runs longer than lease_time is told to stop, and may ask for more time") {
  for (const policy p : {policy::parallel, policy::exclusive, policy::ordered}) {
    CAPTURE(turnkey::to_string(p));
    options<std::string> o = under(p);
    o.lease_time = 1s;
    stage s(o, 2);
    s.says = [&s](int_batch& b) {
      s.time.advance(500ms);
      CHECK(b.extend_lease(2s));
      s.time.advance(1999ms);
      CHECK(!b.stop_requested());
      s.time.advance(1ms);
      CHECK(b.stop_requested());
      CHECK(b.stop_token().stop_requested());
      return outcome::success();
    };
    s.send("a", 1, 1);
    s.run();
    CHECK(s.messages.stats().tasks.leases_expired == 1);
    CHECK(s.messages.drain() == drain_result::drained);
  }
}
