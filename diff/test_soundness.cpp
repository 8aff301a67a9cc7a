// No correct device is called wrong (agreement §3, "Soundness"), and the bounds are tight enough to
// mean something ("Tightness"): plain devices of every order and arithmetic, judged on lattices, on
// data made to strain the bounds, and on the same data dithered.
#include <array>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"
#include "diff/draws.h"
#include "diff/signoff.h"
#include "diff/test_devices.h"
#include "diff/unit.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

using Order = Arithmetic::Order;

// ---- Devices

std::vector<Arithmetic> correct_devices() {
  std::vector<Arithmetic> devices;
  const auto device = [&](std::string name) -> Arithmetic& {
    devices.emplace_back();
    devices.back().name = std::move(name);
    return devices.back();
  };
  device("one running sum");
  {
    Arithmetic& d = device("one running sum, last term first, fused multiply-add");
    d.order = Order::backward;
    d.contracted = true;
    d.bias_first = true;
    d.reduce = Order::backward;
    d.gamma_last = true;
  }
  {
    Arithmetic& d = device("8 lanes, terms in random order");
    d.order = Order::random;
    d.lanes = 8;
    d.reduce = Order::random;
  }
  {
    Arithmetic& d = device("32 lanes, fused multiply-add");
    d.lanes = 32;
    d.contracted = true;
    d.reduce = Order::tree;
  }
  {
    Arithmetic& d = device("256 lanes, last term first");
    d.lanes = 256;
    d.order = Order::backward;
    d.reduce = Order::tree;
    d.gamma_last = true;
  }
  {
    Arithmetic& d = device("Kahan");
    d.compensated = true;
  }
  {
    Arithmetic& d = device("float64 sums");
    d.accumulate = Accumulate::float64;
    d.reduce = Order::backward;
  }
  {
    Arithmetic& d = device("reciprocals of counts");
    d.mean = MeanDivision::reciprocal;
  }
  {
    Arithmetic& d = device("reciprocals of counts, 8 lanes, fused multiply-add");
    d.mean = MeanDivision::reciprocal;
    d.lanes = 8;
    d.contracted = true;
    d.reduce = Order::random;
  }
  {
    Arithmetic& d = device("premultiplied terms");
    d.mean = MeanDivision::premultiply;
  }
  {
    Arithmetic& d = device("premultiplied terms, 32 lanes, fused multiply-add");
    d.mean = MeanDivision::premultiply;
    d.lanes = 32;
    d.contracted = true;
    d.reduce = Order::tree;
  }
  {
    Arithmetic& d = device("premultiplied all-reduce");
    d.mean = MeanDivision::premultiply;
    d.reduce_alone = true;
    d.reduce = Order::random;
  }
  {
    Arithmetic& d = device("fused scale and shift");
    d.form = NormaliseForm::fused;
  }
  {
    Arithmetic& d = device("fused scale and shift, fused multiply-add");
    d.form = NormaliseForm::fused;
    d.contracted = true;
    d.lanes = 8;
  }
  {
    Arithmetic& d = device("root within 2 ulps");
    d.root = 2;
  }
  {
    Arithmetic& d = device("one-pass variance");
    d.statistics = StatisticsMethod::one_pass;
  }
  {
    Arithmetic& d = device("one-pass variance, 8 lanes, fused multiply-add");
    d.statistics = StatisticsMethod::one_pass;
    d.lanes = 8;
    d.contracted = true;
  }
  {
    Arithmetic& d = device("shifted variance");
    d.statistics = StatisticsMethod::shifted;
  }
  {
    Arithmetic& d = device("shifted variance, 8 lanes, fused multiply-add");
    d.statistics = StatisticsMethod::shifted;
    d.lanes = 8;
    d.contracted = true;
  }
  {
    Arithmetic& d = device("Welford");
    d.statistics = StatisticsMethod::welford;
  }
  {
    Arithmetic& d = device("merged, number by number, to what came before");
    d.statistics = StatisticsMethod::merged;
  }
  {
    Arithmetic& d = device("merged, number by number, what came before to each");
    d.statistics = StatisticsMethod::merged;
    d.reduce = Order::backward;
  }
  {
    Arithmetic& d = device("merged, chunks of 4 in order");
    d.statistics = StatisticsMethod::merged;
    d.chunk = 4;
  }
  {
    Arithmetic& d = device("merged, chunks of 32 pairwise");
    d.statistics = StatisticsMethod::merged;
    d.chunk = 32;
    d.reduce = Order::tree;
  }
  {
    Arithmetic& d = device("merged, number by number, pairwise");
    d.statistics = StatisticsMethod::merged;
    d.reduce = Order::tree;
  }
  {
    Arithmetic& d = device("tensor cores, operands cut to tf32");
    d.accumulate = Accumulate::tensor_core;
    d.bias_first = true;
    d.operands = Operands::tf32;
    d.truncated = true;
  }
  {
    Arithmetic& d = device("operands rounded to tf32");
    d.operands = Operands::tf32;
    d.lanes = 8;
  }
  {
    Arithmetic& d = device("bfloat16 operands");
    d.operands = Operands::bfloat16;
    d.contracted = true;
  }
  {
    Arithmetic& d = device("float16 operands");
    d.operands = Operands::float16;
  }
  {
    Arithmetic& d = device("bfloat16 sums");
    d.accumulate = Accumulate::bfloat16;
  }
  {
    Arithmetic& d = device("bfloat16 sums, 8 lanes");
    d.accumulate = Accumulate::bfloat16;
    d.bias_first = true;
    d.lanes = 8;
    d.order = Order::random;
  }
  {
    Arithmetic& d = device("float16 sums");
    d.accumulate = Accumulate::float16;
  }
  {
    Arithmetic& d = device("subnormals flushed");
    d.flushed = true;
  }
  {
    Arithmetic& d = device("subnormals flushed, fused scale and shift, 8 lanes, reciprocals");
    d.flushed = true;
    d.form = NormaliseForm::fused;
    d.lanes = 8;
    d.mean = MeanDivision::reciprocal;
    d.contracted = true;
  }
  return devices;
}

