// The value functions of assignments (spec §1): one operation each, over any type of value. C++17,
// since what nvcc reads includes it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace shardproof {

// a, b and c are the values read, in order. Comparisons give 1 or 0. A number type says what each
// means for it (arithmetic.h); Term leaves all of them free.
enum class ValueFunction : std::uint8_t {
  constant,            // one of the program's constants; reads nothing
  copy,                // a
  negate,              // −a
  square_root,         // √a
  absolute,            // |a|
  sign,                // (0 < a) − (a < 0): 0 for both zeros and for NaN
  add,                 // a + b
  subtract,            // a − b
  multiply,            // a·b
  divide,              // a / b
  minimum,             // the smaller, NaN where either is NaN; −0 is below +0
  maximum,             // the larger, likewise
  less,                // a < b
  less_equal,          // a ≤ b
  equal,               // a = b
  not_equal,           // a ≠ b
  fused_multiply_add,  // a·b + c, rounded once
  select,              // b where a ≠ 0 (NaN too), else c
};
inline constexpr std::size_t kValueFunctions = 18;

// How many values a function reads.
constexpr std::size_t arity(ValueFunction function) {
  if (function == ValueFunction::constant) return 0;
  if (function <= ValueFunction::sign) return 1;
  return function < ValueFunction::fused_multiply_add ? 2 : 3;
}

}  // namespace shardproof
