// How the judge compares convolutions, depthwise convolutions and dense layers (docs/bounds.md,
// "Products").
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "diff/judge.h"
#include "reference/graph/vectors.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/certified.h"

namespace shardproof {
namespace {

constexpr double kU = kFloat32Unit;

float rounded_operand(float x, Operands operands) {
  switch (operands) {
    case Operands::float32:
      return x;
    case Operands::tf32:
      return round_to_tf32(x);
    case Operands::bfloat16:
      return round_to_bfloat16(x);
    case Operands::float16:
      return static_cast<float>(static_cast<_Float16>(x));
  }
  return x;
}

std::vector<float> rounded_operands(const std::vector<float>& numbers, Operands operands) {
  std::vector<float> result(numbers.size());
  std::transform(numbers.begin(), numbers.end(), result.begin(),
                 [&](float x) { return rounded_operand(x, operands); });
  return result;
}

double largest_of(std::span<const float> numbers) {
  return std::accumulate(numbers.begin(), numbers.end(), 0.0,
                         [](double m, float v) { return std::max(m, double{std::abs(v)}); });
}

// Whether a finite number became infinite.
bool overflows(const std::vector<float>& given, const std::vector<float>& rounded) {
  for (std::size_t i = 0; i < rounded.size(); ++i) {
    if (std::isinf(rounded[i]) && !std::isinf(given[i])) return true;
  }
  return false;
}

// 2^exponent, of a normal number.
double power_of_two(int exponent) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(1023 + exponent) << 52U);
}

// max |t| over the terms of one output of the example x.
double largest_term(const ProductGeometry& g, std::span<const float> x, std::span<const float> w,
                    std::size_t channel, std::size_t pixel) {
  double largest = 0;
  const auto see = [&](float a, float b) {
    largest = std::max(largest, std::abs(static_cast<double>(a) * static_cast<double>(b)));
  };
  if (g.kind == ProductKind::dense) {
    const std::size_t in = g.x.example();
    for (std::size_t i = 0; i < in; ++i) see(x[i], w[i * g.y.c + channel]);
    return largest;
  }
  const std::size_t oh = pixel / g.y.w;
  const std::size_t ow = pixel % g.y.w;
  const std::size_t inputs = g.kind == ProductKind::depthwise ? 1 : g.x.c;
  for (std::size_t i = 0; i < inputs; ++i) {
    const std::size_t from = g.kind == ProductKind::depthwise ? channel : i;
    for (std::size_t kh = 0; kh < g.kernel; ++kh) {
      for (std::size_t kw = 0; kw < g.kernel; ++kw) {
        const std::size_t h = oh * g.stride + kh - g.pad_begin;  // wraps when in the padding
        const std::size_t v = ow * g.stride + kw - g.pad_begin;
        if (h >= g.x.h || v >= g.x.w) continue;
        see(x[(from * g.x.h + h) * g.x.w + v],
            w[((channel * inputs + i) * g.kernel + kh) * g.kernel + kw]);
      }
    }
  }
  return largest;
}

}  // namespace