// ---- Data

double normal(Random& random) {
  double sum = -6;
  for (int i = 0; i < 12; ++i) sum += random.uniform();
  return sum;
}

// One channel's numbers on one replica of `replicas`. `shared` is the same on all replicas.
struct Place {
  std::size_t replica, replicas, count;
  Random& random;
  Random shared;
};
struct Strain {
  const char* name;
  std::function<double(Place&, std::size_t)> number;
};

const std::vector<Strain>& strains() {
  static const std::vector<Strain> all{
      {"normal", [](Place& p, std::size_t) { return normal(p.random); }},
      {"constant",
       [](Place& p, std::size_t) {
         Random shared = p.shared;
         return normal(shared);
       }},
      {"constant on each replica",
       [](Place& p, std::size_t) { return 1.1 + 0.3 * static_cast<double>(p.replica); }},
      {"60 % flat",
       [](Place& p, std::size_t j) { return 5 * j < 3 * p.count ? 0.7 : normal(p.random); }},
      {"60 % flat at 1000 deviations",
       [](Place& p, std::size_t j) { return 5 * j < 3 * p.count ? 1000.3 : normal(p.random); }},
      {"90 % at the mean",
       [](Place& p, std::size_t j) {
         return 3.3 + (j % 10 == 0 ? p.random.sign() * normal(p.random) : 0);
       }},
      {"half zeros", [](Place& p, std::size_t) { return std::max(normal(p.random), 0.0); }},
      {"mean 1e3, deviation 1", [](Place& p, std::size_t) { return 1e3 + normal(p.random); }},
      {"one huge",
       [](Place& p, std::size_t j) { return j == p.count / 2 ? 0x1p24 : p.random.uniform(); }},
      {"heavy tails",
       [](Place& p, std::size_t) {
         const double u = p.random.uniform() + 0x1p-20;
         return p.random.sign() / (u * u);
       }},
      {"log-normal", [](Place& p, std::size_t) { return std::exp(2 * normal(p.random)); }},
      {"replica means of both signs",
       [](Place& p, std::size_t) {
         const bool last = p.replica + 1 == p.replicas && p.replicas % 2 == 1;
         const double mean = last ? 0 : p.replica % 2 == 0 ? 100.1 : -100.1;
         return mean + normal(p.random);
       }},
      {"deviation of 4 ulps",
       [](Place& p, std::size_t) { return 1000 + 0x1p-14 * std::round(4 * normal(p.random)); }},
      {"growing partial sums",
       [](Place& p, std::size_t j) {
         return std::ldexp(1 + p.random.uniform(), static_cast<int>(40 * j / p.count));
       }},
      {"alternating",
       [](Place& p, std::size_t j) { return (j % 2 == 0 ? 1e4 : -1e4) + normal(p.random); }},
      {"ones and an ulp", [](Place&, std::size_t j) { return j % 3 == 0 ? 1 + 0x1p-23 : 1.0; }},
      {"zeros", [](Place&, std::size_t) { return 0.0; }},
      {"small", [](Place& p, std::size_t) { return 0x1p-70 * normal(p.random); }},
      {"at the subnormals", [](Place& p, std::size_t) { return 0x1p-126 * normal(p.random); }},
      {"subnormal",
       [](Place& p, std::size_t) {
         return 0x1p-149 * static_cast<double>(p.random.integer(-8, 8));
       }},
      {"large", [](Place& p, std::size_t) { return 0x1p50 * (1 + normal(p.random)); }},
  };
  return all;
}

// Channel c takes strain c mod strains().size().
Family<float> strained(Shape shape, std::size_t replicas, std::size_t batch, std::uint64_t seed) {
  shape.n = batch;
  Family<float> family;
  for (std::size_t r = 0; r < replicas; ++r) {
    Tensor<float> x(shape);
    Random random(seed, "numbers", r);
    for (std::size_t c = 0; c < shape.c; ++c) {
      const std::size_t m = batch * shape.plane();
      Place place{r, replicas, m, random, Random(seed, "shared", c)};
      const Strain& strain = strains()[c % strains().size()];
      for (std::size_t j = 0; j < m; ++j) {
        x.values[x.index(j / shape.plane(), c, 0, 0) + j % shape.plane()] =
            static_cast<float>(strain.number(place, j));
      }
    }
    family.push_back(std::move(x));
  }
  return family;
}

