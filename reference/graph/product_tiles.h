// How a product node is laid out as one matrix product, W [rows × terms] · X [terms × columns], and
// cut into tiles. Rows are output channels; a column is one output pixel of one image, images one
// after the other; a term is one (input channel, ky, kx).
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include "reference/graph/products.h"

namespace shardproof {

struct ProductCut {
  std::size_t first_row = 0, rows = 0;
  std::size_t first_column = 0, columns = 0;
};

// Throws std::logic_error unless the shapes fit the geometry and the operands' lengths.
void check_product(const ProductGeometry& geometry, std::size_t x_size, std::size_t weight_size);

// The tiles of a convolution or dense product; a function of the geometry alone.
std::vector<ProductCut> cut_product(const ProductGeometry& geometry);

// Eigen's blocking follows the caches it finds, and with it the order of additions: this fixes it.
// Called before any product of the reference.
void fix_eigen_blocking();

// Writes X[term, first_column … first_column + columns) to out; padding reads as 0.
template <class T>
void gather_term(const ProductGeometry& g, std::span<const T> x, std::size_t term,
                 std::size_t first_column, std::size_t columns, T* out) {
  const Shape in = g.kind == ProductKind::dense ? Shape{g.x.n, g.x.example(), 1, 1} : g.x;
  const std::size_t taps = g.kernel * g.kernel, pixels = g.y.plane();
  const std::size_t channel = term / taps, ky = term % taps / g.kernel, kx = term % g.kernel;
  const std::size_t end = first_column + columns;
  const bool pointwise = taps == 1 && g.stride == 1 && g.pad_begin == 0 && in.plane() == pixels;
  for (std::size_t column = first_column; column < end;) {
    const std::size_t image = column / pixels, pixel = column % pixels;
    const T* plane = x.data() + (image * in.c + channel) * in.plane();
    const std::size_t piece = std::min(end - column, pixels - pixel);
    if (pointwise) {
      out = std::copy_n(plane + pixel, piece, out);
      column += piece;
      continue;
    }
    const std::size_t last = pixel + piece;
    for (std::size_t at = pixel; at < last;) {
      const std::size_t oy = at / g.y.w, ox = at % g.y.w;
      const std::size_t ox_end = std::min(g.y.w, ox + (last - at));
      const std::size_t row = oy * g.stride + ky;  // of the padded input, as `left` below
      if (row < g.pad_begin || row - g.pad_begin >= in.h) {
        out = std::fill_n(out, ox_end - ox, T{0});
      } else {
        const T* line = plane + (row - g.pad_begin) * in.w;
        // Outputs before `inside` read padding on the left, from `outside` on padding on the right.
        const auto first_reading = [&](std::size_t left) {
          return left <= kx ? std::size_t{0} : (left - kx + g.stride - 1) / g.stride;
        };
        const std::size_t inside = std::clamp(first_reading(g.pad_begin), ox, ox_end);
        const std::size_t outside = std::clamp(first_reading(g.pad_begin + in.w), inside, ox_end);
        out = std::fill_n(out, inside - ox, T{0});
        for (std::size_t i = inside, at_x = inside * g.stride + kx - g.pad_begin; i < outside;
             ++i, at_x += g.stride) {
          *out++ = line[at_x];
        }
        out = std::fill_n(out, ox_end - outside, T{0});
      }
      at += ox_end - ox;
    }
    column += piece;
  }
}

}  // namespace shardproof
