// Devices broken in one operation, as public reports have it (agreement §4): sign-off must disagree
// and name the node. Each derives from ForwardingDevice over the built-in host device, whose memory
// can be read and written in place.
#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "device/kernels/channel_statistics.cuh"
#include "device/runtime/host/executor.h"
#include "diff/signoff.h"
#include "diff/test_devices.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/photographs.h"
#include "reference/nets/weights.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/random.h"

namespace shardproof::host {

// channel_statistics.cuh's channel_mean for several warps a channel, the barrier between the
// writing of the sums and their reading left out.
template <int lanes>
__global__ void channel_mean_without_barrier(const float* x, std::size_t batch,
                                             std::size_t channels, std::size_t plane, float* mean) {
  const ChannelLane own = channel_lane<lanes>();
  if (own.channel >= channels) return;
  float* const sums = shared_memory<float>();
  sums[threadIdx.x] =
      lane_sum<lanes>(x, batch, channels, plane, own, [](float value) { return value; });
  if (threadIdx.x >= 32) return;
  float sum = 0.0f;
  for (unsigned warp = 0; warp < lanes / 32; ++warp) sum += sums[threadIdx.x + 32 * warp];
  for (unsigned half = 16; half > 0; half /= 2) sum += __shfl_down_sync(0xffffffffu, sum, half);
  if (own.lane == 0) mean[own.channel] = sum / static_cast<float>(batch * plane);
}

}  // namespace shardproof::host

namespace shardproof {
namespace {

// ---- What is judged

struct Task {
  Graph graph;
  Weights weights;
  Family<float> images;

  SignoffTask of_seed(std::uint64_t seed) const { return {graph, weights, images, seed, 1}; }
};

Family<float> drawn_images(Shape shape, std::size_t replicas, std::size_t batch, double mean,
                           std::uint64_t seed) {
  shape.n = batch;
  Family<float> images;
  for (std::size_t r = 0; r < replicas; ++r) {
    Random random(seed, "images", r);
    images.emplace_back(shape);
    for (float& value : images.back().values) {
      value = static_cast<float>(mean + random.triangular(2));
    }
  }
  return images;
}

constexpr std::size_t kBatch = 2;

Task small_network(std::size_t replicas) {
  NetOptions options;
  options.size = 64;
  options.classes = 10;
  options.width_divisor = 16;
  Task task;
  task.graph = *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  task.weights = seeded_weights(task.graph.parameters(), 1);
  task.images = drawn_images(task.graph.node(0).shape, replicas, kBatch, 0, 1);
  return task;
}

// One BN site with its ReLU.
Task site(Shape shape, std::size_t replicas, double mean = 0) {
  Task task;
  task.graph.relu(task.graph.bn_sync_site(task.graph.input("x", shape), {"g", "b"}), "g.relu");
  task.weights = seeded_weights(task.graph.parameters(), 1);
  task.images = drawn_images(shape, replicas, kBatch, mean, 2);
  return task;
}

// ---- What was found

using Names = std::vector<std::string>;
using Kinds = std::set<std::string>;

// Wrong comparisons: the nodes, each once, in the order in which they were found; their kinds; and
// the sites of which a statement on the whole site is wrong.
struct Found {
  SignoffResult::Verdict verdict = SignoffResult::Verdict::none;
  Names nodes;
  Kinds kinds;
  std::set<std::string> sites_of_nodes, sites;
};

std::map<std::string, std::string> sites_by_node(const Graph& graph) {
  std::map<std::string, std::string> sites;
  for (const Node& node : graph.nodes()) {
    if (std::holds_alternative<Relu>(node.operation)) {
      const auto found = sites.find(graph.node(node.operands[0]).name);
      if (found != sites.end()) sites[node.name] = found->second;
    }
    if (!std::holds_alternative<BnSync>(node.operation)) continue;
    sites[node.name] = node.name;
    for (const NodeId statistic : graph.node(node.operands[1]).operands) {
      sites[graph.node(statistic).name] = node.name;
      sites[graph.node(graph.node(statistic).operands[0]).name] = node.name;
    }
  }
  return sites;
}

std::string kind_of(const Graph& graph, const Comparison& comparison) {
  if (comparison.part == "unrecorded run repeats the bits") return "run";
  if (comparison.part == "y on own statistics") return "normalise";
  const auto& nodes = graph.nodes();
  const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const Node& candidate) {
    return candidate.name == comparison.node;
  });
  static constexpr std::array<const char*, 13> kKinds{
      "input", "convolution", "depthwise", "dense", "relu",      "add",  "pool",
      "mean",  "variance",    "reduction", "pack",  "normalise", "batch"};
  return kKinds.at(node->operation.index());
}

void add_once(Names& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
}

