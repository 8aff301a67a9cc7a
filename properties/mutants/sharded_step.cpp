// What is wrong in a sharded optimizer step: reduce-scatter, the owned step, all-gather.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Terms = std::vector<float>;
using Collective = shardproof_collective_call;
using Step = shardproof_owned_step;
using Assignment = shardproof_assignment;

constexpr Recipe kPlain;

float sum(const Terms& terms) {
  float total = 0;
  for (const float term : terms) total += term;
  return total;
}
float replicas(const Terms& terms) { return static_cast<float>(terms.size()); }
std::size_t own_part(const Collective* c) { return c->header.replica * c->count; }

void add_reduce_scatters(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Collective*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.reduce_scatter_mean = operation; }});
  };
  add("scatter-not-divided", "", "the sum in place of the mean", [](const Collective* c) {
    return each_reduced(c, own_part(c), [](std::size_t, const Terms& t) { return sum(t); });
  });
  add("scatter-divided-twice", "tczhangzhi/pytorch-distributed#14", "divides by R twice",
      [](const Collective* c) {
        return each_reduced(c, own_part(c), [](std::size_t, const Terms& t) {
          return sum(t) / replicas(t) / replicas(t);
        });
      });
  add("scatter-divided-by-elements", "meta-pytorch/torchcomms#287",
      "divides by the number of elements", [](const Collective* c) {
        const auto elements = static_cast<float>(c->count);
        return each_reduced(c, own_part(c),
                            [=](std::size_t, const Terms& t) { return sum(t) / elements; });
      });
  add("scatter-of-the-next-rank", "NVIDIA/Megatron-LM#844", "each rank gets the part of the next",
      [](const Collective* c) {
        const std::size_t next = (c->header.replica + 1) % c->header.replicas;
        return each_reduced(c, next * c->count, [](std::size_t, const Terms& t) {
          return mean_of_replicas<kPlain>(t);
        });
      });
  add("scatter-of-its-own-numbers", "karpathy/llm.c#524",
      "a rank keeps its own gradient where it should have the reduced one",
      [](const Collective* c) {
        const std::size_t own = c->header.replica;
        return each_reduced(c, own_part(c), [=](std::size_t, const Terms& t) { return t[own]; });
      });
  add("scatter-drops-the-remainder", "NVIDIA/Megatron-LM#561",
      "the last element of an odd part is not written", [](const Collective* c) {
        Collective whole = *c;
        const std::size_t first = own_part(c);
        if (whole.count > 1) whole.count -= whole.count % 2;
        return each_reduced(
            &whole, first, [](std::size_t, const Terms& t) { return mean_of_replicas<kPlain>(t); });
      });
  add("scatter-in-bfloat16", "pytorch/pytorch#190627", "numbers travel as bfloat16",
      [](const Collective* c) {
        return each_reduced(c, own_part(c), [](std::size_t, const Terms& t) {
          float total = 0;
          for (const float term : t) total += to_bfloat16(term);
          return total / replicas(t);
        });
      });
  add("scatter-clips-each-rank", "NVIDIA/apex#1096",
      "gradients are clipped before they are averaged", [](const Collective* c) {
        return each_reduced(c, own_part(c), [](std::size_t, const Terms& t) {
          float total = 0;
          for (const float term : t) total += std::clamp(term, -1.0F, 1.0F);
          return total / replicas(t);
        });
      });
  add("scatter-divided-by-visible-devices", "zyushun/Adam-mini#42", "R is taken to be 1",
      [](const Collective* c) {
        return each_reduced(c, own_part(c), [](std::size_t, const Terms& t) { return sum(t) / 1; });
      });
  add("scatter-premultiplied-unsaid", "", "adds x/R as ncclAvg does, and does not say so",
      reduce_scatter_mean<Recipe{.mean = Recipe::Mean::premultiply}>);
}

