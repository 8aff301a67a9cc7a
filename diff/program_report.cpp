#include "diff/program_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "diff/digest.h"
#include "diff/report.h"

namespace shardproof {
namespace {

// A float32 number, and its bits where decimal digits do not show all there is.
std::string number(double x) { return fmt::format("{:.9g} ({:a})", x, x); }

std::string sentence(const ProgramReport& report, const ProgramDisagreement& wrong) {
  std::string text =
      fmt::format("{}: step {}, {} on rank {}", wrong.claim, wrong.step, wrong.slot, wrong.rank);
  if (wrong.owner) text += fmt::format(" (owner {})", *wrong.owner);
  text += fmt::format("\n    got {}, expected {}", number(wrong.got), number(wrong.expected));
  if (wrong.bound > 0) text += fmt::format(" within {:.3g}", wrong.bound);
  if (wrong.line > 0) {
    text += "\n    written by " + quoted_line(report.program, report.lines, wrong.line);
  }
  return text + fmt::format("\n    input: {}\n", wrong.input);
}

std::string command_of(const ProgramReport& report, const SmallestCase& smallest) {
  return fmt::format("--sizes {} --replicas {} --steps {} --seed {}", to_string(smallest.shapes),
                     smallest.ranks, smallest.steps, smallest.seed) +
         (report.owners == "mod" || report.owners == "blocks" || report.owners == "greedy"
              ? " --owners " + report.owners
              : "");
}

nlohmann::json to_json(const ProgramReport& report, const ProgramDisagreement& wrong) {
  nlohmann::json json = {{"claim", wrong.claim},
                         {"input", wrong.input},
                         {"step", wrong.step},
                         {"rank", wrong.rank},
                         {"slot", wrong.slot},
                         {"got", fmt::format("{:a}", wrong.got)},
                         {"expected", fmt::format("{:a}", wrong.expected)},
                         {"bound", fmt::format("{:a}", wrong.bound)},
                         {"line", wrong.line}};
  if (wrong.owner) json["owner"] = *wrong.owner;
  if (wrong.line > 0 && wrong.line <= report.lines.size()) {
    json["assignment"] = report.lines[wrong.line - 1];
  }
  return json;
}

}  // namespace

std::string to_string(const std::vector<ParameterShape>& shapes) {
  std::string text;
  for (const ParameterShape& shape : shapes) {
    if (!text.empty()) text += ",";
    text += std::to_string(shape.rows);
    if (shape.columns != 1) text += "x" + std::to_string(shape.columns);
  }
  return text;
}

std::string quoted_line(const std::string& program, const std::vector<std::string>& lines,
                        std::size_t line) {
  return fmt::format("{}:{}: {}", program, line,
                     line >= 1 && line <= lines.size() ? lines[line - 1] : "");
}

std::string to_text(const ProgramReport& report) {
  const ProgramResult& result = report.result;
  std::string text = fmt::format(
      "{}: {}, {} coordinates in parameters of {}, {} ranks, owners {}, {} steps, seed {}\n"
      "device: {}\n"
      "device and reference are compared {}\n\n",
      to_string(result.verdict()), report.program, report.coordinates, report.sizes, report.ranks,
      report.owners, report.steps, report.seed, result.device,
      result.exact ? "bit for bit" : "within running error bounds: the contract has contraction");
  if (!result.failure.empty()) text += "the device failed: " + result.failure + "\n\n";
  if (!result.out_of_memory.empty()) text += "out of memory: " + result.out_of_memory + "\n\n";
  if (!result.disagreements.empty()) {
    text += "wrong: the first number of each claim\n";
    for (const ProgramDisagreement& wrong : result.disagreements) {
      text += "  " + sentence(report, wrong);
    }
    text += "\n";
  }
  if (!result.overwritten.empty()) {
    text += "written outside of what is owned\n";
    constexpr std::size_t kShown = 10;
    for (std::size_t i = 0; i < std::min(kShown, result.overwritten.size()); ++i) {
      text += "  " + result.overwritten[i] + "\n";
    }
    if (result.overwritten.size() > kShown) {
      text += fmt::format("  and {} more, all in the JSON\n", result.overwritten.size() - kShown);
    }
    text += "\n";
  }
  if (!result.unjudged.empty()) {
    text += fmt::format("compared no finite number: {}\n\n", fmt::join(result.unjudged, "; "));
  }
  if (result.smallest) {
    text += "smallest failing case: " + command_of(report, *result.smallest) + "\n  " +
            sentence(report, result.smallest->disagreement) + "\n";
  }
  text += fmt::format("{:<64} {:>12} {:>8} {:>11}\n", "claim, on which input", "numbers", "wrong",
                      "not judged");
  std::string claim;
  for (const Comparison& comparison : result.comparisons) {
    if (comparison.part != claim) text += comparison.part + "\n";
    claim = comparison.part;
    text += fmt::format("  {:<62} {:>12} {:>8} {:>11}\n", comparison.node, comparison.compared,
                        comparison.wrong, comparison.not_judged);
  }
  return text + fmt::format("\ntook {:.1f} s\n", report.seconds);
}

nlohmann::json to_json(const ProgramReport& report) {
  using nlohmann::json;
  const ProgramResult& result = report.result;
  json out = {{"schema", "shardproof/signoff-program/1"},
              {"version", report.version},
              {"verdict", to_string(result.verdict())},
              {"program", report.program},
              {"sizes", report.sizes},
              {"coordinates", report.coordinates},
              {"replicas", report.ranks},
              {"owners", report.owners},
              {"steps", report.steps},
              {"seed", report.seed},
              {"device", result.device},
              {"bit_for_bit", result.exact},
              {"failure", result.failure},
              {"out_of_memory", result.out_of_memory},
              {"overwritten", result.overwritten},
              {"unjudged", result.unjudged},
              {"disagreements", json::array()},
              {"comparisons", json::array()},
              {"seconds", report.seconds}};
  for (const ProgramDisagreement& wrong : result.disagreements) {
    out["disagreements"].push_back(to_json(report, wrong));
  }
  for (const Comparison& comparison : result.comparisons) {
    out["comparisons"].push_back({{"claim", comparison.node},
                                  {"input", comparison.part},
                                  {"numbers", comparison.compared},
                                  {"wrong", comparison.wrong},
                                  {"not_judged", comparison.not_judged}});
  }
  if (result.smallest) {
    out["smallest"] = {{"sizes", to_string(result.smallest->shapes)},
                       {"replicas", result.smallest->ranks},
                       {"steps", result.smallest->steps},
                       {"seed", result.smallest->seed},
                       {"disagreement", to_json(report, result.smallest->disagreement)}};
  }
  seal(out);
  return out;
}

}  // namespace shardproof
