#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <stdexcept>

#include "reference/numbers/bfloat16.h"
#include "reference/numbers/certified.h"
#include "reference/numbers/double_double.h"
#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/interval.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

// What one interpreter does with any Real; all of it exact in every type here.
template <Real T>
T small_exact_expression() {
  const T half = from_double<T>(0.5);
  return rsqrt(relu(T(4)) + relu(-half)) * maximum(-half, T(3)) - relu6(T(7)) / T(4);
}

template <class T>
bool is_nan(const T& x) {
  return x != x;
}

}  // namespace

TEST_CASE("one expression over Real gives the same number in every type") {
  CHECK(small_exact_expression<float>() == 0);
  CHECK(small_exact_expression<double>() == 0);
  CHECK(small_exact_expression<BFloat16>() == BFloat16(0));
  CHECK(small_exact_expression<DoubleDouble>() == DoubleDouble(0));
  CHECK(small_exact_expression<Rational>() == 0);
  CHECK(small_exact_expression<Interval<30>>().contains(0.0));
  CHECK(small_exact_expression<Interval<320>>().contains(0.0));
  CHECK(std::abs(small_exact_expression<Certified>().value) <=
        small_exact_expression<Certified>().radius);
}

TEMPLATE_TEST_CASE("NaN passes relu, relu6 and maximum", "", float, double, BFloat16,
                   DoubleDouble) {
  const auto nan = from_double<TestType>(std::numeric_limits<double>::quiet_NaN());
  CHECK(is_nan(relu(nan)));
  CHECK(is_nan(relu6(nan)));
  CHECK(is_nan(maximum(nan, TestType(1))));
  CHECK(is_nan(maximum(TestType(1), nan)));
}

TEMPLATE_TEST_CASE("relu, relu6 and maximum of ordered types", "", float, double, BFloat16,
                   DoubleDouble, Rational) {
  const auto at = [](double x) { return from_double<TestType>(x); };
  CHECK(relu(at(-2)) == at(0));
  CHECK(relu(at(2.5)) == at(2.5));
  CHECK(relu6(at(-2)) == at(0));
  CHECK(relu6(at(2.5)) == at(2.5));
  CHECK(relu6(at(6.5)) == at(6));
  CHECK(maximum(at(1), at(2)) == at(2));
  CHECK(maximum(at(2), at(1)) == at(2));
}

TEST_CASE("float32 takes the nearest number and rounds its root, then its division") {
  CHECK(from_double<float>(0.1) == 0.1f);
  CHECK(rsqrt(3.0f) == 1.0f / std::sqrt(3.0f));
}

TEST_CASE("a rational is the float64 number itself") {
  HardNumbers random(1);
  for (int i = 0; i < 1000; ++i) {
    const double x = random.finite();
    REQUIRE(from_double<Rational>(x).convert_to<double>() == x);
  }
  CHECK(from_double<Rational>(0.1) != Rational(1, 10));
  CHECK_THROWS_AS(from_double<Rational>(std::nan("")), std::domain_error);
  CHECK_THROWS_AS(from_double<Rational>(-std::numeric_limits<double>::infinity()),
                  std::domain_error);
}

TEST_CASE("the rational reciprocal square root is exact on squares and refuses all else by name") {
  HardNumbers random(2);
  for (int i = 0; i < 1000; ++i) {
    const Rational root = abs(Rational(random.with_exponent(-300, 300)) / (1 + random.below(1000)));
    REQUIRE(rsqrt(Rational(root * root)) * root == 1);
  }
  CHECK_THROWS_WITH(rsqrt(Rational(2, 9)), Catch::Contains("2/9"));
  CHECK_THROWS_AS(rsqrt(Rational(9, 2)), std::domain_error);
  CHECK_THROWS_AS(rsqrt(Rational(-4)), std::domain_error);
  CHECK_THROWS_AS(rsqrt(Rational(0)), std::domain_error);
}

}  // namespace shardproof
