#include "reference/slots/separability.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include "reference/numbers/random.h"
#include "reference/slots/slot_run.h"

namespace shardproof {
namespace {

std::span<const Slot> reads_of(const Assignment& assignment) {
  return {assignment.reads.data(), arity(assignment.function)};
}

// Sets of slots that are joined one pair at a time.
class JoinedSlots {
 public:
  explicit JoinedSlots(std::size_t slots) : parent_(slots) {
    std::iota(parent_.begin(), parent_.end(), Slot{0});
  }
  Slot find(Slot slot) {
    while (parent_[slot] != slot) slot = parent_[slot] = parent_[parent_[slot]];
    return slot;
  }
  // The lower slot names the set, so that the order of joining does not matter.
  void join(Slot a, Slot b) {
    a = find(a);
    b = find(b);
    parent_[std::max(a, b)] = std::min(a, b);
  }

 private:
  std::vector<Slot> parent_;
};

// Slots that are not shared, by coordinate, then slot.
std::vector<std::pair<Coordinate, Slot>> by_coordinate(const Classification& cls) {
  std::vector<std::pair<Coordinate, Slot>> order;
  for (Slot slot = 0; slot < cls.slots(); ++slot) {
    if (const auto coordinate = cls(slot)) order.emplace_back(*coordinate, slot);
  }
  if (!std::is_sorted(order.begin(), order.end())) std::sort(order.begin(), order.end());
  return order;
}

// Whether a slot belongs to a coordinate, or reads one, directly or through shared slots.
std::vector<bool> depends_on_coordinates(const Classification& cls, const Program& program) {
  std::vector<bool> depends(cls.slots());
  for (Slot slot = 0; slot < cls.slots(); ++slot) depends[slot] = !cls.is_shared(slot);
  // Shared targets of the shared slots they read, as one list cut at `begin`.
  std::vector<std::size_t> begin(cls.slots() + 1);
  std::vector<Slot> pending;
  const auto for_each_shared_target = [&](auto&& visit) {
    for (const Assignment& assignment : program.assignments) {
      if (!cls.is_shared(assignment.target)) continue;
      for (const Slot read : reads_of(assignment)) visit(read, assignment.target);
    }
  };
  for_each_shared_target([&](Slot read, Slot target) {
    if (cls.is_shared(read)) {
      ++begin[read + 1];
    } else if (!depends[target]) {
      depends[target] = true;
      pending.push_back(target);
    }
  });
  if (pending.empty()) return depends;
  std::partial_sum(begin.begin(), begin.end(), begin.begin());
  std::vector<Slot> targets(begin.back());
  std::vector<std::size_t> next(begin.begin(), begin.end() - 1);
  for_each_shared_target([&](Slot read, Slot target) {
    if (cls.is_shared(read)) targets[next[read]++] = target;
  });
  while (!pending.empty()) {
    const Slot slot = pending.back();
    pending.pop_back();
    for (std::size_t i = begin[slot]; i < begin[slot + 1]; ++i) {
      if (depends[targets[i]]) continue;
      depends[targets[i]] = true;
      pending.push_back(targets[i]);
    }
  }
  return depends;
}

// Whose run has a value right, when each coordinate is an owner of its own: everyone's, no one's,
// or that of one coordinate's owner alone. (Two owners only never occurs: a value that reads
// coordinates i and k is right for neither of their owners.)
class RightFor {
 public:
  static RightFor everyone() { return RightFor(-1); }
  static RightFor no_one() { return RightFor(-2); }
  static RightFor owner_of(Coordinate coordinate) { return RightFor(coordinate); }
  // Of a value computed from both.
  friend RightFor operator&(RightFor a, RightFor b) {
    if (a == everyone()) return b;
    return b == everyone() || a == b ? a : no_one();
  }
  friend bool operator==(RightFor, RightFor) = default;

