#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "device/engine/fused_step.h"
#include "device/engine/guarded_array.h"
#include "device/engine/owned_layout.h"
#include "device/engine/owned_optimizer.h"
#include "device/engine/step_plan.h"
#include "reference/slots/array_elements.h"
#include "reference/slots/compile.h"
#include "reference/slots/text.h"

// The sharded step against a plain loop over the whole arrays, bit for bit.

namespace shardproof {
namespace {

using Shapes = std::vector<ParameterShape>;
using Bits = std::vector<std::uint32_t>;

// All NaN alike.
Bits bits(const std::vector<float>& values) {
  Bits result;
  for (const float value : values) {
    result.push_back(std::isnan(value) ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value));
  }
  return result;
}

ArrayProgram program_of(const std::string& text) {
  const Result<ProgramText> parsed = parse_program("test", text);
  INFO((parsed ? "" : parsed.error()));
  REQUIRE(parsed);
  const Result<ArrayProgram> program = compile_array("test", *parsed);
  INFO((program ? "" : program.error()));
  REQUIRE(program);
  return *program;
}

ArrayProgram optimizer(const std::string& name) {
  std::ifstream file(std::string(SHARDPROOF_SOURCE_DIR) + "/fixtures/programs/" + name + ".slots");
  REQUIRE(file);
  return program_of({std::istreambuf_iterator<char>(file), {}});
}

const std::vector<std::string> optimizers = {"adadelta",
                                             "adagrad",
                                             "adam",
                                             "adamax",
                                             "adamw",
                                             "amsgrad",
                                             "lion",
                                             "momentum",
                                             "nadam",
                                             "nesterov",
                                             "radam",
                                             "rprop",
                                             "sgd",
                                             "signsgd",
                                             "rmsprop",
                                             "rmsprop-centred",
                                             "lamb-separable",
                                             "lars-separable",
                                             "global-norm-clipping-separable",
                                             "adafactor-separable"};

// Every value function, a temporary that lives across a collective, a gradient that is assigned, a
// shared slot that changes between two reads, sums of every scope.
const char* const mixture = R"(
shared t = 1
shared total
shared again
parameter p
gradient g
state a = 0.5
state b = -0
temporary u
temporary w
per parameter norm
per row r = 0
per column c = 1
per parameter rows
per parameter rows_again
total = all_reduce sum(g)
u = g/(1 + abs(g)) - t
r = all_reduce sum(u*u)
c = all_reduce mean(abs(p))
g = min(g, t*u) + max(a, -b)*r
t = t + 1/t
a = select(g < 0, fma(a, t, u), sqrt(abs(g)))
b = sign(b) + (b <= a) - (a == p)*2 + (a != b)/3
norm = all_reduce mean(u)
rows = sum(r)
rows_again = all_reduce sum(r)
w = b^-2*c
again = all_reduce sum(a)
p = p - 0.01*(w + norm)/(1 + rows) - u*rows_again - -a*again
)";

float draw(std::mt19937_64& random) {
  const auto fraction = static_cast<float>(random() >> 40U) * 0x1p-23f - 1.0f;
  return std::ldexp(fraction, static_cast<int>(random() % 13) - 6);
}

std::vector<float> draw(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) value = draw(random);
  return values;
}

float to_bfloat16_and_back(float x) {
  const auto value = std::bit_cast<std::uint32_t>(x);
  if (std::isnan(x)) return x;
  return std::bit_cast<float>((value + 0x7fffu + (value >> 16 & 1u)) & 0xffff0000u);
}

ArrayState<float> initial_state(const ArrayProgram& program, const Shapes& shapes,
                                std::uint64_t seed = 1) {
  std::mt19937_64 random(seed);
  ArrayState<float> state;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    const std::size_t count = elements(static_cast<Scope>(scope), shapes);
    for (const ArrayProgram::SlotInfo& slot : program.slots[scope]) {
      std::vector<float> values(count, slot.initial ? slot.initial->convert_to<float>() : 0.0f);
      if (!slot.initial) {
        for (float& value : values) value = draw(random);
      }
      state.values[scope].push_back(std::move(values));
    }
  }
  return state;
}

