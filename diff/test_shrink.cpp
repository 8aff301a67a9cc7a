// Shrinking: faults as public reports have them, each first in a case of many numbers, end as a
// case that a person can check by hand.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/case_file.h"
#include "diff/draws.h"
#include "diff/shrink.h"
#include "diff/test_devices.h"
#include "reference/nets/weights.h"
#include "reference/numbers/bfloat16.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

// ---- Cases

Graph site(Shape shape, bool relu = false) {
  Graph graph;
  const NodeId y = graph.bn_sync_site(graph.input("x", shape), {"g", "b"});
  if (relu) graph.relu(y, "g.relu");
  return graph;
}

Graph convolution(Shape shape, std::size_t outputs, std::size_t kernel, std::size_t stride,
                  std::size_t pad_begin, std::size_t pad_end, const std::string& bias = "") {
  Graph graph;
  graph.convolution(graph.input("x", shape), {"W", bias, kernel, stride, pad_begin, pad_end},
                    outputs);
  return graph;
}

Graph depthwise(Shape shape, std::size_t kernel, std::size_t stride) {
  Graph graph;
  graph.depthwise(graph.input("x", shape),
                  {"W", kernel, stride, (kernel - 1) / 2, (kernel - 1) / 2});
  return graph;
}

UnitCase natural(Graph graph, std::size_t replicas, std::size_t batch, double mean = 0) {
  UnitCase c;
  c.weights = seeded_weights(graph.parameters(), 1);
  for (const NodeId input : graph.inputs()) {
    Shape shape = graph.node(input).shape;
    shape.n = batch;
    Family<float>& family = c.inputs.emplace_back();
    for (std::size_t r = 0; r < replicas; ++r) {
      Random random(input, "replica", r);
      for (float& value : family.emplace_back(shape).values) {
        value = static_cast<float>(mean + random.triangular(2));
      }
    }
  }
  c.graph = std::move(graph);
  c.seed = 7;
  c.schedule.seed = 3;
  return c;
}

Unit unit_of(const Graph& graph) {
  const Node& end = graph.node(graph.output());
  const bool fused = std::holds_alternative<Relu>(end.operation) && graph.nodes().size() > 2;
  return *unit_ending_at(graph, graph.output(), fused);
}

UnitCase of_probe(Probe probe, InputKind kind) {
  UnitCase c;
  c.graph = std::move(probe.graph);
  c.weights = std::move(probe.weights);
  c.inputs = std::move(probe.inputs);
  c.kind = kind;
  c.seed = 7;
  c.schedule.seed = 3;
  return c;
}

UnitCase lattice(const Graph& graph, std::size_t replicas, std::size_t batch,
                 std::size_t draw = 0) {
  return of_probe(lattice_probe(graph, unit_of(graph), replicas, batch, draw, 5, 1),
                  InputKind::lattice);
}

UnitCase dithered(const UnitCase& c) {
  std::vector<const Family<float>*> operands;
  for (const Family<float>& family : c.inputs) operands.push_back(&family);
  return of_probe(dithered_probe(c.graph, unit_of(c.graph), c.weights, operands, 1, 5, 1),
                  InputKind::dithered);
}

template <class Fault, class... Arguments>
DeviceMaker with(Arguments... arguments) {
  return [=](int replicas, const Schedule& schedule) {
    return std::make_unique<Fault>(make_host_device(replicas, schedule, 1), arguments...);
  };
}

// ---- Faults

struct PlainMeanOfVariances : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    ChannelVarianceCall without_chan = call;
    without_chan.mean = call.own_mean;
    base().channel_variance(without_chan);
  }
};

// Statistics times a factor of the number of terms.
struct ScaledStatistics : ForwardingDevice {
  ScaledStatistics(std::unique_ptr<Device> base, bool mean, double (*factor)(double))
      : ForwardingDevice(std::move(base)), mean_(mean), factor_(factor) {}
  void channel_mean(const ChannelMeanCall& call) override {
    base().channel_mean(call);
    if (mean_) scale(call.mean, call.channels, call.batch * call.plane);
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    if (!mean_) scale(call.variance, call.channels, call.batch * call.plane);
  }
  void scale(float* values, std::size_t channels, std::size_t m) const {
    for (std::size_t c = 0; c < channels; ++c) {
      values[c] = static_cast<float>(double{values[c]} * factor_(static_cast<double>(m)));
    }
  }
  bool mean_;
  double (*factor_)(double);
};

