// The report of a sign-off, as text for a person and as JSON with the same content, numbers that
// must be exact also as hexadecimal floats.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "diff/baseline.h"
#include "diff/signoff.h"
#include "diff/summation_order.h"
#include "reference/result.h"

namespace shardproof {

// A file that was read, by which a report says what was judged.
struct InputFile {
  std::string path;
  std::uint64_t bytes = 0;
  std::uint32_t crc32 = 0;
};

struct ReportedInputs {
  std::optional<InputFile> weights;  // none: drawn from the seed
  std::vector<InputFile> images;
  std::size_t places = 0;  // more than images: the others are crops of them
  std::uint64_t seed = 0;
  std::size_t parameters = 0;
  std::vector<std::string> zero_weights;  // of the parameters, those of which every number is 0
};

// What a sign-off ran on.
struct Machine {
  std::string cpu, kernel;  // empty: not known
  unsigned processors = 0;
  std::uint64_t memory = 0;  // bytes
};

Machine this_machine();

// What a device states of one operation, over a batch and the pixels of a plane (device.h).
struct StatedContract {
  Operation operation;
  std::size_t batch = 0, plane = 0;
  Contract contract;
};

// "channel mean"
std::string to_string(Operation operation);

// Of every operation of a network's forward.
std::vector<StatedContract> stated_contracts(const Device& device, std::size_t batch,
                                             std::size_t plane);

// Lines, each with its newline.
std::string to_text(const ReportedInputs& inputs);
nlohmann::json to_json(const ReportedInputs& inputs);

// "1 image", "2 images"
std::string counted(std::size_t count, const std::string& noun, const std::string& plural);

struct SignoffReport {
  std::string net, device, version;
  std::size_t size = 0, classes = 0, replicas = 0, batch = 0;
  double epsilon = 0;
  ReportedInputs inputs;
  SignoffResult result;
  // Against float64 batch BN over the global batch; beside the verdict, never part of it.
  double logits_error = 0;    // largest |device − reference| over all logits
  double logits_largest = 0;  // largest |reference|
  double seconds = 0;         // of the whole sign-off
  unsigned threads = 0;       // of the reference
  Machine machine;
  std::vector<StatedContract> contracts;
  std::vector<ProbedSum> sums;  // of a candidate: in which order it adds
  std::optional<Baseline> baseline;
  std::string replay;  // the command that runs the failing case again; empty: there is none

  // Of the device; a loss of precision against the baseline is a disagreement.
  SignoffResult::Verdict verdict() const;
};

std::string to_string(SignoffResult::Verdict verdict);
std::string to_text(const SignoffReport& report);
// Sealed (digest.h).
nlohmann::json to_json(const SignoffReport& report);

// Writes each text to its path by way of a temporary file beside it, so that a file is whole or as
// it was; none is touched before all temporary ones are written.
Result<std::monostate> write_whole_files(
    const std::vector<std::pair<std::string, std::string>>& texts_by_path);

}  // namespace shardproof
