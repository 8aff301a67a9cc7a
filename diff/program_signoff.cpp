#include "diff/program_signoff.h"

#include <algorithm>
#include <array>
#include <bit>
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
constexpr const char* kOverwritten = "written outside of what is owned";
constexpr const char* kFailed = "the device failed";
using Role = ArrayProgram::Role;

// One way to run the step: what gradients and starts are like, and how the parameters are cut and
// moved.
struct Variation {
  enum class Gradients { natural, lattice, corners, infinity, nan };
  std::string name;
  Gradients gradients;
  bool strained;  // hyper-parameters away from 0 and 1, parameters of many magnitudes
  Options options;
};

// Buckets of a few coordinates, so that small parameters cross cuts too.
std::vector<Variation> variations(std::size_t coordinates) {
  const std::size_t few = std::max<std::size_t>(3, coordinates / 3);
  using G = Variation::Gradients;
  using P = Options::Parameters;
  using R = Options::Reduction;
  return {
      {"natural gradients, reduce-scatter", G::natural, false, {P::float32, R::reduce_scatter, 0}},
      {"natural gradients, all-reduce, buckets, bfloat16 parameters",
       G::natural,
       false,
       {P::bfloat16, R::all_reduce, few}},
      {"lattice gradients, reduce-scatter, buckets, strained starts",
       G::lattice,
       true,
       {P::float32, R::reduce_scatter, few}},
      {"lattice gradients, all-reduce, strained starts",
       G::lattice,
       true,
       {P::float32, R::all_reduce, 0}},
      {"corner gradients, reduce-scatter, buckets, bfloat16 parameters",
       G::corners,
       false,
       {P::bfloat16, R::reduce_scatter, few}},
      {"corner gradients, all-reduce, buckets, strained starts",
       G::corners,
       true,
       {P::float32, R::all_reduce, few}},
      {"an infinite gradient in the last step, reduce-scatter, bfloat16 parameters",
       G::infinity,
       false,
       {P::bfloat16, R::reduce_scatter, 0}},
      {"a NaN gradient in the last step, all-reduce",
       G::nan,
       false,
       {P::float32, R::all_reduce, 0}}};
}

// Corners that a sum over few ranks leaves finite: zeros, subnormals, small and large numbers.
float corner(Random& random) {
  static constexpr std::array<float, 12> corners = {
      0.0F,     -0.0F,     0x1p-149F, -0x1p-149F, 0x1.8p-127F, -0x1.8p-126F,
      0x1p-75F, -0x1p-60F, 0x1p40F,   0x1p64F,    -0x1.8p100F, 0x1p120F};
  return corners[random.below(corners.size())];
}

float natural(Random& random) {
  const double scale = std::ldexp(1.0, static_cast<int>(random.integer(-12, 2)));
  return static_cast<float>(random.triangular(1) * scale);
}

// Whole numbers of 20 bits or so whose sum is a multiple of the number of ranks, so that a mean
// that divides is exact in any order. Where they can be had, numbers on which multiplying by the
// reciprocal, before or after the sum, is not.
std::vector<float> lattice(Random& random, std::size_t ranks) {
  const auto count = static_cast<std::int64_t>(ranks);
  const std::int64_t most =
      std::clamp<std::int64_t>((std::int64_t{1} << 24U) / count - count, 1, 1 << 20);
  const float reciprocal = 1.0F / static_cast<float>(ranks);
  std::vector<float> terms(ranks);
  for (int attempt = 0; attempt < 8; ++attempt) {
    std::int64_t sum = 0;
    float premultiplied = 0;
    for (std::size_t r = ranks; r-- > 0;) {
      std::int64_t term = random.integer(-most, most);
      sum += term;
      if (r == 0) {
        const std::int64_t remainder = sum % count;
        sum -= remainder;
        term -= remainder;
      }
      terms[r] = static_cast<float>(term);
      premultiplied += terms[r] * reciprocal;
    }
    const std::int64_t quotient = sum / count;
    const auto mean = static_cast<float>(quotient);
    if (premultiplied != mean && static_cast<float>(sum) * reciprocal != mean) break;
  }
  for (float& term : terms) term = std::ldexp(term, -20);
  return terms;
}

