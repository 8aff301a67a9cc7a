#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "reference/graph/batch_shard.h"
#include "reference/graph/channel_sums.h"
#include "reference/graph/denote.h"
#include "reference/numbers/certified.h"
#include "reference/numbers/random.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

Tensor<float> tensor(Shape shape, std::vector<float> values) { return {shape, std::move(values)}; }

template <class T>
Tensor<T> run(const Graph& graph, const Weights& weights, const Tensor<float>& x) {
  return denote_on_one_device<T>(graph, weights, exact<T>(x));
}

TEST_CASE("a 3x3 convolution is a cross-correlation with zeros around the image") {
  Graph graph;
  graph.convolution(graph.input("x", {1, 1, 2, 3}), {"w", "b", 3, 1, 1, 1}, 1);
  const Weights weights{{"w", tensor({1, 1, 3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9})},
                        {"b", tensor({1, 1, 1, 1}, {100})}};
  const auto y = run<float>(graph, weights, tensor({1, 1, 2, 3}, {1, 2, 3, 4, 5, 6}));
  // Top left: 5·1 + 6·2 + 8·4 + 9·5 = 94. Top middle: Σ (3 + i)·x_i = 154. Top right: 4·2 + 5·3 +
  // 7·5 + 8·6 = 106. Below: 2·1 + 3·2 + 5·4 + 6·5, Σ x_i², 1·2 + 2·3 + 4·5 + 5·6.
  CHECK(y.values == std::vector<float>{194, 254, 206, 158, 191, 158});
}

TEST_CASE("XLA SAME padding at stride 2 has the shape of symmetric padding and other numbers") {
  const Tensor<float> x =
      tensor({1, 1, 4, 4}, {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16});
  const Weights weights{{"w", tensor({1, 1, 3, 3}, {1, 1, 1, 1, 1, 1, 1, 1, 1})}};
  Graph same;
  same.depthwise(same.input("x", {1, 1, 4, 4}), {"w", 3, 2, 0, 1});
  Graph symmetric;
  symmetric.depthwise(symmetric.input("x", {1, 1, 4, 4}), {"w", 3, 2, 1, 1});
  CHECK(run<float>(same, weights, x).values == std::vector<float>{54, 45, 72, 54});
  CHECK(run<float>(symmetric, weights, x).values == std::vector<float>{14, 30, 57, 99});
}

TEST_CASE("dense is x times W plus b with W stored [in, out]") {
  Graph graph;
  graph.dense(graph.input("x", {1, 2, 1, 1}), {"W", "b"}, 3);
  const Weights weights{{"W", tensor({1, 1, 2, 3}, {1, 2, 3, 10, 20, 30})},
                        {"b", tensor({1, 3, 1, 1}, {100, 200, 300})}};
  const auto y = run<float>(graph, weights, tensor({2, 2, 1, 1}, {1, 2, 3, 4}));
  CHECK(y.values == std::vector<float>{121, 242, 363, 143, 286, 429});
}

TEST_CASE("global average pool is the mean over H times W, add the sum number by number") {
  Graph graph;
  const NodeId a = graph.input("a", {1, 2, 1, 3});
  const NodeId sum = graph.add(a, graph.input("b", {1, 2, 1, 3}), "sum");
  const NodeId wanted[] = {graph.global_average_pool(a, "gap"), sum};
  const auto values = denote<float>(
      graph, {},
      {{tensor({1, 2, 1, 3}, {1, 2, 6, -3, 0, 9})}, {tensor({1, 2, 1, 3}, {1, 2, 3, 4, 5, 6})}},
      wanted);
  CHECK(values[0][0].values == std::vector<float>{3, 2});
  CHECK(values[1][0].values == std::vector<float>{2, 4, 9, 1, 5, 15});
}

// Two examples of two channels: 1 3 and 5 7 in one, 0 0 and 0 8 in the other. Means 4 and 2,
// variances 5 and 12; with ε = 4 the roots are 3 and 4.
const Tensor<float> two_examples({2, 2, 1, 2}, {1, 3, 0, 0, 5, 7, 0, 8});
const Weights site_weights{{"g", tensor({1, 2, 1, 1}, {6, -2})},
                           {"bt", tensor({1, 2, 1, 1}, {10, 1})}};

TEST_CASE("batch BN normalises each channel by its own mean and biased variance") {
  Graph graph;
  graph.bn_batch_site(graph.input("x", two_examples.shape), {"g", "bt", 4});
  const auto y = run<Rational>(graph, site_weights, two_examples);
  CHECK(y.values == std::vector<Rational>{4, 8, 2, 2, 12, 16, 2, -2});
}

TEST_CASE("each node of a sync-BN site has its value on two replicas") {
  Graph graph;
  graph.bn_sync_site(graph.input("x", two_examples.shape), {"g", "bt", 4});
  const NodeId wanted[] = {1, 2, 3, 4, 5, 6};
  const auto x = exact<Rational>(two_examples);
  const auto values =
      denote<Rational>(graph, site_weights, {{batch_shard(2, x, 0), batch_shard(2, x, 1)}}, wanted);
  const auto check = [&](std::size_t node, std::vector<Rational> first,
                         std::vector<Rational> second) {
    CAPTURE(graph.node(node).name);
    REQUIRE(values[node - 1].size() == 2);
    CHECK(values[node - 1][0].values == first);
    CHECK(values[node - 1][1].values == second);
  };
  check(1, {2, 0}, {6, 4});  // own means
  check(2, {4, 2}, {4, 2});  // their mean
  check(3, {1 + 4, 0 + 4}, {1 + 4, 16 + 4});
  check(4, {5, 12}, {5, 12});
  check(5, {4, 2, 5, 12}, {4, 2, 5, 12});
  check(6, {4, 8, 2, 2}, {12, 16, 2, -2});
}

