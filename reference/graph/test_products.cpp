#include <algorithm>
#include <atomic>
#include <boost/multiprecision/gmp.hpp>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "reference/graph/double_double_products.h"
#include "reference/graph/parallel.h"
#include "reference/graph/product_tiles.h"
#include "reference/graph/products.h"

namespace shardproof {
namespace {

using Integer = boost::multiprecision::mpz_int;

// x · 2^unit_bits, rounded down; exact for sums of products of float32 numbers and of their
// squares.
constexpr int unit_bits = 700;
Integer in_units(double x) {
  int exponent = 0;
  const double significand = std::frexp(x, &exponent);
  const Integer whole = static_cast<std::int64_t>(std::ldexp(significand, 53));
  const int shift = exponent - 53 + unit_bits;
  return shift >= 0 ? Integer(whole << shift) : Integer(whole >> -shift);
}

template <class T>
struct TermOf {
  using Operand = T;
};
template <>
struct TermOf<float> {
  using Operand = double;
};

// The terms of one output by the definition (spec §4), padding left out; float32 operands as
// double.
template <class T>
std::vector<std::pair<float, typename TermOf<T>::Operand>> terms_of(
    const ProductGeometry& g, const std::vector<T>& x, const std::vector<float>& w,
    std::size_t image, std::size_t channel, std::size_t oy, std::size_t ox) {
  std::vector<std::pair<float, typename TermOf<T>::Operand>> terms;
  if (g.kind == ProductKind::dense) {
    for (std::size_t i = 0; i < g.x.example(); ++i) {
      terms.emplace_back(w[i * g.y.c + channel], x[image * g.x.example() + i]);
    }
    return terms;
  }
  const bool depthwise = g.kind == ProductKind::depthwise;
  const std::size_t inputs = depthwise ? 1 : g.x.c;
  for (std::size_t i = 0; i < inputs; ++i) {
    for (std::size_t ky = 0; ky < g.kernel; ++ky) {
      for (std::size_t kx = 0; kx < g.kernel; ++kx) {
        const auto iy = static_cast<long>(oy * g.stride + ky) - static_cast<long>(g.pad_begin);
        const auto ix = static_cast<long>(ox * g.stride + kx) - static_cast<long>(g.pad_begin);
        if (iy < 0 || ix < 0 || iy >= static_cast<long>(g.x.h) || ix >= static_cast<long>(g.x.w)) {
          continue;
        }
        const std::size_t in = depthwise ? channel : i;
        terms.emplace_back(w[((channel * inputs + i) * g.kernel + ky) * g.kernel + kx],
                           x[((image * g.x.c + in) * g.x.h + static_cast<std::size_t>(iy)) * g.x.w +
                             static_cast<std::size_t>(ix)]);
      }
    }
  }
  return terms;
}

// Everything a product hands out, put back into y's order.
struct Collected {
  std::vector<double> value;
  std::vector<float> magnitude, squares;
  std::vector<char> exact, times;
};

void collect(const ProductGeometry& g, const ProductTile& tile, Collected& all) {
  for (std::size_t c = 0; c < tile.channels; ++c) {
    for (std::size_t p = 0; p < tile.pixels; ++p) {
      const std::size_t from = c * tile.row_stride + p;
      const std::size_t to =
          (tile.image * g.y.c + tile.first_channel + c) * g.y.plane() + tile.first_pixel + p;
      all.times[to] = static_cast<char>(all.times[to] + 1);
      all.value[to] = tile.value[from];
      if (tile.magnitude == nullptr) continue;
      all.magnitude[to] = tile.magnitude[from];
      all.exact[to] = tile.sum_is_exact(c, p, 24);
      if (tile.squares != nullptr) all.squares[to] = tile.squares[from];
    }
  }
}

Collected space_for(const ProductGeometry& g) {
  const std::size_t n = g.y.size();
  return {std::vector<double>(n), std::vector<float>(n), std::vector<float>(n),
          std::vector<char>(n), std::vector<char>(n)};
}

Collected evaluate(const ProductGeometry& g, const std::vector<float>& x,
                   const std::vector<float>& w, ProductNeeds needs = ProductNeeds::squares,
                   unsigned threads = 2) {
  Collected all = space_for(g);
  for_each_product_tile(g, x, w, needs, threads,
                        [&](const ProductTile& tile) { collect(g, tile, all); });
  REQUIRE(std::count(all.times.begin(), all.times.end(), 1) == std::ssize(all.times));
  return all;
}

ProductGeometry windowed(ProductKind kind, Shape x, std::size_t out, std::size_t kernel,
                         std::size_t stride, std::size_t pad_begin, std::size_t pad_end) {
  const auto extent = [&](std::size_t in) {
    return (in + pad_begin + pad_end - kernel) / stride + 1;
  };
  return {kind, x, {x.n, out, extent(x.h), extent(x.w)}, kernel, stride, pad_begin};
}

std::vector<ProductGeometry> small_geometries() {
  std::vector<ProductGeometry> all;
  for (const std::size_t kernel : {1, 3, 5, 7}) {
    for (const std::size_t stride : {1, 2, 3}) {
      for (const auto& [begin, end] :
           {std::pair<std::size_t, std::size_t>{(kernel - 1) / 2, (kernel - 1) / 2},
            {0, kernel - 1},
            {kernel - 1, 0},
            {0, 0},
            {0, 1}}) {
        all.push_back(
            windowed(ProductKind::convolution, {2, 3, 7, 9}, 5, kernel, stride, begin, end));
        all.push_back(
            windowed(ProductKind::depthwise, {2, 4, 7, 11}, 4, kernel, stride, begin, end));
      }
    }
  }
  all.push_back(windowed(ProductKind::depthwise, {1, 2, 21, 38}, 2, 5, 2, 2, 2));
  all.push_back(windowed(ProductKind::convolution, {3, 17, 1, 1}, 6, 1, 1, 0, 0));
  all.push_back({ProductKind::dense, {3, 14, 1, 1}, {3, 5, 1, 1}});
  all.push_back({ProductKind::dense, {2, 3, 2, 5}, {2, 7, 1, 1}});
  return all;
}

enum class Fill { normal, wide, subnormal, sparse, lattice, large_channel };
constexpr Fill fills[] = {Fill::normal, Fill::wide,    Fill::subnormal,
                          Fill::sparse, Fill::lattice, Fill::large_channel};

std::vector<float> filled(std::size_t n, std::size_t channel, Fill fill, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> exponent(-60, 60), small(-9, 9), tiny(-140, -100);
  std::vector<float> numbers(n);
  for (std::size_t i = 0; i < n; ++i) {
    const float value = normal(random);
    switch (fill) {
      case Fill::normal:
        numbers[i] = value;
        break;
      case Fill::wide:
        numbers[i] = std::ldexp(value, exponent(random));
        break;
      case Fill::subnormal:
        numbers[i] = std::ldexp(value, tiny(random));
        break;
      case Fill::sparse:
        numbers[i] = random() % 7 == 0 ? value : 0.0f;
        break;
      case Fill::lattice:
        numbers[i] = std::ldexp(static_cast<float>(small(random)), -3);
        break;
      case Fill::large_channel:
        numbers[i] = i / channel == 1 ? 1e6f * value : value;
        break;
    }
  }
  return numbers;
}

// Checks output i of `all` against the exact sums of its terms.
void check_output(const ProductGeometry& g, const std::vector<float>& x,
                  const std::vector<float>& w, const Collected& all, std::size_t i) {
  const std::size_t plane = g.y.plane(), channel = i / plane % g.y.c, image = i / g.y.example();
  const auto terms = terms_of(g, x, w, image, channel, i % plane / g.y.w, i % plane % g.y.w);
  Integer sum = 0, magnitude = 0, squares = 0;
  float forward = 0, backward = 0;
  for (const auto& [a, b] : terms) {
    const Integer t = in_units(a * b);  // b is double: the product is exact
    sum += t;
    magnitude += abs(t);
    squares += (t * t) >> unit_bits;
    forward += a * static_cast<float>(b);
  }
  for (std::size_t t = terms.size(); t-- > 0;) {
    backward = std::fma(terms[t].first, static_cast<float>(terms[t].second), backward);
  }
  const double radius = product_radius(g.terms()) * static_cast<double>(all.magnitude[i]);
  const auto require = [&](bool holds, const char* what) {
    if (holds) return;
    FAIL(what << ": output " << i << " of " << to_string(g.y) << ", kernel " << g.kernel
              << ", stride " << g.stride << ", pad " << g.pad_begin << ", value " << all.value[i]
              << ", magnitude " << all.magnitude[i] << ", squares " << all.squares[i]);
  };
  if (std::isfinite(radius)) {
    require(abs(in_units(all.value[i]) - sum) <= in_units(radius), "value outside its radius");
    require(in_units(all.magnitude[i]) >= magnitude, "magnitude below the exact one");
    // What the bound may add for K roundings, and for K products that underflow.
    require(all.magnitude[i] <= std::ldexp(static_cast<double>(magnitude >> 400), 400 - unit_bits) *
                                        (1 + static_cast<double>(2 * g.terms() + 12) * 0x1p-24) +
                                    static_cast<double>(4 * g.terms() + 8) * 0x1p-149,
            "magnitude is loose");
  } else {
    require(magnitude > in_units(0x1p127), "magnitude infinite for nothing");
  }
  if (std::isfinite(all.squares[i])) {
    require(in_units(all.squares[i]) >= squares, "squares below the exact ones");
  }
  if (all.exact[i]) {
    require(in_units(static_cast<double>(forward)) == sum &&
                in_units(static_cast<double>(backward)) == sum && in_units(all.value[i]) == sum,
            "a sum said to be exact rounds");
  }
}

std::size_t exact_outputs(const Collected& all) {
  std::size_t count = 0;
  for (const char exact : all.exact) count += exact != 0;
  return count;
}

}  // namespace

TEST_CASE("values, sums of magnitudes and of squares enclose the exact ones on all geometries") {
  std::mt19937 random(20);
  for (const ProductGeometry& g : small_geometries()) {
    for (const Fill of_x : fills) {
      const Fill of_w = fills[random() % std::size(fills)];
      const auto x = filled(g.x.size(), g.x.plane(), of_x, random);
      const auto w = filled(g.weight_size(), g.terms() / 3 + 1, of_w, random);
      const Collected all = evaluate(g, x, w);
      for (std::size_t i = 0; i < g.y.size(); ++i) check_output(g, x, w, all, i);
      SUCCEED();
    }
  }
}

TEST_CASE("products cut into several tiles, panels and row blocks enclose the exact sums") {
  std::mt19937 random(21);
  for (const ProductGeometry& g :
       {windowed(ProductKind::convolution, {3, 37, 23, 29}, 259, 1, 1, 0, 0),
        windowed(ProductKind::convolution, {2, 5, 51, 33}, 7, 3, 2, 0, 1),
        windowed(ProductKind::convolution, {3, 64, 7, 7}, 513, 3, 1, 1, 1),
        windowed(ProductKind::depthwise, {2, 130, 7, 7}, 130, 5, 1, 2, 2),
        ProductGeometry{ProductKind::dense, {5, 3001, 1, 1}, {5, 300, 1, 1}}}) {
    for (const Fill fill : fills) {
      const auto x = filled(g.x.size(), g.x.plane(), fill, random);
      const auto w = filled(g.weight_size(), g.terms() / 3 + 1, fill, random);
      const Collected all = evaluate(g, x, w);
      const std::size_t step = g.y.size() / 97 + 1;
      for (std::size_t i = 0; i < g.y.size(); i += step) check_output(g, x, w, all, i);
      check_output(g, x, w, all, g.y.size() - 1);
      SUCCEED();
    }
  }
}

TEST_CASE("products give the same bytes on any number of threads") {
  std::mt19937 random(22);
  const auto same = [](const auto& a, const auto& b) {
    return std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
  };
  for (const ProductGeometry& g :
       {windowed(ProductKind::convolution, {3, 40, 13, 17}, 261, 3, 2, 1, 1),
        windowed(ProductKind::depthwise, {3, 41, 15, 13}, 41, 3, 1, 1, 1),
        ProductGeometry{ProductKind::dense, {4, 700, 1, 1}, {4, 257, 1, 1}}}) {
    const auto x = filled(g.x.size(), g.x.plane(), Fill::normal, random);
    const auto w = filled(g.weight_size(), 1, Fill::wide, random);
    const Collected one = evaluate(g, x, w, ProductNeeds::squares, 1);
    for (const unsigned threads : {2u, 3u}) {
      const Collected other = evaluate(g, x, w, ProductNeeds::squares, threads);
      REQUIRE(same(one.value, other.value));
      REQUIRE(same(one.magnitude, other.magnitude));
      REQUIRE(same(one.squares, other.squares));
    }
    REQUIRE(same(one.value, evaluate(g, x, w, ProductNeeds::value, 2).value));
    REQUIRE(same(one.magnitude, evaluate(g, x, w, ProductNeeds::magnitude, 2).magnitude));
  }
}

TEST_CASE("values of float64 operands lie within the radius") {
  std::mt19937 random(23);
  std::normal_distribution<double> normal;
  for (const ProductGeometry& g : small_geometries()) {
    std::vector<double> x(g.x.size());
    for (double& number : x) number = normal(random);
    const auto w = filled(g.weight_size(), 1, Fill::normal, random);
    Collected all = space_for(g);
    for_each_product_tile(g, x, w, 2, [&](const ProductTile& tile) { collect(g, tile, all); });
    for (std::size_t i = 0; i < g.y.size(); ++i) {
      const std::size_t plane = g.y.plane();
      Integer sum = 0, magnitude = 0;
      for (const auto& [a, b] : terms_of(g, x, w, i / g.y.example(), i / plane % g.y.c,
                                         i % plane / g.y.w, i % plane % g.y.w)) {
        const Integer t = (in_units(a) * in_units(b)) >> unit_bits;
        sum += t;
        magnitude += abs(t);
      }
      REQUIRE(all.times[i] == 1);
      // radius · 2^53 is an integer up to its second order
      REQUIRE((abs(in_units(all.value[i]) - sum) << 53) <= (g.terms() + 2) * magnitude);
    }
  }
}

TEST_CASE("double-double products are right to 2^-100 of the sum of magnitudes") {
  std::mt19937 random(25);
  std::vector<ProductGeometry> geometries = small_geometries();
  const std::size_t small = geometries.size();
  geometries.push_back(windowed(ProductKind::convolution, {3, 37, 23, 29}, 259, 1, 1, 0, 0));
  geometries.push_back(windowed(ProductKind::convolution, {2, 64, 7, 7}, 33, 3, 1, 1, 1));
  geometries.push_back({ProductKind::dense, {5, 3001, 1, 1}, {5, 300, 1, 1}});
  for (std::size_t turn = 0; turn < geometries.size(); ++turn) {
    const ProductGeometry& g = geometries[turn];
    for (std::size_t draw = 0; draw < (turn < small ? 2 : std::size(fills)); ++draw) {
      const Fill of_x = fills[(turn + draw) % std::size(fills)];
      const Fill of_w = fills[random() % std::size(fills)];
      const auto highs = filled(g.x.size(), g.x.plane(), of_x, random);
      const auto lows = filled(g.x.size(), g.x.plane(), Fill::normal, random);
      const auto w = filled(g.weight_size(), g.terms() / 3 + 1, of_w, random);
      std::vector<DoubleDouble> x(g.x.size()), y(g.y.size());
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double high = highs[i] * (1 + 0x1p-40 * static_cast<double>(lows[i]));
        x[i] = DoubleDouble::two_sum(high, high * 0x1p-56 * static_cast<double>(lows[i]));
      }
      double_double_product(g, x, w, 2, y);
      for (std::size_t i = 0; i < y.size(); i += turn < small ? 1 : y.size() / 97 + 1) {
        const std::size_t plane = g.y.plane();
        Integer sum = 0, magnitude = 0;
        for (const auto& [a, b] : terms_of(g, x, w, i / g.y.example(), i / plane % g.y.c,
                                           i % plane / g.y.w, i % plane % g.y.w)) {
          const Integer t = (in_units(a) * (in_units(b.high) + in_units(b.low))) >> unit_bits;
          sum += t;
          magnitude += abs(t);
        }
        const Integer error = in_units(y[i].high) + in_units(y[i].low) - sum;
        const bool right = (abs(error) << 100) <= magnitude && y[i].high == y[i].high + y[i].low;
        if (!right) {
          FAIL("output " << i << " of " << to_string(g.y) << ", kernel " << g.kernel << ", fills "
                         << static_cast<int>(of_x) << static_cast<int>(of_w));
        }
      }
      SUCCEED();
    }
  }
}

