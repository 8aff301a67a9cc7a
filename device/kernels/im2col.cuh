// Convolution as a matrix product: columns [channels·kernel·kernel, out_height·out_width] of one
// image [channels, height, width], so that weight · columns is the output. Padding is zero.
#pragma once

#include <cstddef>

#include "device/kernels/windows.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Grid: ⌈channels·kernel² · strips_per_plane / window_block⌉ blocks.
__global__ void im2col(const float* image, std::size_t channels, std::size_t kernel_size,
                       WindowGeometry geometry, float* columns) {
  const Strip strip = own_strip(geometry);
  const std::size_t taps = kernel_size * kernel_size;
  const std::size_t channel = strip.plane / taps;
  if (channel >= channels) return;
  const std::size_t ky = strip.plane % taps / kernel_size;
  const std::size_t kx = strip.plane % kernel_size;
  const float* const plane = image + channel * geometry.height * geometry.width;
  float* const out = columns + strip.plane * geometry.out_height * geometry.out_width;
  const std::size_t at_x = strip.column * geometry.stride + kx;
  const bool inside_x = at_x >= geometry.pad && at_x < geometry.width + geometry.pad;
  for (std::size_t row = strip.first_row; row < strip.last_row; ++row) {
    const std::size_t at_y = row * geometry.stride + ky;
    const bool inside = inside_x && at_y >= geometry.pad && at_y < geometry.height + geometry.pad;
    out[row * geometry.out_width + strip.column] =
        inside ? plane[(at_y - geometry.pad) * geometry.width + (at_x - geometry.pad)] : 0.0f;
  }
}

}  // namespace shardproof::SHARDPROOF_BACKEND
