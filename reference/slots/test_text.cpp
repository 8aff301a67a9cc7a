#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/slots/text.h"

using namespace shardproof;

namespace {

using Kind = ExpressionNode::Kind;
using Declaration = ProgramText::Declaration;
using Assigned = ProgramText::Assigned;

ProgramText parsed(const std::string& text) {
  const Result<ProgramText> program = parse_program("f", text);
  INFO(text);
  if (!program) FAIL(program.error());
  return *program;
}

// The expression as printed, after parsing `x = ` and it.
std::string expression(const std::string& text) {
  const std::string line = print(parsed("x = " + text));
  return line.substr(4, line.size() - 5);
}

std::string error(const std::string& text) {
  const Result<ProgramText> program = parse_program("f", text);
  return program ? "" : program.error();
}

const std::string sample = R"(# AdamW
program adamw
shared lr = 0.001, decay = 1e-2
shared step = 0
parameter p
gradient g
state m = 0
state v = -0x1.8p-3
temporary u
per parameter norm
per row r = 0
per column c
step = step + 1     # counts
m = 0.9*m + (1 - 0.9)*g
v = select(abs(g) < 1e-3, -v,
           fma(v, v,  # goes on
               sqrt(v)/2))
norm = sum(p*p)
r = all_reduce mean(g^2)
c = all_reduce sum(g)
u = -(m + v)^-3 - -lr*sign(min(m, max(v, 1)))
p = (p - u) - (lr - decay)*(u/(r*(c/2)))
)";

// A random expression of `nodes` nodes or a few more.
void append_random(Random& random, std::size_t nodes, Expression& expression) {
  const auto names = {"a", "b", "_c9"};
  const auto numbers = {"0", "1", "0.1", "1e-8", ".5", "7.", "0x1.8p-3", "0XAp4", "12E+3"};
  if (nodes <= 1) {
    if (random.coin()) {
      expression.push_back({Kind::slot, *(names.begin() + random.below(names.size())), 0, {}});
    } else {
      expression.push_back(
          {Kind::number, *(numbers.begin() + random.below(numbers.size())), 0, {}});
    }
    return;
  }
  const auto kind = static_cast<Kind>(
      random.integer(static_cast<int>(Kind::negate), static_cast<int>(Kind::fused_multiply_add)));
  std::size_t left = nodes - 1;
  for (std::size_t i = operands(kind); i > 0; --i) {
    const std::size_t part = i == 1 ? left : random.below(left + 1);
    append_random(random, part, expression);
    left -= part;
  }
  const int exponent =
      kind == Kind::power ? static_cast<int>(random.integer(-kHighestPower, kHighestPower)) : 0;
  expression.push_back({kind, {}, exponent, {}});
}

ProgramText random_program(Random& random) {
  ProgramText program;
  if (random.coin()) program.name = "q";
  for (std::size_t i = random.below(5); i > 0; --i) {
    Declaration declaration{static_cast<Declaration::Kind>(random.below(9)), 0, {}, {}};
    if (declaration.kind == Declaration::Kind::coordinate) {
      declaration.coordinate = static_cast<Coordinate>(random.below(kHighestCoordinate + 1));
    }
    for (std::size_t k = 1 + random.below(3); k > 0; --k) {
      declaration.slots.push_back(
          {"s" + std::to_string(random.below(100)), random.coin() ? "-0x1p-9" : "", {}});
    }
    program.declarations.push_back(declaration);
  }
  for (std::size_t i = random.below(5); i > 0; --i) {
    Assigned assigned;
    assigned.target = "x";
    assigned.reduction = static_cast<Assigned::Reduction>(random.below(3));
    assigned.all_reduce = assigned.reduction != Assigned::Reduction::none && random.coin();
    append_random(random, 1 + random.below(40), assigned.expression);
    program.assignments.push_back(assigned);
  }
  return program;
}

}  // namespace

TEST_CASE("what is printed parses to an equal program and prints alike") {
  const ProgramText program = parsed(sample);
  CHECK(program.name == "adamw");
  CHECK(program.declarations.size() == 10);
  CHECK(program.assignments.size() == 8);
  CHECK_FALSE(program.whole());
  const std::string text = print(program);
  CHECK(parsed(text) == program);
  CHECK(print(parsed(text)) == text);

  const ProgramText whole = parsed("shared t\ncoordinate 7: a = 1, b\na = b - t*a\n");
  CHECK(whole.whole());
  CHECK(print(whole) == "shared t\ncoordinate 7: a = 1, b\na = b - t*a\n");
}

TEST_CASE("random programs survive printing and parsing") {
  Random random(1, "text");
  for (int i = 0; i < 3000; ++i) {
    const ProgramText program = random_program(random);
    const std::string text = print(program);
    const Result<ProgramText> again = parse_program("f", text);
    INFO(text);
    if (!again) FAIL(again.error());
    REQUIRE(*again == program);
    REQUIRE(print(*again) == text);
  }
}

