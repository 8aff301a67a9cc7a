#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <type_traits>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/slots/array_run.h"
#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/slot_run.h"

using namespace shardproof;

namespace {

using Role = ArrayProgram::Role;

ArrayProgram compiled(const std::string& name, std::string_view text) {
  const Result<ProgramText> parsed = parse_program(name, text);
  if (!parsed) FAIL(parsed.error());
  const Result<ArrayProgram> program = compile_array(name, *parsed);
  if (!program) FAIL(program.error());
  return *program;
}

const std::vector<ParameterShape> some_shapes{{1500}, {0}, {7}, {3, 5}, {0, 4}, {1, 1}, {40, 30}};

// Calls body(slot, element, info) for every slot of every element.
template <class Body>
void for_each_slot(const ArrayProgram& program, std::span<const ParameterShape> shapes,
                   Body&& body) {
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (std::size_t i = 0; i < program.slots[scope].size(); ++i) {
      const ArraySlot slot{static_cast<Scope>(scope), static_cast<std::uint16_t>(i)};
      for (std::size_t e = 0; e < elements(slot.scope, shapes); ++e) body(slot, e);
    }
  }
}

// Values of every kind; few special ones where they would swamp the rest.
template <class T>
T random_value(Random& random, bool specials) {
  if constexpr (std::is_same_v<T, Rational>) {
    return Rational(random.integer(-9, 9), random.integer(1, 9));
  } else if constexpr (std::is_same_v<T, std::uint32_t>) {
    return static_cast<std::uint32_t>(random.next());
  } else {
    if (specials && random.below(20) == 0) {
      const double values[] = {0.0,
                               -0.0,
                               std::numeric_limits<double>::infinity(),
                               std::numeric_limits<double>::quiet_NaN(),
                               1e-44,
                               -1e30};
      return T(values[random.below(6)]);
    }
    return T(random.triangular(2));
  }
}

template <class T>
ArrayState<T> random_state(Random& random, const ArrayProgram& program,
                           std::span<const ParameterShape> shapes, bool specials) {
  ArrayState<T> state;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    state.values[scope].resize(program.slots[scope].size());
  }
  for_each_slot(program, shapes, [&](ArraySlot slot, std::size_t) {
    const Role role = program.info(slot).role;
    if (role == Role::temporary || role == Role::constant) return;
    state[slot].push_back(random_value<T>(random, specials));
  });
  return state;
}

template <class T>
bool same(const T& a, const T& b) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  } else if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b) ||
           (std::isnan(a) && std::isnan(b));
  } else if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return a.bits() == b.bits() || (std::isnan(float(a)) && std::isnan(float(b)));
  } else {
    return a == b;
  }
}

// Both ways from one random state; false where a slot that is kept ends otherwise.
template <class T>
bool agrees_with_expansion(Random& random, const ArrayProgram& program,
                           std::span<const ParameterShape> shapes, bool specials) {
  const ArrayState<T> before = random_state<T>(random, program, shapes, specials);
  const SlotLayout layout(program, shapes);
  const ClassifiedProgram expanded = expand(program, shapes);
  std::vector<T> state(expanded.names.size());
  for_each_slot(program, shapes, [&](ArraySlot slot, std::size_t element) {
    if (!before[slot].empty()) state[layout(slot, element)] = before[slot][element];
  });
  for (const ClassifiedProgram::Stage& stage : expanded.stages) {
    state = slot_run(std::move(state), stage.program);
    state = slot_run(std::move(state), stage.collective);
  }
  const ArrayState<T> after = array_run(before, program, shapes);
  std::size_t different = 0;
  for_each_slot(program, shapes, [&](ArraySlot slot, std::size_t element) {
    if (program.info(slot).role == Role::temporary) return;
    if (!same(after[slot].at(element), state[layout(slot, element)])) ++different;
  });
  return different == 0;
}