Found wrong_in(const Graph& graph, const std::vector<Comparison>& comparisons) {
  const std::map<std::string, std::string> sites = sites_by_node(graph);
  Found found;
  for (const Comparison& comparison : comparisons) {
    if (comparison.outcome() != Outcome::wrong) continue;
    const bool of_site = comparison.part == "batch mean" || comparison.part == "batch variance" ||
                         comparison.part == "y against its shard of batch BN";
    if (of_site) {
      found.sites.insert(sites.at(comparison.node));
      continue;
    }
    found.kinds.insert(kind_of(graph, comparison));
    if (sites.contains(comparison.node)) found.sites_of_nodes.insert(sites.at(comparison.node));
    add_once(found.nodes, comparison.node);
  }
  return found;
}

Found found_by_sign_off(Device& device, const Task& task, std::uint64_t seed = 1) {
  const SignoffTask signoff_task = task.of_seed(seed);
  const SignoffResult result = sign_off(device, signoff_task);
  Found found = wrong_in(task.graph, result.comparisons);
  found.verdict = result.verdict();
  return found;
}

// A statement on a whole site is wrong only where one of its nodes is.
bool only_sites_of_nodes(const Found& found) {
  return std::includes(found.sites_of_nodes.begin(), found.sites_of_nodes.end(),
                       found.sites.begin(), found.sites.end());
}

template <class Fault, class... Arguments>
void check_named(const Task& task, const Kinds& kinds, Arguments... arguments) {
  const auto host = make_host_device(static_cast<int>(task.images.size()), 1, 1);
  Fault device(*host, arguments...);
  const Found found = found_by_sign_off(device, task);
  CHECK(found.verdict == SignoffResult::Verdict::disagrees);
  CHECK(found.kinds == kinds);
  CHECK(only_sites_of_nodes(found));
}

// ---- Faults

struct MissedBorderTap : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  // The last output column misses the tap on the last input column.
  void depthwise(const DepthwiseCall& call) override {
    base().depthwise(call);
    if (!affects(call)) return;
    const std::size_t size = call.kernel;
    const std::size_t kx = call.width - 1 + call.pad_begin - (call.out_width - 1) * call.stride;
    for (std::size_t plane = 0; plane < call.batch * call.channels; ++plane) {
      const float* x = call.x + plane * call.height * call.width;
      const float* weight = call.weight + plane % call.channels * size * size;
      for (std::size_t row = 0; row < call.out_height; ++row) {
        float& y = call.y[(plane * call.out_height + row + 1) * call.out_width - 1];
        for (std::size_t ky = 0; ky < size; ++ky) {
          const std::size_t from = row * call.stride + ky - call.pad_begin;  // wraps in the padding
          if (from < call.height) y -= weight[ky * size + kx] * x[(from + 1) * call.width - 1];
        }
      }
    }
  }
  virtual bool affects(const DepthwiseCall&) { return true; }
};

struct PlainMeanOfVariances : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    ChannelVarianceCall without_chan = call;
    without_chan.mean = call.own_mean;
    base().channel_variance(without_chan);
  }
};

template <unsigned lanes>
struct MissingBarrier : ForwardingDevice {
  MissingBarrier(Device& base, std::uint64_t seed) : ForwardingDevice(base), runtime_(seed, 1) {}
  void channel_mean(const ChannelMeanCall& call) override {
    REQUIRE(contract(Operation::channel_mean, call.batch, call.plane).lanes == lanes);
    host::launch(kernel<host::channel_mean_without_barrier<lanes>>,
                 host::dim3(static_cast<unsigned>(call.channels)), lanes,
                 host::statistics_shared_bytes<lanes>, {&runtime_}, call.x, call.batch,
                 call.channels, call.plane, call.mean);
  }
  host::Runtime runtime_;
};

// y = (x − μ)·γ·root(σ², ε) + β as the built-in device computes it.
template <class Root>
void normalise_with(const NormaliseCall& call, Root root) {
  for (std::size_t row = 0; row < call.batch * call.channels; ++row) {
    const std::size_t c = row % call.channels;
    const float scale = call.gamma[c] * root(call.variance[c], call.epsilon);
    for (std::size_t i = row * call.plane; i < (row + 1) * call.plane; ++i) {
      const float y = (call.x[i] - call.mean[c]) * scale + call.beta[c];
      call.y[i] = call.relu && y < 0 ? 0 : y;
    }
  }
}

struct EpsilonOutsideRoot : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    normalise_with(
        call, [](float variance, float epsilon) { return 1 / (std::sqrt(variance) + epsilon); });
  }
};

struct EpsilonMissing : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    normalise_with(call, [](float variance, float) { return 1 / std::sqrt(variance); });
  }
};

struct EpsilonAsFloor : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    normalise_with(call, [](float variance, float epsilon) {
      return 1 / std::sqrt(std::max(variance, epsilon));
    });
  }
};

