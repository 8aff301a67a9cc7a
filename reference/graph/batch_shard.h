// batch_shard and unshard (spec §2): a batch of R·N examples as R contiguous blocks of N.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/graph/tensor.h"

namespace shardproof {

// Examples r·N … r·N + N − 1 of `batch`, where N = batch.shape.n / replicas.
template <class T>
Tensor<T> batch_shard(std::size_t replicas, const Tensor<T>& batch, std::size_t replica) {
  if (replicas == 0 || batch.shape.n % replicas != 0 || replica >= replicas) {
    throw std::invalid_argument("batch_shard: replica " + std::to_string(replica) + " of " +
                                std::to_string(replicas) + " has no equal share of " +
                                std::to_string(batch.shape.n) + " examples");
  }
  Shape shape = batch.shape;
  shape.n /= replicas;
  const auto first = batch.values.begin() + static_cast<std::ptrdiff_t>(replica * shape.size());
  return {shape, std::vector<T>(first, first + static_cast<std::ptrdiff_t>(shape.size()))};
}

// The batch whose shards are `shards`, in their order: the inverse of batch_shard.
template <class T>
Tensor<T> unshard(const std::vector<Tensor<T>>& shards) {
  Tensor<T> batch;
  batch.shape = shards.at(0).shape;
  batch.shape.n = 0;
  for (const Tensor<T>& shard : shards) {
    Shape one = shard.shape;
    one.n = batch.shape.n;
    if (one != batch.shape) throw std::invalid_argument("unshard: shards of different shapes");
    batch.values.insert(batch.values.end(), shard.values.begin(), shard.values.end());
    batch.shape.n += shard.shape.n;
  }
  return batch;
}

}  // namespace shardproof
