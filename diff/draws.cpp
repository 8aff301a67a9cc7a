#include "diff/draws.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "reference/graph/channel_sums.h"
#include "reference/graph/parallel.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

enum class ProductDraw {
  small_integers,
  one_hot_operands,
  one_hot_weights,
  wide_operands,
  wide_weights
};
enum class SiteDraw { exact, exact_with_small_epsilon, wide };
enum class PoolDraw { exact, wide };

Family<float> empty_family(const Graph& graph, NodeId input, std::size_t replicas,
                           std::size_t batch) {
  Shape shape = graph.node(input).shape;
  shape.n = batch;
  return Family<float>(replicas, Tensor<float>(shape));
}

// A float32 number whose 24 bits are all in use (odd), of magnitude in [2^exponent,
// 2^(exponent+1)).
float full_width(Random& random, int exponent) {
  const auto bits = static_cast<double>((1U << 23U) | (random.next() & 0x7FFFFFU) | 1U);
  return static_cast<float>(random.sign() * bits * std::ldexp(1.0, exponent - 23));
}

// Odd, of so many bits, either sign.
double odd_integer(Random& random, int bits) {
  const std::uint64_t top = std::uint64_t{1} << static_cast<unsigned>(bits - 1);
  return random.sign() * static_cast<double>(top | random.below(top) | 1U);
}

// Fills `values` from draw(), times a power of two.
template <class Draw>
void fill(std::vector<float>& values, int exponent, Draw draw) {
  const double quantum = std::ldexp(1.0, exponent);
  for (float& value : values) value = static_cast<float>(draw() * quantum);
}

double trit(Random& random) { return static_cast<double>(random.integer(-1, 1)); }

// One 1 in each output channel's weights.
void one_hot_weights(Tensor<float>& weight, bool dense, Random& random) {
  std::fill(weight.values.begin(), weight.values.end(), 0.0F);
  if (dense) {
    for (std::size_t out = 0; out < weight.shape.w; ++out) {
      weight.at(0, 0, random.below(weight.shape.h), out) = 1;
    }
    return;
  }
  const std::size_t row = weight.shape.example();
  for (std::size_t out = 0; out < weight.shape.n; ++out) {
    weight.values[out * row + random.below(row)] = 1;
  }
}

// Ones so far apart that no window of k×k sees two: one channel at every k-th row and column, or
// every channel there when channels are not summed over.
void one_hot_operand(Tensor<float>& x, std::size_t kernel, bool depthwise, bool dense,
                     Random& random) {
  if (dense) {
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      x.values[n * x.shape.example() + random.below(x.shape.example())] = 1;
    }
    return;
  }
  for (std::size_t n = 0; n < x.shape.n; ++n) {
    const std::size_t row = random.below(std::min(kernel, x.shape.h));
    const std::size_t column = random.below(std::min(kernel, x.shape.w));
    for (std::size_t h = row; h < x.shape.h; h += kernel) {
      for (std::size_t w = column; w < x.shape.w; w += kernel) {
        if (depthwise) {
          for (std::size_t c = 0; c < x.shape.c; ++c) x.at(n, c, h, w) = 1;
        } else {
          x.at(n, random.below(x.shape.c), h, w) = 1;
        }
      }
    }
  }
}

