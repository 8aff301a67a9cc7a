#include "reference/slots/expand.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

#include "reference/slots/array_elements.h"
#include "reference/slots/array_state.h"

namespace shardproof {
namespace {

using Reduction = ArrayProgram::Reduction;
using Statement = ArrayProgram::Statement;

class Expander {
 public:
  Expander(const ArrayProgram& program, std::span<const ParameterShape> shapes)
      : program_(program),
        shapes_(shapes),
        parameters_(place(shapes)),
        layout_(program, shapes),
        slots_(layout_.slots()) {
    if (slots_ > kMostSlots) throw std::length_error("expand: more than 2^32 - 1 slots");
  }

  ClassifiedProgram expand() {
    stages_.emplace_back();
    set_constants();
    for (const Run& run : runs_of(program_)) {
      const Statement& first = program_.statements[run.first];
      if (const auto* reduction = std::get_if<Reduction>(&first.does)) {
        reduce(*reduction, first.position);
      } else {
        assign({&first, run.end - run.first});
      }
    }
    if (slots_ > kMostSlots) throw std::length_error("expand: more than 2^32 - 1 slots");
    return finished();
  }

 private:
  void add(const Assignment& assignment, Position position) {
    stages_.back().program.assignments.push_back(assignment);
    stages_.back().positions.push_back(position);
  }

  static Assignment constant(Program& program, Slot target, const Rational& value) {
    program.constants.push_back(value);
    return {target, ValueFunction::constant, {static_cast<Slot>(program.constants.size() - 1)}};
  }

  void set_constants() {
    const auto& shared = program_.slots[index_of(Scope::shared)];
    for (std::size_t i = 0; i < shared.size(); ++i) {
      if (shared[i].role != ArrayProgram::Role::constant) continue;
      const Slot slot = layout_({Scope::shared, static_cast<std::uint16_t>(i)}, 0);
      add(constant(stages_[0].program, slot, *shared[i].initial), {});
    }
    for (const Statement& statement : program_.statements) {
      const auto* reduction = std::get_if<Reduction>(&statement.does);
      if (reduction == nullptr || !reduction->mean) continue;
      for (const std::size_t count : counts(*reduction)) {
        const auto [found, is_new] = count_slots_.try_emplace(count);
        if (!is_new) continue;
        found->second = static_cast<Slot>(slots_++);
        add(constant(stages_[0].program, found->second, count), {});
      }
    }
  }

  // body(target's element, source's element), in the order of source elements.
  template <class Body>
  void for_each_source(const Reduction& reduction, Body&& body) const {
    const Scope source = reduction.source.scope;
    for (const PlacedParameter& parameter : parameters_) {
      for (std::size_t i = 0; i < parameter.elements(source); ++i) {
        body(parameter.holder(reduction.target.scope, source, i),
             parameter.holder(source, source, i));
      }
    }
  }
  // How many elements of the source each of the target holds.
  std::vector<std::size_t> counts(const Reduction& reduction) const {
    std::vector<std::size_t> counts(elements(reduction.target.scope, shapes_));
    for_each_source(reduction, [&](std::size_t target, std::size_t) { ++counts[target]; });
    return counts;
  }

  void assign(std::span<const Statement> statements) {
    const Scope scope = std::get<ArrayAssignment>(statements[0].does).target.scope;
    if (scope == Scope::shared) return assign_element(statements, PlacedParameter{}, 0);
    for (const PlacedParameter& parameter : parameters_) {
      for (std::size_t i = 0; i < parameter.elements(scope); ++i) {
        assign_element(statements, parameter, i);
      }
    }
  }
  void assign_element(std::span<const Statement> statements, const PlacedParameter& parameter,
                      std::size_t i) {
    for (const Statement& statement : statements) {
      const auto& from = std::get<ArrayAssignment>(statement.does);
      const auto slot = [&](ArraySlot read) {
        return layout_(read, parameter.holder(read.scope, from.target.scope, i));
      };
      Assignment assignment{slot(from.target), from.function, {}};
      for (std::size_t k = 0; k < arity(from.function); ++k) {
        assignment.reads[k] = slot(from.reads[k]);
      }
      add(assignment, statement.position);
    }
  }

  void reduce(const Reduction& reduction, Position position) {
    Program& program = reduction.collective ? stages_.back().collective : stages_.back().program;
    const std::size_t before = program.assignments.size();
    std::vector<std::size_t> counts(elements(reduction.target.scope, shapes_));
    for_each_source(reduction, [&](std::size_t element, std::size_t source_element) {
      const Slot target = layout_(reduction.target, element);
      const Slot source = layout_(reduction.source, source_element);
      program.assignments.push_back(counts[element]++ == 0
                                        ? Assignment{target, ValueFunction::copy, {source}}
                                        : Assignment{target, ValueFunction::add, {target, source}});
    });
    for (std::size_t element = 0; element < counts.size(); ++element) {
      const Slot target = layout_(reduction.target, element);
      if (counts[element] == 0) program.assignments.push_back(constant(program, target, 0));
      if (reduction.mean) {
        program.assignments.push_back(
            {target, ValueFunction::divide, {target, count_slots_.at(counts[element])}});
      }
    }
    if (reduction.collective) {
      stages_.emplace_back();
    } else {
      stages_.back().positions.insert(stages_.back().positions.end(),
                                      program.assignments.size() - before, position);
    }
  }

