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

Rational square_root(const Rational& x) {
  const mpz_srcptr over = mpq_numref(x.backend().data());
  const mpz_srcptr under = mpq_denref(x.backend().data());
  if (mpz_sgn(over) < 0 || !mpz_perfect_square_p(over) || !mpz_perfect_square_p(under)) {
    throw std::domain_error(x.str() + " has no rational square root");
  }
  Rational root;
  mpz_sqrt(mpq_numref(root.backend().data()), over);
  mpz_sqrt(mpq_denref(root.backend().data()), under);
  return root;
}

Rational RealTraits<Rational>::rsqrt(const Rational& x) {
  if (x == 0) throw std::domain_error("0 has no reciprocal square root");
  return 1 / square_root(x);
}

}  // namespace shardproof
