// The order of a sum is learned from outputs alone: of plain loops whose order is known, of the
// built-in device, and of sums that follow no order.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/summation_order.h"
#include "diff/test_devices.h"

namespace shardproof {
namespace {

std::vector<float> copied(std::span<const float> terms) { return {terms.begin(), terms.end()}; }

double in_order(std::span<const float> terms) {
  float sum = 0;
  for (const float term : terms) sum += term;
  return static_cast<double>(sum);
}

double backwards(std::span<const float> terms) {
  std::vector<float> reversed(terms.rbegin(), terms.rend());
  return in_order(reversed);
}

double in_lanes(std::span<const float> terms, std::size_t lanes) {
  std::vector<float> sums(lanes);
  for (std::size_t i = 0; i < terms.size(); ++i) sums[i % lanes] += terms[i];
  for (std::size_t half = lanes / 2; half > 0; half /= 2) {
    for (std::size_t i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return static_cast<double>(sums[0]);
}

double pairwise(std::span<const float> terms) {
  std::vector<float> sums = copied(terms);
  while (sums.size() > 1) {
    std::vector<float> next;
    for (std::size_t i = 0; i + 1 < sums.size(); i += 2) next.push_back(sums[i] + sums[i + 1]);
    if (sums.size() % 2 == 1) next.push_back(sums.back());
    sums = next;
  }
  return static_cast<double>(sums[0]);
}

// Four products are added to the running sum at once, in more bits.
double by_fours(std::span<const float> terms) {
  float sum = 0;
  for (std::size_t i = 0; i < terms.size(); i += 4) {
    double together = static_cast<double>(sum);
    float largest = std::abs(sum);
    for (std::size_t k = i; k < std::min(i + 4, terms.size()); ++k) {
      together += static_cast<double>(terms[k]);
      largest = std::max(largest, std::abs(terms[k]));
    }
    // What is far below the largest of them is cut off.
    if (largest > 1e20F) {
      double kept = static_cast<double>(std::abs(sum) > 1e20F ? sum : 0);
      for (std::size_t k = i; k < std::min(i + 4, terms.size()); ++k) {
        if (std::abs(terms[k]) > 1e20F) kept += static_cast<double>(terms[k]);
      }
      together = kept;
    }
    sum = static_cast<float>(together);
  }
  return static_cast<double>(sum);
}

std::string order(std::size_t terms, const SumOfTerms& sum) {
  const auto tree = learn_order(terms, sum, 10'000);
  return tree ? to_string(*tree) : "";
}

TEST_CASE("the order of plain loops is learned from their outputs") {
  CHECK(order(1, in_order) == "0");
  CHECK(order(2, in_order) == "(0+1)");
  CHECK(order(5, in_order) == "((((0+1)+2)+3)+4)");
  CHECK(order(4, backwards) == "(0+(1+(2+3)))");
  CHECK(order(6, pairwise) == "(((0+1)+(2+3))+(4+5))");
  CHECK(order(8, [](auto terms) { return in_lanes(terms, 4); }) == "(((0+4)+(2+6))+((1+5)+(3+7)))");
}

TEST_CASE("terms that are added at once stand under one node") {
  CHECK(order(4, by_fours) == "(0+1+2+3)");
  CHECK(order(10, by_fours) == "(((0+1+2+3)+4+5+6+7)+8+9)");
}

TEST_CASE("no order is told where the outputs follow none") {
  CHECK(order(6, [](auto terms) {  // exact
          return static_cast<double>(std::count(terms.begin(), terms.end(), 1.0F));
        }) == "");
  CHECK(order(6, [](auto) { return std::nan(""); }) == "");
  CHECK(order(6, [](auto) { return 2.0; }) == "");
  CHECK(order(6, [](auto terms) {  // a term twice
          return in_order(terms) + static_cast<double>(terms[3] == 1 ? 1 : 0);
        }) == "");
  CHECK(learn_order(64, in_order, 10) == std::nullopt);
}

TEST_CASE("lanes are those of the loop, and of any tree the most that bound it") {
  const auto lanes = [](std::size_t terms, const SumOfTerms& sum) {
    return lanes_of(learn_order(terms, sum, 100'000).value());
  };
  CHECK(lanes(64, in_order) == 1);
  CHECK(lanes(64, backwards) == 1);
  CHECK(lanes(64, pairwise) == 32);  // whose trees are of one depth
  for (const std::size_t count : {2, 8, 32}) {
    CHECK(lanes(96, [&](auto terms) { return in_lanes(terms, count); }) == count);
  }
}

// Adds in another order after the first run, of count − 1 calls, or on one replica.
class Restless final : public ForwardingDevice {
 public:
  enum What { between_replicas, in_time, with_channels };
  Restless(Device& base, What what) : ForwardingDevice(base), what_(what) {}

  void channel_mean(const ChannelMeanCall& call) override {
    const std::size_t count = call.batch * call.plane;
    std::vector<float> all(count * call.channels), mean(call.channels), x(count);
    download(call.replica, call.x, all.data(), all.size());
    const bool turned = what_ == in_time            ? calls_++ >= count - 1
                        : what_ == between_replicas ? call.replica == 1
                                                    : call.channels > 4;
    for (std::size_t c = 0; c < call.channels; ++c) {
      for (std::size_t i = 0; i < count; ++i) {
        x[i] = all[(i / call.plane * call.channels + c) * call.plane + i % call.plane];
      }
      mean[c] =
          static_cast<float>((turned ? backwards(x) : in_order(x)) / static_cast<double>(count));
    }
    upload(call.replica, call.mean, mean.data(), call.channels);
  }

 private:
  What what_;
  std::size_t calls_ = 0;
};

TEST_CASE("an order that varies between replicas, between runs or with channels is told") {
  const auto base = make_host_device(2, std::uint64_t{0}, 1);
  Restless between_replicas(*base, Restless::between_replicas), in_time(*base, Restless::in_time),
      with_channels(*base, Restless::with_channels);
  const std::vector<DeviceSum> sums = {{Operation::channel_mean, 2, 6, {}}};
  const ProbedSum placed = probe_sums(between_replicas, sums).at(0);
  CHECK(placed.varies_between_replicas);
  CHECK_FALSE(placed.varies_between_runs);
  CHECK(placed.lanes == 1);
  const ProbedSum timed = probe_sums(in_time, sums).at(0);
  CHECK(timed.varies_between_runs);
  CHECK_THAT(describe(timed), Catch::Contains("varies between runs"));
  for (const std::size_t channels : {3U, 5U}) {
    const std::vector<DeviceSum> more = {{Operation::channel_mean, 2, 6, {channels}}};
    const ProbedSum wide = probe_sums(with_channels, more).at(0);
    CHECK(wide.tree);
    CHECK(wide.varies_with_channels == (channels > 4));
  }
}

// All that are learned.
std::vector<DeviceSum> all_sums(std::size_t length) {
  return {{Operation::channel_mean, 2, length, {3, 70}},
          {Operation::global_average_pool, 1, length, {6}},
          {Operation::convolution, 1, length, {}},
          {Operation::dense, 1, length, {}},
          {Operation::all_reduce_mean, 1, 1, {}}};
}

TEST_CASE("the sums of plain devices have the lanes that they state") {
  for (const std::size_t lanes : {1, 4, 16}) {
    Arithmetic arithmetic;
    arithmetic.lanes = lanes;
    PlainDevice device(3, arithmetic);
    for (const ProbedSum& sum : probe_sums(device, all_sums(64))) {
      CAPTURE(describe(sum));
      REQUIRE(sum.tree);
      if (sum.sum.operation != Operation::all_reduce_mean) CHECK(sum.lanes == lanes);
      CHECK_FALSE(sum.varies_between_replicas);
    }
  }
}

TEST_CASE("the built-in device adds as its contract says") {
  const auto device = make_host_device(2, std::uint64_t{0}, 1);
  for (const std::size_t length : {49, 200}) {
    for (const ProbedSum& sum : probe_sums(*device, all_sums(length))) {
      CAPTURE(describe(sum));
      CHECK(sum.tree);
      if (sum.sum.operation == Operation::all_reduce_mean) continue;
      const Contract stated = device->contract(sum.sum.operation, sum.sum.batch, length);
      CHECK(sum.lanes >= std::min(stated.lanes, sum.terms / 2));
    }
  }
}

TEST_CASE("lanes that were learned stand where the contract states none, at that size alone") {
  Arithmetic arithmetic;
  arithmetic.lanes = 8;
  auto device = std::make_unique<PlainDevice>(2, arithmetic, Contract{});
  std::vector<ProbedSum> sums = probe_sums(*device, all_sums(64));
  const auto learned = with_learned_lanes(std::move(device), std::move(sums));
  CHECK(learned->contract(Operation::channel_mean, 2, 64).lanes == 8);
  CHECK(learned->contract(Operation::channel_mean, 1, 64).lanes == 1);
  CHECK(learned->contract(Operation::channel_mean, 2, 65).lanes == 1);
  CHECK(learned->contract(Operation::global_average_pool, 5, 64).lanes == 8);
  CHECK(learned->contract(Operation::dense, 1, 64).lanes == 1);
  CHECK(learned->contract(Operation::channel_variance, 2, 64).lanes == 1);
}

}  // namespace
}  // namespace shardproof
