#include "properties/unit_cases.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>
#include <string>
#include <vector>

#include "diff/draws.h"
#include "diff/unit.h"
#include "properties/draws.h"
#include "reference/nets/weights.h"

namespace shardproof {
namespace {

using Op = UnitOperation;

constexpr std::array<std::string_view, 16> kOperations = {"relu",
                                                          "add",
                                                          "global average pool",
                                                          "dense",
                                                          "convolution 1x1",
                                                          "convolution 3x3",
                                                          "convolution 3x3 at stride 2",
                                                          "convolution 3x3 at stride 2, SAME",
                                                          "convolution 5x5",
                                                          "depthwise 3x3",
                                                          "depthwise 3x3 at stride 2",
                                                          "depthwise 3x3 at stride 2, SAME",
                                                          "depthwise 5x5",
                                                          "depthwise 5x5 at stride 2",
                                                          "BN site",
                                                          "BN site with ReLU"};

// Counts at which a kernel takes another path: lanes of a sum, a warp, a block, what one block of
// threads takes. Planes take all of them, other extents the first three.
constexpr std::array<std::size_t, 7> kEdges = {8, 32, 128, 512, 1024, 2048, 8192};
constexpr std::array<std::string_view, 7> kEdgeNames = {"8",    "32",   "128", "512",
                                                        "1024", "2048", "8192"};

struct Extents {
  std::size_t examples, channels, outputs, height, width;
};

Extents draw_extents(Draws& draws) {
  Extents extents{draws.size("examples of a replica", 1, 4), draws.size("channels", 1, 9),
                  draws.size("outputs", 1, 9), draws.size("height", 1, 9),
                  draws.size("width", 1, 9)};
  // One case in four has one extent at an edge, or a number to either side of it.
  static constexpr std::array<std::string_view, 16> at_edge = {"none",     "none",
                                                               "none",     "none",
                                                               "none",     "none",
                                                               "none",     "none",
                                                               "none",     "none",
                                                               "none",     "none",
                                                               "plane",    "numbers of a channel",
                                                               "channels", "outputs or examples"};
  const std::size_t which = draws.kind("at an edge", at_edge);
  if (which > 11) {
    const std::span<const std::string_view> names(kEdgeNames);
    const std::size_t edge = draws.kind("edge", which < 14 ? names : names.first(3));
    static constexpr std::array<std::string_view, 3> beside = {"one less", "as many", "one more"};
    const std::size_t count = kEdges[edge] - 1 + draws.kind("of the edge", beside);
    extents = {std::min<std::size_t>(extents.examples, 2),
               std::min<std::size_t>(extents.channels, 3),
               std::min<std::size_t>(extents.outputs, 3), std::min<std::size_t>(extents.height, 2),
               std::min<std::size_t>(extents.width, 3)};
    if (which < 14) {
      if (count % 2 == 1 || which == 12) extents.examples = extents.height = 1;
      extents.width = std::max<std::size_t>(count / (extents.examples * extents.height), 1);
    } else if (which == 14) {
      extents.channels = count;
    } else if (edge == 2) {
      extents.outputs = count;
    } else {
      extents.examples = count;
      extents.outputs = count;
    }
  }
  static constexpr std::array<std::string_view, 2> kinds = {"any", "all different"};
  if (draws.kind("extents", kinds) == 1) {
    std::vector<std::size_t> taken;
    for (std::size_t* extent : {&extents.width, &extents.height, &extents.channels,
                                &extents.outputs, &extents.examples}) {
      while (std::find(taken.begin(), taken.end(), *extent) != taken.end()) ++*extent;
      taken.push_back(*extent);
    }
  }
  return extents;
}

// The graph of one unit; its last node is the unit's.
Graph unit_graph(Op operation, const Extents& extents, std::size_t replicas, bool with_bias) {
  Graph graph;
  Shape in{extents.examples, extents.channels, extents.height, extents.width};
  const bool strided_same =
      operation == Op::convolution_3x3_same || operation == Op::depthwise_3x3_same;
  if (strided_same) {  // defined at even sizes
    in.h += in.h % 2;
    in.w += in.w % 2;
  }
  const bool site = operation == Op::bn_site || operation == Op::bn_site_with_relu;
  if (site) {  // of fewer than three numbers a channel it says nothing
    while (replicas * extents.examples * in.plane() < 3) ++in.w;
  }
  const NodeId x = graph.input("x", in);
  const auto convolution = [&](std::size_t kernel, std::size_t stride, std::size_t begin,
                               std::size_t end) {
    graph.convolution(x, {"W", with_bias ? "b" : "", kernel, stride, begin, end}, extents.outputs);
  };
  const auto depthwise = [&](std::size_t kernel, std::size_t stride, std::size_t begin,
                             std::size_t end) {
    graph.depthwise(x, {"W", kernel, stride, begin, end});
  };
  switch (operation) {
    case Op::relu:
      graph.relu(x, "relu");
      break;
    case Op::add:
      graph.add(x, graph.input("skip", in), "add");
      break;
    case Op::global_average_pool:
      graph.global_average_pool(x, "gap");
      break;
    case Op::dense:
      graph.dense(x, {"Wd", "bd"}, extents.outputs);
      break;
    case Op::convolution_1x1:
      convolution(1, 1, 0, 0);
      break;
    case Op::convolution_3x3:
      convolution(3, 1, 1, 1);
      break;
    case Op::convolution_3x3_strided:
      convolution(3, 2, 1, 1);
      break;
    case Op::convolution_3x3_same:
      convolution(3, 2, 0, 1);
      break;
    case Op::convolution_5x5:
      convolution(5, 1, 2, 2);
      break;
    case Op::depthwise_3x3:
      depthwise(3, 1, 1, 1);
      break;
    case Op::depthwise_3x3_strided:
      depthwise(3, 2, 1, 1);
      break;
    case Op::depthwise_3x3_same:
      depthwise(3, 2, 0, 1);
      break;
    case Op::depthwise_5x5:
      depthwise(5, 1, 2, 2);
      break;
    case Op::depthwise_5x5_strided:
      depthwise(5, 2, 2, 2);
      break;
    case Op::bn_site:
      graph.bn_sync_site(x, {"g", "bt"});
      break;
    case Op::bn_site_with_relu:
      graph.relu(graph.bn_sync_site(x, {"g", "bt"}), "g.relu");
      break;
  }
  return graph;
}

// Numbers as activations have them: each channel of each replica about a mean of its own; some
// cut off at zero, some flat, some at many magnitudes.
void fill_naturally(Tensor<float>& x, Random random) {
  enum { plain, cut_off, flat, far, magnitudes, kinds };
  const std::uint64_t kind = random.below(kinds);
  for (std::size_t c = 0; c < x.shape.c; ++c) {
    const double mean = random.triangular(kind == far ? 2000 : 2);
    const double deviation = 0.25 + random.uniform();
    for (std::size_t n = 0; n < x.shape.n; ++n) {
      double value = 0;
      for (std::size_t i = 0; i < x.shape.plane(); ++i) {
        if (kind != flat || random.below(4) == 0 || i == 0) {
          value = mean + deviation * random.triangular(1);
        }
        double number = kind == cut_off ? std::max(value, 0.0) : value;
        if (kind == magnitudes)
          number = std::ldexp(number, static_cast<int>(random.integer(-9, 9)));
        x.values[x.index(n, c, 0, 0) + i] = static_cast<float>(number);
      }
    }
  }
}

}  // namespace

UnitCase draw_unit_case(Draws& draws, std::span<const Op> operations) {
  const std::size_t replicas = draws.replicas();
  const Extents extents = draw_extents(draws);
  std::vector<std::string_view> names;
  for (const Op operation : operations) {
    names.push_back(kOperations.at(static_cast<std::size_t>(operation)));
  }
  const Op operation = operations[draws.kind("operation", names)];
  enum { lattice, dithered, corners, natural };
  static constexpr std::array<std::string_view, 4> kinds = {"lattice", "dithered", "corners",
                                                            "natural"};
  const std::size_t kind = draws.kind("input", kinds);
  const std::size_t draw = draws.size("lattice draw", 0, 4);
  // Half of the cases share the work as the device sees fit.
  static constexpr std::array<std::string_view, 6> threads = {
      "as the work asks", "one", "as the work asks", "one warp", "as the work asks", "two warps"};
  static constexpr std::array<ChannelThreads, 6> sharing = {
      ChannelThreads::by_count, ChannelThreads::one,      ChannelThreads::by_count,
      ChannelThreads::one_warp, ChannelThreads::by_count, ChannelThreads::several_warps};
  UnitCase drawn;
  drawn.schedule.threads = sharing[draws.kind("threads of a channel", threads)];
  static constexpr std::array<std::string_view, 3> biases = {"without", "without", "with"};
  const bool with_bias = draws.kind("bias of a convolution", biases) == 2;
  drawn.seed = draws.seed();
  drawn.schedule.seed = Random(drawn.seed, "schedule").next();

  Probe probe;
  probe.graph = unit_graph(operation, extents, replicas, with_bias);
  const NodeId end = probe.graph.output();
  const auto unit = unit_ending_at(probe.graph, end, operation == Op::bn_site_with_relu);
  drawn.kind = kind == lattice && unit    ? InputKind::lattice
               : kind == dithered && unit ? InputKind::dithered
                                          : InputKind::natural;
  if (drawn.kind == InputKind::lattice) {
    probe = lattice_probe(probe.graph, *unit, replicas, extents.examples,
                          draw % lattice_draws(*unit), drawn.seed, 1);
  } else if (kind == corners && unit) {
    probe = corner_probe(probe.graph, *unit, replicas, extents.examples, drawn.seed, 1);
  } else {
    probe.weights = seeded_weights(probe.graph.parameters(), drawn.seed);
    for (const NodeId input : probe.graph.inputs()) {
      Shape shape = probe.graph.node(input).shape;
      shape.n = extents.examples;
      Family<float>& family = probe.inputs.emplace_back();
      for (std::size_t r = 0; r < replicas; ++r) {
        const std::string& name = probe.graph.node(input).name;
        if (!unit) {
          family.push_back(any_floats(shape, Random(drawn.seed, name, r)));
        } else {
          fill_naturally(family.emplace_back(shape), Random(drawn.seed, name, r));
        }
      }
    }
    if (drawn.kind == InputKind::dithered) {
      std::vector<const Family<float>*> operands;
      for (const Family<float>& family : probe.inputs) operands.push_back(&family);
      probe = dithered_probe(probe.graph, *unit, probe.weights, operands, 1, drawn.seed, 1);
    }
  }
  drawn.graph = std::move(probe.graph);
  drawn.weights = std::move(probe.weights);
  drawn.inputs = std::move(probe.inputs);
  return drawn;
}

void claim_unit_agrees(const UnitCase& drawn, Trial& trial,
                       const std::function<bool(const Comparison&)>& about) {
  const UnitVerdict verdict = judge_unit_case(trial.make, drawn);
  bool judged = false;
  for (const Comparison& comparison : verdict.comparisons) {
    if (about && !about(comparison)) continue;
    judged = judged || comparison.outcome() == Outcome::agrees;
    if (comparison.outcome() != Outcome::wrong) continue;
    trial.wrong = drawn;
    claim(false, describe(comparison));
  }
  if (!verdict.failure.empty()) {
    trial.wrong = drawn;
    claim(false, verdict.failure);
  }
  discard_unless(judged);
}

}  // namespace shardproof
