// One reduction over ranks: the arithmetic behind the collectives of nccl.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/runtime/host/nccl.h"

namespace shardproof::host {

// In which order the ranks of each chunk of elements are combined.
enum class ReductionOrder { by_rank, ring, tree, permuted };

// Seed 0 combines by rank; else the seed and the number of elements decide, so that a program that
// is run again gives the same bits.
ReductionOrder reduction_order(std::uint64_t seed, std::uint64_t count);

// Bytes of one element; 0 for a type that does not exist.
std::size_t size_of(ncclDataType_t type);

// The reduction of `count` elements of every rank, as bytes.
std::vector<char> reduce(const std::vector<const void*>& ranks, std::size_t count,
                         ncclDataType_t type, ncclRedOp_t operation, std::uint64_t seed);

}  // namespace shardproof::host
