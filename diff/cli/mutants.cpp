// shardproof mutants: the harness measured by kernels that are wrong on purpose and by correct ones
// in other arithmetic (docs/mutants.md, which this command writes).
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "diff/cli/command.h"
#include "properties/mutants/zoo.h"

namespace shardproof::cli {
namespace {

constexpr std::uint64_t kMostCases = 1'000'000'000;
constexpr std::size_t kTightnessOutputs = 100'000;

struct MutantsArguments {
  std::vector<std::string> names;
  bool list = false, json = false, markdown = false;
  std::uint64_t cases = ZooTask{}.cases, control_cases = ZooTask{}.control_cases;
  std::uint64_t seed = 1, threads = 0;
};

Result<std::vector<const Mutant*>> chosen(const std::vector<std::string>& names) {
  std::vector<const Mutant*> found;
  for (const Mutant& mutant : all_mutants()) {
    if (names.empty() || std::find(names.begin(), names.end(), mutant.name) != names.end()) {
      found.push_back(&mutant);
    }
  }
  for (const std::string& name : names) {
    if (std::none_of(found.begin(), found.end(),
                     [&](const Mutant* mutant) { return mutant->name == name; })) {
      return Error{name + ": no such mutant; shardproof mutants --list names them"};
    }
  }
  return found;
}

int list(const MutantsArguments& arguments) {
  std::string text;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Mutant& mutant : all_mutants()) {
    text += fmt::format("{:<8} {}: {}{}\n", mutant.control ? "control" : "mutant", mutant.name,
                        mutant.what, mutant.report.empty() ? "" : " (" + mutant.report + ")");
    json.push_back({{"name", mutant.name},
                    {"control", mutant.control},
                    {"needs_contract", mutant.needs_contract},
                    {"what", mutant.what},
                    {"report", mutant.report}});
  }
  return print(arguments.json ? json.dump(1) + "\n" : text) ? agrees : no_verdict;
}

std::string name_of(const ZooEntry& entry) {
  return entry.mutant->name + (entry.contract_kept ? "" : ", without its contract");
}

// As it may stand in a cell of a Markdown table.
std::string cell(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '|' ? "\\|" : std::string(1, c);
  return escaped;
}

std::string usual_of(const ZooEntry& entry) {
  return entry.usual.beyond > 0 ? "finds it" : "misses it";
}

// What one run came to.
class Score {
 public:
  Score(const MutantsArguments& arguments, std::vector<ZooEntry> entries,
        std::vector<Tightness> tightness, double seconds)
      : arguments_(arguments),
        entries_(std::move(entries)),
        tightness_(std::move(tightness)),
        seconds_(seconds) {
    std::vector<double> times;
    for (const ZooEntry& entry : entries_) {
      if (entry.must_be_caught()) {
        ++wrong_;
        if (entry.caught) {
          ++caught_;
          times.push_back(entry.seconds);
          if (entry.usual.beyond > 0) ++usually_caught_;
        }
      } else {
        ++controls_;
        control_cases_ += entry.cases;
        usual_cases_ += entry.usual.cases;
        usual_alarms_ += entry.usual.beyond;
        if (entry.caught) ++flagged_;
      }
    }
    std::sort(times.begin(), times.end());
    if (!times.empty()) median_ = times[times.size() / 2];
  }

  bool good() const { return caught_ == wrong_ && flagged_ == 0; }

  std::string summary() const {
    return fmt::format(
        "{}: {} of {} mutants caught, median {:.3f} s to the first failure; {} of {} controls "
        "flagged in {} cases; assert_close on the same cases: {} mutants found, {} of {} cases of "
        "controls flagged; seed {}, {:.1f} s\n",
        good() ? "agrees" : "disagrees", caught_, wrong_, median_, flagged_, controls_,
        control_cases_, usually_caught_, usual_alarms_, usual_cases_, arguments_.seed, seconds_);
  }

