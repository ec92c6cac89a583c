// Many threads send, cancel and redrive while handlers fail; then it is stopped or destroyed. Every accepted message is
// handled, dead, cancelled or given back exactly once, and what one sender sent to a key is handled in its order.
#include <turnkey/consumer.hpp>
#include <turnkey/thread_pool.hpp>

#include "support/dice.hpp"
#include "support/watchdog.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using namespace std::chrono_literals;
using support::dice;
using turnkey::outcome;
using turnkey::policy;

constexpr std::uint64_t keys = 5;
constexpr std::uint64_t senders = 3;

struct message {
  std::uint64_t sender;
  std::uint64_t number;
  std::unique_ptr<std::uint64_t> owned;  // leaks and double frees are seen
};

// Plain data of one key, which only its handlers touch, unless they are parallel.
struct key_data {
  std::uint64_t last[senders] = {};
  std::uint64_t handled = 0;
};

class world {
 public:
  world(policy p, std::uint64_t seed)
      : policy_(p),
        seed_(seed),
        max_batch_(1 + dice(seed).below(20)),
        consumer_(std::make_unique<turnkey::consumer<std::uint64_t, message>>(
            pool_,
            turnkey::options<std::uint64_t>{
                .default_policy = p,
                .retry = turnkey::retry_policy{.max_attempts = 3, .initial_delay = 200us, .max_delay = 1ms},
                .max_pending = 2'000,
                .max_dead = 1'000'000},
            max_batch_, [this](turnkey::batch<std::uint64_t, message>& b) { return handle(b); })) {}

  [[nodiscard]] std::string run(bool to_the_end) {
    std::vector<std::thread> threads;
    for (std::uint64_t i = 0; i != senders; ++i) threads.emplace_back([this, i] { send(i); });
    threads.emplace_back([this] { disturb(); });
    if (to_the_end) {
      for (std::uint64_t i = 0; i != senders; ++i) threads[i].join();
      over_ = true;
      threads.back().join();
      if (consumer_->drain() != turnkey::drain_result::drained) return "not drained";
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(dice(seed_).below(30)));
    }
    std::uint64_t back = 0;
    std::string wrong;
    {
      auto all = consumer_->stop();
      std::uint64_t last[keys][senders] = {};
      for (const auto& each : all) {
        ++back;
        if (each.message.owned == nullptr) wrong = "given back without content";
        std::uint64_t& before = last[each.key][each.message.sender];
        if (each.message.number <= before) wrong = "given back out of order";
        before = each.message.number;
      }
      if (back != all.size()) wrong = "a size that is none";
    }
    over_ = true;
    for (std::thread& t : threads)
      if (t.joinable()) t.join();
    const auto s = consumer_->stats();
    if (to_the_end && back != 0) wrong = "unfinished after drain";
    if (s.accepted != accepted_) wrong = "accepted " + std::to_string(s.accepted);
    if (s.succeeded != succeeded_) wrong = "succeeded " + std::to_string(s.succeeded);
    if (s.accepted != s.succeeded + s.dead + s.cancelled + discarded_ + back)
      wrong = "lost or doubled: " + evidence() + ", given back " + std::to_string(back);
    consumer_.reset();
    if (order_broken_) wrong = "order broken";
    return wrong;
  }

  [[nodiscard]] std::string evidence() const {
    const auto s = consumer_->stats();
    return "accepted " + std::to_string(s.accepted) + ", succeeded " + std::to_string(s.succeeded) + ", dead " +
           std::to_string(s.dead) + ", cancelled " + std::to_string(s.cancelled) + ", unfinished " +
           std::to_string(s.unfinished) + ", discarded " + std::to_string(discarded_) + "; " +
           support::in_words(s.tasks);
  }

 private:
  void send(std::uint64_t me) {
    dice d(seed_ + me);
    for (std::uint64_t i = 1; i <= 3'000 && !over_; ++i) {
      const std::uint64_t key = d.below(keys);
      message m{me, i, std::make_unique<std::uint64_t>(i)};
      const auto refused = consumer_->send_for(10s, key, std::move(m));
      if (refused) return;
      ++accepted_;
      if (d.chance(1)) std::this_thread::yield();
    }
  }

  void disturb() {
    dice d(seed_ ^ 77);
    while (!over_) {
      const std::uint64_t key = d.below(keys);
      switch (d.below(6)) {
        case 0: consumer_->cancel(key); break;
        case 1: discarded_ += consumer_->discard(key); break;
        case 2:
          if (policy_ != policy::ordered) consumer_->redrive(key);
          break;
        case 3:
          consumer_->pause(key);
          std::this_thread::yield();
          consumer_->resume(key);
          break;
        case 4: static_cast<void>(consumer_->stats()); break;
        default:
          if (d.chance(5)) consumer_->cancel_all();
      }
      std::this_thread::sleep_for(100us);
    }
  }

  outcome handle(turnkey::batch<std::uint64_t, message>& b) {
    dice d(seed_ + calls_.fetch_add(1) * 31);
    if (d.chance(2)) return outcome::retry();
    if (d.chance(2)) throw 1;
    for (std::size_t i = 0; i != b.size(); ++i) {
      if (d.chance(3)) {
        b.fail(i);
        if (policy_ == policy::ordered) break;
        continue;
      }
      message& m = b[i];
      if (policy_ != policy::parallel) {
        key_data& k = data_[b.key()];
        ++k.handled;
        if (policy_ == policy::ordered) {
          if (m.number <= k.last[m.sender]) order_broken_ = true;
          k.last[m.sender] = m.number;
        }
      }
      ++*m.owned;
      b.succeed(i);
      ++succeeded_;
    }
    return outcome::success();
  }

  const policy policy_;
  const std::uint64_t seed_;
  const std::size_t max_batch_;
  turnkey::thread_pool pool_{2};
  key_data data_[keys];
  std::atomic<std::uint64_t> calls_{0};
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<std::uint64_t> succeeded_{0};
  std::atomic<std::uint64_t> discarded_{0};
  std::atomic<bool> over_{false};
  std::atomic<bool> order_broken_{false};
  std::unique_ptr<turnkey::consumer<std::uint64_t, message>> consumer_;
};

}  // namespace

TEST_CASE("7.6 consumer: under load no message is lost or handled twice, and ordered ones keep their order") {
  const std::uint64_t seed = support::stress_seed("consumer");
  const auto end = std::chrono::steady_clock::now() + support::stress_time();
  std::uint64_t round = 0;
  do {
    for (const policy p : {policy::parallel, policy::exclusive, policy::ordered})
      for (const bool to_the_end : {true, false}) {
        CAPTURE(round);
        CAPTURE(turnkey::to_string(p));
        world w(p, seed + round);
        const support::watchdog watch([&w] { return w.evidence(); });
        const std::string wrong = w.run(to_the_end);
        CHECK(wrong == "");
        if (!wrong.empty()) return;
      }
    ++round;
  } while (std::chrono::steady_clock::now() < end);
}
