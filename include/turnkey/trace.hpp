// An observer that draws: what each worker and each key did, as a file that Perfetto and chrome://tracing open. It
// keeps the newest events in memory, and decides nothing. Not included by turnkey.hpp.
#pragma once

#include <turnkey/detail/text.hpp>
#include <turnkey/detail/trace_json.hpp>
#include <turnkey/detail/trace_log.hpp>
#include <turnkey/detail/trace_picture.hpp>
#include <turnkey/event.hpp>

#include <cstddef>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace turnkey::inline v1 {

// How much a trace keeps; about 56 bytes an event, 88 a key or thread. None is 0.
struct trace_options {
  std::size_t max_events = 65536;  // the oldest leave
  std::size_t max_keys = 256;      // that have tracks of their own: the first among those that kept events name
  std::size_t max_threads = 64;    // the same for threads
};

// Keeps the events of one scheduler; leave it on, and write when something was odd.
//
//   turnkey::trace<std::string> trace;
//   turnkey::scheduler<std::string> orders{pool, {.observer = trace.observer()}};
//   ...
//   trace.write(file);
//
// The file has a track for each thread that ran or submitted tasks and one for each key, more where attempts or rests
// of a key overlap. An attempt is a slice on its worker's track and on its key's, coloured when it did not succeed; a
// deferred one leaves the worker's track with the worker's next attempt. The rest until a retry is a slice too; an
// arrow leads from a submit to the start. Deaths, cancels without an attempt, expired leases, evictions, refusals and
// lost permits are instants. Keys and threads beyond the limits share a track. Times are microseconds since the first
// event that is kept; how many older ones were dropped stands at the beginning.
//
//   Needs    keys that differ read differently, or they share a track and seem to be one key.
//   Threads  observers and write() at once, any number.
//   Cost     an event: about 0.05 us and what the text of its key costs; it takes one lock and allocates nothing.
//   From     the Chrome Trace Event Format.
template <class Key>
class trace {
 public:
  // `text` says how a key reads, of which 64 bytes are shown: a string as it is, an integer by its digits, anything
  // else as << prints it.
  //   Needs    text(key) becomes a std::string_view and may be called by several threads at once. An event is lost
  //            when it throws.
  //   Throws   std::invalid_argument that names the option that is 0 or too large; std::bad_alloc.
  template <class Text = detail::key_text>
    requires detail::text_of<Text, Key>
  explicit trace(const trace_options& options = {}, Text text = {})
      : log_(make(options)), observer_([log = log_, text = std::move(text)](const event<Key>& e) {
          if (e.key == nullptr) return log->note(entry_of(e), {});
          const auto& shown = text(*e.key);
          log->note(entry_of(e), std::string_view(shown));
        }) {}

  // For options::observer; lives as long as anybody needs it. To hear events yourself too, call it from your own.
  [[nodiscard]] turnkey::observer<Key> observer() const noexcept { return observer_; }

  // Writes what is kept as JSON, whatever the stream's locale and flags are.
  //   Throws   std::bad_alloc; what the stream throws.
  //   Cost     observers wait while the events are copied; then O(n log n) without the lock.
  void write(std::ostream& out) const {
    const detail::trace_picture picture(log_->look());
    detail::trace_json(out, picture).write();
  }

 private:
  static std::shared_ptr<detail::trace_log> make(const trace_options& o) {
    check("max_events", o.max_events);
    check("max_keys", o.max_keys);
    check("max_threads", o.max_threads);
    return std::make_shared<detail::trace_log>(o.max_events, o.max_keys, o.max_threads);
  }
  static void check(const char* option, std::size_t value) {
    constexpr std::size_t most = std::size_t{1} << 30;
    if (value != 0 && value <= most) return;
    throw std::invalid_argument(std::string("turnkey: trace option ") + option + " is " + std::to_string(value) +
                                "; from 1 to " + std::to_string(most));
  }

  static detail::trace_entry entry_of(const event<Key>& e) noexcept {
    return {.number = e.number,
            .id = static_cast<std::uint64_t>(e.id),
            .fence = e.fence,
            .time = e.time,
            .due = e.due,
            .attempt = e.attempt,
            .kind = e.kind,
            .policy = e.policy,
            .failed = e.error != nullptr,
            .reason = e.error != nullptr ? e.error->reason() : failure_reason{}};
  }

  std::shared_ptr<detail::trace_log> log_;
  turnkey::observer<Key> observer_;
};

}  // namespace turnkey::inline v1
