// shardproof signoff: judges the built-in device on a network, or on an optimizer program.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>

#include "diff/case_file.h"
#include "diff/cli/command.h"
#include "diff/cli/signoff_program.h"
#include "diff/digest.h"
#include "diff/html_report.h"
#include "diff/report.h"
#include "diff/shrink.h"
#include "reference/graph/batch_shard.h"
#include "reference/graph/evaluate.h"

namespace shardproof::cli {
namespace {

constexpr std::size_t kMostNumbersSaved = 20'000;  // of a failing case
constexpr std::uint64_t kMostPlaces = 1'000'000;   // no machine has memory for more

struct SignoffArguments {
  NetArguments net;
  std::size_t replicas = 4, batch = 2;
  DeviceArguments device;
  std::string report, verify, baseline;
  double regression = 2;
  ProgramArguments program;
};

DeviceMaker maker_of(const SignoffArguments& arguments) {
  return device_maker(arguments.device, threads_of(arguments.net.threads));
}

// The fewest numbers that a BN site has a channel, over all replicas.
std::size_t fewest_numbers(const Graph& graph, std::size_t images) {
  std::size_t fewest = images;
  for (const Node& node : graph.nodes()) {
    if (!std::holds_alternative<BnSync>(node.operation)) continue;
    fewest = std::min(fewest, images * node.shape.plane());
  }
  return fewest;
}

// Sums of the lengths that the network has, up to some hundred terms; of products one length.
std::vector<DeviceSum> sums_to_learn(const Graph& graph, std::size_t batch) {
  constexpr std::size_t most_terms = 256, channels = 64;
  std::vector<DeviceSum> sums;
  std::map<std::size_t, std::set<std::size_t>> of_planes;  // numbers of channels
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<BnSync>(node.operation)) {
      of_planes[node.shape.plane()].insert(node.shape.c);
    }
    if (std::holds_alternative<GlobalAveragePool>(node.operation)) {
      const Shape& x = graph.node(node.operands[0]).shape;
      if (x.plane() <= most_terms) {
        sums.push_back({Operation::global_average_pool, 1, x.plane(), {batch * x.c}});
      }
    }
  }
  for (const auto& [plane, counts] : of_planes) {
    if (batch * plane > most_terms) continue;
    sums.push_back({Operation::channel_mean, batch, plane, {counts.begin(), counts.end()}});
  }
  sums.push_back({Operation::convolution, 1, channels, {}});
  sums.push_back({Operation::dense, 1, channels, {}});
  sums.push_back({Operation::all_reduce_mean, 1, 1, {}});
  return sums;
}

std::string failing_path(const SignoffArguments& arguments) {
  return arguments.report + "/failing-case.json";
}

// Prints a report and writes its files.
template <class Report>
int publish(const SignoffArguments& arguments, const Report& report,
            const std::string& failing_case = "") {
  const nlohmann::json content = to_json(report);
  const std::string json = to_file_text(content);
  const std::string text = to_text(report);
  bool written = true;
  if (!arguments.report.empty()) {
    std::vector<std::pair<std::string, std::string>> texts = {
        {arguments.report + "/signoff.json", json}, {arguments.report + "/signoff.txt", text}};
    if constexpr (std::is_same_v<Report, SignoffReport>) {
      texts.emplace_back(arguments.report + "/index.html", to_html(content));
    }
    if (!failing_case.empty()) texts.emplace_back(failing_path(arguments), failing_case);
    const auto files = write_whole_files(texts);
    if (!files) {
      fail(files.error(), no_verdict);
      written = false;
    }
  }
  if (!print(arguments.net.json ? json : text)) written = false;
  return exit_code(report.verdict(), written);
}

// The report's folder and a device, before any work is done; the exit code where one is missing.
int make_ready(const SignoffArguments& arguments, std::unique_ptr<Device>& device) {
  if (!arguments.report.empty()) {
    if (auto ready = ready_folder("--report", arguments.report); !ready)
      return fail(ready.error(), bad_input);
  }
  try {
    device = maker_of(arguments)(static_cast<int>(arguments.replicas), {arguments.net.seed, {}});
  } catch (const DeviceError& error) {
    return no_device(arguments.device, error);
  }
  return agrees;
}

