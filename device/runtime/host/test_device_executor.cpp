#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "device/runtime/cuda_subset.h"
#include "device/runtime/host/test_fault.h"

namespace shardproof::host {
namespace {

constexpr int block_threads = 256;
constexpr int warps = block_threads / 32;

enum class Missing { nothing, barrier_before_read, barrier_before_reuse };

template <Missing missing>
__device__ float block_sum(float value, float* partial) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_down_sync(0xffffffffu, value, static_cast<unsigned>(distance));
  }
  if (missing != Missing::barrier_before_reuse) __syncthreads();
  if (lane == 0) partial[threadIdx.x / 32] = value;
  if (missing != Missing::barrier_before_read) __syncthreads();
  value = lane < warps ? partial[lane] : 0.0f;
  for (int distance = 16; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// Two block sums through the same shared memory.
template <Missing missing>
__global__ void mean_and_variance(const float* x, int count, float* y) {
  float* const partial = shared_memory<float>();
  float sum = 0.0f;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x) sum += x[i];
  const float mean = block_sum<missing>(sum, partial) / static_cast<float>(count);
  sum = 0.0f;
  for (unsigned i = threadIdx.x; i < static_cast<unsigned>(count); i += blockDim.x) {
    sum += (x[i] - mean) * (x[i] - mean);
  }
  sum = block_sum<missing>(sum, partial);
  if (threadIdx.x == 0) y[0] = mean;
  if (threadIdx.x == 0) y[1] = sum / static_cast<float>(count);
}

// Reads what the neighbour wrote; the barrier before the next write is missing.
__global__ void reuses_too_early(const float* x, int rounds, float* y) {
  float* const shared = shared_memory<float>();
  const unsigned thread = threadIdx.x;
  float sum = 0.0f;
  for (int round = 0; round < rounds; ++round) {
    shared[thread] = x[static_cast<unsigned>(round) * blockDim.x + thread];
    __syncthreads();
    if (thread + 1 < blockDim.x) sum += shared[thread + 1];
  }
  y[thread] = sum;
}

__global__ void leans_on_lockstep(float* y) {
  float* const shared = shared_memory<float>();
  shared[threadIdx.x] = 1.0f;
  y[threadIdx.x] = shared[31 - threadIdx.x];
}

__global__ void synchronises_the_warp(float* y) {
  float* const shared = shared_memory<float>();
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  __syncwarp();
  y[threadIdx.x] = shared[31 - threadIdx.x];
}

__global__ void returns_before_the_barrier(float* y) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  y[threadIdx.x] = 1.0f;
}

__global__ void two_barrier_sites(float* y) {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncthreads();
  }
  y[threadIdx.x] = 1.0f;
}

__global__ void half_the_warp_shuffles_with_the_full_mask(float* y) {
  if (threadIdx.x % 32 < 16) y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
  __syncthreads();
}

__global__ void a_lane_returns_before_the_shuffle(float* y) {
  if (threadIdx.x == 3) return;
  y[threadIdx.x] = __shfl_xor_sync(0xffffffffu, 1.0f, 1);
}

__global__ void own_lane_not_in_the_mask(float* y) {
  y[threadIdx.x] = __shfl_xor_sync(0x1u, 1.0f, 1);
}

__global__ void halves_with_their_own_masks(float* y) {
  float value = static_cast<float>(threadIdx.x);
  const unsigned mask = threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u;
  if (threadIdx.x % 32 < 16) {
    for (int lanes = 8; lanes > 0; lanes /= 2) value += __shfl_xor_sync(mask, value, lanes);
  } else {
    for (int lanes = 8; lanes > 0; lanes /= 2) value += __shfl_xor_sync(mask, value, lanes);
  }
  y[threadIdx.x] = value;
}

__global__ void all_warp_operations(unsigned* y) {
  const unsigned lane = threadIdx.x;
  unsigned* const mine = y + 5 * lane;
  mine[0] = __shfl_sync(0xffffffffu, lane, 5, 16);
  mine[1] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
  mine[2] = __shfl_up_sync(0xffffffffu, lane, 3, 8);
  mine[3] = __shfl_xor_sync(0xffffffffu, lane, 6, 8);
  mine[4] = __ballot_sync(0xffffffffu, lane % 3 == 0);
}

