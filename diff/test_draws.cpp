// The inputs are what draws.h says of them: lattice sums that no order rounds, statistics that are
// float32 numbers, operands whose every bit counts; dithered numbers that stay in their replica.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "device/engine/engine.h"
#include "diff/bounds.h"
#include "diff/draws.h"
#include "diff/test_devices.h"
#include "diff/unit.h"
#include "reference/graph/denote.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/bfloat16.h"

namespace shardproof {
namespace {

constexpr std::size_t kReplicas = 3;
constexpr std::size_t kBatch = 2;

struct NamedUnit {
  Unit unit;
  std::size_t draw;
};

const Graph& network() {
  static const Graph graph = [] {
    NetOptions options;
    options.size = 64;
    options.classes = 10;
    options.width_divisor = 16;
    return *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  }();
  return graph;
}

// Every lattice draw of every distinct unit of one kind in the network.
std::vector<NamedUnit> draws_of(Unit::Kind kind) {
  std::vector<NamedUnit> draws;
  std::set<std::string> seen;
  for (NodeId node = 0; node < network().nodes().size(); ++node) {
    const auto unit = unit_ending_at(network(), node, true);
    if (!unit || unit->kind != kind || !seen.insert(unit->signature).second) continue;
    for (std::size_t draw = 0; draw < lattice_draws(*unit); ++draw) draws.push_back({*unit, draw});
  }
  return draws;
}

Probe probe_of(const NamedUnit& draw, std::uint64_t seed, unsigned threads = 1) {
  return lattice_probe(network(), draw.unit, kReplicas, kBatch, draw.draw, seed, threads);
}

std::vector<std::uint32_t> bits(const std::vector<float>& values) {
  std::vector<std::uint32_t> result;
  for (const float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

// All bits of a probe's weights and inputs.
std::vector<std::uint32_t> bits(const Probe& probe) {
  std::vector<std::uint32_t> all;
  const auto append = [&](const Tensor<float>& tensor) {
    const std::vector<std::uint32_t> more = bits(tensor.values);
    all.insert(all.end(), more.begin(), more.end());
  };
  for (const auto& [name, weight] : probe.weights) append(weight);
  for (const Family<float>& family : probe.inputs) {
    for (const Tensor<float>& tensor : family) append(tensor);
  }
  return all;
}

// The values of node `wanted` in float64.
Family<double> meant(const Probe& probe, NodeId wanted) {
  std::vector<Family<double>> inputs;
  for (const Family<float>& family : probe.inputs) {
    inputs.emplace_back();
    for (const Tensor<float>& tensor : family) inputs.back().push_back(exact<double>(tensor));
  }
  return denote<double>(probe.graph, probe.weights, inputs, std::span(&wanted, 1))[0];
}

Family<float> computed(const Probe& probe, const Arithmetic& arithmetic, NodeId wanted) {
  PlainDevice device(probe.inputs[0].size(), arithmetic);
  Engine engine(device, probe.graph, probe.weights);
  Family<float> result;
  (void)engine.forward(probe.inputs, [&](NodeId node, Family<float> values) {
    if (node == wanted) result = std::move(values);
  });
  return result;
}

std::vector<Arithmetic> orders() {
  std::vector<Arithmetic> result(3);
  result[0].name = "in order";
  result[1].name = "last first, 8 lanes, fused multiply-add";
  result[1].order = Arithmetic::Order::backward;
  result[1].lanes = 8;
  result[1].contracted = true;
  result[2].name = "random, 32 lanes";
  result[2].order = Arithmetic::Order::random;
  result[2].lanes = 32;
  result[2].reduce = Arithmetic::Order::tree;
  return result;
}

bool equal(const Family<float>& got, const Family<double>& expected) {
  for (std::size_t r = 0; r < got.size(); ++r) {
    for (std::size_t i = 0; i < got[r].values.size(); ++i) {
      if (static_cast<double>(got[r].values[i]) != expected[r].values[i]) return false;
    }
  }
  return true;
}

bool is_constant(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [&](float value) { return value == values[0]; });
}

// No output is constant or equal to an input of its shape, and no two replicas are alike; but
// one-hot operands are few.
void check_tells(const Probe& probe, bool one_hot) {
  const Family<float> y = computed(probe, orders()[0], probe.graph.output());
  for (std::size_t r = 0; r < y.size(); ++r) {
    CHECK_FALSE(is_constant(y[r].values));
    const auto differ = [](const Tensor<float>& a, const Tensor<float>& b) {
      return bits(a.values) != bits(b.values);
    };
    for (const Family<float>& x : probe.inputs) {
      CHECK(differ(x[r], y[r]));
      if (r > 0 && !one_hot) CHECK(differ(x[r], x[r - 1]));
    }
    if (r > 0 && !one_hot) CHECK(differ(y[r], y[r - 1]));
  }
}

Tensor<float>& weight_of(Probe& probe) {
  for (const Parameter& parameter : probe.graph.parameters()) {
    const bool bias = parameter.role == Parameter::Role::dense_bias ||
                      parameter.role == Parameter::Role::convolution_bias;
    if (!bias) return probe.weights.at(parameter.name);
  }
  throw std::logic_error("no weight");
}

// Whether the last of the 24 bits of significand is set: no shorter format holds the number.
bool uses_all_bits(float x) { return (std::bit_cast<std::uint32_t>(x) & 1U) != 0; }

bool shows_tf32(float x) { return round_to_tf32(x) != x; }

constexpr std::uint64_t kSeeds = 3;

}  // namespace

TEST_CASE("a draw is a function of its seed alone") {
  for (const Unit::Kind kind :
       {Unit::Kind::product, Unit::Kind::site, Unit::Kind::pool, Unit::Kind::add}) {
    for (const NamedUnit& draw : draws_of(kind)) {
      CAPTURE(draw.unit.signature, draw.draw);
      const std::vector<std::uint32_t> once = bits(probe_of(draw, 1));
      CHECK((once == bits(probe_of(draw, 1))));
      CHECK((once == bits(probe_of(draw, 1, 3))));
      CHECK((once != bits(probe_of(draw, 2))));
    }
  }
}

TEST_CASE("every lattice draw of the network tells outputs, inputs and replicas apart") {
  for (const Unit::Kind kind :
       {Unit::Kind::product, Unit::Kind::site, Unit::Kind::pool, Unit::Kind::add}) {
    for (const NamedUnit& draw : draws_of(kind)) {
      CAPTURE(draw.unit.signature, draw.draw);
      const bool one_hot = kind == Unit::Kind::product && draw.draw == 1;
      for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
        check_tells(probe_of(draw, seed), one_hot);
      }
    }
  }
}

// ---- Products

TEST_CASE("no lattice sum of a product rounds, in any order") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::product)) {
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const Probe probe = probe_of(draw, seed);
      const Family<double> expected = meant(probe, probe.graph.output());
      for (const Arithmetic& arithmetic : orders()) {
        CAPTURE(draw.unit.signature, draw.draw, seed, arithmetic.name);
        CHECK(equal(computed(probe, arithmetic, probe.graph.output()), expected));
      }
    }
  }
}

