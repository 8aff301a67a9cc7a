// Whether two evaluations of an identity's sides agree as enclosures (design, "Numbers"): every
// pair meets and both are narrower than asked. Enclosures that do not meet refute the identity at
// any precision; ones that are too wide say nothing, and the next precision is tried.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <ostream>
#include <stdexcept>
#include <utility>
#include <vector>

#include "reference/numbers/certified.h"
#include "reference/numbers/interval.h"

namespace shardproof {

enum class Agreement { agree, differ, too_wide };

struct SidesCompared {
  Agreement outcome = Agreement::too_wide;
  int digits = 0;  // the precision that settled it, or the last one tried
  double widest = std::numeric_limits<double>::infinity();
};

inline std::ostream& operator<<(std::ostream& out, const SidesCompared& comparison) {
  const char* names[] = {"agree", "differ", "too wide"};
  return out << names[static_cast<int>(comparison.outcome)] << " at " << comparison.digits
             << " digits, the widest " << comparison.widest;
}

// Each side holds the same numbers in the same order; none at all is a broken test.
template <int Digits>
SidesCompared compare(const std::vector<Interval<Digits>>& left,
                      const std::vector<Interval<Digits>>& right, double narrower_than) {
  if (left.size() != right.size() || left.empty()) {
    throw std::logic_error("compare: sides of " + std::to_string(left.size()) + " and " +
                           std::to_string(right.size()) + " numbers");
  }
  SidesCompared comparison{Agreement::agree, Digits, 0};
  for (std::size_t i = 0; i < left.size(); ++i) {
    if (!meets(left[i], right[i])) comparison.outcome = Agreement::differ;
    comparison.widest = std::max({comparison.widest, left[i].width(), right[i].width()});
  }
  if (comparison.outcome == Agreement::agree && !(comparison.widest < narrower_than)) {
    comparison.outcome = Agreement::too_wide;
  }
  return comparison;
}

// Whether two evaluations in float64 with radii meet, each pair within `narrower_than` times one
// more than its magnitude. If not, nothing is known.
inline bool agree(const std::vector<Certified>& left, const std::vector<Certified>& right,
                  double narrower_than) {
  bool result = left.size() == right.size() && !left.empty();
  for (std::size_t i = 0; result && i < left.size(); ++i) {
    const Certified difference = left[i] - right[i];
    result = std::abs(difference.value) <= difference.radius &&
             difference.radius < narrower_than * (1 + std::abs(left[i].value));
  }
  return result;
}

// `sides.template operator()<Digits>()` gives the two sides; tried at each of the precisions in
// turn until they agree or differ. A root or a quotient of an enclosure that reaches zero is one
// that was too wide.
template <int Digits, int... Next, class Sides>
SidesCompared compare_sides(Sides sides, double narrower_than) {
  SidesCompared comparison{Agreement::too_wide, Digits};
  try {
    const auto [left, right] = sides.template operator()<Digits>();
    comparison = compare<Digits>(left, right, narrower_than);
  } catch (const std::domain_error&) {
  }
  if constexpr (sizeof...(Next) > 0) {
    if (comparison.outcome == Agreement::too_wide)
      return compare_sides<Next...>(sides, narrower_than);
  }
  return comparison;
}

}  // namespace shardproof
