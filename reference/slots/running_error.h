// RunningError: where the result of float32 arithmetic may lie that rounds each operation or fuses
// a product with the sum it goes into. A program is run once on it, and every value carries a
// running error bound (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.3): the
// exact result of the operands' ranges, widened by one rounding. A fused operation rounds less
// often, so its result lies within as well. NaN and infinities that are sure are carried along.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "reference/numbers/certified.h"
#include "reference/slots/arithmetic.h"

namespace shardproof {

struct RunningError {
  Certified range;          // an infinite radius: nothing is known
  bool is_special = false;  // surely NaN, or surely the infinity: `special`, and no range
  double special = 0;

  RunningError() = default;
  explicit RunningError(const Certified& of) : range(of) {}
  // The number itself.
  explicit RunningError(double x)
      : range(std::isfinite(x) ? x : 0), is_special(!std::isfinite(x)), special(x) {}

  bool is_known() const { return is_special || std::isfinite(range.radius); }
};

template <>
struct Arithmetic<RunningError> {
  using T = RunningError;

  double unit = 0x1p-24;        // relative error of one operation
  double root_unit = 0x1p-24;   // of a square root
  double underflow = 0x1p-150;  // absolute error of a product or quotient
  // Below it numbers may count as 0, as operands and as results; 0 where subnormals are kept.
  double flushed = 0;

  // The number that a device is given.
  T constant(const Rational& x) const { return T(static_cast<double>(nearest_float32(x))); }

  T negate(const T& a) const {
    return of<1>(
        {a}, [](double x) { return -x; }, [](const Certified& x) { return T(-x); });
  }
  T absolute(const T& a) const {
    return of<1>(
        {a}, [](double x) { return std::abs(x); },
        [](const Certified& x) { return T(Certified(std::abs(x.value), x.radius)); });
  }
  T sign(const T& a) const {
    return of<1>({a}, Arithmetic<double>::sign, [](const Certified& x) {
      if (x.value > x.radius) return T(1.0);
      if (x.value < -x.radius) return T(-1.0);
      return x.radius == 0 ? T(0.0) : T(Certified(0, 1));
    });
  }

  T add(const T& a, const T& b) const {
    return of<2>(
        {a, b}, [](double x, double y) { return x + y; },
        [&](const Certified& x, const Certified& y) { return sum(x, y); });
  }
  T subtract(const T& a, const T& b) const { return add(a, negate(b)); }
  T multiply(const T& a, const T& b) const {
    return of<2>(
        {a, b}, [](double x, double y) { return x * y; },
        [&](const Certified& x, const Certified& y) {
          if (is_zero(x) || is_zero(y)) return T(0.0);
          return rounded(x * y, unit, underflow);
        });
  }
  T divide(const T& a, const T& b) const {
    return of<2>(
        {a, b}, [](double x, double y) { return x / y; },
        [&](const Certified& x, const Certified& y) {
          if (is_zero(x) && std::abs(y.value) > y.radius) return T(0.0);
          return rounded(x / y, unit, underflow);
        });
  }
  T fused_multiply_add(const T& a, const T& b, const T& c) const {
    return of<3>(
        {a, b, c}, [](double x, double y, double z) { return x * y + z; },
        [&](const Certified& x, const Certified& y, const Certified& z) {
          return rounded(x * y + z, unit, underflow);
        });
  }

  // |√x − √a| = |x − a| / (√x + √a), at most r / √a and at most √r over the range a ± r. Where the
  // range reaches below 0 the device may have NaN.
  T square_root(const T& a) const {
    return of<1>(
        {a}, [](double x) { return std::sqrt(x); },
        [&](const Certified& x) {
          if (x.value + x.radius < 0) return T(std::numeric_limits<double>::quiet_NaN());
          if (x.radius > x.value) return unknown();
          if (is_zero(x)) return T(0.0);
          const double root = std::sqrt(x.value);
          const double radius = std::fmin(std::sqrt(x.radius), x.radius / root);
          return rounded(Certified::inflated(root, radius + Certified::unit_roundoff * root),
                         root_unit, 0);
        });
  }

