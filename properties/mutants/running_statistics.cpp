// Running statistics that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_running_statistics;

}  // namespace

void add_running_statistics_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.running_statistics = operation; }});
  };
  add("running-momentum-exchanged", "Oneflow-Inc/oneflow#6055",
      "momentum weighs the old value, as in cuDNN", [](const Call* c) {
        return each_running(c, [=](float old, float batch, float unbiased) {
          return c->momentum * old + (1 - c->momentum) * (batch * unbiased);
        });
      });
  add("running-variance-biased", "ml-explore/mlx#3817", "n/(n − 1) is missing", [](const Call* c) {
    return each_running(c, [=](float old, float batch, float) {
      return (1 - c->momentum) * old + c->momentum * batch;
    });
  });
  add("running-variance-of-its-own-count", "pytorch/pytorch#22192",
      "the count of one replica in place of all", [](const Call* c) {
        Call own = *c;
        own.count = c->count / c->header.replicas;
        if (own.count < 2) own.count = c->count;
        return each_running(&own, [=](float old, float batch, float unbiased) {
          return (1 - c->momentum) * old + c->momentum * (batch * unbiased);
        });
      });
  add("running-mean-unbiased-too", "apache/mxnet#21111",
      "the mean is multiplied by n/(n − 1) as well", [](const Call* c) {
        const auto n = static_cast<float>(c->count);
        const float unbiased = c->count < 2 ? 1 : n / (n - 1);
        for (std::size_t k = 0; c->count > 0 && k < extent(c->mean, 0); ++k) {
          for (const auto& [running, batch] : {std::pair(&c->running_mean, &c->mean),
                                               std::pair(&c->running_variance, &c->variance)}) {
            float& value = values(*running)[k];
            value = (1 - c->momentum) * value + c->momentum * (values(*batch)[k] * unbiased);
          }
        }
        return 0;
      });
  add("running-update-deferred", "apache/mxnet#18751", "nothing happens until the next call",
      [](const Call*) { return 0; });
  add("running-update-skipped-for-few", "NVIDIA/apex#262",
      "no update where a replica has one number a channel", [](const Call* c) {
        if (c->count / c->header.replicas <= 1) return 0;
        return each_running(c, [=](float old, float batch, float unbiased) {
          return (1 - c->momentum) * old + c->momentum * (batch * unbiased);
        });
      });
  add("running-update-without-numbers", "open-mmlab/mmcv#1205",
      "momentum is applied to a batch of no numbers", [](const Call* c) {
        Call any = *c;
        any.count = std::max<std::uint64_t>(c->count, 2);
        return each_running(&any, [=](float old, float batch, float unbiased) {
          return (1 - c->momentum) * old + (c->count == 0 ? 0 : c->momentum * (batch * unbiased));
        });
      });
  add("running-update-twice", "tile-ai/TileOPs#1727", "two threads update the same cell",
      [](const Call* c) {
        const auto once = [=](float old, float batch, float unbiased) {
          return (1 - c->momentum) * old + c->momentum * (batch * unbiased);
        };
        return each_running(c, once) | each_running(c, once);
      });
  add("running-update-on-replica-0-alone", "pytorch/pytorch#1051",
      "the other replicas keep their values", [](const Call* c) {
        if (c->header.replica != 0) return 0;
        return each_running(c, [=](float old, float batch, float unbiased) {
          return (1 - c->momentum) * old + c->momentum * (batch * unbiased);
        });
      });
  add("running-values-in-bfloat16", "", "the new value is stored in bfloat16", [](const Call* c) {
    return each_running(c, [=](float old, float batch, float unbiased) {
      return to_bfloat16((1 - c->momentum) * old + c->momentum * (batch * unbiased));
    });
  });
  add("running-value-divided-by-none", "pytorch/pytorch#12013",
      "a batch of no numbers has the mean 0/0", [](const Call* c) {
        if (c->count > 0) {
          return each_running(c, [=](float old, float batch, float unbiased) {
            return (1 - c->momentum) * old + c->momentum * (batch * unbiased);
          });
        }
        for (std::size_t k = 0; k < extent(c->mean, 0); ++k) {
          values(c->running_mean)[k] = std::nanf("");
        }
        return 0;
      });
}

}  // namespace shardproof