TEST_CASE("operators bind as in the specification of the text") {
  CHECK(expression("a-b-c") == "a - b - c");
  CHECK(expression("a-(b-c)") == "a - (b - c)");
  CHECK(expression("(a/b)/c") == "a/b/c");
  CHECK(expression("a/(b*c)") == "a/(b*c)");
  CHECK(expression("(a*b)+c") == "a*b + c");
  CHECK(expression("-(x^2)") == "-x^2");
  CHECK(expression("(-x)^2") == "(-x)^2");
  CHECK(expression("(x^2)^3") == "(x^2)^3");
  CHECK(expression("(-a)*b") == "-a*b");
  CHECK(expression("-(a*b)") == "-(a*b)");
  CHECK(expression("a*(-b)") == "a*-b");
  CHECK(expression("(a+b)<(c*d)") == "a + b < c*d");
  CHECK(expression("(a<b)<c") == "(a < b) < c");
  CHECK(expression("x^-2") == "x^-2");
  CHECK(expression("min((a),(b<c))") == "min(a, b < c)");

  const Expression minus = parsed("x = a - b - c").assignments.at(0).expression;
  REQUIRE(minus.size() == 5);
  CHECK(minus[2].kind == Kind::subtract);  // a - b, before c is read
}

TEST_CASE("positions are those of the text") {
  const ProgramText program = parsed("\nstate m,\tn\n\n  m = m +\tsqrt(\n  n)");
  CHECK(program.declarations[0].position.line == 2);
  CHECK(program.declarations[0].slots[1].position.column == 10);
  const Assigned& assigned = program.assignments.at(0);
  CHECK(assigned.position.line == 4);
  CHECK(assigned.position.column == 3);
  REQUIRE(assigned.expression.size() == 4);
  CHECK(assigned.expression[1].position.line == 5);
  CHECK(assigned.expression[1].position.column == 3);
  CHECK(assigned.expression[2].position.line == 4);
  CHECK(assigned.expression[2].position.column == 11);
}

