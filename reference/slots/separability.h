// Whether a program may be partitioned by ownership (spec §1, `SlotSeparable`), and if not, what
// would make it so and what goes wrong (A6).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "reference/numbers/rational.h"
#include "reference/slots/ownership.h"
#include "reference/slots/program.h"

namespace shardproof {

// An assignment that reads a slot of a coordinate which is not its target's.
struct Violation {
  std::size_t assignment = 0;        // its index in the program
  Slot read = 0;                     // the slot it reads
  std::optional<Coordinate> target;  // the target's coordinate; none where it is shared
  Coordinate coordinate = 0;         // the coordinate of the slot it reads
};

struct Separability {
  std::optional<Violation> violation;  // the first read of the first assignment that has one
  explicit operator bool() const { return !violation; }
};

// In time linear in the reads.
Separability is_slot_separable(const Classification& cls, const Program& program);

// The least coarsening that makes a program separable: coordinates joined along reads. A shared
// slot that reads a coordinate, directly or through shared slots, stops being shared and joins it.
struct Coarsening {
  struct Group {
    std::vector<Coordinate> coordinates;  // in order
    std::vector<Slot> shared;             // slots that were shared, in order
  };
  // A slot's coordinate is the least of those its own was joined with.
  Classification classification;
  // What is joined, by least coordinate; coordinates that stay as they were are left out.
  std::vector<Group> groups;
};

Coarsening least_coarsening(const Classification& cls, const Program& program);

// An exact number; a float64 one where roots are irrational, or would take many numbers not to be.
using Number = std::variant<Rational, double>;

// Numbers on which the identity of A1 fails: owner 0, who owns the one coordinate or none, ends
// with another value at `slot` than the whole program. Owner 1 owns every other coordinate.
struct Counterexample {
  // A slot's value in the state from which the whole program starts, and in owner 0's start. They
  // are equal where owner 0 runs the slot. What is left out is 0 in both.
  struct Start {
    Slot slot = 0;
    Number state, start;
  };

  std::optional<Coordinate> owned;  // none: `slot` is shared
  Slot slot = 0;
  std::vector<Start> starts;  // by slot
  Number whole, by_owner;     // what the two end with at `slot`

  bool owns(Coordinate coordinate) const { return owned == coordinate; }
  Ownership ownership(std::size_t coordinates) const;
};

// What a program that is not separable does (A6).
struct Harm {
  // A slot where the identity fails over terms, each coordinate being an owner of its own and owner
  // 0 owning none. None: harmless, the identity holds for every ownership table, start and type.
  std::optional<Slot> slot;
  // None though `slot` is there: the terms differ, but no numbers on which they do were found.
  std::optional<Counterexample> numbers;
};

// The decision is exact and linear in the reads. The search for numbers is a function of the seed,
// tries simple ones first, and gives up after a bounded number of assignments.
Harm find_harm(const Classification& cls, const Program& program, std::uint64_t seed = 0);

}  // namespace shardproof
