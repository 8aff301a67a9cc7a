// Explanation of a verdict on one unit, for a person: the statement that fails, where, by how much,
// and from which numbers, each replica's partial values side by side (agreement §6).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "diff/unit_case.h"

namespace shardproof {

// Two numbers of float64, the nearest there are, that enclose an exact value; and its digits, cut
// off where there are more than are shown.
struct ExactValue {
  double lower = 0, upper = 0;
  std::string decimal;
};

// The exact value of a comparison's statement at its worst output, from the operands that the
// statement is about: the case's own numbers, and what the verdict says was written. None where one
// of them is not finite, the value has no root to divide by, or the device rounds its operands
// first.
std::optional<ExactValue> exact_value(const UnitCase& c, const UnitVerdict& verdict,
                                      const Comparison& comparison);

struct Explanation {
  struct Table {
    std::string title;
    std::vector<std::string> columns;
    std::vector<std::vector<std::string>> rows;
    std::size_t left_out = 0;  // rows
  };

  std::string verdict;                                     // in a line
  std::vector<std::pair<std::string, std::string>> facts;  // by name
  std::vector<Table> tables;
};

// Of what is wrong first; of any other verdict, the facts of the case alone.
Explanation explained(const UnitCase& c, const UnitVerdict& verdict);

// Plain text, aligned; and the same as JSON.
std::string to_text(const Explanation& explanation);
nlohmann::ordered_json to_json(const Explanation& explanation);

inline std::string explain(const UnitCase& c, const UnitVerdict& verdict) {
  return to_text(explained(c, verdict));
}

}  // namespace shardproof
