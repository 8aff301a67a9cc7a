// What the storage types of fewer than 24 bits of significand share (bfloat16.h, float16.h): their
// roundings, and operations that go through float64 and each round once.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

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

// x as a float32, rounded to odd: exact, or else the neighbour whose last bit is 1. Rounding that
// to a format at least 2 bits shorter equals rounding x itself (Boldo and Melquiond 2008).
inline float round_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  const auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (nearest == x || std::isnan(x) || (bits & 1u) != 0) return nearest;
  return std::bit_cast<float>(std::abs(x) > std::abs(nearest) ? bits + 1 : bits - 1);
}

// a + b as a float64, rounded to odd, while it stays finite and no sum is subnormal. The error of
// the nearest sum is a float64 number (Knuth's two-sum).
inline double sum_rounded_to_odd(double a, double b) {
  const double sum = a + b;
  const double b_part = sum - a;
  const double error = (a - (sum - b_part)) + (b - b_part);
  const auto bits = std::bit_cast<std::uint64_t>(sum);
  if (!(error != 0) || !std::isfinite(error) || (bits & 1u) != 0) return sum;
  return std::bit_cast<double>((error > 0) == (sum > 0) ? bits + 1 : bits - 1);
}

// The operations of T, a type of p bits of significand, through float64. That the second rounding
// is innocent: a product has 2p bits and is exact in float64; a sum, quotient or root that is not
// itself halfway between two numbers of T differs from every such halfway point (p + 1 bits) by
// more than 2^-(2p + 2) of itself, and float64 moves it by at most 2^-53 (Figueroa 1995:
// 53 >= 2p + 2). None of them is subnormal in float64. Where T's result is subnormal, halfway
// points have fewer bits still.
template <class T>
struct OperationsThroughFloat64 {
  friend T operator+(T a, T b) { return T(double(a) + double(b)); }
  friend T operator-(T a, T b) { return T(double(a) - double(b)); }
  friend T operator*(T a, T b) { return T(double(a) * double(b)); }
  friend T operator/(T a, T b) { return T(double(a) / double(b)); }
  friend T operator-(T a) { return T::from_bits(static_cast<std::uint16_t>(a.bits() ^ 0x8000u)); }
  friend T sqrt(T a) { return T(std::sqrt(double(a))); }
  // The product is exact, their sum rounds to odd, and T rounds that to nearest.
  friend T fma(T a, T b, T c) { return T(sum_rounded_to_odd(double(a) * double(b), double(c))); }

  // IEEE: NaN differs from itself, -0 equals +0.
  friend bool operator==(T a, T b) { return float(a) == float(b); }
  friend bool operator<(T a, T b) { return float(a) < float(b); }
};

}  // namespace shardproof
