// slot_run (spec §1, `slotRun`): a state after a program's assignments, over any type of value.
#pragma once

#include <vector>

#include "reference/slots/arithmetic.h"
#include "reference/slots/program.h"

namespace shardproof {

// `state[j]` is slot j's value; there is one for each of the program's slots, or more. What the
// functions mean is Arithmetic<T>'s. Throws std::invalid_argument when there are fewer, and what
// the arithmetic throws.
template <class T>
std::vector<T> slot_run(std::vector<T> state, const Program& program,
                        const Arithmetic<T>& arithmetic = {});

}  // namespace shardproof