// ---- Judging

std::string in_words(const Comparison& c) {
  std::ostringstream out;
  const std::size_t channel = c.worst.index / c.shape.plane() % c.shape.c;
  out << c.node << " " << c.part << ", " << to_string(c.kind) << ": " << to_string(c.outcome())
      << "; worst on replica " << c.worst.replica << " at " << c.worst.index << " (channel "
      << channel << ", " << strains()[channel % strains().size()].name << "): got " << std::hexfloat
      << c.worst.got << ", expected " << c.worst.expected << std::defaultfloat << ", bound "
      << c.worst.bound << ", ratio " << c.worst.ratio;
  return out.str();
}

// Of a correct device: the largest error ÷ likely bound, by kind of input and what was compared,
// and the comparisons that call it wrong. Natural inputs may be suspect, since fresh draws settle
// that.
class Soundness {
 public:
  void see(const std::vector<Comparison>& comparisons) {
    for (const Comparison& comparison : comparisons) {
      double& worst =
          ratios_[to_string(comparison.kind) + " " + comparison.node + " " + comparison.part];
      worst = std::max(worst, comparison.worst.ratio);
      const bool suspect = comparison.suspects > 0 && comparison.kind != InputKind::natural;
      if (comparison.wrong == 0 && !suspect) continue;
      ++false_alarms_;
      FAIL_CHECK(in_words(comparison));
    }
  }
  std::size_t false_alarms() const { return false_alarms_; }
  std::string text() const {
    std::ostringstream out;
    for (const auto& [what, ratio] : ratios_) out << what << ": " << ratio << "\n";
    return out.str();
  }

 private:
  std::map<std::string, double> ratios_;
  std::size_t false_alarms_ = 0;
};

// Numbers of one strain.
Tensor<float> of_strain(Shape shape, std::size_t strain, std::uint64_t seed) {
  Tensor<float> x(shape);
  Random random(seed, "tensor", strain);
  Place place{0, 1, x.values.size(), random, Random(seed, "shared", strain)};
  for (std::size_t j = 0; j < x.values.size(); ++j) {
    x.values[j] = static_cast<float>(strains()[strain].number(place, j));
  }
  return x;
}

struct LiftedUnit {
  Graph graph;
  Weights weights;
  Unit unit;
};

LiftedUnit unit_case(Graph graph, std::uint64_t seed) {
  LiftedUnit result{std::move(graph), {}, {}};
  result.weights = seeded_weights(result.graph.parameters(), seed);
  result.unit = *unit_ending_at(result.graph, result.graph.output(), true);
  return result;
}

LiftedUnit site(Shape shape, bool relu, std::uint64_t seed, float epsilon = 1e-5F) {
  Graph graph;
  const NodeId y = graph.bn_sync_site(graph.input("x", shape), {"g", "b", epsilon});
  if (relu) graph.relu(y, "g.relu");
  return unit_case(std::move(graph), seed);
}

std::vector<Comparison> judged(Device& device, const Graph& graph, const Weights& weights,
                               const std::vector<Family<float>>& inputs, InputKind kind) {
  return judge_run(device, graph, weights, inputs, kind, 1);
}

std::vector<Comparison> judged_on_lattice(Device& device, const LiftedUnit& unit, std::size_t batch,
                                          std::size_t draw, std::uint64_t seed) {
  const auto replicas = static_cast<std::size_t>(device.replicas());
  const Probe probe = lattice_probe(unit.graph, unit.unit, replicas, batch, draw, seed, 1);
  return judged(device, probe.graph, probe.weights, probe.inputs, InputKind::lattice);
}

std::vector<Comparison> judged_dithered(Device& device, const LiftedUnit& unit,
                                        const std::vector<Family<float>>& operands,
                                        std::uint64_t seed) {
  std::vector<const Family<float>*> families;
  for (const Family<float>& family : operands) families.push_back(&family);
  const std::size_t lanes = device.contract(Operation::channel_mean, 1, 1).lanes;
  const Probe probe = dithered_probe(unit.graph, unit.unit, unit.weights, families, lanes, seed, 1);
  return judged(device, probe.graph, probe.weights, probe.inputs, InputKind::dithered);
}

void check_all_kinds(Device& device, const LiftedUnit& unit,
                     const std::vector<Family<float>>& operands, std::uint64_t seed,
                     Soundness& sound) {
  const std::size_t batch = operands[0][0].shape.n;
  for (std::size_t draw = 0; draw < lattice_draws(unit.unit); ++draw) {
    sound.see(judged_on_lattice(device, unit, batch, draw, seed));
  }
  sound.see(judged(device, unit.graph, unit.weights, operands, InputKind::natural));
  sound.see(judged_dithered(device, unit, operands, seed));
}

