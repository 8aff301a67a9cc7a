// Case files: what is written is read again, byte for byte, and every other file is told what is
// wrong with it and where.
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/case_file.h"
#include "reference/nets/weights.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

struct PlainMeanOfVariances : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    ChannelVarianceCall without_chan = call;
    without_chan.mean = call.own_mean;
    base().channel_variance(without_chan);
  }
};

const DeviceMaker kFaulty = [](int replicas, const Schedule& schedule) {
  return std::make_unique<PlainMeanOfVariances>(make_host_device(replicas, schedule, 1));
};

UnitCase with_numbers(Graph graph, std::size_t replicas, std::size_t batch) {
  UnitCase c;
  c.weights = seeded_weights(graph.parameters(), 1);
  for (const NodeId input : graph.inputs()) {
    Shape shape = graph.node(input).shape;
    shape.n = batch;
    Family<float>& family = c.inputs.emplace_back();
    for (std::size_t r = 0; r < replicas; ++r) {
      Random random(input, "replica", r);
      for (float& value : family.emplace_back(shape).values) {
        value = static_cast<float>(random.triangular(2));
      }
    }
  }
  c.graph = std::move(graph);
  c.seed = 7;
  return c;
}

CaseFile file_of(UnitCase c) {
  CaseFile file;
  file.identity = "sync-bn-is-the-shard-of-batch-bn";
  file.property = "a site on a device";
  file.version = "0.1.0";
  file.draws = {{"replicas", 2, ""}, {"input", 1, "dithered"}, {"seed", ~std::uint64_t{0}, ""}};
  file.recorded = record(kFaulty, c);
  file.content = std::move(c);
  return file;
}

UnitCase small_site() {
  Graph graph;
  graph.relu(graph.bn_sync_site(graph.input("x", {1, 1, 1, 2}), {"g", "b"}), "g.relu");
  UnitCase c = with_numbers(std::move(graph), 2, 1);
  c.inputs[0][0].values = {0, 1};
  c.inputs[0][1].values = {3, -0.0F};
  c.weights.at("g").values = {1};
  c.weights.at("b").values = {0.5F};
  return c;
}

std::string text_of_small_site() { return to_text(file_of(small_site())); }

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

std::string error_of(const std::string& text) {
  const auto file = read_case(text);
  REQUIRE(!file);
  return file.error();
}

}  // namespace

TEST_CASE("the case files of every unit are read and written again byte for byte") {
  std::vector<Graph> graphs;
  const Shape in{1, 3, 6, 4};
  const auto add = [&](auto build) {
    Graph graph;
    build(graph, graph.input("x", in));
    graphs.push_back(std::move(graph));
  };
  add([](Graph& g, NodeId x) { g.convolution(x, {"W", "", 3, 2, 0, 1}, 5); });
  add([](Graph& g, NodeId x) { g.convolution(x, {"W", "b", 1, 1, 0, 0}, 2); });
  add([](Graph& g, NodeId x) { g.depthwise(x, {"W", 5, 2, 2, 2}); });
  add([](Graph& g, NodeId x) { g.dense(x, {"Wd", "bd"}, 4); });
  add([](Graph& g, NodeId x) { g.relu(x, "relu"); });
  add([&](Graph& g, NodeId x) { g.add(x, g.input("skip", in), "sum"); });
  add([](Graph& g, NodeId x) { g.global_average_pool(x, "gap"); });
  add([](Graph& g, NodeId x) { g.bn_sync_site(x, {"g", "b", 1e-3F}); });
  add([](Graph& g, NodeId x) { g.relu(g.bn_sync_site(x, {"g", "b"}), "g.relu"); });
  for (const Graph& graph : graphs) {
    CAPTURE(graph.node(graph.output()).name);
    UnitCase c = with_numbers(graph, 3, 2);
    c.kind = InputKind::dithered;
    c.schedule = {5, ChannelThreads::several_warps};
    const CaseFile file = file_of(c);
    const std::string text = to_text(file);
    const auto read = read_case(text);
    REQUIRE(read);
    CHECK(to_text(*read) == text);
    CHECK(read->draws.at(2).value == ~std::uint64_t{0});
    const auto& unit = std::get<UnitCase>(read->content);
    CHECK(unit.kind == InputKind::dithered);
    CHECK(unit.schedule.seed == 5);
    CHECK(unit.schedule.threads == ChannelThreads::several_warps);
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      for (std::size_t r = 0; r < 3; ++r) CHECK(unit.inputs[i][r].values == c.inputs[i][r].values);
    }
    for (const auto& [name, weight] : c.weights) {
      CHECK(unit.weights.at(name).values == weight.values);
    }
    // What was recorded is judged as it was when the device ran.
    const UnitVerdict again =
        judge_recorded(unit, read->recorded->written, read->recorded->contracts);
    CHECK((again.outcome() == Outcome::wrong) == (file.recorded->verdict == Outcome::wrong));
  }
}

