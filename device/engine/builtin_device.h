// The devices that come with the project: one text of kernels and launches (device/kernels,
// builtin_device.inl), compiled for the CPU and, where nvcc is found, for NVIDIA GPUs.
#pragma once

#include <cstdint>
#include <memory>

#include "device/engine/device.h"

namespace shardproof {

// Threads that share a channel's sum in channel statistics and average pools, and so the kind of
// block that adds it. `by_count`: as many as the sum's length asks for, what a GPU takes. `one`: a
// thread a channel, no thread waits for another. `one_warp`: 32, joined by shuffles alone.
// `several_warps`: 64, joined across a barrier and then by shuffles.
enum class ChannelThreads { by_count, one, one_warp, several_warps };

// How the host device runs launches. One schedule always gives the same bits.
struct Schedule {
  std::uint64_t seed = 0;  // order of blocks, of a block's threads and of collectives; 0: in order
  ChannelThreads threads = ChannelThreads::by_count;
};

// Runs the kernels on the CPU: blocks on `workers` threads, the threads of a block in an order
// drawn from the schedule's seed, products by Eigen, collectives in this process in an order drawn
// from the seed. Results do not depend on `workers`. Throws DeviceError unless `replicas` and
// `workers` are at least 1; an out-of-bounds access by a kernel throws one that names kernel, block
// and thread.
std::unique_ptr<Device> make_host_device(int replicas, const Schedule& schedule, int workers);

// Of ChannelThreads::by_count.
std::unique_ptr<Device> make_host_device(int replicas, std::uint64_t seed, int workers);

#ifdef SHARDPROOF_HAS_CUDA
// One GPU a replica, products by cuBLAS, collectives by NCCL. Throws DeviceError when there is no
// driver or there are fewer GPUs than replicas.
std::unique_ptr<Device> make_cuda_device(int replicas);
#endif

}  // namespace shardproof
