// A3 (spec §1): no two owners write the same coordinate's slot, every assignment to one is some
// owner's, and the shared slots end equal on all owners.
#include <catch2/catch.hpp>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

TEST_CASE("A3: owners write disjoint coordinates, all of them") {
  check_on_random_cases("A3, who writes", 1000, [] {
    const ProgramSizes sizes = draw_sizes();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    const Ownership ownership = draw_ownership(sizes.coordinates, Random(seed, "ownership"));
    std::vector<std::size_t> writers(drawn.program.slots);
    std::size_t to_coordinates = 0, to_shared = 0, run = 0;
    for (const Assignment& assignment : drawn.program.assignments) {
      ++(drawn.cls.is_shared(assignment.target) ? to_shared : to_coordinates);
    }
    for (Owner r = 0; r < ownership.owners; ++r) {
      const Program owned = owned_program(drawn.cls, owns(ownership, r), drawn.program);
      std::vector<bool> writes(drawn.program.slots);
      for (const Assignment& assignment : owned.assignments) writes[assignment.target] = true;
      for (Slot slot = 0; slot < writes.size(); ++slot) writers[slot] += writes[slot] ? 1U : 0U;
      run += owned.assignments.size();
    }
    RC_ASSERT(run == to_coordinates + ownership.owners * to_shared);
    for (Slot slot = 0; slot < writers.size(); ++slot) {
      if (drawn.cls.is_shared(slot)) {
        RC_ASSERT(writers[slot] == 0 || writers[slot] == ownership.owners);
      } else {
        RC_ASSERT(writers[slot] <= 1U);
      }
    }
  });
}

TEST_CASE("A3: shared slots end equal on all owners, bit for bit") {
  check_on_random_cases("A3, shared slots", 400, [] {
    const ProgramSizes sizes = draw_sizes();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    const Ownership ownership = draw_ownership(sizes.coordinates, Random(seed, "ownership"));
    const auto state = random_state<float>(drawn.program.slots, Random(seed, "state"));
    const std::vector<float> whole = slot_run(state, drawn.program);
    Random others(seed, "others");
    for (Owner r = 0; r < ownership.owners; ++r) {
      const std::vector<float> owned = owned_run(
          drawn, ownership, r,
          start_of(drawn, ownership, r, state, [&](Slot) { return random_value<float>(others); }));
      for (Slot slot = 0; slot < state.size(); ++slot) {
        if (drawn.cls.is_shared(slot)) RC_ASSERT(same_value(owned[slot], whole[slot]));
      }
    }
  });
}

}  // namespace
}  // namespace shardproof
