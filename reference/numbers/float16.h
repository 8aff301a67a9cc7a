// Float16: IEEE binary16, 11 bits of significand, a storage type whose operations each round once,
// to nearest, ties to even (narrow_float.h). Subnormals are kept; NaN stays NaN with its sign and
// upper payload. The conversion from float64 does not pass through a rounded float32.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numbers/narrow_float.h"
#include "reference/numbers/real.h"

namespace shardproof {

class Float16 : public OperationsThroughFloat64<Float16> {
 public:
  Float16() = default;  // +0
  explicit Float16(int x) : Float16(static_cast<double>(x)) {}
  explicit Float16(float x) : bits_(nearest(x)) {}
  explicit Float16(double x) : Float16(round_to_odd(x)) {}

  static Float16 from_bits(std::uint16_t bits) {
    Float16 x;
    x.bits_ = bits;
    return x;
  }
  std::uint16_t bits() const { return bits_; }

  // Exact.
  explicit operator float() const {
    const std::uint32_t sign = (bits_ & 0x8000u) << 16, magnitude = bits_ & 0x7fffu;
    if (magnitude < kSmallestNormal) {
      const float x = static_cast<float>(magnitude) * 0x1p-24f;
      return sign != 0 ? -x : x;
    }
    // Infinities and NaN have the largest exponent of either format.
    const std::uint32_t bias = magnitude < kInfinity ? kBias : 2 * kBias;
    return std::bit_cast<float>(sign | ((magnitude << 13) + bias));
  }
  explicit operator double() const { return static_cast<float>(*this); }

 private:
  static constexpr std::uint32_t kSmallestNormal = 0x0400, kInfinity = 0x7c00;
  static constexpr std::uint32_t kBias = (127u - 15u) << 23;  // between the formats' exponents

  static std::uint16_t nearest(float x) {
    const std::uint32_t sign = std::bit_cast<std::uint32_t>(x) >> 16 & 0x8000u;
    const float magnitude = std::abs(x);
    std::uint32_t bits = 0;
    if (std::isnan(x) || magnitude == HUGE_VALF) {
      bits = (round_off_bits(magnitude, 13) - 2 * kBias) >> 13;
    } else if (magnitude < 0x1p-14f) {
      // The sum with 1/2 rounds to a multiple of 2^-24, float16's smallest number.
      bits = std::bit_cast<std::uint32_t>(magnitude + 0.5f) - std::bit_cast<std::uint32_t>(0.5f);
    } else {
      bits = std::min((round_off_bits(magnitude, 13) - kBias) >> 13, kInfinity);
    }
    return static_cast<std::uint16_t>(sign | bits);
  }

  std::uint16_t bits_ = 0;
};

template <>
struct RealTraits<Float16> : OrderedTraits<Float16> {
  static Float16 from_double(double x) { return Float16(x); }
  static Float16 rsqrt(Float16 x) { return Float16(1 / std::sqrt(double(x))); }
};

static_assert(Real<Float16>);

}  // namespace shardproof
