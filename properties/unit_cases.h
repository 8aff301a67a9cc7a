// Units of a network as random cases of a device (agreement §3, §5): what is drawn, and what a
// property claims of them.
#pragma once

#include <functional>
#include <span>
#include <string_view>

#include "diff/verdict.h"
#include "properties/identity.h"
#include "properties/trial.h"

namespace shardproof {

// The operations that units are drawn of: per-example nodes of spec §4, and BN sites without and
// with the ReLU in the same launch.
enum class UnitOperation {
  relu,
  add,
  global_average_pool,
  dense,
  convolution_1x1,
  convolution_3x3,
  convolution_3x3_strided,
  convolution_3x3_same,
  convolution_5x5,
  depthwise_3x3,
  depthwise_3x3_strided,
  depthwise_3x3_same,
  depthwise_5x5,
  depthwise_5x5_strided,
  bn_site,
  bn_site_with_relu,
};

// One of `operations` with numbers and a schedule: R = 1, 2, 3, 5 or 7; shapes small and now and
// then around the edges of blocks and tiles, extents all alike or all different; lattice, dithered
// and natural inputs and corners.
UnitCase draw_unit_case(Draws& draws, std::span<const UnitOperation> operations);

// Refutes unless every comparison of the case that `about` picks agrees; discards a case of which
// none could be judged.
void claim_unit_agrees(const UnitCase& drawn, Trial& trial,
                       const std::function<bool(const Comparison&)>& about = {});

}  // namespace shardproof
