// The values of an array program's slots: one a element of the slot's scope.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "reference/slots/array_program.h"

namespace shardproof {

// Elements of a scope: 1; parameters; rows of all parameters; their columns; their sizes together.
// Elements stand parameter by parameter, coordinates row-major.
std::size_t elements(Scope scope, std::span<const ParameterShape> shapes);

template <class T>
struct ArrayState {
  // [scope][slot][element], as in ArrayProgram::slots.
  std::array<std::vector<std::vector<T>>, kScopes> values;

  std::vector<T>& operator[](ArraySlot slot) { return values[index_of(slot.scope)].at(slot.index); }
  const std::vector<T>& operator[](ArraySlot slot) const {
    return values[index_of(slot.scope)].at(slot.index);
  }
};

}  // namespace shardproof