TEST_CASE("one-hot draws of a product hand back the other operand, all 24 bits of it") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::product)) {
    if (draw.draw != 1 && draw.draw != 2) continue;
    const bool hot_weights = draw.draw == 2;
    Probe probe = probe_of(draw, 1);
    const Family<float> y = computed(probe, orders()[0], probe.graph.output());
    for (std::size_t r = 0; r < kReplicas; ++r) {
      CAPTURE(draw.unit.signature, hot_weights, r);
      const std::vector<float>& other =
          hot_weights ? probe.inputs[0][r].values : weight_of(probe).values;
      const std::vector<float>& hot =
          hot_weights ? weight_of(probe).values : probe.inputs[0][r].values;
      CHECK(std::all_of(hot.begin(), hot.end(), [](float h) { return h == 0 || h == 1; }));
      CHECK(std::all_of(other.begin(), other.end(), uses_all_bits));
      const std::set<float> others(other.begin(), other.end());
      std::size_t handed_back = 0;
      for (const float value : y[r].values) {
        if (value == 0) continue;
        ++handed_back;
        REQUIRE(others.contains(value));
      }
      CHECK(handed_back > 0);
    }
  }
}

TEST_CASE("wide draws of a product show operands rounded to 11 bits") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::product)) {
    if (draw.draw < 3) continue;
    Probe probe = probe_of(draw, 1);
    const std::vector<float>& x = probe.inputs[0][0].values;
    const std::vector<float>& weight = weight_of(probe).values;
    CAPTURE(draw.unit.signature, draw.draw);
    const std::vector<float>& wide = draw.draw == 3 ? x : weight;
    CHECK(std::all_of(wide.begin(), wide.end(), shows_tf32));
  }
}

