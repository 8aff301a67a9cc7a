#include "diff/settle.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "diff/draws.h"
#include "diff/signoff.h"

namespace shardproof {
namespace {

constexpr int kFreshDraws = 3;  // a suspicion stands when all of them exceed too

bool same_thing(const Comparison& a, const Comparison& b) {
  return a.node == b.node && a.part == b.part;
}

}  // namespace

Settled settle(std::vector<Comparison> comparisons,
               const std::function<std::vector<Comparison>()>& fresh) {
  Settled settled;
  std::vector<Comparison*> open;
  for (Comparison& comparison : comparisons) {
    const Outcome outcome = comparison.outcome();
    if (outcome == Outcome::suspect) ++settled.suspicions;
    if (outcome == Outcome::not_judged) ++settled.unjudged_at_first;
    if (outcome == Outcome::suspect || outcome == Outcome::not_judged) {
      open.push_back(&comparison);
    }
  }
  std::vector<Comparison*> unjudged;
  for (int draw = 0; draw < kFreshDraws && !open.empty(); ++draw) {
    ++settled.fresh_draws;
    std::vector<Comparison> drawn = fresh();
    std::vector<Comparison*> still_open;
    for (Comparison* suspicion : open) {
      const auto found = std::find_if(drawn.begin(), drawn.end(), [&](const Comparison& other) {
        return same_thing(other, *suspicion);
      });
      const Outcome outcome = found == drawn.end() ? Outcome::not_judged : found->outcome();
      if (outcome == Outcome::agrees) {
        if (suspicion->outcome() == Outcome::suspect) ++settled.suspicions_dropped;
        suspicion->suspects = 0;
        suspicion->not_judged = 0;
      } else if (outcome == Outcome::not_judged) {
        unjudged.push_back(suspicion);
      } else {
        still_open.push_back(suspicion);
        if (found->worst.ratio > suspicion->worst.ratio) suspicion->worst = found->worst;
      }
    }
    open = std::move(still_open);
    // What is wrong in a draw is wrong, whatever the draw was made for.
    std::erase_if(drawn, [](const Comparison& c) { return c.outcome() != Outcome::wrong; });
    std::move(drawn.begin(), drawn.end(), std::back_inserter(settled.comparisons));
  }
  for (Comparison* suspicion : open) {
    suspicion->wrong += std::exchange(suspicion->suspects, 0);
    if (suspicion->wrong == 0) ++suspicion->wrong;
  }
  for (const Comparison* comparison : unjudged) settled.unjudged.push_back(*comparison);
  std::move(comparisons.begin(), comparisons.end(), std::back_inserter(settled.comparisons));
  return settled;
}

std::vector<Comparison> judge_dithered(Device& device, const Graph& graph, const Unit& unit,
                                       const Weights& weights,
                                       const std::vector<const Family<float>*>& operands,
                                       std::uint64_t seed, unsigned threads) {
  const Operation operation =
      unit.kind == Unit::Kind::pool ? Operation::global_average_pool : Operation::channel_mean;
  const std::size_t batch = operands.at(0)->at(0).shape.n;
  const std::size_t lanes =
      device.contract(operation, batch, graph.node(unit.operands[0]).shape.plane()).lanes;
  const Probe probe = dithered_probe(graph, unit, weights, operands, lanes, seed, threads);
  return judge_run(device, probe.graph, probe.weights, probe.inputs, InputKind::dithered, threads);
}

}  // namespace shardproof
