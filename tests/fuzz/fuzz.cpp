// libFuzzer over the bytes that the simulation decodes, with the reference model as the judge. tests/fuzz/run feeds it;
// tests/simulation/corpus.cpp runs what it found worth keeping.
#include "simulation/program.hpp"

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  simulation::program p(std::span(data, size));
  const std::string wrong = p.run();
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "%s\n  run_bytes({", wrong.c_str());
  for (std::size_t i = 0; i != size; ++i) std::fprintf(stderr, "%s%d", i != 0 ? ", " : "", data[i]);
  std::fprintf(stderr, "});\n");
  std::abort();
}
