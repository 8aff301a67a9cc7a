// The devices that come with the project: one text of kernels and launches (device/kernels,
// builtin_device.inl), compiled for the CPU and, where nvcc is found, for NVIDIA GPUs.
#pragma once

#include <cstdint>
#include <memory>

#include "device/engine/device.h"

namespace shardproof {

// Runs the kernels on the CPU: blocks on `workers` threads, the threads of a block in an order
// drawn from `seed` (0: in order), products by Eigen, collectives in this process in an order drawn
// from the seed. Results do not depend on `workers`. Throws DeviceError unless `replicas` and
// `workers` are at least 1. An out-of-bounds access by a kernel ends the process with a line that
// names kernel, block and thread.
std::unique_ptr<Device> make_host_device(int replicas, std::uint64_t seed, int workers);

#ifdef SHARDPROOF_HAS_CUDA
// One GPU a replica, products by cuBLAS, collectives by NCCL. Throws DeviceError when there is no
// driver or there are fewer GPUs than replicas.
std::unique_ptr<Device> make_cuda_device(int replicas);
#endif

}  // namespace shardproof
