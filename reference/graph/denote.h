// denote: what a graph means (spec §4), for any Real. Simple loops, in the order of the formulas;
// the fast evaluation of single nodes is products.h.
#pragma once

#include <span>
#include <vector>

#include "reference/graph/graph.h"
#include "reference/graph/tensor.h"

namespace shardproof {

// The values of the nodes `wanted`, in their order, when input node i is fed inputs[i]; all input
// families have the same R and N. Statistics have shape {1, C, 1, 1} on every replica. Values are
// dropped after their last reader.
// Throws std::invalid_argument when inputs or weights do not fit the graph, and whatever rsqrt of T
// throws where T cannot take a root.
// Instantiated for float, double, Rational, Certified, DoubleDouble and Interval.
template <class T>
std::vector<Family<T>> denote(const Graph& graph, const Weights& weights,
                              const std::vector<Family<T>>& inputs, std::span<const NodeId> wanted);

// The same on one device (R = 1): only the output node, for one input.
template <class T>
Tensor<T> denote_on_one_device(const Graph& graph, const Weights& weights, const Tensor<T>& input);

// float32 numbers as exact T.
template <class T>
Tensor<T> exact(const Tensor<float>& tensor);

}  // namespace shardproof
