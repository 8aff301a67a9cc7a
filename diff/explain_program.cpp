#include "diff/explain_program.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "diff/exact_number.h"
#include "diff/given_sums.h"
#include "diff/program_report.h"
#include "reference/numbers/certified.h"
#include "reference/slots/array_elements.h"
#include "reference/slots/array_run.h"
#include "reference/slots/running_error.h"

namespace shardproof {
namespace {

using Reduction = ArrayProgram::Reduction;
using Role = ArrayProgram::Role;
using Row = std::vector<std::string>;

constexpr std::size_t kShownSteps = 60, kShownRanks = 8, kShownTerms = 40;
constexpr const char* kNothing = "-";

std::string shown(float x) {
  if (std::isnan(x)) return exact_number(x);
  return fmt::format("{:.9g} ({:a})", x, x);
}
std::string shown(const Certified& x) {
  if (x.radius == 0) return fmt::format("{:.17g}", x.value);
  return std::isfinite(x.radius) ? fmt::format("{:.17g} ± {:.3g}", x.value, x.radius) : "unknown";
}
std::string shown(const RunningError& x) {
  if (x.is_special) return shown(static_cast<float>(x.special));
  return shown(x.range);
}

// One element of each scope: those that a number is computed from.
using Chain = std::array<std::optional<std::size_t>, kScopes>;

class ProgramExplainer {
 public:
  ProgramExplainer(const ProgramCase& c, const ProgramDisagreement& wrong, const DeviceMaker& make)
      : case_(c), wrong_(wrong), make_(make), parameters_(place(c.shapes)) {
    Result<ArrayProgram> program = compile_separable("program", c.program);
    if (!program) throw std::invalid_argument(program.error());
    program_ = *std::move(program);
    for (std::size_t begin = 0; begin < c.program.size();) {
      const std::size_t end = std::min(c.program.find('\n', begin), c.program.size());
      lines_.push_back(c.program.substr(begin, end - begin));
      begin = end + 1;
    }
    ownership_ = make_ownership(c, c.ranks);
    find_chain();
    find_before();
    contract_ = program_contract(*make_(1, c.schedule));
    exact_ = !contract_.contraction && contract_.subnormals_kept;
  }

  std::string line(std::size_t number) const { return quoted_line("program", lines_, number); }

  std::vector<Explanation::Table> tables() const {
    std::vector<Explanation::Table> tables = {held_by_ranks()};
    const std::vector<std::size_t> slice = assignments_of_the_number();
    if (!slice.empty()) tables.push_back(step_by_step(slice));
    for (const std::size_t s : slice) {
      const auto* reduction = std::get_if<Reduction>(&program_.statements[s].does);
      if (reduction != nullptr && reduction->target == wrong_.place) {
        tables.push_back(added_up(s, *reduction));
        break;
      }
    }
    return tables;
  }

 private:
  // A run of the failing step on a device, and on the device that it is compared with.
  struct Runs {
    std::unique_ptr<Device> device;
    std::unique_ptr<OwnedOptimizer> owned;
    std::unique_ptr<GivenSums> given;
    std::unique_ptr<OwnedOptimizer> other;
  };

  bool resumed() const { return wrong_.claim.find("more ranks") != std::string::npos; }
  bool compares_runs() const { return wrong_.claim.starts_with("owned against"); }
  bool is_gathered() const { return wrong_.claim.find("gathered") != std::string::npos; }
  // A sum that the device computed in a run that was given another run's.
  bool is_given_sum() const { return wrong_.claim.starts_with("collectives of the program on "); }
  std::size_t rank() const {
    if (wrong_.owner) return *wrong_.owner;
    return std::min(wrong_.rank, case_.ranks - 1);
  }

  const std::vector<std::vector<float>>& gradients() const {
    static const std::vector<std::vector<float>> kNone;
    return case_.gradients.empty() ? kNone : case_.gradients.at(wrong_.step - 1);
  }

