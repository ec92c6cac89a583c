// Runs the benchmarks: a table on standard output, and the same figures as JSON in benchmarks.json, or where
// --benchmark_out says. Returns 1 when one of them found a fault: a lost task, an overlap, a wrong order.
#include "support/verdict.hpp"

#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#if defined(__GLIBC__)
#include <malloc.h>
#endif

int main(int argc, char** argv) {
#if defined(__GLIBC__)
  // What was freed stays in the process: whoever runs second would else pay for the pages that the first gave back.
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
#endif
  std::string out = "--benchmark_out=benchmarks.json";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, out.data());  // what the user says comes later and wins
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return bench::found_a_fault() ? 1 : 0;
}
