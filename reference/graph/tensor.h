// Shape and Tensor: row-major NCHW numbers (spec §4, "Layout is NCHW, row-major").
// A batch of N examples has shape {N, C, H, W}. A per-channel vector (a mean, a variance, a γ) has
// shape {1, C, 1, 1}. A convolution's weight has shape {out, in, k, k}, a depthwise one {C, 1, k,
// k}, a dense one {1, 1, in, out}.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace shardproof {

struct Shape {
  std::size_t n = 1, c = 1, h = 1, w = 1;
  std::size_t size() const { return n * c * h * w; }
  std::size_t example() const { return c * h * w; }  // numbers of one example
  std::size_t plane() const { return h * w; }        // numbers of one channel of one example
  bool operator==(const Shape&) const = default;
};

// "2x3x224x224"
std::string to_string(const Shape& shape);

template <class T>
struct Tensor {
  Shape shape;
  std::vector<T> values;

  Tensor() = default;
  explicit Tensor(Shape s) : shape(s), values(s.size()) {}
  Tensor(Shape s, std::vector<T> v) : shape(s), values(std::move(v)) {}

  std::size_t index(std::size_t n, std::size_t c, std::size_t h, std::size_t w) const {
    return ((n * shape.c + c) * shape.h + h) * shape.w + w;
  }
  const T& at(std::size_t n, std::size_t c, std::size_t h, std::size_t w) const {
    return values[index(n, c, h, w)];
  }
  T& at(std::size_t n, std::size_t c, std::size_t h, std::size_t w) {
    return values[index(n, c, h, w)];
  }
  std::span<const T> plane(std::size_t n, std::size_t c) const {
    return std::span<const T>(values).subspan((n * shape.c + c) * shape.plane(), shape.plane());
  }
};

// One tensor a replica. Every replica has the same N (spec §2).
template <class T>
using Family = std::vector<Tensor<T>>;

}  // namespace shardproof