TEST_CASE("NaN passes relu and infinity stays where float32 has it") {
  Graph graph;
  graph.relu(graph.input("x", {1, 1, 1, 3}), "y");
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto y = run<float>(graph, {}, tensor({1, 1, 1, 3}, {nan, -1, HUGE_VALF}));
  CHECK(std::isnan(y.values[0]));
  CHECK(y.values[1] == 0);
  CHECK(y.values[2] == HUGE_VALF);
}

TEST_CASE("a weight that is missing or misshapen is refused by name") {
  Graph graph;
  graph.dense(graph.input("x", {1, 2, 1, 1}), {"W", "b"}, 3);
  const Tensor<float> x = tensor({1, 2, 1, 1}, {1, 2});
  const Tensor<float> weight({1, 1, 2, 3}), bias({1, 3, 1, 1}), turned({1, 1, 3, 2});
  CHECK_THROWS_WITH(run<float>(graph, {{"b", bias}}, x), "no weight W of shape 1x1x2x3");
  CHECK_THROWS_WITH(run<float>(graph, {{"W", turned}, {"b", bias}}, x),
                    "no weight W of shape 1x1x2x3");
  CHECK_THROWS_WITH(run<float>(graph, {{"W", weight}}, x), "no weight b of shape 1x3x1x1");
  CHECK_NOTHROW(run<float>(graph, {{"W", weight}, {"b", bias}}, x));
}

TEST_CASE("inputs of another shape, of another N, or on other replicas are refused") {
  Graph graph;
  graph.add(graph.input("a", {1, 1, 1, 2}), graph.input("b", {1, 1, 1, 2}), "sum");
  const NodeId wanted = graph.output();
  const auto fed = [&](const Family<float>& a, const Family<float>& b) {
    return denote<float>(graph, {}, {a, b}, {&wanted, 1});
  };
  const Tensor<float> one({1, 1, 1, 2}), two({2, 1, 1, 2}), turned({1, 1, 2, 1});
  CHECK_NOTHROW(fed({one, one}, {one, one}));
  CHECK_THROWS_AS(fed({one}, {turned}), std::invalid_argument);
  CHECK_THROWS_AS(fed({one}, {two}), std::invalid_argument);
  CHECK_THROWS_AS(fed({one, two}, {one, two}), std::invalid_argument);
  CHECK_THROWS_AS(fed({one, one}, {one}), std::invalid_argument);
}

// Numbers on which float64 sums err visibly: large, cancelling, and tiny ones together.
Tensor<float> hard_numbers(Shape shape, Random& random) {
  Tensor<float> x(shape);
  for (float& value : x.values) {
    value =
        static_cast<float>(random.sign() * std::ldexp(1 + random.uniform(),
                                                      static_cast<int>(random.integer(-30, 30))));
  }
  return x;
}

TEST_CASE("channel sums enclose the exact mean and variance") {
  Random random(7);
  for (int round = 0; round < 40; ++round) {
    const Shape shape{1 + random.below(3), 2, 1 + random.below(5), 1 + random.below(9)};
    Tensor<float> x = hard_numbers(shape, random);
    if (round % 4 == 1) {
      for (float& value : x.values) value = 1e3F + static_cast<float>(random.uniform());
    }
    if (round % 4 == 2) std::fill(x.values.begin(), x.values.end(), x.values[0]);
    const std::vector<ChannelSums> sums = channel_sums(x, 1);
    for (std::size_t c = 0; c < shape.c; ++c) {
      Rational sum = 0;
      Rational magnitude = 0;
      Rational squares = 0;
      Rational count = 0;
      for (std::size_t n = 0; n < shape.n; ++n) {
        for (const float value : x.plane(n, c)) {
          const auto v = from_double<Rational>(static_cast<double>(value));
          sum += v;
          magnitude += abs(v);
          squares += v * v;
          count += 1;
        }
      }
      const Rational mean = sum / count;
      const Rational variance = squares / count - mean * mean;
      Rational fourths = 0;
      for (std::size_t n = 0; n < shape.n; ++n) {
        for (const float value : x.plane(n, c)) {
          const Rational d = from_double<Rational>(static_cast<double>(value)) - mean;
          fourths += d * d * d * d;
        }
      }
      const auto inside = [](const Certified& certified, const Rational& exact_value) {
        return abs(from_double<Rational>(certified.value) - exact_value) <=
               from_double<Rational>(certified.radius);
      };
      CHECK(inside(sums[c].mean, mean));
      CHECK(inside(sums[c].variance, variance));
      CHECK(from_double<Rational>(sums[c].magnitude) >= magnitude);
      CHECK(from_double<Rational>(sums[c].squares) >= squares);
      CHECK(from_double<Rational>(sums[c].centred_squares) >= variance * count);
      CHECK(from_double<Rational>(sums[c].centred_fourths) >= fourths);
    }
  }
}

}  // namespace
}  // namespace shardproof
