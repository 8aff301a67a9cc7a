// What the product kernels share below the level of a node: short vectors, scratch memory, copies
// of short lines, and Eigen's product of row-major matrices.
#pragma once

#include <Eigen/Core>
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace shardproof {

// GCC's vectors: wider ones than the machine has become several, so the source is one for all. They
// are passed between inlined functions only, where no calling convention is at stake.
#pragma GCC diagnostic ignored "-Wpsabi"
using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));
using Float8 = float __attribute__((vector_size(32)));
using Int8 = std::int32_t __attribute__((vector_size(32)));
using Long4 = std::int64_t __attribute__((vector_size(32)));
constexpr std::size_t lanes = 8;  // rows of scratch are whole vectors of this many numbers

template <class Vector>
Vector load(const void* from) {
  Vector v;
  std::memcpy(&v, from, sizeof v);
  return v;
}

template <class Vector>
void store(void* to, const Vector& v) {
  std::memcpy(to, &v, sizeof v);
}

constexpr std::size_t round_up(std::size_t n, std::size_t unit) {
  return (n + unit - 1) / unit * unit;
}

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

inline void widen4(const float* x, double* to) {
  store(to, __builtin_convertvector(load<Float4>(x), Double4));
}
inline void widen4(const double* x, double* to) { store(to, load<Double4>(x)); }

// As std::copy_n, in vectors of which the last may overlap the one before: lines are short.
template <class T>
inline void copy_line(const T* from, std::size_t n, double* to) {
  if (n < 4) {
    std::copy_n(from, n, to);
    return;
  }
  for (std::size_t i = 0; i + 4 < n; i += 4) widen4(from + i, to + i);
  widen4(from + n - 4, to + n - 4);
}

inline void copy_line(const float* from, std::size_t n, float* to) {
  if (n < 4) {
    std::copy_n(from, n, to);
    return;
  }
  for (std::size_t i = 0; i + 4 < n; i += 4) store(to + i, load<Float4>(from + i));
  store(to + n - 4, load<Float4>(from + n - 4));
}

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

}  // namespace shardproof
