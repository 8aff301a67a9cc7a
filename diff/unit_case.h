// UnitCase: one unit of a network (diff/unit.h) with numbers of its own, on every replica, and how
// the device is scheduled: all that its verdict depends on, but for the device (agreement §6).
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/device.h"
#include "diff/verdict.h"
#include "reference/graph/graph.h"
#include "reference/graph/tensor.h"

namespace shardproof {

// A device of so many replicas.
using DeviceMaker = std::function<std::unique_ptr<Device>(int replicas, const Schedule& schedule)>;

struct UnitCase {
  Graph graph;  // ends in the unit; its inputs and parameters are the unit's own
  Weights weights;
  std::vector<Family<float>> inputs;  // by input node
  InputKind kind = InputKind::natural;
  Schedule schedule;
  std::uint64_t seed = 0;  // of the fresh draws that settle a suspicion
};

// The launches of a unit's graph, in order.
struct Launch {
  Operation operation;
  NodeId sized;   // the node whose plane its contract may depend on
  NodeId writes;  // the node whose values it writes
};
std::vector<Launch> launches_of(const Graph& graph);

// What a device says of its arithmetic in the operations of one case.
using Contracts = std::vector<std::pair<Operation, Contract>>;  // each operation once
struct UnitVerdict {
  std::vector<Comparison> comparisons;
  // The first so many are on the case's own numbers; the others are what was wrong in fresh draws.
  std::size_t own = 0;
  // What every launch wrote, in order, until one failed.
  std::vector<std::pair<NodeId, Family<float>>> written;
  std::string failure;  // a launch that failed; empty: none
  std::string device;
  Contracts contracts;

  // wrong: a comparison is, or a launch failed; agrees: nothing is, and a comparison with the
  // reference agrees; else not judged.
  Outcome outcome() const;
  // What is wrong and was found first, on the case's own numbers where it is; null: nothing.
  const Comparison* first_wrong() const;
};

// "g.relu: y on own statistics: replica 0 [0, 1, 2, 0] got 1.5, exact 1.25, bound 1e-07"
std::string describe(const Comparison& comparison);

// What becomes of suspicions: see judge_unit_case.
enum class Suspicions { left, settled };

// Runs the case, recorded, and judges it; what is suspect is settled by fresh dithered draws as in
// a sign-off, unless it is to be left. An unrecorded run must give the same bits: where it does
// not, one more comparison says so. Throws what `make` throws, and OutOfDeviceMemory.
UnitVerdict judge_unit_case(const DeviceMaker& make, const UnitCase& c,
                            Suspicions suspicions = Suspicions::settled);

// Judges values that a device of those contracts once wrote. Suspicions are left.
// Throws std::invalid_argument where values are misshapen or a contract is missing.
UnitVerdict judge_recorded(const UnitCase& c, std::vector<std::pair<NodeId, Family<float>>> written,
                           const Contracts& contracts);

// What the graph of a unit is made of.
struct UnitLayout {
  std::vector<std::pair<std::string, Shape>> inputs;  // of one example
  // Convolution, Depthwise, Dense, Add, GlobalAveragePool, BnSync, or a Relu on its own
  NodeOperation operation;
  std::size_t outputs = 0;  // channels; of convolutions and dense layers
  std::string name;         // of the last node, where no parameter gives it its name
  bool relu = false;        // of a BnSync: whether its ReLU is in the unit
};

// Throws std::invalid_argument unless the graph is one unit.
UnitLayout layout_of(const Graph& graph);
// Throws std::invalid_argument where operands do not fit the operation.
Graph graph_of(const UnitLayout& layout);

}  // namespace shardproof
