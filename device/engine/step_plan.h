// StepPlan: an array program cut where the ranks must meet, and into what every rank runs (slots of
// coarser scopes) and what owners run (coordinates). Within a phase the coarse assignments run
// first: one that stands after an owned one in the program moves before it where that one does not
// read its target, so that owners go through their coordinates once a phase.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/slots/array_program.h"

namespace shardproof {

struct StepPlan {
  struct Phase {
    std::optional<ArrayProgram::Reduction> alone;  // first: a sum that every rank does alone
    std::vector<ArrayAssignment> coarse, owned;
    std::optional<ArrayProgram::Reduction> together;  // last: a collective
    std::size_t statement = 0;                        // of `together`
  };

  std::vector<Phase> phases;

  // Coordinate slots: the program's, and where the program assigns to its gradient, one more for
  // the reduced gradient, which is read until the first such assignment.
  std::vector<bool> in_memory;           // the others live within one phase
  std::optional<std::uint16_t> reduced;  // the slot of the reduced gradient
  std::optional<std::uint16_t> parameter;
  std::vector<std::uint16_t> kept;  // what a shard set saves: the parameter and the state

  // Throws std::invalid_argument for a sum over coordinates that is no collective.
  explicit StepPlan(const ArrayProgram& program);
};

}  // namespace shardproof
