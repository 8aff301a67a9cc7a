#include "diff/judge.h"

#include <algorithm>
#include <cmath>
#include <mutex>
#include <numeric>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "reference/graph/parallel.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/certified.h"

namespace shardproof {
namespace {

constexpr double kU = kFloat32Unit;

Allowance widen(Allowance allowance, double radius) {
  return {allowance.any + radius, allowance.likely + radius};
}

// The exponent of the lowest bit of x that is set; x is finite and not zero.
int lowest_bit(double x) {
  int exponent = 0;
  const double fraction = std::frexp(x, &exponent);
  const auto bits = static_cast<std::int64_t>(std::ldexp(fraction, 53));
  return exponent - 53 + std::countr_zero(static_cast<std::uint64_t>(std::abs(bits)));
}

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

// max |t| over the terms of one output.
double largest_term(const ProductGeometry& g, std::span<const float> x, std::span<const float> w,
                    std::size_t image, std::size_t channel, std::size_t pixel) {
  double largest = 0;
  const auto see = [&](float a, float b) {
    largest = std::max(largest, std::abs(static_cast<double>(a) * static_cast<double>(b)));
  };
  if (g.kind == ProductKind::dense) {
    const std::size_t in = g.x.example();
    for (std::size_t i = 0; i < in; ++i) see(x[image * in + i], w[i * g.y.c + channel]);
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
        see(x[((image * g.x.c + from) * g.x.h + h) * g.x.w + v],
            w[((channel * inputs + i) * g.kernel + kh) * g.kernel + kw]);
      }
    }
  }
  return largest;
}

}  // namespace

Judge::Judge(const Graph& graph, const Weights& weights, const Device& device, InputKind kind,
             unsigned threads, const std::vector<Family<float>>& inputs)
    : graph_(graph),
      weights_(weights),
      device_(device),
      kind_(kind),
      threads_(threads),
      replicas_(static_cast<std::size_t>(device.replicas())),
      batch_(inputs.at(0).at(0).shape.n),
      values_(graph.nodes().size()),
      unread_(graph.nodes().size(), 0) {
  const std::vector<NodeId> nodes = graph.inputs();
  for (std::size_t i = 0; i < nodes.size(); ++i) values_[nodes[i]] = inputs.at(i);
  for (const Node& node : graph.nodes()) {
    for (const NodeId operand : node.operands) ++unread_[operand];
  }
}

Comparison Judge::comparison(NodeId node, std::string part) const {
  Comparison result;
  result.node = graph_.node(node).name;
  result.part = std::move(part);
  result.kind = kind_;
  result.shape = graph_.node(node).shape;
  if (graph_.node(node).per_example) result.shape.n = batch_;
  return result;
}

Contract Judge::contract(Operation operation, NodeId x) const {
  const Contract contract = device_.contract(operation, batch_, graph_.node(x).shape.plane());
  if (contract.lanes == 0 || !(contract.root >= 0 && contract.root < 1e6)) {
    throw DeviceError(graph_.node(x).name + ": the device's contract states " +
                      std::to_string(contract.lanes) + " lanes and a root within " +
                      std::to_string(contract.root) + " ulps");
  }
  return contract;
}

void Judge::drop_read() {
  for (const NodeId node : judged_) {
    for (const NodeId operand : graph_.node(node).operands) {
      if (--unread_[operand] > 0) continue;
      values_[operand].clear();
      values_[operand].shrink_to_fit();
      sites_.erase(operand);
      reductions_.erase(operand);
    }
  }
  judged_.clear();
}

