// A user's program in two units: both have a scheduler of the same type, so whatever a header defines must be inline.
#include <turnkey/turnkey.hpp>

#include <cstdio>
#include <string>

int tasks_run_in_second_unit(turnkey::thread_pool& pool);

int main() {
  turnkey::thread_pool pool{2};
  int run = 0;
  turnkey::scheduler<std::string> scheduler{pool, {.default_policy = turnkey::policy::ordered}};
  for (int i = 0; i < 10; ++i) scheduler.submit("key", [&run] { ++run; });
  if (scheduler.drain() != turnkey::drain_result::drained) return 1;
  run += tasks_run_in_second_unit(pool);
  std::printf("%d tasks\n", run);
  return run == 20 ? 0 : 1;
}
