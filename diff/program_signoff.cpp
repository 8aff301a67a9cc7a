#include "diff/program_signoff.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "device/engine/forwarding_device.h"
#include "diff/bounds.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/random.h"
#include "reference/slots/array_elements.h"
#include "reference/slots/array_run.h"
#include "reference/slots/running_error.h"

namespace shardproof {
namespace {

using Options = OwnedOptimizerOptions;
using Role = ArrayProgram::Role;

// One way to run the step: what the gradients are like, and how the parameters are cut and moved.
struct Variation {
  enum class Input { natural, lattice, corners };
  std::string name;
  Input input;
  Options options;
};

// Buckets of a few coordinates, so that small parameters cross cuts too.
std::vector<Variation> variations(std::size_t coordinates) {
  const std::size_t few = std::max<std::size_t>(3, coordinates / 3);
  using P = Options::Parameters;
  using R = Options::Reduction;
  return {{"natural gradients, reduce-scatter",
           Variation::Input::natural,
           {P::float32, R::reduce_scatter, 0}},
          {"lattice gradients, all-reduce, buckets",
           Variation::Input::lattice,
           {P::float32, R::all_reduce, few}},
          {"corner gradients, reduce-scatter, buckets, bfloat16 parameters",
           Variation::Input::corners,
           {P::bfloat16, R::reduce_scatter, few}}};
}

// A gradient is a function of seed, input, step, rank and coordinate.
float gradient_at(Variation::Input input, Random& random, std::size_t ranks) {
  static constexpr std::array<float, 14> corners = {0.0F,
                                                    -0.0F,
                                                    0x1p-149F,
                                                    -0x1p-149F,
                                                    0x1p-127F,
                                                    -0x1.8p-126F,
                                                    0x1p-75F,
                                                    0x1p-60F,
                                                    0x1p64F,
                                                    0x1.8p100F,
                                                    -0x1p126F,
                                                    std::numeric_limits<float>::infinity(),
                                                    -std::numeric_limits<float>::infinity(),
                                                    std::numeric_limits<float>::quiet_NaN()};
  switch (input) {
    case Variation::Input::lattice:
      // Multiples of the number of ranks: their mean is exact in any order.
      return std::ldexp(static_cast<float>(random.integer(-12, 12)) * static_cast<float>(ranks),
                        -5);
    case Variation::Input::corners:
      if (random.below(4) == 0) return corners[random.below(corners.size())];
      [[fallthrough]];
    case Variation::Input::natural: {
      const double scale = std::ldexp(1.0, static_cast<int>(random.integer(-12, 2)));
      return static_cast<float>(random.triangular(1) * scale);
    }
  }
  return 0;
}

std::vector<std::vector<float>> draw_gradients(const ProgramTask& task, Variation::Input input,
                                               std::size_t coordinates, std::size_t step) {
  std::vector<std::vector<float>> gradients(task.ranks);
  for (std::size_t rank = 0; rank < task.ranks; ++rank) {
    Random random(task.seed, "gradients of a step", step * task.ranks + rank);
    gradients[rank].reserve(coordinates);
    for (std::size_t i = 0; i < coordinates; ++i) {
      gradients[rank].push_back(gradient_at(input, random, task.ranks));
    }
  }
  return gradients;
}

ArraySlot slot_at(std::size_t scope, std::size_t index) {
  return {static_cast<Scope>(scope), static_cast<std::uint16_t>(index)};
}

// Declared starts; what has none is drawn, so that no two numbers are alike.
ArrayState<float> draw_start(const ArrayProgram& program, const ProgramTask& task) {
  ArrayState<float> state;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (std::size_t k = 0; k < program.slots[scope].size(); ++k) {
      const ArrayProgram::SlotInfo& info = program.slots[scope][k];
      std::vector<float> values(elements(static_cast<Scope>(scope), task.shapes));
      Random random(task.seed, "start of " + info.name, scope);
      for (float& value : values) {
        value = info.initial
                    ? Arithmetic<float>::constant(*info.initial)
                    : static_cast<float>(info.role == Role::parameter ? random.triangular(2)
                                                                      : random.uniform());
      }
      state.values[scope].push_back(std::move(values));
    }
  }
  return state;
}

// Hands back the sums that another run's collectives gave, in the order in which they ran: between
// a sharded and a replicated run they may differ by the order of additions, and are judged apart.
class GivenSums : public ForwardingDevice {
 public:
  explicit GivenSums(std::unique_ptr<Device> device)
      : ForwardingDevice(*device), device_(std::move(device)) {}

