// The allowances of agreement §3: how far a device that keeps its contract may lie from the exact
// value. docs/bounds.md derives each, in the same order and under the same names.
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "device/engine/contract.h"
#include "diff/verdict.h"
#include "reference/graph/vectors.h"

namespace shardproof {

// Numbers of independent roundings are taken at λ standard deviations.
inline constexpr double kLambda = 6;
inline constexpr double kFloat32Unit = 0x1p-24;        // unit roundoff of float32
inline constexpr double kFloat32Underflow = 0x1p-150;  // half the smallest subnormal

// Whether every number is a whole number of quanta 2^exponent.
bool are_multiples(std::span<const float> numbers, int exponent);
bool is_multiple(double x, int exponent);

// The exponent of the smallest quantum with which a sum of that magnitude (Σ|t|) cannot round in an
// accumulator of so many bits: the least e with magnitude ≤ 2^(bits + e).
int needed_quantum(double magnitude, int bits);

// The same for the contract's accumulator, whose partial sums must also be neither too small for it
// nor, above its range, infinite: then no quantum serves.
int needed_quantum(double magnitude, const Contract& contract);

// The exponent of the contract's accumulator below which numbers are lost.
int least_exponent(const Contract& contract);

// Bits of significand in which an exact sum must fit: the accumulator's, and the 24 in which it is
// stored.
int significand_bits(Accumulate accumulate);

// The exponent of the smallest quantum on which n terms of that magnitude (Σ|t|) must lie for no
// sum to round on the way to their mean. Premultiplied terms stay exact for powers of two alone;
// else the quantum is so large that only zeros lie on it.
int exact_quantum(double magnitude, double n, const Contract& contract);

// Whether float32 arithmetic that meets numbers of this magnitude may overflow: such outputs are
// not judged (agreement §1).
inline constexpr double kMayOverflow = 0x1p127;
inline bool may_overflow(double magnitude) { return !(magnitude < kMayOverflow); }
inline constexpr Allowance kUnknownAllowance{std::numeric_limits<double>::infinity(),
                                             std::numeric_limits<double>::infinity()};

inline Allowance widen(Allowance allowance, double radius) {
  return {allowance.any + radius, allowance.likely + radius};
}

// What one operation in float32 may lose to underflow: half the smallest subnormal, or a subnormal.
double underflow_error(const Contract& contract);

// Whether x is a float32 number, subnormals included; one that the contract's device can hold.
bool is_float32(double x);
bool is_kept(double x, const Contract& contract);

// Up to which L·√w, for w running sums of L terms, errors are likely to stay within λ·u·√V (found
// by trial). For none in tensor cores: they truncate, so that their errors add up.
double longest_run(Accumulate accumulate);

// What the tester did to a dithered sum: put its terms in random order, or drew all their signs.
enum class Dither { permuted, signs };

// The error of a sum of n terms t, as a function of |s| = |Σt|, magnitude ≥ Σ|t| and squares ≥ Σt².
// It applies where partial sums may round; a sum that the quantum rule calls exact has no error.
class SumBound {
 public:
  Allowance at(double total, double magnitude, double squares) const {
    if (!(magnitude <= largest_)) return kUnknownAllowance;
    const double sum = any_rate_ * magnitude + underflow_;
    const double stored = stored_rate_ * (total + sum);
    const double any = sum + stored;
    const double likely = this->likely(total, magnitude, squares);
    return {any, likely < any ? likely : any};
  }
  // Where it is not limited by `any`.
  double likely(double total, double magnitude, double squares) const {
    if (dithered_) return independent(total, squares);
    const double sum = any_rate_ * magnitude + underflow_;
    return likely_rate_ * magnitude + underflow_ + stored_rate_ * (total + sum);
  }

  // At most at(…).likely, of four sums at once.
  Double4 floor(const Double4& total, const Double4& magnitude, const Double4& squares) const {
    const Double4 sum = any_rate_ * magnitude + underflow_;
    const Double4 any = sum + stored_rate_ * (total + sum);
    Double4 likely = (likely_rate_ * magnitude + underflow_) + stored_rate_ * (total + sum);
    if (dithered_) {
      for (int i = 0; i < 4; ++i) likely[i] = independent(total[i], squares[i]);
    }
    likely = likely < any ? likely : any;
    return magnitude <= largest_ ? likely : Double4{} + kUnknownAllowance.likely;
  }

  // λ·u·√V, underflow and storing: `likely` of a dithered sum where it is not limited by `any`, so
  // that several may be joined as the root of the sum of their squares.
  double independent(double total, double squares) const {
    return std::sqrt(total_rate_ * total * total + squares_rate_ * squares) + underflow_ +
           stored_rate_ * total;
  }

 private:
  friend SumBound sum_bound(double, const Contract&, InputKind, Dither);
  friend SumBound product_bound(double, const Contract&, InputKind, Dither);
  SumBound(double n, double additions, bool rounded_terms, const Contract& contract, InputKind kind,
           Dither dither);

  double any_rate_, likely_rate_, total_rate_ = 0, squares_rate_ = 0, underflow_, stored_rate_,
                                  largest_;
  bool dithered_;
};

// By which share of Σ|t| a sum of n float32 numbers may err, in any order, storing it included.
double sum_rate(double n, const Contract& contract);

// A sum of n float32 numbers; a sum of n products of float32 numbers.
SumBound sum_bound(double n, const Contract& contract, InputKind kind, Dither dither);
SumBound product_bound(double n, const Contract& contract, InputKind kind, Dither dither);

// The sum of n numbers as its mean sees it: |Σt|, at least Σ|t|, and whether no partial sum rounds.
struct SumTerms {
  double count = 0, total = 0, magnitude = 0;
  bool exact = false;
};

// Error of the mean when the sum has the error `sum`; none where the sum is exact and the
// contract's division gives its quotient exactly.
Allowance mean_allowance(Allowance sum, const SumTerms& terms, const Contract& contract);

// Whether the contract's division turns an exact sum s of n terms into s / n without error.
// Premultiplied terms are not looked at here: for them, only powers of two are exact.
bool divides_exactly(double s, double n, MeanDivision division);

// How many u|μ| the division of a mean may add to its error, when the sum's terms are not
// premultiplied; and how many u·mean|t| when they are.
double division_roundings(MeanDivision division);
double premultiply_roundings(MeanDivision division);

// How many underflow units the division of a mean of n numbers may add to its error.
double division_underflows(MeanDivision division, double n);

// Error of the all-reduced sum, and of the mean, of one number a replica.
Allowance all_reduce_sum_allowance(std::span<const float> terms, const Contract& contract);
Allowance all_reduce_allowance(std::span<const float> terms, const Contract& contract);

// Error of γ·(x − μ)·(σ² + ε)^(−1/2) + β on given statistics, as a function of x: `relative` times
// |γ(x − μ)r|, plus `output` times |y|, plus `fixed`.
struct NormaliseAllowance {
  double relative = 0, output = 0, fixed = 0;
};
NormaliseAllowance normalise_allowance(const Contract& contract, double gamma, double beta,
                                       double mean, double root);

// Error of (1 − p)·r + p·v·f, a running value after a batch (docs/bounds.md, "Running statistics");
// f, the factor that makes a variance unbiased, is 1 for a mean.
double running_allowance(const Contract& contract, float running, float batch, float momentum,
                         double unbiased);

}  // namespace shardproof