  void find_chain() {
    chain_[index_of(Scope::shared)] = 0;
    const Scope scope = wrong_.place.scope;
    for (const PlacedParameter& parameter : parameters_) {
      const std::size_t first = parameter.first[index_of(scope)];
      const bool holds =
          scope == Scope::shared
              ? parameter.shape.size() > 0
              : wrong_.element >= first && wrong_.element < first + parameter.elements(scope);
      if (!holds) continue;
      const std::size_t i = scope == Scope::shared ? 0 : wrong_.element - first;
      const std::size_t columns = parameter.shape.columns;
      const std::size_t row = scope == Scope::coordinate ? i / columns
                              : scope == Scope::row      ? i
                                                         : 0;
      const std::size_t column = scope == Scope::coordinate ? i % columns
                                 : scope == Scope::column   ? i
                                                            : 0;
      const auto set = [&](Scope of, std::size_t at) {
        if (at < parameter.elements(of)) chain_[index_of(of)] = parameter.first[index_of(of)] + at;
      };
      set(Scope::parameter, 0);
      set(Scope::row, row);
      set(Scope::column, column);
      if (row < parameter.shape.rows && column < columns) {
        set(Scope::coordinate, row * columns + column);
      }
      return;
    }
  }

  // What the device held before the step.
  void find_before() {
    before_ = with_fixed_values(case_.start, program_, case_.shapes);
    if (wrong_.step < 2) return;
    const std::unique_ptr<Device> device = make_(static_cast<int>(case_.ranks), case_.schedule);
    OwnedOptimizer owned(*device, program_, case_.shapes, ownership_, before_, case_.options);
    for (std::size_t step = 1; step < wrong_.step; ++step) {
      owned.step(case_.gradients.empty() ? std::vector<std::vector<float>>(case_.ranks)
                                         : case_.gradients.at(step - 1));
    }
    before_ = with_fixed_values(join(owned.save()), program_, case_.shapes);
  }

  Runs run(const ArrayProgram& program, const ArrayState<float>& start) const {
    Runs runs;
    const auto ranks = static_cast<int>(case_.ranks);
    runs.device = make_(ranks, case_.schedule);
    runs.owned = std::make_unique<OwnedOptimizer>(*runs.device, program, case_.shapes, ownership_,
                                                  start, case_.options);
    runs.owned->step(gradients());
    const std::size_t others = resumed() ? case_.ranks + 1 : 1;
    runs.given = std::make_unique<GivenSums>(make_(static_cast<int>(others), case_.schedule));
    runs.other = std::make_unique<OwnedOptimizer>(
        *runs.given, program, case_.shapes,
        resumed() ? make_ownership(case_, others)
                  : mod_ownership(elements(Scope::coordinate, case_.shapes), 1),
        start, case_.options);
    runs.given->give(runs.owned->collectives());
    runs.other->step_reduced(runs.owned->reduced_gradient());
    return runs;
  }

  static float held(const OwnedOptimizer& optimizer, std::size_t rank, ArraySlot slot,
                    std::size_t element) {
    if (slot.scope == Scope::coordinate) return optimizer.owned(slot).at(element);
    return optimizer.coarser(static_cast<int>(rank))[slot].at(element);
  }

  // The program's statements 0 … last, and the slot that keeps what the last of them gives.
  struct Beginning {
    ArrayProgram program;
    ArrayState<float> start;
    ArraySlot seen;
  };
  Beginning beginning(std::size_t last) const {
    Beginning result{program_, before_, program_.statements[last].target()};
    auto& statements = result.program.statements;
    statements.resize(last + 1);
    auto& slots = result.program.slots[index_of(result.seen.scope)];
    if (slots[result.seen.index].role == Role::gradient) {
      const ArraySlot copy{result.seen.scope, static_cast<std::uint16_t>(slots.size())};
      slots.push_back({"", Role::state, std::nullopt});
      statements.push_back({ArrayAssignment{copy, ValueFunction::copy, {result.seen}}, {}});
      auto& values = result.start.values[index_of(copy.scope)];
      values.emplace_back(values[result.seen.index].size(),
                          std::numeric_limits<float>::quiet_NaN());
      result.seen = copy;
    } else if (slots[result.seen.index].role == Role::temporary) {
      slots[result.seen.index].role = Role::state;
    }
    return result;
  }