struct LastElementMissing : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_mean(const ChannelMeanCall& call) override {
    const std::size_t size = call.batch * call.channels * call.plane;
    std::vector<float> x(call.x, call.x + size);
    for (std::size_t c = 0; c < call.channels; ++c) {
      x[((call.batch - 1) * call.channels + c + 1) * call.plane - 1] = 0;
    }
    ChannelMeanCall with = call;
    with.x = x.data();
    base().channel_mean(with);
  }
};

struct OtherRoot : ForwardingDevice {
  OtherRoot(std::unique_ptr<Device> base, float (*root)(float, float))
      : ForwardingDevice(std::move(base)), root_(root) {}
  void normalise(const NormaliseCall& call) override {
    for (std::size_t row = 0; row < call.batch * call.channels; ++row) {
      const std::size_t c = row % call.channels;
      const float scale = call.gamma[c] * root_(call.variance[c], call.epsilon);
      for (std::size_t i = row * call.plane; i < (row + 1) * call.plane; ++i) {
        const float y = (call.x[i] - call.mean[c]) * scale + call.beta[c];
        call.y[i] = call.relu && y < 0 ? 0 : y;
      }
    }
  }
  float (*root_)(float, float);
};

// Normalises with the statistics of the replica alone.
struct PerReplicaMean : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    own_[call.mean].assign(call.own_mean, call.own_mean + call.channels);
  }
  void normalise(const NormaliseCall& call) override {
    NormaliseCall with = call;
    with.mean = own_.at(call.mean).data();
    base().normalise(with);
  }
  std::map<const float*, std::vector<float>> own_;
};

// Statistics of the channel before.
struct StaleStatistics : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    std::vector<float> mean(call.mean, call.mean + call.channels);
    std::vector<float> variance(call.variance, call.variance + call.channels);
    for (std::size_t c = call.channels; c-- > 1;) {
      mean[c] = mean[c - 1];
      variance[c] = variance[c - 1];
    }
    NormaliseCall with = call;
    with.mean = mean.data();
    with.variance = variance.data();
    base().normalise(with);
  }
};

struct SwappedWeights : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    std::vector<float> gamma(call.gamma, call.gamma + call.channels);
    if (gamma.size() > 1) std::swap(gamma[0], gamma[1]);
    NormaliseCall with = call;
    with.gamma = gamma.data();
    base().normalise(with);
  }
  void convolution(const ConvolutionCall& call) override {
    const std::size_t taps = call.kernel * call.kernel;
    std::vector<float> weight(call.weight,
                              call.weight + call.out_channels * call.in_channels * taps);
    if (weight.size() > 1) std::swap(weight[0], weight[1]);
    ConvolutionCall with = call;
    with.weight = weight.data();
    base().convolution(with);
  }
};

struct SamePaddingAsSymmetric : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void convolution(const ConvolutionCall& call) override {
    ConvolutionCall with = call;
    std::swap(with.pad_begin, with.pad_end);
    base().convolution(with);
  }
  void depthwise(const DepthwiseCall& call) override {
    DepthwiseCall with = call;
    ++with.pad_begin;
    with.pad_end -= 1;
    base().depthwise(with);
  }
};

// Reads every column from where a stride of 1 has it.
struct StrideOfOneInColumns : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void convolution(const ConvolutionCall& call) override {
    ConvolutionCall dense = call;
    dense.stride = 1;
    dense.out_height = call.height + call.pad_begin + call.pad_end - call.kernel + 1;
    dense.out_width = call.width + call.pad_begin + call.pad_end - call.kernel + 1;
    std::vector<float> y(call.batch * call.out_channels * dense.out_height * dense.out_width);
    dense.y = y.data();
    base().convolution(dense);
    for (std::size_t plane = 0; plane < call.batch * call.out_channels; ++plane) {
      for (std::size_t h = 0; h < call.out_height; ++h) {
        for (std::size_t w = 0; w < call.out_width; ++w) {
          call.y[(plane * call.out_height + h) * call.out_width + w] =
              y[(plane * dense.out_height + h * call.stride) * dense.out_width + w];
        }
      }
    }
  }
};

