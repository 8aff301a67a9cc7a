// A correct CUDA candidate: the normalisation of a BN site as one kernel. Memory is the host's
// (header.memory), so that the kernel's operands are copied in and out.
#include <cstddef>
#include <cstdio>

#include "device/engine/candidate.h"

namespace {

// Grid: one thread an element of x [N, C, plane].
__global__ void normalise(const float* x, const float* mean, const float* variance,
                          const float* gamma, const float* beta, float epsilon, bool relu,
                          size_t count, size_t channels, size_t plane, float* y) {
  const size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const size_t c = i / plane % channels;
  const float scale = gamma[c] * (1.0f / sqrtf(variance[c] + epsilon));
  const float value = (x[i] - mean[c]) * scale + beta[c];
  y[i] = relu && value < 0.0f ? 0.0f : value;
}

// Arrays of floats on the GPU, given back at the end of the call.
class Arrays {
 public:
  ~Arrays() {
    for (int i = 0; i < count_; ++i) cudaFree(arrays_[i]);
  }
  // As long as the tensor is; its numbers too where `copied`.
  float* of(const shardproof_tensor& tensor, bool copied) {
    size_t bytes = sizeof(float);
    for (uint32_t axis = 0; axis < tensor.rank; ++axis) bytes *= size_t(tensor.shape[axis]);
    float* array = nullptr;
    if (ok()) error_ = cudaMalloc(&array, bytes);
    if (ok()) arrays_[count_++] = array;
    if (ok() && copied) error_ = cudaMemcpy(array, tensor.data, bytes, cudaMemcpyHostToDevice);
    return array;
  }
  void back(const shardproof_tensor& tensor, const float* array, size_t count) {
    if (ok()) error_ = cudaGetLastError();
    if (ok()) {
      error_ = cudaMemcpy(tensor.data, array, count * sizeof(float), cudaMemcpyDeviceToHost);
    }
  }
  bool ok() const { return error_ == cudaSuccess; }
  const char* why() const { return cudaGetErrorString(error_); }

 private:
  float* arrays_[8];
  int count_ = 0;
  cudaError_t error_ = cudaSuccess;
};

int normalise_on_gpu(const shardproof_normalise* call) {
  const size_t channels = size_t(call->x.shape[1]), plane = size_t(call->x.shape[2]);
  const size_t count = size_t(call->x.shape[0]) * channels * plane;
  constexpr unsigned block = 256;
  Arrays arrays;
  const float* x = arrays.of(call->x, true);
  const float* mean = arrays.of(call->mean, true);
  const float* variance = arrays.of(call->variance, true);
  const float* gamma = arrays.of(call->gamma, true);
  const float* beta = arrays.of(call->beta, true);
  float* y = arrays.of(call->y, false);
  if (arrays.ok()) {
    normalise<<<unsigned((count + block - 1) / block), block>>>(
        x, mean, variance, gamma, beta, call->epsilon, call->relu == 1, count, channels, plane, y);
  }
  arrays.back(call->y, y, count);
  if (arrays.ok()) return 0;
  std::snprintf(call->header.message, call->header.message_bytes, "CUDA: %s", arrays.why());
  return 1;
}

}  // namespace

extern "C" int shardproof_candidate(uint32_t version, shardproof_candidate_table* table) {
  if (version != SHARDPROOF_CANDIDATE_VERSION) return 1;
  table->version = SHARDPROOF_CANDIDATE_VERSION;
  table->name = "CUDA normalise";
  table->threads_kept = 16;  // the CUDA driver's own
  table->normalise = normalise_on_gpu;
  return 0;
}
