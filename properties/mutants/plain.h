// Plain loops on the C interface of a candidate, from which mutants and controls are made: the
// arithmetic is a template argument, what is wrong a lambda. All indices are checked by nobody: the
// shapes are the caller's.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "device/engine/candidate.h"
#include "reference/numbers/bfloat16.h"

namespace shardproof::plain {

// How a sum is added up and what its terms are rounded to.
struct Recipe {
  enum class Order { forward, backward, strided };
  enum class Sum { float32, float64, bfloat16, float16, tensor_core };
  enum class Operands { float32, tf32, bfloat16, float16 };
  enum class Mean { divide, reciprocal, premultiply };

  Order order = Order::forward;
  unsigned lanes = 1;        // running sums, a power of two, then a tree
  unsigned block = 0;        // sums of so many terms each are added in order; 0: one block
  bool compensated = false;  // Kahan
  bool contracted = false;   // product and sum in one rounding
  Sum sum = Sum::float32;
  Operands operands = Operands::float32;
  Mean mean = Mean::divide;
  bool bias_first = false;
};

inline float to_bfloat16(float x) { return static_cast<float>(double(BFloat16(x))); }
inline float to_float16(float x) { return static_cast<float>(static_cast<_Float16>(x)); }
// To 10 bits of fraction, ties to even.
inline float to_tf32(float x) {
  if (!std::isfinite(x)) return x;
  auto bits = std::bit_cast<std::uint32_t>(x);
  bits += 0xfffU + ((bits >> 13) & 1U);
  return std::bit_cast<float>(bits & ~0x1fffU);
}

template <Recipe recipe>
float operand(float x) {
  switch (recipe.operands) {
    case Recipe::Operands::tf32:
      return to_tf32(x);
    case Recipe::Operands::bfloat16:
      return to_bfloat16(x);
    case Recipe::Operands::float16:
      return to_float16(x);
    default:
      return x;
  }
}

// One running sum.
template <Recipe recipe>
class RunningSum {
 public:
  explicit RunningSum(float start = 0) : sum_(static_cast<double>(start)) {}

  void add(float a, float b) {
    const auto exact = static_cast<double>(a) * static_cast<double>(b);
    const auto sum = static_cast<float>(sum_);
    if constexpr (recipe.compensated) {
      const float y = a * b - lost_;
      const float next = sum + y;
      lost_ = std::isfinite(next) ? (next - sum) - y : 0;
      sum_ = static_cast<double>(next);
    } else if constexpr (recipe.sum == Recipe::Sum::float64) {
      sum_ += exact;
    } else if constexpr (recipe.sum == Recipe::Sum::bfloat16) {
      sum_ = static_cast<double>(to_bfloat16(sum + to_bfloat16(a * b)));
    } else if constexpr (recipe.sum == Recipe::Sum::float16) {
      sum_ = static_cast<double>(to_float16(sum + to_float16(a * b)));
    } else if constexpr (recipe.sum == Recipe::Sum::tensor_core) {
      const double whole = sum_ + static_cast<double>(a * b);
      const auto nearest = static_cast<float>(whole);
      const bool away = std::abs(static_cast<double>(nearest)) > std::abs(whole);
      sum_ = static_cast<double>(away ? std::nextafter(nearest, 0.0F) : nearest);
    } else if constexpr (recipe.contracted) {
      sum_ = static_cast<double>(std::fma(a, b, sum));
    } else {
      sum_ = static_cast<double>(sum + a * b);
    }
  }
  void join(const RunningSum& other) { add(static_cast<float>(other.sum_), 1); }
  float value() const { return static_cast<float>(sum_); }