TEST_CASE("biases are drawn, and keep the sum on its lattice") {
  Graph graph;
  graph.dense(graph.input("x", {1, 40, 1, 1}), {"W", "b"}, 7);
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  for (const std::size_t draw : {0U, 3U, 4U}) {
    const Probe probe = lattice_probe(graph, unit, kReplicas, kBatch, draw, 1, 1);
    const std::vector<float>& bias = probe.weights.at("b").values;
    CHECK(std::all_of(bias.begin(), bias.end(), [](float b) { return b != 0; }));
    CHECK(equal(computed(probe, orders()[1], graph.output()), meant(probe, graph.output())));
  }
}

// ---- Sites

namespace {

struct SiteShape {
  std::size_t batch, height, width, replicas;
  std::size_t count() const { return batch * height * width; }
};

// Of the lattice draws `exact` of a site with 64 channels.
struct SiteCounts {
  std::size_t channels = 0, float32_means = 0, float32_variances = 0, powers_of_four = 0;
  std::size_t means_differ = 0, variances_differ = 0, orders_agree = 0;
};

bool is_power_of_four(double x) {
  int exponent = 0;
  return std::frexp(x, &exponent) == 0.5 && exponent % 2 != 0;
}

SiteCounts counts_of(const SiteShape& shape, std::size_t draw, std::uint64_t seed) {
  Graph graph;
  graph.bn_sync_site(graph.input("x", {1, 64, shape.height, shape.width}), {"g", "b"});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  const Probe probe = lattice_probe(graph, unit, shape.replicas, shape.batch, draw, seed, 1);
  const double epsilon = static_cast<double>(
      std::get<BnSync>(probe.graph.node(probe.graph.output()).operation).epsilon);
  // x, own mean, mean, own second moment about it, variance
  const Family<double> own = meant(probe, 1), mean = meant(probe, 2), second = meant(probe, 3),
                       variance = meant(probe, 4);
  Family<float> means[3], variances[3];
  for (std::size_t o = 0; o < 3; ++o) {
    means[o] = computed(probe, orders()[o], 2);
    variances[o] = computed(probe, orders()[o], 4);
  }
  SiteCounts counts;
  for (std::size_t c = 0; c < 64; ++c) {
    ++counts.channels;
    counts.float32_means += is_float32(mean[0].values[c]) ? 1U : 0U;
    counts.float32_variances += is_float32(variance[0].values[c]) ? 1U : 0U;
    counts.powers_of_four += is_power_of_four(variance[0].values[c] + epsilon) ? 1U : 0U;
    bool agree = true;
    for (std::size_t o = 0; o < 3; ++o) {
      agree = agree && static_cast<double>(means[o][0].values[c]) == mean[0].values[c] &&
              static_cast<double>(variances[o][0].values[c]) == variance[0].values[c];
    }
    counts.orders_agree += agree ? 1U : 0U;
    bool means_differ = false, variances_differ = false;
    for (std::size_t r = 1; r < shape.replicas; ++r) {
      const auto of_replica = [&](std::size_t replica) {
        const double between = own[replica].values[c] - mean[replica].values[c];
        return second[replica].values[c] - between * between;
      };
      means_differ = means_differ || own[r].values[c] != own[0].values[c];
      variances_differ = variances_differ || of_replica(r) != of_replica(0);
    }
    counts.means_differ += means_differ ? 1U : 0U;
    counts.variances_differ += variances_differ ? 1U : 0U;
  }
  return counts;
}

}  // namespace

TEST_CASE("lattice statistics of 8 and more numbers are exact, and replicas differ") {
  for (const SiteShape& shape :
       {SiteShape{2, 2, 2, 2}, SiteShape{1, 3, 3, 5}, SiteShape{1, 4, 4, 2}, SiteShape{2, 3, 3, 3},
        SiteShape{1, 7, 7, 4}, SiteShape{2, 7, 7, 1}, SiteShape{2, 7, 7, 4},
        SiteShape{2, 14, 14, 5}, SiteShape{2, 28, 28, 7}}) {
    for (const std::size_t draw : {0U, 1U}) {
      CAPTURE(shape.batch, shape.height, shape.width, shape.replicas, draw);
      const SiteCounts counts = counts_of(shape, draw, 1);
      CHECK(counts.float32_means == counts.channels);
      CHECK(counts.float32_variances == counts.channels);
      CHECK(counts.powers_of_four == counts.channels);
      CHECK(counts.orders_agree == counts.channels);
      if (shape.replicas == 1) continue;
      CHECK(counts.means_differ == counts.channels);
      CHECK(counts.variances_differ == counts.channels);
    }
  }
}

