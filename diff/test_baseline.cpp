// Precision against the kernels that are to be replaced: what counts as lost, and what does not.
#include <catch2/catch.hpp>

#include "device/engine/builtin_device.h"
#include "diff/baseline.h"
#include "diff/test_devices.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"

namespace shardproof {
namespace {

TEST_CASE("errors are counted by ulps, and measured in ulps of the root mean square") {
  Precision precision;
  precision.add(1, 1);
  precision.add(1 + 0x1p-24, 1);
  precision.add(-1 - 0x1p-22, -1);
  precision.add(0x1p-30, 0);
  precision.add(1, std::nan(""));
  CHECK(precision.outputs == 4);
  CHECK(precision.counts == std::array<std::size_t, 8>{1, 1, 0, 1, 0, 0, 0, 1});
  CHECK(precision.worst() == Approx(2 / std::sqrt(0.75)));
  Precision twice = precision;
  twice.merge(precision);
  CHECK(twice.rms() == Approx(precision.rms()));
  CHECK(twice.outputs == 8);
}

SignoffResult result_of(double device_error, std::size_t outputs = 2000) {
  SignoffResult result;
  Comparison comparison;
  comparison.node = "node";
  comparison.precision.emplace();
  for (std::size_t i = 0; i < outputs; ++i) {
    comparison.precision->add(1 + (i % 2 == 0 ? 1 : -1) * device_error * 0x1p-23, 1);
  }
  result.comparisons.push_back(comparison);
  return result;
}

bool is_lost(double device, double baseline, double factor = 2) {
  return compare_precision(result_of(device), result_of(baseline), factor).at(0).regression;
}

TEST_CASE("precision is lost beyond the factor, and a baseline counts at least as a rounding") {
  CHECK(is_lost(4.1, 2));
  CHECK_FALSE(is_lost(3.9, 2));
  CHECK(is_lost(3.9, 2, 1.5));
  CHECK_FALSE(is_lost(0.5, 0));
  CHECK(is_lost(0.6, 0));
  CHECK_FALSE(is_lost(0, 3));
}

TEST_CASE("the same error on either side of a power of two is no loss") {
  SignoffResult below = result_of(0), above = result_of(0);
  for (int i = 0; i < 2000; ++i) {
    below.comparisons[0].precision->add(1 - 0x1p-30 + 0x1p-22, 1 - 0x1p-30);
    above.comparisons[0].precision->add(1 + 0x1p-30 + 0x1p-22, 1 + 0x1p-30);
  }
  CHECK_FALSE(compare_precision(below, above, 1.01).at(0).regression);
  CHECK_FALSE(compare_precision(above, below, 1.01).at(0).regression);
}

TEST_CASE("the worst of few outputs says nothing, of many it does") {
  for (const std::size_t outputs : {100U, 100'000U}) {
    SignoffResult device = result_of(1, outputs);
    device.comparisons[0].precision->add(1 + 100 * 0x1p-23, 1);
    const double share = device.comparisons[0].precision->rms();
    const auto changes = compare_precision(device, result_of(share / 1.5, outputs), 2);
    CHECK(changes.at(0).regression == (outputs > 1000));
  }
}

struct Task {
  Graph graph;
  Weights weights;
  SignoffTask task;

  Task()
      : graph(*mobilenetv4_conv_m({.size = 32, .classes = 10, .width_divisor = 16},
                                  BatchNorm::synchronised)),
        weights(seeded_weights(graph.parameters(), 1)),
        task{graph, weights, {}, 1, 1, true} {
    for (std::size_t r = 0; r < 2; ++r) {
      Shape shape = graph.node(0).shape;
      shape.n = 2;
      Random random(1, "images", r);
      for (float& value : task.images.emplace_back(shape).values) {
        value = static_cast<float>(random.triangular(2));
      }
    }
  }
};

TEST_CASE("a device against itself loses nothing; one with looser sums, within its bounds, does") {
  const Task task;
  const auto builtin = make_host_device(2, std::uint64_t{0}, 1);
  const SignoffResult before = sign_off(*builtin, task.task);
  for (const PrecisionChange& change : compare_precision(before, before, 1)) {
    CAPTURE(change.node, change.part);
    CHECK_FALSE(change.regression);
  }
  Arithmetic arithmetic;
  arithmetic.accumulate = Accumulate::tensor_core;
  PlainDevice loose(2, arithmetic);
  const SignoffResult after = sign_off(loose, task.task);
  CHECK(after.verdict() == SignoffResult::Verdict::agrees);
  const auto changes = compare_precision(after, before, 2);
  CHECK(changes.size() > 300);
  CHECK(std::any_of(changes.begin(), changes.end(),
                    [](const PrecisionChange& change) { return change.regression; }));
}

TEST_CASE("precision is measured only where it is asked for, and changes no comparison") {
  Task task;
  const auto device = make_host_device(2, std::uint64_t{0}, 1);
  const SignoffResult with = sign_off(*device, task.task);
  task.task.precision = false;
  const SignoffResult without = sign_off(*device, task.task);
  REQUIRE(with.comparisons.size() == without.comparisons.size());
  std::size_t measured = 0;
  for (std::size_t i = 0; i < with.comparisons.size(); ++i) {
    const Comparison &a = with.comparisons[i], &b = without.comparisons[i];
    CAPTURE(a.node, a.part);
    CHECK_FALSE(b.precision);
    CHECK(a.compared == b.compared);
    CHECK(a.worst.ratio == b.worst.ratio);
    CHECK(a.worst.index == b.worst.index);
    if (!a.precision) continue;
    CHECK(a.kind == InputKind::natural);
    if (a.part != "equal on all replicas") CHECK(a.precision->outputs == a.compared);
    ++measured;
  }
  CHECK(measured > 300);
}

TEST_CASE("the speed of every operation is there for both") {
  const Task task;
  const auto one = make_host_device(2, std::uint64_t{0}, 1), other = make_host_device(2, 0, 1);
  const auto changes = compare_speed(*one, *other, task.task);
  CHECK(changes.size() == 9);
  for (const SpeedChange& change : changes) {
    CHECK(change.calls > 0);
    CHECK(change.device > 0);
    CHECK(change.baseline > 0);
  }
}

}  // namespace
}  // namespace shardproof
