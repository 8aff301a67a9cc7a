// How the judge compares a BN site: the replicas' statistics, their all-reduces, and y
// (docs/bounds.md, "Variance" to "Site").
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "diff/judge.h"
#include "reference/graph/parallel.h"
#include "reference/graph/vectors.h"
#include "reference/numbers/certified.h"

namespace shardproof {
namespace {

constexpr double kU = kFloat32Unit;

// The exponent of the lowest bit of x that is set; x is finite and not zero.
int lowest_bit(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const auto bits = static_cast<std::int64_t>(std::ldexp(fraction, 53));
  return exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(std::abs(bits)));
}

// Whether means and sums of squares are joined by counts, one number at a time or chunks.
bool is_running(const Contract& contract) {
  return contract.statistics == StatisticsMethod::welford ||
         contract.statistics == StatisticsMethod::merged;
}
// Where an infinity in x may stand as NaN in the mean: a difference is taken first.
bool loses_infinity(const Contract& contract) {
  return is_running(contract) || contract.statistics == StatisticsMethod::shifted;
}

// What both statistics of a running or shifted channel depend on (docs/bounds.md).
struct Dispersion {
  explicit Dispersion(const ChannelSums& sums)
      : count(sums.count),
        mean(std::abs(sums.mean.value) + sums.mean.radius),
        deviation(std::sqrt(sums.centred_squares / sums.count)),
        farthest(std::sqrt(std::sqrt(sums.centred_fourths))) {}

  double count;
  double mean;       // |μ|
  double deviation;  // σ
  double farthest;   // at least |x − μ| of any x
};

double rounding_of(const Contract& contract) {
  return std::max(kU, unit_roundoff(contract.accumulate));
}

// Error of a mean that is joined by counts, the two levels not limited by each other.
Allowance running_mean_allowance(const ChannelSums& sums, double total, const SumBound& bound,
                                 const Contract& contract) {
  const Dispersion spread(sums);
  const double m = spread.count, u = rounding_of(contract);
  const double any = bound.at(total, sums.magnitude, sums.squares).any / m;
  const double likely = bound.likely(total, sums.magnitude, sums.squares) / m;
  const double underflow = m * underflow_error(contract);
  if (contract.statistics == StatisticsMethod::welford && contract.lanes <= 1) {
    const double steps = 5 * u * spread.deviation;
    return {(any + steps) * (1 + 2 * m * u) + underflow, likely + steps + underflow};
  }
  return {(4 * any + 2.2 * u * m * spread.deviation) * (1 + 8 * m * u) + underflow,
          2 * likely + kLambda * u * spread.deviation * std::sqrt(3 * m) + underflow};
}

// Error of the mean of x − c, c among the numbers.
Allowance shifted_sum_allowance(const ChannelSums& sums, const SumBound& bound,
                                const Contract& contract) {
  const Dispersion spread(sums);
  const double m = spread.count, u = rounding_of(contract);
  const double square = spread.deviation * spread.deviation + spread.farthest * spread.farthest;
  const double size = std::sqrt(square);
  const Allowance sum = bound.at(m * spread.farthest, m * size, m * square);
  const double rest = 4 * u * size + 3 * underflow_error(contract);
  return {(sum.any / m + rest) * (1 + 8 * u), (sum.likely / m + rest) * (1 + 8 * u)};
}

// Error of Σ(x − μ)²/m where means and squares are joined by counts.
Allowance running_moment_allowance(const ChannelSums& sums, const SumBound& of_sum,
                                   const SumBound& of_squares, const Contract& contract) {
  const Dispersion spread(sums);
  const double m = spread.count, u = rounding_of(contract);
  const double squares = sums.centred_squares;
  const bool joins = contract.statistics == StatisticsMethod::merged || contract.lanes > 1;
  const double total = std::abs(sums.sum.value) + sums.sum.radius;
  const Allowance mean = running_mean_allowance(sums, total, of_sum, contract);
  const Allowance sum = of_squares.at(squares, squares, 2 * sums.centred_fourths);
  // Errors of the means that a difference is taken of, and how many differences weigh how much.
  const double sides = joins ? 2 : 1;
  const double weight = joins ? std::max(std::log2(m) / 2, 1.0) : 2;
  const double of_any = sides * ((joins ? 4 : 1) * u * sums.magnitude * (1 + 8 * m * u) +
                                 (joins ? 2.2 * std::sqrt(m) : 5) * u * std::sqrt(squares) +
                                 m * underflow_error(contract));
  const double of_likely =
      sides * (mean.likely + kLambda * u * (spread.mean + 3 * spread.deviation));
  const double terms = (joins ? 10 : 8) * u * squares;
  return {(sides * sum.any + terms + 2 * of_any * std::sqrt(squares * m * weight) +
           m * weight * of_any * of_any) *
              (1 + 4 * m * u) / m,
          (sides * sum.likely + terms + 6 * of_likely * std::sqrt(squares * weight) +
           m * weight * of_likely * of_likely) /
              m};
}

// The same of Σ(x − c)²/m − (Σ(x − c)/m)².
Allowance shifted_moment_allowance(const ChannelSums& sums, const SumBound& of_sum,
                                   const SumBound& of_squares, const Contract& contract) {
  const Dispersion spread(sums);
  const double m = spread.count, u = rounding_of(contract);
  const double variance = spread.deviation * spread.deviation;
  const double shift = spread.farthest;  // at least |μ − c|
  const double second = variance + shift * shift;
  const double fourths = 8 * (sums.centred_fourths + m * std::pow(shift, 4));
  const Allowance squares = of_squares.at(m * second, m * second, fourths);
  const Allowance mean = shifted_sum_allowance(sums, of_sum, contract);
  const auto level = [&](double sum, double delta) {
    return (sum / m + 6 * u * second + 2 * shift * delta + delta * delta + 4 * u * shift * shift) *
           (1 + 8 * u);
  };
  return {level(squares.any, mean.any), level(squares.likely, mean.likely)};
}

}  // namespace

