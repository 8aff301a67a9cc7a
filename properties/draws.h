// Batches for the identities, each a function of a random stream alone, and what equality means.
#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "properties/identity.h"
#include "reference/graph/batch_shard.h"
#include "reference/graph/denote.h"
#include "reference/graph/graph.h"
#include "reference/numbers/random.h"
#include "reference/numbers/rational.h"

namespace shardproof {

// R replicas of N examples each, and the shape of the batch of all R·N.
struct DrawnBatch {
  std::size_t replicas, examples;
  Shape shape;
};
// With `largest.n` for the most examples of a replica.
inline DrawnBatch draw_batch(Draws& draws, Shape largest) {
  DrawnBatch drawn;
  drawn.replicas = draws.replicas();
  drawn.examples = draws.size("examples of a replica", 1, largest.n);
  drawn.shape = {drawn.replicas * drawn.examples, draws.size("channels", 1, largest.c),
                 draws.size("height", 1, largest.h), draws.size("width", 1, largest.w)};
  return drawn;
}

inline Rational fraction(Random& random) {
  return Rational(random.integer(-60, 60)) / Rational(random.integer(1, 6));
}

inline Tensor<Rational> fractions(Shape shape, Random random) {
  Tensor<Rational> x(shape);
  for (Rational& value : x.values) value = fraction(random);
  return x;
}

// Finite float32 numbers of many magnitudes, so that every order of operations rounds its own way.
inline Tensor<float> reals(Shape shape, Random random) {
  Tensor<float> x(shape);
  for (float& value : x.values) {
    const auto exponent = static_cast<int>(random.integer(-9, 9));
    value = static_cast<float>(random.sign() * std::ldexp(1 + random.uniform(), exponent));
  }
  return x;
}

// The same with zeros of both signs, subnormal and very large numbers, infinities and NaN among
// them.
inline Tensor<float> any_floats(Shape shape, Random random) {
  Tensor<float> x = reals(shape, random);
  const float infinity = std::numeric_limits<float>::infinity();
  for (float& value : x.values) {
    switch (random.below(40)) {
      case 0:
        value = infinity;
        break;
      case 1:
        value = -infinity;
        break;
      case 2:
        value = std::numeric_limits<float>::quiet_NaN();
        break;
      case 3:
        value = 0.0F;
        break;
      case 4:
        value = -0.0F;
        break;
      case 5:
        value =
            static_cast<float>(random.sign() * 0x1p-149 * static_cast<double>(random.below(99)));
        break;
      case 6:
        value = static_cast<float>(random.sign() * std::ldexp(1 + random.uniform(), 126));
        break;
      default:
        break;
    }
  }
  return x;
}

inline Weights drawn_weights(const Graph& graph, std::uint64_t seed) {
  Weights weights;
  for (const Parameter& parameter : graph.parameters()) {
    weights[parameter.name] = reals(parameter.shape, Random(seed, parameter.name));
  }
  return weights;
}

// Over exact numbers: equal.
template <class T>
bool same(const Tensor<T>& a, const Tensor<T>& b) {
  return a.shape == b.shape && a.values == b.values;
}
// Over float32: bit for bit; NaN equals NaN whatever its payload.
inline bool same(const Tensor<float>& a, const Tensor<float>& b) {
  if (a.shape != b.shape) return false;
  for (std::size_t i = 0; i < a.values.size(); ++i) {
    if (std::isnan(a.values[i]) && std::isnan(b.values[i])) continue;
    if (std::bit_cast<std::uint32_t>(a.values[i]) != std::bit_cast<std::uint32_t>(b.values[i])) {
      return false;
    }
  }
  return true;
}

template <class T>
Family<T> shards_of(std::size_t replicas, const Tensor<T>& batch) {
  Family<T> shards;
  for (std::size_t r = 0; r < replicas; ++r) shards.push_back(batch_shard(replicas, batch, r));
  return shards;
}

// Whether replica r of `family` is batch_shard r of `batch`, for every r.
template <class T>
bool is_sharded(const Family<T>& family, const Tensor<T>& batch) {
  for (std::size_t r = 0; r < family.size(); ++r) {
    if (!same(family[r], batch_shard(family.size(), batch, r))) return false;
  }
  return true;
}

// Mean, second moment and biased variance of channel c by their definitions (spec §3), the
// variance in two passes.
struct Moments {
  Rational mean = 0, second = 0, variance = 0;
};
inline Moments moments(const Tensor<Rational>& x, std::size_t c) {
  Moments result;
  const Rational count = x.shape.n * x.shape.plane();
  const auto average = [&](auto term) {
    Rational sum = 0;
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      for (const Rational& value : x.plane(n, c)) sum += term(value);
    }
    return Rational(sum / count);
  };
  result.mean = average([](const Rational& value) { return value; });
  result.second = average([](const Rational& value) { return Rational(value * value); });
  result.variance = average([&](const Rational& value) {
    return Rational((value - result.mean) * (value - result.mean));
  });
  return result;
}

// Scales each channel by a number of its own such that σ² + e² is the square of a rational, and BN
// with ε = e² is exact. With v the channel's variance and any t: (s·t + e)² = s²·v + e² where
// s = 2·e·t / (v − t²).
inline void scale_to_rational_roots(Tensor<Rational>& x, const Rational& e, Random random) {
  for (std::size_t c = 0; c < x.shape.c; ++c) {
    const Rational v = moments(x, c).variance;
    Rational t = 0;
    while (t == 0 || t * t == v) t = fraction(random);
    const Rational s = 2 * e * t / (v - t * t);
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      for (std::size_t i = 0; i < x.shape.plane(); ++i) {
        x.values[x.index(n, c, 0, 0) + i] *= s;
      }
    }
  }
}

}  // namespace shardproof
