// What a sync-BN site hands on to inference (spec §3): running averages of the statistics of the
// global batch, the variance unbiased by the count of all replicas together. PyTorch's convention:
// momentum is the weight of the new batch.
#pragma once

#include <cstddef>
#include <stdexcept>

namespace shardproof {

template <class T>
struct RunningStatistics {
  T mean, variance;
};

// After a batch of `count` numbers a channel with these statistics, the variance biased. A batch
// without numbers leaves the running values alone. Throws std::invalid_argument for one number,
// whose variance has no unbiased estimate.
template <class T>
RunningStatistics<T> updated(const RunningStatistics<T>& running, const T& mean, const T& variance,
                             const T& momentum, std::size_t count) {
  if (count == 0) return running;
  if (count == 1) throw std::invalid_argument("running statistics of one number");
  const T unbiased = variance * T(static_cast<double>(count)) / T(static_cast<double>(count - 1));
  const T kept = T(1.0) - momentum;
  return {kept * running.mean + momentum * mean, kept * running.variance + momentum * unbiased};
}

}  // namespace shardproof
