#include "diff/program_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <stdexcept>
#include <utility>

#include "diff/bounds.h"
#include "diff/given_sums.h"
#include "reference/numbers/bfloat16.h"
#include "reference/slots/array_elements.h"
#include "reference/slots/array_run.h"
#include "reference/slots/compile.h"
#include "reference/slots/running_error.h"
#include "reference/slots/text.h"

namespace shardproof {
namespace {

using Options = OwnedOptimizerOptions;
using Role = ArrayProgram::Role;

ArraySlot slot_at(std::size_t scope, std::size_t index) {
  return {static_cast<Scope>(scope), static_cast<std::uint16_t>(index)};
}

class ProgramJudge {
 public:
  ProgramJudge(const DeviceMaker& make, const ProgramCase& c, const ArrayProgram& program,
               const StepGradients& gradients, ProgramResult& result)
      : make_(make),
        case_(c),
        program_(program),
        gradients_(gradients),
        result_(result),
        coordinates_(elements(Scope::coordinate, c.shapes)) {
    for (std::size_t s = 0; s < program_.statements.size(); ++s) {
      const auto& statement = program_.statements[s];
      writers_.try_emplace(statement.target(), Writers{s, 0}).first->second.last_line =
          statement.position.line;
    }
    find_kept();
  }

  // Runs all steps, or those up to the first in which something is wrong.
  void run(const std::function<void(std::size_t)>& step_done) {
    const std::unique_ptr<Device> device = make_(static_cast<int>(case_.ranks), case_.schedule);
    result_.device = device->name();
    GivenSums one(make_(1, case_.schedule));
    std::optional<GivenSums> more;
    const Ownership ownership = make_ownership(case_, case_.ranks);
    const ArrayState<float> start = with_fixed_values(case_.start, program_, case_.shapes);
    read_contracts(*device);
    OwnedOptimizer owned(*device, program_, case_.shapes, ownership, start, case_.options);
    OwnedOptimizer replicated(one, program_, case_.shapes, mod_ownership(coordinates_, 1), start,
                              case_.options);
    std::unique_ptr<OwnedOptimizer> resumed;
    ArrayState<float> reference = start;
    for (step_ = 1; step_ <= case_.steps; ++step_) {
      const auto gradients = gradients_(step_);
      owned.step(gradients);
      coarser_.clear();
      for (int rank = 0; rank < owned.ranks(); ++rank) coarser_.push_back(owned.coarser(rank));
      const std::vector<float> reduced =
          gradient() ? owned.reduced_gradient() : std::vector<float>(coordinates_);
      if (gradient()) {
        judge_mean(*device, gradients, reduced, ownership);
        compare_all_reduced(owned, ownership);
      }
      sums_.clear();
      if (exact_) {
        compare_exactly(reference, owned, reduced, ownership);
      } else {
        compare_within_bounds(reference, owned, reduced, ownership);
      }
      one.give(owned.collectives());
      replicated.step_reduced(reduced);
      compare_runs("owned against replicated", owned, replicated, ownership);
      judge_given("collectives of the program on one rank", owned, one, ownership);
      if (resumed) {
        more->give(owned.collectives());
        resumed->step_reduced(reduced);
        compare_runs("owned against resumed on more ranks", owned, *resumed, ownership);
        judge_given("collectives of the program on more ranks", owned, *more, ownership);
      }
      compare_with_masters(owned, ownership);
      for (std::string& place : owned.overwritten()) {
        result_.overwritten.push_back(case_.input + ", step " + std::to_string(step_) + ": " +
                                      place);
      }
      if (step_done) step_done(step_);
      if (!result_.disagreements.empty() || !result_.overwritten.empty()) break;
      if (!resumed && step_ * 2 >= case_.steps && step_ < case_.steps) {
        more.emplace(make_(static_cast<int>(case_.ranks) + 1, case_.schedule));
        resumed = std::make_unique<OwnedOptimizer>(*more, program_, case_.shapes,
                                                   make_ownership(case_, case_.ranks + 1),
                                                   join(owned.save()), case_.options);
      }
    }
    for (auto& [claim, comparison] : comparisons_) result_.comparisons.push_back(comparison);
    result_.judged.insert(judged_.begin(), judged_.end());
  }

 private:
  // Of a slot: the first statement that writes it, and the line of the last.
  struct Writers {
    std::size_t first, last_line;
  };

