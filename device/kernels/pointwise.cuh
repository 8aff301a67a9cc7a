// Kernels that treat every number alike. Outputs may be inputs.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

constexpr unsigned pointwise_block = 128;
constexpr unsigned numbers_per_thread = 8;

constexpr std::size_t pointwise_blocks(std::size_t count) {
  constexpr std::size_t numbers = std::size_t{pointwise_block} * numbers_per_thread;
  return (count + numbers - 1) / numbers;
}

// Threads of a block.
constexpr unsigned pointwise_threads(std::size_t count) {
  const std::size_t threads = (count + numbers_per_thread - 1) / numbers_per_thread;
  return threads < pointwise_block ? static_cast<unsigned>(threads) : pointwise_block;
}

// Calls body(i) for this thread's share of the indices below `count`, in a grid of
// pointwise_blocks(count) blocks of pointwise_threads(count) threads.
template <class Body>
__device__ __forceinline__ void for_own_indices(std::size_t count, Body body) {
  std::size_t i = std::size_t{blockIdx.x} * blockDim.x * numbers_per_thread + threadIdx.x;
  for (unsigned n = 0; n < numbers_per_thread && i < count; ++n, i += blockDim.x) body(i);
}

// y = max(x, 0); NaN stays NaN.
__global__ void relu(const float* x, std::size_t count, float* y) {
  for_own_indices(count, [=](std::size_t i) { y[i] = x[i] < 0.0f ? 0.0f : x[i]; });
}

__global__ void add(const float* a, const float* b, std::size_t count, float* y) {
  for_own_indices(count, [=](std::size_t i) { y[i] = a[i] + b[i]; });
}

// The last step of an all-reduced mean: y /= divisor.
__global__ void divide(std::size_t count, float divisor, float* y) {
  for_own_indices(count, [=](std::size_t i) { y[i] /= divisor; });
}

// y [batch, channels, plane] += bias[channel]; a dense layer is the case plane = 1.
__global__ void add_bias(const float* bias, std::size_t count, std::size_t channels,
                         std::size_t plane, float* y) {
  for_own_indices(count, [=](std::size_t i) { y[i] += bias[i / plane % channels]; });
}

// The 16 bits of the nearest bfloat16 number, ties to even; NaN stays NaN.
__device__ __forceinline__ std::uint16_t bfloat16_bits(float x) {
  std::uint32_t bits;
  memcpy(&bits, &x, sizeof bits);
  bits = x != x ? bits | 0x00400000u : bits + 0x7fffu + (bits >> 16 & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

__global__ void to_bfloat16(const float* x, std::size_t count, std::uint16_t* y) {
  for_own_indices(count, [=](std::size_t i) { y[i] = bfloat16_bits(x[i]); });
}

}  // namespace shardproof::SHARDPROOF_BACKEND
