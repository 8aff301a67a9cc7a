#include <algorithm>
#include <catch2/catch.hpp>
#include <cstddef>
#include <type_traits>
#include <utility>
#include <vector>

#include "reference/slots/separability.h"
#include "reference/slots/slot_run.h"

namespace shardproof {
namespace {

using F = ValueFunction;

constexpr int shared = -1;

// A program whose slots belong to those coordinates.
struct Given {
  Classification cls;
  Program program;

  Given(const std::vector<int>& coordinates, std::vector<Assignment> assignments,
        std::vector<Rational> constants = {})
      : cls(coordinates.size()),
        program{coordinates.size(), std::move(constants), std::move(assignments)} {
    for (Slot slot = 0; slot < coordinates.size(); ++slot) {
      if (coordinates[slot] != shared) cls.assign(slot, static_cast<Coordinate>(coordinates[slot]));
    }
  }
  Separability separability() const { return is_slot_separable(cls, program); }
  Coarsening coarsening() const { return least_coarsening(cls, program); }
  Harm harm() const { return find_harm(cls, program); }
};

// What the counterexample claims, by slot_run of the whole and the owned program over T.
template <class T>
bool is_true(const Given& given, const Counterexample& claim) {
  std::vector<T> state(given.program.slots, T(0)), start(given.program.slots, T(0));
  for (const auto& [slot, in_state, in_start] : claim.starts) {
    state[slot] = std::get<T>(in_state);
    start[slot] = std::get<T>(in_start);
  }
  const auto owns = [&](Coordinate i) { return claim.owns(i); };
  for (Slot slot = 0; slot < given.program.slots; ++slot) {
    if (runs_slot(given.cls, owns, slot) && state[slot] != start[slot]) return false;
  }
  const T whole = slot_run(state, given.program)[claim.slot];
  const T by_owner = slot_run(start, owned_program(given.cls, owns, given.program))[claim.slot];
  return given.cls(claim.slot) == claim.owned && whole != by_owner &&
         std::get<T>(claim.whole) == whole && std::get<T>(claim.by_owner) == by_owner;
}

}  // namespace

TEST_CASE("a program that reads its own coordinates and shared slots is separable") {
  const Given given({shared, shared, 0, 0, 1},
                    {{0, F::add, {0, 1}},       // shared from shared
                     {2, F::multiply, {3, 0}},  // 0 from 0 and shared
                     {4, F::fused_multiply_add, {4, 4, 1}},
                     {3, F::constant, {4}}});  // reads nothing: 4 is a constant's index
  CHECK(given.separability());
  CHECK(given.coarsening().groups.empty());
  CHECK(Given({}, {}).separability());
  CHECK_FALSE(given.harm().slot);
}

TEST_CASE(
    "the witness is the first read across coordinates, of the first assignment that has one") {
  const Given across(
      {shared, 0, 1, 2},
      {{1, F::add, {1, 0}}, {2, F::fused_multiply_add, {2, 3, 1}}, {1, F::add, {1, 3}}});
  REQUIRE_FALSE(across.separability());
  const Violation violation = *across.separability().violation;
  CHECK(violation.assignment == 1);
  CHECK(violation.read == 3);
  CHECK(violation.target == Coordinate{1});
  CHECK(violation.coordinate == 2);

  const Given to_shared({shared, 5}, {{0, F::copy, {1}}});
  REQUIRE_FALSE(to_shared.separability());
  CHECK(to_shared.separability().violation->assignment == 0);
  CHECK(to_shared.separability().violation->read == 1);
  CHECK_FALSE(to_shared.separability().violation->target);
  CHECK(to_shared.separability().violation->coordinate == 5);
}

TEST_CASE("only what a function reads counts as read") {
  CHECK(Given({0, 1}, {{0, F::negate, {0, 1, 1}}, {0, F::add, {0, 0, 1}}}).separability());
  CHECK_FALSE(Given({0, 1}, {{0, F::select, {0, 0, 1}}}).separability());
}

TEST_CASE("coordinates are joined along reads, and shared slots join what they read") {
  // Coordinates 9 and 4 through shared slots 0 ← 1 ← 9 and 4 ← 0, in an order against the reads;
  // 7 reads 8 directly; 3 and shared slot 2 stay as they are.
  const Given given({shared, shared, shared, 9, 4, 7, 8, 3, 9}, {{4, F::add, {4, 0}},
                                                                 {0, F::negate, {1}},
                                                                 {1, F::add, {3, 2}},
                                                                 {5, F::copy, {6}},
                                                                 {7, F::add, {7, 2}},
                                                                 {8, F::copy, {8}}});
  const Coarsening coarsening = given.coarsening();
  REQUIRE(coarsening.groups.size() == 2);
  CHECK(coarsening.groups[0].coordinates == std::vector<Coordinate>{4, 9});
  CHECK(coarsening.groups[0].shared == std::vector<Slot>{0, 1});
  CHECK(coarsening.groups[1].coordinates == std::vector<Coordinate>{7, 8});
  CHECK(coarsening.groups[1].shared.empty());
  const std::vector<std::optional<Coordinate>> wanted{4, 4, std::nullopt, 4, 4, 7, 7, 3, 4};
  for (Slot slot = 0; slot < wanted.size(); ++slot) {
    CHECK(coarsening.classification(slot) == wanted[slot]);
  }
  CHECK(is_slot_separable(coarsening.classification, given.program));
}

TEST_CASE("a norm over all coordinates joins them, a norm of each tensor joins the tensor's") {
  const Given clipping({shared, 0, 1, 2}, {{0, F::multiply, {1, 1}},
                                           {0, F::fused_multiply_add, {2, 2, 0}},
                                           {0, F::fused_multiply_add, {3, 3, 0}},
                                           {1, F::divide, {1, 0}}});
  REQUIRE(clipping.coarsening().groups.size() == 1);
  CHECK(clipping.coarsening().groups[0].coordinates == std::vector<Coordinate>{0, 1, 2});
  CHECK(clipping.coarsening().groups[0].shared == std::vector<Slot>{0});
  const Given tensors({shared, 0, 1, shared, 2}, {{0, F::multiply, {1, 1}},
                                                  {0, F::fused_multiply_add, {2, 2, 0}},
                                                  {3, F::multiply, {4, 4}},
                                                  {1, F::divide, {1, 0}},
                                                  {4, F::divide, {4, 3}}});
  REQUIRE(tensors.coarsening().groups.size() == 2);
  CHECK(tensors.coarsening().groups[0].coordinates == std::vector<Coordinate>{0, 1});
  CHECK(tensors.coarsening().groups[1].coordinates == std::vector<Coordinate>{2});
  CHECK(tensors.coarsening().groups[1].shared == std::vector<Slot>{3});
}

TEST_CASE("a read that no last value outside its coordinate sees is harmless") {
  CHECK_FALSE(Given({0, 1}, {{0, F::copy, {1}}, {0, F::constant, {0}}}, {1}).harm().slot);
  // Through a shared slot back to the same coordinate, and the shared slot set anew.
  CHECK_FALSE(Given({shared, 0, 1},
                    {{0, F::multiply, {1, 1}}, {1, F::divide, {1, 0}}, {0, F::constant, {0}}}, {1})
                  .harm()
                  .slot);
  // The same, but the shared slot keeps what it read: owner 0 has it wrong.
  CHECK(Given({shared, 0, 1}, {{0, F::multiply, {1, 1}}, {1, F::divide, {1, 0}}}).harm().slot ==
        Slot{0});
  // A coordinate's value that was wrong, then is read by its own shared slot.
  CHECK(Given({shared, 0, 1},
              {{1, F::copy, {2}},
               {0, F::copy, {1}},
               {1, F::constant, {0}},
               {1, F::add, {1, 0}},
               {0, F::constant, {0}}},
              {1})
            .harm()
            .slot == Slot{1});
}

TEST_CASE("the counterexample of a plain read across has one number in it") {
  // p0 = p0 − t·p1
  const Given given({shared, 0, 1}, {{1, F::fused_multiply_add, {0, 2, 1}}});
  const Harm harm = given.harm();
  REQUIRE(harm.numbers);
  CHECK(is_true<Rational>(given, *harm.numbers));
  CHECK(harm.slot == Slot{1});
  CHECK(harm.numbers->owned == Coordinate{0});
  REQUIRE(harm.numbers->starts.size() == 2);  // t = 1, and p1 = 1 in the state, 0 at the owner
  CHECK(harm.numbers->ownership(2).owner_of == std::vector<Owner>{0, 1});
}

TEST_CASE("a norm with a rational root has an exact counterexample, another one in float64") {
  const std::vector<Assignment> norm{
      {0, F::multiply, {1, 1}}, {0, F::fused_multiply_add, {2, 2, 0}}, {0, F::square_root, {0}}};
  const Given exact({shared, 0, 1}, norm);
  REQUIRE(exact.harm().numbers);
  CHECK(is_true<Rational>(exact, *exact.harm().numbers));

  std::vector<Assignment> irrational = norm;
  irrational.push_back({3, F::constant, {0}});
  irrational.push_back({3, F::square_root, {3}});
  irrational.push_back({0, F::multiply, {0, 3}});
  const Given rounded({shared, 0, 1, shared}, irrational, {2});
  REQUIRE(rounded.harm().numbers);
  CHECK(is_true<double>(rounded, *rounded.harm().numbers));

  // Over 100 coordinates the root of a hundred ones is rational, that of one or two needs fewer.
  std::vector<int> cls{shared};
  std::vector<Assignment> sum;
  for (Slot slot = 1; slot <= 100; ++slot) {
    cls.push_back(static_cast<int>(slot));
    sum.push_back({0, F::fused_multiply_add, {slot, slot, 0}});
  }
  sum.push_back({0, F::square_root, {0}});
  for (Slot slot = 1; slot <= 100; ++slot) sum.push_back({slot, F::divide, {slot, 0}});
  const Harm harm = Given(cls, sum).harm();
  REQUIRE(harm.numbers);
  CHECK(harm.numbers->starts.size() <= 8);
}

TEST_CASE("what is overwritten does not keep a counterexample from being exact") {
  // √2 in slot 2 is dead; p0 = p0·p1 is not.
  const Given given({0, 1, 0},
                    {{2, F::constant, {0}},
                     {2, F::square_root, {2}},
                     {2, F::copy, {1}},
                     {0, F::multiply, {0, 2}},
                     {2, F::constant, {1}}},
                    {2, 0});
  const Harm harm = given.harm();
  REQUIRE(harm.numbers);
  CHECK(std::holds_alternative<Rational>(harm.numbers->whole));
}

TEST_CASE("a counterexample neither divides by zero nor overflows where others do not") {
  // p0 = p0 / p1; p0 = p0^(2^40)
  const Given quotient({0, 1}, {{0, F::divide, {0, 1}}});
  const Harm harm = quotient.harm();
  REQUIRE(harm.numbers);
  CHECK(is_true<Rational>(quotient, *harm.numbers));
  for (const auto& start : harm.numbers->starts) {
    if (start.slot == 1)
      CHECK((std::get<Rational>(start.state) != 0 && std::get<Rational>(start.start) != 0));
  }
  std::vector<Assignment> powers{{0, F::add, {0, 1}}};
  for (int i = 0; i < 40; ++i) powers.push_back({0, F::multiply, {0, 0}});
  const Given power({0, 1}, powers);
  REQUIRE(power.harm().numbers);
  CHECK(is_true<Rational>(power, *power.harm().numbers));
}

TEST_CASE("terms may differ where no numbers do") {
  // p0 = p0 or p1, as the constant 0 selects.
  const Harm never =
      Given({0, 1, shared}, {{2, F::constant, {0}}, {0, F::select, {2, 1, 0}}}, {0}).harm();
  CHECK(never.slot == Slot{0});
  CHECK_FALSE(never.numbers);
  // p0 = p0 + (p1 − p1): equal over the reals, not over float64 with its infinities.
  const Given cancels({0, 1, 0},
                      {{2, F::subtract, {1, 1}}, {0, F::add, {0, 2}}, {2, F::constant, {0}}}, {0});
  REQUIRE(cancels.harm().numbers);
  CHECK(std::holds_alternative<double>(cancels.harm().numbers->whole));
}

TEST_CASE("a norm of many coordinates still has a small counterexample") {
  constexpr int coordinates = 30'000;
  std::vector<int> cls{shared};
  std::vector<Assignment> assignments;
  for (int i = 0; i < coordinates; ++i) {
    cls.push_back(i);
    const auto slot = static_cast<Slot>(i + 1);
    assignments.push_back({0, F::fused_multiply_add, {slot, slot, 0}});
  }
  for (Slot slot = 1; slot <= coordinates; ++slot)
    assignments.push_back({slot, F::divide, {slot, 0}});
  const Given given(cls, assignments);
  CHECK(given.coarsening().groups.at(0).coordinates.size() == coordinates);
  const Harm harm = given.harm();
  REQUIRE(harm.numbers);
  CHECK(harm.numbers->starts.size() <= 3);
  CHECK(std::visit(
      [&](const auto& x) { return is_true<std::decay_t<decltype(x)>>(given, *harm.numbers); },
      harm.numbers->whole));
}

TEST_CASE("one seed gives one counterexample") {
  const Given given({shared, 0, 1},
                    {{0, F::multiply, {1, 2}}, {0, F::square_root, {0}}, {1, F::subtract, {1, 0}}});
  const Harm first = given.harm(), second = given.harm();
  REQUIRE(first.numbers);
  CHECK(first.numbers->whole == second.numbers->whole);
  CHECK(first.numbers->by_owner == second.numbers->by_owner);
  CHECK(first.numbers->starts.size() == second.numbers->starts.size());
}

}  // namespace shardproof
