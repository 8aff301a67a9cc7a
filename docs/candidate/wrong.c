/* Wrong on purpose: the variance divides by m - 1 and not by m. At 25,088 numbers a channel the
 * two differ by four parts in 100,000, which a tolerance of 1e-4 lets pass. */
#include "device/engine/candidate.h"

static int channel_variance(const shardproof_channel_variance* call) {
  const float *x = call->x.data, *own_mean = call->own_mean.data, *mean = call->mean.data;
  float* variance = call->variance.data;
  const int64_t *n = call->x.shape, *s = call->x.strides;
  for (int64_t c = 0; c < n[1]; ++c) {
    float sum = 0;
    for (int64_t image = 0; image < n[0]; ++image)
      for (int64_t i = 0; i < n[2]; ++i) {
        const float d = x[image * s[0] + c * s[1] + i * s[2]] - own_mean[c];
        sum += d * d;
      }
    const float apart = own_mean[c] - mean[c];
    variance[c] = sum / (float)(n[0] * n[2] - 1) + apart * apart; /* the fault: - 1 */
  }
  return 0;
}

int shardproof_candidate(uint32_t version, shardproof_candidate_table* table) {
  if (version != SHARDPROOF_CANDIDATE_VERSION) return 1;
  table->version = SHARDPROOF_CANDIDATE_VERSION;
  table->name = "unbiased variance";
  table->channel_variance = channel_variance;
  return 0;
}
