// Sharded optimizer steps as random cases of a device (spec §1), and what a property claims of
// them.
#pragma once

#include <functional>
#include <string>

#include "properties/identity.h"
#include "properties/random_array_programs.h"
#include "properties/trial.h"

namespace shardproof {

// Refutes unless every claim of the run that `about` picks holds (program_case.h); discards a case
// of which none could be judged.
void claim_step_agrees(const ProgramCase& drawn, Trial& trial,
                       const std::function<bool(const std::string& claim)>& about = {});

// The same devices, whose memory starts as numbers drawn from the schedule's seed and not as NaN.
DeviceMaker with_littered_memory(const DeviceMaker& make);

}  // namespace shardproof
