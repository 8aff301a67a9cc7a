// One assignment of a program over arrays: all elements of its target's scope at once. Values,
// scopes and slots as numbers, for whoever runs them. C++17, since what nvcc reads includes it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "reference/slots/value_function.h"

namespace shardproof {

// What a slot of an array program has one value of, from coarse to fine. Each parameter is a
// matrix; rows and columns are those of each parameter, coordinates its elements.
enum class Scope : std::uint8_t { shared, parameter, row, column, coordinate };
inline constexpr std::size_t kScopes = 5;
constexpr std::size_t index_of(Scope scope) { return static_cast<std::size_t>(scope); }

// The index-th slot of that scope (ArrayProgram::slots).
struct ArraySlot {
  Scope scope = Scope::shared;
  std::uint16_t index = 0;

  friend constexpr bool operator==(ArraySlot a, ArraySlot b) {
    return a.scope == b.scope && a.index == b.index;
  }
  // By scope, then by index.
  friend constexpr bool operator<(ArraySlot a, ArraySlot b) {
    return a.scope != b.scope ? a.scope < b.scope : a.index < b.index;
  }
};

// target = function(reads), for every element of the target's scope. A slot that is read has the
// target's scope or one that holds it (shared ⊃ parameter ⊃ row, column ⊃ coordinate).
struct ArrayAssignment {
  ArraySlot target;
  ValueFunction function = ValueFunction::copy;  // never constant: constants are slots
  std::array<ArraySlot, 3> reads{};              // the first arity(function) of them
};

}  // namespace shardproof
