#include "diff/cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "device/engine/builtin_device.h"
#include "device/engine/candidate_device.h"
#include "reference/nets/crc32.h"
#include "reference/nets/photographs.h"
#include "reference/nets/safetensors.h"
#include "reference/nets/weights.h"

namespace shardproof::cli {
namespace {

// The photographs that come with the project, in alphabetical order.
std::vector<std::string> shipped_photographs() {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry :
       std::filesystem::directory_iterator(SHARDPROOF_SOURCE_DIR "/fixtures/images", error)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".png" || extension == ".jpg") paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

CLI::Validator positive_float() {
  const auto check = [](const std::string& text) -> std::string {
    float number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc{} && stop == end && number > 0 && std::isfinite(number)) return {};
    return fmt::format("\"{}\" is not a positive float32 number", text);
  };
  return CLI::Validator(check, "");
}

Result<InputFile> described(const std::string& path) {
  InputFile read{path};
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes(1 << 16);
  while (file) {
    file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    const auto got = static_cast<std::size_t>(file.gcount());
    read.crc32 = crc32(std::span(bytes).first(got), read.crc32);
    read.bytes += got;
  }
  if (!file.eof()) return Error{path + ": " + std::strerror(errno)};
  return read;
}

// An error when the images (and so many copies of the weights) take more memory than the machine
// has.
Result<std::monostate> check_memory(const NetArguments& arguments, std::size_t replicas,
                                    std::size_t batch) {
  // Measured at 224×224: 60 MB an image at the widest place, recorded and judged; 45 MB of weights
  // and scratch a replica. Activations grow with the number of pixels. Of a weight of the last
  // layer, two float32 copies a replica and 24 bytes in the reference: 40 bytes in all on 2
  // replicas, 32 in `run`.
  const double pixels = std::pow(static_cast<double>(arguments.size) / 224, 2);
  const double copies = static_cast<double>(replicas);
  const double images = copies * static_cast<double>(batch);
  const double classes = static_cast<double>(arguments.classes) * 1280;
  const double needed =
      images * pixels * 60e6 + copies * (45e6 + 8 * classes) + 24 * classes + 200e6;
  const double present = machine_memory();
  if (needed <= present) return std::monostate{};
  return Error{fmt::format(
      "{} of {} at {}x{} with {} take about {:.3g} GB, the machine has {:.3g} GB: ask for less",
      counted(replicas, "replica", "replicas"), counted(batch, "image", "images"), arguments.size,
      arguments.size, counted(arguments.classes, "class", "classes"), needed / 1e9, present / 1e9)};
}

}  // namespace

double machine_memory() {
  return static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
}

void add_net_options(CLI::App& command, NetArguments& arguments) {
  constexpr std::uint64_t any = std::numeric_limits<std::uint64_t>::max();
  command.add_option("--net", arguments.net, "mobilenetv4-conv-m (or mobilenetv4_conv_medium)")
      ->capture_default_str();
  command.add_option("--size", arguments.size, "Input height and width, a multiple of 32")
      ->check(whole_number(0, any))
      ->capture_default_str();
  command.add_option("--classes", arguments.classes, "Number of classes")
      ->check(whole_number(0, any))
      ->capture_default_str();
  command.add_option("--epsilon", arguments.epsilon, "Added to every variance, as float32")
      ->check(positive_float())
      ->capture_default_str();
  command
      .add_option("--image", arguments.images,
                  "PNG or JPEG files (default: the photographs in fixtures/images)")
      ->check(some_name());
  command
      .add_option("--weights", arguments.weights,
                  "A safetensors file with the network's names (default: drawn from the seed)")
      ->check(some_name());
  add_seed_option(command, arguments.seed);
  add_threads_option(command, arguments.threads);
  command.add_flag("--json", arguments.json, "Print JSON instead of text");
}

Result<NetInputs> prepare(const NetArguments& arguments, std::size_t replicas, std::size_t batch) {
  if (arguments.net != "mobilenetv4-conv-m" && arguments.net != "mobilenetv4_conv_medium") {
    return Error{"--net " + quoted_name(arguments.net) +
                 ": no such network; there is mobilenetv4-conv-m"};
  }
  NetOptions options;
  options.size = arguments.size;
  options.classes = arguments.classes;
  options.epsilon = static_cast<float>(arguments.epsilon);
  Result<Graph> synchronised = mobilenetv4_conv_m(options, BatchNorm::synchronised);
  if (!synchronised) return Error{"--" + synchronised.error()};
  Result<Graph> batched = mobilenetv4_conv_m(options, BatchNorm::batch);
  if (!batched) return Error{"--" + batched.error()};
  if (auto fits = check_memory(arguments, replicas, batch); !fits) return Error{fits.error()};

  const std::vector<Parameter> parameters = synchronised->parameters();
  ReportedInputs reported;
  reported.places = replicas * batch;
  reported.seed = arguments.seed;
  reported.parameters = parameters.size();
  Weights weights;
  if (arguments.weights.empty()) {
    weights = seeded_weights(parameters, arguments.seed);
  } else {
    Result<Weights> loaded = load_weights(arguments.weights, parameters);
    if (!loaded) return Error{"--weights " + loaded.error()};
    weights = *std::move(loaded);
    const Result<InputFile> file = described(arguments.weights);
    if (!file) return Error{"--weights " + file.error()};
    reported.weights = *file;
  }
  for (const Parameter& parameter : parameters) {
    const std::vector<float>& values = weights.at(parameter.name).values;
    if (std::all_of(values.begin(), values.end(), [](float value) { return value == 0; })) {
      reported.zero_weights.push_back(parameter.name);
    }
  }
  std::vector<std::string> paths =
      arguments.images.empty() ? shipped_photographs() : arguments.images;
  if (paths.empty()) {
    return Error{SHARDPROOF_SOURCE_DIR
                 "/fixtures/images: no photographs there; name some with --image"};
  }
  // Of the shipped photographs, as many as there are places.
  if (arguments.images.empty()) paths.resize(std::min(paths.size(), reported.places));
  Result<std::vector<Tensor<float>>> images =
      load_batch(paths, reported.places, arguments.size, arguments.seed);
  if (!images) return Error{images.error()};
  for (const std::string& path : paths) {
    const Result<InputFile> file = described(path);
    if (!file) return Error{file.error()};
    reported.images.push_back(*file);
  }
  return NetInputs{*std::move(synchronised), *std::move(batched), std::move(weights),
                   *std::move(images), std::move(reported)};
}