  // Whether the reference adds up a collective that comes last, or takes it from the device as all
  // others.
  enum class LastSum { exact, given };

  // The reference's state after a beginning, from the device's reduced gradients and collectives.
  template <class T, class FromFloat>
  ArrayState<T> reference(const Beginning& of, const OwnedOptimizer& owned, FromFloat number,
                          LastSum last) const {
    ArrayState<T> state;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (const std::vector<float>& values : of.start.values[scope]) {
        auto& into = state.values[scope].emplace_back();
        for (const float value : values) into.push_back(number(value));
      }
    }
    if (const auto gradient = of.program.find(Role::gradient)) {
      const std::vector<float> reduced = owned.reduced_gradient();
      std::transform(reduced.begin(), reduced.end(), state[*gradient].begin(), number);
    }
    auto collective = owned.collectives().begin();
    const auto given = [&](std::size_t statement, std::span<const T> source, std::span<T> values) {
      const std::vector<float>& device = collective++->values.at(0);
      std::transform(device.begin(), device.end(), values.begin(), number);
      if (last == LastSum::given || statement + 1 < of.program.statements.size()) return;
      const auto& reduction = std::get<Reduction>(of.program.statements[statement].does);
      const std::vector<Certified> sums = exact_sums(reduction, source);
      for (std::size_t e = 0; e < sums.size(); ++e) values[e] = from_sum<T>(sums[e]);
    };
    return array_run<T>(std::move(state), of.program, case_.shapes, given, arithmetic<T>());
  }
  static Certified range_of(float x) { return Certified(static_cast<double>(x)); }
  static Certified range_of(const RunningError& x) {
    return x.is_special ? Certified(x.special) : x.range;
  }
  template <class T>
  static T from_sum(const Certified& sum) {
    if constexpr (std::is_same_v<T, float>) {
      return static_cast<float>(sum.value);
    } else {
      return T(sum);
    }
  }
  template <class T>
  std::vector<Certified> exact_sums(const Reduction& reduction, std::span<const T> source) const {
    std::vector<Certified> sums(elements(reduction.target.scope, case_.shapes));
    std::vector<double> counts(sums.size());
    each_term(reduction, [&](std::size_t target, std::size_t term) {
      sums[target] = sums[target] + range_of(source[term]);
      ++counts[target];
    });
    for (std::size_t e = 0; reduction.mean && e < sums.size(); ++e) {
      sums[e] = sums[e] / Certified(counts[e]);
    }
    return sums;
  }
  template <class See>
  void each_term(const Reduction& reduction, See see) const {
    for (const PlacedParameter& parameter : parameters_) {
      for (std::size_t i = 0; i < parameter.elements(reduction.source.scope); ++i) {
        see(parameter.holder(reduction.target.scope, reduction.source.scope, i),
            parameter.first[index_of(reduction.source.scope)] + i);
      }
    }
  }

  template <class T>
  Arithmetic<T> arithmetic() const {
    Arithmetic<T> result;
    if constexpr (std::is_same_v<T, RunningError>) {
      result.root_unit = std::max(0.5, contract_.root) * 0x1p-23;
      if (!contract_.subnormals_kept) result.underflow = result.flushed = 0x1p-126;
    }
    return result;
  }
  static float same(float x) { return x; }
  static RunningError widened(float x) { return RunningError(static_cast<double>(x)); }

  // shown_at(slot, element) of the reference's state after a beginning.
  std::function<std::string(ArraySlot, std::size_t)> reference_values(const Beginning& of,
                                                                      const OwnedOptimizer& owned,
                                                                      LastSum last) const {
    if (exact_) {
      return [state = reference<float>(of, owned, same, last)](ArraySlot slot, std::size_t i) {
        return shown(state[slot].at(i));
      };
    }
    return [state = reference<RunningError>(of, owned, widened, last)](
               ArraySlot slot, std::size_t i) { return shown(state[slot].at(i)); };
  }

