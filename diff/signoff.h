// Sign-off: a device judged on a whole network (agreement §1, §3). Every launch on natural inputs;
// every distinct unit (kind and shape) on lattice and dithered inputs too; suspicions settled by
// fresh dithered draws; and the run repeated unrecorded, which must give the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "device/engine/device.h"
#include "diff/unit_case.h"
#include "diff/verdict.h"
#include "reference/graph/graph.h"
#include "reference/graph/tensor.h"

namespace shardproof {

struct SignoffTask {
  const Graph& graph;  // synchronised
  const Weights& weights;
  Family<float> images;    // one tensor of N images a replica
  std::uint64_t seed = 0;  // of the lattice and dithered draws
  unsigned threads = 1;    // of the reference
  bool precision = false;  // whether comparisons on the images have theirs
};

struct SignoffResult {
  enum class Verdict { agrees, disagrees, none };

  // All comparisons, in the order in which they were made. A suspicion that fresh draws settled is
  // counted as agreeing or as wrong.
  std::vector<Comparison> comparisons;
  std::size_t suspicions = 0;  // comparisons that were suspect at first
  std::size_t suspicions_dropped = 0;
  std::size_t unjudged_at_first = 0;  // comparisons of the unit's own inputs that were not judged
  std::size_t fresh_draws = 0;        // dithered draws made to settle both
  std::vector<std::string> unjudged;  // "node: part (reason)" judged by no kind of input
  std::string failure;                // a launch that failed, with its node; empty when none
  std::string out_of_memory;          // what the device had no room for; empty when all fitted
  Family<float> logits;
  // The first unit that was wrong on numbers drawn for it; none: no unit was.
  std::optional<UnitCase> failing;

  Verdict verdict() const;
};

// Called with the share of the work that is done, 0 to 1.
using Progress = std::function<void(double)>;

SignoffResult sign_off(Device& device, const SignoffTask& task, const Progress& progress = {});

// Runs and judges one graph on the device: all comparisons of all its launches.
std::vector<Comparison> judge_run(Device& device, const Graph& graph, const Weights& weights,
                                  const std::vector<Family<float>>& inputs, InputKind kind,
                                  unsigned threads);

}  // namespace shardproof
