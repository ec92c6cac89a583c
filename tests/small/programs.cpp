// Every program of a few operations out of some, the shortest first, each judged by the reference model: five, or as
// many as TURNKEY_SMALL_OPERATIONS says; the target small_6 runs six. Programs with an operation that finds nothing to
// do are left out, for a shorter one does the same. A failure prints the program in words, and as letters that
// TURNKEY_SMALL_PROGRAM runs again.
#include "small/program.hpp"

#include <doctest/doctest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace {

using small::program;

const char* set_to(const char* variable) { return std::getenv(variable); }  // NOLINT(concurrency-mt-unsafe)

std::size_t finished = 0;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): programs of this test case

// The program that is under way, for the case that it crashes or hangs.
std::array<char, 100> under_way{};  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables)

void say_which(int signal) {
  static constexpr std::string_view what = "\ncrashed or hung: TURNKEY_SMALL_PROGRAM=";
  static_cast<void>(!write(STDERR_FILENO, what.data(), what.size()));
  static_cast<void>(!write(STDERR_FILENO, under_way.data(), std::strlen(under_way.data())));
  static_cast<void>(!write(STDERR_FILENO, "\n", 1));
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

enum class end { well, idle, wrong };

end run(const std::string& letters) {
  INFO("TURNKEY_SMALL_PROGRAM=", letters, ", after ", finished, " programs: ", program::in_words(letters));
  std::snprintf(under_way.data(), under_way.size(), "%s, after %zu programs", letters.c_str(), finished);
  alarm(20);
  program p(letters);
  const std::string wrong = p.run();
  ++finished;
  if (!wrong.empty()) FAIL_CHECK(wrong);
  return !wrong.empty() ? end::wrong : p.idle() ? end::idle : end::well;
}

// Up to the first that goes wrong.
void run_all(const char* name, char settings, std::string_view choices) {
  for (const int signal : {SIGALRM, SIGABRT, SIGSEGV}) std::signal(signal, say_which);
  if (const char* const one = set_to("TURNKEY_SMALL_PROGRAM")) {
    if (*one == settings) run(one);
    return;
  }
  const char* const set = set_to("TURNKEY_SMALL_OPERATIONS");
  const std::size_t longest = set != nullptr ? std::strtoull(set, nullptr, 10) : 5;
  const auto start = std::chrono::steady_clock::now();
  finished = 0;
  std::size_t programs = 0;
  std::vector<std::string> shorter{std::string(1, settings)};
  for (std::size_t n = 1; n <= longest; ++n) {
    std::vector<std::string> all;
    for (const std::string& begin : shorter)
      for (const char last : choices) {
        const std::string letters = begin + last;
        const end how = run(letters);
        if (how == end::wrong) return;
        if (how == end::idle) continue;
        ++programs;
        if (n != longest) all.push_back(letters);
      }
    shorter = std::move(all);
  }
  alarm(0);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  std::printf("%s: %zu programs of up to %zu operations out of %zu, %.1f s\n", name, programs, longest, choices.size(),
              seconds.count());
  std::fflush(stdout);
}

}  // namespace

TEST_CASE("2, 2.1, 2.2, 2.3, 2.9, 3, 5.2, 5.3, 6.1, 6.5, 7.1, 10.1, 10.3 every small program on one key") {
  run_all("one key", 'h', "PEOsfpzdlitcnkwarhem");
}

TEST_CASE("7.1, 7.2, 6.1, 6.5, 10.3 every small program with leases that run out, and are kept") {
  run_all("leases that are kept", 'l', "PEOsflitocnkwbagm");
}

TEST_CASE("7.1, 7.2, 6.1, 6.5, 10.3 every small program with leases that run out, and are taken away") {
  run_all("leases that are taken away", 'r', "PEOsflitocnkwbagm");
}

TEST_CASE("6.1, 6.2, 6.3, 6.4, 6.6, 2.11 every small program of control") {
  run_all("control", 'c', "PEODsflitckU1jvLGw");
}

TEST_CASE("7.7 every small program on two keys and both") { run_all("two keys", 'b', "EOABSTsflitckKwm"); }

TEST_CASE("7.4 every small program of coroutines") { run_all("coroutines", 'n', "PEOCsflitcnkqurm"); }

TEST_CASE("8, 8.2, 8.3, 8.4, 8.6 every small program in a pool that misbehaves") {
  run_all("pools", 'p', "PEsfitcmx2QIRFNYX");
}
