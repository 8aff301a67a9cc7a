// Trial: the device that a case is tried on, and where a case that was found wrong is left.
#pragma once

#include <variant>

#include "diff/unit_case.h"

namespace shardproof {

struct Trial {
  using Wrong = std::variant<std::monostate, UnitCase>;

  const DeviceMaker& make;
  Wrong wrong;  // in its own numbers
};

}  // namespace shardproof
