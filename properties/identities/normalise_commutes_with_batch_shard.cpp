// P1a (spec §3): once the statistics are given, whatever they are, the forward of BN is pointwise
// and commutes with batch_shard. Lean: batchShard_zipWith at the normalisation.
//
// A family of R + E replicas normalises with the statistics of all its examples. Seen from its
// first R replicas, which hold the shards of X, those are statistics given from outside: the other
// replicas hold anything.
#include <catch2/catch.hpp>

#include "properties/draws.h"
#include "properties/random_cases.h"

namespace shardproof {
namespace {

// γ·(x − μ)·(σ² + ε)^(−1/2) + β on a whole batch, in this order of operations.
template <class T>
Tensor<T> normalised(Tensor<T> x, const Tensor<T>& pack, const Weights& weights, float epsilon) {
  const Tensor<T> gamma = exact<T>(weights.at("g"));
  const Tensor<T> beta = exact<T>(weights.at("bt"));
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const std::size_t c = i / x.shape.plane() % x.shape.c;
    const T root = rsqrt<T>(pack.values[x.shape.c + c] + from_double<T>(double{epsilon}));
    x.values[i] = gamma.values[c] * (x.values[i] - pack.values[c]) * root + beta.values[c];
  }
  return x;
}

struct Case {
  std::size_t replicas = draw_replicas();
  std::size_t others = draw_size("other replicas", 0, 3);
  std::size_t examples = draw_size("examples of a replica", 1, 3);
  Shape all{(replicas + others) * examples, draw_size("channels", 1, 3), draw_size("height", 1, 4),
            draw_size("width", 1, 3)};
  std::uint64_t seed = draw_seed();
  Graph graph;
  NodeId pack, y;
  float epsilon;

  explicit Case(float site_epsilon) : epsilon(site_epsilon) {
    y = graph.bn_sync_site(graph.input("x", all), {"g", "bt", epsilon});
    pack = graph.node(y).operands.at(1);
  }
};

// Every replica normalises as the whole of X does on the statistics that replica was given.
template <class T>
void check_site(const Case& given, const Tensor<T>& all) {
  const Weights weights = drawn_weights(given.graph, given.seed);
  const Family<T> shards = shards_of(given.replicas + given.others, all);
  const NodeId wanted[] = {given.pack, given.y};
  const auto values = denote<T>(given.graph, weights, {shards}, wanted);
  const Tensor<T> x = unshard(
      Family<T>(shards.begin(), shards.begin() + static_cast<std::ptrdiff_t>(given.replicas)));
  for (std::size_t r = 0; r < given.replicas; ++r) {
    const Tensor<T> batch = normalised(x, values[0][r], weights, given.epsilon);
    RC_ASSERT(same(values[1][r], batch_shard(given.replicas, batch, r)));
  }
}

TEST_CASE("P1a: normalise on any given statistics commutes with batch_shard, exactly") {
  check_on_random_cases("P1a over rationals", 150, [] {
    const Case given(0x1p-6F);
    Tensor<Rational> all = fractions(given.all, Random(given.seed, "x"));
    scale_to_rational_roots(all, Rational(1) / 8, Random(given.seed, "scale"));
    check_site(given, all);
  });
}

TEST_CASE("P1a: and bit for bit in float32") {
  check_on_random_cases("P1a over float32", 150, [] {
    const Case given(1e-5F);
    check_site(given, any_floats(given.all, Random(given.seed, "x")));
    check_site(given, reals(given.all, Random(given.seed, "x")));
  });
}

}  // namespace
}  // namespace shardproof
