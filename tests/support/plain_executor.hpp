// An executor that allocates nothing once it is made: permits wait in a stack of fixed size until they are run.
#pragma once

#include <turnkey/executor.hpp>

#include <cstddef>
#include <utility>
#include <vector>

namespace support {

class plain_executor {
 public:
  plain_executor() { permits_.reserve(64); }
  plain_executor(const plain_executor&) = delete;
  plain_executor& operator=(const plain_executor&) = delete;

  // Refuses while `refuses` is set, and when the stack is full.
  bool operator()(turnkey::work permit) {
    if (refuses || permits_.size() == permits_.capacity()) return false;
    permits_.push_back(std::move(permit));
    return true;
  }

  void run_all() {
    while (!permits_.empty()) {
      const turnkey::work permit = std::move(permits_.back());
      permits_.pop_back();
      permit();
    }
  }
  void drop_all() { permits_.clear(); }

  bool refuses = false;

 private:
  std::vector<turnkey::work> permits_;
};

}  // namespace support
