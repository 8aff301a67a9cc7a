#include "properties/identities/identities.h"

namespace shardproof {

const std::vector<Identity>& all_identities() {
  static const std::vector<Identity> identities = {
      owned_programs_reproduce_the_whole_program(),
      slots_that_an_owner_does_not_run_may_start_with_anything(),
      owners_write_their_own_coordinates_and_agree_on_shared_slots(),
      ownership_holds_at_its_corners(),
      any_map_to_owners_keeps_the_identity(),
      reads_across_coordinates_break_ownership(),
      batch_shard_commutes_with_per_example_maps(),
      collectives_give_what_they_say(),
      normalise_commutes_with_batch_shard(),
      replica_moments_give_the_global_ones(),
      sync_bn_is_the_shard_of_batch_bn(),
      running_statistics_follow_the_global_batch(),
      per_replica_bn_is_not_batch_bn(),
      fast_products_agree_with_their_meaning(),
      sync_network_is_the_shard_of_the_batch_network(),
      swapped_rows_change_the_network(),
  };
  return identities;
}

}  // namespace shardproof