__global__ void reads_one_too_many(const float* x, int count, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i <= count) y[i % count] = x[i];
}

__global__ void copies(const float* x, std::size_t count, float* y) {
  const std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) y[i] = x[i];
}

__global__ void writes_before_the_start(float* y) { y[-1024] = static_cast<float>(threadIdx.x); }

__global__ void reads_past_shared_memory(float* y, int offset) {
  float* const shared = shared_memory<float>();
  shared[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = shared[static_cast<int>(threadIdx.x) + offset];
}

__global__ void reads_unwritten_shared_memory(float* y) {
  float* const shared = shared_memory<float>();
  if (threadIdx.x % 2 == 0) shared[threadIdx.x] = 1.0f;
  __syncthreads();
  y[threadIdx.x] = shared[threadIdx.x];
}

__global__ void overflows_its_stack(float* y, int depth) {
  volatile float deep[1000];
  deep[depth % 1000] = static_cast<float>(depth);
  if (depth > 0) overflows_its_stack(y, depth - 1);
  y[0] += deep[depth % 1000];
}

__global__ void block_and_thread_indices(unsigned* y) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  const unsigned threads = blockDim.x * blockDim.y * blockDim.z;
  y[block * threads + thread] = block * threads + thread;
}

std::vector<float> ramp(std::size_t count) {
  std::vector<float> x(count);
  for (std::size_t i = 0; i < count; ++i) {
    x[i] = static_cast<float>((i * 2654435761u >> 8 & 0xffff)) / 65536.0f - 0.25f;
  }
  return x;
}

template <Missing missing>
std::vector<float> statistics(std::uint64_t seed) {
  Runtime runtime(seed, 1);
  const std::vector<float> x = ramp(3000);
  std::vector<float> y(2);
  launch(kernel<mean_and_variance<missing>>, 1, block_threads, warps * sizeof(float),
         Stream{&runtime}, x.data(), 3000, y.data());
  return y;
}

using Bits = std::vector<std::uint32_t>;

