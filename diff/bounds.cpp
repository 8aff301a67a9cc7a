#include "diff/bounds.h"

#include <algorithm>
#include <cmath>

namespace shardproof {

namespace {

// Magnitudes up to here stay within the accumulator's range whatever the roundings.
double largest_sum(Accumulate accumulate) {
  return accumulate == Accumulate::float16 ? 0x1p15 : 0x1p127;
}

constexpr int kNoQuantum = 300;  // of which no float32 number but 0 is a multiple

bool is_power_of_two(double n) { return std::exp2(std::round(std::log2(n))) == n; }

bool is_narrow(const Contract& contract) {
  return contract.accumulate == Accumulate::bfloat16 || contract.accumulate == Accumulate::float16;
}

// Roundings of a sum of n terms; an accumulator narrower than float32 rounds the first term too.
double additions(double n, const Contract& contract) {
  return is_narrow(contract) ? n : std::max(n - 1, 0.0);
}

}  // namespace

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
  const double scaled = std::ldexp(x, -exponent);  // may underflow
  return scaled == std::trunc(scaled) && (scaled != 0 || x == 0);
}

int needed_quantum(double magnitude, int bits) {
  int exponent = 0;
  const double fraction = std::frexp(magnitude, &exponent);  // magnitude = fraction·2^exponent
  return (fraction == 0.5 ? exponent - 1 : exponent) - bits;
}

int significand_bits(Accumulate accumulate) {
  return std::min(-std::ilogb(unit_roundoff(accumulate)), 24);
}

int least_exponent(const Contract& contract) {
  const bool half = contract.accumulate == Accumulate::float16;
  if (!contract.subnormals_kept) return half ? -14 : -126;
  if (half) return -24;
  return contract.accumulate == Accumulate::bfloat16 ? -133 : -149;
}

int needed_quantum(double magnitude, const Contract& contract) {
  if (!(magnitude <= largest_sum(contract.accumulate))) return kNoQuantum;
  return std::max(needed_quantum(magnitude, significand_bits(contract.accumulate)),
                  least_exponent(contract));
}

int exact_quantum(double magnitude, double n, const Contract& contract) {
  const int quantum = needed_quantum(magnitude, contract);
  if (contract.mean != MeanDivision::premultiply) return quantum;
  if (!is_power_of_two(n)) return kNoQuantum;
  return std::max(quantum, least_exponent(contract) + std::ilogb(n));
}

double underflow_error(const Contract& contract) {
  return contract.subnormals_kept ? kFloat32Underflow : 0x1p-126;
}

bool is_float32(double x) { return static_cast<double>(static_cast<float>(x)) == x; }

bool is_kept(double x, const Contract& contract) {
  return is_float32(x) && (contract.subnormals_kept || x == 0 || std::abs(x) >= 0x1p-126);
}

double longest_run(Accumulate accumulate) {
  return accumulate == Accumulate::tensor_core ? 0 : 0x1p-8 / unit_roundoff(accumulate);
}