// N and the plane: m from 3 to 98.
struct Extent {
  std::size_t batch, height, width;
};
constexpr std::array<Extent, 9> kExtents{{{3, 1, 1},
                                          {1, 1, 5},
                                          {4, 2, 1},
                                          {2, 2, 2},
                                          {1, 4, 4},
                                          {3, 3, 3},
                                          {1, 7, 7},
                                          {4, 4, 4},
                                          {2, 7, 7}}};
constexpr std::array<std::size_t, 6> kReplicas{1, 2, 3, 4, 5, 7};

// ---- Units

LiftedUnit pointwise(std::size_t in, std::size_t out, std::uint64_t seed) {
  Graph graph;
  graph.convolution(graph.input("x", {1, in, 2, 3}), {"W", "b", 1, 1, 0, 0}, out);
  return unit_case(std::move(graph), seed);
}
LiftedUnit convolution(std::size_t in, std::uint64_t seed) {
  Graph graph;
  graph.convolution(graph.input("x", {1, in, 7, 6}), {"W", "", 3, 2, 1, 1}, 3);
  return unit_case(std::move(graph), seed);
}
LiftedUnit depthwise(std::size_t kernel, std::size_t stride, std::uint64_t seed) {
  Graph graph;
  graph.depthwise(graph.input("x", {1, 3, 8, 7}), {"W", kernel, stride, kernel / 2, kernel / 2});
  return unit_case(std::move(graph), seed);
}
LiftedUnit dense(std::size_t in, std::uint64_t seed) {
  Graph graph;
  graph.dense(graph.input("x", {1, in, 1, 1}), {"W", "b"}, 3);
  return unit_case(std::move(graph), seed);
}
LiftedUnit pool(std::size_t height, std::size_t width, std::uint64_t seed) {
  Graph graph;
  graph.global_average_pool(graph.input("x", {1, strains().size(), height, width}), "gap");
  return unit_case(std::move(graph), seed);
}

std::size_t wrong_among(const std::vector<Comparison>& comparisons) {
  std::size_t wrong = 0;
  for (const Comparison& comparison : comparisons) wrong += comparison.wrong;
  return wrong;
}

// Outputs called wrong at BN sites on lattices, when the device states `contract`.
std::size_t wrong_on_lattices(const Arithmetic& arithmetic, const Contract& contract) {
  std::size_t wrong = 0;
  for (const std::size_t replicas : {1U, 3U, 7U}) {
    for (const Extent& extent : {Extent{1, 7, 1}, Extent{2, 7, 7}, Extent{5, 7, 7}}) {
      PlainDevice device(replicas, arithmetic, contract);
      const LiftedUnit unit = site({1, 8, extent.height, extent.width}, false, 1);
      for (std::size_t draw = 0; draw < lattice_draws(unit.unit); ++draw) {
        wrong += wrong_among(judged_on_lattice(device, unit, extent.batch, draw, replicas));
      }
    }
  }
  return wrong;
}

Arithmetic named(const std::string& name) {
  for (const Arithmetic& arithmetic : correct_devices()) {
    if (arithmetic.name == name) return arithmetic;
  }
  throw std::logic_error("no device named " + name);
}

}  // namespace

TEST_CASE("no correct device is called wrong at a BN site") {
  for (const Arithmetic& arithmetic : correct_devices()) {
    Soundness sound;
    std::uint64_t seed = 0;
    for (const std::size_t replicas : kReplicas) {
      for (const Extent& extent : kExtents) {
        ++seed;
        CAPTURE(arithmetic.name, replicas, extent.batch, extent.height, extent.width, seed);
        PlainDevice device(replicas, arithmetic);
        const LiftedUnit unit =
            site({1, strains().size(), extent.height, extent.width}, seed % 2 == 0, seed);
        check_all_kinds(device, unit,
                        {strained(unit.graph.node(0).shape, replicas, extent.batch, seed)}, seed,
                        sound);
      }
    }
    INFO(arithmetic.name << "\n" << sound.text());
    CHECK(sound.false_alarms() == 0);
  }
}

TEST_CASE("no correct device is called wrong at a BN site of 25,088 numbers") {
  for (const char* name : {"one running sum", "256 lanes, last term first", "Kahan",
                           "reciprocals of counts, 8 lanes, fused multiply-add",
                           "premultiplied terms, 32 lanes, fused multiply-add"}) {
    CAPTURE(name);
    Soundness sound;
    PlainDevice device(3, named(name));
    const LiftedUnit unit = site({1, strains().size(), 112, 112}, false, 1);
    check_all_kinds(device, unit, {strained(unit.graph.node(0).shape, 3, 2, 1)}, 1, sound);
    INFO(sound.text());
    CHECK(sound.false_alarms() == 0);
  }
}

