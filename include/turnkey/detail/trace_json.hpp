// Writes what a trace_picture shows as Chrome trace-event JSON. Viewers want that a tid is used once, whatever its pid,
// and is no pid, and that the ends of a flow come after the slices they stand in.
#pragma once

#include <turnkey/detail/text.hpp>
#include <turnkey/detail/trace_log.hpp>
#include <turnkey/detail/trace_picture.hpp>
#include <turnkey/event.hpp>
#include <turnkey/outcome.hpp>
#include <turnkey/policy.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

namespace turnkey::inline v1::detail {

class trace_json {
 public:
  trace_json(std::ostream& out, const trace_picture& picture) : out_(out), picture_(picture) {
    tids_.push_back(thread_tid(picture.threads.size()));
    for (const std::size_t lanes : picture.lanes) tids_.push_back(tids_.back() + lanes);
  }

  void write() {
    write_head();
    for (const trace_slice& each : picture_.submits) write_submit(each);
    for (const trace_slice& each : picture_.on_threads)
      write_attempt(each, threads_pid, thread_tid(each.begin->thread));
    for (const trace_slice& each : picture_.on_keys) {
      const std::size_t tid = key_tid(each.begin->key, each.lane);
      each.begin->kind == event_kind::started ? write_attempt(each, keys_pid, tid) : write_rest(each, tid);
    }
    for (const trace_entry* each : picture_.instants) write_instant(*each);
    text_ += "\n]}\n";
    flush();
  }

 private:
  static constexpr std::size_t threads_pid = 1;
  static constexpr std::size_t keys_pid = 2;

  [[nodiscard]] static std::size_t thread_tid(std::size_t thread) noexcept { return keys_pid + 1 + thread; }
  [[nodiscard]] std::size_t key_tid(std::size_t key, std::size_t lane) const noexcept { return tids_[key] + lane; }

  void write_head() {
    const std::string dropped = std::to_string(picture_.dropped());
    text_ += "{\"displayTimeUnit\":\"ns\",\"otherData\":{\"events\":" + std::to_string(picture_.events()) +
             ",\"dropped_older_events\":" + dropped + "},\"traceEvents\":[\n";
    write_name("process", threads_pid, threads_pid, "threads");
    text_ += ",\n";
    write_name("process", keys_pid, keys_pid, "keys");
    for (std::size_t thread = 0; thread != picture_.threads.size(); ++thread) {
      if (picture_.threads[thread] == thread_use::unseen) continue;
      const char* const what = picture_.threads[thread] == thread_use::works ? "worker " : "thread ";
      const bool other = thread == picture_.threads.size() - 1;
      text_ += ",\n";
      write_name("thread", threads_pid, thread_tid(thread),
                 other ? "other threads" : what + std::to_string(thread + 1));
    }
    for (std::size_t key = 0; key != picture_.lanes.size(); ++key) {
      for (std::size_t lane = 0; lane != picture_.lanes[key]; ++lane) {
        const std::string name(picture_.key_name(key));
        text_ += ",\n";
        write_name("thread", keys_pid, key_tid(key, lane),
                   lane == 0 ? name : name + " (" + std::to_string(lane + 1) + ')');
      }
    }
    if (picture_.dropped() == 0) return;
    open("i", threads_pid, threads_pid, picture_.first, dropped + " older events were dropped");
    text_ += ",\"s\":\"p\"}";
  }

  void write_name(const char* of, std::size_t pid, std::size_t tid, std::string_view name) {
    text_ += "{\"ph\":\"M\",\"pid\":" + std::to_string(pid) + ",\"tid\":" + std::to_string(tid) + ",\"name\":\"" + of +
             "_name\",\"args\":{\"name\":";
    quote(name);
    text_ += "}}";
  }

  void write_submit(const trace_slice& submit) {
    const std::size_t tid = thread_tid(submit.begin->thread);
    const char* const what = submit.begin->kind == event_kind::redriven ? "redrive " : "submit ";
    open_slice(submit, threads_pid, tid, what + task(*submit.begin));
    write_args(*submit.begin, nullptr);
    write_flow("s", submit, tid);
  }