TEST_CASE("a case of draws alone is read and written again byte for byte") {
  CaseFile file;
  file.identity = "i";
  file.property = "p \"quoted\" \n\x01 ü";
  file.draws = {{"n", 3, ""}};
  const std::string text = to_text(file);
  const auto read = read_case(text);
  REQUIRE(read);
  CHECK(to_text(*read) == text);
  CHECK(read->property == file.property);
  CHECK(std::holds_alternative<std::monostate>(read->content));
}

TEST_CASE("the case file of a slot program is read and written again byte for byte") {
  CaseFile file;
  file.identity = "ownership";
  file.property = "p";
  ProgramCase c;
  c.program = "program sgd\nshared lr = 0.5\nparameter p\ngradient g\np = p - lr*g\n";
  c.shapes = {{1, 3}};
  c.ranks = 2;
  const auto compiled = compile_separable("sgd", c.program);
  REQUIRE(compiled);
  c.start = with_fixed_values({}, *compiled, c.shapes);
  c.start[ArraySlot{Scope::shared, 0}] = {0.5F};
  c.start[*compiled->find(ArrayProgram::Role::parameter)] = {1, 2, 3};
  c.gradients = {{{1, 0, 0.1F}, {0, 4, -0.0F}}};
  // The device's parameters are off by one: every statement on them is wrong.
  struct OffByOne : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void owned_step(const OwnedStepCall& call) override {
      base().owned_step(call);
      for (float* field : call.fields) {
        if (field != nullptr) field[0] += 1;
      }
    }
  };
  file.recorded = record(
      [](int ranks, const Schedule& schedule) {
        return std::make_unique<OffByOne>(make_host_device(ranks, schedule, 1));
      },
      c);
  CHECK(file.recorded->verdict == Outcome::wrong);
  REQUIRE(file.recorded->worst);
  const RecordedWorst& worst = *file.recorded->worst;
  CHECK(file.recorded->told.starts_with(worst.node + ": " + worst.part + " after step 1 on rank "));
  file.content = c;
  const std::string text = to_text(file);
  const auto read = read_case(text);
  REQUIRE(read);
  CHECK(to_text(*read) == text);
  CHECK(std::get<ProgramCase>(read->content).gradients == c.gradients);
  CHECK(error_of(replaced(text, "\"ranks\": 2", "\"ranks\": 3")) ==
        "/program/gradients/0: a list of 2, needs 3: one entry a rank");
  auto json = nlohmann::ordered_json::parse(text);
  json["unit"] = nlohmann::ordered_json::parse(text_of_small_site())["unit"];
  CHECK(error_of(json.dump()) == "/program: a second case beside the unit");
}

TEST_CASE("a small case is readable: what belongs together stands on one line") {
  const std::string text = text_of_small_site();
  CHECK(text.starts_with("{\n \"schema\": \"shardproof/case/1\",\n"));
  CHECK(text.find("\n    \"replicas\": [[\"0x0p+0\", \"0x1p+0\"], [\"0x1.8p+1\", "
                  "\"-0x0p+0\"]]\n") != std::string::npos);
  std::size_t longest = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = text.find('\n', at);
    longest = std::max(longest, end - at);
    at = end + 1;
  }
  CHECK(longest < 240);  // a long text cannot be broken
  CHECK(text.size() < 6000);
}

