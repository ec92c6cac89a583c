// Many threads finish what one opens, and others look at the mark.
#include <turnkey/watermark.hpp>

#include "support/dice.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace {

using support::dice;
using turnkey::watermark;

constexpr std::uint64_t positions = support::sanitized ? 30'000 : 300'000;
constexpr std::size_t max_span = 64;

// A reader opens positions and hands each to a worker of the dice's choice; a worker writes plain data, then finishes.
class pipeline {
 public:
  explicit pipeline(std::uint64_t seed) : dice_(seed), written_(new std::uint64_t[positions]()) {}

  // Whether the workers wrote, and the mark told, what they should have.
  [[nodiscard]] std::string run() {
    std::vector<std::thread> threads;
    for (std::size_t i = 0; i != lanes_.size(); ++i) threads.emplace_back([this, i] { work(lanes_[i]); });
    threads.emplace_back([this] { look(); });
    read();
    for (std::thread& t : threads) t.join();
    if (finished_ != positions) return "finished " + std::to_string(finished_);
    if (mark_.committed() != positions || mark_.open_count() != 0 || mark_.span() != 0) return "an end that is none";
    return wrong_ ? "a mark that promised too much, or fell" : "";
  }

  [[nodiscard]] std::string evidence() const {
    return "committed " + std::to_string(mark_.committed()) + ", open " + std::to_string(mark_.open_count()) +
           ", span " + std::to_string(mark_.span());
  }

 private:
  // At most max_span positions are out: none of its places is written before it was read.
  struct lane {
    std::array<std::atomic<std::uint64_t>, max_span> tickets{};  // one more than the number; 0 says there is none
  };

  void read() {
    for (std::uint64_t i = 0; i != positions; ++i) {
      std::optional<watermark::ticket> got;
      while (!(got = mark_.open(i))) std::this_thread::yield();
      lanes_[dice_.below(lanes_.size())].tickets[i % max_span] = static_cast<std::uint64_t>(*got) + 1;
    }
  }

  void work(lane& mine) {
    while (finished_ != positions) {
      bool idle = true;
      for (auto& place : mine.tickets) {
        const std::uint64_t number = place.exchange(0);
        if (number == 0) continue;
        idle = false;
        written_[number - 1] = number;
        if (!mark_.finish(watermark::ticket{number - 1})) wrong_ = true;
        ++finished_;
      }
      if (idle) std::this_thread::yield();
    }
  }

  // What is below the mark is written, and may be read without a lock.
  void look() {
    std::uint64_t last = 0;
    while (last != positions) {
      const std::uint64_t now = mark_.committed();
      if (now < last) wrong_ = true;
      for (; last < now; ++last)
        if (written_[last] != last + 1) wrong_ = true;
      if (mark_.span() > max_span || mark_.open_count() > max_span) wrong_ = true;
      std::this_thread::yield();
    }
  }

  dice dice_;
  watermark mark_{0, max_span};
  std::array<lane, 4> lanes_;
  std::unique_ptr<std::uint64_t[]> written_;  // plain: the watermark is all that orders it
  std::atomic<std::uint64_t> finished_{0};
  std::atomic<bool> wrong_{false};
};

}  // namespace

TEST_CASE("watermark: with many threads that finish, the mark never falls, and below it everything is visible") {
  pipeline all(support::stress_seed("watermark"));
  const support::watchdog dog([&] { return all.evidence(); });
  CHECK(all.run() == "");
}
