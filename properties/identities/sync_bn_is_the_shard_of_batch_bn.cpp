// P1 (spec §3). Lean: den_bnSyncF_allReduce; den_bnStatsMeanB_allReduce and
// den_bnStatsVarB_allReduce for the statistics handed back, the variance biased.
#include <array>
#include <sstream>

#include "properties/draws.h"
#include "properties/enclosures.h"
#include "properties/identities/identities.h"
#include "properties/unit_cases.h"

namespace shardproof {
namespace {

struct Site {
  Graph sync, batch;
  NodeId mean, variance, y;
  Weights weights;

  Site(Shape shape, float epsilon, std::uint64_t seed) {
    y = sync.bn_sync_site(sync.input("x", shape), {"g", "bt", epsilon});
    const Node& pack = sync.node(sync.node(y).operands.at(1));
    mean = pack.operands.at(0);
    variance = pack.operands.at(1);
    batch.bn_batch_site(batch.input("x", shape), {"g", "bt", epsilon});
    weights = drawn_weights(sync, seed);
  }
};

// With roots that are rational.
void exactly(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, {4, 3, 3, 4});
  const std::uint64_t seed = draws.seed();
  const Site site(drawn.shape, 0x1p-6F, seed);
  Tensor<Rational> x = fractions(drawn.shape, Random(seed, "x"));
  scale_to_rational_roots(x, Rational(1) / 8, Random(seed, "scale"));
  const NodeId wanted[] = {site.mean, site.variance, site.y};
  const auto values =
      denote<Rational>(site.sync, site.weights, {shards_of(drawn.replicas, x)}, wanted);
  for (std::size_t c = 0; c < drawn.shape.c; ++c) {
    const Moments global = moments(x, c);
    for (std::size_t r = 0; r < drawn.replicas; ++r) {
      claim(values[0][r].values[c] == global.mean, "every replica has the global mean");
      claim(values[1][r].values[c] == global.variance, "every replica has the global variance");
    }
  }
  claim(is_sharded(values[2], denote_on_one_device(site.batch, site.weights, x)),
        "a replica has its shard of batch BN");
}

// Numbers at which rounding shows.
constexpr std::array<std::string_view, 4> kNumbers = {
    "many magnitudes", "a mean far above the deviation", "constant", "one huge number"};
Tensor<float> strained(Shape shape, std::size_t kind, std::uint64_t seed) {
  Tensor<float> x = reals(shape, Random(seed, "x"));
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

// Both sides on drawn numbers at a drawn ε.
struct Sides {
  DrawnBatch drawn;
  Tensor<float> x;
  Site site;

  // In the order of the batch.
  template <class Real>
  auto over() const {
    const auto sync = denote<Real>(site.sync, site.weights,
                                   {shards_of(drawn.replicas, exact<Real>(x))}, {&site.y, 1});
    const auto batch = denote_on_one_device(site.batch, site.weights, exact<Real>(x));
    return std::pair{unshard(sync.front()).values, batch.values};
  }
};

Sides draw_sides(Draws& draws, Shape largest) {
  static constexpr std::array<std::string_view, 2> epsilons = {"1e-5", "1e-12"};
  const DrawnBatch drawn = draw_batch(draws, largest);
  const std::size_t kind = draws.kind("kind of numbers", kNumbers);
  const float epsilon = draws.kind("epsilon", epsilons) == 0 ? 1e-5F : 1e-12F;
  const std::uint64_t seed = draws.seed();
  return {drawn, strained(drawn.shape, kind, seed), Site(drawn.shape, epsilon, seed)};
}

// Enclosures that meet and are narrow, whatever the root.
void claim_by_enclosures(const Sides& sides) {
  const SidesCompared comparison = compare_sides<30, 80, 160>(
      [&]<int Digits>() { return sides.over<Interval<Digits>>(); }, 1e-20);
  std::ostringstream text;
  text << "a replica has its shard of batch BN: the sides " << comparison;
  claim(comparison.outcome == Agreement::agree, text.str());
}

void by_enclosures(Draws& draws, Trial&) { claim_by_enclosures(draw_sides(draws, {4, 3, 3, 4})); }

void in_float64(Draws& draws, Trial&) {
  const Sides sides = draw_sides(draws, {6, 4, 5, 6});
  const auto [sync, batch] = sides.over<Certified>();
  if (!agree(sync, batch, 1e-9)) claim_by_enclosures(sides);
}

// Statistics, their all-reduces, y on the device's own statistics, and y against its shard.
void on_the_device(Draws& draws, Trial& trial) {
  static constexpr std::array sites = {UnitOperation::bn_site, UnitOperation::bn_site_with_relu};
  claim_unit_agrees(draw_unit_case(draws, sites), trial);
}

}  // namespace

Identity sync_bn_is_the_shard_of_batch_bn() {
  return {
      .name = "sync-bn-is-the-shard-of-batch-bn",
      .label = "P1",
      .statement =
          "A sync-BN site on a replica is the replica's shard of batch BN, and hands "
          "back the global statistics.",
      .theorem = "den_bnSyncF_allReduce, den_bnStatsMeanB_allReduce, den_bnStatsVarB_allReduce",
      .properties = {{.name = "by float64 with a radius, where that decides", .holds = in_float64},
                     {.name = "by enclosures", .holds = by_enclosures, .one_in = 8},
                     {.name = "exactly, with the statistics", .holds = exactly, .one_in = 8},
                     {.name = "a site on the device",
                      .form = Property::Form::device,
                      .holds = on_the_device}}};
}

}  // namespace shardproof
