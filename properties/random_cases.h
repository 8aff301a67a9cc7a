// counterexample: an identity tried on random cases by RapidCheck, which shrinks one that fails. A
// case draws its sizes, kinds and one 64-bit seed; arrays are functions of the seed (draws.h), so a
// shrunk case is a few small numbers. The draws themselves follow from the identity's name alone:
// the same cases on every run and machine, so running a test again reproduces its failure.
#pragma once

#include <rapidcheck.h>
#include <rapidcheck/detail/TestListenerAdapter.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdint>
#include <sstream>
#include <string>
#include <unordered_map>
#include <utility>

#include "reference/numbers/random.h"

namespace shardproof {

// Empty when `property` held on `cases` cases; else what failed and the shrunk case. A property
// draws with the functions below and states its claims with RC_ASSERT; one that throws, or discards
// too many cases, fails.
template <class Property>
std::string counterexample(const std::string& identity, int cases, Property property) {
  rc::detail::TestMetadata metadata;
  metadata.id = identity;
  metadata.description = identity;
  rc::detail::TestParams parameters;
  parameters.seed = Random(0, identity).next();
  parameters.maxSuccess = cases;
  // A listener and a map of our own: RapidCheck's read RC_PARAMS and write to stderr.
  rc::detail::TestListenerAdapter silent;
  const std::unordered_map<std::string, rc::detail::Reproduce> nothing_to_reproduce;
  const rc::detail::TestResult result = rc::detail::checkTestable(
      std::move(property), metadata, parameters, silent, nothing_to_reproduce);
  if (result.template is<rc::detail::SuccessResult>()) return "";
  std::ostringstream text;
  text << identity << ": ";
  rc::detail::printResultMessage(result, text);
  return text.str();
}

template <class Property>
void check_on_random_cases(const std::string& identity, int cases, Property property) {
  CHECK(counterexample(identity, cases, std::move(property)) == "");
}

// A whole number low … high; shrinks towards low.
inline std::size_t draw_size(const std::string& name, std::size_t low, std::size_t high) {
  return *rc::gen::inRange<std::size_t>(low, high + 1).as(name);
}

inline std::size_t draw_replicas() {
  return *rc::gen::element<std::size_t>(1, 2, 3, 5, 7).as("replicas");
}

inline std::uint64_t draw_seed() { return *rc::gen::arbitrary<std::uint64_t>().as("seed"); }

}  // namespace shardproof