// Any functions of any slots that may be read, sums and means of any that may be summed.
ArrayProgram random_program(Random& random, bool with_roots) {
  ArrayProgram program;
  for (auto& slots : program.slots) {
    slots.assign(4, {"s", Role::state, std::nullopt});
    for (int i = 0; i < 3; ++i) slots.push_back({"", Role::temporary, std::nullopt});
  }
  program.slots[0].push_back({"", Role::constant, Rational(1, 3)});
  std::array<std::array<bool, 7>, kScopes> assigned{};
  const auto holds = [](Scope coarse, Scope fine) {
    return coarse == fine || coarse == Scope::shared || fine == Scope::coordinate ||
           (coarse == Scope::parameter && fine != Scope::shared);
  };
  // One that has a value and for which accepts(its scope).
  const auto readable = [&](auto&& accepts) {
    for (;;) {
      const auto scope = static_cast<Scope>(random.below(kScopes));
      const std::size_t slots = program.slots[static_cast<std::size_t>(scope)].size();
      const auto index = static_cast<std::uint16_t>(random.below(slots));
      const ArraySlot slot{scope, index};
      const bool written = program.info(slot).role != Role::temporary ||
                           assigned[static_cast<std::size_t>(scope)][index];
      if (accepts(scope) && written) return slot;
    }
  };
  for (int i = 0; i < 40; ++i) {
    ArraySlot target{random.coin() ? Scope::coordinate : static_cast<Scope>(random.below(kScopes)),
                     static_cast<std::uint16_t>(random.below(7))};
    if (target.scope != Scope::coordinate && random.coin()) {
      const ArraySlot source = readable(
          [&](Scope scope) { return scope != target.scope && holds(target.scope, scope); });
      program.statements.push_back(
          {ArrayProgram::Reduction{target, source, random.coin(), random.coin()}, {}});
    } else {
      ArrayAssignment assignment{target, ValueFunction::square_root, {}};
      do {
        assignment.function = static_cast<ValueFunction>(random.integer(1, kValueFunctions - 1));
      } while (!with_roots && assignment.function == ValueFunction::square_root);
      for (std::size_t k = 0; k < arity(assignment.function); ++k) {
        assignment.reads[k] = readable([&](Scope scope) { return holds(scope, target.scope); });
      }
      program.statements.push_back({assignment, {}});
    }
    assigned[static_cast<std::size_t>(target.scope)][target.index] = true;
  }
  return program;
}

}  // namespace

TEMPLATE_TEST_CASE("array_run of every optimizer is slot_run of its expansion, bit for bit", "",
                   float, double, BFloat16, Float16) {
  Random random(1, "array_run");
  for (const std::string& name : optimizer_names()) {
    INFO(name);
    const ArrayProgram program = compiled(name, *optimizer_text(name));
    CHECK(agrees_with_expansion<TestType>(random, program, some_shapes, false));
    CHECK(agrees_with_expansion<TestType>(random, program, some_shapes, true));
    CHECK(agrees_with_expansion<TestType>(random, program, {}, false));
  }
}

TEMPLATE_TEST_CASE("array_run of random programs is slot_run of their expansions", "", float,
                   double, BFloat16, Float16, std::uint32_t, Rational) {
  constexpr bool exact = std::is_same_v<TestType, Rational>;
  const std::vector<ParameterShape> few{{3, 2}, {0}, {1, 4}, {2}, {0, 3}};
  Random random(2, "array_run");
  for (int i = 0; i < (exact ? 20 : 60); ++i) {
    const ArrayProgram program = random_program(random, !exact);
    CHECK(agrees_with_expansion<TestType>(random, program, few, true));
    if (!exact && i < 5) {
      CHECK(agrees_with_expansion<TestType>(random, program, some_shapes, true));
    }
  }
}

