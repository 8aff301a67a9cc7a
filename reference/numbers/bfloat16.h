// BFloat16: float32 cut to 8 bits of significand (spec §6), a storage type whose operations each
// round once, to nearest, ties to even. Subnormals are kept; NaN stays NaN with its sign and upper
// payload.
//
// Operations go through float64. That the second rounding is innocent: operands have 8 bits, so a
// product is exact in float64; a sum, quotient or reciprocal root that is not itself halfway
// between two bfloat16 numbers differs from every such halfway point (9 bits) by more than 2^-24 of
// itself, and float64 moves it by at most 2^-52 (Figueroa 1995: 53 >= 2·8 + 2). None of them is
// subnormal in float64. The conversion from float64 does not pass through a rounded float32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numbers/real.h"

namespace shardproof {

// The upper bits of x's encoding with the lower `dropped` rounded to nearest, ties to even; may
// carry into infinity. NaN keeps its upper bits, made quiet.
inline std::uint32_t round_off_bits(float x, int dropped) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t kept = ~std::uint32_t{0} << dropped;
  if (std::isnan(x)) return (bits & kept) | 0x00400000u;
  const std::uint32_t just_below_half = (std::uint32_t{1} << (dropped - 1)) - 1;
  return (bits + just_below_half + (bits >> dropped & 1u)) & kept;
}

// The nearest bfloat16 number, as a float32. Overflow gives infinity.
inline float round_to_bfloat16(float x) { return std::bit_cast<float>(round_off_bits(x, 16)); }

// The nearest tf32 number (11 bits of significand, float32's exponents), as a float32.
inline float round_to_tf32(float x) { return std::bit_cast<float>(round_off_bits(x, 13)); }

// x as a float32, rounded to odd: exact, or else the neighbour whose last bit is 1. Rounding that
// to a format at least 2 bits shorter equals rounding x itself (Boldo and Melquiond 2008).
inline float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (nearest == x || std::isnan(x) || (bits & 1u) != 0) return nearest;
  return std::bit_cast<float>(std::abs(x) > std::abs(nearest) ? bits + 1 : bits - 1);
}

class BFloat16 {
 public:
  BFloat16() = default;  // +0
  explicit BFloat16(int x) : BFloat16(static_cast<double>(x)) {}
  explicit BFloat16(float x) : bits_(static_cast<std::uint16_t>(round_off_bits(x, 16) >> 16)) {}
  explicit BFloat16(double x) : BFloat16(round_to_odd(x)) {}

  static BFloat16 from_bits(std::uint16_t bits) {
    BFloat16 x;
    x.bits_ = bits;
    return x;
  }
  std::uint16_t bits() const { return bits_; }

  // Exact.
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits_) << 16);
  }
  explicit operator double() const { return static_cast<float>(*this); }

  friend BFloat16 operator+(BFloat16 a, BFloat16 b) { return BFloat16(double(a) + double(b)); }
  friend BFloat16 operator-(BFloat16 a, BFloat16 b) { return BFloat16(double(a) - double(b)); }
  friend BFloat16 operator*(BFloat16 a, BFloat16 b) { return BFloat16(double(a) * double(b)); }
  friend BFloat16 operator/(BFloat16 a, BFloat16 b) { return BFloat16(double(a) / double(b)); }
  friend BFloat16 operator-(BFloat16 a) {
    return from_bits(static_cast<std::uint16_t>(a.bits_ ^ 0x8000u));
  }

  // IEEE: NaN differs from itself, -0 equals +0.
  friend bool operator==(BFloat16 a, BFloat16 b) { return float(a) == float(b); }
  friend bool operator<(BFloat16 a, BFloat16 b) { return float(a) < float(b); }

 private:
  std::uint16_t bits_ = 0;
};

template <>
struct RealTraits<BFloat16> : OrderedTraits<BFloat16> {
  static BFloat16 from_double(double x) { return BFloat16(x); }
  static BFloat16 rsqrt(BFloat16 x) { return BFloat16(1 / std::sqrt(double(x))); }
};

static_assert(Real<BFloat16>);

}  // namespace shardproof
