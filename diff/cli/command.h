// What the commands share: exit codes, the options that choose a network and its inputs, and a
// progress line. One file a command; each adds itself to the program.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "device/runtime/device_error.h"
#include "diff/report.h"
#include "diff/signoff.h"
#include "diff/unit_case.h"
#include "reference/graph/graph.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/result.h"

namespace shardproof::cli {

enum ExitCode {
  agrees = 0,
  disagrees = 1,
  bad_input = 2,
  backend_missing = 3,
  no_verdict = 4,
};

// Options of signoff and run.
struct NetArguments {
  std::string net = "mobilenetv4-conv-m";
  std::size_t size = 224, classes = 1000;
  double epsilon = 1e-5;
  std::vector<std::string> images;
  std::string weights;
  std::uint64_t seed = 1;
  std::uint64_t threads = 0;  // 0: as many as the machine has
  bool json = false;
};
void add_net_options(CLI::App& command, NetArguments& arguments);

// Check an option: a whole number in plain decimal (CLI11 reads 010 as eight and what is too large
// as 2^64 − 1); a name that is not empty, as that of an unset variable is.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);
CLI::Validator some_name();

// A network with its weights and replicas × batch images, read or drawn.
struct NetInputs {
  Graph synchronised, batch;
  Weights weights;
  std::vector<Tensor<float>> images;
  ReportedInputs reported;
};
// It is an error, too, when they take more memory than the machine has.
Result<NetInputs> prepare(const NetArguments& arguments, std::size_t replicas, std::size_t batch);

// The machine's memory, in bytes.
double machine_memory();

// Threads asked for, at most as many as the machine has; 0: as many.
unsigned threads_of(std::uint64_t asked);

// As a shell reads it as one word.
std::string quoted(const std::string& word);

// Which device is judged: the built-in one of a backend, or a library of kernels.
struct DeviceArguments {
  std::string backend = "host", candidate;
};

// --threads; --seed; --backend (host or cuda) and --candidate; --candidate alone.
void add_threads_option(CLI::App& command, std::uint64_t& threads);
void add_seed_option(CLI::App& command, std::uint64_t& seed);
void add_device_options(CLI::App& command, DeviceArguments& device);
void add_candidate_option(CLI::App& command, std::string& candidate);

// Such devices, of so many threads each on the host. Called, it throws DeviceError where there is
// none: no_device tells why and gives the exit code.
DeviceMaker device_maker(const DeviceArguments& device, unsigned workers);
int no_device(const DeviceArguments& device, const DeviceError& error);

// A folder that exists, or can be made, and can be written to. `option` is what asked for it.
Result<std::monostate> ready_folder(const std::string& option, const std::string& folder);

// Draws a bar on stderr where that is a terminal, after two seconds; nothing elsewhere.
Progress progress_bar(const std::string& what);

// Prints to stdout; says on stderr when not all of it could be written.
bool print(const std::string& text);

// A verdict that could not be written is none, but for a disagreement, which stands.
ExitCode exit_code(SignoffResult::Verdict verdict, bool written);

// Prints "shardproof: MESSAGE" to stderr and gives the code back.
int fail(const std::string& message, ExitCode code);

// Each adds a command and sets `exit_code` when it runs.
void add_check(CLI::App& program, int& exit_code);
void add_mutants(CLI::App& program, int& exit_code);
void add_replay(CLI::App& program, int& exit_code);
void add_signoff(CLI::App& program, int& exit_code);
void add_run(CLI::App& program, int& exit_code);
void add_separable(CLI::App& program, int& exit_code);

}  // namespace shardproof::cli
