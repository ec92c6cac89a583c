// Tests an application's retry logic without sleeping and without threads: manual_executor runs a callback when told,
// manual_time moves when told, so hours of back-off pass in microseconds and every run is the same. The code under
// test is `send_invoice`; the tests below are what its author writes, in any test framework.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <cstddef>
#include <iostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

using namespace std::chrono_literals;

// ---- The application -----------------------------------------------------------------------------------------------

// A mail server that answers as the test wants.
struct fake_mail_server {
  std::vector<std::string> answers;  // one a call
  std::size_t calls = 0;

  const std::string& send() { return answers.at(calls++); }
};

// Temporary trouble is worth a retry, "greylisted" a retry at the time that the server names; a bad address never is.
turnkey::outcome send_invoice(fake_mail_server& server) {
  const std::string& answer = server.send();
  if (answer == "ok") return turnkey::outcome::success();
  if (answer == "greylisted") return turnkey::outcome::retry_after(30min, answer);
  if (answer == "bad address") return turnkey::outcome::dead(answer);
  throw std::runtime_error(answer);
}

constexpr turnkey::retry_policy invoice_retries{
    .max_attempts = 4, .initial_delay = 1min, .multiplier = 10, .max_delay = 2h, .jitter = 0};

// ---- The tests -----------------------------------------------------------------------------------------------------

// One customer's invoices on a mail server that gives these answers.
struct mail_world {
  explicit mail_world(std::vector<std::string> answers) : server{std::move(answers)} {}

  void submit() {
    invoices.submit("customer 7", [this] { return send_invoice(server); });
  }

  // Lets time pass, runs what is due and says how many calls the server has had.
  std::size_t calls_after(turnkey::duration passing) {
    time.advance(passing);
    workers.run_all();
    return server.calls;
  }

  fake_mail_server server;
  turnkey::testing::manual_executor workers;
  turnkey::testing::manual_time time;
  turnkey::scheduler<std::string> invoices{
      workers, {.default_policy = turnkey::policy::ordered, .retry = invoice_retries, .time = &time}};
};

bool all_held = true;

void expect(bool held, const std::string& what) {
  std::cout << (held ? "  holds: " : "  BROKEN: ") << what << "\n";
  all_held &= held;
}

void test_backoff() {
  std::cout << "trouble that passes\n";
  mail_world world{{"timed out", "timed out", "ok"}};
  world.submit();
  expect(world.calls_after(0s) == 1, "the first attempt is made at once");
  expect(world.calls_after(59s) == 1, "59 seconds later nothing happened");
  expect(world.calls_after(1s) == 2, "after a minute it is tried again");
  expect(world.calls_after(10min) == 3, "the next rest is ten times as long");
  expect(world.invoices.stats().succeeded == 1, "the invoice went out");
}

void test_named_delay() {
  std::cout << "a server that names the time\n";
  mail_world world{{"greylisted", "ok"}};
  world.submit();
  expect(world.calls_after(0s) == 1, "the first attempt is made at once");
  expect(world.calls_after(29min) == 1, "the server's half hour is respected");
  expect(world.calls_after(1min) == 2, "then the invoice goes out");
}

void test_order() {
  std::cout << "two invoices of one customer\n";
  mail_world world{{"timed out", "ok", "ok"}};
  world.submit();
  world.submit();
  expect(world.calls_after(0s) == 1, "the second waits while the first is retried");
  expect(world.calls_after(1min) == 3, "then both go out");
}

void test_death() {
  std::cout << "trouble that stays\n";
  mail_world world{{"timed out", "timed out", "timed out", "timed out"}};
  world.submit();
  expect(world.calls_after(0s) == 1, "the first attempt is made at once");
  expect(world.calls_after(24h) == 2, "time that jumps over several rests makes one attempt");
  expect(world.calls_after(10min) == 3, "the third comes after ten minutes");
  expect(world.calls_after(100min) == 4, "the fourth after a hundred");
  const auto dead = world.invoices.dead_tasks();
  expect(dead.size() == 1 && dead.front().attempts == 4, "four attempts and no more");
  expect(!dead.empty() && dead.front().error.text() == "timed out", "the dead task knows why");
}

void test_no_retry() {
  std::cout << "a bad address\n";
  mail_world world{{"bad address"}};
  world.submit();
  expect(world.calls_after(24h) == 1, "one attempt and no more");
  expect(world.invoices.dead_tasks().size() == 1, "it is dead at once");
}

int main() {
  const auto begin = std::chrono::steady_clock::now();
  test_backoff();
  test_named_delay();
  test_order();
  test_death();
  test_no_retry();
  std::cerr << "two days passed in "
            << std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count() << " ms\n";
  return all_held ? 0 : 1;
}
