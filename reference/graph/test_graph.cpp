#include <catch2/catch.hpp>

#include "reference/graph/batch_shard.h"
#include "reference/graph/graph.h"

namespace shardproof {
namespace {

TEST_CASE("a strided window's output extent is that of PyTorch's formula") {
  CHECK(output_extent(224, 3, 2, 1, 1) == 112);
  CHECK(output_extent(224, 3, 2, 0, 1) == 112);
  CHECK(output_extent(7, 5, 1, 2, 2) == 7);
  CHECK(output_extent(5, 3, 2, 1, 1) == 3);
  CHECK_THROWS_AS(output_extent(2, 5, 1, 1, 1), std::invalid_argument);
  CHECK_THROWS_AS(output_extent(5, 3, 0, 1, 1), std::invalid_argument);
}

TEST_CASE("a sync-BN site is the chain mean, all-reduce, variance, all-reduce, pack, normalise") {
  Graph graph;
  const NodeId x = graph.input("x", {1, 3, 4, 5});
  const NodeId y = graph.bn_sync_site(x, {"g", "bt", 1e-5F});
  REQUIRE(graph.nodes().size() == 7);
  CHECK(graph.node(1).name == "g.mean");
  CHECK(graph.node(2).name == "gmu");
  CHECK(graph.node(3).name == "g.var_at");
  CHECK(graph.node(4).name == "gvar");
  CHECK(graph.node(5).shape == Shape{1, 6, 1, 1});
  CHECK(graph.node(y).name == "g");
  CHECK(graph.node(y).shape == Shape{1, 3, 4, 5});
  CHECK(graph.last_readers()[x] == y);
}

TEST_CASE("a graph refuses what does not fit together") {
  Graph graph;
  const NodeId a = graph.input("a", {1, 3, 4, 5});
  const NodeId b = graph.input("b", {1, 3, 5, 4});
  CHECK_THROWS_AS(graph.add(a, b, "sum"), std::invalid_argument);
  CHECK_THROWS_AS(graph.relu(a, "b"), std::invalid_argument);
}

TEST_CASE("unshard puts back what batch_shard cut, and each shard is a contiguous block") {
  Tensor<int> batch({6, 2, 1, 3});
  for (std::size_t i = 0; i < batch.values.size(); ++i) batch.values[i] = static_cast<int>(i);
  for (const std::size_t replicas : {1U, 2U, 3U, 6U}) {
    std::vector<Tensor<int>> shards;
    for (std::size_t r = 0; r < replicas; ++r) shards.push_back(batch_shard(replicas, batch, r));
    CHECK(shards.back().values.front() ==
          static_cast<int>((replicas - 1) * batch.values.size() / replicas));
    CHECK(unshard(shards).values == batch.values);
    CHECK(unshard(shards).shape == batch.shape);
  }
  CHECK_THROWS_AS(batch_shard(4, batch, 0), std::invalid_argument);
}

}  // namespace
}  // namespace shardproof
