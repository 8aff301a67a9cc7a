#include "reference/slots/optimizers.h"

#include <algorithm>

namespace shardproof {
namespace {

struct Optimizer {
  std::string_view name, text;
};
constexpr Optimizer optimizers[] = {
#include "reference/slots/optimizer_texts.inl"  // made by CMakeLists.txt
};

}  // namespace

std::vector<std::string> optimizer_names() {
  std::vector<std::string> names;
  for (const Optimizer& optimizer : optimizers) names.emplace_back(optimizer.name);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<std::string_view> optimizer_text(std::string_view name) {
  for (const Optimizer& optimizer : optimizers) {
    if (optimizer.name == name) return optimizer.text;
  }
  return std::nullopt;
}

}  // namespace shardproof
