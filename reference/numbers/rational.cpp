#include "reference/numbers/rational.h"

#include <cmath>
#include <stdexcept>
#include <string>

namespace shardproof {

Rational RealTraits<Rational>::from_double(double x) {
  if (!std::isfinite(x)) {
    throw std::domain_error("no rational number equals " + std::to_string(x));
  }
  return Rational(x);
}

Rational RealTraits<Rational>::rsqrt(const Rational& x) {
  const mpz_srcptr over = mpq_numref(x.backend().data());
  const mpz_srcptr under = mpq_denref(x.backend().data());
  if (mpz_sgn(over) <= 0 || !mpz_perfect_square_p(over) || !mpz_perfect_square_p(under)) {
    throw std::domain_error(x.str() + " has no rational reciprocal square root");
  }
  Rational root;
  mpz_sqrt(mpq_numref(root.backend().data()), under);
  mpz_sqrt(mpq_denref(root.backend().data()), over);
  return root;
}

}  // namespace shardproof
