#include "diff/judge.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "reference/graph/vectors.h"
#include "reference/numbers/certified.h"

namespace shardproof {

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
  if (with_precision_) result.precision.emplace();
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
std::vector<Comparison> Judge::add(NodeId node) {
  Comparison result = comparison(node, "");
  const Contract contract = this->contract(Operation::add, node);
  const double flushed = contract.subnormals_kept ? 0 : 3 * 0x1p-126;
  for (std::size_t r = 0; r < replicas_; ++r) {
    const std::vector<float>& a = values_[graph_.node(node).operands[0]][r].values;
    const std::vector<float>& b = values_[graph_.node(node).operands[1]][r].values;
    const std::vector<float>& got = values_[node][r].values;
    // float64 sum, then float32: the same as one rounding, since 53 ≥ 2·24 + 2.
    const auto expected = [&](std::size_t i) {
      return __builtin_convertvector(
          __builtin_convertvector(widened4(&a[i]) + widened4(&b[i]), Float4), Double4);
    };
    const auto floor = [&](std::size_t) { return Double4{} + flushed; };
    const auto look = [&](std::size_t i) {
      const double sum = static_cast<double>(a[i]) + static_cast<double>(b[i]);
      result.see(r, i, got[i], static_cast<double>(static_cast<float>(sum)), {flushed, flushed});
    };
    result.see_row(got, expected, floor, look);
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

}  // namespace shardproof
