#include "reference/graph/graph.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace shardproof {

std::string to_string(const Shape& shape) {
  return std::to_string(shape.n) + "x" + std::to_string(shape.c) + "x" + std::to_string(shape.h) +
         "x" + std::to_string(shape.w);
}

std::size_t output_extent(std::size_t in, std::size_t kernel, std::size_t stride,
                          std::size_t pad_begin, std::size_t pad_end) {
  const std::size_t padded = in + pad_begin + pad_end;
  if (kernel == 0 || stride == 0 || padded < kernel) {
    throw std::invalid_argument("a window of " + std::to_string(kernel) + " at stride " +
                                std::to_string(stride) + " does not fit an extent of " +
                                std::to_string(padded));
  }
  return (padded - kernel) / stride + 1;
}

void require_weights(const Graph& graph, const Weights& weights) {
  for (const Parameter& parameter : graph.parameters()) {
    const auto found = weights.find(parameter.name);
    if (found == weights.end() || found->second.shape != parameter.shape) {
      throw std::invalid_argument("no weight " + parameter.name + " of shape " +
                                  to_string(parameter.shape));
    }
  }
}

std::vector<NodeId> Graph::inputs() const {
  std::vector<NodeId> found;
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    if (std::holds_alternative<Input>(nodes_[id].operation)) found.push_back(id);
  }
  return found;
}

std::vector<NodeId> Graph::last_readers() const {
  std::vector<NodeId> last(nodes_.size());
  for (NodeId id = 0; id < nodes_.size(); ++id) {
    last[id] = id;
    for (const NodeId operand : nodes_[id].operands) last[operand] = id;
  }
  return last;
}

NodeId Graph::append(Node node) {
  for (const Node& other : nodes_) {
    if (other.name == node.name) throw std::invalid_argument("two nodes named " + node.name);
  }
  nodes_.push_back(std::move(node));
  return nodes_.size() - 1;
}

void Graph::parameter(const std::string& name, Shape shape, Parameter::Role role) {
  for (const Parameter& other : parameters_) {
    if (other.name == name) throw std::invalid_argument("two parameters named " + name);
  }
  parameters_.push_back({name, shape, role});
}

NodeId Graph::input(std::string name, Shape shape) {
  shape.n = 1;
  return append({std::move(name), Input{}, {}, shape});
}

NodeId Graph::convolution(NodeId x, const Convolution& operation, std::size_t out_channels) {
  const Shape in = node(x).shape;
  const auto extent = [&](std::size_t size) {
    return output_extent(size, operation.kernel, operation.stride, operation.pad_begin,
                         operation.pad_end);
  };
  const Shape out{1, out_channels, extent(in.h), extent(in.w)};
  parameter(operation.weight, {out_channels, in.c, operation.kernel, operation.kernel},
            Parameter::Role::convolution);
  if (!operation.bias.empty()) {
    parameter(operation.bias, {1, out_channels, 1, 1}, Parameter::Role::convolution_bias);
  }
  return append({operation.weight, operation, {x}, out});
}

NodeId Graph::depthwise(NodeId x, const Depthwise& operation) {
  const Shape in = node(x).shape;
  const auto extent = [&](std::size_t size) {
    return output_extent(size, operation.kernel, operation.stride, operation.pad_begin,
                         operation.pad_end);
  };
  parameter(operation.weight, {in.c, 1, operation.kernel, operation.kernel},
            Parameter::Role::depthwise);
  return append({operation.weight, operation, {x}, {1, in.c, extent(in.h), extent(in.w)}});
}

NodeId Graph::dense(NodeId x, const Dense& operation, std::size_t out) {
  parameter(operation.weight, {1, 1, node(x).shape.example(), out}, Parameter::Role::dense);
  parameter(operation.bias, {1, out, 1, 1}, Parameter::Role::dense_bias);
  return append({operation.weight, operation, {x}, {1, out, 1, 1}});
}

NodeId Graph::relu(NodeId x, std::string name) {
  return append({std::move(name), Relu{}, {x}, node(x).shape});
}

NodeId Graph::add(NodeId a, NodeId b, std::string name) {
  if (node(a).shape != node(b).shape) {
    throw std::invalid_argument(name + " adds " + to_string(node(a).shape) + " to " +
                                to_string(node(b).shape));
  }
  return append({std::move(name), Add{}, {a, b}, node(a).shape});
}

NodeId Graph::global_average_pool(NodeId x, std::string name) {
  return append({std::move(name), GlobalAveragePool{}, {x}, {1, node(x).shape.c, 1, 1}});
}

NodeId Graph::bn_sync_site(NodeId x, const BnSync& site) {
  const Shape in = node(x).shape;
  const Shape channels{1, in.c, 1, 1};
  parameter(site.gamma, channels, Parameter::Role::gamma);
  parameter(site.beta, channels, Parameter::Role::beta);
  const NodeId own_mean = append({site.gamma + ".mean", BnMean{}, {x}, channels, false});
  const NodeId mean = append({site.gamma + "mu", AllReduceMean{}, {own_mean}, channels, false});
  const NodeId own_var = append({site.gamma + ".var_at", BnVarAt{}, {x, mean}, channels, false});
  const NodeId var = append({site.gamma + "var", AllReduceMean{}, {own_var}, channels, false});
  const NodeId pack =
      append({site.gamma + ".pack", BnPack{}, {mean, var}, {1, 2 * in.c, 1, 1}, false});
  return append({site.gamma, site, {x, pack}, in});
}

NodeId Graph::bn_batch_site(NodeId x, const BnBatch& site) {
  const Shape in = node(x).shape;
  parameter(site.gamma, {1, in.c, 1, 1}, Parameter::Role::gamma);
  parameter(site.beta, {1, in.c, 1, 1}, Parameter::Role::beta);
  return append({site.gamma, site, {x}, in});
}

}  // namespace shardproof
