#include <memory>

#include "device/engine/builtin_device.h"
#include "device/runtime/cuda/backend.cuh"
// The launches need the Backend above.
#include "device/engine/builtin_device.inl"

namespace shardproof {

std::unique_ptr<Device> make_cuda_device(int replicas) {
  return std::make_unique<cuda::BuiltinDevice>(ChannelThreads::by_count, replicas);
}

}  // namespace shardproof
