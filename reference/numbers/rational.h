// Rational: exact arithmetic on fractions of integers (GMP). Identities without roots are
// equalities here. Without expression templates, so that every operator yields a Rational.
#pragma once

#include <boost/multiprecision/gmp.hpp>

#include "reference/numbers/real.h"

namespace shardproof {

using Rational = boost::multiprecision::number<boost::multiprecision::gmp_rational,
                                               boost::multiprecision::et_off>;

// Exact where x is the square of a rational, else throws std::domain_error naming x.
Rational square_root(const Rational& x);

template <>
struct RealTraits<Rational> : OrderedTraits<Rational> {
  // Exact. Throws std::domain_error for NaN and infinities.
  static Rational from_double(double x);
  // Exact where x is the square of a rational and not 0, else throws std::domain_error naming x.
  static Rational rsqrt(const Rational& x);
};

static_assert(Real<Rational>);

}  // namespace shardproof
