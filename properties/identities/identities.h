// The identities, one file each, in the order of the specification (docs/identities.md).
#pragma once

#include "properties/identity.h"

namespace shardproof {

// §1, slot programs and ownership
Identity owned_programs_reproduce_the_whole_program();
Identity slots_that_an_owner_does_not_run_may_start_with_anything();
Identity owners_write_their_own_coordinates_and_agree_on_shared_slots();
Identity ownership_holds_at_its_corners();
Identity any_map_to_owners_keeps_the_identity();
Identity reads_across_coordinates_break_ownership();
// §2, shards of a batch
Identity batch_shard_commutes_with_per_example_maps();
Identity collectives_give_what_they_say();
// §3, synchronised BatchNorm
Identity normalise_commutes_with_batch_shard();
Identity replica_moments_give_the_global_ones();
Identity sync_bn_is_the_shard_of_batch_bn();
Identity running_statistics_follow_the_global_batch();
Identity per_replica_bn_is_not_batch_bn();
// §4, graph nodes
Identity fast_products_agree_with_their_meaning();
// §5, networks
Identity sync_network_is_the_shard_of_the_batch_network();
Identity swapped_rows_change_the_network();

}  // namespace shardproof
