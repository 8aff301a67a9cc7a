// The inputs of agreement §3 for one unit of a network, each a function of a seed. Lattice inputs
// are whole numbers of quanta chosen so that no sum rounds; dithered ones are the unit's own
// operands with noise on every number and the reduced axis in random order.
// The bytes do not depend on `threads`.
#pragma once

#include <cstdint>
#include <vector>

#include "device/engine/contract.h"
#include "diff/unit.h"
#include "reference/graph/tensor.h"

namespace shardproof {

// A unit with weights and inputs of its own.
struct Probe {
  Graph graph;
  Weights weights;
  std::vector<Family<float>> inputs;
};

// How many lattice draws differ in kind for this unit.
//   product: small integers; one-hot operands; one-hot weights; 13-bit odd numbers against 0 and ±1
//            on either side
//   site:    means and variances that every sum and division gives exactly, with ε of the order of
//            the squared quantum and far below 1e-5; a few odd 12-bit numbers, or one
//            of 24 bits, among zeros
//   pool:    the same two without ε;   add: numbers of 24 bits at many magnitudes
std::size_t lattice_draws(const Unit& unit);

// Draw number `draw` of those, for `replicas` replicas of `batch` examples; of a product, all but
// the small integers have one example a replica.
Probe lattice_probe(const Graph& graph, const Unit& unit, std::size_t replicas, std::size_t batch,
                    std::size_t draw, std::uint64_t seed, unsigned threads);

// The corners of agreement §5 for this unit, judged as natural input: many magnitudes, subnormals,
// ±0, NaN or infinity at one place; for sites constant channels, means far above the deviation, one
// huge element, variances near ε and far below it, γ and β of many magnitudes. Of products, pools
// and adds, one example a replica.
Probe corner_probe(const Graph& graph, const Unit& unit, std::size_t replicas, std::size_t batch,
                   std::uint64_t seed, unsigned threads);

// The unit on `operands` (one family an operand) and `weights`, dithered. `lanes` is the contract's
// for the unit's sums.
Probe dithered_probe(const Graph& graph, const Unit& unit, const Weights& weights,
                     const std::vector<const Family<float>*>& operands, std::size_t lanes,
                     std::uint64_t seed, unsigned threads);

}  // namespace shardproof