TEST_CASE("the built-in device is called wrong with no kind of block") {
  const std::vector<Extent> extents{{1, 1, 3}, {2, 3, 3}, {3, 4, 5}, {1, 7, 29}};
  for (const ChannelThreads threads : {ChannelThreads::by_count, ChannelThreads::one,
                                       ChannelThreads::one_warp, ChannelThreads::several_warps}) {
    Soundness sound;
    std::uint64_t seed = 0;
    for (const std::size_t replicas : {1U, 2U, 3U, 5U}) {
      for (const Extent& extent : extents) {
        ++seed;
        CAPTURE(threads, replicas, extent.batch, extent.height, extent.width, seed);
        const auto device = make_host_device(static_cast<int>(replicas), {seed, threads}, 1);
        for (const LiftedUnit& unit :
             {site({1, strains().size(), extent.height, extent.width}, seed % 2 == 0, seed),
              pool(extent.height, extent.width, seed)}) {
          check_all_kinds(*device, unit,
                          {strained(unit.graph.node(0).shape, replicas, extent.batch, seed)}, seed,
                          sound);
          const Probe corners =
              corner_probe(unit.graph, unit.unit, replicas, extent.batch, seed, 1);
          CHECK(wrong_among(judged(*device, corners.graph, corners.weights, corners.inputs,
                                   InputKind::natural)) == 0);
        }
      }
    }
    INFO(sound.text());
    CHECK(sound.false_alarms() == 0);
  }
}

TEST_CASE("no correct device is called wrong at a product") {
  for (const Arithmetic& arithmetic : correct_devices()) {
    const bool differs_elsewhere = arithmetic.mean != MeanDivision::divide ||
                                   arithmetic.form != NormaliseForm::subtract_first ||
                                   arithmetic.statistics != StatisticsMethod::two_pass;
    if (differs_elsewhere && !arithmetic.flushed) continue;
    Soundness sound;
    PlainDevice device(2, arithmetic);
    for (std::uint64_t seed = 0; seed < 3 * strains().size(); ++seed) {
      const std::size_t strain = seed % strains().size();
      for (LiftedUnit unit :
           {pointwise(1, 2, seed), pointwise(31, 3, seed), pointwise(98, 3, seed),
            convolution(3, seed), depthwise(3, 1, seed), depthwise(5, 2, seed), dense(40, seed)}) {
        CAPTURE(arithmetic.name, strains()[strain].name, unit.unit.signature);
        Shape shape = unit.graph.node(0).shape;
        shape.n = 2;
        const Family<float> x{of_strain(shape, strain, seed), of_strain(shape, strain, seed + 100)};
        const std::size_t of_weight = Random(seed, unit.unit.signature).below(strains().size());
        for (auto& [name, weight] : unit.weights) {
          if (name == "W") weight = of_strain(weight.shape, of_weight, seed);
        }
        check_all_kinds(device, unit, {x}, seed, sound);
      }
    }
    INFO(arithmetic.name << "\n" << sound.text());
    CHECK(sound.false_alarms() == 0);
  }
}

TEST_CASE("no correct device is called wrong at a pool") {
  for (const Arithmetic& arithmetic : correct_devices()) {
    Soundness sound;
    PlainDevice device(2, arithmetic);
    std::uint64_t seed = 0;
    for (const auto& [height, width] :
         {std::pair(1, 1), {1, 2}, {2, 2}, {3, 1}, {7, 7}, {14, 14}}) {
      ++seed;
      const LiftedUnit unit =
          pool(static_cast<std::size_t>(height), static_cast<std::size_t>(width), seed);
      CAPTURE(arithmetic.name, height, width);
      check_all_kinds(device, unit, {strained(unit.graph.node(0).shape, 2, 2, seed)}, seed, sound);
    }
    INFO(arithmetic.name << "\n" << sound.text());
    CHECK(sound.false_alarms() == 0);
  }
}

TEST_CASE("numbers near the end of float32's range are not judged rather than wrong") {
  for (const Arithmetic& arithmetic : correct_devices()) {
    PlainDevice device(2, arithmetic);
    for (int exponent = 55; exponent <= 127; exponent += 3) {
      CAPTURE(arithmetic.name, exponent);
      const auto scaled = [&](const Graph& graph) {
        Family<float> x = strained(graph.node(0).shape, 2, 2, static_cast<std::uint64_t>(exponent));
        for (Tensor<float>& tensor : x) {
          for (float& value : tensor.values) {
            const double fraction = std::tanh(static_cast<double>(value));
            value = static_cast<float>(std::ldexp(fraction, exponent));
          }
        }
        return x;
      };
      Soundness sound;
      for (const LiftedUnit& unit : {site({1, strains().size(), 3, 3}, true, 1), pool(3, 3, 1),
                                     pointwise(40, 3, 1), depthwise(3, 1, 1), dense(40, 1)}) {
        const std::vector<Family<float>> x{scaled(unit.graph)};
        sound.see(judged(device, unit.graph, unit.weights, x, InputKind::natural));
        sound.see(judged_dithered(device, unit, x, 1));
      }
    }
  }
}