  void give(const std::vector<OwnedOptimizer::Collective>& collectives) {
    given_.clear();
    next_ = 0;
    for (const auto& collective : collectives) given_.push_back(collective.values.at(0));
  }
  void all_reduce_sums(const AllReduceSumsCall& call) override {
    const std::vector<float>& values = given_.at(next_++);
    for (std::size_t rank = 0; rank < call.result.size(); ++rank) {
      upload(static_cast<int>(rank), call.result[rank], values.data(), call.count);
    }
  }

 private:
  std::unique_ptr<Device> device_;
  std::vector<std::vector<float>> given_;
  std::size_t next_ = 0;
};

class ProgramJudge {
 public:
  ProgramJudge(const DeviceFactory& make, const ProgramTask& task, const Variation& variation,
               ProgramResult& result)
      : make_(make),
        task_(task),
        program_(task.program),
        variation_(variation),
        result_(result),
        coordinates_(elements(Scope::coordinate, task.shapes)) {
    for (std::size_t s = 0; s < program_.statements.size(); ++s) {
      const auto target =
          std::visit([](const auto& does) { return does.target; }, program_.statements[s].does);
      last_writer_[key(target)] = program_.statements[s].position.line;
      if (std::find(order_.begin(), order_.end(), key(target)) == order_.end()) {
        order_.push_back(key(target));
      }
    }
  }

  // Runs all steps, or those up to the first in which something is wrong.
  void run(const std::function<void(std::size_t)>& step_done) {
    const std::unique_ptr<Device> device = make_(static_cast<int>(task_.ranks));
    result_.device = device->name();
    GivenSums one(make_(1));
    std::optional<GivenSums> more;
    const Ownership ownership = make_ownership(task_, task_.ranks);
    const ArrayState<float> start = draw_start(program_, task_);
    exact_ = !device->contract(shardproof::Operation::owned_step, 1, 1).contraction;
    result_.exact = exact_;

    OwnedOptimizer owned(*device, program_, task_.shapes, ownership, start, variation_.options);
    OwnedOptimizer replicated(one, program_, task_.shapes, mod_ownership(coordinates_, 1), start,
                              variation_.options);
    std::unique_ptr<OwnedOptimizer> resumed;
    ArrayState<float> reference = start;
    for (step_ = 1; step_ <= task_.steps; ++step_) {
      const auto gradients = draw_gradients(task_, variation_.input, coordinates_, step_);
      owned.step(gradients);
      const std::vector<float> reduced =
          gradient() ? owned.reduced_gradient() : std::vector<float>(coordinates_);
      if (gradient()) judge_mean(*device, gradients, reduced, ownership);
      one.give(owned.collectives());
      replicated.step_reduced(reduced);
      compare_runs("owned against replicated", owned, replicated, ownership);
      compare_gathered(owned, ownership);
      if (resumed) {
        more->give(owned.collectives());
        resumed->step_reduced(reduced);
        compare_runs("owned against resumed on more ranks", owned, *resumed, ownership);
      }
      if (exact_) {
        compare_exactly(reference, owned, reduced, *device, ownership);
      } else {
        compare_within_bounds(reference, owned, reduced, *device, ownership);
      }
      for (std::string& place : owned.overwritten()) {
        result_.overwritten.push_back(variation_.name + ", step " + std::to_string(step_) + ": " +
                                      place);
      }
      step_done(step_);
      if (!result_.disagreements.empty() || !result_.overwritten.empty()) break;
      if (!resumed && step_ * 2 >= task_.steps && step_ < task_.steps) {
        more.emplace(make_(static_cast<int>(task_.ranks) + 1));
        resumed = std::make_unique<OwnedOptimizer>(*more, program_, task_.shapes,
                                                   make_ownership(task_, task_.ranks + 1),
                                                   join(owned.save()), variation_.options);
      }
    }
    for (auto& [claim, comparison] : comparisons_) result_.comparisons.push_back(comparison);
  }

