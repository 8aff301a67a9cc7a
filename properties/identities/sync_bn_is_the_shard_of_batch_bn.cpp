// P1 (spec §3). Lean: den_bnSyncF_allReduce; den_bnStatsMeanB_allReduce and
// den_bnStatsVarB_allReduce for the statistics handed back, the variance biased.
#include <catch2/catch.hpp>

#include "properties/draws.h"
#include "properties/enclosures.h"
#include "properties/random_cases.h"

namespace shardproof {
namespace {

struct Case {
  std::size_t replicas = draw_replicas();
  Shape shape{replicas * draw_size("examples of a replica", 1, 4), draw_size("channels", 1, 3),
              draw_size("height", 1, 3), draw_size("width", 1, 4)};
  std::uint64_t seed = draw_seed();
};

struct Site {
  Graph sync, batch;
  NodeId mean, variance, y;
  Weights weights;

  Site(const Case& drawn, float epsilon) {
    y = sync.bn_sync_site(sync.input("x", drawn.shape), {"g", "bt", epsilon});
    const Node& pack = sync.node(sync.node(y).operands.at(1));
    mean = pack.operands.at(0);
    variance = pack.operands.at(1);
    batch.bn_batch_site(batch.input("x", drawn.shape), {"g", "bt", epsilon});
    weights = drawn_weights(sync, drawn.seed);
  }
};

TEST_CASE("P1: the sync-BN site is the shard of batch BN and hands back the global statistics") {
  check_on_random_cases("P1 over rationals", 250, [] {
    const Case drawn;
    const Site site(drawn, 0x1p-6F);
    Tensor<Rational> x = fractions(drawn.shape, Random(drawn.seed, "x"));
    scale_to_rational_roots(x, Rational(1) / 8, Random(drawn.seed, "scale"));
    const NodeId wanted[] = {site.mean, site.variance, site.y};
    const auto values =
        denote<Rational>(site.sync, site.weights, {shards_of(drawn.replicas, x)}, wanted);
    for (std::size_t r = 0; r < drawn.replicas; ++r) {
      for (std::size_t c = 0; c < drawn.shape.c; ++c) {
        RC_ASSERT(values[0][r].values[c] == moments(x, c).mean);
        RC_ASSERT(values[1][r].values[c] == moments(x, c).variance);
      }
    }
    RC_ASSERT(is_sharded(values[2], denote_on_one_device(site.batch, site.weights, x)));
  });
}

// Numbers at which rounding shows: many magnitudes, a mean far above the deviation, a constant
// channel, one huge number.
Tensor<float> strained(const Case& drawn, std::size_t kind) {
  Tensor<float> x = reals(drawn.shape, Random(drawn.seed, "x"));
  switch (kind) {
    case 1:
      for (float& value : x.values) value = 1000 + value / 1024;
      break;
    case 2:
      for (float& value : x.values) value = x.values.front();
      break;
    case 3:
      x.values.back() = 0x1p24F;
      break;
    default:
      break;
  }
  return x;
}

TEST_CASE("P1: through the root, at any epsilon, the enclosures meet and are narrow") {
  for (const float epsilon : {1e-5F, 1e-12F}) {
    check_on_random_cases("P1 by enclosures, epsilon " + std::to_string(epsilon), 40, [&] {
      const Case drawn;
      const Site site(drawn, epsilon);
      const Tensor<float> x = strained(drawn, draw_size("kind of numbers", 0, 3));
      const Comparison comparison = compare_sides<30, 80, 160>(
          [&]<int Digits>() {
            using Real = Interval<Digits>;
            const auto sync =
                denote<Real>(site.sync, site.weights, {shards_of(drawn.replicas, exact<Real>(x))},
                             {&site.y, 1})
                    .front();
            const auto batch = denote_on_one_device(site.batch, site.weights, exact<Real>(x));
            return std::pair{unshard(sync).values, batch.values};
          },
          1e-20);
      RC_LOG() << comparison << '\n';
      RC_ASSERT(comparison.outcome == Outcome::agree);
    });
  }
}

}  // namespace
}  // namespace shardproof
