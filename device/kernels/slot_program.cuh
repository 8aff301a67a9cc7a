// Runs the assignments of a slot program: per owned coordinate, or per element of a coarser scope.
// A thread takes several coordinates and does each assignment for all of them before the next, so
// that the list is read once for many. Temporaries lie in shared memory, which serves as the
// threads' registers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/slot_functions.cuh"
#include "device/runtime/cuda_subset.h"
#include "reference/slots/array_assignment.h"

namespace shardproof::SHARDPROOF_BACKEND {

// A slot's values by position (coordinates) or element of its scope; null: temporary number
// `temporary` of the thread.
struct StepOperand {
  float* data;
  std::uint32_t temporary;
  Scope scope;
};

struct StepInstruction {
  StepOperand target;
  StepOperand reads[3];
  std::uint32_t read_count;
  ValueFunction function;
};

// The run of coordinates of a launch (OwnedStepCall has the same fields).
struct StepRun {
  std::size_t first, count;
  std::size_t parameter, first_row, first_column, columns;
  const std::uint32_t* element_at;
  std::size_t first_element;
};

constexpr unsigned step_block = 64;
constexpr unsigned step_numbers = 8;  // coordinates a thread takes, at most
constexpr std::size_t step_shared_bytes = 48 * 1024;
constexpr std::size_t most_temporaries = step_shared_bytes / (step_block * sizeof(float));

// Coordinates a thread takes, so that this many temporaries of each fit into shared memory.
constexpr unsigned step_numbers_for(std::size_t temporaries) {
  const std::size_t fit = temporaries == 0 ? step_numbers : most_temporaries / temporaries;
  return fit < step_numbers ? static_cast<unsigned>(fit) : step_numbers;
}

// The numbers of one operand that a thread takes: every step-th from `data` on.
struct StepView {
  float* data;
  std::size_t step;
  __device__ __forceinline__ float& operator[](unsigned n) const { return data[n * step]; }
};

// to[n] = function(of a[n], b[n], c[n]) for n below `count`.
__device__ __forceinline__ void apply(ValueFunction function, unsigned count, StepView to,
                                      StepView a, StepView b, StepView c) {
  const auto each = [=](auto value) {
    for (unsigned n = 0; n < count; ++n) to[n] = value(n);
  };
  switch (function) {
    case ValueFunction::constant:
      return;  // constants are slots
    case ValueFunction::copy:
      return each([=](unsigned n) { return a[n]; });
    case ValueFunction::negate:
      return each([=](unsigned n) { return -a[n]; });
    case ValueFunction::square_root:
      return each([=](unsigned n) { return square_root(a[n]); });
    case ValueFunction::absolute:
      return each([=](unsigned n) { return fabsf(a[n]); });
    case ValueFunction::sign:
      return each([=](unsigned n) { return sign(a[n]); });
    case ValueFunction::add:
      return each([=](unsigned n) { return a[n] + b[n]; });
    case ValueFunction::subtract:
      return each([=](unsigned n) { return a[n] - b[n]; });
    case ValueFunction::multiply:
      return each([=](unsigned n) { return a[n] * b[n]; });
    case ValueFunction::divide:
      return each([=](unsigned n) { return a[n] / b[n]; });
    case ValueFunction::minimum:
      return each([=](unsigned n) { return minimum(a[n], b[n]); });
    case ValueFunction::maximum:
      return each([=](unsigned n) { return maximum(a[n], b[n]); });
    case ValueFunction::less:
      return each([=](unsigned n) { return truth(a[n] < b[n]); });
    case ValueFunction::less_equal:
      return each([=](unsigned n) { return truth(a[n] <= b[n]); });
    case ValueFunction::equal:
      return each([=](unsigned n) { return truth(a[n] == b[n]); });
    case ValueFunction::not_equal:
      return each([=](unsigned n) { return truth(a[n] != b[n]); });
    case ValueFunction::fused_multiply_add:
      return each([=](unsigned n) { return fmaf(a[n], b[n], c[n]); });
    case ValueFunction::select:
      return each([=](unsigned n) { return select(a[n], b[n], c[n]); });
  }
}

// Grid: ⌈run.count / (step_block · numbers)⌉ blocks of step_block threads; numbers is
// step_numbers_for(temporaries), shared memory temporaries · numbers · step_block floats.
__global__ void owned_step(const StepInstruction* instructions, std::size_t instruction_count,
                           StepRun run, unsigned numbers) {
  const std::size_t begin = std::size_t{blockIdx.x} * blockDim.x * numbers + threadIdx.x;
  if (begin >= run.count) return;
  const std::size_t left = (run.count - begin + blockDim.x - 1) / blockDim.x;
  const unsigned count = left < numbers ? static_cast<unsigned>(left) : numbers;
  float* const temporaries = shared_memory<float>() + threadIdx.x;
  float of_rows_or_columns[3][step_numbers];
  const auto element = [=](unsigned n) {
    const std::size_t i = begin + std::size_t{n} * blockDim.x;
    return run.element_at != nullptr ? run.element_at[run.first + i] : run.first_element + i;
  };
  const auto view = [&](const StepOperand& operand, float* gathered) -> StepView {
    switch (operand.scope) {
      case Scope::shared:
        return {operand.data, 0};
      case Scope::parameter:
        return {operand.data + run.parameter, 0};
      case Scope::row:
        for (unsigned n = 0; n < count; ++n)
          gathered[n] = operand.data[run.first_row + element(n) / run.columns];
        return {gathered, 1};
      case Scope::column:
        for (unsigned n = 0; n < count; ++n)
          gathered[n] = operand.data[run.first_column + element(n) % run.columns];
        return {gathered, 1};
      case Scope::coordinate:
        break;
    }
    float* const data = operand.data != nullptr
                            ? operand.data + run.first + begin
                            : temporaries + std::size_t{operand.temporary} * numbers * blockDim.x;
    return {data, blockDim.x};
  };
  for (std::size_t i = 0; i < instruction_count; ++i) {
    const StepInstruction& instruction = instructions[i];
    StepView reads[3]{};
    for (std::uint32_t k = 0; k < instruction.read_count; ++k)
      reads[k] = view(instruction.reads[k], of_rows_or_columns[k]);
    apply(instruction.function, count, view(instruction.target, nullptr), reads[0], reads[1],
          reads[2]);
  }
}

// Assignments whose targets all have one scope, coarser than coordinate. `parameter_of`: the
// parameter of each of its elements, where that scope is row or column. Grid: a thread an element.
__global__ void shared_step(const StepInstruction* instructions, std::size_t instruction_count,
                            std::size_t elements, const std::uint32_t* parameter_of) {
  const std::size_t element = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (element >= elements) return;
  const auto view = [=](const StepOperand& operand, Scope target) -> StepView {
    if (operand.scope == Scope::shared) return {operand.data, 0};
    if (operand.scope == target) return {operand.data + element, 0};
    return {operand.data + parameter_of[element], 0};
  };
  for (std::size_t i = 0; i < instruction_count; ++i) {
    const StepInstruction& instruction = instructions[i];
    const Scope target = instruction.target.scope;
    StepView reads[3]{};
    for (std::uint32_t k = 0; k < instruction.read_count; ++k)
      reads[k] = view(instruction.reads[k], target);
    apply(instruction.function, 1, view(instruction.target, target), reads[0], reads[1], reads[2]);
  }
}

}  // namespace shardproof::SHARDPROOF_BACKEND
