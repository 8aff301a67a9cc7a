// shardproof check: the identities on random cases, for CI (docs/ci.md).
#include "properties/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "diff/case_file.h"
#include "diff/cli/command.h"
#include "diff/report.h"

namespace shardproof::cli {
namespace {

constexpr std::uint64_t kUsualCases = 1000;
constexpr std::uint64_t kMostCases = 1'000'000'000;
constexpr std::uint64_t kMostSeconds = 31 * 24 * 3600;

struct CheckArguments {
  std::vector<std::string> identities = {"all"};
  bool list = false;
  std::uint64_t cases = 0, time = 0;  // 0: not given
  std::uint64_t seed = 1, threads = 0;
  DeviceArguments device;
  std::string junit, save;
  bool json = false;
};

using Form = Property::Form;

std::string form_of(const Property& property) {
  return property.form == Form::device ? "device" : "reference";
}

// Those named, by name or label, in the order of the specification.
Result<std::vector<const Identity*>> chosen(const std::vector<std::string>& names) {
  std::vector<const Identity*> found;
  std::vector<std::string> unknown = names;
  for (const Identity& identity : all_identities()) {
    bool wanted = false;
    for (const std::string& name : names) {
      if (name != "all" && name != identity.name && name != identity.label) continue;
      wanted = true;
      std::erase(unknown, name);
    }
    if (wanted) found.push_back(&identity);
  }
  std::erase(unknown, "all");
  if (!unknown.empty()) {
    return Error{"--identity " + unknown.front() +
                 ": no such identity; shardproof check --list names them"};
  }
  return found;
}

int list(const CheckArguments& arguments) {
  std::string text;
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Identity& identity : all_identities()) {
    text +=
        fmt::format("{:<6} {}\n       {}{}\n", identity.label, identity.name, identity.statement,
                    identity.theorem.empty() ? "" : " (" + identity.theorem + ")");
    nlohmann::ordered_json properties = nlohmann::ordered_json::array();
    for (const Property& property : identity.properties) {
      text += fmt::format("         {:<9} {}\n", form_of(property), property.name);
      properties.push_back({{"name", property.name}, {"form", form_of(property)}});
    }
    json.push_back({{"name", identity.name},
                    {"label", identity.label},
                    {"statement", identity.statement},
                    {"theorem", identity.theorem},
                    {"properties", std::move(properties)}});
  }
  return print(arguments.json ? json.dump(1) + "\n" : text) ? agrees : no_verdict;
}

std::string outcome_of(const PropertyReport& report) {
  if (report.failure) return "fails";
  return report.holds() ? "holds" : "no case";
}

// "P1-a-site-on-the-device-seed-1-case-0.json": what a saved case is called in its folder.
std::string case_name(const PropertyReport& report, std::uint64_t seed) {
  std::string name = report.identity->label + "-" + report.property->name + "-seed-" +
                     std::to_string(seed) + "-case-" + std::to_string(report.failure->index);
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; },
      '-');
  return name + ".json";
}

// What was found, and how to see it again.
struct Found {
  std::string path;     // of the saved case; empty: none
  std::string command;  // that shows it
};

// "1 20 %, 2 19 %": values in order of size, then names.
std::string shares(const std::map<std::string, std::size_t>& counts, std::size_t all) {
  std::vector<std::pair<std::string, std::size_t>> sorted(counts.begin(), counts.end());
  const auto number = [](const std::string& text) {
    std::uint64_t value = std::numeric_limits<std::uint64_t>::max();
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const auto& a, const auto& b) { return number(a.first) < number(b.first); });
  std::string text;
  for (const auto& [value, count] : sorted) {
    const double percent = 100 * static_cast<double>(count) / static_cast<double>(all);
    text += fmt::format("{}{} {} %", text.empty() ? "" : ", ", value,
                        percent < 0.5 ? "<1" : fmt::format("{:.0f}", percent));
  }
  return text;
}

