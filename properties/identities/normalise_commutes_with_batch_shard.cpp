// P1a (spec §3): once the statistics are given, whatever they are, the forward of BN is pointwise
// and commutes with batch_shard. Lean: batchShard_zipWith at the normalisation.
//
// A family of R + E replicas normalises with the statistics of all its examples. Seen from its
// first R replicas, which hold the shards of X, those are statistics given from outside: the other
// replicas hold anything.
#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "properties/unit_cases.h"

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
  std::size_t replicas, others;
  Shape all;
  std::uint64_t seed;
  Graph graph;
  NodeId pack, y;
  float epsilon;

  Case(Draws& draws, float site_epsilon)
      : replicas(draws.replicas()),
        others(draws.size("other replicas", 0, 3)),
        all{(replicas + others) * draws.size("examples of a replica", 1, 3),
            draws.size("channels", 1, 3), draws.size("height", 1, 4), draws.size("width", 1, 3)},
        seed(draws.seed()),
        epsilon(site_epsilon) {
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
    claim(same(values[1][r], batch_shard(given.replicas, batch, r)),
          "a replica normalises as the batch does");
  }
}

void exactly(Draws& draws, Trial&) {
  const Case given(draws, 0x1p-6F);
  Tensor<Rational> all = fractions(given.all, Random(given.seed, "x"));
  scale_to_rational_roots(all, Rational(1) / 8, Random(given.seed, "scale"));
  check_site(given, all);
}

void over_float32(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 2> kinds = {"finite", "any"};
  const bool is_finite = draws.kind("kind of numbers", kinds) == 0;
  const Case given(draws, 1e-5F);
  check_site(given, (is_finite ? reals : any_floats)(given.all, Random(given.seed, "x")));
}

// y on the statistics that the device has.
void on_the_device(Draws& draws, Trial& trial) {
  static constexpr std::array sites = {UnitOperation::bn_site, UnitOperation::bn_site_with_relu};
  claim_unit_agrees(draw_unit_case(draws, sites), trial, [](const Comparison& comparison) {
    return comparison.part == "y on own statistics";
  });
}

}  // namespace

Identity normalise_commutes_with_batch_shard() {
  return {.name = "normalise-commutes-with-batch-shard",
          .label = "P1a",
          .statement = "BN on given statistics, whatever they are, commutes with sharding a batch.",
          .theorem = "batchShard_zipWith",
          .properties = {{.name = "bit for bit over float32", .holds = over_float32},
                         {.name = "exactly", .holds = exactly, .one_in = 8},
                         {.name = "a site on the device, on its own statistics",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
