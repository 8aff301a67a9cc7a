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
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "device/engine/device.h"
#include "device/engine/owned_optimizer.h"
#include "diff/signoff.h"
#include "diff/verdict.h"
#include "reference/slots/array_program.h"

namespace shardproof {

enum class OwnerMap { mod, blocks, greedy, table };

struct ProgramTask {
  const ArrayProgram& program;
  std::vector<ParameterShape> shapes;
  OwnerMap owners = OwnerMap::blocks;
  std::vector<Owner> table;  // of OwnerMap::table: of each coordinate, below `ranks`
  std::size_t ranks = 4;
  std::size_t steps = 3;
  std::uint64_t seed = 1;
};

// A device of so many ranks, all alike; called several times.
using DeviceFactory = std::function<std::unique_ptr<Device>(int ranks)>;

// The first number of a claim that is wrong.
struct ProgramDisagreement {
  std::string claim, input;
  std::size_t step = 0;        // from 1
  std::size_t rank = 0;        // where it was found
  std::optional<Owner> owner;  // of its coordinate
  std::string slot;            // "m[1][3]": element 3 of parameter 1
  double got = 0, expected = 0, bound = 0;
  std::size_t line = 0;  // of the assignment that wrote the slot last; 0: none did
};

// A small case in which a claim fails that failed in the whole one.
struct SmallestCase {
  std::vector<ParameterShape> shapes;
  std::size_t ranks = 0, steps = 0;
  std::uint64_t seed = 0;
  ProgramDisagreement disagreement;
};

struct ProgramResult {
  std::vector<Comparison> comparisons;  // node: the claim; part: the input it was tried on
  std::vector<ProgramDisagreement> disagreements;  // the first of each claim that failed
  std::vector<std::string> overwritten;            // places outside of what is owned
  std::string failure;                             // the device failed: what it said
  std::string out_of_memory;                       // what the device lacked memory for
  std::optional<SmallestCase> smallest;
  std::string device;
  std::set<std::string> judged;       // claims that compared a finite number
  std::vector<std::string> unjudged;  // claims that did not
  bool exact = true;                  // whether device and reference were compared bit for bit

  SignoffResult::Verdict verdict() const;
};

Ownership make_ownership(const ProgramTask& task, std::size_t ranks);

// The program must be separable. Throws what OwnedOptimizer's constructor throws.
ProgramResult sign_off_program(const DeviceFactory& make, const ProgramTask& task,
                               const Progress& progress = {});

}  // namespace shardproof
