// The matrix product of the host device: what cuBLAS is on a GPU.
#pragma once

#include <cstddef>

#include "device/runtime/host/worker_pool.h"

namespace shardproof::host {

// c [rows, columns] = a [rows, depth] · b [depth, columns], row-major float32, by Eigen on tiles
// of a fixed size: the bits do not depend on the number of workers or the machine's caches.
void multiply(WorkerPool& pool, std::size_t rows, std::size_t columns, std::size_t depth,
              const float* a, const float* b, float* c);

}  // namespace shardproof::host
