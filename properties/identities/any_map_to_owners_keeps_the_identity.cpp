// A5 (spec §1): the identity needs no `mod`. Any total map from coordinates to owners keeps it.
#include <catch2/catch.hpp>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

TEST_CASE("A5: every map from coordinates to owners keeps the identity, over terms") {
  check_on_random_cases("A5", 300, [] {
    const ProgramSizes sizes = draw_sizes();
    const std::uint64_t seed = draw_seed();
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    for (std::size_t map = 0; map < kOwnerMaps; ++map) {
      const Ownership ownership = random_ownership(static_cast<OwnerMap>(map), sizes.coordinates,
                                                   Random(seed, "ownership", map));
      RC_ASSERT(ownership.owner_of.size() == sizes.coordinates);
      for (const Owner owner : ownership.owner_of) RC_ASSERT(owner < ownership.owners);
      RC_ASSERT(where_ownership_fails_over_terms(drawn, ownership) == "");
    }
  });
}

TEST_CASE("A5: all maps of four coordinates to three owners, over terms") {
  const ProgramSizes sizes{4, 3, 3, 60};
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    const RandomProgram drawn = random_program(sizes, Random(seed));
    for (Owner code = 0; code < 81; ++code) {
      const Ownership ownership{3, {code % 3, code / 3 % 3, code / 9 % 3, code / 27}};
      REQUIRE(where_ownership_fails_over_terms(drawn, ownership) == "");
    }
  }
}

}  // namespace
}  // namespace shardproof
