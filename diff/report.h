// The report of a sign-off, as text for a person and as JSON with the same content, numbers that
// must be exact also as hexadecimal floats.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <variant>

#include "diff/signoff.h"
#include "reference/result.h"

namespace shardproof {

struct SignoffReport {
  std::string net, device, version;
  std::size_t size = 0, classes = 0, replicas = 0, batch = 0;
  std::uint64_t seed = 0;
  double epsilon = 0;
  SignoffResult result;
  // Against float64 batch BN over the global batch; beside the verdict, never part of it.
  double logits_error = 0;    // largest |device − reference| over all logits
  double logits_largest = 0;  // largest |reference|
  double seconds = 0;         // of the whole sign-off
};

std::string to_string(SignoffResult::Verdict verdict);
std::string to_text(const SignoffReport& report);
nlohmann::json to_json(const SignoffReport& report);

// Writes `text` to `path` by way of a temporary file beside it, so that the file is whole or
// absent.
Result<std::monostate> write_whole_file(const std::string& path, const std::string& text);

}  // namespace shardproof
