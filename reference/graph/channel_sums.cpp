#include "reference/graph/channel_sums.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "reference/graph/parallel.h"

namespace shardproof {
namespace {

constexpr double kUnit = Certified::unit_roundoff;
constexpr std::size_t kLanes =
    8;  // independent running sums, so that loops run in vector registers
using Lanes = std::array<double, kLanes>;

double total(const Lanes& lanes) {
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Calls step(lane, number) for every number, in a fixed pattern of lanes.
template <class Step>
void for_each_number(std::span<const float> numbers, Step step) {
  const std::size_t whole = numbers.size() / kLanes * kLanes;
  for (std::size_t i = 0; i < whole; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      step(lane, static_cast<double>(numbers[i + lane]));
    }
  }
  for (std::size_t i = whole; i < numbers.size(); ++i) {
    step(i - whole, static_cast<double>(numbers[i]));
  }
}

}  // namespace

ChannelSums sums_of_channel(const Tensor<float>& x, std::size_t c) {
  ChannelSums result;
  result.count = static_cast<double>(x.shape.n * x.shape.plane());
  Lanes sum{};
  Lanes magnitude{};
  Lanes squares{};
  Lanes largest{};
  for (std::size_t n = 0; n < x.shape.n; ++n) {
    for_each_number(x.plane(n, c), [&](std::size_t lane, double v) {
      sum[lane] += v;
      magnitude[lane] += std::abs(v);
      squares[lane] += v * v;
      largest[lane] = std::max(largest[lane], std::abs(v));
    });
  }
  // A sum of m numbers in any order errs by at most (m − 1)·u·Σ|t| (Jeannerod and Rump 2013); the
  // lanes are added to it in 7 more additions. `inflate` covers that for sums of numbers ≥ 0.
  const double growth = (result.count + kLanes) * kUnit;
  const double inflate = 1 + 2 * growth;
  result.magnitude = total(magnitude) * inflate;
  result.squares = total(squares) * inflate;
  result.largest = *std::max_element(largest.begin(), largest.end());
  result.sum = Certified(total(sum), growth * result.magnitude);
  result.mean = result.sum / Certified(result.count);

  // About a = the rounded mean: Σ(x − a)² = m·σ²_r + m·(μ_r − a)². Each square errs by three
  // roundings, relative to itself, since x and a are the numbers subtracted.
  const double a = result.mean.value;
  Lanes second{};
  Lanes fourth{};
  for (std::size_t n = 0; n < x.shape.n; ++n) {
    for_each_number(x.plane(n, c), [&](std::size_t lane, double v) {
      const double d = v - a;
      const double square = d * d;
      second[lane] += square;
      fourth[lane] += square * square;
    });
  }
  const double about = total(second);
  const Certified sum_about(about, (growth + 4 * kUnit) * about * inflate);
  const Certified offset(0, result.mean.radius);
  const Certified excess = offset * offset;  // (μ_r − a)²
  result.variance = sum_about / Certified(result.count) - excess;
  // Σ(x − μ_r)⁴ differs from the sum about a by terms in the offset; with |d + o|⁴ ≤ 8(d⁴ + o⁴)
  // replaced by (|d| + |o|)⁴ ≤ (1 + h)³·d⁴ + (1 + 1/h)³·o⁴ at h = 2^-20.
  const double o2 = result.mean.radius * result.mean.radius;
  result.centred_squares = (about + result.count * o2) * (inflate + 8 * kUnit);
  result.centred_fourths =
      (total(fourth) * (1 + 0x1p-18) + result.count * 0x1p61 * o2 * o2) * (inflate + 16 * kUnit);
  return result;
}

std::vector<ChannelSums> channel_sums(const Tensor<float>& x, unsigned threads) {
  std::vector<ChannelSums> result(x.shape.c);
  parallel_for(threads, x.shape.c, [&](std::size_t c) { result[c] = sums_of_channel(x, c); });
  return result;
}

}  // namespace shardproof