  // They move no two points further apart, and do not round.
  T minimum(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::minimum, [](const Certified& x, const Certified& y) {
      return T(-RealTraits<Certified>::maximum(-x, -y));
    });
  }
  T maximum(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::maximum, [](const Certified& x, const Certified& y) {
      return T(RealTraits<Certified>::maximum(x, y));
    });
  }

  T less(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::less, [](const Certified& x, const Certified& y) {
      const double gap = y.value - x.value, radius = reach(x, y);
      return decision(gap > radius, gap <= -radius);
    });
  }
  T less_equal(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::less_equal,
                 [](const Certified& x, const Certified& y) {
                   const double gap = y.value - x.value, radius = reach(x, y);
                   return decision(gap >= radius, gap < -radius);
                 });
  }
  T equal(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::equal, [](const Certified& x, const Certified& y) {
      const double gap = std::abs(y.value - x.value), radius = reach(x, y);
      return decision(gap == 0 && radius == 0, gap > radius);
    });
  }
  T not_equal(const T& a, const T& b) const {
    return of<2>({a, b}, Arithmetic<double>::not_equal, [](const Certified& x, const Certified& y) {
      const double gap = std::abs(y.value - x.value), radius = reach(x, y);
      return decision(gap > radius, gap == 0 && radius == 0);
    });
  }
  T select(const T& a, const T& b, const T& c) const {
    const Certified condition = as_operand(a.range);
    if (a.is_special || std::abs(condition.value) > condition.radius) return b;
    if (condition.radius == 0) return c;
    if (!b.is_known() || !c.is_known()) return unknown();
    if (b.is_special || c.is_special) {
      const bool same =
          b.is_special && c.is_special &&
          (b.special == c.special || (std::isnan(b.special) && std::isnan(c.special)));
      return same ? b : unknown();
    }
    const Certified x = as_operand(b.range), y = as_operand(c.range);
    return hull(std::min(x.value - x.radius, y.value - y.radius),
                std::max(x.value + x.radius, y.value + y.radius));
  }

 private:
  static T unknown() { return T(Certified(0, Certified::unknown)); }
  static bool is_zero(const Certified& a) { return a.value == 0 && a.radius == 0; }

  // The numbers from low to high; both may have rounded once.
  static T hull(double low, double high) {
    const double centre = low / 2 + high / 2;
    if (low == high) return T(low);
    return T(Certified::inflated(
        centre, (high / 2 - low / 2) +
                    4 * Certified::unit_roundoff * std::max(std::abs(low), std::abs(high))));
  }

  // What an operation sees of a range: where subnormals are flushed, 0 as well.
  Certified as_operand(const Certified& a) const {
    if (flushed == 0 || is_zero(a) || std::abs(a.value) - a.radius >= flushed) return a;
    return Certified(a.value, a.radius + flushed);
  }

  // `regular` on ranges. With an operand that is surely NaN or infinite, `ieee` on the ends of the
  // ranges of the others: what all ends agree on is sure, since every function is monotone in each
  // operand once another one is not finite.
  template <std::size_t count, class Ieee, class Regular>
  T of(const std::array<T, count>& operands, Ieee ieee, Regular regular) const {
    bool special = false, known = true, nan = false;
    for (const T& operand : operands) {
      special = special || operand.is_special;
      known = known && operand.is_known();
      nan = nan || (operand.is_special && std::isnan(operand.special));
    }
    const auto call = [&](auto function, const auto& values) {
      if constexpr (count == 1) {
        return function(values[0]);
      } else if constexpr (count == 2) {
        return function(values[0], values[1]);
      } else {
        return function(values[0], values[1], values[2]);
      }
    };
    if (!special) {
      if (!known) return unknown();
      std::array<Certified, count> ranges;
      for (std::size_t i = 0; i < count; ++i) ranges[i] = as_operand(operands[i].range);
      return call(regular, ranges);
    }
    double low = std::numeric_limits<double>::infinity(), high = -low;
    bool all_nan = true, any_nan = false;
    for (std::size_t ends = 0; ends < std::size_t{1} << count; ++ends) {
      std::array<double, count> values;
      for (std::size_t i = 0; i < count; ++i) {
        const Certified range = as_operand(operands[i].range);
        const bool upper = (ends >> i & 1U) != 0;
        values[i] = operands[i].is_special ? operands[i].special
                    : upper                ? range.value + range.radius
                                           : range.value - range.radius;
        // Of what nothing is known, any number may be.
        if (!operands[i].is_known()) values[i] = upper ? HUGE_VAL : -HUGE_VAL;
      }
      const double value = call(ieee, values);
      all_nan = all_nan && std::isnan(value);
      any_nan = any_nan || std::isnan(value);
      low = std::fmin(low, value);
      high = std::fmax(high, value);
    }
    if (!known && !(nan && all_nan)) return unknown();
    if (all_nan) return T(std::numeric_limits<double>::quiet_NaN());
    if (any_nan) return unknown();
    if (low == high) return T(low);
    return std::isfinite(low) && std::isfinite(high) ? hull(low, high) : unknown();
  }

  // How far the difference of two values may lie from the difference of their centres. That
  // difference rounds too; where both radii are 0 its sign is right.
  static double reach(const Certified& a, const Certified& b) {
    const double radius = a.radius + b.radius;
    if (radius == 0) return 0;
    return (radius + Certified::unit_roundoff * (std::abs(a.value) + std::abs(b.value))) *
           (1 + 4 * Certified::unit_roundoff);
  }
  static T decision(bool holds, bool fails) {
    if (holds) return T(1.0);
    if (fails) return T(0.0);
    return T(Certified(0.5, 0.5));
  }

  T sum(const Certified& a, const Certified& b) const {
    if (is_zero(a)) return T(b);
    if (is_zero(b)) return T(a);
    return rounded(a + b, unit, flushed);
  }
  // One rounding of a device on top of the exact range. Above float32's range nothing is known.
  static T rounded(const Certified& exact, double relative, double absolute) {
    const double largest = std::abs(exact.value) + exact.radius;
    if (!(largest < 0x1p127)) return unknown();
    return T(Certified::inflated(exact.value, exact.radius + relative * largest + absolute));
  }
};

}  // namespace shardproof
