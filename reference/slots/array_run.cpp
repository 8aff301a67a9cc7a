#include "reference/slots/array_run.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "reference/slots/array_elements.h"
#include "reference/slots/running_error.h"

namespace shardproof {
namespace {

using Reduction = ArrayProgram::Reduction;
using Role = ArrayProgram::Role;
using Statement = ArrayProgram::Statement;

constexpr std::size_t block_elements = 1024;

// target[i] = operation(reads[0][i], …) for i < count. The target may be one of what is read.
template <class T, class Operation>
void apply(std::size_t count, T* target, const std::array<const T*, 3>& reads,
           Operation operation) {
  const T *const a = reads[0], *const b = reads[1], *const c = reads[2];
  const auto element = [&](std::size_t i) {
    if constexpr (std::is_invocable_v<Operation, T, T, T>) {
      target[i] = operation(a[i], b[i], c[i]);
    } else if constexpr (std::is_invocable_v<Operation, T, T>) {
      target[i] = operation(a[i], b[i]);
    } else {
      target[i] = operation(a[i]);
    }
  };
  if constexpr (std::is_arithmetic_v<T>) {
#pragma omp simd
    for (std::size_t i = 0; i < count; ++i) element(i);
  } else {
    for (std::size_t i = 0; i < count; ++i) element(i);
  }
}

template <class T>
class ArrayRunner {
 public:
  ArrayRunner(ArrayState<T>& state, const ArrayProgram& program,
              std::span<const ParameterShape> shapes, const CollectiveValues<T>& collective,
              const Arithmetic<T>& arithmetic)
      : state_(state),
        program_(program),
        shapes_(shapes),
        parameters_(place(shapes)),
        collective_(collective),
        arithmetic_(arithmetic) {}

  void run() {
    const std::vector<Run> runs = runs_of(program_);
    find_local_targets(runs);
    prepare_state();
    for (const Run& run : runs) {
      if (const auto* reduction = std::get_if<Reduction>(&program_.statements[run.first].does)) {
        reduce(*reduction, run.first);
      } else {
        assign(run);
      }
    }
  }

 private:
  const ArrayAssignment& assignment(std::size_t i) const {
    return std::get<ArrayAssignment>(program_.statements[i].does);
  }

