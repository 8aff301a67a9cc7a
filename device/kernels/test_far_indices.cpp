// Kernels at elements beyond the 2^31st and the 2^32nd, by index arithmetic alone: one block of a
// huge grid, in memory of which few pages are ever touched.
#include <sys/mman.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <stdexcept>

#include "device/kernels/channel_statistics.cuh"
#include "device/kernels/depthwise.cuh"
#include "device/kernels/normalise.cuh"
#include "device/kernels/pointwise.cuh"

namespace shardproof::host {
namespace {

constexpr std::size_t far = (std::size_t{1} << 32) + (std::size_t{1} << 31) + 12'345;

// Numbers 0 … count − 1, all zero until written.
class Sparse {
 public:
  explicit Sparse(std::size_t count) : bytes_(count * sizeof(float)) {
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory_ == MAP_FAILED) throw std::runtime_error("no address space");
  }
  ~Sparse() { munmap(memory_, bytes_); }
  Sparse(const Sparse&) = delete;
  Sparse& operator=(const Sparse&) = delete;
  float* data() { return static_cast<float*>(memory_); }
  float& operator[](std::size_t i) { return data()[i]; }

 private:
  std::size_t bytes_;
  void* memory_;
};

// Runs the threads of one block, one after another: for kernels without barriers.
template <class Body>
void run_block(std::size_t block, unsigned threads, Body body) {
  blockDim = threads;
  blockIdx = {static_cast<unsigned>(block), 0, 0};
  for (unsigned thread = 0; thread < threads; ++thread) {
    threadIdx = {thread, 0, 0};
    body();
  }
}

// The same number at `at` and where an index of 32 bits, signed or not, would take it.
bool alone(Sparse& y, std::size_t at, float number) {
  return y[at] == number && y[at & 0xffffffffU] == 0 && y[at & 0x7fffffffU] == 0;
}

TEST_CASE("pointwise kernels reach elements beyond 2^32, and those alone") {
  const std::size_t last = far - 1, block = pointwise_blocks(far) - 1;
  Sparse x(far), y(far);
  x[last] = 3;
  run_block(block, pointwise_block, [&] { relu(x.data(), far, y.data()); });
  CHECK(alone(y, last, 3));
  run_block(block, pointwise_block, [&] { add(x.data(), y.data(), far, y.data()); });
  CHECK(alone(y, last, 6));
  run_block(block, pointwise_block, [&] { divide(far, 4, y.data()); });
  CHECK(alone(y, last, 1.5F));
  const float bias[] = {0, 0, 0, 0, 0, 0, 0};
  float of_last[] = {0, 0, 0, 0, 0, 0, 0};
  of_last[last / 5 % 7] = 2;
  run_block(block, pointwise_block, [&] { add_bias(bias, far, 7, 5, y.data()); });
  CHECK(alone(y, last, 1.5F));
  run_block(block, pointwise_block, [&] { add_bias(of_last, far, 7, 5, y.data()); });
  CHECK(y[last] == 3.5F);
}

TEST_CASE("a row of normalise beyond 2^32 has its own channel and numbers") {
  constexpr std::size_t plane = 1'048'583, channels = 3, rows = far / plane;
  const unsigned lanes = normalise_lanes(plane);
  const std::size_t last = rows * plane - 1, row = rows - 1;
  Sparse x(rows * plane), y(rows * plane);
  x[last] = 5;
  float mean[channels] = {0, 0, 0}, variance[channels] = {1, 1, 1}, gamma[channels] = {1, 1, 1},
        beta[channels] = {0, 0, 0};
  mean[row % channels] = 1;
  gamma[row % channels] = 2;
  const std::size_t block = rows * lanes / normalise_block - 1;
  run_block(block, normalise_block, [&] {
    normalise(x.data(), mean, variance, gamma, beta, 0, false, rows, channels, plane, lanes,
              y.data());
  });
  CHECK(alone(y, last, 8));
}

TEST_CASE("the mean of a channel beyond 2^32 is of its own numbers") {
  constexpr std::size_t plane = 8, channels = far / plane;
  Sparse x(channels * plane), mean(channels);
  for (std::size_t i = 0; i < plane; ++i) x[(channels - 1) * plane + i] = static_cast<float>(i);
  run_block((channels - 1) / 32, 32,
            [&] { channel_mean<1>(x.data(), 1, channels, plane, mean.data()); });
  CHECK(mean[channels - 1] == 3.5F);
  CHECK(mean[channels - 2] == 0);
}

TEST_CASE("a depthwise plane beyond 2^32 has its own filter and numbers") {
  constexpr WindowGeometry geometry{4, 4, 4, 4, 1, 1};
  constexpr std::size_t planes = far / 16, channels = 5;
  const std::size_t last = planes * 16 - 1;
  Sparse x(planes * 16), y(planes * 16);
  x[last] = 1;
  float weight[channels * 9] = {};
  weight[(planes - 1) % channels * 9 + 4] = 7;
  run_block((planes - 1) * strips_per_plane(geometry) / window_block, window_block,
            [&] { depthwise<3, 1>(x.data(), weight, planes, channels, geometry, y.data()); });
  CHECK(alone(y, last, 7));
}

}  // namespace
}  // namespace shardproof::host