Bits bits(const std::vector<float>& values) {
  Bits result;
  for (float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

template <auto function, class... Arguments>
std::string error_of(std::uint64_t seed, unsigned block, Arguments... arguments) {
  Runtime runtime(seed, 1);
  try {
    launch(kernel<function>, 1, block, 128 * sizeof(float), Stream{&runtime}, arguments...);
  } catch (const LaunchError& error) {
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("a correct kernel gives the same bits under every schedule") {
  CHECK(schedule_of(0) == Schedule::in_order);
  CHECK(schedule_of(1) == Schedule::uniform);
  CHECK(schedule_of(2) == Schedule::warp_priorities);
  const Bits expected = bits(statistics<Missing::nothing>(0));
  for (std::uint64_t seed = 1; seed <= 50; ++seed) {
    CHECK(bits(statistics<Missing::nothing>(seed)) == expected);
  }
}

TEST_CASE("a kernel has its name") {
  CHECK(Kernel<reuses_too_early>::name() == "reuses_too_early");
  CHECK(Kernel<mean_and_variance<Missing::nothing>>::name().find("mean_and_variance<") == 0);
}

#if !defined(__SANITIZE_THREAD__)  // the next three race on purpose

TEST_CASE("a missing barrier between write and read is found by every kind of schedule") {
  const Bits expected = bits(statistics<Missing::nothing>(0));
  for (std::uint64_t seed = 0; seed <= 20; ++seed) {
    CHECK(bits(statistics<Missing::barrier_before_read>(seed)) != expected);
  }
}

TEST_CASE("a missing barrier before reuse is found by random warp priorities") {
  const std::vector<float> x = ramp(8 * block_threads);
  const auto run = [&](std::uint64_t seed) {
    Runtime runtime(seed, 1);
    std::vector<float> y(block_threads);
    launch(kernel<reuses_too_early>, 1, block_threads, block_threads * sizeof(float),
           Stream{&runtime}, x.data(), 8, y.data());
    return bits(y);
  };
  std::vector<float> expected(block_threads, 0.0f);
  for (std::size_t round = 0; round < 8; ++round) {
    for (std::size_t thread = 0; thread + 1 < block_threads; ++thread) {
      expected[thread] += x[round * block_threads + thread + 1];
    }
  }
  CHECK(run(0) == bits(expected));  // in order it goes unseen
  int found = 0;
  for (std::uint64_t seed = 2; seed <= 40; seed += 2) found += run(seed) != bits(expected);
  CHECK(found == 20);
}

TEST_CASE("a warp does not run in lockstep") {
  Runtime runtime(0, 1);
  std::vector<float> y(32);
  launch(kernel<leans_on_lockstep>, 1, 32, 32 * sizeof(float), Stream{&runtime}, y.data());
  CHECK(y[0] != y[0]);  // what lane 31 has not written yet is NaN
}

#endif

#if defined(__SANITIZE_THREAD__)

TEST_CASE("ThreadSanitizer finds a missing barrier in one schedule, with its line") {
  const Fault fault = fault_of([] { statistics<Missing::barrier_before_read>(0); });
  CHECK_THAT(fault.message, Catch::Contains("data race"));
  CHECK_THAT(fault.message, Catch::Contains("test_device_executor.cpp:"));
  CHECK(fault_of([] { statistics<Missing::nothing>(0); }).message == "");
}

#endif

TEST_CASE("a warp barrier orders shared memory") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Runtime runtime(seed, 1);
    std::vector<float> y(32);
    launch(kernel<synchronises_the_warp>, 1, 32, 32 * sizeof(float), Stream{&runtime}, y.data());
    for (std::size_t lane = 0; lane < 32; ++lane) CHECK(y[lane] == static_cast<float>(31 - lane));
  }
}

TEST_CASE("warp operations follow the CUDA programming guide") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Runtime runtime(seed, 1);
    std::vector<unsigned> y(5 * 32);
    launch(kernel<all_warp_operations>, 1, 32, 0, Stream{&runtime}, y.data());
    for (unsigned lane = 0; lane < 32; ++lane) {
      CHECK(y[5 * lane] == lane / 16 * 16 + 5);
      CHECK(y[5 * lane + 1] == (lane % 8 + 3 < 8 ? lane + 3 : lane));
      CHECK(y[5 * lane + 2] == (lane % 8 >= 3 ? lane - 3 : lane));
      CHECK(y[5 * lane + 3] == (lane ^ 6u));
      CHECK(y[5 * lane + 4] == 0x49249249u);
    }
    std::vector<float> halves(64);
    launch(kernel<halves_with_their_own_masks>, 1, 64, 0, Stream{&runtime}, halves.data());
    CHECK(halves[3] == 120.0f);
    CHECK(halves[20] == 376.0f);
  }
}

TEST_CASE("divergence errors name kernel, block, thread and line") {
  std::vector<float> y(64);
  for (std::uint64_t seed : {0, 7, 8}) {
    const std::string early = error_of<returns_before_the_barrier>(seed, 64, y.data());
    CHECK_THAT(early, Catch::StartsWith("kernel returns_before_the_barrier, block (0,0,0): thread "
                                        "(40,0,0) returned while thread (0,0,0) waits at the "
                                        "barrier of "));
    CHECK_THAT(early, Catch::Contains("test_device_executor.cpp:"));
    CHECK_THAT(error_of<two_barrier_sites>(seed, 64, y.data()),
               Catch::Contains("kernel two_barrier_sites, block (0,0,0): thread (") &&
                   Catch::Contains("while others wait at "));
    CHECK_THAT(error_of<half_the_warp_shuffles_with_the_full_mask>(seed, 64, y.data()),
               Catch::Contains("no thread can go on: thread (0,0,0) waits at the warp operation") &&
                   Catch::Contains("(mask 0xffffffff)") && Catch::Contains("at the barrier of"));
    CHECK_THAT(error_of<a_lane_returns_before_the_shuffle>(seed, 32, y.data()),
               Catch::Contains("for lane 3 of its mask, which has returned"));
    CHECK_THAT(error_of<own_lane_not_in_the_mask>(seed, 32, y.data()),
               Catch::Contains("without its own lane in the mask"));
  }
}

TEST_CASE("a runtime goes on after a failed launch") {
  Runtime runtime(2, 2);
  std::vector<float> y(64);
  const Stream stream{&runtime};
  for (int i = 0; i < 3; ++i) {
    CHECK_THROWS_AS(launch(kernel<returns_before_the_barrier>, 5, 64, 0, stream, y.data()),
                    LaunchError);
    launch(kernel<halves_with_their_own_masks>, 1, 64, 0, stream, y.data());
    CHECK(y[3] == 120.0f);
  }
}