TEST_CASE("what is wrong is recorded with what encloses its exact value") {
  const CaseFile file = file_of(small_site());
  REQUIRE(file.recorded->worst);
  const RecordedWorst& worst = *file.recorded->worst;
  CHECK(file.recorded->verdict == Outcome::wrong);
  CHECK(worst.node == "g.var_at");
  // Replica 1 has 3 and 0, the global mean is 1: (4 + 1) / 2 in place of 2.25. Replica 0 has 0 and
  // 1: (1 + 0) / 2 in place of 0.25.
  CHECK(worst.lower == (worst.difference.replica == 1 ? 2.5 : 0.5));
  CHECK(worst.upper == worst.lower);
  CHECK(worst.difference.got == (worst.difference.replica == 1 ? 2.25 : 0.25));
}

TEST_CASE("NaN keeps its bits, and infinities and the smallest numbers their values") {
  UnitCase c = small_site();
  const std::vector<std::uint32_t> bits{0x7FC00001U, 0xFFC12345U, 0x7F800001U, 0x00000001U,
                                        0x80000000U, 0x7F800000U, 0xFF800000U, 0x807FFFFFU};
  Graph graph;
  graph.relu(graph.input("x", {1, 1, 2, 4}), "relu");
  c = with_numbers(std::move(graph), 1, 1);
  for (std::size_t i = 0; i < bits.size(); ++i) {
    c.inputs[0][0].values[i] = std::bit_cast<float>(bits[i]);
  }
  const std::string text = to_text(file_of(c));
  CHECK(text.find("\"nan:7fc00001\", \"nan:ffc12345\", \"nan:7f800001\", \"0x1p-149\", "
                  "\"-0x0p+0\", \"inf\", \"-inf\"") != std::string::npos);
  const auto read = read_case(text);
  REQUIRE(read);
  const auto& values = std::get<UnitCase>(read->content).inputs[0][0].values;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    CHECK(std::bit_cast<std::uint32_t>(values[i]) == bits[i]);
  }
}

TEST_CASE("a case of a newer schema asks for an update, whatever else it holds") {
  CHECK(error_of("{\"schema\": \"shardproof/case/2\", \"new\": 1}") ==
        "case of schema shardproof/case/2; this program reads up to 1: update it");
}

TEST_CASE("what is no case says so") {
  const std::string begins = "not a case: a case begins with \"schema\": \"shardproof/case/1\"";
  CHECK(error_of("{}") == begins);
  CHECK(error_of("[1]") == begins);
  CHECK(error_of("{\"version\": \"1\", \"schema\": \"shardproof/case/1\"}") == begins);
  CHECK(error_of("{\"schema\": 1}") == begins);
  for (const std::string schema :
       {"shardproof/signoff/1", "shardproof/case/", "shardproof/case/x", "shardproof/case/1x",
        "shardproof/case/0", "shardproof/case/99999999999999999999999"}) {
    CHECK(error_of("{\"schema\": \"" + schema + "\"}") ==
          "not a case: its schema is \"" + schema + "\", a case's \"shardproof/case/1\"");
  }
}

TEST_CASE("no JSON, and JSON that is cut off, name the place") {
  CHECK(error_of("{\n \"schema\": shardproof") == "not JSON at line 2, column 12");
  CHECK(error_of("") == "not whole: the JSON ends at line 1, column 1, before its last bracket");
  CHECK(error_of("{\"a\": \"\xff\"}") == "not JSON at line 1, column 8");
  CHECK(error_of("{\"a\": 7e+27777}") == "a number beyond the range of float64");
  const std::string text = text_of_small_site();
  for (std::size_t size = 1; size + 2 < text.size(); size += 7) {
    const std::string error = error_of(text.substr(0, size));
    CHECK((error.starts_with("not whole: the JSON ends at line ") ||
           error.starts_with("not JSON at line ")));
  }
  CHECK(error_of(text.substr(0, text.size() - 2)).starts_with("not whole: the JSON ends at line "));
  CHECK(error_of(text + "x").starts_with("not JSON at line "));
}