Probe product_probe(Graph graph, std::size_t replicas, std::size_t batch, ProductDraw draw,
                    unsigned threads, Random random) {
  Probe probe;
  probe.inputs.push_back(empty_family(graph, graph.inputs()[0], replicas, batch));
  const Node& node = graph.node(graph.output());
  const auto* convolution = std::get_if<Convolution>(&node.operation);
  const auto* depthwise = std::get_if<Depthwise>(&node.operation);
  const auto* dense = std::get_if<Dense>(&node.operation);
  for (const Parameter& parameter : graph.parameters()) {
    probe.weights.emplace(parameter.name, Tensor<float>(parameter.shape));
  }
  const std::string& name = convolution != nullptr ? convolution->weight
                            : depthwise != nullptr ? depthwise->weight
                                                   : dense->weight;
  Tensor<float>& weight = probe.weights.at(name);
  const std::size_t kernel = convolution != nullptr ? convolution->kernel
                             : depthwise != nullptr ? depthwise->kernel
                                                    : 1;
  const std::size_t terms = dense != nullptr ? weight.shape.h : weight.shape.example();
  const auto exponent = [&] { return static_cast<int>(random.integer(-10, 3)); };
  const int weight_exponent = exponent();
  const int operand_exponent = exponent();
  // Σ|t| ≤ 2^23 quanta
  const auto bound =
      static_cast<std::int64_t>(std::min(1023.0, std::sqrt(0x1p23 / static_cast<double>(terms))));
  const auto small = [&](Random& from) { return static_cast<double>(from.integer(-bound, bound)); };
  switch (draw) {
    case ProductDraw::small_integers:
      fill(weight.values, weight_exponent, [&] { return small(random); });
      break;
    case ProductDraw::one_hot_operands:
      for (float& value : weight.values) value = full_width(random, weight_exponent);
      break;
    case ProductDraw::one_hot_weights:
      one_hot_weights(weight, dense != nullptr, random);
      break;
    case ProductDraw::wide_operands:
      fill(weight.values, weight_exponent, [&] { return trit(random); });
      break;
    case ProductDraw::wide_weights:
      fill(weight.values, weight_exponent, [&] { return odd_integer(random, 13); });
      break;
  }
  const std::uint64_t operand_seed = random.next();
  parallel_for(threads, replicas, [&](std::size_t r) {
    Random own(operand_seed, "replica", r);
    std::vector<float>& x = probe.inputs[0][r].values;
    switch (draw) {
      case ProductDraw::small_integers:
        fill(x, operand_exponent, [&] { return small(own); });
        break;
      case ProductDraw::one_hot_operands:
        one_hot_operand(probe.inputs[0][r], kernel, depthwise != nullptr, dense != nullptr, own);
        break;
      case ProductDraw::one_hot_weights:
        for (float& value : x) value = full_width(own, operand_exponent);
        break;
      case ProductDraw::wide_operands:
        fill(x, operand_exponent, [&] { return odd_integer(own, 13); });
        break;
      case ProductDraw::wide_weights:
        fill(x, operand_exponent, [&] { return trit(own); });
        break;
    }
  });
  const std::string* bias = dense != nullptr         ? &dense->bias
                            : convolution != nullptr ? &convolution->bias
                                                     : nullptr;
  if (bias != nullptr && !bias->empty()) {
    const bool one_hot =
        draw == ProductDraw::one_hot_operands || draw == ProductDraw::one_hot_weights;
    // With one-hot operands the product alone fills 24 bits, so the bias is zero there.
    fill(probe.weights.at(*bias).values, weight_exponent + operand_exponent, [&] {
      return one_hot ? 0.0 : random.sign() * static_cast<double>(random.integer(1, 1023));
    });
  }
  probe.graph = std::move(graph);
  return probe;
}

// The whole part of the root of n ≥ 0, for n < 2^52.
std::int64_t whole_root(std::int64_t n) {
  return static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
}

// Three whole numbers whose squares add up to n ≥ 0; none exactly where n is 4^a·(8b + 7)
// (Legendre).
std::optional<std::array<std::int64_t, 3>> three_squares(std::int64_t n, Random& random) {
  std::int64_t part = n;
  while (part != 0 && part % 4 == 0) part /= 4;
  if (part % 8 == 7) return std::nullopt;
  const std::int64_t most = whole_root(n);
  const std::int64_t turn = random.integer(0, most);
  for (std::int64_t i = 0; i <= most; ++i) {
    const std::int64_t x = (i + turn) % (most + 1);
    const std::int64_t rest = n - x * x;
    for (std::int64_t y = 0; 2 * y * y <= rest; ++y) {
      const std::int64_t z = whole_root(rest - y * y);
      if (z * z != rest - y * y) continue;
      return {{random.coin() ? x : -x, random.coin() ? y : -y, random.coin() ? z : -z}};
    }
  }
  return std::nullopt;
}