  void read_contracts(const Device& device) {
    using Of = shardproof::Operation;
    program_contract_ = program_contract(device);
    sums_contract_ = device.contract(Of::all_reduce_sums, 1, 1);
    const Contract partial = device.contract(Of::partial_sums, 1, 1);
    if (unit_roundoff(partial.accumulate) > unit_roundoff(sums_contract_.accumulate)) {
      sums_contract_.accumulate = partial.accumulate;
    }
    sums_contract_.subnormals_kept &= partial.subnormals_kept;
    exact_ = !program_contract_.contraction && program_contract_.subnormals_kept;
    result_.exact = exact_;
  }

  std::optional<ArraySlot> gradient() const { return program_.find(Role::gradient); }

  // Slots whose values count: what is kept, in the order in which the program writes them, then the
  // others.
  void find_kept() {
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t k = 0; k < program_.slots[scope].size(); ++k) {
        const Role role = program_.slots[scope][k].role;
        if (role == Role::parameter || role == Role::state) kept_.push_back(slot_at(scope, k));
      }
    }
    const auto place = [&](ArraySlot slot) {
      const auto found = writers_.find(slot);
      return found == writers_.end() ? program_.statements.size() : found->second.first;
    };
    std::stable_sort(kept_.begin(), kept_.end(),
                     [&](ArraySlot a, ArraySlot b) { return place(a) < place(b); });
  }

  Comparison& comparison(const std::string& claim) {
    const auto [found, is_new] = comparisons_.try_emplace(claim);
    if (is_new) {
      found->second.node = claim;
      found->second.part = case_.input;
      found->second.kind = case_.kind;
    }
    return found->second;
  }

  // "m[1][3]": element 3 of parameter 1; "step" of a shared slot.
  std::string element_name(ArraySlot slot, std::size_t element) const {
    const std::string& name = program_.info(slot).name;
    if (slot.scope == Scope::shared) return name;
    for (const PlacedParameter& parameter : place(case_.shapes)) {
      const std::size_t first = parameter.first[index_of(slot.scope)];
      if (element < first + parameter.elements(slot.scope)) {
        return name + parameter.place_of(slot.scope, element - first);
      }
    }
    return name;
  }

  // Notes the first wrong number of a claim.
  void note(const Comparison& seen, const std::string& claim, ArraySlot slot,
            const Ownership& ownership, bool written_by_program = true) {
    if (seen.compared == 0) return;
    comparison(claim).merge(seen);
    if (std::exchange(saw_finite_, false)) judged_.insert(claim);
    if (seen.wrong == 0) return;
    for (const ProgramDisagreement& before : result_.disagreements) {
      if (before.claim == claim) return;
    }
    ProgramDisagreement first;
    first.claim = claim;
    first.input = case_.input;
    first.step = step_;
    first.rank = first_.replica;
    if (slot.scope == Scope::coordinate) first.owner = ownership.owner_of.at(first_.index);
    first.slot = element_name(slot, first_.index);
    first.place = slot;
    first.element = first_.index;
    first.got = first_.got;
    first.expected = first_.expected;
    first.bound = first_.bound;
    const auto writers = writers_.find(slot);
    if (written_by_program && writers != writers_.end()) first.line = writers->second.last_line;
    result_.disagreements.push_back(first);
  }

  // Compares one number by bits, remembering the first that differs.
  void see_equal(Comparison& seen, std::size_t rank, std::size_t index, float got, float expected) {
    const std::size_t before = seen.wrong;
    saw_finite_ = saw_finite_ || std::isfinite(expected);
    seen.see_equal(rank, index, got, expected);
    if (before == 0 && seen.wrong == 1) first_ = seen.worst;
  }
  void see(Comparison& seen, std::size_t rank, std::size_t index, float got, double expected,
           Allowance allowance) {
    const std::size_t before = seen.wrong;
    saw_finite_ = saw_finite_ || (std::isfinite(expected) && std::isfinite(allowance.any));
    seen.see(rank, index, got, expected, allowance);
    if (before == 0 && seen.wrong == 1) {
      first_ = {rank, index, static_cast<double>(got), expected, allowance.any, 0};
    }
  }