 private:
  static std::size_t key(ArraySlot slot) {
    return static_cast<std::size_t>(slot.scope) << 16U | slot.index;
  }

  std::optional<ArraySlot> gradient() const { return program_.find(Role::gradient); }

  // Slots whose values count: what is kept, in the order in which the program writes them, then the
  // others.
  std::vector<ArraySlot> kept() const {
    std::vector<ArraySlot> slots;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (std::size_t k = 0; k < program_.slots[scope].size(); ++k) {
        const Role role = program_.slots[scope][k].role;
        if (role == Role::parameter || role == Role::state) slots.push_back(slot_at(scope, k));
      }
    }
    const auto place = [&](ArraySlot slot) {
      return std::find(order_.begin(), order_.end(), key(slot)) - order_.begin();
    };
    std::stable_sort(slots.begin(), slots.end(),
                     [&](ArraySlot a, ArraySlot b) { return place(a) < place(b); });
    return slots;
  }

  Comparison& comparison(const std::string& claim) {
    const auto [found, is_new] = comparisons_.try_emplace(claim);
    if (is_new) {
      found->second.node = claim;
      found->second.part = variation_.name;
      found->second.kind =
          variation_.input == Variation::Input::lattice ? InputKind::lattice : InputKind::natural;
    }
    return found->second;
  }

  // "m[1][3]": element 3 of parameter 1; "step" of a shared slot.
  std::string element_name(ArraySlot slot, std::size_t element) const {
    std::string name = program_.info(slot).name;
    if (slot.scope == Scope::shared) return name;
    if (slot.scope == Scope::parameter) return name + "[" + std::to_string(element) + "]";
    std::size_t parameter = 0;
    for (; parameter < task_.shapes.size(); ++parameter) {
      const std::size_t size = elements(slot.scope, std::span(&task_.shapes[parameter], 1));
      if (element < size) break;
      element -= size;
    }
    return name + "[" + std::to_string(parameter) + "][" + std::to_string(element) + "]";
  }

  // Notes the first wrong number of a claim.
  void note(const Comparison& seen, const std::string& claim, ArraySlot slot,
            const Ownership& ownership) {
    if (seen.compared == 0) return;
    comparison(claim).merge(seen);
    if (seen.wrong == 0) return;
    for (const ProgramDisagreement& before : result_.disagreements) {
      if (before.claim == claim) return;
    }
    ProgramDisagreement first;
    first.claim = claim;
    first.input = variation_.name;
    first.step = step_;
    first.rank = first_.replica;
    if (slot.scope == Scope::coordinate) first.owner = ownership.owner_of.at(first_.index);
    first.slot = element_name(slot, first_.index);
    first.got = first_.got;
    first.expected = first_.expected;
    first.bound = first_.bound;
    const auto writer = last_writer_.find(key(slot));
    if (writer != last_writer_.end()) first.line = writer->second;
    result_.disagreements.push_back(first);
  }

  // Compares one number by bits, remembering the first that differs.
  void see_equal(Comparison& seen, std::size_t rank, std::size_t index, float got, float expected) {
    const std::size_t before = seen.wrong;
    seen.see_equal(rank, index, got, expected);
    if (before == 0 && seen.wrong == 1) first_ = seen.worst;
  }
  void see(Comparison& seen, std::size_t rank, std::size_t index, float got, double expected,
           Allowance allowance) {
    const std::size_t before = seen.wrong;
    seen.see(rank, index, got, expected, allowance);
    if (before == 0 && seen.wrong == 1) {
      first_ = {rank, index, static_cast<double>(got), expected, allowance.any, 0};
    }
  }