 private:
  explicit RightFor(std::int64_t who) : who_(who) {}
  std::int64_t who_;
};

// Of every slot at the end. Those of coordinates count for their owner only: everyone or no one.
std::vector<RightFor> right_at_the_end(const Classification& cls, const Program& program) {
  std::vector<RightFor> right(program.slots, RightFor::everyone());
  for (const Assignment& assignment : program.assignments) {
    RightFor value = RightFor::everyone();
    for (const Slot read : reads_of(assignment)) {
      const auto coordinate = cls(read);
      const bool only_owner = coordinate && right[read] == RightFor::everyone();
      value = value & (only_owner ? RightFor::owner_of(*coordinate) : right[read]);
    }
    const auto coordinate = cls(assignment.target);
    if (coordinate) {
      const bool is_right =
          value == RightFor::everyone() || value == RightFor::owner_of(*coordinate);
      value = is_right ? RightFor::everyone() : RightFor::no_one();
    }
    right[assignment.target] = value;
  }
  return right;
}

// The assignments that decide one slot's last value, over slots numbered anew.
struct Slice {
  Program whole, owned;      // the second: those that owner 0 runs
  Slot target = 0;           // the slot they decide
  std::vector<Slot> slots;   // of the program, by new number
  std::vector<Slot> used;    // new numbers of the slots whose first value is read
  std::vector<bool> is_run;  // by new number: whether owner 0 runs the slot
};

Slice slice_of(const Classification& cls, const Program& program, Slot target) {
  Slice slice;
  const std::optional<Coordinate> owned = cls(target);
  std::vector<bool> needed(program.slots);
  std::vector<const Assignment*> kept;
  needed[target] = true;
  for (auto it = program.assignments.rbegin(); it != program.assignments.rend(); ++it) {
    if (!needed[it->target]) continue;
    needed[it->target] = false;
    for (const Slot read : reads_of(*it)) needed[read] = true;
    kept.push_back(&*it);
  }
  std::reverse(kept.begin(), kept.end());

  constexpr Slot kNone = ~Slot{0};
  std::vector<Slot> number(program.slots, kNone);
  const auto renumbered = [&](Slot slot) {
    if (number[slot] == kNone) {
      number[slot] = static_cast<Slot>(slice.slots.size());
      slice.slots.push_back(slot);
      slice.is_run.push_back(runs_slot(
          cls, [&](Coordinate i) { return owned == i; }, slot));
    }
    return number[slot];
  };
  slice.whole.constants = slice.owned.constants = program.constants;
  slice.target = renumbered(target);
  for (const Assignment* assignment : kept) {
    Assignment copy = *assignment;
    for (std::size_t i = 0; i < arity(copy.function); ++i)
      copy.reads[i] = renumbered(copy.reads[i]);
    copy.target = renumbered(copy.target);
    slice.whole.assignments.push_back(copy);
    if (slice.is_run[copy.target]) slice.owned.assignments.push_back(copy);
  }
  slice.whole.slots = slice.owned.slots = slice.slots.size();

  // First what only owner 0 finds there, since the whole program writes it before it reads it:
  // simplify() sets what comes first to 0 first.
  std::vector<bool> is_used(slice.slots.size()), stale(slice.slots.size(), true);
  for (const Program* side : {&slice.whole, &slice.owned}) {
    std::vector<bool> written(slice.slots.size());
    for (const Assignment& assignment : side->assignments) {
      for (const Slot read : reads_of(assignment)) {
        if (!written[read]) is_used[read] = true;
        if (!written[read] && side == &slice.whole) stale[read] = false;
      }
      written[assignment.target] = true;
    }
    if (!written[slice.target]) is_used[slice.target] = true;
  }
  for (Slot slot = 0; slot < is_used.size(); ++slot) {
    if (is_used[slot]) slice.used.push_back(slot);
  }
  std::stable_partition(slice.used.begin(), slice.used.end(),
                        [&](Slot slot) { return stale[slot]; });
  return slice;
}

// Values of a slice's slots in the state and in owner 0's start.
template <class T>
struct Sides {
  std::vector<T> state, start;
};

template <class T>
struct Ends {
  T whole, by_owner;
};

// Exact evaluation without its conventions and its excesses: none where something is divided by 0,
// a root is irrational or a number grows past reason.
std::optional<Rational> exact_end(std::vector<Rational> values, const Program& program, Slot slot) {
  constexpr std::size_t kMostBits = 4096;
  const auto bits = [](const Rational& x) {
    return mpz_sizeinbase(mpq_numref(x.backend().data()), 2) +
           mpz_sizeinbase(mpq_denref(x.backend().data()), 2);
  };
  const Arithmetic<Rational> arithmetic;
  for (const auto& [target, function, reads] : program.assignments) {
    if (function == ValueFunction::constant) {
      values[target] = program.constants[reads[0]];
    } else if (function == ValueFunction::divide && values[reads[1]] == 0) {
      return std::nullopt;
    } else {
      try {
        with_operation(function, arithmetic,
                       [&, &target = target, &reads = reads](auto takes, auto operation) {
                         if constexpr (takes == 1) {
                           values[target] = operation(values[reads[0]]);
                         } else if constexpr (takes == 2) {
                           values[target] = operation(values[reads[0]], values[reads[1]]);
                         } else {
                           values[target] =
                               operation(values[reads[0]], values[reads[1]], values[reads[2]]);
                         }
                       });
      } catch (const std::domain_error&) {
        return std::nullopt;
      }
    }
    if (bits(values[target]) > kMostBits) return std::nullopt;
  }
  return values[slot];
}

std::optional<Ends<Rational>> differing_ends(const Slice& slice, const Sides<Rational>& sides,
                                             bool) {
  const auto whole = exact_end(sides.state, slice.whole, slice.target);
  if (!whole) return std::nullopt;
  const auto by_owner = exact_end(sides.start, slice.owned, slice.target);
  if (!by_owner || *whole == *by_owner) return std::nullopt;
  return Ends<Rational>{*whole, *by_owner};
}

// `any`: also where one of them is not finite, or only signs of zero differ.
std::optional<Ends<double>> differing_ends(const Slice& slice, const Sides<double>& sides,
                                           bool any) {
  const double whole = slot_run(sides.state, slice.whole)[slice.target];
  const double by_owner = slot_run(sides.start, slice.owned)[slice.target];
  const bool finite = std::isfinite(whole) && std::isfinite(by_owner);
  if (std::isnan(whole) && std::isnan(by_owner)) return std::nullopt;
  if (any ? std::bit_cast<std::uint64_t>(whole) == std::bit_cast<std::uint64_t>(by_owner)
          : !finite || whole == by_owner) {
    return std::nullopt;
  }
  return Ends<double>{whole, by_owner};
}

// The next simplest values for the slots that are used: ones, then small whole numbers, then
// larger; squares half of the time, since their roots are rational. Starts that owner 0 does not
// run are 0, or what the state has (stale), or drawn.
template <class T>
Sides<T> drawn_sides(const Slice& slice, std::size_t attempt, bool any, Random& random) {
  const auto most = static_cast<std::int64_t>(1 + attempt / 8);
  const auto draw = [&]() -> T {
    if constexpr (std::is_same_v<T, double>) {
      const double specials[] = {HUGE_VAL, -HUGE_VAL, std::numeric_limits<double>::quiet_NaN(),
                                 -0.0};
      if (any && random.below(4) == 0) return specials[random.below(4)];
      if (any && attempt % 2 == 0) {
        const auto exponent = static_cast<int>(random.integer(-30, 30));
        return random.sign() * std::ldexp(1 + random.uniform(), exponent);
      }
    }
    if (attempt < 2) return T(1);
    const std::int64_t x = random.integer(attempt % 3 == 0 ? -most : 0, most);
    return T(static_cast<int>(attempt % 2 == 0 ? x : x * x));
  };
  Sides<T> sides{std::vector<T>(slice.slots.size(), T(0)), {}};
  for (const Slot slot : slice.used) sides.state[slot] = draw();
  sides.start = sides.state;
  for (const Slot slot : slice.used) {
    if (slice.is_run[slot] || attempt % 4 == 1) continue;
    sides.start[slot] = attempt == 0 ? T(0) : draw();
  }
  return sides;
}

bool is_zero(const Rational& x) { return x == 0; }
bool is_zero(double x) { return std::bit_cast<std::uint64_t>(x) == 0; }

// Sets what it can to 0, whole stretches first, then the rest to 1, and lets owner 0 start from the
// state, as long as the ends differ and `budget` evaluations are not used up.
template <class T>
void simplify(const Slice& slice, Sides<T>& sides, bool any, std::size_t budget) {
  const auto try_values = [&](std::span<const Slot> slots, auto&& value) {
    if (budget == 0) return;
    --budget;
    Sides<T> simpler = sides;
    for (const Slot slot : slots) simpler.state[slot] = simpler.start[slot] = value(slot);
    if (differing_ends(slice, simpler, any)) sides = std::move(simpler);
  };
  const auto are_zero = [&](Slot slot) {
    return is_zero(sides.state[slot]) && is_zero(sides.start[slot]);
  };
  const std::span<const Slot> used = slice.used;
  for (std::size_t length = used.size(); length > 0; length /= 2) {
    for (std::size_t at = 0; at < used.size(); at += length) {
      const auto slots = used.subspan(at, std::min(length, used.size() - at));
      if (std::all_of(slots.begin(), slots.end(), are_zero)) continue;
      try_values(slots, [](Slot) { return T(0); });
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    const Slot slot = used[i];
    if (are_zero(slot)) continue;
    const auto both = [&](const T& value) {
      return sides.state[slot] == value && sides.start[slot] == value;
    };
    if (!both(T(1))) try_values(used.subspan(i, 1), [](Slot) { return T(1); });
    if (!both(sides.state[slot]))
      try_values(used.subspan(i, 1), [&](Slot s) { return sides.state[s]; });
  }
}

// Numbers on which a slice's ends differ, within that many assignments.
template <class T>
std::optional<Counterexample> search(const Classification& cls, const Slice& slice, bool any,
                                     std::size_t assignments, Random& random) {
  const std::size_t cost =
      1 + slice.whole.assignments.size() + slice.owned.assignments.size() + slice.slots.size();
  const std::size_t evaluations = std::min<std::size_t>(assignments / cost, any ? 2000 : 200);
  for (std::size_t attempt = 0; attempt < evaluations; ++attempt) {
    Sides<T> sides = drawn_sides<T>(slice, attempt, any, random);
    if (!differing_ends(slice, sides, any)) continue;
    simplify(slice, sides, any, std::clamp<std::size_t>(assignments / cost, 64, 2000));
    const Ends<T> ends = *differing_ends(slice, sides, any);
    const Slot slot = slice.slots[slice.target];
    Counterexample found{cls(slot), slot, {}, ends.whole, ends.by_owner};
    for (const Slot used : slice.used) {
      const T &state = sides.state[used], &start = sides.start[used];
      if (is_zero(state) && is_zero(start)) continue;
      found.starts.push_back({slice.slots[used], state, start});
    }
    std::sort(found.starts.begin(), found.starts.end(),
              [](const auto& a, const auto& b) { return a.slot < b.slot; });
    return found;
  }
  return std::nullopt;
}

}  // namespace

Separability is_slot_separable(const Classification& cls, const Program& program) {
  for (std::size_t i = 0; i < program.assignments.size(); ++i) {
    const Assignment& assignment = program.assignments[i];
    const std::optional<Coordinate> target = cls(assignment.target);
    for (const Slot read : reads_of(assignment)) {
      const std::optional<Coordinate> coordinate = cls(read);
      if (coordinate && coordinate != target) return {Violation{i, read, target, *coordinate}};
    }
  }
  return {};
}

Coarsening least_coarsening(const Classification& cls, const Program& program) {
  const std::vector<bool> depends = depends_on_coordinates(cls, program);
  const std::vector<std::pair<Coordinate, Slot>> order = by_coordinate(cls);
  JoinedSlots joined(cls.slots());
  for (std::size_t i = 1; i < order.size(); ++i) {
    if (order[i].first == order[i - 1].first) joined.join(order[i].second, order[i - 1].second);
  }
  for (const Assignment& assignment : program.assignments) {
    for (const Slot read : reads_of(assignment)) {
      if (depends[read]) joined.join(assignment.target, read);
    }
  }

  // Coordinates come in order, so the first of a set is its least.
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::size_t> group_of(cls.slots(), kNone);
  std::vector<Coarsening::Group> groups;
  for (std::size_t i = 0; i < order.size(); ++i) {
    if (i > 0 && order[i].first == order[i - 1].first) continue;
    std::size_t& group = group_of[joined.find(order[i].second)];
    if (group == kNone) {
      group = groups.size();
      groups.emplace_back();
    }
    groups[group].coordinates.push_back(order[i].first);
  }
  Coarsening coarsening{Classification(cls.slots()), {}};
  for (Slot slot = 0; slot < cls.slots(); ++slot) {
    if (!depends[slot]) continue;
    Coarsening::Group& group = groups[group_of[joined.find(slot)]];
    coarsening.classification.assign(slot, group.coordinates.front());
    if (cls.is_shared(slot)) group.shared.push_back(slot);
  }
  for (Coarsening::Group& group : groups) {
    if (group.coordinates.size() > 1 || !group.shared.empty()) {
      coarsening.groups.push_back(std::move(group));
    }
  }
  return coarsening;
}

Ownership Counterexample::ownership(std::size_t coordinates) const {
  Ownership ownership{2, std::vector<Owner>(coordinates, 1)};
  if (owned) ownership.owner_of.at(*owned) = 0;
  return ownership;
}

Harm find_harm(const Classification& cls, const Program& program, std::uint64_t seed) {
  // Coordinates first: parameters say more than sums that were to be shared.
  constexpr std::size_t kMostSlots = 8;
  std::vector<Slot> wrong;
  const std::vector<RightFor> right = right_at_the_end(cls, program);
  for (const bool is_shared : {false, true}) {
    for (Slot slot = 0; slot < program.slots && wrong.size() < kMostSlots; ++slot) {
      if (cls.is_shared(slot) == is_shared && right[slot] != RightFor::everyone()) {
        wrong.push_back(slot);
      }
    }
  }
  if (wrong.empty()) return {};

  // In assignments; an exact one costs a hundred times a float64 one.
  constexpr std::size_t kSlicing = 20'000'000, kKept = 2'000'000;
  constexpr std::size_t kExact = 1'000'000, kFloat = 50'000'000;
  std::vector<Slice> slices;
  std::size_t sliced = 0, kept = 0;
  for (const Slot slot : wrong) {
    if (sliced > kSlicing || kept > kKept) break;
    slices.push_back(slice_of(cls, program, slot));
    sliced += program.assignments.size();
    kept += slices.back().whole.assignments.size();
  }
  Random random(seed);
  const std::size_t share = slices.size();
  // An exact one may need many numbers where a rounded root needs few.
  constexpr std::size_t kFew = 8;
  std::optional<Counterexample> best;
  for (const Slice& slice : slices) {
    best = search<Rational>(cls, slice, false, kExact / share, random);
    if (best) break;
  }
  for (const bool any : {false, true}) {
    for (const Slice& slice : slices) {
      if (best && (any || best->starts.size() <= kFew)) break;
      // One try at least, however long.
      const std::size_t assignments =
          std::max(kFloat / share, 4 * slice.whole.assignments.size() + slice.slots.size() + 1);
      auto found = search<double>(cls, slice, any, assignments, random);
      if (found && (!best || found->starts.size() < best->starts.size())) best = std::move(found);
    }
  }
  if (best) return {best->slot, std::move(best)};
  return {wrong.front(), std::nullopt};
}

}  // namespace shardproof
