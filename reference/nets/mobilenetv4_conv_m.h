// MobileNetV4-Conv-M (timm's mobilenetv4_conv_medium) as a graph: spec §5's table.
#pragma once

#include <cstddef>

#include "reference/graph/graph.h"
#include "reference/result.h"

namespace shardproof {

enum class BatchNorm { synchronised, batch };

struct NetOptions {
  std::size_t size = 224;         // input height and width, divisible by 32
  std::size_t classes = 1000;     // 1 or more
  std::size_t width_divisor = 1;  // 1, 2, 4, 8 or 16 divides every channel count, for small tests
  float epsilon = 1e-5F;
};

// The sync-BN graph that every replica runs, or the batch-BN graph of the global batch; both have
// the same parameters. An error names the option that is out of range.
Result<Graph> mobilenetv4_conv_m(const NetOptions& options, BatchNorm batch_norm);

}  // namespace shardproof