TEST_CASE("what CUDA cannot launch is refused") {
  Runtime runtime(0, 1);
  const Stream stream{&runtime};
  std::vector<unsigned> y(1);
  const auto attempt = [&](dim3 grid, dim3 block, std::size_t shared) {
    launch(kernel<block_and_thread_indices>, grid, block, shared, stream, y.data());
  };
  CHECK_THROWS_WITH(attempt(1, 1025, 0), Catch::Contains("a block of 1025 threads"));
  CHECK_THROWS_AS(attempt(1, 0, 0), LaunchError);
  CHECK_THROWS_AS(attempt(0, 1, 0), LaunchError);
  CHECK_THROWS_AS(attempt(dim3(1, 65536), 1, 0), LaunchError);
  CHECK_THROWS_AS(attempt(1, 1, max_shared_bytes + 1), LaunchError);
  CHECK_NOTHROW(attempt(1, 1, max_shared_bytes));
}

TEST_CASE("every thread of the grid runs once, whatever the number of workers") {
  for (int workers : {1, 2, 5}) {
    for (std::uint64_t seed : {0, 3, 4}) {
      Runtime runtime(seed, workers);
      std::vector<unsigned> y(3 * 5 * 2 * 7 * 3 * 2);
      launch(kernel<block_and_thread_indices>, dim3(3, 5, 2), dim3(7, 3, 2), 0, Stream{&runtime},
             y.data());
      for (unsigned i = 0; i < y.size(); ++i) REQUIRE(y[i] == i);
    }
  }
}

