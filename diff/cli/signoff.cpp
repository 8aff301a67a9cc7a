// shardproof signoff: judges the built-in device on a network.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "device/engine/builtin_device.h"
#include "diff/cli/command.h"
#include "diff/report.h"
#include "reference/graph/batch_shard.h"
#include "reference/graph/evaluate.h"

namespace shardproof::cli {
namespace {

struct SignoffArguments {
  NetArguments net;
  std::size_t replicas = 4, batch = 2;
  std::string backend = "host", report;
};

std::unique_ptr<Device> make_device(const SignoffArguments& arguments) {
  const int replicas = static_cast<int>(arguments.replicas);
#ifdef SHARDPROOF_HAS_CUDA
  if (arguments.backend == "cuda") return make_cuda_device(replicas);
#else
  if (arguments.backend == "cuda") {
    throw DeviceError("built without CUDA: install the CUDA toolkit and NCCL, and build again");
  }
#endif
  return make_host_device(replicas, arguments.net.seed,
                          static_cast<int>(threads_of(arguments.net)));
}

// A folder that exists, or can be made, and can be written to.
Result<std::monostate> ready_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return Error{"--report " + folder + ": " + error.message()};
  const std::string probe = folder + "/.shardproof";
  if (auto written = write_whole_file(probe, ""); !written) return written;
  std::filesystem::remove(probe, error);
  return std::monostate{};
}

int signoff(const SignoffArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  if (auto fits = check_memory(arguments.net, arguments.replicas, arguments.batch); !fits) {
    return fail(fits.error(), bad_input);
  }
  Result<NetInputs> inputs = prepare(arguments.net, arguments.replicas * arguments.batch);
  if (!inputs) return fail(inputs.error(), bad_input);
  if (!arguments.report.empty()) {
    if (auto ready = ready_folder(arguments.report); !ready) return fail(ready.error(), bad_input);
  }

  std::unique_ptr<Device> device;
  try {
    device = make_device(arguments);
  } catch (const DeviceError& error) {
    return fail("--backend " + arguments.backend + ": " + error.what(), backend_missing);
  }

  const unsigned threads = threads_of(arguments.net);
  const Tensor<float> global = unshard(inputs->images);
  SignoffTask task{inputs->synchronised, inputs->weights, {}, arguments.net.seed, threads};
  for (std::size_t r = 0; r < arguments.replicas; ++r) {
    task.images.push_back(batch_shard(arguments.replicas, global, r));
  }
  SignoffReport report;
  report.net = "mobilenetv4-conv-m";
  report.device = device->name();
  report.version = SHARDPROOF_VERSION;
  report.size = arguments.net.size;
  report.classes = arguments.net.classes;
  report.replicas = arguments.replicas;
  report.batch = arguments.batch;
  report.seed = arguments.net.seed;
  report.epsilon = static_cast<double>(static_cast<float>(arguments.net.epsilon));
  report.result = sign_off(*device, task, progress_bar("sign-off"));

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

  const std::string json = to_json(report).dump(1) + "\n";
  const std::string text = to_text(report);
  std::string unwritten;
  if (!arguments.report.empty()) {
    for (const auto& [name, content] : {std::pair("signoff.json", json), {"signoff.txt", text}}) {
      const auto written = write_whole_file(arguments.report + "/" + name, content);
      if (!written) unwritten = written.error();
    }
  }
  const bool printed = print(arguments.net.json ? json : text);
  if (!unwritten.empty()) return fail(unwritten, no_verdict);
  switch (report.result.verdict()) {
    case SignoffResult::Verdict::agrees:
      return printed ? agrees : no_verdict;
    case SignoffResult::Verdict::disagrees:
      return disagrees;
    case SignoffResult::Verdict::none:
      return no_verdict;
  }
  return no_verdict;
}

}  // namespace

void add_signoff(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<SignoffArguments>();
  CLI::App* command = program.add_subcommand(
      "signoff", "Judge the device against the reference on a network, launch by launch");
  add_net_options(*command, arguments->net);
  command->add_option("--replicas", arguments->replicas, "Replicas that share the batch")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--batch", arguments->batch, "Images a replica")
      ->check(whole_number(1))
      ->capture_default_str();
  command->add_option("--backend", arguments->backend, "host or cuda")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  command->add_option("--report", arguments->report,
                      "Folder for signoff.json and signoff.txt, made if absent");
  command->footer(
      "Example: shardproof signoff --replicas 4 --batch 2 --size 224\n"
      "Exit: 0 agrees, 1 disagrees, 2 bad input, 3 backend not available, 4 no verdict");
  command->callback([arguments, &exit_code] { exit_code = signoff(*arguments); });
}

}  // namespace shardproof::cli
