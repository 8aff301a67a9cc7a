// A1 (spec §1; Ajax, "Per-coordinate ownership reproduces the replicated update"): of a separable
// program, what each owner's part gives at the slots it owns is what the whole program gives. Over
// terms, which decides it for every type at once, and bit for bit over the number types.
#include "properties/identities/identities.h"
#include "properties/program_cases.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

void over_terms(Draws& draws, Trial&) {
  const OwnedProgram given = draw_owned_program(draws, draw_sizes(draws));
  claim(bool(is_slot_separable(given.drawn.cls, given.drawn.program)), "the program is separable");
  const std::string where = where_ownership_fails_over_terms(given.drawn, given.ownership);
  claim(where.empty(), "the owner's term is the whole program's: " + where);
}

template <class T>
std::string where_ownership_fails_over_numbers(const OwnedProgram& given) {
  Random others(given.seed, "others");
  return where_ownership_fails(
      given.drawn, given.ownership,
      random_state<T>(given.drawn.program.slots, Random(given.seed, "state")),
      [&](Owner, Slot) { return random_value<T>(others); });
}

void over_numbers(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, 6> types = {"float32", "float64", "bfloat16",
                                                            "float16", "uint32",  "rationals"};
  static constexpr std::array where_it_fails_over = {
      where_ownership_fails_over_numbers<float>,
      where_ownership_fails_over_numbers<double>,
      where_ownership_fails_over_numbers<BFloat16>,
      where_ownership_fails_over_numbers<Float16>,
      where_ownership_fails_over_numbers<std::uint32_t>,
      where_ownership_fails_over_numbers<Rational>};
  const std::size_t type = draws.kind("type", types);
  const ProgramSizes sizes =
      types[type] == "rationals" ? draw_small_sizes(draws) : draw_sizes(draws);
  const std::string where = where_it_fails_over[type](draw_owned_program(draws, sizes));
  claim(where.empty(), "the owner's value is the whole program's: " + where);
}

// Owned against replicated on the device, and both against the reference.
void on_the_device(Draws& draws, Trial& trial) {
  claim_step_agrees(draw_program_case(draws), trial);
}

}  // namespace

Identity owned_programs_reproduce_the_whole_program() {
  return {.name = "owned-programs-reproduce-the-whole-program",
          .label = "A1",
          .statement =
              "What each owner's part of a separable program gives at the slots it owns is "
              "what the whole program gives.",
          .theorem = "Per-coordinate ownership reproduces the replicated update",
          .properties = {{.name = "over terms", .holds = over_terms},
                         {.name = "bit for bit over numbers", .holds = over_numbers},
                         {.name = "a sharded step on the device",
                          .form = Property::Form::device,
                          .holds = on_the_device}}};
}

}  // namespace shardproof
