// What a comparison makes of outputs, and what a sign-off makes of comparisons.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <vector>

#include "diff/signoff.h"
#include "diff/verdict.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kFloatInfinity = std::numeric_limits<float>::infinity();

Comparison of(float got, double expected, Allowance allowance) {
  Comparison comparison;
  comparison.see(0, 0, got, expected, allowance);
  return comparison;
}

}  // namespace

TEST_CASE("an output agrees up to the likely bound, is suspect up to the other, wrong beyond") {
  const Allowance allowance{0.5, 0.25};
  for (const float sign : {-1.0F, 1.0F}) {
    CHECK(of(1 + sign * 0.25F, 1, allowance).outcome() == Outcome::agrees);
    CHECK(of(1 + sign * 0.25F * (1 + 0x1p-20F), 1, allowance).outcome() == Outcome::suspect);
    CHECK(of(1 + sign * 0.5F, 1, allowance).outcome() == Outcome::suspect);
    CHECK(of(1 + sign * 0.5F * (1 + 0x1p-20F), 1, allowance).outcome() == Outcome::wrong);
  }
}

TEST_CASE(
    "without an allowance only the same number agrees, and zeros of both signs are the same") {
  CHECK(of(1, 1, {}).outcome() == Outcome::agrees);
  CHECK(of(0.0F, -0.0, {}).outcome() == Outcome::agrees);
  CHECK(of(std::nextafter(1.0F, 2.0F), 1, {}).outcome() == Outcome::wrong);
  CHECK(of(std::nextafter(1.0F, 2.0F), 1, {}).worst.ratio == kInfinity);
  CHECK(of(std::numeric_limits<float>::denorm_min(), 0, {}).outcome() == Outcome::wrong);
}

TEST_CASE("NaN must meet NaN, and an infinity the same infinity") {
  for (const Allowance allowance :
       {Allowance{}, Allowance{1, 1}, Allowance{kInfinity, kInfinity}}) {
    CHECK(of(kNan, std::nan(""), allowance).outcome() == Outcome::agrees);
    CHECK(of(1, std::nan(""), allowance).outcome() == Outcome::wrong);
    CHECK(of(kFloatInfinity, kInfinity, allowance).outcome() == Outcome::agrees);
    CHECK(of(-kFloatInfinity, kInfinity, allowance).outcome() == Outcome::wrong);
    CHECK(of(kNan, kInfinity, allowance).outcome() == Outcome::wrong);
  }
  CHECK(of(kNan, 1, {1, 1}).outcome() == Outcome::wrong);
  CHECK(of(kFloatInfinity, 1, {1, 1}).outcome() == Outcome::wrong);
}

TEST_CASE("an output of unknown allowance is not judged, whatever stands beside it") {
  const double unknowns[] = {kInfinity, std::nan("")};
  for (const double unknown : unknowns) {
    for (const float got : {1.0F, 2.0F, kNan, kFloatInfinity}) {
      CHECK(of(got, 1, {unknown, unknown}).outcome() == Outcome::not_judged);
    }
    Comparison comparison;
    comparison.see(0, 0, 1.25F, 1, {1, 0.5});  // an error within its bound
    comparison.see(0, 1, 7, 1, {unknown, unknown});
    CHECK(comparison.not_judged == 1);
    CHECK(comparison.compared == 2);
    CHECK(comparison.outcome() == Outcome::not_judged);
  }
  Comparison skipped;
  skipped.skip();
  CHECK(skipped.outcome() == Outcome::not_judged);
}

TEST_CASE("what must be equal is compared bit for bit, NaN payloads aside") {
  const auto outcome = [](float got, float first) {
    Comparison comparison;
    comparison.see_equal(0, 0, got, first);
    return comparison.outcome();
  };
  CHECK(outcome(1, 1) == Outcome::agrees);
  CHECK(outcome(kNan, -kNan) == Outcome::agrees);
  CHECK(outcome(kFloatInfinity, kFloatInfinity) == Outcome::agrees);
  CHECK(outcome(0.0F, -0.0F) == Outcome::wrong);
  CHECK(outcome(1, std::nextafter(1.0F, 0.0F)) == Outcome::wrong);
  CHECK(outcome(kNan, 1) == Outcome::wrong);
}

TEST_CASE("a comparison of nothing is not judged") {
  CHECK(Comparison{}.outcome() == Outcome::not_judged);
}

TEST_CASE("wrong outweighs suspect, and suspect outweighs not judged") {
  Comparison comparison;
  comparison.see(0, 0, 1, 1, {});
  CHECK(comparison.outcome() == Outcome::agrees);
  comparison.skip();
  CHECK(comparison.outcome() == Outcome::not_judged);
  comparison.see(0, 1, 1.5F, 1, {1, 0.25});
  CHECK(comparison.outcome() == Outcome::suspect);
  comparison.see(0, 2, 3, 1, {1, 0.25});
  CHECK(comparison.outcome() == Outcome::wrong);
  CHECK(comparison.compared == 4);
  CHECK(comparison.wrong == 1);
  CHECK(comparison.suspects == 1);
  CHECK(comparison.not_judged == 1);
}