  // ---- Names

  std::string name_of(ArraySlot slot) const {
    const ArrayProgram::SlotInfo& info = program_.info(slot);
    if (info.role == Role::constant) {
      return fmt::format("{:.9g}", Arithmetic<float>::constant(*info.initial));
    }
    if (!info.name.empty()) return info.name;
    constexpr std::array<const char*, kScopes> prefixes{"ts", "ta", "tr", "tc", "t"};
    return prefixes[index_of(slot.scope)] + std::to_string(slot.index);
  }
  std::string element_name(ArraySlot slot, std::size_t element) const {
    for (const PlacedParameter& parameter : parameters_) {
      const std::size_t first = parameter.first[index_of(slot.scope)];
      if (slot.scope != Scope::shared && element >= first &&
          element < first + parameter.elements(slot.scope)) {
        return name_of(slot) + parameter.place_of(slot.scope, element - first);
      }
    }
    return name_of(slot);
  }
  std::string text_of(const ArrayProgram::Statement& statement) const {
    const std::string target = name_of(statement.target()) + " = ";
    if (const auto* reduction = std::get_if<Reduction>(&statement.does)) {
      return target + (reduction->collective ? "all_reduce " : "") +
             (reduction->mean ? "mean(" : "sum(") + name_of(reduction->source) + ")";
    }
    const auto& assignment = std::get<ArrayAssignment>(statement.does);
    static constexpr std::array<const char*, kValueFunctions> kSpelled = {
        "",    "",    "-",   "sqrt", "abs",  "sign", " + ",  " - ", " * ",
        " / ", "min", "max", " < ",  " <= ", " == ", " != ", "fma", "select"};
    const std::string spelled = kSpelled[static_cast<std::size_t>(assignment.function)];
    const std::size_t count = arity(assignment.function);
    std::vector<std::string> reads;
    for (std::size_t k = 0; k < count; ++k) reads.push_back(name_of(assignment.reads[k]));
    if (spelled.size() < 2) return target + spelled + reads.at(0);
    if (spelled[0] == ' ') return target + reads[0] + spelled + reads[1];
    return target + fmt::format("{}({})", spelled, fmt::join(reads, ", "));
  }

  // ---- Tables

  // Statements of the step on which the wrong number depends, in order.
  std::vector<std::size_t> assignments_of_the_number() const {
    std::vector<std::size_t> slice;
    std::set<ArraySlot> needed = {wrong_.place};
    if (wrong_.claim.starts_with("mean of the gradients")) return slice;
    for (std::size_t s = program_.statements.size(); s-- > 0;) {
      const auto& statement = program_.statements[s];
      if (needed.erase(statement.target()) == 0) continue;
      slice.push_back(s);
      if (const auto* reduction = std::get_if<Reduction>(&statement.does)) {
        needed.insert(reduction->source);
        continue;
      }
      const auto& assignment = std::get<ArrayAssignment>(statement.does);
      for (std::size_t k = 0; k < arity(assignment.function); ++k) {
        needed.insert(assignment.reads[k]);
      }
    }
    std::reverse(slice.begin(), slice.end());
    return slice;
  }

  // Whether the claim fails where the step ends with that beginning.
  bool parts(const Beginning& of) const {
    ProgramCase c = case_;
    c.steps = 1;
    c.start = of.start;
    const std::string claim =
        compares_runs() && resumed() ? "owned against replicated" : wrong_.claim;
    return first_wrong(judge_program_case(make_, c, of.program,
                                          [&](std::size_t) {
                                            return case_.gradients.empty()
                                                       ? std::vector<std::vector<float>>(c.ranks)
                                                       : gradients();
                                          }),
                       {claim})
        .has_value();
  }

