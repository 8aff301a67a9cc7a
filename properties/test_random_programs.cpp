#include <catch2/catch.hpp>

#include "properties/random_programs.h"

namespace shardproof {
namespace {

// Where no numbers are found, what is read cannot matter: random programs end in a < a, or select
// one value either way.
TEST_CASE("programs that read across are harmless, harmful and shown, or harmful and not shown") {
  std::size_t harmless = 0, shown = 0, not_shown = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Draws draws(seed, static_cast<int>(seed % 101));
    ProgramSizes sizes = reading_across(draws, draw_sizes(draws));
    sizes.coordinates = std::min<std::size_t>(sizes.coordinates, 8);
    const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
    if (is_slot_separable(drawn.cls, drawn.program)) continue;
    const Harm harm = find_harm(drawn.cls, drawn.program, seed);
    ++(!harm.slot ? harmless : harm.numbers ? shown : not_shown);
  }
  INFO("harmless " << harmless << ", shown " << shown << ", not shown " << not_shown);
  CHECK(harmless > 40);
  CHECK(shown > 80);
  CHECK(not_shown > 0);
  CHECK(not_shown < shown / 4);
}

}  // namespace
}  // namespace shardproof
