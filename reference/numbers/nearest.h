// The nearest number of each format to an exact fraction, rounded once: ties to even, subnormals
// kept, overflow to infinity, and -0 for a negative fraction that rounds to zero.
#pragma once

#include "reference/numbers/bfloat16.h"
#include "reference/numbers/float16.h"
#include "reference/numbers/rational.h"

namespace shardproof {

double nearest_float64(const Rational& x);
float nearest_float32(const Rational& x);
BFloat16 nearest_bfloat16(const Rational& x);
Float16 nearest_float16(const Rational& x);

}  // namespace shardproof
