#include "diff/shrink.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numeric>
#include <optional>
#include <span>
#include <stdexcept>
#include <type_traits>
#include <utility>
#include <vector>

namespace shardproof {
namespace {

enum class Axis { images, channels, outputs, rows, columns };
constexpr std::array<Axis, 5> kAxes{Axis::images, Axis::channels, Axis::outputs, Axis::rows,
                                    Axis::columns};

// ---- Cutting

// The tensor without places first … first + count − 1 of dimension 0 (n) to 3 (w).
Tensor<float> without(const Tensor<float>& tensor, std::size_t dimension, std::size_t first,
                      std::size_t count) {
  const std::array<std::size_t, 4> extents{tensor.shape.n, tensor.shape.c, tensor.shape.h,
                                           tensor.shape.w};
  std::size_t inner = 1;
  for (std::size_t d = dimension + 1; d < 4; ++d) inner *= extents[d];
  std::array<std::size_t, 4> kept = extents;
  kept[dimension] -= count;
  Tensor<float> result({kept[0], kept[1], kept[2], kept[3]}, {});
  result.values.reserve(result.shape.size());
  for (std::size_t i = 0; i < tensor.values.size(); ++i) {
    const std::size_t place = i / inner % extents[dimension];
    if (place < first || place >= first + count) result.values.push_back(tensor.values[i]);
  }
  return result;
}

std::size_t extent(const UnitCase& c, Axis axis) {
  const Shape& in = c.inputs.at(0).at(0).shape;
  switch (axis) {
    case Axis::images:
      return in.n;
    case Axis::channels:
      return in.c;
    case Axis::outputs:
      return std::max<std::size_t>(layout_of(c.graph).outputs, 1);
    case Axis::rows:
      return in.h;
    case Axis::columns:
      return in.w;
  }
  return 1;
}

// Whether the specification says something of the case.
bool within_precondition(const UnitCase& c) {
  const UnitLayout layout = layout_of(c.graph);
  const Shape& in = c.inputs[0][0].shape;
  if (std::holds_alternative<BnSync>(layout.operation)) {
    return c.inputs[0].size() * in.n * in.plane() >= 3;
  }
  const auto even_where_needed = [&](const auto& op) {
    return op.pad_begin == op.pad_end || (in.h % 2 == 0 && in.w % 2 == 0);
  };
  if (const auto* op = std::get_if<Convolution>(&layout.operation)) return even_where_needed(*op);
  if (const auto* op = std::get_if<Depthwise>(&layout.operation)) return even_where_needed(*op);
  return true;
}

// The case with another layout, its tensors already cut. None where windows no longer fit.
std::optional<UnitCase> with_layout(UnitCase c, const UnitLayout& layout) {
  try {
    c.graph = graph_of(layout);
  } catch (const std::invalid_argument&) {
    return std::nullopt;
  }
  if (!within_precondition(c)) return std::nullopt;
  return c;
}

// The case without places first … first + count − 1 of an axis.
std::optional<UnitCase> cut(UnitCase c, Axis axis, std::size_t first, std::size_t count) {
  UnitLayout layout = layout_of(c.graph);
  const Shape in = c.inputs[0][0].shape;
  if (axis == Axis::outputs) {
    layout.outputs -= count;
  } else {
    static constexpr std::array<std::size_t, 5> kDimensions{0, 1, 4, 2, 3};
    const std::size_t dimension = kDimensions[static_cast<std::size_t>(axis)];
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      for (Tensor<float>& x : c.inputs[i]) x = without(x, dimension, first, count);
      layout.inputs[i].second = c.inputs[i][0].shape;
    }
  }
  for (const Parameter& parameter : c.graph.parameters()) {
    using Role = Parameter::Role;
    Tensor<float>& weight = c.weights.at(parameter.name);
    const auto cut_weight = [&](std::size_t dimension) {
      weight = without(weight, dimension, first, count);
    };
    switch (parameter.role) {
      case Role::convolution:
        if (axis == Axis::channels) cut_weight(1);
        if (axis == Axis::outputs) cut_weight(0);
        break;
      case Role::depthwise:
        if (axis == Axis::channels) cut_weight(0);
        break;
      case Role::gamma:
      case Role::beta:
        if (axis == Axis::channels) cut_weight(1);
        break;
      case Role::convolution_bias:
      case Role::dense_bias:
        if (axis == Axis::outputs) cut_weight(1);
        break;
      case Role::dense: {
        if (axis == Axis::images) break;
        // Its rows are the numbers of an example.
        const std::size_t outputs = weight.shape.w;
        weight.shape = {in.c, in.h, in.w, outputs};
        cut_weight(axis == Axis::channels  ? 0
                   : axis == Axis::rows    ? 1
                   : axis == Axis::columns ? 2
                                           : 3);
        weight.shape = {1, 1, weight.values.size() / weight.shape.w, weight.shape.w};
        break;
      }
    }
  }
  return with_layout(std::move(c), layout);
}

// The case with a window two smaller, its outermost taps and its padding cut off.
std::optional<UnitCase> with_smaller_window(UnitCase c) {
  UnitLayout layout = layout_of(c.graph);
  bool smaller = false;
  const auto shrink_window = [&](auto& op) {
    if (op.kernel < 3 || op.pad_begin == 0 || op.pad_end == 0) return;
    smaller = true;
    op.kernel -= 2;
    --op.pad_begin;
    --op.pad_end;
    Tensor<float>& weight = c.weights.at(op.weight);
    for (const std::size_t dimension : {2U, 3U}) {
      weight = without(without(weight, dimension, op.kernel + 1, 1), dimension, 0, 1);
    }
  };
  if (auto* op = std::get_if<Convolution>(&layout.operation)) shrink_window(*op);
  if (auto* op = std::get_if<Depthwise>(&layout.operation)) shrink_window(*op);
  return smaller ? with_layout(std::move(c), layout) : std::nullopt;
}

UnitCase with_replicas(UnitCase c, std::span<const std::size_t> kept) {
  for (Family<float>& family : c.inputs) {
    Family<float> some;
    for (const std::size_t r : kept) some.push_back(family[r]);
    family = std::move(some);
  }
  return c;
}

// ---- Simpler numbers

int significant_bits(float x) {
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);  // 24 bits after the point
  const auto bits = static_cast<std::uint32_t>(std::abs(std::ldexp(fraction, 24)));
  return 24 - std::countr_zero(bits);
}