  void judge_mean(const Device& device, const std::vector<std::vector<float>>& gradients,
                  const std::vector<float>& reduced, const Ownership& ownership) {
    const bool all_reduce = case_.options.reduction == Options::Reduction::all_reduce;
    Contract contract = device.contract(all_reduce ? shardproof::Operation::all_reduce_mean
                                                   : shardproof::Operation::reduce_scatter_mean,
                                        1, 1);
    // A program's copy takes each rank's part of what an all-reduce gave.
    if (all_reduce) contract.subnormals_kept &= program_contract_.subnormals_kept;
    Comparison seen;
    std::vector<float> terms(case_.ranks);
    for (std::size_t i = 0; i < coordinates_; ++i) {
      Certified sum;
      for (std::size_t rank = 0; rank < case_.ranks; ++rank) {
        terms[rank] = gradients[rank][i];
        sum = sum + Certified(static_cast<double>(terms[rank]));
      }
      const Certified mean = sum / Certified(static_cast<double>(case_.ranks));
      Allowance allowance = all_reduce_allowance(terms, contract);
      allowance.any += mean.radius;
      allowance.likely = allowance.any;
      see(seen, ownership.owner_of[i], i, reduced[i], mean.value, allowance);
    }
    note(seen, "mean of the gradients", *gradient(), ownership, false);
  }

  // An all-reduce gives every rank the same bits, also where it owns nothing.
  void compare_all_reduced(const OwnedOptimizer& owned, const Ownership& ownership) {
    Comparison seen;
    const std::vector<float> expected = owned.all_reduced_gradient(0);
    for (int rank = 1; rank < owned.ranks(); ++rank) {
      const std::vector<float> got = owned.all_reduced_gradient(rank);
      for (std::size_t i = 0; i < got.size(); ++i) {
        see_equal(seen, static_cast<std::size_t>(rank), i, got[i], expected[i]);
      }
    }
    note(seen, "mean of the gradients, equal on all ranks", *gradient(), ownership, false);
  }

  // Bit for bit: what every owner keeps, every rank's coarser slots and gathered parameters.
  void compare_runs(const std::string& claim, const OwnedOptimizer& owned,
                    const OwnedOptimizer& other, const Ownership& ownership) {
    const ArrayState<float> other_coarser = other.coarser(0);
    for (const ArraySlot slot : kept_) {
      const std::vector<float> expected =
          slot.scope == Scope::coordinate ? other.owned(slot) : other_coarser[slot];
      Comparison seen;
      each_held(owned, slot, ownership, [&](std::size_t rank, std::size_t i, float got) {
        see_equal(seen, rank, i, got, expected[i]);
      });
      note(seen, claim, slot, ownership);
    }
    if (program_.find(Role::parameter)) {
      compare_gathered(claim + ", gathered parameters", owned, other.parameters(0), ownership);
    }
  }

  // What every rank has gathered against what the owners hold, rounded to the parameters' format.
  void compare_with_masters(const OwnedOptimizer& owned, const Ownership& ownership) {
    const auto parameter = program_.find(Role::parameter);
    if (!parameter) return;
    std::vector<float> expected = owned.owned(*parameter);
    if (case_.options.parameters == Options::Parameters::bfloat16) {
      std::transform(expected.begin(), expected.end(), expected.begin(), round_to_bfloat16);
    }
    compare_gathered("gathered parameters are the owners'", owned, expected, ownership);
  }
  void compare_gathered(const std::string& claim, const OwnedOptimizer& owned,
                        const std::vector<float>& expected, const Ownership& ownership) {
    Comparison seen;
    for (int rank = 0; rank < owned.ranks(); ++rank) {
      const std::vector<float> got = owned.parameters(rank);
      for (std::size_t i = 0; i < coordinates_; ++i) {
        see_equal(seen, static_cast<std::size_t>(rank), i, got[i], expected[i]);
      }
    }
    note(seen, claim, *program_.find(Role::parameter), ownership);
  }