  Explanation::Table step_by_step(const std::vector<std::size_t>& slice) const {
    const std::string left = compares_runs() ? other_name() : "reference";
    const std::string right =
        is_given_sum() ? "device, " + other_name() : "device, rank " + std::to_string(rank());
    Explanation::Table table{"Step " + std::to_string(wrong_.step) + ", assignment by assignment",
                             {"line", "assignment", "reads", left, right, ""},
                             {},
                             0};
    std::map<ArraySlot, std::array<std::string, 2>> now;
    const auto value_of = [&](ArraySlot slot) {
      const auto found = now.find(slot);
      if (found != now.end()) return found->second;
      const auto element = chain_[index_of(slot.scope)];
      const std::string before =
          element ? shown(before_[slot].at(*element)) : std::string(kNothing);
      return std::array<std::string, 2>{before, before};
    };
    bool parted = is_gathered();
    const std::size_t left_out = slice.size() - std::min(slice.size(), kShownSteps);
    for (std::size_t at = 0; at < slice.size(); ++at) {
      const auto& statement = program_.statements[slice[at]];
      const Beginning of = beginning(slice[at]);
      const Runs runs = run(of.program, of.start);
      if (const auto gradient = program_.find(Role::gradient);
          gradient && at == 0 && chain_[index_of(Scope::coordinate)]) {
        const std::string reduced =
            shown(runs.owned->reduced_gradient().at(*chain_[index_of(Scope::coordinate)]));
        now[*gradient] = {reduced, reduced};
      }
      std::vector<std::string> reads;
      if (const auto* assignment = std::get_if<ArrayAssignment>(&statement.does)) {
        for (std::size_t k = 0; k < arity(assignment->function); ++k) {
          const ArraySlot slot = assignment->reads[k];
          if (program_.info(slot).role == Role::constant) continue;
          const auto values = value_of(slot);
          reads.push_back(name_of(slot) + " = " + values[0] +
                          (values[0] == values[1] ? "" : " | " + values[1]));
        }
      }
      std::array<std::string, 2> values = {kNothing, kNothing};
      if (const auto element = chain_[index_of(of.seen.scope)]) {
        values[1] = shown(held(*runs.owned, rank(), of.seen, *element));
        values[0] = compares_runs()
                        ? shown(held(*runs.other, 0, of.seen, *element))
                        : reference_values(of, *runs.owned, LastSum::exact)(of.seen, *element);
      }
      const bool is_sum = std::holds_alternative<Reduction>(statement.does);
      const bool is_wrong_sum =
          is_sum && slice[at] == slice.back() && wrong_.claim.starts_with("collectives");
      if (is_wrong_sum && is_given_sum()) {
        values[1] = shown(runs.given->computed().back().at(wrong_.rank).at(wrong_.element));
      }
      now[statement.target()] = values;
      std::string mark;
      if (!parted && (is_wrong_sum || (!is_given_sum() && parts(of)))) {
        parted = true;
        mark = "<- here they part";
      }
      if (at < left_out) continue;
      table.rows.push_back({std::to_string(statement.position.line), text_of(statement),
                            fmt::format("{}", fmt::join(reads, ", ")), values[0], values[1], mark});
    }
    table.left_out = left_out;
    return table;
  }

  std::string other_name() const {
    return resumed() ? fmt::format("on {} ranks", case_.ranks + 1) : "on one rank";
  }

