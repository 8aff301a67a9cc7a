// Rows of MobileNetV4-Conv-M that have the same shapes: only names tell their weights apart
// (spec §5), so the network must notice when two are swapped.
#include <catch2/catch.hpp>
#include <string>

#include "properties/enclosures.h"
#include "properties/identities/small_network.h"

namespace shardproof {
namespace {

// Every tensor of row a ("u4qW", …) under the name of row b's, and back.
std::size_t swap_rows(Weights& weights, const std::string& a, const std::string& b) {
  std::size_t swapped = 0;
  for (auto& [name, tensor] : weights) {
    if (!name.starts_with(a) || std::isdigit(static_cast<unsigned char>(name[a.size()])) != 0) {
      continue;
    }
    Tensor<float>& other = weights.at(b + name.substr(a.size()));
    REQUIRE(other.shape == tensor.shape);
    std::swap(tensor, other);
    ++swapped;
  }
  return swapped;
}

TEST_CASE("a swap of the weights of two rows of the same shapes changes the network's logits") {
  const SmallNetwork network;
  const Tensor<float> images = network.images(3);
  const auto batch = network.batch<160>(images).values;
  const auto unswapped = network.sync<160>(3, images, network.weights).values;
  REQUIRE(compare(unswapped, batch, 1e-20).outcome == Outcome::agree);

  struct Swap {
    const char *a, *b;
    std::size_t tensors;  // W, γ and β of each site
  };
  for (const Swap& swap : {Swap{"u4", "u5", 12},
                           {"u4", "u7", 12},
                           {"u5", "u7", 12},
                           {"u8", "u10", 9},
                           {"u12", "u18", 12},
                           {"u13", "u14", 12},
                           {"u15", "u19", 6},
                           {"u15", "u20", 6},
                           {"u19", "u20", 6}}) {
    CAPTURE(swap.a, swap.b);
    Weights swapped = network.weights;
    CHECK(swap_rows(swapped, swap.a, swap.b) == swap.tensors);
    const Comparison comparison =
        compare(network.sync<160>(3, images, swapped).values, batch, 1e-20);
    INFO(comparison);
    CHECK(comparison.outcome == Outcome::differ);
  }
}

}  // namespace
}  // namespace shardproof
