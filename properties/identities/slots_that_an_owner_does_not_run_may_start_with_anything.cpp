// A2 (spec §1): at every slot that owner r runs, its result does not depend on how the slots that
// it does not run start; and these end as they started.
#include <catch2/catch.hpp>
#include <limits>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

template <class T>
void check_over(const std::string& type) {
  check_on_random_cases("A2 over " + type, 400, [] {
    const ProgramSizes sizes = draw_sizes();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    const Ownership ownership = draw_ownership(sizes.coordinates, Random(seed, "ownership"));
    const std::vector<T> state = random_state<T>(drawn.program.slots, Random(seed, "state"));
    Random others(seed, "others");
    for (Owner r = 0; r < ownership.owners; ++r) {
      const std::vector<T> nan = start_of(drawn, ownership, r, state, [](Slot) {
        return T(std::numeric_limits<float>::quiet_NaN());
      });
      const std::vector<T> any =
          start_of(drawn, ownership, r, state, [&](Slot) { return random_value<T>(others); });
      const std::vector<T> from_nan = owned_run(drawn, ownership, r, nan);
      const std::vector<T> from_any = owned_run(drawn, ownership, r, any);
      for (Slot slot = 0; slot < state.size(); ++slot) {
        if (runs_slot(drawn.cls, owns(ownership, r), slot)) {
          RC_ASSERT(same_value(from_nan[slot], from_any[slot]));
        } else {
          RC_ASSERT(same_value(from_nan[slot], nan[slot]));
          RC_ASSERT(same_value(from_any[slot], any[slot]));
        }
      }
    }
  });
}

TEST_CASE("A2: slots that an owner does not run may start with NaN or anything else") {
  check_over<float>("float32");
  check_over<BFloat16>("bfloat16");
}

}  // namespace
}  // namespace shardproof
