#include <algorithm>
#include <catch2/catch.hpp>
#include <map>
#include <string>
#include <vector>

#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/slot_run.h"

using namespace shardproof;

namespace {

ArrayProgram compiled(const std::string& text) {
  const Result<ProgramText> parsed = parse_program("f", text);
  if (!parsed) FAIL(parsed.error());
  const Result<ArrayProgram> program = compile_array("f", *parsed);
  if (!program) FAIL(program.error());
  return *program;
}

// All stages, with their collectives, from the initial values; those not given are 1, 2, … in the
// order of slots. By name.
std::map<std::string, Rational> values_after(const ClassifiedProgram& expanded) {
  std::vector<Rational> state;
  int next = 0;
  for (Slot slot = 0; slot < expanded.names.size(); ++slot) {
    const bool given = expanded.initial[slot].has_value();
    if (!given && !expanded.names[slot].empty()) ++next;
    state.push_back(given ? *expanded.initial[slot] : Rational(next));
  }
  for (const ClassifiedProgram::Stage& stage : expanded.stages) {
    state = slot_run(std::move(state), stage.program);
    state = slot_run(std::move(state), stage.collective);
  }
  std::map<std::string, Rational> values;
  for (Slot slot = 0; slot < state.size(); ++slot) values[expanded.names[slot]] = state[slot];
  values.erase("");
  return values;
}

using Values = std::map<std::string, Rational>;

const std::vector<ParameterShape> shapes{{2, 3}, {0, 4}, {1, 1}};

}  // namespace

TEST_CASE("slots of a coordinate stand together, coarse scopes first") {
  const ArrayProgram program =
      compiled("shared a, b\nstate m, n\nper parameter q\nper row r\nper column c\nm = a");
  const SlotLayout layout(program, shapes);
  // 2 shared; 3 parameters; 2 + 0 + 1 rows; 3 + 4 + 1 columns; 6 + 0 + 1 coordinates of 2.
  CHECK(layout.slots() == 2 + 3 + 3 + 8 + 14);
  CHECK(layout({Scope::shared, 1}, 0) == 1);
  CHECK(layout({Scope::parameter, 0}, 2) == 4);
  CHECK(layout({Scope::row, 0}, 0) == 5);
  CHECK(layout({Scope::column, 0}, 7) == 15);
  CHECK(layout({Scope::coordinate, 1}, 6) == 29);

  const ClassifiedProgram expanded = expand(program, shapes);
  CHECK(expanded.names.at(1) == "b");
  CHECK(expanded.names.at(4) == "q[2]");
  CHECK(expanded.names.at(7) == "r[2][0]");
  CHECK(expanded.names.at(9) == "c[0][1]");
  CHECK(expanded.names.at(15) == "c[2][0]");
  CHECK(expanded.names.at(27) == "n[0][5]");
  CHECK(expanded.names.at(28) == "m[2][0]");
  for (Slot slot = 0; slot < 16; ++slot) CHECK(expanded.classification.is_shared(slot));
  CHECK(expanded.classification(26) == Coordinate{5});
  CHECK(expanded.classification(27) == Coordinate{5});
  CHECK(expanded.classification(28) == Coordinate{6});
}

TEST_CASE("each element reads its own row, column and parameter") {
  const ClassifiedProgram expanded =
      expand(compiled("shared s = 7\nstate m\nper parameter q\nper row r\nper column c\n"
                      "m = 1000*q + 100*r + 10*c + s"),
             shapes);
  // Starts count up: q 1, 2, 3; r 4, 5, 6; c 7, 8, 9; 10 … 13 (no rows); 14.
  const Values values = values_after(expanded);
  CHECK(values.at("m[0][0]") == 1000 + 400 + 70 + 7);
  CHECK(values.at("m[0][2]") == 1000 + 400 + 90 + 7);
  CHECK(values.at("m[0][4]") == 1000 + 500 + 80 + 7);
  CHECK(values.at("m[2][0]") == 3000 + 600 + 140 + 7);
}

TEST_CASE("sums and means run over what their target's element holds") {
  const std::string start = "state m\nshared s\nper parameter q\nper row r\nper column c\n";
  const auto after = [&](const std::string& text) {
    return values_after(expand(compiled(start + text), shapes));
  };
  // m[0] is 16 … 21 in rows of three, m[2][0] is 22.
  CHECK(after("s = sum(m)").at("s") == 16 + 17 + 18 + 19 + 20 + 21 + 22);
  CHECK(after("s = mean(m)").at("s") == 19);
  CHECK(after("r = sum(m)").at("r[0][1]") == 19 + 20 + 21);
  CHECK(after("r = mean(m)").at("r[0][0]") == 17);
  CHECK(after("c = sum(m)").at("c[0][2]") == 18 + 21);
  CHECK(after("c = mean(m)").at("c[0][0]") == Rational(35, 2));
  CHECK(after("c = sum(m)").at("c[1][3]") == 0);  // no row
  CHECK(after("q = sum(m)").at("q[0]") == 111);
  CHECK(after("q = sum(m)").at("q[1]") == 0);
  CHECK(after("q = all_reduce mean(m)").at("q[2]") == 22);
  CHECK(after("q = sum(r)").at("q[0]") == 5 + 6);  // of the rows, once each
  CHECK(after("s = all_reduce sum(q)").at("s") == 2 + 3 + 4);
  CHECK(after("q = sum(m*m)\ns = sum(q)").at("s") == 256 + 289 + 324 + 361 + 400 + 441 + 484);
}

