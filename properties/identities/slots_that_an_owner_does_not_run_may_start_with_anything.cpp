// A2 (spec §1): at every slot that owner r runs, its result does not depend on how the slots that
// it does not run start; and these end as they started.
#include <limits>

#include "properties/identities/identities.h"
#include "properties/program_cases.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

template <class T>
void check_over(const OwnedProgram& given) {
  const RandomProgram& drawn = given.drawn;
  const std::vector<T> state = random_state<T>(drawn.program.slots, Random(given.seed, "state"));
  Random others(given.seed, "others");
  bool unmoved = true, left_alone = true;
  for (Owner r = 0; r < given.ownership.owners; ++r) {
    const std::vector<T> nan = start_of(drawn, given.ownership, r, state, [](Slot) {
      return T(std::numeric_limits<float>::quiet_NaN());
    });
    const std::vector<T> any =
        start_of(drawn, given.ownership, r, state, [&](Slot) { return random_value<T>(others); });
    const std::vector<T> from_nan = owned_run(drawn, given.ownership, r, nan);
    const std::vector<T> from_any = owned_run(drawn, given.ownership, r, any);
    for (Slot slot = 0; slot < state.size(); ++slot) {
      if (runs_slot(drawn.cls, owns(given.ownership, r), slot)) {
        unmoved = unmoved && same_value(from_nan[slot], from_any[slot]);
      } else {
        left_alone = left_alone && same_value(from_nan[slot], nan[slot]) &&
                     same_value(from_any[slot], any[slot]);
      }
    }
  }
  claim(unmoved, "slots that an owner runs do not move with those it does not run");
  claim(left_alone, "slots that an owner does not run end as they started");
}

void any_start(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 2> types = {"float32", "bfloat16"};
  const std::size_t type = draws.kind("type", types);
  const OwnedProgram given = draw_owned_program(draws, draw_sizes(draws));
  type == 0 ? check_over<float>(given) : check_over<BFloat16>(given);
}

// Whatever stands in the device's memory where nothing was put.
void on_the_device(Draws& draws, Trial& trial) {
  const DeviceMaker littered = with_littered_memory(trial.make);
  Trial on_litter{littered, {}};
  const ProgramCase drawn = draw_program_case(draws);
  claim_step_agrees(drawn, trial);
  claim_step_agrees(drawn, on_litter);
}

}  // namespace

Identity slots_that_an_owner_does_not_run_may_start_with_anything() {
  return {.name = "slots-that-an-owner-does-not-run-may-start-with-anything",
          .label = "A2",
          .statement =
              "Slots that an owner does not run may start with NaN or anything else: its "
              "results do not move.",
          .theorem = "Per-coordinate ownership reproduces the replicated update",
          .properties = {{.name = "from NaN and from anything", .holds = any_start},
                         {.name = "a sharded step on the device, from any memory",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
