// What a comparison of a device with the reference found (agreement §1, §3): one Comparison for
// each thing compared at a node, with counts, the worst output and how tight the bound was.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>

#include "reference/graph/tensor.h"
#include "reference/graph/vectors.h"

namespace shardproof {

// The kinds of input of agreement §3. They differ in what may be assumed of the roundings.
enum class InputKind { natural, lattice, dithered };

// suspect: outside what independent roundings explain, inside what roundings in any order can do.
enum class Outcome { agrees, suspect, wrong, not_judged };

std::string to_string(InputKind kind);
std::string to_string(Outcome outcome);

// How far an output of a device may lie from the exact value, reference radius included.
struct Allowance {
  double any = 0;     // beyond it the device is wrong, whatever its order of operations
  double likely = 0;  // at most `any`; beyond it the device is suspect
};

// A unit in the last place of the float32 numbers at |x|, finite.
double float32_ulp(double x);

// One output against its bound.
struct Difference {
  std::size_t replica = 0, index = 0;  // index into the compared values of that replica, row-major
  double got = 0, expected = 0, bound = 0;
  double ratio = 0;  // |got − expected| ÷ bound; infinite where the bound is 0 and they differ

  double error() const { return std::abs(got - expected); }
  // The error in units in the last place of the float32 number nearest to `expected`.
  double ulps() const;
};

// How precise outputs are, all of them together: beside the verdict, which is of each.
struct Precision {
  // Outputs by their error in ulps of their own exact value: 0; at most 1/2, 1, 2, 4, 16, 256;
  // more.
  static constexpr std::array<double, 7> kLimits = {0, 0.5, 1, 2, 4, 16, 256};
  std::array<std::size_t, kLimits.size() + 1> counts{};
  std::size_t outputs = 0;
  double squared_errors = 0, squared_values = 0, worst_error = 0;

  void add(double got, double expected);
  void merge(const Precision& other);
  // In units of 2^-23 of the outputs' own root mean square, so that a few outputs near zero, where
  // others cancelled, do not stand for all.
  double rms() const { return std::sqrt(squared_errors / count()) / unit(); }
  double worst() const { return worst_error / unit(); }

 private:
  double count() const { return outputs == 0 ? 1 : static_cast<double>(outputs); }
  double unit() const { return std::fmax(0x1p-23 * std::sqrt(squared_values / count()), 0x1p-149); }
};

struct Comparison {
  std::string node;  // the last node of the launch compared
  std::string part;  // which of the node's statements; empty: its outputs
  InputKind kind = InputKind::natural;
  Shape shape;  // of the compared values on one replica
  std::size_t compared = 0, suspects = 0, wrong = 0, not_judged = 0;
  Difference worst;
  std::optional<Precision> precision;  // where it is asked for: every output is looked at then

  // The least bound ÷ error over the outputs; infinite where no output had an error.
  double tightness() const { return 1 / worst.ratio; }

  Outcome outcome() const {
    if (wrong > 0) return Outcome::wrong;
    if (suspects > 0) return Outcome::suspect;
    return compared == 0 || not_judged > 0 ? Outcome::not_judged : Outcome::agrees;
  }

  // Compares one output. An unknown allowance (NaN or infinite) leaves it not judged; NaN must meet
  // NaN and an infinity itself.
  void see(std::size_t replica, std::size_t index, float got, double expected,
           Allowance allowance) {
    ++compared;
    if (precision) precision->add(static_cast<double>(got), expected);
    const double limit = share() * allowance.likely;
    const double error = std::abs(static_cast<double>(got) - expected);
    if (error <= limit && limit <= std::numeric_limits<double>::max()) return;
    see_unusual(replica, index, got, expected, allowance);
  }
  // Compares a row of outputs: look(i) calls `see` for output i. It is spared where that would only
  // count the outputs i to i + 3: expected(i) has their exact values, and floor(i) is at most their
  // likely allowances, infinite to ask for the look.
  template <class Expected, class Floor, class Look>
  void see_row(std::span<const float> got, Expected expected, Floor floor, Look look) {
    if (precision) {
      for (std::size_t i = 0; i < got.size(); ++i) look(i);
      return;
    }
    constexpr std::size_t kWidth = 4;
    constexpr std::size_t kBlock = 16 * kWidth;
    const std::size_t whole = got.size() / kWidth * kWidth;
    for (std::size_t first = 0; first < whole; first += kBlock) {
      const std::size_t end = first + kBlock < whole ? first + kBlock : whole;
      const double share = this->share();
      Long4 usual = Long4{} - 1;
      for (std::size_t i = first; i < end; i += kWidth) {
        const Double4 limit = share * floor(i);
        usual &= (absolute(widened4(&got[i]) - expected(i)) <= limit) &
                 (limit <= std::numeric_limits<double>::max());
      }
      if ((usual[0] & usual[1] & usual[2] & usual[3]) != 0) {
        compared += end - first;
        continue;
      }
      for (std::size_t i = first; i < end; ++i) look(i);
    }
    for (std::size_t i = whole; i < got.size(); ++i) look(i);
  }
  // Compares one output with what another replica, or another run, has there: equal bits, NaN
  // payloads aside.
  void see_equal(std::size_t replica, std::size_t index, float got, float first) {
    if (std::bit_cast<std::uint32_t>(got) == std::bit_cast<std::uint32_t>(first) ||
        (std::isnan(got) && std::isnan(first))) {
      ++compared;
      return;
    }
    Comparison other;
    other.compared = other.wrong = 1;
    other.worst = {replica,
                   index,
                   static_cast<double>(got),
                   static_cast<double>(first),
                   0,
                   std::numeric_limits<double>::infinity()};
    merge(other);
  }
  // One output that cannot be judged.
  void skip() {
    ++compared;
    ++not_judged;
  }

  // Joins the comparison of other outputs of the same thing.
  void merge(const Comparison& other);

 private:
  // The share of its bound within which an output needs no more than to be counted: it is nearer
  // its exact value than the worst one is, whatever the roundings, so that what is found does not
  // depend on the order of the outputs.
  double share() const { return worst.ratio <= 1 ? worst.ratio * (1 - 0x1p-50) : 1; }
  void see_unusual(std::size_t replica, std::size_t index, float got, double expected,
                   Allowance allowance);
};

}  // namespace shardproof
