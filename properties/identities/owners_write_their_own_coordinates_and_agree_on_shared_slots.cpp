// A3 (spec §1): no two owners write the same coordinate's slot, every assignment to one is some
// owner's, and the shared slots end equal on all owners.
#include "properties/identities/identities.h"
#include "properties/program_cases.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

void who_writes(Draws& draws, Trial&) {
  const OwnedProgram given = draw_owned_program(draws, draw_sizes(draws));
  const RandomProgram& drawn = given.drawn;
  const std::size_t owners = given.ownership.owners;
  std::vector<std::size_t> writers(drawn.program.slots);
  std::size_t to_coordinates = 0, to_shared = 0, run = 0;
  for (const Assignment& assignment : drawn.program.assignments) {
    ++(drawn.cls.is_shared(assignment.target) ? to_shared : to_coordinates);
  }
  for (Owner r = 0; r < owners; ++r) {
    const Program owned = owned_program(drawn.cls, owns(given.ownership, r), drawn.program);
    std::vector<bool> writes(drawn.program.slots);
    for (const Assignment& assignment : owned.assignments) writes[assignment.target] = true;
    for (Slot slot = 0; slot < writes.size(); ++slot) writers[slot] += writes[slot] ? 1U : 0U;
    run += owned.assignments.size();
  }
  claim(run == to_coordinates + owners * to_shared, "every assignment is run by whom it must be");
  bool by_all_or_none = true, by_one_at_most = true;
  for (Slot slot = 0; slot < writers.size(); ++slot) {
    if (drawn.cls.is_shared(slot)) {
      by_all_or_none = by_all_or_none && (writers[slot] == 0 || writers[slot] == owners);
    } else {
      by_one_at_most = by_one_at_most && writers[slot] <= 1;
    }
  }
  claim(by_all_or_none, "a shared slot is written by all owners or none");
  claim(by_one_at_most, "no two owners write a coordinate's slot");
}

void shared_slots(Draws& draws, Trial&) {
  const OwnedProgram given = draw_owned_program(draws, draw_sizes(draws));
  const RandomProgram& drawn = given.drawn;
  const auto state = random_state<float>(drawn.program.slots, Random(given.seed, "state"));
  const std::vector<float> whole = slot_run(state, drawn.program);
  Random others(given.seed, "others");
  for (Owner r = 0; r < given.ownership.owners; ++r) {
    const std::vector<float> owned =
        owned_run(drawn, given.ownership, r, start_of(drawn, given.ownership, r, state, [&](Slot) {
                    return random_value<float>(others);
                  }));
    bool equal = true;
    for (Slot slot = 0; slot < state.size(); ++slot) {
      if (drawn.cls.is_shared(slot)) equal = equal && same_value(owned[slot], whole[slot]);
    }
    claim(equal, "shared slots end as the whole program leaves them");
  }
}

// Nothing is written outside of what is owned, and what all ranks hold they hold alike.
void on_the_device(Draws& draws, Trial& trial) {
  claim_step_agrees(draw_program_case(draws), trial, [](const std::string& claim) {
    return claim.starts_with(kOverwritten) ||
           claim.find("equal on all ranks") != std::string::npos ||
           claim.find("gathered") != std::string::npos || claim.starts_with("owned against");
  });
}

}  // namespace

Identity owners_write_their_own_coordinates_and_agree_on_shared_slots() {
  return {.name = "owners-write-their-own-coordinates-and-agree-on-shared-slots",
          .label = "A3",
          .statement =
              "No two owners write the same coordinate's slot, and shared slots end equal "
              "on all owners.",
          .theorem = "Per-coordinate ownership reproduces the replicated update",
          .properties = {{.name = "who writes what", .holds = who_writes},
                         {.name = "shared slots end equal, bit for bit", .holds = shared_slots},
                         {.name = "a sharded step on the device",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
