#include "reference/numbers/interval.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace shardproof {

template <int Digits>
Interval<Digits>::Interval(double low, double high) {
  static_assert(Digits >= 30, "a float64 number needs 53 bits");
  if (!(std::isfinite(low) && std::isfinite(high) && low <= high)) {
    throw std::domain_error("no interval from " + std::to_string(low) + " to " +
                            std::to_string(high));
  }
  mpfr_set_d(left(), low, MPFR_RNDD);
  mpfr_set_d(right(), high, MPFR_RNDU);
}

template <int Digits>
Interval<Digits>::Interval(const Rational& x) {
  mpfr_set_q(left(), x.backend().data(), MPFR_RNDD);
  mpfr_set_q(right(), x.backend().data(), MPFR_RNDU);
}

template <int Digits>
auto Interval<Digits>::lower() const -> Bound {
  Bound bound;
  mpfr_set(bound.backend().data(), left(), MPFR_RNDD);
  return bound;
}

template <int Digits>
auto Interval<Digits>::upper() const -> Bound {
  Bound bound;
  mpfr_set(bound.backend().data(), right(), MPFR_RNDU);
  return bound;
}

template <int Digits>
double Interval<Digits>::width() const {
  Bound width;
  mpfr_sub(width.backend().data(), right(), left(), MPFR_RNDU);
  return mpfr_get_d(width.backend().data(), MPFR_RNDU);
}

template <int Digits>
bool Interval<Digits>::contains(double x) const {
  return !std::isnan(x) && mpfr_cmp_d(left(), x) <= 0 && mpfr_cmp_d(right(), x) >= 0;
}

template <int Digits>
bool Interval<Digits>::contains(const Rational& x) const {
  return mpfr_cmp_q(left(), x.backend().data()) <= 0 &&
         mpfr_cmp_q(right(), x.backend().data()) >= 0;
}

template <int Digits>
bool Interval<Digits>::share_a_point(const Interval& a, const Interval& b) {
  return mpfr_lessequal_p(a.left(), b.right()) && mpfr_lessequal_p(b.left(), a.right());
}

template <int Digits>
Interval<Digits> Interval<Digits>::quotient(const Interval& a, const Interval& b) {
  if (mpfr_sgn(b.left()) <= 0 && mpfr_sgn(b.right()) >= 0) {
    throw std::domain_error("division by an interval that contains 0: " + b.ends_.str());
  }
  return Interval(Ends(a.ends_ / b.ends_));
}

template <int Digits>
Interval<Digits> Interval<Digits>::rsqrt(const Interval& x) {
  if (mpfr_sgn(x.left()) <= 0) {
    throw std::domain_error("reciprocal square root of an interval that reaches 0 or below: " +
                            x.ends_.str());
  }
  Interval result;
  mpfr_rec_sqrt(result.left(), x.right(), MPFR_RNDD);
  mpfr_rec_sqrt(result.right(), x.left(), MPFR_RNDU);
  return result;
}

template <int Digits>
Interval<Digits> Interval<Digits>::maximum(const Interval& a, const Interval& b) {
  Interval result;
  mpfr_max(result.left(), a.left(), b.left(), MPFR_RNDD);
  mpfr_max(result.right(), a.right(), b.right(), MPFR_RNDU);
  return result;
}

template <int Digits>
Interval<Digits> Interval<Digits>::minimum(const Interval& a, const Interval& b) {
  Interval result;
  mpfr_min(result.left(), a.left(), b.left(), MPFR_RNDD);
  mpfr_min(result.right(), a.right(), b.right(), MPFR_RNDU);
  return result;
}

template <int Digits>
Interval<Digits> Interval<Digits>::square_root(const Interval& x) {
  if (mpfr_sgn(x.left()) < 0) {
    throw std::domain_error("square root of an interval that reaches below 0: " + x.ends_.str());
  }
  Interval result;
  mpfr_sqrt(result.left(), x.left(), MPFR_RNDD);
  mpfr_sqrt(result.right(), x.right(), MPFR_RNDU);
  return result;
}

template <int Digits>
Interval<Digits> Interval<Digits>::hull(const Interval& a, const Interval& b) {
  Interval result;
  mpfr_min(result.left(), a.left(), b.left(), MPFR_RNDD);
  mpfr_max(result.right(), a.right(), b.right(), MPFR_RNDU);
  return result;
}

template <int Digits>
Interval<Digits> Interval<Digits>::relu(const Interval& x) {
  return maximum(x, Interval(0));
}

template <int Digits>
Interval<Digits> Interval<Digits>::relu6(const Interval& x) {
  Interval result = relu(x);
  const Interval six(6);
  mpfr_min(result.left(), result.left(), six.left(), MPFR_RNDD);
  mpfr_min(result.right(), result.right(), six.right(), MPFR_RNDU);
  return result;
}

template class Interval<30>;
template class Interval<80>;
template class Interval<160>;
template class Interval<320>;

}  // namespace shardproof
