// Speed of slot programs on one core, the best of some repetitions.
//   bench_slots [coordinates = 10000] [repetitions = 7] [coordinates of the checks = 770000]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <variant>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/slots/array_run.h"
#include "reference/slots/compile.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/separability.h"
#include "reference/slots/slot_run.h"

using namespace shardproof;

namespace {

using F = ValueFunction;

constexpr Slot kShared = 9, kSlots = 12, kAssignments = 13;  // of AdamW; the two last a coordinate

// AdamW's update (decoupled decay) of that many coordinates, one after the other.
Program adamw(Coordinate coordinates) {
  Program program{kShared + std::size_t{kSlots} * coordinates, {}, {}};
  for (Coordinate i = 0; i < coordinates; ++i) {
    const Slot p = kShared + kSlots * i, g = p + 1, m = p + 2, v = p + 3, t = p + 4;
    const Assignment update[kAssignments] = {{p, F::multiply, {p, 0}},
                                             {t, F::multiply, {m, 1}},
                                             {t + 1, F::multiply, {g, 2}},
                                             {m, F::add, {t, t + 1}},
                                             {t + 2, F::multiply, {g, g}},
                                             {t + 3, F::multiply, {v, 3}},
                                             {t + 4, F::multiply, {t + 2, 4}},
                                             {v, F::add, {t + 3, t + 4}},
                                             {t + 5, F::square_root, {v}},
                                             {t + 6, F::divide, {t + 5, 5}},
                                             {t + 7, F::add, {t + 6, 6}},
                                             {t + 7, F::divide, {m, t + 7}},
                                             {p, F::fused_multiply_add, {t + 7, 7, p}}};
    program.assignments.insert(program.assignments.end(), update, update + kAssignments);
  }
  return program;
}

Program random_program(std::size_t slots, std::size_t assignments) {
  Random random(1);
  Program program{slots, {}, {}};
  const auto slot = [&] { return static_cast<Slot>(random.below(slots)); };
  for (std::size_t i = 0; i < assignments; ++i) {
    const auto function = static_cast<F>(1 + random.below(kValueFunctions - 1));
    program.assignments.push_back({slot(), function, {slot(), slot(), slot()}});
  }
  return program;
}

// Coordinates in their order; the first slots are shared.
Classification classification(const Program& program) {
  Classification cls(program.slots);
  for (Slot slot = kShared; slot < program.slots; ++slot) {
    cls.assign(slot, (slot - kShared) / kSlots);
  }
  return cls;
}

template <class Function>
void report(const char* name, std::size_t assignments, int repetitions, Function&& function) {
  double best = 1e9;
  for (int i = 0; i < repetitions; ++i) {
    const auto start = std::chrono::steady_clock::now();
    function();
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count());
  }
  std::printf("%-44s %8.1f million assignments/s, %.3f s\n", name,
              static_cast<double>(assignments) / best * 1e-6, best);
}

// The array form of the built-in AdamW, float32.
void bench_array_run(std::size_t coordinates, int repetitions) {
  const ArrayProgram program =
      *compile_array("adamw", *parse_program("adamw", *optimizer_text("adamw")));
  const std::vector<ParameterShape> shapes{{coordinates}};
  std::size_t assignments = 0;
  for (const ArrayProgram::Statement& statement : program.statements) {
    assignments += elements(std::get<ArrayAssignment>(statement.does).target.scope, shapes);
  }
  ArrayState<float> state;
  Random random(3);
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (const ArrayProgram::SlotInfo& info : program.slots[scope]) {
      std::vector<float>& values = state.values[scope].emplace_back();
      if (info.role == ArrayProgram::Role::temporary) continue;
      values.resize(elements(static_cast<Scope>(scope), shapes));
      for (float& value : values) value = static_cast<float>(1 + random.uniform());
      if (info.initial) values.assign(values.size(), nearest_float32(*info.initial));
    }
  }
  const std::string name = "array_run, AdamW, float32, " + std::to_string(coordinates);
  report(name.c_str(), assignments, repetitions,
         [&] { state = array_run(std::move(state), program, shapes); });
}

}  // namespace

int main(int argc, char** argv) {
  const auto argument = [&](int i, int otherwise) {
    return argc > i ? std::max(1, std::atoi(argv[i])) : otherwise;
  };
  const auto coordinates = static_cast<Coordinate>(argument(1, 10000));
  const int repetitions = argument(2, 7);

  const Program update = adamw(coordinates),
                drawn = random_program(update.slots, update.assignments.size());
  const std::size_t assignments = update.assignments.size();
  Random random(2);
  std::vector<float> state(update.slots);
  for (float& value : state) value = static_cast<float>(1 + random.uniform());
  report("slot_run, AdamW, float32", assignments, repetitions,
         [&] { state = slot_run(std::move(state), update); });
  report("slot_run, random program, float32", assignments, repetitions,
         [&] { state = slot_run(std::move(state), drawn); });
  report("slot_run, AdamW, terms", assignments, repetitions, [&] {
    TermStore store;
    store.reserve(update.slots + assignments);
    std::vector<Term> terms;
    for (Slot slot = 0; slot < update.slots; ++slot) terms.push_back(store.variable(slot));
    terms = slot_run(std::move(terms), update, Arithmetic<Term>(store));
  });

  bench_array_run(coordinates, 10 * repetitions);
  bench_array_run(10'000'000, std::min(repetitions, 3));

  // AdamW, then one read across coordinates in its last assignment.
  Program large = adamw(static_cast<Coordinate>(argument(3, 770'000)));
  const Classification cls = classification(large);
  const auto check = [&](const char* name, auto&& function) {
    report(name, large.assignments.size(), std::min(repetitions, 3), function);
  };
  bool separable = true;
  check("is_slot_separable, AdamW", [&] { separable = bool(is_slot_separable(cls, large)); });
  large.assignments.back().reads[2] = kShared;
  check("is_slot_separable, AdamW with a read across",
        [&] { separable = separable && !is_slot_separable(cls, large); });
  check("least_coarsening",
        [&] { separable = separable && !least_coarsening(cls, large).groups.empty(); });
  check("find_harm", [&] { separable = separable && find_harm(cls, large).numbers; });
  if (!separable) std::printf("the checks were wrong\n");
}
