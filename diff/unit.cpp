#include "diff/unit.h"

#include <type_traits>

namespace shardproof {
namespace {

std::string describe(const Shape& shape) {
  return std::to_string(shape.c) + "x" + std::to_string(shape.h) + "x" + std::to_string(shape.w);
}

std::string window(std::size_t kernel, std::size_t stride, std::size_t pad_begin) {
  return " " + std::to_string(kernel) + "x" + std::to_string(kernel) + "/" +
         std::to_string(stride) + " padding " + std::to_string(pad_begin);
}

}  // namespace

std::optional<Unit> unit_ending_at(const Graph& graph, NodeId node, bool fused) {
  return std::visit(
      [&](const auto& op) -> std::optional<Unit> {
        using T = std::decay_t<decltype(op)>;
        const Node& end = graph.node(node);
        const auto shape_of = [&](NodeId id) { return describe(graph.node(id).shape); };
        if constexpr (std::is_same_v<T, Convolution> || std::is_same_v<T, Depthwise>) {
          const bool depthwise = std::is_same_v<T, Depthwise>;
          const std::string kind = depthwise ? "depthwise " : "convolution ";
          return Unit{Unit::Kind::product, node, end.operands,
                      kind + shape_of(end.operands[0]) + " to " + describe(end.shape) +
                          window(op.kernel, op.stride, op.pad_begin),
                      depthwise || op.kernel > 1};
        } else if constexpr (std::is_same_v<T, Dense>) {
          return Unit{Unit::Kind::product, node, end.operands,
                      "dense " + shape_of(end.operands[0]) + " to " + describe(end.shape)};
        } else if constexpr (std::is_same_v<T, Add>) {
          return Unit{Unit::Kind::add, node, end.operands, "add " + describe(end.shape)};
        } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
          return Unit{Unit::Kind::pool, node, end.operands, "pool " + shape_of(end.operands[0])};
        } else if constexpr (std::is_same_v<T, BnSync>) {
          return Unit{Unit::Kind::site, node, {end.operands[0]}, "site " + describe(end.shape)};
        } else if constexpr (std::is_same_v<T, Relu>) {
          if (!fused) return std::nullopt;
          const Node& site = graph.node(end.operands[0]);
          return Unit{
              Unit::Kind::site, node, {site.operands[0]}, "site with relu " + describe(end.shape)};
        } else {
          return std::nullopt;
        }
      },
      graph.node(node).operation);
}

Graph lifted(const Graph& graph, const Unit& unit, float epsilon) {
  Graph result;
  std::vector<NodeId> inputs;
  for (const NodeId operand : unit.operands) {
    inputs.push_back(
        result.input("input " + std::to_string(inputs.size()), graph.node(operand).shape));
  }
  const Node& end = graph.node(unit.end);
  const bool relu = std::holds_alternative<Relu>(end.operation);
  const Node& computed = relu ? graph.node(end.operands[0]) : end;
  if (const auto* convolution = std::get_if<Convolution>(&computed.operation)) {
    result.convolution(inputs[0], *convolution, end.shape.c);
  } else if (const auto* depthwise = std::get_if<Depthwise>(&computed.operation)) {
    result.depthwise(inputs[0], *depthwise);
  } else if (const auto* dense = std::get_if<Dense>(&computed.operation)) {
    result.dense(inputs[0], *dense, end.shape.c);
  } else if (std::holds_alternative<Add>(computed.operation)) {
    result.add(inputs[0], inputs[1], end.name);
  } else if (std::holds_alternative<GlobalAveragePool>(computed.operation)) {
    result.global_average_pool(inputs[0], end.name);
  } else {
    BnSync site = std::get<BnSync>(computed.operation);
    if (epsilon > 0) site.epsilon = epsilon;
    const NodeId y = result.bn_sync_site(inputs[0], site);
    if (relu) result.relu(y, end.name);
  }
  return result;
}

}  // namespace shardproof
