// Depthwise convolution: one size × size filter a channel, x [planes, height, width] with planes =
// batch·channels, weight [channels, size, size]. Taps are added in row-major order into one running
// sum; taps outside the image are left out.
#pragma once

#include <cstddef>

#include "device/kernels/windows.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Grid: ⌈planes · strips_per_plane / window_block⌉ blocks. `geometry.stride` is `stride`.
template <int size, int stride>
__global__ void depthwise(const float* x, const float* weight, std::size_t planes,
                          std::size_t channels, WindowGeometry geometry, float* y) {
  const Strip strip = own_strip(geometry);
  if (strip.plane >= planes) return;
  float taps[size * size];
  for (int tap = 0; tap < size * size; ++tap) {
    taps[tap] = weight[strip.plane % channels * (size * size) + static_cast<std::size_t>(tap)];
  }
  const float* const image = x + strip.plane * geometry.height * geometry.width;
  float* const out = y + strip.plane * geometry.out_height * geometry.out_width;
  // Of the input, counted in the padded image: `pad` is added to both sides of a comparison.
  const std::size_t left = strip.column * stride;
  const std::size_t right_edge = geometry.width + geometry.pad;
  const std::size_t bottom_edge = geometry.height + geometry.pad;
  const bool inside = left >= geometry.pad && left + size <= right_edge;
  for (std::size_t row = strip.first_row; row < strip.last_row; ++row) {
    const std::size_t top = row * stride;
    float sum = 0.0f;
    for (int ky = 0; ky < size; ++ky) {
      const std::size_t at_y = top + static_cast<std::size_t>(ky);
      if (at_y < geometry.pad || at_y >= bottom_edge) continue;
      const std::size_t line = (at_y - geometry.pad) * geometry.width;
      if (inside) {
        const float* const window = image + line + (left - geometry.pad);
        for (int kx = 0; kx < size; ++kx) sum += taps[ky * size + kx] * window[kx];
      } else {
        for (int kx = 0; kx < size; ++kx) {
          const std::size_t at_x = left + static_cast<std::size_t>(kx);
          if (at_x < geometry.pad || at_x >= right_edge) continue;
          sum += taps[ky * size + kx] * image[line + (at_x - geometry.pad)];
        }
      }
    }
    out[row * geometry.out_width + strip.column] = sum;
  }
}

}  // namespace shardproof::SHARDPROOF_BACKEND
