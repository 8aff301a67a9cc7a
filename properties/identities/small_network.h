// MobileNetV4-Conv-M at a sixteenth of its width on 32² images, where enclosures of many digits
// are affordable.
#pragma once

#include <cstddef>
#include <cstdint>

#include "properties/draws.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/interval.h"

namespace shardproof {

// At 32² the last stages have one number a channel of an image: a batch has three images or more,
// or some variances would vanish. Worst-case radii lose 72 digits on the way: 80 do not suffice,
// 160 do.
struct SmallNetwork {
  using Real = Interval<160>;
  static constexpr NetOptions options{32, 3, 16, 1e-5F};

  Graph sync_graph = *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  Graph batch_graph = *mobilenetv4_conv_m(options, BatchNorm::batch);
  Weights weights;
  Tensor<float> images;

  SmallNetwork(std::size_t batch, std::uint64_t seed)
      : weights(seeded_weights(sync_graph.parameters(), seed)),
        images({batch, 3, options.size, options.size}) {
    Random random(seed, "images");
    for (float& value : images.values) value = static_cast<float>(random.triangular(1.5));
  }

  // The logits of all replicas, put back together.
  std::vector<Real> sync(std::size_t replicas, const Weights& used) const {
    const NodeId wanted = sync_graph.output();
    const Family<Real> shards = shards_of(replicas, exact<Real>(images));
    return unshard(denote<Real>(sync_graph, used, {shards}, {&wanted, 1}).front()).values;
  }
  std::vector<Real> batch() const {
    return denote_on_one_device(batch_graph, weights, exact<Real>(images)).values;
  }
};

}  // namespace shardproof