std::vector<Comparison> Judge::wrote(NodeId node, Family<float> values) {
  for (const Tensor<float>& tensor : values) {
    if (tensor.shape != comparison(node, "").shape || values.size() != replicas_) {
      throw std::invalid_argument("judge: " + graph_.node(node).name + " was written misshapen");
    }
  }
  values_.at(node) = std::move(values);
  judged_.push_back(node);
  return std::visit(
      [&](const auto& op) -> std::vector<Comparison> {
        using T = std::decay_t<decltype(op)>;
        const NodeId x = graph_.node(node).operands.empty() ? node : graph_.node(node).operands[0];
        const auto shaped = [&](NodeId id) {
          Shape shape = graph_.node(id).shape;
          shape.n = batch_;
          return shape;
        };
        if constexpr (std::is_same_v<T, Convolution>) {
          return product(node,
                         {ProductKind::convolution, shaped(x), shaped(node), op.kernel, op.stride,
                          op.pad_begin},
                         Operation::convolution, op.weight, op.bias);
        } else if constexpr (std::is_same_v<T, Depthwise>) {
          return product(
              node,
              {ProductKind::depthwise, shaped(x), shaped(node), op.kernel, op.stride, op.pad_begin},
              Operation::depthwise, op.weight, "");
        } else if constexpr (std::is_same_v<T, Dense>) {
          return product(node, {ProductKind::dense, shaped(x), shaped(node)}, Operation::dense,
                         op.weight, op.bias);
        } else if constexpr (std::is_same_v<T, Add>) {
          return add(node);
        } else if constexpr (std::is_same_v<T, Relu>) {
          const bool fused = values_[x].empty();  // the launch wrote nothing at the normalise
          if (fused) judged_.push_back(x);
          return fused ? normalise(node, x) : relu(node);
        } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
          return global_average_pool(node);
        } else if constexpr (std::is_same_v<T, BnMean>) {
          return mean(node);
        } else if constexpr (std::is_same_v<T, BnVarAt>) {
          return variance_at(node);
        } else if constexpr (std::is_same_v<T, AllReduceMean>) {
          return all_reduce(node);
        } else if constexpr (std::is_same_v<T, BnSync>) {
          return normalise(node, node);
        } else {
          throw std::logic_error("judge: no launch writes " + graph_.node(node).name);
        }
      },
      graph_.node(node).operation);
}

