// RunningError: where the result of float32 arithmetic may lie that rounds each operation or fuses
// a product with the sum it goes into. A program is run once on it, and every value carries a
// running error bound (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3): the
// exact result of the operands' ranges, widened by one rounding. A fused operation rounds less
// often, so its result lies within as well.
#pragma once

#include <cmath>

#include "reference/numbers/certified.h"
#include "reference/slots/arithmetic.h"

namespace shardproof {

struct RunningError {
  Certified range;
};

template <>
struct Arithmetic<RunningError> {
  using T = RunningError;

  double unit = 0x1p-24;        // relative error of one operation
  double root_unit = 0x1p-24;   // of a square root
  double underflow = 0x1p-150;  // absolute error of a product or quotient
  double flushed = 0;  // absolute error of a sum: below 2^-126 where subnormals are flushed

  // The number that a device is given.
  T constant(const Rational& x) const {
    return {Certified(static_cast<double>(nearest_float32(x)))};
  }

  T negate(const T& a) const { return {-a.range}; }
  T absolute(const T& a) const { return {Certified(std::abs(a.range.value), a.range.radius)}; }
  T sign(const T& a) const {
    const Certified zero(0);
    const Certified above = less(T{zero}, a).range, below = less(a, T{zero}).range;
    return {above - below};
  }

  T add(const T& a, const T& b) const { return sum(a.range, b.range); }
  T subtract(const T& a, const T& b) const { return sum(a.range, -b.range); }
  T multiply(const T& a, const T& b) const {
    if ((is_zero(a) || is_zero(b)) && known(a, b)) return {Certified(0)};
    return rounded(a.range * b.range, unit, underflow);
  }
  T divide(const T& a, const T& b) const { return rounded(a.range / b.range, unit, underflow); }
  T fused_multiply_add(const T& a, const T& b, const T& c) const {
    return rounded(a.range * b.range + c.range, unit, underflow);
  }

  // |√x − √a| = |x − a| / (√x + √a), at most r / √a and at most √r over the range a ± r. Where the
  // range reaches below 0 the device may have NaN.
  T square_root(const T& a) const {
    if (!(a.range.radius <= a.range.value)) return unknown();
    const double root = std::sqrt(a.range.value);
    const double radius =
        a.range.radius > 0 ? std::fmin(std::sqrt(a.range.radius), a.range.radius / root) : 0;
    return rounded(Certified::inflated(root, radius + Certified::unit_roundoff * root), root_unit,
                   flushed);
  }

  // They move no two points further apart, and do not round.
  T minimum(const T& a, const T& b) const { return negate(maximum(negate(a), negate(b))); }
  T maximum(const T& a, const T& b) const {
    return {RealTraits<Certified>::maximum(a.range, b.range)};
  }

  T less(const T& a, const T& b) const {
    const double gap = b.range.value - a.range.value, radius = reach(a, b);
    return decision(gap > radius, gap <= -radius && known(a, b));
  }
  T less_equal(const T& a, const T& b) const {
    const double gap = b.range.value - a.range.value, radius = reach(a, b);
    return decision(gap >= radius && known(a, b), gap < -radius);
  }
  T equal(const T& a, const T& b) const {
    const double gap = std::abs(b.range.value - a.range.value), radius = reach(a, b);
    return decision(gap == 0 && radius == 0, gap > radius);
  }
  T not_equal(const T& a, const T& b) const { return {Certified(1) - equal(a, b).range}; }
  T select(const T& a, const T& b, const T& c) const {
    if (std::abs(a.range.value) > a.range.radius) return b;
    if (a.range.radius == 0) return c;
    const double distance = std::abs(b.range.value - c.range.value);
    const double radius = std::fmax(b.range.radius, c.range.radius);
    return {Certified::inflated(
        b.range.value / 2 + c.range.value / 2,
        distance / 2 + radius + Certified::unit_roundoff * (distance + std::abs(b.range.value)))};
  }

 private:
  static T unknown() { return {Certified(0, Certified::unknown)}; }
  static bool known(const T& a, const T& b) {
    return std::isfinite(a.range.radius) && std::isfinite(b.range.radius);
  }
  // How far the difference of two values may lie from the difference of their centres.
  static double reach(const T& a, const T& b) {
    const double radius = a.range.radius + b.range.radius;
    // The difference of the centres rounds too, unless it is exact, as it is between float32
    // numbers of like size; where both radii are 0 its sign is right.
    if (radius == 0) return 0;
    return (radius +
            Certified::unit_roundoff * (std::abs(a.range.value) + std::abs(b.range.value))) *
           (1 + 4 * Certified::unit_roundoff);
  }
  static T decision(bool holds, bool fails) {
    if (holds) return {Certified(1)};
    if (fails) return {Certified(0)};
    return {Certified(0.5, 0.5)};
  }
  static bool is_zero(const T& a) { return a.range.value == 0 && a.range.radius == 0; }

  T sum(const Certified& a, const Certified& b) const {
    if (is_zero({a})) return {b};
    if (is_zero({b})) return {a};
    return rounded(a + b, unit, flushed);
  }
  // One rounding of a device on top of the exact range. Above float32's range nothing is known.
  static T rounded(const Certified& exact, double relative, double absolute) {
    const double largest = std::abs(exact.value) + exact.radius;
    if (!(largest < 0x1p127)) return unknown();
    return {Certified::inflated(exact.value, exact.radius + relative * largest + absolute)};
  }
};

}  // namespace shardproof
