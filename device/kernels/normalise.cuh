// The pointwise forward of a BN site on given statistics (spec P1a).
#pragma once

#include <cstddef>

#include "device/kernels/pointwise.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

constexpr unsigned normalise_block = 128;

// Threads for one plane, so that each has about eight numbers: a power of two.
constexpr unsigned normalise_lanes(std::size_t plane) {
  unsigned lanes = 1;
  while (lanes < normalise_block && lanes * std::size_t{8} < plane) lanes *= 2;
  return lanes;
}

// y = (x − μ)·(γ·(1/√(σ² + ε))) + β, and ReLU after it when `relu`; NaN stays NaN. The mean is
// subtracted first, since x·scale + (β − μ·scale) cancels when |μ| is large. Root and division are
// rounded correctly, so that the root's error is at most 1.5 ulp, and none at powers of four.
// Grid: ⌈rows · lanes / block⌉ blocks; a row is one channel of one image.
__global__ void normalise(const float* x, const float* mean, const float* variance,
                          const float* gamma, const float* beta, float epsilon, bool relu,
                          std::size_t rows, std::size_t channels, std::size_t plane, unsigned lanes,
                          float* y) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t row = thread / lanes;
  if (row >= rows) return;
  const std::size_t channel = row % channels;
  const float centre = mean[channel];
  const float scale = gamma[channel] * (1.0f / sqrtf(variance[channel] + epsilon));
  const float shift = beta[channel];
  for (std::size_t i = thread % lanes; i < plane; i += lanes) {
    const float value = (x[row * plane + i] - centre) * scale + shift;
    y[row * plane + i] = relu && value < 0.0f ? 0.0f : value;
  }
}

// running = (1 − momentum)·running + momentum·batch for mean and variance [channels]; the variance
// is multiplied by `unbiased` first.
__global__ void running_statistics(const float* mean, const float* variance, std::size_t channels,
                                   float momentum, float unbiased, float* running_mean,
                                   float* running_variance) {
  for_own_indices(channels, [=](std::size_t c) {
    running_mean[c] = (1.0f - momentum) * running_mean[c] + momentum * mean[c];
    running_variance[c] =
        (1.0f - momentum) * running_variance[c] + momentum * (variance[c] * unbiased);
  });
}

}  // namespace shardproof::SHARDPROOF_BACKEND
