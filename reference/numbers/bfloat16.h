// BFloat16: float32 cut to 8 bits of significand (spec §6), a storage type whose operations each
// round once, to nearest, ties to even (narrow_float.h). Subnormals are kept; NaN stays NaN with
// its sign and upper payload. The conversion from float64 does not pass through a rounded float32.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "reference/numbers/narrow_float.h"
#include "reference/numbers/real.h"

namespace shardproof {

// The nearest bfloat16 number, as a float32. Overflow gives infinity.
inline float round_to_bfloat16(float x) { return std::bit_cast<float>(round_off_bits(x, 16)); }

// The nearest tf32 number (11 bits of significand, float32's exponents), as a float32.
inline float round_to_tf32(float x) { return std::bit_cast<float>(round_off_bits(x, 13)); }

class BFloat16 : public OperationsThroughFloat64<BFloat16> {
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