std::string to_text(const PropertyReport& report, const Found& found) {
  std::string text =
      fmt::format("{:<7} {:<6} {}, {}\n        {}, {}, {}, {:.2f} s\n", outcome_of(report),
                  report.identity->label, report.identity->name, report.property->name,
                  form_of(*report.property), counted(report.cases, "case", "cases"),
                  fmt::format("{} discarded", report.discards), report.seconds);
  for (const auto& [name, counts] : report.draws) {
    text += fmt::format("          {:<22} {}\n", name, shares(counts, report.cases));
  }
  if (report.failure) {
    const Failure& failure = *report.failure;
    text += fmt::format("        case {} fails: {}\n          drawn: {}\n", failure.index,
                        failure.found.message, to_string(failure.found.draws.record()));
    text += fmt::format("        shrunk: {}\n          drawn: {}\n", failure.shrunk.message,
                        to_string(failure.shrunk.draws.record()));
    if (!found.path.empty()) text += "        saved: " + found.path + "\n";
  } else if (!report.holds()) {
    text += "        every case was discarded: nothing was tried\n";
  }
  return text;
}

std::string escaped(const std::string& text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      case '\n':
        result += "&#10;";
        break;
      default:
        result += c;
    }
  }
  return result;
}

class Run {
 public:
  explicit Run(const CheckArguments& arguments)
      : arguments_(arguments), make_(device_maker(arguments.device, 1)) {}

  int run() {
    const auto identities = chosen(arguments_.identities);
    if (!identities) return fail(identities.error(), bad_input);
    if (!arguments_.save.empty()) {
      if (auto ready = ready_folder("--save", arguments_.save); !ready) {
        return fail(ready.error(), bad_input);
      }
    }
    if (!arguments_.junit.empty()) {
      if (std::filesystem::is_directory(arguments_.junit)) {
        return fail("--junit " + arguments_.junit + ": a folder; name a file", bad_input);
      }
      const std::filesystem::path folder =
          std::filesystem::absolute(arguments_.junit).parent_path();
      if (auto ready = ready_folder("--junit", folder.string()); !ready) {
        return fail(ready.error(), bad_input);
      }
    }
    CheckTask task;
    task.identities = *identities;
    if (arguments_.cases > 0) task.cases = arguments_.cases;
    if (arguments_.time > 0) task.seconds = static_cast<double>(arguments_.time);
    if (!task.cases && !task.seconds) task.cases = kUsualCases;
    task.seed = arguments_.seed;
    task.threads = threads_of(arguments_.threads);
    task.make = make_;
    try {
      static_cast<void>(make_(1, {}));  // shows that there is one; each case makes its own
    } catch (const DeviceError& error) {
      return no_device(arguments_.device, error);
    }
    const auto start = std::chrono::steady_clock::now();
    reports_ = check(
        task, [&](const PropertyReport& report) { property_done(report); }, progress_bar("check"));
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return finish();
  }

 private:
  void property_done(const PropertyReport& report) {
    Found found;
    if (report.failure) {
      const std::string run_again =
          fmt::format("{} check --identity {} --seed {} --cases {}{}", program_invocation_name,
                      report.identity->name, arguments_.seed,
                      (report.failure->index + 1) * report.property->one_in, on_candidate());
      found.command = run_again;
      if (!arguments_.save.empty()) save(report, found);
    }
    found_.push_back(found);
    if (!arguments_.json && written_) written_ = print(to_text(report, found));
  }

  // The option that judges the same kernels again.
  std::string on_candidate() const {
    const std::string& candidate = arguments_.device.candidate;
    return candidate.empty() ? "" : " --candidate " + quoted(candidate);
  }

  void save(const PropertyReport& report, Found& found) {
    const std::string path = arguments_.save + "/" + case_name(report, arguments_.seed);
    const auto saved = write_whole_files({{path, shardproof::to_text(case_file(report))}});
    if (!saved) {
      fail(saved.error(), no_verdict);
      written_ = false;
      return;
    }
    found.path = path;
    found.command = std::string(program_invocation_name) + " replay " + quoted(path) +
                    " --explain" + on_candidate();
  }

