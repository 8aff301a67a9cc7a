// Rounding by its definition, for the tests of this room: no other number of the format is nearer.
#pragma once

#include <cmath>
#include <cstdint>

#include "reference/numbers/rational.h"

namespace shardproof {

// Whether `got`, of a 16-bit format T, is the number nearest to x, ties to even. For rounding, an
// infinity counts as the number that the exponent after the largest would give.
template <class T>
bool is_nearest(T got, const Rational& x) {
  if (std::isnan(float(got))) return false;
  const std::uint16_t infinity = T(HUGE_VAL).bits();
  const auto value = [&](int magnitude) -> Rational {
    if (magnitude < infinity)
      return Rational(double(T::from_bits(static_cast<std::uint16_t>(magnitude))));
    const double largest = double(T::from_bits(static_cast<std::uint16_t>(infinity - 1)));
    return Rational(std::ldexp(1, std::ilogb(largest) + 1));
  };
  const bool negative = (got.bits() & 0x8000) != 0;
  if (x != 0 && negative != (x < 0)) return false;
  const int magnitude = got.bits() & 0x7fff;
  const Rational error = abs(value(magnitude) - abs(x));
  for (const int other : {magnitude - 1, magnitude + 1}) {
    if (other < 0 || other > infinity) continue;
    const Rational other_error = abs(value(other) - abs(x));
    if (other_error < error || (other_error == error && (magnitude & 1) != 0)) return false;
  }
  return true;
}

}  // namespace shardproof