void add_all_gathers(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Collective*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.all_gather = operation; }});
  };
  static constexpr auto same = [](std::size_t i) { return i; };
  add("gather-in-reverse", "", "ranks stand in another order", [](const Collective* c) {
    const std::size_t last = c->header.replicas - 1;
    return gather(
        c, [=](std::size_t r) { return last - r; }, same);
  });
  add("gather-of-one-rank", "", "every part is that of rank 0", [](const Collective* c) {
    return gather(
        c, [](std::size_t) { return std::size_t{0}; }, same);
  });
  add("gather-of-its-own", "aws-neuron/aws-neuron-sdk#1107",
      "the groups are dropped: every part is the rank's own", [](const Collective* c) {
        const std::size_t own = c->header.replica;
        return gather(
            c, [=](std::size_t) { return own; }, same);
      });
  add("gather-starts-one-late", "deepspeedai/DeepSpeed#5105",
      "a slice starts without its alignment", [](const Collective* c) {
        const std::size_t count = c->count;
        return gather(
            c, [](std::size_t r) { return r; },
            [=](std::size_t i) { return i + 1 < count ? i + 1 : i; });
      });
  add("gather-striped", "mllam/neural-lam#748", "parts are dealt out one number at a time",
      [](const Collective* c) {
        const std::size_t bytes = c->dtype == SHARDPROOF_FLOAT32 ? 4 : 2;
        const std::size_t ranks = c->header.replicas;
        std::vector<char> result(ranks * c->count * bytes);
        for (std::size_t k = 0; k < ranks * c->count; ++k) {
          std::memcpy(&result[k * bytes],
                      static_cast<const char*>(c->sends[k % ranks]) + k / ranks * bytes, bytes);
        }
        const shardproof_collective* joined = c->header.collective;
        if (joined->barrier(joined) != 0) return 1;
        std::memcpy(c->receives[c->header.replica], result.data(), result.size());
        return joined->barrier(joined);
      });
  add("gather-leaves-out-the-last", "pytorch/pytorch#103306", "the last rank's part is not written",
      [](const Collective* c) {
        Collective fewer = *c;
        if (fewer.header.replicas > 1) --fewer.header.replicas;
        return gather(
            &fewer, [](std::size_t r) { return r; }, same);
      });
  add("gather-wrong-on-one-rank", "pytorch/pytorch#63916", "rank 1 keeps the part of rank 0 twice",
      [](const Collective* c) {
        const bool stale = c->header.replica == 1;
        return gather(
            c, [=](std::size_t r) { return stale && r == 1 ? 0 : r; }, same);
      });
}

