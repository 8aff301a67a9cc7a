#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/numbers/random.h"
#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/slot_run.h"

using namespace shardproof;

namespace {

using Lines = std::vector<std::string>;

constexpr std::array<const char*, kValueFunctions> function_names{
    "constant", "copy",       "negate",   "sqrt",      "abs", "sign",
    "add",      "subtract",   "multiply", "divide",    "min", "max",
    "less",     "less_equal", "equal",    "not_equal", "fma", "select"};

Result<ArrayProgram> array_result(const std::string& text) {
  const Result<ProgramText> parsed = parse_program("f", text);
  if (!parsed) FAIL(parsed.error());
  return compile_array("f", *parsed);
}
ArrayProgram array(const std::string& text) {
  const Result<ArrayProgram> program = array_result(text);
  if (!program) FAIL(program.error());
  return *program;
}
ClassifiedProgram whole(const std::string& text) {
  const Result<ProgramText> parsed = parse_program("f", text);
  if (!parsed) FAIL(parsed.error());
  const Result<ClassifiedProgram> program = compile_whole("f", *parsed);
  if (!program) FAIL(program.error());
  return *program;
}
std::string array_error(const std::string& text) {
  const Result<ArrayProgram> program = array_result(text);
  return program ? "" : program.error();
}
std::string whole_error(const std::string& text) {
  const Result<ProgramText> parsed = parse_program("f", text);
  if (!parsed) FAIL(parsed.error());
  const Result<ClassifiedProgram> program = compile_whole("f", *parsed);
  return program ? "" : program.error();
}

// "m = add(shared0, coordinate2)": declared slots by name, constants by value.
Lines statements(const ArrayProgram& program) {
  const auto name = [&](ArraySlot slot) {
    const ArrayProgram::SlotInfo& info = program.info(slot);
    if (info.role == ArrayProgram::Role::constant) return info.initial->str();
    if (!info.name.empty()) return info.name;
    constexpr std::array<const char*, kScopes> scopes{"shared", "parameter", "row", "column",
                                                      "coordinate"};
    return scopes[static_cast<std::size_t>(slot.scope)] + std::to_string(slot.index);
  };
  Lines lines;
  for (const ArrayProgram::Statement& statement : program.statements) {
    std::string line;
    if (const auto* assignment = std::get_if<ArrayAssignment>(&statement.does)) {
      line = name(assignment->target) + " = " +
             function_names.at(static_cast<std::size_t>(assignment->function)) + "(";
      for (std::size_t i = 0; i < arity(assignment->function); ++i) {
        line += (i > 0 ? ", " : "") + name(assignment->reads.at(i));
      }
      line += ")";
    } else {
      const auto& reduction = std::get<ArrayProgram::Reduction>(statement.does);
      line = name(reduction.target) + " = " + (reduction.collective ? "all_reduce " : "") +
             (reduction.mean ? "mean(" : "sum(") + name(reduction.source) + ")";
    }
    lines.push_back(line);
  }
  return lines;
}

// "2 = add(0, 1)": slots by number, of a constant the index.
Lines assignments(const ClassifiedProgram& program) {
  Lines lines;
  for (const Assignment& assignment : program.stages.at(0).program.assignments) {
    std::string line = std::to_string(assignment.target) + " = " +
                       function_names.at(static_cast<std::size_t>(assignment.function)) + "(";
    const std::size_t reads = std::max<std::size_t>(arity(assignment.function),
                                                    assignment.function == ValueFunction::constant);
    for (std::size_t i = 0; i < reads; ++i) {
      line += (i > 0 ? ", " : "") + std::to_string(assignment.reads.at(i));
    }
    lines.push_back(line + ")");
  }
  return lines;
}

const std::string declared =
    "shared a, b\nparameter p\ngradient g\nstate m, n\ntemporary t\nper parameter q\nper row r\n"
    "per column c\n";
Lines body(const std::string& text) { return statements(array(declared + text)); }

}  // namespace

