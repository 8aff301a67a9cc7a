#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/numbers/bfloat16.h"
#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/nearest_by_definition.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

constexpr float infinity = std::numeric_limits<float>::infinity();

// Rounding by its definition: of the two neighbours with `dropped` low bits zero, the nearer;
// halfway, the one whose last kept bit is 0. Infinity counts as 2^128. All differences are exact in
// float64.
float nearest_by_distance(float x, int dropped) {
  if (std::isinf(x)) return x;
  const std::uint32_t step = std::uint32_t{1} << dropped;
  const std::uint32_t below = std::bit_cast<std::uint32_t>(x) & ~(step - 1);
  const auto value = [](std::uint32_t bits) {
    const double v = std::bit_cast<float>(bits);
    return std::isinf(v) ? std::copysign(0x1p128, v) : v;
  };
  const double to_below = std::abs(x - value(below)), to_above = std::abs(value(below + step) - x);
  const bool up = to_above < to_below || (to_above == to_below && (below & step) != 0);
  return std::bit_cast<float>(up ? below + step : below);
}

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

BFloat16 random_finite(HardNumbers& random) {
  const auto bits = static_cast<std::uint16_t>(random.bits());
  switch (random.below(4)) {
    case 0:
      return BFloat16::from_bits(bits & 0x80ff);  // subnormal, or just above
    case 1:
      return BFloat16::from_bits((bits & 0x83ff) | 0x3e00);  // near 1
    default:
      return (bits & 0x7f80) == 0x7f80 ? BFloat16(1) : BFloat16::from_bits(bits);
  }
}

}  // namespace

TEST_CASE("every bfloat16 pattern survives float32 and float64; NaN stays NaN") {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const auto x = BFloat16::from_bits(static_cast<std::uint16_t>(bits));
    const BFloat16 through_float{float(x)}, through_double{double(x)};
    if (std::isnan(float(x))) {
      REQUIRE(through_float.bits() == (bits | 0x40));
      REQUIRE(std::isnan(float(through_double)));
    } else {
      REQUIRE(through_float.bits() == bits);
      REQUIRE(through_double.bits() == bits);
    }
  }
  const auto nan_with_low_payload = std::bit_cast<float>(0xff800001u);
  CHECK(BFloat16(nan_with_low_payload).bits() == 0xffc0);
  CHECK(std::isnan(round_to_bfloat16(nan_with_low_payload)));
  CHECK(std::isnan(round_to_tf32(nan_with_low_payload)));
}

TEST_CASE("float32 rounds to the nearest bfloat16 and tf32 number, ties to even") {
  const auto check = [](std::uint32_t bits) {
    const auto x = std::bit_cast<float>(bits);
    if (std::isnan(x)) return;
    if (!same_bits(round_to_bfloat16(x), nearest_by_distance(x, 16)) ||
        !same_bits(round_to_tf32(x), nearest_by_distance(x, 13)) ||
        !same_bits(float(BFloat16(x)), round_to_bfloat16(x))) {
      FAIL(std::hex << bits);
    }
  };
  for (std::uint64_t bits = 0; bits < 0x100000000; bits += 2039) {
    check(static_cast<std::uint32_t>(bits));
  }
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low :
         {0x0fffu, 0x1000u, 0x1001u, 0x3000u, 0x7fffu, 0x8000u, 0x8001u}) {
      check(high << 16 | low);
    }
  }
}

