// Candidate libraries are signed off as any other device is: the correct example agrees, the wrong
// one is caught, and a call that fails ends the sign-off with its reason.
#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "device/engine/candidate_device.h"
#include "diff/signoff.h"
#include "reference/nets/mobilenetv4_conv_m.h"
#include "reference/nets/weights.h"
#include "reference/numbers/random.h"

using namespace shardproof;

namespace {

constexpr std::size_t kReplicas = 2, kBatch = 2;

SignoffResult sign_off_candidate(const std::string& name) {
  NetOptions options;
  options.size = 32;
  options.classes = 10;
  options.width_divisor = 16;
  const Graph graph = *mobilenetv4_conv_m(options, BatchNorm::synchronised);
  const Weights weights = seeded_weights(graph.parameters(), 1);
  Family<float> images;
  for (std::size_t r = 0; r < kReplicas; ++r) {
    Shape shape = graph.node(0).shape;
    shape.n = kBatch;
    images.emplace_back(shape);
    Random random(1, "images", r);
    for (float& value : images.back().values) value = static_cast<float>(random.triangular(2));
  }
  auto device = make_candidate_device(CANDIDATES + name + ".so", kReplicas);
  if (!device) FAIL(device.error());
  return sign_off(**device, {graph, weights, images, 1, 1});
}

}  // namespace

TEST_CASE("the correct example agrees with the reference on a small network") {
  const SignoffResult result = sign_off_candidate("correct_example");
  CHECK(result.failure.empty());
  for (const Comparison& comparison : result.comparisons) {
    if (comparison.outcome() == Outcome::wrong) UNSCOPED_INFO(comparison.node);
  }
  CHECK(result.verdict() == SignoffResult::Verdict::agrees);
}

TEST_CASE("the wrong example disagrees") {
  const SignoffResult result = sign_off_candidate("wrong_example");
  CHECK(result.failure.empty());
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
}

TEST_CASE("a candidate that fails ends the sign-off in disagreement, with its reason") {
  const SignoffResult result = sign_off_candidate("status");
  CHECK(result.verdict() == SignoffResult::Verdict::disagrees);
  CHECK_THAT(result.failure, Catch::Contains("all_reduce_mean on replica 1 returned status 3"));
}
