// The report of a program's sign-off, as text for a person and as JSON with the same content.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "diff/program_signoff.h"

namespace shardproof {

struct ProgramReport {
  std::string program, version;    // as named on the command line
  std::vector<std::string> lines;  // of its text
  std::string sizes, owners;       // likewise
  std::size_t coordinates = 0, ranks = 0, steps = 0;
  std::uint64_t seed = 0;
  ProgramResult result;
  double seconds = 0;

  SignoffResult::Verdict verdict() const { return result.verdict(); }
};

std::string to_text(const ProgramReport& report);
nlohmann::json to_json(const ProgramReport& report);

// "1000,7,0,5,4x3"
std::string to_string(const std::vector<ParameterShape>& shapes);

// "adamw.slots:24: m = beta1*m + (1 - beta1)*g", from the text's lines counted from 1.
std::string quoted_line(const std::string& program, const std::vector<std::string>& lines,
                        std::size_t line);

}  // namespace shardproof
