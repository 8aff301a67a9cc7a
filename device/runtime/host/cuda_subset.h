// The CUDA C++ subset of cuda_subset.h for g++: kernels become functions that the executor calls.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "device/runtime/host/block_runner.h"
#include "device/runtime/host/executor.h"
#include "device/runtime/kernel.h"

#define SHARDPROOF_BACKEND host
#define __global__ inline
#define __device__
#define __forceinline__ inline __attribute__((always_inline))

namespace shardproof::host {

// Set by the executor for the thread that runs; a block stays on one OS thread.
inline thread_local uint3 threadIdx{};
inline thread_local uint3 blockIdx{};
inline thread_local dim3 blockDim{};
inline thread_local dim3 gridDim{};

inline void __syncthreads(Site site = Site::here()) { BlockRunner::current()->block_barrier(site); }

inline void __syncwarp(unsigned mask = 0xffffffffu, Site site = Site::here()) {
  BlockRunner::current()->warp_operation(WarpOperation::synchronise, mask, 0, 0, 32, site);
}

inline unsigned __ballot_sync(unsigned mask, int predicate, Site site = Site::here()) {
  return static_cast<unsigned>(BlockRunner::current()->warp_operation(WarpOperation::ballot, mask,
                                                                      predicate != 0, 0, 32, site));
}

template <class T>
T shuffle(WarpOperation operation, unsigned mask, T value, int argument, int width, Site site) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = BlockRunner::current()->warp_operation(operation, mask, bits, argument, width, site);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32, Site site = Site::here()) {
  return shuffle(WarpOperation::shuffle, mask, value, lane, width, site);
}

template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned distance, int width = 32,
                   Site site = Site::here()) {
  return shuffle(WarpOperation::shuffle_down, mask, value, static_cast<int>(distance), width, site);
}

template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned distance, int width = 32,
                 Site site = Site::here()) {
  return shuffle(WarpOperation::shuffle_up, mask, value, static_cast<int>(distance), width, site);
}

template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes, int width = 32, Site site = Site::here()) {
  return shuffle(WarpOperation::shuffle_xor, mask, value, lanes, width, site);
}

template <class T>
T* shared_memory() {
  return static_cast<T*>(BlockRunner::current()->shared_memory());
}

template <class Function>
struct Launcher;

template <class... Parameters>
struct Launcher<void (*)(Parameters...)> {
  template <auto function>
  static void launch(dim3 grid, dim3 block, std::size_t shared_bytes, Stream stream,
                     Parameters... parameters) {
    const auto body = [&] { function(parameters...); };
    const auto call = [](const void* arguments) { (*static_cast<decltype(&body)>(arguments))(); };
    static constexpr std::string_view name = Kernel<function>::name();
    stream.runtime->run({name, grid, block, shared_bytes, call, &body});
  }
};

// Runs the kernel to its end. Throws LaunchError.
template <auto function, class... Arguments>
void launch(Kernel<function>, dim3 grid, dim3 block, std::size_t shared_bytes, Stream stream,
            Arguments... arguments) {
  Launcher<decltype(function)>::template launch<function>(grid, block, shared_bytes, stream,
                                                          arguments...);
}

}  // namespace shardproof::host