TEST_CASE("a caller's values stand in for collective sums, and for those only") {
  const ArrayProgram program =
      compiled("f", "state m\nper parameter q, r\nq = all_reduce sum(m)\nr = sum(m)\nm = m/q");
  const std::vector<ParameterShape> shapes{{2}, {1}};
  ArrayState<float> state;
  state.values[1] = {{0, 0}, {0, 0}};
  state.values[4] = {{6, 8, 9}};
  std::vector<std::size_t> asked;
  const ArrayState<float> after = array_run<float>(
      state, program, shapes,
      [&](std::size_t statement, std::span<const float> source, std::span<float> values) {
        asked.push_back(statement);
        CHECK(std::vector<float>(source.begin(), source.end()) == std::vector<float>{6, 8, 9});
        REQUIRE(values.size() == 2);
        values[0] = 2;
        values[1] = 3;
      });
  CHECK(asked == std::vector<std::size_t>{0});
  CHECK(after.values[1][0] == std::vector<float>{2, 3});
  CHECK(after.values[1][1] == std::vector<float>{14, 9});
  CHECK(after.values[4][0] == std::vector<float>{3, 4, 3});
}

TEST_CASE("a sum of what reads nothing counts the elements") {
  const ArrayProgram program =
      compiled("f",
               "state m\nshared s\nper parameter q, r\nq = all_reduce sum(m^0)\nr = mean(m^0)\n"
               "s = all_reduce sum(m^0)\nm = m*q + r");
  const std::vector<ParameterShape> shapes{{3}, {2, 2}};
  ArrayState<float> state;
  state.values[0] = {{0}};
  state.values[1] = {{0, 0}, {0, 0}};
  state.values[4] = {{1, 1, 1, 2, 2, 2, 2}};
  // As many slots as the compiled program has.
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    auto& slots = state.values[scope];
    for (std::size_t k = slots.size(); k < program.slots[scope].size(); ++k) {
      const auto& initial = program.slots[scope][k].initial;
      slots.emplace_back(elements(static_cast<Scope>(scope), shapes),
                         initial ? Arithmetic<float>::constant(*initial) : 0.0F);
    }
  }
  const ArrayState<float> after = array_run<float>(state, program, shapes);
  CHECK(after.values[1][0] == std::vector<float>{3, 4});
  CHECK(after.values[1][1] == std::vector<float>{1, 1});
  CHECK(after.values[0][0] == std::vector<float>{7});
  CHECK(after.values[4][0] == std::vector<float>{4, 4, 4, 9, 9, 9, 9});
}

TEST_CASE("an array of the wrong length is refused") {
  const ArrayProgram program = compiled("f", "state m\nm = m + 1");
  const std::vector<ParameterShape> shapes{{2}};
  ArrayState<float> state;
  CHECK_THROWS_AS(array_run(state, program, shapes), std::invalid_argument);
  state.values[4] = {{1, 2, 3}};
  CHECK_THROWS_AS(array_run(state, program, shapes), std::invalid_argument);
}

TEST_CASE("the built-in optimizers are those of fixtures/programs") {
  const std::vector<std::string> names = optimizer_names();
  std::size_t files = 0;
  for (const auto& entry :
       std::filesystem::directory_iterator(SHARDPROOF_SOURCE_DIR "/fixtures/programs")) {
    if (entry.path().extension() != ".slots") continue;
    ++files;
    std::ostringstream text;
    text << std::ifstream(entry.path()).rdbuf();
    INFO(entry.path());
    const auto built_in = optimizer_text(entry.path().stem().string());
    CHECK((built_in && *built_in == text.str()));
  }
  CHECK(names.size() == files);
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK_FALSE(optimizer_text("no_such"));
}

TEST_CASE("the text of every built-in optimizer survives printing and parsing") {
  for (const std::string& name : optimizer_names()) {
    const Result<ProgramText> parsed = parse_program(name, *optimizer_text(name));
    REQUIRE(parsed);
    const Result<ProgramText> again = parse_program(name, print(*parsed));
    REQUIRE(again);
    CHECK(*again == *parsed);
  }
}
