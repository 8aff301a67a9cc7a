// The allowances against exact rational arithmetic: the quantum rule, divisions, reductions, and
// the error of sums in every accumulator that a contract can state.
#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "diff/bounds.h"
#include "diff/test_devices.h"
#include "reference/numbers/random.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

Rational exact(double x) { return RealTraits<Rational>::from_double(x); }

Rational power_of_two(int exponent) {
  const Rational two_to = exact(std::ldexp(1.0, std::abs(exponent) / 2));
  const Rational rest = exact(std::ldexp(1.0, std::abs(exponent) - std::abs(exponent) / 2));
  return exponent < 0 ? Rational(1 / (two_to * rest)) : Rational(two_to * rest);
}

Rational magnitude_of(const Rational& x) { return x < 0 ? Rational(-x) : x; }

bool is_whole(const Rational& x) { return boost::multiprecision::denominator(x) == 1; }

// Every sign and exponent, subnormals, zeros, few and many bits.
float any_float(Random& random) {
  switch (random.below(6)) {
    case 0:
      return static_cast<float>(random.sign() * 0.0);
    case 1:
      return static_cast<float>(random.sign() *
                                std::ldexp(1.0, static_cast<int>(random.integer(-149, 127))));
    case 2:
      return static_cast<float>(random.sign() *
                                std::ldexp(static_cast<double>(random.below(64)),
                                           static_cast<int>(random.integer(-149, 120))));
    case 3:  // subnormal
      return static_cast<float>(random.sign() *
                                std::ldexp(static_cast<double>(random.below(1U << 23U)), -149));
    default:
      return static_cast<float>(
          random.sign() *
          std::ldexp(1 + random.uniform(), static_cast<int>(random.integer(-126, 126))));
  }
}

// ---- Accumulators

constexpr std::array<Accumulate, 5> kAccumulators{Accumulate::float32, Accumulate::float64,
                                                  Accumulate::tensor_core, Accumulate::bfloat16,
                                                  Accumulate::float16};

struct Terms {
  std::vector<float> a, b;  // b is all ones for a plain sum
  Rational sum() const {
    Rational total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      total += exact(static_cast<double>(a[i])) * exact(static_cast<double>(b[i]));
    }
    return total;
  }
  double magnitude() const {  // at least Σ|t|
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      total += std::abs(static_cast<double>(a[i]) * static_cast<double>(b[i]));
    }
    return total * (1 + 0x1p-40);
  }
  double squares() const {
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) {
      total += std::pow(static_cast<double>(a[i]) * static_cast<double>(b[i]), 2);
    }
    return total * (1 + 0x1p-40);
  }
};

// In as many running sums as `lanes`, then their tree; terms in their order.
double sum_in_lanes(const Terms& terms, Accumulate kind, std::size_t lanes, bool contracted) {
  std::vector<double> sums(lanes, 0);
  for (std::size_t i = 0; i < terms.a.size(); ++i) {
    double& sum = sums[i % lanes];
    sum = accumulated(kind, sum, terms.a[i], terms.b[i], contracted);
  }
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) {
      sums[i] = kind == Accumulate::float64
                    ? sums[i] + sums[i + half]
                    : accumulated(kind, sums[i], static_cast<float>(sums[i + half]), 1, contracted);
    }
  }
  return static_cast<double>(static_cast<float>(sums[0]));
}

void shuffle(Terms& terms, Random& random) {
  for (std::size_t i = terms.a.size(); i > 1; --i) {
    const std::size_t j = random.below(i);
    std::swap(terms.a[i - 1], terms.a[j]);
    std::swap(terms.b[i - 1], terms.b[j]);
  }
}

Terms plain(std::vector<float> numbers) {
  Terms terms;
  terms.b.assign(numbers.size(), 1);
  terms.a = std::move(numbers);
  return terms;
}

Contract with(Accumulate kind) {
  Contract contract;
  contract.accumulate = kind;
  return contract;
}

}  // namespace

