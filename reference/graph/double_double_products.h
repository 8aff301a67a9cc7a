// The second evaluation of product nodes (spec §4): float32 weights, operands and results in
// DoubleDouble. It confirms digits of a first evaluation in float64.
//
// Each result is off by at most 2^-100 · Σ|t| over its terms t = w·x, for finite operands whose
// terms neither overflow nor reach below 2^-900. Operands and weights are cut into slices so short
// that float64 products of slices are exact in any order of summation (Ozaki, Ogita, Oishi and
// Rump, "Error-free transformations of matrix multiplication", Numer. Algorithms 59(1), 2012), so
// Eigen's products can be used; outputs for which the dropped slices could matter are summed term
// by term.
#pragma once

#include <span>

#include "reference/graph/products.h"
#include "reference/numbers/double_double.h"

namespace shardproof {

// y, of geometry.y's shape, receives every output. The bytes do not depend on the number of
// threads.
void double_double_product(const ProductGeometry& geometry, std::span<const DoubleDouble> x,
                           std::span<const float> weight, unsigned threads,
                           std::span<DoubleDouble> y);

}  // namespace shardproof
