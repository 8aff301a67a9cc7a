// array_run: a program over arrays (array_program.h) on whole arrays. Gives what slot_run gives on
// the program's expansion (expand.h), bit for bit, many times as fast.
#pragma once

#include <cstddef>
#include <functional>
#include <span>

#include "reference/slots/arithmetic.h"
#include "reference/slots/array_program.h"
#include "reference/slots/array_state.h"

namespace shardproof {

// Fills in the values of a collective sum or mean, one for each element of its target, as somebody
// else has computed them. `statement` is its index in the program, `source` what it is taken of.
template <class T>
using CollectiveValues =
    std::function<void(std::size_t statement, std::span<const T> source, std::span<T> values)>;

// The state after the program's statements in order. Arrays of temporaries and constants may be
// left empty; what temporaries hold afterwards is not said. Without `collective`, collective sums
// and means are computed like all others. Throws std::invalid_argument when another array has not
// one value for each element, and what the arithmetic throws.
template <class T>
ArrayState<T> array_run(ArrayState<T> state, const ArrayProgram& program,
                        std::span<const ParameterShape> shapes,
                        const CollectiveValues<T>& collective = {},
                        const Arithmetic<T>& arithmetic = {});

}  // namespace shardproof