// How hard a number is to read: 0, 1, −1, other whole numbers, powers of two, then by bits.
std::uint64_t hardness(float x) {
  if (x == 0) return std::signbit(x) ? 1 : 0;
  if (!std::isfinite(x)) return 100'000;
  const std::uint64_t negative = x < 0 ? 1 : 0;
  if (std::abs(x) <= 1024 && x == std::trunc(x)) {
    return 2 * static_cast<std::uint64_t>(std::abs(x)) + negative;
  }
  int exponent = 0;
  std::frexp(x, &exponent);
  const auto far = static_cast<std::uint64_t>(std::abs(exponent));
  return 3000 + 1000 * static_cast<std::uint64_t>(significant_bits(x)) + 2 * far + negative;
}

float rounded_to_bits(float x, int bits) {
  if (x == 0 || !std::isfinite(x)) return x;
  int exponent = 0;
  const float fraction = std::frexp(x, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(fraction, bits)), exponent - bits);
}

float without_fraction(float x) { return std::abs(x) < 0x1p23F ? std::nearbyint(x) : x; }

using Simplification = std::function<float(float)>;

// From the simplest; each applied to every number of a range.
const std::vector<Simplification>& simplifications() {
  static const std::vector<Simplification> all = [] {
    std::vector<Simplification> made{
        [](float) { return 0.0F; },
        [](float) { return 1.0F; },
        [](float) { return -1.0F; },
        [](float x) { return std::isfinite(x) ? std::clamp(without_fraction(x), -4.0F, 4.0F) : x; },
        without_fraction,
        [](float x) { return std::isfinite(x) ? without_fraction(x / 2) : x; },
        [](float x) { return x > 0 ? x - 1 : x + 1; },
    };
    for (const int bits : {1, 2, 3, 4, 6, 8, 12, 16}) {
      made.emplace_back([bits](float x) { return rounded_to_bits(x, bits); });
    }
    made.emplace_back([](float x) { return x / 2; });
    made.emplace_back([](float x) { return std::abs(x); });
    return made;
  }();
  return all;
}

// ---- The search

class Shrinker {
 public:
  Shrinker(const UnitCase& c, const DeviceMaker& make, std::size_t tries)
      : make_(make), best_(c), left_(tries) {}