// Changes four numbers so that they keep their sum and their squares add up to `missing` more;
// false where their sum is no multiple of 4, or no such numbers exist.
bool add_to_squares(const std::array<std::int64_t*, 4>& four, std::int64_t missing,
                    Random& random) {
  std::int64_t sum = 0, squares = missing;
  for (const std::int64_t* const number : four) {
    sum += *number;
    squares += *number * *number;
  }
  squares -= sum * sum / 4;  // of what remains without their mean
  if (sum % 4 != 0 || squares < 0) return false;
  const auto roots = three_squares(squares, random);
  if (!roots) return false;
  // Four numbers of sum 0: half of three ones with signs, whose sum is even as `squares` is.
  const auto [x, y, z] = *roots;
  *four[0] = (sum / 2 + x + y + z) / 2;
  *four[1] = (sum / 2 + x - y - z) / 2;
  *four[2] = (sum / 2 - x + y - z) / 2;
  *four[3] = (sum / 2 - x - y + z) / 2;
  return true;
}

// Two or three numbers of sum 0 whose squares come as near count·variance as any do.
std::vector<std::int64_t> few_deviations(std::size_t count, std::int64_t variance, Random& random) {
  if (count == 2) {
    const auto one =
        static_cast<std::int64_t>(std::nearbyint(std::sqrt(static_cast<double>(variance))));
    return random.coin() ? std::vector{one, -one} : std::vector{-one, one};
  }
  // a, b and −(a + b): 2b = −a ± √(2·squares − 3a²).
  const std::int64_t squares = 3 * variance;
  const std::int64_t most = whole_root(2 * squares / 3);
  const std::int64_t turn = random.integer(0, 2 * most);
  std::vector<std::int64_t> best;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t i = 0; least != 0 && i <= 2 * most; ++i) {
    const std::int64_t a = (i + turn) % (2 * most + 1) - most;
    std::int64_t root = whole_root(2 * squares - 3 * a * a);
    root -= (root + a) % 2 != 0 ? 1 : 0;
    const std::int64_t b = (root - a) / 2;
    const std::int64_t missing = std::abs(squares - 2 * (a * a + a * b + b * b));
    if (missing >= least) continue;
    least = missing;
    best = {a, b, -a - b};
  }
  return best;
}

// `count` whole numbers of sum 0 whose squares add up to count·variance: exactly where that can be
// reached (count·variance is even and count not tiny), else nearly.
std::vector<std::int64_t> deviations(std::size_t count, std::int64_t variance, Random& random) {
  std::vector<std::int64_t> d(count, 0);
  if (count < 2 || variance <= 0) return d;
  if (count < 4) return few_deviations(count, variance, random);
  const double half_width = std::sqrt(1.5 * static_cast<double>(variance));
  // Four numbers settle what the others leave.
  const std::size_t first = random.below(count);
  const auto number = [&](std::size_t i) -> std::int64_t& { return d[(first + i) % count]; };
  const auto another = [&]() -> std::int64_t& { return number(4 + random.below(count - 4)); };
  bool settled = false;
  for (int attempt = 0; !settled && attempt < 16; ++attempt) {
    std::int64_t sum = 0;
    for (std::int64_t& value : d) {
      value = static_cast<std::int64_t>(std::nearbyint(random.triangular(half_width)));
      sum += value;
    }
    while (sum != 0) {
      const std::int64_t step = sum > 0 ? 1 : -1;
      d[random.below(count)] -= step;
      sum -= step;
    }
    if (count > 4) {
      sum = (number(0) + number(1) + number(2) + number(3)) % 4;
      number(0) -= sum;
      number(4) += sum;
    }
    std::int64_t missing = static_cast<std::int64_t>(count) * variance;
    for (const std::int64_t value : d) missing -= value * value;
    // Steps of one among the others, while there is much to settle.
    for (int idle = 0; count >= 8 && std::abs(missing) > variance && idle < 64; ++idle) {
      std::int64_t& a = another();
      std::int64_t& b = another();
      if (&a == &b) continue;
      const std::int64_t step = random.coin() ? 1 : -1;
      const std::int64_t change = 2 * (step * (a - b) + 1);  // (a + step)² + (b − step)² − a² − b²
      if (std::abs(missing - change) >= std::abs(missing)) continue;
      a += step;
      b -= step;
      missing -= change;
      idle = 0;
    }
    const std::array<std::int64_t*, 4> four{&number(0), &number(1), &number(2), &number(3)};
    settled = add_to_squares(four, missing, random);
    // Four numbers alone may not reach it; then they reach the next sum.
    if (!settled && count == 4) settled = add_to_squares(four, missing - 2, random);
  }
  return d;
}