struct BiasOfTheNextChannel : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  template <class Call>
  std::vector<float> shifted(const Call& call, std::size_t channels) {
    std::vector<float> bias(call.bias, call.bias + channels);
    std::rotate(bias.begin(), bias.begin() + 1, bias.end());
    return bias;
  }
  void convolution(const ConvolutionCall& call) override {
    ConvolutionCall with = call;
    const std::vector<float> bias = shifted(call, call.out_channels);
    with.bias = bias.data();
    base().convolution(with);
  }
  void dense(const DenseCall& call) override {
    DenseCall with = call;
    const std::vector<float> bias = shifted(call, call.out);
    with.bias = bias.data();
    base().dense(with);
  }
};

// One warp a channel: a thread that reads before the others have written.
struct MissingBarrier : ForwardingDevice {
  MissingBarrier(std::unique_ptr<Device> base, std::size_t needs)
      : ForwardingDevice(std::move(base)), needs_(needs) {}
  void channel_mean(const ChannelMeanCall& call) override {
    base().channel_mean(call);
    // The second warp's share, which begins at element `needs`, is not there yet.
    const std::size_t m = call.batch * call.plane;
    if (m <= needs_) return;
    for (std::size_t c = 0; c < call.channels; ++c) {
      double sum = 0;
      for (std::size_t j = 0; j < needs_; ++j) {
        sum += double{call.x[(j / call.plane * call.channels + c) * call.plane + j % call.plane]};
      }
      call.mean[c] = static_cast<float>(sum / static_cast<double>(m));
    }
  }
  std::size_t needs_;
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

struct BFloat16Operands : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void dense(const DenseCall& call) override {
    std::vector<float> x(call.x, call.x + call.batch * call.in);
    for (float& value : x) value = round_to_bfloat16(value);
    DenseCall with = call;
    with.x = x.data();
    base().dense(with);
  }
};

struct LastBlockSkipped : ForwardingDevice {
  LastBlockSkipped(std::unique_ptr<Device> base, std::size_t block)
      : ForwardingDevice(std::move(base)), block_(block) {}
  void add(const AddCall& call) override {
    base().add(call);
    for (std::size_t i = call.count / block_ * block_; i < call.count; ++i) call.y[i] = 0;
  }
  std::size_t block_;
};

struct ReluTurnsNanIntoZero : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void relu(const PointwiseCall& call) override {
    for (std::size_t i = 0; i < call.count; ++i) call.y[i] = call.x[i] > 0 ? call.x[i] : 0;
  }
};

struct FailsAboveTwoChannels : ForwardingDevice {
  using ForwardingDevice::ForwardingDevice;
  void normalise(const NormaliseCall& call) override {
    if (call.channels > 2) throw DeviceError("too many channels");
    base().normalise(call);
  }
};

// ---- What is expected of a small case

UnitCase small(const UnitCase& c, const DeviceMaker& make, std::size_t replicas,
               std::size_t numbers) {
  CAPTURE(replicas, numbers);
  std::size_t tries = 0;
  const DeviceMaker counted = [&](int r, const Schedule& schedule) {
    ++tries;
    return make(r, schedule);
  };
  REQUIRE(judge_unit_case(make, c).outcome() == Outcome::wrong);
  const UnitCase shrunk = shrink(c, counted);
  CHECK(judge_unit_case(make, shrunk).outcome() == Outcome::wrong);
  CHECK(shrunk.inputs[0].size() <= replicas);
  CHECK(count_of_numbers(shrunk) <= numbers);
  CHECK(tries <= 2 * kShrinkingTries + 2);
  CaseFile file;
  file.recorded = record(make, shrunk);
  file.content = shrunk;
  CHECK(to_text(file).size() < 20'000);
  return shrunk;
}

const Shape kShape{1, 6, 7, 5};

// Natural, lattice and dithered numbers for one fault of a site: each is shrunk where it shows.
void check_site(const DeviceMaker& make, std::size_t replicas) {
  std::size_t shown = 0;
  for (const UnitCase& c :
       {natural(site(kShape, true), 5, 2), lattice(site(kShape), 5, 2),
        lattice(site(kShape, true), 3, 1, 1), dithered(natural(site(kShape), 7, 3))}) {
    if (judge_unit_case(make, c).outcome() != Outcome::wrong) continue;
    ++shown;
    small(c, make, replicas, 16);
  }
  CHECK(shown > 0);
}

}  // namespace

