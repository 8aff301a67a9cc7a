#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "device/engine/builtin_device.h"

// Every operation of the built-in device against a plain double loop, on shapes that straddle
// blocks, lanes and strips.

namespace shardproof {
namespace {

constexpr double u = 0x1p-24;
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.5f, 1.0f);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// One replica's device memory that outlives a call.
class OnDevice {
 public:
  OnDevice(Device& device, std::size_t count)
      : device_(device), count_(count), pointer_(device.allocate(0, count)) {}
  OnDevice(Device& device, const std::vector<float>& values) : OnDevice(device, values.size()) {
    device.upload(0, pointer_, values.data(), count_);
  }
  ~OnDevice() { device_.release(0, pointer_); }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  operator float*() const { return pointer_; }
  std::vector<float> values() const {
    std::vector<float> values(count_);
    device_.download(0, pointer_, values.data(), count_);
    return values;
  }

 private:
  Device& device_;
  std::size_t count_;
  float* pointer_;
};

using Bits = std::vector<std::uint32_t>;

Bits bits(const std::vector<float>& values) {
  Bits result;
  for (float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

struct Planes {
  std::size_t batch, channels, plane;
  std::size_t count() const { return batch * channels * plane; }
};

// Each width of sum_lanes, channel counts around the channels of a block, prime planes.
const std::vector<Planes> plane_shapes = {
    {1, 1, 1},  {2, 5, 1},   {7, 33, 1},   {2, 1, 3},    {1, 4, 49},   {2, 5, 49},    {3, 7, 53},
    {2, 3, 64}, {1, 31, 64}, {2, 2, 255},  {2, 2, 256},  {2, 2, 257},  {1, 3, 1024},  {5, 2, 196},
    {2, 1, 97}, {3, 2, 683}, {2, 3, 3136}, {1, 2, 8192}, {1, 1, 8193}, {2, 2, 12544}, {11, 3, 5}};

constexpr std::array kinds_of_threads{ChannelThreads::by_count, ChannelThreads::one,
                                      ChannelThreads::one_warp, ChannelThreads::several_warps};

std::vector<double> exact_means(const std::vector<float>& x, const Planes& shape) {
  std::vector<double> means(shape.channels, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) means[i / shape.plane % shape.channels] += x[i];
  for (double& mean : means) mean /= static_cast<double>(shape.batch * shape.plane);
  return means;
}

std::vector<float> mean_on(Device& device, const std::vector<float>& x, const Planes& shape) {
  const OnDevice in(device, x);
  const OnDevice out(device, shape.channels);
  device.channel_mean({0, in, out, shape.batch, shape.channels, shape.plane});
  return out.values();
}

std::vector<float> variance_on(Device& device, const std::vector<float>& x,
                               const std::vector<float>& own_mean, const std::vector<float>& mean,
                               const Planes& shape) {
  const OnDevice in(device, x);
  const OnDevice own(device, own_mean);
  const OnDevice global(device, mean);
  const OnDevice out(device, shape.channels);
  device.channel_variance({0, in, own, global, out, shape.batch, shape.channels, shape.plane});
  return out.values();
}

DepthwiseCall depthwise_geometry(std::size_t batch, std::size_t channels, std::size_t height,
                                 std::size_t width, std::size_t size, std::size_t stride,
                                 std::size_t pad_begin, std::size_t pad_end) {
  DepthwiseCall call{};
  call.batch = batch;
  call.channels = channels;
  call.height = height;
  call.width = width;
  call.kernel = size;
  call.stride = stride;
  call.pad_begin = pad_begin;
  call.pad_end = pad_end;
  call.out_height = (height + pad_begin + pad_end - size) / stride + 1;
  call.out_width = (width + pad_begin + pad_end - size) / stride + 1;
  return call;
}

// Σ of the taps of output (row, column), and of their magnitudes.
struct Tap {
  double sum = 0.0, magnitude = 0.0;
};

Tap window(const float* image, std::size_t height, std::size_t width, const float* weight,
           std::size_t size, std::size_t stride, std::size_t pad, std::size_t row,
           std::size_t column) {
  Tap tap;
  for (std::size_t ky = 0; ky < size; ++ky) {
    for (std::size_t kx = 0; kx < size; ++kx) {
      const std::size_t y = row * stride + ky, x = column * stride + kx;
      if (y < pad || x < pad || y - pad >= height || x - pad >= width) continue;
      const double term = double{weight[ky * size + kx]} * image[(y - pad) * width + (x - pad)];
      tap.sum += term;
      tap.magnitude += std::fabs(term);
    }
  }
  return tap;
}

// What a device of so many lanes makes of the terms.
float sum_in_lanes(const std::vector<float>& terms, std::size_t lanes) {
  std::vector<float> sums(lanes, 0.0f);
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i % lanes] += terms[i];
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace

TEST_CASE("channel means and variances agree with double loops") {
  for (const ChannelThreads threads : kinds_of_threads)
    for (const Planes& shape : plane_shapes) {
      const auto device = make_host_device(1, {0, threads}, 2);
      CAPTURE(threads, shape.batch, shape.channels, shape.plane);
      const std::vector<float> x = random_numbers(shape.count(), 1);
      const std::vector<double> expected = exact_means(x, shape);
      const std::vector<float> own = mean_on(*device, x, shape);
      const std::vector<float> global = random_numbers(shape.channels, 2);
      const std::vector<float> variance = variance_on(*device, x, own, global, shape);
      const double m = static_cast<double>(shape.batch * shape.plane);
      for (std::size_t c = 0; c < shape.channels; ++c) {
        double magnitude = 0.0, squares = 0.0;
        for (std::size_t i = 0; i < x.size(); ++i) {
          if (i / shape.plane % shape.channels != c) continue;
          magnitude += std::fabs(x[i]);
          squares += (double{x[i]} - own[c]) * (double{x[i]} - own[c]);
        }
        const double distance = double{own[c]} - global[c];
        const double exact = squares / m + distance * distance;
        // Any-order bounds; the factor covers the roundings that are not additions.
        REQUIRE(std::fabs(own[c] - expected[c]) <= (m + 1) * u * magnitude / m);
        REQUIRE(std::fabs(variance[c] - exact) <= (m + 6) * u * exact);
      }
    }
}

TEST_CASE("sums of integers are exact in every shape") {
  for (const ChannelThreads threads : kinds_of_threads)
    for (const Planes& shape : plane_shapes) {
      const auto device = make_host_device(1, {4, threads}, 1);
      CAPTURE(threads, shape.batch, shape.channels, shape.plane);
      const std::size_t m = shape.batch * shape.plane;
      std::vector<float> x(shape.count());
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = static_cast<float>(i * 2654435761u >> 7 & 255);
      std::vector<double> sums = exact_means(x, shape);
      const std::vector<float> means = mean_on(*device, x, shape);
      for (std::size_t c = 0; c < shape.channels; ++c) {
        const auto sum = static_cast<float>(std::round(sums[c] * static_cast<double>(m)));
        REQUIRE(means[c] == sum / static_cast<float>(m));
      }
    }
}

TEST_CASE("sums follow the lanes that the contract states, bit for bit") {
  const std::array<std::size_t, 4> fixed{0, 1, 32, 64};  // lanes; 0: by count
  for (const ChannelThreads threads : kinds_of_threads) {
    for (const Planes& shape : plane_shapes) {
      const auto device = make_host_device(1, {3, threads}, 1);
      const auto lanes_of = [&](Operation operation) {
        return device->contract(operation, shape.batch, shape.plane).lanes;
      };
      const std::size_t lanes = lanes_of(Operation::channel_mean);
      CAPTURE(shape.batch, shape.channels, shape.plane, lanes);
      const std::size_t asked = fixed.at(static_cast<std::size_t>(threads));
      REQUIRE((asked == 0 || lanes == asked));
      REQUIRE(lanes_of(Operation::channel_variance) == lanes);
      const std::vector<float> x = random_numbers(shape.count(), 3);
      const std::vector<float> own = mean_on(*device, x, shape);
      const std::vector<float> variance = variance_on(*device, x, own, own, shape);
      const OnDevice in(*device, x), pooled(*device, shape.batch * shape.channels);
      device->global_average_pool({0, in, pooled, shape.batch, shape.channels, shape.plane});
      const std::vector<float> pool = pooled.values();
      const auto m = static_cast<float>(shape.batch * shape.plane);
      for (std::size_t c = 0; c < shape.channels; ++c) {
        std::vector<float> numbers, squares;
        for (std::size_t n = 0; n < shape.batch; ++n) {
          const std::size_t first = (n * shape.channels + c) * shape.plane;
          const std::vector<float> plane(&x[first], &x[first] + shape.plane);
          numbers.insert(numbers.end(), plane.begin(), plane.end());
          REQUIRE(pool[n * shape.channels + c] ==
                  sum_in_lanes(plane, lanes_of(Operation::global_average_pool)) /
                      static_cast<float>(shape.plane));
        }
        for (const float number : numbers) {
          squares.push_back((number - own[c]) * (number - own[c]));
        }
        REQUIRE(own[c] == sum_in_lanes(numbers, lanes) / m);
        REQUIRE(variance[c] == sum_in_lanes(squares, lanes) / m);
      }
    }
  }
}

TEST_CASE("normalise subtracts the mean first and rounds each step once") {
  const auto device = make_host_device(1, 0, 2);
  const float epsilon = 1e-5f;
  for (const Planes& shape : plane_shapes) {
    std::vector<float> x = random_numbers(shape.count(), 4);
    x[0] = nan;
    const std::vector<float> mean = random_numbers(shape.channels, 5);
    std::vector<float> variance = random_numbers(shape.channels, 6);
    for (float& value : variance) value = value * value;
    const std::vector<float> gamma = random_numbers(shape.channels, 7);
    const std::vector<float> beta = random_numbers(shape.channels, 8);
    const OnDevice in(*device, x), m(*device, mean), v(*device, variance), g(*device, gamma),
        b(*device, beta), y(*device, shape.count()), rectified(*device, shape.count());
    NormaliseCall call{0,          in, m, v, g, b, epsilon, false, y, shape.batch, shape.channels,
                       shape.plane};
    device->normalise(call);
    call.relu = true;
    call.y = rectified;
    device->normalise(call);
    const std::vector<float> got = y.values(), got_rectified = rectified.values();
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t c = i / shape.plane % shape.channels;
      const float scale = gamma[c] * (1.0f / std::sqrt(variance[c] + epsilon));
      const float expected = (x[i] - mean[c]) * scale + beta[c];
      if (i == 0) {
        REQUIRE((std::isnan(got[i]) && std::isnan(got_rectified[i])));
        continue;
      }
      REQUIRE(got[i] == expected);
      REQUIRE(got_rectified[i] == std::max(expected, 0.0f));
    }
  }
}

TEST_CASE("the root is exact at powers of four") {
  const auto device = make_host_device(1, 0, 1);
  const std::vector<float> one = {1.0f}, zero = {0.0f};
  const OnDevice x(*device, one), mean(*device, zero), beta(*device, zero), gamma(*device, one);
  for (int power = -20; power <= 20; ++power) {
    const OnDevice variance(*device, std::vector<float>{std::ldexp(1.0f, 2 * power)});
    const OnDevice y(*device, 1);
    device->normalise({0, x, mean, variance, gamma, beta, 0.0f, false, y, 1, 1, 1});
    REQUIRE(y.values()[0] == std::ldexp(1.0f, -power));
  }
}

TEST_CASE("depthwise convolutions agree with double loops") {
  const auto device = make_host_device(1, 3, 2);
  const std::vector<std::pair<std::size_t, std::size_t>> images = {
      {1, 1}, {2, 3}, {7, 7}, {8, 8}, {9, 17}, {16, 5}, {23, 31}, {33, 14}, {5, 129}};
  for (const auto& [height, width] : images) {
    for (std::size_t size : {3, 5}) {
      for (std::size_t stride : {1, 2}) {
        const std::size_t pad = (size - 1) / 2;
        DepthwiseCall call = depthwise_geometry(2, 5, height, width, size, stride, pad, pad);
        CAPTURE(height, width, size, stride);
        const std::vector<float> x = random_numbers(2 * 5 * height * width, 9);
        const std::vector<float> weight = random_numbers(5 * size * size, 10);
        const std::vector<float> bias = random_numbers(5, 11);
        const std::size_t plane = call.out_height * call.out_width;
        const OnDevice in(*device, x), w(*device, weight), b(*device, bias),
            y(*device, 2 * 5 * plane);
        call.x = in;
        call.weight = w;
        call.bias = b;
        call.y = y;
        device->depthwise(call);
        const std::vector<float> got = y.values();
        for (std::size_t i = 0; i < got.size(); ++i) {
          const std::size_t channel = i / plane % 5;
          const Tap tap =
              window(&x[i / plane * height * width], height, width, &weight[channel * size * size],
                     size, stride, pad, i % plane / call.out_width, i % call.out_width);
          const double bound =
              (static_cast<double>(size * size) * tap.magnitude + std::fabs(bias[channel])) * 1.01 *
              u;
          REQUIRE(std::fabs(got[i] - (tap.sum + bias[channel])) <= bound);
        }
      }
    }
  }
}

TEST_CASE("depthwise with XLA's SAME padding starts at the first pixel") {
  const auto device = make_host_device(1, 0, 1);
  DepthwiseCall call = depthwise_geometry(1, 1, 4, 4, 3, 2, 0, 1);
  std::vector<float> x(16);
  for (std::size_t i = 0; i < 16; ++i) x[i] = static_cast<float>(i);
  const OnDevice in(*device, x), weight(*device, std::vector<float>(9, 1.0f)), y(*device, 4);
  call.x = in;
  call.weight = weight;
  call.y = y;
  device->depthwise(call);
  CHECK(y.values() == std::vector<float>{45, 39, 66, 50});
}

TEST_CASE("an unsupported depthwise size is an error that names it") {
  const auto device = make_host_device(1, 0, 1);
  DepthwiseCall call = depthwise_geometry(1, 1, 8, 8, 7, 1, 3, 3);
  CHECK_THROWS_WITH(device->depthwise(call), Catch::Contains("size 7 at stride 1"));
}

TEST_CASE("convolutions agree with double loops") {
  const auto device = make_host_device(1, 2, 2);
  struct Case {
    std::size_t batch, in, height, width, out, size, stride, pad_begin, pad_end;
  };
  for (const Case& c : {Case{2, 3, 9, 9, 5, 3, 2, 1, 1}, Case{1, 1, 1, 1, 1, 3, 2, 1, 1},
                        Case{2, 7, 5, 11, 13, 1, 1, 0, 0}, Case{3, 17, 1, 1, 129, 1, 1, 0, 0},
                        Case{1, 2, 8, 8, 3, 3, 2, 0, 1}, Case{1, 3, 16, 14, 4, 7, 2, 3, 3},
                        Case{1, 5, 33, 17, 2, 3, 1, 1, 1}, Case{2, 4, 8, 8, 6, 1, 2, 0, 0}}) {
    CAPTURE(c.height, c.width, c.size, c.stride);
    const std::size_t out_height = (c.height + c.pad_begin + c.pad_end - c.size) / c.stride + 1;
    const std::size_t out_width = (c.width + c.pad_begin + c.pad_end - c.size) / c.stride + 1;
    const std::size_t plane = out_height * out_width, taps = c.size * c.size;
    const std::vector<float> x = random_numbers(c.batch * c.in * c.height * c.width, 12);
    const std::vector<float> weight = random_numbers(c.out * c.in * taps, 13);
    const std::vector<float> bias = random_numbers(c.out, 14);
    const OnDevice in(*device, x), w(*device, weight), b(*device, bias),
        y(*device, c.batch * c.out * plane);
    device->convolution({0, in, w, b, y, c.batch, c.in, c.height, c.width, c.out, c.size, c.stride,
                         c.pad_begin, c.pad_end, out_height, out_width});
    const std::vector<float> got = y.values();
    for (std::size_t i = 0; i < got.size(); ++i) {
      const std::size_t image = i / (c.out * plane), channel = i / plane % c.out;
      Tap total;
      for (std::size_t from = 0; from < c.in; ++from) {
        const Tap tap = window(&x[(image * c.in + from) * c.height * c.width], c.height, c.width,
                               &weight[(channel * c.in + from) * taps], c.size, c.stride,
                               c.pad_begin, i % plane / out_width, i % out_width);
        total.sum += tap.sum;
        total.magnitude += tap.magnitude;
      }
      const double terms = static_cast<double>(c.in * taps);
      const double bound = (terms * total.magnitude + std::fabs(bias[channel])) * 1.01 * u;
      REQUIRE(std::fabs(got[i] - (total.sum + bias[channel])) <= bound);
    }
  }
}

TEST_CASE("products do not depend on the number of workers, and cross every tile edge") {
  const std::size_t batch = 129, in = 515, out = 513;
  const std::vector<float> x = random_numbers(batch * in, 15);
  const std::vector<float> weight = random_numbers(in * out, 16);
  Bits first;
  for (int workers : {1, 2, 5}) {
    const auto device = make_host_device(1, 0, workers);
    const OnDevice left(*device, x), right(*device, weight), y(*device, batch * out);
    device->dense({0, left, right, nullptr, y, batch, in, out});
    const std::vector<float> got = y.values();
    if (first.empty()) {
      for (std::size_t i = 0; i < got.size(); ++i) {
        double sum = 0.0, magnitude = 0.0;
        for (std::size_t k = 0; k < in; ++k) {
          const double term = double{x[i / out * in + k]} * weight[k * out + i % out];
          sum += term;
          magnitude += std::fabs(term);
        }
        REQUIRE(std::fabs(got[i] - sum) <= static_cast<double>(in) * u * magnitude);
      }
      first = bits(got);
    }
    CHECK(bits(got) == first);
  }
}

TEST_CASE("pointwise operations, in place too, are exact and keep NaN") {
  const auto device = make_host_device(1, 0, 2);
  for (std::size_t count : {1, 127, 128, 1023, 1024, 1025, 5003}) {
    std::vector<float> x = random_numbers(count, 17);
    x[count / 2] = nan;
    const std::vector<float> b = random_numbers(count, 18);
    const OnDevice in(*device, x), other(*device, b), sum(*device, count);
    device->add({0, in, other, sum, count});
    device->relu({0, in, in, count});
    const std::vector<float> got = in.values(), got_sum = sum.values();
    for (std::size_t i = 0; i < count; ++i) {
      if (i == count / 2) {
        REQUIRE((std::isnan(got[i]) && std::isnan(got_sum[i])));
        continue;
      }
      REQUIRE(got[i] == std::max(x[i], 0.0f));
      REQUIRE(got_sum[i] == x[i] + b[i]);
    }
  }
}

TEST_CASE("global average pool is the mean of each plane") {
  const auto device = make_host_device(1, 6, 2);
  for (const Planes& shape : plane_shapes) {
    const std::vector<float> x = random_numbers(shape.count(), 19);
    const OnDevice in(*device, x), y(*device, shape.batch * shape.channels);
    device->global_average_pool({0, in, y, shape.batch, shape.channels, shape.plane});
    const std::vector<float> got = y.values();
    for (std::size_t row = 0; row < got.size(); ++row) {
      double sum = 0.0, magnitude = 0.0;
      for (std::size_t i = 0; i < shape.plane; ++i) {
        sum += x[row * shape.plane + i];
        magnitude += std::fabs(x[row * shape.plane + i]);
      }
      REQUIRE(std::fabs(got[row] - sum / static_cast<double>(shape.plane)) <= 1.01 * u * magnitude);
    }
  }
}

TEST_CASE("the all-reduced mean divides, and is the same on every replica") {
  for (int replicas : {1, 2, 3, 7}) {
    for (std::uint64_t seed : {0, 1, 2, 3, 4, 5}) {
      const auto device = make_host_device(replicas, seed, 2);
      const std::size_t count = 29;
      AllReduceMeanCall call{{}, {}, count};
      std::vector<double> sums(count, 0.0);
      for (int r = 0; r < replicas; ++r) {
        std::vector<float> values(count);
        for (std::size_t i = 0; i < count; ++i) {
          values[i] = static_cast<float>((i * 37 + static_cast<std::size_t>(r) * 101) % 251);
          sums[i] += values[i];
        }
        float* const pointer = device->allocate(r, count);
        device->upload(r, pointer, values.data(), count);
        call.send.push_back(pointer);
        call.receive.push_back(pointer);
      }
      device->all_reduce_mean(call);
      for (int r = 0; r < replicas; ++r) {
        std::vector<float> got(count);
        device->download(r, call.receive[static_cast<std::size_t>(r)], got.data(), count);
        for (std::size_t i = 0; i < count; ++i) {
          REQUIRE(got[i] == static_cast<float>(sums[i]) / static_cast<float>(replicas));
        }
        device->release(r, call.receive[static_cast<std::size_t>(r)]);
      }
    }
  }
}

TEST_CASE("fifty schedules and any number of workers give the same bits") {
  const Planes shape{2, 5, 300};
  const Planes long_rows{2, 2, 5000};
  const std::vector<float> x = random_numbers(shape.count(), 20);
  const std::vector<float> y = random_numbers(long_rows.count(), 21);
  const auto run = [&](std::uint64_t seed, ChannelThreads threads, int workers) {
    const auto device = make_host_device(1, {seed, threads}, workers);
    Bits all;
    for (const auto& [values, planes] : {std::pair{&x, &shape}, std::pair{&y, &long_rows}}) {
      const std::vector<float> mean = mean_on(*device, *values, *planes);
      const std::vector<float> other(planes->channels, 0.25f);
      for (const auto& part :
           {bits(mean), bits(variance_on(*device, *values, mean, other, *planes))}) {
        all.insert(all.end(), part.begin(), part.end());
      }
    }
    return all;
  };
  for (const ChannelThreads threads : kinds_of_threads) {
    const Bits expected = run(0, threads, 1);
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
      REQUIRE(run(seed, threads, static_cast<int>(seed % 3) + 1) == expected);
    }
  }
}

TEST_CASE("a host device needs replicas and workers") {
  CHECK_THROWS_AS(make_host_device(0, 0, 1), DeviceError);
  CHECK_THROWS_AS(make_host_device(1, 0, 0), DeviceError);
  CHECK_THROWS_AS(make_host_device(-3, 0, 1), DeviceError);
}

}  // namespace shardproof
