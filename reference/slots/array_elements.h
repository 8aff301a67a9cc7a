// Which element of a coarse scope holds which elements of a fine one.
#pragma once

#include <array>
#include <cstddef>
#include <span>
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
  // The element of `coarse` that holds its i-th element of `fine`, where `coarse` is not the finer
  // one.
  std::size_t holder(Scope coarse, Scope fine, std::size_t i) const {
    const std::size_t start = first[static_cast<std::size_t>(coarse)];
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

}  // namespace shardproof
