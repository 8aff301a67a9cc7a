// The optimizers that come with the project: the texts of fixtures/programs, built in.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace shardproof {

// "adamw", "lamb-separable", …, in alphabetical order.
std::vector<std::string> optimizer_names();

// The program's text (text.h), or none where no optimizer has that name.
std::optional<std::string_view> optimizer_text(std::string_view name);

}  // namespace shardproof
