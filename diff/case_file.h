// Case files: one case that failed, in a file that can be replayed without anything else
// (agreement §6). JSON, schema shardproof/case/1. Numbers that must be exact are strings: a
// hexadecimal float ("0x1.8p+1"), "inf", "-inf", or a NaN with its bits ("nan:7fc00001"). A file
// that was read is written again byte for byte, if it was laid out as these are.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "diff/drawn.h"
#include "diff/program_case.h"
#include "diff/unit_case.h"
#include "diff/verdict.h"
#include "reference/result.h"

namespace shardproof {

// The wrong output that was found first.
struct RecordedWorst {
  std::string node, part;       // of a program its claim, and the slot
  Difference difference;        // of a program by rank and element
  double lower = 0, upper = 0;  // what encloses the exact value
};

// What a device did on a case when it was saved.
struct Recorded {
  std::string device;
  Outcome verdict = Outcome::not_judged;
  std::string told;                                       // what was wrong, in a line
  Contracts contracts;                                    // of the operations of a unit
  std::vector<std::pair<NodeId, Family<float>>> written;  // by a unit's launches, in order
  std::optional<RecordedWorst> worst;
};

struct CaseFile {
  std::string identity, property;
  std::string version;  // of the program that wrote it
  std::vector<Drawn> draws;
  std::variant<std::monostate, UnitCase, ProgramCase>
      content;  // of a device; none: the draws are the case
  std::optional<Recorded> recorded;
};

// Runs the case and records what the device does. Throws what judge_unit_case or
// judge_program_case throws.
Recorded record(const DeviceMaker& make, const UnitCase& c);
Recorded record(const DeviceMaker& make, const ProgramCase& c);

std::string to_text(const CaseFile& file);

// Errors name the place by its JSON pointer.
Result<CaseFile> read_case(std::string_view text);
Result<CaseFile> read_case_file(const std::string& path);

nlohmann::ordered_json to_json(const std::vector<Drawn>& draws);

// JSON as text that a person can read: what fits on a line stands on one, and lists of numbers are
// broken where a line is full.
std::string laid_out(const nlohmann::ordered_json& json);

}  // namespace shardproof
