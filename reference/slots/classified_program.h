// A slot program with what is known of its slots: what text of the whole-program form means, and
// what an array program expands to.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "reference/slots/array_program.h"
#include "reference/slots/program.h"

namespace shardproof {

struct ClassifiedProgram {
  // A program, then what the owners compute together: the collective's assignments read coordinates
  // of all owners and write shared slots, and belong to no owner's program. The identity is about
  // each stage's program.
  struct Stage {
    Program program, collective;
    std::vector<Position> positions;  // of the text, one for each assignment of `program`
  };

  std::vector<Stage> stages;  // run in order; all name the same slots; the last collective is empty
  Classification classification;
  // Of every slot; "m[1][3]": element 3 of parameter 1. Empty for the compiler's own, which are
  // assigned before they are read and no slots of the text.
  std::vector<std::string> names;
  std::vector<std::optional<Rational>> initial;  // of every slot
};

}  // namespace shardproof