  ClassifiedProgram finished() {
    ClassifiedProgram result{std::move(stages_), Classification(slots_),
                             std::vector<std::string>(slots_),
                             std::vector<std::optional<Rational>>(slots_)};
    for (ClassifiedProgram::Stage& stage : result.stages) {
      stage.program.slots = stage.collective.slots = slots_;
    }
    describe(result, Scope::shared, PlacedParameter{});
    for (const PlacedParameter& parameter : parameters_) {
      for (std::size_t scope = 1; scope < kScopes; ++scope) {
        describe(result, static_cast<Scope>(scope), parameter);
      }
    }
    return result;
  }
  void describe(ClassifiedProgram& result, Scope scope, const PlacedParameter& parameter) const {
    const auto& slots = program_.slots[index_of(scope)];
    for (std::size_t i = 0; i < parameter.elements(scope); ++i) {
      const std::size_t element = parameter.holder(scope, scope, i);
      const std::string place = parameter.place_of(scope, i);
      for (std::size_t index = 0; index < slots.size(); ++index) {
        const Slot slot = layout_({scope, static_cast<std::uint16_t>(index)}, element);
        if (!slots[index].name.empty()) result.names[slot] = slots[index].name + place;
        if (slots[index].role != ArrayProgram::Role::constant) {
          result.initial[slot] = slots[index].initial;
        }
        if (scope == Scope::coordinate) {
          result.classification.assign(slot, static_cast<Coordinate>(element));
        }
      }
    }
  }

  const ArrayProgram& program_;
  std::span<const ParameterShape> shapes_;
  std::vector<PlacedParameter> parameters_;
  SlotLayout layout_;
  std::size_t slots_;                        // with the constants of our own
  std::map<std::size_t, Slot> count_slots_;  // that hold what means divide by
  std::vector<ClassifiedProgram::Stage> stages_;
};

}  // namespace

SlotLayout::SlotLayout(const ArrayProgram& program, std::span<const ParameterShape> shapes) {
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    first_[scope] = slots_;
    each_[scope] = program.slots[scope].size();
    slots_ += each_[scope] * elements(static_cast<Scope>(scope), shapes);
  }
}

ClassifiedProgram expand(const ArrayProgram& program, std::span<const ParameterShape> shapes) {
  return Expander(program, shapes).expand();
}

Result<std::vector<ParameterShape>> parse_shapes(std::string_view text) {
  constexpr std::size_t longest_quote = 60;
  const auto wrong = [&](const std::string& what) {
    std::string quote(text.substr(0, longest_quote));
    if (text.size() > longest_quote) quote += "...";
    return Error{"sizes '" + quote + "' " + what};
  };
  const std::string mend = "; write sizes like 1000,7,0,5,4x3";
  std::vector<ParameterShape> shapes;
  const char* at = text.data();
  const char* const end = at + text.size();
  std::array<std::size_t, kScopes> total{};
  // Whether there is one; what is beyond kMostSlots is one more.
  const auto number = [&](std::size_t& value) {
    const auto [after, error] = std::from_chars(at, end, value);
    at = after;
    if (error == std::errc::result_out_of_range || value > kMostSlots) value = kMostSlots + 1;
    return error != std::errc::invalid_argument;
  };
  for (;;) {
    ParameterShape shape;
    bool found = number(shape.rows);
    if (found && at != end && *at == 'x') {
      ++at;
      found = number(shape.columns);
    }
    if (!found) {
      return wrong("have no whole number at character " + std::to_string(at - text.data() + 1) +
                   mend);
    }
    shapes.push_back(shape);
    for (const Scope scope : {Scope::row, Scope::column, Scope::coordinate}) {
      std::size_t& sum = total[index_of(scope)];
      sum += elements(scope, {&shapes.back(), 1});
      if (sum > kMostSlots) {
        return wrong("are absurd: more than " + std::to_string(kMostSlots) +
                     " coordinates, rows or columns; give smaller ones");
      }
    }
    if (at == end) return shapes;
    if (*at != ',') {
      return wrong("have '" + std::string(1, *at) + "' at character " +
                   std::to_string(at - text.data() + 1) + mend);
    }
    ++at;
  }
}

}  // namespace shardproof
