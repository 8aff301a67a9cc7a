// What the built-in device asks of a machine, on the CPU. The GPU's has the same members
// (device/runtime/cuda/backend.cuh).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "device/runtime/host/executor.h"
#include "device/runtime/host/nccl.h"

namespace shardproof::host {

class Backend {
 public:
  // Throws DeviceError unless both counts are at least 1.
  Backend(int replicas, std::uint64_t seed, int workers);
  ~Backend();
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;

  std::string name() const;
  int replicas() const { return static_cast<int>(communicators_.size()); }

  Stream stream(int replica);
  ncclComm_t communicator(int replica) {
    return communicators_.at(static_cast<std::size_t>(replica));
  }

  float* allocate(int replica, std::size_t count);
  void release(int replica, float* pointer);
  void upload(int replica, float* to, const float* from, std::size_t count);
  void download(int replica, const float* from, float* to, std::size_t count);
  void synchronize() {}

  // c [rows, columns] = a [rows, depth] · b [depth, columns], row-major.
  void multiply(int replica, std::size_t rows, std::size_t columns, std::size_t depth,
                const float* a, const float* b, float* c);

 private:
  Runtime runtime_;
  std::vector<ncclComm_t> communicators_;
};

}  // namespace shardproof::host
