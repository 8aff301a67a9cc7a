// shardproof separable: may a slot program be partitioned by ownership (spec §1)?
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "diff/cli/command.h"
#include "diff/cli/program_file.h"
#include "diff/program_report.h"
#include "reference/numbers/nearest.h"
#include "reference/slots/compile.h"
#include "reference/slots/expand.h"
#include "reference/slots/separability.h"

namespace shardproof::cli {
namespace {

struct SeparableArguments {
  std::string program, sizes = "2x3,4";
  bool json = false;
};

constexpr std::size_t kShown = 12;  // of a list

std::string join_shown(const std::vector<std::string>& items) {
  std::vector<std::string> shown(
      items.begin(), items.begin() + static_cast<std::ptrdiff_t>(std::min(kShown, items.size())));
  std::string text = fmt::format("{}", fmt::join(shown, ", "));
  if (items.size() > kShown) text += fmt::format(" and {} more", items.size() - kShown);
  return text;
}

std::string to_string(const Number& number) {
  constexpr std::size_t kMostDigits = 24;
  double rounded = 0;
  if (const auto* exact = std::get_if<Rational>(&number)) {
    std::string digits = exact->str();
    if (digits.size() <= kMostDigits) return digits;
    rounded = nearest_float64(*exact);
    if (!std::isnormal(rounded)) {
      return fmt::format("{}... ({} characters)", digits.substr(0, kMostDigits), digits.size());
    }
  } else {
    rounded = std::get<double>(number);
  }
  return std::isnan(rounded) ? "nan" : fmt::format("{:.17g}", rounded);
}

// What is said of a program; the JSON has the same content.
struct Finding {
  std::string text;
  nlohmann::json json;
};

// Slots that the program's text names, not those that operations go through.
std::vector<std::string> names_of(const ClassifiedProgram& program,
                                  const std::vector<Slot>& slots) {
  std::vector<std::string> names;
  for (const Slot slot : slots) {
    if (!program.names[slot].empty()) names.push_back(program.names[slot]);
  }
  return names;
}

// A slot's name; of a temporary of some operation, where it stands.
std::string slot_name(const ProgramFile& file, const ClassifiedProgram& program, Slot slot) {
  if (!program.names[slot].empty()) return program.names[slot];
  std::size_t line = 0;
  for (const ClassifiedProgram::Stage& stage : program.stages) {
    const auto& assignments = stage.program.assignments;
    for (std::size_t i = 0; i < assignments.size() && line == 0; ++i) {
      if (assignments[i].target == slot) line = stage.positions[i].line;
    }
  }
  const auto coordinate = program.classification(slot);
  std::string name = fmt::format("a value of {}:{}", file.name, line);
  return coordinate ? name + fmt::format(" at coordinate {}", *coordinate) : name;
}

// The slot that the text names behind a temporary of some coordinate, as it stands before
// assignment `end`.
Slot named_source(const ClassifiedProgram& program, const Program& of_stage, std::size_t end,
                  Slot slot) {
  const auto coordinate = program.classification(slot);
  for (std::size_t i = end; i-- > 0 && program.names[slot].empty();) {
    const Assignment& assignment = of_stage.assignments[i];
    if (assignment.target != slot) continue;
    for (std::size_t k = 0; k < arity(assignment.function); ++k) {
      if (program.classification(assignment.reads[k]) != coordinate) continue;
      slot = assignment.reads[k];
      break;
    }
  }
  return slot;
}

// The slot that the text names as the target of the statement to which an assignment belongs.
Slot named_target(const ClassifiedProgram& program, std::size_t stage, std::size_t assignment) {
  const Program& of_stage = program.stages[stage].program;
  const std::vector<Position>& positions = program.stages[stage].positions;
  const auto same_statement = [&](std::size_t i) {
    return i < positions.size() && positions[i].line == positions[assignment].line;
  };
  const auto coordinate = program.classification(of_stage.assignments[assignment].target);
  for (std::size_t i = assignment; same_statement(i); ++i) {
    const Slot target = of_stage.assignments[i].target;
    if (!program.names[target].empty() && program.classification(target) == coordinate) {
      return target;
    }
  }
  return of_stage.assignments[assignment].target;
}

Finding explain(const ProgramFile& file, const ClassifiedProgram& program, std::size_t stage,
                const Violation& violation) {
  const Program& of_stage = program.stages[stage].program;
  const Position position = program.stages[stage].positions.at(violation.assignment);
  const Slot target = named_target(program, stage, violation.assignment);
  const Slot read = named_source(program, of_stage, violation.assignment, violation.read);
  Finding finding;
  finding.text = quoted_line(file.name, file.lines, position.line) + "\n";
  finding.text +=
      fmt::format("  {}, {}, reads {} of coordinate {}\n", slot_name(file, program, target),
                  violation.target ? fmt::format("of coordinate {}", *violation.target) : "shared",
                  slot_name(file, program, read), violation.coordinate);
  finding.json = {{"line", position.line},
                  {"column", position.column},
                  {"target", slot_name(file, program, target)},
                  {"read", slot_name(file, program, read)},
                  {"read_coordinate", violation.coordinate}};
  if (violation.target) finding.json["target_coordinate"] = *violation.target;

  const Coarsening coarsening = least_coarsening(program.classification, of_stage);
  finding.text += "\nThe least coarsening that makes it separable joins\n";
  finding.json["coarsening"] = nlohmann::json::array();
  for (std::size_t g = 0; g < coarsening.groups.size(); ++g) {
    const Coarsening::Group& group = coarsening.groups[g];
    const std::vector<std::string> shared = names_of(program, group.shared);
    finding.json["coarsening"].push_back({{"coordinates", group.coordinates}, {"shared", shared}});
    if (g >= kShown) continue;
    std::vector<std::string> coordinates;
    for (const Coordinate c : group.coordinates) coordinates.push_back(std::to_string(c));
    finding.text += "  coordinates " + join_shown(coordinates);
    if (!shared.empty()) finding.text += " with " + join_shown(shared);
    finding.text += "\n";
  }
  if (coarsening.groups.size() > kShown) {
    finding.text += fmt::format("  and {} more groups\n", coarsening.groups.size() - kShown);
  }

  // What is left in a temporary at the end of a program is nobody's result.
  Program ending_in_names = of_stage;
  if (stage + 1 == program.stages.size()) {
    ending_in_names.constants.emplace_back(0);
    const auto zero = static_cast<Slot>(ending_in_names.constants.size() - 1);
    for (Slot slot = 0; slot < program.names.size(); ++slot) {
      if (program.names[slot].empty()) {
        ending_in_names.assignments.push_back({slot, ValueFunction::constant, {zero}});
      }
    }
  }
  const Harm harm = find_harm(program.classification, ending_in_names);
  finding.json["harmless"] = !harm.slot;
  if (!harm.slot) {
    finding.text +=
        "\nHarmless here: what is read never reaches the final value of a slot outside its "
        "coordinate,\nso every owner still computes what the whole program does.\n";
    return finding;
  }
  finding.json["differs_at"] = slot_name(file, program, *harm.slot);
  if (!harm.numbers) {
    finding.text += fmt::format(
        "\nThe owner of {} computes another expression than the whole program; no small numbers "
        "were\nfound on which the two differ.\n",
        slot_name(file, program, *harm.slot));
    return finding;
  }
  const Counterexample& example = *harm.numbers;
  const std::string owns = example.owned ? fmt::format("owns coordinate {}", *example.owned)
                                         : std::string("owns no coordinate");
  finding.text += fmt::format(
      "\nIt breaks: owner 0 {}, owner 1 the others. Slots start at (all others at 0, whatever the "
      "program declares)\n"
      "  {:<24} {:>20} {:>20}\n",
      owns, "slot", "whole program", "owner 0");
  nlohmann::json starts = nlohmann::json::array();
  for (const Counterexample::Start& start : example.starts) {
    finding.text += fmt::format("  {:<24} {:>20} {:>20}\n", slot_name(file, program, start.slot),
                                to_string(start.state), to_string(start.start));
    starts.push_back({{"slot", slot_name(file, program, start.slot)},
                      {"state", to_string(start.state)},
                      {"start", to_string(start.start)}});
  }
  finding.text +=
      fmt::format("and {} ends at\n  {:<24} {:>20} {:>20}\n",
                  slot_name(file, program, example.slot), slot_name(file, program, example.slot),
                  to_string(example.whole), to_string(example.by_owner));
  finding.json["counterexample"] = {{"owner_0", owns},
                                    {"starts", starts},
                                    {"slot", slot_name(file, program, example.slot)},
                                    {"whole", to_string(example.whole)},
                                    {"by_owner", to_string(example.by_owner)}};
  return finding;
}

Result<ClassifiedProgram> classified(const ProgramFile& file, const SeparableArguments& arguments) {
  if (file.text.whole()) return compile_whole(file.name, file.text);
  Result<ArrayProgram> array = compile_array(file.name, file.text);
  if (!array) return Error{array.error()};
  Result<std::vector<ParameterShape>> shapes = parse_shapes(arguments.sizes);
  if (!shapes) return Error{shapes.error()};
  if (elements(Scope::coordinate, *shapes) == 0) {
    return Error{
        fmt::format("--sizes {}: has no coordinate to try the program on", arguments.sizes)};
  }
  constexpr std::size_t kMostCoordinates = 1'000'000;
  if (elements(Scope::coordinate, *shapes) > kMostCoordinates) {
    return Error{fmt::format("--sizes {}: has more than {} coordinates; smaller ones tell as much",
                             arguments.sizes, kMostCoordinates)};
  }
  return expand(*array, *shapes);
}

int separable(const SeparableArguments& arguments) {
  const Result<ProgramFile> file = load_program(arguments.program);
  if (!file) return fail(file.error(), bad_input);
  const Result<ClassifiedProgram> program = classified(*file, arguments);
  if (!program) return fail(program.error(), bad_input);

  std::set<Coordinate> coordinates;
  std::size_t shared = 0, assignments = 0;
  for (Slot slot = 0; slot < program->classification.slots(); ++slot) {
    const auto coordinate = program->classification(slot);
    if (coordinate) {
      coordinates.insert(*coordinate);
    } else {
      ++shared;
    }
  }
  std::size_t stage = 0;
  std::optional<Violation> violation;
  for (; stage < program->stages.size(); ++stage) {
    assignments += program->stages[stage].program.assignments.size();
    violation =
        is_slot_separable(program->classification, program->stages[stage].program).violation;
    if (violation) break;
  }
  const bool whole = file->text.whole();
  nlohmann::json json = {{"schema", "shardproof/separable/1"},
                         {"version", SHARDPROOF_VERSION},
                         {"program", file->name},
                         {"separable", !violation},
                         {"coordinates", coordinates.size()},
                         {"shared_slots", shared},
                         {"collectives", program->stages.size() - 1}};
  if (!whole) json["sizes"] = arguments.sizes;
  std::string text;
  if (!violation) {
    json["assignments"] = assignments;
    text = fmt::format("separable: {}, {} coordinates, {} shared slots, {} assignments", file->name,
                       coordinates.size(), shared, assignments);
    if (!whole) text += fmt::format(", parameters of {}", arguments.sizes);
    if (program->stages.size() > 1) {
      text += fmt::format(
          "\nin {} programs, with a collective between one and the next: each is separable",
          program->stages.size());
    }
    text += "\n";
  } else {
    Finding finding = explain(*file, *program, stage, *violation);
    text = "not separable: " + finding.text;
    json.update(finding.json);
  }
  if (!print(arguments.json ? json.dump(1) + "\n" : text)) return no_verdict;
  return violation ? disagrees : agrees;
}

}  // namespace

void add_separable(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<SeparableArguments>();
  CLI::App* command = program.add_subcommand(
      "separable", "Tell whether an optimizer program may be partitioned by ownership");
  command->add_option("program", arguments->program, "A .slots file, or an optimizer: adamw, lamb")
      ->required();
  command
      ->add_option("--sizes", arguments->sizes,
                   "Parameters to try it on, of a program over arrays: 1000,7,0,5,4x3")
      ->capture_default_str();
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->footer(
      "Example: shardproof separable lamb\n"
      "Exit: 0 separable, 1 not, 2 unreadable");
  command->callback([arguments, &exit_code] { exit_code = separable(*arguments); });
}

}  // namespace shardproof::cli
