// Channel means that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_channel_mean;

constexpr Recipe kPlain;

template <class F>
float sum(std::size_t n, F term) {
  return dot<kPlain>(n, term, [](std::size_t) { return 1.0F; });
}

}  // namespace

void add_channel_mean_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.channel_mean = operation; }});
  };
  add("mean-divided-by-a-padded-count", "tenstorrent/tt-metal#34584",
      "a channel's sum is divided by its count rounded up to whole tiles of 32", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          return sum(x.size(), x) / static_cast<float>((x.size() + 31) / 32 * 32);
        });
      });
  add("mean-over-channels-last", "tensorflow/tensorflow#43165",
      "channel c is taken to be every C-th number, as if channels came last", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          return mean_of<kPlain>(x.size(),
                                 [&](std::size_t i) { return x.x[i * x.channels + x.c]; });
        });
      });
  add("mean-divided-by-pixels-times-channels", "sony/nnabla-ext-cuda#457",
      "the count of a channel is H·W·C in place of N·H·W", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          return sum(x.size(), x) / static_cast<float>(x.plane * x.channels);
        });
      });
  add("mean-of-a-power-of-two-of-channels", "pytorch/pytorch#57077",
      "only the first floor-power-of-two channels are written", [](const Call* c) {
        const std::size_t channels = std::bit_floor(extent(c->x, 1));
        for (std::size_t k = 0; k < channels; ++k) {
          const Channel x = channel_of(c->x, k);
          values(c->mean)[k] = mean_of<kPlain>(x.size(), x);
        }
        return 0;
      });
  add("mean-loses-lanes-of-a-partial-warp", "pytorch/pytorch#13765",
      "below 32 numbers the tree over lanes starts at a power of two and loses the rest",
      [](const Call* c) {
        return each_mean(c, [](Channel x) {
          const std::size_t n = x.size() < 32 ? std::bit_floor(x.size()) : x.size();
          return sum(n, x) / static_cast<float>(x.size());
        });
      });
  add("mean-in-bfloat16-sums", "google/CommonLoopUtils#380",
      "the running sum is bfloat16, and the contract does not say so",
      channel_mean<Recipe{.sum = Recipe::Sum::bfloat16}>);
  add("mean-in-float16-sums", "", "the running sum is float16, and the contract does not say so",
      channel_mean<Recipe{.sum = Recipe::Sum::float16}>);
  add("mean-with-a-float16-count", "pytorch/pytorch#98332",
      "the count is rounded to float16: 2,049 becomes 2,048", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          return sum(x.size(), x) / to_float16(static_cast<float>(x.size()));
        });
      });
  add("mean-of-the-last-example", "ROCm/MIOpen#97", "each example overwrites the sum of the others",
      [](const Call* c) {
        return each_mean(c, [](Channel x) {
          const std::size_t before = x.size() - x.plane;
          return sum(x.plane, [&](std::size_t i) { return x(before + i); }) /
                 static_cast<float>(x.size());
        });
      });
  add("mean-starts-from-the-channel-before", "pytorch/pytorch#147303",
      "the accumulator is not zeroed from one channel to the next", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          float all = 0;
          for (std::size_t k = x.c == 0 ? 0 : x.c - 1; k <= x.c; ++k) {
            all += sum(x.size(), x.other(k));
          }
          return all / static_cast<float>(x.size());
        });
      });
  add("mean-loses-the-tail-of-vectors-of-four", "deepspeedai/DeepSpeed#3109",
      "numbers past the last whole vector of four are not added", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          const std::size_t n = x.size() < 4 ? x.size() : x.size() / 4 * 4;
          return sum(n, x) / static_cast<float>(x.size());
        });
      });
  add("mean-loses-what-is-past-a-block", "ROCm/rocm-systems#7711",
      "blocks of 256 take ⌊m/256⌋·256 numbers; what is left is not added", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          const std::size_t n = x.size() < 256 ? x.size() : x.size() / 256 * 256;
          return sum(n, x) / static_cast<float>(x.size());
        });
      });
  add("mean-divided-by-one-less", "", "divides by m − 1", [](const Call* c) {
    return each_mean(c,
                     [](Channel x) { return sum(x.size(), x) / static_cast<float>(x.size() - 1); });
  });
  add("mean-counts-in-eight-bits", "ROCm/rocm-libraries#4611",
      "a loop bound of eight bits wraps at 256 numbers", [](const Call* c) {
        return each_mean(c, [](Channel x) {
          const std::size_t n = x.size() > 256 ? x.size() % 256 : x.size();
          return sum(n, x) / static_cast<float>(x.size());
        });
      });
  add("mean-rounded-to-bfloat16", "", "the mean is stored in bfloat16 on its way",
      [](const Call* c) {
        return each_mean(c, [](Channel x) { return to_bfloat16(mean_of<kPlain>(x.size(), x)); });
      });
  add("mean-without-a-huge-number", "", "numbers above 2^20 count as zero", [](const Call* c) {
    return each_mean(c, [](Channel x) {
      return mean_of<kPlain>(x.size(),
                             [&](std::size_t i) { return std::abs(x(i)) > 0x1p20F ? 0.0F : x(i); });
    });
  });
  add("mean-of-the-first-example-on-one-replica", "", "replica 1 counts its first example alone",
      [](const Call* c) {
        const bool first = c->header.replica == 1;
        return each_mean(c,
                         [=](Channel x) { return mean_of<kPlain>(first ? x.plane : x.size(), x); });
      });
}

}  // namespace shardproof