TEST_CASE("a plain mean of variances ends at two replicas of two numbers") {
  check_site(with<PlainMeanOfVariances>(), 2);
  const UnitCase c = small(natural(site(kShape), 5, 2), with<PlainMeanOfVariances>(), 2, 16);
  CHECK(count_of_numbers(c) <= 6);
  for (const Tensor<float>& x : c.inputs[0]) {
    for (const float value : x.values) CHECK(std::abs(value) <= 2);
  }
}

TEST_CASE("an unbiased variance and a divisor off by one end small") {
  check_site(with<ScaledStatistics>(
                 false, +[](double m) { return m / (m - 1); }),
             1);
  check_site(with<ScaledStatistics>(
                 false, +[](double m) { return m / (m + 1); }),
             1);
  check_site(with<ScaledStatistics>(
                 true, +[](double m) { return m / (m + 1); }),
             1);
}

TEST_CASE("a divisor off by one among 25,088 numbers ends small") {
  const UnitCase c = lattice(site({1, 2, 112, 112}), 3, 2);
  small(c,
        with<ScaledStatistics>(
            true, +[](double m) { return m / (m + 1); }),
        2, 16);
}

TEST_CASE("a missing element ends small") { check_site(with<LastElementMissing>(), 1); }

TEST_CASE("epsilon omitted, outside the root or as a floor ends small") {
  check_site(with<OtherRoot>(+[](float v, float) { return 1 / std::sqrt(v); }), 2);
  check_site(with<OtherRoot>(+[](float v, float e) { return 1 / (std::sqrt(v) + e); }), 2);
  check_site(with<OtherRoot>(+[](float v, float e) { return 1 / std::sqrt(std::max(v, e)); }), 2);
}

TEST_CASE("a replica's own mean, stale statistics and swapped weights end small") {
  check_site(with<PerReplicaMean>(), 2);
  check_site(with<StaleStatistics>(), 2);
  check_site(with<SwappedWeights>(), 2);
}

TEST_CASE("reductions that do not divide, or differ in one replica, end at two replicas") {
  check_site(with<AllReduceWithoutDivide>(), 2);
  check_site(with<OneReplicaAnUlpOff>(), 2);
}

TEST_CASE("a share of the sum that is read too early keeps as many numbers as it takes") {
  const UnitCase c = natural(site({1, 3, 1, 256}), 2, 2);
  const UnitCase shrunk = shrink(c, with<MissingBarrier>(40));
  CHECK(shrunk.inputs[0].size() == 1);
  CHECK(count_of_numbers(shrunk) == 43);
  // All but the number that is missing are zeros.
  CHECK(std::count(shrunk.inputs[0][0].values.begin(), shrunk.inputs[0][0].values.end(), 0.0F) >=
        40);
}

TEST_CASE("wrong padding, stride, bias and weights of products end small") {
  small(natural(convolution({1, 3, 8, 6}, 4, 3, 2, 0, 1), 3, 2), with<SamePaddingAsSymmetric>(), 1,
        16);
  small(natural(depthwise({1, 3, 9, 7}, 5, 2), 3, 2), with<SamePaddingAsSymmetric>(), 1, 16);
  small(lattice(convolution({1, 3, 9, 7}, 4, 3, 2, 1, 1), 3, 2), with<StrideOfOneInColumns>(), 1,
        16);
  small(natural(convolution({1, 3, 4, 4}, 4, 1, 1, 0, 0, "b"), 3, 2), with<BiasOfTheNextChannel>(),
        1, 16);
  small(lattice(convolution({1, 3, 4, 4}, 4, 5, 1, 2, 2), 3, 2), with<SwappedWeights>(), 1, 16);
}

