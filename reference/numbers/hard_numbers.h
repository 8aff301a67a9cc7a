// HardNumbers: random float64 numbers for the tests of this room: every exponent alike, subnormals,
// the edge of overflow, small integers, and neighbours of a given number, which cancel against it.
#pragma once

#include <cmath>
#include <cstdint>

#include "reference/numbers/random.h"

namespace shardproof {

class HardNumbers {
 public:
  explicit HardNumbers(std::uint64_t seed) : random_(seed) {}

  std::uint64_t bits() { return random_.next(); }
  int below(int n) { return static_cast<int>(random_.below(static_cast<std::uint64_t>(n))); }
  bool coin() { return random_.coin(); }
  double unit() { return random_.uniform(); }  // [0, 1)

  // Sign and significand at random, magnitude in [2^lowest, 2^(highest + 1)), the exponent uniform.
  double with_exponent(int lowest, int highest) {
    const double magnitude = std::ldexp(1 + unit(), lowest + below(highest - lowest + 1));
    return coin() ? magnitude : -magnitude;
  }

  double finite() {
    switch (below(6)) {
      case 0:
        return below(21) - 10;
      case 1:
        return with_exponent(-1074, 1023);
      case 2:
        return with_exponent(-1074, -1015);
      case 3:
        return with_exponent(1015, 1023);
      default:
        return with_exponent(-3, 3);
    }
  }

  // x, or a few units in the last place away.
  double neighbour(double x) {
    for (int steps = below(3); steps > 0; --steps) x = std::nextafter(x, coin() ? 2 * x : 0);
    return x;
  }

 private:
  Random random_;
};

}  // namespace shardproof