  // Kept slots at the elements that the wrong number depends on, and gradients, by rank.
  Explanation::Table held_by_ranks() const {
    const std::size_t shown_ranks = std::min(case_.ranks, kShownRanks);
    std::vector<std::size_t> ranks;
    if (rank() >= shown_ranks) ranks.push_back(rank());
    for (std::size_t r = 0; ranks.size() < shown_ranks; ++r) ranks.push_back(r);
    Explanation::Table table{
        fmt::format("After step {}, by rank{}", wrong_.step,
                    ranks.size() < case_.ranks
                        ? fmt::format(" ({} of {} ranks)", ranks.size(), case_.ranks)
                        : ""),
        {"", "before", "reference", other_name()},
        {},
        0};
    for (const std::size_t r : ranks) table.columns.push_back("rank " + std::to_string(r));
    const Runs runs = run(program_, before_);
    const auto reference = reference_values({program_, before_, {}}, *runs.owned, LastSum::given);
    const auto coordinate = chain_[index_of(Scope::coordinate)];
    const auto gradient = program_.find(Role::gradient);
    if (gradient && coordinate) {
      Row given = {element_name(*gradient, *coordinate) + ", each rank's", kNothing, kNothing,
                   kNothing};
      Row mean = {element_name(*gradient, *coordinate) + ", the mean", kNothing, "", kNothing};
      Certified sum;
      for (const auto& of_rank : gradients()) sum = sum + range_of(of_rank.at(*coordinate));
      mean[2] = shown(sum / Certified(static_cast<double>(case_.ranks)));
      const std::vector<float> reduced = runs.owned->reduced_gradient();
      for (const std::size_t r : ranks) {
        given.push_back(shown(gradients().at(r).at(*coordinate)));
        const std::vector<float> all = runs.owned->all_reduced_gradient(static_cast<int>(r));
        mean.push_back(ownership_.owner_of[*coordinate] == r ? shown(reduced.at(*coordinate))
                       : all.empty()                         ? std::string(kNothing)
                                                             : shown(all.at(*coordinate)));
      }
      table.rows.push_back(std::move(given));
      table.rows.push_back(std::move(mean));
    }
    std::set<ArraySlot> read = {wrong_.place};
    for (const std::size_t s : assignments_of_the_number()) {
      const auto& statement = program_.statements[s];
      read.insert(statement.target());
      if (const auto* reduction = std::get_if<Reduction>(&statement.does)) {
        read.insert(reduction->source);
        continue;
      }
      const auto& assignment = std::get<ArrayAssignment>(statement.does);
      for (std::size_t k = 0; k < arity(assignment.function); ++k) read.insert(assignment.reads[k]);
    }
    for (const ArraySlot slot : read) {
      const Role role = program_.info(slot).role;
      const auto element = chain_[index_of(slot.scope)];
      if ((role != Role::parameter && role != Role::state) || !element) continue;
      Row row = {element_name(slot, *element), shown(before_[slot].at(*element)),
                 reference(slot, *element), shown(held(*runs.other, 0, slot, *element))};
      for (const std::size_t r : ranks) {
        const bool holds = slot.scope != Scope::coordinate || ownership_.owner_of[*element] == r;
        row.push_back(holds ? shown(held(*runs.owned, r, slot, *element)) : kNothing);
      }
      table.rows.push_back(std::move(row));
    }
    if (const auto parameter = program_.find(Role::parameter); parameter && coordinate) {
      Row row = {element_name(*parameter, *coordinate) + ", gathered", kNothing, kNothing,
                 shown(runs.other->parameters(0).at(*coordinate))};
      for (const std::size_t r : ranks) {
        row.push_back(shown(runs.owned->parameters(static_cast<int>(r)).at(*coordinate)));
      }
      table.rows.push_back(std::move(row));
    }
    return table;
  }

  // The terms of a sum, by the rank that has them.
  Explanation::Table added_up(std::size_t statement, const Reduction& reduction) const {
    Explanation::Table table{"What " + element_name(reduction.target, wrong_.element) + " adds up" +
                                 (reduction.mean ? ", for their mean" : ""),
                             {"rank", "term", "value", "sum so far on the rank"},
                             {},
                             0};
    ArrayProgram program = program_;
    program.statements.resize(statement);
    auto& info = program.slots[index_of(reduction.source.scope)].at(reduction.source.index);
    if (info.role == Role::temporary) info.role = Role::state;
    const Runs runs = run(program, before_);
    const std::vector<float> source = reference<float>({program, before_, {}}, *runs.owned, same,
                                                       LastSum::given)[reduction.source];
    const bool by_owner = reduction.source.scope == Scope::coordinate;
    const Ownership ownership = !is_given_sum() ? ownership_
                                : resumed()
                                    ? make_ownership(case_, case_.ranks + 1)
                                    : mod_ownership(elements(Scope::coordinate, case_.shapes), 1);
    std::map<std::size_t, std::vector<std::size_t>> terms;
    each_term(reduction, [&](std::size_t target, std::size_t term) {
      if (target == wrong_.element) {
        terms[by_owner ? ownership.owner_of[term] : wrong_.rank].push_back(term);
      }
    });
    double all = 0;
    for (const auto& [of_rank, elements] : terms) {
      double sum = 0;
      for (const std::size_t term : elements) {
        sum += static_cast<double>(source.at(term));
        all += static_cast<double>(source.at(term));
        if (table.rows.size() >= kShownTerms) {
          ++table.left_out;
          continue;
        }
        table.rows.push_back({std::to_string(of_rank), element_name(reduction.source, term),
                              shown(source.at(term)), fmt::format("{:.17g}", sum)});
      }
    }
    table.rows.push_back({"all", "", "", fmt::format("{:.17g}", all)});
    return table;
  }

