// One unit with numbers of its own: its verdict, with a device and from what a device once wrote.
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/draws.h"
#include "diff/unit.h"
#include "diff/unit_case.h"
#include "reference/nets/weights.h"
#include "reference/numbers/random.h"

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

Family<float> drawn_family(Shape shape, std::size_t replicas, std::uint64_t seed) {
  Family<float> family;
  for (std::size_t r = 0; r < replicas; ++r) {
    Random random(seed, "replica", r);
    family.emplace_back(shape);
    for (float& value : family.back().values) value = static_cast<float>(random.triangular(2));
  }
  return family;
}

UnitCase with_numbers(Graph graph, std::size_t replicas, std::size_t batch) {
  UnitCase c;
  c.weights = seeded_weights(graph.parameters(), 1);
  for (const NodeId input : graph.inputs()) {
    Shape shape = graph.node(input).shape;
    shape.n = batch;
    c.inputs.push_back(drawn_family(shape, replicas, 1 + input));
  }
  c.graph = std::move(graph);
  return c;
}

UnitCase site_case(Shape shape, std::size_t replicas, std::size_t batch) {
  Graph graph;
  graph.relu(graph.bn_sync_site(graph.input("x", shape), {"g", "b"}), "g.relu");
  return with_numbers(std::move(graph), replicas, batch);
}

std::vector<Graph> graphs_of_all_units() {
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
  return graphs;
}

}  // namespace

TEST_CASE("every unit agrees on the built-in device, and from what that device wrote") {
  for (const Graph& graph : graphs_of_all_units()) {
    CAPTURE(graph.node(graph.output()).name);
    const UnitCase c = with_numbers(graph, 3, 2);
    const UnitVerdict verdict = judge_unit_case(kHost, c);
    CHECK(verdict.outcome() == Outcome::agrees);
    CHECK(verdict.own == verdict.comparisons.size());
    REQUIRE(verdict.written.back().first == graph.output());

    const UnitVerdict again = judge_recorded(c, verdict.written, verdict.contracts);
    CHECK(again.outcome() == Outcome::agrees);
    REQUIRE(again.comparisons.size() == verdict.comparisons.size());
    for (std::size_t i = 0; i < again.comparisons.size(); ++i) {
      CHECK(describe(again.comparisons[i]) == describe(verdict.comparisons[i]));
    }
  }
}

TEST_CASE("a unit's graph is made again from its layout") {
  for (const Graph& graph : graphs_of_all_units()) {
    const Graph again = graph_of(layout_of(graph));
    REQUIRE(again.nodes().size() == graph.nodes().size());
    for (NodeId id = 0; id < graph.nodes().size(); ++id) {
      CHECK(again.node(id).name == graph.node(id).name);
      CHECK(again.node(id).shape == graph.node(id).shape);
    }
    CHECK(again.parameters().size() == graph.parameters().size());
  }
}

TEST_CASE("two units are no unit") {
  Graph graph;
  graph.relu(graph.relu(graph.input("x", {1, 1, 1, 1}), "a"), "b");
  CHECK_THROWS_AS(layout_of(graph), std::invalid_argument);
}

TEST_CASE("one wrong number is named by node, replica and place") {
  struct OneOff : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void normalise(const NormaliseCall& call) override {
      base().normalise(call);
      if (call.replica == 1) call.y[call.channels * call.plane + 5] = 2;
    }
  };
  const UnitCase c = site_case({1, 3, 2, 2}, 2, 2);
  const UnitVerdict verdict = judge_unit_case(with_fault<OneOff>(), c);
  CHECK(verdict.outcome() == Outcome::wrong);
  REQUIRE(verdict.first_wrong() != nullptr);
  const std::string told = describe(*verdict.first_wrong());
  CHECK(told.starts_with("g.relu: y on own statistics: replica 1 [1, 1, 0, 1] got 2, exact "));
}

TEST_CASE("a run that does not repeat is wrong even where every number is within its bound") {
  struct Alternating : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void normalise(const NormaliseCall& call) override {
      base().normalise(call);
      if (++calls > 1) call.y[0] = std::nextafter(call.y[0], 100.0F);
    }
    int calls = 0;
  };
  UnitCase c = site_case({1, 1, 2, 2}, 1, 1);
  c.inputs[0][0].values = {0.3F, -1.7F, 0.2F, 0.9F};
  c.weights.at("g").values = {1.3F};
  const UnitVerdict verdict = judge_unit_case(with_fault<Alternating>(), c);
  CHECK(verdict.outcome() == Outcome::wrong);
  REQUIRE(verdict.first_wrong() != nullptr);
  CHECK(verdict.first_wrong()->part == "unrecorded run repeats the bits");
}

