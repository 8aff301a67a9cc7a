#include "device/engine/builtin_device.h"
#include "device/runtime/host/backend.h"
// The launches need the Backend above.
#include "device/engine/builtin_device.inl"

namespace shardproof {

std::unique_ptr<Device> make_host_device(int replicas, std::uint64_t seed, int workers) {
  return std::make_unique<host::BuiltinDevice>(replicas, seed, workers);
}

}  // namespace shardproof