bool Judge::multiples(const Tensor<float>& x, std::size_t channel, int quantum) const {
  for (std::size_t n = 0; n < x.shape.n; ++n) {
    if (!are_multiples(x.plane(n, channel), quantum)) return false;
  }
  return true;
}

const Judge::Site& Judge::site(NodeId x) {
  const auto found = sites_.find(x);
  if (found != sites_.end()) return found->second;
  const Contract contract = this->contract(Operation::channel_mean, x);
  const Family<float>& numbers = values_.at(x);
  const std::size_t channels = numbers.at(0).shape.c;
  const auto count = static_cast<double>(batch_ * numbers[0].shape.plane());
  const SumBound bound = sum_bound(count, contract, kind_, Dither::permuted);
  Site site(replicas_, std::vector<SiteChannel>(channels));
  parallel_for(threads_, replicas_ * channels, [&](std::size_t index) {
    const std::size_t r = index / channels, c = index % channels;
    SiteChannel& channel = site[r][c];
    channel.sums = sums_of_channel(numbers[r], c);
    const ChannelSums& s = channel.sums;
    Allowance sum;
    const double total = std::abs(s.sum.value) + s.sum.radius;
    const bool exact = multiples(numbers[r], c, exact_quantum(s.magnitude, count, contract));
    if (!exact) {
      sum = bound.at(total, s.magnitude, s.squares);
      channel.independent_sum = bound.independent(total, s.squares);
    }
    if (is_running(contract)) {
      channel.mean = running_mean_allowance(s, total, bound, contract);
      channel.independent_sum = count * channel.mean.likely;
      channel.mean.likely = std::min(channel.mean.likely, channel.mean.any);
    } else if (contract.statistics == StatisticsMethod::shifted) {
      const Allowance of_sum = shifted_sum_allowance(s, bound, contract);
      channel.mean = widen(of_sum, 2 * kU * total / count + underflow_error(contract));
      channel.independent_sum = count * channel.mean.likely;
    } else {
      channel.mean = mean_allowance(
          sum, {count, exact ? std::abs(s.sum.value) : total, s.magnitude, exact}, contract);
    }
    if (may_overflow(2 * s.magnitude)) channel.mean = kUnknownAllowance;
  });
  return sites_.emplace(x, std::move(site)).first->second;
}