std::vector<Comparison> Judge::product(NodeId node, ProductGeometry geometry, Operation operation,
                                       const std::string& weight, const std::string& bias) {
  const NodeId x = graph_.node(node).operands[0];
  const Contract contract = this->contract(operation, node);
  const std::vector<float>& stored_weight = weights_.at(weight).values;
  const bool rounds = contract.operands != Operands::float32;
  const std::vector<float> rounded_weight =
      rounds ? rounded_operands(stored_weight, contract.operands) : std::vector<float>{};
  const std::vector<float>& w = rounds ? rounded_weight : stored_weight;
  const float* offset = bias.empty() ? nullptr : weights_.at(bias).values.data();
  const std::size_t summands = geometry.terms() + (offset == nullptr ? 0 : 1);
  const auto terms = static_cast<double>(summands);
  const bool windows = geometry.kind == ProductKind::depthwise || geometry.kernel > 1;
  const SumBound bound =
      product_bound(terms, contract, kind_, windows ? Dither::signs : Dither::permuted);
  const int bits = significand_bits(contract.accumulate);
  // Operands flushed on reading change a term by |w|·2^-126 or |x|·2^-126 at the most; so do, by
  // 2^-136, subnormal ones that are rounded to tf32, where an ulp no longer shrinks.
  const double lost = !contract.subnormals_kept             ? 0x1p-126
                      : contract.operands == Operands::tf32 ? 0x1p-136
                                                            : 0;
  double flushed = 0;
  if (lost > 0) {
    double largest = 0;
    for (const Tensor<float>& tensor : values_[x]) {
      largest = std::max(largest, largest_of(tensor.values));
    }
    flushed = (terms * (largest_of(w) + largest) + 1) * lost;
  }

  struct Replica {
    std::vector<float> rounded;  // operands, where the device rounds them
    double rate;                 // of Σ|t|: the reference's radius, and what rounding leaves open
    bool overflows;
  };
  std::vector<Replica> replicas(replicas_);
  std::vector<std::span<const float>> examples;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const std::vector<float>& given = values_[x][r].values;
    auto& [rounded, rate, overflow] = replicas[r];
    if (rounds) rounded = rounded_operands(given, contract.operands);
    // What rounding to tf32 leaves open: an ulp of each operand, where one is rounded at all.
    const bool as_given = !rounds || (rounded == given && w == stored_weight);
    rate =
        product_radius(summands) + (contract.operands == Operands::tf32 && !as_given ? 0x1p-9 : 0);
    overflow = overflows(stored_weight, rounded_weight) || overflows(given, rounded);
    const std::span<const float> operand = rounds ? rounded : given;
    for (std::size_t n = 0; n < batch_; ++n) {
      examples.push_back(operand.subspan(n * geometry.x.example(), geometry.x.example()));
    }
  }
  geometry.x.n = geometry.y.n = examples.size();

  struct Worker {
    Comparison found;
    // sum_is_exact in one comparison, for the many outputs that are nowhere near.
    std::vector<double> row_reach, column_reach;
  };
  std::vector<Worker> workers(std::max(threads_, 1U), Worker{comparison(node, ""), {}, {}});
  const auto sink = [&](const ProductTile& tile) {
    auto& [found, row_reach, column_reach] = workers[tile.worker];
    const std::size_t r = tile.image / batch_;
    const std::vector<float>& got = values_[node][r].values;
    const double rate = replicas[r].rate;
    if (replicas[r].overflows) {
      for (std::size_t i = 0; i < tile.channels * tile.pixels; ++i) found.skip();
      return;
    }
    row_reach.resize(tile.channels);
    column_reach.resize(tile.pixels);
    for (std::size_t c = 0; c < tile.channels; ++c) {
      row_reach[c] = tile.row_terms[c] < 2
                         ? Certified::unknown
                         : power_of_two(std::min(tile.row_quantum[c], 500) + bits);
    }
    for (std::size_t p = 0; p < tile.pixels; ++p) {
      column_reach[p] = tile.column_terms[p] < 2
                            ? Certified::unknown
                            : power_of_two(std::min(tile.column_quantum[p], 500));
    }
    for (std::size_t c = 0; c < tile.channels; ++c) {
      const std::size_t channel = tile.first_channel + c;
      const std::size_t first =
          (tile.image % batch_ * geometry.y.c + channel) * geometry.y.plane() + tile.first_pixel;
      const double* value = tile.value + c * tile.row_stride;
      const float* magnitude_of = tile.magnitude + c * tile.row_stride;
      const float* squares_of =
          tile.squares == nullptr ? magnitude_of : tile.squares + c * tile.row_stride;
      const auto floor = [&](std::size_t p) {
        const Double4 magnitude = widened4(magnitude_of + p);
        const Double4 rounded =
            bound.floor(absolute(load<Double4>(value + p)), magnitude, widened4(squares_of + p)) +
            rate * magnitude;
        const Double4 reach = row_reach[c] * load<Double4>(&column_reach[p]);
        const Double4 allowed = magnitude > reach ? rounded : Double4{};
        const Double4 unknown = Double4{} + Certified::unknown;
        return offset == nullptr ? (magnitude < kMayOverflow ? allowed : unknown) : unknown;
      };
      const auto look = [&](std::size_t p) {
        const double sum = value[p];
        const auto magnitude = static_cast<double>(magnitude_of[p]);
        const double b = offset == nullptr ? 0 : static_cast<double>(offset[channel]);
        const double expected = sum + b;
        const double reach = magnitude + std::abs(b);
        Allowance allowance = bound.at(std::abs(sum), reach, static_cast<double>(squares_of[p]));
        if (offset != nullptr && contract.accumulate == Accumulate::float64) {
          // The product may be stored before the bias is added, in float32.
          allowance = widen(allowance, kU * (1 + kU) * (std::abs(expected) + allowance.any));
        }
        if (offset != nullptr && kind_ == InputKind::dithered) {
          // The bias stands where the device puts it: in every partial sum, if it comes first.
          const double stands = unit_roundoff(contract.accumulate) * std::sqrt(terms) * std::abs(b);
          allowance.likely = std::min(
              allowance.any, allowance.likely + kLambda * stands + kU * std::abs(expected));
        }
        const bool bias_alone = std::min(tile.row_terms[c], tile.column_terms[p]) == 0;
        const int quantum =
            bias_alone ? std::max(needed_quantum(std::abs(b), bits), least_exponent(contract))
                       : tile.row_quantum[c] + tile.column_quantum[p];
        const bool exact =
            magnitude <= row_reach[c] * column_reach[p] && tile.sum_is_exact(c, p, bits) &&
            quantum >= least_exponent(contract) &&
            (b == 0 || (is_multiple(b, quantum) && reach <= std::ldexp(1.0, bits + quantum)));
        if (exact && std::isfinite(allowance.any))
          allowance = {};  // within the accumulator's range
        // λ·u·√V holds where no term stands out among many.
        const double error = std::abs(static_cast<double>(got[first + p]) - expected);
        if (kind_ == InputKind::dithered && !exact && terms > 32 &&
            error > std::min(found.worst.ratio, 1.0) * allowance.likely &&
            largest_term(geometry, examples[tile.image], w, channel, tile.first_pixel + p) >
                magnitude / 8) {
          allowance.likely = allowance.any;
        }
        allowance = widen(allowance, rate * reach + flushed);
        if (may_overflow(reach)) allowance = kUnknownAllowance;
        found.see(r, first + p, got[first + p], expected, allowance);
      };
      found.see_row(
          std::span(got).subspan(first, tile.pixels),
          [&](std::size_t p) { return load<Double4>(value + p); }, floor, look);
    }
  };
  for_each_product_tile(
      geometry, examples, w,
      kind_ == InputKind::dithered ? ProductNeeds::squares : ProductNeeds::magnitude, threads_,
      sink);
  Comparison result = comparison(node, "");
  for (const Worker& worker : workers) result.merge(worker.found);
  return {result};
}

}  // namespace shardproof
