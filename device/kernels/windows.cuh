// What convolutions with a window share. One thread walks a strip of output rows down one column,
// so that neighbouring threads touch neighbouring numbers.
#pragma once

#include <cstddef>

#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Output pixel (row, column) reads input rows row·stride − pad … + kernel − 1, columns likewise.
struct WindowGeometry {
  std::size_t height, width, out_height, out_width;
  std::size_t stride, pad;
};

constexpr unsigned window_block = 128;
constexpr std::size_t strip_rows = 8;

// ⌈out_height / strip_rows⌉ · out_width threads cover one plane of outputs.
constexpr std::size_t strips_per_plane(const WindowGeometry& geometry) {
  return (geometry.out_height + strip_rows - 1) / strip_rows * geometry.out_width;
}

struct Strip {
  std::size_t plane, first_row, last_row, column;
};

// The strip of this thread in a grid that covers plane after plane.
__device__ __forceinline__ Strip own_strip(const WindowGeometry& geometry) {
  const std::size_t thread = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const std::size_t strip = thread / geometry.out_width;
  const std::size_t strips = (geometry.out_height + strip_rows - 1) / strip_rows;
  const std::size_t first = strip % strips * strip_rows;
  const std::size_t end = first + strip_rows;
  return {strip / strips, first, end < geometry.out_height ? end : geometry.out_height,
          thread % geometry.out_width};
}

}  // namespace shardproof::SHARDPROOF_BACKEND