TEST_CASE("double-double products give the same bytes on any number of threads") {
  std::mt19937 random(26);
  for (const ProductGeometry& g :
       {windowed(ProductKind::convolution, {3, 40, 13, 17}, 261, 3, 2, 1, 1),
        windowed(ProductKind::depthwise, {3, 41, 15, 13}, 41, 3, 1, 1, 1)}) {
    const auto numbers = filled(g.x.size(), 1, Fill::normal, random);
    const auto w = filled(g.weight_size(), 1, Fill::wide, random);
    std::vector<DoubleDouble> x, one(g.y.size()), other(g.y.size());
    for (const float number : numbers) x.emplace_back(static_cast<double>(number) / 3);
    double_double_product(g, x, w, 1, one);
    for (const unsigned threads : {2u, 3u}) {
      double_double_product(g, x, w, threads, other);
      REQUIRE(std::memcmp(one.data(), other.data(), one.size() * sizeof one[0]) == 0);
    }
  }
}

TEST_CASE("double-double products of operands outside the sliced range") {
  const ProductGeometry g = windowed(ProductKind::convolution, {1, 2, 1, 4}, 1, 1, 1, 0, 0);
  const double infinity = std::numeric_limits<double>::infinity();
  std::vector<DoubleDouble> x(8), y(4);
  x[0] = DoubleDouble(0x1p-500), x[4] = DoubleDouble(3 * 0x1p-530);
  x[1] = DoubleDouble(0x1p700), x[5] = DoubleDouble(-0x1p640);
  x[2] = DoubleDouble(infinity), x[6] = DoubleDouble(1);
  double_double_product(g, x, std::vector<float>{2, 1}, 1, y);
  CHECK(y[0] == DoubleDouble(2 * 0x1p-500 + 3 * 0x1p-530));
  CHECK(y[1] == DoubleDouble(0x1p701, -0x1p640));
  CHECK_FALSE(std::isfinite(y[2].high));
  CHECK(y[3] == DoubleDouble(0));
}

