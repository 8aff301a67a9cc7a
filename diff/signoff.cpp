#include "diff/signoff.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "device/engine/engine.h"
#include "diff/draws.h"
#include "diff/judge.h"
#include "diff/settle.h"
#include "diff/unit.h"

namespace shardproof {
namespace {

class Signoff {
 public:
  Signoff(Device& device, const SignoffTask& task, const Progress& progress)
      : device_(device),
        task_(task),
        progress_(progress),
        judge_(task.graph, task.weights, device, InputKind::natural, task.threads, {task.images}) {
    if (task.precision) judge_.measure_precision();
  }

  SignoffResult run() {
    try {
      Engine engine(device_, task_.graph, task_.weights);
      const Family<float> recorded = engine.forward(
          {task_.images},
          [&](NodeId node, Family<float> values) { wrote(node, std::move(values)); });
      result_.logits = engine.forward({task_.images}, {});
      compare_runs(recorded);
    } catch (const OutOfDeviceMemory& error) {
      result_.out_of_memory = error.what();
    } catch (const DeviceError& error) {
      result_.failure = error.what();
    }
    return std::move(result_);
  }

 private:
  void wrote(NodeId node, Family<float> values) {
    for (Comparison& comparison : judge_.wrote(node, std::move(values))) {
      pending_.push_back(std::move(comparison));
    }
    const bool relu = std::holds_alternative<Relu>(task_.graph.node(node).operation);
    const bool fused = relu && judge_.held(task_.graph.node(node).operands[0]).empty();
    if (const auto unit = unit_ending_at(task_.graph, node, fused)) settle_unit(*unit);
    if (relu && !fused) record(std::exchange(pending_, {}));  // no unit: it rounds nothing
    judge_.drop_read();
    if (progress_) {
      progress_(static_cast<double>(node + 1) / static_cast<double>(task_.graph.nodes().size()));
    }
  }

  void settle_unit(const Unit& unit) {
    settle(unit, std::exchange(pending_, {}));
    if (!seen_.insert(unit.signature).second) return;
    const std::size_t batch = task_.images.at(0).shape.n;
    for (std::size_t draw = 0; draw < lattice_draws(unit); ++draw) {
      const Probe probe = lattice_probe(task_.graph, unit, task_.images.size(), batch, draw,
                                        task_.seed, task_.threads);
      settle(unit, judged(probe, InputKind::lattice));
    }
    if (unit.kind != Unit::Kind::add) settle(unit, dithered(unit));
    const Probe corners =
        corner_probe(task_.graph, unit, task_.images.size(), batch, task_.seed, task_.threads);
    std::vector<Comparison> of_corners = judged(corners, InputKind::natural);
    // What may leave float32's range there is not judged on that case, and need not be.
    const auto unjudged = std::stable_partition(
        of_corners.begin(), of_corners.end(),
        [](const Comparison& c) { return c.outcome() != Outcome::not_judged; });
    record({std::make_move_iterator(unjudged), std::make_move_iterator(of_corners.end())});
    of_corners.erase(unjudged, of_corners.end());
    settle(unit, std::move(of_corners));
  }

  std::vector<Comparison> judged(const Probe& probe, InputKind kind) {
    std::vector<Comparison> comparisons =
        judge_run(device_, probe.graph, probe.weights, probe.inputs, kind, task_.threads);
    const bool wrong = std::any_of(comparisons.begin(), comparisons.end(), [](const Comparison& c) {
      return c.outcome() == Outcome::wrong;
    });
    if (wrong && !result_.failing) {
      result_.failing =
          UnitCase{probe.graph, probe.weights, probe.inputs, kind, {task_.seed, {}}, task_.seed};
    }
    return comparisons;
  }

  std::vector<Comparison> dithered(const Unit& unit) {
    std::vector<const Family<float>*> operands;
    for (const NodeId operand : unit.operands) operands.push_back(&judge_.held(operand));
    return judge_dithered(device_, task_.graph, unit, task_.weights, operands,
                          task_.seed + 1 + next_draw_++, task_.threads);
  }

  // Settles what is suspect, or not judged, and records all.
  void settle(const Unit& unit, std::vector<Comparison> comparisons) {
    Settled settled = shardproof::settle(std::move(comparisons), [&] { return dithered(unit); });
    result_.suspicions += settled.suspicions;
    result_.suspicions_dropped += settled.suspicions_dropped;
    result_.unjudged_at_first += settled.unjudged_at_first;
    result_.fresh_draws += settled.fresh_draws;
    for (const Comparison& comparison : settled.unjudged) {
      std::string name = comparison.node + (comparison.part.empty() ? "" : ": " + comparison.part) +
                         " (" + why_unjudged(unit) + ")";
      if (std::find(result_.unjudged.begin(), result_.unjudged.end(), name) ==
          result_.unjudged.end()) {
        result_.unjudged.push_back(std::move(name));
      }
    }
    record(std::move(settled.comparisons));
  }

  std::string why_unjudged(const Unit& unit) const {
    if (unit.kind == Unit::Kind::site) {
      const std::size_t numbers = task_.images.size() * task_.images[0].shape.n *
                                  task_.graph.node(unit.operands[0]).shape.plane();
      if (numbers < 3) return numbers == 1 ? "1 number a channel" : "2 numbers a channel";
    }
    return "may leave float32's range";
  }

  void record(std::vector<Comparison> comparisons) {
    std::move(comparisons.begin(), comparisons.end(), std::back_inserter(result_.comparisons));
  }

  void compare_runs(const Family<float>& recorded) {
    Comparison comparison;
    comparison.node = task_.graph.node(task_.graph.output()).name;
    comparison.part = "unrecorded run repeats the bits";
    comparison.shape = recorded.at(0).shape;
    for (std::size_t r = 0; r < recorded.size(); ++r) {
      for (std::size_t i = 0; i < recorded[r].values.size(); ++i) {
        comparison.see_equal(r, i, result_.logits[r].values[i], recorded[r].values[i]);
      }
    }
    result_.comparisons.push_back(comparison);
  }

  Device& device_;
  const SignoffTask& task_;
  const Progress& progress_;
  Judge judge_;
  SignoffResult result_;
  std::vector<Comparison> pending_;  // of the unit whose launches are under way
  std::set<std::string> seen_;       // signatures already probed
  std::uint64_t next_draw_ = 0;
};

}  // namespace

std::vector<Comparison> judge_run(Device& device, const Graph& graph, const Weights& weights,
                                  const std::vector<Family<float>>& inputs, InputKind kind,
                                  unsigned threads) {
  Judge judge(graph, weights, device, kind, threads, inputs);
  std::vector<Comparison> comparisons;
  Engine engine(device, graph, weights);
  (void)engine.forward(inputs, [&](NodeId node, Family<float> values) {
    std::vector<Comparison> made = judge.wrote(node, std::move(values));
    std::move(made.begin(), made.end(), std::back_inserter(comparisons));
    judge.drop_read();
  });
  return comparisons;
}

SignoffResult::Verdict SignoffResult::verdict() const {
  const bool wrong = std::any_of(comparisons.begin(), comparisons.end(),
                                 [](const Comparison& c) { return c.outcome() == Outcome::wrong; });
  if (wrong || !failure.empty()) return Verdict::disagrees;
  const bool cut_short = comparisons.empty() || !unjudged.empty() || !out_of_memory.empty();
  return cut_short ? Verdict::none : Verdict::agrees;
}

SignoffResult sign_off(Device& device, const SignoffTask& task, const Progress& progress) {
  return Signoff(device, task, progress).run();
}

}  // namespace shardproof
