// Drawn: a number that a case drew, by name.
#pragma once

#include <cstdint>
#include <string>

namespace shardproof {

struct Drawn {
  std::string name;
  std::uint64_t value = 0;
  std::string label;  // of a kind: what it is called
};

}  // namespace shardproof
