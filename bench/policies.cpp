// What does each policy cost beside the others, on one key and on a thousand?
// Baseline: the bare pool, in between, as the counter x.
#include "support/batch.hpp"

#include <cstdint>

namespace {

using namespace bench;

[[maybe_unused]] const bool registered = [] {
  constexpr const char* question = "policies";
  for (const shape keys : {shape::hot, shape::thousand}) {
    const batch batch{.keys = keys};
    add_batches<bare_pool, std::uint64_t>(question, batch);
    add_batches<turnkey_parallel, std::uint64_t>(question, batch);
    add_batches<turnkey_exclusive, std::uint64_t>(question, batch);
    add_batches<turnkey_ordered, std::uint64_t>(question, batch);
    add_batches<turnkey_keyless, std::uint64_t>(question, batch);
  }
  return true;
}();

}  // namespace