  UnitCase shrink() {
    const UnitVerdict verdict = judge_unit_case(make_, best_);
    if (verdict.outcome() != Outcome::wrong) return std::move(best_);
    fails_ = !verdict.failure.empty();
    by_draws_alone_ = !wrong_as_it_is(judge_unit_case(make_, best_, Suspicions::left));
    remember_place(verdict);
    make_natural();
    simplify_threads();
    cut_replicas();
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = cut_extents();
      make_natural();
      smaller |= simplify_numbers();
    }
    simplify_rest();
    return std::move(best_);
  }

 private:
  bool wrong_as_it_is(const UnitVerdict& verdict) const {
    return verdict.outcome() == Outcome::wrong && verdict.failure.empty() != fails_;
  }

  // Takes the candidate where it is wrong as the case was: a launch that fails, or numbers that are
  // wrong. Once they are wrong without fresh draws, they stay so.
  bool take(std::optional<UnitCase> candidate) {
    if (!candidate || left_ == 0) return false;
    --left_;
    UnitVerdict verdict = judge_unit_case(make_, *candidate, Suspicions::left);
    bool wrong = wrong_as_it_is(verdict);
    if (wrong) {
      by_draws_alone_ = false;
    } else if (by_draws_alone_) {
      verdict = judge_unit_case(make_, *candidate);
      wrong = wrong_as_it_is(verdict);
    }
    if (!wrong) return false;
    remember_place(verdict);
    best_ = std::move(*candidate);
    return true;
  }

  void remember_place(const UnitVerdict& verdict) {
    const Comparison* wrong = verdict.first_wrong();
    place_ = {};
    if (wrong == nullptr) return;
    const Shape& shape = wrong->shape;
    const std::size_t index = wrong->worst.index;
    const std::size_t channel = index / shape.plane() % shape.c;
    place_ = {index / shape.example(), channel, channel, index / shape.w % shape.h,
              index % shape.w};
  }

  void make_natural() {
    if (best_.kind == InputKind::natural) return;
    UnitCase candidate = best_;
    candidate.kind = InputKind::natural;
    take(std::move(candidate));
  }

  bool try_threads(ChannelThreads threads) {
    if (best_.schedule.threads == threads) return true;
    UnitCase candidate = best_;
    candidate.schedule.threads = threads;
    return take(std::move(candidate));
  }

  // How many threads share a channel follows from its numbers where the schedule leaves it open: a
  // fault of one sharing would be lost as the channel gets smaller.
  void simplify_threads() {
    if (try_threads(ChannelThreads::one)) return;
    if (best_.schedule.threads != ChannelThreads::by_count) return;
    if (try_threads(ChannelThreads::one_warp)) return;
    try_threads(ChannelThreads::several_warps);
  }

  void cut_replicas() {
    const std::size_t replicas = best_.inputs[0].size();
    constexpr std::size_t kMany = 8;  // of more, not all pairs are tried
    const std::size_t looked_at = std::min(replicas, kMany);
    for (std::size_t a = 0; a < looked_at && replicas > 1; ++a) {
      const std::array kept{a};
      if (take_replicas(kept)) return;
    }
    for (std::size_t a = 0; a < looked_at && replicas > 2; ++a) {
      for (std::size_t b = a + 1; b < looked_at; ++b) {
        const std::array kept{a, b};
        if (take_replicas(kept)) return;
      }
    }
    // One after another, as long as what is left is wrong.
    for (std::size_t r = replicas; r-- > 0 && best_.inputs[0].size() > 1;) {
      std::vector<std::size_t> kept(best_.inputs[0].size());
      std::iota(kept.begin(), kept.end(), std::size_t{0});
      kept.erase(kept.begin() + static_cast<std::ptrdiff_t>(r));
      take_replicas(kept);
    }
  }

  bool take_replicas(std::span<const std::size_t> kept) {
    UnitCase candidate = with_replicas(best_, kept);
    if (!within_precondition(candidate)) return false;
    return take(std::move(candidate));
  }

  bool cut_extents() {
    bool smaller = false;
    for (bool again = true; again && left_ > 0;) {
      again = false;
      for (const Axis axis : kAxes) again |= cut_axis(axis);
      while (take(with_smaller_window(best_))) again = true;
      smaller |= again;
    }
    return smaller;
  }

  bool keep_one(Axis axis, std::size_t place) {
    const std::size_t size = extent(best_, axis);
    if (size == 1 || place >= size) return false;
    std::optional<UnitCase> candidate = best_;
    // Behind the place, then before it. What lies between need not be within the precondition.
    if (place + 1 < size) candidate = cut(*candidate, axis, place + 1, size - place - 1);
    if (candidate && place > 0) candidate = cut(*candidate, axis, 0, place);
    return take(std::move(candidate));
  }

  // Cuts off as much as can be: all but one place, then ever smaller parts.
  bool cut_axis(Axis axis) {
    const std::size_t before = extent(best_, axis);
    if (before == 1) return false;
    if (keep_one(axis, place_[static_cast<std::size_t>(axis)]) || keep_one(axis, 0) ||
        keep_one(axis, before - 1)) {
      return true;
    }
    // 2 among the parts, since sizes may have to stay even.
    for (std::size_t part = before / 2; part > 0; part = part == 3 ? 2 : part / 2) {
      // From behind, so that a cut moves nothing that is still to be looked at.
      for (std::size_t end = extent(best_, axis); end >= part; end -= part) {
        if (part < extent(best_, axis)) take(cut(best_, axis, end - part, part));
      }
    }
    return extent(best_, axis) < before;
  }

  // All numbers that may be made simpler, array after array.
  static std::vector<std::vector<float>*> arrays(UnitCase& c) {
    std::vector<std::vector<float>*> found;
    for (auto& [name, weight] : c.weights) found.push_back(&weight.values);
    for (Family<float>& family : c.inputs) {
      for (Tensor<float>& x : family) found.push_back(&x.values);
    }
    return found;
  }

  bool simplify_numbers() {
    if (best_.kind == InputKind::dithered) return false;
    bool simpler = simplify_epsilon();
    const std::size_t count = arrays(best_).size();
    // Whole arrays, from all of them at once; then parts of each, ever smaller.
    simpler |= simplify(0, count, 0, SIZE_MAX);
    for (std::size_t a = 0; a < count; ++a) simpler |= simplify(a, a + 1, 0, SIZE_MAX);
    for (std::size_t a = 0; a < count; ++a) {
      const std::size_t size = arrays(best_)[a]->size();
      for (std::size_t part = (size + 1) / 2; part > 0; part = part == 1 ? 0 : (part + 1) / 2) {
        for (std::size_t first = 0; first < size && left_ > 0; first += part) {
          simpler |= simplify(a, a + 1, first, part);
        }
      }
    }
    return simpler;
  }

  // Numbers first … first + count − 1 of arrays begin … end − 1.
  bool simplify(std::size_t begin, std::size_t end, std::size_t first, std::size_t count) {
    bool simpler = false;
    for (const Simplification& simplification : simplifications()) {
      UnitCase candidate = best_;
      const auto all = arrays(candidate);
      std::uint64_t before = 0;
      std::uint64_t after = 0;
      for (std::size_t a = begin; a < end; ++a) {
        const std::size_t last = std::min(count, all[a]->size() - first) + first;
        for (std::size_t i = first; i < last; ++i) {
          float& value = (*all[a])[i];
          const float given = value;
          value = simplification(given);
          if (hardness(value) >= hardness(given)) value = given;
          before += hardness(given);
          after += hardness(value);
        }
      }
      if (before == 0) break;
      if (after < before && take(std::move(candidate))) simpler = true;
    }
    return simpler;
  }

  bool simplify_epsilon() {
    UnitLayout layout = layout_of(best_.graph);
    auto* site = std::get_if<BnSync>(&layout.operation);
    if (site == nullptr) return false;
    const float given = site->epsilon;
    for (const float epsilon : {1.0F, 0.5F, 0.25F, rounded_to_bits(given, 1)}) {
      if (hardness(epsilon) >= hardness(given)) continue;
      site->epsilon = epsilon;
      if (take(with_layout(best_, layout))) return true;
    }
    return false;
  }

  void simplify_rest() {
    for (const ChannelThreads threads : {ChannelThreads::by_count, ChannelThreads::one}) {
      if (try_threads(threads)) break;
    }
    UnitCase candidate = best_;
    candidate.schedule.seed = 0;
    if (best_.schedule.seed != 0) take(std::move(candidate));
    candidate = best_;
    candidate.seed = 0;
    if (best_.seed != 0) take(std::move(candidate));
  }

  const DeviceMaker& make_;
  UnitCase best_;
  std::size_t left_;                    // cases that may still be tried
  bool fails_ = false;                  // a launch does
  bool by_draws_alone_ = false;         // no number of the case itself is wrong yet
  std::array<std::size_t, 5> place_{};  // of the worst output, by axis
};

}  // namespace

UnitCase shrink(const UnitCase& c, const DeviceMaker& make, std::size_t tries) {
  return Shrinker(c, make, tries).shrink();
}

std::size_t count_of_numbers(const UnitCase& c) {
  std::size_t count = 0;
  for (const auto& [name, weight] : c.weights) count += weight.values.size();
  for (const Family<float>& family : c.inputs) {
    for (const Tensor<float>& x : family) count += x.values.size();
  }
  return count;
}

}  // namespace shardproof
