// Settling: what is suspect, or not judged, is decided by fresh dithered draws of its unit
// (agreement §3). One excess is a suspicion; it is wrong when three fresh draws exceed too.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "device/engine/device.h"
#include "diff/unit.h"
#include "diff/verdict.h"

namespace shardproof {

struct Settled {
  // What was wrong in fresh draws, then what was to be settled: agreeing or wrong now, but for what
  // no draw could judge.
  std::vector<Comparison> comparisons;
  std::vector<Comparison> unjudged;  // those, as they are in `comparisons`
  std::size_t suspicions = 0, suspicions_dropped = 0, unjudged_at_first = 0, fresh_draws = 0;
};

// `fresh` judges one more dithered draw of the unit that the comparisons are of.
Settled settle(std::vector<Comparison> comparisons,
               const std::function<std::vector<Comparison>()>& fresh);

// Runs and judges one dithered draw of the unit on those operands, one family an operand.
std::vector<Comparison> judge_dithered(Device& device, const Graph& graph, const Unit& unit,
                                       const Weights& weights,
                                       const std::vector<const Family<float>*>& operands,
                                       std::uint64_t seed, unsigned threads);

}  // namespace shardproof