// ---- Quanta

TEST_CASE("a number is a multiple of a quantum exactly when the quotient is whole") {
  Random random(1);
  for (int i = 0; i < 20'000; ++i) {
    const float x = any_float(random);
    int of_x = 0;
    std::frexp(x, &of_x);
    const int exponent = random.coin() ? static_cast<int>(random.integer(-170, 140))
                                       : of_x - static_cast<int>(random.integer(-2, 26));
    CAPTURE(x, exponent);
    const bool whole = is_whole(exact(static_cast<double>(x)) / power_of_two(exponent));
    REQUIRE(is_multiple(static_cast<double>(x), exponent) == whole);
    REQUIRE(are_multiples(std::span(&x, 1), exponent) == whole);
  }
}

TEST_CASE("only zero is a multiple of a quantum beyond every number") {
  for (const int exponent : {150, 1100, 2000, 1 << 16, 1 << 17}) {
    CHECK_FALSE(is_multiple(1, exponent));
    CHECK_FALSE(is_multiple(-0x1p127, exponent));
    CHECK(is_multiple(0, exponent));
  }
}

TEST_CASE("one number off the quantum shows wherever it stands") {
  for (const std::size_t count : {1U, 63U, 64U, 65U, 130U}) {
    std::vector<float> numbers(count, 6);
    CHECK(are_multiples(numbers, 1));
    for (std::size_t i = 0; i < count; ++i) {
      numbers[i] = 7;
      REQUIRE(!are_multiples(numbers, 1));
      numbers[i] = 6;
    }
  }
  CHECK(are_multiples({}, 5));
}

TEST_CASE("the needed quantum is the least that holds the magnitude in the bits") {
  Random random(2);
  for (int i = 0; i < 10'000; ++i) {
    const int bits = static_cast<int>(random.integer(8, 53));
    double magnitude = std::ldexp(random.coin() ? 1 : 1 + random.uniform(),
                                  static_cast<int>(random.integer(-290, 200)));
    if (random.coin()) magnitude = std::nextafter(magnitude, random.coin() ? 0 : 2 * magnitude);
    const int exponent = needed_quantum(magnitude, bits);
    CAPTURE(magnitude, bits, exponent);
    REQUIRE(exact(magnitude) <= power_of_two(bits + exponent));
    REQUIRE(exact(magnitude) > power_of_two(bits + exponent - 1));
  }
  CHECK(needed_quantum(0x1p24, 24) == 0);
  CHECK(needed_quantum(0x1p24 + 1, 24) == 1);
  CHECK(needed_quantum(0x1p24 - 1, 24) == 0);
}

TEST_CASE("a sum that keeps the quantum rule rounds in no order, and one quantum beyond it can") {
  Random random(3);
  for (const Accumulate kind : kAccumulators) {
    const int bits = significand_bits(kind);
    const double full = std::ldexp(1.0, bits);
    for (int i = 0; i < 300; ++i) {
      const int exponent = kind == Accumulate::float16 ? static_cast<int>(random.integer(-24, 3))
                                                       : static_cast<int>(random.integer(-100, 90));
      // Whole numbers, Σ|t| = 2^bits quanta.
      std::vector<float> numbers;
      for (double left = full; left > 0;) {
        const double t = random.below(3) == 0
                             ? std::min(left, 1.0)
                             : std::ceil(left * random.uniform() * random.uniform());
        numbers.push_back(static_cast<float>(random.sign() * std::ldexp(t, exponent)));
        left -= t;
        if (numbers.size() > 2000) break;
      }
      Terms terms = plain(numbers);
      const double magnitude = terms.magnitude() / (1 + 0x1p-40);
      const int quantum = needed_quantum(magnitude, with(kind));
      CAPTURE(static_cast<int>(kind), exponent, quantum, numbers.size());
      REQUIRE(quantum <= exponent);
      REQUIRE(are_multiples(numbers, quantum));
      const Rational sum = terms.sum();
      for (int order = 0; order < 4; ++order) {
        shuffle(terms, random);
        const std::size_t lanes = std::size_t{1} << random.below(6);
        REQUIRE(exact(sum_in_lanes(terms, kind, lanes, random.coin())) == sum);
      }
    }
    // Storing cuts float64 to 24 bits; a tensor core has one bit more than it is trusted with.
    if (kind == Accumulate::float64 || kind == Accumulate::tensor_core) continue;
    const Terms beyond = plain({static_cast<float>(full), 1});
    CHECK(!are_multiples(beyond.a, needed_quantum(full + 1, with(kind))));
    CHECK(exact(sum_in_lanes(beyond, kind, 1, false)) != beyond.sum());
  }
}