TEST_CASE("two fields of one name, and lists within lists without end, are refused") {
  CHECK(error_of("{\"a\": {\"b\": 1, \"c\": 2, \"b\": 3}}") == "two fields named \"b\"");
  CHECK(error_of(std::string(100'000, '[') + std::string(100'000, ']')) == "more than 8 levels");
}

TEST_CASE("every field that is missing, or of another type, is named by its pointer") {
  const auto whole = nlohmann::ordered_json::parse(text_of_small_site());
  std::vector<nlohmann::ordered_json::json_pointer> places;
  std::vector<std::pair<nlohmann::ordered_json, std::string>> open{{whole, ""}};
  while (!open.empty()) {
    const auto [value, pointer] = open.back();
    open.pop_back();
    for (const auto& [key, inner] : value.items()) {
      const std::string place = pointer + "/" + key;
      places.emplace_back(place);
      if (inner.is_structured()) open.emplace_back(inner, place);
    }
  }
  REQUIRE(places.size() > 100);
  for (const auto& place : places) {
    const std::string pointer = place.to_string();
    if (pointer == "/schema") continue;
    CAPTURE(pointer);
    auto mistyped = whole;
    mistyped[place] = nullptr;
    CHECK(error_of(mistyped.dump()).starts_with(pointer + ": null in place of "));
    const bool of_list = whole.at(place.parent_pointer()).is_array();
    const bool optional = pointer == "/unit" || pointer == "/recorded" ||
                          pointer == "/recorded/worst" || pointer == "/unit/relu" ||
                          pointer.ends_with("/label");
    auto without = whole;
    auto& parent = without[place.parent_pointer()];
    if (of_list) {
      parent.erase(std::stoul(place.back()));
    } else {
      parent.erase(place.back());
    }
    const auto read = read_case(without.dump());
    if (of_list) {  // a draw fewer, or a launch, is a case all the same
      if (!read) CHECK(read.error().starts_with("/"));
    } else if (!optional) {
      REQUIRE(!read);
      CHECK(read.error() == pointer + ": missing");
    }
  }
}

TEST_CASE("a field of no known name is refused by its pointer") {
  auto json = nlohmann::ordered_json::parse(text_of_small_site());
  json["unit"]["schedule"]["colour"] = 1;
  CHECK(error_of(json.dump()) == "/unit/schedule/colour: no field of that name");
}

TEST_CASE("sizes that do not match name the list, its numbers and those expected") {
  const std::string text = text_of_small_site();
  CHECK(error_of(replaced(text, "[[\"0x0p+0\", \"0x1p+0\"]", "[[\"0x0p+0\"]")) ==
        "/unit/inputs/0/replicas/0: 1 numbers in place of 2");
  CHECK(error_of(replaced(text, "\"shape\": [1, 1, 1, 2]", "\"shape\": [1, 1, 1, 3]")) ==
        "/unit/inputs/0/replicas/0: 2 numbers in place of 3");
  CHECK(error_of(replaced(text, "\"shape\": [1, 1, 1, 2]", "\"shape\": [1, 1, 2]")) ==
        "/unit/inputs/0/shape: 3 extents in place of 4: images, channels, height, width");
  CHECK(error_of(replaced(text, "\"shape\": [1, 1, 1, 1]", "\"shape\": [1, 2, 1, 1]")) ==
        "/unit/weights/0/shape: the unit's is 1x1x1x1");
  auto json = nlohmann::ordered_json::parse(text);
  json["recorded"]["written"][0]["replicas"].erase(0);
  CHECK(error_of(json.dump()) == "/recorded/written/0/replicas: 1 replicas in place of 2");
  json = nlohmann::ordered_json::parse(text);
  json["recorded"]["written"].erase(0);
  CHECK(error_of(json.dump()) ==
        "/recorded/written/0/node: a launch that writes g.mean belongs here");
  json = nlohmann::ordered_json::parse(text);
  json["unit"]["weights"].push_back(json["unit"]["weights"][0]);
  CHECK(error_of(json.dump()) == "/unit/weights: 3 weights in place of 2");
}

TEST_CASE("absurd sizes are refused before memory is taken") {
  const std::string text = text_of_small_site();
  const auto with_shape = [&](const std::string& shape) {
    return error_of(replaced(text, "[1, 1, 1, 2]", shape));
  };
  CHECK(with_shape("[1, 4294967296, 1, 2]") ==
        "/unit/inputs/0/shape/1: 4294967296 is more than 1048576");
  CHECK(with_shape("[1048576, 1048576, 1048576, 1048576]") ==
        "/unit/inputs/0/shape: more than 1048576 numbers");
  CHECK(with_shape("[0, 1, 1, 2]") == "/unit/inputs/0/shape/0: an extent of 0");
  CHECK(with_shape("[-1, 1, 1, 2]") ==
        "/unit/inputs/0/shape/0: a negative number in place of a whole number");
  CHECK(with_shape("[1.5, 1, 1, 2]") ==
        "/unit/inputs/0/shape/0: a fraction in place of a whole number");
  Graph graph;
  graph.convolution(graph.input("x", {1, 1, 1, 1}), {"W", "", 3, 1, 1, 1}, 1);
  const std::string product = to_text(file_of(with_numbers(std::move(graph), 1, 1)));
  CHECK(error_of(replaced(product, "\"outputs\": 1", "\"outputs\": 1048576")) ==
        "/unit: a value of more than 1048576 numbers");
  CHECK(error_of(replaced(product, "\"kernel\": 3", "\"kernel\": 4")) ==
        "/unit: a window of 4 at stride 1 does not fit an extent of 3");
  CHECK(error_of(replaced(product, "\"pad_end\": 1", "\"pad_end\": 3")) ==
        "/unit/pad_end: padding as wide as the kernel");
  CHECK(error_of(replaced(product, "\"stride\": 1", "\"stride\": 0"))
            .starts_with("/unit: a window of 3 at stride 0"));
}

TEST_CASE("an unknown operation and a second contract of one operation are refused") {
  const std::string text = text_of_small_site();
  CHECK(error_of(replaced(text, "\"operation\": \"bn_sync\"", "\"operation\": \"softmax\""))
            .starts_with("/unit/operation: \"softmax\" is none of convolution, "));
  CHECK(error_of(replaced(text, "\"operation\": \"channel_variance\"",
                          "\"operation\": \"channel_mean\"")) ==
        "/recorded/contracts/2/operation: a second contract of channel_mean");
  CHECK(error_of(replaced(text, "\"operation\": \"channel_variance\"", "\"operation\": \"add\"")) ==
        "/recorded/contracts: none of channel_variance");
  CHECK(error_of(replaced(text, "\"mean\": \"divide\"", "\"mean\": \"shift\"")) ==
        "/recorded/contracts/0/mean: \"shift\" is none of divide, reciprocal, premultiply");
}

TEST_CASE("what a file says in its own words stands in a complaint on one short line") {
  const std::string error =
      error_of("{\"schema\": \"shardproof/case/1\", \"\\n\\u001b" + std::string(5000, 'x') +
               "\": 1, \"version\": \"\", \"identity\": \"\", \"property\": \"\", "
               "\"draws\": []}");
  CHECK(error.starts_with("/??xxx"));
  CHECK(error.size() < 450);
}

TEST_CASE("a number that is not written as these are is refused") {
  const std::string text = text_of_small_site();
  for (const std::string number :
       {"1.5", "0x1.80p+1", "0X1.8p+1", "+0x1p+0", "0x1.0000001p+0", "0x1p+400", "nan", "NaN",
        "nan:7f800000", "nan:7FC00001", "infinity", "", "-", "0x", "0x1p+0 ", "nan:", "-nan"}) {
    CAPTURE(number);
    CHECK(error_of(replaced(text, "\"0x1.8p+1\"", "\"" + number + "\""))
              .starts_with("/unit/inputs/0/replicas/1/0: \"" + number + "\" is no float32 number"));
  }
}

TEST_CASE("a file that is missing, a folder and a file too large are told apart") {
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("shardproof-cases-" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = (folder / "case.json").string();
  const auto error = [](const std::string& of) {
    const auto file = read_case_file(of);
    REQUIRE(!file);
    return file.error();
  };
  CHECK(error(path) == path + ": no such file");
  CHECK(error(folder.string()) == folder.string() + ": a folder, not a case file");
  std::ofstream(path) << "{";
  CHECK(error(path) ==
        path + ": not whole: the JSON ends at line 1, column 2, before its last bracket");
  std::filesystem::resize_file(path, (std::uintmax_t{4} << 20U) + 1);
  CHECK(error(path) == path + ": 4194305 bytes; a case has at most 4194304");
  std::ofstream(path, std::ios::trunc) << text_of_small_site();
  CHECK(read_case_file(path));
  std::filesystem::remove_all(folder);
}

}  // namespace shardproof
