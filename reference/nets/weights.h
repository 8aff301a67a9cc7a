// The parameters of a network: drawn from a seed, or read from a safetensors file under the names
// that docs/guide.md lists. The draws make every fault visible: no γ, β or bias is zero, and logits
// are of order one.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "reference/graph/graph.h"
#include "reference/result.h"

namespace shardproof {

// Each tensor is a function of the seed, its name and its shape alone, bit for bit on any machine:
// whole-number arithmetic, then one float64 product and one rounding to float32.
//   convolution, depthwise: normal, deviation √(2 / fan_out), fan_out = k·k·out / groups. This is
//     timm's initialisation of this network (`_init_weight_goog` in
//     timm/models/_efficientnet_builder.py, with `fix_group_fanout`); Kaiming normal in mode
//     fan_out: He and others 2015, arXiv 1502.01852.
//   γ: uniform in [0.5, 2] with either sign; β and biases: uniform in [0.05, 0.5] with either sign.
//   dense: normal, deviation 1/√in.
// A normal number is the sum of twelve uniform ones less six: the right mean and deviation, at
// most 6.
Weights seeded_weights(std::span<const Parameter> parameters, std::uint64_t seed);

// The dimensions that a file must state for a parameter: rank 4 for convolutions and depthwise,
// [in,out] for dense, [C] for γ, β and biases.
std::vector<std::size_t> stored_dimensions(const Parameter& parameter);

// Every parameter must be there with its dimensions and finite values, and nothing else; the error
// names the first tensor at fault and counts the others.
Result<Weights> load_weights(const std::string& path, std::span<const Parameter> parameters);

// Throws std::invalid_argument when `weights` lacks a parameter.
Result<std::monostate> save_weights(const std::string& path, std::span<const Parameter> parameters,
                                    const Weights& weights);

}  // namespace shardproof