  void judge_mean(const Device& device, const std::vector<std::vector<float>>& gradients,
                  const std::vector<float>& reduced, const Ownership& ownership) {
    const Contract contract =
        device.contract(variation_.options.reduction == Options::Reduction::all_reduce
                            ? shardproof::Operation::all_reduce_mean
                            : shardproof::Operation::reduce_scatter_mean,
                        1, 1);
    Comparison seen;
    std::vector<float> terms(task_.ranks);
    for (std::size_t i = 0; i < coordinates_; ++i) {
      Certified sum;
      for (std::size_t rank = 0; rank < task_.ranks; ++rank) {
        terms[rank] = gradients[rank][i];
        sum = sum + Certified(static_cast<double>(terms[rank]));
      }
      const Certified mean = sum / Certified(static_cast<double>(task_.ranks));
      Allowance allowance = all_reduce_allowance(terms, contract);
      allowance.any += mean.radius;
      allowance.likely = allowance.any;
      see(seen, ownership.owner_of[i], i, reduced[i], mean.value, allowance);
    }
    note(seen, "mean of the gradients", *gradient(), ownership);
  }

  // Bit for bit: what every owner keeps, every rank's coarser slots and gathered parameters.
  void compare_runs(const std::string& claim, const OwnedOptimizer& owned,
                    const OwnedOptimizer& other, const Ownership& ownership) {
    const ArrayState<float> other_coarser = other.coarser(0);
    std::vector<ArrayState<float>> coarser;
    for (int rank = 0; rank < owned.ranks(); ++rank) coarser.push_back(owned.coarser(rank));
    for (const ArraySlot slot : kept()) {
      Comparison seen;
      if (slot.scope == Scope::coordinate) {
        const std::vector<float> got = owned.owned(slot), expected = other.owned(slot);
        for (std::size_t i = 0; i < coordinates_; ++i) {
          see_equal(seen, ownership.owner_of[i], i, got[i], expected[i]);
        }
      } else {
        for (std::size_t rank = 0; rank < coarser.size(); ++rank) {
          for (std::size_t i = 0; i < other_coarser[slot].size(); ++i) {
            see_equal(seen, rank, i, coarser[rank][slot][i], other_coarser[slot][i]);
          }
        }
      }
      note(seen, claim, slot, ownership);
    }
    if (const auto parameter = program_.find(Role::parameter)) {
      Comparison seen;
      const std::vector<float> expected = other.parameters(0);
      for (int rank = 0; rank < owned.ranks(); ++rank) {
        const std::vector<float> got = owned.parameters(rank);
        for (std::size_t i = 0; i < coordinates_; ++i) {
          see_equal(seen, static_cast<std::size_t>(rank), i, got[i], expected[i]);
        }
      }
      note(seen, claim + ", gathered parameters", *parameter, ownership);
    }
  }

  // What every rank has gathered against what the owners hold, rounded to the parameters' format.
  void compare_gathered(const OwnedOptimizer& owned, const Ownership& ownership) {
    const auto parameter = program_.find(Role::parameter);
    if (!parameter) return;
    std::vector<float> expected = owned.owned(*parameter);
    if (variation_.options.parameters == Options::Parameters::bfloat16) {
      std::transform(expected.begin(), expected.end(), expected.begin(), round_to_bfloat16);
    }
    Comparison seen;
    for (int rank = 0; rank < owned.ranks(); ++rank) {
      const std::vector<float> got = owned.parameters(rank);
      for (std::size_t i = 0; i < coordinates_; ++i) {
        see_equal(seen, static_cast<std::size_t>(rank), i, got[i], expected[i]);
      }
    }
    note(seen, "gathered parameters are the owners'", *parameter, ownership);
  }

