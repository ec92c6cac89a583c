// Which keys there are, and whose turn it is at each submit: made before anything is measured, and the same for all
// that are compared.
#pragma once

#include "arguments.hpp"
#include "support/workload.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace contention {

// From [0, 1), the same for the same number.
constexpr double chance(std::uint64_t number) noexcept {
  return static_cast<double>(bench::mixed(number) >> 11U) * 0x1p-53;
}

template <class Key>
class load {
 public:
  load(const arguments& asked, std::uint32_t keys) {
    keys_.reserve(keys);
    for (std::uint32_t i = 0; i != keys; ++i) keys_.push_back(bench::make_key<Key>(i));
    const std::vector<double> sums = shares(asked.distribution, keys);
    turns_.resize(asked.producers);
    for (std::size_t p = 0; p != turns_.size(); ++p) {
      turns_[p].resize((std::max)(std::size_t{keys}, shortest));
      std::uint64_t number = bench::mixed(p + 1);  // far from the names of tasks, whose chances decide what fails
      for (std::uint32_t& turn : turns_[p]) turn = pick(sums, keys, chance(number++));
    }
  }

  [[nodiscard]] std::uint32_t size() const noexcept { return static_cast<std::uint32_t>(keys_.size()); }
  [[nodiscard]] const Key& key(std::uint32_t number) const { return keys_[number]; }

  // The numbers of the keys that a producer submits to, one after the other, then from the start again.
  [[nodiscard]] const std::vector<std::uint32_t>& turns(std::size_t producer) const { return turns_[producer]; }

  // The share of all tasks that the busiest key has.
  [[nodiscard]] double busiest() const noexcept { return busiest_; }

 private:
  static constexpr std::size_t shortest = std::size_t{1} << 20U;

  // The shares of the keys up to each, rising to 1; empty when all are alike.
  std::vector<double> shares(const distribution& asked, std::uint32_t keys) {
    busiest_ = 1.0 / keys;
    if (asked.kind == distribution_kind::uniform || keys == 1) return {};
    std::vector<double> sums(keys);
    double sum = 0;
    for (std::uint32_t i = 0; i != keys; ++i) {
      if (asked.kind == distribution_kind::zipf) sum += std::pow(i + 1.0, -asked.parameter);
      if (asked.kind == distribution_kind::hot) sum += i == 0 ? asked.parameter : (1 - asked.parameter) / (keys - 1.0);
      sums[i] = sum;
    }
    for (double& each : sums) each /= sum;
    busiest_ = (std::max)(busiest_, sums.front());
    return sums;
  }

  static std::uint32_t pick(const std::vector<double>& sums, std::uint32_t keys, double random) {
    const double place = sums.empty()
                             ? random * keys
                             : static_cast<double>(std::upper_bound(sums.begin(), sums.end(), random) - sums.begin());
    return (std::min)(keys - 1, static_cast<std::uint32_t>(place));
  }

  std::vector<Key> keys_;
  std::vector<std::vector<std::uint32_t>> turns_;
  double busiest_ = 1;
};

}  // namespace contention
