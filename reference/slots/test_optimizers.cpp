// The optimizers of fixtures/programs against ten steps that were computed without the interpreter
// (fixtures/programs/make_expected_steps.py): every coordinate, state and running product.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "reference/numbers/interval.h"
#include "reference/numbers/nearest.h"
#include "reference/numbers/rational.h"
#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/separability.h"
#include "reference/slots/slot_run.h"
#include "reference/slots/text.h"

namespace shardproof {
namespace {

namespace filesystem = std::filesystem;
using nlohmann::json;
using Exact = Interval<80>;

const filesystem::path kFolder = filesystem::path(SHARDPROOF_SOURCE_DIR) / "fixtures" / "programs";
const std::set<std::string> kNotSeparable{"adafactor", "global-norm-clipping", "lamb", "lars"};

const json& expected_steps() {
  static const json steps = json::parse(std::ifstream(kFolder / "expected_steps.json"));
  return steps;
}

std::set<std::string> programs() {
  std::set<std::string> names;
  for (const auto& entry : filesystem::directory_iterator(kFolder)) {
    if (entry.path().extension() == ".slots") names.insert(entry.path().stem().string());
  }
  return names;
}

ArrayProgram read_program(const std::string& name) {
  const filesystem::path path = kFolder / (name + ".slots");
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  const Result<ProgramText> parsed = parse_program(path.string(), text.str());
  if (!parsed) FAIL(parsed.error());
  Result<ArrayProgram> program = compile_array(path.string(), *parsed);
  if (!program) FAIL(program.error());
  return *std::move(program);
}

// The parameter and what starts with a value and is assigned, by name.
std::set<std::string> kept_and_assigned(const ArrayProgram& program) {
  std::set<std::string> names;
  for (const ArrayProgram::Statement& statement : program.statements) {
    const ArrayProgram::SlotInfo& info = program.info(statement.target());
    if (info.role == ArrayProgram::Role::parameter ||
        (info.role == ArrayProgram::Role::state && info.initial)) {
      names.insert(info.name);
    }
  }
  return names;
}

std::vector<ParameterShape> expected_shapes() {
  std::vector<ParameterShape> shapes;
  for (const json& shape : expected_steps()["shapes"]) shapes.push_back({shape[0], shape[1]});
  return shapes;
}

// The hyper-parameters that an example sets.
json set_in(const json& example) { return example.value("set", json::object()); }

Rational exact(const json& decimal) { return number_value(decimal.get<std::string>()); }

// A program over coordinates that steps through the given gradients.
template <class T>
class Steps {
 public:
  Steps(const ArrayProgram& program, const json& initial,
        const std::vector<ParameterShape>& shapes = expected_shapes())
      : program_(expand(program, shapes)), state_(program_.names.size(), unset()) {
    for (Slot slot = 0; slot < program_.names.size(); ++slot) {
      const std::string& name = program_.names[slot];
      slots_[name.substr(0, name.find('['))].push_back(slot);
      if (program_.initial[slot]) state_[slot] = arithmetic_.constant(*program_.initial[slot]);
    }
    for (const auto& [name, value] : initial.items()) {
      for (const Slot slot : slots(name)) state_[slot] = arithmetic_.constant(exact(value));
    }
    set("p", expected_steps()["parameters"]);
  }

  void step(const json& gradient) {
    set("g", gradient);
    for (const ClassifiedProgram::Stage& stage : program_.stages) {
      state_ = slot_run(std::move(state_), stage.program);
      state_ = slot_run(std::move(state_), stage.collective);
    }
  }

  // Of every element, in their order.
  std::vector<T> values(const std::string& name) const {
    std::vector<T> values;
    for (const Slot slot : slots(name)) values.push_back(state_[slot]);
    return values;
  }

 private:
  static T unset() {
    if constexpr (std::floating_point<T>) {
      return std::numeric_limits<T>::quiet_NaN();
    } else {
      return T();
    }
  }

  const std::vector<Slot>& slots(const std::string& name) const {
    const auto found = slots_.find(name);
    if (found == slots_.end()) FAIL("no slot " << name);
    return found->second;
  }

  void set(const std::string& name, const json& values) {
    REQUIRE(values.size() == slots(name).size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      state_[slots(name)[i]] = arithmetic_.constant(exact(values[i]));
    }
  }

