// What a device says of its arithmetic. Two correct devices differ by rounding alone, and how much
// they may differ follows from these fields and from the operands: docs/bounds.md derives the
// allowance of each operation from them. A device that needs a looser contract than it states is
// wrong. The defaults are the strictest common practice, except `lanes`, whose default is the
// loosest. C++17, since nvcc reads it too.
#pragma once

#include <cstddef>

namespace shardproof {

// Precision to which the operands of a product are rounded before they are multiplied.
enum class Operands { float32, tf32, bfloat16, float16 };

// Precision of a running sum.
enum class Accumulate { float32, float64, tensor_core, bfloat16, float16 };

// How a sum of n numbers becomes their mean: S / n; S · fl(1/n); or the sum of x · fl(1/n), as
// ncclAvg does.
enum class MeanDivision { divide, reciprocal, premultiply };

// How a variance is computed. `two_pass`: Σ(x − mean)² / m with the mean already rounded.
// `shifted`: one pass over x − c for a fixed c. `one_pass`: Σx²/m − mean². `welford`: one running
// mean and sum of squares. `merged`: (count, mean, sum of squares) triples joined pairwise.
enum class StatisticsMethod { two_pass, shifted, one_pass, welford, merged };

// (x − μ)·scale + β, or x·scale + shift with shift = β − μ·scale, which cancels when |μ| is large.
enum class NormaliseForm { subtract_first, fused };

// Largest relative error of one addition in the given precision, barring underflow. Tensor cores
// truncate, so that their unit is a whole ulp of float32 (Fasi, Higham, Mikaitis, Pranesh 2021).
constexpr double unit_roundoff(Accumulate accumulate) {
  switch (accumulate) {
    case Accumulate::float32:
      return 0x1p-24;
    case Accumulate::float64:
      return 0x1p-53;
    case Accumulate::tensor_core:
      return 0x1p-23;
    case Accumulate::bfloat16:
      return 0x1p-8;
    case Accumulate::float16:
      return 0x1p-11;
  }
  return 1.0;
}

struct Contract {
  // Of convolutions and dense layers.
  Operands operands = Operands::float32;

  // Of every sum in the operation.
  Accumulate accumulate = Accumulate::float32;

  // Running sums that one output is spread over before they are combined in a binary tree; term j
  // goes to sum j mod lanes. 1 also covers a device whose order is unknown.
  std::size_t lanes = 1;

  MeanDivision mean = MeanDivision::divide;
  StatisticsMethod statistics = StatisticsMethod::two_pass;
  NormaliseForm form = NormaliseForm::subtract_first;

  // Largest error of the reciprocal square root, in ulps of its result.
  double root = 2.0;

  // Whether that root is exact where the argument is a power of four.
  bool root_exact_at_powers_of_four = false;

  // Whether a product and a sum may be fused into one rounding. A device that says so may fuse
  // some, all or none.
  bool contraction = true;

  // Whether subnormal operands and results keep their value; otherwise they become zero.
  bool subnormals_kept = true;
};

}  // namespace shardproof