  CaseFile case_file(const PropertyReport& report) const {
    const CaseResult& shrunk = report.failure->shrunk;
    CaseFile file;
    file.identity = report.identity->name;
    file.property = report.property->name;
    file.version = SHARDPROOF_VERSION;
    file.draws = shrunk.draws.record();
    file.content = shrunk.wrong;
    file.recorded = std::visit(
        [&](const auto& content) -> Recorded {
          if constexpr (std::is_same_v<std::decay_t<decltype(content)>, std::monostate>) {
            Recorded recorded;
            recorded.device =
                report.property->form == Form::device ? make_(1, {})->name() : "the reference";
            recorded.verdict = Outcome::wrong;
            recorded.told = shrunk.message;
            return recorded;
          } else {
            return record(make_, content);
          }
        },
        file.content);
    return file;
  }

  int finish() {
    const bool any_fails = std::any_of(reports_.begin(), reports_.end(), [](const auto& report) {
      return report.failure.has_value();
    });
    const bool all_hold = std::all_of(reports_.begin(), reports_.end(),
                                      [](const auto& report) { return report.holds(); });
    if (!arguments_.junit.empty()) {
      const auto saved = write_whole_files({{arguments_.junit, to_junit()}});
      if (!saved) {
        fail(saved.error(), no_verdict);
        written_ = false;
      }
    }
    if (written_) written_ = print(arguments_.json ? to_json().dump(1) + "\n" : summary());
    if (any_fails) return disagrees;
    return all_hold && written_ ? agrees : no_verdict;
  }

  std::string summary() const {
    const auto failed = static_cast<std::size_t>(std::count_if(
        reports_.begin(), reports_.end(), [](const auto& r) { return r.failure.has_value(); }));
    const auto held = static_cast<std::size_t>(
        std::count_if(reports_.begin(), reports_.end(), [](const auto& r) { return r.holds(); }));
    std::size_t cases = 0;
    for (const PropertyReport& report : reports_) cases += report.cases;
    std::string text =
        fmt::format("{}: {} of {} hold, {} fail, {} tried nothing; {}, seed {}, {}, {:.1f} s\n",
                    verdict(), held, counted(reports_.size(), "property", "properties"), failed,
                    reports_.size() - held - failed, counted(cases, "case", "cases"),
                    arguments_.seed, judged(), seconds_);
    for (const Found& found : found_) {
      if (!found.command.empty()) text += "again: " + found.command + "\n";
    }
    return text;
  }

  // What was judged: "backend host", "candidate ./mine.so".
  std::string judged() const {
    const DeviceArguments& device = arguments_.device;
    return device.candidate.empty() ? "backend " + device.backend : "candidate " + device.candidate;
  }

  std::string verdict() const {
    bool all_hold = true;
    for (const PropertyReport& report : reports_) {
      if (report.failure) return "disagrees";
      all_hold = all_hold && report.holds();
    }
    return all_hold ? "agrees" : "no verdict";
  }