TEST_CASE("no quantum lies below what the accumulator can hold") {
  Contract contract;
  const float least = std::numeric_limits<float>::denorm_min();
  CHECK(are_multiples(std::vector{least}, needed_quantum(0x1p-149, contract)));
  contract.subnormals_kept = false;
  CHECK(!are_multiples(std::vector{least}, needed_quantum(0x1p-149, contract)));
  contract = with(Accumulate::bfloat16);
  CHECK(!are_multiples(std::vector{least}, needed_quantum(0x1p-149, contract)));
  contract = with(Accumulate::float16);
  CHECK(!are_multiples(std::vector{0x1p-25F}, needed_quantum(0x1p-25, contract)));
  CHECK(!are_multiples(std::vector{0x1p17F}, needed_quantum(0x1p17, contract)));
}

TEST_CASE("premultiplied sums are exact on their quantum, which only powers of two have") {
  Random random(4);
  Contract contract;
  contract.mean = MeanDivision::premultiply;
  for (int i = 0; i < 3000; ++i) {
    const std::size_t n = std::size_t{1} << random.below(8);
    const int exponent = static_cast<int>(random.integer(-149, 20));
    std::vector<float> numbers(n);
    for (float& t : numbers) {
      t = static_cast<float>(std::ldexp(static_cast<double>(random.integer(-255, 255)), exponent));
    }
    const Terms terms = plain(numbers);
    const int quantum = exact_quantum(terms.magnitude(), static_cast<double>(n), contract);
    if (!are_multiples(numbers, quantum)) continue;
    float sum = 0;
    for (const float t : numbers) sum += t * (1 / static_cast<float>(n));
    CAPTURE(n, exponent, quantum);
    REQUIRE(exact(static_cast<double>(sum)) == terms.sum() / Rational(static_cast<int>(n)));
  }
  for (const double n : {3.0, 5.0, 49.0, 98.0}) {
    CHECK(!are_multiples(std::vector{0x1p127F}, exact_quantum(0x1p127, n, contract)));
    CHECK(are_multiples(std::vector{0.0F}, exact_quantum(0, n, contract)));
  }
}

// ---- Divisions and reductions

