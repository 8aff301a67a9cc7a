// Unit: what is judged on its own inputs (agreement §3): a product, an add, a pool, or a whole
// sync-BN site with the ReLU fused into it. A unit of a network can be lifted out of it into a
// graph of its own, whose nodes keep their names.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/graph/graph.h"

namespace shardproof {

struct Unit {
  enum class Kind { product, add, pool, site };
  Kind kind;
  NodeId end;                    // the last node of the unit
  std::vector<NodeId> operands;  // the nodes outside that it reads, in the order of its inputs
  std::string signature;         // equal for units of the same kind and shape
  bool windows = false;          // a product with a window larger than 1×1, or depthwise
};

// The unit that ends where a launch wrote `node`; none where the node lies inside a unit. `fused`
// tells, for a ReLU, whether its normalise was part of the launch.
std::optional<Unit> unit_ending_at(const Graph& graph, NodeId node, bool fused);

// The unit as a graph with one input node an operand. A site gets `epsilon` where it is positive.
Graph lifted(const Graph& graph, const Unit& unit, float epsilon = 0);

}  // namespace shardproof
