// Dense layers that are wrong.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;
using Call = shardproof_dense;

constexpr Recipe kPlain;

}  // namespace

void add_dense_mutants(std::vector<Mutant>& mutants) {
  const auto add = [&](const char* name, const char* report, const char* what,
                       int (*operation)(const Call*)) {
    mutants.push_back({name, report, what, false, false,
                       [=](shardproof_candidate_table& t) { t.dense = operation; }});
  };
  add("dense-without-bias", "", "the bias is not added",
      [](const Call* c) { return dense_of<kPlain>(c, dense_product, false); });
  add("dense-adds-the-bias-twice", "", "the bias starts the sum and is added at the end",
      [](const Call* c) {
        const int status = dense_of<kPlain>(c, dense_product);
        const std::size_t out = extent(c->y, 1);
        for (std::size_t i = 0; i < count(c->y); ++i) {
          if (c->bias.data != nullptr) values(c->y)[i] += values(c->bias)[i % out];
        }
        return status;
      });
  add("dense-weight-transposed", "", "weights are read as [O, I]", [](const Call* c) {
    return dense_of<kPlain>(c, [](const Call* call, std::size_t n, std::size_t o, std::size_t i) {
      const std::size_t in = extent(call->x, 1);
      return Product{values(call->x)[n * in + i], values(call->weight)[o * in + i]};
    });
  });
  add("dense-loses-the-tail", "tgale96/grouped_gemm#36",
      "inputs past the last whole tile of four are not added", [](const Call* c) {
        return dense_of<kPlain>(c,
                                [](const Call* call, std::size_t n, std::size_t o, std::size_t i) {
                                  const std::size_t in = extent(call->x, 1);
                                  const bool lost = in > 4 && i >= in / 4 * 4;
                                  return lost ? Product{0.0F, 0.0F} : dense_product(call, n, o, i);
                                });
      });
  add("dense-in-tf32", "pytorch/pytorch#107514", "operands are rounded to tf32, unsaid",
      dense<Recipe{.operands = Recipe::Operands::tf32}>);
  add("dense-in-bfloat16", "", "operands are rounded to bfloat16, unsaid",
      dense<Recipe{.operands = Recipe::Operands::bfloat16}>);
  add("dense-in-float16-sums", "", "the running sum is float16, unsaid",
      dense<Recipe{.sum = Recipe::Sum::float16}>);
  add("dense-on-tensor-cores-unsaid", "", "sums are truncated as on tensor cores, unsaid",
      dense<Recipe{.sum = Recipe::Sum::tensor_core}>);
  add("dense-tail-tile-reads-output", "robertknight/rten#81",
      "the last output is 0·y + the product, and y was never written", [](const Call* c) {
        const std::size_t out = extent(c->y, 1);
        const std::vector<float> before(values(c->y), values(c->y) + count(c->y));
        const int status = dense_of<kPlain>(c, dense_product);
        for (std::size_t n = 0; n < extent(c->y, 0); ++n) {
          values(c->y)[n * out + out - 1] += 0 * before[n * out + out - 1];
        }
        return status;
      });
  add("dense-of-the-first-example", "ROCm/MIOpen#97", "all examples get the logits of the first",
      [](const Call* c) {
        return dense_of<kPlain>(c, [](const Call* call, std::size_t, std::size_t o, std::size_t i) {
          return dense_product(call, 0, o, i);
        });
      });
}

}  // namespace shardproof
