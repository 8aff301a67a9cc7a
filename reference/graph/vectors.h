// Short vectors of numbers, and copies of short lines.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

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

inline Double4 widened4(const float* x) {
  return __builtin_convertvector(load<Float4>(x), Double4);
}
inline Double4 absolute(const Double4& x) {
  return std::bit_cast<Double4>(std::bit_cast<Long4>(x) & std::numeric_limits<std::int64_t>::max());
}

inline void widen4(const float* x, double* to) { store(to, widened4(x)); }
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

}  // namespace shardproof