TEST_CASE(
    "an operation on coarser slots is done once, after the last assignment to what it reads") {
  // shared2 is the constant 1, shared3 and shared5 are hoisted.
  CHECK(body("m = a*m + (1 - a)*g") ==
        Lines{"shared3 = subtract(1, a)", "coordinate5 = multiply(a, m)",
              "coordinate6 = multiply(shared3, g)", "m = add(coordinate5, coordinate6)"});
  CHECK(body("a = a + 1\nm = g\nn = m/(1 - a)") == Lines{"a = add(a, 1)",
                                                         "shared3 = subtract(1, a)", "m = copy(g)",
                                                         "n = divide(m, shared3)"});
  CHECK(body("a = 2\nm = m*(a*b)\na = 3\nm = m*(a*b)") ==
        Lines{"a = copy(2)", "shared3 = multiply(a, b)", "m = multiply(m, shared3)", "a = copy(3)",
              "shared5 = multiply(a, b)", "m = multiply(m, shared5)"});
  CHECK(body("q = sum(g)\nm = g\nm = m/sqrt(q + a*b)") ==
        Lines{"shared2 = multiply(a, b)", "q = sum(g)", "parameter1 = add(q, shared2)",
              "parameter2 = sqrt(parameter1)", "m = copy(g)", "m = divide(m, parameter2)"});
}

TEST_CASE("rows and columns meet in coordinates") {
  CHECK(body("m = (r*q)*(c + a)") ==
        Lines{"row1 = multiply(r, q)", "column1 = add(c, a)", "m = multiply(row1, column1)"});
  CHECK(body("q = sum(r*c)") == Lines{"coordinate5 = multiply(r, c)", "q = sum(coordinate5)"});
  CHECK(body("a = mean(r)") == Lines{"a = mean(r)"});
  CHECK(body("r = all_reduce sum(g*q)") ==
        Lines{"coordinate5 = multiply(g, q)", "r = all_reduce sum(coordinate5)"});
}

TEST_CASE("the last operation writes the target, and temporaries are used again") {
  CHECK(body("m = m - (m*m - (g - m)*n)\nn = (m + g)*(m - g)") ==
        Lines{"coordinate5 = multiply(m, m)", "coordinate6 = subtract(g, m)",
              "coordinate6 = multiply(coordinate6, n)",
              "coordinate6 = subtract(coordinate5, coordinate6)", "m = subtract(m, coordinate6)",
              "coordinate6 = add(m, g)", "coordinate5 = subtract(m, g)",
              "n = multiply(coordinate6, coordinate5)"});
  CHECK(body("m = m") == Lines{"m = copy(m)"});
  CHECK(body("m = a") == Lines{"m = copy(a)"});
  CHECK(body("m = a + b") == Lines{"shared2 = add(a, b)", "m = copy(shared2)"});
  CHECK(body("a = (a + b)*a") == Lines{"shared2 = add(a, b)", "a = multiply(shared2, a)"});
}

TEST_CASE("powers are products from the left") {
  CHECK(body("m = g^1") == Lines{"m = copy(g)"});
  CHECK(body("m = g^0") == Lines{"m = copy(1)"});
  CHECK(body("m = g^2") == Lines{"m = multiply(g, g)"});
  CHECK(body("m = g^4") == Lines{"coordinate5 = multiply(g, g)",
                                 "coordinate5 = multiply(coordinate5, g)",
                                 "m = multiply(coordinate5, g)"});
  CHECK(body("m = (g + n)^3") == Lines{"coordinate5 = add(g, n)",
                                       "coordinate6 = multiply(coordinate5, coordinate5)",
                                       "m = multiply(coordinate6, coordinate5)"});
  CHECK(body("m = g^-1") == Lines{"m = divide(1, g)"});
  CHECK(body("m = g^-2") == Lines{"coordinate5 = multiply(g, g)", "m = divide(1, coordinate5)"});
  CHECK(body("m = -g^2") == Lines{"coordinate5 = multiply(g, g)", "m = negate(coordinate5)"});
  CHECK(body("m = (-g)^1") == Lines{"coordinate5 = negate(g)", "m = copy(coordinate5)"});
}

