// Rows of MobileNetV4-Conv-M that have the same shapes: only names tell their weights apart
// (spec §5), so the network must notice when two are swapped.
#include <array>
#include <sstream>
#include <string>

#include "properties/enclosures.h"
#include "properties/identities/identities.h"
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
    claim(other.shape == tensor.shape, "the rows have the same shapes");
    std::swap(tensor, other);
    ++swapped;
  }
  return swapped;
}

struct Swap {
  const char *a, *b;
  std::size_t tensors;  // W, γ and β of each site
};
constexpr std::array kSwaps = {
    Swap{"u4", "u5", 12},  Swap{"u4", "u7", 12},   Swap{"u5", "u7", 12},
    Swap{"u8", "u10", 9},  Swap{"u12", "u18", 12}, Swap{"u13", "u14", 12},
    Swap{"u15", "u19", 6}, Swap{"u15", "u20", 6},  Swap{"u19", "u20", 6}};

void by_enclosures(Draws& draws, Trial&) {
  static constexpr std::array<std::string_view, kSwaps.size()> rows = {
      "4 and 5",   "4 and 7",   "5 and 7",   "8 and 10", "12 and 18",
      "13 and 14", "15 and 19", "15 and 20", "19 and 20"};
  const Swap& swap = kSwaps[draws.kind("rows", rows)];
  const SmallNetwork network(3, draws.seed());
  Weights swapped = network.weights;
  claim(swap_rows(swapped, swap.a, swap.b) == swap.tensors, "the rows have as many tensors");
  const SidesCompared comparison = compare(network.sync(3, swapped), network.batch(), 1e-20);
  std::ostringstream text;
  text << "a swap changes the logits: the sides " << comparison;
  claim(comparison.outcome == Agreement::differ, text.str());
}

}  // namespace

Identity swapped_rows_change_the_network() {
  return {.name = "swapped-rows-change-the-network",
          .label = "same-shape-rows",
          .statement =
              "A swap of the weights of two rows of the same shapes changes the network's "
              "logits.",
          .theorem = "",
          .properties = {{.name = "a sixteenth of its width on 32x32, by enclosures",
                          .holds = by_enclosures,
                          .one_in = 5000}}};
}

}  // namespace shardproof