  // A collective of the device against the exact Σ, or mean, of the values it is of.
  void judge_collective(const ArrayProgram::Reduction& reduction,
                        const std::vector<std::vector<float>>& got,
                        const std::vector<Certified>& terms, const Device& device,
                        const Ownership& ownership) {
    const Contract contract = device.contract(shardproof::Operation::all_reduce_sums, 1, 1);
    struct Sum {
      Certified sum;
      double count = 0, magnitude = 0;
    };
    std::vector<Sum> sums(elements(reduction.target.scope, task_.shapes));
    std::size_t term = 0;
    for (const PlacedParameter& parameter : place(task_.shapes)) {
      for (std::size_t i = 0; i < parameter.elements(reduction.source.scope); ++i, ++term) {
        Sum& sum = sums[parameter.holder(reduction.target.scope, reduction.source.scope, i)];
        sum.sum = sum.sum + terms[term];
        sum.magnitude += std::abs(terms[term].value) + terms[term].radius;
        ++sum.count;
      }
    }
    Comparison seen, equal;
    for (std::size_t e = 0; e < sums.size(); ++e) {
      Certified expected = sums[e].sum;
      const double n = sums[e].count, total = std::abs(expected.value);
      Allowance allowance = sum_bound(n, contract, InputKind::lattice, Dither::permuted)
                                .at(total, sums[e].magnitude, 0);
      if (reduction.mean) {
        allowance = mean_allowance(allowance, {n, total, sums[e].magnitude, false}, contract);
        expected = expected / Certified(n);
      }
      allowance.likely = allowance.any += expected.radius;
      for (std::size_t rank = 0; rank < got.size(); ++rank) {
        see(seen, rank, e, got[rank][e], expected.value, allowance);
      }
    }
    note(seen, "collectives of the program", reduction.target, ownership);
    for (std::size_t e = 0; e < sums.size(); ++e) {
      for (std::size_t rank = 1; rank < got.size(); ++rank) {
        see_equal(equal, rank, e, got[rank][e], got[0][e]);
      }
    }
    note(equal, "collectives equal on all ranks", reduction.target, ownership);
  }

  // The reference's step on the device's own reduced gradients and collectives, in `state`; the
  // collectives are judged on the way. range(x) is where the exact value of x lies.
  template <class T, class FromFloat, class RangeOf>
  void reference_step(ArrayState<T>& state, const OwnedOptimizer& owned,
                      const std::vector<float>& reduced, const Device& device,
                      const Ownership& ownership, const Arithmetic<T>& arithmetic, FromFloat number,
                      RangeOf range) {
    if (gradient()) {
      for (std::size_t i = 0; i < coordinates_; ++i) state[*gradient()][i] = number(reduced[i]);
    }
    auto collective = owned.collectives().begin();
    const auto given = [&](std::size_t statement, std::span<const T> source, std::span<T> values) {
      std::vector<Certified> terms(source.size());
      std::transform(source.begin(), source.end(), terms.begin(), range);
      judge_collective(std::get<ArrayProgram::Reduction>(program_.statements[statement].does),
                       collective->values, terms, device, ownership);
      std::transform(collective->values[0].begin(), collective->values[0].end(), values.begin(),
                     number);
      ++collective;
    };
    state = array_run<T>(std::move(state), program_, task_.shapes, given, arithmetic);
  }