SumBound::SumBound(double n, double additions, bool rounded_terms, const Contract& contract,
                   InputKind kind, Dither dither) {
  const double u = unit_roundoff(contract.accumulate);
  any_rate_ = additions * u;
  const bool truncates = contract.accumulate == Accumulate::tensor_core;
  likely_rate_ = kind == InputKind::natural && !truncates ? kLambda * std::sqrt(n) * u : any_rate_;
  const double least = std::ldexp(1.0, least_exponent(contract));
  underflow_ = n * (contract.subnormals_kept ? least / 2 : least) * (1 + any_rate_);
  largest_ = largest_sum(contract.accumulate);
  // An accumulator wider than float32 is rounded once more, when it is stored.
  stored_rate_ = contract.accumulate == Accumulate::float64 ? kFloat32Unit : 0;

  // V, by s² and by Q, and the square of λu.
  const double w = std::clamp(static_cast<double>(contract.lanes), 1.0, std::max(n, 1.0));
  dithered_ =
      kind == InputKind::dithered && n / w * std::sqrt(w) <= longest_run(contract.accumulate);
  double by_total = 0;
  double by_squares = rounded_terms ? 1 : 0;  // rounded before they are added
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

double sum_rate(double n, const Contract& contract) {
  const double stored = contract.accumulate == Accumulate::float64 ? kFloat32Unit : 0;
  return additions(n, contract) * unit_roundoff(contract.accumulate) + stored;
}

SumBound sum_bound(double n, const Contract& contract, InputKind kind, Dither dither) {
  return {n, additions(n, contract), is_narrow(contract), contract, kind, dither};
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
  if (division == MeanDivision::divide) return true;
  if (division == MeanDivision::premultiply) return is_power_of_two(n);
  return static_cast<double>(static_cast<float>(s) * (1.0F / static_cast<float>(n))) == quotient;
}

Allowance mean_allowance(Allowance sum, const SumTerms& terms, const Contract& contract) {
  const double n = terms.count;
  const MeanDivision division = contract.mean;
  if (terms.exact && divides_exactly(terms.total, n, division) &&
      is_kept(terms.total / n, contract)) {
    return {};
  }
  const double u = kFloat32Unit;
  const auto level = [&](double error) {
    return error / n * (1 + 3 * u) +
           u * (1 + u) *
               (division_roundings(division) * terms.total +
                premultiply_roundings(division) * terms.magnitude) /
               n +
           division_underflows(division, n) * underflow_error(contract);
  };
  return {level(sum.any), level(sum.likely)};
}

Allowance all_reduce_sum_allowance(std::span<const float> terms, const Contract& contract) {
  double total = 0, magnitude = 0;
  for (const float t : terms) {
    total += static_cast<double>(t);
    magnitude += std::abs(static_cast<double>(t));
  }
  if (may_overflow(magnitude)) return kUnknownAllowance;
  const auto count = static_cast<double>(terms.size());
  if (are_multiples(terms, needed_quantum(magnitude, contract))) return {};
  return sum_bound(count, contract, InputKind::lattice, Dither::permuted)
      .at(std::abs(total), magnitude, 0);
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
  const auto on_quanta = [&](double magnitude, auto term) {
    const int quantum = needed_quantum(magnitude, contract);
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
  return mean_allowance(error, sum, contract);
}

double running_allowance(const Contract& contract, float running, float batch, float momentum,
                         double unbiased) {
  const double p = static_cast<double>(momentum), r = std::abs(static_cast<double>(running));
  const double v = std::abs(static_cast<double>(batch)) * unbiased;
  if (p == 0) return contract.subnormals_kept ? 0 : 2 * 0x1p-126;
  const double u = kFloat32Unit;
  return u * (4 * std::abs(1 - p) * r + 6 * p * v + 2 * p * r) * (1 + 16 * u) +
         6 * underflow_error(contract);
}

NormaliseAllowance normalise_allowance(const Contract& contract, double gamma, double beta,
                                       double mean, double root) {
  const double u = kFloat32Unit;
  const double underflow = underflow_error(contract);
  const double scale = std::abs(gamma) * root;
  NormaliseAllowance allowance;
  allowance.relative = (3.5 + 2 * contract.root) * u;
  allowance.output = u;
  if (contract.form == NormaliseForm::fused) {
    // x·s + (β − μ·s) with s = γ·r: |x·s| ≤ |(x − μ)s| + |μs|, and the shift is at most |β| + |μs|.
    allowance.relative += u;
    allowance.fixed = u * (3 * std::abs(mean) * scale + std::abs(beta));
  }
  const double second_order = 1 + 2 * allowance.relative;
  allowance.relative *= second_order;
  allowance.fixed *= second_order;
  allowance.fixed += (std::abs(gamma) + 4) * underflow;
  if (!contract.subnormals_kept) allowance.fixed += 3 * scale * underflow;  // of x, μ and x − μ
  if (gamma != 0) {  // γ·r may be subnormal, or γ itself and lost
    allowance.relative += underflow / scale;
    if (!contract.subnormals_kept) allowance.relative += underflow / std::abs(gamma);
    if (contract.form == NormaliseForm::fused) allowance.fixed += std::abs(mean) * underflow;
  }
  return allowance;
}

}  // namespace shardproof
