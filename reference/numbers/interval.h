// Interval<Digits>: two ends of Digits decimal digits that enclose the exact number, every
// operation rounded outwards (MPFI). Precisions are fixed by type, since MPFI's run-time precision
// is a static of the whole process. An identity holds when the enclosures of its sides meet and are
// narrow enough; too wide means evaluating again at the next precision. There is no order:
// comparing overlapping intervals has no answer, so relu, relu6 and maximum act on the end points.
#pragma once

#include <boost/multiprecision/mpfi.hpp>

#include "reference/numbers/rational.h"
#include "reference/numbers/real.h"

namespace shardproof {

template <int Digits>
class Interval {
 public:
  using Bound = boost::multiprecision::number<boost::multiprecision::mpfr_float_backend<Digits>,
                                              boost::multiprecision::et_off>;

  Interval() = default;  // zero
  explicit Interval(int x) : ends_(x) {}
  // Exact, Digits being 30 or more. Throws std::domain_error for NaN and infinities.
  explicit Interval(double x) : Interval(x, x) {}
  // [low, high]; throws also when low > high.
  Interval(double low, double high);
  // The narrowest enclosure.
  explicit Interval(const Rational& x);

  Bound lower() const;
  Bound upper() const;
  double width() const;  // upper - lower, rounded up

  friend Interval operator+(const Interval& a, const Interval& b) {
    return Interval(Ends(a.ends_ + b.ends_));
  }
  friend Interval operator-(const Interval& a, const Interval& b) {
    return Interval(Ends(a.ends_ - b.ends_));
  }
  friend Interval operator*(const Interval& a, const Interval& b) {
    return Interval(Ends(a.ends_ * b.ends_));
  }
  // Throws std::domain_error when b contains 0.
  friend Interval operator/(const Interval& a, const Interval& b) { return quotient(a, b); }
  friend Interval operator-(const Interval& a) { return Interval(Ends(-a.ends_)); }

  friend auto operator<=>(const Interval&, const Interval&) = delete;
  friend bool operator==(const Interval&, const Interval&) = delete;

  // Whether the two share a point.
  friend bool meets(const Interval& a, const Interval& b) { return share_a_point(a, b); }

  bool contains(double x) const;
  bool contains(const Rational& x) const;

  // Throws std::domain_error when the lower end is not above 0.
  static Interval rsqrt(const Interval& x);
  static Interval relu(const Interval& x);
  static Interval relu6(const Interval& x);
  static Interval maximum(const Interval& a, const Interval& b);
  static Interval minimum(const Interval& a, const Interval& b);
  // Throws std::domain_error when the lower end is below 0.
  static Interval square_root(const Interval& x);
  // The narrowest interval that contains both.
  static Interval hull(const Interval& a, const Interval& b);

 private:
  using Ends = boost::multiprecision::number<boost::multiprecision::mpfi_float_backend<Digits>,
                                             boost::multiprecision::et_off>;

  explicit Interval(Ends ends) : ends_(std::move(ends)) {}
  static Interval quotient(const Interval& a, const Interval& b);
  static bool share_a_point(const Interval& a, const Interval& b);
  mpfr_srcptr left() const { return &ends_.backend().data()->left; }
  mpfr_srcptr right() const { return &ends_.backend().data()->right; }
  mpfr_ptr left() { return &ends_.backend().data()->left; }
  mpfr_ptr right() { return &ends_.backend().data()->right; }

  Ends ends_;
};

template <int Digits>
struct RealTraits<Interval<Digits>> {
  using T = Interval<Digits>;
  static T from_double(double x) { return T(x); }
  static T rsqrt(const T& x) { return T::rsqrt(x); }
  static T relu(const T& x) { return T::relu(x); }
  static T relu6(const T& x) { return T::relu6(x); }
  static T maximum(const T& a, const T& b) { return T::maximum(a, b); }
};

extern template class Interval<30>;
extern template class Interval<80>;
extern template class Interval<160>;
extern template class Interval<320>;

static_assert(Real<Interval<30>>);

}  // namespace shardproof
