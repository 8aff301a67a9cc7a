// Who owns which coordinate (spec A1, A5): `mod` as the theorem has it, and the maps of real
// systems. Every total map keeps the identity.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "reference/result.h"
#include "reference/slots/program.h"

namespace shardproof {

struct Ownership {
  std::size_t owners = 1;       // every entry of owner_of is below it
  std::vector<Owner> owner_of;  // of each coordinate
};

// Coordinate i to coordinate_owner(owners, i). owners = 0: each its own owner.
Ownership mod_ownership(std::size_t coordinates, std::size_t owners);

// Contiguous blocks of ⌈coordinates / owners⌉, so that the last may be short or empty: what a
// buffer padded to a multiple of the ranks gives.
Ownership block_ownership(std::size_t coordinates, std::size_t owners);

// Whole parameters, largest first, each to the owner with the fewest coordinates so far (the first
// of equals; parameters of equal size in their order).
Ownership greedy_ownership(std::span<const std::size_t> sizes, std::size_t owners);

// A table from text: whole numbers, one a coordinate, separated by white space; '#' begins a
// comment. An error names line and column: too few or too many, no number, not below `owners`.
// `name` is the file's, for messages.
Result<Ownership> read_ownership(const std::string& name, std::string_view text,
                                 std::size_t coordinates, std::size_t owners);

}  // namespace shardproof
