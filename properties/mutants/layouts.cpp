// Kernels that say they take channels last, and are wrong there.
#include "properties/mutants/by_operation.h"
#include "properties/mutants/plain.h"

namespace shardproof {
namespace {

using namespace plain;

bool is_last(const shardproof_tensor& x) { return extent(x, 1) > 1 && x.strides[1] == 1; }

// x[n, c, i] of a tensor [N, C, plane] of any strides.
std::size_t place(const shardproof_tensor& x, std::size_t n, std::size_t c, std::size_t i) {
  return n * static_cast<std::size_t>(x.strides[0]) + c * static_cast<std::size_t>(x.strides[1]) +
         i * static_cast<std::size_t>(x.strides[2]);
}
shardproof_tensor dense(shardproof_tensor x) {
  x.strides[2] = 1;
  x.strides[1] = x.shape[2];
  x.strides[0] = x.shape[1] * x.shape[2];
  return x;
}

int strided_mean(const shardproof_channel_mean* call, float divisor) {
  const shardproof_tensor& x = call->x;
  for (std::size_t c = 0; c < extent(x, 1); ++c) {
    float sum = 0;
    for (std::size_t n = 0; n < extent(x, 0); ++n) {
      for (std::size_t i = 0; i < extent(x, 2); ++i) sum += values(x)[place(x, n, c, i)];
    }
    values(call->mean)[c] = sum / divisor;
  }
  return 0;
}
int strided_mean(const shardproof_channel_mean* call) {
  return strided_mean(call, static_cast<float>(extent(call->x, 0) * extent(call->x, 2)));
}

int strided_normalise(const shardproof_normalise* call, const shardproof_tensor& x,
                      const shardproof_tensor& y) {
  for (std::size_t n = 0; n < extent(x, 0); ++n) {
    for (std::size_t c = 0; c < extent(x, 1); ++c) {
      for (std::size_t i = 0; i < extent(x, 2); ++i) {
        const float value =
            Site{values(x)[place(x, n, c, i)], values(call->mean)[c], values(call->variance)[c],
                 values(call->gamma)[c],       values(call->beta)[c], call->epsilon}
                .y();
        values(y)[place(y, n, c, i)] = call->relu == 1 ? plain::relu(value) : value;
      }
    }
  }
  return 0;
}

}  // namespace

void add_layout_mutants(std::vector<Mutant>& mutants) {
  const auto mean = [&](const char* name, const char* report, const char* what,
                        int (*operation)(const shardproof_channel_mean*)) {
    mutants.push_back({name, report, what, false, false, [=](shardproof_candidate_table& t) {
                         t.channel_mean = operation;
                         t.layouts = SHARDPROOF_CHANNELS_LAST;
                       }});
  };
  const auto normalise = [&](const char* name, const char* report, const char* what,
                             int (*operation)(const shardproof_normalise*)) {
    mutants.push_back({name, report, what, false, false, [=](shardproof_candidate_table& t) {
                         t.normalise = operation;
                         t.layouts = SHARDPROOF_CHANNELS_LAST;
                       }});
  };
  mean("channels-last-counted-wrongly", "sony/nnabla-ext-cuda#457",
       "channels last, the count is H·W·C in place of N·H·W", [](const shardproof_channel_mean* c) {
         const std::size_t other = is_last(c->x) ? extent(c->x, 1) : extent(c->x, 0);
         return strided_mean(c, static_cast<float>(other * extent(c->x, 2)));
       });
  mean("channels-last-read-as-dense", "pytorch/executorch#21837",
       "the strides of x are not looked at", [](const shardproof_channel_mean* c) {
         shardproof_channel_mean other = *c;
         other.x = dense(c->x);
         return strided_mean(&other);
       });
  normalise("channels-last-written-as-dense", "pytorch/pytorch#62594",
            "x is read by its strides, y is written without",
            [](const shardproof_normalise* c) { return strided_normalise(c, c->x, dense(c->y)); });
  normalise("channels-last-parameters-by-rows", "chainer/chainer#8497",
            "channels last, row i gets the parameters of channel i",
            [](const shardproof_normalise* c) {
              if (!is_last(c->x)) return strided_normalise(c, c->x, c->y);
              const std::size_t channels = extent(c->x, 1);
              for (std::size_t n = 0; n < extent(c->x, 0); ++n) {
                for (std::size_t k = 0; k < channels; ++k) {
                  for (std::size_t i = 0; i < extent(c->x, 2); ++i) {
                    const std::size_t p = i % channels;
                    const float y = Site{values(c->x)[place(c->x, n, k, i)],
                                         values(c->mean)[p],
                                         values(c->variance)[p],
                                         values(c->gamma)[p],
                                         values(c->beta)[p],
                                         c->epsilon}
                                        .y();
                    values(c->y)[place(c->y, n, k, i)] = c->relu == 1 ? plain::relu(y) : y;
                  }
                }
              }
              return 0;
            });
  mutants.push_back({"channels-last-by-strides", "",
                     "a mean and a normalisation that go by strides", true, false,
                     [](shardproof_candidate_table& t) {
                       t.channel_mean = strided_mean;
                       t.normalise = [](const shardproof_normalise* c) {
                         return strided_normalise(c, c->x, c->y);
                       };
                       t.layouts = SHARDPROOF_CHANNELS_LAST;
                     }});
}

}  // namespace shardproof
