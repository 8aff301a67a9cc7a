// The one header that kernel text includes. Kernels are plain CUDA C++17 inside
// `namespace shardproof::SHARDPROOF_BACKEND`; under nvcc they are CUDA kernels, under g++ the same
// text runs on the CPU. The subset: threadIdx, blockIdx, blockDim, gridDim, __syncthreads,
// __syncwarp, the four shuffles, __ballot_sync, and shared memory from `shared_memory<T>()`. Shared
// memory is dynamic only, so that the host can fill it with NaN and put guard pages around it.
// There are no atomics: their order would show in float results. No thread may wait for another
// one other than at a barrier or a warp operation.
#pragma once

#if defined(__CUDACC__)
#include "device/runtime/cuda/cuda_subset.cuh"
#else
#include "device/runtime/host/cuda_subset.h"
#endif
