// What a replay that was interrupted leaves behind: up to which line everything is finished, and what the store held.
// The store could hold more by then: what was finished beyond the mark is done again, in the order of its key, and ends
// the same. The file is replaced in one step, so a crash leaves the old one or the new one.
#pragma once

#include "event_log.hpp"
#include "flaky_store.hpp"

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <string>

namespace replay {

class resume_file {
 public:
  explicit resume_file(std::string name) : name_(std::move(name)) {}

  // The number of entries that are finished; the store gets back what it held. 0 when there is no file.
  //   Throws   input_error when it is not a file of this program and this log.
  std::size_t load(const event_log& log, flaky_store& store) const {
    std::ifstream in(name_);
    if (!in) {
      if (errno == ENOENT) return 0;
      throw input_error(name_ + ": cannot be opened: " + std::strerror(errno));
    }
    std::string word;
    std::size_t entries = 0;
    std::size_t mark = 0;
    if (!(in >> word >> entries >> mark) || word != "replay") throw input_error(name_ + ": is no file of --resume");
    if (entries != log.entries().size() || mark > entries)
      throw input_error(name_ + ": is of a log of " + std::to_string(entries) + " tasks, finished up to " +
                        std::to_string(mark) + "; this one has " + std::to_string(log.entries().size()));
    for (std::size_t written = 0; in >> written;) {
      if (written >= entries)
        throw input_error(name_ + ": is damaged: the store holds task " + std::to_string(written));
      store.put(log.entries()[written]);
    }
    if (!in.eof()) throw input_error(name_ + ": is damaged");
    return mark;
  }

  void save(const event_log& log, flaky_store& store, std::size_t mark) const {
    const std::string fresh = name_ + ".new";
    {
      std::ofstream out(fresh);
      out << "replay " << log.entries().size() << ' ' << mark << '\n';
      store.for_each([&](const entry& e) { out << &e - log.entries().data() << '\n'; });
      out.flush();
      if (!out) throw input_error(fresh + ": cannot be written");
    }
    if (std::rename(fresh.c_str(), name_.c_str()) != 0)
      throw input_error(name_ + ": cannot be written: " + std::strerror(errno));
  }

 private:
  std::string name_;
};

}  // namespace replay
