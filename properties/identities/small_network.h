// MobileNetV4-Conv-M at a sixteenth of its width on 32² images, where enclosures of many digits
// are affordable.
#pragma once

#include <cstddef>

#include "properties/draws.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/interval.h"

namespace shardproof {

struct SmallNetwork {
  static constexpr NetOptions options{32, 3, 16, 1e-5F};
  Graph sync_graph = *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  Graph batch_graph = *mobilenetv4_conv_m(options, BatchNorm::batch);
  Weights weights = seeded_weights(sync_graph.parameters(), 4);

  Tensor<float> images(std::size_t batch) const {
    Tensor<float> x({batch, 3, options.size, options.size});
    Random random(batch, "images");
    for (float& value : x.values) value = static_cast<float>(random.triangular(1.5));
    return x;
  }

  // The logits of all replicas, put back together.
  template <int Digits>
  Tensor<Interval<Digits>> sync(std::size_t replicas, const Tensor<float>& images,
                                const Weights& used) const {
    using Real = Interval<Digits>;
    const NodeId wanted = sync_graph.output();
    return unshard(
        denote<Real>(sync_graph, used, {shards_of(replicas, exact<Real>(images))}, {&wanted, 1})
            .front());
  }
  template <int Digits>
  Tensor<Interval<Digits>> batch(const Tensor<float>& images) const {
    return denote_on_one_device(batch_graph, weights, exact<Interval<Digits>>(images));
  }
};

}  // namespace shardproof