TEST_CASE("sums on quanta that pass float32's range are not judged rather than wrong") {
  PlainDevice device(2, named("one running sum"));
  const auto filled = [](const Graph& graph, float value) {
    Shape shape = graph.node(0).shape;
    shape.n = 2;
    Tensor<float> x(shape);
    std::fill(x.values.begin(), x.values.end(), value);
    return Family<float>{x, x};
  };
  Soundness sound;
  for (LiftedUnit unit : {pointwise(4, 2, 1), dense(8, 1), depthwise(3, 1, 1)}) {
    for (auto& [name, weight] : unit.weights) {
      std::fill(weight.values.begin(), weight.values.end(), 1.0F);
    }
    sound.see(judged(device, unit.graph, unit.weights, {filled(unit.graph, 0x1p126F)},
                     InputKind::lattice));
  }
  for (const LiftedUnit& unit : {pool(3, 3, 1), site({1, 2, 3, 3}, false, 1)}) {
    for (const float value : {0x1p126F, 0x1p62F}) {
      sound.see(judged(device, unit.graph, unit.weights, {filled(unit.graph, value)},
                       InputKind::lattice));
    }
  }
  CHECK(sound.false_alarms() == 0);
}

TEST_CASE("a sign-off of a whole network agrees with every correct device") {
  NetOptions options;
  options.size = 64;
  options.classes = 10;
  options.width_divisor = 16;
  const Graph graph = *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  const Weights weights = seeded_weights(graph.parameters(), 2);
  constexpr std::size_t kNetworkReplicas = 3;
  SignoffTask task{graph, weights, {}, 1, 1};
  for (std::size_t r = 0; r < kNetworkReplicas; ++r) {
    Random random(7, "image", r);
    task.images.emplace_back(Shape{2, 3, 64, 64});
    for (float& value : task.images.back().values) {
      value = static_cast<float>(random.triangular(2));
    }
  }
  for (const Arithmetic& arithmetic : correct_devices()) {
    // Long sums of bfloat16 or float16 numbers may be anything, and are not judged.
    if (unit_roundoff(arithmetic.accumulate) > 0x1p-12) continue;
    PlainDevice device(kNetworkReplicas, arithmetic);
    const SignoffResult result = sign_off(device, task);
    CAPTURE(arithmetic.name, result.suspicions, result.fresh_draws, result.unjudged);
    for (const Comparison& comparison : result.comparisons) {
      if (comparison.wrong > 0) FAIL_CHECK(in_words(comparison));
    }
    CHECK(result.verdict() == SignoffResult::Verdict::agrees);
  }
}

TEST_CASE("a device that needs a looser contract than it states is wrong on lattices") {
  for (const char* name :
       {"reciprocals of counts", "premultiplied terms", "premultiplied all-reduce",
        "one-pass variance", "Welford", "merged, chunks of 4 in order"}) {
    CAPTURE(name);
    const Arithmetic arithmetic = named(name);
    Contract strict = contract_of(arithmetic);
    strict.mean = MeanDivision::divide;
    strict.statistics = StatisticsMethod::two_pass;
    CHECK(wrong_on_lattices(arithmetic, strict) > 0);
    CHECK(wrong_on_lattices(arithmetic, contract_of(arithmetic)) == 0);
  }
}

TEST_CASE("a root that is only near is wrong on lattices where it is said to be exact") {
  const Arithmetic arithmetic = named("root within 2 ulps");
  Contract strict = contract_of(arithmetic);
  strict.root_exact_at_powers_of_four = true;
  CHECK(wrong_on_lattices(arithmetic, strict) > 0);
  CHECK(wrong_on_lattices(arithmetic, contract_of(arithmetic)) == 0);
}

TEST_CASE("an undeclared fused scale and shift is wrong where the mean is large") {
  const Arithmetic arithmetic = named("fused scale and shift");
  Contract strict = contract_of(arithmetic);
  strict.form = NormaliseForm::subtract_first;
  PlainDevice device(2, arithmetic, strict);
  const LiftedUnit unit = site({1, strains().size(), 7, 7}, false, 1);
  CHECK(wrong_among(judged(device, unit.graph, unit.weights,
                           {strained(unit.graph.node(0).shape, 2, 2, 1)}, InputKind::natural)) > 0);
}

TEST_CASE("one running sum does not keep the bound of 256 lanes") {
  const Arithmetic arithmetic = named("one running sum");
  Contract strict = contract_of(arithmetic);
  strict.lanes = 256;
  PlainDevice device(2, arithmetic, strict);
  const LiftedUnit unit = site({1, 8, 56, 56}, false, 1);
  std::size_t suspects = 0;
  for (const Comparison& comparison :
       judged_dithered(device, unit, {strained(unit.graph.node(0).shape, 2, 2, 1)}, 1)) {
    suspects += comparison.suspects;
  }
  CHECK(suspects > 0);
}

// ---- Suspicions