TEST_CASE("the worst output is the one of the largest error to bound, in any order and merged") {
  const auto see = [](Comparison& comparison, std::size_t index) {
    static constexpr float kErrors[] = {0.125F, 0.5F, 0.25F, 0.0F};
    static constexpr double kBounds[] = {0.25, 2, 0.375, 0};
    comparison.see(1, index, 1 + kErrors[index], 1, {kBounds[index], kBounds[index]});
  };
  Comparison forward, backward, left, right;
  for (std::size_t i = 0; i < 4; ++i) {
    see(forward, i);
    see(backward, 3 - i);
    see(i % 2 == 0 ? left : right, i);
  }
  left.merge(right);
  for (const Comparison& comparison : {forward, backward, left}) {
    CHECK(comparison.worst.replica == 1);
    CHECK(comparison.worst.index == 2);
    CHECK(comparison.worst.error() == 0.25);
    CHECK(comparison.worst.ratio == Approx(2.0 / 3));
    CHECK(comparison.tightness() == Approx(1.5));
    CHECK(comparison.compared == 4);
  }
}

TEST_CASE("a row finds what its outputs find one by one") {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::size_t size = 1 + random.below(200);
    std::vector<float> got(size);
    std::vector<double> expected(size);
    std::vector<Allowance> allowances(size);
    const double share = random.below(4) == 0 ? 0.1 : 0.001;  // of unusual outputs
    for (std::size_t k = 0; k < size; ++k) {
      expected[k] = random.triangular(4);
      allowances[k] = {0.5, 0.25 * random.uniform()};
      got[k] = static_cast<float>(expected[k] + random.triangular(allowances[k].likely / 2));
      if (random.uniform() > share) continue;
      const std::uint64_t kind = random.below(5);
      if (kind == 0) got[k] += 0.4F;
      if (kind == 1) got[k] = kNan;
      if (kind == 2) expected[k] = kInfinity;
      if (kind == 3) allowances[k] = {kInfinity, kInfinity};
      if (kind == 4) allowances[k] = {};
    }
    Comparison one_by_one, row;
    const auto look = [&](Comparison& comparison, std::size_t k) {
      comparison.see(0, k, got[k], expected[k], allowances[k]);
    };
    for (std::size_t k = 0; k < size; ++k) look(one_by_one, k);
    std::vector<double> likely;
    for (const Allowance& allowance : allowances) likely.push_back(allowance.likely);
    row.see_row(
        got, [&](std::size_t k) { return load<Double4>(&expected[k]); },
        [&](std::size_t k) { return load<Double4>(&likely[k]); },
        [&](std::size_t k) { look(row, k); });
    REQUIRE(row.compared == one_by_one.compared);
    REQUIRE(row.wrong == one_by_one.wrong);
    REQUIRE(row.suspects == one_by_one.suspects);
    REQUIRE(row.not_judged == one_by_one.not_judged);
    REQUIRE(row.worst.index == one_by_one.worst.index);
    REQUIRE(row.worst.ratio == one_by_one.worst.ratio);
  }
}

TEST_CASE("ulps are those of the float32 number nearest to the expected one") {
  CHECK(of(std::nextafter(1.0F, 2.0F), 1, {1, 1}).worst.ulps() == 1);
  CHECK(of(3, 2, {1, 1}).worst.ulps() == 0x1p22);
  CHECK(of(std::numeric_limits<float>::denorm_min(), 0, {1, 1}).worst.ulps() == 1);
}

TEST_CASE(
    "a sign-off disagrees over one wrong comparison or a failed launch, and has no verdict "
    "over nothing") {
  SignoffResult result;
  CHECK(result.verdict() == SignoffResult::Verdict::none);
  result.comparisons.push_back(of(1, 1, {}));
  CHECK(result.verdict() == SignoffResult::Verdict::agrees);
  result.unjudged.push_back("a node");
  CHECK(result.verdict() == SignoffResult::Verdict::none);
  result.comparisons.push_back(of(2, 1, {}));
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
  SignoffResult failed;
  failed.comparisons.push_back(of(1, 1, {}));
  failed.failure = "a launch failed";
  CHECK(failed.verdict() == SignoffResult::Verdict::disagrees);
}

TEST_CASE("want of memory leaves no verdict, but takes none back") {
  SignoffResult result;
  result.comparisons.push_back(of(1, 1, {}));
  result.out_of_memory = "no room";
  CHECK(result.verdict() == SignoffResult::Verdict::none);
  result.comparisons.push_back(of(2, 1, {}));
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
}

}  // namespace shardproof
