// From the text of a program (text.h) to what runs. An expression becomes three-address
// assignments, one operation each, in the order of its evaluation: nothing is contracted,
// reassociated or folded. x^n is x·x·…·x from the left (1 for n = 0), over 1 for negative n; a > b
// is b < a. Each distinct constant is one slot.
//
// Over arrays, an operation is done at the scope of the finest slot it reads. One that is coarser
// than the assignment it comes from (the 1 − β of an Adam step) is done once, into a slot of its
// own, right after the last assignment to a slot it reads; so assignments to coordinates stay
// together. In whole programs every operation belongs to the coordinate of its assignment's target,
// so that the program is separable when the text is.
#pragma once

#include <string>

#include "reference/result.h"
#include "reference/slots/array_program.h"
#include "reference/slots/classified_program.h"
#include "reference/slots/text.h"

namespace shardproof {

// Errors, "FILE:line:column: what; mend": a program of the other form or of both, names unknown or
// declared twice, two parameters or gradients, a temporary read before it is assigned, a target
// coarser than what it reads without sum or mean, or sum or mean of what is no finer; more than
// 65,536 slots of one scope.
Result<ArrayProgram> compile_array(const std::string& file, const ProgramText& text);

// One stage, whose collective is empty.
Result<ClassifiedProgram> compile_whole(const std::string& file, const ProgramText& text);

}  // namespace shardproof
