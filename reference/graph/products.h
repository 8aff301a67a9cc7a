// The product nodes of a graph on given operands: convolution, depthwise and dense (spec §4), with
// what a judge needs of each output beside its value: a bound on Σ|t|, one on Σt², and when no
// partial sum can round (docs/bounds.md, "Products").
//
// An output is Σ t over its terms t = w·x; a tap that falls on padding is a term of zero. With
// float32 operands every t is exact in float64, so the value errs by its additions alone. Results
// are handed out tile by tile while they are in cache; how a product is cut depends on its shape
// alone, so the numbers do not depend on the number of threads.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "reference/graph/tensor.h"

namespace shardproof {

enum class ProductKind { convolution, depthwise, dense };

// Weights: convolution {out, in, k, k}, depthwise {C, 1, k, k}, dense {1, 1, in, out}. Dense reads
// an example's numbers flat and gives {N, out, 1, 1}. Padding after the end follows from y's
// extents.
struct ProductGeometry {
  ProductKind kind = ProductKind::convolution;
  Shape x;
  Shape y;
  std::size_t kernel = 1;
  std::size_t stride = 1;
  std::size_t pad_begin = 0;

  std::size_t terms() const;          // K: terms of one output, padding included
  std::size_t weight_size() const;    // numbers of the weight
  std::size_t multiply_adds() const;  // of all outputs
};

enum class ProductNeeds { value, magnitude, squares };  // each includes those before it

// A line of operands (the weights of one output channel, or what one output pixel reads) whose
// numbers are all zero: an integer multiple of any quantum.
inline constexpr int any_quantum = 1 << 16;

// Outputs of `channels` channels at `pixels` consecutive pixels (row-major in a plane) of one
// image. Output (c, p) lies at c * row_stride + p of the arrays. With ProductNeeds::value, only
// `value` is set.
struct ProductTile {
  unsigned worker = 0;  // below max(threads, 1): tiles of one worker come one after the other
  std::size_t image = 0;
  std::size_t first_channel = 0, channels = 0;
  std::size_t first_pixel = 0, pixels = 0;
  std::size_t row_stride = 0;
  const double* value = nullptr;     // |value − Σt| ≤ product_radius(terms) · magnitude
  const float* magnitude = nullptr;  // ≥ Σ|t|; infinity where not finite
  const float* squares = nullptr;    // ≥ Σt²; infinity where not finite

  // Every term of output (c, p) is an integer times 2^(row_quantum[c] + column_quantum[p]), and at
  // most min(row_terms[c], column_terms[p]) of them are not zero. (Depthwise: what concerns the
  // image's plane is in the row.)
  std::span<const int> row_quantum, row_terms;        // one a channel
  std::span<const int> column_quantum, column_terms;  // one a pixel

  // True only if no partial sum of output (c, p) rounds, in any order, with or without fused
  // multiply-add, in an accumulator of so many significand bits with float32's range of exponents.
  bool sum_is_exact(std::size_t c, std::size_t p, int significand_bits) const;
};

using ProductSink = std::function<void(const ProductTile&)>;

// Evaluates the node on the examples of x, one span each; sink runs concurrently on different
// tiles, which together hold every output once.
void for_each_product_tile(const ProductGeometry& geometry,
                           std::span<const std::span<const float>> x, std::span<const float> weight,
                           ProductNeeds needs, unsigned threads, const ProductSink& sink);
void for_each_product_tile(const ProductGeometry& geometry, std::span<const float> x,
                           std::span<const float> weight, ProductNeeds needs, unsigned threads,
                           const ProductSink& sink);

// The values alone, of float64 operands. Their error is at most product_radius(terms) · Σ|t|,
// unless a product underflows.
void for_each_product_tile(const ProductGeometry& geometry, std::span<const double> x,
                           std::span<const float> weight, unsigned threads,
                           const ProductSink& sink);

// (K + 1) · 2^-53 and its own second order: K roundings of a sum in any order, one for Eigen's
// panels (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., lemma 3.1).
double product_radius(std::size_t terms);

}  // namespace shardproof