TEST_CASE("dense layers, pools, residuals and relus end small") {
  Graph dense;
  dense.dense(dense.input("x", {1, 6, 2, 2}), {"W", "b"}, 5);
  small(natural(dense, 3, 2), with<BiasOfTheNextChannel>(), 1, 16);
  small(lattice(dense, 3, 2), with<BiasOfTheNextChannel>(), 1, 16);
  small(natural(dense, 3, 2), with<BFloat16Operands>(), 1, 4);
  Graph pool;
  pool.global_average_pool(pool.input("x", kShape), "gap");
  small(natural(pool, 3, 2), with<PoolDividesByOneMore>(), 1, 1);
  small(dithered(natural(pool, 3, 2)), with<PoolDividesByOneMore>(), 1, 1);
  Graph add;
  const NodeId x = add.input("x", kShape);
  add.add(x, add.input("skip", kShape), "sum");
  small(natural(add, 3, 2), with<LastBlockSkipped>(std::size_t{64}), 1, 2);
  Graph relu;
  relu.relu(relu.input("x", kShape), "relu");
  UnitCase nan = natural(relu, 2, 1);
  nan.inputs[0][1].values[17] = std::numeric_limits<float>::quiet_NaN();
  small(nan, with<ReluTurnsNanIntoZero>(), 1, 1);
}

TEST_CASE("arithmetic that a device does not declare ends small") {
  const auto undeclared = [](const Arithmetic& arithmetic) -> DeviceMaker {
    return [=](int replicas, const Schedule&) {
      return std::make_unique<PlainDevice>(static_cast<std::size_t>(replicas), arithmetic,
                                           contract_of(Arithmetic{}));
    };
  };
  Arithmetic one_pass;
  one_pass.statistics = StatisticsMethod::one_pass;
  small(natural(site(kShape), 3, 2, 300), undeclared(one_pass), 1, 16);
  Arithmetic fused;
  fused.form = NormaliseForm::fused;
  small(natural(site(kShape), 3, 2, 300), undeclared(fused), 1, 16);
  Arithmetic sums;
  sums.accumulate = Accumulate::bfloat16;
  small(natural(site(kShape), 3, 2), undeclared(sums), 1, 16);
  Arithmetic tf32;
  tf32.operands = Operands::tf32;
  small(natural(convolution({1, 3, 5, 5}, 4, 3, 1, 1, 1), 3, 2), undeclared(tf32), 1, 16);
}

TEST_CASE("a launch that fails stays a launch that fails") {
  const UnitCase c = shrink(natural(site(kShape), 5, 2), with<FailsAboveTwoChannels>());
  CHECK(judge_unit_case(with<FailsAboveTwoChannels>(), c).failure == "too many channels");
  CHECK(c.inputs[0].size() == 1);
  CHECK(c.inputs[0][0].shape == Shape{1, 3, 1, 3});
}

TEST_CASE("what only fresh draws confirm is wrong by itself when it has become small") {
  const UnitCase c = natural(site({1, 1, 80, 50}), 1, 2, 3);
  const DeviceMaker make = with<ScaledStatistics>(
      false, +[](double m) { return m / (m - 1); });
  REQUIRE(judge_unit_case(make, c, Suspicions::left).outcome() != Outcome::wrong);
  const UnitCase shrunk = small(c, make, 1, 16);
  CHECK(judge_unit_case(make, shrunk, Suspicions::left).outcome() == Outcome::wrong);
}

TEST_CASE("the same case is shrunk to the same bytes") {
  const UnitCase c = natural(site(kShape), 5, 2);
  const auto text = [&] {
    CaseFile file;
    file.content = shrink(c, with<StaleStatistics>());
    return to_text(file);
  };
  CHECK(text() == text());
}

TEST_CASE("a case that agrees is left as it is") {
  const UnitCase c = natural(site(kShape), 2, 1);
  const UnitCase same = shrink(c, with<ForwardingDevice>());
  CHECK(same.inputs[0][1].values == c.inputs[0][1].values);
  CHECK(same.schedule.seed == c.schedule.seed);
}

}  // namespace shardproof
