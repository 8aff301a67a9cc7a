// check: identities tried on random cases, a failing one shrunk and kept. Case i of a property
// follows from the seed, the property's name and i alone, so that a run is the same at any number
// of threads, and a shorter run is the beginning of a longer one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "properties/identity.h"
#include "properties/trial.h"

namespace shardproof {

struct CaseResult {
  enum class Outcome { holds, discarded, fails } outcome;
  std::string message;  // what was refuted
  Draws draws;
  Trial::Wrong wrong;

  bool fails() const { return outcome == Outcome::fails; }
};

// Tries one case. What a property throws, other than want of memory, refutes it.
CaseResult try_case(const Property& property, Draws draws, const DeviceMaker& make);

// The draws of case `index` of a property. Sizes grow with the index, up to 100 and again from 0.
Draws draws_of_case(const Identity& identity, const Property& property, std::uint64_t seed,
                    std::size_t index);

// A failing case made small: sizes and kinds by RapidCheck's shrinks, from the smallest sizes up;
// then, of a device, fewer replicas, smaller extents and simpler numbers (diff/shrink.h). The
// effort is bounded by a number of cases.
CaseResult shrink_case(const Identity& identity, const Property& property, CaseResult found,
                       const DeviceMaker& make);

struct Failure {
  std::size_t index = 0;  // of the first case that failed
  CaseResult found, shrunk;
};

struct PropertyReport {
  const Identity* identity = nullptr;
  const Property* property = nullptr;
  std::size_t cases = 0, discards = 0;  // discarded cases are among the cases
  // By the name of a draw: how often it had a value, or one in a range. Kinds go by their names.
  std::map<std::string, std::map<std::string, std::size_t>> draws;
  std::optional<Failure> failure;
  double seconds = 0;

  // Whether some case was tried and none failed.
  bool holds() const { return !failure && cases > discards; }
};

struct CheckTask {
  std::vector<const Identity*> identities;
  std::optional<std::size_t> cases;  // of each property, fewer where they are costly (one_in)
  std::optional<double> seconds;     // for all together; at least one case each is tried
  std::uint64_t seed = 1;
  unsigned threads = 1;
  DeviceMaker make;
};

// One of `cases` and `seconds` is given, or both: what comes first ends a property. `done` is told
// of every property when it is done; `progress` of the share of the work that is.
std::vector<PropertyReport> check(const CheckTask& task,
                                  const std::function<void(const PropertyReport&)>& done = {},
                                  const std::function<void(double)>& progress = {});

// For tests: empty when every property of that form held on so many cases; else the first that did
// not, what was refuted, and the draws of the shrunk case.
std::string first_failure(const Identity& identity, Property::Form form, std::size_t cases,
                          std::uint64_t seed = 1, const DeviceMaker& make = {});

// "replicas 2, channels 1, kind lattice, seed 7"
std::string to_string(const std::vector<Drawn>& draws);

}  // namespace shardproof
