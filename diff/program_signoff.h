// Sign-off of an optimizer program (spec §1): a device's sharded step, judged in two verdicts.
// Owned against replicated: every rank's gathered parameters and every owner's state are bit for
// bit what the replicated run gives on the same device, from the same reduced gradients (A1 holds
// in the device's own arithmetic, whatever that is); no place outside what is owned is written; a
// saved shard set goes on under another number of ranks. Device against reference: bit for bit
// where the contract keeps the program's order and contracts nothing, else within running error
// bounds; the reductions are judged as collectives of their own.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/engine/device.h"
#include "device/engine/owned_optimizer.h"
#include "diff/program_case.h"
#include "diff/signoff.h"
#include "reference/slots/array_program.h"

namespace shardproof {

struct ProgramTask {
  const ArrayProgram& program;
  std::vector<ParameterShape> shapes;
  OwnerMap owners = OwnerMap::blocks;
  std::vector<Owner> table;  // of OwnerMap::table: of each coordinate, below `ranks`
  std::size_t ranks = 4;
  std::size_t steps = 3;
  std::uint64_t seed = 1;
  std::string text = {};  // of the program; empty: a failing case cannot be given with its numbers
};

// A device of so many ranks, all alike; called several times.
using DeviceFactory = std::function<std::unique_ptr<Device>(int ranks)>;

// One way to run the step: what gradients and starts are like, and how the parameters are cut and
// moved.
struct Variation {
  enum class Gradients { natural, lattice, corners, infinity, nan };
  std::string name;
  Gradients gradients;
  bool strained;  // hyper-parameters away from 0 and 1, parameters of many magnitudes
  OwnedOptimizerOptions options;
};
std::vector<Variation> variations(std::size_t coordinates);

// The task as one variation runs it, its numbers drawn.
ProgramCase program_case(const ProgramTask& task, const Variation& variation);

// The program must be separable. Throws what OwnedOptimizer's constructor throws.
ProgramResult sign_off_program(const DeviceFactory& factory, const ProgramTask& task,
                               const Progress& progress = {});

}  // namespace shardproof