  void write_attempt(const trace_slice& attempt, std::size_t pid, std::size_t tid) {
    const trace_entry& begin = *attempt.begin;
    const std::string end = attempt.end != nullptr ? to_string(attempt.end->kind) : "runs";
    open_slice(attempt, pid, tid,
               pid == keys_pid ? task(begin) + ' ' + end : std::string(picture_.key_name(begin.key)));
    if (const char* const colour = colour_of(attempt.end)) text_ += std::string(",\"cname\":\"") + colour + '"';
    write_args(begin, attempt.end);
    if (pid == threads_pid && attempt.life != 0) write_flow("f", attempt, tid);
  }

  void write_rest(const trace_slice& rest, std::size_t tid) {
    const trace_entry& e = *rest.begin;
    const char* const what = e.kind == event_kind::failed ? " retry in " : " due in ";
    open_slice(rest, keys_pid, tid, task(e) + what + in_seconds(e.due - e.time) + " s");
    text_ += ",\"cname\":\"grey\"}";
  }

  void write_instant(const trace_entry& e) {
    if (e.names_task()) {
      open("i", keys_pid, key_tid(e.key, 0), e.time, task(e) + ' ' + to_string(e.kind));
    } else {
      open("i", threads_pid, thread_tid(e.thread), e.time, to_string(e.kind));
    }
    text_ += ",\"s\":\"t\"";
    if (e.failed) text_ += std::string(",\"args\":{\"reason\":\"") + to_string(e.reason) + "\"}";
    text_ += '}';
  }

  void write_flow(const char* phase, const trace_slice& of, std::size_t tid) {
    open(phase, threads_pid, tid, of.from, "life " + std::to_string(of.life));
    text_ += ",\"cat\":\"turnkey\",\"id\":" + std::to_string(of.begin->id) + (*phase == 'f' ? ",\"bp\":\"e\"}" : "}");
  }

  // Ends the object.
  void write_args(const trace_entry& begin, const trace_entry* end) {
    text_ += ",\"args\":{\"task\":" + std::to_string(begin.id) + ",\"policy\":\"" + to_string(begin.policy) + '"';
    if (begin.attempt != 0) text_ += ",\"attempt\":" + std::to_string(begin.attempt);
    if (begin.fence != 0) text_ += ",\"fence\":" + std::to_string(begin.fence);
    if (end != nullptr) text_ += std::string(",\"end\":\"") + to_string(end->kind) + '"';
    if (end != nullptr && end->failed) text_ += std::string(",\"reason\":\"") + to_string(end->reason) + '"';
    text_ += "}}";
  }

  void open_slice(const trace_slice& s, std::size_t pid, std::size_t tid, std::string_view name) {
    open("X", pid, tid, s.from, name);
    text_ += ",\"dur\":" + in_microseconds(s.to - s.from);
  }

  void open(const char* phase, std::size_t pid, std::size_t tid, time_point time, std::string_view name) {
    if (text_.size() > 65536) flush();
    text_ += std::string(",\n{\"ph\":\"") + phase + "\",\"pid\":" + std::to_string(pid) +
             ",\"tid\":" + std::to_string(tid) + ",\"ts\":" + in_microseconds(time - picture_.first) + ",\"name\":";
    quote(name);
  }

  void quote(std::string_view text) {
    text_ += '"';
    append_escaped(text_, text, [](std::string& to, char c) {
      if (c != '"' && c != '\\' && c >= 0x20) return false;
      constexpr const char* hex = "0123456789abcdef";
      to += '\\';
      if (c >= 0x20) {
        to += c;
      } else {
        to += "u00";
        to += hex[c / 16];
        to += hex[c % 16];
      }
      return true;
    });
    text_ += '"';
  }

  void flush() {
    out_.write(text_.data(), static_cast<std::streamsize>(text_.size()));
    text_.clear();
  }

  static std::string task(const trace_entry& e) { return "task " + std::to_string(e.id); }

  static std::string in_microseconds(duration d) {
    const auto count = std::chrono::duration_cast<std::chrono::nanoseconds>(d).count();
    const std::string fraction = std::to_string(1000 + count % 1000);
    return std::to_string(count / 1000) + '.' + fraction.substr(1);
  }

  // One of the viewers' reserved colours.
  static const char* colour_of(const trace_entry* end) noexcept {
    if (end == nullptr || end->kind == event_kind::succeeded) return nullptr;
    if (end->kind == event_kind::dead) return "terrible";
    return end->kind == event_kind::failed ? "bad" : "grey";
  }

  std::ostream& out_;
  const trace_picture& picture_;
  std::vector<std::size_t> tids_;  // of a key's first lane
  std::string text_;
};

}  // namespace turnkey::inline v1::detail
