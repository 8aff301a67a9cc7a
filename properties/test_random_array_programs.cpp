// Random programs over arrays, and random cases of optimizer steps on the built-in device.
#include <catch2/catch.hpp>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "device/engine/builtin_device.h"
#include "diff/case_file.h"
#include "diff/program_case.h"
#include "properties/random_array_programs.h"

using namespace shardproof;
using Verdict = SignoffResult::Verdict;

namespace {

std::unique_ptr<Device> host(int ranks, const Schedule& schedule) {
  return make_host_device(ranks, schedule, 1);
}

}  // namespace

TEST_CASE("random programs over arrays compile, are separable and print to their own text") {
  std::set<ValueFunction> functions;
  std::set<std::pair<Scope, Scope>> collectives, sums;
  std::size_t dead = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const ArrayProgramSizes sizes{seed % 23, seed % 4};
    const std::string text = random_array_program_text(sizes, Random(seed));
    const auto parsed = parse_program("random", text);
    INFO(text);
    REQUIRE(parsed);
    CHECK(print(*parsed) == text);
    CHECK(parsed->assignments.size() == sizes.assignments);
    const ArrayProgram program = random_array_program(sizes, Random(seed));
    CHECK(!program.across_coordinates());
    for (const auto& statement : program.statements) {
      if (const auto* assignment = std::get_if<ArrayAssignment>(&statement.does)) {
        functions.insert(assignment->function);
      } else {
        const auto& reduction = std::get<ArrayProgram::Reduction>(statement.does);
        (reduction.collective ? collectives : sums)
            .insert({reduction.source.scope, reduction.target.scope});
      }
    }
    for (std::size_t i = 1; i < parsed->assignments.size(); ++i) {
      if (parsed->assignments[i].target == parsed->assignments[i - 1].target) ++dead;
    }
  }
  CHECK(functions.size() == kValueFunctions - 1);  // constants are slots
  CHECK(collectives.size() == 4);                  // of coordinates, into every coarser scope
  CHECK(sums.size() == 5);  // of rows and columns into two scopes each, of parameters into one
  CHECK(dead > 100);
}

TEST_CASE("the built-in device agrees on random cases, and case files keep every bit of them") {
  std::size_t judged = 0;
  std::set<std::string> optimizers;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Draws draws(seed, 100);
    const ProgramCase c = draw_program_case(draws);
    const ProgramResult result = judge_program_case(host, c);
    INFO(laid_out(to_json(c)));
    CHECK(result.verdict() != Verdict::disagrees);
    if (result.verdict() == Verdict::agrees) ++judged;
    const auto read = program_case_of(to_json(c));
    REQUIRE(read);
    CHECK(to_json(*read) == to_json(c));
    if (draws.record()[1].name == "optimizer") optimizers.insert(draws.record()[1].label);
  }
  CHECK(judged > 200);
  CHECK(optimizers.size() > 15);
}

TEST_CASE("a case is a function of its draws") {
  Draws draws(3, 100);
  const ProgramCase c = draw_program_case(draws);
  Draws again(draws.record());
  CHECK(to_json(draw_program_case(again)) == to_json(c));
  CHECK(again.as_given());
}
