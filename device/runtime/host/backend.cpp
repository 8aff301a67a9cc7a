#include "device/runtime/host/backend.h"

#include <algorithm>

#include "device/runtime/host/product.h"

namespace shardproof::host {
namespace {

// Replicas whose memory has guard pages: of so many the mappings stay well below Linux's 65530.
// The others run the same launches on the same shapes.
constexpr int guarded_replicas = 32;

int at_least_one(int count, const char* what) {
  if (count < 1) throw DeviceError(std::string("the host device needs at least one ") + what);
  return count;
}

}  // namespace

Backend::Backend(int replicas, std::uint64_t seed, int workers)
    : runtime_(seed, at_least_one(workers, "worker")),
      communicators_(static_cast<std::size_t>(at_least_one(replicas, "replica"))) {
  ncclCommInitAll(communicators_.data(), replicas, nullptr);
}

Backend::~Backend() {
  for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
}

std::string Backend::name() const {
  return "host executor, schedules of seed " + std::to_string(runtime_.seed());
}

Stream Backend::stream(int) { return {&runtime_}; }

float* Backend::allocate(int replica, std::size_t count) {
  return runtime_.memory().allocate(
      count, replica < guarded_replicas ? DeviceMemory::Guard::pages : DeviceMemory::Guard::none);
}

void Backend::release(int, float* pointer) { runtime_.memory().release(pointer); }

void Backend::upload(int, float* to, const float* from, std::size_t count) {
  std::copy_n(from, count, to);
}

void Backend::download(int, const float* from, float* to, std::size_t count) {
  std::copy_n(from, count, to);
}

void Backend::multiply(int, std::size_t rows, std::size_t columns, std::size_t depth,
                       const float* a, const float* b, float* c) {
  host::multiply(runtime_.pool(), rows, columns, depth, a, b, c);
}

}  // namespace shardproof::host
