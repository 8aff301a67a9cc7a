// A device under judgement: memory on each replica and one method an operation of the network's
// forward (spec section 4). It is also how a test plants a fault: derive (forwarding_device.h),
// override one operation, judge the result. All numbers are float32, tensors NCHW and row-major.
// C++17, since nvcc reads it too.
//
// Pointers in a call lie in the memory of the replica that the call names. Outputs never overlap
// inputs unless a call says so. Work may be queued: outputs are complete after `synchronize` or
// `download`. Failures, from a missing GPU to an out-of-bounds access, throw DeviceError.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "device/engine/contract.h"
#include "device/runtime/device_error.h"

namespace shardproof {

enum class Operation {
  convolution,
  depthwise,
  channel_mean,
  channel_variance,
  normalise,
  relu,
  add,
  global_average_pool,
  dense,
  all_reduce_mean,
};

// Cross-correlation. x [batch, in_channels, height, width], weight [out_channels, in_channels,
// kernel, kernel], bias [out_channels] or null, y [batch, out_channels, out_height, out_width].
// `pad_begin` zeros stand above and left of the image, `pad_end` below and right of it.
struct ConvolutionCall {
  int replica;
  const float* x;
  const float* weight;
  const float* bias;
  float* y;
  std::size_t batch, in_channels, height, width;
  std::size_t out_channels, kernel, stride, pad_begin, pad_end, out_height, out_width;
};

// One filter a channel: weight [channels, 1, kernel, kernel].
struct DepthwiseCall {
  int replica;
  const float* x;
  const float* weight;
  const float* bias;
  float* y;
  std::size_t batch, channels, height, width;
  std::size_t kernel, stride, pad_begin, pad_end, out_height, out_width;
};

// mean[c] = (1/m) Σ x over the m = batch·plane numbers of channel c; `plane` is height·width.
struct ChannelMeanCall {
  int replica;
  const float* x;
  float* mean;
  std::size_t batch, channels, plane;
};

// variance[c] = (1/m) Σ (x − own_mean[c])² + (own_mean[c] − mean[c])²: the replica's second moment
// about the global mean, by Chan, Golub and LeVeque (spec P1b).
struct ChannelVarianceCall {
  int replica;
  const float* x;
  const float* own_mean;
  const float* mean;
  float* variance;
  std::size_t batch, channels, plane;
};

// y = γ·(x − μ)·(σ² + ε)^(−1/2) + β (spec P1a), followed by ReLU when `relu`.
struct NormaliseCall {
  int replica;
  const float* x;
  const float* mean;
  const float* variance;
  const float* gamma;
  const float* beta;
  float epsilon;
  bool relu;
  float* y;
  std::size_t batch, channels, plane;
};

// y = max(x, 0); NaN stays NaN. y may be x.
struct PointwiseCall {
  int replica;
  const float* x;
  float* y;
  std::size_t count;
};

// y = a + b. y may be a or b.
struct AddCall {
  int replica;
  const float* a;
  const float* b;
  float* y;
  std::size_t count;
};

// y [batch, channels] = mean of x [batch, channels, plane] over the plane.
struct PoolCall {
  int replica;
  const float* x;
  float* y;
  std::size_t batch, channels, plane;
};

// y [batch, out] = x [batch, in] · weight [in, out] + bias [out]; bias may be null.
struct DenseCall {
  int replica;
  const float* x;
  const float* weight;
  const float* bias;
  float* y;
  std::size_t batch, in, out;
};

// receive[r] = (1/R) Σ send over the R replicas, the same bits on every replica r. One pointer a
// replica; receive[r] may be send[r].
struct AllReduceMeanCall {
  std::vector<const float*> send;
  std::vector<float*> receive;
  std::size_t count;
};

class Device {
 public:
  virtual ~Device() = default;

  // For reports: "host executor, 2 workers, seed 7".
  virtual std::string name() const = 0;
  virtual int replicas() const = 0;

  // The arithmetic of one operation at `batch` images a replica and `plane` pixels an image. Where
  // neither matters (all_reduce_mean, dense) they are ignored.
  virtual Contract contract(Operation operation, std::size_t batch, std::size_t plane) const = 0;

  // `count` numbers in the replica's memory. The built-in host device fills them with NaN.
  virtual float* allocate(int replica, std::size_t count) = 0;
  virtual void release(int replica, float* pointer) = 0;
  virtual void upload(int replica, float* to, const float* from, std::size_t count) = 0;
  virtual void download(int replica, const float* from, float* to, std::size_t count) = 0;
  virtual void synchronize() = 0;

  virtual void convolution(const ConvolutionCall& call) = 0;
  virtual void depthwise(const DepthwiseCall& call) = 0;
  virtual void channel_mean(const ChannelMeanCall& call) = 0;
  virtual void channel_variance(const ChannelVarianceCall& call) = 0;
  virtual void normalise(const NormaliseCall& call) = 0;
  virtual void relu(const PointwiseCall& call) = 0;
  virtual void add(const AddCall& call) = 0;
  virtual void global_average_pool(const PoolCall& call) = 0;
  virtual void dense(const DenseCall& call) = 0;
  virtual void all_reduce_mean(const AllReduceMeanCall& call) = 0;
};

}  // namespace shardproof
