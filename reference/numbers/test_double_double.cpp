#include <catch2/catch.hpp>
#include <cmath>

#include "reference/numbers/double_double.h"
#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

Rational exact(const DoubleDouble& x) { return Rational(x.high) + Rational(x.low); }

// Whether high is the float64 number nearest to the sum.
bool normalised(const DoubleDouble& x) { return x.high + x.low == x.high; }

bool close(const DoubleDouble& got, const Rational& expected) {
  static const Rational bound(0x1p-102);
  return normalised(got) && abs(exact(got) - expected) <= bound * abs(expected);
}

// low anywhere from half an ulp of high downwards, so that halfway cases arise.
DoubleDouble random_pair(HardNumbers& random, int lowest, int highest) {
  const double high = random.with_exponent(lowest, highest);
  double low = std::ldexp(high, -54 - (random.coin() ? 0 : random.below(50))) * random.unit();
  if (random.below(4) == 0) low = 0;
  if (random.coin()) low = -low;
  return DoubleDouble::fast_two_sum(high, low);
}

}  // namespace

TEST_CASE("two_sum and two_prod are exact") {
  HardNumbers random(1);
  for (int i = 0; i < 50'000; ++i) {
    const double a = random.with_exponent(-400, 400);
    const double b = random.coin() ? -random.neighbour(a) : random.with_exponent(-400, 400);
    REQUIRE(exact(DoubleDouble::two_sum(a, b)) == Rational(a) + Rational(b));
    REQUIRE(exact(DoubleDouble::two_prod(a, b)) == Rational(a) * Rational(b));
  }
}

TEST_CASE("DoubleDouble operations have a relative error of at most 2^-102") {
  HardNumbers random(2);
  for (int i = 0; i < 100'000; ++i) {
    const int range = random.coin() ? 400 : 2;
    const DoubleDouble a = random_pair(random, -range, range);
    DoubleDouble b = random_pair(random, -range, range);
    if (random.below(3) == 0) {  // cancels in the leading part, or almost wholly
      b = DoubleDouble::fast_two_sum(-random.neighbour(a.high), random.coin() ? a.low : b.low * 0);
    }
    const Rational x = exact(a), y = exact(b);
    if (!close(a + b, x + y) || !close(a - b, x - y) || !close(a * b, x * y) ||
        !close(a / b, x / y)) {
      FAIL(std::hexfloat << a.high << " + " << a.low << " and " << b.high << " + " << b.low);
    }
  }
}

TEST_CASE("DoubleDouble square roots have a relative error of at most 2^-102") {
  HardNumbers random(3);
  // y = √x (1 + e) has y²/x - 1 = 2e + e²
  const Rational bound(0x1p-101);
  for (int i = 0; i < 100'000; ++i) {
    const int range = random.coin() ? 800 : 1;
    DoubleDouble x = random_pair(random, -range, range);
    if (x.high < 0) x = -x;
    const Rational root = exact(sqrt(x)), reciprocal = exact(rsqrt(x));
    if (!normalised(sqrt(x)) || !normalised(rsqrt(x)) || abs(root * root / exact(x) - 1) > bound ||
        abs(reciprocal * reciprocal * exact(x) - 1) > bound) {
      FAIL(std::hexfloat << x.high << " + " << x.low);
    }
  }
  CHECK(sqrt(DoubleDouble(0)) == DoubleDouble(0));
  CHECK(rsqrt(DoubleDouble(16)) == DoubleDouble(0.25));
}

TEST_CASE("DoubleDouble's order looks at the low part when the high parts are equal") {
  const DoubleDouble one(1), above(1, 0x1p-80), below(1, -0x1p-80);
  CHECK(below < one);
  CHECK(one < above);
  CHECK_FALSE(one < one);
  CHECK(maximum(one, above) == above);
  CHECK(maximum(above, below) == above);
  CHECK(relu(DoubleDouble(-1)) == DoubleDouble(0));
  CHECK(relu(above) == above);
  CHECK(relu6(DoubleDouble(6, 0x1p-80)) == DoubleDouble(6));
  CHECK(relu6(DoubleDouble(6, -0x1p-80)) == DoubleDouble(6, -0x1p-80));
}

}  // namespace shardproof
