// OwnedLayout: where the coordinates of parameters lie in the ranks' memory (owned_optimizer.h).
// Positions count through a rank's slices, bucket after bucket, pads included; they are the same
// for the slices of all ranks.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "reference/slots/array_program.h"
#include "reference/slots/ownership.h"

namespace shardproof {

class OwnedLayout {
 public:
  struct Bucket {
    std::size_t position;            // of its slices
    std::size_t length;              // of a slice
    std::vector<std::size_t> first;  // [rank]: index in owned(rank) of its first coordinate
    std::vector<std::size_t> count;  // [rank]: coordinates in its slice, the rest are pads
  };

  // Owned coordinates of one parameter in one slice.
  struct Run {
    std::size_t position;
    std::size_t first;  // index in owned(rank)
    std::size_t count;
    std::size_t parameter;
  };

  // Throws std::invalid_argument when `ownership` does not fit the shapes or has more owners than
  // there are ranks. `bucket`: coordinates in each; 0: all in one.
  OwnedLayout(std::span<const ParameterShape> shapes, const Ownership& ownership, std::size_t ranks,
              std::size_t bucket);

  std::size_t ranks() const { return owned_.size(); }
  std::size_t positions() const { return positions_; }
  const std::vector<Bucket>& buckets() const { return buckets_; }
  // In ascending order.
  const std::vector<Coordinate>& owned(std::size_t rank) const { return owned_[rank]; }
  const std::vector<Run>& runs(std::size_t rank) const { return runs_[rank]; }
  // Of the first coordinate of each parameter, and of the end.
  const std::vector<std::size_t>& starts() const { return starts_; }

  // Where the slice of a rank begins in a full copy, which has ranks·positions numbers.
  std::size_t in_full(const Bucket& bucket, std::size_t rank) const {
    return ranks() * bucket.position + rank * bucket.length;
  }

 private:
  std::vector<std::size_t> starts_;
  std::vector<std::vector<Coordinate>> owned_;
  std::vector<std::vector<Run>> runs_;
  std::vector<Bucket> buckets_;
  std::size_t positions_ = 0;
};

}  // namespace shardproof
