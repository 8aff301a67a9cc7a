#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "reference/numbers/certified.h"
#include "reference/numbers/hard_numbers.h"
#include "reference/numbers/interval.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

bool known(const Certified& c) { return c.radius <= Certified::largest; }

bool contains(const Certified& c, const Rational& exact) {
  return !known(c) || abs(exact - Rational(c.value)) <= Rational(c.radius);
}

std::string show(const Certified& c) {
  char text[100];
  std::snprintf(text, sizeof text, "%a ± %a", c.value, c.radius);
  return text;
}

// An enclosure and a number in it.
struct Enclosed {
  Certified certified;
  Rational exact;
};

// Half of the leaves are exact; the others have a radius anywhere between far below and far above
// their value, and the number at an end of the enclosure as often as inside.
Enclosed random_leaf(HardNumbers& random, const std::vector<Enclosed>& others) {
  double value = random.finite();
  if (!others.empty() && random.below(3) == 0) {
    value = -random.neighbour(others.back().certified.value);
    if (!std::isfinite(value)) value = 0;
  }
  if (random.coin()) return {Certified(value), Rational(value)};
  double radius = std::abs(std::ldexp(value, random.below(80) - 75) * (1 + random.unit()));
  if (random.below(8) == 0) radius = std::abs(random.finite());
  if (!std::isfinite(radius)) radius = 0;
  Rational offset(radius);
  if (random.below(3) == 0) offset *= Rational(random.unit());
  if (random.coin()) offset = -offset;
  return {Certified(value, radius), Rational(value) + offset};
}

// One operation on both; operation 3 only where the exact divisor is not 0.
Enclosed apply(int operation, const Enclosed& a, const Enclosed& b) {
  switch (operation) {
    case 0:
      return {a.certified + b.certified, a.exact + b.exact};
    case 1:
      return {a.certified - b.certified, a.exact - b.exact};
    case 2:
      return {a.certified * b.certified, a.exact * b.exact};
    case 3:
      return {a.certified / b.certified, a.exact / b.exact};
    case 4:
      return {maximum(a.certified, b.certified), maximum(a.exact, b.exact)};
    case 5:
      return {relu(a.certified), relu(a.exact)};
    default:
      return {relu6(a.certified), relu6(a.exact)};
  }
}

void require_enclosed(int operation, const Enclosed& a, const Enclosed& b, const Enclosed& result) {
  if (contains(result.certified, result.exact)) return;
  FAIL("operation " << operation << " of " << show(a.certified) << " holding " << a.exact << " and "
                    << show(b.certified) << " holding " << b.exact << " gave "
                    << show(result.certified));
}

}  // namespace

TEST_CASE("Certified contains the exact value of every node of random expression trees") {
  HardNumbers random(1);
  int nodes = 0, known_nodes = 0;
  for (int tree = 0; tree < 100'000; ++tree) {
    std::vector<Enclosed> pending;
    for (int leaves = 2 + random.below(4); leaves > 0; --leaves) {
      pending.push_back(random_leaf(random, pending));
    }
    while (pending.size() > 1) {
      const Enclosed b = pending.back();
      pending.pop_back();
      const Enclosed a = pending.back();
      pending.pop_back();
      int operation = random.below(12);
      if (operation > 6) operation %= 4;
      if (operation == 3 && b.exact == 0) operation = 2;
      pending.push_back(apply(operation, a, b));
      require_enclosed(operation, a, b, pending.back());
      ++nodes;
      known_nodes += known(pending.back().certified);
    }
  }
  CHECK(known_nodes > nodes / 2);
}

TEST_CASE("Certified contains the exact value at the ends of wide operands that cancel") {
  HardNumbers random(2);
  for (int i = 0; i < 100'000; ++i) {
    const int scale = random.below(2000) - 1000;
    const auto leaf = [&] {
      const double value = std::ldexp(random.below(3) - 1, scale);
      const double radius = std::abs(random.with_exponent(scale - 2, scale - 1));
      const Rational offset(random.coin() ? radius : -radius);
      return Enclosed{Certified(value, radius), Rational(value) + offset};
    };
    const Enclosed a = leaf(), b = leaf();
    for (int operation = 0; operation < 7; ++operation) {
      if (operation == 3 && b.exact == 0) continue;
      require_enclosed(operation, a, b, apply(operation, a, b));
    }
  }
}

