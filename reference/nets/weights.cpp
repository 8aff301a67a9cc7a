#include "reference/nets/weights.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

#include "reference/nets/safetensors.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

// Mean 0, deviation 1.
double normal(Random& generator) {
  std::uint64_t sum = 0;
  for (int i = 0; i < 6; ++i) {
    const std::uint64_t two = generator.next();
    sum += (two >> 32U) + (two & 0xFFFFFFFFU);
  }
  const std::int64_t centred = static_cast<std::int64_t>(sum) - 6 * std::int64_t{0xFFFFFFFF};
  return static_cast<double>(centred) * 0x1p-32;
}

// Magnitude uniform in [low, high), either sign.
double signed_uniform(Random& generator, double low, double high) {
  const std::uint64_t bits = generator.next();
  const double magnitude = low + (high - low) * (static_cast<double>(bits >> 11U) * 0x1p-53);
  return (bits & 1U) != 0 ? -magnitude : magnitude;
}

double draw(Random& generator, const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  using Role = Parameter::Role;
  switch (parameter.role) {
    case Role::convolution:
      return normal(generator) * std::sqrt(2.0 / static_cast<double>(shape.n * shape.plane()));
    case Role::depthwise:  // as many groups as channels
      return normal(generator) * std::sqrt(2.0 / static_cast<double>(shape.plane()));
    case Role::dense:
      return normal(generator) / std::sqrt(static_cast<double>(shape.h));
    case Role::gamma:
      return signed_uniform(generator, 0.5, 2.0);
    case Role::beta:
    case Role::dense_bias:
    case Role::convolution_bias:
      return signed_uniform(generator, 0.05, 0.5);
  }
  throw std::logic_error("seeded_weights: a parameter of no known role");
}

// What is wrong with the tensor stored for a parameter, if anything.
std::optional<std::string> fault(const Parameter& parameter, const StoredTensors& stored) {
  const auto found = stored.find(parameter.name);
  const std::string tensor = "tensor \"" + parameter.name + "\" ";
  const std::vector<std::size_t> wanted = stored_dimensions(parameter);
  if (found == stored.end()) return tensor + dimensions_text(wanted) + " is missing";
  if (found->second.dimensions != wanted) {
    return tensor + "has shape " + dimensions_text(found->second.dimensions) +
           ", the network needs " + dimensions_text(wanted);
  }
  const std::vector<float>& values = found->second.tensor.values;
  const auto infinite =
      std::find_if(values.begin(), values.end(), [](float v) { return !std::isfinite(v); });
  if (infinite != values.end()) {
    return tensor + "has a value that is not finite at index " +
           std::to_string(infinite - values.begin());
  }
  return std::nullopt;
}

}  // namespace

Weights seeded_weights(std::span<const Parameter> parameters, std::uint64_t seed) {
  Weights weights;
  for (const Parameter& parameter : parameters) {
    Random generator(seed, parameter.name);
    Tensor<float> tensor(parameter.shape);
    for (float& value : tensor.values) value = static_cast<float>(draw(generator, parameter));
    weights.insert_or_assign(parameter.name, std::move(tensor));
  }
  return weights;
}

std::vector<std::size_t> stored_dimensions(const Parameter& parameter) {
  const Shape& shape = parameter.shape;
  using Role = Parameter::Role;
  switch (parameter.role) {
    case Role::convolution:
    case Role::depthwise:
      return {shape.n, shape.c, shape.h, shape.w};
    case Role::dense:
      return {shape.h, shape.w};
    case Role::gamma:
    case Role::beta:
    case Role::dense_bias:
    case Role::convolution_bias:
      return {shape.c};
  }
  throw std::logic_error("stored_dimensions: a parameter of no known role");
}

Result<Weights> load_weights(const std::string& path, std::span<const Parameter> parameters) {
  Result<StoredTensors> stored = read_safetensors(path);
  if (!stored) return Error{stored.error()};

  std::vector<std::string> faults;
  std::set<std::string_view> known;
  for (const Parameter& parameter : parameters) {
    known.insert(parameter.name);
    if (auto found = fault(parameter, *stored)) faults.push_back(std::move(*found));
  }
  bool misnamed = false;
  for (const auto& [name, tensor] : *stored) {
    if (!known.contains(name)) {
      misnamed = true;
      faults.push_back("tensor " + quoted_name(name) + " is no parameter of this network");
    }
  }
  if (!faults.empty()) {
    std::string message = path + ": " + faults.front();
    if (faults.size() > 1) {
      message += " (" + std::to_string(faults.size() - 1) +
                 (faults.size() == 2 ? " more tensor at fault)" : " more tensors at fault)");
    }
    if (misnamed) {
      message +=
          "; docs/guide.md lists names and shapes, `shardproof run --save-weights FILE` "
          "writes such a file";
    }
    return Error{message};
  }
  Weights weights;
  for (auto& [name, tensor] : *stored) weights.emplace(name, std::move(tensor.tensor));
  return weights;
}

Result<std::monostate> save_weights(const std::string& path, std::span<const Parameter> parameters,
                                    const Weights& weights) {
  StoredTensors stored;
  for (const Parameter& parameter : parameters) {
    const auto found = weights.find(parameter.name);
    if (found == weights.end()) {
      throw std::invalid_argument("save_weights: no weights for " + parameter.name);
    }
    stored[parameter.name] = {stored_dimensions(parameter), found->second};
  }
  return write_safetensors(path, stored);
}

}  // namespace shardproof