enum class Left { unwritten, zero };

// Computes y [batch, channels, plane], then takes back its last channel.
template <class Compute>
void skip_last_channel(float* y, std::size_t batch, std::size_t channels, std::size_t plane,
                       Left left, Compute compute) {
  const std::vector<float> before(y, y + batch * channels * plane);
  compute();
  for (std::size_t n = 0; n < batch; ++n) {
    for (std::size_t i = (n * channels + channels - 1) * plane; i < (n + 1) * channels * plane;
         ++i) {
      y[i] = left == Left::zero ? 0 : before[i];
    }
  }
}

struct LastBlockSkipped : ForwardingDevice {
  LastBlockSkipped(Device& base, Operation operation, Left left)
      : ForwardingDevice(base), operation_(operation), left_(left) {}
  template <class Compute>
  void compute(Operation operation, float* y, std::size_t batch, std::size_t channels,
               std::size_t plane, Compute compute) {
    if (operation == operation_) {
      skip_last_channel(y, batch, channels, plane, left_, compute);
    } else {
      compute();
    }
  }
  void convolution(const ConvolutionCall& call) override {
    compute(Operation::convolution, call.y, call.batch, call.out_channels,
            call.out_height * call.out_width, [&] { base().convolution(call); });
  }
  void depthwise(const DepthwiseCall& call) override {
    compute(Operation::depthwise, call.y, call.batch, call.channels,
            call.out_height * call.out_width, [&] { base().depthwise(call); });
  }
  void channel_mean(const ChannelMeanCall& call) override {
    compute(Operation::channel_mean, call.mean, 1, call.channels, 1,
            [&] { base().channel_mean(call); });
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    compute(Operation::channel_variance, call.variance, 1, call.channels, 1,
            [&] { base().channel_variance(call); });
  }
  void normalise(const NormaliseCall& call) override {
    compute(Operation::normalise, call.y, call.batch, call.channels, call.plane,
            [&] { base().normalise(call); });
  }
  Operation operation_;
  Left left_;
};

// The last replica adds in another order than the others.
struct ReplicasReduceInTheirOwnOrder : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    std::vector<float> sums(call.count, 0);
    for (std::size_t r = call.send.size(); r-- > 0;) {
      for (std::size_t i = 0; i < call.count; ++i) sums[i] += call.send[r][i];
    }
    base().all_reduce_mean(call);
    for (std::size_t i = 0; i < call.count; ++i) {
      call.receive.back()[i] = sums[i] / static_cast<float>(replicas());
    }
  }
};

enum class Count { local, global };

struct UnbiasedVariance : ForwardingDevice {
  UnbiasedVariance(Device& base, Count by) : ForwardingDevice(base), by_(by) {}
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    const auto m = static_cast<double>(call.batch * call.plane);
    const double n = by_ == Count::local ? m : m * replicas();
    for (std::size_t c = 0; c < call.channels; ++c) {
      const double distance = double{call.own_mean[c]} - double{call.mean[c]};
      const double between = by_ == Count::local ? distance * distance : 0;
      call.variance[c] =
          static_cast<float>((double{call.variance[c]} - between) * n / (n - 1) + between);
    }
  }
  Count by_;
};

// Calls see(channel, numbers) with all numbers of each channel.
template <class See>
void for_each_channel(const float* x, std::size_t batch, std::size_t channels, std::size_t plane,
                      See see) {
  std::vector<float> numbers;
  for (std::size_t c = 0; c < channels; ++c) {
    numbers.clear();
    for (std::size_t n = 0; n < batch; ++n) {
      const float* from = x + (n * channels + c) * plane;
      numbers.insert(numbers.end(), from, from + plane);
    }
    see(c, numbers);
  }
}

template <class Term>
double sum_of(const std::vector<float>& numbers, std::size_t count, Term term) {
  double sum = 0;
  for (std::size_t i = 0; i < count; ++i) sum += term(static_cast<double>(numbers[i]));
  return sum;
}

// Sums stop one element short; the divisor does not.
struct OneElementMissingFromMean : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_mean(const ChannelMeanCall& call) override {
    for_each_channel(call.x, call.batch, call.channels, call.plane,
                     [&](std::size_t c, const std::vector<float>& numbers) {
                       const std::size_t m = numbers.size();
                       const double sum = sum_of(numbers, m - 1, [](double v) { return v; });
                       call.mean[c] = static_cast<float>(sum / static_cast<double>(m));
                     });
  }
};

struct OneElementMissingFromVariance : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    for_each_channel(call.x, call.batch, call.channels, call.plane,
                     [&](std::size_t c, const std::vector<float>& numbers) {
                       const std::size_t m = numbers.size();
                       const double own = double{call.own_mean[c]};
                       const double distance = own - double{call.mean[c]};
                       const double sum =
                           sum_of(numbers, m - 1, [&](double v) { return (v - own) * (v - own); });
                       call.variance[c] =
                           static_cast<float>(sum / static_cast<double>(m) + distance * distance);
                     });
  }
};