unsigned threads_of(std::uint64_t asked) {
  const unsigned present = std::max(1U, std::thread::hardware_concurrency());
  return asked == 0 ? present : static_cast<unsigned>(std::min<std::uint64_t>(asked, present));
}

void add_threads_option(CLI::App& command, std::uint64_t& threads) {
  command
      .add_option("--threads", threads,
                  "CPU threads, at most as many as the machine has (default: all)")
      ->check(whole_number(1, std::numeric_limits<std::uint64_t>::max()));
}

void add_seed_option(CLI::App& command, std::uint64_t& seed) {
  command.add_option("--seed", seed, "Of everything that is drawn")
      ->check(whole_number(0, std::numeric_limits<std::uint64_t>::max()))
      ->capture_default_str();
}

void add_device_options(CLI::App& command, DeviceArguments& device) {
  command.add_option("--backend", device.backend, "host or cuda")
      ->check(CLI::IsMember({"host", "cuda"}))
      ->capture_default_str();
  add_candidate_option(command, device.candidate);
}

void add_candidate_option(CLI::App& command, std::string& candidate) {
  command
      .add_option("--candidate", candidate,
                  "A library of kernels (docs/candidate), judged in place of the built-in device")
      ->check(some_name());
}

int no_device(const DeviceArguments& device, const DeviceError& error) {
  if (!device.candidate.empty()) return fail("--" + std::string(error.what()), bad_input);
  return fail("--backend " + device.backend + ": " + error.what(), backend_missing);
}

std::string quoted(const std::string& word) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string("/._-+:,=").find(static_cast<char>(c)) != std::string::npos;
  };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? "'\\''" : std::string(1, c);
  return text + "'";
}

DeviceMaker device_maker(const DeviceArguments& device, unsigned workers) {
  if (!device.candidate.empty()) {
    CandidateOptions options;
    options.workers = static_cast<int>(workers);
    return candidate_maker(device.candidate, options);
  }
  if (device.backend == "cuda") {
#ifdef SHARDPROOF_HAS_CUDA
    return [](int replicas, const Schedule&) { return make_cuda_device(replicas); };
#else
    return [](int, const Schedule&) -> std::unique_ptr<Device> {
      throw DeviceError("built without CUDA: install the CUDA toolkit and NCCL, and build again");
    };
#endif
  }
  return [workers](int replicas, const Schedule& schedule) {
    return make_host_device(replicas, schedule, static_cast<int>(workers));
  };
}

Result<std::monostate> ready_folder(const std::string& option, const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (!error && access(folder.c_str(), W_OK | X_OK) != 0) {
    error = std::error_code(errno, std::generic_category());
  }
  if (error) return Error{option + " " + folder + ": " + error.message()};
  return std::monostate{};
}

Progress progress_bar(const std::string& what) {
  if (isatty(STDERR_FILENO) == 0) return {};
  const auto start = std::chrono::steady_clock::now();
  return [what, start](double share) {
    if (std::chrono::steady_clock::now() - start < std::chrono::seconds(2)) return;
    constexpr int kWidth = 40;
    const int filled = static_cast<int>(share * kWidth);
    fmt::print(stderr, "\r{} [{:<{}}] {:3.0f} %", what,
               std::string(static_cast<std::size_t>(filled), '#'), kWidth, share * 100);
    if (share >= 1) fmt::print(stderr, "\r{:<{}}\r", "", what.size() + kWidth + 10);
    std::fflush(stderr);
  };
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const bool plain = error == std::errc{} && stop == end && (text[0] != '0' || text.size() == 1);
    if (plain && number >= least && number <= most) return {};
    const std::string last =
        most == std::numeric_limits<std::uint64_t>::max() ? "2^64 - 1" : std::to_string(most);
    return fmt::format("\"{}\" is not a whole number from {} to {}", text, least, last);
  };
  return CLI::Validator(check, "");
}

CLI::Validator some_name() {
  const auto check = [](const std::string& text) -> std::string {
    return text.empty() ? "the name is empty; is a variable not set?" : "";
  };
  return CLI::Validator(check, "");
}

ExitCode exit_code(SignoffResult::Verdict verdict, bool written) {
  if (verdict == SignoffResult::Verdict::disagrees) return disagrees;
  return verdict == SignoffResult::Verdict::agrees && written ? agrees : no_verdict;
}

bool print(const std::string& text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0) {
    return true;
  }
  fmt::print(stderr, "shardproof: cannot write to stdout: {}\n", std::strerror(errno));
  return false;
}

int fail(const std::string& message, ExitCode code) {
  fmt::print(stderr, "shardproof: {}\n", message);
  return code;
}

}  // namespace shardproof::cli