std::vector<Comparison> Judge::mean(NodeId node) {
  Comparison result = comparison(node, "");
  const NodeId x = graph_.node(node).operands[0];
  const Site& site = this->site(x);
  const bool skips = loses_infinity(contract(Operation::channel_mean, x));
  for (std::size_t r = 0; r < replicas_; ++r) {
    for (std::size_t c = 0; c < site[r].size(); ++c) {
      const Certified& expected = site[r][c].sums.mean;
      if (skips && !std::isfinite(site[r][c].sums.magnitude)) {
        result.skip();
        continue;
      }
      result.see(r, c, values_[node][r].values[c], expected.value,
                 widen(site[r][c].mean, expected.radius));
    }
  }
  return {result};
}

// Error of σ²_r + (μ_r − μ)² about a given μ, where `between` = μ_r − μ is known up to
// `between_error` (docs/bounds.md, "Variance").
Allowance Judge::variance_allowance(const SiteChannel& channel, const Tensor<float>& x,
                                    std::size_t c, Certified between, double between_error,
                                    const Contract& contract, const SumBound& bound) const {
  const ChannelSums& sums = channel.sums;
  const double m = sums.count;
  const double variance = std::max(sums.variance.value, 0.0) + sums.variance.radius;
  const double e = std::abs(between.value) + between.radius;
  const bool one_pass = contract.statistics == StatisticsMethod::one_pass;
  if (may_overflow((one_pass ? sums.squares : sums.centred_squares) + e * e)) {
    return kUnknownAllowance;
  }
  const double division = division_roundings(contract.mean) + premultiply_roundings(contract.mean);
  const double underflow = (2 + division_underflows(contract.mean, m)) * underflow_error(contract);
  if (one_pass) {
    const Allowance squares = bound.at(sums.squares, sums.squares, sums.squares * sums.squares);
    const double q = sums.squares / m;
    const double mu = std::abs(sums.mean.value) + sums.mean.radius;
    const auto level = [&](double sum, double delta) {
      return (sum / m + (2 + division) * kU * q + 2 * (mu + e + between_error) * delta +
              2 * delta * delta + kU * (3 * mu * mu + 2 * variance) +
              4 * kU * (e + between_error + delta) * (e + between_error + delta)) *
                 (1 + 8 * kU) +
             underflow;
    };
    return {level(squares.any, channel.mean.any), level(squares.any, channel.mean.likely)};
  }
  if (contract.statistics != StatisticsMethod::two_pass) {
    const SumBound of_sum = sum_bound(m, contract, kind_, Dither::permuted);
    Allowance moment;
    if (is_running(contract)) {
      moment = running_moment_allowance(sums, of_sum, bound, contract);
    } else {
      moment = shifted_moment_allowance(sums, of_sum, bound, contract);
    }
    const auto level = [&](double moment_error, double delta) {
      const double far = e + between_error + delta;
      return (moment_error + (1 + division) * kU * variance + 2 * (e + between_error) * delta +
              delta * delta + 4 * kU * far * far + kU * variance) *
                 (1 + 8 * kU) +
             underflow;
    };
    const double any = level(moment.any, channel.mean.any);
    return {any, std::min(any, level(moment.likely, channel.mean.likely))};
  }
  const bool mean_exact = channel.mean.any == 0;
  bool squares_exact = false;
  if (mean_exact) {
    const int squared_quantum = exact_quantum(sums.centred_squares, m, contract);
    const int quantum = squared_quantum >= 0 ? (squared_quantum + 1) / 2 : squared_quantum / 2;
    squares_exact = is_multiple(sums.mean.value, quantum) && multiples(x, c, quantum);
  }
  if (squares_exact && between_error == 0) {
    // Operation by operation; one is exact when its operands are and its result is a float32
    // number.
    const double v = sums.variance.value;
    const double square = between.value * between.value;
    const bool divided = divides_exactly(v * m, m, contract.mean) && is_kept(v, contract);
    const bool subtracted = is_kept(between.value, contract);
    const bool squared = subtracted && is_kept(square, contract);
    const bool added = divided && squared && is_kept(v + square, contract);
    if (added) return {};
    double error = 0;
    if (!divided) error += division * kU * variance;
    if (!subtracted) error += 2 * kU * e * e;
    if (!squared) error += kU * e * e;
    error += kU * (variance + e * e);
    error = error * (1 + 8 * kU) + underflow;
    return {error, error};
  }
  const auto level = [&](double delta, bool any) {
    const double sum = sums.centred_squares + m * delta * delta;
    const Allowance squares =
        squares_exact ? Allowance{} : bound.at(sum, sum, sums.centred_fourths);
    const double far = e + between_error + delta;
    return ((any ? squares.any : squares.likely) / m + (3 + division) * kU * variance +
            2 * e * delta + 2 * delta * delta + 4 * kU * far * far + kU * variance) *
               (1 + 8 * kU) +
           underflow;
  };
  return {level(channel.mean.any, true), level(channel.mean.likely, false)};
}

