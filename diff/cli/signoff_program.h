// shardproof signoff --program: judges a device's sharded step of an optimizer program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>

#include "diff/program_report.h"
#include "diff/program_signoff.h"
#include "reference/result.h"

namespace shardproof::cli {

struct ProgramArguments {
  std::string program;  // empty: a network is judged
  std::string sizes = "1000,7,0,5", owners = "blocks";
  std::uint64_t steps = 3;
};
void add_program_options(CLI::App& signoff, ProgramArguments& arguments);

// A program that is ready to be judged.
struct ProgramInputs {
  std::string name;  // as in messages
  ArrayProgram program;
  std::vector<std::string> lines;
  std::vector<ParameterShape> shapes;
  OwnerMap owners = OwnerMap::blocks;
  std::vector<Owner> table;
};
// An error for what is unreadable, not over arrays or not separable, for owners that do not fit,
// and for more than the machine has memory for.
Result<ProgramInputs> prepare_program(const ProgramArguments& arguments, std::size_t replicas);

ProgramReport judge_program(const ProgramArguments& arguments, const ProgramInputs& inputs,
                            const DeviceFactory& make, std::size_t replicas, std::uint64_t seed);

}  // namespace shardproof::cli
