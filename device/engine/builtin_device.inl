// The built-in device's launches: one text, compiled against the host's runtime by g++
// (builtin_host_device.cpp) and against CUDA, cuBLAS and NCCL by nvcc (builtin_cuda_device.cu).
// The including file has included the Backend of its namespace.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "device/engine/device.h"
#include "device/kernels/channel_statistics.cuh"
#include "device/kernels/depthwise.cuh"
#include "device/kernels/im2col.cuh"
#include "device/kernels/normalise.cuh"
#include "device/kernels/pointwise.cuh"
#include "device/kernels/windows.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Calls with(std::integral_constant) of sum_lanes(count).
template <class With>
void for_sum_lanes(std::size_t count, With with) {
  switch (sum_lanes(count)) {
    case 1:
      return with(std::integral_constant<int, 1>{});
    case 8:
      return with(std::integral_constant<int, 8>{});
    case 32:
      return with(std::integral_constant<int, 32>{});
    case 128:
      return with(std::integral_constant<int, 128>{});
    default:
      return with(std::integral_constant<int, 256>{});
  }
}

class BuiltinDevice : public Device {
 public:
  template <class... Arguments>
  explicit BuiltinDevice(Arguments... arguments)
      : backend_(arguments...), columns_(static_cast<std::size_t>(backend_.replicas())) {}

  ~BuiltinDevice() override {
    for (std::size_t replica = 0; replica < columns_.size(); ++replica) {
      if (columns_[replica].data == nullptr) continue;
      try {
        backend_.release(static_cast<int>(replica), columns_[replica].data);
      } catch (const DeviceError&) {
        // The device failed before, and that was reported.
      }
    }
  }

