// Mutant: a kernel that is wrong on purpose, as a candidate library has it (candidate.h), with the
// public report of the fault that it repeats. Controls are correct kernels in other arithmetic. The
// harness is measured by them: every mutant must be caught, no control may be.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "device/engine/candidate.h"

namespace shardproof {

struct Mutant {
  std::string name;    // "unbiased-variance"; what it does, in words joined by hyphens
  std::string report;  // "pytorch/pytorch#36382"; empty for controls and faults without a report
  std::string what;    // the fault, or what a control does otherwise, in a line
  bool control = false;
  // Of a control: the contract that it states is looser than the strictest, and under the strictest
  // it must be caught.
  bool needs_contract = false;
  // Fills the entries that it has and their contracts.
  std::function<void(shardproof_candidate_table&)> fill;
};

// Reported faults that the interface cannot express, and why, in a line.
struct NotExpressed {
  std::string report, why;
};

// By the operation that is wrong: one file each in this folder.
const std::vector<Mutant>& all_mutants();
const std::vector<NotExpressed>& faults_not_expressed();

}  // namespace shardproof
