// Judge: compares what a device wrote, launch by launch, with the reference on the device's own
// operands (agreement §1). Operands are what the device wrote at the nodes that the reference's
// graph names; weights and inputs are the reference's own. A BN site is judged three times: its
// statistics against batch BN over the operands of all replicas, y on the device's own statistics,
// and y of every replica against its shard of batch BN.
#pragma once

#include <map>
#include <vector>

#include "device/engine/device.h"
#include "diff/bounds.h"
#include "diff/verdict.h"
#include "reference/graph/channel_sums.h"
#include "reference/graph/graph.h"
#include "reference/graph/products.h"
#include "reference/graph/tensor.h"

namespace shardproof {

class Judge {
 public:
  // `graph`, `weights` and `device` must outlive the judge; the device is asked for its contract
  // only. `inputs` as for Engine::forward.
  Judge(const Graph& graph, const Weights& weights, const Device& device, InputKind kind,
        unsigned threads, const std::vector<Family<float>>& inputs);

  // From now on comparisons with the reference have their precision.
  void measure_precision() { with_precision_ = true; }

  // Everything that `values`, which a launch wrote at `node`, can be compared with. Nodes inside
  // the launch (a normalise fused with its ReLU) are judged with it.
  std::vector<Comparison> wrote(NodeId node, Family<float> values);

  // What the device wrote at a node, or what was fed to an input, while it is held.
  const Family<float>& held(NodeId node) const { return values_.at(node); }

  // Drops the values whose last reader has been judged.
  void drop_read();

 private:
  // One channel of a BN site on one replica, and what a device may err in its mean.
  struct SiteChannel {
    ChannelSums sums;
    Allowance mean;
    double independent_sum = 0;  // error of Σx, of which replicas have independent ones
  };
  using Site = std::vector<std::vector<SiteChannel>>;  // [replica][channel]

  Comparison comparison(NodeId node, std::string part) const;
  Contract contract(Operation operation, NodeId x) const;
  bool multiples(const Tensor<float>& x, std::size_t channel, int quantum) const;

  std::vector<Comparison> product(NodeId node, ProductGeometry geometry, Operation operation,
                                  const std::string& weight, const std::string& bias);
  std::vector<Comparison> add(NodeId node);
  std::vector<Comparison> relu(NodeId node);
  std::vector<Comparison> global_average_pool(NodeId node);
  std::vector<Comparison> mean(NodeId node);
  std::vector<Comparison> variance_at(NodeId node);
  std::vector<Comparison> all_reduce(NodeId node);
  std::vector<Comparison> normalise(NodeId written, NodeId site);

  const Site& site(NodeId x);
  Allowance variance_allowance(const SiteChannel& channel, const Tensor<float>& x, std::size_t c,
                               Certified between, double between_error, const Contract& contract,
                               const SumBound& bound) const;

  const Graph& graph_;
  const Weights& weights_;
  const Device& device_;
  InputKind kind_;
  unsigned threads_;
  std::size_t replicas_, batch_;
  bool with_precision_ = false;
  std::vector<Family<float>> values_;  // by node; empty: not written, or dropped
  std::vector<std::size_t> unread_;    // by node: readers not judged yet
  std::vector<NodeId> judged_;         // nodes whose operands may be dropped
  std::map<NodeId, Site> sites_;       // by the site's x
  // By the all-reduced node: what its reduction may err in each number.
  std::map<NodeId, std::vector<Allowance>> reductions_;
};

}  // namespace shardproof