  const ProgramCase& case_;
  const ProgramDisagreement& wrong_;
  const DeviceMaker& make_;
  std::vector<PlacedParameter> parameters_;
  ArrayProgram program_;
  std::vector<std::string> lines_;
  Ownership ownership_;
  Chain chain_;
  ArrayState<float> before_;
  Contract contract_;
  bool exact_ = true;
};

double ulps_of(const ProgramDisagreement& wrong) {
  return Difference{0, 0, wrong.got, wrong.expected, wrong.bound, 0}.ulps();
}

std::string name_of(OwnerMap owners) {
  constexpr std::array<const char*, 4> names{"mod", "blocks", "greedy", "a table"};
  return names[static_cast<std::size_t>(owners)];
}

}  // namespace

Explanation explained(const ProgramCase& c, const ProgramResult& result, const DeviceMaker& make) {
  Explanation explanation;
  const auto fact = [&](const std::string& name, const std::string& text) {
    explanation.facts.emplace_back(name, text);
  };
  const auto wrong = first_wrong(result);
  const bool is_number = wrong && !wrong->slot.empty();
  if (!wrong) {
    using Verdict = SignoffResult::Verdict;
    explanation.verdict = result.verdict() == Verdict::agrees ? "agrees" : "no verdict";
  } else if (is_number) {
    explanation.verdict = fmt::format("wrong: {}: step {}, {} on rank {}", wrong->claim,
                                      wrong->step, wrong->slot, wrong->rank);
    if (wrong->owner) fact("owner", std::to_string(*wrong->owner));
    if (wrong->bound > 0) {
      fact("expected", fmt::format("{:.17g}, from {:.17g} to {:.17g}", wrong->expected,
                                   wrong->expected - wrong->bound, wrong->expected + wrong->bound));
    } else {
      fact("expected", shown(static_cast<float>(wrong->expected)));
    }
    fact("bound", fmt::format("{:.3g}", wrong->bound));
    fact("got", shown(static_cast<float>(wrong->got)));
    const double error = std::abs(wrong->got - wrong->expected);
    if (std::isfinite(error)) {
      fact("error", fmt::format("{:.3g}, {:.3g} ulps", error, ulps_of(*wrong)));
    }
  } else {
    explanation.verdict = "wrong: " + wrong->claim;
  }
  for (const std::string& place : result.overwritten) fact("overwritten", place);
  fact("ranks", fmt::format("{}, owners by {}", c.ranks, name_of(c.owners)));
  fact("parameters", to_string(c.shapes));
  fact("steps", std::to_string(c.steps));
  fact("input", c.input);
  fact("schedule", fmt::format("seed {}", c.schedule.seed));
  fact("device", result.device);
  fact("compared", result.exact ? "bit for bit" : "within running error bounds");
  if (!is_number) return explanation;
  try {
    const ProgramExplainer explainer(c, *wrong, make);
    if (wrong->line > 0) fact("written by", explainer.line(wrong->line));
    explanation.tables = explainer.tables();
  } catch (const DeviceError& error) {
    fact("no tables", error.what());
  }
  return explanation;
}

}  // namespace shardproof
