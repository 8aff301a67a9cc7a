// Channel variances that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_channel_variance;

constexpr Recipe kPlain;

// (1/divisor) Σ (x − about)² over the first n.
template <Recipe recipe = kPlain>
float centred(const Channel& x, float about, std::size_t n, float divisor) {
  const auto deviation = [&](std::size_t i) { return x(i) - about; };
  return mean_of_products<recipe>(n, deviation, deviation, divisor);
}
float centred(const Channel& x, float about) {
  return centred(x, about, x.size(), static_cast<float>(x.size()));
}
float square(float x) { return x * x; }

}  // namespace

void add_channel_variance_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.channel_variance = operation; }});
  };
  add("variance-without-the-between-term", "tensorflow/tpu#321",
      "the mean of the replicas' own variances", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float) { return centred(x, own); });
      });
  add("variance-unbiased", "pytorch/pytorch#40600", "divides by m − 1", [](const Call* c) {
    return each_variance(c, [](Channel x, float own, float mean) {
      return centred(x, own, x.size(), static_cast<float>(x.size() - 1)) + square(own - mean);
    });
  });
  add("variance-in-one-pass", "google/objax#182",
      "Σx²/m − mean², clamped at zero, and the contract does not say so", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          return std::max(second_moment<kPlain>(x, 0) - own * own, 0.0F) + square(own - mean);
        });
      });
  add("variance-in-one-pass-of-bfloat16", "tenstorrent/tt-metal#45968", "Σx²/m − mean² in bfloat16",
      [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          const float q = to_bfloat16(centred<Recipe{.sum = Recipe::Sum::bfloat16}>(
              x, 0, x.size(), static_cast<float>(x.size())));
          return to_bfloat16(q - to_bfloat16(own * own)) + square(own - mean);
        });
      });
  add("variance-in-float16-sums", "pytorch/pytorch#126525",
      "the sum of squares is float16 and overflows above 65,504",
      channel_variance<Recipe{.sum = Recipe::Sum::float16}>);
  add("variance-in-bfloat16-sums", "google/CommonLoopUtils#380", "the sum of squares is bfloat16",
      channel_variance<Recipe{.sum = Recipe::Sum::bfloat16}>);
  add("variance-with-padding", "tenstorrent/tt-metal#34584",
      "zeros that pad a tile of 32 enter Σ(x − mean)² and its divisor", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          const std::size_t padded = (x.size() + 31) / 32 * 32;
          const auto deviation = [&](std::size_t i) { return (i < x.size() ? x(i) : 0) - own; };
          return mean_of_products<kPlain>(padded, deviation, deviation,
                                          static_cast<float>(padded)) +
                 square(own - mean);
        });
      });
  add("variance-counts-the-between-term-twice", "", "about the global mean, and the term again",
      [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          return centred(x, mean) + square(own - mean);
        });
      });
  add("between-term-not-squared", "", "adds |own mean − mean| in place of its square",
      [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          return centred(x, own) + std::abs(own - mean);
        });
      });
  add("between-term-divided-by-replicas", "",
      "the between term is divided by R once here and once in the all-reduce", [](const Call* c) {
        const auto replicas = static_cast<float>(c->header.replicas);
        return each_variance(c, [=](Channel x, float own, float mean) {
          return centred(x, own) + square(own - mean) / replicas;
        });
      });
  add("variance-of-the-last-example", "ROCm/MIOpen#97",
      "each example overwrites the sum of the others", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          const std::size_t before = x.size() - x.plane;
          const auto deviation = [&](std::size_t i) { return x(before + i) - own; };
          return mean_of_products<kPlain>(x.plane, deviation, deviation,
                                          static_cast<float>(x.size())) +
                 square(own - mean);
        });
      });
  add("variance-loses-the-last-number", "", "the loop ends one early", [](const Call* c) {
    return each_variance(c, [](Channel x, float own, float mean) {
      return centred(x, own, x.size() - 1, static_cast<float>(x.size())) + square(own - mean);
    });
  });
  add("variance-loses-the-tail-of-vectors-of-four", "deepspeedai/DeepSpeed#3109",
      "numbers past the last whole vector of four are not added", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          const std::size_t n = x.size() < 4 ? x.size() : x.size() / 4 * 4;
          return centred(x, own, n, static_cast<float>(x.size())) + square(own - mean);
        });
      });
  add("variance-about-the-mean-of-the-next-channel", "NVIDIA/apex#1184",
      "a shared buffer is reused without a barrier: the next channel's own mean",
      [](const Call* c) {
        const std::size_t channels = extent(c->x, 1);
        return each_variance(c, [&](Channel x, float own, float mean) {
          return centred(x, values(c->own_mean)[(x.c + 1) % channels]) + square(own - mean);
        });
      });
  add("variance-over-channels-last", "chainer/chainer#8497",
      "channel c is taken to be every C-th number", [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          const auto deviation = [&](std::size_t i) { return x.x[i * x.channels + x.c] - own; };
          return mean_of_products<kPlain>(x.size(), deviation, deviation,
                                          static_cast<float>(x.size())) +
                 square(own - mean);
        });
      });
  add("variance-mean-of-absolute-deviations", "", "Σ|x − mean| squared, over m²",
      [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          return square(mean_of<kPlain>(x.size(),
                                        [&](std::size_t i) { return std::abs(x(i) - own); })) +
                 square(own - mean);
        });
      });
  add("variance-of-one-replica", "",
      "replicas other than 0 hand on the variance about their own mean", [](const Call* c) {
        const bool first = c->header.replica == 0;
        return each_variance(c, [=](Channel x, float own, float mean) {
          return centred(x, own) + (first ? square(own - mean) : 0);
        });
      });
  add("variance-with-a-float16-count", "pytorch/pytorch#12115", "the count is rounded to float16",
      [](const Call* c) {
        return each_variance(c, [](Channel x, float own, float mean) {
          return centred(x, own, x.size(), to_float16(static_cast<float>(x.size()))) +
                 square(own - mean);
        });
      });
}

}  // namespace shardproof
