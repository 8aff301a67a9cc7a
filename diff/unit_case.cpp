#include "diff/unit_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <stdexcept>

#include "device/engine/engine.h"
#include "diff/judge.h"
#include "diff/settle.h"
#include "diff/unit.h"

namespace shardproof {
namespace {

// Answers for its contracts alone.
class RecordedDevice : public Device {
 public:
  RecordedDevice(std::size_t replicas, const Contracts& contracts)
      : replicas_(static_cast<int>(replicas)), contracts_(contracts) {}

  std::string name() const override { return "recorded"; }
  int replicas() const override { return replicas_; }
  Contract contract(Operation operation, std::size_t, std::size_t) const override {
    for (const auto& [of, contract] : contracts_) {
      if (of == operation) return contract;
    }
    throw std::invalid_argument("recorded values: a contract is missing");
  }

  float* allocate(int, std::size_t) override { computes_nothing(); }
  void release(int, float*) override { computes_nothing(); }
  void upload(int, float*, const float*, std::size_t) override { computes_nothing(); }
  void download(int, const float*, float*, std::size_t) override { computes_nothing(); }
  void synchronize() override { computes_nothing(); }
  void convolution(const ConvolutionCall&) override { computes_nothing(); }
  void depthwise(const DepthwiseCall&) override { computes_nothing(); }
  void channel_mean(const ChannelMeanCall&) override { computes_nothing(); }
  void channel_variance(const ChannelVarianceCall&) override { computes_nothing(); }
  void normalise(const NormaliseCall&) override { computes_nothing(); }
  void relu(const PointwiseCall&) override { computes_nothing(); }
  void add(const AddCall&) override { computes_nothing(); }
  void global_average_pool(const PoolCall&) override { computes_nothing(); }
  void dense(const DenseCall&) override { computes_nothing(); }
  void all_reduce_mean(const AllReduceMeanCall&) override { computes_nothing(); }

 private:
  [[noreturn]] static void computes_nothing() {
    throw std::logic_error("recorded values: a launch was asked for");
  }

