// What the product kernels share: scratch memory, Eigen's product of row-major matrices, and how a
// product node is laid out as one matrix product, W [rows × terms] · X [terms × columns], and cut
// into tiles. Rows are output channels; a column is one output pixel of one image, images one after
// the other; a term is one (input channel, ky, kx).
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <span>
#include <stdexcept>
#include <vector>

#include "reference/graph/products.h"
#include "reference/graph/vectors.h"

namespace shardproof {

// Uninitialised numbers that Eigen may load aligned.
template <class T>
class Scratch {
 public:
  explicit Scratch(std::size_t n = 0) : array_(static_cast<Eigen::Index>(n)) {}
  T* at(std::size_t i) { return array_.data() + i; }
  const T* at(std::size_t i) const { return array_.data() + i; }
  std::span<const T> from(std::size_t i, std::size_t n) const { return {array_.data() + i, n}; }

 private:
  Eigen::Array<T, Eigen::Dynamic, 1> array_;
};

template <class T>
using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

// y [rows × columns, rows `stride` apart] = w [rows × terms] · x [terms × columns, likewise]
template <class T>
void multiply(const T* w, const T* x, T* y, std::size_t rows, std::size_t terms,
              std::size_t columns, std::size_t stride) {
  using Stride = Eigen::OuterStride<>;
  const auto r = static_cast<Eigen::Index>(rows), k = static_cast<Eigen::Index>(terms),
             c = static_cast<Eigen::Index>(columns);
  const Stride outer(static_cast<Eigen::Index>(stride));
  const Eigen::Map<const RowMajor<T>> left(w, r, k);
  const Eigen::Map<const RowMajor<T>, Eigen::Unaligned, Stride> right(x, k, c, outer);
  Eigen::Map<RowMajor<T>, Eigen::Unaligned, Stride>(y, r, c, outer).noalias() = left * right;
}

struct ProductCut {
  std::size_t first_row = 0, rows = 0;
  std::size_t first_column = 0, columns = 0;
};

// Throws std::logic_error unless the shapes fit one another and the weight's length its own.
void check_product(const ProductGeometry& geometry, std::size_t weight_size);

// x cut into its examples. Throws std::logic_error unless x has its shape's length.
template <class T>
std::vector<std::span<const T>> examples_of(const ProductGeometry& g, std::span<const T> x) {
  if (x.size() != g.x.size()) {
    throw std::logic_error("product: the operand's length is not its shape's");
  }
  std::vector<std::span<const T>> examples;
  for (std::size_t n = 0; n < g.x.n; ++n) {
    examples.push_back(x.subspan(n * g.x.example(), g.x.example()));
  }
  return examples;
}

// The tiles of a convolution or dense product; a function of the geometry alone.
std::vector<ProductCut> cut_product(const ProductGeometry& geometry);

// Eigen's blocking follows the caches it finds, and with it the order of additions: this fixes it.
// Called before any product of the reference.
void fix_eigen_blocking();

// Writes X[term, first_column … first_column + columns) to out; padding reads as 0. One span of x
// an example.
template <class T>
void gather_term(const ProductGeometry& g, std::span<const std::span<const T>> x, std::size_t term,
                 std::size_t first_column, std::size_t columns, T* out) {
  const Shape in = g.kind == ProductKind::dense ? Shape{g.x.n, g.x.example(), 1, 1} : g.x;
  const std::size_t taps = g.kernel * g.kernel, pixels = g.y.plane();
  const std::size_t channel = term / taps, ky = term % taps / g.kernel, kx = term % g.kernel;
  const std::size_t end = first_column + columns;
  const bool pointwise = taps == 1 && g.stride == 1 && g.pad_begin == 0 && in.plane() == pixels;
  for (std::size_t column = first_column; column < end;) {
    const std::size_t image = column / pixels, pixel = column % pixels;
    const T* plane = x[image].data() + channel * in.plane();
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

// A padded plane split by the remainders of row and column modulo the stride, so that a tap at any
// stride reads consecutive numbers: output (oy, ox) times tap i reads number
// offset[i] + oy * width + ox. Outputs are computed `width` a row; those past y's width are unused.
struct PhasePlanes {
  std::size_t width, height, size;  // of one phase
  std::vector<std::size_t> offset;  // one a tap

  explicit PhasePlanes(const ProductGeometry& g)
      : width(g.y.w + (g.kernel - 1) / g.stride),
        height(g.y.h + (g.kernel - 1) / g.stride),
        size(width * height) {
    for (std::size_t ky = 0; ky < g.kernel; ++ky) {
      for (std::size_t kx = 0; kx < g.kernel; ++kx) {
        const std::size_t phase = ky % g.stride * g.stride + kx % g.stride;
        offset.push_back(phase * size + ky / g.stride * width + kx / g.stride);
      }
    }
  }

  // The numbers of all phases that carry data; block beyond it may be read.
  std::size_t scratch_size(const ProductGeometry& g, std::size_t block) const {
    return g.stride * g.stride * size + size + block;
  }

  // Writes plane over the interior; the padding around it is left as it is.
  template <class T>
  void copy(const ProductGeometry& g, const T* plane, double* to) const {
    for (std::size_t row = 0; row < g.x.h; ++row) {
      const std::size_t padded_row = row + g.pad_begin;
      if (padded_row / g.stride >= height) break;
      for (std::size_t first = 0; first < std::min(g.stride, g.x.w); ++first) {
        const std::size_t padded = first + g.pad_begin;
        if (padded / g.stride >= width) continue;
        const std::size_t phase = padded_row % g.stride * g.stride + padded % g.stride;
        const T* from = plane + row * g.x.w + first;
        double* line = to + phase * size + padded_row / g.stride * width + padded / g.stride;
        const std::size_t count =
            std::min((g.x.w - first + g.stride - 1) / g.stride, width - padded / g.stride);
        if (g.stride == 1) {
          copy_line(from, count, line);
        } else {
          for (std::size_t i = 0; i < count; ++i) line[i] = from[i * g.stride];
        }
      }
    }
  }
};

}  // namespace shardproof
