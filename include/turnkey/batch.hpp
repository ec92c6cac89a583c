// What a consumer's handler sees of the messages that it is to handle. Not included by turnkey.hpp.
#pragma once

#include <turnkey/attempt.hpp>
#include <turnkey/detail/engine.hpp>
#include <turnkey/detail/message_queue.hpp>
#include <turnkey/outcome.hpp>

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>

namespace turnkey::inline v1 {
namespace detail {
template <class Key, class Message, class Hash, class KeyEqual>
class consumer_core;
}

// Consecutive messages of one key, in order. What the handler returns counts for all that it has not settled one by
// one; the first to settle a message counts.
//
// Under ordered, the first message that did not succeed decides: the ones before it have succeeded, it and all after it
// come back in order, whatever was said of these. When messages were settled one by one, and then the handler throws or
// returns no success, the first unsettled one has failed, and those after it were not reached: they are not counted.
//   Threads  of the handler's thread only, and only until the handler returns.
template <class Key, class Message>
class batch {
 public:
  batch(const batch&) = delete;
  batch& operator=(const batch&) = delete;

  [[nodiscard]] const Key& key() const noexcept { return key_; }
  [[nodiscard]] std::span<Message> messages() const noexcept { return {range_.messages(), range_.count}; }
  [[nodiscard]] std::size_t size() const noexcept { return range_.count; }
  [[nodiscard]] Message& operator[](std::size_t i) const noexcept { return range_.messages()[i]; }
  [[nodiscard]] Message* begin() const noexcept { return range_.messages(); }
  [[nodiscard]] Message* end() const noexcept { return range_.messages() + range_.count; }

  // Failed attempts of these messages + 1. Above 1 there is one message.
  [[nodiscard]] std::uint32_t number() const noexcept { return number_; }

  // As those of turnkey::attempt.
  [[nodiscard]] std::uint64_t fence() const noexcept { return attempt_.fence(); }
  [[nodiscard]] bool has_lease() const noexcept { return attempt_.has_lease(); }
  [[nodiscard]] bool stop_requested() const noexcept { return attempt_.stop_requested(); }
  [[nodiscard]] std::stop_token stop_token() { return attempt_.stop_token(); }
  bool extend_lease(duration d) noexcept { return attempt_.extend_lease(d); }

  // What became of message i; false when that was said before.
  //   Throws   std::out_of_range when there is no message i; std::bad_alloc for the words.
  bool settle(std::size_t i, outcome said) { return settle(i, std::move(said), failure_reason::asked); }
  bool succeed(std::size_t i) { return settle(i, outcome::success()); }
  bool fail(std::size_t i, const std::string& why = {}) { return settle(i, outcome::retry(why)); }
  bool fail(std::size_t i, std::exception_ptr error) {
    const auto reason = error ? failure_reason::threw : failure_reason::asked;
    return settle(i, detail::engine::failed_by(std::move(error)), reason);
  }

 private:
  template <class, class, class, class>
  friend class detail::consumer_core;

  batch(const Key& key, detail::message_range<Message> range, std::uint32_t number, turnkey::attempt& attempt) noexcept
      : key_(key), range_(range), number_(number), attempt_(attempt) {}

  bool settle(std::size_t i, outcome said, failure_reason reason) {
    if (i >= range_.count)
      throw std::out_of_range("turnkey: batch: there is no message " + std::to_string(i) + " in a batch of " +
                              std::to_string(range_.count));
    detail::message_note& n = range_.note(static_cast<std::uint32_t>(i));
    if (n.settled) return false;
    n.said = std::move(said);
    n.reason = reason;
    return n.settled = true;
  }

  const Key& key_;
  detail::message_range<Message> range_;
  std::uint32_t number_;
  turnkey::attempt& attempt_;
};

}  // namespace turnkey::inline v1
