// RunningError against what it must enclose: float32 runs that fuse products with sums at will.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <optional>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/slots/running_error.h"

using namespace shardproof;

namespace {

using F = ValueFunction;

struct Step {
  F function;
  std::size_t target;
  std::array<std::size_t, 3> reads;
};

constexpr std::size_t kSlots = 6;

std::vector<Step> random_steps(Random& random, std::size_t count) {
  static constexpr std::array functions = {
      F::add,      F::add,    F::subtract, F::multiply,   F::multiply,    F::multiply,
      F::divide,   F::negate, F::absolute, F::sign,       F::minimum,     F::maximum,
      F::less,     F::equal,  F::select,   F::less_equal, F::square_root, F::fused_multiply_add,
      F::not_equal};
  std::vector<Step> steps;
  for (std::size_t i = 0; i < count; ++i) {
    steps.push_back({functions[random.below(functions.size())],
                     random.below(kSlots),
                     {random.below(kSlots), random.below(kSlots), random.below(kSlots)}});
  }
  return steps;
}

template <class T>
T apply(const Step& step, const std::array<T, kSlots>& slots, const Arithmetic<T>& arithmetic) {
  return with_operation(step.function, arithmetic, [&](auto takes, auto operation) {
    if constexpr (takes == 1) {
      return operation(slots[step.reads[0]]);
    } else if constexpr (takes == 2) {
      return operation(slots[step.reads[0]], slots[step.reads[1]]);
    } else {
      return operation(slots[step.reads[0]], slots[step.reads[1]], slots[step.reads[2]]);
    }
  });
}

// The factors of a slot that a product wrote.
using Factors = std::optional<std::array<float, 2>>;

// The step in float32; a sum with a product is one fused operation when `fuse`.
float run_step(const Step& step, const std::array<float, kSlots>& slots,
               const std::array<Factors, kSlots>& factors, bool fuse) {
  const auto [a, b, c] = step.reads;
  const bool sum = step.function == F::add || step.function == F::subtract;
  const float sign = step.function == F::subtract ? -1.0F : 1.0F;
  if (fuse && sum && factors[b]) {
    return std::fma(sign * (*factors[b])[0], (*factors[b])[1], slots[a]);
  }
  if (fuse && sum && factors[a]) {
    return std::fma((*factors[a])[0], (*factors[a])[1], sign * slots[b]);
  }
  return apply(step, slots, Arithmetic<float>{});
}

}  // namespace

TEST_CASE("running errors enclose float32 runs, however products and sums are fused") {
  Random random(11);
  std::size_t known = 0, rounded = 0, special = 0;
  static constexpr std::array specials = {std::numeric_limits<float>::infinity(),
                                          -std::numeric_limits<float>::infinity(),
                                          std::numeric_limits<float>::quiet_NaN()};
  for (int round = 0; round < 20000; ++round) {
    const std::vector<Step> steps = random_steps(random, 12);
    std::array<float, kSlots> start{};
    for (float& x : start) {
      x = random.below(8) == 0
              ? 0.0F
              : std::ldexp(static_cast<float>(random.triangular(2)),
                           static_cast<int>(random.integer(-70, 30)) / (random.coin() ? 1 : 12));
    }
    if (round % 3 == 0) start[random.below(kSlots)] = specials[random.below(3)];
    std::array<RunningError, kSlots> ranges{};
    for (std::size_t i = 0; i < kSlots; ++i)
      ranges[i] = RunningError(static_cast<double>(start[i]));
    for (const Step& step : steps) ranges[step.target] = apply(step, ranges, {});
    for (int run = 0; run < 4; ++run) {
      std::array<float, kSlots> slots = start;
      std::array<Factors, kSlots> factors{};
      for (const Step& step : steps) {
        const float value = run_step(step, slots, factors, run > 0 && random.coin());
        Factors of_value;
        if (step.function == F::multiply) {
          of_value = {slots[step.reads[0]], slots[step.reads[1]]};
        }
        slots[step.target] = value;
        factors[step.target] = of_value;
      }
      for (std::size_t i = 0; i < kSlots; ++i) {
        if (ranges[i].is_special) {
          ++special;
          const auto got = static_cast<double>(slots[i]);
          CHECK((got == ranges[i].special || (std::isnan(got) && std::isnan(ranges[i].special))));
          continue;
        }
        const Certified& range = ranges[i].range;
        if (!std::isfinite(range.radius)) continue;
        ++known;
        const double error = std::abs(static_cast<double>(slots[i]) - range.value);
        rounded += error > 0 ? 1 : 0;
        if (!(error <= range.radius)) {
          CAPTURE(round, i, slots[i], range.value, range.radius);
          FAIL_CHECK("outside");
        }
      }
    }
  }
  CHECK(known > 300000);
  CHECK(rounded > 50000);
  CHECK(special > 20000);
}

