// Slot programs, starts and owners for the identities of spec §1, each a function of a random
// stream and of a few drawn sizes and kinds.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "properties/identity.h"
#include "reference/numbers/random.h"
#include "reference/slots/ownership.h"
#include "reference/slots/separability.h"
#include "reference/slots/slot_run.h"

namespace shardproof {

struct RandomProgram {
  std::size_t coordinates = 0;
  Classification cls{0};
  Program program;
};

struct ProgramSizes {
  std::size_t coordinates = 0, slots_of_coordinate = 1, shared = 0, assignments = 0;
  std::size_t reads_across = 0;  // assignments that may read any slot: 0 makes it separable
  bool roots = true;             // whether square roots are among the functions
};

// Slots of all coordinates and shared ones in a mixed order. Targets repeat, also at once, so that
// many assignments are dead; reads prefer what was written last, so that values travel far, from
// shared slot to shared slot and on to coordinates.
inline RandomProgram random_program(const ProgramSizes& sizes, Random random) {
  const std::size_t slots = sizes.coordinates * sizes.slots_of_coordinate + sizes.shared;
  RandomProgram drawn{sizes.coordinates, Classification(slots), {slots, {}, {}}};
  for (const char* constant : {"0", "1", "-1/3", "1000000", "1/100000000"}) {
    drawn.program.constants.emplace_back(constant);
  }
  if (slots == 0) return drawn;

  std::vector<Slot> order(slots);
  for (Slot slot = 0; slot < slots; ++slot) order[slot] = slot;
  random.shuffle<Slot>(order);
  const std::vector<Slot> shared(order.begin(),
                                 order.begin() + static_cast<std::ptrdiff_t>(sizes.shared));
  std::vector<std::vector<Slot>> of_coordinate(sizes.coordinates);
  for (std::size_t i = sizes.shared; i < slots; ++i) {
    const std::size_t coordinate = (i - sizes.shared) % sizes.coordinates;
    of_coordinate[coordinate].push_back(order[i]);
    drawn.cls.assign(order[i], static_cast<Coordinate>(coordinate));
  }

  const auto any_of = [&](const std::vector<Slot>& from) {
    return from[random.below(from.size())];
  };
  std::vector<Slot> last(sizes.coordinates + 1);  // the slot each wrote last; then the shared one
  for (std::size_t i = 0; i < sizes.coordinates; ++i) last[i] = of_coordinate[i].front();
  if (!shared.empty()) last.back() = shared.front();
  std::vector<bool> reads_across(sizes.assignments);
  std::fill_n(reads_across.begin(), std::min(sizes.reads_across, sizes.assignments), true);
  for (std::size_t i = sizes.assignments; i > 1; --i) {
    const std::size_t j = random.below(i);
    const bool kept = reads_across[i - 1];
    reads_across[i - 1] = reads_across[j];
    reads_across[j] = kept;
  }
  Slot target = order.front();
  for (std::size_t i = 0; i < sizes.assignments; ++i) {
    if (random.below(4) != 0) {
      const bool to_shared = !shared.empty() && (sizes.coordinates == 0 || random.below(3) == 0);
      target = to_shared ? any_of(shared) : any_of(of_coordinate[random.below(sizes.coordinates)]);
    }
    const auto coordinate = drawn.cls(target);
    const auto read = [&]() -> Slot {
      if (reads_across[i] && random.coin()) return order[random.below(slots)];
      if (!coordinate || (!shared.empty() && random.below(3) == 0)) {
        return random.coin() ? last.back() : any_of(shared);
      }
      return random.coin() ? last[*coordinate] : any_of(of_coordinate[*coordinate]);
    };
    Assignment assignment{target, ValueFunction::copy, {}};
    do {
      assignment.function = static_cast<ValueFunction>(random.below(kValueFunctions));
    } while (!sizes.roots && assignment.function == ValueFunction::square_root);
    for (std::size_t k = 0; k < arity(assignment.function); ++k) assignment.reads[k] = read();
    if (assignment.function == ValueFunction::constant) {
      assignment.reads[0] = static_cast<Slot>(random.below(drawn.program.constants.size()));
    }
    drawn.program.assignments.push_back(assignment);
    last[coordinate ? *coordinate : sizes.coordinates] = target;
  }
  return drawn;
}

// Hundreds of slots and assignments at most, none at least.
inline ProgramSizes draw_sizes(Draws& draws) {
  ProgramSizes sizes;
  sizes.coordinates = draws.size("coordinates", 0, 40);
  sizes.slots_of_coordinate = draws.size("slots of a coordinate", 1, 8);
  sizes.shared = draws.size("shared slots", 0, 20);
  sizes.assignments = draws.size("assignments", 0, 400);
  return sizes;
}

// As few as an exact fraction bears: each assignment may multiply its digits.
inline ProgramSizes draw_small_sizes(Draws& draws) {
  ProgramSizes sizes;
  sizes.coordinates = draws.size("coordinates", 0, 4);
  sizes.slots_of_coordinate = draws.size("slots of a coordinate", 1, 3);
  sizes.shared = draws.size("shared slots", 0, 3);
  sizes.assignments = draws.size("assignments", 0, 14);
  sizes.roots = false;
  return sizes;
}

// With one to four assignments that may read any slot.
inline ProgramSizes reading_across(Draws& draws, ProgramSizes sizes) {
  sizes.reads_across = draws.size("assignments that read across", 1, 4);
  return sizes;
}

// Maps from coordinates to owners: what systems use, and tables without any order.
enum class MapToOwners { mod, each_its_own, one, more_than_coordinates, blocks, greedy, table };
inline constexpr std::array<std::string_view, 7> kOwnerMaps = {
    "mod", "each its own", "one owner", "more than coordinates", "blocks", "greedy", "a table"};

inline Ownership random_ownership(MapToOwners map, std::size_t owners, std::size_t coordinates,
                                  Random random) {
  switch (map) {
    case MapToOwners::mod:
      return mod_ownership(coordinates, owners);
    case MapToOwners::each_its_own:
      return mod_ownership(coordinates, 0);
    case MapToOwners::one:
      return mod_ownership(coordinates, 1);
    case MapToOwners::more_than_coordinates:
      return mod_ownership(coordinates, coordinates + owners);
    case MapToOwners::blocks:
      return block_ownership(coordinates, owners);
    case MapToOwners::greedy: {
      std::vector<std::size_t> sizes;
      for (std::size_t left = coordinates; left > 0; left -= sizes.back()) {
        sizes.push_back(random.below(left + 1));
      }
      return greedy_ownership(sizes, owners);
    }
    case MapToOwners::table: {
      Ownership ownership{owners, {}};
      for (std::size_t i = 0; i < coordinates; ++i) {
        ownership.owner_of.push_back(static_cast<Owner>(random.below(owners)));
      }
      return ownership;
    }
  }
  return {};
}

// A program, who owns its coordinates, and the seed of what else a case is made of.
struct OwnedProgram {
  RandomProgram drawn;
  Ownership ownership;
  std::uint64_t seed = 0;
};

inline OwnedProgram draw_owned_program(Draws& draws, const ProgramSizes& sizes) {
  const auto map = static_cast<MapToOwners>(draws.kind("owner map", kOwnerMaps));
  const std::size_t owners = draws.size("owners", 1, 8);
  const std::uint64_t seed = draws.seed();
  return {random_program(sizes, Random(seed, "program")),
          random_ownership(map, owners, sizes.coordinates, Random(seed, "ownership")), seed};
}

// Whether owner r owns a coordinate, as owned_program asks.
inline auto owns(const Ownership& ownership, Owner r) {
  return [&ownership, r](Coordinate i) { return ownership.owner_of.at(i) == r; };
}

// One value of T: any bits, with NaN of any payload, infinities and both zeros among them, or a
// number of ordinary size.
template <class T>
T random_value(Random& random) {
  if constexpr (std::same_as<T, Rational>) {
    return Rational(random.integer(-60, 60)) / Rational(random.integer(1, 6));
  } else if constexpr (std::same_as<T, std::uint32_t>) {
    const auto bits = static_cast<std::uint32_t>(random.next());
    return random.coin() ? bits : bits % 5;
  } else {
    if (random.coin()) return T(static_cast<float>(random.integer(-40, 40)) / 8);
    const std::uint64_t bits = random.next();
    const auto special = static_cast<float>(random.coin() ? HUGE_VAL : 0.0);
    if (random.below(3) == 0) return T(random.coin() ? special : -special);
    if constexpr (std::same_as<T, float>) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits | (bits & 1 ? 0x7f800000U : 0U)));
    } else if constexpr (std::same_as<T, double>) {
      return std::bit_cast<double>(bits | (bits & 1 ? 0x7ff0000000000000U : 0U));
    } else {
      return T::from_bits(static_cast<std::uint16_t>(bits | (bits & 1 ? 0x7c00U : 0U)));
    }
  }
}