TEST_CASE("at 25,088 numbers lattice statistics are exact") {
  const SiteCounts counts = counts_of({2, 112, 112, 2}, 0, 1);
  CHECK(counts.float32_means == counts.channels);
  CHECK(counts.orders_agree == counts.channels);
  CHECK(counts.powers_of_four == counts.channels);
  CHECK(counts.means_differ == counts.channels);
  CHECK(counts.variances_differ == counts.channels);
}

TEST_CASE("site draws have means far from zero, varied parameters, and epsilons of two sizes") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::site)) {
    const Probe probe = probe_of(draw, 1);
    CAPTURE(draw.unit.signature, draw.draw);
    for (const auto& [name, values] : probe.weights) {
      CHECK(std::all_of(values.values.begin(), values.values.end(),
                        [](float value) { return value != 0; }));
      CHECK((values.values.size() < 3 || !is_constant(values.values)));
    }
    float epsilon = 0;
    for (const Node& node : probe.graph.nodes()) {
      if (const auto* site = std::get_if<BnSync>(&node.operation)) epsilon = site->epsilon;
    }
    if (draw.draw == 1) {
      CHECK(epsilon < 5e-6F);
    } else {
      CHECK(epsilon > 1e-4F);
    }
  }
  // One-pass variances are inexact where Σx² is beyond 2^24 quanta.
  Graph graph;
  graph.bn_sync_site(graph.input("x", {1, 32, 7, 7}), {"g", "b"});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  const Probe probe = lattice_probe(graph, unit, 2, 2, 0, 1, 1);
  const Family<double> mean = meant(probe, 2), variance = meant(probe, 4);
  for (std::size_t c = 0; c < 32; ++c) {
    CHECK(std::pow(mean[0].values[c], 2) > 1e4 * variance[0].values[c]);
  }
}

TEST_CASE(
    "the wide draw of a site has a few numbers of many bits among zeros, on which sums are exact") {
  Graph graph;
  graph.bn_sync_site(graph.input("x", {1, 32, 7, 7}), {"g", "b"});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  const Probe probe = lattice_probe(graph, unit, kReplicas, kBatch, 2, 1, 1);
  const Family<double> own = meant(probe, 1);
  for (const Arithmetic& arithmetic : orders()) {
    const Family<float> got = computed(probe, arithmetic, 1);
    for (std::size_t r = 0; r < kReplicas; ++r) {
      for (std::size_t c = 0; c < 32; ++c) {
        // The sum is exact, so the division rounds alone.
        CHECK(got[r].values[c] == static_cast<float>(own[r].values[c]));
      }
    }
  }
  for (std::size_t r = 0; r < kReplicas; ++r) {
    for (std::size_t c = 0; c < 32; ++c) {
      std::size_t numbers = 0;
      for (std::size_t n = 0; n < kBatch; ++n) {
        for (const float x : probe.inputs[0][r].plane(n, c)) {
          if (x == 0) continue;
          ++numbers;
          CHECK(round_to_bfloat16(x) != x);
          CHECK(shows_tf32(x));
        }
      }
      CHECK(numbers >= 1);
      CHECK(numbers <= 3);
    }
  }
}

// ---- Pools and adds

TEST_CASE("lattice pools are exact, and their wide draw needs 12 bits") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::pool)) {
    const Probe probe = probe_of(draw, 1);
    const NodeId y = probe.graph.output();
    const Family<double> expected = meant(probe, y);
    for (const Arithmetic& arithmetic : orders()) {
      const Family<float> got = computed(probe, arithmetic, y);
      for (std::size_t r = 0; r < kReplicas; ++r) {
        for (std::size_t i = 0; i < got[r].values.size(); ++i) {
          CHECK(got[r].values[i] == static_cast<float>(expected[r].values[i]));
          if (draw.draw == 0) CHECK(is_float32(expected[r].values[i]));
        }
      }
    }
    if (draw.draw == 0) continue;
    for (const float x : probe.inputs[0][0].values) CHECK((x == 0 || shows_tf32(x)));
  }
}

