#include "diff/verdict.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace shardproof {

std::string to_string(InputKind kind) {
  switch (kind) {
    case InputKind::natural:
      return "natural";
    case InputKind::lattice:
      return "lattice";
    case InputKind::dithered:
      return "dithered";
  }
  return "";
}

std::string to_string(Outcome outcome) {
  switch (outcome) {
    case Outcome::agrees:
      return "agrees";
    case Outcome::suspect:
      return "suspect";
    case Outcome::wrong:
      return "wrong";
    case Outcome::not_judged:
      return "not judged";
  }
  return "";
}

double float32_ulp(double x) {
  return std::ldexp(1.0, (x == 0 ? -126 : std::max(std::ilogb(x), -126)) - 23);
}

double Difference::ulps() const {
  const double nearest = std::abs(static_cast<double>(static_cast<float>(expected)));
  if (!std::isfinite(nearest)) return error() == 0 ? 0 : std::numeric_limits<double>::infinity();
  return error() / float32_ulp(nearest);
}

void Comparison::see_unusual(std::size_t replica, std::size_t index, float got, double expected,
                             Allowance allowance) {
  const double value = static_cast<double>(got);
  if (std::isfinite(expected) && !std::isfinite(allowance.likely)) {
    ++not_judged;
    return;
  }
  if (!std::isfinite(expected)) {
    const bool same = std::isnan(expected) ? std::isnan(value) : value == expected;
    if (same) return;
    ++wrong;
    Comparison one;
    one.worst = {replica, index, value, expected, 0, std::numeric_limits<double>::infinity()};
    merge(one);
    return;
  }
  const double error = std::abs(value - expected);
  if (!(error <= allowance.any)) {
    ++wrong;
  } else if (error > allowance.likely) {
    ++suspects;
  }
  double ratio = error / allowance.likely;
  if (error == 0) ratio = 0;
  if (std::isnan(ratio)) ratio = std::numeric_limits<double>::infinity();
  Comparison one;
  one.worst = {replica, index, value, expected, allowance.likely, ratio};
  merge(one);
}

void Precision::add(double got, double expected) {
  if (!std::isfinite(got) || !std::isfinite(expected)) return;
  const double error = std::abs(got - expected);
  const double ulps = error / float32_ulp(static_cast<double>(static_cast<float>(expected)));
  const auto limit =
      std::find_if(kLimits.begin(), kLimits.end(), [&](double most) { return ulps <= most; });
  ++counts[static_cast<std::size_t>(limit - kLimits.begin())];
  ++outputs;
  squared_errors += error * error;
  squared_values += expected * expected;
  worst_error = std::max(worst_error, error);
}

void Precision::merge(const Precision& other) {
  for (std::size_t i = 0; i < counts.size(); ++i) counts[i] += other.counts[i];
  outputs += other.outputs;
  squared_errors += other.squared_errors;
  squared_values += other.squared_values;
  worst_error = std::max(worst_error, other.worst_error);
}

void Comparison::merge(const Comparison& other) {
  if (precision && other.precision) precision->merge(*other.precision);
  compared += other.compared;
  suspects += other.suspects;
  wrong += other.wrong;
  not_judged += other.not_judged;
  const auto place = [](const Difference& d) { return std::pair(d.replica, d.index); };
  if (other.worst.ratio > worst.ratio ||
      (other.worst.ratio == worst.ratio && place(other.worst) < place(worst))) {
    worst = other.worst;
  }
}

}  // namespace shardproof
