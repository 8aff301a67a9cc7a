#include <catch2/catch.hpp>

#include "properties/enclosures.h"

namespace shardproof {
namespace {

TEST_CASE("equal sides agree, and at the first precision that is narrow enough") {
  const auto thirds = []<int Digits>() {
    using Real = Interval<Digits>;
    const Real third = Real(1) / Real(3);
    return std::pair{std::vector{third + third}, std::vector{Real(2) / Real(3)}};
  };
  const auto at = [&](double width) { return compare_sides<30, 80, 160>(thirds, width); };
  CHECK(at(1e-20).outcome == Agreement::agree);
  CHECK(at(1e-20).digits == 30);
  CHECK(at(1e-60).outcome == Agreement::agree);
  CHECK(at(1e-60).digits == 80);
  CHECK(at(1e-60).widest < 1e-60);
}

TEST_CASE("enclosures that stay too wide are never a pass, though they meet") {
  const auto wide = []<int Digits>() {
    return std::pair{std::vector{Interval<Digits>(0, 1)}, std::vector{Interval<Digits>(0.5, 2)}};
  };
  const SidesCompared comparison = compare_sides<30, 80>(wide, 1e-20);
  CHECK(comparison.outcome == Agreement::too_wide);
  CHECK(comparison.digits == 80);
  CHECK(comparison.widest == 1.5);
}

TEST_CASE("one narrow pair of three that does not meet refutes the identity") {
  const auto sides = []<int Digits>() {
    using Real = Interval<Digits>;
    const Real tiny(0x1p-90);
    return std::pair{std::vector{Real(1), Real(2), Real(3)},
                     std::vector{Real(1), Real(2) + tiny, Real(3)}};
  };
  CHECK(compare_sides<30, 80>(sides, 1e-20).outcome == Agreement::differ);
}

TEST_CASE("a root of what may be zero is tried again at the next precision") {
  // (1 + 2^-120) − 1 is above zero from 37 digits on.
  const auto sides = []<int Digits>() {
    using Real = Interval<Digits>;
    const Real root = rsqrt(Real(1) + Real(0x1p-120) - Real(1));
    return std::pair{std::vector{root}, std::vector{Real(0x1p60)}};
  };
  const SidesCompared comparison = compare_sides<30, 80>(sides, 1e-20);
  CHECK(comparison.outcome == Agreement::agree);
  CHECK(comparison.digits == 80);
}

TEST_CASE("sides without numbers, or of unequal length, are a broken test") {
  const std::vector<Interval<30>> none, one(1);
  CHECK_THROWS_AS(compare(none, none, 1), std::logic_error);
  CHECK_THROWS_AS(compare(none, one, 1), std::logic_error);
}

}  // namespace
}  // namespace shardproof
