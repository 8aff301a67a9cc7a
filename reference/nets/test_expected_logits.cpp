// The network's meaning against PyTorch in float64: fixtures/make_expected_logits.py made the
// expected values from spec §5's table alone.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "reference/graph/batch_shard.h"
#include "reference/graph/denote.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/safetensors.h"
#include "reference/nets/weights.h"
#include "reference/numbers/double_double.h"

namespace shardproof {
namespace {

const std::string folder = std::string(SHARDPROOF_SOURCE_DIR) + "/fixtures/expected/";

struct Expected {
  nlohmann::json values;
  StoredTensors tensors;
  NetOptions options;
  std::uint64_t seed = 0;

  explicit Expected(const std::string& name) {
    std::ifstream file(folder + name + ".json");
    REQUIRE(file);
    values = nlohmann::json::parse(file);
    auto stored = read_safetensors(folder + name + ".safetensors");
    REQUIRE(stored);
    tensors = std::move(*stored);
    options.size = values["size"];
    options.classes = values["classes"];
    options.width_divisor = values["width_divisor"];
    options.epsilon =
        static_cast<float>(std::strtod(std::string(values["epsilon"]).c_str(), nullptr));
    seed = values["seed"];
  }
  Graph graph(BatchNorm batch_norm) const {
    auto graph = mobilenetv4_conv_m(options, batch_norm);
    REQUIRE(graph);
    return *std::move(graph);
  }
};

std::vector<double> numbers(const nlohmann::json& hexadecimal) {
  std::vector<double> values;
  for (const std::string text : hexadecimal) values.push_back(std::strtod(text.c_str(), nullptr));
  return values;
}

std::vector<double> leading(const std::vector<DoubleDouble>& values) {
  std::vector<double> high;
  for (const DoubleDouble& value : values) high.push_back(value.high);
  return high;
}

// The largest |a − b| over the largest |b|.
double distance(const std::vector<double>& a, const std::vector<double>& b) {
  REQUIRE(a.size() == b.size());
  double difference = 0, largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = std::max(difference, std::fabs(a[i] - b[i]));
    largest = std::max(largest, std::fabs(b[i]));
  }
  return difference / largest;
}

TEST_CASE("the shipped weights are the seeded ones, written twice") {
  const Expected expected("mobilenetv4_conv_m_width16");
  const Graph graph = expected.graph(BatchNorm::batch);
  const Weights weights = seeded_weights(graph.parameters(), expected.seed);
  CHECK(expected.tensors.size() == graph.parameters().size() + 1);
  for (const Parameter& parameter : graph.parameters()) {
    CAPTURE(parameter.name);
    REQUIRE(expected.tensors.contains(parameter.name));
    const StoredTensor& stored = expected.tensors.at(parameter.name);
    CHECK(stored.dimensions == stored_dimensions(parameter));
    CHECK(stored.tensor.values == weights.at(parameter.name).values);
  }
}

// Two float64 evaluations differ by their roundings, which 77 normalisations magnify. A
// double-double one is exact beside them, and ours in float64 shows how large such an error is on
// these very inputs.
TEST_CASE("PyTorch's logits are the network's, as near as float64 comes") {
  for (const std::string name : {"mobilenetv4_conv_m_width16", "mobilenetv4_conv_m_full"}) {
    CAPTURE(name);
    const Expected expected(name);
    const Graph graph = expected.graph(BatchNorm::batch);
    const Weights weights = seeded_weights(graph.parameters(), expected.seed);
    const Tensor<float>& input = expected.tensors.at("input").tensor;
    const auto precise =
        leading(denote_on_one_device(graph, weights, exact<DoubleDouble>(input)).values);
    const auto own = denote_on_one_device(graph, weights, exact<double>(input)).values;
    std::vector<double> pytorch;
    for (const auto& row : expected.values["logits"]) {
      for (const double logit : numbers(row)) pytorch.push_back(logit);
    }
    // Measured: 8e-14 and 4e-14 at the small width, 7e-12 and 5e-12 at the full one.
    CHECK(distance(own, precise) < 1e-10);
    CHECK(distance(pytorch, precise) < 4 * distance(own, precise));
  }
}

TEST_CASE(
    "sync BN on three replicas gives PyTorch's statistics of the whole batch, and its logits") {
  const Expected expected("mobilenetv4_conv_m_width16");
  const Graph graph = expected.graph(BatchNorm::synchronised);
  const Weights weights = seeded_weights(graph.parameters(), expected.seed);
  const auto batch = exact<DoubleDouble>(expected.tensors.at("input").tensor);
  Family<DoubleDouble> shards;
  for (std::size_t r = 0; r < 3; ++r) shards.push_back(batch_shard(3, batch, r));

  std::vector<NodeId> wanted = {graph.output()};
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    if (std::holds_alternative<AllReduceMean>(graph.node(id).operation)) wanted.push_back(id);
  }
  CHECK(wanted.size() == 1 + 2 * expected.values["sites"].size());
  const auto values = denote<DoubleDouble>(graph, weights, {shards}, wanted);
  double worst = 0;
  for (std::size_t r = 0; r < 3; ++r) {
    const auto logits = numbers(expected.values["logits"][r]);
    worst = std::max(worst, distance(logits, leading(values[0][r].values)));
  }
  for (std::size_t i = 1; i < wanted.size(); ++i) {
    const std::string tag = graph.node(wanted[i]).name;
    const bool mean = tag.ends_with("mu");
    const auto& site = expected.values["sites"][tag.substr(0, tag.size() - (mean ? 2 : 3))];
    for (std::size_t r = 0; r < 3; ++r) {
      worst = std::max(
          worst, distance(numbers(site[mean ? "mean" : "variance"]), leading(values[i][r].values)));
    }
  }
  CHECK(worst < 1e-12);  // PyTorch's own error; measured 7e-14
}

}  // namespace
}  // namespace shardproof
