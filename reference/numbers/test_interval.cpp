#include <catch2/catch.hpp>
#include <limits>
#include <stdexcept>
#include <vector>

#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/interval.h"

namespace shardproof {
namespace {

using I30 = Interval<30>;

template <class T>
concept Ordered = requires(const T& a, const T& b) {
  a < b;
};
template <class T>
concept EqualityTested = requires(const T& a, const T& b) {
  a == b;
};
static_assert(!Ordered<I30> && Ordered<Rational>);
static_assert(!EqualityTested<I30> && EqualityTested<Rational>);

template <class Bound>
Rational exact(const Bound& bound) {
  Rational x;
  mpfr_get_q(x.backend().data(), bound.backend().data());
  return x;
}

}  // namespace

TEST_CASE("Interval contains the exact rational value of random expression trees") {
  HardNumbers random(1);
  for (int tree = 0; tree < 20'000; ++tree) {
    double last = random.finite();
    I30 interval(last);
    Rational exact(last);
    for (int step = 0; step < 5; ++step) {
      const double x = random.below(4) == 0 ? -random.neighbour(last) : random.finite();
      if (!std::isfinite(x)) continue;
      last = x;
      const I30 ix(x);
      const Rational ex(x);
      switch (random.below(7)) {
        case 0:
          interval = interval + ix, exact = exact + ex;
          break;
        case 1:
          interval = ix - interval, exact = ex - exact;
          break;
        case 2:
          interval = interval * ix, exact = exact * ex;
          break;
        case 3:
          if (x != 0) interval = interval / ix, exact = exact / ex;
          break;
        case 4:
          if (interval.contains(0.0)) break;
          interval = ix / interval, exact = ex / exact;
          break;
        case 5:
          interval = maximum(interval, -ix), exact = maximum(exact, Rational(-ex));
          break;
        default:
          interval = relu6(relu(interval) - ix), exact = relu6(Rational(relu(exact) - ex));
      }
      if (!interval.contains(exact)) {
        FAIL(exact << " outside [" << interval.lower() << ", " << interval.upper() << "]");
      }
    }
  }
}

TEMPLATE_TEST_CASE_SIG("Interval's reciprocal square root contains the root within its digits", "",
                       ((int Digits), Digits), 30, 80, 160, 320) {
  HardNumbers random(2);
  Rational relative_width(1);
  for (int digit = 1; digit < Digits; ++digit) relative_width /= 10;
  for (int i = 0; i < 3'000; ++i) {
    const double x = std::abs(random.with_exponent(-1074, 1023));
    const auto root = rsqrt(Interval<Digits>(x));
    const Rational low = exact(root.lower()), high = exact(root.upper()), argument(x);
    if (low * low * argument > 1 || high * high * argument < 1) FAIL("outside: rsqrt of " << x);
    if (high - low > relative_width * high) FAIL("wide: rsqrt of " << x);
  }
}

TEST_CASE("Interval's relu, relu6, maximum and rsqrt act on both end points") {
  const I30 across = I30(-1, 2), beyond = I30(5, 8);
  CHECK((relu(across).lower() == 0 && relu(across).upper() == 2));
  CHECK((relu6(beyond).lower() == 5 && relu6(beyond).upper() == 6));
  CHECK((relu6(across).lower() == 0 && relu6(across).upper() == 2));
  CHECK((maximum(across, I30(0, 1)).lower() == 0 && maximum(across, I30(0, 1)).upper() == 2));
  const I30 root = rsqrt(I30(4, 16));
  CHECK((root.lower() == 0.25 && root.upper() == 0.5));
}

TEST_CASE("intervals meet exactly when they share a point") {
  CHECK(meets(I30(0, 1), I30(1, 2)));
  CHECK(meets(I30(1, 2), I30(0, 1)));
  CHECK(meets(I30(0, 3), I30(1, 2)));
  CHECK_FALSE(meets(I30(0, 1), I30(1.5, 2)));
  CHECK_FALSE(meets(I30(1.5, 2), I30(0, 1)));
}

TEST_CASE("an interval's width is rounded up and contains neither NaN nor points beyond its ends") {
  const I30 third = I30(1) / I30(3);
  CHECK(third.width() > 0);
  CHECK(third.contains(Rational(1, 3)));
  CHECK_FALSE(third.contains(1.0 / 3));
  CHECK(I30(1, 3).width() == 2);
  CHECK(I30(-0x1p-200, 1).width() > 1);
  CHECK(I30(1, 3).contains(1.0));
  CHECK_FALSE(I30(1, 3).contains(std::nextafter(3.0, 4.0)));
  CHECK_FALSE(I30(1, 3).contains(Rational(99, 100)));
  CHECK_FALSE(I30(1, 3).contains(std::numeric_limits<double>::quiet_NaN()));
}

TEST_CASE("Interval refuses what has no enclosure") {
  CHECK_THROWS_AS(I30(1) / I30(-1, 1), std::domain_error);
  CHECK_THROWS_AS(I30(1) / I30(0, 1), std::domain_error);
  CHECK_THROWS_AS(rsqrt(I30(0, 1)), std::domain_error);
  CHECK_THROWS_AS(rsqrt(I30(-1, 1)), std::domain_error);
  CHECK_THROWS_AS(I30(2, 1), std::domain_error);
  CHECK_THROWS_AS(I30(std::numeric_limits<double>::infinity()), std::domain_error);
  CHECK_THROWS_AS(I30(std::numeric_limits<double>::quiet_NaN()), std::domain_error);
}

}  // namespace shardproof