 private:
  double sum_;
  float lost_ = 0;
};

// start + Σ a(i)·b(i) for i < n.
template <Recipe recipe, class A, class B>
float dot(std::size_t n, A a, B b, float start = 0) {
  const std::size_t block = recipe.block == 0 ? std::max<std::size_t>(n, 1) : recipe.block;
  RunningSum<recipe> total(start);
  for (std::size_t first = 0; first < n; first += block) {
    const std::size_t count = std::min(block, n - first);
    std::vector<RunningSum<recipe>> sums(recipe.lanes);
    if (first == 0 && recipe.block == 0 && recipe.lanes == 1) sums[0] = total;
    for (std::size_t k = 0; k < count; ++k) {
      std::size_t i = first + k;
      if (recipe.order == Recipe::Order::backward) i = first + count - 1 - k;
      if (recipe.order == Recipe::Order::strided) {  // 0, 2, 4 …, then 1, 3, 5 …
        const std::size_t even = (count + 1) / 2;
        i = first + (k < even ? 2 * k : 2 * (k - even) + 1);
      }
      sums[k % recipe.lanes].add(operand<recipe>(a(i)), operand<recipe>(b(i)));
    }
    for (std::size_t half = recipe.lanes / 2; half > 0; half /= 2) {
      for (std::size_t lane = 0; lane < half; ++lane) sums[lane].join(sums[lane + half]);
    }
    if (recipe.block == 0 && recipe.lanes == 1) return sums[0].value();
    total.join(sums[0]);
  }
  return total.value();
}

// (1/divisor) Σ a(i)·b(i).
template <Recipe recipe, class A, class B>
float mean_of_products(std::size_t n, A a, B b, float divisor) {
  if constexpr (recipe.mean == Recipe::Mean::premultiply) {
    const float share = 1 / divisor;
    return dot<recipe>(
        n, [&](std::size_t i) { return a(i) * b(i); }, [&](std::size_t) { return share; });
  }
  const float sum = dot<recipe>(n, a, b);
  return recipe.mean == Recipe::Mean::reciprocal ? sum * (1 / divisor) : sum / divisor;
}
template <Recipe recipe, class A>
float mean_of(std::size_t n, A a) {
  return mean_of_products<recipe>(
      n, a, [](std::size_t) { return 1.0F; }, static_cast<float>(n));
}

inline float* values(const shardproof_tensor& tensor) { return static_cast<float*>(tensor.data); }
inline std::size_t extent(const shardproof_tensor& tensor, std::size_t axis) {
  return static_cast<std::size_t>(tensor.shape[axis]);
}
inline std::size_t count(const shardproof_tensor& tensor) {
  std::size_t product = 1;
  for (std::uint32_t axis = 0; axis < tensor.rank; ++axis) product *= extent(tensor, axis);
  return product;
}
inline float relu(float x) { return x < 0 ? 0 : x; }

// One channel of x [N, C, plane].
struct Channel {
  const float* x;
  std::size_t examples, channels, plane, c;

  std::size_t size() const { return examples * plane; }
  std::size_t place(std::size_t i) const { return (i / plane * channels + c) * plane + i % plane; }
  float operator()(std::size_t i) const { return x[place(i)]; }
  Channel other(std::size_t channel) const { return {x, examples, channels, plane, channel}; }
};
inline Channel channel_of(const shardproof_tensor& x, std::size_t c) {
  return {values(x), extent(x, 0), extent(x, 1), extent(x, 2), c};
}

// mean[c] = f(channel).
template <class F>
int each_mean(const shardproof_channel_mean* call, F f) {
  for (std::size_t c = 0; c < extent(call->x, 1); ++c) {
    values(call->mean)[c] = f(channel_of(call->x, c));
  }
  return 0;
}
// variance[c] = f(channel, own mean, mean).
template <class F>
int each_variance(const shardproof_channel_variance* call, F f) {
  for (std::size_t c = 0; c < extent(call->x, 1); ++c) {
    values(call->variance)[c] =
        f(channel_of(call->x, c), values(call->own_mean)[c], values(call->mean)[c]);
  }
  return 0;
}

template <Recipe recipe>
int channel_mean(const shardproof_channel_mean* call) {
  return each_mean(call, [](Channel x) { return mean_of<recipe>(x.size(), x); });
}
// (1/m) Σ (x − about)².
template <Recipe recipe>
float second_moment(const Channel& x, float about) {
  const auto deviation = [&](std::size_t i) { return x(i) - about; };
  return mean_of_products<recipe>(x.size(), deviation, deviation, static_cast<float>(x.size()));
}
template <Recipe recipe>
int channel_variance(const shardproof_channel_variance* call) {
  return each_variance(call, [](Channel x, float own_mean, float mean) {
    const float between = own_mean - mean;
    return second_moment<recipe>(x, own_mean) + between * between;
  });
}

// One element of a normalisation, and what it is computed from.
struct Site {
  float x, mean, variance, gamma, beta, epsilon;