TEST_CASE("a launch that fails is wrong, with its reason; want of memory is the caller's") {
  struct Closed : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void normalise(const NormaliseCall&) override { throw DeviceError("closed"); }
  };
  struct Full : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void normalise(const NormaliseCall&) override { throw OutOfDeviceMemory("full"); }
  };
  const UnitCase c = site_case({1, 1, 2, 2}, 2, 1);
  const UnitVerdict verdict = judge_unit_case(with_fault<Closed>(), c);
  CHECK(verdict.outcome() == Outcome::wrong);
  CHECK(verdict.failure == "closed");
  CHECK_THROWS_AS(judge_unit_case(with_fault<Full>(), c), OutOfDeviceMemory);
}

TEST_CASE("equal terms that all round one way are a suspicion that fresh draws drop") {
  // 60,000 equal numbers: a running sum errs the same way at every step.
  struct OneRunningSum : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
      Contract contract = ForwardingDevice::contract(operation, batch, plane);
      contract.lanes = 1;
      return contract;
    }
    void global_average_pool(const PoolCall& call) override {
      for (std::size_t i = 0; i < call.batch * call.channels; ++i) {
        float sum = 0;
        for (std::size_t j = 0; j < call.plane; ++j) sum += call.x[i * call.plane + j];
        call.y[i] = sum / static_cast<float>(call.plane);
      }
    }
  };
  Graph graph;
  graph.global_average_pool(graph.input("x", {1, 1, 60, 1000}), "gap");
  UnitCase c = with_numbers(std::move(graph), 1, 1);
  for (float& value : c.inputs[0][0].values) value = 0.1F;
  const UnitVerdict left = judge_unit_case(with_fault<OneRunningSum>(), c, Suspicions::left);
  REQUIRE(left.comparisons.at(0).outcome() == Outcome::suspect);
  CHECK(left.outcome() == Outcome::not_judged);
  const UnitVerdict settled = judge_unit_case(with_fault<OneRunningSum>(), c);
  CHECK(settled.outcome() == Outcome::agrees);
  CHECK(describe(settled.comparisons.at(0)) == describe(left.comparisons.at(0)));
}

TEST_CASE("an error that only fresh draws confirm is wrong, told in the case's own numbers") {
  // Beyond what independent roundings explain, within what any order may do.
  struct Drifting : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void global_average_pool(const PoolCall& call) override {
      base().global_average_pool(call);
      for (std::size_t i = 0; i < call.batch * call.channels; ++i) call.y[i] *= 1 + 0x1p-14F;
    }
    Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
      Contract contract = ForwardingDevice::contract(operation, batch, plane);
      contract.lanes = 1;
      return contract;
    }
  };
  Graph graph;
  graph.global_average_pool(graph.input("x", {1, 1, 40, 100}), "gap");
  UnitCase c = with_numbers(std::move(graph), 1, 1);
  for (float& value : c.inputs[0][0].values) value += 10;
  const UnitVerdict left = judge_unit_case(with_fault<Drifting>(), c, Suspicions::left);
  REQUIRE(left.comparisons.at(0).outcome() == Outcome::suspect);
  const UnitVerdict settled = judge_unit_case(with_fault<Drifting>(), c);
  CHECK(settled.outcome() == Outcome::wrong);
  CHECK(settled.own == 1);
  CHECK(describe(*settled.first_wrong()) == describe(left.comparisons.at(0)));
}

TEST_CASE("a site of two numbers a channel is not judged") {
  CHECK(judge_unit_case(kHost, site_case({1, 2, 1, 1}, 2, 1)).comparisons.back().outcome() ==
        Outcome::not_judged);
}

TEST_CASE("recorded values without a contract are refused") {
  const UnitCase c = site_case({1, 2, 2, 1}, 2, 1);
  const UnitVerdict verdict = judge_unit_case(kHost, c);
  CHECK_THROWS_AS(judge_recorded(c, verdict.written, {}), std::invalid_argument);
}

}  // namespace shardproof
