// The witnesses against BN that is not synchronised (spec §3). Lean: dpMeanGrad_ne_globalBatchGrad.
#include "properties/draws.h"
#include "properties/identities/identities.h"

namespace shardproof {
namespace {

// The loss (mean of the slice)²·θ: the mean of the replicas' derivatives in θ exceeds the global
// one by the variance of the replicas' means.
void gradient(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 2> kinds = {"{0} and {2}", "any fractions"};
  const bool is_witness = draws.kind("slices", kinds) == 0;
  const std::size_t replicas = is_witness ? 2 : draws.replicas();
  const std::size_t examples = is_witness ? 1 : draws.size("examples of a replica", 1, 4);
  const Shape shape{replicas * examples, 1, 1, 1};
  const Tensor<Rational> batch =
      is_witness ? Tensor<Rational>(shape, {0, 2}) : fractions(shape, Random(draws.seed(), "x"));
  const auto of = [](const Tensor<Rational>& slice) {
    const Rational mean = moments(slice, 0).mean;
    return Rational(mean * mean);
  };
  Rational data_parallel = 0;
  Tensor<Rational> means({replicas, 1, 1, 1});
  for (std::size_t r = 0; r < replicas; ++r) {
    const Tensor<Rational> slice = batch_shard(replicas, batch, r);
    means.values[r] = moments(slice, 0).mean;
    data_parallel += of(slice) / Rational(replicas);
  }
  const Rational excess = data_parallel - of(batch);
  if (is_witness) {
    claim(data_parallel == 2 && of(batch) == 1,
          "the gradients of {0} and {2} are 2, and globally 1");
  }
  claim(excess == moments(means, 0).variance, "they differ by the variance of the replicas' means");
  claim((excess == 0) ==
            std::equal(means.values.begin() + 1, means.values.end(), means.values.begin()),
        "they are equal only where all means are");
}

// Replicas that each hold one number over and over: on its own statistics every replica gives β,
// globally those away from the global mean do not. ε is such that all roots are rational.
void forward(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 2> kinds = {"{0, 0} and {2, 2}", "any constants"};
  const bool is_witness = draws.kind("slices", kinds) == 0;
  const std::size_t replicas = is_witness ? 2 : draws.replicas();
  const std::size_t examples = is_witness ? 2 : draws.size("examples of a replica", 1, 4);
  const std::size_t channels = is_witness ? 1 : draws.size("channels", 1, 3);
  const std::uint64_t seed = is_witness ? 0 : draws.seed();
  Tensor<Rational> batch({replicas * examples, channels, 1, 1});
  if (is_witness) {
    batch.values = {0, 0, 2, 2};  // ε = 9/16: the root of 1 + ε is 5/4
  } else {
    const Tensor<Rational> constants = fractions({replicas, channels, 1, 1}, Random(seed, "x"));
    for (std::size_t i = 0; i < batch.values.size(); ++i) {
      const std::size_t replica = i / (examples * channels);
      batch.values[i] = constants.values[replica * channels + i % channels];
    }
    scale_to_rational_roots(batch, Rational(3) / 4, Random(seed, "scale"));
  }
  Graph graph;
  const NodeId y = graph.bn_batch_site(graph.input("x", batch.shape), {"g", "bt", 0.5625F});
  const Weights weights = drawn_weights(graph, seed);
  const Tensor<Rational> beta = exact<Rational>(weights.at("bt"));
  const auto own = denote<Rational>(graph, weights, {shards_of(replicas, batch)}, {&y, 1}).front();
  const Tensor<Rational> global = denote_on_one_device(graph, weights, batch);
  for (std::size_t i = 0; i < batch.values.size(); ++i) {
    const std::size_t c = i % channels;
    const Tensor<Rational>& shard = own[i / (examples * channels)];
    claim(shard.values[i % shard.values.size()] == beta.values[c],
          "on its own statistics a constant replica gives β");
    claim((global.values[i] == beta.values[c]) == (batch.values[i] == moments(batch, c).mean),
          "on the global statistics only what equals their mean does");
  }
  if (is_witness) {
    const Rational step = exact<Rational>(weights.at("g")).values[0] * 4 / 5;
    claim(global.values[0] == beta.values[0] - step && global.values[3] == beta.values[0] + step,
          "globally {0, 0} and {2, 2} are 4/5·γ below and above β");
  }
}

}  // namespace

Identity per_replica_bn_is_not_batch_bn() {
  return {.name = "per-replica-bn-is-not-batch-bn",
          .label = "per-replica-witness",
          .statement =
              "Without synchronised statistics neither the gradient nor the forward of the "
              "global batch comes out.",
          .theorem = "dpMeanGrad_ne_globalBatchGrad",
          .properties = {{.name = "gradients of the squared mean", .holds = gradient},
                         {.name = "BN on each replica's own statistics", .holds = forward}}};
}

}  // namespace shardproof
