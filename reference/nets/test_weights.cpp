#include <unistd.h>

#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <limits>

#include "reference/nets/safetensors.h"
#include "reference/nets/weights.h"

namespace shardproof {
namespace {

using Catch::Contains;
using Role = Parameter::Role;

const std::vector<Parameter> parameters = {
    {"sW", {32, 3, 3, 3}, Role::convolution},     {"sg", {1, 400, 1, 1}, Role::gamma},
    {"sbt", {1, 400, 1, 1}, Role::beta},          {"u1qW", {400, 1, 5, 5}, Role::depthwise},
    {"Wd", {1, 1, 400, 50}, Role::dense},         {"bd", {1, 50, 1, 1}, Role::dense_bias},
    {"cb", {1, 7, 1, 1}, Role::convolution_bias},
};

// A file name that goes with the test.
struct TemporaryFile {
  std::string path =
      std::filesystem::temp_directory_path() / ("shardproof_weights_" + std::to_string(::getpid()));
  ~TemporaryFile() { std::filesystem::remove(path); }
};

double deviation(const Tensor<float>& tensor) {
  double squares = 0;
  for (const float v : tensor.values) squares += static_cast<double>(v) * static_cast<double>(v);
  return std::sqrt(squares / static_cast<double>(tensor.values.size()));
}

std::uint32_t checksum(const Weights& weights) {
  std::uint32_t sum = 2166136261U;
  for (const auto& [name, tensor] : weights) {
    for (const float v : tensor.values) sum = (sum ^ std::bit_cast<std::uint32_t>(v)) * 16777619U;
  }
  return sum;
}

TEST_CASE("the same seed gives the same bits on any machine") {
  const Weights weights = seeded_weights(parameters, 1);
  // From `python3 fixtures/seeded_weights.py`, written on its own from the header.
  CHECK(std::bit_cast<std::uint32_t>(weights.at("sW").values[0]) == 0xBD99A4F9U);
  CHECK(checksum(weights) == 0xEC19CF23U);
}

TEST_CASE("a tensor depends on the seed and its name, not on its neighbours or their order") {
  const Weights weights = seeded_weights(parameters, 7);
  std::vector<Parameter> reversed(parameters.rbegin(), parameters.rend());
  reversed.pop_back();
  for (const auto& [name, tensor] : seeded_weights(reversed, 7)) {
    CHECK(tensor.values == weights.at(name).values);
  }
  CHECK(seeded_weights(parameters, 8).at("sW").values != weights.at("sW").values);
  std::vector<Parameter> renamed = parameters;
  renamed[0].name = "tW";
  CHECK(seeded_weights(renamed, 7).at("tW").values != weights.at("sW").values);
}

TEST_CASE("draws have the stated deviations and ranges") {
  const Weights weights = seeded_weights(parameters, 3);
  // Eight standard errors of a deviation estimated from n numbers: 8 / √(2n).
  CHECK(deviation(weights.at("sW")) ==
        Approx(std::sqrt(2.0 / 288)).epsilon(8 / std::sqrt(2 * 864.0)));
  CHECK(deviation(weights.at("u1qW")) == Approx(std::sqrt(2.0 / 25)).epsilon(8 / std::sqrt(2e4)));
  CHECK(deviation(weights.at("Wd")) == Approx(1 / std::sqrt(400.0)).epsilon(8 / std::sqrt(4e4)));
  const auto within = [&](const std::string& name, float low, float high) {
    const std::vector<float>& values = weights.at(name).values;
    CHECK(std::all_of(values.begin(), values.end(),
                      [&](float v) { return std::fabs(v) >= low && std::fabs(v) <= high; }));
    CHECK(std::any_of(values.begin(), values.end(), [](float v) { return v < 0; }));
    CHECK(std::any_of(values.begin(), values.end(), [](float v) { return v > 0; }));
  };
  within("sg", 0.5F, 2);
  within("sbt", 0.05F, 0.5F);
  within("bd", 0.05F, 0.5F);
  within("cb", 0.05F, 0.5F);
}

TEST_CASE("saved weights load bit for bit") {
  const TemporaryFile file;
  const Weights weights = seeded_weights(parameters, 5);
  REQUIRE(save_weights(file.path, parameters, weights));
  const auto loaded = load_weights(file.path, parameters);
  REQUIRE(loaded);
  CHECK(loaded->size() == weights.size());
  for (const auto& [name, tensor] : weights) {
    CHECK(loaded->at(name).shape == tensor.shape);
    CHECK(loaded->at(name).values == tensor.values);
  }
}

TEST_CASE("a missing, extra, misshapen or non-finite tensor is named") {
  const TemporaryFile file;
  Weights weights = seeded_weights(parameters, 5);
  REQUIRE(save_weights(file.path, parameters, weights));
  const auto error = [&](const std::vector<Parameter>& wanted) {
    const auto loaded = load_weights(file.path, wanted);
    REQUIRE_FALSE(loaded);
    CHECK_THAT(loaded.error(), Contains(file.path + ": "));
    return loaded.error();
  };
  std::vector<Parameter> wanted = parameters;
  wanted.push_back({"h1g", {1, 60, 1, 1}, Role::gamma});
  CHECK_THAT(error(wanted), Contains("\"h1g\" [60] is missing") && !Contains("more"));
  wanted.push_back({"h1bt", {1, 60, 1, 1}, Role::beta});
  CHECK_THAT(error(wanted), Contains("\"h1g\"") && Contains("1 more tensor at fault"));

  wanted = parameters;
  wanted.erase(wanted.begin());
  CHECK_THAT(error(wanted), Contains("\"sW\" is no parameter") && Contains("--save-weights"));

  wanted = parameters;
  wanted[0].shape = {32, 3, 3, 1};
  CHECK_THAT(error(wanted), Contains("\"sW\" has shape [32,3,3,3]") && Contains("[32,3,3,1]"));
  wanted[0] = parameters[0];
  std::swap(wanted[4].shape.h, wanted[4].shape.w);
  CHECK_THAT(error(wanted), Contains("\"Wd\" has shape [400,50]") && Contains("[50,400]"));
  // The same numbers under another rank do not pass.
  wanted[4] = parameters[4];
  wanted[1] = {"sg", {400, 1, 1, 1}, Role::convolution};
  CHECK_THAT(error(wanted), Contains("\"sg\" has shape [400]") && Contains("[400,1,1,1]"));

  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    weights.at("sbt").values[3] = bad;
    REQUIRE(save_weights(file.path, parameters, weights));
    CHECK_THAT(error(parameters), Contains("\"sbt\"") && Contains("not finite at index 3"));
  }
}

TEST_CASE("saving needs every parameter") {
  CHECK_THROWS_AS(save_weights("unwritten", parameters, {}), std::invalid_argument);
  CHECK_FALSE(std::filesystem::exists("unwritten"));
}

}  // namespace
}  // namespace shardproof
