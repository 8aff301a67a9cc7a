// Average pools that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_unary;

constexpr Recipe kPlain;

float sum(std::size_t n, const Channel& x) {
  return dot<kPlain>(n, x, [](std::size_t) { return 1.0F; });
}

}  // namespace

void add_global_average_pool_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.global_average_pool = operation; }});
  };
  add("pool-in-float16-sums", "ROCm/MIOpen#2109", "the running sum is float16",
      global_average_pool<Recipe{.sum = Recipe::Sum::float16}>);
  add("pool-with-a-float16-count", "pytorch/pytorch#12115", "the count is rounded to float16",
      [](const Call* c) {
        return each_pooled(c, [](Channel x) {
          return sum(x.size(), x) / to_float16(static_cast<float>(x.size()));
        });
      });
  add("pool-divided-by-a-whole-window", "apple/coremltools#2844",
      "the sum is divided by a square window that the plane does not fill", [](const Call* c) {
        return each_pooled(c, [](Channel x) {
          const auto side = static_cast<std::size_t>(std::ceil(std::sqrt(x.size())));
          return sum(x.size(), x) / static_cast<float>(side * side);
        });
      });
  add("pool-over-the-wrong-axes", "chainer/chainer#8497", "the mean over channels-last strides",
      [](const Call* c) {
        const std::size_t channels = extent(c->x, 1), plane = extent(c->x, 2);
        for (std::size_t row = 0; row < extent(c->x, 0) * channels; ++row) {
          const float* image = values(c->x) + row / channels * channels * plane;
          values(c->y)[row] = mean_of<kPlain>(
              plane, [&](std::size_t i) { return image[i * channels + row % channels]; });
        }
        return 0;
      });
  add("pool-loses-the-tail", "deepspeedai/DeepSpeed#3109",
      "pixels past the last whole vector of four are not added", [](const Call* c) {
        return each_pooled(c, [](Channel x) {
          const std::size_t n = x.size() < 4 ? x.size() : x.size() / 4 * 4;
          return sum(n, x) / static_cast<float>(x.size());
        });
      });
  add("pool-of-the-largest", "", "the largest pixel in place of the mean", [](const Call* c) {
    return each_pooled(c, [](Channel x) { return *std::max_element(x.x, x.x + x.size()); });
  });
  add("pool-not-divided", "", "the sum of the pixels",
      [](const Call* c) { return each_pooled(c, [](Channel x) { return sum(x.size(), x); }); });
  add("pool-with-an-empty-split", "InternLM/lmdeploy#4696",
      "two halves are averaged by their own counts, and joined as if alike", [](const Call* c) {
        return each_pooled(c, [](Channel x) {
          const std::size_t half = (x.size() + 1) / 2, rest = x.size() - half;
          const Channel second{x.x + half, 1, 1, std::max<std::size_t>(rest, 1), 0};
          const float a = sum(half, x) / static_cast<float>(half);
          return rest == 0 ? a : (a + sum(rest, second) / static_cast<float>(rest)) / 2;
        });
      });
  add("pool-by-the-reciprocal-unsaid", "", "multiplies by 1/n, and the contract does not say so",
      global_average_pool<Recipe{.mean = Recipe::Mean::reciprocal}>);
}

}  // namespace shardproof