// What a coordinate of a run with corners is for; the seed turns them, so that one coordinate has
// each in turn.
enum class CornerUse { kept_parameter, same_on_all_ranks, on_one_rank, mixed };
CornerUse corner_use(std::uint64_t seed, std::size_t coordinate) {
  return static_cast<CornerUse>((coordinate + seed) % 4);
}

// gradients[rank][coordinate], a function of the seed, the step and what they are to be like.
std::vector<std::vector<float>> draw_gradients(const ProgramTask& task,
                                               Variation::Gradients gradients,
                                               std::size_t coordinates, std::size_t step) {
  using G = Variation::Gradients;
  std::vector<std::vector<float>> drawn(task.ranks, std::vector<float>(coordinates));
  Random random(task.seed, "gradients", step);
  const auto for_all_ranks = [&](std::size_t i, auto value) {
    for (std::size_t rank = 0; rank < task.ranks; ++rank) drawn[rank][i] = value(rank);
  };
  for (std::size_t i = 0; i < coordinates; ++i) {
    if (gradients == G::lattice) {
      const std::vector<float> terms = lattice(random, task.ranks);
      for_all_ranks(i, [&](std::size_t rank) { return terms[rank]; });
    } else if (gradients != G::corners) {
      for_all_ranks(i, [&](std::size_t) { return natural(random); });
    } else {
      const float same = corner(random), zero = random.coin() ? 0.0F : -0.0F;
      const std::size_t one = random.below(task.ranks);
      switch (corner_use(task.seed, i)) {
        case CornerUse::kept_parameter:
          for_all_ranks(i, [&](std::size_t) { return zero; });
          break;
        case CornerUse::same_on_all_ranks:
          for_all_ranks(i, [&](std::size_t) { return same; });
          break;
        case CornerUse::on_one_rank:
          for_all_ranks(i, [&](std::size_t rank) { return rank == one ? same : zero; });
          break;
        case CornerUse::mixed:
          for_all_ranks(
              i, [&](std::size_t) { return random.coin() ? corner(random) : natural(random); });
          break;
      }
    }
  }
  if (coordinates > 0 && step == task.steps && (gradients == G::infinity || gradients == G::nan)) {
    const float infinity = std::numeric_limits<float>::infinity();
    drawn[random.below(task.ranks)][random.below(coordinates)] =
        gradients == G::nan ? std::numeric_limits<float>::quiet_NaN()
        : random.coin()     ? infinity
                            : -infinity;
  }
  return drawn;
}

// A parameter that rounding to bfloat16 or flushing changes: ties to even and to odd, -0,
// subnormals; in runs that are not finite anyway, NaN of several payloads and the largest number.
float special_parameter(Random& random, bool finite) {
  const auto upper = static_cast<std::uint32_t>(random.integer(0x3e00, 0x3fff));
  const std::array<std::uint32_t, 8> bits = {upper << 16U | 0x8000U,
                                             upper << 16U | 0x80008000U,
                                             upper << 16U | 0x8001U,
                                             0x80000000U,
                                             0x00000001U,
                                             0x80018000U,
                                             0x00400000U,
                                             upper << 16U | 0x7fffU};
  const std::array<std::uint32_t, 4> not_finite = {0x7f800001U, 0x7fffffffU, 0x7f7fffffU,
                                                   0xff800000U};
  return std::bit_cast<float>(finite ? bits[random.below(bits.size())]
                                     : not_finite[random.below(not_finite.size())]);
}

ArraySlot slot_at(std::size_t scope, std::size_t index) {
  return {static_cast<Scope>(scope), static_cast<std::uint16_t>(index)};
}

bool is_assigned(const ArrayProgram& program, ArraySlot slot) {
  return std::any_of(program.statements.begin(), program.statements.end(),
                     [&](const auto& statement) { return statement.target() == slot; });
}