  // Where the exact sums, or means, of a collective's terms lie, and what the device may err: any
  // order in its accumulator, then one rounding to float32.
  struct Sums {
    ArraySlot target;
    std::vector<Certified> expected;
    std::vector<Allowance> allowance;
  };
  Sums bound_sums(const ArrayProgram::Reduction& reduction,
                  const std::vector<Certified>& terms) const {
    struct Sum {
      Certified sum;
      double count = 0, magnitude = 0;
    };
    std::vector<Sum> sums(elements(reduction.target.scope, case_.shapes));
    std::size_t term = 0;
    for (const PlacedParameter& parameter : place(case_.shapes)) {
      for (std::size_t i = 0; i < parameter.elements(reduction.source.scope); ++i, ++term) {
        Sum& sum = sums[parameter.holder(reduction.target.scope, reduction.source.scope, i)];
        sum.sum = sum.sum + terms[term];
        sum.magnitude += std::abs(terms[term].value) + terms[term].radius;
        ++sum.count;
      }
    }
    Sums bounds{reduction.target, {}, {}};
    for (const Sum& sum : sums) {
      const double n = sum.count, total = std::abs(sum.sum.value);
      Certified expected = sum.sum;
      Allowance allowance;
      if (sums_contract_.accumulate == Accumulate::float64 && !may_overflow(sum.magnitude)) {
        if (reduction.mean) expected = expected / Certified(n);
        const double additions = (n + 2) * 0x1p-53 * sum.magnitude / (reduction.mean ? n : 1);
        const double largest = std::abs(expected.value) + expected.radius + additions;
        allowance.any = additions + float32_ulp(largest) / 2;
        if (!sums_contract_.subnormals_kept) allowance.any += 0x1p-126;
      } else {
        allowance = sum_bound(n, sums_contract_, InputKind::lattice, Dither::permuted)
                        .at(total, sum.magnitude, 0);
        if (reduction.mean) {
          allowance = mean_allowance(allowance, {n, total, sum.magnitude, false}, sums_contract_);
          expected = expected / Certified(n);
        }
      }
      allowance.likely = allowance.any += expected.radius;
      bounds.expected.push_back(expected);
      bounds.allowance.push_back(allowance);
    }
    return bounds;
  }

  void judge_sums(const std::string& claim, const Sums& sums,
                  const std::vector<std::vector<float>>& got, const Ownership& ownership) {
    Comparison seen;
    for (std::size_t rank = 0; rank < got.size(); ++rank) {
      for (std::size_t e = 0; e < sums.expected.size(); ++e) {
        see(seen, rank, e, got[rank][e], sums.expected[e].value, sums.allowance[e]);
      }
    }
    note(seen, claim, sums.target, ownership);
    Comparison equal;
    for (std::size_t rank = 1; rank < got.size(); ++rank) {
      for (std::size_t e = 0; e < sums.expected.size(); ++e) {
        see_equal(equal, rank, e, got[rank][e], got[0][e]);
      }
    }
    note(equal, claim + ", equal on all ranks", sums.target, ownership);
  }

  // What the device gave for the collectives of a run that was given others' values.
  void judge_given(const std::string& claim, const OwnedOptimizer& owned, const GivenSums& device,
                   const Ownership& ownership) {
    for (std::size_t i = 0; i < owned.collectives().size(); ++i) {
      judge_sums(claim, sums_.at(i), device.computed().at(i), ownership);
    }
  }

  // The reference's step on the device's own reduced gradients and collectives, in `state`; the
  // collectives are judged on the way. range(x) is where the exact value of x lies.
  template <class T, class FromFloat, class RangeOf>
  void reference_step(ArrayState<T>& state, const OwnedOptimizer& owned,
                      const std::vector<float>& reduced, const Ownership& ownership,
                      const Arithmetic<T>& arithmetic, FromFloat number, RangeOf range) {
    if (gradient()) {
      for (std::size_t i = 0; i < coordinates_; ++i) state[*gradient()][i] = number(reduced[i]);
    }
    auto collective = owned.collectives().begin();
    const auto given = [&](std::size_t statement, std::span<const T> source, std::span<T> values) {
      std::vector<Certified> terms(source.size());
      std::transform(source.begin(), source.end(), terms.begin(), range);
      sums_.push_back(bound_sums(
          std::get<ArrayProgram::Reduction>(program_.statements[statement].does), terms));
      judge_sums("collectives of the program", sums_.back(), collective->values, ownership);
      std::transform(collective->values[0].begin(), collective->values[0].end(), values.begin(),
                     number);
      ++collective;
    };
    state = array_run<T>(std::move(state), program_, case_.shapes, given, arithmetic);
  }

  // The reference's state moves on by one step, and the device must hold the same bits.
  void compare_exactly(ArrayState<float>& state, const OwnedOptimizer& owned,
                       const std::vector<float>& reduced, const Ownership& ownership) {
    reference_step(
        state, owned, reduced, ownership, Arithmetic<float>{}, [](float x) { return x; },
        [](float x) { return Certified(static_cast<double>(x)); });
    for (const ArraySlot slot : kept_) {
      Comparison seen;
      each_held(owned, slot, ownership, [&](std::size_t rank, std::size_t i, float got) {
        see_equal(seen, rank, i, got, state[slot][i]);
      });
      note(seen, "device against reference", slot, ownership);
    }
  }

