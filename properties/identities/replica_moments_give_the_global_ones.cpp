// P1b (spec §3): how the statistics of equal shards combine. Chan, Golub and LeVeque 1982 for the
// variance. All exact.
#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "properties/unit_cases.h"

namespace shardproof {
namespace {

void moments_combine(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 3> kinds = {
      "{0, 0} and {2, 2}", "every replica constant", "any fractions"};
  const std::size_t kind = draws.kind("kind of numbers", kinds);
  const bool is_witness = kind == 0;
  const DrawnBatch drawn =
      is_witness ? DrawnBatch{2, 2, {4, 1, 1, 1}} : draw_batch(draws, {4, 3, 3, 4});
  const Shape& shape = drawn.shape;
  Tensor<Rational> batch = is_witness ? Tensor<Rational>(shape, {0, 0, 2, 2})
                                      : fractions(shape, Random(draws.seed(), "x"));
  if (kind == 1) {
    const std::size_t block = shape.size() / drawn.replicas;
    for (std::size_t i = 0; i < shape.size(); ++i)
      batch.values[i] = batch.values[i / block * block];
  }
  const Family<Rational> shards = shards_of(drawn.replicas, batch);
  const Rational count = drawn.replicas;
  for (std::size_t c = 0; c < shape.c; ++c) {
    const Moments global = moments(batch, c);
    Rational mean = 0, second = 0, chan = 0, plain = 0, between = 0;
    for (const Tensor<Rational>& shard : shards) {
      const Moments own = moments(shard, c);
      const Rational distance = own.mean - global.mean;
      mean += own.mean;
      second += own.second;
      plain += own.variance;
      between += distance * distance;
      chan += own.variance + distance * distance;
    }
    claim(mean == count * global.mean, "the global mean is the mean of the replicas'");
    claim(second == count * global.second, "the global second moment is the mean of the replicas'");
    claim(global.second - global.mean * global.mean == global.variance,
          "the variance is the second moment less the mean's square");
    claim(chan == count * global.variance, "Chan's formula gives the global variance");
    claim(count * global.variance - plain == between,
          "the plain mean of the variances is short by the variance of the means");
    claim(between == 0 || plain < count * global.variance,
          "it falls short wherever the means differ");
    if (kind != 2) claim(plain == 0, "constant replicas have no variance");
    if (is_witness) claim(global.variance == 1, "the variance of {0, 0, 2, 2} is 1");
  }
}

// Each replica's statistics, their all-reduces, and both against those of the batch.
void on_the_device(Draws& draws, Trial& trial) {
  static constexpr std::array sites = {UnitOperation::bn_site, UnitOperation::bn_site_with_relu};
  claim_unit_agrees(draw_unit_case(draws, sites), trial, [](const Comparison& comparison) {
    return !comparison.part.starts_with("y ");
  });
}

}  // namespace

Identity replica_moments_give_the_global_ones() {
  return {.name = "replica-moments-give-the-global-ones",
          .label = "P1b",
          .statement =
              "The global mean, second moment and variance follow from the replicas'; the "
              "plain mean of their variances is not the variance.",
          .theorem = "",
          .properties = {{.name = "exactly", .holds = moments_combine},
                         {.name = "statistics of a site on the device",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
