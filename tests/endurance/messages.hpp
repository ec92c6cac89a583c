// A consumer beside the tasks, on the same executor: its messages are handled in batches, some of them fail, and each
// comes to one end.
#pragma once

#include <turnkey/consumer.hpp>

#include "endurance/world.hpp"
#include "support/dice.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>

namespace endurance {

class messages {
 public:
  template <class Executor>
  messages(world& w, Executor& executor, std::uint64_t number)
      : w_(w),
        how_(static_cast<turnkey::policy>(number % 3)),
        consumer_(executor,
                  turnkey::options<int>{.default_policy = how_,
                                        .retry = turnkey::retry_policy{.max_attempts = 3,
                                                                       .initial_delay = std::chrono::microseconds{200},
                                                                       .max_delay = std::chrono::milliseconds{1}},
                                        .max_pending = 1000,
                                        .max_dead = 1'000'000},
                  1 + number % 20, [this](batch& b) { return handle(b); }) {}

  // Sends of one producer come one after the other.
  void send(std::size_t producer, dice& d) {
    const std::size_t key = d.below(keys);
    const message m{producer, ++sent_[producer][key]};
    accepted_ += !consumer_.try_send(static_cast<int>(key), m).has_value();
  }
  void cancel_some(dice& d) { consumer_.cancel(static_cast<int>(d.below(keys))); }

  bool drained() { return consumer_.drain_for(std::chrono::milliseconds{20}) == turnkey::drain_result::drained; }

  void stop() { back_ = consumer_.stop().size(); }

  // The books of a stopped one to which nobody sends any more.
  void check() {
    const auto s = consumer_.stats();
    if (s.accepted != accepted_ || s.succeeded != succeeded_ ||
        s.accepted != s.succeeded + s.dead + s.cancelled + back_)
      w_.broken("messages: sent " + std::to_string(accepted_) + ", accepted " + std::to_string(s.accepted) +
                ", said succeeded " + std::to_string(succeeded_) + ", succeeded " + std::to_string(s.succeeded) +
                ", dead " + std::to_string(s.dead) + ", cancelled " + std::to_string(s.cancelled) + ", returned " +
                std::to_string(back_));
    w_.messages += accepted_;
  }

 private:
  struct message {
    std::size_t producer;
    std::uint64_t number;  // of this producer and key
  };
  using batch = turnkey::batch<int, message>;
  static constexpr std::size_t keys = 30;

  struct key_data {
    bool taken = false;
    std::array<std::uint64_t, max_producers> handled{};  // the last of each producer
  };

  turnkey::outcome handle(batch& b) {
    dice d(w_.wanted.seed ^ w_.calls.fetch_add(1) * 0x2545f4914f6cdd1dU);
    key_data* const k = how_ != turnkey::policy::parallel ? &data_[static_cast<std::size_t>(b.key())] : nullptr;
    if (k != nullptr && k->taken) w_.broken("two batches of an exclusive key");
    if (k != nullptr) k->taken = true;
    const bool whole = w_.goes_wrong(d) && d.chance(20);
    for (std::size_t i = 0; i != b.size() && !whole; ++i) {
      if (w_.goes_wrong(d)) {
        b.fail(i);
        if (how_ == turnkey::policy::ordered) break;
        continue;
      }
      if (how_ == turnkey::policy::ordered) {
        std::uint64_t& last = k->handled[b[i].producer];
        if (b[i].number <= last) w_.broken("a message out of order");
        last = b[i].number;
      }
      b.succeed(i);
      ++succeeded_;
    }
    if (k != nullptr) k->taken = false;
    if (whole) throw std::runtime_error("handler");
    return turnkey::outcome::success();
  }

  world& w_;
  const turnkey::policy how_;
  std::array<key_data, keys> data_{};
  std::array<std::array<std::uint64_t, keys>, max_producers> sent_{};
  std::atomic<std::uint64_t> accepted_{0};
  std::atomic<std::uint64_t> succeeded_{0};
  std::uint64_t back_ = 0;  // what stop() gave
  turnkey::consumer<int, message> consumer_;
};

}  // namespace endurance
