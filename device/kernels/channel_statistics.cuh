// Mean and variance of each channel of x [batch, channels, plane].
//
// Order of every sum here: the m = batch·plane numbers of a channel, image after image, are dealt
// to w running sums in turn (number j to sum j mod w), and the w sums are then added by halves (sum
// i and sum i + w/2, and so on): a binary tree. w, a power of two up to 256, is sum_lanes(m) unless
// the caller asks for another; a contract states it as `lanes`.
#pragma once

#include <cstddef>

#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Running sums for a channel of `count` numbers. Short channels share a warp, long ones take a
// block of many warps.
constexpr int sum_lanes(std::size_t count) {
  if (count < 8) return 1;
  if (count <= 512) return 8;
  if (count <= 2048) return 32;
  if (count <= 8192) return 128;
  return 256;
}

// Threads of a block: whole channels, at most a warp of short ones, or one long one.
constexpr unsigned statistics_block(std::size_t channels, int lanes) {
  const std::size_t threads = channels * static_cast<std::size_t>(lanes);
  if (lanes >= 32) return static_cast<unsigned>(lanes);
  return threads < 32 ? static_cast<unsigned>(threads) : 32;
}

template <int lanes>
constexpr std::size_t statistics_shared_bytes = lanes > 32 ? lanes * sizeof(float) : 0;

// The lane of this thread within its channel, and the channel.
struct ChannelLane {
  std::size_t channel;
  unsigned lane;
};

template <int lanes>
__device__ __forceinline__ ChannelLane channel_lane() {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  return {thread / lanes, static_cast<unsigned>(thread % lanes)};
}

// Σ term(x) over this lane's share of its channel.
template <int lanes, class Term>
__device__ __forceinline__ float lane_sum(const float* x, std::size_t batch, std::size_t channels,
                                          std::size_t plane, ChannelLane own, Term term) {
  float sum = 0.0f;
  std::size_t position = own.lane;
  for (std::size_t image = 0; image < batch; ++image) {
    const float* const row = x + (image * channels + own.channel) * plane;
    for (; position < plane; position += lanes) sum += term(row[position]);
    position -= plane;
  }
  return sum;
}

// The sum of `value` over the lanes of a channel, valid in lane 0. Every thread of the block calls.
template <int lanes>
__device__ __forceinline__ float tree_sum(float value) {
  constexpr int in_warp = lanes < 32 ? lanes : 32;
  if constexpr (lanes > 32) {
    constexpr int warps = lanes / 32;
    float* const sums = shared_memory<float>();
    sums[threadIdx.x] = value;
    __syncthreads();
    if (threadIdx.x >= 32) return 0.0f;
    float of_warp[warps];
    for (int warp = 0; warp < warps; ++warp)
      of_warp[warp] = sums[threadIdx.x + static_cast<unsigned>(32 * warp)];
    for (int half = warps / 2; half > 0; half /= 2) {
      for (int warp = 0; warp < half; ++warp) of_warp[warp] += of_warp[warp + half];
    }
    value = of_warp[0];
  }
  const unsigned lanes_of_block = blockDim.x < 32 ? (1u << blockDim.x) - 1 : 0xffffffffu;
  for (unsigned half = in_warp / 2; half > 0; half /= 2) {
    value += __shfl_down_sync(lanes_of_block, value, half, in_warp);
  }
  return value;
}

// Grid: ⌈channels · lanes / block⌉ blocks of statistics_block(channels, lanes) threads.
template <int lanes>
__global__ void channel_mean(const float* x, std::size_t batch, std::size_t channels,
                             std::size_t plane, float* mean) {
  const ChannelLane own = channel_lane<lanes>();
  const bool present = own.channel < channels;
  float sum = 0.0f;
  if (present) {
    sum = lane_sum<lanes>(x, batch, channels, plane, own, [](float value) { return value; });
  }
  sum = tree_sum<lanes>(sum);
  if (present && own.lane == 0) mean[own.channel] = sum / static_cast<float>(batch * plane);
}

// (1/m) Σ (x − own_mean)² + (own_mean − mean)²: two passes about the replica's own mean, then
// Chan's term.
template <int lanes>
__global__ void channel_variance(const float* x, const float* own_mean, const float* mean,
                                 std::size_t batch, std::size_t channels, std::size_t plane,
                                 float* variance) {
  const ChannelLane own = channel_lane<lanes>();
  const bool present = own.channel < channels;
  float sum = 0.0f;
  if (present) {
    const float centre = own_mean[own.channel];
    sum = lane_sum<lanes>(x, batch, channels, plane, own, [centre](float value) {
      const float deviation = value - centre;
      return deviation * deviation;
    });
  }
  sum = tree_sum<lanes>(sum);
  if (present && own.lane == 0) {
    const float distance = own_mean[own.channel] - mean[own.channel];
    variance[own.channel] = sum / static_cast<float>(batch * plane) + distance * distance;
  }
}

}  // namespace shardproof::SHARDPROOF_BACKEND
