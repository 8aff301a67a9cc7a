// Random: SplitMix64 (Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195) and the few draws
// the project makes with it. Whole-number arithmetic and single float64 operations only, so that
// one seed gives the same bytes on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>

namespace shardproof {

class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}
  // A stream of its own for each name under one seed: the name's FNV-1a hash, moved by the seed.
  Random(std::uint64_t seed, std::string_view name) : state_(0xCBF29CE484222325U) {
    for (const char c : name) state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    state_ ^= Random(seed).next();
  }
  // And for each index under one seed and name.
  Random(std::uint64_t seed, std::string_view name, std::uint64_t index)
      : state_(Random(seed, name).next() ^ Random(index).next()) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }
  // Uniform in 0 … bound − 1, bound ≤ 2^32; off by at most 2^-32 in probability.
  std::uint64_t below(std::uint64_t bound) { return ((next() >> 32U) * bound) >> 32U; }
  // Uniform among the whole numbers low … high.
  std::int64_t integer(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(below(static_cast<std::uint64_t>(high - low) + 1));
  }
  // Uniform in [0, 1), 53 bits.
  double uniform() { return static_cast<double>(next() >> 11U) * 0x1p-53; }
  bool coin() { return (next() >> 63U) != 0; }
  double sign() { return coin() ? 1.0 : -1.0; }
  // The sum of two independent numbers uniform in ±half_width.
  double triangular(double half_width) {
    return half_width * (2.0 * (uniform() + uniform()) - 2.0);
  }

  template <class T>
  void shuffle(std::span<T> items) {
    for (std::size_t i = items.size(); i > 1; --i) std::swap(items[i - 1], items[below(i)]);
  }

 private:
  std::uint64_t state_;
};

}  // namespace shardproof