float value_of(ValueFunction function, float a, float b, float c) {
  switch (function) {
    case ValueFunction::constant:
      return 0;
    case ValueFunction::copy:
      return a;
    case ValueFunction::negate:
      return -a;
    case ValueFunction::square_root:
      return std::sqrt(a);
    case ValueFunction::absolute:
      return std::fabs(a);
    case ValueFunction::sign:
      return a > 0 ? 1.0f : a < 0 ? -1.0f : 0.0f;
    case ValueFunction::add:
      return a + b;
    case ValueFunction::subtract:
      return a - b;
    case ValueFunction::multiply:
      return a * b;
    case ValueFunction::divide:
      return a / b;
    case ValueFunction::minimum:
      if (std::isnan(a) || std::isnan(b)) return NAN;
      return a < b || (a == b && std::signbit(a)) ? a : b;
    case ValueFunction::maximum:
      if (std::isnan(a) || std::isnan(b)) return NAN;
      return a > b || (a == b && !std::signbit(a)) ? a : b;
    case ValueFunction::less:
      return a < b ? 1.0f : 0.0f;
    case ValueFunction::less_equal:
      return a <= b ? 1.0f : 0.0f;
    case ValueFunction::equal:
      return a == b ? 1.0f : 0.0f;
    case ValueFunction::not_equal:
      return a != b ? 1.0f : 0.0f;
    case ValueFunction::fused_multiply_add:
      return std::fma(a, b, c);
    case ValueFunction::select:
      return a != 0 ? b : c;
  }
  return 0;
}

// One step over whole arrays. A collective's value is the device's, within the bound of a float64
// sum that is rounded to float32.
void step_plainly(const ArrayProgram& program, const Shapes& shapes,
                  const std::vector<float>& gradient,
                  const std::vector<OwnedOptimizer::Collective>& collectives,
                  ArrayState<float>& state) {
  const auto parameters = place(shapes);
  if (const auto slot = program.find(ArrayProgram::Role::gradient)) state[*slot] = gradient;
  std::size_t next = 0;
  for (const ArrayProgram::Statement& statement : program.statements) {
    if (const auto* reduction = std::get_if<ArrayProgram::Reduction>(&statement.does)) {
      const Scope from = reduction->source.scope, to = reduction->target.scope;
      std::vector<float>& target = state[reduction->target];
      const std::vector<float>& source = state[reduction->source];
      std::vector<std::vector<float>> terms(target.size());
      for (const PlacedParameter& parameter : parameters) {
        for (std::size_t i = 0; i < parameter.elements(from); ++i) {
          terms[parameter.holder(to, from, i)].push_back(source[parameter.holder(from, from, i)]);
        }
      }
      const bool alone = !reduction->collective;
      for (std::size_t e = 0; e < target.size(); ++e) {
        const auto count = static_cast<double>(terms[e].size());
        float sum = terms[e].empty() ? 0.0f : terms[e][0];
        double wide = 0, magnitude = 0;
        for (std::size_t i = 0; i < terms[e].size(); ++i) {
          if (i > 0) sum += terms[e][i];
          wide += double{terms[e][i]};
          magnitude += std::fabs(double{terms[e][i]});
        }
        if (alone) {
          target[e] = reduction->mean ? sum / static_cast<float>(count) : sum;
          continue;
        }
        if (reduction->mean) wide /= count, magnitude /= count;
        target[e] = collectives.at(next).values.at(0).at(e);
        if (std::isfinite(wide)) {
          CAPTURE(statement.position.line, e, wide);
          CHECK(std::fabs(double{target[e]} - wide) <=
                0x1p-24 * std::fabs(wide) + 2 * count * 0x1p-53 * magnitude + 0x1p-149);
        } else {
          CHECK(std::isnan(target[e]) == std::isnan(wide));
        }
      }
      if (!alone) {
        for (const std::vector<float>& of_rank : collectives.at(next).values) {
          CHECK(bits(of_rank) == bits(target));
        }
        ++next;
      }
      continue;
    }
    const auto& assignment = std::get<ArrayAssignment>(statement.does);
    const Scope scope = assignment.target.scope;
    const auto assign = [&](const PlacedParameter& parameter, std::size_t i) {
      std::array<float, 3> reads{};
      for (std::size_t k = 0; k < arity(assignment.function); ++k) {
        const ArraySlot read = assignment.reads[k];
        reads[k] = state[read][parameter.holder(read.scope, scope, i)];
      }
      state[assignment.target][parameter.holder(scope, scope, i)] =
          value_of(assignment.function, reads[0], reads[1], reads[2]);
    };
    if (scope == Scope::shared) {
      assign(PlacedParameter{}, 0);
      continue;
    }
    for (const PlacedParameter& parameter : parameters) {
      for (std::size_t i = 0; i < parameter.elements(scope); ++i) assign(parameter, i);
    }
  }
  CHECK(next == collectives.size());
}