template <class T>
std::vector<T> random_state(std::size_t slots, Random random) {
  std::vector<T> state;
  for (std::size_t i = 0; i < slots; ++i) state.push_back(random_value<T>(random));
  return state;
}

// Bit for bit: NaN equals NaN of the same sign and payload only, and the zeros differ.
template <class T>
bool same_value(const T& a, const T& b) {
  if constexpr (std::same_as<T, float>) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
  } else if constexpr (std::same_as<T, double>) {
    return std::bit_cast<std::uint64_t>(a) == std::bit_cast<std::uint64_t>(b);
  } else if constexpr (requires { a.bits(); }) {
    return a.bits() == b.bits();
  } else {
    return a == b;
  }
}

// start r: the state where r runs the slot, else what `other(slot)` gives.
template <class T, class Other>
std::vector<T> start_of(const RandomProgram& drawn, const Ownership& ownership, Owner r,
                        const std::vector<T>& state, Other&& other) {
  std::vector<T> start = state;
  for (Slot slot = 0; slot < start.size(); ++slot) {
    if (!runs_slot(drawn.cls, owns(ownership, r), slot)) start[slot] = other(slot);
  }
  return start;
}

// What owner r ends with from that start.
template <class T>
std::vector<T> owned_run(const RandomProgram& drawn, const Ownership& ownership, Owner r,
                         std::vector<T> start, const Arithmetic<T>& arithmetic = {}) {
  return slot_run(std::move(start), owned_program(drawn.cls, owns(ownership, r), drawn.program),
                  arithmetic);
}

