// P1b (spec §3): how the statistics of equal shards combine. Chan, Golub and LeVeque 1982 for the
// variance. All exact.
#include <catch2/catch.hpp>

#include "properties/draws.h"
#include "properties/random_cases.h"

namespace shardproof {
namespace {

struct Case {
  std::size_t replicas = draw_replicas();
  Shape shape{replicas * draw_size("examples of a replica", 1, 4), draw_size("channels", 1, 3),
              draw_size("height", 1, 3), draw_size("width", 1, 4)};
  std::uint64_t seed = draw_seed();
  Tensor<Rational> batch = fractions(shape, Random(seed, "x"));
  Family<Rational> shards = shards_of(replicas, batch);
  Rational count = replicas;
};

TEST_CASE("P1b: the global mean and second moment are the means of the replicas'") {
  check_on_random_cases("mean of means, mean of second moments", 200, [] {
    const Case drawn;
    for (std::size_t c = 0; c < drawn.shape.c; ++c) {
      Rational mean = 0, second = 0;
      for (const Tensor<Rational>& shard : drawn.shards) {
        mean += moments(shard, c).mean / drawn.count;
        second += moments(shard, c).second / drawn.count;
      }
      RC_ASSERT(mean == moments(drawn.batch, c).mean);
      RC_ASSERT(second == moments(drawn.batch, c).second);
      RC_ASSERT(second - mean * mean == moments(drawn.batch, c).variance);
    }
  });
}

TEST_CASE("P1b: Chan's formula gives the global variance, and the plain mean falls short of it") {
  check_on_random_cases("Chan's formula", 200, [] {
    const Case drawn;
    for (std::size_t c = 0; c < drawn.shape.c; ++c) {
      const Moments global = moments(drawn.batch, c);
      Rational chan = 0, plain = 0, between = 0;
      for (const Tensor<Rational>& shard : drawn.shards) {
        const Moments own = moments(shard, c);
        const Rational distance = own.mean - global.mean;
        chan += (own.variance + distance * distance) / drawn.count;
        plain += own.variance / drawn.count;
        between += distance * distance / drawn.count;
      }
      RC_ASSERT(chan == global.variance);
      // Short by the variance of the replica means: equal only where these are.
      RC_ASSERT(global.variance - plain == between);
      if (between != 0) RC_ASSERT(plain < global.variance);
    }
  });
}

TEST_CASE("P1b: the plain mean of the variances of {0, 0} and {2, 2} is 0, the global one 1") {
  const Tensor<Rational> batch({4, 1, 1, 1}, {0, 0, 2, 2});
  const auto variance = [](const Tensor<Rational>& x) { return moments(x, 0).variance; };
  CHECK((variance(batch_shard(2, batch, 0)) + variance(batch_shard(2, batch, 1))) / 2 == 0);
  CHECK(variance(batch) == 1);
}

}  // namespace
}  // namespace shardproof