using Rounding = float (*)(float);

std::vector<float> rounded(const float* from, std::size_t count, Rounding rounding) {
  std::vector<float> result(count);
  std::transform(from, from + count, result.begin(), rounding);
  return result;
}

float unrounded(float x) { return x; }

struct RoundedProductOperands : ForwardingDevice {
  RoundedProductOperands(Device& base, Rounding of_x, Rounding of_weight)
      : ForwardingDevice(base), of_x_(of_x), of_weight_(of_weight) {}
  void convolution(const ConvolutionCall& call) override {
    ConvolutionCall with = call;
    const std::size_t taps = call.kernel * call.kernel;
    const auto x = rounded(call.x, call.batch * call.in_channels * call.height * call.width, of_x_);
    const auto weight =
        rounded(call.weight, call.out_channels * call.in_channels * taps, of_weight_);
    with.x = x.data();
    with.weight = weight.data();
    base().convolution(with);
  }
  void dense(const DenseCall& call) override {
    DenseCall with = call;
    const auto x = rounded(call.x, call.batch * call.in, of_x_);
    const auto weight = rounded(call.weight, call.in * call.out, of_weight_);
    with.x = x.data();
    with.weight = weight.data();
    base().dense(with);
  }
  Rounding of_x_, of_weight_;
};

struct StatisticsOfRoundedNumbers : ForwardingDevice {
  StatisticsOfRoundedNumbers(Device& base, Rounding rounding)
      : ForwardingDevice(base), rounding_(rounding) {}
  void channel_mean(const ChannelMeanCall& call) override {
    const auto x = rounded(call.x, call.batch * call.channels * call.plane, rounding_);
    ChannelMeanCall with = call;
    with.x = x.data();
    base().channel_mean(with);
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    const auto x = rounded(call.x, call.batch * call.channels * call.plane, rounding_);
    ChannelVarianceCall with = call;
    with.x = x.data();
    base().channel_variance(with);
  }
  Rounding rounding_;
};

struct BFloat16SumsInMean : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_mean(const ChannelMeanCall& call) override {
    for_each_channel(call.x, call.batch, call.channels, call.plane,
                     [&](std::size_t c, const std::vector<float>& numbers) {
                       float sum = 0;
                       for (const float x : numbers) sum = round_to_bfloat16(sum + x);
                       call.mean[c] = sum / static_cast<float>(numbers.size());
                     });
  }
};

struct BFloat16SumsInVariance : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    for_each_channel(call.x, call.batch, call.channels, call.plane,
                     [&](std::size_t c, const std::vector<float>& numbers) {
                       float sum = 0;
                       for (const float x : numbers) {
                         const float d = x - call.own_mean[c];
                         sum = round_to_bfloat16(sum + d * d);
                       }
                       const float distance = call.own_mean[c] - call.mean[c];
                       call.variance[c] =
                           sum / static_cast<float>(numbers.size()) + distance * distance;
                     });
  }
};

// Σx²/m − mean², in two running sums' worth of float32.
struct UndeclaredOnePassVariance : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    for_each_channel(call.x, call.batch, call.channels, call.plane,
                     [&](std::size_t c, const std::vector<float>& numbers) {
                       float squares = 0;
                       for (const float x : numbers) squares += x * x;
                       const float own = call.own_mean[c];
                       const float distance = own - call.mean[c];
                       call.variance[c] = squares / static_cast<float>(numbers.size()) - own * own +
                                          distance * distance;
                     });
  }
};

// Normalises with the replica's own mean, kept since the variance was computed.
struct PerReplicaMeanInNormalise : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    own_means_[call.mean].assign(call.own_mean, call.own_mean + call.channels);
  }
  void normalise(const NormaliseCall& call) override {
    NormaliseCall with = call;
    with.mean = own_means_.at(call.mean).data();
    base().normalise(with);
  }
  std::map<const float*, std::vector<float>> own_means_;
};

struct UndeclaredFusedNormalise : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    for (std::size_t row = 0; row < call.batch * call.channels; ++row) {
      const std::size_t c = row % call.channels;
      const float scale = call.gamma[c] * (1 / std::sqrt(call.variance[c] + call.epsilon));
      const float shift = call.beta[c] - call.mean[c] * scale;
      for (std::size_t i = row * call.plane; i < (row + 1) * call.plane; ++i) {
        const float y = call.x[i] * scale + shift;
        call.y[i] = call.relu && y < 0 ? 0 : y;
      }
    }
  }
};