  // One step from the state that the device had before, within running error bounds; `held` becomes
  // the state it has now.
  void compare_within_bounds(ArrayState<float>& held, const OwnedOptimizer& owned,
                             const std::vector<float>& reduced, const Ownership& ownership) {
    Arithmetic<RunningError> arithmetic;
    arithmetic.root_unit = std::max(0.5, program_contract_.root) * 0x1p-23;
    if (!program_contract_.subnormals_kept) arithmetic.underflow = arithmetic.flushed = 0x1p-126;
    const auto number = [](float x) { return RunningError(static_cast<double>(x)); };
    ArrayState<RunningError> state;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (const std::vector<float>& values : held.values[scope]) {
        auto& wide = state.values[scope].emplace_back(values.size());
        std::transform(values.begin(), values.end(), wide.begin(), number);
      }
    }
    reference_step(state, owned, reduced, ownership, arithmetic, number, [](const RunningError& x) {
      return x.is_special ? Certified(x.special) : x.range;
    });
    const ArrayState<float> now = join(owned.save());
    for (const ArraySlot slot : kept_) {
      Comparison seen;
      each_held(owned, slot, ownership, [&](std::size_t rank, std::size_t i, float got) {
        const RunningError& expected = state[slot][i];
        if (!expected.is_known()) {
          seen.skip();
        } else if (expected.is_special) {
          see(seen, rank, i, got, expected.special, {});
        } else {
          // A copy is flushed where it is read.
          const Certified& range = expected.range;
          const double bound =
              range.radius + (std::abs(range.value) < arithmetic.flushed ? arithmetic.flushed : 0);
          see(seen, rank, i, got, range.value, {bound, bound});
        }
      });
      note(seen, "device against reference", slot, ownership);
      held[slot] = now[slot];
    }
  }

  // see(rank, element, value) of all that the device holds of a slot after this step.
  template <class See>
  void each_held(const OwnedOptimizer& owned, ArraySlot slot, const Ownership& ownership,
                 See see) const {
    if (slot.scope == Scope::coordinate) {
      const std::vector<float> got = owned.owned(slot);
      for (std::size_t i = 0; i < coordinates_; ++i) see(ownership.owner_of[i], i, got[i]);
      return;
    }
    for (std::size_t rank = 0; rank < coarser_.size(); ++rank) {
      const std::vector<float>& got = coarser_[rank][slot];
      for (std::size_t i = 0; i < got.size(); ++i) see(rank, i, got[i]);
    }
  }

  const DeviceMaker& make_;
  const ProgramCase& case_;
  const ArrayProgram& program_;
  const StepGradients& gradients_;
  ProgramResult& result_;
  std::size_t coordinates_, step_ = 0;
  Contract program_contract_, sums_contract_;
  bool exact_ = true;
  std::vector<Sums> sums_;                  // of this step's collectives
  std::vector<ArrayState<float>> coarser_;  // by rank: what it holds after this step
  bool saw_finite_ = false;
  std::set<std::string> judged_;  // claims that compared a finite number
  std::map<ArraySlot, Writers> writers_;
  std::vector<ArraySlot> kept_;
  std::map<std::string, Comparison> comparisons_;  // by claim
  Difference first_;                               // of the last comparison seen
};

}  // namespace

Contract program_contract(const Device& device) {
  Contract contract = device.contract(Operation::owned_step, 1, 1);
  for (const Operation operation : {Operation::shared_step, Operation::shared_sum}) {
    const Contract part = device.contract(operation, 1, 1);
    contract.contraction |= part.contraction;
    contract.subnormals_kept &= part.subnormals_kept;
    contract.root = std::max(contract.root, part.root);
  }
  return contract;
}

SignoffResult::Verdict ProgramResult::verdict() const {
  using Verdict = SignoffResult::Verdict;
  if (!failure.empty() || !disagreements.empty() || !overwritten.empty()) return Verdict::disagrees;
  if (!out_of_memory.empty()) return Verdict::none;
  return unjudged.empty() ? Verdict::agrees : Verdict::none;
}