TEST_CASE("comparisons the other way round swap what they read") {
  CHECK(body("m = g > n") == Lines{"m = less(n, g)"});
  CHECK(body("m = g >= n") == Lines{"m = less_equal(n, g)"});
  CHECK(body("m = g < n") == Lines{"m = less(g, n)"});
  CHECK(body("m = g <= n") == Lines{"m = less_equal(g, n)"});
  CHECK(body("m = g == n") == Lines{"m = equal(g, n)"});
  CHECK(body("m = g != n") == Lines{"m = not_equal(g, n)"});
  CHECK(body("m = select(g > 0, min(g, n), max(g, n))\nt = fma(g, n, m)\nn = sign(abs(t))") ==
        Lines{"coordinate5 = less(0, g)", "coordinate6 = min(g, n)", "coordinate7 = max(g, n)",
              "m = select(coordinate5, coordinate6, coordinate7)", "t = fma(g, n, m)",
              "coordinate7 = abs(t)", "n = sign(coordinate7)"});
}

TEST_CASE("each distinct constant is one slot with its value") {
  const ArrayProgram program = array("state m\nm = m*0.5 + 0x1p-1\nm = m + 1\nm = m + 2");
  const auto& shared = program.slots[0];
  REQUIRE(shared.size() == 3);
  CHECK(*shared[0].initial == Rational(1, 2));
  for (const auto& info : shared) CHECK(info.role == ArrayProgram::Role::constant);
}

TEST_CASE("declarations give roles, scopes, names and starts") {
  const ArrayProgram program = array("program x\nstate h = -0.5\n" + declared);
  CHECK(program.name == "x");
  using Role = ArrayProgram::Role;
  const auto& shared = program.slots[0];
  REQUIRE(shared.size() == 2);
  CHECK(shared[1].name == "b");
  CHECK(shared[1].role == Role::state);
  CHECK_FALSE(shared[1].initial);
  CHECK(program.slots[1].at(0).name == "q");
  CHECK(program.slots[2].at(0).name == "r");
  CHECK(program.slots[3].at(0).name == "c");
  const auto& coordinates = program.slots[4];
  REQUIRE(coordinates.size() == 6);
  CHECK(*coordinates[0].initial == Rational(-1, 2));
  CHECK(coordinates[1].role == Role::parameter);
  CHECK(coordinates[2].role == Role::gradient);
  CHECK(coordinates[3].role == Role::state);
  CHECK(coordinates[5].role == Role::temporary);
}

TEST_CASE("statements stand where their text does") {
  const ArrayProgram program = array("shared a\nstate m\n\n  m = 2\n m = m*(1 - a)");
  REQUIRE(program.statements.size() == 3);
  CHECK(program.statements[0].position.line == 5);  // 1 − a
  CHECK(program.statements[1].position.line == 4);
  CHECK(program.statements[1].position.column == 3);
  CHECK(program.statements[2].position.line == 5);
}