TEST_CASE("sums on a lattice are exact up to 2^24 quanta and not beyond") {
  // Two terms a column; e·1 + e·1 = 2^24 − 30 and e·1 + e·2 = 3·2^23 − 45, e odd.
  const ProductGeometry g = windowed(ProductKind::convolution, {1, 2, 1, 3}, 2, 1, 1, 0, 0);
  const float edge = 8388593;
  const std::vector<float> x = {edge, 1, 0, edge, 3, 0};
  const Collected all = evaluate(g, x, {1, 1, 1, 2});
  CHECK(all.exact[0]);
  CHECK(all.exact[1]);
  CHECK(all.exact[2]);  // a column of zeros
  CHECK_FALSE(all.exact[3]);
  CHECK(all.exact[4]);
  const float quantum = 0x1p-70f;
  std::vector<float> scaled = x;
  for (float& number : scaled) number *= quantum;
  CHECK(evaluate(g, scaled, {quantum, quantum, quantum, quantum}).exact[0]);
  CHECK_FALSE(evaluate(g, scaled, {quantum, quantum, quantum, 2 * quantum}).exact[3]);
  // Below float32's range of exponents nothing is exact.
  CHECK_FALSE(evaluate(g, scaled, {0x1p-80f, 0x1p-80f, 0x1p-80f, 0x1p-80f}).exact[1]);
}

