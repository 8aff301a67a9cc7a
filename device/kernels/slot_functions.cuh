// The value functions of slot programs in float32 that are no plain operator
// (reference/slots/value_function.h says what each means).
#pragma once

#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Rounded correctly, on the host as under nvcc.
__device__ __forceinline__ float square_root(float a) { return sqrtf(a); }

__device__ __forceinline__ float sign(float a) {
  return static_cast<float>(static_cast<int>(0.0f < a) - static_cast<int>(a < 0.0f));
}

__device__ __forceinline__ float select(float condition, float then, float otherwise) {
  return condition != 0.0f ? then : otherwise;
}

__device__ __forceinline__ float truth(bool condition) { return condition ? 1.0f : 0.0f; }

// NaN where either is NaN; −0 below +0.
__device__ __forceinline__ float minimum(float a, float b) {
  if (a < b) return a;
  if (b < a) return b;
  if (a == b) return copysignf(1.0f, a) < 0.0f ? a : b;
  return a + b;
}

__device__ __forceinline__ float maximum(float a, float b) {
  if (a > b) return a;
  if (b > a) return b;
  if (a == b) return copysignf(1.0f, a) < 0.0f ? b : a;
  return a + b;
}

}  // namespace shardproof::SHARDPROOF_BACKEND
