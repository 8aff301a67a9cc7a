// SumRun: the numbers that one running sum of partial_sums takes. C++17, since nvcc reads it too.
#pragma once

#include <cstdint>

namespace shardproof {

// Every step-th number from `first` on, `count` of them.
struct SumRun {
  std::uint32_t first, count, step;
};

}  // namespace shardproof
