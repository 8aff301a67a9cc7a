// Sums over the elements of a scope: the local parts of those that the ranks compute together, in
// float64, and those that every rank computes alone, as the program has them.
//
// Order of partial sums: the numbers of a run are dealt to 32 running sums in turn, which are then
// added in order, and the runs of an element likewise.
#pragma once

#include <cstddef>
#include <cstdint>

#include "device/kernels/sum_run.h"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

constexpr unsigned run_sum_lanes = 32;

// sums[run]: one block a run, run_sum_lanes threads, as many doubles of shared memory.
__global__ void run_sums(const float* values, const SumRun* runs, double* sums) {
  const SumRun run = runs[blockIdx.x];
  double* const lanes = shared_memory<double>();
  double sum = 0.0;
  for (std::size_t i = threadIdx.x; i < run.count; i += blockDim.x)
    sum += static_cast<double>(values[run.first + i * run.step]);
  lanes[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (unsigned lane = 1; lane < run_sum_lanes; ++lane) sum += lanes[lane];
  sums[blockIdx.x] = sum;
}

// sums[element]: that of its runs. Grid: a thread an element.
__global__ void sums_of_runs(const double* run_sums, const std::uint32_t* offsets,
                             std::size_t elements, double* sums) {
  const std::size_t element = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (element >= elements) return;
  double sum = 0.0;
  for (std::uint32_t run = offsets[element]; run < offsets[element + 1]; ++run)
    sum += run_sums[run];
  sums[element] = sum;
}

// The float32 numbers nearest to the sums, divided first where `divisors` is not null. Grid: a
// thread an element.
__global__ void round_sums(const double* sums, const double* divisors, std::size_t elements,
                           float* result) {
  const std::size_t element = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (element >= elements) return;
  const double sum = sums[element];
  result[element] = static_cast<float>(divisors != nullptr ? sum / divisors[element] : sum);
}

// result[element] = the float32 sum, in order, of the values from offsets[element] up to
// offsets[element + 1]; of none 0. Divided by their number when `mean`. Grid: a thread an element.
__global__ void shared_sum(const float* values, const std::uint32_t* offsets, std::size_t elements,
                           bool mean, float* result) {
  const std::size_t element = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (element >= elements) return;
  const std::uint32_t begin = offsets[element], end = offsets[element + 1];
  float sum = 0.0f;
  for (std::uint32_t i = begin; i < end; ++i) sum = i == begin ? values[i] : sum + values[i];
  result[element] = mean ? sum / static_cast<float>(end - begin) : sum;
}

}  // namespace shardproof::SHARDPROOF_BACKEND