// The unit found wrong, made small: a file for the report's folder, and the command that judges it
// again. An empty text where it is too large for a case file.
std::string failing_case(const SignoffArguments& arguments, const UnitCase& found,
                         SignoffReport& report) {
  // A case of a whole layer takes as long to judge as many small ones.
  const std::size_t tries =
      std::clamp<std::size_t>(30'000'000 / count_of_numbers(found), 60, kShrinkingTries);
  const DeviceMaker make = maker_of(arguments);
  CaseFile file;
  file.identity = "sign-off of " + report.net;
  file.property = "the unit that ends at " + found.graph.node(found.graph.output()).name;
  file.version = SHARDPROOF_VERSION;
  const UnitCase small = shrink(found, make, tries);
  file.content = small;
  if (count_of_numbers(small) > kMostNumbersSaved) return "";
  file.recorded = record(make, small);
  const std::string& candidate = arguments.device.candidate;
  report.replay = fmt::format("{} replay {} --explain{}", program_invocation_name,
                              quoted(failing_path(arguments)),
                              candidate.empty() ? "" : " --candidate " + quoted(candidate));
  return to_text(file);
}

// The device to be replaced: "builtin", or a library.
int make_baseline(const SignoffArguments& arguments, std::unique_ptr<Device>& baseline) {
  DeviceArguments device;
  if (arguments.baseline != "builtin") device.candidate = arguments.baseline;
  try {
    baseline = device_maker(device, threads_of(arguments.net.threads))(
        static_cast<int>(arguments.replicas), {arguments.net.seed, {}});
  } catch (const DeviceError& error) {
    return fail("--baseline: " + std::string(error.what()), bad_input);
  }
  return agrees;
}

int signoff_network(const SignoffArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  Result<NetInputs> inputs = prepare(arguments.net, arguments.replicas, arguments.batch);
  if (!inputs) return fail(inputs.error(), bad_input);
  const std::size_t images = arguments.replicas * arguments.batch;
  if (const std::size_t fewest = fewest_numbers(inputs->synchronised, images); fewest < 3) {
    return fail(
        fmt::format("no verdict: with {} in all some BN site has {} a channel, and fewer "
                    "than 3 say nothing of it; ask for 3 images or more",
                    counted(images, "image", "images"), counted(fewest, "number", "numbers")),
        no_verdict);
  }

  std::unique_ptr<Device> device;
  if (const int code = make_ready(arguments, device); code != agrees) return code;
  const unsigned threads = threads_of(arguments.net.threads);
  const Tensor<float> global = unshard(inputs->images);
  SignoffTask task{inputs->synchronised, inputs->weights, {}, arguments.net.seed, threads};
  for (std::size_t r = 0; r < arguments.replicas; ++r) {
    task.images.push_back(batch_shard(arguments.replicas, global, r));
  }
  task.precision = !arguments.report.empty() || !arguments.baseline.empty();
  std::unique_ptr<Device> baseline;
  if (!arguments.baseline.empty()) {
    if (const int code = make_baseline(arguments, baseline); code != agrees) return code;
  }
  SignoffReport report;
  report.net = "mobilenetv4-conv-m";
  report.device = device->name();
  report.version = SHARDPROOF_VERSION;
  report.size = arguments.net.size;
  report.classes = arguments.net.classes;
  report.replicas = arguments.replicas;
  report.batch = arguments.batch;
  report.epsilon = static_cast<double>(static_cast<float>(arguments.net.epsilon));
  report.inputs = inputs->reported;
  report.threads = threads;
  report.machine = this_machine();
  if (!arguments.device.candidate.empty()) {
    report.sums = probe_sums(*device, sums_to_learn(inputs->synchronised, arguments.batch));
    device = with_learned_lanes(std::move(device), report.sums);
  }
  const std::size_t plane = (arguments.net.size / 2) * (arguments.net.size / 2);  // of the stem
  report.contracts = stated_contracts(*device, arguments.batch, plane);
  report.result = sign_off(*device, task, progress_bar("sign-off"));
  std::string failing;
  if (!arguments.report.empty() && report.result.failing) {
    failing = failing_case(arguments, *report.result.failing, report);
  }
  if (baseline != nullptr) {
    const SignoffResult before = sign_off(*baseline, task, progress_bar("baseline"));
    report.baseline = Baseline{baseline->name(),
                               before.verdict(),
                               before.failure.empty() ? before.out_of_memory : before.failure,
                               arguments.regression,
                               compare_precision(report.result, before, arguments.regression),
                               {}};
    if (report.result.failure.empty() && before.failure.empty()) {
      report.baseline->speed = compare_speed(*device, *baseline, task);
    }
  }

  if (!report.result.logits.empty()) {
    const Tensor<double> expected =
        evaluate<double>(inputs->batch, inputs->weights, global, threads);
    const Tensor<float> got = unshard(report.result.logits);
    for (std::size_t i = 0; i < expected.values.size(); ++i) {
      report.logits_error = std::fmax(
          report.logits_error, std::abs(static_cast<double>(got.values[i]) - expected.values[i]));
      report.logits_largest = std::fmax(report.logits_largest, std::abs(expected.values[i]));
    }
  }
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return publish(arguments, report, failing);
}

