// shardproof replay: one saved case again, explained (agreement §6).
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#include "diff/case_file.h"
#include "diff/cli/command.h"
#include "diff/explain.h"
#include "diff/explain_program.h"
#include "properties/check.h"

namespace shardproof::cli {
namespace {

struct ReplayArguments {
  std::string path;
  bool explain = false, json = false;
  std::optional<std::uint64_t> seed;
  DeviceArguments device;
};

// What is said of a case, by the record or by a device.
struct Judged {
  std::string who;  // the device
  Outcome outcome = Outcome::not_judged;
  std::string told;  // what is wrong
  std::string explanation;
  nlohmann::ordered_json explanation_in_json;
};

const Identity* identity_of(const CaseFile& file) {
  for (const Identity& identity : all_identities()) {
    if (identity.name == file.identity) return &identity;
  }
  return nullptr;
}
const Property* property_of(const CaseFile& file) {
  const Identity* identity = identity_of(file);
  if (identity == nullptr) return nullptr;
  for (const Property& property : identity->properties) {
    if (property.name == file.property) return &property;
  }
  return nullptr;
}

Judged judged(const UnitCase& c, const UnitVerdict& verdict, bool is_recorded) {
  Judged result;
  result.who = verdict.device;
  result.outcome = verdict.outcome();
  // A record holds one run: what was suspect in it stands as it was settled.
  if (is_recorded && result.outcome == Outcome::suspect) result.outcome = Outcome::wrong;
  const Comparison* wrong = verdict.first_wrong();
  result.told = wrong != nullptr ? describe(*wrong) : verdict.failure;
  const Explanation explanation = explained(c, verdict);
  result.explanation = to_text(explanation);
  result.explanation_in_json = to_json(explanation);
  return result;
}

Judged judged(const ProgramCase& c, const ProgramResult& result, const DeviceMaker& make) {
  Judged judged;
  judged.who = result.device;
  const auto wrong = first_wrong(result);
  if (wrong) judged.told = describe(*wrong);
  switch (result.verdict()) {
    case SignoffResult::Verdict::agrees:
      judged.outcome = Outcome::agrees;
      break;
    case SignoffResult::Verdict::disagrees:
      judged.outcome = Outcome::wrong;
      break;
    case SignoffResult::Verdict::none:
      judged.told = result.out_of_memory;
      break;
  }
  const Explanation explanation = explained(c, result, make);
  judged.explanation = to_text(explanation);
  judged.explanation_in_json = to_json(explanation);
  return judged;
}

// The record of a unit is judged anew; that of anything else is what it says.
Judged by_record(const CaseFile& file) {
  const Recorded& recorded = *file.recorded;
  if (const auto* unit = std::get_if<UnitCase>(&file.content);
      unit != nullptr && !recorded.written.empty()) {
    UnitVerdict verdict = judge_recorded(*unit, recorded.written, recorded.contracts);
    verdict.device = recorded.device;
    // What failed and gave no number cannot be judged anew.
    if (recorded.verdict == Outcome::wrong && !recorded.worst) verdict.failure = recorded.told;
    return judged(*unit, verdict, true);
  }
  return {recorded.device + ", as the file says", recorded.verdict, recorded.told, "", nullptr};
}

// Of draws alone: the identity's property on them. An error where this program does not have it.
Result<Judged> by_property(const CaseFile& file, const DeviceMaker& make) {
  const Property* property = property_of(file);
  if (property == nullptr) {
    return Error{
        "/property: this program has no such property of that identity; shardproof check "
        "--list names them"};
  }
  const CaseResult tried = try_case(*property, Draws(file.draws), make);
  if (!tried.draws.as_given()) {
    return Error{"/draws: the property now draws " + to_string(tried.draws.record()) +
                 "; the case is of another version of the program (" + file.version + ")"};
  }
  Judged result;
  result.who = property->form == Property::Form::device ? make(1, {})->name() : "the reference";
  result.told = tried.message;
  if (tried.outcome == CaseResult::Outcome::holds) result.outcome = Outcome::agrees;
  if (tried.fails()) result.outcome = Outcome::wrong;
  result.explanation = tried.message.empty() ? "" : tried.message + "\n";
  return result;
}

Result<Judged> by_device(const CaseFile& file, const ReplayArguments& arguments) {
  const DeviceMaker make = device_maker(arguments.device, 1);
  if (auto unit = std::get_if<UnitCase>(&file.content)) {
    UnitCase c = *unit;
    if (arguments.seed) c.schedule.seed = *arguments.seed;
    return judged(c, judge_unit_case(make, c), false);
  }
  if (auto program = std::get_if<ProgramCase>(&file.content)) {
    ProgramCase c = *program;
    if (arguments.seed) c.schedule.seed = *arguments.seed;
    return judged(c, judge_program_case(make, c), make);
  }
  return by_property(file, make);
}

std::string verdict_of(Outcome outcome) {
  if (outcome == Outcome::wrong) return "disagrees";
  return outcome == Outcome::agrees ? "agrees" : "no verdict";
}

int replay(const ReplayArguments& arguments) {
  const Result<CaseFile> file = read_case_file(arguments.path);
  if (!file) return fail(file.error(), bad_input);
  std::optional<Judged> record, device;
  if (file->recorded) record = by_record(*file);
  if (arguments.device.backend == "recorded") {
    if (!record) return fail(arguments.path + ": nothing was recorded in it", bad_input);
  } else {
    try {
      Result<Judged> result = by_device(*file, arguments);
      if (!result) return fail(arguments.path + ": " + result.error(), bad_input);
      device = *std::move(result);
    } catch (const OutOfDeviceMemory& error) {
      return fail(error.what(), no_verdict);
    } catch (const DeviceError& error) {
      return no_device(arguments.device, error);
    }
  }

  const Judged& last = device ? *device : *record;
  std::string text = fmt::format("case: {}\nidentity: {}, {}\ndraws: {}\nsaved by: shardproof {}\n",
                                 arguments.path, file->identity, file->property,
                                 to_string(file->draws), file->version);
  nlohmann::ordered_json json = {
      {"schema", "shardproof/replay/1"}, {"version", SHARDPROOF_VERSION},
      {"case", arguments.path},          {"identity", file->identity},
      {"property", file->property},      {"draws", to_json(file->draws)},
      {"saved_by", file->version},       {"verdict", verdict_of(last.outcome)}};
  const auto tell = [&](const char* key, const std::string& what, const Judged& one) {
    text += fmt::format("{}: {} ({}){}\n", what, verdict_of(one.outcome), one.who,
                        one.told.empty() ? "" : ": " + one.told);
    json[key] = {{"device", one.who}, {"verdict", verdict_of(one.outcome)}, {"told", one.told}};
    if (!arguments.explain) return;
    // The device that is wrong as it was is explained once.
    const bool again = record && &one == &*record && device && device->told == one.told;
    if (!one.explanation.empty() && !again) text += "\n" + one.explanation + "\n";
    if (!one.explanation_in_json.is_null()) json[key]["explanation"] = one.explanation_in_json;
  };
  if (record) tell("recorded", "recorded", *record);
  if (device) tell("here", "here", *device);
  const bool gone =
      record && device && record->outcome == Outcome::wrong && device->outcome == Outcome::agrees;
  text += verdict_of(last.outcome) +
          (gone ? ": what was recorded does not show on the device here\n" : "\n");
  const bool written = print(arguments.json ? json.dump(1) + "\n" : text);
  if (last.outcome == Outcome::wrong) return disagrees;
  return last.outcome == Outcome::agrees && written ? agrees : no_verdict;
}

}  // namespace

void add_replay(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<ReplayArguments>();
  CLI::App* command = program.add_subcommand("replay", "Judge one saved case again");
  command->add_option("CASE", arguments->path, "A file that check --save wrote")
      ->required()
      ->check(some_name());
  command->add_flag("--explain", arguments->explain,
                    "Show where it fails and every replica's partial values");
  command
      ->add_option("--seed", arguments->seed,
                   "Of the schedule of threads and collectives, in place of the case's")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()));
  command
      ->add_option("--backend", arguments->device.backend,
                   "host, cuda, or recorded: the numbers in the file alone")
      ->check(CLI::IsMember({"host", "cuda", "recorded"}))
      ->capture_default_str();
  add_candidate_option(*command, arguments->device.candidate);
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->footer(
      "Example: shardproof replay fixtures/cases/NAME.json --explain\n"
      "Exit: 0 the device agrees, 1 it disagrees, 2 bad input, 3 backend not available, 4 no "
      "verdict");
  command->callback([arguments, &exit_code] { exit_code = replay(*arguments); });
}

}  // namespace shardproof::cli