struct PoolDividesByOneMore : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void global_average_pool(const PoolCall& call) override {
    base().global_average_pool(call);
    const auto plane = static_cast<float>(call.plane);
    for (std::size_t i = 0; i < call.batch * call.channels; ++i) {
      call.y[i] = call.y[i] * plane / (plane + 1);
    }
  }
};

// Adds the skip that the launch before it read, where that has the same size.
struct StaleResidual : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void add(const AddCall& call) override {
    std::vector<float>& kept = kept_[call.replica];
    std::vector<float> fresh(call.b, call.b + call.count);
    AddCall with = call;
    if (kept.size() == call.count) with.b = kept.data();
    base().add(with);
    kept = std::move(fresh);
  }
  std::map<int, std::vector<float>> kept_;
};

struct ReluTurnsNanIntoZero : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    base().normalise(call);
    if (!call.relu) return;
    for (std::size_t i = 0; i < call.batch * call.channels * call.plane; ++i) {
      call.y[i] = call.y[i] > 0 ? call.y[i] : 0;
    }
  }
};

// Knows the device memory of one parameter, by its values.
class OneParameter {
 public:
  explicit OneParameter(const Tensor<float>& parameter) : values_(parameter.values) {}
  void uploaded(const float* to, const float* from, std::size_t count) {
    if (std::equal(from, from + count, values_.begin(), values_.end())) at_.insert(to);
  }
  bool is(const float* pointer) const { return at_.contains(pointer); }

 private:
  std::vector<float> values_;
  std::set<const float*> at_;
};

struct TwoGammasSwapped : ForwardingDevice {
  TwoGammasSwapped(Device& base, const Tensor<float>& gamma)
      : ForwardingDevice(base), gamma_(gamma) {}
  void upload(int replica, float* to, const float* from, std::size_t count) override {
    gamma_.uploaded(to, from, count);
    base().upload(replica, to, from, count);
  }
  void normalise(const NormaliseCall& call) override {
    std::vector<float> gamma(call.gamma, call.gamma + call.channels);
    if (gamma_.is(call.gamma)) std::swap(gamma[0], gamma[1]);
    NormaliseCall with = call;
    with.gamma = gamma.data();
    base().normalise(with);
  }
  OneParameter gamma_;
};

struct MissedBorderTapAtOneNode : MissedBorderTap {
  MissedBorderTapAtOneNode(Device& base, const Tensor<float>& weight)
      : MissedBorderTap(base), weight_(weight) {}
  void upload(int replica, float* to, const float* from, std::size_t count) override {
    weight_.uploaded(to, from, count);
    base().upload(replica, to, from, count);
  }
  bool affects(const DepthwiseCall& call) override { return weight_.is(call.weight); }
  OneParameter weight_;
};

// Breaks call number `planted` of one operation, counted over the replicas in turn, by adding 1 %
// to the last number that it writes.
struct OneCallBroken : ForwardingDevice {
  OneCallBroken(Device& base, Operation operation, std::size_t planted)
      : ForwardingDevice(base), operation_(operation), planted_(planted) {}
  void see(Operation operation, float* written, std::size_t count) {
    if (operation != operation_ || calls_++ != planted_) return;
    float& last = written[count - 1];
    last = last == 0 ? 1 : last * 1.01F;
  }
  void convolution(const ConvolutionCall& call) override {
    base().convolution(call);
    see(Operation::convolution, call.y,
        call.batch * call.out_channels * call.out_height * call.out_width);
  }
  void depthwise(const DepthwiseCall& call) override {
    base().depthwise(call);
    see(Operation::depthwise, call.y,
        call.batch * call.channels * call.out_height * call.out_width);
  }
  void channel_mean(const ChannelMeanCall& call) override {
    base().channel_mean(call);
    see(Operation::channel_mean, call.mean, call.channels);
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    see(Operation::channel_variance, call.variance, call.channels);
  }
  void normalise(const NormaliseCall& call) override {
    base().normalise(call);
    see(Operation::normalise, call.y, call.batch * call.channels * call.plane);
  }
  void add(const AddCall& call) override {
    base().add(call);
    see(Operation::add, call.y, call.count);
  }
  void global_average_pool(const PoolCall& call) override {
    base().global_average_pool(call);
    see(Operation::global_average_pool, call.y, call.batch * call.channels);
  }
  void dense(const DenseCall& call) override {
    base().dense(call);
    see(Operation::dense, call.y, call.batch * call.out);
  }
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    base().all_reduce_mean(call);
    see(Operation::all_reduce_mean, call.receive.back(), call.count);
  }
  Operation operation_;
  std::size_t planted_, calls_ = 0;
};

}  // namespace

// ---- Controls

