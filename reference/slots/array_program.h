// A slot program over parameters (arrays): what an optimizer's text compiles to (text.h), what a
// device runs, and what expands to a Program over coordinates (expand.h).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "reference/numbers/rational.h"
#include "reference/slots/array_assignment.h"

namespace shardproof {

// Where text stands, counted from 1; {0, 0} for what no text has.
struct Position {
  std::size_t line = 0, column = 0;
};

// A parameter array as a matrix, row-major. A vector has one column.
struct ParameterShape {
  std::size_t rows = 0, columns = 1;
  std::size_t size() const { return rows * columns; }
};

struct ArrayProgram {
  enum class Role : std::uint8_t {
    parameter,  // what the step updates and the ranks gather
    gradient,   // reduced over the ranks before the step; the program may change it
    state,      // kept from step to step, as slots of coarser scopes are
    temporary,  // written before it is read in every step, not kept
    constant,   // shared, never assigned, `initial` is its value
  };
  struct SlotInfo {
    std::string name;  // empty for the compiler's own
    Role role = Role::state;
    std::optional<Rational> initial;  // before the first step; none: whatever the user gives
  };

  // target = the sum, or mean, of `source` over the elements that the target's element holds, in
  // the order of coordinates; of none 0, or NaN for a mean. `collective`: the ranks compute it
  // together between two programs; else it is a part of the program, which is then not separable.
  struct Reduction {
    ArraySlot target, source;
    bool mean = false, collective = false;
  };

  struct Statement {
    std::variant<ArrayAssignment, Reduction> does;
    Position position;  // of the statement of the text that it comes from

    ArraySlot target() const {
      return std::visit([](const auto& each) { return each.target; }, does);
    }
  };

  std::string name;
  std::array<std::vector<SlotInfo>, kScopes> slots;  // by scope
  std::vector<Statement> statements;                 // run in order, each over all its elements

  const SlotInfo& info(ArraySlot slot) const { return slots[index_of(slot.scope)].at(slot.index); }
  // The first slot of that role, if there is one. There is at most one parameter and one gradient.
  std::optional<ArraySlot> find(Role role) const;
  // The first statement that reads across coordinates, without which the program is separable: a
  // sum or mean over coordinates that is no collective.
  std::optional<std::size_t> across_coordinates() const;
};

}  // namespace shardproof
