// Asks the question that the three policies answer differently: message 1 runs, or has failed and waits to retry;
// what does message 2 of the same key do? Every cell of the table comes from running just that, on an executor and a
// clock that move only when told, so the answer never depends on luck.
#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <chrono>
#include <iomanip>
#include <iostream>
#include <string>
#include <thread>

using namespace std::chrono_literals;

constexpr turnkey::retry_policy after_a_second{.initial_delay = 1s, .jitter = 0};

// Message 2 is sent, and a second worker comes along, while message 1 is in its callback.
std::string while_message_1_runs(turnkey::policy policy) {
  turnkey::testing::manual_executor workers;
  turnkey::testing::manual_time time;
  turnkey::scheduler<std::string> messages{workers, {.default_policy = policy, .time = &time}};
  bool second_ran = false;
  std::string answer;

  messages.submit("the key", [&] {
    messages.submit("the key", [&] { second_ran = true; });
    std::thread second_worker([&] { workers.run_all(); });
    second_worker.join();
    answer = second_ran ? "starts" : "waits";
  });
  workers.run_all();
  messages.drain();
  return answer;
}

struct retry_story {
  std::string answer;  // while message 1 waits to retry, message 2 ...
  std::string done;    // the messages in the order in which they succeeded
};

// Message 1 fails once; message 2 stands behind it.
retry_story while_message_1_waits_to_retry(turnkey::policy policy) {
  turnkey::testing::manual_executor workers;
  turnkey::testing::manual_time time;
  turnkey::scheduler<std::string> messages{workers, {.default_policy = policy, .retry = after_a_second, .time = &time}};
  retry_story story;

  messages.submit("the key", [&](turnkey::attempt& attempt) {
    if (attempt.number() == 1) return turnkey::outcome::retry("the first attempt fails");
    story.done += " 1";
    return turnkey::outcome::success();
  });
  messages.submit("the key", [&] { story.done += " 2"; });
  workers.run_all();  // message 1 has failed now, and its second is not over
  story.answer = story.done == " 2" ? "starts" : "waits";

  time.advance(1s);
  workers.run_all();
  messages.drain();
  return story;
}

int main() {
  std::cout << "What does message 2 do?\n\n" << std::left;
  const auto row = [](const std::string& policy, const std::string& runs, const std::string& waits,
                      const std::string& done) {
    std::cout << std::setw(12) << policy << std::setw(17) << runs << std::setw(38) << waits << done << "\n";
  };

  row("policy", "message 1 runs", "message 1 failed and waits to retry", "done in the order");
  for (const auto policy : {turnkey::policy::parallel, turnkey::policy::exclusive, turnkey::policy::ordered}) {
    const retry_story story = while_message_1_waits_to_retry(policy);
    row(to_string(policy), while_message_1_runs(policy), story.answer, story.done.substr(1));
  }
}
