// Slot programs (spec §1): a state gives every slot a value, an assignment changes one slot to a
// function of the slots it reads, a program is a list of assignments run in order, and a
// classification gives each slot to a coordinate or shares it. The value function of an assignment
// is named by its operation, so one Program runs over every type α of values (slot_run.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "reference/numbers/rational.h"
#include "reference/slots/value_function.h"

namespace shardproof {

using Slot = std::uint32_t;
using Coordinate = std::uint32_t;
using Owner = std::uint32_t;

struct Assignment {
  Slot target = 0;
  ValueFunction function = ValueFunction::copy;
  std::array<Slot, 3> reads{};  // the first arity(function) of them; of a constant, reads[0] is its
                                // index in the program's constants

  friend bool operator==(const Assignment&, const Assignment&) = default;
};

struct Program {
  std::size_t slots = 0;  // every slot named is below it
  std::vector<Rational> constants;
  std::vector<Assignment> assignments;
};

// `cls` of the specification: the coordinate of each slot, or none for a shared slot.
class Classification {
 public:
  explicit Classification(std::size_t slots) : coordinates_(slots, kShared) {}

  std::size_t slots() const { return coordinates_.size(); }
  void assign(Slot slot, Coordinate coordinate) { coordinates_.at(slot) = coordinate; }
  bool is_shared(Slot slot) const { return coordinates_[slot] == kShared; }
  std::optional<Coordinate> operator()(Slot slot) const {
    if (is_shared(slot)) return std::nullopt;
    return coordinates_[slot];
  }

 private:
  static constexpr Coordinate kShared = ~Coordinate{0};
  std::vector<Coordinate> coordinates_;
};

// `coordinateOwner`: i mod owners, where i mod 0 = i.
constexpr Owner coordinate_owner(std::size_t owners, Coordinate i) {
  return owners == 0 ? i : static_cast<Owner>(i % owners);
}

// `runsSlot`: whether one who owns the coordinates for which owns(i) is true runs a slot.
template <class Owns>
bool runs_slot(const Classification& cls, Owns&& owns, Slot slot) {
  const std::optional<Coordinate> coordinate = cls(slot);
  return !coordinate || owns(*coordinate);
}

// `ownedProgram`: the assignments whose target runs, in their order.
template <class Owns>
Program owned_program(const Classification& cls, Owns&& owns, const Program& program) {
  Program owned{program.slots, program.constants, {}};
  for (const Assignment& assignment : program.assignments) {
    if (runs_slot(cls, owns, assignment.target)) owned.assignments.push_back(assignment);
  }
  return owned;
}

}  // namespace shardproof