std::vector<Comparison> Judge::variance_at(NodeId node) {
  Comparison result = comparison(node, "");
  const NodeId x = graph_.node(node).operands[0];
  const NodeId mean = graph_.node(node).operands[1];
  const Contract contract = this->contract(Operation::channel_variance, x);
  const Site& site = this->site(x);
  const SumBound bound = sum_bound(site[0][0].sums.count, contract, kind_, Dither::permuted);
  for (std::size_t r = 0; r < replicas_; ++r) {
    for (std::size_t c = 0; c < site[r].size(); ++c) {
      const ChannelSums& sums = site[r][c].sums;
      const auto given = static_cast<double>(values_[mean][r].values[c]);
      if (std::isfinite(sums.magnitude) &&
          (may_overflow(sums.magnitude) || !std::isfinite(given))) {
        result.skip();  // a sum of the mean overflowed
        continue;
      }
      const Certified between = sums.mean - Certified(given);
      const Certified expected = sums.variance + between * between;
      const Allowance allowance =
          variance_allowance(site[r][c], values_[x][r], c, between, 0, contract, bound);
      result.see(r, c, values_[node][r].values[c], expected.value,
                 widen(allowance, expected.radius));
    }
  }
  return {result};
}

std::vector<Comparison> Judge::all_reduce(NodeId node) {
  Comparison result = comparison(node, "");
  Comparison equal = comparison(node, "equal on all replicas");
  const NodeId operand = graph_.node(node).operands[0];
  const Contract contract = this->contract(Operation::all_reduce_mean, node);
  std::vector<float> terms(replicas_);
  for (std::size_t i = 0; i < graph_.node(node).shape.size(); ++i) {
    Certified sum;
    for (std::size_t r = 0; r < replicas_; ++r) {
      terms[r] = values_[operand][r].values[i];
      sum = sum + Certified(static_cast<double>(terms[r]));
    }
    const Certified expected = sum / Certified(static_cast<double>(replicas_));
    const Allowance allowance = all_reduce_allowance(terms, contract);
    reductions_[node].push_back(allowance);
    for (std::size_t r = 0; r < replicas_; ++r) {
      const float got = values_[node][r].values[i];
      result.see(r, i, got, expected.value, widen(allowance, expected.radius));
      equal.see_equal(r, i, got, values_[node][0].values[i]);
    }
  }
  return {result, equal};
}

