// The sums over one channel's numbers on one replica from which BN statistics follow (spec §3), in
// float64 with rigorous radii, and the magnitudes from which a device's allowance follows.
#pragma once

#include <cstddef>
#include <vector>

#include "reference/graph/tensor.h"
#include "reference/numbers/certified.h"

namespace shardproof {

struct ChannelSums {
  double count = 0;            // m = N·H·W
  Certified sum;               // Σx
  Certified mean;              // μ_r = Σx / m
  Certified variance;          // σ²_r = Σ(x − μ_r)² / m
  double magnitude = 0;        // at least Σ|x|
  double squares = 0;          // at least Σx²
  double largest = 0;          // max |x|
  double centred_squares = 0;  // at least Σ(x − μ_r)²
  double centred_fourths = 0;  // at least Σ(x − μ_r)⁴
};

// Numbers that are not finite make every field of their channel unknown (NaN or infinite).
ChannelSums sums_of_channel(const Tensor<float>& x, std::size_t channel);

// One entry a channel of x. Results do not depend on the number of threads.
std::vector<ChannelSums> channel_sums(const Tensor<float>& x, unsigned threads);

}  // namespace shardproof