// Means and variances of the replicas of one channel, in quanta and squared quanta: whole numbers
// with Σ(mean_r − mean) = 0 and mean of (variance_r + (mean_r − mean)²) = variance, all variances
// even.
struct ChannelPlan {
  std::int64_t mean = 0;
  std::vector<std::int64_t> offsets, variances;
};

ChannelPlan plan_channel(std::size_t replicas, std::size_t count, std::int64_t variance,
                         Random& random) {
  ChannelPlan plan;
  const auto reach = static_cast<std::int64_t>(std::sqrt(static_cast<double>(variance)) / 2);
  for (int tries = 0; tries < 1000; ++tries) {
    plan.offsets.assign(replicas, 0);
    plan.variances.assign(replicas, variance);
    for (std::size_t r = 0; r + 1 < replicas; ++r) {
      plan.offsets[r] = random.integer(-reach, reach);
      plan.offsets.back() -= plan.offsets[r];
    }
    std::int64_t rest = 0;
    bool fits = std::abs(plan.offsets.back()) <= 2 * reach;
    for (std::size_t r = 0; r < replicas; ++r) {
      const std::int64_t square = plan.offsets[r] * plan.offsets[r];
      std::int64_t spread = random.integer(-variance / 4, variance / 4);
      if (r + 1 == replicas) spread = rest;
      plan.variances[r] = variance - square + spread;
      if (plan.variances[r] % 2 != 0 && r + 1 < replicas) {
        ++plan.variances[r];
        ++spread;
      }
      rest -= spread;
      fits = fits && plan.variances[r] > 0;
    }
    const auto alike = [](const std::vector<std::int64_t>& of_replicas) {
      return std::count(of_replicas.begin(), of_replicas.end(), of_replicas[0]) ==
             static_cast<std::ptrdiff_t>(of_replicas.size());
    };
    if (replicas > 1 && (alike(plan.offsets) || alike(plan.variances))) fits = false;
    if (fits) break;
    plan.offsets.assign(replicas, 0);
    plan.variances.assign(replicas, variance);
  }
  // |mean|·m + Σ|d| stays within 2^24 quanta.
  const double room = 0x1p23 / static_cast<double>(count) - static_cast<double>(4 * reach + 4) -
                      4 * std::sqrt(static_cast<double>(variance));
  if (room >= 2) {
    const auto high = static_cast<std::int64_t>(std::min(room, 0x1p16));
    plan.mean = random.integer(high / 2, high) * (random.coin() ? 1 : -1);
  }
  return plan;
}