TEST_CASE("a suspicion that fresh draws confirm is called wrong") {
  const Arithmetic arithmetic = named("one running sum");
  Contract strict = contract_of(arithmetic);
  strict.lanes = 256;
  PlainDevice device(2, arithmetic, strict);
  const LiftedUnit unit = site({1, 4, 112, 112}, false, 1);
  const SignoffTask task{unit.graph, unit.weights, strained(unit.graph.node(0).shape, 2, 2, 1), 1,
                         1};
  const SignoffResult result = sign_off(device, task);
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
  CHECK(result.fresh_draws >= 3);
  for (const Comparison& comparison : result.comparisons) {
    CHECK(comparison.suspects == 0);
    if (comparison.kind == InputKind::lattice) CHECK(comparison.outcome() == Outcome::agrees);
  }
}

TEST_CASE("a suspicion that a fresh draw clears is dropped") {
  PlainDevice device(2, named("one running sum"));
  const LiftedUnit unit = site({1, 2, 112, 112}, false, 1);
  Shape shape = unit.graph.node(0).shape;
  shape.n = 2;
  // Equal numbers round alike, so that their roundings add up.
  Family<float> x(2, Tensor<float>(shape));
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t i = 0; i < x[r].values.size(); ++i) {
      x[r].values[i] = (i % 8 == 0 ? 0.3F : 0.7F) + static_cast<float>(r);
    }
  }
  const SignoffResult result = sign_off(device, {unit.graph, unit.weights, x, 1, 1});
  CHECK(result.verdict() == SignoffResult::Verdict::agrees);
  CHECK(result.suspicions > 0);
  CHECK(result.suspicions_dropped == result.suspicions);
  CHECK(result.fresh_draws > 0);
}

// ---- Tightness: least bound ÷ error over 10^5 outputs of a correct device at its own lanes

namespace {

Arithmetic with_lanes(std::size_t lanes, bool contracted) {
  Arithmetic arithmetic;
  arithmetic.lanes = lanes;
  arithmetic.contracted = contracted;
  return arithmetic;
}

}  // namespace

TEST_CASE("dithered bounds on a BN site are within 6 of the largest error") {
  constexpr std::size_t kSiteReplicas = 4;
  for (const std::size_t lanes : {1U, 8U, 32U}) {
    PlainDevice device(kSiteReplicas, with_lanes(lanes, lanes == 8));
    const LiftedUnit unit = site({1, 1024, 7, 7}, false, 1);
    std::map<std::string, Comparison> merged;
    for (std::uint64_t seed = 1; merged["g.mean "].compared < 100'000; ++seed) {
      Shape shape = unit.graph.node(0).shape;
      shape.n = 2;
      Family<float> x(kSiteReplicas, Tensor<float>(shape));
      Random random(seed);
      for (Tensor<float>& tensor : x) {
        for (float& value : tensor.values) value = static_cast<float>(random.triangular(1));
      }
      for (const Comparison& comparison : judged_dithered(device, unit, {x}, seed)) {
        merged[comparison.node + " " + comparison.part].merge(comparison);
      }
    }
    for (const char* what : {"g.mean ", "g.var_at ", "gmu batch mean", "gvar batch variance",
                             "g y on own statistics", "g y against its shard of batch BN"}) {
      const Comparison& comparison = merged.at(what);
      INFO(lanes << " lanes, " << what << ": " << comparison.tightness() << " over "
                 << comparison.compared);
      CHECK(comparison.compared >= 100'000);
      CHECK(comparison.tightness() >= 1);
      CHECK(comparison.tightness() <= 6);
    }
  }
}

// Wider than those of a plain sum, since errors of the means on the way enter.
TEST_CASE("dithered bounds on running and shifted variances stay near the largest error") {
  for (const auto& [name, least] : {std::pair("Welford", 12.0), std::pair("shifted variance", 26.0),
                                    std::pair("merged, chunks of 4 in order", 80.0),
                                    std::pair("merged, number by number, pairwise", 130.0)}) {
    PlainDevice device(2, named(name));
    const LiftedUnit unit = site({1, 256, 7, 7}, false, 1);
    Comparison mean, variance;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      Shape shape = unit.graph.node(0).shape;
      shape.n = 2;
      Family<float> x(2, Tensor<float>(shape));
      Random random(seed);
      for (Tensor<float>& tensor : x) {
        for (float& value : tensor.values) value = static_cast<float>(1 + random.triangular(1));
      }
      for (const Comparison& comparison : judged_dithered(device, unit, {x}, seed)) {
        if (comparison.node == "g.mean") mean.merge(comparison);
        if (comparison.node == "g.var_at") variance.merge(comparison);
      }
    }
    INFO(name << ": mean " << mean.tightness() << ", variance " << variance.tightness());
    CHECK(mean.outcome() == Outcome::agrees);
    CHECK(variance.outcome() == Outcome::agrees);
    CHECK(mean.tightness() >= 1);
    CHECK(variance.tightness() >= 1);
    CHECK(mean.tightness() <= least);
    CHECK(variance.tightness() <= least);
  }
}

// A merge that leaves out what lies between the chunks, or weighs it wrongly; updates divided by
// one less; a shift that is forgotten in the mean.
class WrongMoments final : public PlainDevice {
 public:
  enum class Fault { no_between, wrong_counts, unbiased, shift_forgotten };

