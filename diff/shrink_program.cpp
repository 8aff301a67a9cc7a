// Shrinking of slot programs with numbers of their own (agreement §6).
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "diff/program_case.h"
#include "reference/slots/arithmetic.h"
#include "reference/slots/array_elements.h"
#include "reference/slots/text.h"

namespace shardproof {
namespace {

using Options = OwnedOptimizerOptions;
using Role = ArrayProgram::Role;

constexpr std::size_t kLongestProgram = 400;  // assignments; longer ones keep them

// What of a case's elements stays: of each scope the indices among all parameters, in order.
struct Cut {
  std::vector<ParameterShape> shapes;
  std::array<std::vector<std::size_t>, kScopes> kept;
};

// Keeps the rows and columns of each parameter that stay(parameter, row or column, is_row) keeps,
// and the parameters that keeps(parameter) does.
template <class Keeps, class Stays>
Cut cut(const std::vector<ParameterShape>& shapes, Keeps keeps, Stays stays) {
  Cut result;
  result.kept[index_of(Scope::shared)] = {0};
  const auto keep = [&](Scope scope, std::size_t index) {
    result.kept[index_of(scope)].push_back(index);
  };
  for (const PlacedParameter& parameter : place(shapes)) {
    if (!keeps(parameter.index)) continue;
    const auto& first = parameter.first;
    std::vector<std::size_t> rows, columns;
    for (std::size_t r = 0; r < parameter.shape.rows; ++r) {
      if (stays(parameter.index, r, true)) rows.push_back(r);
    }
    for (std::size_t c = 0; c < parameter.shape.columns; ++c) {
      if (stays(parameter.index, c, false)) columns.push_back(c);
    }
    result.shapes.push_back({rows.size(), columns.size()});
    keep(Scope::parameter, parameter.index);
    for (const std::size_t r : rows) keep(Scope::row, first[index_of(Scope::row)] + r);
    for (const std::size_t c : columns) keep(Scope::column, first[index_of(Scope::column)] + c);
    for (const std::size_t r : rows) {
      for (const std::size_t c : columns) {
        keep(Scope::coordinate,
             first[index_of(Scope::coordinate)] + r * parameter.shape.columns + c);
      }
    }
  }
  return result;
}

template <class T>
std::vector<T> picked(const std::vector<T>& values, const std::vector<std::size_t>& indices) {
  std::vector<T> result;
  result.reserve(indices.size());
  for (const std::size_t i : indices) result.push_back(values.at(i));
  return result;
}

ProgramCase apply(const Cut& cut, ProgramCase c) {
  c.shapes = cut.shapes;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (auto& values : c.start.values[scope]) values = picked(values, cut.kept[scope]);
  }
  const auto& coordinates = cut.kept[index_of(Scope::coordinate)];
  for (auto& ranks : c.gradients) {
    for (auto& gradient : ranks) gradient = picked(gradient, coordinates);
  }
  if (c.owners == OwnerMap::table) c.table = picked(c.table, coordinates);
  return c;
}

ProgramCase with_ranks(ProgramCase c, const std::vector<std::size_t>& ranks) {
  for (auto& of_ranks : c.gradients) of_ranks = picked(of_ranks, ranks);
  for (Owner& owner : c.table) {
    const auto found = std::find(ranks.begin(), ranks.end(), owner);
    owner =
        static_cast<Owner>(found == ranks.end() ? owner % ranks.size()
                                                : static_cast<std::size_t>(found - ranks.begin()));
  }
  c.ranks = ranks.size();
  return c;
}

ProgramCase with_steps(ProgramCase c, const std::vector<std::size_t>& steps) {
  if (!c.gradients.empty()) c.gradients = picked(c.gradients, steps);
  c.steps = steps.size();
  return c;
}

std::vector<std::size_t> all_but(std::size_t count, std::size_t first, std::size_t left_out) {
  std::vector<std::size_t> result;
  for (std::size_t i = 0; i < count; ++i) {
    if (i < first || i >= first + left_out) result.push_back(i);
  }
  return result;
}

// The parts of a postfix expression's last node.
std::vector<Expression> operands_of(const Expression& expression) {
  std::vector<Expression> parts;
  for (std::size_t i = 0; i + 1 < expression.size(); ++i) {
    Expression whole;
    const std::size_t count = operands(expression[i].kind);
    for (std::size_t k = parts.size() - count; k < parts.size(); ++k) {
      whole.insert(whole.end(), parts[k].begin(), parts[k].end());
    }
    whole.push_back(expression[i]);
    parts.resize(parts.size() - count);
    parts.push_back(std::move(whole));
  }
  return parts;
}

void drop_unused_declarations(ProgramText& text) {
  std::set<std::string> used;
  for (const ProgramText::Assigned& assigned : text.assignments) {
    used.insert(assigned.target);
    for (const ExpressionNode& node : assigned.expression) used.insert(node.spelling);
  }
  for (auto& declaration : text.declarations) {
    std::erase_if(declaration.slots, [&](const auto& slot) { return !used.contains(slot.name); });
  }
  std::erase_if(text.declarations,
                [](const auto& declaration) { return declaration.slots.empty(); });
}

// How far a number is from simple: 0, 1, −1, small whole numbers, infinities and NaN, powers of
// two, then by the bits that it needs.
int complexity(float x) {
  if (std::isnan(x)) return std::bit_cast<std::uint32_t>(x) == 0x7fc00000U ? 30 : 31;
  if (std::isinf(x)) return x > 0 ? 28 : 29;
  if (x == 0) return std::signbit(x) ? 27 : 0;
  const float magnitude = std::abs(x);
  const int negative = x < 0 ? 1 : 0;
  if (magnitude <= 8 && magnitude == std::nearbyint(magnitude)) {
    return 2 * static_cast<int>(magnitude) - 1 + negative;
  }
  const auto mantissa = std::bit_cast<std::uint32_t>(x) & 0x7fffffU;
  const int bits = mantissa == 0 ? 0 : 23 - std::countr_zero(mantissa);
  const int exponent = std::abs(std::ilogb(x));
  return 40 + 400 * bits + exponent + negative;
}

// Simpler numbers to try in place of x, simplest first.
std::vector<float> simpler(float x) {
  std::vector<float> tries = {0.0F, 1.0F, -1.0F, 2.0F, 3.0F};
  if (std::isfinite(x) && x != 0) {
    if (std::abs(x) <= 1 << 20) tries.push_back(std::nearbyint(x));
    const float power = std::copysign(std::ldexp(1.0F, std::ilogb(x)), x);
    for (const float y : {std::abs(power), power}) tries.push_back(y);
    for (const int bits : {1, 2, 4, 8, 12, 16, 20, 22}) {
      const std::uint32_t mask = ~((1U << (23 - bits)) - 1);
      tries.push_back(std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & mask));
    }
    tries.push_back(std::abs(x));
  } else if (std::isnan(x)) {
    tries.push_back(std::bit_cast<float>(0x7fc00000U));
  }
  std::erase_if(tries, [&](float y) { return complexity(y) >= complexity(x); });
  std::stable_sort(tries.begin(), tries.end(),
                   [](float a, float b) { return complexity(a) < complexity(b); });
  return tries;
}

