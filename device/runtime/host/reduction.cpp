#include "device/runtime/host/reduction.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <type_traits>
#include <utility>

namespace shardproof::host {
namespace {

// SplitMix64 (Steele, Lea, Flood 2014).
std::uint64_t mix(std::uint64_t z) {
  z += 0x9E3779B97F4A7C15u;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

std::uint32_t bits_of(float value) {
  std::uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(std::uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

struct Bfloat16 {
  std::uint16_t bits;
  static Bfloat16 round(float value) {
    const std::uint32_t wide = bits_of(value);
    if (std::isnan(value)) return {0x7fff};
    return {static_cast<std::uint16_t>((wide + 0x7fff + (wide >> 16 & 1)) >> 16)};
  }
  float value() const { return float_of(std::uint32_t{bits} << 16); }
};

struct Float16 {
  std::uint16_t bits;
  // Nearest, ties to even, by letting one float addition do the rounding.
  static Float16 round(float value) {
    const auto sign = static_cast<std::uint16_t>(bits_of(value) >> 16 & 0x8000);
    const float magnitude = std::fabs(value);
    if (std::isnan(value)) return {0x7fff};
    if (magnitude >= 65520.0f) return {static_cast<std::uint16_t>(sign | 0x7c00)};
    if (magnitude < 0x1p-14f) {  // subnormal: units of 2^-24
      const float units = (magnitude * 0x1p24f + 0x1.8p23f) - 0x1.8p23f;
      return {static_cast<std::uint16_t>(sign | static_cast<std::uint16_t>(units))};
    }
    const std::uint32_t wide = bits_of(magnitude);
    const std::uint32_t rounded = (wide + 0xfff + (wide >> 13 & 1)) >> 13;
    return {static_cast<std::uint16_t>(sign | (rounded - (112u << 10)))};
  }
  float value() const {
    const std::uint32_t exponent = bits >> 10 & 31, fraction = bits & 1023;
    const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
    if (exponent == 0) return sign * static_cast<float>(fraction) * 0x1p-24f;
    if (exponent == 31) return fraction != 0 ? float_of(0x7fffffff) : sign * HUGE_VALF;
    return sign * float_of((exponent + 112) << 23 | fraction << 13);
  }
};

template <class T>
constexpr bool is_rounded = std::is_same_v<T, Bfloat16> || std::is_same_v<T, Float16>;

template <class T>
T combine(T a, T b, ncclRedOp_t operation) {
  if constexpr (is_rounded<T>) {
    return T::round(combine(a.value(), b.value(), operation));
  } else if constexpr (std::is_integral_v<T>) {
    using Wrapping = std::conditional_t<(sizeof(T) < 8), std::uint32_t, std::uint64_t>;
    const auto x = static_cast<Wrapping>(a);
    const auto y = static_cast<Wrapping>(b);
    switch (operation) {
      case ncclProd:
        return static_cast<T>(x * y);
      case ncclMax:
        return std::max(a, b);
      case ncclMin:
        return std::min(a, b);
      default:
        return static_cast<T>(x + y);
    }
  } else {
    switch (operation) {
      case ncclProd:
        return a * b;
      case ncclMax:
        return std::fmax(a, b);
      case ncclMin:
        return std::fmin(a, b);
      default:
        return a + b;
    }
  }
}

template <class T>
T load(const void* from, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + index * sizeof(T), sizeof value);
  return value;
}

// One rank's operand. For an average, 1/R of it where the type has fractions.
template <class T>
T operand(const void* from, std::size_t index, ncclRedOp_t operation, std::size_t ranks) {
  const T value = load<T>(from, index);
  if (operation != ncclAvg) return value;
  if constexpr (is_rounded<T>) {
    const float share = T::round(1.0f / static_cast<float>(ranks)).value();
    return T::round(value.value() * share);
  } else if constexpr (std::is_floating_point_v<T>) {
    return value * (T{1} / static_cast<T>(ranks));
  } else {
    return value;
  }
}

template <class T>
T combine_in_turn(std::vector<T>& values, ncclRedOp_t operation) {
  T result = values[0];
  for (std::size_t i = 1; i < values.size(); ++i) result = combine(result, values[i], operation);
  return result;
}

template <class T>
T combine_as_tree(std::vector<T>& values, ncclRedOp_t operation) {
  for (std::size_t step = 1; step < values.size(); step *= 2) {
    for (std::size_t i = 0; i + step < values.size(); i += 2 * step) {
      values[i] = combine(values[i], values[i + step], operation);
    }
  }
  return values[0];
}

template <class T>
std::vector<char> reduce_as(const std::vector<const void*>& ranks, std::size_t count,
                            ncclRedOp_t operation, std::uint64_t seed) {
  const ReductionOrder kind = reduction_order(seed, count);
  std::vector<std::size_t> order(ranks.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  if (kind == ReductionOrder::permuted || kind == ReductionOrder::tree) {
    for (std::size_t i = order.size(); i > 1; --i) {
      std::swap(order[i - 1], order[mix(mix(seed) ^ count ^ i << 32) % i]);
    }
  }
  const std::size_t chunk = std::max<std::size_t>(1, (count + ranks.size() - 1) / ranks.size());
  std::vector<char> result(count * sizeof(T));
  std::vector<T> values(ranks.size());
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t start = kind == ReductionOrder::ring ? i / chunk + 1 : 0;
    for (std::size_t turn = 0; turn < ranks.size(); ++turn) {
      const std::size_t rank = order[(start + turn) % ranks.size()];
      values[turn] = operand<T>(ranks[rank], i, operation, ranks.size());
    }
    T reduced = kind == ReductionOrder::tree ? combine_as_tree(values, operation)
                                             : combine_in_turn(values, operation);
    if constexpr (std::is_integral_v<T>) {
      using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
      if (operation == ncclAvg) {
        reduced = static_cast<T>(static_cast<Wide>(reduced) / static_cast<Wide>(ranks.size()));
      }
    }
    std::memcpy(result.data() + i * sizeof(T), &reduced, sizeof reduced);
  }
  return result;
}

// Calls with(T{}) for the element type named at run time.
template <class Result, class With>
Result for_type(ncclDataType_t type, With with) {
  switch (type) {
    case ncclInt8:
      return with(std::int8_t{});
    case ncclUint8:
      return with(std::uint8_t{});
    case ncclInt32:
      return with(std::int32_t{});
    case ncclUint32:
      return with(std::uint32_t{});
    case ncclInt64:
      return with(std::int64_t{});
    case ncclUint64:
      return with(std::uint64_t{});
    case ncclFloat16:
      return with(Float16{});
    case ncclFloat32:
      return with(float{});
    case ncclFloat64:
      return with(double{});
    case ncclBfloat16:
      return with(Bfloat16{});
  }
  return Result{};
}

}  // namespace

ReductionOrder reduction_order(std::uint64_t seed, std::uint64_t count) {
  if (seed == 0) return ReductionOrder::by_rank;
  return static_cast<ReductionOrder>(mix(mix(seed) ^ count) % 4);
}

std::size_t size_of(ncclDataType_t type) {
  return for_type<std::size_t>(type, [](auto element) { return sizeof element; });
}

std::vector<char> reduce(const std::vector<const void*>& ranks, std::size_t count,
                         ncclDataType_t type, ncclRedOp_t operation, std::uint64_t seed) {
  return for_type<std::vector<char>>(type, [&](auto element) {
    return reduce_as<decltype(element)>(ranks, count, operation, seed);
  });
}

}  // namespace shardproof::host
