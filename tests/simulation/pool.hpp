// A pool whose threads come when told, and which treats each permit that it is handed as it is told to for this one:
// rule 8, with every misbehaviour at once.
#pragma once

#include <turnkey/testing.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <stdexcept>
#include <utility>
#include <vector>

namespace simulation {

class pool {
 public:
  using on_offer = turnkey::testing::on_offer;

  // `choose` gives the next number when the treatment of a permit hangs on one; 0 means that it is queued.
  explicit pool(std::function<std::size_t()> choose) : choose_(std::move(choose)) {}
  pool(const pool&) = delete;
  pool& operator=(const pool&) = delete;

  turnkey::testing::manual_executor queue;  // what waits for a thread

  // From now on all permits are treated like this, or each as `choose` says.
  void treat_all(on_offer how) {
    each_ = false;
    mode_ = how;
  }
  void treat_each() { each_ = true; }
  [[nodiscard]] bool treats_each() const { return each_; }
  [[nodiscard]] bool is_sound() const { return !each_ && mode_ == on_offer::queue; }

  // Permits that would be run inline are queued while `action` lasts.
  template <class Action>
  void without_inline(Action action) {
    const bool was = std::exchange(never_inline_, true);
    action();
    never_inline_ = was;
  }

  // A scheduler, `owner`, hands over a permit.
  bool offer(std::size_t owner, const turnkey::work& permit) {
    ++offered_;
    if (!each_) return treat(mode_, permit);
    const std::size_t b = choose_();
    switch (b % 16) {
      case 4: return treat(on_offer::run, permit);
      case 5: return treat(on_offer::refuse, permit);
      case 6: return treat(on_offer::fail, permit);
      case 7: throw 7;
      case 8: return treat(on_offer::queue_and_refuse, permit);
      case 9: return treat(on_offer::queue_and_fail, permit);
      case 10: return treat(on_offer::drop, permit);
      case 11:  // doubles
        treat(on_offer::queue, permit);
        return treat(on_offer::queue, permit);
      case 12:  // remembers what it has queued
        remembered_.push_back(permit);
        return treat(on_offer::queue, permit);
      case 13:  // is blocked for some time
        blocked_.push_back({permit, 1 + b / 16});
        return true;
      case 14:
        if (b / 16 < 4) {  // keeps for ever, and never runs
          kept_.push_back({owner, permit});
          return true;
        }
        return treat(on_offer::queue, permit);
      case 15:  // dies, with all that it has; the next one is another pool
        if (b / 16 < 8) lose_all();
        return b / 16 % 2 != 0;
      default: return treat(on_offer::queue, permit);
    }
  }

  // A moment later: what was blocked long enough is no longer.
  void pass() {
    for (std::size_t i = 0; i != blocked_.size();) {
      if (--blocked_[i].moments == 0) {
        unblock(i);
      } else {
        ++i;
      }
    }
  }
  void unblock_all() {
    while (!blocked_.empty()) unblock(0);
  }

  void drop_one(std::size_t index) {
    forget();
    queue.drop_one(index);
  }
  void lose_all() {
    forget();
    queue.drop_all();
    std::exchange(blocked_, {}).clear();
    std::exchange(kept_, {}).clear();
  }

  // All that is still here is run, once more than it may.
  void run_all() {
    for (const auto& kept : kept_) kept.permit();
    for (const auto& permit : remembered_) permit();
    unblock_all();
    queue.run_all();
  }

  [[nodiscard]] std::size_t offered() const { return offered_; }
  // A permit of this scheduler waits here, and nobody will come with it.
  [[nodiscard]] bool keeps_one_of(std::size_t owner) const {
    return std::any_of(kept_.begin(), kept_.end(), [owner](const auto& k) { return k.owner == owner; });
  }
  // Something is here that will run, or nobody but the pool knows that it will not.
  [[nodiscard]] bool has_one_of(std::size_t owner) const {
    return queue.size() != 0 || !blocked_.empty() || keeps_one_of(owner);
  }

 private:
  bool treat(on_offer how, const turnkey::work& permit) {
    queue.set_mode(how == on_offer::run && never_inline_ ? on_offer::queue : how);
    return queue(permit);
  }
  void unblock(std::size_t index) {
    const turnkey::work permit = std::move(blocked_[index].permit);
    blocked_.erase(blocked_.begin() + static_cast<std::ptrdiff_t>(index));
    treat(on_offer::queue, permit);
  }
  // Or a permit that is lost would not be missed.
  void forget() { std::exchange(remembered_, {}).clear(); }

  struct blocked_permit {
    turnkey::work permit;
    std::size_t moments;
  };
  struct kept_permit {
    std::size_t owner;
    turnkey::work permit;
  };

  std::function<std::size_t()> choose_;
  bool each_ = false;
  bool never_inline_ = false;
  on_offer mode_ = on_offer::queue;
  std::size_t offered_ = 0;
  std::vector<blocked_permit> blocked_;
  std::vector<kept_permit> kept_;          // for ever
  std::vector<turnkey::work> remembered_;  // what was queued too
};

}  // namespace simulation
