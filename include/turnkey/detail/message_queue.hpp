// The waiting messages of one key: chunks of messages that lie side by side, each with a note of what is known of it. A
// message is moved once, into its place, and stays there until it is handled or given back, whatever becomes of it in
// between. It knows no lock and no thread: whoever calls holds the lock of the queue's shard.
//
// Always true between two calls:
//   Q1  The chunks, and the places in each, are in the order of sending.
//   Q2  No message that waits stands before the cursor.
//   Q3  A chunk is freed when none of its messages is alive, but for the last one, which is used again.
#pragma once

#include <turnkey/detail/config.hpp>
#include <turnkey/outcome.hpp>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

namespace turnkey::inline v1::detail {

enum class message_state : std::uint8_t {
  waiting,  // in the queue
  out,      // in a batch that is being handled
  aside,    // with a task of its own: failed, postponed or dead
  dropped,  // cancelled: somebody will come and destroy it
  leaving,  // and is doing so
  done,     // there is nothing in its place any more
};

// What is known of a message. While it is `out` the worker's, but for `state` and `cancelled`.
struct message_note {
  outcome said = outcome::success();  // what came of it, when `settled`
  std::uint32_t failed = 0;
  std::uint32_t postponed = 0;
  message_state state = message_state::waiting;
  failure_reason reason = failure_reason::asked;
  bool settled = false;
  bool doomed = false;     // waiting: it is dead, and memory is missing to say so, or its turn has not come
  bool dead = false;       // aside: its task is dead, or will be in a moment
  bool cancelled = false;  // out: it is not tried again
};

template <class Message>
struct message_chunk {
  message_chunk* previous = nullptr;
  message_chunk* next = nullptr;
  std::uint64_t number = 0;  // rises along the queue
  std::uint32_t capacity = 0;
  std::uint32_t filled = 0;
  std::uint32_t alive = 0;

  [[nodiscard]] Message* messages() noexcept {
    return std::launder(reinterpret_cast<Message*>(reinterpret_cast<std::byte*>(this) + messages_offset));
  }
  [[nodiscard]] message_note& note(std::uint32_t i) noexcept {
    auto* const all = reinterpret_cast<std::byte*>(this) + notes_offset(capacity);
    return std::launder(reinterpret_cast<message_note*>(all))[i];
  }

  static constexpr std::size_t align = alignof(Message) > alignof(std::max_align_t) ? alignof(Message)
                                                                                    : alignof(std::max_align_t);

  //   Throws   std::bad_alloc.
  static message_chunk* make(std::uint32_t capacity) {
    const std::size_t size = notes_offset(capacity) + capacity * sizeof(message_note);
    static_assert(sizeof(message_chunk) <= header);
    auto* const c = ::new (::operator new (size, std::align_val_t{align})) message_chunk;
    c->capacity = capacity;
    return c;
  }
  static void free(message_chunk* c) noexcept { ::operator delete (c, std::align_val_t{align}); }

 private:
  static constexpr std::size_t header = 3 * sizeof(std::uint64_t) + 4 * sizeof(std::uint32_t);
  static constexpr std::size_t up(std::size_t size, std::size_t to) noexcept { return (size + to - 1) / to * to; }
  static constexpr std::size_t messages_offset = up(header, alignof(Message));
  static constexpr std::size_t notes_offset(std::size_t capacity) noexcept {
    return up(messages_offset + capacity * sizeof(Message), alignof(message_note));
  }
};

// Consecutive messages in one chunk.
template <class Message>
struct message_range {
  message_chunk<Message>* chunk = nullptr;
  std::uint32_t first = 0;
  std::uint32_t count = 0;

  [[nodiscard]] Message* messages() const noexcept { return chunk->messages() + first; }
  [[nodiscard]] message_note& note(std::uint32_t i) const noexcept { return chunk->note(first + i); }
};

template <class Message>
class message_queue {
 public:
  using chunk = message_chunk<Message>;
  using range = message_range<Message>;

  message_queue() noexcept = default;
  message_queue(const message_queue&) = delete;
  message_queue& operator=(const message_queue&) = delete;
  ~message_queue() {
    TURNKEY_ASSERT(alive_ == 0, "Q3: whoever destroys a queue has destroyed its messages");
    while (first_ != nullptr) chunk::free(std::exchange(first_, first_->next));
  }

  [[nodiscard]] std::size_t waiting() const noexcept { return waiting_; }
  [[nodiscard]] std::size_t alive() const noexcept { return alive_; }

  // Makes room for one message. Chunks grow up to `largest`.
  //   Throws   std::bad_alloc; nothing has changed then.
  void reserve(std::uint32_t largest) {
    if (last_ != nullptr && last_->filled != last_->capacity) return;
    const std::uint32_t wish = last_ == nullptr ? smallest : 4 * last_->capacity;
    chunk* const c = chunk::make(wish < largest ? wish : largest);
    c->previous = last_;
    if (last_ != nullptr) c->number = last_->number + 1;
    (last_ != nullptr ? last_->next : first_) = c;
    last_ = c;
    if (cursor_ == nullptr) cursor_ = c;
  }

