// SummationOrder: in which order a device adds up the terms of a sum, learned from its outputs. One
// term is 2^100 and another −2^100, the others are 1: those that are added to the first before the
// second cancels it are lost, so that the result tells how many terms stand together under the
// first addition that joins the two. From the pairs follows the tree of all additions. The idea is
// FPRev's (arXiv 2411.00442).
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "device/engine/device.h"

namespace shardproof {

// The additions of a sum as a tree. A node of more than two children adds them without rounding in
// between, as a tensor core does.
struct SummationTree {
  struct Node {
    std::vector<std::size_t> children;  // nodes; none: a term
    std::size_t term = 0;               // of a node without children
    std::size_t terms = 1;              // below it
  };
  std::vector<Node> nodes;
  std::size_t root = 0;
};

// "((0+2)+(1+3))": terms by their index; what a node adds at once is joined by "+".
std::string to_string(const SummationTree& tree);

// The running sums of the contract's `lanes` (contract.h), a power of two, that come nearest to the
// tree and bound its roundings: Σ k and Σ k² over all additions, each of k terms, are at least the
// tree's. The roundings of a sum in random order grow with these (docs/bounds.md).
std::size_t lanes_of(const SummationTree& tree);

// The sum of so many terms as the device gives it.
using SumOfTerms = std::function<double(std::span<const float> terms)>;

// None where the outputs follow from no order: the sum is compensated or keeps more than 100 bits,
// the terms leave its range (float16), or it takes more than `most_calls` to tell.
std::optional<SummationTree> learn_order(std::size_t terms, const SumOfTerms& sum,
                                         std::size_t most_calls);

// A sum of a device: of an image's plane of `length` pixels (average pools), of `batch` such planes
// (channel means), of `length` input channels (1×1 convolutions and dense layers), of the replicas
// (all-reduced means).
struct DeviceSum {
  Operation operation;
  std::size_t batch = 1, length = 1;
  // Of means and pools: numbers of channels at which the order must be the same as at one.
  std::vector<std::size_t> channels = {};
};

// What a device does with one sum.
struct ProbedSum {
  DeviceSum sum;
  std::size_t terms = 0;
  std::optional<SummationTree> tree;  // on replica 0
  std::size_t lanes = 1;              // 1 too where no tree was found, or it varies
  bool varies_between_runs = false, varies_between_replicas = false;
  bool varies_with_channels = false;  // looked at in random pairs of terms

  bool varies() const {
    return varies_between_runs || varies_between_replicas || varies_with_channels;
  }
};

// On every replica and twice. Throws std::invalid_argument for an operation without a sum.
std::vector<ProbedSum> probe_sums(Device& device, std::span<const DeviceSum> sums);

// "channel mean of 64 terms: 32 lanes; the same on all replicas and in both runs"
std::string describe(const ProbedSum& sum);

// A device with the lanes that were learned in place of the one lane of a contract that states no
// more. Only at the very batch and plane that were probed.
std::unique_ptr<Device> with_learned_lanes(std::unique_ptr<Device> device,
                                           std::vector<ProbedSum> sums);

}  // namespace shardproof