int signoff_program(const SignoffArguments& arguments) {
  const Result<ProgramInputs> inputs = prepare_program(arguments.program, arguments.replicas);
  if (!inputs) return fail(inputs.error(), bad_input);
  // Shows that there is one; the judge makes its own, of several numbers of ranks.
  std::unique_ptr<Device> device;
  if (const int code = make_ready(arguments, device); code != agrees) return code;
  device.reset();
  const DeviceMaker maker = maker_of(arguments);
  const DeviceFactory make = [&](int ranks) { return maker(ranks, {arguments.net.seed, {}}); };
  return publish(arguments, judge_program(arguments.program, *inputs, make, arguments.replicas,
                                          arguments.net.seed));
}

// Whether a report's digest is that of its content.
int verify(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  if (!file) return fail("--verify " + path + ": cannot be read", bad_input);
  const Result<bool> same = verify_digest(text);
  if (!same) return fail("--verify " + path + ": " + same.error(), bad_input);
  const bool written = print(path + (*same ? ": as it was written\n" : ": changed since\n"));
  if (!*same) return disagrees;
  return written ? agrees : no_verdict;
}

int signoff(const SignoffArguments& arguments) {
  if (!arguments.verify.empty()) return verify(arguments.verify);
  return arguments.program.program.empty() ? signoff_network(arguments)
                                           : signoff_program(arguments);
}

}  // namespace

void add_signoff(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<SignoffArguments>();
  CLI::App* command = program.add_subcommand(
      "signoff", "Judge the device against the reference on a network or an optimizer program");
  add_net_options(*command, arguments->net);
  command->add_option("--replicas", arguments->replicas, "Replicas that share the batch")
      ->check(whole_number(1, kMostPlaces))
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Images a replica")
      ->check(whole_number(1, kMostPlaces))
      ->capture_default_str();
  add_device_options(*command, arguments->device);
  command
      ->add_option("--report", arguments->report,
                   "Folder for signoff.json, signoff.txt and, of a network, index.html; made if "
                   "absent")
      ->check(some_name());
  CLI::Option* const baseline =
      command
          ->add_option("--baseline", arguments->baseline,
                       "A library of kernels, or builtin, that the device is to replace: its "
                       "precision and speed stand beside the device's")
          ->check(some_name());
  command
      ->add_option("--regression", arguments->regression,
                   "By what factor an error may exceed the baseline's; more is a disagreement")
      ->check(CLI::Range(1.0, 1e6))
      ->needs(baseline)
      ->capture_default_str();
  command
      ->add_option("--verify", arguments->verify,
                   "A signoff.json: is its digest that of its content? Nothing else is done")
      ->check(some_name());
  add_program_options(*command, arguments->program);
  command->footer(
      "Examples: shardproof signoff --replicas 4 --batch 2 --size 224\n"
      "          shardproof signoff --program adamw --replicas 4 --sizes 1000,7,0,5\n"
      "Exit: 0 agrees, 1 disagrees, 2 bad input, 3 backend not available, 4 no verdict or not "
      "written");
  command->callback([arguments, &exit_code] { exit_code = signoff(*arguments); });
}

}  // namespace shardproof::cli
