// A kernel as a compile-time value, so that a launch knows its name as well as its address:
// launch(kernel<channel_mean_rows<8>>, grid, block, shared_bytes, stream, arguments...).
#pragma once

#include <string_view>

namespace shardproof {

template <auto function>
struct Kernel {
  // Its name as in the source, without namespaces: "channel_mean_rows<8>".
  static constexpr std::string_view name() {
    std::string_view text = __PRETTY_FUNCTION__;
    text.remove_prefix(text.find("function = ") + 11);
    text = text.substr(0, text.find_first_of(";]"));
    text = text.substr(0, text.find('(', 1));
    const std::size_t arguments = text.find('<');
    const std::size_t scope = text.substr(0, arguments).rfind("::");
    if (scope != std::string_view::npos) text.remove_prefix(scope + 2);
    return text.substr(0, text.find_last_not_of(" )") + 1);
  }
};

template <auto function>
inline constexpr Kernel<function> kernel{};

}  // namespace shardproof