Probe site_probe(const Graph& graph, const Unit& unit, std::size_t replicas, std::size_t batch,
                 SiteDraw draw, unsigned threads, Random random) {
  const Shape in = graph.node(unit.operands[0]).shape;
  const std::size_t count = batch * in.plane();
  const int exponent =
      static_cast<int>(draw == SiteDraw::exact_with_small_epsilon ? random.integer(-14, -11)
                                                                  : random.integer(-5, 2));
  const std::int64_t epsilon = 2 * random.integer(1, 6);  // in squared quanta
  Probe probe;
  probe.graph = lifted(graph, unit,
                       static_cast<float>(std::ldexp(static_cast<double>(epsilon), 2 * exponent)));
  probe.inputs.push_back(empty_family(probe.graph, 0, replicas, batch));
  for (const Parameter& parameter : probe.graph.parameters()) {
    Tensor<float> tensor(parameter.shape);
    const bool gamma = parameter.role == Parameter::Role::gamma;
    for (float& value : tensor.values) {
      value = static_cast<float>(
          random.sign() *
          static_cast<double>(gamma ? random.integer(2, 8) : random.integer(1, 31)) /
          (gamma ? 4 : 16));
    }
    probe.weights.emplace(parameter.name, std::move(tensor));
  }
  // σ² + ε = 4^j: the largest j is the one with m·σ² well within 2^24 squared quanta.
  const int largest = std::clamp(
      static_cast<int>(std::floor(std::log2(0x1p22 / static_cast<double>(count)) / 2)), 2, 5);
  const double quantum = std::ldexp(1.0, exponent);
  const std::uint64_t channel_seed = random.next();
  parallel_for(threads, in.c, [&](std::size_t c) {
    Random own(channel_seed, "channel", c);
    const std::int64_t argument = std::int64_t{1} << (2 * own.integer(2, largest));
    const std::int64_t variance = argument - epsilon;
    const ChannelPlan plan = plan_channel(replicas, count, variance, own);
    for (std::size_t r = 0; r < replicas; ++r) {
      Tensor<float>& x = probe.inputs[0][r];
      const auto number = [&](std::size_t i) -> float& {
        return x.values[(i / in.plane() * in.c + c) * in.plane() + i % in.plane()];
      };
      if (draw == SiteDraw::wide) {
        // One pair ±d of 12 bits, d² + d² within 2^24; one number of 24 bits; or a few numbers of
        // one sign.
        const double d = 2049 + 2 * static_cast<double>(own.below(423));
        const bool pair = c % 3 == 0 && count > 1;
        if (c % 3 == 1) {
          x.values[x.index(own.below(batch), c, 0, 0) + own.below(in.plane())] =
              full_width(own, exponent);
          continue;
        }
        const double sign = own.sign();
        const std::size_t first = own.below(count);
        for (std::size_t i = 0; i < std::min<std::size_t>(pair ? 2 : 3, count); ++i) {
          const double value = pair ? (i == 0 ? d : -d) : sign * std::abs(odd_integer(own, 12));
          number((first + i * (1 + count / 3)) % count) = static_cast<float>(value * quantum);
        }
        continue;
      }
      const std::vector<std::int64_t> d = deviations(count, plan.variances[r], own);
      for (std::size_t n = 0; n < batch; ++n) {
        const std::size_t first = x.index(n, c, 0, 0);
        for (std::size_t i = 0; i < in.plane(); ++i) {
          const std::int64_t quanta = plan.mean + plan.offsets[r] + d[n * in.plane() + i];
          x.values[first + i] = static_cast<float>(static_cast<double>(quanta) * quantum);
        }
      }
    }
  });
  return probe;
}

Probe pool_probe(Graph graph, std::size_t replicas, std::size_t batch, PoolDraw draw,
                 Random random) {
  Probe probe;
  probe.inputs.push_back(empty_family(graph, 0, replicas, batch));
  const int exponent = static_cast<int>(random.integer(-10, 3));
  for (Tensor<float>& x : probe.inputs[0]) {
    const std::size_t count = x.shape.plane();
    const auto bound = static_cast<std::int64_t>(0x1p22 / static_cast<double>(count));
    for (std::size_t first = 0; first < x.values.size(); first += count) {
      if (draw == PoolDraw::wide && first / count % 2 == 1) {
        x.values[first + random.below(count)] = full_width(random, exponent);
        continue;
      }
      if (draw == PoolDraw::wide) {
        for (int i = 0; i < 3; ++i) {
          x.values[first + random.below(count)] =
              static_cast<float>(std::ldexp(odd_integer(random, 12), exponent));
        }
        continue;
      }
      std::vector<std::int64_t> numbers(count);
      std::int64_t sum = 0;
      for (std::int64_t& number : numbers) {
        number = random.integer(-bound, bound);
        sum += number;
      }
      numbers[random.below(count)] -= sum % static_cast<std::int64_t>(count);  // a whole mean
      for (std::size_t i = 0; i < count; ++i) {
        x.values[first + i] =
            static_cast<float>(std::ldexp(static_cast<double>(numbers[i]), exponent));
      }
    }
  }
  probe.graph = std::move(graph);
  return probe;
}

