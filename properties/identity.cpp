#include "properties/identity.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

namespace shardproof {

std::uint64_t Draws::draw(std::string_view name, std::uint64_t low, std::uint64_t high, int size) {
  std::uint64_t value = low;
  if (given_) {
    const std::size_t place = record_.size();
    const bool known = place < given_->size() && (*given_)[place].name == name;
    if (known) value = std::clamp((*given_)[place].value, low, high);
    as_given_ = as_given_ && known && value == (*given_)[place].value;
  } else {
    const bool any = low == 0 && high == std::numeric_limits<std::uint64_t>::max();
    value = any ? rc::gen::arbitrary<std::uint64_t>()(random_.split(), rc::kNominalSize).value()
                : rc::gen::inRange<std::uint64_t>(low, high + 1)(random_.split(), size).value();
  }
  lowest_.push_back(low);
  record_.push_back({std::string(name), value, ""});
  return value;
}

std::size_t Draws::size(std::string_view name, std::size_t low, std::size_t high) {
  return draw(name, low, high, size_);
}

std::size_t Draws::kind(std::string_view name, std::span<const std::string_view> kinds) {
  const std::uint64_t place = draw(name, 0, kinds.size() - 1, rc::kNominalSize);
  record_.back().label = kinds[place];
  return place;
}

std::size_t Draws::replicas() {
  static constexpr std::array<std::string_view, 5> counts = {"1", "2", "3", "5", "7"};
  static constexpr std::array<std::size_t, 5> replicas = {1, 2, 3, 5, 7};
  return replicas[kind("replicas", counts)];
}

std::uint64_t Draws::seed() {
  return draw("seed", 0, std::numeric_limits<std::uint64_t>::max(), rc::kNominalSize);
}

}  // namespace shardproof