// Declared starts; what has none is drawn. A strained start draws hyper-parameters too, since a
// term that is multiplied by 0 hides what is wrong with it, and parameters of many magnitudes,
// since an error in the update of a large one is lost in its rounding.
ArrayState<float> draw_start(const ArrayProgram& program, const ProgramTask& task,
                             const Variation& variation) {
  using G = Variation::Gradients;
  ArrayState<float> state;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (std::size_t k = 0; k < program.slots[scope].size(); ++k) {
      const ArrayProgram::SlotInfo& info = program.slots[scope][k];
      std::vector<float> values(elements(static_cast<Scope>(scope), task.shapes));
      Random random(task.seed, "start of " + info.name, scope);
      const bool hyper_parameter = static_cast<Scope>(scope) == Scope::shared &&
                                   info.role == Role::state &&
                                   !is_assigned(program, slot_at(scope, k));
      for (std::size_t i = 0; i < values.size(); ++i) {
        float& value = values[i];
        if (variation.strained && hyper_parameter) {
          value = static_cast<float>(0.1 + 0.8 * random.uniform());
        } else if (info.initial) {
          value = Arithmetic<float>::constant(*info.initial);
        } else if (info.role != Role::parameter) {
          value = static_cast<float>(random.uniform());
        } else if (variation.strained) {
          value = std::ldexp(static_cast<float>(random.triangular(2)),
                             static_cast<int>(random.integer(-30, 0)));
        } else {
          value = static_cast<float>(random.triangular(2));
        }
        if (info.role != Role::parameter || info.initial) continue;
        if (variation.gradients == G::corners &&
            corner_use(task.seed, i) == CornerUse::kept_parameter) {
          value = special_parameter(random, true);
        }
      }
      if (info.role == Role::parameter && !values.empty() && variation.gradients == G::nan) {
        values[random.below(values.size())] = special_parameter(random, false);
      }
      state.values[scope].push_back(std::move(values));
    }
  }
  return state;
}

