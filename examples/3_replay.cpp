// Replays a real event log: each line is a task under its key, and writes its line into a store that refuses one write
// in ten. Under `ordered` every key ends in the state that processing line by line gives, whatever is retried when;
// under `parallel` a later write passes an earlier one that failed, and keys end up wrong. Try both, and --help. With
// --resume a replay that is interrupted, or killed, goes on where all was done.
#include <turnkey/turnkey.hpp>
#include <turnkey/watermark.hpp>

#include "replay/arguments.hpp"
#include "replay/event_log.hpp"
#include "replay/flaky_store.hpp"
#include "replay/progress.hpp"
#include "replay/report.hpp"
#include "replay/resume_file.hpp"

#include <atomic>
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
  replay::print_plan(asked, log, keys.size());

  replay::flaky_store store(log.entries(), asked.fail, asked.seed);
  replay::resume_file kept(asked.resume);
  const std::optional<std::uint64_t> resumed = kept.load(log, store);
  if (asked.resume) replay::print_resume(*asked.resume, resumed, log);
  // With --resume the log is read only so far ahead of the mark: beyond it, less than that is done again.
  turnkey::watermark mark(resumed.value_or(1), asked.resume ? 256 : log.entries().size());
  const auto save = [&] { kept.save(mark.committed(), store); };
  save();  // one that cannot be written is refused now

  replay::progress progress;
  turnkey::thread_pool pool{asked.threads};
  const turnkey::retry_policy retry{
      .max_attempts = asked.max_attempts.value_or((std::numeric_limits<std::uint32_t>::max)()),
      .initial_delay = 1ms,
      .max_delay = 50ms};
  std::atomic<std::uint64_t> written{0};
  // The keys are views into the log, which outlives the scheduler.
  turnkey::scheduler<std::string_view> scheduler{
      pool, {.default_policy = asked.policy, .retry = retry, .max_dead = log.entries().size()}};
  const auto look = [&] {
    if (progress.due()) progress.show(scheduler.stats());
    if (kept.due()) save();
  };

  for (const replay::entry& entry : log.from(mark.committed())) {
    std::optional<turnkey::watermark::ticket> ticket;
    while (!(ticket = mark.open(entry.line, log.after(entry)))) {  // too far ahead
      if (scheduler.drain_for(1ms) == turnkey::drain_result::stopped) break;
      look();
    }
    if (!ticket) break;
    const auto accepted = scheduler.try_submit(entry.key, [&, ticket = *ticket](const turnkey::attempt& attempt) {
      const bool done = store.write(entry, attempt.number());
      // A task that dies is given up: it does not keep the mark back.
      if (done || attempt.number() == retry.max_attempts) mark.finish(ticket);
      if (!done) return turnkey::outcome::retry("the store refused line " + std::to_string(entry.line));
      if (++written == asked.stop_after) static_cast<void>(scheduler.stop());
      return turnkey::outcome::success();
    });
    if (!accepted) break;  // it was stopped
    look();
  }
  turnkey::drain_result ended{};
  while ((ended = scheduler.drain_for(100ms)) == turnkey::drain_result::timed_out) look();
  const bool interrupted = ended == turnkey::drain_result::stopped;
  if (interrupted) static_cast<void>(scheduler.stop());  // waits for what still runs
  save();

  const turnkey::stats last = scheduler.stats();
  progress.finish(last);
  if (interrupted) {
    replay::print_interrupted(written, mark);
    return 3;
  }
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
