// The witnesses against BN that is not synchronised (spec §3). Lean: dpMeanGrad_ne_globalBatchGrad.
#include <catch2/catch.hpp>

#include "properties/draws.h"

namespace shardproof {
namespace {

TEST_CASE("dpMeanGrad_ne_globalBatchGrad: the slices {0} and {2} have gradient 2, globally 1") {
  // The loss (mean of the slice)²·θ; its derivative in θ.
  const auto gradient = [](const Tensor<Rational>& slice) {
    const Rational mean = moments(slice, 0).mean;
    return Rational(mean * mean);
  };
  const Tensor<Rational> batch({2, 1, 1, 1}, {0, 2});
  CHECK((gradient(batch_shard(2, batch, 0)) + gradient(batch_shard(2, batch, 1))) / 2 == 2);
  CHECK(gradient(batch) == 1);
}

TEST_CASE("BN on each replica's own statistics loses what tells {0, 0} from {2, 2}") {
  // ε = 9/16: the roots of 0 + ε and 1 + ε are rational.
  Graph graph;
  const NodeId y = graph.bn_batch_site(graph.input("x", {1, 1, 1, 1}), {"g", "bt", 0.5625F});
  const Weights weights{{"g", {{1, 1, 1, 1}, {2}}}, {"bt", {{1, 1, 1, 1}, {0.5}}}};
  const Tensor<Rational> batch({4, 1, 1, 1}, {0, 0, 2, 2});
  const Rational half = Rational(1) / 2;
  const Rational step = Rational(8) / 5;

  const Tensor<Rational> global = denote_on_one_device(graph, weights, batch);
  CHECK(global.values == std::vector<Rational>{half - step, half - step, half + step, half + step});
  const auto own = denote<Rational>(graph, weights, {shards_of(2, batch)}, {&y, 1}).front();
  CHECK(own[0].values == std::vector<Rational>{half, half});
  CHECK(own[1].values == std::vector<Rational>{half, half});
}

}  // namespace
}  // namespace shardproof
