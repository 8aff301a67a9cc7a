// MobileNetV4-Conv-M against the counts and shapes of spec §5.
#include <catch2/catch.hpp>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "reference/nets/mobilenetv4_conv_m.h"

namespace shardproof {
namespace {

Graph network(const NetOptions& options, BatchNorm batch_norm) {
  auto graph = mobilenetv4_conv_m(options, batch_norm);
  REQUIRE(graph);
  return *std::move(graph);
}

std::map<std::string, Node> by_name(const Graph& graph) {
  std::map<std::string, Node> nodes;
  for (const Node& node : graph.nodes()) nodes[node.name] = node;
  return nodes;
}

template <class Operation>
std::size_t count(const Graph& graph) {
  std::size_t found = 0;
  for (const Node& node : graph.nodes()) found += std::holds_alternative<Operation>(node.operation);
  return found;
}

std::size_t numbers(const Graph& graph) {
  std::size_t sum = 0;
  for (const Parameter& parameter : graph.parameters()) sum += parameter.shape.size();
  return sum;
}

TEST_CASE("77 BN sites and 233 parameters of 9,715,512 numbers, 8,447,322 at 10 classes") {
  const Graph sync = network({}, BatchNorm::synchronised);
  const Graph batch = network({}, BatchNorm::batch);
  CHECK(count<BnSync>(sync) == 77);
  CHECK(count<BnMean>(sync) == 77);
  CHECK(count<BnVarAt>(sync) == 77);
  CHECK(count<AllReduceMean>(sync) == 2 * 77);
  CHECK(count<BnBatch>(sync) == 0);
  CHECK(count<BnBatch>(batch) == 77);
  CHECK(count<BnSync>(batch) + count<AllReduceMean>(batch) == 0);
  CHECK(numbers(sync) == 9'715'512);
  CHECK(numbers(network({.classes = 10}, BatchNorm::synchronised)) == 8'447'322);

  REQUIRE(sync.parameters().size() == 233);
  REQUIRE(batch.parameters().size() == 233);
  for (std::size_t i = 0; i < 233; ++i) {
    CHECK(sync.parameters()[i].name == batch.parameters()[i].name);
    CHECK(sync.parameters()[i].shape == batch.parameters()[i].shape);
  }
}

TEST_CASE("13 rows have both depthwise convolutions, 4 the first only, 4 none") {
  const auto nodes = by_name(network({}, BatchNorm::synchronised));
  std::map<std::pair<bool, bool>, int> families;
  int skips = 0;
  for (int row = 1; row <= 21; ++row) {
    const std::string tag = "u" + std::to_string(row);
    ++families[{nodes.contains(tag + "qW"), nodes.contains(tag + "dW")}];
    CHECK(nodes.contains(tag + "eW"));
    CHECK(nodes.contains(tag + "pW"));
    skips += nodes.contains(tag + ".add");
  }
  CHECK(families == std::map<std::pair<bool, bool>, int>{
                        {{true, true}, 13}, {{true, false}, 4}, {{false, false}, 4}});
  CHECK(skips == 18);  // every row but the strided 1, 3 and 11
  for (const char* strided : {"u1", "u3", "u11"}) {
    CHECK_FALSE(nodes.contains(std::string(strided) + ".add"));
  }
}

TEST_CASE("shapes at 224²") {
  const auto nodes = by_name(network({}, BatchNorm::synchronised));
  const std::vector<std::pair<std::string, Shape>> expected = {
      {"x", {1, 3, 224, 224}},     {"sW", {1, 32, 112, 112}},   {"f0cW", {1, 128, 56, 56}},
      {"f0pW", {1, 48, 56, 56}},   {"u1qW", {1, 48, 56, 56}},   {"u1eW", {1, 192, 56, 56}},
      {"u1dW", {1, 192, 28, 28}},  {"u1pg", {1, 80, 28, 28}},   {"u2eW", {1, 160, 28, 28}},
      {"u2.add", {1, 80, 28, 28}}, {"u3eW", {1, 480, 28, 28}},  {"u3dW", {1, 480, 14, 14}},
      {"u3pg", {1, 160, 14, 14}},  {"u9eW", {1, 320, 14, 14}},  {"u10.add", {1, 160, 14, 14}},
      {"u11eW", {1, 960, 14, 14}}, {"u11dW", {1, 960, 7, 7}},   {"u11pg", {1, 256, 7, 7}},
      {"u17eW", {1, 512, 7, 7}},   {"u21.add", {1, 256, 7, 7}}, {"h1W", {1, 960, 7, 7}},
      {"gap", {1, 960, 1, 1}},     {"hW", {1, 1280, 1, 1}},     {"Wd", {1, 1000, 1, 1}}};
  for (const auto& [name, shape] : expected) {
    CAPTURE(name);
    REQUIRE(nodes.contains(name));
    CHECK(nodes.at(name).shape == shape);
  }
}

TEST_CASE("kernels of the rows' depthwise convolutions are the table's") {
  const Graph graph = network({}, BatchNorm::synchronised);
  std::map<std::string, Shape> shapes;
  for (const Parameter& parameter : graph.parameters()) shapes[parameter.name] = parameter.shape;
  // Row by row, pre then post; 0: absent.
  const int kernels[21][2] = {{3, 5}, {3, 3}, {3, 5}, {3, 3}, {3, 3}, {3, 5}, {3, 3},
                              {3, 0}, {0, 0}, {3, 0}, {5, 5}, {5, 5}, {3, 5}, {3, 5},
                              {0, 0}, {3, 0}, {3, 5}, {5, 5}, {0, 0}, {0, 0}, {5, 0}};
  for (int row = 0; row < 21; ++row) {
    for (const int which : {0, 1}) {
      const std::string name = "u" + std::to_string(row + 1) + (which == 0 ? "qW" : "dW");
      CAPTURE(name);
      const auto found = shapes.find(name);
      const std::size_t kernel = found == shapes.end() ? 0 : found->second.h;
      CHECK(kernel == static_cast<std::size_t>(kernels[row][which]));
    }
  }
}

TEST_CASE("a BN site with γ named u4qg gathers statistics u4qgmu and u4qgvar") {
  const Graph graph = network({}, BatchNorm::synchronised);
  const auto nodes = by_name(graph);
  for (const char* statistics : {"u4qgmu", "u4qgvar"}) {
    REQUIRE(nodes.contains(statistics));
    CHECK(std::holds_alternative<AllReduceMean>(nodes.at(statistics).operation));
    CHECK_FALSE(nodes.at(statistics).per_example);
  }
  const Node& pack = graph.node(nodes.at("u4qg").operands.at(1));
  CHECK(graph.node(pack.operands.at(0)).name == "u4qgmu");
  CHECK(graph.node(pack.operands.at(1)).name == "u4qgvar");
}

// The chain of operations of a row, by the nodes that feed it, BN's statistics left out.
std::vector<std::string> chain(const Graph& graph, NodeId id, const std::string& until) {
  std::vector<std::string> names;
  while (graph.node(id).name != until) {
    names.insert(names.begin(), graph.node(id).name);
    id = graph.node(id).operands.at(0);
  }
  return names;
}

TEST_CASE("ReLU follows the expand and the second depthwise, not the first nor the project") {
  const Graph graph = network({}, BatchNorm::synchronised);
  NodeId row3 = 0, row4 = 0;
  for (NodeId id = 0; id < graph.nodes().size(); ++id) {
    if (graph.node(id).name == "u3pg") row3 = id;
    if (graph.node(id).name == "u4.add") row4 = id;
  }
  using Names = std::vector<std::string>;
  CHECK(chain(graph, row4, "u3pg") == Names{"u4qW", "u4qg", "u4eW", "u4eg", "u4eg.relu", "u4dW",
                                            "u4dg", "u4dg.relu", "u4pW", "u4pg", "u4.add"});
  CHECK(graph.node(row4).operands.at(1) == row3);  // the skip
  CHECK(chain(graph, graph.output(), "u21.add") ==
        Names{"h1W", "h1g", "h1g.relu", "gap", "hW", "hg", "hg.relu", "Wd"});
  CHECK(chain(graph, row3, "x").size() == 8 + 10 + 11 + 10);  // stem and stage, rows 1, 2 and 3
  CHECK(chain(graph, row3, "x")[7] == "f0pg");                // no ReLU, no skip
}

TEST_CASE("every BN site has the ε that was asked for") {
  const NetOptions options{.epsilon = 0x1p-8F};
  const Graph sync = network(options, BatchNorm::synchronised);
  const Graph batch = network(options, BatchNorm::batch);
  for (const Node& node : sync.nodes()) {
    if (const auto* site = std::get_if<BnSync>(&node.operation)) CHECK(site->epsilon == 0x1p-8F);
  }
  for (const Node& node : batch.nodes()) {
    if (const auto* site = std::get_if<BnBatch>(&node.operation)) CHECK(site->epsilon == 0x1p-8F);
  }
}

TEST_CASE("a width divisor divides every channel count but those of the images and classes") {
  for (const std::size_t divisor : {1, 2, 4, 8, 16}) {
    const auto nodes = by_name(network({64, 10, divisor, 1e-5F}, BatchNorm::batch));
    CHECK(nodes.at("sW").shape == Shape{1, 32 / divisor, 32, 32});
    CHECK(nodes.at("u3eW").shape == Shape{1, 480 / divisor, 8, 8});
    CHECK(nodes.at("h1W").shape == Shape{1, 960 / divisor, 2, 2});
    CHECK(nodes.at("Wd").shape == Shape{1, 10, 1, 1});
  }
}

TEST_CASE("an option out of range is an error that names it") {
  const auto message = [](const NetOptions& options) {
    const auto graph = mobilenetv4_conv_m(options, BatchNorm::synchronised);
    return graph ? std::string("none") : graph.error();
  };
  using Catch::Contains;
  CHECK_THAT(message({.size = 0}), Contains("size 0"));
  CHECK_THAT(message({.size = 225}), Contains("size 225") && Contains("multiple of 32"));
  CHECK_THAT(message({.size = 240}), Contains("size 240"));
  CHECK_THAT(message({.size = 4128}), Contains("size 4128"));
  CHECK_THAT(message({.size = std::size_t{1} << 60}), Contains("size 1152921504606846976"));
  CHECK_THAT(message({.classes = 0}), Contains("classes 0"));
  CHECK_THAT(message({.classes = 1'000'001}), Contains("classes 1000001"));
  CHECK_THAT(message({.width_divisor = 0}), Contains("width divisor 0"));
  CHECK_THAT(message({.width_divisor = 3}), Contains("width divisor 3"));
  CHECK_THAT(message({.width_divisor = 32}), Contains("width divisor 32"));
  for (const float epsilon : {0.0F, -1e-5F, std::numeric_limits<float>::infinity(),
                              std::numeric_limits<float>::quiet_NaN()}) {
    CHECK_THAT(message({.epsilon = epsilon}), Contains("epsilon"));
  }
  CHECK(message({.size = 32, .classes = 1, .width_divisor = 16, .epsilon = 1e-12F}) == "none");
}

}  // namespace
}  // namespace shardproof