struct Case {
  std::string name;
  Ownership ownership;
};

std::vector<Case> ownerships(const Shapes& shapes, std::size_t ranks) {
  const std::size_t n = elements(Scope::coordinate, shapes);
  std::vector<std::size_t> sizes;
  for (const ParameterShape& shape : shapes) sizes.push_back(shape.size());
  Ownership table{ranks, {}}, last{ranks, std::vector<Owner>(n, static_cast<Owner>(ranks - 1))};
  std::mt19937_64 random(n * 31 + ranks);
  for (std::size_t i = 0; i < n; ++i) {
    table.owner_of.push_back(static_cast<Owner>(random() % ranks));
  }
  return {{"mod", mod_ownership(n, ranks)},
          {"blocks", block_ownership(n, ranks)},
          {"greedy", greedy_ownership(sizes, ranks)},
          {"slices of buckets", bucket_ownership(n, ranks, 17)},
          {"table", table},
          {"all to the last", last}};
}

std::vector<std::vector<float>> draw_gradients(std::size_t ranks, std::size_t count,
                                               std::uint64_t seed) {
  std::vector<std::vector<float>> gradients;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    gradients.push_back(draw(count, seed * 101 + rank));
  }
  return gradients;
}

void check_coordinates(const ArrayProgram& program, const OwnedOptimizer& optimizer,
                       ArrayState<float>& expected) {
  const auto& slots = program.slots[static_cast<std::size_t>(Scope::coordinate)];
  for (std::uint16_t k = 0; k < slots.size(); ++k) {
    using Role = ArrayProgram::Role;
    if (slots[k].role != Role::parameter && slots[k].role != Role::state) continue;
    CAPTURE(slots[k].name);
    CHECK(bits(optimizer.owned({Scope::coordinate, k})) == bits(expected[{Scope::coordinate, k}]));
  }
}

// Everything that a judge reads against the plain loop's state.
void check_equal(const ArrayProgram& program, const OwnedOptimizer& optimizer,
                 ArrayState<float>& expected, bool half = false) {
  check_coordinates(program, optimizer, expected);
  std::vector<float> parameters;
  if (const auto slot = program.find(ArrayProgram::Role::parameter)) parameters = expected[*slot];
  if (half) {
    for (float& value : parameters) value = to_bfloat16_and_back(value);
  }
  for (int rank = 0; rank < optimizer.ranks(); ++rank) {
    CAPTURE(rank);
    CHECK(bits(optimizer.parameters(rank)) == bits(parameters));
    const ArrayState<float> coarser = optimizer.coarser(rank);
    for (std::size_t scope = 0; scope + 1 < kScopes; ++scope) {
      for (std::size_t k = 0; k < program.slots[scope].size(); ++k) {
        CAPTURE(scope, program.slots[scope][k].name);
        CHECK(bits(coarser.values[scope][k]) == bits(expected.values[scope][k]));
      }
    }
  }
  CHECK(optimizer.overwritten() == std::vector<std::string>{});
}