  nlohmann::ordered_json to_json() const {
    nlohmann::ordered_json properties = nlohmann::ordered_json::array();
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      const PropertyReport& report = reports_[i];
      nlohmann::ordered_json entry = {
          {"identity", report.identity->name}, {"label", report.identity->label},
          {"property", report.property->name}, {"form", form_of(*report.property)},
          {"outcome", outcome_of(report)},     {"cases", report.cases},
          {"discarded", report.discards},      {"draws", report.draws},
          {"seconds", report.seconds}};
      if (report.failure) {
        const auto described = [](const CaseResult& result) {
          return nlohmann::ordered_json{{"message", result.message},
                                        {"draws", shardproof::to_json(result.draws.record())}};
        };
        entry["failure"] = {{"case", report.failure->index},
                            {"found", described(report.failure->found)},
                            {"shrunk", described(report.failure->shrunk)},
                            {"again", found_[i].command}};
        if (!found_[i].path.empty()) entry["failure"]["file"] = found_[i].path;
      }
      properties.push_back(std::move(entry));
    }
    nlohmann::ordered_json json = {{"schema", "shardproof/check/1"},
                                   {"version", SHARDPROOF_VERSION},
                                   {"verdict", verdict()},
                                   {"device", judged()},
                                   {"seed", arguments_.seed}};
    if (arguments_.cases > 0) json["cases"] = arguments_.cases;
    if (arguments_.time > 0) json["time"] = arguments_.time;
    json["properties"] = std::move(properties);
    json["seconds"] = seconds_;
    return json;
  }

  // A test suite an identity, a test case a property.
  std::string to_junit() const {
    const auto count = [&](const std::string& label, auto which) {
      return std::count_if(reports_.begin(), reports_.end(), [&](const PropertyReport& report) {
        return (label.empty() || report.identity->label == label) && which(report);
      });
    };
    const auto counts = [&](const std::string& label) {
      double seconds = 0;
      for (const PropertyReport& report : reports_) {
        if (label.empty() || report.identity->label == label) seconds += report.seconds;
      }
      return fmt::format("tests=\"{}\" failures=\"{}\" errors=\"{}\" time=\"{:.3f}\"",
                         count(label, [](const auto&) { return true; }),
                         count(label, [](const auto& r) { return r.failure.has_value(); }),
                         count(label, [](const auto& r) { return !r.failure && !r.holds(); }),
                         seconds);
    };
    std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
    text += fmt::format("<testsuites name=\"shardproof check\" {}>\n", counts(""));
    std::string suite;
    for (std::size_t i = 0; i < reports_.size(); ++i) {
      const PropertyReport& report = reports_[i];
      const std::string& label = report.identity->label;
      if (label != suite) {
        if (!suite.empty()) text += "  </testsuite>\n";
        text += fmt::format("  <testsuite name=\"{}\" {}>\n", escaped(label), counts(label));
        suite = label;
      }
      text += fmt::format("    <testcase classname=\"{}\" name=\"{}\" time=\"{:.3f}\"",
                          escaped(report.identity->name),
                          escaped(report.property->name + " (" + form_of(*report.property) + ")"),
                          report.seconds);
      if (report.holds()) {
        text += "/>\n";
        continue;
      }
      const std::string kind = report.failure ? "failure" : "error";
      const std::string message =
          report.failure ? report.failure->shrunk.message : "every case was discarded";
      text += fmt::format(">\n      <{} message=\"{}\">{}</{}>\n    </testcase>\n", kind,
                          escaped(message), escaped(to_text(report, found_[i]) + found_[i].command),
                          kind);
    }
    if (!suite.empty()) text += "  </testsuite>\n";
    return text + "</testsuites>\n";
  }

  const CheckArguments& arguments_;
  const DeviceMaker make_;
  std::vector<PropertyReport> reports_;
  std::vector<Found> found_;  // of each report
  double seconds_ = 0;
  bool written_ = true;
};

}  // namespace

void add_check(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<CheckArguments>();
  CLI::App* command = program.add_subcommand(
      "check", "Try the identities on random cases, on the reference and on the device");
  command
      ->add_option("--identity", arguments->identities,
                   "Names or labels, as --list gives them, or all")
      ->check(some_name())
      ->capture_default_str();
  command->add_flag("--list", arguments->list, "List the identities and their properties");
  command
      ->add_option("--cases", arguments->cases,
                   fmt::format("Cases of each property (default: {} where there is no --time); "
                               "fewer where they are costly",
                               kUsualCases))
      ->check(whole_number(1, kMostCases));
  command->add_option("--time", arguments->time, "Seconds for all properties together")
      ->check(whole_number(1, kMostSeconds));
  add_seed_option(*command, arguments->seed);
  add_threads_option(*command, arguments->threads);
  add_device_options(*command, arguments->device);
  command->add_option("--junit", arguments->junit, "A JUnit XML file to write")->check(some_name());
  command
      ->add_option("--save", arguments->save,
                   "Folder for failing cases, shrunk, one file each; made if absent")
      ->check(some_name());
  command->add_flag("--json", arguments->json, "Print JSON instead of text");
  command->footer(
      "Example: shardproof check --identity all --time 60 --junit check.xml --save cases\n"
      "Exit: 0 all hold, 1 some fails, 2 bad input, 3 backend not available, 4 no case was tried "
      "or not written");
  command->callback([arguments, &exit_code] {
    exit_code = arguments->list ? list(*arguments) : Run(*arguments).run();
  });
}

}  // namespace shardproof::cli
