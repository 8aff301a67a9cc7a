#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>

#include "reference/numbers/float16.h"
#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/nearest_by_definition.h"

namespace shardproof {
namespace {

constexpr std::uint16_t infinity = 0x7c00;

Float16 random_finite(HardNumbers& random) {
  const auto bits = static_cast<std::uint16_t>(random.bits());
  switch (random.below(4)) {
    case 0:
      return Float16::from_bits(bits & 0x87ff);  // subnormal, or just above
    case 1:
      return Float16::from_bits((bits & 0x83ff) | 0x3c00);  // near 1
    default:
      return (bits & infinity) == infinity ? Float16(1) : Float16::from_bits(bits);
  }
}

// By IEEE's formula for the format.
double by_definition(std::uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  const double magnitude =
      exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace

TEST_CASE("every float16 pattern is its number and survives float32 and float64; NaN stays NaN") {
  for (std::uint32_t pattern = 0; pattern < 0x10000; ++pattern) {
    const auto bits = static_cast<std::uint16_t>(pattern);
    const auto x = Float16::from_bits(bits);
    const Float16 through_float{float(x)}, through_double{double(x)};
    if ((bits & 0x7fff) > infinity) {
      REQUIRE(std::isnan(float(x)));
      REQUIRE(through_float.bits() == (bits | 0x200));
      REQUIRE(through_double.bits() == (bits | 0x200));
    } else {
      if ((bits & 0x7fff) < infinity) REQUIRE(double(x) == by_definition(bits));
      REQUIRE(through_float.bits() == bits);
      REQUIRE(through_double.bits() == bits);
    }
  }
  CHECK(std::isinf(float(Float16::from_bits(infinity))));
}

TEST_CASE("float32 and float64 round to float16 once, also beside the halfway points") {
  const auto check = [](double x) {
    if (!is_nearest(Float16(x), Rational(x))) FAIL(x << " gave " << float(Float16(x)));
    const auto narrow = static_cast<float>(x);
    if (!is_nearest(Float16(narrow), Rational(narrow))) FAIL(narrow);
  };
  for (std::uint16_t bits = 0; bits < infinity; ++bits) {
    const double low = by_definition(bits);
    const double high = bits + 1 == infinity ? 65536 : by_definition(bits + 1);
    const double halfway = (low + high) / 2;
    for (const double x :
         {halfway, std::nextafter(halfway, 0.0), std::nextafter(halfway, 1e300),
          static_cast<double>(std::nextafter(static_cast<float>(halfway), 0.0f)),
          static_cast<double>(std::nextafter(static_cast<float>(halfway), 1e9f))}) {
      check(x);
      check(-x);
    }
  }
  HardNumbers random(1);
  for (int i = 0; i < 50'000; ++i) check(random.with_exponent(-30, 20));
  CHECK(Float16(1e300).bits() == infinity);
  CHECK(Float16(-1e300).bits() == 0xfc00);
  CHECK(Float16(65519.0).bits() == 0x7bff);
  CHECK(Float16(65520.0).bits() == infinity);
  CHECK(Float16(-1e-300).bits() == 0x8000);
}

TEST_CASE("each float16 operation gives the nearest number to the exact result") {
  HardNumbers random(2);
  for (int i = 0; i < 100'000; ++i) {
    const Float16 a = random_finite(random), b = random_finite(random), c = random_finite(random);
    const Rational x{double(a)}, y{double(b)}, z{double(c)};
    bool right = is_nearest(a + b, x + y) && is_nearest(a - b, x - y) && is_nearest(a * b, x * y) &&
                 is_nearest(fma(a, b, c), x * y + z);
    if (y != 0) right = right && is_nearest(a / b, x / y);
    if (!right) FAIL(std::hex << a.bits() << ", " << b.bits() << " and " << c.bits());
  }
}

TEST_CASE("float16 square roots are nearest, all of them") {
  for (std::uint16_t bits = 1; bits < infinity; ++bits) {
    const auto x = Float16::from_bits(bits);
    const Float16 root = sqrt(x);
    const auto halfway = [&](int step) -> Rational {
      const auto other = Float16::from_bits(static_cast<std::uint16_t>(root.bits() + step));
      return Rational(double(root) / 2 + double(other) / 2);
    };
    const Rational low = halfway(-1), high = halfway(1), exact{double(x)};
    if (low * low > exact || high * high < exact) FAIL(std::hex << bits);
  }
}

TEST_CASE("float16 follows IEEE at infinities, zeros and NaN") {
  const auto inf = Float16::from_bits(infinity);
  const Float16 zero(0), minus_zero(-0.0), nan(std::nan(""));
  CHECK(std::isnan(float(inf - inf)));
  CHECK(std::isnan(float(fma(zero, inf, zero))));
  CHECK(fma(inf, Float16(1), zero).bits() == infinity);
  CHECK(std::isnan(float(sqrt(Float16(-1)))));
  CHECK((Float16(1) / minus_zero).bits() == 0xfc00);
  CHECK(zero == minus_zero);
  CHECK((minus_zero).bits() == 0x8000);
  CHECK((-minus_zero).bits() == 0);
  CHECK_FALSE(nan == nan);
  CHECK((Float16(65504) + Float16(65504)).bits() == infinity);
  CHECK(Float16(-7).bits() == 0xc700);
}

}  // namespace shardproof