TEST_CASE("a collective ends its stage and nothing else does") {
  const ClassifiedProgram expanded = expand(
      compiled(
          "shared s\ngradient g\nparameter p\ns = all_reduce sum(g*g)\np = p - g/s\ns = mean(p)"),
      std::vector<ParameterShape>{{3}});
  REQUIRE(expanded.stages.size() == 2);
  const auto& first = expanded.stages[0];
  const auto& second = expanded.stages[1];
  CHECK(first.program.assignments.size() == 1 + 3);  // the mean's 3; squares
  CHECK(first.collective.assignments.size() == 3);
  CHECK(second.program.assignments.size() == 6 + 4);
  CHECK(second.collective.assignments.empty());
  for (const auto& stage : expanded.stages) {
    CHECK(stage.positions.size() == stage.program.assignments.size());
    CHECK(stage.program.slots == expanded.names.size());
    CHECK(stage.collective.slots == expanded.names.size());
  }
  CHECK(first.positions[0].line == 0);
  CHECK(first.positions[1].line == 4);
  CHECK(second.positions[0].line == 5);
  CHECK(second.positions[9].line == 6);
  CHECK(first.collective.assignments[0].function == ValueFunction::copy);
  CHECK(first.collective.assignments[2].function == ValueFunction::add);
}

TEST_CASE("assignments to coordinates in a row are done coordinate by coordinate") {
  const ClassifiedProgram expanded =
      expand(compiled("state m, n\nm = m*m\nn = m + n\n"), std::vector<ParameterShape>{{2}});
  const std::vector<Assignment> expected{{0, ValueFunction::multiply, {0, 0}},
                                         {1, ValueFunction::add, {0, 1}},
                                         {2, ValueFunction::multiply, {2, 2}},
                                         {3, ValueFunction::add, {2, 3}}};
  CHECK(expanded.stages.at(0).program.assignments == expected);
}

TEST_CASE("starts are those of the text, constants are assigned") {
  const ClassifiedProgram expanded = expand(compiled("shared a = -0.5\nstate m = 3, n\nm = m*2"),
                                            std::vector<ParameterShape>{{2}});
  CHECK(expanded.initial.at(0) == Rational(-1, 2));
  CHECK_FALSE(expanded.initial.at(1));
  CHECK(expanded.names.at(1).empty());  // the constant 2
  CHECK(expanded.initial.at(2) == Rational(3));
  CHECK_FALSE(expanded.initial.at(3));
  CHECK(expanded.initial.at(4) == Rational(3));
  const Assignment& constant = expanded.stages.at(0).program.assignments.at(0);
  CHECK(constant == Assignment{1, ValueFunction::constant, {0}});
  CHECK(expanded.stages[0].program.constants == std::vector<Rational>{2});
}

TEST_CASE("without parameters only shared slots are left") {
  const ClassifiedProgram expanded =
      expand(compiled("shared s = 2\nstate m\ns = s + 1\nm = s"), {});
  CHECK(values_after(expanded) == Values{{"s", 3}});
}

TEST_CASE("more slots than numbers for them are refused") {
  const ArrayProgram program = compiled("state m, n");
  const std::vector<ParameterShape> many{{kMostSlots / 2 + 1}};
  CHECK(SlotLayout(program, many).slots() == kMostSlots + 1);
  CHECK_THROWS_AS(expand(program, many), std::length_error);
}

TEST_CASE("shapes are read from text, and what is none is one error") {
  const auto result = parse_shapes("1000,7,0,5,4x3,0x9");
  REQUIRE(result);
  std::vector<std::size_t> numbers;
  for (const ParameterShape& shape : *result) {
    numbers.push_back(shape.rows);
    numbers.push_back(shape.columns);
  }
  CHECK(numbers == std::vector<std::size_t>{1000, 1, 7, 1, 0, 1, 5, 1, 4, 3, 0, 9});
  CHECK(parse_shapes("4294967295"));

  const auto error = [](const std::string& text) {
    const auto shapes = parse_shapes(text);
    return shapes ? "" : shapes.error();
  };
  const std::string mend = "; write sizes like 1000,7,0,5,4x3";
  CHECK(error("") == "sizes '' have no whole number at character 1" + mend);
  CHECK(error("3,,4") == "sizes '3,,4' have no whole number at character 3" + mend);
  CHECK(error("3,") == "sizes '3,' have no whole number at character 3" + mend);
  CHECK(error("-3") == "sizes '-3' have no whole number at character 1" + mend);
  CHECK(error("3x") == "sizes '3x' have no whole number at character 3" + mend);
  CHECK(error("3x4x5") == "sizes '3x4x5' have 'x' at character 4" + mend);
  CHECK(error("3 4") == "sizes '3 4' have ' ' at character 2" + mend);
  const std::string absurd =
      " are absurd: more than 4294967295 coordinates, rows or columns; give smaller ones";
  for (const char* text : {"4294967296", "65536x65536", "4294967295,1", "99999999999999999999",
                           "18446744073709551615", "4294967295x0,1", "0x4294967295,0x1"}) {
    CHECK(error(text) == "sizes '" + std::string(text) + "'" + absurd);
  }
  CHECK(error(std::string(1000, '9')) == "sizes '" + std::string(60, '9') + "...'" + absurd);
}