// Hands on the sums that another run's collectives gave, in the order in which they ran: between a
// sharded and a replicated run they may differ by the order of additions. What the device gives
// itself is kept, to be judged apart.
class GivenSums : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void give(const std::vector<OwnedOptimizer::Collective>& collectives) {
    given_.clear();
    computed_.clear();
    for (const auto& collective : collectives) given_.push_back(collective.values.at(0));
  }
  // [collective][rank][element]
  const std::vector<std::vector<std::vector<float>>>& computed() const { return computed_; }

  void all_reduce_sums(const AllReduceSumsCall& call) override {
    base().all_reduce_sums(call);
    synchronize();
    const std::vector<float>& values = given_.at(computed_.size());
    auto& computed = computed_.emplace_back();
    for (std::size_t rank = 0; rank < call.result.size(); ++rank) {
      computed.emplace_back(call.count);
      download(static_cast<int>(rank), call.result[rank], computed.back().data(), call.count);
      upload(static_cast<int>(rank), call.result[rank], values.data(), call.count);
    }
  }

 private:
  std::vector<std::vector<float>> given_;
  std::vector<std::vector<std::vector<float>>> computed_;
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
      const auto& statement = program_.statements[s];
      writers_.try_emplace(statement.target(), Writers{s, 0}).first->second.last_line =
          statement.position.line;
    }
    find_kept();
  }

  // Runs all steps, or those up to the first in which something is wrong.
  void run(const std::function<void(std::size_t)>& step_done) {
    const std::unique_ptr<Device> device = make_(static_cast<int>(task_.ranks));
    result_.device = device->name();
    GivenSums one(make_(1));
    std::optional<GivenSums> more;
    const Ownership ownership = make_ownership(task_, task_.ranks);
    const ArrayState<float> start = draw_start(program_, task_, variation_);
    read_contracts(*device);
    OwnedOptimizer owned(*device, program_, task_.shapes, ownership, start, variation_.options);
    OwnedOptimizer replicated(one, program_, task_.shapes, mod_ownership(coordinates_, 1), start,
                              variation_.options);
    std::unique_ptr<OwnedOptimizer> resumed;
    ArrayState<float> reference = start;
    for (step_ = 1; step_ <= task_.steps; ++step_) {
      const auto gradients = draw_gradients(task_, variation_.gradients, coordinates_, step_);
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
    result_.judged.insert(judged_.begin(), judged_.end());
  }

 private:
  // Of a slot: the first statement that writes it, and the line of the last.
  struct Writers {
    std::size_t first, last_line;
  };

  // The program runs in the loosest of what the operations say that run parts of it, and its sums
  // likewise.
  void read_contracts(const Device& device) {
    using Of = shardproof::Operation;
    program_contract_ = device.contract(Of::owned_step, 1, 1);
    for (const Of operation : {Of::shared_step, Of::shared_sum}) {
      const Contract part = device.contract(operation, 1, 1);
      program_contract_.contraction |= part.contraction;
      program_contract_.subnormals_kept &= part.subnormals_kept;
      program_contract_.root = std::max(program_contract_.root, part.root);
    }
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
      found->second.part = variation_.name;
      found->second.kind = variation_.gradients == Variation::Gradients::lattice
                               ? InputKind::lattice
                               : InputKind::natural;
    }
    return found->second;
  }

  // "m[1][3]": element 3 of parameter 1; "step" of a shared slot.
  std::string element_name(ArraySlot slot, std::size_t element) const {
    const std::string& name = program_.info(slot).name;
    if (slot.scope == Scope::shared) return name;
    for (const PlacedParameter& parameter : place(task_.shapes)) {
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
    first.input = variation_.name;
    first.step = step_;
    first.rank = first_.replica;
    if (slot.scope == Scope::coordinate) first.owner = ownership.owner_of.at(first_.index);
    first.slot = element_name(slot, first_.index);
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
    const bool all_reduce = variation_.options.reduction == Options::Reduction::all_reduce;
    Contract contract = device.contract(all_reduce ? shardproof::Operation::all_reduce_mean
                                                   : shardproof::Operation::reduce_scatter_mean,
                                        1, 1);
    // A program's copy takes each rank's part of what an all-reduce gave.
    if (all_reduce) contract.subnormals_kept &= program_contract_.subnormals_kept;
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
    if (variation_.options.parameters == Options::Parameters::bfloat16) {
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
    state = array_run<T>(std::move(state), program_, task_.shapes, given, arithmetic);
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

  const DeviceFactory& make_;
  const ProgramTask& task_;
  const ArrayProgram& program_;
  const Variation& variation_;
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

// A task with other sizes, and what follows from them.
ProgramTask resized(const ProgramTask& task, std::vector<ParameterShape> shapes, std::size_t ranks,
                    std::size_t steps, std::uint64_t seed) {
  ProgramTask smaller = task;
  smaller.shapes = std::move(shapes);
  smaller.ranks = ranks;
  smaller.steps = steps;
  smaller.seed = seed;
  if (task.owners == OwnerMap::table) {
    smaller.table.resize(elements(Scope::coordinate, smaller.shapes));
    for (Owner& owner : smaller.table) owner %= static_cast<Owner>(ranks);
  }
  return smaller;
}

// What a run has wrong, as one disagreement: the first of those claims, or a write outside of what
// is owned, or a failure.
std::optional<ProgramDisagreement> first_wrong(const ProgramResult& result,
                                               const std::set<std::string>& claims) {
  for (const ProgramDisagreement& disagreement : result.disagreements) {
    if (claims.contains(disagreement.claim)) return disagreement;
  }
  ProgramDisagreement other;
  if (claims.contains(kOverwritten) && !result.overwritten.empty()) {
    other.claim = std::string(kOverwritten) + ": " + result.overwritten[0];
    return other;
  }
  if (claims.contains(kFailed) && !result.failure.empty()) {
    other.claim = std::string(kFailed) + ": " + result.failure;
    return other;
  }
  return std::nullopt;
}

class Shrinker {
 public:
  // Looks for cases in which one of `claims` fails in one of the variations of those names.
  Shrinker(const DeviceFactory& make, const ProgramTask& task, std::set<std::string> claims,
           std::set<std::string> variation_names)
      : make_(make), task_(task), claims_(std::move(claims)), names_(std::move(variation_names)) {}

  // The first of a list of small cases, or else the failing case with what it does not need left
  // out.
  std::optional<SmallestCase> find() {
    using Shapes = std::vector<ParameterShape>;
    const std::vector<Shapes> small = {
        {{1}}, {{2}},      {{1}, {1}}, {{3}},      {{2}, {1}}, {{1}, {2}},     {{1}, {0}, {1}},
        {{4}}, {{2}, {2}}, {{3}, {1}}, {{1}, {3}}, {{2, 2}},   {{1}, {1}, {2}}};
    for (const Shapes& shapes : small) {
      for (const std::size_t ranks : std::set<std::size_t>{1, 2, 3, task_.ranks}) {
        for (const std::size_t steps :
             std::set<std::size_t>{1, 2, 3, std::min<std::size_t>(task_.steps, 6)}) {
          if (ranks > task_.ranks || steps > task_.steps) continue;
          for (std::uint64_t seed = task_.seed; seed < task_.seed + 4; ++seed) {
            if (fails(resized(task_, shapes, ranks, steps, seed))) return best_;
          }
        }
      }
    }
    halve();
    return best_;
  }

 private:
  bool fails(const ProgramTask& task) {
    for (const Variation& variation : variations(elements(Scope::coordinate, task.shapes))) {
      if (!names_.contains(variation.name)) continue;
      const ProgramResult result = judge_variation(make_, task, variation, [](std::size_t) {});
      if (const auto wrong = first_wrong(result, claims_)) {
        best_ = {task.shapes, task.ranks, task.steps, task.seed, *wrong};
        return true;
      }
    }
    return false;
  }

  void halve() {
    constexpr std::size_t kLargest = 100'000;
    if (elements(Scope::coordinate, task_.shapes) > kLargest) return;
    int budget = 60;
    struct {
      std::vector<ParameterShape> shapes;
      std::size_t ranks, steps;
    } now{task_.shapes, task_.ranks, task_.steps};
    const auto try_case = [&](const std::vector<ParameterShape>& shapes, std::size_t ranks,
                              std::size_t steps) {
      if (budget-- <= 0 || shapes.empty()) return false;
      if (!fails(resized(task_, shapes, ranks, steps, task_.seed))) return false;
      now = {shapes, ranks, steps};
      return true;
    };
    for (bool smaller = true; smaller && budget > 0;) {
      smaller = false;
      for (std::size_t i = now.shapes.size(); i-- > 0;) {
        auto fewer = now.shapes;
        fewer.erase(fewer.begin() + static_cast<std::ptrdiff_t>(i));
        smaller |= try_case(fewer, now.ranks, now.steps);
      }
      for (std::size_t i = now.shapes.size(); i-- > 0;) {
        auto shorter = now.shapes;
        for (std::size_t* extent : {&shorter[i].rows, &shorter[i].columns}) {
          if (*extent < 2) continue;
          *extent /= 2;
          smaller |= try_case(shorter, now.ranks, now.steps);
          shorter = now.shapes;
        }
      }
      if (now.ranks > 2) smaller |= try_case(now.shapes, now.ranks / 2, now.steps);
      if (now.steps > 1) smaller |= try_case(now.shapes, now.ranks, now.steps - 1);
    }
  }

  const DeviceFactory& make_;
  const ProgramTask& task_;
  std::set<std::string> claims_, names_;
  std::optional<SmallestCase> best_;
};

}  // namespace

SignoffResult::Verdict ProgramResult::verdict() const {
  using Verdict = SignoffResult::Verdict;
  if (!failure.empty() || !disagreements.empty() || !overwritten.empty()) return Verdict::disagrees;
  if (!out_of_memory.empty()) return Verdict::none;
  return unjudged.empty() ? Verdict::agrees : Verdict::none;
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
  std::set<std::string> wrong_variations;
  const auto all = variations(elements(Scope::coordinate, task.shapes));
  for (std::size_t v = 0; v < all.size(); ++v) {
    ProgramResult one = judge_variation(make, task, all[v], [&](std::size_t step) {
      if (progress) {
        progress(
            (static_cast<double>(v) + static_cast<double>(step) / static_cast<double>(task.steps)) /
            static_cast<double>(all.size()));
      }
    });
    if (!one.device.empty()) result.device = one.device;
    result.exact = result.exact && one.exact;
    result.judged.insert(one.judged.begin(), one.judged.end());
    if (one.verdict() == SignoffResult::Verdict::disagrees) wrong_variations.insert(all[v].name);
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
  std::set<std::string> claims, needed = {"device against reference", "owned against replicated"};
  if (task.program.find(Role::gradient)) needed.insert("mean of the gradients");
  if (task.program.find(Role::parameter)) needed.insert("gathered parameters are the owners'");
  for (const Comparison& comparison : result.comparisons) needed.insert(comparison.node);
  for (const std::string& claim : needed) {
    if (!result.judged.contains(claim)) result.unjudged.push_back(claim);
  }
  for (const ProgramDisagreement& disagreement : result.disagreements) {
    claims.insert(disagreement.claim);
  }
  if (!result.overwritten.empty()) claims.insert(kOverwritten);
  if (!result.failure.empty()) claims.insert(kFailed);
  if (!claims.empty()) result.smallest = Shrinker(make, task, claims, wrong_variations).find();
  return result;
}

}  // namespace shardproof