Probe add_probe(Graph graph, std::size_t replicas, std::size_t batch, Random random) {
  Probe probe;
  for (const NodeId input : graph.inputs()) {
    probe.inputs.push_back(empty_family(graph, input, replicas, batch));
    for (Tensor<float>& x : probe.inputs.back()) {
      for (float& value : x.values) {
        value = full_width(random, static_cast<int>(random.integer(-12, 12)));
      }
    }
  }
  probe.graph = std::move(graph);
  return probe;
}

// Either sign, magnitude in [2^low, 2^(high + 1)).
double at_magnitude(Random& random, int low, int high) {
  return random.sign() *
         std::ldexp(1 + random.uniform(), static_cast<int>(random.integer(low, high)));
}

float not_finite(Random& random) {
  return random.coin() ? std::numeric_limits<float>::quiet_NaN()
                       : static_cast<float>(random.sign()) * std::numeric_limits<float>::infinity();
}

// Rows of numbers at magnitudes from the subnormals to 2^40, zeros of both signs among them; one
// NaN or infinity.
void fill_with_corners(Tensor<float>& x, Random& random) {
  constexpr std::array<int, 8> kExponents{-143, 0, -126, 40, -60, 20, -20, 2};
  const std::size_t turn = random.below(kExponents.size());
  for (std::size_t i = 0; i < x.values.size(); ++i) {
    const int exponent = kExponents[(i / x.shape.w + turn) % kExponents.size()];
    const double value = random.below(20) == 0 ? 0 : std::ldexp(1 + random.uniform(), exponent);
    x.values[i] = static_cast<float>(random.sign() * value);
  }
  x.values[random.below(x.values.size())] = not_finite(random);
}

// How many kinds of channels there are, and which has subnormal numbers.
constexpr std::size_t kCornerKinds = 8, kSubnormal = 2;

// One channel of a site: `count` numbers on one replica. `kind` is the channel's on all replicas,
// `shared` a stream that all replicas see alike.
void fill_channel_with_corners(std::vector<float>& numbers, std::size_t kind, bool first_replica,
                               double epsilon, Random shared, Random& random) {
  const double constant = at_magnitude(shared, -10, 10);
  const auto fill_from = [&](auto draw) {
    for (float& number : numbers) number = static_cast<float>(draw());
  };
  switch (kind % kCornerKinds) {
    case 0:
      fill_from([&] { return constant; });
      break;
    case 1:
      fill_from([&] { return 1e3 + random.triangular(2); });
      break;
    case kSubnormal:
      fill_from([&] { return at_magnitude(random, -140, -130); });
      break;
    case 3:
      fill_from([&] { return random.triangular(2); });
      numbers[random.below(numbers.size())] = 0x1p30F;
      break;
    case 4:
      fill_from([&] { return std::sqrt(epsilon) / 2 * random.triangular(1); });
      break;
    case 5:
      fill_from([&] { return random.triangular(2); });
      if (first_replica) numbers[random.below(numbers.size())] = not_finite(random);
      break;
    case 6:
      fill_from([&] { return at_magnitude(random, -30, 30); });
      break;
    case 7:
      fill_from([&] { return random.sign() * 0.0; });
      numbers[random.below(numbers.size())] = 1;
      break;
  }
}

// Adds to each number the sum of two numbers uniform in ±h, h = max(sd/2, 2u·(count/lanes)·|mean|),
// and puts them in random order. Numbers that are all zero get h = 1.
void dither_and_permute(std::span<float> numbers, double mean, double deviation, std::size_t lanes,
                        Random& random) {
  const double run = static_cast<double>(numbers.size()) / static_cast<double>(lanes);
  double half_width = std::max(deviation / 2, 2 * 0x1p-24 * run * std::abs(mean));
  if (half_width == 0) half_width = 1;
  for (float& value : numbers) {
    const auto noisy =
        static_cast<float>(static_cast<double>(value) + random.triangular(half_width));
    if (std::isfinite(noisy)) value = noisy;
  }
  random.shuffle(numbers);
}

