// What the graph of a unit is made of, and which launches it takes (unit_case.h).
#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <type_traits>

#include "diff/unit_case.h"

namespace shardproof {

std::vector<Launch> launches_of(const Graph& graph) {
  std::vector<Launch> launches;
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    const Node& node = graph.node(id);
    std::visit(
        [&](const auto& op) {
          using T = std::decay_t<decltype(op)>;
          const auto add = [&](Operation operation, NodeId sized) {
            launches.push_back({operation, sized, id});
          };
          if constexpr (std::is_same_v<T, Convolution>) {
            add(Operation::convolution, id);
          } else if constexpr (std::is_same_v<T, Depthwise>) {
            add(Operation::depthwise, id);
          } else if constexpr (std::is_same_v<T, Dense>) {
            add(Operation::dense, id);
          } else if constexpr (std::is_same_v<T, Add>) {
            add(Operation::add, id);
          } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
            add(Operation::global_average_pool, node.operands[0]);
          } else if constexpr (std::is_same_v<T, BnMean>) {
            add(Operation::channel_mean, node.operands[0]);
          } else if constexpr (std::is_same_v<T, BnVarAt>) {
            add(Operation::channel_variance, node.operands[0]);
          } else if constexpr (std::is_same_v<T, AllReduceMean>) {
            add(Operation::all_reduce_mean, id);
          } else if constexpr (std::is_same_v<T, BnSync>) {
            add(Operation::normalise, node.operands[0]);
          } else if constexpr (std::is_same_v<T, Relu>) {
            const bool fused =
                std::holds_alternative<BnSync>(graph.node(node.operands[0]).operation);
            if (fused) {
              launches.back().writes = id;
            } else {
              add(Operation::relu, id);
            }
          }
        },
        node.operation);
  }
  return launches;
}

UnitLayout layout_of(const Graph& graph) {
  UnitLayout layout;
  for (const NodeId input : graph.inputs()) {
    layout.inputs.emplace_back(graph.node(input).name, graph.node(input).shape);
  }
  const Node& end = graph.node(graph.output());
  layout.operation = end.operation;
  if (std::holds_alternative<Relu>(end.operation) &&
      std::holds_alternative<BnSync>(graph.node(end.operands[0]).operation)) {
    layout.relu = true;
    layout.operation = graph.node(end.operands[0]).operation;
  }
  if (std::holds_alternative<Convolution>(end.operation) ||
      std::holds_alternative<Dense>(end.operation)) {
    layout.outputs = end.shape.c;
  }
  const bool named_here = std::holds_alternative<Relu>(end.operation) ||
                          std::holds_alternative<Add>(end.operation) ||
                          std::holds_alternative<GlobalAveragePool>(end.operation);
  if (named_here) layout.name = end.name;
  const Graph again = graph_of(layout);
  const auto same = [](const Node& a, const Node& b) {
    return a.name == b.name && a.operation.index() == b.operation.index() &&
           a.operands == b.operands && a.shape == b.shape;
  };
  if (!std::equal(graph.nodes().begin(), graph.nodes().end(), again.nodes().begin(),
                  again.nodes().end(), same)) {
    throw std::invalid_argument("a graph that ends in " + end.name + " is more than one unit");
  }
  return layout;
}

Graph graph_of(const UnitLayout& layout) {
  Graph graph;
  std::vector<NodeId> inputs;
  for (const auto& [name, shape] : layout.inputs) inputs.push_back(graph.input(name, shape));
  std::visit(
      [&](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        const std::size_t operands = std::is_same_v<T, Add> ? 2 : 1;
        if (inputs.size() != operands) {
          throw std::invalid_argument(
              fmt::format("{} operands in place of {}", inputs.size(), operands));
        }
        if constexpr (std::is_same_v<T, Convolution>) {
          graph.convolution(inputs[0], op, layout.outputs);
        } else if constexpr (std::is_same_v<T, Depthwise>) {
          graph.depthwise(inputs[0], op);
        } else if constexpr (std::is_same_v<T, Dense>) {
          graph.dense(inputs[0], op, layout.outputs);
        } else if constexpr (std::is_same_v<T, Add>) {
          graph.add(inputs[0], inputs[1], layout.name);
        } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
          graph.global_average_pool(inputs[0], layout.name);
        } else if constexpr (std::is_same_v<T, Relu>) {
          graph.relu(inputs[0], layout.name);
        } else if constexpr (std::is_same_v<T, BnSync>) {
          const NodeId y = graph.bn_sync_site(inputs[0], op);
          if (layout.relu) graph.relu(y, layout.name);
        } else {
          throw std::invalid_argument("an operation that is no unit");
        }
      },
      layout.operation);
  return graph;
}

}  // namespace shardproof
