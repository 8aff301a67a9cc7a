// Optimizer steps with their arithmetic compiled in. Each is one text over a type of value: float32
// in the kernel, expressions where a program is compared with it (device/engine/fused_step.h), so
// that a kernel runs only programs that compute the same expressions, whatever their names. Without
// contraction it then gives the bits that the program gives.
//
// field: the coordinate's slots, the first `written` of them updated; scalar: numbers that are
// alike for the whole parameter.
#pragma once

#include <cstddef>

#include "device/kernels/pointwise.cuh"
#include "device/kernels/slot_functions.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Loshchilov and Hutter, arXiv:1711.05101. Scalars: lr, lr·weight_decay, beta1, 1 − beta1, beta2,
// 1 − beta2, 1 − beta1^t, 1 − beta2^t, eps.
struct AdamW {
  static constexpr int fields = 4, written = 3, scalars = 9;  // p, m, v; g
  template <class Value>
  __device__ static void step(Value* field, const Value* scalar) {
    Value& p = field[0];
    Value& m = field[1];
    Value& v = field[2];
    const Value g = field[3];
    p = p - scalar[1] * p;
    m = scalar[2] * m + scalar[3] * g;
    v = scalar[4] * v + scalar[5] * (g * g);
    const Value m_hat = m / scalar[6];
    const Value v_hat = v / scalar[7];
    p = p - scalar[0] * m_hat / (square_root(v_hat) + scalar[8]);
  }
};

// SGD with heavy-ball momentum. Scalars: lr, momentum, 1 − dampening, weight_decay, step > 1.
struct Momentum {
  static constexpr int fields = 3, written = 2, scalars = 5;  // p, b; g
  template <class Value>
  __device__ static void step(Value* field, const Value* scalar) {
    Value& p = field[0];
    Value& b = field[1];
    const Value g = field[2] + scalar[3] * p;
    b = select(scalar[4], scalar[1] * b + scalar[2] * g, g);
    p = p - scalar[0] * b;
  }
};

// Chen and others, arXiv:2302.06675. Scalars: lr, beta1, 1 − beta1, beta2, 1 − beta2, weight_decay.
struct Lion {
  static constexpr int fields = 3, written = 2, scalars = 6;  // p, m; g
  template <class Value>
  __device__ static void step(Value* field, const Value* scalar) {
    Value& p = field[0];
    Value& m = field[1];
    const Value g = field[2];
    const Value c = scalar[1] * m + scalar[2] * g;
    p = p - scalar[0] * (sign(c) + scalar[5] * p);
    m = scalar[3] * m + scalar[4] * g;
  }
};

// Fields at their first coordinate, one number a scalar.
template <class Step>
struct FusedOperands {
  float* field[Step::fields];
  const float* scalar[Step::scalars];
};

// Grid: pointwise_blocks(count) blocks of pointwise_threads(count) threads.
template <class Step>
__global__ void fused_step(FusedOperands<Step> operands, std::size_t count) {
  float scalar[Step::scalars];
  for (int k = 0; k < Step::scalars; ++k) scalar[k] = *operands.scalar[k];
  for_own_indices(count, [&](std::size_t i) {
    float field[Step::fields];
    for (int k = 0; k < Step::fields; ++k) field[k] = operands.field[k][i];
    Step::step(field, scalar);
    for (int k = 0; k < Step::written; ++k) operands.field[k][i] = field[k];
  });
}

}  // namespace shardproof::SHARDPROOF_BACKEND