void check_steps(Device& device, const ArrayProgram& program, const Shapes& shapes,
                 const Ownership& ownership, const OwnedOptimizerOptions& options, int steps) {
  const std::size_t n = elements(Scope::coordinate, shapes);
  const auto ranks = static_cast<std::size_t>(device.replicas());
  ArrayState<float> state = initial_state(program, shapes);
  OwnedOptimizer optimizer(device, program, shapes, ownership, state, options);
  for (int step = 0; step < steps; ++step) {
    CAPTURE(step);
    const auto gradients = draw_gradients(ranks, n, static_cast<std::uint64_t>(step) + 7);
    optimizer.step(gradients);
    const std::vector<float> reduced = optimizer.reduced_gradient();
    for (std::size_t i = 0; i < reduced.size(); ++i) {
      double sum = 0, magnitude = 0;
      for (const auto& of_rank : gradients) {
        sum += double{of_rank[i]};
        magnitude += std::fabs(double{of_rank[i]});
      }
      const auto r = static_cast<double>(ranks);
      CHECK(std::fabs(double{reduced[i]} - sum / r) <= r * 0x1p-24 * magnitude / r + 0x1p-149);
    }
    step_plainly(program, shapes, reduced, optimizer.collectives(), state);
    check_equal(program, optimizer, state,
                options.parameters == OwnedOptimizerOptions::Parameters::bfloat16);
  }
}

using Parameters = OwnedOptimizerOptions::Parameters;
using Reduction = OwnedOptimizerOptions::Reduction;

const Shapes vectors = {{1000, 1}, {7, 1}, {0, 1}, {5, 1}};
const Shapes matrices = {{3, 4}, {0, 5}, {9, 1}, {2, 11}, {1, 1}};

// Counts the interpreter's launches by hiding the assignments that a fused kernel would take: an
// assignment of a slot to itself, which changes no value, is one more slot written.
class Unfused : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;
  void owned_step(const OwnedStepCall& call) override {
    OwnedStepCall changed = call;
    for (std::size_t k = 0; k < call.fields.size(); ++k) {
      const ArraySlot slot{Scope::coordinate, static_cast<std::uint16_t>(k)};
      if (call.fields[k] != nullptr) {
        changed.assignments.push_back({slot, ValueFunction::copy, {slot}});
      }
    }
    std::vector<bool> kept;
    for (const float* field : call.fields) kept.push_back(field != nullptr);
    REQUIRE_FALSE(fused_step(changed.assignments, kept));
    ForwardingDevice::owned_step(changed);
  }
};

}  // namespace

TEST_CASE("every separable optimizer steps as a plain loop does, under every ownership") {
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{3}}) {
    const auto device = make_host_device(static_cast<int>(ranks), 0, 1);
    for (const std::string& name : optimizers) {
      const ArrayProgram program = optimizer(name);
      for (const Case& owners : ownerships(matrices, ranks)) {
        CAPTURE(ranks, name, owners.name);
        check_steps(*device, program, matrices, owners.ownership, {}, 2);
      }
    }
  }
}

TEST_CASE("sizes that no block divides, more owners than coordinates, no coordinates") {
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{3}, std::size_t{5}}) {
    const auto device = make_host_device(static_cast<int>(ranks), 3, 2);
    for (const Shapes& shapes : {vectors, Shapes{{1, 1}, {2, 1}}, Shapes{{0, 1}}, Shapes{},
                                 Shapes{{512, 1}, {513, 1}, {1025, 1}}}) {
      for (const Case& owners : ownerships(shapes, ranks)) {
        CAPTURE(ranks, shapes.size(), owners.name);
        check_steps(*device, optimizer("adamw"), shapes, owners.ownership, {}, 2);
      }
    }
  }
}

TEST_CASE("a program of every function and scope steps as a plain loop does") {
  const ArrayProgram program = program_of(mixture);
  for (const std::size_t ranks : {std::size_t{1}, std::size_t{2}, std::size_t{5}}) {
    for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{4}, std::uint64_t{9}}) {
      const auto device = make_host_device(static_cast<int>(ranks), seed, 1);
      for (const Case& owners : ownerships(matrices, ranks)) {
        for (const std::size_t bucket : {0, 8}) {
          CAPTURE(ranks, seed, owners.name, bucket);
          check_steps(*device, program, matrices, owners.ownership,
                      {Parameters::float32, Reduction::reduce_scatter, bucket}, 2);
        }
      }
    }
  }
}

