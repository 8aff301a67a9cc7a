#include "diff/bounds.h"

#include <algorithm>
#include <cmath>

namespace shardproof {

bool are_multiples(std::span<const float> numbers, int exponent) {
  if (exponent <= -149) return true;  // float32's smallest subnormal
  if (exponent > 128) {
    return std::all_of(numbers.begin(), numbers.end(), [](float x) { return x == 0; });
  }
  const double quanta = std::ldexp(1.0, -exponent);
  constexpr std::size_t kBlock =
      64;  // looked at together, so that the loop runs in vector registers
  for (std::size_t first = 0; first < numbers.size(); first += kBlock) {
    const std::span<const float> block =
        numbers.subspan(first, std::min(kBlock, numbers.size() - first));
    bool whole = true;
    for (const float x : block) {
      const double scaled = static_cast<double>(x) * quanta;
      whole &= scaled == std::trunc(scaled);
    }
    if (!whole) return false;
  }
  return true;
}

bool is_multiple(double x, int exponent) {
  const double scaled = std::ldexp(x, -exponent);
  return scaled == std::trunc(scaled);
}

int needed_quantum(double magnitude, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // magnitude = fraction·2^exponent
  return (fraction == 0.5 ? exponent - 1 : exponent) - bits;
}

int significand_bits(Accumulate accumulate) {
  return std::min(-std::ilogb(unit_roundoff(accumulate)), 24);
}

int exact_quantum(double magnitude, double n, const Contract& contract) {
  const int quantum = needed_quantum(magnitude, significand_bits(contract.accumulate));
  if (contract.mean != MeanDivision::premultiply) return quantum;
  int exponent = 0;
  const bool power_of_two = std::frexp(n, &exponent) == 0.5;
  return power_of_two ? std::max(quantum, exponent - 1 - 149) : 512;
}

bool is_float32(double x) { return static_cast<double>(static_cast<float>(x)) == x; }

SumBound::SumBound(double n, double additions, bool products, const Contract& contract,
                   InputKind kind, Dither dither) {
  const double u = unit_roundoff(contract.accumulate);
  any_rate_ = additions * u;
  likely_rate_ = kind == InputKind::natural ? kLambda * std::sqrt(n) * u : any_rate_;
  underflow_ = n * (contract.subnormals_kept ? kFloat32Underflow : 0x1p-126);
  // An accumulator wider than float32 is rounded once more, when it is stored.
  stored_rate_ = contract.accumulate == Accumulate::float64 ? kFloat32Unit : 0;
  dithered_ = kind == InputKind::dithered;

  // V, by s² and by Q, and the square of λu.
  const double w = std::clamp(static_cast<double>(contract.lanes), 1.0, std::max(n, 1.0));
  double by_total = 0;
  double by_squares = products ? 1 : 0;  // products that are rounded before they are added
  if (dither == Dither::signs) {
    by_squares += std::ceil(n / w) + std::ceil(std::log2(w));
  } else {
    by_total += (n / w + 1) / (3 * w);
    by_squares += (n / w + 1) / 2 * (1 - 2 / (3 * w));
    for (double nodes = w; nodes > 1;) {
      nodes = std::ceil(nodes / 2);
      by_total += 1 / nodes;
      by_squares += 1 - 1 / nodes;
    }
  }
  total_rate_ = kLambda * kLambda * u * u * by_total;
  squares_rate_ = kLambda * kLambda * u * u * by_squares;
}

SumBound sum_bound(double n, const Contract& contract, InputKind kind, Dither dither) {
  return {n, std::max(n - 1, 0.0), false, contract, kind, dither};
}

SumBound product_bound(double n, const Contract& contract, InputKind kind, Dither dither) {
  return {n, n, true, contract, kind, dither};
}

double division_roundings(MeanDivision division) {
  switch (division) {
    case MeanDivision::divide:
      return 1;
    case MeanDivision::reciprocal:
      return 2;
    case MeanDivision::premultiply:
      return 0;
  }
  return 0;
}

double premultiply_roundings(MeanDivision division) {
  return division == MeanDivision::premultiply ? 2 : 0;
}

double division_underflows(MeanDivision division, double n) {
  return division == MeanDivision::premultiply ? n : 2;
}

bool divides_exactly(double s, double n, MeanDivision division) {
  const double quotient = s / n;
  if (quotient * n != s || !is_float32(quotient)) return false;
  switch (division) {
    case MeanDivision::divide:
      return true;
    case MeanDivision::reciprocal:
      return static_cast<double>(static_cast<float>(s) * (1.0F / static_cast<float>(n))) ==
             quotient;
    case MeanDivision::premultiply:
      return std::exp2(std::round(std::log2(n))) == n;
  }
  return false;
}

Allowance mean_allowance(Allowance sum, const SumTerms& terms, MeanDivision division) {
  const double n = terms.count;
  if (terms.exact && divides_exactly(terms.total, n, division)) return {};
  const double u = kFloat32Unit;
  const auto level = [&](double error) {
    return error / n * (1 + 3 * u) +
           u * (1 + u) *
               (division_roundings(division) * terms.total +
                premultiply_roundings(division) * terms.magnitude) /
               n +
           division_underflows(division, n) * kFloat32Underflow;
  };
  return {level(sum.any), level(sum.likely)};
}

Allowance all_reduce_allowance(std::span<const float> terms, const Contract& contract) {
  SumTerms sum;
  sum.count = static_cast<double>(terms.size());
  double total = 0;
  for (const float t : terms) {
    total += static_cast<double>(t);
    sum.magnitude += std::abs(static_cast<double>(t));
  }
  sum.total = std::abs(total);
  if (may_overflow(sum.magnitude)) return kUnknownAllowance;
  const int bits = significand_bits(contract.accumulate);
  const auto on_quanta = [&](double magnitude, auto term) {
    const int quantum = needed_quantum(magnitude, bits);
    return std::all_of(terms.begin(), terms.end(),
                       [&](float t) { return is_multiple(term(t), quantum); });
  };
  if (contract.mean == MeanDivision::premultiply) {
    const float factor = 1.0F / static_cast<float>(sum.count);
    const auto scaled = [&](float t) { return static_cast<double>(t * factor); };
    const bool terms_exact = std::all_of(terms.begin(), terms.end(), [&](float t) {
      return scaled(t) * sum.count == static_cast<double>(t);
    });
    if (terms_exact && on_quanta(sum.magnitude / sum.count, scaled)) return {};
  } else {
    sum.exact = on_quanta(sum.magnitude, [](float t) { return static_cast<double>(t); });
  }
  const SumBound bound = sum_bound(sum.count, contract, InputKind::lattice, Dither::permuted);
  const Allowance error = sum.exact ? Allowance{} : bound.at(sum.total, sum.magnitude, 0);
  return mean_allowance(error, sum, contract.mean);
}

NormaliseAllowance normalise_allowance(const Contract& contract, double gamma, double beta,
                                       double mean, double root) {
  const double u = kFloat32Unit;
  NormaliseAllowance allowance;
  allowance.relative = (3.5 + 2 * contract.root) * u;
  allowance.output = u;
  allowance.fixed =
      (std::abs(gamma) + 1) * (contract.subnormals_kept ? kFloat32Underflow : 0x1p-126);
  if (contract.form == NormaliseForm::fused) {
    // x·s + (β − μ·s) with s = γ·r: |x·s| ≤ |(x − μ)s| + |μs|, and the shift is at most |β| + |μs|.
    const double shifted = std::abs(mean * gamma * root);
    allowance.relative += u;
    allowance.fixed += u * (3 * shifted + std::abs(beta));
  }
  return allowance;
}

}  // namespace shardproof