std::vector<Comparison> Judge::product(NodeId node, ProductGeometry geometry, Operation operation,
                                       const std::string& weight, const std::string& bias) {
  const NodeId x = graph_.node(node).operands[0];
  const Contract contract = this->contract(operation, node);
  const std::vector<float>& stored_weight = weights_.at(weight).values;
  const std::vector<float> w = rounded_operands(stored_weight, contract.operands);
  const float* offset = bias.empty() ? nullptr : weights_.at(bias).values.data();
  const std::size_t summands = geometry.terms() + (offset == nullptr ? 0 : 1);
  const auto terms = static_cast<double>(summands);
  const bool windows = geometry.kind == ProductKind::depthwise || geometry.kernel > 1;
  const SumBound bound =
      product_bound(terms, contract, kind_, windows ? Dither::signs : Dither::permuted);
  const double radius = product_radius(summands);
  const int bits = significand_bits(contract.accumulate);
  // Operands flushed on reading change a term by |w|·2^-126 or |x|·2^-126 at the most; so do, by
  // 2^-136, subnormal ones that are rounded to tf32, where an ulp no longer shrinks.
  const double lost = !contract.subnormals_kept             ? 0x1p-126
                      : contract.operands == Operands::tf32 ? 0x1p-136
                                                            : 0;
  std::vector<double> flushed(geometry.y.c, 0);
  if (lost > 0) {
    const double largest_weight = std::accumulate(w.begin(), w.end(), 0.0, [](double m, float v) {
      return std::max(m, double{std::abs(v)});
    });
    double largest_operand = 0;
    for (const Tensor<float>& tensor : values_[x]) {
      for (const float v : tensor.values) {
        largest_operand = std::max(largest_operand, double{std::abs(v)});
      }
    }
    std::fill(flushed.begin(), flushed.end(),
              (terms * (largest_weight + largest_operand) + 1) * lost);
  }

  Comparison result = comparison(node, "");
  const auto overflows = [](const std::vector<float>& given, const std::vector<float>& rounded) {
    for (std::size_t i = 0; i < rounded.size(); ++i) {
      if (std::isinf(rounded[i]) && !std::isinf(given[i])) return true;
    }
    return false;
  };
  const bool weight_overflows =
      contract.operands != Operands::float32 && overflows(stored_weight, w);
  std::mutex mutex;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const std::vector<float> rounded =
        contract.operands == Operands::float32
            ? std::vector<float>{}
            : rounded_operands(values_[x][r].values, contract.operands);
    const std::span<const float> operand = rounded.empty() ? values_[x][r].values : rounded;
    // What rounding to tf32 leaves open: an ulp of each operand, where one is rounded at all.
    const bool as_given =
        rounded.empty() || (rounded == values_[x][r].values && w == stored_weight);
    const double operand_rate = contract.operands == Operands::tf32 && !as_given ? 0x1p-9 : 0;
    const std::vector<float>& got = values_[node][r].values;
    if (weight_overflows || overflows(values_[x][r].values, rounded)) {
      for (std::size_t i = 0; i < got.size(); ++i) result.skip();
      continue;
    }
    const auto sink = [&](const ProductTile& tile) {
      Comparison part = comparison(node, "");
      const std::size_t plane = geometry.y.plane();
      // sum_is_exact in one comparison, for the many outputs that are nowhere near.
      std::vector<double> row_reach(tile.channels);
      std::vector<double> column_reach(tile.pixels);
      for (std::size_t c = 0; c < tile.channels; ++c) {
        row_reach[c] = tile.row_terms[c] < 2
                           ? Certified::unknown
                           : std::ldexp(1.0, std::min(tile.row_quantum[c], 500) + bits);
      }
      for (std::size_t p = 0; p < tile.pixels; ++p) {
        column_reach[p] = tile.column_terms[p] < 2
                              ? Certified::unknown
                              : std::ldexp(1.0, std::min(tile.column_quantum[p], 500));
      }
      for (std::size_t c = 0; c < tile.channels; ++c) {
        const std::size_t channel = tile.first_channel + c;
        const std::size_t first = (tile.image * geometry.y.c + channel) * plane + tile.first_pixel;
        const double* value = tile.value + c * tile.row_stride;
        const float* magnitude_of = tile.magnitude + c * tile.row_stride;
        const float* squares_of =
            tile.squares == nullptr ? nullptr : tile.squares + c * tile.row_stride;
        const auto floor = [&](std::size_t p) {
          const auto magnitude = static_cast<double>(magnitude_of[p]);
          const double squares = squares_of == nullptr ? 0 : static_cast<double>(squares_of[p]);
          const double rounded = bound.at(std::abs(value[p]), magnitude, squares).likely +
                                 (radius + operand_rate) * magnitude;
          const double allowed = magnitude > row_reach[c] * column_reach[p] ? rounded : 0;
          return offset != nullptr || may_overflow(magnitude) ? Certified::unknown : allowed;
        };
        const auto look = [&](std::size_t p) {
          const std::size_t at = c * tile.row_stride + p;
          const double sum = tile.value[at];
          const auto magnitude = static_cast<double>(tile.magnitude[at]);
          const auto squares = tile.squares == nullptr ? 0 : static_cast<double>(tile.squares[at]);
          const double b = offset == nullptr ? 0 : static_cast<double>(offset[channel]);
          const double expected = sum + b;
          const double reach = magnitude + std::abs(b);
          Allowance allowance = bound.at(std::abs(sum), reach, squares);
          if (offset != nullptr && contract.accumulate == Accumulate::float64) {
            // The product may be stored before the bias is added, in float32.
            allowance = widen(allowance, kU * (1 + kU) * (std::abs(expected) + allowance.any));
          }
          if (offset != nullptr && kind_ == InputKind::dithered) {
            // The bias stands where the device puts it: in every partial sum, if it comes first.
            const double stands =
                unit_roundoff(contract.accumulate) * std::sqrt(terms) * std::abs(b);
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
          if (exact) allowance = {};
          const auto unexplained = [&](const Allowance& a) {
            const double error = std::abs(static_cast<double>(got[first + p]) - expected);
            return error > part.worst.ratio * a.likely;
          };
          // λ·u·√V holds where no term stands out among many.
          if (kind_ == InputKind::dithered && !exact && terms > 32 && unexplained(allowance) &&
              largest_term(geometry, operand, w, tile.image, channel, tile.first_pixel + p) >
                  magnitude / 8) {
            allowance.likely = allowance.any;
          }
          allowance = widen(allowance, (radius + operand_rate) * reach + flushed[channel]);
          if (may_overflow(reach)) allowance = kUnknownAllowance;
          part.see(r, first + p, got[first + p], expected, allowance);
        };
        part.see_row(
            std::span(got).subspan(first, tile.pixels), [&](std::size_t p) { return value[p]; },
            floor, look);
      }
      const std::lock_guard lock(mutex);
      result.merge(part);
    };
    for_each_product_tile(
        geometry, operand, w,
        kind_ == InputKind::dithered ? ProductNeeds::squares : ProductNeeds::magnitude, threads_,
        sink);
  }
  return {result};
}

std::vector<Comparison> Judge::add(NodeId node) {
  Comparison result = comparison(node, "");
  const Contract contract = this->contract(Operation::add, node);
  const double flushed = contract.subnormals_kept ? 0 : 3 * 0x1p-126;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const std::vector<float>& a = values_[graph_.node(node).operands[0]][r].values;
    const std::vector<float>& b = values_[graph_.node(node).operands[1]][r].values;
    const std::vector<float>& got = values_[node][r].values;
    for (std::size_t i = 0; i < got.size(); ++i) {
      // float64 sum, then float32: the same as one rounding, since 53 ≥ 2·24 + 2.
      const double sum = static_cast<double>(
          static_cast<float>(static_cast<double>(a[i]) + static_cast<double>(b[i])));
      result.see(r, i, got[i], sum, {flushed, flushed});
    }
  }
  return {result};
}

