// Normalisations that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_normalise;

}  // namespace

void add_normalise_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.normalise = operation; }});
  };
  add("epsilon-as-a-floor", "vacancy/Synchronized-BatchNorm-PyTorch#43",
      "the root of max(variance, epsilon)", [](const Call* c) {
        return each_normalised(c, [](Site s) {
          return (s.x - s.mean) * (s.gamma / std::sqrt(std::max(s.variance, s.epsilon))) + s.beta;
        });
      });
  add("epsilon-clamped-on-one-replica", "microsoft/onnxruntime#2681",
      "epsilon is at least 1e-5 on replica 0", [](const Call* c) {
        const bool clamped = c->header.replica == 0;
        return each_normalised(c, [=](Site s) {
          if (clamped) s.epsilon = std::max(s.epsilon, 1e-5F);
          return s.y();
        });
      });
  add("epsilon-outside-the-root", "", "1/(√variance + epsilon)", [](const Call* c) {
    return each_normalised(c, [](Site s) {
      return (s.x - s.mean) * (s.gamma / (std::sqrt(s.variance) + s.epsilon)) + s.beta;
    });
  });
  add("epsilon-forgotten", "", "1/√variance, 0 for a variance of 0", [](const Call* c) {
    return each_normalised(c, [](Site s) {
      const float root = s.variance > 0 ? 1 / std::sqrt(s.variance) : 0;
      return (s.x - s.mean) * (s.gamma * root) + s.beta;
    });
  });
  add("epsilon-of-another-framework", "", "epsilon is 1e-3 always", [](const Call* c) {
    return each_normalised(c, [](Site s) {
      s.epsilon = 1e-3F;
      return s.y();
    });
  });
  add("statistics-of-the-next-channel", "NVIDIA/apex#1184",
      "odd channels get the mean and variance of the channel after them", [](const Call* c) {
        return each_normalised(
            c, [](Site s) { return s.y(); },
            [](std::size_t k, std::size_t channels) {
              return k % 2 == 1 && k + 1 < channels ? k + 1 : k;
            });
      });
  add("output-written-channels-last", "pytorch/pytorch#62594",
      "y is written with the strides of another layout", [](const Call* c) {
        const std::size_t channels = extent(c->x, 1), plane = extent(c->x, 2);
        std::vector<float> y(count(c->x));
        shardproof_normalise dense = *c;
        dense.y.data = y.data();
        each_normalised(&dense, [](Site s) { return s.y(); });
        for (std::size_t i = 0; i < y.size(); ++i) {
          const std::size_t n = i / (channels * plane), k = i / plane % channels, p = i % plane;
          values(c->y)[(n * plane + p) * channels + k] = y[i];
        }
        return 0;
      });
  add("gamma-before-the-mean", "", "γ·x − mean in place of γ·(x − mean)", [](const Call* c) {
    return each_normalised(c, [](Site s) { return (s.gamma * s.x - s.mean) * s.root() + s.beta; });
  });
  add("gamma-on-beta-too", "", "γ·((x − mean)·r + β)", [](const Call* c) {
    return each_normalised(c,
                           [](Site s) { return s.gamma * ((s.x - s.mean) * s.root() + s.beta); });
  });
  add("beta-forgotten", "", "y has no β", [](const Call* c) {
    return each_normalised(c, [](Site s) {
      s.beta = 0;
      return s.y();
    });
  });
  add("relu-forgotten", "", "a fused ReLU is not applied", [](const Call* c) {
    shardproof_normalise without = *c;
    without.relu = 0;
    return each_normalised(&without, [](Site s) { return s.y(); });
  });
  add("relu-always", "", "a ReLU where none is asked for", [](const Call* c) {
    shardproof_normalise with = *c;
    with.relu = 1;
    return each_normalised(&with, [](Site s) { return s.y(); });
  });
  add("relu-before-beta", "", "max(0, γ·x̂) + β", [](const Call* c) {
    const bool is_asked = c->relu == 1;
    shardproof_normalise without = *c;
    without.relu = 0;
    return each_normalised(&without, [=](Site s) {
      const float t = (s.x - s.mean) * (s.gamma * s.root());
      return (is_asked ? plain::relu(t) : t) + s.beta;
    });
  });
  add("fused-relu-loses-nan", "apache/mxnet#14262", "the fused ReLU turns NaN into 0",
      [](const Call* c) {
        const bool is_asked = c->relu == 1;
        return each_normalised(c, [=](Site s) {
          const float y = s.y();
          return is_asked && std::isnan(y) ? 0 : y;
        });
      });
  add("root-of-twelve-bits", "", "an approximate reciprocal root without a step of Newton's",
      [](const Call* c) {
        return each_normalised(c, [](Site s) {
          const auto bits = std::bit_cast<std::uint32_t>(s.root());
          const float root = std::bit_cast<float>(bits & 0xfffff000U);
          return (s.x - s.mean) * (s.gamma * root) + s.beta;
        });
      });
  add("root-in-bfloat16", "", "the reciprocal root is rounded to bfloat16", [](const Call* c) {
    return each_normalised(
        c, [](Site s) { return (s.x - s.mean) * (s.gamma * to_bfloat16(s.root())) + s.beta; });
  });
  add("variance-as-deviation", "", "divides by the variance, not by its root", [](const Call* c) {
    return each_normalised(
        c, [](Site s) { return (s.x - s.mean) * (s.gamma / (s.variance + s.epsilon)) + s.beta; });
  });
  add("fused-scale-and-shift-unsaid", "",
      "x·scale + shift, which cancels, and the contract does not say so", [](const Call* c) {
        return each_normalised(c, [](Site s) {
          const float scale = s.gamma * s.root();
          return s.x * scale + (s.beta - s.mean * scale);
        });
      });
  add("vector-tail-not-written", "deepspeedai/DeepSpeed#3109",
      "elements past the last whole vector of eight are not written", [](const Call* c) {
        const std::size_t all = count(c->x), whole = all < 8 ? all : all / 8 * 8;
        const std::size_t channels = extent(c->x, 1), plane = extent(c->x, 2);
        for (std::size_t i = 0; i < whole; ++i) {
          const std::size_t k = i / plane % channels;
          const float y = Site{values(c->x)[i],     values(c->mean)[k], values(c->variance)[k],
                               values(c->gamma)[k], values(c->beta)[k], c->epsilon}
                              .y();
          values(c->y)[i] = c->relu == 1 ? plain::relu(y) : y;
        }
        return 0;
      });
  add("y-rounded-to-bfloat16", "", "y goes through bfloat16",
      [](const Call* c) { return each_normalised(c, [](Site s) { return to_bfloat16(s.y()); }); });
  add("subnormal-y-flushed", "ROCm/rocMLIR#1962", "subnormal results become zero, unsaid",
      [](const Call* c) {
        return each_normalised(c, [](Site s) {
          const float y = s.y();
          return std::abs(y) < 0x1p-126F ? 0 : y;
        });
      });
}

}  // namespace shardproof
