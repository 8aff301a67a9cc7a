// Slot programs with numbers of their own: as JSON, refused where they do not fit, shrunk, and
// explained.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/case_file.h"
#include "diff/exact_number.h"
#include "diff/explain_program.h"
#include "diff/program_case.h"
#include "diff/program_signoff.h"
#include "reference/slots/optimizers.h"

using namespace shardproof;
using Json = nlohmann::ordered_json;
using Verdict = SignoffResult::Verdict;

namespace {

std::unique_ptr<Device> host(int ranks, const Schedule& schedule) {
  return make_host_device(ranks, schedule, 1);
}

const std::string kNorm =
    "shared scale = 2\n"
    "shared norm = 0\n"
    "parameter p\n"
    "gradient g\n"
    "state m = 0\n"
    "m = 0.5*m + g\n"
    "norm = all_reduce sum(m^2)\n"
    "p = p - scale*m/(norm + 1)\n";

// Two parameters of 2×2 and of 1, on 2 ranks, 2 steps.
ProgramCase a_case() {
  const ArrayProgram program = *compile_separable("norm", kNorm);
  ProgramTask task{program, {{2, 2}, {1}}, OwnerMap::table, {0, 1, 1, 0, 1}, 2, 2, 5, kNorm};
  return program_case(task, variations(5)[0]);
}

// A change of the JSON, and the beginning of what is said of it.
void check_refused(const std::function<void(Json&)>& change, const std::string& complaint) {
  Json json = to_json(a_case());
  change(json);
  const auto read = program_case_of(json);
  INFO(complaint);
  REQUIRE(!read);
  CHECK(read.error().substr(0, complaint.size()) == complaint);
}

// Multiplies where it should divide.
class NoDivision : public ForwardingDevice {
 public:
  explicit NoDivision(std::unique_ptr<Device> base) : ForwardingDevice(std::move(base)) {}
  void owned_step(const OwnedStepCall& call) override {
    OwnedStepCall other = call;
    for (ArrayAssignment& assignment : other.assignments) {
      if (assignment.function == ValueFunction::divide) {
        assignment.function = ValueFunction::multiply;
      }
    }
    ForwardingDevice::owned_step(other);
  }
};

// Sums of rank 1 lack the terms of rank 0.
class HalfSums : public ForwardingDevice {
 public:
  explicit HalfSums(std::unique_ptr<Device> base) : ForwardingDevice(std::move(base)) {}
  void all_reduce_sums(const AllReduceSumsCall& call) override {
    std::vector<double> own(call.count);
    const bool several = replicas() > 1;
    if (several) {
      download(1, reinterpret_cast<const float*>(call.sums[1]),
               reinterpret_cast<float*>(own.data()), 2 * call.count);
    }
    ForwardingDevice::all_reduce_sums(call);
    if (!several) return;
    synchronize();
    const std::vector<float> rounded(own.begin(), own.end());
    upload(1, call.result[1], rounded.data(), call.count);
  }
};

template <class Broken>
std::unique_ptr<Device> broken(int ranks, const Schedule& schedule) {
  return std::make_unique<Broken>(host(ranks, schedule));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

}  // namespace

TEST_CASE("a number as text keeps its bits, and no other text is one") {
  for (const std::uint32_t bits : {0U, 0x80000000U, 1U, 0x3fc00000U, 0x7f7fffffU, 0x7f800000U,
                                   0xff800000U, 0x7fc00001U, 0xffc12345U, 0x7f800001U}) {
    const auto x = std::bit_cast<float>(bits);
    const auto read = exact_number_of(exact_number(x));
    REQUIRE(read);
    CHECK(std::bit_cast<std::uint32_t>(*read) == bits);
  }
  for (const char* text :
       {"", "0", "1.5", "0x", "0x1", "0x1.8p+1 ", "0x2p+0", "0x1p+999", "nan",
        "nan:", "nan:00000000", "nan:7fc", "+inf", "INF", "-", "0x1.0000001p+0"}) {
    INFO(text);
    CHECK(!exact_number_of(text));
  }
}

TEST_CASE("a case is written and read again with every bit, and judged the same") {
  ProgramCase c = a_case();
  c.start.values[index_of(Scope::coordinate)][0][2] = std::bit_cast<float>(0x7fc00123U);
  c.schedule = {77, ChannelThreads::one_warp};
  const Json json = to_json(c);
  const auto read = program_case_of(Json::parse(json.dump()));
  REQUIRE(read);
  CHECK(to_json(*read) == json);
  CHECK(read->program == kNorm);
  CHECK(read->table == c.table);
  CHECK(read->schedule.seed == 77);
  CHECK(json["start"].contains("p"));
  CHECK(!json["start"].contains("scale"));  // as declared
  CHECK(json["start"]["p"][2] == "nan:7fc00123");
  CHECK(judge_program_case(host, *read).verdict() == Verdict::agrees);
  CHECK(count_of_numbers(c) == 5 + 2 * 2 * 5);
}

TEST_CASE("a case whose parts do not fit is refused, each with its own message") {
  check_refused([](Json& json) { json = Json::array(); }, "the case: not an object");
  check_refused([](Json& json) { json.erase("ranks"); }, "/ranks: missing");
  check_refused([](Json& json) { json["rank"] = 2; }, "/rank: not known here");
  check_refused([](Json& json) { json["ranks"] = 0; }, "/ranks: not a whole number from 1 to 1024");
  check_refused([](Json& json) { json["ranks"] = -1; }, "/ranks: not a whole number");
  check_refused([](Json& json) { json["ranks"] = 1.5; }, "/ranks: not a whole number");
  check_refused([](Json& json) { json["ranks"] = 3; }, "/gradients/0: a list of 2, needs 3");
  check_refused([](Json& json) { json["steps"] = 3; }, "/gradients: a list of 2, needs 3");
  check_refused([](Json& json) { json["gradients"][1][0].erase(0); },
                "/gradients/1/0: a list of 4, needs 5");
  check_refused([](Json& json) { json["gradients"][1][0][3] = "0x3p+0"; },
                "/gradients/1/0/3: not an exact float32 number");
  check_refused([](Json& json) { json["gradients"][1][0][3] = 1; }, "/gradients/1/0/3: not a text");
  check_refused([](Json& json) { json["start"]["p"].push_back("0x0p+0"); },
                "/start/p: a list of 6, needs 5");
  check_refused([](Json& json) { json["start"].erase("p"); }, "/start/p: missing");
  check_refused([](Json& json) { json["start"]["q"] = Json::array(); }, "/start/q: not known here");
  check_refused([](Json& json) { json["shapes"][0] = {2, 3}; }, "/owners: a list of 5, needs 7");
  check_refused([](Json& json) { json["shapes"][0] = {2}; }, "/shapes/0: a list of 1, needs 2");
  check_refused(
      [](Json& json) {
        json["shapes"][0] = {4096, 4097};
      },
      "/shapes: more than 16777216 numbers");
  check_refused([](Json& json) { json["shapes"][0] = {1000, 4000}; }, "/ranks: 2 ranks hold more");
  check_refused([](Json& json) { json["owners"][4] = 2; }, "/owners/4: not a whole number");
  check_refused([](Json& json) { json["owners"] = "nobody"; }, "/owners: not one of mod, blocks");
  check_refused([](Json& json) { json["kind"] = "odd"; }, "/kind: not one of natural");
  check_refused([](Json& json) { json["schedule"]["threads"] = "many"; },
                "/schedule/threads: not one of by_count");
  check_refused([](Json& json) { json["program"][5] = "m = 0.5*m +"; }, "/program:6:12: ");
  check_refused([](Json& json) { json["program"][5] = "m = x"; }, "/program:6:5: no slot");
  check_refused([](Json& json) { json["program"][6] = "norm = sum(m^2)"; }, "/program:7:");
  check_refused(
      [](Json& json) {
        json["program"] = {"coordinate 0: p", "p = 1"};
      },
      "/program:1:1: ");
  check_refused([](Json& json) { json["program"][5] = "m = g\nm = g"; },
                "/program/5: more than a line");
}

TEST_CASE("a program with no gradient, and one of no coordinates, are cases") {
  const std::string text = "shared s = 1\nparameter p\ns = s + 1\np = p*s\n";
  const ArrayProgram program = *compile_separable("count", text);
  for (const std::vector<ParameterShape>& shapes :
       std::vector<std::vector<ParameterShape>>{{{3}}, {{0}}, {}}) {
    const ProgramTask task{program, shapes, OwnerMap::mod, {}, 3, 2, 1, text};
    const ProgramCase c = program_case(task, variations(3)[0]);
    const auto read = program_case_of(to_json(c));
    REQUIRE(read);
    CHECK(read->gradients.empty());
    CHECK(judge_program_case(host, *read).verdict() == Verdict::agrees);
  }
}

TEST_CASE("the explanation marks the assignment at which device and reference part") {
  const ProgramCase c = a_case();
  const ProgramResult result = judge_program_case(broken<NoDivision>, c);
  CHECK(result.verdict() == Verdict::disagrees);
  const std::string text = explain(c, result, broken<NoDivision>);
  INFO(text);
  CHECK(count_of(text, "<- here they part") == 1);
  CHECK(text.find("wrong: device against reference: step 1, p[0][0] on rank 0") == 0);
  CHECK(text.find("written by  program:8: p = p - scale*m/(norm + 1)") != std::string::npos);
  const std::size_t mark = text.find("<- here they part");
  const std::string row = text.substr(text.rfind('\n', mark) + 1, mark - text.rfind('\n', mark));
  CHECK(row.find(" / ") != std::string::npos);
  CHECK(text.find("norm = all_reduce sum(") != std::string::npos);

  const ProgramCase small = shrink(c, broken<NoDivision>);
  INFO(laid_out(to_json(small)));
  CHECK(count_of_numbers(small) <= 2);
  CHECK(small.ranks == 1);
}

TEST_CASE("the explanation of a sum shows its terms by rank") {
  const ProgramCase c = a_case();
  const ProgramResult result = judge_program_case(broken<HalfSums>, c);
  const std::string text = explain(c, result, broken<HalfSums>);
  INFO(text);
  CHECK(text.find("wrong: collectives of the program: step 1, norm on rank 1") == 0);
  CHECK(text.find("What norm adds up") != std::string::npos);
  CHECK(count_of(text, "<- here they part") == 1);
  const ProgramCase small = shrink(c, broken<HalfSums>);
  INFO(laid_out(to_json(small)));
  CHECK(small.ranks == 2);
  CHECK(small.steps == 1);
  CHECK(count_of_numbers(small) <= 4);
}

TEST_CASE("a case that is not wrong is left as it is, and its explanation has no table") {
  const ProgramCase c = a_case();
  CHECK(to_json(shrink(c, host)) == to_json(c));
  const Explanation explanation = explained(c, judge_program_case(host, c), host);
  CHECK(explanation.verdict == "agrees");
  CHECK(explanation.tables.empty());
}