std::vector<Comparison> Judge::relu(NodeId node) {
  Comparison result = comparison(node, "");
  const Contract contract = this->contract(Operation::relu, node);
  const double flushed = contract.subnormals_kept ? 0 : 0x1p-126;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const std::vector<float>& x = values_[graph_.node(node).operands[0]][r].values;
    const std::vector<float>& got = values_[node][r].values;
    for (std::size_t i = 0; i < got.size(); ++i) {
      result.see(r, i, got[i], static_cast<double>(shardproof::relu(x[i])), {flushed, flushed});
    }
  }
  return {result};
}

std::vector<Comparison> Judge::global_average_pool(NodeId node) {
  const NodeId operand = graph_.node(node).operands[0];
  Comparison result = comparison(node, "");
  const Contract contract = this->contract(Operation::global_average_pool, operand);
  for (std::size_t r = 0; r < replicas_; ++r) {
    const Tensor<float>& x = values_[operand][r];
    const auto count = static_cast<double>(x.shape.plane());
    const SumBound bound = sum_bound(count, contract, kind_, Dither::permuted);
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      for (std::size_t c = 0; c < x.shape.c; ++c) {
        const std::span<const float> plane = x.plane(n, c);
        double sum = 0;
        double magnitude = 0;
        double squares = 0;
        for (const float number : plane) {
          const auto v = static_cast<double>(number);
          sum += v;
          magnitude += std::abs(v);
          squares += v * v;
        }
        const double growth = 2 * count * Certified::unit_roundoff;
        magnitude *= 1 + growth;
        squares *= 1 + growth;
        const bool exact = are_multiples(plane, exact_quantum(magnitude, count, contract));
        const Allowance error = exact ? Allowance{} : bound.at(std::abs(sum), magnitude, squares);
        const Allowance allowance =
            may_overflow(magnitude)
                ? kUnknownAllowance
                : mean_allowance(error, {count, std::abs(sum), magnitude, exact}, contract);
        const std::size_t index = n * x.shape.c + c;
        result.see(r, index, values_[node][r].values[index], sum / count,
                   widen(allowance,
                         (growth * magnitude + Certified::unit_roundoff * std::abs(sum)) / count));
      }
    }
  }
  return {result};
}

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
  Site site(replicas_);
  for (std::size_t r = 0; r < replicas_; ++r) {
    const Tensor<float>& numbers = values_.at(x).at(r);
    const std::vector<ChannelSums> sums = channel_sums(numbers, threads_);
    for (std::size_t c = 0; c < sums.size(); ++c) {
      SiteChannel channel{sums[c], {}, 0};
      Allowance sum;
      const double total = std::abs(sums[c].sum.value) + sums[c].sum.radius;
      const bool exact =
          multiples(numbers, c, exact_quantum(sums[c].magnitude, sums[c].count, contract));
      if (!exact) {
        const SumBound bound = sum_bound(sums[c].count, contract, kind_, Dither::permuted);
        sum = bound.at(total, sums[c].magnitude, sums[c].squares);
        channel.independent_sum = bound.independent(total, sums[c].squares);
      }
      channel.mean = mean_allowance(
          sum,
          {sums[c].count, exact ? std::abs(sums[c].sum.value) : total, sums[c].magnitude, exact},
          contract);
      if (may_overflow(sums[c].magnitude)) channel.mean = kUnknownAllowance;
      site[r].push_back(channel);
    }
  }
  return sites_.emplace(x, std::move(site)).first->second;
}

