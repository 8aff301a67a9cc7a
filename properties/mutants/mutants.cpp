#include "properties/mutants/by_operation.h"

namespace shardproof {

const std::vector<Mutant>& all_mutants() {
  static const std::vector<Mutant> mutants = [] {
    std::vector<Mutant> all;
    add_channel_mean_mutants(all);
    add_channel_variance_mutants(all);
    add_normalise_mutants(all);
    add_convolution_mutants(all);
    add_depthwise_mutants(all);
    add_pointwise_mutants(all);
    add_global_average_pool_mutants(all);
    add_dense_mutants(all);
    add_all_reduce_mutants(all);
    add_sharded_step_mutants(all);
    add_running_statistics_mutants(all);
    add_layout_mutants(all);
    add_controls(all);
    return all;
  }();
  return mutants;
}

}  // namespace shardproof
