// Certified: a float64 value and a radius that say where an exact real number lies: in
// [value - radius, value + radius], always. Rigorous without switching the rounding mode: each
// operation adds its own rounding error to the radius and then inflates the radius for the
// roundings made in computing the radius itself. A radius is a number in [0, inf], never NaN; inf
// (overflow, a divisor that may be 0) and any value that is not finite say that nothing is known.
//
// Notation in the comments: a and b are the values, ra and rb the radii, v the computed value,
// u = 2^-53 (nearest rounding: |exact - v| <= u|v|, plus 2^-1075 where a product or quotient falls
// among the subnormals; a sum does not round there). Higham, Accuracy and Stability of Numerical
// Algorithms, 2nd ed., ch. 2. Needs nearest rounding, subnormals, and no fast-math.
#pragma once

#include <cmath>
#include <limits>

#include "reference/numbers/real.h"

namespace shardproof {

struct Certified {
  double value = 0;
  double radius = 0;

  Certified() = default;
  explicit Certified(int x) : value(x) {}
  // The number x itself.
  explicit Certified(double x) : value(x), radius(std::isfinite(x) ? 0 : unknown) {}
  // Any number within radius (>= 0) of value.
  Certified(double v, double r)
      : value(v), radius(std::isfinite(v) && r <= largest ? r : unknown) {}

  static constexpr double unknown = std::numeric_limits<double>::infinity();
  static constexpr double largest = std::numeric_limits<double>::max();
  static constexpr double unit_roundoff = 0x1p-53;
  // Added where a product or quotient may underflow. It exceeds all underflow errors of one
  // operation (each at most 2^-1075, or 2^-1021 once a small divisor has magnified it; see
  // operator/) and keeps radii out of the slow subnormal range.
  static constexpr double underflow = 0x1p-1000;

  // value and the radius as computed by at most 14 roundings, one after the other, of terms >= 0:
  // computed >= exact·(1 - u)^14, the product below rounds once more, and (1 - u)^15·(1 + 16u) > 1.
  static Certified inflated(double v, double r) {
    return Certified(v, r * (1 + 16 * unit_roundoff));
  }

  // |(x ± y) - v| <= ra + rb + u|v|. Where u|v| rounds, it rounds to no less than half an ulp of v.
  friend Certified operator+(const Certified& a, const Certified& b) {
    const double v = a.value + b.value;
    return inflated(v, a.radius + b.radius + unit_roundoff * std::abs(v));
  }
  friend Certified operator-(const Certified& a, const Certified& b) { return a + -b; }
  friend Certified operator-(const Certified& a) { return Certified(-a.value, a.radius); }

  // xy - ab = (x - a)y + a(y - b), so |xy - v| <= ra(|b| + rb) + |a|rb + u|v| + 2^-1075; the three
  // products of the radius may underflow by 2^-1075 each.
  friend Certified operator*(const Certified& a, const Certified& b) {
    const double v = a.value * b.value;
    const double magnitude = std::abs(b.value) + b.radius;
    return inflated(v, a.radius * magnitude + std::abs(a.value) * b.radius +
                           unit_roundoff * std::abs(v) + underflow);
  }

  // x/y - a/b = ((x - a) - (a/b)(y - b)) / y, so with d = |b| - rb > 0
  // |x/y - v| <= ra/d + |a/b|·rb/d + u|v| + 2^-1075, where |a/b| <= |v|(1 + u) + 2^-1075.
  // d as computed is at most d(1 + u). The ratio q = rb/d is at most 2^54 (d is at least an ulp of
  // rb, or a half), so 2^-1075·q <= 2^-1021 lies within `underflow`, as do the underflows of ra/d
  // and of the product with |v|; an underflow of q itself is far below u, which is added to it.
  friend Certified operator/(const Certified& a, const Certified& b) {
    const double v = a.value / b.value;
    const double d = std::abs(b.value) - b.radius;
    const double r = a.radius / d + std::abs(v) * (b.radius / d + unit_roundoff) + underflow;
    return d > 0 ? inflated(v, r) : Certified(v, unknown);
  }
};

template <>
struct RealTraits<Certified> {
  static Certified from_double(double x) { return Certified(x); }

  // With s = √a and t = √(a - ra): |x^(-1/2) - a^(-1/2)| <= ra / (s·t·(s + t)), largest at the
  // lower end; v = 1/s rounds twice, so |a^(-1/2) - v| <= 2u/(1 - u)·|v| <= 3u|v|. t is too large
  // by at most a factor (1 + u)^1.5 and s by (1 + u); v takes the place of 1/s and is too small by
  // at most (1 - u)/(1 + u): 11 roundings in all. Nothing underflows but ra/t and its quotient, by
  // 2^-1075/(2t), which 3u dwarfs since t >= 2^-537.
  static Certified rsqrt(const Certified& x) {
    const double lower = x.value - x.radius;
    const double s = std::sqrt(x.value);
    const double v = 1 / s;
    if (!(lower > 0)) return Certified(v, Certified::unknown);
    const double t = std::sqrt(lower);
    return Certified::inflated(v, v * (x.radius / t / (s + t) + 3 * Certified::unit_roundoff));
  }

  // relu, relu6 and maximum move no two points further apart, and do not round.
  static Certified relu(const Certified& x) {
    const bool vanishes = x.value < -x.radius;
    return Certified(x.value < 0 ? 0 : x.value, vanishes ? 0 : x.radius);
  }
  static Certified relu6(const Certified& x) {
    if (x.value - 6 > x.radius) return Certified(6);
    const Certified above = relu(x);
    return Certified(above.value > 6 ? 6 : above.value, above.radius);
  }
  static Certified maximum(const Certified& a, const Certified& b) {
    const double larger = OrderedTraits<double>::maximum(a.value, b.value);
    return Certified(larger, a.radius < b.radius ? b.radius : a.radius);
  }
};

static_assert(Real<Certified>);

}  // namespace shardproof