TEST_CASE("one-hot operands make every sum exact, random reals none") {
  std::mt19937 random(24);
  for (const ProductKind kind : {ProductKind::convolution, ProductKind::depthwise}) {
    const ProductGeometry g = windowed(kind, {2, 6, 9, 7}, 6, 3, 1, 0, 0);
    const auto reals = filled(g.x.size(), 1, Fill::normal, random);
    const auto weights = filled(g.weight_size(), 1, Fill::normal, random);
    CHECK(exact_outputs(evaluate(g, reals, weights)) == 0);
    std::vector<float> one_hot_x(g.x.size());
    for (std::size_t image = 0; image < 2; ++image) one_hot_x[image * g.x.example() + 31] = 1;
    CHECK(exact_outputs(evaluate(g, one_hot_x, weights)) == g.y.size());
    one_hot_x[32] = 1;
    CHECK(exact_outputs(evaluate(g, one_hot_x, weights)) < g.y.size());
    std::vector<float> one_hot_w(g.weight_size());
    for (std::size_t c = 0; c < g.y.c; ++c) one_hot_w[c * g.terms() + c] = -1;
    CHECK(exact_outputs(evaluate(g, reals, one_hot_w)) == g.y.size());
    for (float& number : one_hot_w) number *= 3.3f;
    CHECK(exact_outputs(evaluate(g, reals, one_hot_w)) < g.y.size() / 2);
  }
}

