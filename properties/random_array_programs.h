// Optimizer steps for the identities of spec §1 on a device: slot programs over arrays of all that
// the text form can say, and whole cases of them with numbers of their own. Each is a function of a
// few drawn sizes and kinds and of one seed.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "diff/program_case.h"
#include "diff/program_signoff.h"
#include "properties/identity.h"
#include "reference/numbers/random.h"
#include "reference/slots/array_program.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/text.h"

namespace shardproof {

struct ArrayProgramSizes {
  std::size_t assignments = 0;
  std::size_t slots = 0;  // of state, of temporaries and of each coarser scope, at most
};

// The text of a separable program. Slots of every scope, some without a start; targets repeat, also
// at once, so that many assignments are dead; sums and means of coordinates are collectives, those
// of rows, columns and parameters are not, so that each rank adds them up alone. One program in
// eight has no gradient, one no parameter.
class RandomArrayProgram {
 public:
  RandomArrayProgram(const ArrayProgramSizes& sizes, Random random) : random_(random) {
    using Kind = ProgramText::Declaration::Kind;
    text_.name = "random";
    const auto declare = [&](Kind kind, Scope scope, const std::string& prefix, std::size_t count) {
      for (std::size_t k = 0; k < count; ++k) {
        const bool is_temporary = kind == Kind::temporary, is_gradient = kind == Kind::gradient;
        const bool has_start = !is_temporary && !is_gradient && kind != Kind::parameter;
        const std::string name = prefix + (count == 1 ? "" : std::to_string(k));
        slots_.push_back({name, scope, !is_temporary});
        text_.declarations.push_back(
            {kind, 0, {{name, has_start && random_.below(3) != 0 ? number() : "", {}}}, {}});
      }
    };
    declare(Kind::parameter, Scope::coordinate, "p", random_.below(8) != 0 ? 1 : 0);
    declare(Kind::gradient, Scope::coordinate, "g", random_.below(8) != 0 ? 1 : 0);
    declare(Kind::state, Scope::coordinate, "m", random_.below(sizes.slots + 1));
    declare(Kind::temporary, Scope::coordinate, "t", random_.below(sizes.slots + 1));
    declare(Kind::shared, Scope::shared, "s", random_.below(sizes.slots + 1));
    declare(Kind::per_parameter, Scope::parameter, "a", random_.below(sizes.slots + 1));
    declare(Kind::per_row, Scope::row, "r", random_.below(sizes.slots + 1));
    declare(Kind::per_column, Scope::column, "c", random_.below(sizes.slots + 1));
    if (slots_.empty()) declare(Kind::state, Scope::coordinate, "m", 1);
    std::size_t target = random_.below(slots_.size());
    for (std::size_t i = 0; i < sizes.assignments; ++i) {
      if (random_.below(5) != 0) target = random_.below(slots_.size());
      assign(slots_[target]);
    }
  }

  const ProgramText& text() const { return text_; }

 private:
  using Kind = ExpressionNode::Kind;
  struct Slot {
    std::string name;
    Scope scope;
    bool readable;
  };

  static bool holds(Scope coarse, Scope fine) {
    return coarse == fine || coarse == Scope::shared || fine == Scope::coordinate ||
           (coarse == Scope::parameter && fine != Scope::shared);
  }

  // Small whole numbers, fractions that round, very small and large ones.
  std::string number() {
    static constexpr std::array<const char*, 12> kNumbers = {
        "0", "1", "2", "0.5", "0.1", "0.9", "3", "7", "1e-3", "1e-8", "1000000", "0x1.8p-20"};
    return kNumbers[random_.below(kNumbers.size())];
  }

  void assign(Slot& target) {
    ProgramText::Assigned assigned;
    assigned.target = target.name;
    Scope scope = target.scope;
    std::vector<Scope> finer;
    for (const Slot& slot : slots_) {
      if (slot.readable && slot.scope != target.scope && holds(target.scope, slot.scope)) {
        finer.push_back(slot.scope);
      }
    }
    if (!finer.empty() && random_.coin()) {
      using Reduction = ProgramText::Assigned::Reduction;
      assigned.reduction = random_.below(3) == 0 ? Reduction::mean : Reduction::sum;
      scope = finer[random_.below(finer.size())];
      assigned.all_reduce = scope == Scope::coordinate;
      std::vector<std::size_t> sources;
      for (std::size_t i = 0; i < slots_.size(); ++i) {
        if (slots_[i].readable && slots_[i].scope == scope) sources.push_back(i);
      }
      assigned.expression = {slot(slots_[sources[random_.below(sources.size())]])};
      if (random_.coin()) grow(assigned.expression, scope, 2);
    } else {
      assigned.expression = tree(scope, 3);
    }
    text_.assignments.push_back(std::move(assigned));
    target.readable = true;
  }