  // The reference's state moves on by one step, and the device must hold the same bits.
  void compare_exactly(ArrayState<float>& state, const OwnedOptimizer& owned,
                       const std::vector<float>& reduced, const Device& device,
                       const Ownership& ownership) {
    reference_step(
        state, owned, reduced, device, ownership, Arithmetic<float>{}, [](float x) { return x; },
        [](float x) { return Certified(static_cast<double>(x)); });
    for (const ArraySlot slot : kept()) {
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
                             const std::vector<float>& reduced, const Device& device,
                             const Ownership& ownership) {
    const Contract contract = device.contract(shardproof::Operation::owned_step, 1, 1);
    Arithmetic<RunningError> arithmetic;
    arithmetic.root_unit = std::max(0.5, contract.root) * 0x1p-23;
    if (!contract.subnormals_kept) arithmetic.underflow = arithmetic.flushed = 0x1p-126;
    const auto number = [](float x) { return RunningError{Certified(static_cast<double>(x))}; };
    ArrayState<RunningError> state;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      for (const std::vector<float>& values : held.values[scope]) {
        auto& wide = state.values[scope].emplace_back(values.size());
        std::transform(values.begin(), values.end(), wide.begin(), number);
      }
    }
    reference_step(state, owned, reduced, device, ownership, arithmetic, number,
                   [](const RunningError& x) { return x.range; });
    const ArrayState<float> now = join(owned.save());
    for (const ArraySlot slot : kept()) {
      Comparison seen;
      each_held(owned, slot, ownership, [&](std::size_t rank, std::size_t i, float got) {
        const Certified& expected = state[slot][i].range;
        see(seen, rank, i, got, expected.value, {expected.radius, expected.radius});
      });
      note(seen, "device against reference", slot, ownership);
      held[slot] = now[slot];
    }
  }

  // see(rank, element, value) of all that the device holds of a slot.
  template <class See>
  void each_held(const OwnedOptimizer& owned, ArraySlot slot, const Ownership& ownership,
                 See see) const {
    if (slot.scope == Scope::coordinate) {
      const std::vector<float> got = owned.owned(slot);
      for (std::size_t i = 0; i < coordinates_; ++i) see(ownership.owner_of[i], i, got[i]);
      return;
    }
    for (int rank = 0; rank < owned.ranks(); ++rank) {
      const ArrayState<float> coarser = owned.coarser(rank);
      for (std::size_t i = 0; i < coarser[slot].size(); ++i) {
        see(static_cast<std::size_t>(rank), i, coarser[slot][i]);
      }
    }
  }

  const DeviceFactory& make_;
  const ProgramTask& task_;
  const ArrayProgram& program_;
  const Variation& variation_;
  ProgramResult& result_;
  std::size_t coordinates_, step_ = 0;
  bool exact_ = true;
  std::vector<std::size_t> order_;                  // targets by first assignment
  std::map<std::size_t, std::size_t> last_writer_;  // lines
  std::map<std::string, Comparison> comparisons_;   // by claim
  Difference first_;                                // of the last comparison seen
};

ProgramResult judge_variation(const DeviceFactory& make, const ProgramTask& task,
                              const Variation& variation,
                              const std::function<void(std::size_t)>& step_done) {
  ProgramResult result;
  try {
    ProgramJudge(make, task, variation, result).run(step_done);
  } catch (const OutOfDeviceMemory& error) {
    result.out_of_memory = error.what();
  } catch (const DeviceError& error) {
    result.failure = variation.name + ": " + error.what();
  }
  return result;
}