// The statement of A1 at every slot. `other(r, slot)` is start r where r does not run the slot.
// Empty where it holds, else where it fails.
template <class T, class Other>
std::string where_ownership_fails(const RandomProgram& drawn, const Ownership& ownership,
                                  const std::vector<T>& state, Other&& other,
                                  const Arithmetic<T>& arithmetic = {}) {
  const std::vector<T> whole = slot_run(state, drawn.program, arithmetic);
  for (Owner r = 0; r < ownership.owners; ++r) {
    const std::vector<T> start =
        start_of(drawn, ownership, r, state, [&](Slot slot) { return other(r, slot); });
    const std::vector<T> owned = owned_run(drawn, ownership, r, start, arithmetic);
    for (Slot slot = 0; slot < whole.size(); ++slot) {
      const auto coordinate = drawn.cls(slot);
      const Owner owner = coordinate ? ownership.owner_of.at(*coordinate) : 0;
      if (owner == r && !same_value(owned[slot], whole[slot])) {
        return "owner " + std::to_string(r) + " at slot " + std::to_string(slot);
      }
    }
  }
  return "";
}

// Over terms: the state and the starts are all different variables.
inline std::string where_ownership_fails_over_terms(const RandomProgram& drawn,
                                                    const Ownership& ownership) {
  TermStore store;
  const std::size_t slots = drawn.program.slots;
  store.reserve(slots + drawn.program.assignments.size());
  std::vector<Term> state;
  for (Slot slot = 0; slot < slots; ++slot) state.push_back(store.variable(slot));
  const auto fresh = [&](Owner r, Slot slot) {
    return store.variable(static_cast<std::uint32_t>((r + 1) * slots + slot));
  };
  return where_ownership_fails(drawn, ownership, state, fresh, Arithmetic<Term>(store));
}

}  // namespace shardproof
