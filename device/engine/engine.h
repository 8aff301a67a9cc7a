// Engine: runs a sync-BN graph on every replica of a Device, one launch a step. A normalise
// followed by a ReLU that alone reads it is one launch; the packed statistics are read where they
// lie.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "device/engine/device.h"
#include "reference/graph/graph.h"
#include "reference/graph/tensor.h"

namespace shardproof {

// Told of every node that a launch wrote, in order, with a host copy of what it wrote on each
// replica. Nodes inside a launch (a normalise fused with its ReLU, a pack) are not told.
using Recorder = std::function<void(NodeId, Family<float>)>;

class Engine {
 public:
  // Uploads the weights to every replica. `device` and `graph` must outlive the engine.
  // Throws std::invalid_argument where a weight is missing or misshapen.
  Engine(Device& device, const Graph& graph, const Weights& weights);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // The output node on every replica; inputs[i] feeds input node i, one tensor a replica, N alike.
  // Device memory of a node is released after its last reader. `recorder` may be empty.
  Family<float> forward(const std::vector<Family<float>>& inputs, const Recorder& recorder);

 private:
  struct Step {
    NodeId computes;  // the node whose operation is launched
    NodeId writes;    // the node whose value that is: `computes`, or the ReLU fused into it
    std::vector<NodeId> reads;
  };
  using Buffers = std::vector<float*>;  // one a replica; empty: not in memory

  std::vector<Step> plan() const;
  Buffers allocate(const Node& node, std::size_t batch);
  void release(Buffers& buffers);
  void launch(const Step& step, std::size_t batch);
  float* weight(const std::string& name, int replica) const;

  Device& device_;
  const Graph& graph_;
  std::vector<Step> plan_;
  std::map<std::string, Buffers> weights_;
  std::vector<Buffers> values_;  // by node
};

}  // namespace shardproof