  std::string text() const {
    std::string text;
    for (const ZooEntry& entry : entries_) {
      const std::string outcome = entry.caught             ? "caught"
                                  : entry.must_be_caught() ? "SURVIVES"
                                                           : "agrees";
      text += fmt::format("{:<9} {}{}\n          {}, {} discarded, {:.3f} s", outcome,
                          entry.must_be_caught() ? "" : "control ", name_of(entry),
                          counted(entry.cases, "case", "cases"), entry.discards, entry.seconds);
      if (entry.must_be_caught()) text += "; assert_close " + usual_of(entry);
      text += "\n";
      if (!entry.caught) continue;
      const Caught& caught = *entry.caught;
      text +=
          fmt::format("          {}, {}{}{}: {}\n", caught.identity->label, caught.property->name,
                      caught.input.empty() ? "" : ", " + caught.input,
                      caught.numbers ? fmt::format(", shrunk to {} numbers", *caught.numbers) : "",
                      caught.shrunk.message);
    }
    for (const Tightness& each : tightness_) {
      text += fmt::format("tightness {:<45} {:.2f} over {} outputs\n", each.what, each.least,
                          each.outputs);
    }
    return text + summary();
  }

  std::string markdown() const {
    std::string text = fmt::format(
        "# Mutants: how much the harness sees\n\n"
        "Written by `shardproof mutants --markdown`; do not edit. Seed {}; seconds are of one "
        "machine and differ elsewhere.\n\n"
        "A mutant is a kernel that is wrong on purpose, most after a public report; it is one "
        "entry of a candidate's table (`device/engine/candidate.h`) and runs in a child process, "
        "as a candidate of yours does. It is given the device cases of `shardproof check` in turn "
        "until one fails. A control is a correct kernel in other arithmetic: none may fail. "
        "`assert_close` is |a − e| <= 1e-5 + 1.3e-6·|e| against the built-in device on the same "
        "cases, up to the one that failed: PyTorch's defaults for float32 "
        "(torch/testing/_comparison.py), with NaN equal to NaN.\n\n{}\n",
        arguments_.seed, summary());
    text +=
        "## Mutants\n\n| mutant | fault | report | caught by | input | cases | seconds | numbers "
        "when shrunk | assert_close |\n|---|---|---|---|---|---|---|---|---|\n";
    for (const ZooEntry& entry : entries_) {
      if (!entry.must_be_caught()) continue;
      const Mutant& mutant = *entry.mutant;
      text += fmt::format("| {} | {} | {} |", name_of(entry), cell(mutant.what), mutant.report);
      if (entry.caught) {
        const Caught& caught = *entry.caught;
        text += fmt::format(" {} | {} | {} | {:.3f} | {} |", caught.identity->label, caught.input,
                            entry.cases, entry.seconds,
                            caught.numbers ? std::to_string(*caught.numbers) : "");
      } else {
        text += fmt::format(" **survives** | | {} | {:.3f} | |", entry.cases, entry.seconds);
      }
      text += fmt::format(" {} |\n", usual_of(entry));
    }
    text +=
        "\n## Controls\n\n| control | what it does | cases | flagged | flagged by assert_close, "
        "of those looked at |\n|---|---|---|---|---|\n";
    for (const ZooEntry& entry : entries_) {
      if (entry.must_be_caught()) continue;
      text += fmt::format("| {} | {}{} | {} | {} | {} of {} |\n", entry.mutant->name,
                          cell(entry.mutant->what),
                          entry.mutant->needs_contract ? "; with its contract" : "", entry.cases,
                          entry.caught ? "**yes**" : "no", entry.usual.beyond, entry.usual.cases);
    }
    text +=
        "\n## Tightness\n\nThe least of bound ÷ error over the outputs of dithered cases of at "
        "most 98 numbers a channel, on the built-in device.\n\n| compared | tightness | outputs "
        "|\n|---|---|---|\n";
    for (const Tightness& each : tightness_) {
      text += fmt::format("| {} | {:.2f} | {} |\n", each.what, each.least, each.outputs);
    }
    text +=
        "\n## Reported faults that the interface cannot express\n\n| report | why "
        "|\n|---|---|\n";
    for (const NotExpressed& each : faults_not_expressed()) {
      text += fmt::format("| {} | {} |\n", each.report, each.why);
    }
    return text;
  }