  // A temporary is local to a run when no value of it enters or leaves the run.
  void find_local_targets(const std::vector<Run>& runs) {
    local_.assign(program_.statements.size(), false);
    std::array<std::vector<bool>, kScopes> live;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      live[scope].assign(program_.slots[scope].size(), false);
    }
    const auto lives = [&](ArraySlot slot) { return live[index_of(slot.scope)].at(slot.index); };
    for (std::size_t r = runs.size(); r-- > 0;) {
      const auto [first, end] = runs[r];
      if (const auto* reduction = std::get_if<Reduction>(&program_.statements[first].does)) {
        lives(reduction->target) = false;
        lives(reduction->source) = true;
        continue;
      }
      for (std::size_t i = first; i < end; ++i) {
        const ArraySlot target = assignment(i).target;
        local_[i] = program_.info(target).role == Role::temporary && !lives(target);
      }
      for (std::size_t i = end; i-- > first;) {
        lives(assignment(i).target) = false;
        for (std::size_t k = 0; k < arity(assignment(i).function); ++k) {
          lives(assignment(i).reads[k]) = true;
        }
      }
      for (std::size_t i = first; i < end; ++i) {
        if (lives(assignment(i).target)) local_[i] = false;
      }
    }
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t i = 0; i < live[scope].size(); ++i) {
        if (live[scope][i] && program_.slots[scope][i].role == Role::temporary) {
          throw std::invalid_argument("array_run: a temporary is read before it is assigned");
        }
      }
    }
  }

  // Sets the constants and makes the temporaries that are not local.
  void prepare_state() {
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      const auto& slots = program_.slots[scope];
      const std::size_t count = elements(static_cast<Scope>(scope), shapes_);
      state_.values[scope].resize(slots.size());
      for (std::size_t i = 0; i < slots.size(); ++i) {
        std::vector<T>& values = state_.values[scope][i];
        if (slots[i].role == Role::constant) {
          values.assign(count, arithmetic_.constant(*slots[i].initial));
        } else if (slots[i].role != Role::temporary && values.size() != count) {
          throw std::invalid_argument("array_run: " + std::to_string(values.size()) +
                                      " values of " + slots[i].name + " for " +
                                      std::to_string(count) + " elements");
        }
      }
    }
    for (std::size_t i = 0; i < program_.statements.size(); ++i) {
      const ArraySlot target = program_.statements[i].target();
      if (!local_[i]) state_[target].resize(elements(target.scope, shapes_));
    }
  }

  // What the assignments of a run read and write, and these in terms of that.
  struct View {
    enum class Kind : std::uint8_t { stored, local, spread };  // spread: of a coarser scope
    ArraySlot slot;
    Kind kind;
    T* data;  // of the block at hand; of a stored one, where that is in the state
  };
  struct Instruction {
    ValueFunction function;
    std::size_t target;
    std::array<std::size_t, 3> reads;
  };
  struct Plan {
    Scope scope;
    std::vector<View> views;
    std::vector<Instruction> instructions;
  };

  Plan plan_of(const Run& run) const {
    Plan plan{assignment(run.first).target.scope, {}, {}};
    std::map<ArraySlot, std::size_t> places;
    const auto view = [&](ArraySlot slot, typename View::Kind kind) {
      const auto [found, is_new] = places.try_emplace(slot, plan.views.size());
      if (is_new) plan.views.push_back({slot, kind, nullptr});
      return found->second;
    };
    for (std::size_t i = run.first; i < run.end; ++i) {
      view(assignment(i).target, local_[i] ? View::Kind::local : View::Kind::stored);
    }
    for (std::size_t i = run.first; i < run.end; ++i) {
      const ArrayAssignment& from = assignment(i);
      Instruction instruction{from.function, view(from.target, View::Kind::stored), {}};
      for (std::size_t k = 0; k < arity(from.function); ++k) {
        const bool coarser = from.reads[k].scope != plan.scope;
        instruction.reads[k] =
            view(from.reads[k], coarser ? View::Kind::spread : View::Kind::stored);
      }
      plan.instructions.push_back(instruction);
    }
    return plan;
  }

  void assign(const Run& run) {
    Plan plan = plan_of(run);
    const std::size_t count = elements(plan.scope, shapes_);
    std::vector<T> buffers(plan.views.size() * std::min(count, block_elements));
    T* next = buffers.data();
    bool of_parameters = false;  // whether parameters must be told apart
    for (View& view : plan.views) {
      if (view.kind == View::Kind::stored) continue;
      view.data = next;
      next += std::min(count, block_elements);
      if (view.kind == View::Kind::spread && view.slot.scope != Scope::shared) of_parameters = true;
    }
    if (!of_parameters) return assign_range(plan, PlacedParameter{}, 0, count);
    for (const PlacedParameter& parameter : parameters_) {
      assign_range(plan, parameter, parameter.first[index_of(plan.scope)],
                   parameter.elements(plan.scope));
    }
  }

  // For `count` elements from `first`, all of that parameter where it matters.
  void assign_range(Plan& plan, const PlacedParameter& parameter, std::size_t first,
                    std::size_t count) {
    for (const View& view : plan.views) {
      if (view.kind != View::Kind::spread || view.slot.scope > Scope::parameter) continue;
      const T& value = state_[view.slot][parameter.first[index_of(view.slot.scope)]];
      std::fill_n(view.data, std::min(count, block_elements), value);
    }
    for (std::size_t at = 0; at < count; at += block_elements) {
      const std::size_t here = std::min(count - at, block_elements);
      for (View& view : plan.views) {
        if (view.kind == View::Kind::stored) {
          view.data = state_[view.slot].data() + first + at;
        } else if (view.kind == View::Kind::spread && view.slot.scope > Scope::parameter) {
          spread(view, parameter, at, here);
        }
      }
      for (const Instruction& instruction : plan.instructions) {
        std::array<const T*, 3> reads{};
        for (std::size_t k = 0; k < arity(instruction.function); ++k) {
          reads[k] = plan.views[instruction.reads[k]].data;
        }
        T* const target = plan.views[instruction.target].data;
        with_operation(instruction.function, arithmetic_,
                       [&](auto, auto operation) { apply(here, target, reads, operation); });
      }
    }
  }

  // The values of rows or columns for `count` coordinates of a parameter, from its `at`-th.
  void spread(const View& view, const PlacedParameter& parameter, std::size_t at,
              std::size_t count) {
    const std::size_t columns = parameter.shape.columns;
    const T* const values = state_[view.slot].data() + parameter.first[index_of(view.slot.scope)];
    std::size_t row = at / columns, column = at % columns;
    for (std::size_t i = 0; i < count; ++i) {
      view.data[i] = values[view.slot.scope == Scope::row ? row : column];
      if (++column == columns) {
        column = 0;
        ++row;
      }
    }
  }

  void reduce(const Reduction& reduction, std::size_t statement) {
    std::vector<T>& values = state_[reduction.target];
    const std::vector<T>& source = state_[reduction.source];
    if (reduction.collective && collective_) return collective_(statement, source, values);
    const Scope fine = reduction.source.scope, coarse = reduction.target.scope;
    std::vector<std::size_t> counts(values.size());
    // What stands in a row goes to one element, or to one each in columns.
    for (const PlacedParameter& parameter : parameters_) {
      const std::size_t rows = fine == Scope::coordinate ? parameter.shape.rows : 1;
      const std::size_t columns = parameter.elements(fine) / std::max<std::size_t>(rows, 1);
      for (std::size_t row = 0; row < rows && columns > 0; ++row) {
        const T* const from = source.data() + parameter.holder(fine, fine, row * columns);
        const std::size_t element = parameter.holder(coarse, fine, row * columns);
        if (coarse == Scope::column) {
          for (std::size_t i = 0; i < columns; ++i) {
            T& value = values[element + i];
            value = counts[element + i]++ == 0 ? from[i] : arithmetic_.add(value, from[i]);
          }
        } else {
          T value = counts[element] == 0 ? from[0] : arithmetic_.add(values[element], from[0]);
          for (std::size_t i = 1; i < columns; ++i) value = arithmetic_.add(value, from[i]);
          values[element] = std::move(value);
          counts[element] += columns;
        }
      }
    }
    for (std::size_t element = 0; element < counts.size(); ++element) {
      T& value = values[element];
      if (counts[element] == 0) value = arithmetic_.constant(0);
      if (reduction.mean) value = arithmetic_.divide(value, arithmetic_.constant(counts[element]));
    }
  }

  ArrayState<T>& state_;
  const ArrayProgram& program_;
  std::span<const ParameterShape> shapes_;
  std::vector<PlacedParameter> parameters_;
  const CollectiveValues<T>& collective_;
  const Arithmetic<T>& arithmetic_;
  std::vector<bool> local_;  // of each statement: whether its target is
};

}  // namespace

