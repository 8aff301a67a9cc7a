// Runs CUDA kernel text on the CPU. A block stays on one worker of a standing pool; its threads are
// fibers that switch at barriers and warp operations, in an order drawn from the seed. A thread
// that meets none runs inline, without a switch.
//
// Found and reported with kernel, block, thread and source line: a barrier that some thread of the
// block never reaches or meets at another line, a warp operation whose mask names lanes that do not
// take part, an access outside an allocation (but for a stack overflow, which ends the process with
// `out_of_bounds_exit_code`).
// Not modelled: weak memory order, asynchronous streams, lockstep of a warp (code that leans on it
// is exposed), threads that spin on one another.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "device/runtime/device_error.h"
#include "device/runtime/host/device_memory.h"
#include "device/runtime/host/scheduler.h"
#include "device/runtime/host/worker_pool.h"

namespace shardproof::host {

struct uint3 {
  unsigned x, y, z;
};

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
  constexpr std::uint64_t count() const { return std::uint64_t{x} * y * z; }
  friend constexpr bool operator==(const dim3& a, const dim3& b) {
    return a.x == b.x && a.y == b.y && a.z == b.z;
  }
};

// A launch that broke a rule of CUDA's execution model.
class LaunchError : public DeviceError {
 public:
  using DeviceError::DeviceError;
};

inline constexpr std::size_t max_shared_bytes = 227 * 1024;  // a block's, on compute capability 9.0

// One launch: `body(arguments)` is called once for each thread of the grid.
struct Launch {
  std::string_view kernel;
  dim3 grid, block;
  std::size_t shared_bytes;
  void (*body)(const void* arguments);
  const void* arguments;
};

class BlockRunner;

// One machine: its workers, its memory and the seed of its schedules. Launches from several threads
// take turns.
class Runtime {
 public:
  Runtime(std::uint64_t seed, int workers);
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  std::uint64_t seed() const { return seed_; }
  WorkerPool& pool() { return pool_; }
  DeviceMemory& memory() { return memory_; }
  const DeviceMemory& memory() const { return memory_; }

  // Runs the grid to its end. Throws LaunchError.
  void run(const Launch& launch);

 private:
  std::uint64_t seed_;
  WorkerPool pool_;
  DeviceMemory memory_;
  std::vector<std::unique_ptr<BlockRunner>> runners_;  // one a worker
};

// Work on a stream is done when the call returns.
struct Stream {
  Runtime* runtime;
};

}  // namespace shardproof::host