  int replicas_;
  const Contracts& contracts_;
};

std::optional<Unit> unit_of(const Graph& graph) {
  const Node& end = graph.node(graph.output());
  const bool fused = std::holds_alternative<Relu>(end.operation) &&
                     std::holds_alternative<BnSync>(graph.node(end.operands[0]).operation);
  return unit_ending_at(graph, graph.output(), fused);
}

// NaN and infinities say nothing of roundings: fresh draws have zeros in their place.
Family<float> finite(Family<float> family) {
  for (Tensor<float>& tensor : family) {
    for (float& value : tensor.values) {
      if (!std::isfinite(value)) value = 0;
    }
  }
  return family;
}

void settle_suspicions(Device& device, const UnitCase& c, UnitVerdict& verdict) {
  const auto unit = unit_of(c.graph);
  std::vector<Comparison> suspect;
  for (const Comparison& comparison : verdict.comparisons) {
    if (comparison.outcome() == Outcome::suspect) suspect.push_back(comparison);
  }
  if (suspect.empty() || !unit) return;
  std::vector<Family<float>> operands;
  for (const Family<float>& family : c.inputs) operands.push_back(finite(family));
  std::vector<const Family<float>*> pointers(operands.size());
  std::transform(operands.begin(), operands.end(), pointers.begin(),
                 [](const Family<float>& family) { return &family; });
  std::uint64_t draw = 0;
  Settled settled = settle(std::move(suspect), [&] {
    return judge_dithered(device, c.graph, *unit, c.weights, pointers, c.seed + draw++, 1);
  });
  // The last of them are the suspicions, in their order.
  auto next = settled.comparisons.end() - static_cast<std::ptrdiff_t>(settled.suspicions);
  const auto drawn = next;
  for (Comparison& comparison : verdict.comparisons) {
    if (comparison.outcome() != Outcome::suspect) continue;
    const Difference own = comparison.worst;
    comparison = *next++;
    comparison.worst = own;
  }
  std::move(settled.comparisons.begin(), drawn, std::back_inserter(verdict.comparisons));
}

void compare_runs(const UnitCase& c, const Family<float>& recorded, const Family<float>& again,
                  UnitVerdict& verdict) {
  Comparison comparison;
  comparison.node = c.graph.node(c.graph.output()).name;
  comparison.part = "unrecorded run repeats the bits";
  comparison.kind = c.kind;
  comparison.shape = recorded.at(0).shape;
  for (std::size_t r = 0; r < recorded.size(); ++r) {
    for (std::size_t i = 0; i < recorded[r].values.size(); ++i) {
      comparison.see_equal(r, i, again[r].values[i], recorded[r].values[i]);
    }
  }
  if (comparison.wrong > 0) verdict.comparisons.push_back(std::move(comparison));
}

Contracts contracts_of(const Device& device, const UnitCase& c) {
  const std::size_t batch = c.inputs.at(0).at(0).shape.n;
  Contracts contracts;
  for (const Launch& launch : launches_of(c.graph)) {
    const bool known = std::any_of(contracts.begin(), contracts.end(), [&](const auto& other) {
      return other.first == launch.operation;
    });
    if (known) continue;
    const std::size_t plane = c.graph.node(launch.sized).shape.plane();
    contracts.emplace_back(launch.operation, device.contract(launch.operation, batch, plane));
  }
  return contracts;
}

}  // namespace

Outcome UnitVerdict::outcome() const {
  if (!failure.empty() || first_wrong() != nullptr) return Outcome::wrong;
  for (const Comparison& comparison : comparisons) {
    const bool with_reference = comparison.part != "equal on all replicas";
    if (with_reference && comparison.outcome() == Outcome::agrees) return Outcome::agrees;
  }
  return Outcome::not_judged;
}

const Comparison* UnitVerdict::first_wrong() const {
  const auto found = std::find_if(comparisons.begin(), comparisons.end(), [](const Comparison& c) {
    return c.outcome() == Outcome::wrong;
  });
  return found == comparisons.end() ? nullptr : &*found;
}

std::string describe(const Comparison& comparison) {
  const Shape& shape = comparison.shape;
  const Difference& worst = comparison.worst;
  const std::string place =
      shape.n == 1 && shape.plane() == 1
          ? fmt::format("channel {}", worst.index)
          : fmt::format("[{}, {}, {}, {}]", worst.index / shape.example(),
                        worst.index / shape.plane() % shape.c, worst.index / shape.w % shape.h,
                        worst.index % shape.w);
  return fmt::format(
      "{}: replica {} {} got {:.9g}, exact {:.9g}, bound {:.3g}",
      comparison.part.empty() ? comparison.node : comparison.node + ": " + comparison.part,
      worst.replica, place, worst.got, worst.expected, worst.bound);
}

UnitVerdict judge_unit_case(const DeviceMaker& make, const UnitCase& c, Suspicions suspicions) {
  const std::unique_ptr<Device> device = make(static_cast<int>(c.inputs.at(0).size()), c.schedule);
  UnitVerdict verdict;
  verdict.device = device->name();
  try {
    verdict.contracts = contracts_of(*device, c);
    Judge judge(c.graph, c.weights, *device, c.kind, 1, c.inputs);
    Engine engine(*device, c.graph, c.weights);
    const Family<float> recorded = engine.forward(c.inputs, [&](NodeId node, Family<float> values) {
      verdict.written.emplace_back(node, values);
      std::vector<Comparison> made = judge.wrote(node, std::move(values));
      std::move(made.begin(), made.end(), std::back_inserter(verdict.comparisons));
    });
    compare_runs(c, recorded, engine.forward(c.inputs, {}), verdict);
    verdict.own = verdict.comparisons.size();
    if (suspicions == Suspicions::settled) settle_suspicions(*device, c, verdict);
  } catch (const OutOfDeviceMemory&) {
    throw;
  } catch (const DeviceError& error) {
    verdict.failure = error.what();
  }
  return verdict;
}

UnitVerdict judge_recorded(const UnitCase& c, std::vector<std::pair<NodeId, Family<float>>> written,
                           const Contracts& contracts) {
  const RecordedDevice device(c.inputs.at(0).size(), contracts);
  Judge judge(c.graph, c.weights, device, c.kind, 1, c.inputs);
  UnitVerdict verdict;
  verdict.written = std::move(written);
  verdict.contracts = contracts;
  for (const auto& [node, values] : verdict.written) {
    std::vector<Comparison> made = judge.wrote(node, values);
    std::move(made.begin(), made.end(), std::back_inserter(verdict.comparisons));
  }
  verdict.own = verdict.comparisons.size();
  return verdict;
}

}  // namespace shardproof
