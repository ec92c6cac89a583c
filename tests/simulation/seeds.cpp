// Random programs in the manual world, each judged step by step by the reference model. A failure prints its seed and
// its bytes, made as short as they go, as a line for tests/simulation/found.cpp. TURNKEY_SIM_SEED runs one seed,
// TURNKEY_SIM_SECONDS sets how long new seeds are tried.
#include "simulation/program.hpp"

#include <doctest/doctest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

namespace {

using bytes = std::vector<std::uint8_t>;

// SplitMix64.
class generator {
 public:
  explicit generator(std::uint64_t seed) : state_(seed) {}
  std::uint64_t operator()() {
    state_ += 0x9e3779b97f4a7c15U;
    std::uint64_t x = state_;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
    return x ^ (x >> 31);
  }

 private:
  std::uint64_t state_;
};

// The pool as it comes, or one that treats each permit as the bytes say.
enum class pools { any, hostile };

bytes bytes_of(std::uint64_t seed, pools in) {
  generator random(seed);
  bytes all(32 + random() % 600);
  for (auto& each : all) each = static_cast<std::uint8_t>(random());
  if (in == pools::hostile) all[1] = static_cast<std::uint8_t>((all[1] & 0xf9) | 4);
  return all;
}

std::string as_text(const bytes& b) {
  std::ostringstream out;
  out << "{";
  for (const auto each : b) out << (out.tellp() > 1 ? ", " : "") << static_cast<int>(each);
  out << "}";
  return out.str();
}

// In a process of its own, for it may crash or hang.
bool fails(const bytes& b) {
  const pid_t child = fork();
  if (child == 0) {
    for (const int signal : {SIGABRT, SIGSEGV, SIGILL, SIGFPE}) std::signal(signal, SIG_DFL);
    std::freopen("/dev/null", "w", stderr);
    alarm(5);
    _exit(simulation::program(b).run().empty() ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return status != 0;
}

// Leaves out chunks, ever smaller ones, and makes bytes 0, while it still fails.
bytes shrunk(bytes b) {
  for (std::size_t size = b.size() / 2; size != 0; size /= 2)
    for (std::size_t at = 0; at + size <= b.size();) {
      bytes shorter = b;
      shorter.erase(shorter.begin() + static_cast<std::ptrdiff_t>(at),
                    shorter.begin() + static_cast<std::ptrdiff_t>(at + size));
      if (fails(shorter)) {
        b = shorter;
      } else {
        at += size;
      }
    }
  for (auto& each : b)
    if (const auto was = std::exchange(each, std::uint8_t{0}); was != 0 && !fails(b)) each = was;
  return b;
}

struct sums {
  std::uint64_t programs = 0;
  std::uint64_t operations = 0;
  std::uint64_t tasks = 0;
};

// False when the program of this seed went wrong; then it has been said.
bool run_seed(std::uint64_t seed, pools in, sums& sum) {
  INFO("TURNKEY_SIM_SEED=", seed);
  const bytes b = bytes_of(seed, in);
  simulation::program p(b);
  const std::string wrong = p.run();
  ++sum.programs;
  sum.operations += p.operations();
  sum.tasks += p.tasks();
  if (wrong.empty()) return true;
  const bytes small = shrunk(b);
  FAIL_CHECK("seed ", seed, ": ", wrong, "\n", small.size(), " of ", b.size(),
             " bytes: ", simulation::program(small).run(), "\n", "  run_bytes(", as_text(small), ");");
  return false;
}

const char* set_to(const char* variable) { return std::getenv(variable); }  // NOLINT(concurrency-mt-unsafe)

void run_seeds(pools in) {
  sums sum;
  std::uint64_t seed = 0;
  if (const char* const one = set_to("TURNKEY_SIM_SEED")) {
    seed = std::strtoull(one, nullptr, 0);
    if (set_to("TURNKEY_SIM_CRASH") != nullptr) MESSAGE("run_bytes(", as_text(shrunk(bytes_of(seed, in))), ");");
    run_seed(seed, in, sum);
  } else {
    const char* const seconds = set_to("TURNKEY_SIM_SECONDS");
    const auto end =
        std::chrono::steady_clock::now() + std::chrono::seconds(seconds != nullptr ? std::atoi(seconds) : 5);
    // The first seeds are run at any rate; as many again as there is time for.
    for (seed = 1; seed <= 300 || std::chrono::steady_clock::now() < end; ++seed)
      if (!run_seed(seed, in, sum)) break;
  }
  MESSAGE(sum.operations, " operations, ", sum.tasks, " tasks, ", sum.programs, " programs, seed ", seed);
}

}  // namespace

TEST_CASE(
    "2, 2.1, 2.2, 2.3, 2.9, 3.2, 3.3, 5.2, 5.3, 6.1, 6.2, 6.3, 6.4, 6.5, 7.1, 7.2, 7.3, 8.3, 8.4, 8.5, 9.1, 9.2, 9.3, "
    "9.4, 10.1, 10.5 random programs keep every rule that the model knows") {
  run_seeds(pools::any);
}

TEST_CASE("8, 8.2, 8.3, 8.4, 8.5, 8.6, 10.1 random programs in a pool that treats each permit in another way") {
  run_seeds(pools::hostile);
}