std::vector<Comparison> Judge::normalise(NodeId written, NodeId site_node) {
  const auto& op = std::get<BnSync>(graph_.node(site_node).operation);
  const NodeId x = graph_.node(site_node).operands[0];
  const NodeId pack = graph_.node(site_node).operands[1];
  judged_.push_back(pack);
  const NodeId mean_node = graph_.node(pack).operands[0];
  const NodeId variance_node = graph_.node(pack).operands[1];
  const bool relu = written != site_node;
  const Site& site = this->site(x);
  const Contract of_mean = contract(Operation::channel_mean, x);
  const Contract of_variance = contract(Operation::channel_variance, x);
  const Contract of_reduce = contract(Operation::all_reduce_mean, mean_node);
  const Contract of_y = contract(Operation::normalise, x);
  const int least = least_exponent(of_y);
  const auto replicas = static_cast<double>(replicas_);
  const auto epsilon = static_cast<double>(op.epsilon);
  const double m = site[0][0].sums.count;
  const SumBound of_squares = sum_bound(m, of_variance, kind_, Dither::permuted);

  Comparison batch_mean = comparison(mean_node, "batch mean");
  Comparison batch_variance = comparison(variance_node, "batch variance");
  Comparison own = comparison(written, "y on own statistics");
  Comparison shard = comparison(written, "y against its shard of batch BN");
  struct Worker {
    Comparison batch_mean, batch_variance, own, shard;
  };
  std::vector<Worker> workers(std::max(threads_, 1U), {batch_mean, batch_variance, own, shard});
  parallel_for(threads_, graph_.node(x).shape.c, [&](std::size_t c, unsigned number) {
    Worker& worker = workers[number];
    // Batch BN over the operands of all replicas put together.
    Certified mean(0);
    for (std::size_t r = 0; r < replicas_; ++r) mean = mean + site[r][c].sums.mean;
    mean = mean / Certified(replicas);
    Certified variance(0);
    for (std::size_t r = 0; r < replicas_; ++r) {
      const Certified between = site[r][c].sums.mean - mean;
      variance = variance + site[r][c].sums.variance + between * between;
    }
    variance = variance / Certified(replicas);

    // What the device may err in the two (docs/bounds.md, "Site").
    Allowance mean_error;
    Allowance variance_error;
    const Allowance mean_reduction = reductions_.at(mean_node)[c];
    const Allowance variance_reduction = reductions_.at(variance_node)[c];
    for (std::size_t r = 0; r < replicas_; ++r) {
      mean_error.any += site[r][c].mean.any / replicas;
      mean_error.likely += site[r][c].mean.likely / replicas;
    }
    mean_error = {mean_error.any + mean_reduction.any, mean_error.likely + mean_reduction.likely};
    for (std::size_t r = 0; r < replicas_; ++r) {
      const Certified between = site[r][c].sums.mean - mean;
      const auto of = [&](double error) {
        return variance_allowance(site[r][c], values_[x][r], c, between, error, of_variance,
                                  of_squares);
      };
      variance_error.any += of(mean_error.any).any / replicas;
      variance_error.likely += of(mean_error.likely).likely / replicas;
    }
    variance_error = {
        variance_error.any + mean_error.any * mean_error.any + variance_reduction.any,
        variance_error.likely + mean_error.likely * mean_error.likely + variance_reduction.likely};

    const double w = std::min(static_cast<double>(std::min(of_mean.lanes, of_variance.lanes)), m);
    const bool quadrature = kind_ == InputKind::dithered && mean_error.any > 0 &&
                            std::isfinite(mean_error.any + variance_error.any) &&
                            of_variance.statistics == StatisticsMethod::two_pass;
    const double longest =
        std::min(longest_run(of_mean.accumulate), longest_run(of_variance.accumulate));
    if (quadrature && m / w * std::sqrt(w * replicas) > longest) {
      mean_error.likely = mean_error.any;
      variance_error.likely = variance_error.any;
    } else if (quadrature) {
      // Independent errors of the replicas' sums under one root; everything else as before.
      double sums = 0;
      double mean_roundings = 0;
      double first_order = 0;
      double second_moments = 0;
      double linear = 0;
      double variance_magnitude = 0;
      const double additions = sum_rate(replicas, of_reduce);
      const double reduce_underflow =
          sum_bound(replicas, of_reduce, InputKind::lattice, Dither::permuted).at(0, 0, 0).any +
          (2 + division_underflows(of_reduce.mean, replicas)) * underflow_error(of_reduce);
      const double of_global_mean =
          additions +
          (division_roundings(of_mean.mean) + premultiply_roundings(of_reduce.mean)) * kU;
      for (std::size_t r = 0; r < replicas_; ++r) {
        const ChannelSums& s = site[r][c].sums;
        sums += std::pow(site[r][c].independent_sum / (m * replicas), 2);
        mean_roundings += (of_global_mean * std::abs(s.mean.value) +
                           premultiply_roundings(of_mean.mean) * kU * s.magnitude / m) /
                          replicas;
      }
      const double mean_likely =
          std::sqrt(sums + mean_roundings * mean_roundings +
                    std::pow(division_roundings(of_reduce.mean) * kU * std::abs(mean.value), 2)) +
          division_underflows(of_mean.mean, m) * underflow_error(of_mean) + reduce_underflow;
      mean_error.likely = std::min(mean_error.any, mean_likely);
      const double delta = mean_error.likely;
      for (std::size_t r = 0; r < replicas_; ++r) {
        const ChannelSums& s = site[r][c].sums;
        const double own_delta = site[r][c].mean.likely;
        const double between = std::abs((s.mean - mean).value) + (s.mean - mean).radius;
        const double squares = of_squares.independent(s.centred_squares, s.centred_fourths);
        second_moments += std::pow(squares / (m * replicas), 2);
        first_order += std::pow(2 * between * own_delta / replicas, 2);
        linear +=
            (own_delta * own_delta + (own_delta + delta) * (own_delta + delta) +
             (3 + division_roundings(of_variance.mean) + premultiply_roundings(of_variance.mean)) *
                 kU * s.variance.value +
             3 * kU * std::pow(between + own_delta + delta, 2)) /
            replicas;
        variance_magnitude += (s.variance.value + between * between) / replicas;
      }
      linear +=
          (additions +
           (1 + division_roundings(of_reduce.mean) + premultiply_roundings(of_reduce.mean)) * kU) *
          variance_magnitude;
      const double variance_likely =
          (std::sqrt(second_moments) + std::sqrt(first_order) + linear) * (1 + 8 * kU) +
          (2 + division_underflows(of_variance.mean, m)) * underflow_error(of_variance) +
          reduce_underflow;
      variance_error.likely = std::min(variance_error.any, variance_likely);
    }
    const bool exact_statistics = mean_error.any == 0 && variance_error.any == 0;
    mean_error = widen(mean_error, mean.radius);
    variance_error = widen(variance_error, variance.radius);

    const double gamma = static_cast<double>(weights_.at(op.gamma).values[c]);
    const double beta = static_cast<double>(weights_.at(op.beta).values[c]);
    double largest = 0;
    for (std::size_t r = 0; r < replicas_; ++r) {
      largest = std::max(largest, site[r][c].sums.largest);
    }
    const auto reach_of = [&](double mu, double root) {
      return std::abs(gamma) * (largest + std::abs(mu)) * root + std::abs(beta);
    };
    // Whether the pointwise part on these statistics rounds nothing.
    const auto is_exact = [&](double mu, double sigma2, double root) {
      const double argument = sigma2 + epsilon;
      int exponent = 0;
      const bool power_of_four =
          is_float32(argument) && std::frexp(argument, &exponent) == 0.5 && exponent % 2 != 0;
      if (!power_of_four || !of_y.root_exact_at_powers_of_four || !is_float32(mu) || gamma == 0) {
        return false;
      }
      const int quantum = std::max(needed_quantum(reach_of(mu, root), 24), least);
      const int scale = lowest_bit(gamma) + std::ilogb(root);
      const int operand = std::max({quantum - scale, least, least - std::ilogb(root)});
      bool exact = std::min(lowest_bit(gamma), scale) >= least && is_multiple(mu, operand) &&
                   is_multiple(beta, quantum);
      for (std::size_t r = 0; exact && r < replicas_; ++r) {
        exact = multiples(values_[x][r], c, operand);
      }
      return exact;
    };
    const auto pointwise = [&](double mu, double root, bool exact) {
      NormaliseAllowance a;
      if (!exact) a = normalise_allowance(of_y, gamma, beta, mu, root);
      if (may_overflow(std::max(reach_of(mu, root), largest + std::abs(mu)))) {
        a.fixed = Certified::unknown;
      }
      a.relative += 8 * Certified::unit_roundoff;  // the reference's own roundings
      a.output += 2 * Certified::unit_roundoff;
      return a;
    };

    const double global_root = 1 / std::sqrt(variance.value + epsilon);
    const bool exact_batch = exact_statistics && is_exact(mean.value, variance.value, global_root);
    // With (σ² + ε − Δσ²)^(−1/2); unknown when Δσ² reaches σ² + ε.
    struct Spread {
      double fixed, relative, output;
    };
    const auto spread = [&](double delta_mean, double delta_variance) -> Spread {
      const double lower = variance.value + epsilon - delta_variance;
      if (!(lower > 0)) return {Certified::unknown, 0, 0};
      const double root = 1 / std::sqrt(lower) * (1 + 4 * Certified::unit_roundoff);
      const double shifted = std::abs(gamma) * root * delta_mean;
      const double stretched = root / global_root - 1;
      const NormaliseAllowance at = pointwise(std::abs(mean.value) + delta_mean, root, exact_batch);
      return {shifted * (1 + at.relative + at.output) + at.fixed,
              (stretched + 4 * Certified::unit_roundoff) * (1 + at.output) +
                  at.relative * root / global_root,
              at.output};
    };
    const Spread any = spread(mean_error.any, variance_error.any);
    const Spread likely = spread(mean_error.likely, variance_error.likely);

    for (std::size_t r = 0; r < replicas_; ++r) {
      const double own_mean = static_cast<double>(values_[mean_node][r].values[c]);
      const double own_variance = static_cast<double>(values_[variance_node][r].values[c]);
      if (loses_infinity(of_mean) && !std::isfinite(mean.value)) {
        worker.batch_mean.skip();
      } else {
        worker.batch_mean.see(r, c, values_[mean_node][r].values[c], mean.value, mean_error);
      }
      worker.batch_variance.see(r, c, values_[variance_node][r].values[c], variance.value,
                                variance_error);
      const double root = 1 / std::sqrt(own_variance + epsilon);
      const NormaliseAllowance given =
          pointwise(own_mean, root, is_exact(own_mean, own_variance, root));
      const Tensor<float>& numbers = values_[x][r];
      const std::vector<float>& got = values_[written][r].values;
      const auto compare = [&](Comparison& comparison, double mu, double scale, Spread any_spread,
                               Spread likely_spread) {
        // t = γ(x − μ)r; y is t + β, then its ReLU.
        const double lowest = relu ? 0 : -std::numeric_limits<double>::infinity();
        for (std::size_t n = 0; n < batch_; ++n) {
          const std::size_t first = numbers.index(n, c, 0, 0);
          const std::span<const float> row = numbers.plane(n, c);
          const auto t_at = [&](std::size_t i) { return (widened4(&row[i]) - mu) * scale; };
          const auto expected = [&](std::size_t i) {
            const Double4 y = t_at(i) + beta;
            return y < lowest ? Double4{} + lowest : y;
          };
          const auto floor = [&](std::size_t i) {
            const Double4 t = t_at(i);
            return likely_spread.relative * absolute(t) +
                   likely_spread.output * absolute(t + beta) + likely_spread.fixed;
          };
          const auto look = [&](std::size_t i) {
            const double t = (static_cast<double>(row[i]) - mu) * scale;
            const double y = t + beta;
            const auto allowed = [&](const Spread& spread) {
              return spread.relative * std::abs(t) + spread.output * std::abs(y) + spread.fixed;
            };
            comparison.see(r, first + i, got[first + i], y < lowest ? lowest : y,
                           {allowed(any_spread), allowed(likely_spread)});
          };
          comparison.see_row(std::span(got).subspan(first, row.size()), expected, floor, look);
        }
      };
      const Spread of_own{given.fixed, given.relative, given.output};
      if (own_variance + epsilon <= 0) {  // no root: the variance itself is judged above
        for (std::size_t i = 0; i < batch_ * numbers.shape.plane(); ++i) worker.own.skip();
      } else {
        compare(worker.own, own_mean, gamma * root, of_own, of_own);
      }
      compare(worker.shard, mean.value, gamma * global_root, any, likely);
    }
  });
  for (const Worker& worker : workers) {
    batch_mean.merge(worker.batch_mean);
    batch_variance.merge(worker.batch_variance);
    own.merge(worker.own);
    shard.merge(worker.shard);
  }
  if (replicas * m < 3) {  // y = β, or ±γ + β: says nothing of the site
    for (Comparison* said : {&batch_variance, &own, &shard}) said->not_judged = said->compared;
  }
  return {batch_mean, batch_variance, own, shard};
}

}  // namespace shardproof