std::vector<Comparison> Judge::mean(NodeId node) {
  Comparison result = comparison(node, "");
  const Site& site = this->site(graph_.node(node).operands[0]);
  for (std::size_t r = 0; r < replicas_; ++r) {
    for (std::size_t c = 0; c < site[r].size(); ++c) {
      const Certified& expected = site[r][c].sums.mean;
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
                                    const Contract& contract) const {
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
    const SumBound bound = sum_bound(m, contract, kind_, Dither::permuted);
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
    return kUnknownAllowance;  // none is derived for it yet
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
  const SumBound bound = sum_bound(m, contract, kind_, Dither::permuted);
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
          variance_allowance(site[r][c], values_[x][r], c, between, 0, contract);
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

  Comparison batch_mean = comparison(mean_node, "batch mean");
  Comparison batch_variance = comparison(variance_node, "batch variance");
  Comparison own = comparison(written, "y on own statistics");
  Comparison shard = comparison(written, "y against its shard of batch BN");
  std::mutex mutex;
  parallel_for(threads_, graph_.node(x).shape.c, [&](std::size_t c) {
    Comparison channel_mean = comparison(mean_node, batch_mean.part);
    Comparison channel_variance = comparison(variance_node, batch_variance.part);
    Comparison channel_own = comparison(written, own.part);
    Comparison channel_shard = comparison(written, shard.part);

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
        return variance_allowance(site[r][c], values_[x][r], c, between, error, of_variance);
      };
      variance_error.any += of(mean_error.any).any / replicas;
      variance_error.likely += of(mean_error.likely).likely / replicas;
    }
    variance_error = {
        variance_error.any + mean_error.any * mean_error.any + variance_reduction.any,
        variance_error.likely + mean_error.likely * mean_error.likely + variance_reduction.likely};

    const double m = site[0][c].sums.count;
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
      const SumBound bound = sum_bound(m, of_variance, kind_, Dither::permuted);
      for (std::size_t r = 0; r < replicas_; ++r) {
        const ChannelSums& s = site[r][c].sums;
        const double own_delta = site[r][c].mean.likely;
        const double between = std::abs((s.mean - mean).value) + (s.mean - mean).radius;
        const double squares = bound.independent(s.centred_squares, s.centred_fourths);
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
      channel_mean.see(r, c, values_[mean_node][r].values[c], mean.value, mean_error);
      channel_variance.see(r, c, values_[variance_node][r].values[c], variance.value,
                           variance_error);
      const double root = 1 / std::sqrt(own_variance + epsilon);
      const NormaliseAllowance given =
          pointwise(own_mean, root, is_exact(own_mean, own_variance, root));
      const Tensor<float>& numbers = values_[x][r];
      const std::vector<float>& got = values_[written][r].values;
      // t = γ(x − μ)r; y is t + β, then its ReLU.
      struct Pointwise {
        double mean, scale, beta;
        bool relu;
        double t(float x) const { return (static_cast<double>(x) - mean) * scale; }
        double y(double t) const { return relu && t + beta < 0 ? 0 : t + beta; }
      };
      const auto compare = [&](Comparison& comparison, const Pointwise& pointwise,
                               Spread any_spread, Spread likely_spread) {
        const auto allowed = [&](double t, const Spread& spread) {
          return spread.relative * std::abs(t) + spread.output * std::abs(t + beta) + spread.fixed;
        };
        for (std::size_t n = 0; n < batch_; ++n) {
          const std::size_t first = numbers.index(n, c, 0, 0);
          const std::span<const float> row = numbers.plane(n, c);
          const auto expected = [&](std::size_t i) { return pointwise.y(pointwise.t(row[i])); };
          const auto likely_at = [&](std::size_t i) {
            return allowed(pointwise.t(row[i]), likely_spread);
          };
          comparison.see_row(std::span(got).subspan(first, row.size()), expected, likely_at,
                             [&](std::size_t i) {
                               const double t = pointwise.t(row[i]);
                               comparison.see(r, first + i, got[first + i], pointwise.y(t),
                                              {allowed(t, any_spread), allowed(t, likely_spread)});
                             });
        }
      };
      const Spread of_own{given.fixed, given.relative, given.output};
      if (own_variance + epsilon <= 0) {  // no root: the variance itself is judged above
        for (std::size_t i = 0; i < batch_ * numbers.shape.plane(); ++i) channel_own.skip();
      } else {
        compare(channel_own, {own_mean, gamma * root, beta, relu}, of_own, of_own);
      }
      compare(channel_shard, {mean.value, gamma * global_root, beta, relu}, any, likely);
    }
    const std::lock_guard lock(mutex);
    batch_mean.merge(channel_mean);
    batch_variance.merge(channel_variance);
    own.merge(channel_own);
    shard.merge(channel_shard);
  });
  if (replicas * site[0][0].sums.count < 3) {  // y = β, or ±γ + β: says nothing of the site
    for (Comparison* said : {&batch_variance, &own, &shard}) said->not_judged = said->compared;
  }
  return {batch_mean, batch_variance, own, shard};
}

}  // namespace shardproof
