// How fast is turnkey on the shape of work that you have, beside the pool alone and the ways that people write by hand?
// Options say what the shape is; see --help.
#include "contention/arguments.hpp"
#include "contention/chart.hpp"
#include "contention/contenders.hpp"
#include "contention/json.hpp"
#include "contention/load.hpp"
#include "contention/progress.hpp"
#include "contention/result.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <fstream>
#include <iostream>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace contention;

std::vector<contender> chosen(const arguments& asked) {
  std::vector<contender> all{ours};
  for (const contender& each : baselines)
    if (std::find(asked.against.begin(), asked.against.end(), each.name) != asked.against.end()) all.push_back(each);
  return all;
}

// One number of keys. Contenders alternate, and each repetition starts with another one.
template <class Key>
group measure_all(const arguments& asked, std::uint32_t keys, progress& progress) {
  group results;
  for (const contender& who : chosen(asked)) results.push_back({keys, who, {}});
  const load<Key> load(asked, keys);
  for (std::size_t repetition = 0; repetition != asked.repetitions; ++repetition) {
    for (std::size_t i = 0; i != results.size(); ++i) {
      result& next = results[(repetition + i) % results.size()];
      progress.begin(short_number(keys) + (keys == 1 ? " key, " : " keys, ") + next.who.title);
      next.repetitions.push_back(measure(next.who, asked, load, progress));
      progress.end(next.repetitions.back().per_second());
    }
  }
  progress.clear();
  return results;
}

// Opened before anything is measured, so that a name that is no good is refused at once; what is in the file stays
// until there is something to replace it.
void check_writable(const std::string& option, const std::optional<std::string>& file) {
  if (!file || *file == "-") return;
  if (!std::ofstream(*file, std::ios::app))
    setting{option, *file}.refuse(std::string("cannot be written: ") + std::strerror(errno));
}

template <class Write>
void write_file(const std::string& option, const std::string& file, Write write) {
  std::ofstream out(file);
  write(out);
  if (!out.flush()) throw std::runtime_error(option + " '" + file + "': cannot be written: " + std::strerror(errno));
}

void write_chart(std::ostream& out, const arguments& asked, const std::vector<group>& groups) {
  std::vector<chart_line> lines;
  for (const result& each : groups.front())
    lines.push_back({each.who.title, &each == bare_pool_of(groups.front()), {}});
  for (const group& results : groups) {
    for (std::size_t i = 0; i != results.size(); ++i) {
      const spread throughput = results[i].of(&measurement::per_second);
      lines[i].points.push_back(
          {static_cast<double>(results[i].keys), throughput.median, throughput.smallest, throughput.largest});
    }
  }
  chart(conditions(asked) + (asked.repetitions > 1 ? ", bars from min to max" : ""), std::move(lines)).draw(out);
}

int run(const arguments& asked) {
  check_writable("--json", asked.json);
  check_writable("--svg", asked.svg);
#ifndef __OPTIMIZE__
  std::cerr << "Built without optimisation: the figures say little.\n";
#endif
  progress progress(chosen(asked).size() * asked.keys.size() * asked.repetitions, asked.seconds * (1 + warm_up));
  const bool table = asked.json != "-";
  if (table) print_head(std::cout, asked);
  std::vector<group> groups;
  for (const std::uint32_t keys : asked.keys) {
    groups.push_back(asked.string_keys ? measure_all<std::string>(asked, keys, progress)
                                       : measure_all<std::uint64_t>(asked, keys, progress));
    if (table) print_group(std::cout, groups.back());
  }

  if (asked.svg) write_file("--svg", *asked.svg, [&](std::ostream& out) { write_chart(out, asked, groups); });
  if (asked.json == "-")
    json(std::cout).write(asked, groups);
  else if (asked.json)
    write_file("--json", *asked.json, [&](std::ostream& out) { json(out).write(asked, groups); });

  std::ostream& verdict = table ? std::cout : std::cerr;
  verdict << "\n";
  print_others(verdict, groups);
  if (print_broken(verdict, groups) != 0) return 1;
  verdict << "Every task finished once, and every key kept what it was promised.\n";
  return 0;
}

}  // namespace

int main(int count, char** words) {
  try {
    const arguments asked = parse(count, words, baseline_names());
    if (!asked.help) return run(asked);
    std::cout << help();
    return 0;
  } catch (const usage_error& error) {
    std::cerr << "contention: " << error.what() << "\nTry contention --help.\n";
  } catch (const std::exception& error) {
    std::cerr << "contention: " << error.what() << "\n";
  }
  return 2;
}
