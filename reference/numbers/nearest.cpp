#include "reference/numbers/nearest.h"

#include <algorithm>
#include <bit>
#include <boost/multiprecision/gmp.hpp>
#include <cmath>
#include <cstdint>

namespace shardproof {
namespace {

// The nearest number to x of at most `precision` (<= 53) bits that is a multiple of 2^lowest, ties
// to even. Infinite where that exceeds float64.
double rounded(const Rational& x, int precision, int lowest) {
  using Integer =
      boost::multiprecision::number<boost::multiprecision::gmp_int, boost::multiprecision::et_off>;
  if (x == 0) return 0;
  const Integer numerator = abs(boost::multiprecision::numerator(x));
  const Integer denominator = boost::multiprecision::denominator(x);
  const auto bits = [](const Integer& n) { return static_cast<long>(msb(n)) + 1; };
  // x / 2^unit has precision + 1 or precision + 2 bits before the point, or fewer where multiples
  // of 2^lowest bound them.
  const long finest = bits(numerator) - bits(denominator) - precision - 1;
  const long unit = std::max(finest, static_cast<long>(lowest) - 1);
  // Too large for float64, or below a quarter of 2^lowest: no need of the quotient.
  const double zero = x < 0 ? -0.0 : 0.0;
  if (finest > 1024) return x < 0 ? -HUGE_VAL : HUGE_VAL;
  if (finest + precision + 4 < lowest) return zero;
  const Integer over =
      unit < 0 ? Integer(numerator << static_cast<unsigned long>(-unit)) : numerator;
  const Integer under =
      unit > 0 ? Integer(denominator << static_cast<unsigned long>(unit)) : denominator;
  Integer quotient, rest;
  divide_qr(over, under, quotient, rest);
  auto significand = quotient.convert_to<std::uint64_t>();
  // Rounds `dropped` bits off, ties to even, where the rest breaks a tie upwards.
  const int dropped = std::max(1, static_cast<int>(std::bit_width(significand)) - precision);
  const std::uint64_t half = std::uint64_t{1} << (dropped - 1);
  const std::uint64_t cut = significand & (2 * half - 1);
  significand >>= dropped;
  if (cut > half || (cut == half && (rest != 0 || (significand & 1u) != 0))) ++significand;
  const double magnitude =
      std::ldexp(static_cast<double>(significand), static_cast<int>(unit) + dropped);
  return x < 0 ? -magnitude : magnitude;
}

}  // namespace

// Each conversion from float64 is exact, or overflows.
double nearest_float64(const Rational& x) { return rounded(x, 53, -1074); }
float nearest_float32(const Rational& x) { return static_cast<float>(rounded(x, 24, -149)); }
BFloat16 nearest_bfloat16(const Rational& x) { return BFloat16(rounded(x, 8, -133)); }
Float16 nearest_float16(const Rational& x) { return Float16(rounded(x, 11, -24)); }

}  // namespace shardproof
