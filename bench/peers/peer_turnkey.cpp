// turnkey as a peer of the comparison harness: ordered tasks over the harness's own pool, all features compiled in.
#include <turnkey/turnkey.hpp>

#include "std_pool.hpp"
#include "workload.hpp"

namespace {

template <class Key>
struct Turnkey {
  explicit Turnkey(unsigned workers) : pool(workers) {}

  template <class F>
  void submit(const Key& key, F&& f) {
    scheduler.submit(key, std::forward<F>(f));
  }
  void wait_idle() { static_cast<void>(scheduler.drain()); }

  peers::StdPool pool;
  turnkey::scheduler<Key> scheduler{[this](turnkey::work w) { pool.post(std::move(w)); },
                                    {.default_policy = turnkey::policy::ordered}};
};
PEERS_REGISTER(Turnkey, "turnkey", "std", peers::Kind::keyed);

}  // namespace
