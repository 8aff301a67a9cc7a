// The whole net (spec §5). Lean: mnv4FwdGraphSyncFull_shard, stated there at 224²; other sizes and
// widths are our extension.
#include <array>
#include <sstream>

#include "properties/enclosures.h"
#include "properties/identities/identities.h"
#include "properties/identities/small_network.h"

namespace shardproof {
namespace {

void by_enclosures(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 4> counts = {"1", "2", "3", "5"};
  static constexpr std::array<std::size_t, 4> all_replicas = {1, 2, 3, 5};
  const std::size_t replicas = all_replicas[draws.kind("replicas", counts)];
  const std::size_t fewest = (3 + replicas - 1) / replicas;
  const std::size_t examples = draws.size("examples of a replica", fewest, fewest + 1);
  const SmallNetwork network(replicas * examples, draws.seed());
  const SidesCompared comparison =
      compare(network.sync(replicas, network.weights), network.batch(), 1e-20);
  std::ostringstream text;
  text << "the replicas' logits are the batch's: the sides " << comparison;
  claim(comparison.outcome == Agreement::agree, text.str());
}

}  // namespace

Identity sync_network_is_the_shard_of_the_batch_network() {
  return {.name = "sync-network-is-the-shard-of-the-batch-network",
          .label = "whole-net",
          .statement =
              "Sync-BN MobileNetV4-Conv-M on a replica is the replica's shard of the batch "
              "network.",
          .theorem = "mnv4FwdGraphSyncFull_shard",
          .properties = {{.name = "a sixteenth of its width on 32x32, by enclosures",
                          .holds = by_enclosures,
                          .one_in = 5000}}};
}

}  // namespace shardproof
