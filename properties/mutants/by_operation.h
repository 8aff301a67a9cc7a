// The mutants of each operation, and the controls; each function appends its own.
#pragma once

#include <vector>

#include "properties/mutants/mutant.h"

namespace shardproof {

void add_channel_mean_mutants(std::vector<Mutant>& mutants);
void add_channel_variance_mutants(std::vector<Mutant>& mutants);
void add_normalise_mutants(std::vector<Mutant>& mutants);
void add_convolution_mutants(std::vector<Mutant>& mutants);
void add_depthwise_mutants(std::vector<Mutant>& mutants);
void add_pointwise_mutants(std::vector<Mutant>& mutants);  // ReLU and add
void add_global_average_pool_mutants(std::vector<Mutant>& mutants);
void add_dense_mutants(std::vector<Mutant>& mutants);
void add_all_reduce_mutants(std::vector<Mutant>& mutants);
// Reduce-scatter, all-gather and the owned step.
void add_sharded_step_mutants(std::vector<Mutant>& mutants);
void add_running_statistics_mutants(std::vector<Mutant>& mutants);
void add_layout_mutants(std::vector<Mutant>& mutants);
void add_controls(std::vector<Mutant>& mutants);

}  // namespace shardproof
