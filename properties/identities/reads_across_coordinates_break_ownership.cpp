// A6 (spec §1): a program that is not separable is refused with a witness and the least coarsening
// that makes it separable. Whether its reads across coordinates break the identity is decided by
// one run over terms; where they do there are numbers to show it, where not it holds for all
// owners.
#include <optional>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "properties/identities/identities.h"
#include "properties/random_programs.h"

namespace shardproof {
namespace {

// By its definition, read by read.
bool violates(const Classification& cls, const Assignment& assignment, std::size_t read) {
  const auto target = cls(assignment.target), coordinate = cls(assignment.reads[read]);
  if (!target) return coordinate.has_value();
  return coordinate && *coordinate != *target;
}

void witness(Draws& draws, Trial&) {
  const ProgramSizes sizes = reading_across(draws, draw_sizes(draws));
  const RandomProgram drawn = random_program(sizes, Random(draws.seed(), "program"));
  std::optional<std::pair<std::size_t, std::size_t>> first;
  for (std::size_t i = 0; i < drawn.program.assignments.size() && !first; ++i) {
    const Assignment& assignment = drawn.program.assignments[i];
    for (std::size_t k = 0; k < arity(assignment.function) && !first; ++k) {
      if (violates(drawn.cls, assignment, k)) first = {i, k};
    }
  }
  const Separability separability = is_slot_separable(drawn.cls, drawn.program);
  claim(bool(separability) == !first, "a program is separable unless a read crosses");
  if (separability) return;
  const Violation& found = *separability.violation;
  const Assignment& assignment = drawn.program.assignments[first->first];
  claim(found.assignment == first->first, "the witness is the first assignment that crosses");
  claim(found.read == assignment.reads[first->second], "and its first read that does");
  claim(found.target == drawn.cls(assignment.target), "the coordinate of the target");
  claim(found.coordinate == drawn.cls(found.read), "the coordinate of what is read");
}

// Whether `finer` keeps apart what `coarser` does, of classifications of the same slots: slots of
// one coordinate there are of one coordinate here, and what is not shared there is not shared here.
bool refines(const Classification& finer, const Classification& coarser) {
  for (Slot a = 0; a < finer.slots(); ++a) {
    if (!finer(a)) continue;
    if (!coarser(a)) return false;
    for (Slot b = 0; b < a; ++b) {
      if (finer(a) == finer(b) && coarser(a) != coarser(b)) return false;
    }
  }
  return true;
}

// Calls body with every coarsening of cls: each coordinate gets one of its least members' names,
// each shared slot stays shared or gets such a name.
template <class Body>
void for_each_coarsening(const RandomProgram& drawn, Body&& body) {
  std::vector<Coordinate> name(drawn.coordinates);
  std::vector<Slot> shared;
  for (Slot slot = 0; slot < drawn.cls.slots(); ++slot) {
    if (drawn.cls.is_shared(slot)) shared.push_back(slot);
  }
  const auto with_shared = [&](auto&& self, Classification& cls, std::size_t at) -> void {
    if (at == shared.size()) return body(cls);
    self(self, cls, at + 1);
    for (Coordinate i = 0; i < name.size(); ++i) {
      if (name[i] != i) continue;
      Classification joined = cls;
      joined.assign(shared[at], i);
      self(self, joined, at + 1);
    }
  };
  const auto with_coordinates = [&](auto&& self, Coordinate at) -> void {
    if (at == name.size()) {
      Classification cls(drawn.cls.slots());
      for (Slot slot = 0; slot < cls.slots(); ++slot) {
        if (const auto coordinate = drawn.cls(slot)) cls.assign(slot, name[*coordinate]);
      }
      return with_shared(with_shared, cls, 0);
    }
    for (Coordinate i = 0; i <= at; ++i) {
      if (i < at && name[i] != i) continue;
      name[at] = i;
      self(self, at + 1);
    }
  };
  with_coordinates(with_coordinates, 0);
}

void least_of_all(Draws& draws, Trial&) {
  const ProgramSizes sizes = reading_across(draws, draw_small_sizes(draws));
  const RandomProgram drawn = random_program(sizes, Random(draws.seed(), "program"));
  const Coarsening least = least_coarsening(drawn.cls, drawn.program);
  claim(bool(is_slot_separable(least.classification, drawn.program)),
        "it makes the program separable");
  claim(refines(drawn.cls, least.classification), "it is a coarsening");
  for_each_coarsening(drawn, [&](const Classification& other) {
    if (is_slot_separable(other, drawn.program)) {
      claim(refines(least.classification, other), "it refines every other that does");
    }
  });
}

void groups(Draws& draws, Trial&) {
  const ProgramSizes sizes = reading_across(draws, draw_sizes(draws));
  const RandomProgram drawn = random_program(sizes, Random(draws.seed(), "program"));
  const Coarsening least = least_coarsening(drawn.cls, drawn.program);
  claim(bool(is_slot_separable(least.classification, drawn.program)),
        "it makes the program separable");
  claim(least.groups.empty() == bool(is_slot_separable(drawn.cls, drawn.program)),
        "nothing is joined where the program is separable");
  Classification by_groups = drawn.cls;
  for (const Coarsening::Group& group : least.groups) {
    claim(group.coordinates.size() + group.shared.size() > 1, "a group joins two or more");
    for (const Slot slot : group.shared) {
      claim(drawn.cls.is_shared(slot), "what joins as shared was shared");
      by_groups.assign(slot, group.coordinates.front());
    }
    for (Slot slot = 0; slot < drawn.cls.slots(); ++slot) {
      const auto coordinate = drawn.cls(slot);
      if (coordinate &&
          std::count(group.coordinates.begin(), group.coordinates.end(), *coordinate)) {
        by_groups.assign(slot, group.coordinates.front());
      }
    }
  }
  const Coarsening again = least_coarsening(least.classification, drawn.program);
  claim(again.groups.empty(), "the least coarsening is its own");
  bool as_grouped = true, as_again = true;
  for (Slot slot = 0; slot < drawn.cls.slots(); ++slot) {
    as_grouped = as_grouped && by_groups(slot) == least.classification(slot);
    as_again = as_again && again.classification(slot) == least.classification(slot);
  }
  claim(as_grouped, "the groups are the classification's");
  claim(as_again, "the least coarsening is its own, slot by slot");
}

// Owner 0 none, coordinate i to owner i + 1.
Ownership each_alone(std::size_t coordinates) {
  Ownership ownership{coordinates + 1, {}};
  for (Owner i = 0; i < coordinates; ++i) ownership.owner_of.push_back(i + 1);
  return ownership;
}

// slot_run, where what has no value leaves its target without one, and so on.
template <class T>
std::vector<std::optional<T>> partial_run(const std::vector<T>& state, const Program& program) {
  std::vector<std::optional<T>> values(state.begin(), state.end());
  for (Assignment assignment : program.assignments) {
    Program alone{4, program.constants, {}};
    std::vector<T> reads(4, T(0));
    bool is_defined = true;
    for (Slot k = 0; k < arity(assignment.function); ++k) {
      const std::optional<T>& read = values[assignment.reads[k]];
      is_defined = is_defined && read;
      if (read) reads[k] = *read;
      assignment.reads[k] = k;
    }
    std::optional<T>& target = values[std::exchange(assignment.target, 3)];
    alone.assignments = {assignment};
    target.reset();
    try {
      if (is_defined) target = slot_run(reads, alone)[3];
    } catch (const std::domain_error&) {
    }
  }
  return values;
}

// What a counterexample claims, by running the whole program and owner 0's over T.
template <class T>
bool is_true(const RandomProgram& drawn, const Counterexample& claim) {
  std::vector<T> state(drawn.program.slots, T(0)), start = state;
  for (const auto& [slot, in_state, in_start] : claim.starts) {
    state[slot] = std::get<T>(in_state);
    start[slot] = std::get<T>(in_start);
  }
  const Ownership ownership = claim.ownership(drawn.coordinates);
  for (Slot slot = 0; slot < state.size(); ++slot) {
    if (runs_slot(drawn.cls, owns(ownership, 0), slot) && !same_value(state[slot], start[slot])) {
      return false;
    }
  }
  const Program owned = owned_program(drawn.cls, owns(ownership, 0), drawn.program);
  const std::optional<T> whole = partial_run(state, drawn.program)[claim.slot];
  const std::optional<T> by_owner = partial_run(start, owned)[claim.slot];
  const auto coordinate = drawn.cls(claim.slot);
  return (!coordinate || ownership.owner_of.at(*coordinate) == 0) && whole && by_owner &&
         !same_value(*whole, *by_owner) && same_value(*whole, std::get<T>(claim.whole)) &&
         same_value(*by_owner, std::get<T>(claim.by_owner));
}

void harm(Draws& draws, Trial&) {
  ProgramSizes sizes = draw_sizes(draws);
  sizes.coordinates = std::min<std::size_t>(sizes.coordinates, 8);
  sizes = reading_across(draws, sizes);
  const std::size_t owners = draws.size("owners", 1, 8);
  const std::uint64_t seed = draws.seed();
  const RandomProgram drawn = random_program(sizes, Random(seed, "program"));
  const Harm found = find_harm(drawn.cls, drawn.program, seed);
  const std::string where = where_ownership_fails_over_terms(drawn, each_alone(drawn.coordinates));
  claim(found.slot.has_value() == !where.empty(), "harm is what one run over terms says");
  if (found.slot) {
    if (!found.numbers) return;
    claim(found.numbers->slot == *found.slot, "the numbers are of that slot");
    const bool shown = std::visit(
        [&](const auto& x) { return is_true<std::decay_t<decltype(x)>>(drawn, *found.numbers); },
        found.numbers->whole);
    claim(shown, "the numbers show the harm");
    return;
  }
  claim(!found.numbers, "what is harmless has no numbers to show");
  for (std::size_t map = 0; map < kOwnerMaps.size(); ++map) {
    const Ownership ownership = random_ownership(static_cast<MapToOwners>(map), owners,
                                                 drawn.coordinates, Random(seed, "ownership", map));
    claim(where_ownership_fails_over_terms(drawn, ownership).empty(),
          "what is harmless holds for every map, over terms");
    Random others(seed, "others");
    claim(where_ownership_fails(drawn, ownership,
                                random_state<float>(drawn.program.slots, Random(seed, "state")),
                                [&](Owner, Slot) { return random_value<float>(others); })
              .empty(),
          "what is harmless holds for every map, bit for bit over float32");
  }
}

}  // namespace

Identity reads_across_coordinates_break_ownership() {
  return {.name = "reads-across-coordinates-break-ownership",
          .label = "A6",
          .statement =
              "A program that reads across coordinates is refused with its first such read "
              "and its least coarsening, and does harm where one run over terms says so.",
          .theorem = "",
          .properties = {{.name = "the witness is the first read across", .holds = witness},
                         {.name = "the least coarsening of all", .holds = least_of_all},
                         {.name = "the groups are the classification's", .holds = groups},
                         {.name = "harm, and numbers that show it", .holds = harm, .one_in = 20}}};
}

}  // namespace shardproof
