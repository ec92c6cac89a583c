// The programs that fuzzing found worth keeping (tests/fuzz), each once: together they reach what the fuzzer has
// reached.
#include "simulation/program.hpp"

#include <doctest/doctest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace {

constexpr std::string_view corpus[]{
#include "fuzz/corpus.inc"
};

std::vector<std::uint8_t> bytes_of(std::string_view hex) {
  std::vector<std::uint8_t> bytes;
  for (std::size_t i = 0; i != hex.size(); i += 2)
    bytes.push_back(static_cast<std::uint8_t>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16)));
  return bytes;
}

}  // namespace

TEST_CASE("2, 8, 10 the programs of the corpus keep every rule that the model knows") {
  for (const std::string_view hex : corpus) {
    CAPTURE(hex);
    CHECK(simulation::program(bytes_of(hex)).run() == "");
  }
}