TEST_CASE("infinite and NaN operands leave no finite bound and no exact sum") {
  const ProductGeometry g = windowed(ProductKind::convolution, {1, 2, 1, 2}, 1, 1, 1, 0, 0);
  const float infinity = std::numeric_limits<float>::infinity();
  const Collected all = evaluate(g, {infinity, std::nanf(""), 1, 1}, {0, 1});
  CHECK(std::isnan(all.value[0]));
  CHECK(std::isnan(all.value[1]));
  for (const std::size_t i : {0, 1}) {
    CHECK(all.magnitude[i] == infinity);
    CHECK(all.squares[i] == infinity);
    CHECK_FALSE(all.exact[i]);
  }
}

TEST_CASE("examples that lie apart are read as those of one batch") {
  std::mt19937 random(7);
  for (const ProductGeometry& g : small_geometries()) {
    const auto x = filled(g.x.size(), g.x.plane(), Fill::normal, random);
    const auto w = filled(g.weight_size(), g.terms(), Fill::normal, random);
    std::vector<std::vector<float>> copies;
    for (const std::span<const float> example : examples_of<float>(g, x)) {
      copies.emplace_back(example.begin(), example.end());
    }
    std::vector<std::span<const float>> examples(copies.begin(), copies.end());
    Collected apart = space_for(g);
    for_each_product_tile(g, examples, w, ProductNeeds::magnitude, 2, [&](const ProductTile& tile) {
      if (tile.worker > 1) throw std::logic_error("a third worker");
      collect(g, tile, apart);
    });
    const Collected together = evaluate(g, x, w, ProductNeeds::magnitude);
    REQUIRE(apart.value == together.value);
    REQUIRE(apart.magnitude == together.magnitude);
    examples.pop_back();
    REQUIRE_THROWS_AS(
        for_each_product_tile(g, examples, w, ProductNeeds::value, 1, [](const ProductTile&) {}),
        std::logic_error);
  }
}