TEST_CASE("what an array program may not say is one error with its place") {
  CHECK(array_error("state m\nm = m + x") ==
        "f:2:9: no slot is called x; declare it, or correct its name");
  CHECK(array_error("state m\nx = m") ==
        "f:2:1: no slot is called x; declare it, or correct its name");
  CHECK(array_error("state m\nshared a,  m") ==
        "f:2:12: m is declared twice, first at 1:7; rename one");
  CHECK(array_error("parameter p\nparameter q") ==
        "f:2:11: a second parameter; a program has one, declare q as state");
  CHECK(array_error("gradient p, q") ==
        "f:1:13: a second gradient; a program has one, declare q as state");
  CHECK(array_error("temporary t\nstate m\nm = t\nt = m") ==
        "f:3:5: the temporary t is read before it is assigned; assign it first, or declare it as "
        "state");
  CHECK(array_error("temporary t\nt = t + 1") ==
        "f:2:5: the temporary t is read before it is assigned; assign it first, or declare it as "
        "state");
  CHECK(array_error("shared a\nstate m\na = 1 + m") ==
        "f:3:9: a has one value in all and reads m, which has one value a coordinate; use sum(...) "
        "or mean(...), or declare a finer");
  CHECK(array_error("per row r\nper column c\nr = c") ==
        "f:3:5: r has one value a row and reads c, which has one value a column; use sum(...) or "
        "mean(...), or declare r finer");
  CHECK(array_error("state m\nm = sum(m)") ==
        "f:2:1: m has one value a coordinate and reduces what has one value a coordinate; reduce "
        "finer slots, or assign without sum or mean");
  CHECK(array_error("per row r\nper column c\nr = sum(c)") ==
        "f:3:1: r has one value a row and reduces what has one value a column; reduce finer slots, "
        "or assign without sum or mean");
  CHECK(array_error("shared a\na = all_reduce mean(2)") ==
        "f:2:1: a has one value in all and reduces what has one value in all; reduce finer slots, "
        "or assign without sum or mean");
  CHECK(array_error("shared a\na = sum(x)") ==
        "f:2:9: no slot is called x; declare it, or correct its name");
  CHECK(array_error("state m\ncoordinate 3: p") ==
        "f:2:1: a program over arrays has no single coordinates; declare state, or name every slot "
        "as whole programs do");
  std::string many = "shared a";
  for (int i = 0; i < 65535; ++i) many += ",a" + std::to_string(i);
  CHECK(array_error(many) == "");
  CHECK(array_error(many + ",z")
            .find("more than 65536 slots with one value in all; make the "
                  "program shorter") != std::string::npos);
  CHECK(array_error(many + "\na = 7").find("f:2:1: more than 65536") == 0);
}

TEST_CASE("a whole program's operations belong to the coordinate of their target") {
  const ClassifiedProgram program = whole(
      "shared t = 0.5\ncoordinate 0: p0 = 1, m0\ncoordinate 7: p7\np0 = p0 - t*p7\n"
      "p7 = (p7 + 1)*(t + 1)\nt = t*t + 1");
  // Slots: t, p0, m0, p7; t·p7 of 0; the constant 1; t + 1 and p7 + 1 of 7; t·t, shared.
  CHECK(assignments(program) == Lines{"5 = constant(0)", "4 = multiply(0, 3)", "1 = subtract(1, 4)",
                                      "6 = add(3, 5)", "7 = add(0, 5)", "3 = multiply(6, 7)",
                                      "8 = multiply(0, 0)", "0 = add(8, 5)"});
  const Classification& cls = program.classification;
  REQUIRE(cls.slots() == 9);
  CHECK(cls(1) == Coordinate{0});
  CHECK(cls(3) == Coordinate{7});
  CHECK(cls(4) == Coordinate{0});
  CHECK(cls(6) == Coordinate{7});
  CHECK(cls(7) == Coordinate{7});
  for (const Slot shared : {0, 5, 8}) CHECK(cls.is_shared(shared));
  CHECK(program.names == Lines{"t", "p0", "m0", "p7", "", "", "", "", ""});
  CHECK(*program.initial[0] == Rational(1, 2));
  CHECK_FALSE(program.initial[2]);

  const ClassifiedProgram::Stage& stage = program.stages.at(0);
  CHECK(program.stages.size() == 1);
  CHECK(stage.program.slots == 9);
  CHECK(stage.program.constants == std::vector<Rational>{1});
  CHECK(stage.collective.assignments.empty());
  CHECK(stage.collective.slots == 9);
  REQUIRE(stage.positions.size() == stage.program.assignments.size());
  CHECK(stage.positions[0].line == 0);
  CHECK(stage.positions[1].line == 4);
  CHECK(stage.positions[7].line == 6);
}

TEST_CASE("whole programs use temporaries again within a coordinate only") {
  const ClassifiedProgram program =
      whole("coordinate 0: a\ncoordinate 1: b\na = -a*a\na = -a*a\nb = -b*b");
  CHECK(assignments(program) == Lines{"2 = negate(0)", "0 = multiply(2, 0)", "2 = negate(0)",
                                      "0 = multiply(2, 0)", "3 = negate(1)", "1 = multiply(3, 1)"});
}

