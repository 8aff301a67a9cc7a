// Whether assignments compute what a fused kernel computes (device/kernels/fused_steps.cuh): the
// same expression for every slot that is kept, up to the names of slots. Two lists with equal
// expressions give the same bits, in whatever order they stand. C++17, since nvcc reads it too.
#pragma once

#include <optional>
#include <vector>

#include "reference/slots/array_assignment.h"

namespace shardproof {

enum class FusedKernel { adamw, momentum, lion };

struct FusedStep {
  FusedKernel kernel;
  std::vector<std::uint16_t> fields;  // the coordinate slot of each of the kernel's fields
  std::vector<ArraySlot> scalars;     // the slot of each scalar: shared, or one a parameter
};

// `assignments` as of an OwnedStepCall; kept[k]: coordinate slot k is in memory.
std::optional<FusedStep> fused_step(const std::vector<ArrayAssignment>& assignments,
                                    const std::vector<bool>& kept);

}  // namespace shardproof
