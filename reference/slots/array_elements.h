// What everyone who goes through an array program's elements needs: which element of a coarse scope
// holds which of a fine one, and which statements may be done element by element.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "reference/slots/array_program.h"

namespace shardproof {

// A parameter among the others.
struct PlacedParameter {
  std::size_t index = 0;
  ParameterShape shape;
  std::array<std::size_t, kScopes> first{};  // its first element of each scope

  // Its elements of a scope other than shared.
  std::size_t elements(Scope scope) const {
    switch (scope) {
      case Scope::row:
        return shape.rows;
      case Scope::column:
        return shape.columns;
      case Scope::coordinate:
        return shape.size();
      case Scope::shared:
      case Scope::parameter:
        break;
    }
    return 1;
  }
  // How its i-th element of a scope is told from others of a slot: "[1][3]" is element 3 of
  // parameter 1, "[1]" the one of a slot of scope parameter, and nothing that of a shared one.
  std::string place_of(Scope scope, std::size_t i) const {
    if (scope == Scope::shared) return {};
    const std::string parameter = "[" + std::to_string(index) + "]";
    return scope == Scope::parameter ? parameter : parameter + "[" + std::to_string(i) + "]";
  }
  // The element of `coarse` that holds its i-th element of `fine`, where `coarse` is not the finer
  // one.
  std::size_t holder(Scope coarse, Scope fine, std::size_t i) const {
    const std::size_t start = first[index_of(coarse)];
    if (coarse == fine) return start + i;
    if (coarse == Scope::row) return start + i / shape.columns;
    if (coarse == Scope::column) return start + i % shape.columns;
    return start;
  }
};

inline std::vector<PlacedParameter> place(std::span<const ParameterShape> shapes) {
  std::vector<PlacedParameter> parameters;
  PlacedParameter next;
  for (const ParameterShape& shape : shapes) {
    next.shape = shape;
    parameters.push_back(next);
    ++next.index;
    for (std::size_t scope = 1; scope < kScopes; ++scope) {
      next.first[scope] += next.elements(static_cast<Scope>(scope));
    }
  }
  return parameters;
}

// Statements first … end − 1: assignments to one scope, so that doing them all for one element and
// then for the next changes nothing; or one reduction.
struct Run {
  std::size_t first = 0, end = 0;
};

inline std::vector<Run> runs_of(const ArrayProgram& program) {
  std::vector<Run> runs;
  const auto scope_of = [&](std::size_t i) -> std::optional<Scope> {
    const auto* assignment = std::get_if<ArrayAssignment>(&program.statements[i].does);
    if (assignment == nullptr) return std::nullopt;
    return assignment->target.scope;
  };
  for (std::size_t i = 0; i < program.statements.size(); ++i) {
    const bool continues = i > 0 && scope_of(i) && scope_of(i) == scope_of(i - 1);
    if (!continues) runs.push_back({i, i});
    runs.back().end = i + 1;
  }
  return runs;
}

}  // namespace shardproof
