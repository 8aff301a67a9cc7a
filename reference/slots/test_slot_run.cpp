#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/nearest_by_definition.h"
#include "reference/slots/slot_run.h"

namespace shardproof {
namespace {

using F = ValueFunction;

// function(a, b, c), by running a program of one assignment.
template <class T>
T apply(F function, T a, T b = T(0), T c = T(0)) {
  const Program program{4, {}, {{3, function, {0, 1, 2}}}};
  return slot_run<T>({a, b, c, T(0)}, program)[3];
}

template <class T>
T constant(const std::string& x) {
  return slot_run<T>({T(0)}, {1, {Rational(x)}, {{0, F::constant, {0}}}})[0];
}

// All functions but constant and copy on a = 3, b = 5, c = 7, in their order.
template <class T>
std::vector<T> values_at_3_5_7() {
  std::vector<T> values;
  for (std::size_t i = 2; i < kValueFunctions; ++i) {
    if (static_cast<F>(i) == F::square_root) continue;
    values.push_back(apply(static_cast<F>(i), T(3), T(5), T(7)));
  }
  return values;
}

template <class T>
std::vector<double> as_doubles(const std::vector<T>& values) {
  std::vector<double> doubles;
  for (const T& value : values) doubles.push_back(static_cast<double>(value));
  return doubles;
}

template <class T>
auto bits_of(T x) {
  if constexpr (std::is_floating_point_v<T>) {
    return std::bit_cast<std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>(x);
  } else {
    return x.bits();
  }
}

bool encloses(const Interval<30>& x, double low, double high) {
  return x.contains(low) && x.contains(high) && x.width() <= high - low + 1e-25;
}

}  // namespace

TEST_CASE("assignments run in order, and read what earlier ones wrote") {
  const Program program{3,
                        {Rational(10)},
                        {{0, F::add, {0, 1}},       // 1 + 2
                         {1, F::multiply, {0, 0}},  // 3·3
                         {0, F::constant, {0}},     // 10
                         {2, F::subtract, {0, 1}},  // 10 − 9
                         {0, F::copy, {2}}}};
  CHECK(slot_run<Rational>({1, 2, 5}, program) == std::vector<Rational>{1, 9, 1});
  CHECK(slot_run<float>({1, 2, 5}, program) == std::vector<float>{1, 9, 1});
  CHECK(slot_run<std::uint32_t>({1, 2, 5}, program) == std::vector<std::uint32_t>{1, 9, 1});
  CHECK(slot_run<float>({1, 2, 5, 8}, program) == std::vector<float>{1, 9, 1, 8});
  CHECK(slot_run<float>({4}, {1, {}, {}}) == std::vector<float>{4});
  CHECK_THROWS_AS(slot_run<float>({1, 2}, program), std::invalid_argument);
}

TEST_CASE("each function is what its name says, over every ordered type") {
  //                                −3     |3| sgn +  −   ·   /    min max < <= == !=  fma  select
  const std::vector<double> exact{-3, 3, 1, 8, -2, 15, 0.6, 3, 5, 1, 1, 0, 1, 22, 5};
  CHECK(as_doubles(values_at_3_5_7<double>()) == exact);
  CHECK(as_doubles(values_at_3_5_7<Rational>()) == exact);
  std::vector<double> single = exact, brain = exact, half = exact, whole = exact;
  single[6] = 0.6f;
  brain[6] = float(BFloat16(0.6));
  half[6] = float(Float16(0.6));
  whole[6] = 0;
  whole[0] = 4294967293, whole[4] = 4294967294;
  CHECK(as_doubles(values_at_3_5_7<float>()) == single);
  CHECK(as_doubles(values_at_3_5_7<BFloat16>()) == brain);
  CHECK(as_doubles(values_at_3_5_7<Float16>()) == half);
  CHECK(as_doubles(values_at_3_5_7<std::uint32_t>()) == whole);
  const std::vector<Interval<30>> enclosed = values_at_3_5_7<Interval<30>>();
  for (std::size_t i = 0; i < exact.size(); ++i) {
    CHECK(enclosed[i].contains(i == 6 ? Rational(3, 5) : Rational(exact[i])));
    CHECK(enclosed[i].width() < 1e-25);
  }
}

TEMPLATE_TEST_CASE("floating point follows IEEE at NaN, infinities and both zeros", "", float,
                   double, BFloat16, Float16) {
  using T = TestType;
  const T zero(0.0F), minus_zero(-0.0F), one(1.0F), two(2.0F), infinity(HUGE_VALF);
  const T nan(std::numeric_limits<float>::quiet_NaN());
  const auto is_nan = [](T x) { return std::isnan(static_cast<double>(x)); };
  const auto same = [](T x, T y) { return bits_of(x) == bits_of(y); };
  for (const F function : {F::minimum, F::maximum}) {
    CHECK(is_nan(apply(function, nan, one)));
    CHECK(is_nan(apply(function, one, nan)));
    CHECK(is_nan(apply(function, nan, nan)));
  }
  for (const auto& [a, b] : {std::pair{zero, minus_zero}, std::pair{minus_zero, zero}}) {
    CHECK(same(apply(F::minimum, a, b), minus_zero));
    CHECK(same(apply(F::maximum, a, b), zero));
  }
  CHECK(same(apply(F::minimum, -infinity, one), -infinity));
  CHECK(same(apply(F::maximum, one, infinity), infinity));
  CHECK(same(apply(F::minimum, two, one), one));
  CHECK(same(apply(F::maximum, two, one), two));
  for (const T x : {zero, minus_zero, nan}) CHECK(same(apply(F::sign, x), zero));
  CHECK(same(apply(F::sign, -infinity), -one));
  for (const T condition : {nan, one, infinity})
    CHECK(same(apply(F::select, condition, two, one), two));
  for (const T condition : {zero, minus_zero})
    CHECK(same(apply(F::select, condition, two, one), one));
  for (const F function : {F::less, F::less_equal, F::equal}) {
    CHECK(same(apply(function, nan, one), zero));
    CHECK(same(apply(function, nan, nan), zero));
  }
  CHECK(same(apply(F::not_equal, nan, nan), one));
  CHECK(same(apply(F::equal, zero, minus_zero), one));
  CHECK(same(apply(F::less_equal, one, one), one));
  CHECK(same(apply(F::less, one, one), zero));
  CHECK(same(apply(F::negate, zero), minus_zero));
  CHECK(same(apply(F::absolute, minus_zero), zero));
  CHECK(same(apply(F::absolute, -infinity), infinity));
  CHECK(same(apply(F::divide, one, minus_zero), -infinity));
  CHECK(same(apply(F::square_root, minus_zero), minus_zero));
  CHECK(is_nan(apply(F::square_root, -one)));
  CHECK(is_nan(apply(F::subtract, infinity, infinity)));
}

TEST_CASE("fused multiply-add and square root round once") {
  // (1 + u)² = 1 + 2u + u²: the product alone rounds to 1 + 2u.
  CHECK(apply(F::fused_multiply_add, 1 + 0x1p-23f, 1 + 0x1p-23f, -(1 + 0x1p-22f)) == 0x1p-46f);
  CHECK(apply(F::fused_multiply_add, 1 + 0x1p-52, 1 + 0x1p-52, -(1 + 0x1p-51)) == 0x1p-104);
  CHECK(float(apply(F::fused_multiply_add, BFloat16(1 + 0x1p-7), BFloat16(1 + 0x1p-7),
                    BFloat16(-(1 + 0x1p-6)))) == 0x1p-14f);
  CHECK(apply(F::square_root, 2.0f) == 0x1.6a09e6p+0f);
  CHECK(apply(F::square_root, 2.0) == 0x1.6a09e667f3bcdp+0);
}

TEST_CASE("a constant rounds once from its exact number") {
  // 1 + 2^-24 is halfway between two float32 numbers; what lies beyond float64 decides.
  const std::string above =
      "1000000059604644775390625000000000000001/1000000000000000000000000000000000000000";
  CHECK(constant<float>(above) == 1 + 0x1p-23f);
  CHECK(constant<float>("16777217/16777216") == 1);
  CHECK(constant<double>("1/10") == 0.1);
  // 1 + 2^-8 + 2^-60: float64 cannot tell it from a tie.
  CHECK(float(constant<BFloat16>("1157442765409226769/1152921504606846976")) != 1.0f);
  CHECK(float(constant<BFloat16>("257/256")) == 1.0f);
  CHECK(constant<Float16>("65519").bits() == 0x7bff);
  CHECK(constant<Rational>("-3/9") == Rational(-1, 3));
  CHECK(constant<std::uint32_t>("7/2") == 3);
  CHECK(constant<std::uint32_t>("-1/2") == 0);
  CHECK(constant<std::uint32_t>("-7/2") == 4294967293);
  CHECK(constant<std::uint32_t>("4294967301") == 5);
  CHECK(constant<std::uint32_t>("-4294967301") == 4294967291);
}

TEST_CASE("wrapping whole numbers divide by zero to zero and take the floor of roots") {
  CHECK(apply<std::uint32_t>(F::divide, 5, 0) == 0);
  CHECK(apply<std::uint32_t>(F::add, 4294967295, 2) == 1);
  CHECK(apply<std::uint32_t>(F::multiply, 65536, 65537) == 65536);
  CHECK(apply<std::uint32_t>(F::sign, 0) == 0);
  CHECK(apply<std::uint32_t>(F::sign, 4000000000) == 1);
  CHECK(apply<std::uint32_t>(F::fused_multiply_add, 65536, 65536, 9) == 9);
  for (const std::uint32_t root : {0U, 1U, 2U, 46340U, 46341U, 65535U}) {
    CHECK(apply<std::uint32_t>(F::square_root, root * root) == root);
    if (root > 0) CHECK(apply<std::uint32_t>(F::square_root, root * root - 1) == root - 1);
  }
  CHECK(apply<std::uint32_t>(F::square_root, 4294967295) == 65535);
}

TEST_CASE("fractions divide by zero to zero, and have the roots that are fractions") {
  CHECK(apply<Rational>(F::divide, 5, 0) == 0);
  CHECK(apply<Rational>(F::square_root, Rational(4, 9)) == Rational(2, 3));
  CHECK(apply<Rational>(F::square_root, 0) == 0);
  CHECK(apply<Rational>(F::sign, Rational(-1, 7)) == -1);
  CHECK(apply<Rational>(F::minimum, Rational(-1, 7), 0) == Rational(-1, 7));
  CHECK_THROWS_WITH(apply<Rational>(F::square_root, Rational(2, 9)), Catch::Contains("2/9"));
  CHECK_THROWS_AS(apply<Rational>(F::square_root, -4), std::domain_error);
}

TEST_CASE("intervals give the hull of what is undecided") {
  using T = Interval<30>;
  const T around_zero(-1.0, 2.0), up_to_zero(-3.0, 0.0), above(1.0, 4.0), five(5);
  const auto run = [](F function, const T& a, const T& b = T(0), const T& c = T(0)) {
    return apply(function, a, b, c);
  };
  CHECK(encloses(run(F::less, around_zero, above), 0, 1));
  CHECK(encloses(run(F::less, above, five), 1, 1));
  CHECK(encloses(run(F::less, above, up_to_zero), 0, 0));
  CHECK(encloses(run(F::less, T(0), up_to_zero), 0, 0));
  CHECK(encloses(run(F::less_equal, up_to_zero, T(0)), 1, 1));
  CHECK(encloses(run(F::less_equal, T(0), up_to_zero), 0, 1));
  CHECK(encloses(run(F::equal, five, five), 1, 1));
  CHECK(encloses(run(F::equal, above, above), 0, 1));
  CHECK(encloses(run(F::equal, above, five), 0, 0));
  CHECK(encloses(run(F::not_equal, above, five), 1, 1));
  CHECK(encloses(run(F::sign, around_zero), -1, 1));
  CHECK(encloses(run(F::sign, up_to_zero), -1, 0));
  CHECK(encloses(run(F::sign, above), 1, 1));
  CHECK(encloses(run(F::sign, T(0)), 0, 0));
  CHECK(encloses(run(F::absolute, around_zero), 0, 2));
  CHECK(encloses(run(F::absolute, up_to_zero), 0, 3));
  CHECK(encloses(run(F::select, around_zero, above, five), 1, 5));
  CHECK(encloses(run(F::select, above, above, five), 1, 4));
  CHECK(encloses(run(F::select, T(0), above, five), 5, 5));
  CHECK(encloses(run(F::minimum, around_zero, above), -1, 2));
  CHECK(encloses(run(F::maximum, around_zero, above), 1, 4));
  CHECK(encloses(run(F::square_root, above), 1, 2));
  CHECK(slot_run<T>({T(0)}, {1, {Rational(1, 3)}, {{0, F::constant, {0}}}})[0].contains(
      Rational(1, 3)));
  CHECK_THROWS_AS(run(F::square_root, around_zero), std::domain_error);
  CHECK_THROWS_AS(run(F::divide, five, around_zero), std::domain_error);
}

TEST_CASE("terms tell functions and operands apart, and copies are what they copy") {
  TermStore store;
  const Arithmetic<Term> arithmetic(store);
  const std::vector<Term> variables{store.variable(0), store.variable(1), store.variable(2)};
  std::vector<Term> results;
  for (std::size_t i = 0; i < kValueFunctions; ++i) {
    const auto function = static_cast<F>(i);
    for (const std::array<Slot, 3> reads : {std::array<Slot, 3>{0, 1, 2}, {1, 0, 2}}) {
      if (function == F::constant && reads[0] == 1) continue;
      const Program program{3, {Rational(2)}, {{2, function, reads}}};
      results.push_back(slot_run(variables, program, arithmetic)[2]);
      CHECK(slot_run(variables, program, arithmetic)[2] == results.back());
      if (function == F::copy) CHECK(results.back() == variables[reads[0]]);
    }
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(results[i] == results[j]);
  }
}

}  // namespace shardproof
