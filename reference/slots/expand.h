// From a program over arrays to the same program over coordinates (program.h): what the identities
// (spec §1) are about and slot_run runs.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "reference/result.h"
#include "reference/slots/array_program.h"
#include "reference/slots/classified_program.h"

namespace shardproof {

// Where the slots of arrays stand among those of coordinates: from coarse scopes to fine ones,
// those of one element next to each other.
class SlotLayout {
 public:
  SlotLayout(const ArrayProgram& program, std::span<const ParameterShape> shapes);

  std::size_t slots() const { return slots_; }  // expand() takes it up to kMostSlots
  Slot operator()(ArraySlot slot, std::size_t element) const {
    const auto scope = index_of(slot.scope);
    return static_cast<Slot>(first_[scope] + element * each_[scope] + slot.index);
  }

 private:
  std::array<std::size_t, kScopes> first_{}, each_{};
  std::size_t slots_ = 0;
};
inline constexpr std::size_t kMostSlots = 0xffffffff;

// The program over the elements of parameters of these shapes. Its first slots are where SlotLayout
// says, then come constants of its own. Slots of coordinates belong to their coordinate (numbered
// as elements are), all others are shared. The first stage begins with all constants; assignments
// in a row to one scope are done element by element; a sum is a copy and then additions in order
// (of none the constant 0), a mean divides it by a constant. Each collective sum or mean ends a
// stage. Throws std::length_error for more than kMostSlots slots.
ClassifiedProgram expand(const ArrayProgram& program, std::span<const ParameterShape> shapes);

// "1000,7,0,5,4x3": shapes of parameters, a number for a vector, rows x columns for a matrix. An
// error quotes the text: no number, or more than 2^32 − 1 coordinates, rows or columns.
Result<std::vector<ParameterShape>> parse_shapes(std::string_view text);

}  // namespace shardproof
