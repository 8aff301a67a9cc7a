// Explanation of a verdict on a slot program, for a person (agreement §6): the number that is
// wrong, what every rank holds, and the step in which it went wrong, assignment by assignment on
// both sides. A device runs many assignments in one launch, so that what it has in between is seen
// by running the program's beginnings, each as a program of its own.
#pragma once

#include <string>

#include "diff/explain.h"
#include "diff/program_case.h"

namespace shardproof {

// Of the first claim that is wrong; of any other verdict, the facts of the case alone.
Explanation explained(const ProgramCase& c, const ProgramResult& result, const DeviceMaker& make);

inline std::string explain(const ProgramCase& c, const ProgramResult& result,
                           const DeviceMaker& make) {
  return to_text(explained(c, result, make));
}

}  // namespace shardproof
