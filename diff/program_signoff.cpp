#include "diff/program_signoff.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <set>
#include <utility>

#include "reference/numbers/random.h"
#include "reference/slots/arithmetic.h"

namespace shardproof {
namespace {

using Options = OwnedOptimizerOptions;
using Role = ArrayProgram::Role;

}  // namespace

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

namespace {

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
    state.values[scope].resize(program.slots[scope].size());
    for (std::size_t k = 0; k < program.slots[scope].size(); ++k) {
      const ArrayProgram::SlotInfo& info = program.slots[scope][k];
      if (info.role != Role::parameter && info.role != Role::state) continue;
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
      state.values[scope][k] = std::move(values);
    }
  }
  return with_fixed_values(std::move(state), program, task.shapes);
}

// The case of a variation but for its gradients, which are drawn step by step.
ProgramCase without_gradients(const ProgramTask& task, const Variation& variation) {
  ProgramCase c;
  c.program = task.text;
  c.shapes = task.shapes;
  c.ranks = task.ranks;
  c.owners = task.owners;
  c.table = task.table;
  c.steps = task.steps;
  c.options = variation.options;
  c.start = draw_start(task.program, task, variation);
  c.kind = variation.gradients == Variation::Gradients::lattice ? InputKind::lattice
                                                                : InputKind::natural;
  c.input = variation.name;
  return c;
}

ProgramResult judge_variation(const DeviceMaker& make, const ProgramTask& task,
                              const Variation& variation,
                              const std::function<void(std::size_t)>& step_done = {}) {
  const std::size_t coordinates = elements(Scope::coordinate, task.shapes);
  return judge_program_case(
      make, without_gradients(task, variation), task.program,
      [&](std::size_t step) {
        return draw_gradients(task, variation.gradients, coordinates, step);
      },
      step_done);
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

class Shrinker {
 public:
  // Looks for cases in which one of `claims` fails in one of the variations of those names.
  Shrinker(const DeviceMaker& make, const ProgramTask& task, std::set<std::string> claims,
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
      const ProgramResult result = judge_variation(make_, task, variation);
      if (const auto wrong = first_wrong(result, claims_)) {
        best_ = {task.shapes, task.ranks, task.steps,
                 task.seed,   *wrong,     program_case(task, variation)};
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

  const DeviceMaker& make_;
  const ProgramTask& task_;
  std::set<std::string> claims_, names_;
  std::optional<SmallestCase> best_;
};

}  // namespace

ProgramCase program_case(const ProgramTask& task, const Variation& variation) {
  ProgramCase c = without_gradients(task, variation);
  if (!task.program.find(Role::gradient)) return c;
  const std::size_t coordinates = elements(Scope::coordinate, task.shapes);
  for (std::size_t step = 1; step <= task.steps; ++step) {
    c.gradients.push_back(draw_gradients(task, variation.gradients, coordinates, step));
  }
  return c;
}

ProgramResult sign_off_program(const DeviceFactory& factory, const ProgramTask& task,
                               const Progress& progress) {
  const DeviceMaker make = [&](int ranks, const Schedule&) { return factory(ranks); };
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