class ProgramShrinker {
 public:
  ProgramShrinker(const ProgramCase& c, const DeviceMaker& make, std::size_t evaluations)
      : make_(make), left_(evaluations), case_(c) {
    if (is_wrong(c)) {
      const std::string& claim = wrong_->claim;
      for (const char* kind : {kOverwritten, kFailed}) {
        if (claim.starts_with(kind)) claims_ = {kind};
      }
      if (claims_.empty()) claims_ = {claim};
    }
  }

  ProgramCase shrunk() {
    if (claims_.empty()) return case_;
    keep_the_wrong_coordinate();
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = false;
      for (const auto part :
           {&ProgramShrinker::fewer_ranks, &ProgramShrinker::fewer_steps,
            &ProgramShrinker::fewer_coordinates, &ProgramShrinker::simpler_options,
            &ProgramShrinker::shorter_program, &ProgramShrinker::simpler_numbers}) {
        smaller |= (this->*part)();
      }
    }
    return case_;
  }

 private:
  bool is_wrong(const ProgramCase& c) {
    if (left_ == 0) return false;
    Result<ArrayProgram> program = compile_separable("program", c.program);
    if (!program) return false;
    --left_;
    const ProgramResult result = judge_program_case(make_, c, *program, [&](std::size_t step) {
      return c.gradients.empty() ? std::vector<std::vector<float>>(c.ranks)
                                 : c.gradients.at(step - 1);
    });
    auto wrong = first_wrong(result, claims_);
    if (!wrong || is_mean_of_none(c, *wrong)) return false;
    wrong_ = std::move(wrong);
    program_ = *std::move(program);
    return true;
  }
  bool takes(ProgramCase c) {
    if (!is_wrong(c)) return false;
    case_ = std::move(c);
    return true;
  }

  // Takes without(first, count), a case with so many things of `things` left out, wherever it can.
  template <class Without>
  bool leaves_out(std::size_t things, std::size_t least, Without without) {
    bool any = false;
    for (std::size_t size = std::max<std::size_t>(things / 2, 1); size > 0; size /= 2) {
      for (std::size_t end = things; end >= size && left_ > 0;) {
        if (things >= least + size && takes(without(end - size, size))) {
          any = true;
          things -= size;
          end -= size;
        } else {
          --end;
          if (end % size != 0) end = end / size * size;
        }
      }
    }
    return any;
  }

  void keep_the_wrong_coordinate() {
    for (const PlacedParameter& parameter : place(case_.shapes)) {
      const Scope scope = wrong_->place.scope;
      const std::size_t first = parameter.first[index_of(scope)], element = wrong_->element;
      if (scope == Scope::shared || element < first ||
          element >= first + parameter.elements(scope)) {
        continue;
      }
      const std::size_t i = element - first;
      const auto only = [&](std::size_t index) { return index == parameter.index; };
      const auto in_place = [&](std::size_t, std::size_t at, bool is_row) {
        if (is_row)
          return scope == Scope::coordinate ? at == i / parameter.shape.columns
                 : scope == Scope::row      ? at == i
                                            : true;
        return scope == Scope::coordinate ? at == i % parameter.shape.columns
               : scope == Scope::column   ? at == i
                                          : true;
      };
      const auto everything = [](std::size_t, std::size_t, bool) { return true; };
      if (!takes(apply(cut(case_.shapes, only, in_place), case_))) {
        takes(apply(cut(case_.shapes, only, everything), case_));
      }
      return;
    }
  }

  bool fewer_ranks() {
    for (std::size_t count = 1; count < std::min<std::size_t>(case_.ranks, 4); ++count) {
      if (takes(with_ranks(case_, all_but(case_.ranks, count, case_.ranks)))) return true;
      if (takes(with_ranks(case_, all_but(case_.ranks, 0, case_.ranks - count)))) return true;
    }
    return leaves_out(case_.ranks, 1, [&](std::size_t first, std::size_t count) {
      return with_ranks(case_, all_but(case_.ranks, first, count));
    });
  }

  bool fewer_steps() {
    bool any = false;
    if (wrong_->step > 0 && wrong_->step < case_.steps) {
      any = takes(with_steps(case_, all_but(case_.steps, wrong_->step, case_.steps)));
    }
    return leaves_out(case_.steps, 1,
                      [&](std::size_t first, std::size_t count) {
                        return with_steps(case_, all_but(case_.steps, first, count));
                      }) ||
           any;
  }

  bool fewer_coordinates() {
    const auto everything = [](std::size_t, std::size_t, bool) { return true; };
    bool any = leaves_out(case_.shapes.size(), 1, [&](std::size_t first, std::size_t count) {
      const auto keeps = [&](std::size_t index) { return index < first || index >= first + count; };
      return apply(cut(case_.shapes, keeps, everything), case_);
    });
    for (std::size_t p = 0; p < case_.shapes.size(); ++p) {
      for (const bool rows : {true, false}) {
        const std::size_t extent = rows ? case_.shapes[p].rows : case_.shapes[p].columns;
        any |= leaves_out(extent, rows ? 0 : 1, [&](std::size_t first, std::size_t count) {
          const auto stays = [&](std::size_t index, std::size_t at, bool is_row) {
            return index != p || is_row != rows || at < first || at >= first + count;
          };
          return apply(cut(
                           case_.shapes, [](std::size_t) { return true; }, stays),
                       case_);
        });
      }
    }
    return any;
  }

  bool simpler_options() {
    bool any = false;
    const auto with = [&](auto change) {
      ProgramCase next = case_;
      change(next);
      any |= takes(std::move(next));
    };
    if (case_.options.bucket != 0) with([](ProgramCase& c) { c.options.bucket = 0; });
    if (case_.options.parameters != Options::Parameters::float32) {
      with([](ProgramCase& c) { c.options.parameters = Options::Parameters::float32; });
    }
    if (case_.options.reduction != Options::Reduction::reduce_scatter) {
      with([](ProgramCase& c) { c.options.reduction = Options::Reduction::reduce_scatter; });
    }
    if (case_.owners != OwnerMap::mod) {
      with([](ProgramCase& c) {
        c.owners = OwnerMap::mod;
        c.table.clear();
      });
    }
    if (case_.schedule.seed != 0) with([](ProgramCase& c) { c.schedule.seed = 0; });
    if (case_.schedule.threads != ChannelThreads::by_count) {
      with([](ProgramCase& c) { c.schedule.threads = ChannelThreads::by_count; });
    }
    return any;
  }

  // The case with another program: starts go with the names of their slots. None where it does not
  // compile, or declares something new.
  std::optional<ProgramCase> with_program(ProgramText text) const {
    drop_unused_declarations(text);
    ProgramCase next = case_;
    next.program = print(text);
    const Result<ArrayProgram> program = compile_separable("program", next.program);
    if (!program) return std::nullopt;
    std::map<std::string, ArraySlot> slots;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t k = 0; k < program_.slots[scope].size(); ++k) {
        const ArraySlot slot{static_cast<Scope>(scope), static_cast<std::uint16_t>(k)};
        if (!program_.info(slot).name.empty()) slots[program_.info(slot).name] = slot;
      }
    }
    next.start = with_fixed_values({}, *program, case_.shapes);
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t k = 0; k < program->slots[scope].size(); ++k) {
        const ArrayProgram::SlotInfo& info = program->slots[scope][k];
        if (info.role != Role::parameter && info.role != Role::state) continue;
        next.start.values[scope][k] = case_.start[slots.at(info.name)];
      }
    }
    if (!program->find(Role::gradient)) next.gradients.clear();
    return next;
  }

  bool takes_program(ProgramText text) {
    std::optional<ProgramCase> next = with_program(std::move(text));
    return next && takes(*std::move(next));
  }

  bool shorter_program() {
    const auto now = [&] { return *parse_program("program", case_.program); };
    if (now().assignments.size() > kLongestProgram) return false;
    bool any = false;
    if (print(now()) != case_.program) any |= takes_program(now());
    for (std::size_t i = now().assignments.size(); i-- > 0;) {
      ProgramText text = now();
      text.assignments.erase(text.assignments.begin() + static_cast<std::ptrdiff_t>(i));
      any |= takes_program(std::move(text));
    }
    for (std::size_t i = now().assignments.size(); i-- > 0;) {
      for (bool shorter = true; shorter;) {
        shorter = false;
        ProgramText text = now();
        for (Expression& part : operands_of(text.assignments[i].expression)) {
          text.assignments[i].expression = std::move(part);
          if ((shorter = takes_program(text))) break;
        }
        any |= shorter;
      }
    }
    return any;
  }

  // Every list of numbers at once, then each number.
  bool simpler_numbers() {
    bool any = false;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t k = 0; k < case_.start.values[scope].size(); ++k) {
        const ArraySlot slot{static_cast<Scope>(scope), static_cast<std::uint16_t>(k)};
        const ArrayProgram::SlotInfo& info = program_.info(slot);
        if (info.role != Role::parameter && info.role != Role::state) continue;
        any |= simpler_list(
            [slot](ProgramCase & c) -> auto& { return c.start[slot]; },
            info.initial ? std::optional(Arithmetic<float>::constant(*info.initial))
                         : std::nullopt);
      }
    }
    for (std::size_t step = case_.gradients.size(); step-- > 0;) {
      for (std::size_t rank = case_.ranks; rank-- > 0;) {
        any |= simpler_list(
            [=](ProgramCase & c) -> auto& { return c.gradients[step][rank]; }, std::nullopt);
      }
    }
    return any;
  }

  // `declared`: what the numbers are simplest as.
  template <class ListOf>
  bool simpler_list(ListOf list_of, std::optional<float> declared) {
    const auto same = [](float a, float b) {
      return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
    };
    const std::vector<float> list = list_of(case_);
    const auto is_declared = [&](float x) { return declared && same(x, *declared); };
    if (list.empty() || std::all_of(list.begin(), list.end(), is_declared)) return false;
    const auto takes_list = [&](const std::vector<float>& values) {
      ProgramCase next = case_;
      list_of(next) = values;
      return takes(std::move(next));
    };
    if (declared && takes_list(std::vector<float>(list.size(), *declared))) return true;
    bool any = false;
    if (list.size() > 1) {
      for (const float value : {0.0F, 1.0F}) {
        const bool simple = std::all_of(
            list.begin(), list.end(), [&](float x) { return complexity(x) <= complexity(value); });
        if (!simple && takes_list(std::vector<float>(list.size(), value))) return true;
      }
    }
    for (std::size_t i = 0; i < list.size(); ++i) {
      for (bool smaller = true; smaller;) {
        smaller = false;
        std::vector<float> values = list_of(case_);
        for (const float simple : simpler(values[i])) {
          values[i] = simple;
          if ((smaller = takes_list(values))) break;
        }
        any |= smaller;
      }
    }
    return any;
  }

  const DeviceMaker& make_;
  std::size_t left_;  // evaluations
  std::set<std::string> claims_;
  ProgramCase case_;
  ArrayProgram program_;                      // of case_, compiled
  std::optional<ProgramDisagreement> wrong_;  // in case_
};

}  // namespace

ProgramCase shrink(const ProgramCase& c, const DeviceMaker& make, std::size_t evaluations) {
  return ProgramShrinker(c, make, evaluations).shrunk();
}

}  // namespace shardproof
