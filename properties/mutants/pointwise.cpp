// ReLUs and additions that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;

}  // namespace

void add_pointwise_mutants(std::vector<Mutant>& mutants) {
  const auto relu = [&](const char* name, const char* report, const char* what,
                        int (*operation)(const shardproof_unary*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.relu = operation; }});
  };
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const shardproof_add*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.add = operation; }});
  };
  relu("relu-loses-nan", "apache/mxnet#14262", "max(x, 0) that does not hand NaN on",
       [](const shardproof_unary* c) {
         return each_unary(c, [](const float* x, std::size_t i) { return x[i] > 0 ? x[i] : 0.0F; });
       });
  relu("relu-flushes-subnormals", "ROCm/rocMLIR#1962", "subnormal numbers become zero, unsaid",
       [](const shardproof_unary* c) {
         return each_unary(
             c, [](const float* x, std::size_t i) { return x[i] < 0x1p-126F ? 0.0F : x[i]; });
       });
  relu("relu-index-of-eight-bits", "ROCm/rocm-libraries#4611",
       "elements past 256 are never reached", [](const shardproof_unary* c) {
         for (std::size_t i = 0; i < count(c->x); ++i) {
           const std::size_t wrapped = i % 256;
           values(c->y)[wrapped] = plain::relu(values(c->x)[wrapped]);
         }
         return 0;
       });
  relu("relu-in-place-of-relu6", "", "cut off at 6 as ReLU6 is", [](const shardproof_unary* c) {
    return each_unary(
        c, [](const float* x, std::size_t i) { return x[i] > 6 ? 6 : plain::relu(x[i]); });
  });
  relu("relu-leaks", "", "a hundredth of negative numbers is kept", [](const shardproof_unary* c) {
    return each_unary(c,
                      [](const float* x, std::size_t i) { return x[i] < 0 ? x[i] * 0.01F : x[i]; });
  });
  relu("relu-loses-the-tail", "deepspeedai/DeepSpeed#3109",
       "elements past the last whole vector of eight are not written",
       [](const shardproof_unary* c) {
         const std::size_t all = count(c->x);
         for (std::size_t i = 0; i < (all < 8 ? all : all / 8 * 8); ++i) {
           values(c->y)[i] = plain::relu(values(c->x)[i]);
         }
         return 0;
       });
  relu("relu-rounds-to-float16", "", "numbers go through float16", [](const shardproof_unary* c) {
    return each_unary(c,
                      [](const float* x, std::size_t i) { return plain::relu(to_float16(x[i])); });
  });
  add("add-visits-elements-twice", "sonots/cumo#240",
      "a grid step that wraps adds b a second time past 256 elements", [](const shardproof_add* c) {
        return each_sum(c, [](const float* a, const float* b, std::size_t i) {
          return a[i] + b[i] + (i >= 256 ? b[i] : 0);
        });
      });
  add("add-reads-one-further", "",
      "b is read one element further, as from a view with another offset",
      [](const shardproof_add* c) {
        const std::size_t all = count(c->y);
        return each_sum(c, [=](const float* a, const float* b, std::size_t i) {
          return a[i] + b[i + 1 < all ? i + 1 : i];
        });
      });
  add("add-in-bfloat16", "", "the sum is rounded to bfloat16", [](const shardproof_add* c) {
    return each_sum(
        c, [](const float* a, const float* b, std::size_t i) { return to_bfloat16(a[i] + b[i]); });
  });
  add("add-flushes-subnormals", "ROCm/rocMLIR#1962", "subnormal sums become zero, unsaid",
      [](const shardproof_add* c) {
        return each_sum(c, [](const float* a, const float* b, std::size_t i) {
          const float y = a[i] + b[i];
          return std::abs(y) < 0x1p-126F ? 0 : y;
        });
      });
  add("add-of-the-first-half", "", "the second half is a alone", [](const shardproof_add* c) {
    const std::size_t half = (count(c->y) + 1) / 2;
    return each_sum(c, [=](const float* a, const float* b, std::size_t i) {
      return i < half ? a[i] + b[i] : a[i];
    });
  });
  add("add-saturates", "", "sums are cut off at 65,504, the largest float16",
      [](const shardproof_add* c) {
        return each_sum(c, [](const float* a, const float* b, std::size_t i) {
          return std::clamp(a[i] + b[i], -65504.0F, 65504.0F);
        });
      });
}

}  // namespace shardproof