TEST_CASE("numbers are exact") {
  CHECK(number_value("0.1") == Rational(1, 10));
  CHECK(number_value("-0.001") == Rational(-1, 1000));
  CHECK(number_value("1e-8") == Rational(1, 100'000'000));
  CHECK(number_value("12E+3") == Rational(12'000));
  CHECK(number_value("0x1.8p-3") == Rational(3, 16));
  CHECK(number_value("0x1p-1074") == Rational(0x1p-1074));
  CHECK(number_value("0x.8") == Rational(1, 2));
  CHECK(number_value("0xAp4") == Rational(160));
  CHECK(number_value("007.") == Rational(7));
  CHECK(number_value("010") == Rational(10));
  CHECK(number_value("0e5") == Rational(0));
  CHECK(number_value("1.7976931348623157e308") != 0);
}

TEST_CASE("an error names file, line, column and the mend") {
  const auto case_of = [](const std::string& text, const std::string& message) {
    INFO(text);
    CHECK(error(text) == message);
  };
  case_of("m = ",
          "f:1:5: expected an operand, found the end of the file; names are letters, digits and "
          "underscores, no digit first");
  case_of("\n m + 1", "f:2:4: expected '=', found '+'; an assignment is written slot = expression");
  case_of("m = (a\nb = 2", "f:2:1: expected ')', found 'b'; close the parenthesis opened at 1:5");
  case_of("m = a)", "f:1:6: ')' closes no parenthesis; remove it");
  case_of("m = a b",
          "f:1:7: expected the end of the line, found 'b'; write one declaration or assignment a "
          "line");
  case_of("m = a < b < c",
          "f:1:11: expected no second comparison, found '<'; use parentheses to say which comes "
          "first");
  case_of("m = select(a == b == c, 1, 2)",
          "f:1:19: expected no second comparison, found '=='; use parentheses to say which comes "
          "first");
  case_of("m = x^y",
          "f:1:7: expected a whole number from -64 to 64 as power, found 'y'; other powers are not "
          "in the language");
  case_of("m = x^65",
          "f:1:7: expected a whole number from -64 to 64 as power, found '65'; other powers are "
          "not in the language");
  case_of("m = x^0x2",
          "f:1:7: expected a whole number from -64 to 64 as power, found '0x2'; other powers are "
          "not in the language");
  case_of("m = x^2^3",
          "f:1:8: expected no second '^', found '^'; use parentheses to say which power comes "
          "first");
  case_of("m = 1.2.3", "f:1:5: no number; write it like 0.001, 1e-8 or 0x1.8p-3");
  case_of("m = 3x", "f:1:5: no number; write it like 0.001, 1e-8 or 0x1.8p-3");
  case_of("m = 1e", "f:1:5: no number; write it like 0.001, 1e-8 or 0x1.8p-3");
  case_of("m = 0x", "f:1:5: no number; write it like 0.001, 1e-8 or 0x1.8p-3");
  case_of("m = 1e-2001", "f:1:5: an exponent beyond 2000; use a smaller one");
  case_of("m = 1e99999999999999999999", "f:1:5: an exponent beyond 2000; use a smaller one");
  case_of("m = " + std::string(1001, '7'),
          "f:1:5: a number of 1001 characters; write 1000 at most");
  case_of("state " + std::string(101, 'a'), "f:1:7: a name of 101 characters; give it 100 at most");
  case_of("state min",
          "f:1:7: expected a slot's name, found 'min'; this word is reserved: choose another name");
  case_of("m = state",
          "f:1:5: expected an operand, found 'state'; this word is reserved: choose another name");
  case_of("state m = x",
          "f:1:11: expected a number, found 'x'; initial values are constants like -0.5, 1e-8 or "
          "0x1.8p-3");
  case_of("state",
          "f:1:6: expected a slot's name, found the end of the file; names are letters, digits and "
          "underscores, no digit first");
  case_of("per m",
          "f:1:5: expected what it has one value per, found 'm'; write parameter, row or column");
  case_of("coordinate x: m",
          "f:1:12: expected a coordinate's number, found 'x'; write a whole number from 0 to "
          "16777215");
  case_of("coordinate 16777216: m",
          "f:1:12: expected a coordinate's number, found '16777216'; write a whole number from 0 "
          "to 16777215");
  case_of("coordinate 99999999999999999999999999: m",
          "f:1:12: expected a coordinate's number, found '99999999999999999999999999'; write a "
          "whole number from 0 to 16777215");
  case_of("coordinate 1 m",
          "f:1:14: expected ':', found 'm'; write the slots after it, as in coordinate 0: p0, m0 = "
          "0");
  case_of("m = 1\nstate m",
          "f:2:1: a declaration after an assignment; move it above the first assignment");
  case_of("state m\nprogram x",
          "f:2:1: the program's name stands after other lines, or twice; put one such line first");
  case_of("m = all_reduce x",
          "f:1:16: expected sum or mean, found 'x'; all_reduce stands before sum(...) or "
          "mean(...)");
  case_of("m = sum(x) + 1",
          "f:1:12: expected the end of the line, found '+'; sum and mean stand alone: assign them "
          "to a slot and use that");
  case_of("m = 1 + sum(x)",
          "f:1:9: expected an operand, found 'sum'; sum and mean stand alone: assign them to a "
          "slot and use that");
  case_of("m = sqrt x", "f:1:10: expected '(', found 'x'; operands stand in parentheses");
  case_of("m = sqrt(x, y)", "f:1:11: expected ')', found ','; sqrt takes one operand");
  case_of("m = fma(x, y)", "f:1:13: expected ',', found ')'; fma takes 3 operands");
  case_of("m = $", "f:1:5: '$' means nothing here; remove it, or begin a comment with '#'");
  case_of("m = \xc3\x97", "f:1:5: a byte that is not plain ASCII; only comments may have others");
  case_of(std::string("m = \0", 5),
          "f:1:5: a byte that is not plain ASCII; only comments may have others");
}

TEST_CASE("a text cut off at any byte is parsed or is one error") {
  std::size_t errors = 0;
  for (std::size_t length = 0; length <= sample.size(); ++length) {
    const Result<ProgramText> program = parse_program("f", sample.substr(0, length));
    if (program) {
      REQUIRE(parsed(print(*program)) == *program);
    } else {
      REQUIRE(program.error().rfind("f:", 0) == 0);
      REQUIRE(program.error().find("; ") != std::string::npos);
      ++errors;
    }
  }
  CHECK(errors > 100);
}

TEST_CASE("nesting a million deep is one error") {
  const std::size_t depth = 1'000'000;
  const std::string message = "nested more than 200 deep; assign a part to a slot of its own";
  std::string functions;
  for (std::size_t i = 0; i < depth; ++i) functions += "sqrt(";
  CHECK(error("m = " + std::string(depth, '(')) == "f:1:205: " + message);
  CHECK(error("m = " + std::string(depth, '-')) == "f:1:205: " + message);
  CHECK(error("m = " + functions) == "f:1:1005: " + message);
  CHECK(error("m = " + std::string(199, '(') + "x" + std::string(199, ')')) == "");

  std::string chain = "m = x";
  for (std::size_t i = 0; i < depth; ++i) chain += i % 2 == 0 ? "+x" : "*x";
  CHECK(parsed(chain).assignments.at(0).expression.size() == 2 * depth + 1);
}

TEST_CASE("comments, carriage returns and empty lines change nothing") {
  CHECK(parsed("# c\r\n\r\nstate m # = 3\r\nm = m\t+ 1 # d") == parsed("state m\nm = m+1"));
}
