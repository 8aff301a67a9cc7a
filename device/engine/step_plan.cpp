#include "device/engine/step_plan.h"

#include <algorithm>
#include <set>
#include <stdexcept>
#include <string>
#include <variant>

namespace shardproof {
namespace {

using Role = ArrayProgram::Role;
using Reduction = ArrayProgram::Reduction;

bool reads(const ArrayAssignment& assignment, ArraySlot slot) {
  return std::any_of(
      assignment.reads.begin(),
      assignment.reads.begin() + static_cast<std::ptrdiff_t>(arity(assignment.function)),
      [&](ArraySlot read) { return read == slot; });
}

// Whether an owned assignment of the phase reads the slot, which must then not be written before.
bool owned_reads(const StepPlan::Phase& phase, ArraySlot slot) {
  return std::any_of(phase.owned.begin(), phase.owned.end(),
                     [&](const ArrayAssignment& assignment) { return reads(assignment, slot); });
}

}  // namespace

StepPlan::StepPlan(const ArrayProgram& program) {
  const auto& slots = program.slots[index_of(Scope::coordinate)];
  in_memory.resize(slots.size());
  for (std::size_t k = 0; k < slots.size(); ++k) {
    const auto slot = static_cast<std::uint16_t>(k);
    const Role role = slots[k].role;
    in_memory[k] = role != Role::temporary;
    if (role == Role::gradient) reduced = slot;
    if (role == Role::parameter) parameter = slot;
    if (role == Role::parameter || role == Role::state) kept.push_back(slot);
  }
  const std::optional<std::uint16_t> gradient = reduced;
  const auto writes_gradient = [&](const ArrayProgram::Statement& statement) {
    const auto* const assignment = std::get_if<ArrayAssignment>(&statement.does);
    return assignment != nullptr && gradient &&
           assignment->target == ArraySlot{Scope::coordinate, *gradient};
  };
  if (std::any_of(program.statements.begin(), program.statements.end(), writes_gradient)) {
    reduced = static_cast<std::uint16_t>(slots.size());
    in_memory[*gradient] = false;
    in_memory.push_back(true);
  }

  bool gradient_written = false;
  const auto renamed = [&](ArraySlot slot) {
    const bool is_reduced = gradient && slot == ArraySlot{Scope::coordinate, *gradient};
    return is_reduced && !gradient_written ? ArraySlot{Scope::coordinate, *reduced} : slot;
  };
  std::set<std::uint16_t> written;  // by owned assignments of the phase
  phases.emplace_back();
  const auto next_phase = [&] {
    phases.emplace_back();
    written.clear();
  };
  const auto use = [&](ArraySlot slot) {
    if (slot.scope == Scope::coordinate && written.count(slot.index) == 0) {
      in_memory.at(slot.index) = true;
    }
  };
  for (std::size_t i = 0; i < program.statements.size(); ++i) {
    if (const auto* const stated = std::get_if<Reduction>(&program.statements[i].does)) {
      Reduction reduction = *stated;
      reduction.source = renamed(reduction.source);
      if (reduction.collective) {
        if (reduction.source.scope == Scope::coordinate)
          in_memory.at(reduction.source.index) = true;
        phases.back().together = reduction;
        phases.back().statement = i;
        next_phase();
        continue;
      }
      if (reduction.source.scope == Scope::coordinate) {
        throw std::invalid_argument(
            "line " + std::to_string(program.statements[i].position.line) +
            ": a sum over coordinates that no collective fills; owners cannot run it");
      }
      next_phase();
      phases.back().alone = reduction;
      continue;
    }
    ArrayAssignment assignment = std::get<ArrayAssignment>(program.statements[i].does);
    for (std::size_t k = 0; k < arity(assignment.function); ++k) {
      assignment.reads[k] = renamed(assignment.reads[k]);
      use(assignment.reads[k]);
    }
    if (assignment.target.scope == Scope::coordinate) {
      written.insert(assignment.target.index);
      gradient_written = gradient_written || writes_gradient(program.statements[i]);
      phases.back().owned.push_back(assignment);
      continue;
    }
    if (owned_reads(phases.back(), assignment.target)) next_phase();
    phases.back().coarse.push_back(assignment);
  }
}

}  // namespace shardproof
