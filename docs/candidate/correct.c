/* A correct candidate: three operations as plain loops. The table says what their arithmetic is
 * where it is not the strictest: nothing here. */
#include <math.h>
#include <stddef.h>

#include "device/engine/candidate.h"

static int channel_mean(const shardproof_channel_mean* call) {
  const float* x = call->x.data;
  float* mean = call->mean.data;
  const int64_t *n = call->x.shape, *s = call->x.strides;
  for (int64_t c = 0; c < n[1]; ++c) {
    float sum = 0;
    for (int64_t image = 0; image < n[0]; ++image)
      for (int64_t i = 0; i < n[2]; ++i) sum += x[image * s[0] + c * s[1] + i * s[2]];
    mean[c * call->mean.strides[0]] = sum / (float)(n[0] * n[2]);
  }
  return 0;
}

static int normalise(const shardproof_normalise* call) {
  const float *x = call->x.data, *mean = call->mean.data, *variance = call->variance.data;
  const float *gamma = call->gamma.data, *beta = call->beta.data;
  float* y = call->y.data;
  const int64_t *n = call->x.shape, *s = call->x.strides, *t = call->y.strides;
  for (int64_t image = 0; image < n[0]; ++image)
    for (int64_t c = 0; c < n[1]; ++c) {
      const float scale = gamma[c] * (1.0f / sqrtf(variance[c] + call->epsilon));
      for (int64_t i = 0; i < n[2]; ++i) {
        const float value = (x[image * s[0] + c * s[1] + i * s[2]] - mean[c]) * scale + beta[c];
        y[image * t[0] + c * t[1] + i * t[2]] = call->relu && value < 0 ? 0 : value;
      }
    }
  return 0;
}

static int convolution(const shardproof_convolution* call) {
  const float *x = call->x.data, *weight = call->weight.data, *bias = call->bias.data;
  float* y = call->y.data;
  const int64_t *in = call->x.shape, *out = call->y.shape, *s = call->x.strides;
  const int64_t *v = call->weight.strides, *t = call->y.strides;
  const int64_t kernel = call->weight.shape[2];
  for (int64_t image = 0; image < out[0]; ++image)
    for (int64_t k = 0; k < out[1]; ++k)
      for (int64_t row = 0; row < out[2]; ++row)
        for (int64_t column = 0; column < out[3]; ++column) {
          float sum = 0;
          for (int64_t c = 0; c < in[1]; ++c)
            for (int64_t i = 0; i < kernel; ++i)
              for (int64_t j = 0; j < kernel; ++j) {
                const int64_t h = row * (int64_t)call->stride + i - (int64_t)call->pad_begin;
                const int64_t w = column * (int64_t)call->stride + j - (int64_t)call->pad_begin;
                if (h < 0 || w < 0 || h >= in[2] || w >= in[3]) continue;
                sum += x[image * s[0] + c * s[1] + h * s[2] + w * s[3]] *
                       weight[k * v[0] + c * v[1] + i * v[2] + j * v[3]];
              }
          y[image * t[0] + k * t[1] + row * t[2] + column * t[3]] =
              bias == NULL ? sum : sum + bias[k];
        }
  return 0;
}

int shardproof_candidate(uint32_t version, shardproof_candidate_table* table) {
  if (version != SHARDPROOF_CANDIDATE_VERSION) return 1;
  table->version = SHARDPROOF_CANDIDATE_VERSION;
  table->name = "plain loops";
  table->channel_mean = channel_mean;
  table->normalise = normalise;
  table->convolution = convolution;
  return 0;
}