TEST_CASE("what a whole program may not say is one error with its place") {
  CHECK(whole_error("coordinate 0: a\na = b") ==
        "f:2:5: no slot is called b; declare it, or correct its name");
  CHECK(whole_error("coordinate 0: a\ncoordinate 1: b, a") ==
        "f:2:18: a is declared twice, first at 1:15; rename one");
  CHECK(whole_error("state m\ncoordinate 0: a") ==
        "f:1:1: a program with single coordinates has no arrays; declare its slots as shared or of "
        "a coordinate");
  CHECK(whole_error("shared s\ncoordinate 0: a\ns = sum(a)") ==
        "f:3:1: sum and mean are for programs over arrays; add the slots one by one");
}

namespace {

using Kind = ExpressionNode::Kind;

// A random expression of about that many nodes over the names.
void append_random(Random& random, const Lines& names, std::size_t nodes, Expression& expression) {
  if (nodes <= 1) {
    const bool number = random.below(4) == 0;
    expression.push_back(
        {number ? Kind::number : Kind::slot,
         number ? std::to_string(random.below(4)) : names[random.below(names.size())],
         0,
         {}});
    return;
  }
  const auto kind = static_cast<Kind>(
      random.integer(static_cast<int>(Kind::negate), static_cast<int>(Kind::fused_multiply_add)));
  for (std::size_t i = operands(kind); i > 0; --i) {
    append_random(random, names, (nodes - 1) / operands(kind), expression);
  }
  const int exponent = kind == Kind::power ? static_cast<int>(random.integer(-3, 4)) : 0;
  expression.push_back({kind, {}, exponent, {}});
}

// The value of an expression, straight from its text.
template <class ValueOf>
double value(const Expression& expression, ValueOf&& value_of) {
  using A = Arithmetic<double>;
  std::vector<double> values;
  for (const ExpressionNode& node : expression) {
    std::array<double, 3> v{};
    for (std::size_t k = operands(node.kind); k-- > 0;) {
      v.at(k) = values.back();
      values.pop_back();
    }
    const auto power = [&] {
      double product = v[0];
      for (int i = 1; i < std::abs(node.exponent); ++i) product = product * v[0];
      return node.exponent == 0 ? 1 : node.exponent < 0 ? 1 / product : product;
    };
    switch (node.kind) {
      // clang-format off
      case Kind::number: values.push_back(nearest_float64(number_value(node.spelling))); break;
      case Kind::slot: values.push_back(value_of(node.spelling)); break;
      case Kind::negate: values.push_back(-v[0]); break;
      case Kind::power: values.push_back(power()); break;
      case Kind::add: values.push_back(v[0] + v[1]); break;
      case Kind::subtract: values.push_back(v[0] - v[1]); break;
      case Kind::multiply: values.push_back(v[0] * v[1]); break;
      case Kind::divide: values.push_back(v[0] / v[1]); break;
      case Kind::less: values.push_back(v[0] < v[1]); break;
      case Kind::less_equal: values.push_back(v[0] <= v[1]); break;
      case Kind::greater: values.push_back(v[0] > v[1]); break;
      case Kind::greater_equal: values.push_back(v[0] >= v[1]); break;
      case Kind::equal: values.push_back(v[0] == v[1]); break;
      case Kind::not_equal: values.push_back(v[0] != v[1]); break;
      case Kind::square_root: values.push_back(std::sqrt(v[0])); break;
      case Kind::absolute: values.push_back(std::abs(v[0])); break;
      case Kind::sign: values.push_back(A::sign(v[0])); break;
      case Kind::minimum: values.push_back(A::minimum(v[0], v[1])); break;
      case Kind::maximum: values.push_back(A::maximum(v[0], v[1])); break;
      case Kind::select: values.push_back(v[0] != 0 ? v[1] : v[2]); break;
      case Kind::fused_multiply_add: values.push_back(std::fma(v[0], v[1], v[2])); break;
        // clang-format on
    }
  }
  return values.at(0);
}

// Steps through the text and through the compiled program, run over one parameter of one
// coordinate, from the same state; every slot named must end alike.
void check_text(const ProgramText& text, std::map<std::string, double> state) {
  INFO(print(text));
  const bool is_whole = text.whole();
  ClassifiedProgram program{{}, Classification(0), {}, {}};
  if (is_whole) {
    const Result<ClassifiedProgram> compiled = compile_whole("f", text);
    if (!compiled) FAIL(compiled.error());
    program = *compiled;
  } else {
    const Result<ArrayProgram> compiled = compile_array("f", text);
    if (!compiled) FAIL(compiled.error());
    program = expand(*compiled, std::vector<ParameterShape>{{1}});
  }
  std::vector<double> compiled;
  std::vector<std::string> names;
  for (const std::string& name : program.names) {
    names.push_back(name.substr(0, name.find('[')));
    compiled.push_back(names.back().empty() ? 0 : state.at(names.back()));
  }
  for (int step = 0; step < 2; ++step) {
    for (const ProgramText::Assigned& assigned : text.assignments) {
      state.at(assigned.target) =
          value(assigned.expression, [&](const std::string& name) { return state.at(name); });
    }
    for (const auto& stage : program.stages) compiled = slot_run(compiled, stage.program);
    for (std::size_t slot = 0; slot < names.size(); ++slot) {
      if (names[slot].empty()) continue;
      const double expected = state.at(names[slot]);
      INFO(names[slot] << " is " << compiled[slot] << ", should be " << expected);
      REQUIRE((std::isnan(expected) ? std::isnan(compiled[slot])
                                    : std::bit_cast<std::uint64_t>(expected) ==
                                          std::bit_cast<std::uint64_t>(compiled[slot])));
    }
  }
}

}  // namespace