void dither_channels(Tensor<float>& x, std::size_t lanes, unsigned threads, Random& random) {
  const std::vector<ChannelSums> sums = channel_sums(x, threads);
  const std::size_t plane = x.shape.plane();
  const std::uint64_t seed = random.next();
  parallel_for(threads, x.shape.c, [&](std::size_t c) {
    Random own(seed, "channel", c);
    std::vector<float> numbers(x.shape.n * plane);
    const auto place = [&](std::size_t n) {
      return x.values.begin() + static_cast<std::ptrdiff_t>(x.index(n, c, 0, 0));
    };
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      std::copy_n(place(n), plane, numbers.begin() + static_cast<std::ptrdiff_t>(n * plane));
    }
    dither_and_permute(numbers, sums[c].mean.value,
                       std::sqrt(std::max(sums[c].variance.value, 0.0)), lanes, own);
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(n * plane), plane, place(n));
    }
  });
}

void dither_planes(Tensor<float>& x, std::size_t lanes, unsigned threads, Random& random) {
  // A plane is a channel of a batch of one.
  Tensor<float> planes({1, x.shape.n * x.shape.c, x.shape.h, x.shape.w}, std::move(x.values));
  dither_channels(planes, lanes, threads, random);
  x.values = std::move(planes.values);
}

// Noise uniform in ±rms/16.
void add_noise(std::vector<float>& values, Random& random) {
  double squares = 0;
  for (const float value : values)
    squares += static_cast<double>(value) * static_cast<double>(value);
  double rms = std::sqrt(squares / static_cast<double>(values.size()));
  if (rms == 0) rms = 1;
  for (float& value : values) {
    value = static_cast<float>(static_cast<double>(value) + rms / 16 * (2 * random.uniform() - 1));
  }
}

// Input channel i of `x` becomes channel order[i]; planes of `plane` numbers.
void permute_channels(std::vector<float>& values, std::size_t plane,
                      std::span<const std::size_t> order) {
  const std::vector<float> from = values;
  const std::size_t block = order.size() * plane;
  for (std::size_t first = 0; first < values.size(); first += block) {
    for (std::size_t i = 0; i < order.size(); ++i) {
      std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(first + order[i] * plane), plane,
                  values.begin() + static_cast<std::ptrdiff_t>(first + i * plane));
    }
  }
}

}  // namespace

std::size_t lattice_draws(const Unit& unit) {
  switch (unit.kind) {
    case Unit::Kind::product:
      return 5;
    case Unit::Kind::site:
      return 3;
    case Unit::Kind::pool:
      return 2;
    case Unit::Kind::add:
      return 1;
  }
  return 0;
}

Probe lattice_probe(const Graph& graph, const Unit& unit, std::size_t replicas, std::size_t batch,
                    std::size_t draw, std::uint64_t seed, unsigned threads) {
  Random random(seed, unit.signature, draw);
  switch (unit.kind) {
    case Unit::Kind::product:
      return product_probe(lifted(graph, unit), replicas, draw < 3 ? batch : 1,
                           static_cast<ProductDraw>(draw), threads, random);
    case Unit::Kind::site:
      return site_probe(graph, unit, replicas, batch, static_cast<SiteDraw>(draw), threads, random);
    case Unit::Kind::pool:
      return pool_probe(lifted(graph, unit), replicas, batch, static_cast<PoolDraw>(draw), random);
    case Unit::Kind::add:
      return add_probe(lifted(graph, unit), replicas, batch, random);
  }
  throw std::logic_error("lattice_probe: a unit of no known kind");
}

