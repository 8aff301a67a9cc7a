#include "device/engine/owned_layout.h"

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>

namespace shardproof {

OwnedLayout::OwnedLayout(std::span<const ParameterShape> shapes, const Ownership& ownership,
                         std::size_t ranks, std::size_t bucket)
    : starts_{0}, owned_(ranks), runs_(ranks) {
  for (const ParameterShape& shape : shapes) starts_.push_back(starts_.back() + shape.size());
  const std::size_t coordinates = starts_.back();
  if (coordinates > std::numeric_limits<Coordinate>::max()) {
    throw std::invalid_argument(std::to_string(coordinates) +
                                " coordinates; a step takes 2^32 - 1");
  }
  if (ownership.owner_of.size() != coordinates) {
    throw std::invalid_argument("the ownership is of " + std::to_string(ownership.owner_of.size()) +
                                " coordinates, the parameters have " + std::to_string(coordinates));
  }
  for (std::size_t i = 0; i < coordinates; ++i) {
    const Owner owner = ownership.owner_of[i];
    if (owner >= ranks) {
      throw std::invalid_argument("coordinate " + std::to_string(i) + " belongs to owner " +
                                  std::to_string(owner) + ", the device has " +
                                  std::to_string(ranks) + " replicas");
    }
    owned_[owner].push_back(static_cast<Coordinate>(i));
  }
  const std::size_t width = bucket == 0 ? std::max<std::size_t>(coordinates, 1) : bucket;
  std::vector<std::size_t> next(ranks, 0);
  for (std::size_t begin = 0; begin < coordinates; begin += std::min(width, coordinates - begin)) {
    const std::size_t end = begin + std::min(width, coordinates - begin);
    Bucket added{positions_, 0, next, std::vector<std::size_t>(ranks)};
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const std::vector<Coordinate>& owned = owned_[rank];
      const auto from = owned.begin() + static_cast<std::ptrdiff_t>(next[rank]);
      const auto last = std::lower_bound(from, owned.end(), end);
      std::size_t position = positions_;
      for (auto at = from; at != last;) {
        const auto after = std::upper_bound(starts_.begin(), starts_.end(), *at);
        const auto stop = std::lower_bound(at, last, *after);
        const auto count = static_cast<std::size_t>(stop - at);
        runs_[rank].push_back({position, static_cast<std::size_t>(at - owned.begin()), count,
                               static_cast<std::size_t>(after - starts_.begin()) - 1});
        position += count;
        at = stop;
      }
      added.count[rank] = static_cast<std::size_t>(last - from);
      added.length = std::max(added.length, added.count[rank]);
      next[rank] += added.count[rank];
    }
    positions_ += added.length;
    buckets_.push_back(std::move(added));
  }
}

}  // namespace shardproof
