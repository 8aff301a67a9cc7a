#include "device/engine/builtin_device.h"
#include "device/runtime/host/backend.h"
// The launches need the Backend above.
#include "device/engine/builtin_device.inl"

namespace shardproof {

std::unique_ptr<Device> make_host_device(int replicas, const Schedule& schedule, int workers) {
  return std::make_unique<host::BuiltinDevice>(schedule.threads, replicas, schedule.seed, workers);
}

std::unique_ptr<Device> make_host_device(int replicas, std::uint64_t seed, int workers) {
  return make_host_device(replicas, Schedule{seed, ChannelThreads::by_count}, workers);
}

}  // namespace shardproof
