// A device under judgement: memory on each replica and one method an operation of the network's
// forward (spec section 4) and of the sharded optimizer step (spec section 1). It is also how a
// test plants a fault: derive (forwarding_device.h), override one operation, judge the result.
// Numbers are float32 unless a call says otherwise, tensors NCHW and row-major. C++17, since nvcc
// reads it too.
//
// Pointers in a call lie in the memory of the replica that the call names; vectors and what stands
// in them are the caller's. Outputs never overlap inputs unless a call says so. Work may be queued:
// outputs are complete after `synchronize` or `download`. Failures throw DeviceError, an
// out-of-bounds access on the host executor too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/engine/contract.h"
#include "device/kernels/sum_run.h"
#include "device/runtime/device_error.h"
#include "reference/slots/array_assignment.h"

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
  reduce_scatter_mean,
  all_gather,
  all_reduce_sums,
  partial_sums,
  shared_step,
  shared_sum,
  owned_step,
  to_bfloat16,
  running_statistics,
  all_reduce_sum,
  broadcast,
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

// What a site hands on to inference (spec section 3): running_mean = (1 − momentum)·running_mean +
// momentum·mean, and running_variance likewise of variance·count/(count − 1). mean and variance are
// those of all replicas, [channels] each, `count` the numbers of a channel over all replicas: at
// least 2, or 0, which leaves both as they are.
struct RunningStatisticsCall {
  int replica;
  const float* mean;
  const float* variance;
  float* running_mean;
  float* running_variance;
  std::size_t channels;
  float momentum;
  std::size_t count;
};

// receive[r] = (1/R) Σ send over the R replicas, the same bits on every replica r. One pointer a
// replica; receive[r] may be send[r].
struct AllReduceMeanCall {
  std::vector<const float*> send;
  std::vector<float*> receive;
  std::size_t count;
};

// receive[r] = Σ send over the R replicas, the same bits on every replica r, likewise.
using AllReduceSumCall = AllReduceMeanCall;

// receive[r] = send[root] on every replica r. One pointer a replica; send is null but on the root;
// receive[root] may be send[root].
struct BroadcastCall {
  std::vector<const float*> send;
  std::vector<float*> receive;
  std::size_t count;
  std::size_t root;
};

// receive[r][i] = (1/R) Σ send[·][r·count + i] over the R replicas. One pointer a replica; send has
// R·count numbers each.
struct ReduceScatterMeanCall {
  std::vector<const float*> send;
  std::vector<float*> receive;
  std::size_t count;
};

enum class ElementType { float32, bfloat16 };

// receive[q][r·count + i] = send[r][i] on every replica q. One pointer a replica, to elements of
// `type`; a bfloat16 number is its 16 bits.
struct AllGatherCall {
  std::vector<const void*> send;
  std::vector<void*> receive;
  std::size_t count;
  ElementType type;
};

// result[r][i] = the float32 number nearest to Σ sums[·][i] over the replicas, divided first by
// divisors[r][i] where `divisors` is not empty; the same bits on every replica r. One pointer a
// replica. The sums, float64, are overwritten.
struct AllReduceSumsCall {
  std::vector<double*> sums;
  std::vector<const double*> divisors;
  std::vector<float*> result;
  std::size_t count;
};

// sums[e] = Σ, in float64, of the values in the runs of element e: those from offsets[e] up to
// offsets[e + 1]. None: 0. Offsets and runs lie in the replica's memory.
struct PartialSumsCall {
  int replica;
  const float* values;
  const std::uint32_t* offsets;
  const SumRun* runs;
  std::size_t elements, run_count;
  double* sums;
};

// A replica's values of the slots of coarser scopes. Slot k of the i-th row of all parameters is
// row[k·rows + i], likewise of parameters and columns.
struct CoarseValues {
  float* shared;
  float* parameter;
  float* row;
  float* column;
  std::size_t parameters, rows, columns;  // of all parameters together
  const std::uint32_t* parameter_of_row;
  const std::uint32_t* parameter_of_column;
};

// Assignments to slots of coarser scopes, in order, each for every element of its scope. Every
// replica runs them, also one that owns no coordinate.
struct SharedStepCall {
  int replica;
  std::vector<ArrayAssignment> assignments;
  CoarseValues values;
};

// result[e] = the float32 sum, in order, of the values from offsets[e] up to offsets[e + 1]; of
// none 0. Divided by their number when `mean`. Every replica has all the values: no other takes
// part.
struct SharedSumCall {
  int replica;
  const float* values;
  const std::uint32_t* offsets;
  std::size_t elements;
  bool mean;
  float* result;
};

// Assignments to slots of scope coordinate, in order, for a run of owned coordinates of one
// parameter: those at positions first … first + count − 1 of the replica's slices.
struct OwnedStepCall {
  int replica;
  std::vector<ArrayAssignment> assignments;
  // By slot: its values by position. Null: a temporary that nobody reads after the run.
  std::vector<float*> fields;
  CoarseValues values;
  std::size_t first, count;
  std::size_t parameter;
  std::size_t first_row, first_column;  // of the parameter among those of all parameters
  std::size_t columns;                  // of the parameter's matrix
  // Which element of the parameter stands at a position; null where position first + i has element
  // first_element + i.
  const std::uint32_t* element_at;
  std::size_t first_element;
};

// y = x rounded to bfloat16, to nearest, ties to even, as its 16 bits. NaN stays NaN.
struct ToBFloat16Call {
  int replica;
  const float* x;
  std::uint16_t* y;
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

  // Not of every network's forward: a device may leave these out.
  virtual void running_statistics(const RunningStatisticsCall&) { lacks("running_statistics"); }
  virtual void all_reduce_sum(const AllReduceSumCall&) { lacks("all_reduce_sum"); }
  virtual void broadcast(const BroadcastCall&) { lacks("broadcast"); }

  // The optimizer step. A device for networks alone leaves these out.
  virtual void reduce_scatter_mean(const ReduceScatterMeanCall&) { lacks("reduce_scatter_mean"); }
  virtual void all_gather(const AllGatherCall&) { lacks("all_gather"); }
  virtual void all_reduce_sums(const AllReduceSumsCall&) { lacks("all_reduce_sums"); }
  virtual void partial_sums(const PartialSumsCall&) { lacks("partial_sums"); }
  virtual void shared_step(const SharedStepCall&) { lacks("shared_step"); }
  virtual void shared_sum(const SharedSumCall&) { lacks("shared_sum"); }
  virtual void owned_step(const OwnedStepCall&) { lacks("owned_step"); }
  virtual void to_bfloat16(const ToBFloat16Call&) { lacks("to_bfloat16"); }

 private:
  [[noreturn]] void lacks(const std::string& operation) const {
    throw DeviceError(name() + " has no " + operation);
  }
};

}  // namespace shardproof
