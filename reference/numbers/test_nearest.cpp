#include <mpfr.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>

#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/nearest.h"
#include "reference/numbers/nearest_by_definition.h"

namespace shardproof {
namespace {

// By MPFR, whose result has the given precision and the exponent range of the format.
double by_mpfr(const Rational& x, int precision, int lowest, int highest) {
  const mpfr_exp_t least = mpfr_get_emin(), largest = mpfr_get_emax();
  mpfr_t number;
  mpfr_init2(number, precision);
  mpfr_set_emin(lowest + 1);
  mpfr_set_emax(highest);
  const int inexact = mpfr_set_q(number, x.backend().data(), MPFR_RNDN);
  mpfr_subnormalize(number, inexact, MPFR_RNDN);
  const double result = mpfr_get_d(number, MPFR_RNDN);
  mpfr_clear(number);
  mpfr_set_emin(least);
  mpfr_set_emax(largest);
  return result;
}

void check(const Rational& x) {
  const double wide = nearest_float64(x), wide_wanted = by_mpfr(x, 53, -1074, 1024);
  const float narrow = nearest_float32(x);
  const auto narrow_wanted = static_cast<float>(by_mpfr(x, 24, -149, 128));
  if (std::bit_cast<std::uint64_t>(wide) != std::bit_cast<std::uint64_t>(wide_wanted)) {
    FAIL(x << " gave the float64 " << wide << " in place of " << wide_wanted);
  }
  if (std::bit_cast<std::uint32_t>(narrow) != std::bit_cast<std::uint32_t>(narrow_wanted)) {
    FAIL(x << " gave the float32 " << narrow << " in place of " << narrow_wanted);
  }
  if (!is_nearest(nearest_bfloat16(x), x)) FAIL(x << " as a bfloat16");
  if (!is_nearest(nearest_float16(x), x)) FAIL(x << " as a float16");
}

void check_beside(const Rational& x) {
  const Rational aside = abs(x) / pow(boost::multiprecision::mpz_int(10), 400);
  for (const Rational& near : {x, Rational(x + aside), Rational(x - aside)}) {
    check(near);
    check(-near);
  }
}

}  // namespace

TEST_CASE("fractions round once to each format, beside halfway points too") {
  HardNumbers random(1);
  for (int i = 0; i < 20'000; ++i) {
    const Rational a{random.finite()}, b{random.finite()};
    check(a);
    if (b != 0) check(a / b);
    const double x = random.finite();
    check_beside((Rational(x) + Rational(std::nextafter(x, 1e308))) / 2);
    const auto y = static_cast<float>(random.with_exponent(-150, 128));
    if (std::isinf(y)) continue;
    check_beside((Rational(y) + Rational(std::nextafter(y, 1e38f))) / 2);
  }
}

TEST_CASE("fractions round to the ends of each format") {
  const Rational two = 2;
  const auto power = [&](int n) {
    const Rational magnitude(boost::multiprecision::mpz_int(1)
                             << static_cast<unsigned>(std::abs(n)));
    return n < 0 ? Rational(1 / magnitude) : magnitude;
  };
  for (const int lowest : {-1074, -149, -133, -24}) {
    for (const int step : {-3, -2, -1, 0, 1, 2, 3}) check_beside(power(lowest + step));
    check_beside(3 * power(lowest - 1));
  }
  for (const int highest : {1024, 128, 16}) {
    for (const int precision : {53, 24, 11, 8}) {
      check_beside(power(highest) - power(highest - precision));
      check_beside(power(highest) - power(highest - precision - 1));
    }
    check_beside(power(highest));
  }
  check_beside(power(5000));
  check_beside(power(-5000));
  CHECK(std::bit_cast<std::uint64_t>(nearest_float64(0)) == 0);
  CHECK(std::signbit(nearest_float64(-power(-5000))));
  CHECK(nearest_float32(Rational("1/10")) == 0.1f);
  CHECK(nearest_float64(Rational("1/10")) == 0.1);
}

}  // namespace shardproof