TEST_CASE("the built-in device agrees on photographs") {
  for (const std::size_t replicas : {2U, 4U}) {
    Task task = small_network(replicas);
    const std::string folder = SHARDPROOF_SOURCE_DIR "/fixtures/images/";
    const std::vector<std::string> paths{folder + "astronaut.png", folder + "chelsea.png",
                                         folder + "coffee.png"};
    const auto places = load_batch(paths, replicas * kBatch, 64, 1);
    REQUIRE(places);
    for (std::size_t r = 0; r < replicas; ++r) {
      std::vector<float>& values = task.images[r].values;
      for (std::size_t n = 0; n < kBatch; ++n) {
        const std::vector<float>& image = (*places)[r * kBatch + n].values;
        std::copy(image.begin(), image.end(),
                  values.begin() + static_cast<std::ptrdiff_t>(n * image.size()));
      }
    }
    for (const std::uint64_t seed : {0U, 1U, 2U}) {
      CAPTURE(replicas, seed);
      const auto device = make_host_device(static_cast<int>(replicas), seed, 1);
      const Found found = found_by_sign_off(*device, task, seed);
      CHECK(found.nodes == Names{});
      CHECK(found.sites == std::set<std::string>{});
      CHECK(found.verdict == SignoffResult::Verdict::agrees);
    }
  }
}

// ---- Products

TEST_CASE("a missed border tap is named as a depthwise fault") {
  check_named<MissedBorderTap>(small_network(2), {"depthwise"});
}

TEST_CASE("operands rounded to tf32 are named as a product's fault") {
  check_named<RoundedProductOperands>(small_network(2), {"convolution", "dense"}, round_to_tf32,
                                      round_to_tf32);
}

TEST_CASE("operands rounded to bfloat16 are named as a product's fault") {
  check_named<RoundedProductOperands>(small_network(2), {"convolution", "dense"}, round_to_bfloat16,
                                      round_to_bfloat16);
}

TEST_CASE("one operand rounded is named as a product's fault") {
  const Task task = small_network(2);
  for (const Rounding rounding : {round_to_tf32, round_to_bfloat16}) {
    check_named<RoundedProductOperands>(task, {"convolution", "dense"}, rounding, unrounded);
    check_named<RoundedProductOperands>(task, {"convolution", "dense"}, unrounded, rounding);
  }
}

// ---- Statistics
//
// The variance is judged as a function of x and the global mean, as the graph has it, so a wrong
// own mean shows there too.

TEST_CASE("a plain mean of variances is named as the variance's fault") {
  check_named<PlainMeanOfVariances>(small_network(2), {"variance"});
  check_named<PlainMeanOfVariances>(small_network(4), {"variance"});
}

TEST_CASE("a variance divided by one less is named as the variance's fault") {
  const Task task = small_network(2);
  check_named<UnbiasedVariance>(task, {"variance"}, Count::local);
  check_named<UnbiasedVariance>(task, {"variance"}, Count::global);
}

TEST_CASE("at 25,088 numbers a variance divided by one less is named as the variance's fault") {
  const Task task = site({1, 2, 112, 112}, 4);
  check_named<UnbiasedVariance>(task, {"variance"}, Count::local);
  check_named<UnbiasedVariance>(task, {"variance"}, Count::global);
}

TEST_CASE("one element missing of 25,088 is named") {
  const Task task = site({1, 2, 112, 112}, 4);
  check_named<OneElementMissingFromMean>(task, {"mean", "variance"});
  check_named<OneElementMissingFromVariance>(task, {"variance"});
}

TEST_CASE("statistics of rounded numbers are named") {
  check_named<StatisticsOfRoundedNumbers>(small_network(2), {"mean", "variance"},
                                          round_to_bfloat16);
  for (const Rounding rounding : {round_to_bfloat16, round_to_tf32}) {
    check_named<StatisticsOfRoundedNumbers>(site({1, 2, 112, 112}, 4), {"mean", "variance"},
                                            rounding);
  }
}

TEST_CASE("bfloat16 running sums are named") {
  const Task task = small_network(2);
  check_named<BFloat16SumsInMean>(task, {"mean", "variance"});
  check_named<BFloat16SumsInVariance>(task, {"variance"});
}

TEST_CASE("an undeclared one-pass variance is named as the variance's fault") {
  check_named<UndeclaredOnePassVariance>(small_network(2), {"variance"});
  check_named<UndeclaredOnePassVariance>(site({1, 2, 112, 112}, 4), {"variance"});
}

TEST_CASE("a missing barrier is named as the mean's fault under most seeds") {
  const Task task = site({1, 3, 48, 48}, 2);
  std::size_t shown = 0;
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    CAPTURE(seed);
    const auto host = make_host_device(2, seed, 1);
    MissingBarrier<128> device(*host, seed);
    const Found found = found_by_sign_off(device, task);
    if (found.verdict == SignoffResult::Verdict::agrees) continue;
    ++shown;
    CHECK(found.kinds == Kinds{"mean"});
  }
  CHECK(shown >= 4);
}

