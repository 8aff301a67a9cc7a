// Measures property cases on one core, generation and judging included: a new graph, new inputs
// and a new host device with a schedule of its own each case, three replicas, the kinds of input
// in turn. Prints cases a second, numbers a case, and for how many copies of a case's numbers its
// time would do: bench_cases [seconds a row [first letters of rows]].
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "diff/draws.h"
#include "diff/signoff.h"
#include "diff/unit.h"
#include "reference/numbers/random.h"

namespace {

using namespace shardproof;

constexpr std::size_t kReplicas = 3;

// Seconds that this process computed: a neighbour's share of the core does not count.
double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

Tensor<float> natural(Shape shape, Random& random) {
  Tensor<float> x(shape);
  for (float& value : x.values) value = static_cast<float>(random.triangular(2));
  return x;
}

Probe natural_probe(Graph graph, std::size_t batch, Random random) {
  Probe probe;
  for (const NodeId input : graph.inputs()) {
    Shape shape = graph.node(input).shape;
    shape.n = batch;
    Family<float>& family = probe.inputs.emplace_back();
    for (std::size_t r = 0; r < kReplicas; ++r) family.push_back(natural(shape, random));
  }
  for (const Parameter& parameter : graph.parameters()) {
    probe.weights.emplace(parameter.name, natural(parameter.shape, random));
  }
  probe.graph = std::move(graph);
  return probe;
}

struct Row {
  std::string name;
  std::vector<Shape> shapes;  // of one replica's input
  void (*build)(Graph&, NodeId);
  ChannelThreads threads = ChannelThreads::one;
};

struct Counts {
  std::size_t cases = 0, numbers = 0, wrong = 0;
};

void one_case(const Row& row, std::uint64_t seed, Counts& counts) {
  const Shape shape = row.shapes[seed % row.shapes.size()];
  Graph graph;
  row.build(graph, graph.input("x", {1, shape.c, shape.h, shape.w}));
  const auto unit = unit_ending_at(graph, graph.output(), graph.nodes().size() > 2);
  const auto device = make_host_device(static_cast<int>(kReplicas), {seed, row.threads}, 1);
  const std::size_t draws = unit ? lattice_draws(*unit) : 0;
  const std::size_t turn = seed / row.shapes.size() % (unit ? draws + 3 : 1);
  Probe probe;
  InputKind kind = InputKind::natural;
  if (turn < draws) {
    kind = InputKind::lattice;
    probe = lattice_probe(graph, *unit, kReplicas, shape.n, turn, seed, 1);
  } else if (turn == draws + 1) {
    probe = corner_probe(graph, *unit, kReplicas, shape.n, seed, 1);
  } else {
    probe = natural_probe(std::move(graph), shape.n, Random(seed));
  }
  if (turn == draws + 2) {
    kind = InputKind::dithered;
    std::vector<const Family<float>*> operands;
    for (const Family<float>& family : probe.inputs) operands.push_back(&family);
    probe = dithered_probe(probe.graph, *unit, probe.weights, operands, 1, seed, 1);
  }
  ++counts.cases;
  for (const Family<float>& family : probe.inputs)
    counts.numbers += kReplicas * family[0].values.size();
  for (const Comparison& comparison :
       judge_run(*device, probe.graph, probe.weights, probe.inputs, kind, 1)) {
    counts.wrong += comparison.wrong;
  }
}

// Seconds for a copy of so many float32 numbers, at best.
double copy_seconds(std::size_t numbers) {
  std::vector<float> from(numbers, 1.0F), to(numbers);
  double best = 1;
  for (int round = 0; round < 20; ++round) {
    constexpr int kCopies = 5000;
    const double start = processor_seconds();
    for (std::size_t i = 0; i < kCopies; ++i) {
      std::copy(from.begin(), from.end(), to.begin());
      from[i % numbers] = to[(i + 1) % numbers];
    }
    best = std::min(best, (processor_seconds() - start) / kCopies);
  }
  return best;
}

void site(Graph& graph, NodeId x) { graph.bn_sync_site(x, {"g", "b"}); }

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1.0;
  const std::string wanted = argc > 2 ? argv[2] : "";
  const std::vector<Shape> sites{{4, 4, 3, 3}, {4, 16, 1, 2}, {12, 1, 3, 4}, {2, 5, 4, 4},
                                 {1, 3, 7, 8}, {3, 11, 5, 1}, {2, 7, 3, 4}};
  const std::vector<Shape> small{{1, 3, 4, 5}, {2, 4, 3, 3}, {1, 2, 5, 4}};
  const std::vector<Row> rows{
      {"site, a thread a channel", sites, site, ChannelThreads::one},
      {"site, threads by count", sites, site, ChannelThreads::by_count},
      {"site, one warp a channel", sites, site, ChannelThreads::one_warp},
      {"site, two warps a channel", sites, site, ChannelThreads::several_warps},
      {"with ReLU, a thread a channel", sites,
       [](Graph& graph, NodeId x) {
         graph.relu(graph.bn_sync_site(x, {"g", "b"}), "r");
       }},
      {"convolution 3x3", small,
       [](Graph& graph, NodeId x) {
         graph.convolution(x, {"w", "", 3, 1, 1, 1}, 4);
       }},
      {"convolution 1x1", small,
       [](Graph& graph, NodeId x) {
         graph.convolution(x, {"w", ""}, 4);
       }},
      {"depthwise 3x3", small, [](Graph& graph, NodeId x) { graph.depthwise(x, {"w"}); }},
      {"dense", small,
       [](Graph& graph, NodeId x) {
         graph.dense(x, {"w", "b"}, 5);
       }},
      {"pool, a thread a plane", small,
       [](Graph& graph, NodeId x) { graph.global_average_pool(x, "p"); }},
      {"pool, one warp a plane", small,
       [](Graph& graph, NodeId x) { graph.global_average_pool(x, "p"); }, ChannelThreads::one_warp},
      {"pool, two warps a plane", small,
       [](Graph& graph, NodeId x) { graph.global_average_pool(x, "p"); },
       ChannelThreads::several_warps},
      {"add", small,
       [](Graph& graph, NodeId x) { graph.add(x, graph.input("z", graph.node(x).shape), "a"); }},
      {"relu", small, [](Graph& graph, NodeId x) { graph.relu(x, "r"); }},
  };
  std::printf("%-32s%12s%18s%24s\n", "", "cases/s", "numbers a case", "copies of them in a case");
  for (const Row& row : rows) {
    if (row.name.rfind(wanted, 0) != 0) continue;
    Counts counts;
    const double start = processor_seconds();
    std::uint64_t seed = 1;
    double taken = 0;
    while ((taken = processor_seconds() - start) < seconds) {
      for (int i = 0; i < 64; ++i) one_case(row, seed++, counts);
    }
    const double each = taken / static_cast<double>(counts.cases);
    const std::size_t numbers = counts.numbers / counts.cases;
    std::printf("%-32s%12.0f%18zu%24.0f\n", row.name.c_str(), 1 / each, numbers,
                each / copy_seconds(numbers));
    if (counts.wrong > 0) std::printf("%s: %zu outputs wrong\n", row.name.c_str(), counts.wrong);
    if (counts.wrong > 0) return 1;
  }
  return 0;
}
