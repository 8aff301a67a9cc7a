// Shrinking: a unit case that is wrong, made small (agreement §6). Fewer replicas, then smaller
// extents, then simpler numbers; every step leaves a case that is wrong and within the
// precondition: a site keeps three numbers a channel, windows fit, and padding that is not the same
// on both sides keeps even sizes. Dithered numbers are cut but never simplified, since their bounds
// ask for noise: a case that is wrong as natural input is made one first.
#pragma once

#include <cstddef>

#include "diff/unit_case.h"

namespace shardproof {

// How many cases are tried at most, unless fewer are asked for. A small one takes some 50 μs.
inline constexpr std::size_t kShrinkingTries = 6000;

// The same bytes for the same case and device. A case that is not wrong is given back as it is.
UnitCase shrink(const UnitCase& c, const DeviceMaker& make, std::size_t tries = kShrinkingTries);

// How many numbers inputs and weights have together.
std::size_t count_of_numbers(const UnitCase& c);

}  // namespace shardproof
