// DoubleDouble: an unevaluated sum high + low of two float64 numbers, high = fl(high + low): about
// 106 bits. Not an enclosure: it serves as the second evaluation that confirms digits of the first.
// Algorithms named by number are of Joldes, Muller and Popescu, "Tight and rigorous error bounds
// for basic building blocks of double-word arithmetic", ACM TOMS 44(2), 2017. Relative errors, u =
// 2^-53: sum and difference 3u² + 13u³, product 5u², quotient 11u², sqrt 25/8·u², rsqrt 15u²
// (2^-102), while operands and results stay within 2^-900 and 2^900. Past overflow a value is
// infinite or NaN.
#pragma once

#include <cmath>

#include "reference/numbers/real.h"

namespace shardproof {

struct DoubleDouble {
  double high = 0;
  double low = 0;

  DoubleDouble() = default;
  explicit DoubleDouble(int x) : high(x) {}
  explicit DoubleDouble(double x) : high(x) {}
  DoubleDouble(double h, double l) : high(h), low(l) {}

  // a + b exactly, for any order of magnitudes (Knuth).
  static DoubleDouble two_sum(double a, double b) {
    const double s = a + b;
    const double b_part = s - a;
    return {s, (a - (s - b_part)) + (b - b_part)};
  }
  // a + b exactly, |a| >= |b| or a = 0 (Dekker).
  static DoubleDouble fast_two_sum(double a, double b) {
    const double s = a + b;
    return {s, b - (s - a)};
  }
  // a·b exactly, barring underflow.
  static DoubleDouble two_prod(double a, double b) {
    const double p = a * b;
    return {p, std::fma(a, b, -p)};
  }

  // Algorithm 6, AccurateDWPlusDW
  friend DoubleDouble operator+(const DoubleDouble& a, const DoubleDouble& b) {
    const DoubleDouble s = two_sum(a.high, b.high);
    const DoubleDouble t = two_sum(a.low, b.low);
    const DoubleDouble v = fast_two_sum(s.high, s.low + t.high);
    return fast_two_sum(v.high, t.low + v.low);
  }
  friend DoubleDouble operator-(const DoubleDouble& a) { return {-a.high, -a.low}; }
  friend DoubleDouble operator-(const DoubleDouble& a, const DoubleDouble& b) { return a + -b; }

  // Algorithm 11, DWTimesDW2
  friend DoubleDouble operator*(const DoubleDouble& a, const DoubleDouble& b) {
    const DoubleDouble c = two_prod(a.high, b.high);
    const double cross = std::fma(a.low, b.high, a.high * b.low);
    return fast_two_sum(c.high, c.low + cross);
  }

  // a/b = t + (a - t·b)/b with t = fl(a.high / b.high). a.high - t·b.high is a float64 number, at
  // most u|a|; a.low - t·b.low is at most 2u|a| and rounds once (2u²); their sum rounds (3u²), its
  // quotient rounds (3u²), and b.high stands for b in it (3u²).
  friend DoubleDouble operator/(const DoubleDouble& a, const DoubleDouble& b) {
    const double t = a.high / b.high;
    const double rest = std::fma(-t, b.high, a.high) + std::fma(-t, b.low, a.low);
    return fast_two_sum(t, rest / b.high);
  }

  friend bool operator==(const DoubleDouble& a, const DoubleDouble& b) {
    return a.high == b.high && a.low == b.low;
  }
  friend bool operator<(const DoubleDouble& a, const DoubleDouble& b) {
    return a.high < b.high || (a.high == b.high && a.low < b.low);
  }
};

// Lefèvre, Louvet, Muller, Picot and Rideau, "Accurate calculation of Euclidean norms using
// double-word arithmetic", ACM TOMS 49(1), 2023: SQRTDWtoDW.
inline DoubleDouble sqrt(const DoubleDouble& x) {
  const double s = std::sqrt(x.high);
  if (!(s > 0)) return DoubleDouble(s);
  const double rest = std::fma(-s, s, x.high) + x.low;
  return DoubleDouble::fast_two_sum(s, rest / (2 * s));
}

template <>
struct RealTraits<DoubleDouble> : OrderedTraits<DoubleDouble> {
  static DoubleDouble from_double(double x) { return DoubleDouble(x); }
  static DoubleDouble rsqrt(const DoubleDouble& x) { return DoubleDouble(1) / sqrt(x); }
};

static_assert(Real<DoubleDouble>);

}  // namespace shardproof