  static ExpressionNode slot(const Slot& slot) { return {Kind::slot, slot.name, 0, {}}; }

  Expression leaf(Scope scope) {
    std::vector<std::size_t> readable;
    for (std::size_t i = 0; i < slots_.size(); ++i) {
      if (slots_[i].readable && holds(slots_[i].scope, scope)) readable.push_back(i);
    }
    if (readable.empty() || random_.below(4) == 0) return {{Kind::number, number(), 0, {}}};
    return {slot(slots_[readable[random_.below(readable.size())]])};
  }

  Expression tree(Scope scope, int depth) {
    Expression expression = leaf(scope);
    if (depth > 0 && random_.below(4) != 0) grow(expression, scope, depth);
    return expression;
  }

  // Makes the expression the first operand of any operation.
  void grow(Expression& expression, Scope scope, int depth) {
    const auto first = static_cast<std::size_t>(Kind::negate);
    const auto last = static_cast<std::size_t>(Kind::fused_multiply_add);
    ExpressionNode node;
    node.kind = static_cast<Kind>(first + random_.below(last - first + 1));
    if (node.kind == Kind::power) {
      static constexpr std::array<int, 6> kExponents = {-2, -1, 0, 1, 2, 3};
      node.exponent = kExponents[random_.below(kExponents.size())];
    }
    for (std::size_t k = 1; k < operands(node.kind); ++k) {
      const Expression operand = tree(scope, depth - 1);
      expression.insert(expression.end(), operand.begin(), operand.end());
    }
    expression.push_back(node);
    if (depth > 1 && random_.coin()) grow(expression, scope, depth - 1);
  }

  Random random_;
  ProgramText text_;
  std::vector<Slot> slots_;
};

inline std::string random_array_program_text(const ArrayProgramSizes& sizes, Random random) {
  return print(RandomArrayProgram(sizes, random).text());
}

inline ArrayProgram random_array_program(const ArrayProgramSizes& sizes, Random random) {
  Result<ArrayProgram> program =
      compile_separable("random", random_array_program_text(sizes, random));
  if (!program) throw std::logic_error(program.error());
  return *std::move(program);
}

// Those of the optimizers that come with the project that are separable, by name, then none: a
// random program.
inline const std::vector<std::string_view>& kinds_of_program() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> separable = optimizer_names();
    std::erase_if(separable, [](const std::string& name) {
      return !compile_separable(name, *optimizer_text(name));
    });
    separable.insert(separable.begin(), "a random program");
    return separable;
  }();
  static const std::vector<std::string_view> kinds(names.begin(), names.end());
  return kinds;
}

struct ProgramCaseSizes {
  std::size_t kind = 0;       // of kinds_of_program
  ArrayProgramSizes program;  // of a random one
  std::vector<ParameterShape> shapes;
  std::size_t ranks = 1;
  OwnerMap owners = OwnerMap::blocks;
  std::size_t steps = 1;
  Variation variation;
  Schedule schedule;
};

inline ProgramCase random_program_case(const ProgramCaseSizes& sizes, std::uint64_t seed) {
  const std::string text = sizes.kind == 0
                               ? random_array_program_text(sizes.program, Random(seed, "program"))
                               : std::string(*optimizer_text(kinds_of_program()[sizes.kind]));
  const Result<ArrayProgram> program = compile_separable("program", text);
  if (!program) throw std::logic_error(program.error());
  std::vector<Owner> table;
  if (sizes.owners == OwnerMap::table) {
    Random random(seed, "owners");
    table.resize(elements(Scope::coordinate, sizes.shapes));
    for (Owner& owner : table) owner = static_cast<Owner>(random.below(sizes.ranks));
  }
  ProgramCase c = program_case({*program, sizes.shapes, sizes.owners, std::move(table), sizes.ranks,
                                sizes.steps, seed, text},
                               sizes.variation);
  c.schedule = sizes.schedule;
  return c;
}

