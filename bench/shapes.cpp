// What does the rule by key cost, compared to no rule, when tasks spread over few keys or many?
// Baselines: the bare pool; a map of queues under one mutex; a mutex, a strand for every key; keys hashed onto workers.
// TURNKEY_BENCH_ALL=1 crosses all shapes, key types, bodies, producers and workers.
#include "support/batch.hpp"

#include <cstdint>
#include <string>

namespace {

using namespace bench;

template <class Key>
void add(const batch& batch) {
  constexpr const char* question = "shapes";
  add_batches<bare_pool, Key>(question, batch);
  add_batches<map_of_queues, Key>(question, batch);
  add_batches<mutex_per_key, Key>(question, batch);
  add_batches<hash_onto_workers, Key>(question, batch);
  add_batches<strand_per_key, Key>(question, batch);
  add_batches<turnkey_ordered, Key>(question, batch);
}

void add_telling_ones() {
  for (const shape keys : shapes) add<std::uint64_t>({.keys = keys});
  for (const shape keys : {shape::hot, shape::thousand, shape::many})
    add<std::uint64_t>({.keys = keys, .producers = 2});
  add<std::uint64_t>({.keys = shape::thousand, .workers = 1});
  for (const shape keys : {shape::thousand, shape::many}) add<std::string>({.keys = keys});
  for (const shape keys : {shape::few, shape::thousand})
    add<std::uint64_t>({.keys = keys, .rounds = rounds_per_microsecond()});
}

void add_all() {
  for (const shape keys : shapes) {
    for (const std::uint32_t rounds : {std::uint32_t{0}, rounds_per_microsecond()}) {
      for (const unsigned producers : {1U, 2U, 4U}) {
        for (const unsigned workers : {1U, 2U}) {
          const batch batch{.keys = keys, .producers = producers, .workers = workers, .rounds = rounds};
          add<std::uint64_t>(batch);
          add<std::string>(batch);
        }
      }
    }
  }
}

[[maybe_unused]] const bool registered = [] {
  wants_all() ? add_all() : add_telling_ones();
  return true;
}();

}  // namespace