Ownership make_ownership(const ProgramCase& c, std::size_t ranks) {
  const std::size_t coordinates = elements(Scope::coordinate, c.shapes);
  switch (c.owners) {
    case OwnerMap::mod:
      break;
    case OwnerMap::blocks:
      return block_ownership(coordinates, ranks);
    case OwnerMap::greedy: {
      std::vector<std::size_t> sizes;
      for (const ParameterShape& shape : c.shapes) sizes.push_back(shape.size());
      return greedy_ownership(sizes, ranks);
    }
    case OwnerMap::table:
      if (ranks >= c.ranks) return {ranks, c.table};
      break;
  }
  return mod_ownership(coordinates, ranks);
}

Result<ArrayProgram> compile_separable(const std::string& file, std::string_view text) {
  const Result<ProgramText> parsed = parse_program(file, text);
  if (!parsed) return Error{parsed.error()};
  if (parsed->whole()) {
    const auto named = std::find_if(
        parsed->declarations.begin(), parsed->declarations.end(), [](const auto& declaration) {
          return declaration.kind == ProgramText::Declaration::Kind::coordinate;
        });
    return error_at(file, named->position,
                    "names its slots one by one; a device runs programs over arrays (parameter, "
                    "gradient, state)");
  }
  Result<ArrayProgram> program = compile_array(file, *parsed);
  if (!program) return program;
  if (const auto across = program->across_coordinates()) {
    return error_at(file, program->statements[*across].position,
                    "reads across coordinates, so that it cannot be partitioned; put all_reduce in "
                    "front of the sum");
  }
  return program;
}

ArrayState<float> with_fixed_values(ArrayState<float> state, const ArrayProgram& program,
                                    std::span<const ParameterShape> shapes) {
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    const std::size_t count = elements(static_cast<Scope>(scope), shapes);
    const auto& slots = program.slots[scope];
    state.values[scope].resize(slots.size());
    for (std::size_t k = 0; k < slots.size(); ++k) {
      if (slots[k].role == Role::parameter || slots[k].role == Role::state) continue;
      const float value = slots[k].role == Role::constant
                              ? Arithmetic<float>::constant(*slots[k].initial)
                              : std::numeric_limits<float>::quiet_NaN();
      state.values[scope][k].assign(count, value);
    }
  }
  return state;
}

ProgramResult judge_program_case(const DeviceMaker& make, const ProgramCase& c,
                                 const ArrayProgram& program, const StepGradients& gradients,
                                 const std::function<void(std::size_t)>& step_done) {
  ProgramResult result;
  try {
    ProgramJudge(make, c, program, gradients, result).run(step_done);
  } catch (const OutOfDeviceMemory& error) {
    result.out_of_memory = error.what();
  } catch (const DeviceError& error) {
    result.failure = c.input + ": " + error.what();
  }
  if (result.judged.empty()) {
    result.unjudged = {"device against reference", "owned against replicated"};
  }
  return result;
}

ProgramResult judge_program_case(const DeviceMaker& make, const ProgramCase& c) {
  const Result<ArrayProgram> program = compile_separable("program", c.program);
  if (!program) throw std::invalid_argument(program.error());
  return judge_program_case(make, c, *program, [&](std::size_t step) {
    return c.gradients.empty() ? std::vector<std::vector<float>>(c.ranks)
                               : c.gradients.at(step - 1);
  });
}

bool is_mean_of_none(const ProgramCase& c, const ProgramDisagreement& wrong) {
  return elements(Scope::coordinate, c.shapes) == 0 && std::isnan(wrong.expected);
}

std::string describe(const ProgramDisagreement& wrong) {
  if (wrong.slot.empty()) return wrong.claim;  // a write outside of what is owned, or a failure
  return fmt::format("{}: {} after step {} on rank {} got {:.9g}, exact {:.9g}, bound {:.3g}",
                     wrong.claim, wrong.slot, wrong.step, wrong.rank, wrong.got, wrong.expected,
                     wrong.bound);
}

std::optional<ProgramDisagreement> first_wrong(const ProgramResult& result,
                                               const std::set<std::string>& claims) {
  const auto asked = [&](const std::string& claim) {
    return claims.empty() || claims.contains(claim);
  };
  for (const ProgramDisagreement& disagreement : result.disagreements) {
    if (asked(disagreement.claim)) return disagreement;
  }
  ProgramDisagreement other;
  if (asked(kOverwritten) && !result.overwritten.empty()) {
    other.claim = std::string(kOverwritten) + ": " + result.overwritten[0];
    return other;
  }
  if (asked(kFailed) && !result.failure.empty()) {
    other.claim = std::string(kFailed) + ": " + result.failure;
    return other;
  }
  return std::nullopt;
}

}  // namespace shardproof
