// A4 (spec §1): owners = 0 (each coordinate its own owner, as i mod 0 = i), owners = 1 (the
// replicated program), more owners than coordinates, the empty program, slots assigned many times
// and slots never assigned.
#include "properties/identities/identities.h"
#include "properties/program_cases.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

enum class Corner {
  no_owners,
  one_owner,
  more_owners_than_coordinates,
  empty_program,
  no_slots,
  assigned_many_times,
  never_assigned
};
constexpr std::array<std::string_view, 7> kCorners = {
    "owners = 0",          "owners = 1", "more owners than coordinates",
    "the empty program",   "no slots",   "slots assigned many times",
    "slots never assigned"};

ProgramSizes draw_sizes_of(Corner corner, Draws& draws) {
  switch (corner) {
    case Corner::empty_program: {
      ProgramSizes sizes = draw_sizes(draws);
      sizes.assignments = 0;
      return sizes;
    }
    case Corner::no_slots:
      return {0, 1, 0, draws.size("assignments", 0, 400)};
    case Corner::assigned_many_times:
      return {2, 2, 1, draws.size("assignments", 0, 3000)};
    case Corner::never_assigned:
      return {20, 8, 10, draws.size("assignments", 0, 20)};
    default:
      return draw_sizes(draws);
  }
}

// The assignments of the part that owner r of `owners` runs, by mod.
std::vector<Assignment> part_of(const RandomProgram& drawn, std::size_t owners, Owner r) {
  const auto owns = [&](Coordinate i) { return coordinate_owner(owners, i) == r; };
  return owned_program(drawn.cls, owns, drawn.program).assignments;
}

std::vector<Assignment> to(const RandomProgram& drawn, std::optional<Coordinate> coordinate) {
  std::vector<Assignment> assignments;
  for (const Assignment& assignment : drawn.program.assignments) {
    const auto target = drawn.cls(assignment.target);
    if (!target || target == coordinate) assignments.push_back(assignment);
  }
  return assignments;
}

void at_a_corner(Draws& draws, Trial&) {
  const auto corner = static_cast<Corner>(draws.kind("corner", kCorners));
  const ProgramSizes sizes = draw_sizes_of(corner, draws);
  const std::size_t owners = draws.size("owners", 1, 8);
  const std::uint64_t seed = draws.seed();
  const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
  const auto claim_it_holds = [&](std::size_t by) {
    const std::string where =
        where_ownership_fails_over_terms(drawn, mod_ownership(sizes.coordinates, by));
    claim(where.empty(), "the owner's term is the whole program's: " + where);
  };
  switch (corner) {
    case Corner::no_owners:
      for (Coordinate i = 0; i < sizes.coordinates; ++i) {
        claim(part_of(drawn, 0, i) == to(drawn, i), "each coordinate is its own owner's");
      }
      claim_it_holds(0);
      break;
    case Corner::one_owner:
      claim(part_of(drawn, 1, 0) == drawn.program.assignments, "one owner runs all of it");
      claim_it_holds(1);
      break;
    case Corner::more_owners_than_coordinates:
      for (std::size_t r = 0; r < owners; ++r) {
        claim(part_of(drawn, sizes.coordinates + owners,
                      static_cast<Owner>(sizes.coordinates + r)) == to(drawn, std::nullopt),
              "an owner without coordinates runs the shared assignments alone");
      }
      claim_it_holds(sizes.coordinates + owners);
      break;
    case Corner::empty_program:
    case Corner::no_slots: {
      const auto state = random_state<std::uint32_t>(drawn.program.slots, Random(seed, "state"));
      claim(slot_run(state, drawn.program) == state, "the empty program leaves the state alone");
      claim_it_holds(0);
      claim_it_holds(owners);
      break;
    }
    case Corner::assigned_many_times:
      claim_it_holds(owners);
      break;
    case Corner::never_assigned: {
      std::vector<bool> assigned(drawn.program.slots);
      for (const Assignment& one : drawn.program.assignments) assigned[one.target] = true;
      const auto state = random_state<std::uint32_t>(drawn.program.slots, Random(seed, "state"));
      const Ownership ownership = mod_ownership(sizes.coordinates, owners);
      bool kept = true;
      for (Owner r = 0; r < owners; ++r) {
        const std::vector<std::uint32_t> end = owned_run(drawn, ownership, r, state);
        for (Slot slot = 0; slot < end.size(); ++slot) {
          kept = kept && (assigned[slot] || end[slot] == state[slot]);
        }
      }
      claim(kept, "slots never assigned end as they started");
      claim_it_holds(owners);
      break;
    }
  }
}

void on_the_device(Draws& draws, Trial& trial) {
  static constexpr std::array<std::string_view, 4> corners = {
      "one rank", "more ranks than coordinates", "no coordinate", "a parameter of none"};
  const std::size_t corner = draws.kind("corner", corners);
  ProgramCaseSizes sizes = draw_program_case_sizes(draws);
  switch (corner) {
    case 0:
      sizes.ranks = 1;
      break;
    case 1:
      sizes.shapes = {{1, 1}, {1, 2}};
      sizes.ranks = std::max<std::size_t>(sizes.ranks, 4);
      break;
    case 2:
      sizes.shapes = {{0, 1}};
      break;
    default:
      sizes.shapes.push_back({0, 1});
      sizes.shapes.push_back({1, 1});
      break;
  }
  claim_step_agrees(random_program_case(sizes, draws.seed()), trial);
}

}  // namespace

Identity ownership_holds_at_its_corners() {
  return {.name = "ownership-holds-at-its-corners",
          .label = "A4",
          .statement =
              "Ownership holds with no owners, one, or more than coordinates, for the "
              "empty program, and for slots assigned many times or never.",
          .theorem = "Per-coordinate ownership reproduces the replicated update",
          .properties = {{.name = "at its corners", .holds = at_a_corner},
                         {.name = "a sharded step on the device",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
