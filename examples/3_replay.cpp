// Replays a real event log: each line is a task under its key, and writes its line into a store that refuses one write
// in ten. Under `ordered` every key ends in the state that processing line by line gives, whatever is retried when;
// under `parallel` a later write passes an earlier one that failed, and keys end up wrong. Try both, and --help.
#include <turnkey/turnkey.hpp>
#include <turnkey/watermark.hpp>

#include "replay/arguments.hpp"
#include "replay/event_log.hpp"
#include "replay/flaky_store.hpp"
#include "replay/progress.hpp"
#include "replay/report.hpp"
#include "replay/resume_file.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <iostream>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <thread>

using namespace std::chrono_literals;

constexpr const char* system_log = "/var/log/dpkg.log";
#ifdef TURNKEY_REPLAY_LOG
constexpr const char* checked_in_log = TURNKEY_REPLAY_LOG;
#else
constexpr const char* checked_in_log = "examples/data/dpkg.log";
#endif

replay::event_log open_log(const replay::arguments& asked) {
  if (asked.file) return replay::event_log(*asked.file, asked);
  try {
    return replay::event_log(system_log, asked);
  } catch (const replay::input_error& error) {
    std::cerr << error.what() << "\nThe checked-in log of 2,000 real lines takes its place.\n";
    return replay::event_log(checked_in_log, asked);
  }
}

int run(const replay::arguments& asked) {
  const replay::event_log log = open_log(asked);
  const std::map<std::string_view, replay::history> keys = replay::histories(log);
  replay::flaky_store store(log.entries(), asked.fail, asked.seed);
  std::optional<replay::resume_file> kept;
  if (asked.resume) kept.emplace(*asked.resume);
  const std::size_t first = kept ? kept->load(log, store) : 0;
  std::cout << "log           " << log.name() << "\n";
  std::cout << "tasks         " << log.entries().size() << " of " << keys.size() << " keys; " << log.skipped()
            << " other lines skipped\n";
  std::cout << "run           " << to_string(asked.policy) << ", " << asked.threads << " threads, " << asked.fail * 100
            << " % of the writes fail, seed " << asked.seed
            << (asked.max_attempts ? ", at most " + std::to_string(*asked.max_attempts) + " attempts" : "") << "\n";
  if (first != 0) std::cout << "resumed       after task " << first << "\n";
  turnkey::watermark mark(first, 256);  // so far ahead of what is finished the log is read
  const auto save = [&] {
    if (kept) kept->save(log, store, mark.committed());
  };

  replay::progress progress;
  turnkey::thread_pool pool{asked.threads};
  const turnkey::retry_policy retry{
      .max_attempts = asked.max_attempts.value_or((std::numeric_limits<std::uint32_t>::max)()),
      .initial_delay = 1ms,
      .max_delay = 50ms};
  // The keys are views into the log, which outlives the scheduler.
  turnkey::scheduler<std::string_view> scheduler{
      pool, {.default_policy = asked.policy, .retry = retry, .max_dead = log.entries().size()}};

  for (std::size_t i = first; i != log.entries().size(); ++i) {
    if (asked.stop_after && i - first == *asked.stop_after) {
      static_cast<void>(scheduler.stop());  // what is unfinished is dropped, and nothing is saved, as in a crash
      std::cout << "interrupted   after task " << i << "; run it again to go on\n";
      return 3;
    }
    const replay::entry& entry = log.entries()[i];
    auto place = mark.open(i);
    for (; !place; place = mark.open(i)) {
      save();
      std::this_thread::sleep_for(1ms);
    }
    scheduler.submit(entry.key, [&, place = *place](const turnkey::attempt& attempt) {
      const bool written = store.write(entry, attempt.number());
      // What is lost for good keeps the mark back no longer.
      if (written || attempt.number() == asked.max_attempts) mark.finish(place);
      if (written) return turnkey::outcome::success();
      return turnkey::outcome::retry("the store refused line " + std::to_string(entry.line));
    });
    if (progress.due()) progress.show(scheduler.stats());
  }
  while (scheduler.drain_for(progress.interval()) == turnkey::drain_result::timed_out) {
    save();
    progress.show(scheduler.stats());
  }
  save();

  const turnkey::stats last = scheduler.stats();
  progress.finish(last);
  std::cout << "retries       " << last.started - last.submitted << "\n";
  replay::print_dead(scheduler.dead_tasks(), last.died);
  const std::size_t wrong = replay::print_keys(keys, store);
  replay::print_busiest(keys);

  replay::print_verdict(asked, wrong, last.died);
  return wrong == 0 && last.died == 0 ? 0 : 1;
}

int main(int count, char** words) {
  try {
    const replay::arguments asked = replay::parse(count, words);
    if (!asked.help) return run(asked);
    std::cout << replay::help;
    return 0;
  } catch (const replay::usage_error& error) {
    std::cerr << "3_replay: " << error.what() << "\nTry 3_replay --help.\n";
  } catch (const std::exception& error) {
    std::cerr << "3_replay: " << error.what() << "\n";
  }
  return 2;
}
