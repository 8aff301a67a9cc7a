// Explanations: exact values to their last digit, and what a person reads.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/explain.h"

namespace shardproof {
namespace {

const DeviceMaker kHost = [](int replicas, const Schedule& schedule) {
  return make_host_device(replicas, schedule, 1);
};

template <class Fault>
DeviceMaker with_fault() {
  return [](int replicas, const Schedule& schedule) {
    return std::make_unique<Fault>(make_host_device(replicas, schedule, 1));
  };
}

UnitCase case_of(Graph graph, std::vector<std::vector<std::vector<float>>> inputs,
                 std::vector<std::vector<float>> weights = {}) {
  UnitCase c;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    Shape shape = graph.node(graph.inputs()[i]).shape;
    shape.n = inputs[i][0].size() / shape.size();
    Family<float>& family = c.inputs.emplace_back();
    for (std::vector<float>& values : inputs[i]) family.emplace_back(shape, std::move(values));
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    c.weights.emplace(parameter.name, Tensor<float>(parameter.shape, weights[i]));
  }
  c.graph = std::move(graph);
  return c;
}

UnitCase site_case(std::vector<std::vector<float>> x, float gamma, float beta, float epsilon,
                   bool relu) {
  Graph graph;
  const NodeId y =
      graph.bn_sync_site(graph.input("x", {1, 1, 1, x[0].size()}), {"g", "b", epsilon});
  if (relu) graph.relu(y, "g.relu");
  return case_of(std::move(graph), {std::move(x)}, {{gamma}, {beta}});
}

// The exact value of a statement at one output.
ExactValue exact_at(const UnitCase& c, const std::string& node, const std::string& part,
                    std::size_t replica, std::size_t index) {
  const UnitVerdict verdict = judge_unit_case(kHost, c);
  for (Comparison comparison : verdict.comparisons) {
    if (comparison.node != node || comparison.part != part) continue;
    comparison.worst.replica = replica;
    comparison.worst.index = index;
    const auto exact = exact_value(c, verdict, comparison);
    REQUIRE(exact);
    return *exact;
  }
  FAIL("no such comparison");
  return {};
}

std::string decimal_of(float x) {
  Graph graph;
  graph.relu(graph.input("x", {1, 1, 1, 1}), "relu");
  return exact_at(case_of(std::move(graph), {{{x}}}), "relu", "", 0, 0).decimal;
}

struct PlainMeanOfVariances : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    ChannelVarianceCall without_chan = call;
    without_chan.mean = call.own_mean;
    base().channel_variance(without_chan);
  }
};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("exact values show all their digits, or the first twenty") {
  CHECK(decimal_of(0) == "0");
  CHECK(decimal_of(1) == "1");
  CHECK(decimal_of(1024) == "1024");
  CHECK(decimal_of(0.5F) == "0.5");
  CHECK(decimal_of(0.1F) == "0.10000000149011611938...");
  CHECK(decimal_of(0x1p-10F) == "0.0009765625");
  CHECK(decimal_of(3e-5F) == "0.000029999999242136254906...");
  CHECK(decimal_of(0x1p-149F) == "1.4012984643248170709...e-45");
  CHECK(decimal_of(0x1p-20F) == "9.5367431640625e-07");
  CHECK(decimal_of(0x1p66F) == "73786976294838206464");
  CHECK(decimal_of(0x1p100F) == "1.2676506002282294014...e+30");
  CHECK(decimal_of(std::numeric_limits<float>::max()) == "3.4028234663852885981...e+38");
}

TEST_CASE("an exact value lies between two numbers of float64, the nearest there are") {
  const UnitCase c = site_case({{0, 1, 0}, {0, 0, 0}}, 1, 0, 1e-5F, false);
  const ExactValue third = exact_at(c, "g.mean", "", 0, 0);
  CHECK(third.decimal == "0.33333333333333333333...");
  CHECK(third.lower < third.upper);
  CHECK(std::nextafter(third.lower, 1.0) == third.upper);
  CHECK((third.lower == 1.0 / 3 || third.upper == 1.0 / 3));
  const ExactValue zero = exact_at(c, "g.mean", "", 1, 0);
  CHECK(zero.lower == 0);
  CHECK(zero.upper == 0);
  // μ = 1/6, σ² = (1/6)(25/36 + 5/36) = 5/36.
  CHECK(exact_at(c, "gmu", "batch mean", 1, 0).decimal == "0.16666666666666666666...");
  CHECK(exact_at(c, "gvar", "batch variance", 1, 0).decimal == "0.13888888888888888888...");
}

