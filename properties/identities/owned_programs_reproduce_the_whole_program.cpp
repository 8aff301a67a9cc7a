// A1 (spec §1; Ajax, "Per-coordinate ownership reproduces the replicated update"): of a separable
// program, what each owner's part gives at the slots it owns is what the whole program gives. Over
// terms, which decides it for every type at once, and bit for bit over the number types.
#include <catch2/catch.hpp>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

template <class T>
std::string where_ownership_fails_over_numbers(const RandomProgram& drawn,
                                               const Ownership& ownership, std::uint64_t seed) {
  Random others(seed, "others");
  return where_ownership_fails(drawn, ownership,
                               random_state<T>(drawn.program.slots, Random(seed, "state")),
                               [&](Owner, Slot) { return random_value<T>(others); });
}

template <class T>
void check_over(const std::string& type, ProgramSizes (*draw)()) {
  check_on_random_cases("A1 over " + type, 400, [&] {
    const ProgramSizes sizes = draw();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    const Ownership ownership = draw_ownership(sizes.coordinates, Random(seed, "ownership"));
    RC_ASSERT(where_ownership_fails_over_numbers<T>(drawn, ownership, seed) == "");
  });
}

TEST_CASE("A1: owned programs reproduce the whole program over terms, 20,000 programs") {
  check_on_random_cases("A1 over terms", 20'000, [] {
    const ProgramSizes sizes = draw_sizes();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    const Ownership ownership = draw_ownership(sizes.coordinates, Random(seed, "ownership"));
    RC_ASSERT(is_slot_separable(drawn.cls, drawn.program));
    RC_ASSERT(where_ownership_fails_over_terms(drawn, ownership) == "");
  });
}

TEST_CASE("A1: owned programs reproduce the whole program bit for bit") {
  check_over<float>("float32", draw_sizes);
  check_over<double>("float64", draw_sizes);
  check_over<BFloat16>("bfloat16", draw_sizes);
  check_over<Float16>("float16", draw_sizes);
  check_over<std::uint32_t>("uint32", draw_sizes);
  check_over<Rational>("rationals", draw_small_sizes);
}

}  // namespace
}  // namespace shardproof
