// evaluate: the batch-BN graph on one device (spec §5, the specification's side) at full size, in
// float64 or DoubleDouble, products by products.h. Where `denote` is the definition, this is the
// fast second route; two precisions of it tell how many digits of a result are sound.
#pragma once

#include "reference/graph/graph.h"
#include "reference/graph/tensor.h"

namespace shardproof {

// The output node for one batch; the bytes do not depend on the number of threads.
// Throws std::invalid_argument when weights or the input do not fit, or the graph is not a batch-BN
// graph with one input. Instantiated for double and DoubleDouble.
template <class T>
Tensor<T> evaluate(const Graph& graph, const Weights& weights, const Tensor<float>& input,
                   unsigned threads);

}  // namespace shardproof