// Small cases, the smallest first; the first on which one of the claims fails that failed before.
std::optional<SmallestCase> smallest_case(const DeviceFactory& make, const ProgramTask& task,
                                          const std::set<std::string>& claims) {
  using Shapes = std::vector<ParameterShape>;
  const std::vector<Shapes> small = {
      {{1}}, {{2}},      {{1}, {1}}, {{3}},      {{2}, {1}}, {{1}, {2}},     {{1}, {0}, {1}},
      {{4}}, {{2}, {2}}, {{3}, {1}}, {{1}, {3}}, {{2, 2}},   {{1}, {1}, {2}}};
  const std::set<std::size_t> ranks = {2, 3, task.ranks};
  const std::set<std::size_t> steps = {1, 2, 3};
  for (const Shapes& shapes : small) {
    for (const std::size_t rank_count : ranks) {
      for (const std::size_t step_count : steps) {
        if (rank_count > task.ranks || step_count > std::max<std::size_t>(task.steps, 1)) continue;
        ProgramTask smaller = task;
        smaller.shapes = shapes;
        smaller.ranks = rank_count;
        smaller.steps = step_count;
        const std::size_t coordinates = elements(Scope::coordinate, shapes);
        if (task.owners == OwnerMap::table) {
          smaller.table.resize(coordinates);
          for (Owner& owner : smaller.table) owner %= static_cast<Owner>(rank_count);
        }
        for (const Variation& variation : variations(coordinates)) {
          const ProgramResult result =
              judge_variation(make, smaller, variation, [](std::size_t) {});
          for (const ProgramDisagreement& disagreement : result.disagreements) {
            if (!claims.contains(disagreement.claim)) continue;
            return SmallestCase{shapes, rank_count, step_count, disagreement};
          }
        }
      }
    }
  }
  return std::nullopt;
}

}  // namespace

SignoffResult::Verdict ProgramResult::verdict() const {
  using Verdict = SignoffResult::Verdict;
  if (!failure.empty() || !disagreements.empty() || !overwritten.empty()) return Verdict::disagrees;
  if (!out_of_memory.empty()) return Verdict::none;
  std::map<std::string, bool> judged;
  for (const Comparison& comparison : comparisons) {
    judged[comparison.node] |= comparison.compared > comparison.not_judged;
  }
  const bool all =
      std::all_of(judged.begin(), judged.end(), [](const auto& claim) { return claim.second; });
  return all && !judged.empty() ? Verdict::agrees : Verdict::none;
}

Ownership make_ownership(const ProgramTask& task, std::size_t ranks) {
  const std::size_t coordinates = elements(Scope::coordinate, task.shapes);
  switch (task.owners) {
    case OwnerMap::mod:
      break;
    case OwnerMap::blocks:
      return block_ownership(coordinates, ranks);
    case OwnerMap::greedy: {
      std::vector<std::size_t> sizes;
      for (const ParameterShape& shape : task.shapes) sizes.push_back(shape.size());
      return greedy_ownership(sizes, ranks);
    }
    case OwnerMap::table:
      if (ranks >= task.ranks) return {ranks, task.table};
      break;
  }
  return mod_ownership(coordinates, ranks);
}

ProgramResult sign_off_program(const DeviceFactory& make, const ProgramTask& task,
                               const Progress& progress) {
  ProgramResult result;
  const auto all = variations(elements(Scope::coordinate, task.shapes));
  for (std::size_t v = 0; v < all.size(); ++v) {
    ProgramResult one = judge_variation(make, task, all[v], [&](std::size_t step) {
      if (progress) {
        progress(
            (static_cast<double>(v) + static_cast<double>(step) / static_cast<double>(task.steps)) /
            static_cast<double>(all.size()));
      }
    });
    result.device = one.device;
    result.exact = one.exact;
    result.comparisons.insert(result.comparisons.end(), one.comparisons.begin(),
                              one.comparisons.end());
    for (ProgramDisagreement& disagreement : one.disagreements) {
      const bool known = std::any_of(
          result.disagreements.begin(), result.disagreements.end(),
          [&](const ProgramDisagreement& before) { return before.claim == disagreement.claim; });
      if (!known) result.disagreements.push_back(std::move(disagreement));
    }
    result.overwritten.insert(result.overwritten.end(), one.overwritten.begin(),
                              one.overwritten.end());
    if (result.failure.empty()) result.failure = one.failure;
    if (result.out_of_memory.empty()) result.out_of_memory = one.out_of_memory;
  }
  std::set<std::string> claims;
  for (const ProgramDisagreement& disagreement : result.disagreements)
    claims.insert(disagreement.claim);
  if (!claims.empty()) result.smallest = smallest_case(make, task, claims);
  return result;
}

}  // namespace shardproof