  std::string json() const {
    nlohmann::ordered_json entries = nlohmann::ordered_json::array();
    for (const ZooEntry& entry : entries_) {
      nlohmann::ordered_json one = {
          {"name", entry.mutant->name},
          {"control", entry.mutant->control},
          {"contract_kept", entry.contract_kept},
          {"report", entry.mutant->report},
          {"what", entry.mutant->what},
          {"cases", entry.cases},
          {"discarded", entry.discards},
          {"caught", entry.caught.has_value()},
          {"as_expected", entry.as_expected()},
          {"assert_close", {{"cases", entry.usual.cases}, {"beyond", entry.usual.beyond}}},
          {"seconds", entry.seconds}};
      if (entry.caught) {
        const Caught& caught = *entry.caught;
        one["by"] = {{"identity", caught.identity->name},
                     {"property", caught.property->name},
                     {"case", caught.index},
                     {"input", caught.input},
                     {"found", caught.found.message},
                     {"shrunk", caught.shrunk.message}};
        if (caught.numbers) one["by"]["numbers"] = *caught.numbers;
      }
      entries.push_back(std::move(one));
    }
    nlohmann::ordered_json tightness = nlohmann::ordered_json::array();
    for (const Tightness& each : tightness_) {
      nlohmann::ordered_json one = {{"compared", each.what}, {"outputs", each.outputs}};
      if (std::isfinite(each.least)) one["tightness"] = each.least;
      tightness.push_back(std::move(one));
    }
    const nlohmann::ordered_json json = {{"schema", "shardproof/mutants/1"},
                                         {"version", SHARDPROOF_VERSION},
                                         {"verdict", good() ? "agrees" : "disagrees"},
                                         {"seed", arguments_.seed},
                                         {"mutants", wrong_},
                                         {"caught", caught_},
                                         {"controls", controls_},
                                         {"flagged", flagged_},
                                         {"entries", std::move(entries)},
                                         {"tightness", std::move(tightness)},
                                         {"seconds", seconds_}};
    return json.dump(1) + "\n";
  }

 private:
  const MutantsArguments& arguments_;
  std::vector<ZooEntry> entries_;
  std::vector<Tightness> tightness_;
  double seconds_, median_ = 0;
  std::size_t wrong_ = 0, caught_ = 0, usually_caught_ = 0;
  std::size_t controls_ = 0, flagged_ = 0, control_cases_ = 0;
  std::size_t usual_cases_ = 0, usual_alarms_ = 0;
};

int run(const MutantsArguments& arguments) {
  const auto mutants = chosen(arguments.names);
  if (!mutants) return fail(mutants.error(), bad_input);
  ZooTask task;
  task.mutants = *mutants;
  for (const Identity& identity : all_identities()) task.identities.push_back(&identity);
  task.cases = arguments.cases;
  task.control_cases = arguments.control_cases;
  task.seed = arguments.seed;
  task.threads = threads_of(arguments.threads);
  const auto start = std::chrono::steady_clock::now();
  const Progress progress = progress_bar("mutants");
  std::vector<ZooEntry> entries = run_zoo(task, [&](std::size_t done, std::size_t all) {
    if (progress) progress(static_cast<double>(done) / static_cast<double>(all));
  });
  std::vector<Tightness> tightness;
  if (arguments.names.empty()) tightness = measure_tightness(kTightnessOutputs, arguments.seed);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const Score score(arguments, std::move(entries), std::move(tightness), seconds);
  const bool written = print(arguments.json       ? score.json()
                             : arguments.markdown ? score.markdown()
                                                  : score.text());
  if (!score.good()) return disagrees;
  return written ? agrees : no_verdict;
}

}  // namespace

void add_mutants(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<MutantsArguments>();
  CLI::App* command = program.add_subcommand(
      "mutants", "Measure the harness: wrong kernels must be caught, correct ones must not");
  command->add_option("names", arguments->names, "Mutants and controls to run (default: all)")
      ->check(some_name());
  command->add_flag("--list", arguments->list, "List them and the faults they repeat");
  command
      ->add_option("--cases", arguments->cases,
                   "Cases of each property that a mutant gets, fewer where they are costly")
      ->check(whole_number(1, kMostCases))
      ->capture_default_str();
  command->add_option("--control-cases", arguments->control_cases, "Cases of all controls together")
      ->check(whole_number(1, kMostCases))
      ->capture_default_str();
  add_seed_option(*command, arguments->seed);
  add_threads_option(*command, arguments->threads);
  CLI::Option* json = command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command
      ->add_flag("--markdown", arguments->markdown,
                 "Print the page docs/mutants.md instead of text")
      ->excludes(json);
  command->footer(
      "Example: shardproof mutants --threads 2\n"
      "Exit: 0 all mutants are caught and no control is flagged, 1 otherwise, 2 bad input, 4 not "
      "written");
  command->callback([arguments, &exit_code] {
    exit_code = arguments->list ? list(*arguments) : run(*arguments);
  });
}

}  // namespace shardproof::cli
