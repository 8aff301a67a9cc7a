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
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "reference/nets/photographs.h"
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

}  // namespace

void add_net_options(CLI::App& command, NetArguments& arguments) {
  command.add_option("--net", arguments.net, "mobilenetv4-conv-m (or mobilenetv4_conv_medium)")
      ->capture_default_str();
  command.add_option("--size", arguments.size, "Input height and width, a multiple of 32")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--classes", arguments.classes, "Number of classes")
      ->check(whole_number(1))
      ->capture_default_str();
  command.add_option("--epsilon", arguments.epsilon, "Added to every variance, as float32")
      ->capture_default_str();
  command.add_option("--image", arguments.images,
                     "PNG or JPEG files (default: the photographs in fixtures/images)");
  command.add_option("--weights", arguments.weights,
                     "A safetensors file with the network's names (default: drawn from the seed)");
  command.add_option("--seed", arguments.seed, "Of everything that is drawn")
      ->check(whole_number(0))
      ->capture_default_str();
  command.add_option("--threads", arguments.threads, "CPU threads (default: all)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("--json", arguments.json, "Print JSON instead of text");
}

Result<NetInputs> prepare(const NetArguments& arguments, std::size_t count) {
  if (arguments.net != "mobilenetv4-conv-m" && arguments.net != "mobilenetv4_conv_medium") {
    return Error{"--net " + arguments.net + ": no such network; there is mobilenetv4-conv-m"};
  }
  NetOptions options;
  options.size = arguments.size;
  options.classes = arguments.classes;
  options.epsilon = static_cast<float>(arguments.epsilon);
  Result<Graph> synchronised = mobilenetv4_conv_m(options, BatchNorm::synchronised);
  if (!synchronised) return Error{"--" + synchronised.error()};
  Result<Graph> batch = mobilenetv4_conv_m(options, BatchNorm::batch);
  if (!batch) return Error{"--" + batch.error()};

  Weights weights;
  if (arguments.weights.empty()) {
    weights = seeded_weights(synchronised->parameters(), arguments.seed);
  } else {
    Result<Weights> loaded = load_weights(arguments.weights, synchronised->parameters());
    if (!loaded) return Error{loaded.error()};
    weights = *std::move(loaded);
  }
  const std::vector<std::string> paths =
      arguments.images.empty() ? shipped_photographs() : arguments.images;
  if (paths.empty()) {
    return Error{SHARDPROOF_SOURCE_DIR
                 "/fixtures/images: no photographs there; name some with --image"};
  }
  // Of the shipped photographs, as many as there are places.
  const std::size_t used = arguments.images.empty() ? std::min(paths.size(), count) : paths.size();
  Result<std::vector<Tensor<float>>> images =
      load_batch(std::span(paths).first(used), count, arguments.size, arguments.seed);
  if (!images) return Error{images.error()};
  return NetInputs{*std::move(synchronised), *std::move(batch), std::move(weights),
                   *std::move(images)};
}

Result<std::monostate> check_memory(const NetArguments& arguments, std::size_t replicas,
                                    std::size_t batch) {
  // Measured at 224×224: 60 MB an image at the widest place, recorded and judged; 45 MB of weights
  // and scratch a replica. Activations grow with the number of pixels.
  const double pixels = std::pow(static_cast<double>(arguments.size) / 224, 2);
  const double images = static_cast<double>(replicas) * static_cast<double>(batch);
  const double classes = static_cast<double>(arguments.classes) * 1280 * 4;
  const double needed =
      images * pixels * 60e6 + static_cast<double>(replicas) * (45e6 + classes) + 200e6;
  const double present =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGE_SIZE));
  if (needed <= present) return std::monostate{};
  return Error{fmt::format(
      "{} replicas of {} images at {}x{} take about {:.3g} GB, the machine has {:.3g} GB: ask for "
      "fewer or smaller ones",
      replicas, batch, arguments.size, arguments.size, needed / 1e9, present / 1e9)};
}

unsigned threads_of(const NetArguments& arguments) {
  return arguments.threads != 0 ? arguments.threads
                                : std::max(1U, std::thread::hardware_concurrency());
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

CLI::Validator whole_number(std::uint64_t least) {
  const auto check = [least](const std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    const bool plain = error == std::errc{} && stop == end && (text[0] != '0' || text.size() == 1);
    if (plain && number >= least) return {};
    return fmt::format("{} is not a whole number from {} to 2^64 - 1", text, least);
  };
  return CLI::Validator(check, "");
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
