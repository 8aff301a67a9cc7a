#include "reference/slots/array_program.h"

#include "reference/slots/array_state.h"

namespace shardproof {

std::optional<ArraySlot> ArrayProgram::find(Role role) const {
  for (std::size_t scope = kScopes; scope-- > 0;) {
    for (std::size_t index = 0; index < slots[scope].size(); ++index) {
      if (slots[scope][index].role == role) {
        return ArraySlot{static_cast<Scope>(scope), static_cast<std::uint16_t>(index)};
      }
    }
  }
  return std::nullopt;
}

std::optional<std::size_t> ArrayProgram::across_coordinates() const {
  for (std::size_t i = 0; i < statements.size(); ++i) {
    const auto* reduction = std::get_if<Reduction>(&statements[i].does);
    if (reduction == nullptr || reduction->collective) continue;
    if (reduction->source.scope == Scope::coordinate) return i;
  }
  return std::nullopt;
}

std::size_t elements(Scope scope, std::span<const ParameterShape> shapes) {
  std::size_t count = 0;
  switch (scope) {
    case Scope::shared:
      return 1;
    case Scope::parameter:
      return shapes.size();
    case Scope::row:
      for (const ParameterShape& shape : shapes) count += shape.rows;
      return count;
    case Scope::column:
      for (const ParameterShape& shape : shapes) count += shape.columns;
      return count;
    case Scope::coordinate:
      for (const ParameterShape& shape : shapes) count += shape.size();
      return count;
  }
  return 0;
}

}  // namespace shardproof
