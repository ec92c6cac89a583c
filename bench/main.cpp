// Runs the benchmarks: a table on standard output, and the same figures as JSON in benchmarks.json, or where
// --benchmark_out says.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

int main(int argc, char** argv) {
  std::string out = "--benchmark_out=benchmarks.json";
  std::vector<char*> arguments(argv, argv + argc);
  arguments.insert(arguments.begin() + 1, out.data());  // what the user says comes later and wins
  int count = static_cast<int>(arguments.size());
  arguments.push_back(nullptr);
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