TEST_CASE("float64 rounds to bfloat16 once, also beside the halfway points") {
  const auto check = [](double x) {
    if (!is_nearest(BFloat16(x), Rational(x))) FAIL(x << " gave " << float(BFloat16(x)));
  };
  for (std::uint32_t bits = 0; bits < 0x7f80; ++bits) {
    const auto low = BFloat16::from_bits(static_cast<std::uint16_t>(bits));
    const auto high = BFloat16::from_bits(static_cast<std::uint16_t>(bits + 1));
    const double above = std::isinf(float(high)) ? 0x1p128 : double(high);
    const double halfway = double(low) / 2 + above / 2;
    for (const double x : {halfway, std::nextafter(halfway, 0.0), std::nextafter(halfway, 1e300)}) {
      check(x);
      check(-x);
    }
  }
  HardNumbers random(1);
  for (int i = 0; i < 50'000; ++i) check(random.with_exponent(-140, 130));
  CHECK(BFloat16(1e300).bits() == 0x7f80);
  CHECK(BFloat16(-1e300).bits() == 0xff80);
  CHECK(BFloat16(1e-300).bits() == 0);
  CHECK(BFloat16(-1e-300).bits() == 0x8000);
}

TEST_CASE("each bfloat16 operation gives the nearest number to the exact result") {
  HardNumbers random(2);
  for (int i = 0; i < 100'000; ++i) {
    const BFloat16 a = random_finite(random), b = random_finite(random);
    const Rational x{double(a)}, y{double(b)};
    bool right = is_nearest(a + b, x + y) && is_nearest(a - b, x - y) && is_nearest(a * b, x * y);
    if (y != 0) right = right && is_nearest(a / b, x / y);
    if (!right) FAIL(std::hex << a.bits() << " and " << b.bits());
  }
}

TEST_CASE("bfloat16 fma rounds once, also where the product dwarfs the sum's other part") {
  HardNumbers random(3);
  for (int i = 0; i < 100'000; ++i) {
    const BFloat16 a = random_finite(random), b = random_finite(random);
    BFloat16 c = random_finite(random);
    // Beside a halfway point of the product, where rounding the sum to float64 first would err.
    if (random.coin()) c = BFloat16(double(a) * double(b) * std::ldexp(1, -random.below(120)));
    if (std::isinf(float(c))) continue;
    if (!is_nearest(fma(a, b, c),
                    Rational(double(a)) * Rational(double(b)) + Rational(double(c)))) {
      FAIL(std::hex << a.bits() << ", " << b.bits() << " and " << c.bits());
    }
  }
  // 1 + 2^-8 is halfway, and the last part alone says which way; float64 loses it.
  const BFloat16 one(1), tiny(0x1p-100), halfway_root(1 + 0x1p-7);
  CHECK(float(fma(BFloat16(0x1.01p0f), one, tiny)) == 1.0f);
  CHECK(fma(halfway_root, BFloat16(1.5), tiny).bits() == BFloat16(1.515625).bits());
  CHECK(fma(halfway_root, BFloat16(1.5), -tiny).bits() == BFloat16(1.5078125).bits());
}

TEST_CASE("bfloat16 reciprocal square roots are nearest, all of them") {
  for (std::uint32_t bits = 1; bits < 0x7f80; ++bits) {
    const auto x = BFloat16::from_bits(static_cast<std::uint16_t>(bits));
    const BFloat16 root = rsqrt(x);
    const auto halfway = [&](int step) -> Rational {
      const auto other = BFloat16::from_bits(static_cast<std::uint16_t>(root.bits() + step));
      return Rational(double(root) / 2 + double(other) / 2);
    };
    const Rational low = halfway(-1), high = halfway(1), exact{double(x)};
    if (low * low * exact > 1 || high * high * exact < 1) FAIL(std::hex << bits);
  }
}

TEST_CASE("bfloat16 follows IEEE at infinities, zeros and NaN") {
  const BFloat16 inf(infinity), zero(0), minus_zero(-0.0), nan(std::nanf(""));
  CHECK(std::isnan(float(inf - inf)));
  CHECK(std::isnan(float(zero * inf)));
  CHECK(float(BFloat16(1) / minus_zero) == -infinity);
  CHECK(zero == minus_zero);
  CHECK_FALSE(nan == nan);
  CHECK(float(BFloat16(3e38) + BFloat16(3e38)) == infinity);
  CHECK(BFloat16(-7).bits() == 0xc0e0);
}

}  // namespace shardproof