TEST_CASE("a division is called exact exactly when the float32 operations give the quotient") {
  Random random(5);
  std::size_t exact_ones = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto n = static_cast<double>(random.integer(1, random.coin() ? 8 : 30'000));
    // Often a multiple of n.
    const double whole = static_cast<double>(random.integer(-1000, 1000)) * n;
    const float s = static_cast<float>(
        random.coin() ? whole : whole + static_cast<double>(random.integer(0, 3)));
    const Rational quotient = exact(static_cast<double>(s)) / exact(n);
    const float count = static_cast<float>(n);
    CAPTURE(s, n);
    const bool divides = exact(static_cast<double>(s / count)) == quotient;
    REQUIRE(divides_exactly(static_cast<double>(s), n, MeanDivision::divide) == divides);
    const bool by_reciprocal = exact(static_cast<double>(s * (1 / count))) == quotient;
    const bool called = divides_exactly(static_cast<double>(s), n, MeanDivision::reciprocal);
    REQUIRE(called == by_reciprocal);
    exact_ones += by_reciprocal ? 1U : 0U;
  }
  CHECK(exact_ones > 1000);
}

namespace {

float mean_of(const std::vector<float>& terms, MeanDivision division) {
  const float n = static_cast<float>(terms.size());
  float sum = 0;
  for (const float t : terms) sum += division == MeanDivision::premultiply ? t * (1 / n) : t;
  return division == MeanDivision::divide       ? sum / n
         : division == MeanDivision::reciprocal ? sum * (1 / n)
                                                : sum;
}

// Numbers for sums: of one size, of many, cancelling, whole, subnormal, equal.
std::vector<float> hard_terms(Random& random, std::size_t n) {
  std::vector<float> terms(n);
  const auto kind = random.below(7);
  const double scale = std::ldexp(1.0, static_cast<int>(random.integer(-40, 40)));
  const double equal = 1 + random.uniform();
  for (std::size_t i = 0; i < n; ++i) {
    const double u = random.uniform();
    double t = 0;
    switch (kind) {
      case 0:
        t = scale * (u - 0.5);
        break;
      case 1:
        t = random.sign() * scale * std::ldexp(1 + u, static_cast<int>(random.integer(-20, 20)));
        break;
      case 2:
        t = scale * ((i % 2 == 0 ? 1000 : -1000) + u);
        break;
      case 3:
        t = scale * static_cast<double>(random.integer(-300, 300));
        break;
      case 4:
        t = 0x1p-149 * static_cast<double>(random.integer(-9, 9));
        break;
      case 5:
        t = scale * equal;
        break;
      default:
        t = std::ldexp(1 + u, static_cast<int>(40 * i / n));
        break;
    }
    terms[i] = static_cast<float>(t);
  }
  return terms;
}

}  // namespace

TEST_CASE("a mean errs by no more than its allowance, whatever the division") {
  Random random(6);
  for (int i = 0; i < 6000; ++i) {
    const std::size_t n = 1 + random.below(random.coin() ? 9 : 200);
    const std::vector<float> numbers = hard_terms(random, n);
    const Terms terms = plain(numbers);
    const Rational sum = terms.sum();
    const double total = std::abs(static_cast<double>(sum));
    for (const MeanDivision division :
         {MeanDivision::divide, MeanDivision::reciprocal, MeanDivision::premultiply}) {
      Contract contract;
      contract.mean = division;
      const auto count = static_cast<double>(n);
      const bool is_exact =
          are_multiples(numbers, exact_quantum(terms.magnitude(), count, contract));
      const Allowance of_sum =
          is_exact ? Allowance{}
                   : sum_bound(count, contract, InputKind::natural, Dither::permuted)
                         .at(total, terms.magnitude(), terms.squares());
      const Allowance allowance =
          mean_allowance(of_sum, {count, total, terms.magnitude(), is_exact}, contract);
      const Rational error =
          magnitude_of(exact(static_cast<double>(mean_of(numbers, division))) - sum / exact(count));
      CAPTURE(n, static_cast<int>(division), is_exact, allowance.any, static_cast<double>(error));
      REQUIRE(allowance.likely <= allowance.any);
      REQUIRE(error <= exact(allowance.any) * exact(1 + 0x1p-40));
    }
  }
}

TEST_CASE("an all-reduced mean errs by no more than its allowance, in any order of its terms") {
  Random random(7);
  std::size_t without_allowance = 0;
  for (int i = 0; i < 6000; ++i) {
    const std::size_t replicas = 1 + random.below(7);
    std::vector<float> terms = hard_terms(random, replicas);
    const Rational mean = plain(terms).sum() / Rational(static_cast<int>(replicas));
    for (const MeanDivision division :
         {MeanDivision::divide, MeanDivision::reciprocal, MeanDivision::premultiply}) {
      Contract contract;
      contract.mean = division;
      const double allowance = all_reduce_allowance(terms, contract).any;
      without_allowance += allowance == 0 ? 1U : 0U;
      for (int order = 0; order < 6; ++order) {
        random.shuffle(std::span(terms));
        const Rational error =
            magnitude_of(exact(static_cast<double>(mean_of(terms, division))) - mean);
        CAPTURE(replicas, static_cast<int>(division), allowance, static_cast<double>(error));
        REQUIRE(error <= exact(allowance) * exact(1 + 0x1p-40));
      }
    }
  }
  CHECK(without_allowance > 1000);
}

TEST_CASE("one replica's all-reduce changes no bit") {
  for (const float x : {0.1F, -3.0e38F / 4, 1e-40F}) {
    for (const MeanDivision division :
         {MeanDivision::divide, MeanDivision::reciprocal, MeanDivision::premultiply}) {
      Contract contract;
      contract.mean = division;
      CHECK(all_reduce_allowance(std::span(&x, 1), contract).any == 0);
    }
  }
}

// ---- Sums

TEST_CASE("a sum or product errs by no more than its bound in every accumulator") {
  Random random(8);
  for (const Accumulate kind : kAccumulators) {
    for (int i = 0; i < 1200; ++i) {
      const std::size_t n = 1 + random.below(i % 8 == 0 ? 1200 : 60);
      Terms terms = plain(hard_terms(random, n));
      switch (i % 5) {
        case 0:
          std::fill(terms.a.begin(), terms.a.end(), 1 + 0x1p-23F);
          break;
        case 1:
          std::fill(terms.a.begin(), terms.a.end(), 1.0F);
          break;
        default:
          break;
      }
      const bool products = random.coin();
      if (products) {
        terms.b = hard_terms(random, n);
        // Stays above the underflow of a product, of which Higham's model knows nothing.
        for (float& b : terms.b)
          b = b == 0 ? 1 : std::copysign(1 + std::fmod(std::abs(b), 1.0F), b);
      }
      const double magnitude = terms.magnitude();
      const bool contracted = random.coin();
      const Contract contract = with(kind);
      const auto count = static_cast<double>(n);
      const SumBound bound =
          products ? product_bound(count, contract, InputKind::natural, Dither::permuted)
                   : sum_bound(count, contract, InputKind::natural, Dither::permuted);
      const Rational sum = terms.sum();
      const double total = std::abs(static_cast<double>(sum));
      const Allowance allowance = bound.at(total, magnitude, terms.squares());
      if (!std::isfinite(allowance.any)) continue;  // float16 may overflow
      const std::size_t lanes = std::size_t{1} << random.below(6);
      const double got = sum_in_lanes(terms, kind, lanes, contracted);
      const Rational error = magnitude_of(exact(got) - sum);
      CAPTURE(static_cast<int>(kind), n, products, lanes, contracted, allowance.any,
              static_cast<double>(error));
      REQUIRE(error <= exact(allowance.any) * exact(1 + 0x1p-40));
    }
  }
}

TEST_CASE("bounds grow with what is summed, and likely ones stay within any-order ones") {
  Random random(9);
  for (const Accumulate kind : kAccumulators) {
    for (const InputKind input : {InputKind::natural, InputKind::lattice, InputKind::dithered}) {
      for (const Dither dither : {Dither::permuted, Dither::signs}) {
        for (int i = 0; i < 300; ++i) {
          Contract contract = with(kind);
          contract.lanes = std::size_t{1} << random.below(9);
          const auto n = static_cast<double>(1 + random.below(3000));
          const double scale = std::ldexp(1.0, static_cast<int>(random.integer(-130, 10)));
          const double magnitude = scale * (1 + random.uniform());
          const double total = magnitude * random.uniform();
          const double squares = magnitude * magnitude * random.uniform();
          const double more = 1 + random.uniform();
          const auto check = [&](const SumBound& bound) {
            const Allowance least = bound.at(total, magnitude, squares);
            REQUIRE(least.likely <= least.any);
            REQUIRE(least.any > 0);
            for (const Allowance& grown : {bound.at(total * more, magnitude, squares),
                                           bound.at(total, magnitude * more, squares),
                                           bound.at(total, magnitude, squares * more)}) {
              REQUIRE(grown.any >= least.any);
              REQUIRE(grown.likely >= least.likely);
            }
          };
          CAPTURE(static_cast<int>(kind), n, contract.lanes, magnitude);
          check(sum_bound(n, contract, input, dither));
          check(product_bound(n, contract, input, dither));
        }
      }
    }
  }
}

// Where terms cancel, two lanes have the same V up to a share of 1.5/n (docs/bounds.md).
TEST_CASE("one lane has the loosest dithered bound") {
  for (const double n : {3.0, 98.0, 1568.0, 25'088.0}) {
    for (const double total : {0.0, 1.0, n / 2, n}) {
      for (std::size_t lanes = 1; lanes <= 256; lanes *= 2) {
        Contract contract;
        const auto likely = [&](Dither dither) {
          return sum_bound(n, contract, InputKind::dithered, dither).at(total, n, n).likely;
        };
        const double permuted = likely(Dither::permuted), signs = likely(Dither::signs);
        contract.lanes = lanes;
        CAPTURE(n, total, lanes);
        CHECK(likely(Dither::permuted) <= permuted * (1 + 0.75 / n));
        CHECK(likely(Dither::signs) <= signs);
      }
    }
  }
}

// ---- Normalise

TEST_CASE("a normalised number errs by no more than its allowance in every form") {
  Random random(10);
  for (int i = 0; i < 40'000; ++i) {
    const auto power = [&](int low, int high) {
      return std::ldexp(1 + random.uniform(), static_cast<int>(random.integer(low, high)));
    };
    const float mean = static_cast<float>(random.sign() * power(-20, 12));
    const float variance = static_cast<float>(random.below(8) == 0 ? 0 : power(-30, 20));
    const float epsilon = 1e-5F;
    const bool near = random.coin();
    const float x = near
                        ? static_cast<float>(static_cast<double>(mean) * (1 + 1e-6 * random.sign()))
                        : static_cast<float>(random.sign() * power(-20, 12));
    const float gamma = static_cast<float>(
        random.sign() * (random.below(8) == 0 ? power(-149, -100) : power(-4, 4)));
    const float beta = static_cast<float>(random.sign() * (random.coin() ? power(-4, 4) : 0));
    const float root = 1 / std::sqrt(variance + epsilon);
    const float scale = gamma * root;
    const float d = x - mean;

    const long double exact_root =
        1 / std::sqrt(static_cast<long double>(variance) + static_cast<long double>(epsilon));
    const long double t = static_cast<long double>(gamma) *
                          (static_cast<long double>(x) - static_cast<long double>(mean)) *
                          exact_root;
    const long double y = t + static_cast<long double>(beta);
    const auto check = [&](float got, NormaliseForm form) {
      Contract contract;
      contract.root = 1.5;
      contract.form = form;
      const NormaliseAllowance a =
          normalise_allowance(contract, static_cast<double>(gamma), static_cast<double>(beta),
                              static_cast<double>(mean), static_cast<double>(exact_root));
      const double bound = a.relative * std::abs(static_cast<double>(t)) +
                           a.output * std::abs(static_cast<double>(y)) + a.fixed;
      CAPTURE(x, mean, variance, gamma, beta, got, static_cast<double>(y), bound);
      REQUIRE(std::abs(static_cast<double>(static_cast<long double>(got) - y)) <=
              bound * (1 + 0x1p-40));
    };
    check(d * scale + beta, NormaliseForm::subtract_first);
    check(std::fma(d, scale, beta), NormaliseForm::subtract_first);
    check(d * root * gamma + beta, NormaliseForm::subtract_first);
    check(x * scale + (beta - mean * scale), NormaliseForm::fused);
    check(std::fma(x, scale, std::fma(-mean, scale, beta)), NormaliseForm::fused);
  }
}

}  // namespace shardproof
