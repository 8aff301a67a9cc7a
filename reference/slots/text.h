// The text of a slot program (docs/ownership.md has the grammar): what stands in it, line by line,
// before names are looked up (compile.h). Two forms share one grammar: programs over arrays, and
// whole programs that name every slot.
//
//     program momentum            # optional, first
//     shared lr = 0.01            # then declarations, each with its initial value or without
//     parameter p
//     gradient g
//     state m = 0
//     m = 0.9*m + g               # then assignments, one a line; a line goes on while a
//     p = p - lr*m                # parenthesis is open
//
// Whole programs have `coordinate 7: p7 = 1, m7` in place of parameter, gradient, state, temporary
// and per. From loose to tight: one comparison, + −, * /, unary −, ^ with a whole number.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "reference/numbers/rational.h"
#include "reference/result.h"
#include "reference/slots/array_program.h"
#include "reference/slots/program.h"

namespace shardproof {

// One node of an expression. Equal when the text is: positions do not count.
struct ExpressionNode {
  enum class Kind : std::uint8_t {
    number,
    slot,
    negate,
    power,
    add,
    subtract,
    multiply,
    divide,
    less,
    less_equal,
    greater,
    greater_equal,
    equal,
    not_equal,
    square_root,
    absolute,
    sign,
    minimum,
    maximum,
    select,
    fused_multiply_add,
  };
  Kind kind = Kind::number;
  std::string spelling;  // of a number, without a sign, or a slot's name
  int exponent = 0;      // of a power
  Position position;

  friend bool operator==(const ExpressionNode& a, const ExpressionNode& b) {
    return a.kind == b.kind && a.spelling == b.spelling && a.exponent == b.exponent;
  }
};
inline constexpr int kHighestPower = 64;
inline constexpr Coordinate kHighestCoordinate = (1U << 24U) - 1;  // named in text

// How many operands a node has.
std::size_t operands(ExpressionNode::Kind kind);

// Operands before what is done with them (postfix), so that no depth of nesting asks for recursion.
using Expression = std::vector<ExpressionNode>;

struct ProgramText {
  struct Declaration {
    enum class Kind : std::uint8_t {
      shared,
      parameter,
      gradient,
      state,
      temporary,
      per_parameter,
      per_row,
      per_column,
      coordinate,
    };
    struct Named {
      std::string name;
      std::string initial;  // as spelled, with its sign; empty: none given
      Position position;

      friend bool operator==(const Named& a, const Named& b) {
        return a.name == b.name && a.initial == b.initial;
      }
    };
    Kind kind = Kind::shared;
    Coordinate coordinate = 0;  // of Kind::coordinate
    std::vector<Named> slots;   // at least one
    Position position;

    friend bool operator==(const Declaration& a, const Declaration& b) {
      return a.kind == b.kind && a.coordinate == b.coordinate && a.slots == b.slots;
    }
  };

  struct Assigned {
    enum class Reduction : std::uint8_t { none, sum, mean };
    std::string target;
    Reduction reduction = Reduction::none;
    bool all_reduce = false;  // of a reduction only
    Expression expression;
    Position position;

    friend bool operator==(const Assigned& a, const Assigned& b) {
      return a.target == b.target && a.reduction == b.reduction && a.all_reduce == b.all_reduce &&
             a.expression == b.expression;
    }
  };

  std::string name;  // empty: none given
  std::vector<Declaration> declarations;
  std::vector<Assigned> assignments;

  // Whether it is of the whole-program form: a coordinate is declared.
  bool whole() const;

  friend bool operator==(const ProgramText&, const ProgramText&) = default;
};

// `file` is named in errors: "FILE:line:column: what; mend". Columns count bytes from 1.
Result<ProgramText> parse_program(const std::string& file, std::string_view text);

// Text that parses to an equal ProgramText; comments are not kept.
std::string print(const ProgramText& program);

// The number spelled, exactly: decimal or hexadecimal, as parse_program has accepted it.
Rational number_value(std::string_view spelling);

// "FILE:line:column: what; mend".
Error error_at(const std::string& file, Position position, const std::string& what_and_mend);

}  // namespace shardproof
