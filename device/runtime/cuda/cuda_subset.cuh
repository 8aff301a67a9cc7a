// The thin veneer over CUDA behind cuda_subset.h.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include "device/runtime/device_error.h"
#include "device/runtime/kernel.h"

#define SHARDPROOF_BACKEND cuda

namespace shardproof::cuda {

using Stream = cudaStream_t;

// `what`: the call that failed.
inline void check(cudaError_t error, const std::string& what) {
  if (error == cudaSuccess) return;
  const std::string reason = what + ": CUDA error: " + cudaGetErrorString(error);
  if (error == cudaErrorMemoryAllocation) throw OutOfDeviceMemory(reason);
  throw DeviceError(reason);
}

template <class T>
__device__ T* shared_memory() {
  extern __shared__ __align__(16) unsigned char bytes[];
  return reinterpret_cast<T*>(bytes);
}

template <class Function>
struct Launcher;

template <class... Parameters>
struct Launcher<void (*)(Parameters...)> {
  static void launch(void (*function)(Parameters...), dim3 grid, dim3 block,
                     std::size_t shared_bytes, Stream stream, Parameters... parameters) {
    function<<<grid, block, shared_bytes, stream>>>(parameters...);
  }
};

// Queues the kernel. Throws DeviceError when the launch is refused.
template <auto function, class... Arguments>
void launch(Kernel<function>, dim3 grid, dim3 block, std::size_t shared_bytes, Stream stream,
            Arguments... arguments) {
  Launcher<decltype(function)>::launch(function, grid, block, shared_bytes, stream, arguments...);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) check(error, "kernel " + std::string(Kernel<function>::name()));
}

}  // namespace shardproof::cuda