  float root() const { return 1 / std::sqrt(variance + epsilon); }
  float y() const { return (x - mean) * (gamma * root()) + beta; }
};
// y = f(site), then its ReLU where one is asked for. `channel(c, C)` is whose statistics and
// parameters channel c gets.
template <class F, class Of>
int each_normalised(const shardproof_normalise* call, F f, Of channel) {
  const std::size_t channels = extent(call->x, 1), plane = extent(call->x, 2);
  for (std::size_t i = 0; i < count(call->x); ++i) {
    const std::size_t c = channel(i / plane % channels, channels);
    const float y = f(Site{values(call->x)[i], values(call->mean)[c], values(call->variance)[c],
                           values(call->gamma)[c], values(call->beta)[c], call->epsilon});
    values(call->y)[i] = call->relu == 1 ? relu(y) : y;
  }
  return 0;
}
template <class F>
int each_normalised(const shardproof_normalise* call, F f) {
  return each_normalised(call, f, [](std::size_t c, std::size_t) { return c; });
}

// A convolution, or a depthwise one.
struct Correlation {
  const float *x, *weight, *bias;
  std::size_t channels, height, width, outputs, kernel, stride, pad;
  bool depthwise;

  // 0 outside of the image.
  float at(std::size_t n, std::size_t c, std::ptrdiff_t row, std::ptrdiff_t column) const {
    if (row < 0 || column < 0 || row >= static_cast<std::ptrdiff_t>(height) ||
        column >= static_cast<std::ptrdiff_t>(width)) {
      return 0;
    }
    return x[((n * channels + c) * height + static_cast<std::size_t>(row)) * width +
             static_cast<std::size_t>(column)];
  }
  std::size_t in_channels() const { return depthwise ? 1 : channels; }  // of one output
  float filter(std::size_t k, std::size_t c, std::size_t a, std::size_t b) const {
    return weight[((k * in_channels() + c) * kernel + a) * kernel + b];
  }
  // Where tap a of output i lies.
  std::ptrdiff_t tap(std::size_t i, std::size_t a) const {
    return static_cast<std::ptrdiff_t>(i * stride + a) - static_cast<std::ptrdiff_t>(pad);
  }
  std::size_t channel(std::size_t k, std::size_t c) const { return depthwise ? k : c; }
};
// One output's place.
struct Place {
  std::size_t n, k, i, j;
};
// One product of an output's sum: channel c of its inputs, tap (a, b).
struct Tap {
  std::size_t c, a, b;
};
using Product = std::pair<float, float>;

inline Product product(const Correlation& g, const Place& p, const Tap& t) {
  return {g.at(p.n, g.channel(p.k, t.c), g.tap(p.i, t.a), g.tap(p.j, t.b)),
          g.filter(p.k, t.c, t.a, t.b)};
}

// y = bias + Σ over channels and taps of pick(correlation, place, tap).
template <Recipe recipe, class Pick>
int correlate(const shardproof_convolution* call, Pick pick, bool with_bias = true) {
  const bool depthwise = extent(call->weight, 1) == 1 && extent(call->x, 1) == extent(call->y, 1) &&
                         call->header.operation == SHARDPROOF_DEPTHWISE;
  const Correlation g{
      values(call->x),    values(call->weight), values(call->bias), extent(call->x, 1),
      extent(call->x, 2), extent(call->x, 3),   extent(call->y, 1), extent(call->weight, 2),
      call->stride,       call->pad_begin,      depthwise};
  float* y = values(call->y);
  const std::size_t taps = g.kernel * g.kernel;
  std::vector<Product> products(g.in_channels() * taps);
  Place p{};
  for (p.n = 0; p.n < extent(call->y, 0); ++p.n) {
    for (p.k = 0; p.k < g.outputs; ++p.k) {
      for (p.i = 0; p.i < extent(call->y, 2); ++p.i) {
        for (p.j = 0; p.j < extent(call->y, 3); ++p.j) {
          for (std::size_t t = 0; t < products.size(); ++t) {
            products[t] = pick(g, p, Tap{t / taps, t % taps / g.kernel, t % g.kernel});
          }
          const float bias = g.bias == nullptr || !with_bias ? 0 : g.bias[p.k];
          const float sum = dot<recipe>(
              products.size(), [&](std::size_t t) { return products[t].first; },
              [&](std::size_t t) { return products[t].second; }, recipe.bias_first ? bias : 0);
          *y++ = recipe.bias_first || g.bias == nullptr || !with_bias ? sum : sum + bias;
        }
      }
    }
  }
  return 0;
}
template <Recipe recipe>
int convolution(const shardproof_convolution* call) {
  return correlate<recipe>(call, product);
}

// y = f(plane of one image's channel, as a channel of one example).
template <class F>
int each_pooled(const shardproof_unary* call, F f) {
  const std::size_t channels = extent(call->x, 1), plane = extent(call->x, 2);
  for (std::size_t row = 0; row < extent(call->x, 0) * channels; ++row) {
    values(call->y)[row] = f(Channel{values(call->x) + row * plane, 1, 1, plane, 0});
  }
  return 0;
}
template <Recipe recipe>
int global_average_pool(const shardproof_unary* call) {
  return each_pooled(call, [](Channel x) { return mean_of<recipe>(x.size(), x); });
}

// y[n, o] = bias[o] + Σ over i of pick(call, n, o, i).
template <Recipe recipe, class Pick>
int dense_of(const shardproof_dense* call, Pick pick, bool with_bias = true) {
  const std::size_t in = extent(call->x, 1), out = extent(call->y, 1);
  for (std::size_t n = 0; n < extent(call->x, 0); ++n) {
    for (std::size_t o = 0; o < out; ++o) {
      const float bias = call->bias.data == nullptr || !with_bias ? 0 : values(call->bias)[o];
      const float sum = dot<recipe>(
          in, [&](std::size_t i) { return pick(call, n, o, i).first; },
          [&](std::size_t i) { return pick(call, n, o, i).second; }, recipe.bias_first ? bias : 0);
      values(call->y)[n * out + o] = recipe.bias_first ? sum : sum + bias;
    }
  }
  return 0;
}
inline Product dense_product(const shardproof_dense* call, std::size_t n, std::size_t o,
                             std::size_t i) {
  return {values(call->x)[n * extent(call->x, 1) + i],
          values(call->weight)[i * extent(call->y, 1) + o]};
}
template <Recipe recipe>
int dense(const shardproof_dense* call) {
  return dense_of<recipe>(call, dense_product);
}

// y[i] = f(x, i).
template <class F>
int each_unary(const shardproof_unary* call, F f) {
  const float* x = values(call->x);
  for (std::size_t i = 0; i < count(call->x); ++i) values(call->y)[i] = f(x, i);
  return 0;
}
// y[i] = f(a, b, i).
template <class F>
int each_sum(const shardproof_add* call, F f) {
  for (std::size_t i = 0; i < count(call->y); ++i) {
    values(call->y)[i] = f(values(call->a), values(call->b), i);
  }
  return 0;
}

// One replica's part of a collective: receive[i] = f(i, values of the replicas at first + i) for
// i < count elements. Waits for the others before it writes, so that a buffer may be sent and
// received.
template <class F>
int each_reduced(const shardproof_collective_call* call, std::size_t first, F f) {
  const std::size_t replicas = call->header.replicas;
  std::vector<float> result(call->count), terms(replicas);
  for (std::size_t i = 0; i < call->count; ++i) {
    for (std::size_t r = 0; r < replicas; ++r) {
      terms[r] = static_cast<const float*>(call->sends[r])[first + i];
    }
    result[i] = f(i, terms);
  }
  const shardproof_collective* joined = call->header.collective;
  if (joined->barrier(joined) != 0) return 1;
  std::copy(result.begin(), result.end(),
            static_cast<float*>(call->receives[call->header.replica]));
  return joined->barrier(joined);
}
template <class F>
int each_reduced(const shardproof_collective_call* call, F f) {
  return each_reduced(call, 0, f);
}
template <Recipe recipe>
float mean_of_replicas(const std::vector<float>& terms) {
  return mean_of<recipe>(terms.size(), [&](std::size_t r) { return terms[r]; });
}
template <Recipe recipe>
int all_reduce_mean(const shardproof_collective_call* call) {
  return each_reduced(call, [](std::size_t, const std::vector<float>& terms) {
    return mean_of_replicas<recipe>(terms);
  });
}

template <Recipe recipe>
int reduce_scatter_mean(const shardproof_collective_call* call) {
  return each_reduced(
      call, call->header.replica * call->count,
      [](std::size_t, const std::vector<float>& terms) { return mean_of_replicas<recipe>(terms); });
}

// receive[r·count + i] = what rank source(r) sent at place(i), of any type.
template <class Source, class Index>
int gather(const shardproof_collective_call* call, Source source, Index place) {
  const std::size_t bytes = call->dtype == SHARDPROOF_FLOAT32 ? 4 : 2;
  std::vector<char> result(call->header.replicas * call->count * bytes);
  for (std::size_t r = 0; r < call->header.replicas; ++r) {
    for (std::size_t i = 0; i < call->count; ++i) {
      std::memcpy(&result[(r * call->count + i) * bytes],
                  static_cast<const char*>(call->sends[source(r)]) + place(i) * bytes, bytes);
    }
  }
  const shardproof_collective* joined = call->header.collective;
  if (joined->barrier(joined) != 0) return 1;
  std::memcpy(call->receives[call->header.replica], result.data(), result.size());
  return joined->barrier(joined);
}

// running = f(running, batch's value, factor) for means, whose factor is 1, and variances, whose is
// count/(count − 1); nothing for a batch without numbers.
template <class F>
int each_running(const shardproof_running_statistics* call, F f) {
  if (call->count == 0) return 0;
  const auto n = static_cast<double>(call->count);
  const auto unbiased = static_cast<float>(n / (n - 1));
  for (std::size_t c = 0; c < extent(call->mean, 0); ++c) {
    float& mean = values(call->running_mean)[c];
    float& variance = values(call->running_variance)[c];
    mean = f(mean, values(call->mean)[c], 1.0F);
    variance = f(variance, values(call->variance)[c], unbiased);
  }
  return 0;
}

// How many operands a function reads.
inline std::size_t reads_of(std::uint8_t function) {
  return function <= 5 ? 1 : function <= 15 ? 2 : 3;
}

// −0 is below +0.
inline bool is_below(float a, float b) {
  return a < b || (a == b && std::signbit(a) && !std::signbit(b));
}

// function(a, b, c) of an assignment (candidate.h).
inline float apply(const shardproof_assignment& assignment, float a, float b, float c) {
  switch (assignment.function) {
    case 1:
      return a;
    case 2:
      return -a;
    case 3:
      return std::sqrt(a);
    case 4:
      return std::abs(a);
    case 5:
      return a > 0 ? 1.0F : a < 0 ? -1.0F : 0.0F;
    case 6:
      return a + b;
    case 7:
      return a - b;
    case 8:
      return a * b;
    case 9:
      return a / b;
    case 10:
      return is_below(b, a) || std::isnan(b) ? b : a;
    case 11:
      return is_below(a, b) || std::isnan(b) ? b : a;
    case 12:
      return a < b ? 1.0F : 0.0F;
    case 13:
      return a <= b ? 1.0F : 0.0F;
    case 14:
      return a == b ? 1.0F : 0.0F;
    case 15:
      return a != b ? 1.0F : 0.0F;
    case 16:
      return std::fma(a, b, c);
    default:
      return a != 0 ? b : c;
  }
}

// The assignments for owned coordinate first + i, with function(assignment, a, b, c) in place of
// apply.
template <class F>
void step_coordinate(const shardproof_owned_step* call, std::size_t i, F&& function) {
  const std::size_t position = call->first + i;
  const std::size_t element =
      call->element_at != nullptr ? call->element_at[position] : call->first_element + i;
  std::vector<float> temporaries(call->field_count);
  const auto field = [&](std::size_t slot) -> float& {
    return call->fields[slot] != nullptr ? call->fields[slot][position] : temporaries[slot];
  };
  const auto read = [&](std::uint8_t scope, std::size_t slot) {
    switch (scope) {
      case 0:
        return call->shared[slot];
      case 1:
        return call->parameter_values[slot * call->parameters + call->parameter];
      case 2:
        return call->row[slot * call->rows + call->first_row + element / call->columns];
      case 3:
        return call
            ->column[slot * call->all_columns + call->first_column + element % call->columns];
      default:
        return field(slot);
    }
  };
  for (std::size_t k = 0; k < call->assignment_count; ++k) {
    const shardproof_assignment& each = call->assignments[k];
    float operands[3] = {0, 0, 0};
    for (std::size_t n = 0; n < reads_of(each.function); ++n) {
      operands[n] = read(each.read_scopes[n], each.reads[n]);
    }
    field(each.target) = function(each, operands[0], operands[1], operands[2]);
  }
}
template <class F>
int owned_step(const shardproof_owned_step* call, F function) {
  for (std::size_t i = 0; i < call->count; ++i) step_coordinate(call, i, function);
  return 0;
}

// Sums whose first operand is the product that was assigned just before, in one rounding.
struct Fused {
  const shardproof_assignment* product = nullptr;
  float a = 0, b = 0;

  float operator()(const shardproof_assignment& each, float x, float y, float z) {
    const bool fuses = each.function == 6 && product != nullptr && product + 1 == &each &&
                       each.read_scopes[0] == product->target_scope &&
                       each.reads[0] == product->target;
    if (each.function == 8) product = &each, a = x, b = y;
    return fuses ? std::fma(a, b, y) : apply(each, x, y, z);
  }
};

}  // namespace shardproof::plain