  std::string name() const override { return backend_.name(); }
  int replicas() const override { return backend_.replicas(); }

  Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
    Contract contract;
    contract.root = 1.5;  // a correctly rounded root, then a correctly rounded quotient
    contract.root_exact_at_powers_of_four = true;
    switch (operation) {
      case Operation::channel_mean:
      case Operation::channel_variance:
        contract.lanes = static_cast<std::size_t>(sum_lanes(batch * plane));
        break;
      case Operation::global_average_pool:
        contract.lanes = static_cast<std::size_t>(sum_lanes(plane));
        break;
      default:
        break;  // products: whatever order the library takes
    }
    return contract;
  }

  float* allocate(int replica, std::size_t count) override {
    return backend_.allocate(replica, count);
  }
  void release(int replica, float* pointer) override { backend_.release(replica, pointer); }
  void upload(int replica, float* to, const float* from, std::size_t count) override {
    backend_.upload(replica, to, from, count);
  }
  void download(int replica, const float* from, float* to, std::size_t count) override {
    backend_.download(replica, from, to, count);
  }
  void synchronize() override { backend_.synchronize(); }

  void convolution(const ConvolutionCall& call) override {
    const std::size_t in_image = call.in_channels * call.height * call.width;
    const std::size_t out_plane = call.out_height * call.out_width;
    const std::size_t out_image = call.out_channels * out_plane;
    const std::size_t depth = call.in_channels * call.kernel * call.kernel;
    const bool is_product = call.kernel == 1 && call.stride == 1 && call.pad_begin == 0 &&
                            call.out_height == call.height && call.out_width == call.width;
    for (std::size_t image = 0; image < call.batch; ++image) {
      const float* columns = call.x + image * in_image;
      if (!is_product) columns = unfold(call, columns, depth);
      backend_.multiply(call.replica, call.out_channels, out_plane, depth, call.weight, columns,
                        call.y + image * out_image);
    }
    add_bias_to(call.replica, call.bias, call.batch, call.out_channels, out_plane, call.y);
  }

  void depthwise(const DepthwiseCall& call) override {
    using Size3 = std::integral_constant<int, 3>;
    using Size5 = std::integral_constant<int, 5>;
    using Stride1 = std::integral_constant<int, 1>;
    using Stride2 = std::integral_constant<int, 2>;
    if (call.kernel == 3 && call.stride == 1) {
      launch_depthwise(call, Size3{}, Stride1{});
    } else if (call.kernel == 3 && call.stride == 2) {
      launch_depthwise(call, Size3{}, Stride2{});
    } else if (call.kernel == 5 && call.stride == 1) {
      launch_depthwise(call, Size5{}, Stride1{});
    } else if (call.kernel == 5 && call.stride == 2) {
      launch_depthwise(call, Size5{}, Stride2{});
    } else {
      throw DeviceError("the built-in device has no depthwise kernel of size " +
                        std::to_string(call.kernel) + " at stride " + std::to_string(call.stride) +
                        "; sizes 3 and 5 at strides 1 and 2 there are");
    }
    add_bias_to(call.replica, call.bias, call.batch, call.channels,
                call.out_height * call.out_width, call.y);
  }

  void channel_mean(const ChannelMeanCall& call) override {
    launch_mean(call.replica, call.x, call.batch, call.channels, call.plane, call.mean);
  }

  void channel_variance(const ChannelVarianceCall& call) override {
    if (call.channels == 0) return;
    for_sum_lanes(call.batch * call.plane, [&](auto lanes_constant) {
      constexpr int lanes = decltype(lanes_constant)::value;
      launch(kernel<SHARDPROOF_BACKEND::channel_variance<lanes>>,
             blocks(call.channels * lanes, statistics_block(lanes)), statistics_block(lanes),
             statistics_shared_bytes<lanes>, backend_.stream(call.replica), call.x, call.own_mean,
             call.mean, call.batch, call.channels, call.plane, call.variance);
    });
  }

  void normalise(const NormaliseCall& call) override {
    const std::size_t rows = call.batch * call.channels;
    if (rows * call.plane == 0) return;
    const unsigned lanes = normalise_lanes(call.plane);
    launch(kernel<SHARDPROOF_BACKEND::normalise>, blocks(rows * lanes, normalise_block),
           normalise_block, 0, backend_.stream(call.replica), call.x, call.mean, call.variance,
           call.gamma, call.beta, call.epsilon, call.relu, rows, call.channels, call.plane, lanes,
           call.y);
  }

  void relu(const PointwiseCall& call) override {
    if (call.count == 0) return;
    launch(kernel<SHARDPROOF_BACKEND::relu>, pointwise_grid(call.count), pointwise_block, 0,
           backend_.stream(call.replica), call.x, call.count, call.y);
  }

  void add(const AddCall& call) override {
    if (call.count == 0) return;
    launch(kernel<SHARDPROOF_BACKEND::add>, pointwise_grid(call.count), pointwise_block, 0,
           backend_.stream(call.replica), call.a, call.b, call.count, call.y);
  }

  // The mean of each channel of each image: a channel mean of one image with batch·channels
  // channels.
  void global_average_pool(const PoolCall& call) override {
    launch_mean(call.replica, call.x, 1, call.batch * call.channels, call.plane, call.y);
  }

  void dense(const DenseCall& call) override {
    backend_.multiply(call.replica, call.batch, call.out, call.in, call.x, call.weight, call.y);
    add_bias_to(call.replica, call.bias, call.batch, call.out, 1, call.y);
  }

  void all_reduce_mean(const AllReduceMeanCall& call) override {
    if (call.count == 0) return;
    const int ranks = replicas();
    check(ncclGroupStart());
    for (int rank = 0; rank < ranks; ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      check(ncclAllReduce(call.send.at(replica), call.receive.at(replica), call.count, ncclFloat32,
                          ncclSum, backend_.communicator(rank), backend_.stream(rank)));
    }
    check(ncclGroupEnd());
    for (int rank = 0; rank < ranks; ++rank) {
      launch(kernel<divide>, pointwise_grid(call.count), pointwise_block, 0, backend_.stream(rank),
             call.count, static_cast<float>(ranks), call.receive[static_cast<std::size_t>(rank)]);
    }
  }

 private:
  struct Columns {
    float* data = nullptr;
    std::size_t count = 0;
  };

  static dim3 blocks(std::size_t threads, std::size_t block) {
    return dim3(static_cast<unsigned>((threads + block - 1) / block));
  }
  static dim3 pointwise_grid(std::size_t count) {
    return dim3(static_cast<unsigned>(pointwise_blocks(count)));
  }

  static void check(ncclResult_t result) {
    if (result == ncclSuccess) return;
    throw DeviceError(std::string("NCCL: ") + ncclGetErrorString(result) + ": " +
                      ncclGetLastError(nullptr));
  }

  const float* unfold(const ConvolutionCall& call, const float* image, std::size_t depth) {
    const WindowGeometry geometry{call.height,    call.width,  call.out_height,
                                  call.out_width, call.stride, call.pad_begin};
    float* const columns = columns_of(call.replica, depth * call.out_height * call.out_width);
    launch(kernel<im2col>, blocks(depth * strips_per_plane(geometry), window_block), window_block,
           0, backend_.stream(call.replica), image, call.in_channels, call.kernel, geometry,
           columns);
    return columns;
  }

  // Scratch that grows to the largest convolution.
  float* columns_of(int replica, std::size_t count) {
    Columns& columns = columns_.at(static_cast<std::size_t>(replica));
    if (columns.count < count) {
      if (columns.data != nullptr) backend_.release(replica, std::exchange(columns.data, nullptr));
      columns.data = backend_.allocate(replica, count);
      columns.count = count;
    }
    return columns.data;
  }

  template <class Size, class Stride>
  void launch_depthwise(const DepthwiseCall& call, Size, Stride) {
    const WindowGeometry geometry{call.height,    call.width,  call.out_height,
                                  call.out_width, call.stride, call.pad_begin};
    const std::size_t planes = call.batch * call.channels;
    if (planes == 0) return;
    launch(kernel<SHARDPROOF_BACKEND::depthwise<Size::value, Stride::value>>,
           blocks(planes * strips_per_plane(geometry), window_block), window_block, 0,
           backend_.stream(call.replica), call.x, call.weight, planes, call.channels, geometry,
           call.y);
  }

  void launch_mean(int replica, const float* x, std::size_t batch, std::size_t channels,
                   std::size_t plane, float* mean) {
    if (channels == 0) return;
    for_sum_lanes(batch * plane, [&](auto lanes_constant) {
      constexpr int lanes = decltype(lanes_constant)::value;
      launch(kernel<SHARDPROOF_BACKEND::channel_mean<lanes>>,
             blocks(channels * lanes, statistics_block(lanes)), statistics_block(lanes),
             statistics_shared_bytes<lanes>, backend_.stream(replica), x, batch, channels, plane,
             mean);
    });
  }

  void add_bias_to(int replica, const float* bias, std::size_t batch, std::size_t channels,
                   std::size_t plane, float* y) {
    const std::size_t count = batch * channels * plane;
    if (bias == nullptr || count == 0) return;
    launch(kernel<add_bias>, pointwise_grid(count), pointwise_block, 0, backend_.stream(replica),
           bias, count, channels, plane, y);
  }

  Backend backend_;
  std::vector<Columns> columns_;
};

}  // namespace shardproof::SHARDPROOF_BACKEND
