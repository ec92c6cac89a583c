// Shows the smallest use of turnkey: two orders, one key each, on four threads. Tasks of one order run one after the
// other, through retries too; the two orders don't wait for each other.
#include <turnkey/turnkey.hpp>

#include <iostream>
#include <map>
#include <mutex>
#include <string>

// What happened to each order, in the order in which it happened.
std::mutex history_mutex;
std::map<int, std::string> history;

void set_status(int order, const std::string& status) {
  const std::lock_guard lock(history_mutex);
  history[order] += " " + status;
}

int main() {
  turnkey::thread_pool pool{4};
  turnkey::scheduler<std::string> orders{
      pool, {.default_policy = turnkey::policy::ordered, .retry = turnkey::retry_policy{}}};

  orders.submit("order-101", [] { set_status(101, "paid"); });
  orders.submit("order-101", [] { set_status(101, "shipped"); });  // waits, also through retries of the first
  orders.submit("order-102", [] { set_status(102, "paid"); });     // independent
  orders.submit("order-102", {.policy = turnkey::policy::parallel, .retry = turnkey::retry_policy{.max_attempts = 3}},
                [](turnkey::attempt& a) {
                  return a.number() < 2 ? turnkey::outcome::retry("busy") : turnkey::outcome::success();
                });
  orders.drain();

  for (const auto& [order, statuses] : history) std::cout << "order " << order << ":" << statuses << "\n";

  const turnkey::stats seen = orders.stats();
  std::cout << seen.succeeded << " tasks succeeded in " << seen.started << " attempts\n";
}