// A dozen coordinates in all; parameters of none and of one, buckets that end just before the last
// coordinate.
inline ProgramCaseSizes draw_program_case_sizes(Draws& draws) {
  using Options = OwnedOptimizerOptions;
  static constexpr std::array<std::string_view, 4> kMaps = {"mod", "blocks", "greedy", "a table"};
  static constexpr std::array<std::string_view, 5> kGradients = {"natural", "lattice", "corners",
                                                                 "an infinity", "a NaN"};
  static constexpr std::array<std::string_view, 4> kBuckets = {"one", "one short", "few",
                                                               "one each"};
  static constexpr std::array<std::string_view, 2> kStarts = {"usual", "strained"};
  static constexpr std::array<std::string_view, 2> kParameters = {"float32", "bfloat16"};
  static constexpr std::array<std::string_view, 2> kReductions = {"reduce-scatter", "all-reduce"};
  ProgramCaseSizes sizes;
  static constexpr std::array<std::string_view, 2> kPrograms = {"random", "optimizer"};
  if (draws.kind("program", kPrograms) == 1) {
    sizes.kind = 1 + draws.kind("optimizer", std::span(kinds_of_program()).subspan(1));
  } else {
    sizes.program.assignments = draws.size("assignments", 1, 20);
    sizes.program.slots = draws.size("slots of a kind", 0, 3);
  }
  const std::size_t parameters = draws.size("parameters", 1, 4);
  for (std::size_t i = 0; i < parameters; ++i) {
    const std::size_t rows = draws.size("rows", 0, 5);
    sizes.shapes.push_back({rows, draws.size("columns", 1, 3)});
  }
  // One case in eight has a parameter at an edge of the kernels, or a number to either side of it:
  // the lanes of a sum, the numbers of a thread, the threads of a block.
  static constexpr std::array<std::string_view, 8> kAtEdge = {"none", "none", "none", "none",
                                                              "none", "none", "none", "rows"};
  if (draws.kind("at an edge", kAtEdge) == 7) {
    static constexpr std::array<std::size_t, 5> kEdges = {8, 32, 64, 256, 1024};
    static constexpr std::array<std::string_view, 5> kNames = {"8", "32", "64", "256", "1024"};
    const std::size_t edge = draws.kind("edge", kNames);
    static constexpr std::array<std::string_view, 3> kBeside = {"one less", "as many", "one more"};
    sizes.shapes.front() = {kEdges[edge] - 1 + draws.kind("of the edge", kBeside), 1};
  }
  sizes.ranks = draws.replicas();
  sizes.owners = static_cast<OwnerMap>(draws.kind("owner map", kMaps));
  sizes.steps = draws.size("steps", 1, 4);
  Variation& variation = sizes.variation;
  const std::size_t gradients = draws.kind("gradients", kGradients);
  variation.gradients = static_cast<Variation::Gradients>(gradients);
  const std::size_t starts = draws.kind("starts", kStarts);
  variation.strained = starts == 1;
  const std::size_t half = draws.kind("parameters' format", kParameters);
  variation.options.parameters = static_cast<Options::Parameters>(half);
  const std::size_t reduction = draws.kind("reduction", kReductions);
  variation.options.reduction = static_cast<Options::Reduction>(reduction);
  const std::size_t coordinates = elements(Scope::coordinate, sizes.shapes);
  const std::array<std::size_t, 4> buckets = {0,
                                              coordinates - std::min<std::size_t>(coordinates, 1),
                                              std::max<std::size_t>(coordinates / 3, 2), 1};
  const std::size_t bucket = draws.kind("buckets", kBuckets);
  variation.options.bucket = buckets[bucket];
  variation.name = std::string(kGradients[gradients]) + " gradients, " +
                   std::string(kStarts[starts]) + " starts, " + std::string(kParameters[half]) +
                   ", " + std::string(kReductions[reduction]) +
                   ", buckets: " + std::string(kBuckets[bucket]);
  sizes.schedule.seed = draws.size("schedule", 0, 1000);
  return sizes;
}

inline ProgramCase draw_program_case(Draws& draws) {
  const ProgramCaseSizes sizes = draw_program_case_sizes(draws);
  return random_program_case(sizes, draws.seed());
}

}  // namespace shardproof
