// A device beside the one that it is to replace: how precise each is, node by node, and how fast.
// Whether it is right is judged apart (signoff.h).
#pragma once

#include <string>
#include <vector>

#include "device/engine/device.h"
#include "diff/signoff.h"

namespace shardproof {

// One statement of a node on the images: both errors (Precision, verdict.h).
struct PrecisionChange {
  std::string node, part;
  Precision device, baseline;
  bool regression = false;
};

// Of the statements that both were judged on. A regression is an error, as root mean square, or of
// the worst of at least a thousand outputs, of more than `factor` times the baseline's; a baseline
// nearer than a correct rounding (1/√12 ulp, worst half an ulp) counts as that.
std::vector<PrecisionChange> compare_precision(const SignoffResult& device,
                                               const SignoffResult& baseline, double factor);

// Seconds of one operation in a whole forward, the median of some, both devices in turn.
struct SpeedChange {
  Operation operation;
  std::size_t calls = 0;
  double device = 0, baseline = 0;
};
std::vector<SpeedChange> compare_speed(Device& device, Device& baseline, const SignoffTask& task);

struct Baseline {
  std::string device;
  SignoffResult::Verdict verdict = SignoffResult::Verdict::none;
  std::string failure;  // why it did not end; then nothing can be said of a loss
  double factor = 2;
  std::vector<PrecisionChange> precision;
  std::vector<SpeedChange> speed;

  bool has_regression() const;
};

}  // namespace shardproof
