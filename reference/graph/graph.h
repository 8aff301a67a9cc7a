// Graph: one program run by every replica of a data-parallel family (spec §4). Values are
// per-example tensors of N examples, or per-channel statistics; N and R are given when the graph is
// evaluated. Only AllReduceMean reads other replicas.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "reference/graph/tensor.h"

namespace shardproof {

using NodeId = std::size_t;

// Cross-correlation, weight [out, in, k, k]; `bias` [1, out, 1, 1], or empty for a zero bias slot.
struct Convolution {
  std::string weight, bias;
  std::size_t kernel = 1, stride = 1, pad_begin = 0, pad_end = 0;
};
// One filter a channel, weight [C, 1, k, k].
struct Depthwise {
  std::string weight;
  std::size_t kernel = 3, stride = 1, pad_begin = 1, pad_end = 1;
};
// y = x·W + b, W [1, 1, in, out], b [1, out, 1, 1]; x is the whole example as one vector.
struct Dense {
  std::string weight, bias;
};
struct Input {};              // fed from outside, in the order of the input nodes
struct Relu {};               // max(x, 0); NaN stays NaN
struct Add {};                // residual skip
struct GlobalAveragePool {};  // mean over H·W
struct BnMean {};             // (x): μ_r, [1, C, 1, 1]
struct BnVarAt {};            // (x, μ): σ²_r + (μ_r − μ)²
struct AllReduceMean {};      // (1/R) Σ_r of its operand over replicas
struct BnPack {};             // (μ, σ²): [μ ‖ σ²], [1, 2C, 1, 1]
// (x, pack): γ·(x − μ)·(σ² + ε)^(−1/2) + β. ε is the float32 number nearest to the stated one.
struct BnSync {
  std::string gamma, beta;
  float epsilon = 1e-5F;
};
// (x): batch BN on one device, the specification side of a site; statistics of its own batch.
struct BnBatch {
  std::string gamma, beta;
  float epsilon = 1e-5F;
};

using NodeOperation =
    std::variant<Input, Convolution, Depthwise, Dense, Relu, Add, GlobalAveragePool, BnMean,
                 BnVarAt, AllReduceMean, BnPack, BnSync, BnBatch>;

struct Node {
  std::string
      name;  // unique in its graph; a BN site's statistics are tagged by its γ: "u4qgmu", "u4qgvar"
  NodeOperation operation;
  std::vector<NodeId> operands;
  Shape shape;              // with n = 1: of one example, or of a per-channel value
  bool per_example = true;  // false for statistics
};

struct Parameter {
  enum class Role { convolution, depthwise, gamma, beta, dense, dense_bias, convolution_bias };
  std::string name;
  Shape shape;
  Role role;
};

// Parameters by name.
using Weights = std::map<std::string, Tensor<float>>;

// Nodes in an order in which operands come first. Every builder function returns the new node and
// throws std::invalid_argument when operands do not fit the operation.
class Graph {
 public:
  const std::vector<Node>& nodes() const { return nodes_; }
  const Node& node(NodeId id) const { return nodes_.at(id); }
  const std::vector<Parameter>& parameters() const { return parameters_; }
  NodeId output() const { return nodes_.size() - 1; }
  std::vector<NodeId> inputs() const;
  // For each node, the last node that reads it; the node itself where none does.
  std::vector<NodeId> last_readers() const;

  NodeId input(std::string name, Shape shape);
  NodeId convolution(NodeId x, const Convolution& operation, std::size_t out_channels);
  NodeId depthwise(NodeId x, const Depthwise& operation);
  NodeId dense(NodeId x, const Dense& operation, std::size_t out);
  NodeId relu(NodeId x, std::string name);
  NodeId add(NodeId a, NodeId b, std::string name);
  NodeId global_average_pool(NodeId x, std::string name);
  // The chain mean, all-reduce, variance, all-reduce, pack, normalise; returns the normalised node,
  // named as γ is.
  NodeId bn_sync_site(NodeId x, const BnSync& site);
  NodeId bn_batch_site(NodeId x, const BnBatch& site);

 private:
  NodeId append(Node node);
  void parameter(const std::string& name, Shape shape, Parameter::Role role);

  std::vector<Node> nodes_;
  std::vector<Parameter> parameters_;
};

// Throws std::invalid_argument unless every parameter of the graph has a weight of its shape.
void require_weights(const Graph& graph, const Weights& weights);

// ⌊(in + pad_begin + pad_end − kernel) / stride⌋ + 1
std::size_t output_extent(std::size_t in, std::size_t kernel, std::size_t stride,
                          std::size_t pad_begin, std::size_t pad_end);

}  // namespace shardproof