Probe corner_probe(const Graph& graph, const Unit& unit, std::size_t replicas, std::size_t batch,
                   std::uint64_t seed, unsigned threads) {
  Random random(seed, "corners of " + unit.signature);
  Probe probe;
  const bool site = unit.kind == Unit::Kind::site;
  probe.graph = lifted(graph, unit);
  for (const NodeId input : probe.graph.inputs()) {
    probe.inputs.push_back(empty_family(probe.graph, input, replicas, site ? batch : 1));
  }
  for (const Parameter& parameter : probe.graph.parameters()) {
    Tensor<float> tensor(parameter.shape);
    for (float& value : tensor.values) {
      value = static_cast<float>(site ? parameter.role == Parameter::Role::gamma
                                            ? at_magnitude(random, -8, 8)
                                            : at_magnitude(random, -20, 40)
                                      : at_magnitude(random, -4, 0));
    }
    probe.weights.emplace(parameter.name, std::move(tensor));
  }
  const std::uint64_t own_seed = random.next();
  if (!site) {
    parallel_for(threads, replicas, [&](std::size_t r) {
      Random own(own_seed, "replica", r);
      for (Family<float>& family : probe.inputs) fill_with_corners(family[r], own);
    });
    return probe;
  }
  const Shape in = probe.graph.node(0).shape;
  const std::size_t turn = random.below(kCornerKinds);
  double epsilon = 0;
  for (const Node& node : probe.graph.nodes()) {
    const auto* of_site = std::get_if<BnSync>(&node.operation);
    if (of_site == nullptr) continue;
    epsilon = static_cast<double>(of_site->epsilon);
    // Where x is subnormal, so is y.
    std::vector<float>& beta = probe.weights.at(of_site->beta).values;
    for (std::size_t c = 0; c < in.c; ++c) {
      if ((c + turn) % kCornerKinds != kSubnormal) continue;
      beta[c] = static_cast<float>(at_magnitude(random, -140, -128));
    }
  }
  parallel_for(threads, in.c, [&](std::size_t c) {
    std::vector<float> numbers(batch * in.plane());
    for (std::size_t r = 0; r < replicas; ++r) {
      Random own(own_seed, "replica " + std::to_string(r), c);
      fill_channel_with_corners(numbers, c + turn, r == 0, epsilon, Random(own_seed, "all", c),
                                own);
      Tensor<float>& x = probe.inputs[0][r];
      for (std::size_t n = 0; n < batch; ++n) {
        std::copy_n(numbers.begin() + static_cast<std::ptrdiff_t>(n * in.plane()), in.plane(),
                    x.values.begin() + static_cast<std::ptrdiff_t>(x.index(n, c, 0, 0)));
      }
    }
  });
  return probe;
}

Probe dithered_probe(const Graph& graph, const Unit& unit, const Weights& weights,
                     const std::vector<const Family<float>*>& operands, std::size_t lanes,
                     std::uint64_t seed, unsigned threads) {
  Random random(seed, graph.node(unit.end).name);
  Probe probe;
  probe.graph = lifted(graph, unit);
  for (const Family<float>* family : operands) probe.inputs.push_back(*family);
  for (const Parameter& parameter : probe.graph.parameters()) {
    probe.weights.emplace(parameter.name, weights.at(parameter.name));
  }
  switch (unit.kind) {
    case Unit::Kind::site:
      for (Tensor<float>& x : probe.inputs[0]) dither_channels(x, lanes, threads, random);
      break;
    case Unit::Kind::pool:
      for (Tensor<float>& x : probe.inputs[0]) dither_planes(x, lanes, threads, random);
      break;
    case Unit::Kind::add:
      for (Family<float>& family : probe.inputs) {
        for (Tensor<float>& x : family) add_noise(x.values, random);
      }
      break;
    case Unit::Kind::product: {
      for (Tensor<float>& x : probe.inputs[0]) add_noise(x.values, random);
      const Parameter* weight_parameter = nullptr;
      for (const Parameter& parameter : probe.graph.parameters()) {
        const bool bias = parameter.role == Parameter::Role::dense_bias ||
                          parameter.role == Parameter::Role::convolution_bias;
        if (!bias) weight_parameter = &parameter;
      }
      Tensor<float>& weight = probe.weights.at(weight_parameter->name);
      add_noise(weight.values, random);
      if (unit.windows) {
        for (float& value : weight.values) {
          value = static_cast<float>(random.sign()) * std::abs(value);
        }
        break;
      }
      // The input channels of X and W in one random order, on all replicas.
      const Shape in = probe.graph.node(0).shape;
      const bool dense = weight_parameter->role == Parameter::Role::dense;
      std::vector<std::size_t> order(dense ? in.example() : in.c);
      std::iota(order.begin(), order.end(), std::size_t{0});
      random.shuffle(std::span(order));
      for (Tensor<float>& x : probe.inputs[0]) {
        permute_channels(x.values, dense ? 1 : in.plane(), order);
      }
      permute_channels(weight.values, dense ? weight.shape.w : 1, order);
      break;
    }
  }
  return probe;
}

}  // namespace shardproof
