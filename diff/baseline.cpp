#include "diff/baseline.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <map>
#include <utility>

#include "device/engine/engine.h"
#include "device/engine/forwarding_device.h"

namespace shardproof {
namespace {

constexpr double kRoundedRms = 0.2887, kRoundedWorst = 0.5;  // ulps of a correct rounding
constexpr std::size_t kOutputsOfAWorst = 1000;
constexpr int kForwards = 3;

using Clock = std::chrono::steady_clock;

// What the calls of each operation took; each waits for its end.
class TimedDevice final : public ForwardingDevice {
 public:
  explicit TimedDevice(Device& base) : ForwardingDevice(base) {}

  struct Time {
    std::size_t calls = 0;
    double seconds = 0;
  };
  std::map<Operation, Time> take() { return std::exchange(times_, {}); }

  void convolution(const ConvolutionCall& call) override {
    time(Operation::convolution, [&] { base().convolution(call); });
  }
  void depthwise(const DepthwiseCall& call) override {
    time(Operation::depthwise, [&] { base().depthwise(call); });
  }
  void channel_mean(const ChannelMeanCall& call) override {
    time(Operation::channel_mean, [&] { base().channel_mean(call); });
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    time(Operation::channel_variance, [&] { base().channel_variance(call); });
  }
  void normalise(const NormaliseCall& call) override {
    time(Operation::normalise, [&] { base().normalise(call); });
  }
  void relu(const PointwiseCall& call) override {
    time(Operation::relu, [&] { base().relu(call); });
  }
  void add(const AddCall& call) override {
    time(Operation::add, [&] { base().add(call); });
  }
  void global_average_pool(const PoolCall& call) override {
    time(Operation::global_average_pool, [&] { base().global_average_pool(call); });
  }
  void dense(const DenseCall& call) override {
    time(Operation::dense, [&] { base().dense(call); });
  }
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    time(Operation::all_reduce_mean, [&] { base().all_reduce_mean(call); });
  }

 private:
  template <class Call>
  void time(Operation operation, Call call) {
    const auto start = Clock::now();
    call();
    synchronize();
    Time& time = times_[operation];
    ++time.calls;
    time.seconds += std::chrono::duration<double>(Clock::now() - start).count();
  }

  std::map<Operation, Time> times_;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

std::vector<PrecisionChange> compare_precision(const SignoffResult& device,
                                               const SignoffResult& baseline, double factor) {
  std::map<std::pair<std::string, std::string>, const Precision*> before;
  for (const Comparison& comparison : baseline.comparisons) {
    if (comparison.precision) before[{comparison.node, comparison.part}] = &*comparison.precision;
  }
  std::vector<PrecisionChange> changes;
  for (const Comparison& comparison : device.comparisons) {
    if (!comparison.precision || comparison.precision->outputs == 0) continue;
    const auto found = before.find({comparison.node, comparison.part});
    if (found == before.end() || found->second->outputs == 0) continue;
    PrecisionChange change{comparison.node, comparison.part, *comparison.precision, *found->second,
                           false};
    const auto exceeds = [&](double own, double other, double rounded) {
      return own > factor * std::max(other, rounded);
    };
    change.regression = exceeds(change.device.rms(), change.baseline.rms(), kRoundedRms) ||
                        (change.device.outputs >= kOutputsOfAWorst &&
                         exceeds(change.device.worst(), change.baseline.worst(), kRoundedWorst));
    changes.push_back(std::move(change));
  }
  return changes;
}

std::vector<SpeedChange> compare_speed(Device& device, Device& baseline, const SignoffTask& task) {
  std::array<TimedDevice, 2> timed = {TimedDevice(device), TimedDevice(baseline)};
  std::array<Engine, 2> engines = {Engine(timed[0], task.graph, task.weights),
                                   Engine(timed[1], task.graph, task.weights)};
  std::array<std::map<Operation, std::vector<double>>, 2> seconds;
  std::map<Operation, std::size_t> calls;
  for (int forward = 0; forward < kForwards; ++forward) {
    for (std::size_t which = 0; which < 2; ++which) {
      (void)engines[which].forward({task.images}, {});
      for (const auto& [operation, time] : timed[which].take()) {
        seconds[which][operation].push_back(time.seconds);
        calls[operation] = time.calls;
      }
    }
  }
  std::vector<SpeedChange> changes;
  changes.reserve(calls.size());
  for (const auto& [operation, count] : calls) {
    changes.push_back(
        {operation, count, median(seconds[0][operation]), median(seconds[1][operation])});
  }
  return changes;
}

bool Baseline::has_regression() const {
  return std::any_of(precision.begin(), precision.end(),
                     [](const PrecisionChange& change) { return change.regression; });
}

}  // namespace shardproof