void add_owned_steps(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Step*)) {
    mutants.push_back({name, report, what, false, false, [=](shardproof_candidate_table& t) {
                         t.owned_step = operation;
                         t.contracts[SHARDPROOF_OWNED_STEP].contraction = SHARDPROOF_NO;
                       }});
  };
  add("step-loses-the-tail", "deepspeedai/DeepSpeed#3109",
      "coordinates past the last whole vector of eight are not updated", [](const Step* c) {
        const std::size_t whole = c->count < 8 ? c->count : c->count / 8 * 8;
        for (std::size_t i = 0; i < whole; ++i) step_coordinate(c, i, apply);
        return 0;
      });
  add("step-updates-the-tail-twice", "deepspeedai/DeepSpeed#3109",
      "the last coordinate of a run is updated once by the vector loop and once by the tail's",
      [](const Step* c) {
        const int status = owned_step(c, apply);
        if (c->count > 4) step_coordinate(c, c->count - 1, apply);
        return status;
      });
  add("step-with-epsilon-inside-the-root", "aiqm/torchani#261", "√(v + 1e-8) in place of √v",
      [](const Step* c) {
        return owned_step(c, [](const Assignment& f, float a, float b, float d) {
          return f.function == 3 ? std::sqrt(a + 1e-8F) : apply(f, a, b, d);
        });
      });
  add("step-in-another-order", "bitsandbytes-foundation/bitsandbytes#2010",
      "the last assignment runs first, as weight decay after the step", [](const Step* c) {
        std::vector<shardproof_assignment> turned(c->assignments,
                                                  c->assignments + c->assignment_count);
        std::rotate(turned.begin(), turned.end() - 1, turned.end());
        Step other = *c;
        other.assignments = turned.data();
        return owned_step(&other, apply);
      });
  add("step-in-bfloat16", "NVIDIA/Megatron-LM#1359", "what is assigned is rounded to bfloat16",
      [](const Step* c) {
        return owned_step(c, [](const Assignment& f, float a, float b, float d) {
          return to_bfloat16(apply(f, a, b, d));
        });
      });
  add("step-of-the-first-parameter", "", "parameters after the first are not updated",
      [](const Step* c) { return c->parameter == 0 ? owned_step(c, apply) : 0; });
  add("step-divides-by-the-reciprocal", "", "a·(1/b) in place of a/b, unsaid", [](const Step* c) {
    return owned_step(c, [](const Assignment& f, float a, float b, float d) {
      return f.function == 9 ? a * (1 / b) : apply(f, a, b, d);
    });
  });
  add("step-with-a-root-of-twelve-bits", "", "an approximate root, unsaid", [](const Step* c) {
    return owned_step(c, [](const Assignment& f, float a, float b, float d) {
      const float y = apply(f, a, b, d);
      return f.function == 3 ? std::bit_cast<float>(std::bit_cast<std::uint32_t>(y) & 0xfffff000U)
                             : y;
    });
  });
  add("step-takes-zero-for-positive", "", "sign(0) is 1", [](const Step* c) {
    return owned_step(c, [](const Assignment& f, float a, float b, float d) {
      return f.function == 5 && a == 0 ? 1 : apply(f, a, b, d);
    });
  });
  add("step-loses-nan-in-minimum-and-maximum", "apache/mxnet#14262",
      "minimum and maximum take the number where one operand is NaN", [](const Step* c) {
        return owned_step(c, [](const Assignment& f, float a, float b, float d) {
          if (f.function == 10) return std::fmin(a, b);
          return f.function == 11 ? std::fmax(a, b) : apply(f, a, b, d);
        });
      });
  add("step-flushes-subnormals", "ROCm/rocMLIR#1962", "subnormal results become zero, unsaid",
      [](const Step* c) {
        return owned_step(c, [](const Assignment& f, float a, float b, float d) {
          const float y = apply(f, a, b, d);
          return std::abs(y) < 0x1p-126F ? 0 : y;
        });
      });
  add("step-past-its-end", "meta-pytorch/torchcomms#3860",
      "the last vector updates coordinates of the next run too", [](const Step* c) {
        Step longer = *c;
        longer.count = (c->count + 3) / 4 * 4;
        return owned_step(&longer, apply);
      });
  add("step-of-the-coordinate-before", "NVIDIA/Megatron-LM#7452",
      "a local index stands for a global one: rows and columns of another element",
      [](const Step* c) {
        Step local = *c;
        local.element_at = nullptr;
        local.first_element = 0;
        return owned_step(&local, apply);
      });
  add("step-adds-what-it-should-subtract", "", "differences are sums", [](const Step* c) {
    return owned_step(c, [](const Assignment& f, float a, float b, float d) {
      return f.function == 7 ? a + b : apply(f, a, b, d);
    });
  });
  add("step-clips-at-float16", "", "results are cut off at 65,504", [](const Step* c) {
    return owned_step(c, [](const Assignment& f, float a, float b, float d) {
      const float y = apply(f, a, b, d);
      return std::isnan(y) ? y : std::clamp(y, -65504.0F, 65504.0F);
    });
  });
  add("step-fuses-unsaid", "",
      "a product and the sum after it in one rounding, and the contract says no",
      [](const Step* c) { return owned_step(c, Fused{}); });
}

}  // namespace

void add_sharded_step_mutants(std::vector<Mutant>& mutants) {
  add_reduce_scatters(mutants);
  add_all_gathers(mutants);
  add_owned_steps(mutants);
}

}  // namespace shardproof
