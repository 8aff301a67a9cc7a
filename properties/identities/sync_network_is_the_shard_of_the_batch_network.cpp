// The whole net (spec §5). Lean: mnv4FwdGraphSyncFull_shard, stated there at 224²; other sizes and
// widths are our extension.
#include <catch2/catch.hpp>

#include "properties/draws.h"
#include "properties/enclosures.h"
#include "properties/identities/small_network.h"

namespace shardproof {
namespace {

TEST_CASE("mnv4FwdGraphSyncFull_shard: sync-BN MobileNetV4-Conv-M is the shard of batch BN") {
  // At 32² the last stages have one number an example: three examples or more in all. Worst-case
  // radii lose 72 digits on the way: 80 do not suffice, 160 do.
  const SmallNetwork network;
  const std::vector<std::pair<std::size_t, std::vector<std::size_t>>> batches = {
      {30, {1, 2, 3, 5}}, {3, {3}}, {5, {5}}};
  for (const auto& [examples, replica_counts] : batches) {
    const Tensor<float> images = network.images(examples);
    const auto batch = network.batch<160>(images).values;
    for (const std::size_t replicas : replica_counts) {
      CAPTURE(replicas, examples);
      const auto sync = network.sync<160>(replicas, images, network.weights).values;
      const Comparison comparison = compare(sync, batch, 1e-20);
      INFO(comparison);
      CHECK(comparison.outcome == Outcome::agree);
    }
  }
}

}  // namespace
}  // namespace shardproof