TEST_CASE("y is exact also where the root is irrational") {
  // μ = 0, σ² = 1, ε = 1: y = 3/√2 + 1/4.
  const UnitCase c = site_case({{1, -1}, {-1, 1}}, 3, 0.25F, 1, true);
  for (const std::string part : {"y on own statistics", "y against its shard of batch BN"}) {
    const ExactValue y = exact_at(c, "g.relu", part, 0, 0);
    CHECK(y.decimal == "2.3713203435596425732...");
    CHECK(std::nextafter(y.lower, 3.0) == y.upper);
    CHECK(exact_at(c, "g.relu", part, 1, 0).decimal == "0");
  }
  // A root that is a fraction gives one: 3/√4 + 1/4.
  const UnitCase fraction = site_case({{1, -1}, {-1, 1}}, 3, 0.25F, 3, false);
  CHECK(exact_at(fraction, "g", "y on own statistics", 0, 0).decimal == "1.75");
  CHECK(exact_at(fraction, "g", "y on own statistics", 0, 1).decimal == "-1.25");
}

TEST_CASE("products, pools, residuals and reductions have their exact values") {
  Graph convolution;
  convolution.convolution(convolution.input("x", {1, 1, 2, 2}), {"W", "b", 3, 2, 0, 1}, 1);
  // Taps 0 1 / 3 4 lie on the image.
  const UnitCase c = case_of(std::move(convolution), {{{1, 2, 3, 4}}},
                             {{10, 20, 0.1F, 40, 50, 0, 0, 0, 0}, {0.5F}});
  CHECK(exact_at(c, "W", "", 0, 0).decimal == "370.5");
  Graph depthwise;
  depthwise.depthwise(depthwise.input("x", {1, 2, 1, 1}), {"W", 3, 1, 1, 1});
  std::vector<float> taps(18, 9);
  taps[13] = 0.5F;
  CHECK(
      exact_at(case_of(std::move(depthwise), {{{1, 2}, {3, 4}}}, {taps}), "W", "", 1, 1).decimal ==
      "2");
  Graph dense;
  dense.dense(dense.input("x", {1, 1, 1, 2}), {"W", "b"}, 2);
  const UnitCase of_dense =
      case_of(std::move(dense), {{{1, 2, 3, 4}}}, {{1, 10, 100, 1000}, {0, 0.25F}});
  CHECK(exact_at(of_dense, "W", "", 0, 3).decimal == "4030.25");
  Graph pool;
  pool.global_average_pool(pool.input("x", {1, 2, 1, 3}), "gap");
  CHECK(exact_at(case_of(std::move(pool), {{{1, 1, 1, 1, 2, 2}}}), "gap", "", 0, 1).decimal ==
        "1.6666666666666666666...");
  Graph add;
  const NodeId x = add.input("x", {1, 1, 1, 1});
  add.add(x, add.input("skip", {1, 1, 1, 1}), "sum");
  CHECK(exact_at(case_of(std::move(add), {{{1}}, {{0x1p-30F}}}), "sum", "", 0, 0).decimal ==
        "1.0000000009313225746...");
}

TEST_CASE("without finite operands there is no exact value, and the explanation does without") {
  struct AllOnes : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void relu(const PointwiseCall& call) override {
      for (std::size_t i = 0; i < call.count; ++i) call.y[i] = 1;
    }
  };
  Graph graph;
  graph.relu(graph.input("x", {1, 1, 1, 1}), "relu");
  const UnitCase c = case_of(std::move(graph), {{{std::numeric_limits<float>::quiet_NaN()}}});
  const UnitVerdict verdict = judge_unit_case(with_fault<AllOnes>(), c);
  REQUIRE(verdict.first_wrong() != nullptr);
  CHECK_FALSE(exact_value(c, verdict, *verdict.first_wrong()));
  CHECK(contains(explain(c, verdict), "  expected    nan\n  got         1 (0x1p+0)\n"));
}