template <class T>
ArrayState<T> array_run(ArrayState<T> state, const ArrayProgram& program,
                        std::span<const ParameterShape> shapes,
                        const CollectiveValues<T>& collective, const Arithmetic<T>& arithmetic) {
  ArrayRunner<T>(state, program, shapes, collective, arithmetic).run();
  return state;
}

template ArrayState<float> array_run(ArrayState<float>, const ArrayProgram&,
                                     std::span<const ParameterShape>,
                                     const CollectiveValues<float>&, const Arithmetic<float>&);
template ArrayState<double> array_run(ArrayState<double>, const ArrayProgram&,
                                      std::span<const ParameterShape>,
                                      const CollectiveValues<double>&, const Arithmetic<double>&);
template ArrayState<BFloat16> array_run(ArrayState<BFloat16>, const ArrayProgram&,
                                        std::span<const ParameterShape>,
                                        const CollectiveValues<BFloat16>&,
                                        const Arithmetic<BFloat16>&);
template ArrayState<Float16> array_run(ArrayState<Float16>, const ArrayProgram&,
                                       std::span<const ParameterShape>,
                                       const CollectiveValues<Float16>&,
                                       const Arithmetic<Float16>&);
template ArrayState<std::uint32_t> array_run(ArrayState<std::uint32_t>, const ArrayProgram&,
                                             std::span<const ParameterShape>,
                                             const CollectiveValues<std::uint32_t>&,
                                             const Arithmetic<std::uint32_t>&);
template ArrayState<Rational> array_run(ArrayState<Rational>, const ArrayProgram&,
                                        std::span<const ParameterShape>,
                                        const CollectiveValues<Rational>&,
                                        const Arithmetic<Rational>&);
template ArrayState<Term> array_run(ArrayState<Term>, const ArrayProgram&,
                                    std::span<const ParameterShape>, const CollectiveValues<Term>&,
                                    const Arithmetic<Term>&);
template ArrayState<Interval<30>> array_run(ArrayState<Interval<30>>, const ArrayProgram&,
                                            std::span<const ParameterShape>,
                                            const CollectiveValues<Interval<30>>&,
                                            const Arithmetic<Interval<30>>&);
template ArrayState<Interval<80>> array_run(ArrayState<Interval<80>>, const ArrayProgram&,
                                            std::span<const ParameterShape>,
                                            const CollectiveValues<Interval<80>>&,
                                            const Arithmetic<Interval<80>>&);

template ArrayState<RunningError> array_run(ArrayState<RunningError>, const ArrayProgram&,
                                            std::span<const ParameterShape>,
                                            const CollectiveValues<RunningError>&,
                                            const Arithmetic<RunningError>&);

}  // namespace shardproof
