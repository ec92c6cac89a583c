#include <turnkey/testing.hpp>
#include <turnkey/turnkey.hpp>

#include <string>

int tasks_run_in_second_unit(turnkey::thread_pool& pool);

int tasks_run_in_second_unit(turnkey::thread_pool& pool) {
  int run = 0;
  turnkey::scheduler<std::string> scheduler{pool, {.default_policy = turnkey::policy::ordered}};
  for (int i = 0; i < 10; ++i) scheduler.submit("key", [&run] { ++run; });
  scheduler.drain();
  return run;
}
