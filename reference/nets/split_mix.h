// SplitMix64: Steele, Lea and Flood 2014, doi 10.1145/2660193.2660195. Whole-number arithmetic, so
// the same seed gives the same draws on any machine.
#pragma once

#include <cstdint>
#include <string_view>

namespace shardproof {

class SplitMix {
 public:
  explicit SplitMix(std::uint64_t state) : state_(state) {}

  // A generator of its own for every seed and name: the name's FNV-1a hash, moved by the seed.
  SplitMix(std::uint64_t seed, std::string_view name) : state_(0xCBF29CE484222325U) {
    for (const char c : name) {
      state_ = (state_ ^ static_cast<unsigned char>(c)) * 0x100000001B3U;
    }
    state_ ^= SplitMix(seed).next();
  }

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15U;
    std::uint64_t z = state_;
    z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
    z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
    return z ^ (z >> 31U);
  }

 private:
  std::uint64_t state_;
};

}  // namespace shardproof