TEST_CASE("buckets, all-reduced gradients and bfloat16 parameters keep the bits of the masters") {
  const auto device = make_host_device(3, 2, 1);
  for (const char* const name : {"adamw", "lamb-separable"}) {
    for (const Case& owners : ownerships(vectors, 3)) {
      for (const std::size_t bucket : {0, 1, 17, 1006}) {
        CAPTURE(name, owners.name, bucket);
        check_steps(*device, optimizer(name), vectors, owners.ownership,
                    {Parameters::bfloat16, Reduction::all_reduce, bucket}, 2);
        check_steps(*device, optimizer(name), vectors, owners.ownership,
                    {Parameters::bfloat16, Reduction::reduce_scatter, bucket}, 1);
      }
    }
  }
}

TEST_CASE("fused kernels run AdamW, momentum and Lion, and give the interpreter's bits") {
  for (const char* const name : {"adamw", "momentum", "lion"}) {
    CAPTURE(name);
    const ArrayProgram program = optimizer(name);
    const StepPlan plan(program);
    REQUIRE(plan.phases.size() == 1);
    REQUIRE(fused_step(plan.phases[0].owned, plan.in_memory));
    const auto device = make_host_device(2, 5, 1);
    Unfused unfused(*device);
    const Ownership ownership = block_ownership(1012, 2);
    const ArrayState<float> start = initial_state(program, vectors, 3);
    OwnedOptimizer by_fused(*device, program, vectors, ownership, start);
    OwnedOptimizer by_interpreter(unfused, program, vectors, ownership, start);
    for (std::uint64_t step = 0; step < 10; ++step) {
      auto gradients = draw_gradients(2, 1012, step);
      gradients[0][3] = step == 4 ? INFINITY : -0.0f;
      gradients[1][3] = -0.0f;
      gradients[1][700] = 1e-42f;
      by_fused.step(gradients);
      by_interpreter.step(gradients);
      ArrayState<float> expected = join(by_interpreter.save());
      check_coordinates(program, by_fused, expected);
    }
  }
}

TEST_CASE("a program that differs from AdamW in one operation is not taken for it") {
  const ArrayProgram program = optimizer("adamw");
  const StepPlan plan(program);
  const std::vector<ArrayAssignment>& owned = plan.phases[0].owned;
  for (std::size_t i = 0; i < owned.size(); ++i) {
    std::vector<ArrayAssignment> changed = owned;
    changed[i].function =
        owned[i].function == ValueFunction::add ? ValueFunction::subtract : ValueFunction::add;
    CHECK_FALSE(fused_step(changed, plan.in_memory));
  }
  std::vector<ArrayAssignment> decay_last(owned.begin() + 2, owned.end());
  decay_last.insert(decay_last.end(), owned.begin(), owned.begin() + 2);
  CHECK_FALSE(fused_step(decay_last, plan.in_memory));
  for (std::size_t i = 0; i < owned.size(); ++i) {  // m in place of p, or p in place of m
    for (std::size_t k = 0; k < arity(owned[i].function); ++k) {
      std::vector<ArrayAssignment> changed = owned;
      ArraySlot& read = changed[i].reads[k];
      if (read.scope != Scope::coordinate || !plan.in_memory[read.index]) continue;
      read.index = read.index == *plan.parameter ? plan.kept[1] : *plan.parameter;
      CHECK_FALSE(fused_step(changed, plan.in_memory));
    }
  }
  CHECK_FALSE(fused_step(StepPlan(optimizer("adam")).phases[0].owned,
                         StepPlan(optimizer("adam")).in_memory));
}

TEST_CASE("fifty steps in lockstep: all ranks hold the same, and the replicated run's, bits") {
  for (const std::uint64_t seed : {std::uint64_t{0}, std::uint64_t{11}}) {
    const auto device = make_host_device(4, seed, 2);
    const ArrayProgram program = optimizer("adamw");
    const ArrayState<float> start = initial_state(program, vectors);
    OwnedOptimizer sharded(*device, program, vectors, mod_ownership(1012, 4), start);
    OwnedOptimizer replicated(*device, program, vectors, block_ownership(1012, 1), start);
    for (std::uint64_t step = 0; step < 50; ++step) {
      CAPTURE(seed, step);
      sharded.step(draw_gradients(4, 1012, step));
      replicated.step_reduced(sharded.reduced_gradient());
      ArrayState<float> expected = join(replicated.save());
      check_equal(program, sharded, expected);
    }
  }
}