TEST_CASE("adds are drawn of numbers that use all bits") {
  for (const NamedUnit& draw : draws_of(Unit::Kind::add)) {
    const Probe probe = probe_of(draw, 1);
    REQUIRE(probe.inputs.size() == 2);
    for (const Family<float>& family : probe.inputs) {
      for (const Tensor<float>& x : family) {
        CHECK(std::all_of(x.values.begin(), x.values.end(), uses_all_bits));
      }
    }
  }
}

// ---- Dithered

namespace {

std::size_t unchanged(const std::vector<float>& a, const std::vector<float>& b) {
  std::size_t same = 0;
  for (std::size_t i = 0; i < a.size(); ++i) same += a[i] == b[i] ? 1U : 0U;
  return same;
}

}  // namespace

TEST_CASE("dithering a site changes every number, and permutes a channel within its replica") {
  Graph graph;
  const Shape shape{1, 8, 7, 7};
  graph.bn_sync_site(graph.input("x", shape), {"g", "b"});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  const Weights weights = seeded_weights(graph.parameters(), 1);
  // One number stands out, by more than the noise: its value tells replica and channel.
  const auto mark = [](std::size_t r, std::size_t c) {
    return 1e4 * static_cast<double>(1 + 10 * r + c);
  };
  constexpr std::size_t kMarked = 17;
  Family<float> x(kReplicas, Tensor<float>({kBatch, 8, 7, 7}));
  for (std::size_t r = 0; r < kReplicas; ++r) {
    for (std::size_t c = 0; c < 8; ++c) {
      x[r].values[c * 49 + kMarked] = static_cast<float>(mark(r, c));
    }
  }
  std::size_t moved = 0;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    const Probe probe = dithered_probe(graph, unit, weights, {&x}, 1, seed, 1);
    CHECK(bits(probe) == bits(dithered_probe(graph, unit, weights, {&x}, 1, seed, 2)));
    for (std::size_t r = 0; r < kReplicas; ++r) {
      const Tensor<float>& dithered = probe.inputs[0][r];
      CHECK(unchanged(dithered.values, x[r].values) == 0);
      for (std::size_t c = 0; c < 8; ++c) {
        std::size_t found = 0;
        for (std::size_t n = 0; n < kBatch; ++n) {
          for (std::size_t i = 0; i < 49; ++i) {
            const double value = static_cast<double>(dithered.plane(n, c)[i]);
            // sd is mark/√m, the noise at most that.
            if (value < mark(r, c) * 0.5) {
              CHECK(std::abs(value) < mark(r, c) * 0.2);
              continue;
            }
            ++found;
            CHECK(value == Approx(mark(r, c)).epsilon(0.2));
            moved += n != 0 || i != kMarked ? 1U : 0U;
          }
        }
        CHECK(found == 1);
      }
    }
  }
  CHECK(moved > 4 * kReplicas * 8 * 9 / 10);
}

TEST_CASE(
    "dithering spreads constant, far and zero channels enough that no two numbers are equal") {
  Graph graph;
  graph.bn_sync_site(graph.input("x", {1, 3, 7, 7}), {"g", "b"});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  const Weights weights = seeded_weights(graph.parameters(), 1);
  Family<float> x(2, Tensor<float>({2, 3, 7, 7}));
  for (Tensor<float>& tensor : x) {
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
      const std::size_t c = i / 49 % 3;
      tensor.values[i] = c == 0 ? 0.1F : c == 1 ? 1000.3F : 0.0F;
    }
  }
  const Probe probe = dithered_probe(graph, unit, weights, {&x}, 1, 1, 1);
  for (const Tensor<float>& tensor : probe.inputs[0]) {
    for (std::size_t c = 0; c < 3; ++c) {
      std::set<float> numbers;
      for (std::size_t n = 0; n < 2; ++n) {
        for (const float value : tensor.plane(n, c)) numbers.insert(value);
      }
      CAPTURE(c);
      CHECK(numbers.size() > 60);  // of 98
    }
  }
}

