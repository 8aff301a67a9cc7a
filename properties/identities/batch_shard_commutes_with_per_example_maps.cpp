// P3 (spec §2). Lean: batchShard_batchMap, batchShard_batchMapAux, batchShard_map,
// batchShard_zipWith, batchShard_castIdx.
#include <catch2/catch.hpp>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "properties/draws.h"
#include "properties/random_cases.h"

namespace shardproof {
namespace {

// An arbitrary number of any type: here a word that mixes everything it is given, in order.
using Word = std::uint64_t;
Word mixed(Word seed, std::span<const Word> words) {
  for (const Word word : words) seed = Random(seed + word).next();
  return seed;
}
Tensor<Word> words(Shape shape, Random random) {
  Tensor<Word> x(shape);
  for (Word& value : x.values) value = random.next();
  return x;
}

std::span<const Word> example(const Tensor<Word>& x, std::size_t n) {
  return std::span(x.values).subspan(n * x.shape.example(), x.shape.example());
}

// The lift of a map on one example to a batch; f gives numbers of shape `out`.
template <class F>
Tensor<Word> batch_map(const Tensor<Word>& x, Shape out, F f) {
  out.n = x.shape.n;
  Tensor<Word> y(out);
  for (std::size_t n = 0; n < out.n; ++n) {
    for (std::size_t i = 0; i < out.example(); ++i) {
      y.values[n * out.example() + i] = f(example(x, n), i);
    }
  }
  return y;
}
template <class F>
Tensor<Word> batch_map_aux(const Tensor<Word>& x, const Tensor<Word>& aux, Shape out, F f) {
  out.n = x.shape.n;
  Tensor<Word> y(out);
  for (std::size_t n = 0; n < out.n; ++n) {
    for (std::size_t i = 0; i < out.example(); ++i) {
      y.values[n * out.example() + i] = f(example(x, n), example(aux, n), i);
    }
  }
  return y;
}

struct Sizes {
  std::size_t replicas = draw_replicas();
  std::size_t examples = draw_size("examples of a replica", 1, 4);
  Shape x{replicas * examples, draw_size("channels", 1, 4), draw_size("height", 1, 5),
          draw_size("width", 1, 6)};
  std::uint64_t seed = draw_seed();
};

TEST_CASE("batchShard_batchMap: any map of one example, lifted, commutes with batch_shard") {
  check_on_random_cases("batchShard_batchMap", 200, [] {
    const Sizes sizes;
    const Shape out{1, draw_size("outputs", 1, 9), 1, 1};
    const auto f = [&](std::span<const Word> one, std::size_t i) {
      return mixed(sizes.seed + i, one);
    };
    const Tensor<Word> batch = words(sizes.x, Random(sizes.seed));
    Family<Word> shards = shards_of(sizes.replicas, batch);
    for (Tensor<Word>& shard : shards) shard = batch_map(shard, out, f);
    RC_ASSERT(is_sharded(shards, batch_map(batch, out, f)));
  });
}

TEST_CASE("batchShard_batchMapAux: so does a map with an auxiliary operand of each example") {
  check_on_random_cases("batchShard_batchMapAux", 200, [] {
    const Sizes sizes;
    const Shape out{1, draw_size("outputs", 1, 9), 1, 1};
    const Shape aux_shape{sizes.x.n, draw_size("auxiliary numbers", 1, 5), 1, 1};
    const auto f = [&](std::span<const Word> one, std::span<const Word> aux, std::size_t i) {
      return mixed(mixed(sizes.seed + i, one), aux);
    };
    const Tensor<Word> batch = words(sizes.x, Random(sizes.seed, "x"));
    const Tensor<Word> aux = words(aux_shape, Random(sizes.seed, "aux"));
    Family<Word> shards = shards_of(sizes.replicas, batch);
    for (std::size_t r = 0; r < sizes.replicas; ++r) {
      shards[r] = batch_map_aux(shards[r], batch_shard(sizes.replicas, aux, r), out, f);
    }
    RC_ASSERT(is_sharded(shards, batch_map_aux(batch, aux, out, f)));
  });
}

TEST_CASE("batchShard_map, batchShard_zipWith: so do pointwise maps of one and two operands") {
  check_on_random_cases("batchShard_map, batchShard_zipWith", 200, [] {
    const Sizes sizes;
    const auto unary = [&](Word a) { return mixed(sizes.seed, std::vector{a}); };
    const auto binary = [&](Word a, Word b) { return mixed(sizes.seed, std::vector{a, b}); };
    const auto map = [&](Tensor<Word> x) {
      for (Word& value : x.values) value = unary(value);
      return x;
    };
    const auto zip_with = [&](Tensor<Word> x, const Tensor<Word>& y) {
      for (std::size_t i = 0; i < x.values.size(); ++i) {
        x.values[i] = binary(x.values[i], y.values[i]);
      }
      return x;
    };
    const Tensor<Word> x = words(sizes.x, Random(sizes.seed, "x"));
    const Tensor<Word> y = words(sizes.x, Random(sizes.seed, "y"));
    Family<Word> mapped, zipped;
    for (std::size_t r = 0; r < sizes.replicas; ++r) {
      const Tensor<Word> shard = batch_shard(sizes.replicas, x, r);
      mapped.push_back(map(shard));
      zipped.push_back(zip_with(shard, batch_shard(sizes.replicas, y, r)));
    }
    RC_ASSERT(is_sharded(mapped, map(x)));
    RC_ASSERT(is_sharded(zipped, zip_with(x, y)));
  });
}

TEST_CASE("batchShard_castIdx: so does a relabelling of the indices within an example") {
  check_on_random_cases("batchShard_castIdx", 200, [] {
    const Sizes sizes;
    std::vector<std::size_t> places(sizes.x.example());
    for (std::size_t i = 0; i < places.size(); ++i) places[i] = i;
    if (*rc::gen::arbitrary<bool>().as("permuted")) {
      Random(sizes.seed, "places").shuffle(std::span(places));
    }
    // C×H×W under the name W·H×C×1; unpermuted, the same numbers in the same order.
    const Shape out{1, sizes.x.plane(), sizes.x.c, 1};
    const auto f = [&](std::span<const Word> one, std::size_t i) { return one[places[i]]; };
    const Tensor<Word> batch = words(sizes.x, Random(sizes.seed));
    Family<Word> shards = shards_of(sizes.replicas, batch);
    for (Tensor<Word>& shard : shards) shard = batch_map(shard, out, f);
    RC_ASSERT(is_sharded(shards, batch_map(batch, out, f)));
  });
}

// A node of spec §4 over inputs x and y of one shape.
struct Lift {
  std::string name;
  std::function<void(Graph&, NodeId x, NodeId y)> append;
};

Lift convolution(const std::string& name, std::size_t kernel, std::size_t stride, std::size_t begin,
                 std::size_t end) {
  return {name, [=](Graph& graph, NodeId x, NodeId) {
            graph.convolution(x, {"w", "b", kernel, stride, begin, end}, 3);
          }};
}
Lift depthwise(const std::string& name, std::size_t kernel, std::size_t stride, std::size_t begin,
               std::size_t end) {
  return {name, [=](Graph& graph, NodeId x, NodeId) {
            graph.depthwise(x, {"w", kernel, stride, begin, end});
          }};
}

std::vector<Lift> lifts() {
  return {convolution("convolution 1x1", 1, 1, 0, 0),
          convolution("convolution 3x3", 3, 1, 1, 1),
          convolution("convolution 3x3 at stride 2", 3, 2, 1, 1),
          convolution("convolution 3x3 at stride 2, SAME", 3, 2, 0, 1),
          convolution("convolution 5x5", 5, 1, 2, 2),
          depthwise("depthwise 3x3", 3, 1, 1, 1),
          depthwise("depthwise 3x3 at stride 2", 3, 2, 1, 1),
          depthwise("depthwise 3x3 at stride 2, SAME", 3, 2, 0, 1),
          depthwise("depthwise 5x5", 5, 1, 2, 2),
          depthwise("depthwise 5x5 at stride 2", 5, 2, 2, 2),
          {"dense",
           [](Graph& graph, NodeId x, NodeId) {
             graph.dense(x, {"w", "b"}, 5);
           }},
          {"relu", [](Graph& graph, NodeId x, NodeId) { graph.relu(x, "relu"); }},
          {"global average pool",
           [](Graph& graph, NodeId x, NodeId) { graph.global_average_pool(x, "gap"); }},
          {"add", [](Graph& graph, NodeId x, NodeId y) { graph.add(x, y, "add"); }}};
}

// The node on R replicas, and on as many replicas as there are examples, against the node on the
// whole batch.
template <class T>
void check_node(const Sizes& sizes, const Graph& graph, const Weights& weights, const Tensor<T>& x,
                const Tensor<T>& y) {
  const auto on = [&](std::size_t replicas) {
    const NodeId wanted = graph.output();
    return denote<T>(graph, weights, {shards_of(replicas, x), shards_of(replicas, y)}, {&wanted, 1})
        .front();
  };
  const Tensor<T> batch = on(1).front();
  RC_ASSERT(batch.shape.n == sizes.x.n);
  RC_ASSERT(is_sharded(on(sizes.replicas), batch));
  RC_ASSERT(is_sharded(on(sizes.x.n), batch));
}

TEST_CASE("batchShard_batchMap: every per-example node commutes with batch_shard") {
  for (const Lift& lift : lifts()) {
    check_on_random_cases("batch_shard of " + lift.name, 40, [&] {
      Sizes sizes;
      sizes.x.h += sizes.x.h % 2;  // SAME padding is (0, 1) at even sizes
      sizes.x.w += sizes.x.w % 2;
      Graph graph;
      const NodeId x = graph.input("x", sizes.x);
      const NodeId y = graph.input("y", sizes.x);
      lift.append(graph, x, y);
      const Weights weights = drawn_weights(graph, sizes.seed);
      const Random of_x(sizes.seed, "x"), of_y(sizes.seed, "y");
      check_node<Rational>(sizes, graph, weights, fractions(sizes.x, of_x),
                           fractions(sizes.x, of_y));
      check_node<float>(sizes, graph, weights, any_floats(sizes.x, of_x),
                        any_floats(sizes.x, of_y));
    });
  }
}

TEST_CASE("batch_shard and unshard are inverse") {
  check_on_random_cases("unshard (batchShard X) = X", 200, [] {
    const Sizes sizes;
    const Tensor<Word> batch = words(sizes.x, Random(sizes.seed));
    const Family<Word> shards = shards_of(sizes.replicas, batch);
    RC_ASSERT(same(unshard(shards), batch));
    RC_ASSERT(is_sharded(shards, unshard(shards)));
    // Shard r is examples r·N … r·N + N − 1.
    const std::size_t r = sizes.seed % sizes.replicas;
    for (std::size_t n = 0; n < sizes.examples; ++n) {
      const auto own = example(shards[r], n);
      const auto of_batch = example(batch, r * sizes.examples + n);
      RC_ASSERT(std::vector(own.begin(), own.end()) ==
                std::vector(of_batch.begin(), of_batch.end()));
    }
  });
}

}  // namespace
}  // namespace shardproof