TEST_CASE("a saved run goes on under another number of ranks and another ownership") {
  for (const char* const name : {"adamw", "adafactor-separable"}) {
    for (const Parameters parameters : {Parameters::float32, Parameters::bfloat16}) {
      CAPTURE(name);
      const ArrayProgram program = optimizer(name);
      const auto three = make_host_device(3, 1, 1), five = make_host_device(5, 1, 1);
      const OwnedOptimizerOptions options{parameters, Reduction::reduce_scatter, 0};
      OwnedOptimizer first(*three, program, matrices, mod_ownership(44, 3),
                           initial_state(program, matrices), options);
      for (std::uint64_t step = 0; step < 3; ++step) {
        first.step_reduced(draw(44, step));
      }
      OwnedOptimizer resumed(*five, program, matrices, block_ownership(44, 5), join(first.save()),
                             options);
      CHECK(bits(resumed.parameters(4)) == bits(first.parameters(0)));
      ArrayState<float> expected = join(first.save());
      for (std::uint64_t step = 3; step < 6; ++step) {
        resumed.step_reduced(draw(44, step));
        step_plainly(program, matrices, draw(44, step), resumed.collectives(), expected);
        check_equal(program, resumed, expected, parameters == Parameters::bfloat16);
      }
    }
  }
}

TEST_CASE("a bfloat16 copy never reaches the masters") {
  const auto device = make_host_device(2, 0, 1);
  const ArrayProgram program = optimizer("sgd");
  ArrayState<float> state = initial_state(program, {{4, 1}});
  state[*program.find(ArrayProgram::Role::parameter)].assign(4, 1.0f + 0x1p-12f);
  OwnedOptimizer optimizer(*device, program, {{4, 1}}, mod_ownership(4, 2), state,
                           {Parameters::bfloat16, Reduction::reduce_scatter, 0});
  optimizer.step_reduced(std::vector<float>(4, 0.0f));
  CHECK(optimizer.owned(*program.find(ArrayProgram::Role::parameter)) ==
        std::vector<float>(4, 1.0f + 0x1p-12f));
  CHECK(optimizer.parameters(1) == std::vector<float>(4, 1.0f));
}

TEST_CASE("a program without a parameter or a gradient steps too") {
  const auto device = make_host_device(2, 0, 1);
  check_steps(*device, program_of("shared t = 0\nstate a = 1\nt = t + 1\na = a*t + 0.1\n"), vectors,
              mod_ownership(1012, 2), {}, 3);
}

TEST_CASE("every value function on corner numbers, in a kernel and on shared slots") {
  const std::vector<float> corners = {0.0f,       -0.0f,     1.0f,     -1.0f,    0x1p-149f,
                                      -0x1p-149f, 0x1p-126f, 0x1p127f, INFINITY, -INFINITY,
                                      NAN,        0.1f,      3.0f,     -7.5f,    0x1.fffffep127f};
  const std::size_t count = corners.size() * corners.size();
  const auto device = make_host_device(2, 0, 1);
  for (const bool shared : {false, true}) {
    const std::string kind = shared ? "per parameter" : "state";
    std::string text = kind + " a, b, c\n";
    int k = 0;
    for (const char* const expression :
         {"-a", "sqrt(a)", "abs(a)", "sign(a)", "a + b", "a - b", "a*b", "a/b", "min(a, b)",
          "max(a, b)", "a < b", "a <= b", "a == b", "a != b", "fma(a, b, c)", "select(a, b, c)"}) {
      const std::string name = "result" + std::to_string(k++);
      text.insert(0, kind + " " + name + " = 0\n");
      text += name + " = " + expression + "\n";
    }
    // A parameter each, or a coordinate each.
    const Shapes shapes = shared ? Shapes(count, {1, 1}) : Shapes{{count, 1}};
    const ArrayProgram program = program_of(text);
    ArrayState<float> state = initial_state(program, shapes);
    auto& slots =
        state.values[static_cast<std::size_t>(shared ? Scope::parameter : Scope::coordinate)];
    for (std::size_t i = 0; i < count; ++i) {
      slots[slots.size() - 3][i] = corners[i / corners.size()];
      slots[slots.size() - 2][i] = corners[i % corners.size()];
      slots[slots.size() - 1][i] = corners[i % 7];
    }
    OwnedOptimizer optimizer(*device, program, shapes, mod_ownership(count, 2), state);
    optimizer.step({});
    step_plainly(program, shapes, {}, {}, state);
    check_equal(program, optimizer, state);
  }
}