TEST_CASE("a wrong variance is explained with both replicas side by side") {
  const UnitCase c = site_case({{0, 1}, {3, 0}}, 1, 0.5F, 1, true);
  CHECK(explain(c, judge_unit_case(with_fault<PlainMeanOfVariances>(), c)) ==
        R"(wrong: g.var_at, replica 0, channel 0
  statement   σ²_r + (μ_r − μ)² = mean of (x − μ)² on replica r, about the μ that the device wrote
  exact       0.5
  in float32  0.5 (0x1p-1)
  got         0.25 (0x1p-2)
  bound       1.19e-15
  error       0.25, 4.19e+06 ulps, 2.09e+14 times the bound
  input       natural
  sizes       R = 2, N = 1, x of 1x1x1x2
  schedule    seed 0, as many threads a channel as the work asks
  device      host executor, schedules of seed 0
  contract    operands float32, sums float32 in 1 lane, mean: divide, statistics: two-pass, subtract first, root within 1.5 ulps and exact at powers of four, contraction allowed, subnormals kept
  γ           1 (0x1p+0)
  β           0.5 (0x1p-1)
  ε           1 (0x1p+0)

replicas, channel 0; exact: from x alone
  replica          μ_r  σ²_r + (μ_r − μ)²  μ  σ²
  0        device  0.5  0.25               1  1.25
           exact   0.5  0.5                1  1.5
  1        device  1.5  2.25               1  1.25
           exact   1.5  2.5                1  1.5

x of channel 0
  replica  x
  0        0  1
  1        3  0
)");
}

TEST_CASE("a wrong output of a product is explained by its terms, at its place") {
  struct OneOff : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void convolution(const ConvolutionCall& call) override {
      base().convolution(call);
      if (call.replica == 1) call.y[1] += 0.5F;
    }
  };
  Graph graph;
  graph.convolution(graph.input("x", {1, 2, 1, 2}), {"W", "b", 1, 1, 0, 0}, 1);
  const UnitCase c =
      case_of(std::move(graph), {{{1, 2, 3, 4}, {5, 6, 7, 8}}}, {{0.5F, 0.25F}, {1}});
  const std::string text = explain(c, judge_unit_case(with_fault<OneOff>(), c));
  CHECK(text.starts_with("wrong: W, replica 1, image 0, channel 0, row 0, column 1\n"));
  CHECK(contains(text, "\n  exact       6\n"));
  CHECK(contains(text, R"(
replicas, at the same place
  replica  got  exact
  0        3    3
  1        6.5  6

terms on replica 1
  x at          x  w     x·w  sum
  [0, 0, 0, 1]  6  0.5   3    3
  [0, 1, 0, 1]  8  0.25  2    5
  bias                   1    6
)"));
}

TEST_CASE("a launch that fails, and a case that agrees, are told in a line and by their facts") {
  struct Closed : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void normalise(const NormaliseCall&) override { throw DeviceError("closed"); }
  };
  const UnitCase c = site_case({{0, 1}, {3, 0}}, 1, 0.5F, 1, false);
  CHECK(explain(c, judge_unit_case(with_fault<Closed>(), c))
            .starts_with("wrong: a launch failed: closed\n  input       natural\n"));
  CHECK(explain(c, judge_unit_case(kHost, c)).starts_with("agrees\n  input       natural\n"));
}

TEST_CASE("the JSON has what the text has") {
  const UnitCase c = site_case({{0, 1}, {3, 0}}, 1, 0.5F, 1, true);
  const Explanation explanation =
      explained(c, judge_unit_case(with_fault<PlainMeanOfVariances>(), c));
  const nlohmann::ordered_json json = to_json(explanation);
  const std::string text = to_text(explanation);
  CHECK(json["verdict"] == explanation.verdict);
  CHECK(json["facts"].size() == explanation.facts.size());
  for (const auto& [name, fact] : json["facts"].items()) {
    CHECK(contains(text, "  " + name + " "));
    CHECK(contains(text, fact.get<std::string>()));
  }
  REQUIRE(json["tables"].size() == 2);
  CHECK(json["tables"][0]["rows"][1] ==
        nlohmann::ordered_json({"", "exact", "0.5", "0.5", "1", "1.5"}));
}

}  // namespace shardproof