TEST_CASE("compiled programs compute what their random texts say") {
  using Declared = ProgramText::Declaration::Kind;
  const std::vector<std::pair<Declared, Lines>> arrays{
      {Declared::shared, {"a", "b"}},  {Declared::per_parameter, {"q", "s"}},
      {Declared::per_row, {"r", "t"}}, {Declared::per_column, {"c", "d"}},
      {Declared::parameter, {"p"}},    {Declared::state, {"m", "n"}}};
  const std::vector<std::pair<Declared, Lines>> slots{{Declared::shared, {"a", "b"}},
                                                      {Declared::coordinate, {"p", "m"}},
                                                      {Declared::coordinate, {"q"}}};
  const std::map<std::string, Lines> may_read{
      {"a", {"a", "b"}},
      {"q", {"a", "b", "q", "s"}},
      {"r", {"a", "b", "q", "s", "r", "t"}},
      {"c", {"a", "b", "q", "s", "c", "d"}},
      {"m", {"a", "b", "q", "s", "r", "t", "c", "d", "p", "m", "n"}}};
  Random random(3, "compile");
  for (int i = 0; i < 1000; ++i) {
    const bool is_whole = i % 4 == 0;
    ProgramText text;
    std::map<std::string, double> state;
    Lines all;
    for (const auto& [kind, names] : is_whole ? slots : arrays) {
      ProgramText::Declaration declaration{kind, static_cast<Coordinate>(all.size()), {}, {}};
      for (const std::string& name : names) {
        declaration.slots.push_back({name, "", {}});
        state[name] = random.triangular(2);
        all.push_back(name);
      }
      text.declarations.push_back(declaration);
    }
    for (int k = 0; k < 8; ++k) {
      ProgramText::Assigned assigned;
      auto target = may_read.begin();
      for (std::size_t skip = random.below(may_read.size()); skip > 0; --skip) ++target;
      assigned.target = is_whole ? all[random.below(all.size())] : target->first;
      append_random(random, is_whole ? all : target->second, 1 + random.below(25),
                    assigned.expression);
      text.assignments.push_back(assigned);
    }
    check_text(text, state);
  }
}

TEST_CASE("an empty text is an empty program") {
  CHECK(array("").statements.empty());
  CHECK(whole("").stages.at(0).program.assignments.empty());
}