TEST_CASE("dithering a 1×1 product permutes the input channels alike in x and in the weight") {
  for (const bool is_dense : {false, true}) {
    constexpr std::size_t kChannels = 12;
    Graph graph;
    if (is_dense) {
      graph.dense(graph.input("x", {1, kChannels, 1, 1}), {"W", "b"}, 3);
    } else {
      graph.convolution(graph.input("x", {1, kChannels, 4, 4}), {"W", "", 1, 1, 0, 0}, 3);
    }
    const Unit unit = *unit_ending_at(graph, graph.output(), false);
    Weights weights = seeded_weights(graph.parameters(), 1);
    // Channel i is 5 + i everywhere; the noise is ±rms/16, below 0.8.
    const std::size_t outs = 3;
    Tensor<float>& weight = weights.at("W");
    for (std::size_t out = 0; out < outs; ++out) {
      for (std::size_t i = 0; i < kChannels; ++i) {
        weight.values[is_dense ? i * outs + out : out * kChannels + i] =
            2 * static_cast<float>(5 + i);
      }
    }
    Shape shape = graph.node(0).shape;
    shape.n = kBatch;
    Family<float> x(kReplicas, Tensor<float>(shape));
    for (Tensor<float>& tensor : x) {
      for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        tensor.values[i] = 2 * static_cast<float>(5 + i / shape.plane() % kChannels);
      }
    }
    const Probe probe = dithered_probe(graph, unit, weights, {&x}, 1, 1, 1);
    const Tensor<float>& dithered_weight = probe.weights.at("W");
    std::vector<std::size_t> order;
    for (std::size_t i = 0; i < kChannels; ++i) {
      const float w = dithered_weight.values[is_dense ? i * outs : i];
      const float first = probe.inputs[0][0].values[i * shape.plane()];
      // Nearest channel, by the mean of what noise allows on both operands.
      order.push_back(static_cast<std::size_t>(std::lround(w / 2)) - 5);
      CAPTURE(is_dense, i, w, first);
      CHECK(std::abs(first - w) < 4);
      for (const Tensor<float>& tensor : probe.inputs[0]) {
        for (std::size_t n = 0; n < kBatch; ++n) {
          for (std::size_t p = 0; p < shape.plane(); ++p) {
            const float value = tensor.values[(n * kChannels + i) * shape.plane() + p];
            REQUIRE(std::abs(value - first) < 4);
          }
        }
      }
    }
    CHECK_FALSE(std::is_sorted(order.begin(), order.end()));
    CHECK(unchanged(dithered_weight.values, weight.values) == 0);
    for (std::size_t r = 0; r < kReplicas; ++r) {
      CHECK(unchanged(probe.inputs[0][r].values, x[r].values) == 0);
    }
  }
}

TEST_CASE("dithering a product with a window draws the signs of its weights anew") {
  Graph graph;
  graph.depthwise(graph.input("x", {1, 16, 6, 6}), {"W", 5, 1, 2, 2});
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  Weights weights;
  weights["W"] = Tensor<float>({16, 1, 5, 5});
  for (float& value : weights["W"].values) value = 8;
  const Family<float> x(2, Tensor<float>({2, 16, 6, 6}));
  const Probe probe = dithered_probe(graph, unit, weights, {&x}, 1, 1, 1);
  std::size_t negative = 0;
  for (const float value : probe.weights.at("W").values) {
    CHECK(std::abs(value) == Approx(8).margin(0.5));
    negative += value < 0 ? 1U : 0U;
  }
  CHECK(negative > 150);  // of 400
  CHECK(negative < 250);
  // Operands that are all zero get noise too.
  CHECK(unchanged(probe.inputs[0][0].values, x[0].values) == 0);
}

TEST_CASE("dithering a pool keeps every image's channel in its place") {
  Graph graph;
  graph.global_average_pool(graph.input("x", {1, 4, 5, 5}), "gap");
  const Unit unit = *unit_ending_at(graph, graph.output(), false);
  Family<float> x(2, Tensor<float>({2, 4, 5, 5}));
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < x[r].values.size(); ++i) {
      const auto plane = static_cast<double>(i / 25);
      x[r].values[i] = static_cast<float>(1000 * (1 + plane + 8 * static_cast<double>(r)) +
                                          static_cast<double>(i % 25));
    }
  }
  const Probe probe = dithered_probe(graph, unit, {}, {&x}, 1, 1, 1);
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(unchanged(probe.inputs[0][r].values, x[r].values) < 3);
    for (std::size_t i = 0; i < x[r].values.size(); ++i) {
      const double plane = 1000 * (1 + static_cast<double>(i / 25 + 8 * r));
      CHECK(std::abs(static_cast<double>(probe.inputs[0][r].values[i]) - plane - 12) < 30);
    }
  }
}

}  // namespace shardproof