  ClassifiedProgram program_;
  std::map<std::string, std::vector<Slot>> slots_;
  std::vector<T> state_;
  Arithmetic<T> arithmetic_;
};

// Narrower than 1e-60 of the number, and with a point that has its 40 digits.
bool agrees(const Exact& x, const Rational& expected) {
  const Rational half_digit = abs(expected) * number_value("5e-40");
  return meets(x, Exact::hull(Exact(expected - half_digit), Exact(expected + half_digit))) &&
         x.width() <= 1e-60 * std::abs(nearest_float64(expected));
}

bool agrees(double x, const Rational& expected) {
  return std::abs(x - nearest_float64(expected)) <=
         1e-12 * std::max(1e-3, std::abs(nearest_float64(expected)));
}

template <class T>
void check_case(const std::string& name, const json& example) {
  Steps<T> steps(read_program(name), set_in(example));
  const json& gradients = expected_steps()["gradients"];
  for (std::size_t t = 1; t <= gradients.size(); ++t) {
    steps.step(gradients[t - 1]);
    const auto after = example["after"].find(std::to_string(t));
    if (after == example["after"].end()) continue;
    for (const auto& [slot, expected] : after->items()) {
      const std::vector<T> values = steps.values(slot);
      REQUIRE(values.size() == expected.size());
      for (std::size_t i = 0; i < values.size(); ++i) {
        INFO(name << " with " << set_in(example) << " after step " << t << ": " << slot << "[" << i
                  << "] should be " << expected[i]);
        CHECK(agrees(values[i], exact(expected[i])));
      }
    }
  }
}

// The programs with the rule of `program`: itself and, where it has one, its separable form.
std::vector<std::string> forms(const std::string& program) {
  std::vector<std::string> forms{program};
  if (kNotSeparable.count(program) > 0) forms.push_back(program + "-separable");
  return forms;
}

TEST_CASE("optimizers take the steps of their sources, to 40 digits") {
  for (const json& example : expected_steps()["cases"]) {
    for (const std::string& name : forms(example["program"])) check_case<Exact>(name, example);
  }
}

TEST_CASE("optimizers take the steps of their sources over float64, to 12 digits") {
  for (const json& example : expected_steps()["cases"]) {
    for (const std::string& name : forms(example["program"])) check_case<double>(name, example);
  }
}

TEST_CASE("a separable form agrees with the form it comes from, to 60 digits") {
  for (const json& example : expected_steps()["cases"]) {
    if (kNotSeparable.count(example["program"]) == 0) continue;
    std::vector<std::vector<Exact>> ends;
    for (const std::string& name : forms(example["program"])) {
      Steps<Exact> steps(read_program(name), set_in(example));
      for (const json& gradient : expected_steps()["gradients"]) steps.step(gradient);
      ends.push_back(steps.values("p"));
    }
    for (std::size_t i = 0; i < ends[0].size(); ++i) {
      INFO(example["program"] << ": p[" << i << "]");
      CHECK(meets(ends[0][i], ends[1][i]));
      CHECK((ends[0][i] - ends[1][i]).width() < 1e-60);
    }
  }
}

TEST_CASE("an empty parameter moves no other") {
  std::vector<ParameterShape> with_empty = expected_shapes();
  with_empty.insert(with_empty.begin() + 1, ParameterShape{0, 1});
  with_empty.push_back({2, 0});
  for (const std::string& name : programs()) {
    const ArrayProgram program = read_program(name);
    Steps<double> without(program, json::object()), with(program, json::object(), with_empty);
    for (const json& gradient : expected_steps()["gradients"]) {
      without.step(gradient);
      with.step(gradient);
    }
    INFO(name);
    CHECK(without.values("p") == with.values("p"));
  }
}

TEST_CASE("optimizers are separable, but for those with norms, sums and means of their own") {
  for (const std::string& name : programs()) {
    bool separable = true;
    const ClassifiedProgram program = expand(read_program(name), expected_shapes());
    for (const ClassifiedProgram::Stage& stage : program.stages) {
      if (!is_slot_separable(program.classification, stage.program)) separable = false;
    }
    INFO(name);
    CHECK(separable == (kNotSeparable.count(name) == 0));
  }
}

TEST_CASE("a global norm joins all coordinates, norms of tensors those of each tensor") {
  const std::vector<std::vector<Coordinate>> tensors{{0, 1, 2, 3, 4, 5}, {6, 7, 8, 9}, {10}};
  const std::vector<std::vector<Coordinate>> all{{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10}};
  for (const std::string& name : kNotSeparable) {
    const ClassifiedProgram program = expand(read_program(name), expected_shapes());
    REQUIRE(program.stages.size() == 1);
    std::vector<std::vector<Coordinate>> joined;
    for (const Coarsening::Group& group :
         least_coarsening(program.classification, program.stages[0].program).groups) {
      joined.push_back(group.coordinates);
    }
    INFO(name);
    CHECK(joined == (name == "global-norm-clipping" ? all : tensors));
  }
}

TEST_CASE("hyper-parameters start with the defaults of their sources") {
  for (const json& example : expected_steps()["cases"]) {
    if (!example.contains("defaults")) continue;
    for (const std::string& name : forms(example["program"])) {
      std::map<std::string, std::optional<Rational>> starts;
      const ArrayProgram program = read_program(name);
      for (const auto& scope : program.slots) {
        for (const ArrayProgram::SlotInfo& slot : scope) starts[slot.name] = slot.initial;
      }
      for (const auto& [slot, value] : example["defaults"].items()) {
        INFO(name << ": " << slot << " should start with " << value);
        CHECK(starts[slot] == exact(value));
      }
    }
  }
}

TEST_CASE("every optimizer has expected steps, at its defaults and at other hyper-parameters") {
  std::map<std::string, std::set<bool>> at_defaults;
  for (const json& example : expected_steps()["cases"]) {
    for (const std::string& name : forms(example["program"])) {
      at_defaults[name].insert(example.contains("defaults"));
    }
  }
  std::map<std::string, std::set<bool>> both;
  for (const std::string& name : programs()) both[name] = {false, true};
  CHECK(at_defaults == both);
}

TEST_CASE("expected steps cover all that an optimizer keeps") {
  for (const json& example : expected_steps()["cases"]) {
    for (const std::string& name : forms(example["program"])) {
      std::set<std::string> covered;
      for (const auto& [slot, expected] : example["after"]["10"].items()) covered.insert(slot);
      CHECK(kept_and_assigned(read_program(name)) == covered);
    }
  }
}

}  // namespace
}  // namespace shardproof