TEST_CASE("Certified contains the reciprocal square root") {
  HardNumbers random(3);
  int known_roots = 0;
  for (int i = 0; i < 100'000; ++i) {
    Enclosed x = random_leaf(random, {});
    if (x.certified.value < 0) x = {-x.certified, -x.exact};
    if (x.exact <= 0) continue;
    const Certified root = rsqrt(x.certified);
    if (!known(root)) continue;
    ++known_roots;
    const Rational low = Rational(root.value) - Rational(root.radius);
    const Rational high = Rational(root.value) + Rational(root.radius);
    if ((low > 0 && low * low * x.exact > 1) || high < 0 || high * high * x.exact < 1) {
      FAIL("rsqrt of " << show(x.certified) << " holding " << x.exact << " gave " << show(root));
    }
  }
  CHECK(known_roots > 50'000);
}

TEST_CASE("Certified meets the interval of expressions that go through roots") {
  using Precise = Interval<160>;
  HardNumbers random(4);
  for (int i = 0; i < 20'000; ++i) {
    const double x = random.with_exponent(-20, 20), m = random.neighbour(x);
    const double variance = std::abs(random.with_exponent(-40, 20)),
                 g = random.with_exponent(-1, 1);
    const auto normalise = [&]<Real T>(T epsilon) {
      const T d = from_double<T>(x) - from_double<T>(m);
      return from_double<T>(g) * d * rsqrt(from_double<T>(variance) + epsilon) + from_double<T>(g);
    };
    const Certified fast = normalise(Certified(1e-5));
    const Precise precise = normalise(Precise(1e-5));
    REQUIRE(known(fast));
    const Precise low = Precise(fast.value) - Precise(fast.radius);
    const Precise high = Precise(fast.value) + Precise(fast.radius);
    if (!meets(precise, low) && !meets(precise, high)) {
      if (!(low.upper() < precise.lower() && precise.upper() < high.lower())) {
        FAIL("x " << x << ", mean " << m << ", variance " << variance << ": " << show(fast));
      }
    }
  }
}

TEST_CASE("one Certified operation on exact operands has a radius of a few units of roundoff") {
  HardNumbers random(5);
  constexpr double u = Certified::unit_roundoff;
  for (int i = 0; i < 10'000; ++i) {
    const Certified a(random.with_exponent(-400, 400)), b(random.with_exponent(-400, 400));
    for (const Certified& c : {a + b, a - b, a * b, a / b}) {
      REQUIRE(c.radius <= 1.001 * u * std::abs(c.value));
    }
    const Certified root = rsqrt(Certified(std::abs(a.value)));
    REQUIRE(root.radius <= 3.001 * u * root.value);
  }
}

TEST_CASE("Certified says that nothing is known where it overflows or may divide by zero") {
  const Certified huge(std::numeric_limits<double>::max()), one(1);
  CHECK((huge + huge).radius == infinity);
  CHECK((huge * huge).radius == infinity);
  CHECK((huge / Certified(0x1p-1000)).radius == infinity);
  CHECK((one / Certified(0)).radius == infinity);
  CHECK((one / Certified(1, 1)).radius == infinity);
  CHECK((one / Certified(-1, 3)).radius == infinity);
  CHECK(rsqrt(Certified(0)).radius == infinity);
  CHECK(rsqrt(Certified(1, 1)).radius == infinity);
  CHECK(rsqrt(Certified(-1)).radius == infinity);
}

TEST_CASE("nothing known stays nothing known, and a radius is never NaN") {
  for (const Certified& x :
       {Certified(nan), Certified(infinity), Certified(-infinity), Certified(0, infinity),
        Certified(1, nan), Certified(7, infinity), Certified(-7, infinity)}) {
    CHECK(x.radius == infinity);
    for (const Certified& y : {Certified(0), Certified(2), x}) {
      for (const Certified& z : {x + y, y - x, x * y, y * x, x / y, y / x, maximum(x, y),
                                 maximum(y, x), relu(x), relu6(x), rsqrt(x), -x}) {
        CHECK(z.radius == infinity);
      }
    }
  }
  CHECK(std::isnan(relu(Certified(nan)).value));
  CHECK(std::isnan(relu6(Certified(nan)).value));
  CHECK(std::isnan(maximum(Certified(nan), Certified(1)).value));
  CHECK(std::isnan(maximum(Certified(1), Certified(nan)).value));
}

TEST_CASE("Certified relu is exactly 0, and relu6 exactly 6, where the enclosure lies beyond") {
  CHECK(relu(Certified(-1, 0.5)).radius == 0);
  CHECK(relu6(Certified(-1, 0.5)).radius == 0);
  CHECK(relu6(Certified(7, 0.5)).value == 6);
  CHECK(relu6(Certified(7, 0.5)).radius == 0);
  CHECK(relu(Certified(-1, 2)).radius == 2);
  CHECK(relu6(Certified(7, 2)).radius == 2);
}

}  // namespace shardproof
