// A4 (spec §1) worked by hand.
#include <catch2/catch.hpp>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

using F = ValueFunction;

// Two coordinates of two slots each (0 and 1, 2 and 3), and shared slot 4.
RandomProgram of_two_coordinates(std::vector<Assignment> assignments) {
  RandomProgram drawn{2, Classification(5), {5, {}, std::move(assignments)}};
  for (const Slot slot : {0U, 1U, 2U, 3U}) drawn.cls.assign(slot, slot / 2);
  return drawn;
}

TEST_CASE("with owners = 0 each coordinate is its own owner's") {
  for (const Coordinate i : {0U, 1U, 7U, 4'000'000'000U}) CHECK(coordinate_owner(0, i) == i);
  const RandomProgram drawn =
      of_two_coordinates({{0, F::add, {1, 4}}, {4, F::negate, {4}}, {2, F::add, {3, 4}}});
  const Program second = owned_program(
      drawn.cls, [](Coordinate i) { return coordinate_owner(0, i) == 1; }, drawn.program);
  CHECK(second.assignments == std::vector<Assignment>{{4, F::negate, {4}}, {2, F::add, {3, 4}}});
  CHECK(where_ownership_fails_over_terms(drawn, mod_ownership(2, 0)) == "");
}

TEST_CASE("an owner without coordinates runs the shared assignments alone") {
  const RandomProgram drawn =
      of_two_coordinates({{4, F::negate, {4}}, {0, F::add, {1, 4}}, {4, F::absolute, {4}}});
  const Ownership ownership = mod_ownership(2, 6);
  for (const Owner r : {2U, 5U}) {
    CHECK(owned_program(drawn.cls, owns(ownership, r), drawn.program).assignments ==
          std::vector<Assignment>{{4, F::negate, {4}}, {4, F::absolute, {4}}});
  }
  CHECK(where_ownership_fails_over_terms(drawn, ownership) == "");
}

TEST_CASE("the empty program, no slots at all, and slots assigned a thousand times") {
  CHECK(where_ownership_fails_over_terms(RandomProgram{}, mod_ownership(0, 0)) == "");
  CHECK(where_ownership_fails_over_terms(RandomProgram{}, mod_ownership(0, 3)) == "");
  const RandomProgram empty = of_two_coordinates({});
  CHECK(where_ownership_fails_over_terms(empty, mod_ownership(2, 2)) == "");
  CHECK(slot_run<float>({1, 2, 3, 4, 5}, empty.program) == std::vector<float>{1, 2, 3, 4, 5});

  std::vector<Assignment> many;
  for (int i = 0; i < 1000; ++i) {
    many.push_back({0, F::fused_multiply_add, {0, 1, 4}});
    many.push_back({4, F::subtract, {4, 4}});
    many.push_back({3, F::select, {4, 3, 2}});
  }
  CHECK(where_ownership_fails_over_terms(of_two_coordinates(many), mod_ownership(2, 2)) == "");
}

}  // namespace
}  // namespace shardproof
