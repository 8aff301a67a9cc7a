// A5 (spec §1): the identity needs no `mod`. Any total map from coordinates to owners keeps it.
#include "properties/identities/identities.h"
#include "properties/program_cases.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

void claim_it_holds(const RandomProgram& drawn, const Ownership& ownership) {
  const std::string where = where_ownership_fails_over_terms(drawn, ownership);
  claim(where.empty(), "the owner's term is the whole program's: " + where);
}

void every_kind_of_map(Draws& draws, Trial&) {
  const ProgramSizes sizes = draw_sizes(draws);
  const std::size_t owners = draws.size("owners", 1, 8);
  const std::uint64_t seed = draws.seed();
  const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
  for (std::size_t map = 0; map < kOwnerMaps.size(); ++map) {
    const Ownership ownership = random_ownership(static_cast<MapToOwners>(map), owners,
                                                 sizes.coordinates, Random(seed, "ownership", map));
    const bool total = ownership.owner_of.size() == sizes.coordinates &&
                       std::all_of(ownership.owner_of.begin(), ownership.owner_of.end(),
                                   [&](Owner owner) { return owner < ownership.owners; });
    claim(total, std::string(kOwnerMaps[map]) + " is a total map");
    claim_it_holds(drawn, ownership);
  }
}

void all_maps_of_four(Draws& draws, Trial&) {
  ProgramSizes sizes{4, 3, 3};
  sizes.assignments = draws.size("assignments", 0, 60);
  const RandomProgram drawn = random_program(sizes, Random(draws.seed()));
  for (Owner code = 0; code < 81; ++code) {
    claim_it_holds(drawn, {3, {code % 3, code / 3 % 3, code / 9 % 3, code / 27}});
  }
}

void on_the_device(Draws& draws, Trial& trial) {
  ProgramCaseSizes sizes = draw_program_case_sizes(draws);
  sizes.owners = OwnerMap::table;
  claim_step_agrees(random_program_case(sizes, draws.seed()), trial);
}

}  // namespace

Identity any_map_to_owners_keeps_the_identity() {
  return {.name = "any-map-to-owners-keeps-the-identity",
          .label = "A5",
          .statement =
              "Ownership holds for any total map from coordinates to owners, not for mod alone.",
          .theorem = "Per-coordinate ownership reproduces the replicated update",
          .properties = {{.name = "every kind of map, over terms", .holds = every_kind_of_map},
                         {.name = "all maps of four coordinates to three owners, over terms",
                          .holds = all_maps_of_four,
                          .one_in = 4},
                         {.name = "a sharded step on the device, owners by a table",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