TEST_CASE("a missing barrier shows in a case of 20 numbers a channel where two warps share it") {
  const Task task = site({1, 3, 4, 5}, 2);
  std::size_t shown = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    CAPTURE(seed);
    const auto host = make_host_device(2, {seed, ChannelThreads::several_warps}, 1);
    MissingBarrier<64> device(*host, seed);
    const auto comparisons =
        judge_run(device, task.graph, task.weights, {task.images}, InputKind::natural, 1);
    const Kinds kinds = wrong_in(task.graph, comparisons).kinds;
    shown += kinds.empty() ? 0 : 1;
    CHECK((kinds.empty() || kinds == Kinds{"mean"}));
  }
  CHECK(shown >= 15);
}

// ---- Normalise

TEST_CASE("a wrong place of epsilon is named as the normalise's fault") {
  const Task task = small_network(2);
  check_named<EpsilonOutsideRoot>(task, {"normalise"});
  check_named<EpsilonMissing>(task, {"normalise"});
  check_named<EpsilonAsFloor>(task, {"normalise"});
}

TEST_CASE("at 25,088 numbers a wrong place of epsilon is named as the normalise's fault") {
  const Task task = site({1, 2, 112, 112}, 4);
  check_named<EpsilonOutsideRoot>(task, {"normalise"});
  check_named<EpsilonMissing>(task, {"normalise"});
  check_named<EpsilonAsFloor>(task, {"normalise"});
}

TEST_CASE("a replica's own mean in the normalise is named as its fault") {
  check_named<PerReplicaMeanInNormalise>(small_network(2), {"normalise"});
}

TEST_CASE("an undeclared fused scale and shift is named as the normalise's fault") {
  check_named<UndeclaredFusedNormalise>(small_network(2), {"normalise"});
  check_named<UndeclaredFusedNormalise>(site({1, 2, 16, 16}, 2, 30), {"normalise"});
}

TEST_CASE("a relu that turns NaN into zero is named") {
  Task task = site({1, 3, 8, 8}, 2);
  task.images[1].values[7] = std::numeric_limits<float>::quiet_NaN();
  const auto host = make_host_device(2, 1, 1);
  ReluTurnsNanIntoZero device(*host);
  const std::vector<Comparison> comparisons =
      judge_run(device, task.graph, task.weights, {task.images}, InputKind::natural, 1);
  CHECK(wrong_in(task.graph, comparisons).kinds == Kinds{"normalise"});
  CHECK(wrong_in(task.graph,
                 judge_run(*host, task.graph, task.weights, {task.images}, InputKind::natural, 1))
            .kinds == Kinds{});
}

// ---- Collectives, pool, residual

TEST_CASE("an all-reduce that does not divide is named") {
  check_named<AllReduceWithoutDivide>(small_network(2), {"reduction"});
  check_named<AllReduceWithoutDivide>(small_network(4), {"reduction"});
}

TEST_CASE("one replica an ulp off in an all-reduce is named") {
  check_named<OneReplicaAnUlpOff>(small_network(2), {"reduction"});
  check_named<OneReplicaAnUlpOff>(small_network(4), {"reduction"});
}

TEST_CASE("replicas that reduce in orders of their own are named") {
  check_named<ReplicasReduceInTheirOwnOrder>(small_network(4), {"reduction"});
}

TEST_CASE("a pool that divides by one more is named") {
  check_named<PoolDividesByOneMore>(small_network(2), {"pool"});
}

TEST_CASE("a residual that reads a stale buffer is named as the add's fault") {
  // What is stale depends on what ran before, so the run does not repeat either.
  check_named<StaleResidual>(small_network(2), {"add", "run"});
}

TEST_CASE("a launch that fails ends the sign-off in disagreement, with its reason") {
  struct FailingPool : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    void global_average_pool(const PoolCall&) override { throw DeviceError("the pool is closed"); }
  };
  const Task task = small_network(2);
  const auto host = make_host_device(2, 1, 1);
  FailingPool device(*host);
  const SignoffTask signoff_task = task.of_seed(1);
  const SignoffResult result = sign_off(device, signoff_task);
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
  CHECK(result.failure.find("the pool is closed") != std::string::npos);
  CHECK(wrong_in(task.graph, result.comparisons).nodes == Names{});
}

TEST_CASE("a device without room for a buffer is not accused: there is no verdict") {
  struct FullMemory : ForwardingDevice {
    using ForwardingDevice::ForwardingDevice;
    float* allocate(int replica, std::size_t count) override {
      if (++allocations > 500) throw OutOfDeviceMemory("no room for a buffer");
      return base().allocate(replica, count);
    }
    int allocations = 0;
  };
  const Task task = small_network(2);
  const auto host = make_host_device(2, 1, 1);
  FullMemory device(*host);
  const SignoffResult result = sign_off(device, task.of_seed(1));
  CHECK(result.verdict() == SignoffResult::Verdict::none);
  CHECK(result.failure.empty());
  CHECK(result.out_of_memory == "no room for a buffer");
}