TEST_CASE("unwritten shared memory is NaN in every block") {
  Runtime runtime(0, 1);
  std::vector<float> y(64);
  for (int i = 0; i < 2; ++i) {
    launch(kernel<reads_unwritten_shared_memory>, 1, 64, 64 * sizeof(float), Stream{&runtime},
           y.data());
    CHECK(y[2] == 1.0f);
    CHECK(y[3] != y[3]);
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

TEST_CASE("an out-of-bounds access names kernel, block, thread and offset") {
  Runtime runtime(0, 2);
  float* const x = runtime.memory().allocate(101);
  float* const y = runtime.memory().allocate(101);
  // The launch fails; the device goes on.
  for (int again = 0; again < 3; ++again) {
    CHECK_THROWS_WITH(
        launch(kernel<reads_one_too_many>, 2, 64, 0, Stream{&runtime}, x, 101, y),
        "kernel reads_one_too_many, block (1,0,0): thread (37,0,0): out-of-bounds access, 0 bytes "
        "past the end of an allocation of 404 bytes");
    launch(kernel<copies>, 2, 64, 0, Stream{&runtime}, x, std::size_t{101}, y);
  }
  CHECK_THROWS_WITH(
      launch(kernel<writes_before_the_start>, 1, 1, 0, Stream{&runtime},
             runtime.memory().allocate(1024)),
      Catch::Contains("kernel writes_before_the_start, block (0,0,0): thread (0,0,0)") &&
          Catch::Contains("4096 bytes before the start"));
}

TEST_CASE("shared memory and stacks are guarded too") {
  const auto read_at = [](int offset) {
    Runtime runtime(0, 1);
    launch(kernel<reads_past_shared_memory>, 1, 64, 64 * sizeof(float), Stream{&runtime},
           runtime.memory().allocate(64), offset);
  };
  CHECK_NOTHROW(read_at(0));
  CHECK_THROWS_WITH(read_at(1), Catch::Contains("thread (63,0,0)"));
  CHECK_THROWS_AS(read_at(-2048), LaunchError);
  const Fault overflow = fault_of([] {
    Runtime runtime(0, 1);
    launch(kernel<overflows_its_stack>, 1, 1, 0, Stream{&runtime}, runtime.memory().allocate(1),
           100);
  });
  CHECK(overflow.exit_code == out_of_bounds_exit_code);
  CHECK_THAT(overflow.message, Catch::Contains("stack overflow"));
}

TEST_CASE("released memory of many pages cannot be read, that of few is NaN") {
  const auto read_released = [](std::size_t count) {
    Runtime runtime(0, 1);
    float* const x = runtime.memory().allocate(count);
    float* const y = runtime.memory().allocate(count);
    const std::vector<float> ones(count, 1.0f);
    std::copy(ones.begin(), ones.end(), x);
    runtime.memory().release(x);
    launch(kernel<copies>, static_cast<unsigned>(count + 63) / 64, 64, 0, Stream{&runtime}, x,
           count, y);
    if (y[0] == y[0] || y[count - 1] == y[count - 1]) _exit(1);
  };
  const std::size_t open = DeviceMemory::open_bytes / sizeof(float);
  CHECK(fault_of([&] { read_released(101); }).exit_code == 0);
  CHECK(fault_of([&] { read_released(open); }).exit_code == 0);
  CHECK_THROWS_AS(read_released(open + 1), LaunchError);
}

TEST_CASE("a write to released memory ends the process at the latest with its OS thread") {
  const auto write_released = [](bool used_again) {
    return fault_of([&] {
      std::thread([&] {
        DeviceMemory memory;
        float* const x = memory.allocate(101);
        memory.release(x);
        x[50] = 1.0f;
        for (int i = 0; used_again && i < 1000; ++i) memory.allocate(101);
        if (used_again) _exit(1);
      }).join();
    });
  };
  for (const bool used_again : {false, true}) {
    const Fault fault = write_released(used_again);
    CHECK(fault.exit_code == out_of_bounds_exit_code);
    CHECK(fault.message ==
          "device memory was written after the release of an allocation of 404 bytes\n");
  }
}

TEST_CASE("a write before the start of a small allocation ends the process at its release") {
  const Fault fault = fault_of([] {
    DeviceMemory memory;
    float* const x = memory.allocate(101);
    x[-1] = 0.0f;
    memory.release(x);
  });
  CHECK(fault.exit_code == out_of_bounds_exit_code);
  CHECK(fault.message ==
        "device memory was written before the start of an allocation of 404 bytes\n");
}

TEST_CASE("a device finds the memory of the one before it as NaN") {
  for (int device = 0; device < 3; ++device) {
    DeviceMemory memory;
    std::vector<float*> arrays;
    for (std::size_t count : {1, 101, 1024, 4096, 4097}) {
      arrays.push_back(memory.allocate(count));
      CHECK(std::all_of(arrays.back(), arrays.back() + count, [](float x) { return x != x; }));
      std::fill_n(arrays.back(), count, 1.0f);
    }
    if (device == 1) memory.release(arrays[1]);
  }
}

#endif

#if defined(__SANITIZE_ADDRESS__)

TEST_CASE("AddressSanitizer sees what a kernel touches outside its memory") {
  const Fault past = fault_of([] {
    Runtime runtime(2, 1);
    float* const x = runtime.memory().allocate(101);
    launch(kernel<reads_one_too_many>, 2, 64, 0, Stream{&runtime}, x, 101,
           runtime.memory().allocate(101));
  });
  CHECK_THAT(past.message, Catch::Contains("heap-buffer-overflow"));
  const Fault shared = fault_of([] {
    Runtime runtime(0, 1);
    launch(kernel<reads_past_shared_memory>, 1, 64, 64 * sizeof(float), Stream{&runtime},
           runtime.memory().allocate(64), -1);
  });
  CHECK_THAT(shared.message, Catch::Contains("use-after-poison"));
}

#endif

TEST_CASE("device memory starts as NaN and is released once") {
  DeviceMemory memory;
  for (std::size_t count : {1, 1023, 1024, 1025, 100000}) {
    float* const x = memory.allocate(count);
    CHECK(x[0] != x[0]);
    CHECK(x[count - 1] != x[count - 1]);
    memory.release(x);
    CHECK_THROWS_AS(memory.release(x), DeviceError);
  }
  CHECK_NOTHROW(memory.release(memory.allocate(0)));
  CHECK_THROWS_AS(memory.allocate(std::size_t{1} << 61), OutOfDeviceMemory);
}

TEST_CASE("more allocations without guards than a process can have mappings fit side by side") {
  DeviceMemory memory;
  for (int i = 0; i < 70000; ++i) {
    const float* const x = memory.allocate(33, DeviceMemory::Guard::none);
    if (i % 10000 == 0) CHECK(x[32] != x[32]);
  }
}

}  // namespace shardproof::host
