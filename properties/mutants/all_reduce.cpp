// All-reduced means and sums, and broadcasts, that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_collective_call;
using Terms = std::vector<float>;

constexpr Recipe kPlain;

float sum(const Terms& terms) {
  float total = 0;
  for (const float term : terms) total += term;
  return total;
}
float replicas(const Terms& terms) { return static_cast<float>(terms.size()); }

int wait(const Call* call) {
  const shardproof_collective* joined = call->header.collective;
  return joined->barrier(joined) | joined->barrier(joined);
}
// The first `count` numbers of the root.
int spread(const Call* call, std::size_t count) {
  const auto* from = static_cast<const float*>(call->sends[call->root]);
  const std::vector<float> numbers(from, from + count);
  const shardproof_collective* joined = call->header.collective;
  if (joined->barrier(joined) != 0) return 1;
  std::copy(numbers.begin(), numbers.end(),
            static_cast<float*>(call->receives[call->header.replica]));
  return joined->barrier(joined);
}

}  // namespace

void add_all_reduce_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.all_reduce_mean = operation; }});
  };
  add("reduce-not-divided", "", "the sum in place of the mean", [](const Call* c) {
    return each_reduced(c, [](std::size_t, const Terms& terms) { return sum(terms); });
  });
  add("reduce-divided-twice", "tczhangzhi/pytorch-distributed#14", "divides by R twice",
      [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          return sum(terms) / replicas(terms) / replicas(terms);
        });
      });
  add("reduce-divided-by-elements", "meta-pytorch/torchcomms#287",
      "divides by the number of elements", [](const Call* c) {
        const auto elements = static_cast<float>(c->count);
        return each_reduced(c,
                            [=](std::size_t, const Terms& terms) { return sum(terms) / elements; });
      });
  add("reduce-scaled-as-integer", "InfiniTensor/InfiniCCL#37", "multiplies by int(1/R)",
      [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          return sum(terms) * static_cast<float>(static_cast<int>(1 / replicas(terms)));
        });
      });
  add("reduce-scaled-at-every-level", "openucx/ucc#585",
      "each level of the tree halves, also where R is no power of two", [](const Call* c) {
        return each_reduced(c, [](std::size_t, Terms terms) {
          while (terms.size() > 1) {
            Terms next;
            for (std::size_t i = 0; i + 1 < terms.size(); i += 2) {
              next.push_back((terms[i] + terms[i + 1]) / 2);
            }
            if (terms.size() % 2 == 1) next.push_back(terms.back());
            terms = next;
          }
          return terms[0];
        });
      });
  add("reduce-forwards-partial-sums", "microsoft/ark#253",
      "the send buffer is the accumulator: a ring hands on sums, right at R = 2 alone",
      [](const Call* c) {
        const std::size_t own = c->header.replica;
        return each_reduced(c, [=](std::size_t, Terms terms) {
          Terms held = terms;
          for (std::size_t hop = 1; hop < terms.size(); ++hop) {
            Terms next = held;
            for (std::size_t r = 0; r < terms.size(); ++r) {
              next[r] += held[(r + terms.size() - 1) % terms.size()];
            }
            held = next;
          }
          return held[own] / replicas(terms);
        });
      });
  add("reduce-covers-whole-blocks", "NVIDIA/nccl#1950",
      "two blocks take ⌊n/2⌋ elements each; the last of an odd count is not written",
      [](const Call* c) {
        Call whole = *c;
        if (whole.count > 1) whole.count -= whole.count % 2;
        return all_reduce_mean<kPlain>(&whole);
      });
  add("reduce-in-a-group-of-its-own", "aws-neuron/aws-neuron-sdk#1107",
      "the replica groups are dropped: each replica keeps its own", [](const Call* c) {
        const std::size_t own = c->header.replica;
        return each_reduced(c, [=](std::size_t, const Terms& terms) { return terms[own]; });
      });
  add("reduce-divided-by-those-left", "pytorch/pytorch#42577",
      "one replica fewer is counted than is added", [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          return sum(terms) / std::max(replicas(terms) - 1, 1.0F);
        });
      });
  add("reduce-without-the-last", "", "the last replica's numbers are not added", [](const Call* c) {
    return each_reduced(c, [](std::size_t, const Terms& terms) {
      return (sum(terms) - terms.back()) / replicas(terms);
    });
  });
  add("reduce-in-bfloat16", "pytorch/pytorch#190627", "numbers travel as bfloat16",
      [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          float total = 0;
          for (const float term : terms) total += to_bfloat16(term);
          return total / replicas(terms);
        });
      });
  add("reduce-starts-at-its-own", "NVIDIA/nccl#434",
      "each replica adds from itself on, so that bits differ between replicas", [](const Call* c) {
        const std::size_t own = c->header.replica;
        return each_reduced(c, [=](std::size_t, const Terms& terms) {
          float total = 0;
          for (std::size_t k = 0; k < terms.size(); ++k) total += terms[(own + k) % terms.size()];
          return total / replicas(terms);
        });
      });
  add("reduce-on-the-root-alone", "", "replicas other than 0 keep what they sent",
      [](const Call* c) {
        const std::size_t own = c->header.replica;
        return each_reduced(c, [=](std::size_t, const Terms& terms) {
          return own == 0 ? mean_of_replicas<kPlain>(terms) : terms[own];
        });
      });
  add("reduce-premultiplied-unsaid", "", "adds x/R as ncclAvg does, and does not say so",
      all_reduce_mean<Recipe{.mean = Recipe::Mean::premultiply}>);
  add("reduce-scale-of-another-encoding", "ROCm/rocm-systems#10374",
      "1/R is rounded to bfloat16 on its way to the device", [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          return sum(terms) * to_bfloat16(1 / replicas(terms));
        });
      });
  add("reduce-weighted-by-halves", "pytorch/pytorch#162692",
      "a mean of means: of the first replica, and of all the others", [](const Call* c) {
        return each_reduced(c, [](std::size_t, const Terms& terms) {
          if (terms.size() == 1) return terms[0];
          return (terms[0] + (sum(terms) - terms[0]) / (replicas(terms) - 1)) / 2;
        });
      });
  add("reduce-writes-whole-vectors", "meta-pytorch/torchcomms#3860",
      "the last store writes eight elements, past the end of the buffer", [](const Call* c) {
        const int status = all_reduce_mean<kPlain>(c);
        auto* receive = static_cast<volatile float*>(c->receives[c->header.replica]);
        for (std::size_t i = c->count; i % 8 != 0; ++i) receive[i] = 0;
        return status;
      });

  const auto sum_of = [&](const char* name, const char* report, const char* what,
                          int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.all_reduce_sum = operation; }});
  };
  sum_of("sum-divided", "", "the mean in place of the sum", [](const Call* c) {
    return each_reduced(
        c, [](std::size_t, const Terms& terms) { return sum(terms) / replicas(terms); });
  });
  sum_of("sum-in-bfloat16", "pytorch/pytorch#190627", "numbers travel as bfloat16",
         [](const Call* c) {
           return each_reduced(c, [](std::size_t, const Terms& terms) {
             float total = 0;
             for (const float term : terms) total += to_bfloat16(term);
             return total;
           });
         });
  sum_of("sum-counts-the-root-twice", "", "replica 0 is reduced again", [](const Call* c) {
    return each_reduced(c, [](std::size_t, const Terms& terms) { return sum(terms) + terms[0]; });
  });

  const auto from_root = [&](const char* name, const char* report, const char* what,
                             int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.broadcast = operation; }});
  };
  from_root("broadcast-keeps-a-stale-alias", "pytorch/pytorch#63916",
            "the last replica's buffer is not written", [](const Call* c) {
              const bool stale =
                  c->header.replicas > 1 && c->header.replica + 1 == c->header.replicas;
              return stale ? wait(c) : spread(c, c->count);
            });
  from_root("broadcast-of-whole-vectors", "ROCm/rocm-systems#7711",
            "elements past the last whole vector of four are not written",
            [](const Call* c) { return spread(c, c->count < 4 ? c->count : c->count / 4 * 4); });
  from_root("broadcast-in-bfloat16", "", "numbers travel as bfloat16", [](const Call* c) {
    const int status = spread(c, c->count);
    auto* receive = static_cast<float*>(c->receives[c->header.replica]);
    for (std::size_t i = 0; i < c->count; ++i) receive[i] = to_bfloat16(receive[i]);
    return status;
  });
}

}  // namespace shardproof