TEST_CASE("a site with too few numbers a channel leaves no verdict, and the reason is named") {
  const Task task = site({1, 4, 1, 1}, 1);
  const auto host = make_host_device(1, 1, 1);
  const SignoffResult result = sign_off(*host, task.of_seed(1));
  CHECK(result.verdict() == SignoffResult::Verdict::none);
  CHECK(result.unjudged == Names{"gvar: batch variance (2 numbers a channel)",
                                 "g.relu: y on own statistics (2 numbers a channel)",
                                 "g.relu: y against its shard of batch BN (2 numbers a channel)"});
  CHECK(result.suspicions == 0);
  CHECK(result.unjudged_at_first > 0);
}

// ---- Blocks

TEST_CASE("a skipped last block of channels is named, whether its memory is stale or zero") {
  const Task task = small_network(2);
  for (const Left left : {Left::unwritten, Left::zero}) {
    CAPTURE(left == Left::zero);
    const auto check = [&](Operation operation, const Kinds& kinds) {
      check_named<LastBlockSkipped>(task, kinds, operation, left);
    };
    check(Operation::convolution, {"convolution"});
    check(Operation::depthwise, {"depthwise"});
    check(Operation::channel_mean, left == Left::zero ? Kinds{"mean", "variance"} : Kinds{"mean"});
    check(Operation::channel_variance, {"variance"});
    check(Operation::normalise, {"normalise"});
  }
}

// ---- One node

TEST_CASE("two gammas of one site swapped are named with that site") {
  const Task task = small_network(2);
  const auto host = make_host_device(2, 1, 1);
  TwoGammasSwapped device(*host, task.weights.at("u4qg"));
  const Found found = found_by_sign_off(device, task);
  CHECK(found.verdict == SignoffResult::Verdict::disagrees);
  CHECK(found.nodes == Names{"u4qg"});
  CHECK(found.sites == std::set<std::string>{"u4qg"});
}

TEST_CASE("a border tap missed at one node is named with that node") {
  const Task task = small_network(2);
  const auto host = make_host_device(2, 1, 1);
  MissedBorderTapAtOneNode device(*host, task.weights.at("u13dW"));
  const Found found = found_by_sign_off(device, task);
  CHECK(found.verdict == SignoffResult::Verdict::disagrees);
  CHECK(found.nodes == Names{"u13dW"});
  CHECK(found.sites == std::set<std::string>{});
}

TEST_CASE("one call broken names exactly the node that it wrote") {
  const Task task = small_network(2);
  // The nodes that each operation writes, in order; a fused ReLU is written by its normalise.
  std::map<std::string, std::vector<std::string>> nodes;
  for (const Node& node : task.graph.nodes()) {
    Comparison comparison;
    comparison.node = node.name;
    const bool fused = std::holds_alternative<Relu>(node.operation);
    if (fused) nodes["normalise"].pop_back();
    nodes[fused ? "normalise" : kind_of(task.graph, comparison)].push_back(node.name);
  }
  const std::size_t replicas = task.images.size();
  for (const auto& [operation, kind] : {std::pair(Operation::convolution, "convolution"),
                                        {Operation::depthwise, "depthwise"},
                                        {Operation::channel_mean, "mean"},
                                        {Operation::channel_variance, "variance"},
                                        {Operation::normalise, "normalise"},
                                        {Operation::add, "add"},
                                        {Operation::global_average_pool, "pool"},
                                        {Operation::dense, "dense"},
                                        {Operation::all_reduce_mean, "reduction"}}) {
    const std::size_t written = nodes.at(kind).size();
    for (const std::size_t planted : {written / 3, written - 1}) {
      const std::string& name = nodes.at(kind)[planted];
      CAPTURE(kind, name);
      const auto host = make_host_device(2, 1, 1);
      const std::size_t calls_a_node = operation == Operation::all_reduce_mean ? 1 : replicas;
      OneCallBroken device(*host, operation, planted * calls_a_node);
      const std::vector<Comparison> comparisons =
          judge_run(device, task.graph, task.weights, {task.images}, InputKind::natural, 1);
      const Found found = wrong_in(task.graph, comparisons);
      Names named{name};
      if (operation == Operation::channel_mean) {
        named.push_back(sites_by_node(task.graph).at(name) + ".var_at");
      }
      CHECK(found.nodes == named);
      CHECK(only_sites_of_nodes(found));
    }
  }
}

}  // namespace shardproof