  WrongMoments(const Arithmetic& arithmetic, Fault fault)
      : PlainDevice(2, arithmetic), fault_(fault) {}

  void channel_variance(const ChannelVarianceCall& call) override {
    const std::size_t m = call.batch * call.plane;
    const auto count = static_cast<float>(m);
    for (std::size_t c = 0; c < call.channels; ++c) {
      const auto x = [&](std::size_t j) { return number(call, c, j); };
      float mean = 0, squares = 0;
      const std::size_t half = m / 2;
      std::array<float, 2> means{}, parts{};
      for (std::size_t j = 0; j < m; ++j) {
        means[j < half ? 0 : 1] += x(j) / static_cast<float>(j < half ? half : m - half);
      }
      for (std::size_t j = 0; j < m; ++j) {
        const float d = x(j) - means[j < half ? 0 : 1];
        parts[j < half ? 0 : 1] += d * d;
        mean += x(j) / count;
      }
      const float d = means[1] - means[0];
      const auto low = static_cast<float>(half), high = static_cast<float>(m - half);
      squares = parts[0] + parts[1] + d * d * (low * high / count);
      if (fault_ == Fault::no_between) squares = parts[0] + parts[1];
      if (fault_ == Fault::wrong_counts) squares = parts[0] + parts[1] + d * d * low / count;
      if (fault_ == Fault::unbiased) squares *= count / (count - 1);
      if (fault_ == Fault::shift_forgotten) {
        squares += count * (mean - x(0)) * (mean - x(0));
      }
      const float distance = call.own_mean[c] - call.mean[c];
      call.variance[c] = squares / count + distance * distance;
    }
  }

 private:
  Fault fault_;
};

TEST_CASE("wrong merges, updates and shifts are wrong under their own contracts") {
  using Fault = WrongMoments::Fault;
  for (const auto& [name, fault] : {std::pair("merged, chunks of 4 in order", Fault::no_between),
                                    std::pair("merged, chunks of 4 in order", Fault::wrong_counts),
                                    std::pair("Welford", Fault::unbiased),
                                    std::pair("shifted variance", Fault::shift_forgotten)}) {
    CAPTURE(name, static_cast<int>(fault));
    WrongMoments device(named(name), fault);
    const LiftedUnit unit = site({1, 4, 7, 7}, false, 1);
    Family<float> x(2, Tensor<float>({2, 4, 7, 7}));
    Random random(1);
    for (Tensor<float>& tensor : x) {
      for (float& value : tensor.values) value = static_cast<float>(1 + random.triangular(1));
    }
    std::size_t wrong = 0;
    for (const Comparison& comparison : judged_dithered(device, unit, {x}, 1)) {
      if (comparison.node == "g.var_at") wrong += comparison.suspects + comparison.wrong;
    }
    CHECK(wrong > 0);
  }
}

TEST_CASE("dithered bounds on products are within 6 of the largest error") {
  struct Case {
    const char* name;
    Graph graph;
    std::size_t lanes;
  };
  const auto depthwise_graph = [](std::size_t kernel) {
    Graph graph;
    graph.depthwise(graph.input("x", {1, 64, 28, 28}), {"W", kernel, 1, kernel / 2, kernel / 2});
    return graph;
  };
  const auto convolution_graph = [](std::size_t in, std::size_t kernel, std::size_t out,
                                    std::size_t size) {
    Graph graph;
    graph.convolution(graph.input("x", {1, in, size, size}),
                      {"W", "", kernel, 1, kernel / 2, kernel / 2}, out);
    return graph;
  };
  for (const Case& c : {Case{"depthwise, K = 9", depthwise_graph(3), 1},
                        Case{"depthwise, K = 25", depthwise_graph(5), 1},
                        Case{"3×3, K = 27", convolution_graph(3, 3, 64, 28), 1},
                        Case{"1×1, K = 160", convolution_graph(160, 1, 256, 14), 8},
                        Case{"1×1, K = 640", convolution_graph(640, 1, 256, 14), 8},
                        Case{"3×3, K = 1152", convolution_graph(128, 3, 256, 14), 32}}) {
    PlainDevice device(2, with_lanes(c.lanes, c.lanes != 8));
    const LiftedUnit unit = unit_case(c.graph, 1);
    Shape shape = unit.graph.node(0).shape;
    shape.n = 1;
    Family<float> x(2, Tensor<float>(shape));
    Random random(3);
    for (Tensor<float>& tensor : x) {
      for (float& value : tensor.values) value = static_cast<float>(random.triangular(1));
    }
    const std::vector<Comparison> comparisons = judged_dithered(device, unit, {x}, 1);
    REQUIRE(comparisons.size() == 1);
    INFO(c.name << ": " << comparisons[0].tightness() << " over " << comparisons[0].compared);
    CHECK(comparisons[0].compared >= 100'000);
    CHECK(comparisons[0].tightness() >= 1);
    CHECK(comparisons[0].tightness() <= 6);
  }
}

}  // namespace shardproof
