// A device that hands every call to another one. Derive from it and override one method to get a
// device that differs from `base` in that method alone.
#pragma once

#include <memory>
#include <utility>

#include "device/engine/device.h"

namespace shardproof {

class ForwardingDevice : public Device {
 public:
  // `base` must outlive this object.
  explicit ForwardingDevice(Device& base) : base_(base) {}
  explicit ForwardingDevice(std::unique_ptr<Device> base)
      : owned_(std::move(base)), base_(*owned_) {}

  std::string name() const override { return base_.name(); }
  int replicas() const override { return base_.replicas(); }
  Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
    return base_.contract(operation, batch, plane);
  }
  float* allocate(int replica, std::size_t count) override {
    return base_.allocate(replica, count);
  }
  void release(int replica, float* pointer) override { base_.release(replica, pointer); }
  void upload(int replica, float* to, const float* from, std::size_t count) override {
    base_.upload(replica, to, from, count);
  }
  void download(int replica, const float* from, float* to, std::size_t count) override {
    base_.download(replica, from, to, count);
  }
  void synchronize() override { base_.synchronize(); }

  void convolution(const ConvolutionCall& call) override { base_.convolution(call); }
  void depthwise(const DepthwiseCall& call) override { base_.depthwise(call); }
  void channel_mean(const ChannelMeanCall& call) override { base_.channel_mean(call); }
  void channel_variance(const ChannelVarianceCall& call) override { base_.channel_variance(call); }
  void normalise(const NormaliseCall& call) override { base_.normalise(call); }
  void relu(const PointwiseCall& call) override { base_.relu(call); }
  void add(const AddCall& call) override { base_.add(call); }
  void global_average_pool(const PoolCall& call) override { base_.global_average_pool(call); }
  void dense(const DenseCall& call) override { base_.dense(call); }
  void all_reduce_mean(const AllReduceMeanCall& call) override { base_.all_reduce_mean(call); }

  void running_statistics(const RunningStatisticsCall& call) override {
    base_.running_statistics(call);
  }

  void all_reduce_sum(const AllReduceSumCall& call) override { base_.all_reduce_sum(call); }
  void broadcast(const BroadcastCall& call) override { base_.broadcast(call); }

  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    base_.reduce_scatter_mean(call);
  }
  void all_gather(const AllGatherCall& call) override { base_.all_gather(call); }
  void all_reduce_sums(const AllReduceSumsCall& call) override { base_.all_reduce_sums(call); }
  void partial_sums(const PartialSumsCall& call) override { base_.partial_sums(call); }
  void shared_step(const SharedStepCall& call) override { base_.shared_step(call); }
  void shared_sum(const SharedSumCall& call) override { base_.shared_sum(call); }
  void owned_step(const OwnedStepCall& call) override { base_.owned_step(call); }
  void to_bfloat16(const ToBFloat16Call& call) override { base_.to_bfloat16(call); }

 protected:
  Device& base() { return base_; }

 private:
  std::unique_ptr<Device> owned_;  // null where somebody else owns the base
  Device& base_;
};

}  // namespace shardproof