TEST_CASE("shapes that do not fit are a broken invariant") {
  ProductGeometry g = windowed(ProductKind::convolution, {1, 2, 5, 5}, 3, 3, 1, 1, 1);
  const std::vector<float> x(g.x.size()), w(g.weight_size());
  CHECK_THROWS_AS(evaluate(g, x, std::vector<float>(5)), std::logic_error);
  CHECK_THROWS_AS(evaluate(g, w, w), std::logic_error);
  g.y.n = 2;
  CHECK_THROWS_AS(evaluate(g, x, w), std::logic_error);
}

TEST_CASE("parallel_for runs every index once and carries an exception to the caller") {
  for (const unsigned threads : {0u, 1u, 2u, 5u}) {
    std::vector<std::atomic<int>> times(1000);
    std::atomic<bool> workers_in_range{true};
    parallel_for(threads, times.size(), [&](std::size_t index, unsigned worker) {
      ++times[index];
      if (worker >= std::max(threads, 1u)) workers_in_range = false;
    });
    CHECK(workers_in_range);
    for (const auto& count : times) CHECK(count == 1);
    parallel_for(threads, 0, [](std::size_t) { FAIL(); });
    CHECK_THROWS_WITH(parallel_for(threads, 100,
                                   [](std::size_t index) {
                                     if (index == 37) throw std::runtime_error("index 37");
                                   }),
                      "index 37");
  }
}

}  // namespace shardproof