TEST_CASE("temporaries share places only when their last reader is done") {
  const auto device = make_host_device(2, 0, 1);
  const std::string text =
      "parameter p\ngradient g\ntemporary u, w, x, y\n"
      "u = p*g\nw = u + 1\nx = u*w\ny = x - w\nu = y + 1\np = p + u*x\n";
  check_steps(*device, program_of(text), matrices, block_ownership(44, 2), {}, 2);
}

TEST_CASE("a sum that every rank does alone begins with its first term, in float32") {
  const auto device = make_host_device(2, 0, 1);
  const std::string text =
      "parameter p\nper row r = 0\nper parameter total\nper parameter middle\n"
      "r = -r\ntotal = sum(r)\nmiddle = mean(r)\np = p + total\n";
  check_steps(*device, program_of(text), matrices, block_ownership(44, 2), {}, 1);
  const std::string inexact =
      "shared s\nper row r = 0x1p-24\nparameter p\nper parameter total\n"
      "r = r + (r == r)*0.3\ntotal = sum(r)\np = p + total\n";
  check_steps(*device, program_of(inexact), matrices, block_ownership(44, 2), {}, 4);
}

TEST_CASE("long temporaries: a program of many live slots runs in smaller pieces") {
  std::string text = "parameter p\ngradient g\n";
  for (int k = 0; k < 60; ++k) text += "temporary u" + std::to_string(k) + "\n";
  for (int k = 0; k < 60; ++k) {
    text += "u" + std::to_string(k) + " = p*" + std::to_string(k) + " + g\n";
  }
  for (int k = 0; k < 60; ++k) text += "p = p + u" + std::to_string(59 - k) + "/7\n";
  const auto device = make_host_device(2, 1, 1);
  check_steps(*device, program_of(text), vectors, block_ownership(1012, 2), {}, 1);
}

TEST_CASE("a temporary is kept in memory only where a later phase or a collective reads it") {
  const auto in_memory = [](const std::string& text) {
    const ArrayProgram program = program_of(text);
    const StepPlan plan(program);
    std::size_t count = 0;
    for (const bool kept : plan.in_memory) count += kept ? 1 : 0;
    return std::pair(plan.phases.size(), count);
  };
  const std::string head = "shared s = 1\nparameter p\ngradient g\ntemporary u\n";
  CHECK(in_memory(head + "u = p*g\np = p - u\n") == std::pair<std::size_t, std::size_t>(1, 2));
  CHECK(in_memory(head + "u = p*g\ns = all_reduce sum(u)\np = p - u*s\n") ==
        std::pair<std::size_t, std::size_t>(2, 3));
  // s is read before it changes: a phase of its own.
  CHECK(in_memory(head + "u = p*s\ns = s + 1\np = p - u*s\n") ==
        std::pair<std::size_t, std::size_t>(2, 3));
  CHECK(in_memory(head + "u = p*g\ns = s + 1\np = p - u*s\n") ==
        std::pair<std::size_t, std::size_t>(1, 2));
}

TEST_CASE("ownership by blocks cuts a padded bucket into equal slices") {
  const Ownership ownership = block_ownership(10, 4);
  const OwnedLayout layout(Shapes{{7, 1}, {0, 1}, {3, 1}}, ownership, 4, 0);
  REQUIRE(layout.buckets().size() == 1);
  CHECK(layout.buckets()[0].length == 3);
  CHECK(layout.buckets()[0].count == std::vector<std::size_t>{3, 3, 3, 1});
  // Rank 2 owns 6 of the first parameter, 7 and 8 of the third.
  REQUIRE(layout.runs(2).size() == 2);
  CHECK(layout.runs(2)[0].parameter == 0);
  CHECK(layout.runs(2)[1].parameter == 2);
  CHECK(layout.runs(2)[1].position == 1);
  CHECK(bucket_ownership(10, 4, 0).owner_of == ownership.owner_of);
  CHECK(bucket_ownership(5, 2, 3).owner_of == std::vector<Owner>{0, 0, 1, 0, 1});
}