  //   Needs    reserve() came before.
  //   Throws   what moving a message throws; nothing has changed then.
  void push(Message&& message) {
    chunk& c = *last_;
    ::new (static_cast<void*>(c.messages() + c.filled)) Message(std::move(message));
    ::new (static_cast<void*>(&c.note(c.filled))) message_note;
    ++c.filled;
    ++c.alive;
    ++alive_;
    ++waiting_;
  }

  // The first message that waits.
  //   Needs    waiting() != 0
  [[nodiscard]] message_note& front() noexcept {
    skip();
    return cursor_->note(at_);
  }

  // Takes the first messages that wait and lie side by side, at most `max`. One that has failed comes alone.
  //   Needs    waiting() != 0
  [[nodiscard]] range take(std::size_t max) noexcept {
    skip();
    range r{cursor_, at_, 1};
    const bool alone = comes_alone(r.note(0));
    while (!alone && r.count < max && r.first + r.count < cursor_->filled) {
      const message_note& next = r.note(r.count);
      if (next.state != message_state::waiting || comes_alone(next)) break;
      ++r.count;
    }
    for (std::uint32_t i = 0; i != r.count; ++i) {
      r.note(i).state = message_state::out;
      r.note(i).settled = r.note(i).doomed;
    }
    at_ += r.count;
    waiting_ -= r.count;
    return r;
  }

  // A message waits again, in its old place.
  void put_back(chunk& c, std::uint32_t i) noexcept {
    c.note(i).state = message_state::waiting;
    ++waiting_;
    if (c.number > cursor_->number || (c.number == cursor_->number && i >= at_)) return;
    cursor_ = &c;
    at_ = i;
  }

  // All that wait are dropped; how many there were.
  std::size_t drop_waiting() noexcept {
    for (chunk* c = cursor_; c != nullptr; c = c->next)
      for (std::uint32_t i = 0; i != c->filled; ++i)
        if (c->note(i).state == message_state::waiting) c->note(i).state = message_state::dropped;
    return std::exchange(waiting_, 0);
  }

  // The next dropped messages side by side, from place `from` of a chunk on, for the caller to destroy; none: count 0.
  [[nodiscard]] range next_dropped(chunk* c, std::uint32_t from) noexcept {
    for (; c != nullptr; c = c->next, from = 0)
      for (std::uint32_t i = from; i < c->filled; ++i) {
        if (c->note(i).state != message_state::dropped) continue;
        range r{c, i, 0};
        for (; i < c->filled && c->note(i).state == message_state::dropped; ++i, ++r.count)
          c->note(i).state = message_state::leaving;
        return r;
      }
    return {};
  }
  [[nodiscard]] range first_dropped() noexcept { return next_dropped(first_, 0); }
  [[nodiscard]] range next_dropped(const range& after) noexcept {
    return next_dropped(after.chunk, after.first + after.count);
  }

  template <class F>
  void for_each(F f) {
    for (chunk* c = first_; c != nullptr; c = c->next)
      for (std::uint32_t i = 0; i != c->filled; ++i) f(*c, i);
  }

  [[nodiscard]] chunk* first_chunk() const noexcept { return first_; }

  // A message has been destroyed.
  void done(chunk& c, std::uint32_t i) noexcept {
    c.note(i).state = message_state::done;
    --alive_;
    if (--c.alive != 0) return;
    if (&c == last_) {
      c.filled = 0;
      if (cursor_ == &c) at_ = 0;
      return;
    }
    if (cursor_ == &c) {
      cursor_ = c.next;
      at_ = 0;
    }
    (c.previous != nullptr ? c.previous->next : first_) = c.next;
    c.next->previous = c.previous;
    chunk::free(&c);
  }

 private:
  static constexpr std::uint32_t smallest = 8;

  static bool comes_alone(const message_note& n) noexcept { return n.failed != 0 || n.doomed; }

  // Moves the cursor to the first message that waits.
  void skip() noexcept {
    TURNKEY_ASSERT(waiting_ != 0, "Q2: something waits behind the cursor");
    while (true) {
      for (; at_ != cursor_->filled; ++at_)
        if (cursor_->note(at_).state == message_state::waiting) return;
      cursor_ = cursor_->next;
      at_ = 0;
    }
  }

  chunk* first_ = nullptr;
  chunk* last_ = nullptr;
  chunk* cursor_ = nullptr;
  std::uint32_t at_ = 0;
  std::size_t waiting_ = 0;
  std::size_t alive_ = 0;
};

}  // namespace turnkey::inline v1::detail