TEST_CASE("running errors enclose runs that flush subnormals, operands and results") {
  Arithmetic<RunningError> arithmetic;
  arithmetic.underflow = arithmetic.flushed = 0x1p-126;
  const auto flush = [](float x) { return std::abs(x) < 0x1p-126F ? 0.0F : x; };
  Random random(12);
  for (int round = 0; round < 20000; ++round) {
    const std::vector<Step> steps = random_steps(random, 8);
    std::array<float, kSlots> slots{};
    std::array<RunningError, kSlots> ranges{};
    for (std::size_t i = 0; i < kSlots; ++i) {
      slots[i] = std::ldexp(static_cast<float>(random.triangular(2)),
                            static_cast<int>(random.integer(-140, 0)) / (random.coin() ? 1 : 3));
      ranges[i] = RunningError(static_cast<double>(slots[i]));
    }
    for (const Step& step : steps) {
      ranges[step.target] = apply(step, ranges, arithmetic);
      std::array<float, kSlots> seen = slots;
      std::transform(seen.begin(), seen.end(), seen.begin(), flush);
      slots[step.target] = flush(apply(step, seen, Arithmetic<float>{}));
    }
    for (std::size_t i = 0; i < kSlots; ++i) {
      const Certified& range = ranges[i].range;
      if (ranges[i].is_special || !std::isfinite(range.radius)) continue;
      // A copy is flushed where it is read.
      const double flushed = std::abs(range.value) < 0x1p-126 ? 0x1p-126 : 0;
      const double error = std::abs(static_cast<double>(slots[i]) - range.value);
      if (!(error <= range.radius + flushed)) {
        CAPTURE(round, i, slots[i], range.value, range.radius);
        FAIL_CHECK("outside");
      }
    }
  }
}

TEST_CASE("what does not round has no error: zeros, signs, decided comparisons and selections") {
  const Arithmetic<RunningError> arithmetic;
  const auto exact = [](double x) { return RunningError(x); };
  const auto is = [](const RunningError& x, double value) {
    return x.range.value == value && x.range.radius == 0;
  };
  CHECK(is(arithmetic.multiply(exact(0), exact(3)), 0));
  CHECK(is(arithmetic.add(exact(0), exact(3)), 3));
  CHECK(is(arithmetic.less(exact(1), exact(2)), 1));
  CHECK(is(arithmetic.less_equal(exact(2), exact(2)), 1));
  CHECK(is(arithmetic.equal(exact(2), exact(3)), 0));
  CHECK(is(arithmetic.select(exact(0), exact(2), exact(3)), 3));
  CHECK(is(arithmetic.maximum(exact(-1), exact(3)), 3));
  const RunningError near_zero(Certified(0, 1));
  CHECK(arithmetic.less(near_zero, exact(0.5)).range.radius == 0.5);
  CHECK(arithmetic.select(near_zero, exact(2), exact(4)).range.value == 3);
  CHECK(arithmetic.select(near_zero, exact(2), exact(4)).range.radius >= 1);
}