TEST_CASE("a write to a pad or past an array is found") {
  class WritesOneMore : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    void owned_step(const OwnedStepCall& call) override {
      ForwardingDevice::owned_step(call);
      const float stray = 1.0f;
      if (call.first + call.count == where) {
        upload(call.replica, call.fields[0] + where, &stray, 1);
      }
    }
    std::size_t where = 0;
  };
  const auto device = make_host_device(2, 0, 1);
  WritesOneMore wrong(*device);
  const ArrayProgram program = optimizer("adamw");
  const Shapes shapes = {{5, 1}};
  const auto places = [&](std::size_t where) {
    wrong.where = where;
    OwnedOptimizer optimizer(wrong, program, shapes, block_ownership(5, 2),
                             initial_state(program, shapes));
    optimizer.step(draw_gradients(2, 5, 1));
    return optimizer.overwritten();
  };
  CHECK(places(0).empty());
  // Rank 1 has two coordinates and a pad, which the gather spreads.
  CHECK(places(2) ==
        std::vector<std::string>{"the gathered parameters of rank 0: a pad of bucket 0, slice 1",
                                 "the masters of rank 1: a pad of bucket 0, slice 1",
                                 "the gathered parameters of rank 1: a pad of bucket 0, slice 1"});
  CHECK(places(3) == std::vector<std::string>{"the masters of rank 0: a word after its end"});
}

TEST_CASE("what does not fit is refused") {
  const auto device = make_host_device(2, 0, 1);
  const ArrayProgram program = optimizer("adamw");
  const ArrayState<float> state = initial_state(program, vectors);
  const auto make = [&](const ArrayProgram& with, const Ownership& ownership,
                        const ArrayState<float>& from) {
    OwnedOptimizer optimizer(*device, with, vectors, ownership, from);
  };
  CHECK_THROWS_WITH(make(program, mod_ownership(1012, 3), state),
                    Catch::Contains("belongs to owner 2, the device has 2 replicas"));
  CHECK_THROWS_WITH(make(program, mod_ownership(10, 2), state), Catch::Contains("1012"));
  CHECK_THROWS_WITH(make(program, mod_ownership(1012, 2), {}), Catch::Contains("initial state"));
  CHECK_THROWS_WITH(
      make(optimizer("lamb"), mod_ownership(1012, 2), initial_state(optimizer("lamb"), vectors)),
      Catch::Contains("no collective"));
  OwnedOptimizer optimizer(*device, program, vectors, mod_ownership(1012, 2), state);
  CHECK_THROWS_AS(optimizer.step(draw_gradients(1, 1012, 0)), std::invalid_argument);
  CHECK_THROWS_AS(optimizer.step(draw_gradients(2, 1011, 0)), std::invalid_argument);
  CHECK_THROWS_AS(optimizer.step_reduced(std::vector<float>(3)), std::invalid_argument);
  CHECK_THROWS_AS(optimizer.owned({Scope::coordinate, 1}), std::invalid_argument);
}

TEST_CASE("a device for networks alone says what an optimizer step lacks") {
  class Networks : public ForwardingDevice {
   public:
    using ForwardingDevice::ForwardingDevice;
    void owned_step(const OwnedStepCall& call) override { Device::owned_step(call); }
  };
  const auto device = make_host_device(1, 0, 1);
  Networks networks(*device);
  const ArrayProgram program = optimizer("sgd");
  OwnedOptimizer optimizer(networks, program, vectors, mod_ownership(1012, 1),
                           initial_state(program, vectors));
  CHECK_THROWS_WITH(optimizer.step_reduced(std::vector<float>(1012)),
                    Catch::Contains("has no owned_step"));
}

}  // namespace shardproof
