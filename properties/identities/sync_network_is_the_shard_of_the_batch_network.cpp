// The whole net (spec §5). Lean: mnv4FwdGraphSyncFull_shard, stated there at 224²; other sizes and
// widths are our extension.
#include <array>
#include <sstream>

#include "diff/signoff.h"
#include "properties/enclosures.h"
#include "properties/identities/identities.h"
#include "properties/identities/small_network.h"
#include "properties/trial.h"

namespace shardproof {
namespace {

struct Sizes {
  std::size_t replicas, examples;
};
Sizes draw_sizes(Draws& draws) {
  static constexpr std::array<std::string_view, 4> counts = {"1", "2", "3", "5"};
  static constexpr std::array<std::size_t, 4> all_replicas = {1, 2, 3, 5};
  const std::size_t replicas = all_replicas[draws.kind("replicas", counts)];
  const std::size_t fewest = (3 + replicas - 1) / replicas;
  return {replicas, draws.size("examples of a replica", fewest, fewest + 1)};
}

void by_enclosures(Draws& draws, Trial&) {
  const Sizes sizes = draw_sizes(draws);
  const SmallNetwork network(sizes.replicas * sizes.examples, draws.seed());
  const SidesCompared comparison =
      compare(network.sync(sizes.replicas, network.weights), network.batch(), 1e-20);
  std::ostringstream text;
  text << "the replicas' logits are the batch's: the sides " << comparison;
  claim(comparison.outcome == Agreement::agree, text.str());
}

// Every launch, and every distinct unit on inputs of its own.
void on_the_device(Draws& draws, Trial& trial) {
  const Sizes sizes = draw_sizes(draws);
  const std::uint64_t seed = draws.seed();
  const SmallNetwork network(sizes.replicas * sizes.examples, seed);
  const auto device = trial.make(static_cast<int>(sizes.replicas), {seed, {}});
  const SignoffResult result = sign_off(
      *device,
      {network.sync_graph, network.weights, shards_of(sizes.replicas, network.images), seed, 1});
  for (const Comparison& comparison : result.comparisons) {
    claim(comparison.outcome() != Outcome::wrong, describe(comparison));
  }
  claim(result.failure.empty(), result.failure);
  discard_unless(result.verdict() == SignoffResult::Verdict::agrees);
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
                          .one_in = 5000},
                         {.name = "a sixteenth of its width on 32x32, on the device",
                          .form = Property::Form::device,
                          .holds = on_the_device,
                          .one_in = 500}}};
}

}  // namespace shardproof
