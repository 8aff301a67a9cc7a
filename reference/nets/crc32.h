// CRC-32 of ISO 3309, as PNG's chunks and `crc32` of Perl and zlib have it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace shardproof {

// Of `bytes` after what gave `before`; 0 before the first.
inline std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t before = 0) {
  static constexpr auto table = [] {
    struct {
      std::uint32_t of[256];
    } made{};
    for (std::uint32_t i = 0; i < 256; ++i) {
      std::uint32_t value = i;
      for (int bit = 0; bit < 8; ++bit) value = value >> 1U ^ ((value & 1U) * 0xEDB88320U);
      made.of[i] = value;
    }
    return made;
  }();
  std::uint32_t value = ~before;
  for (const std::byte byte : bytes) {
    value = value >> 8U ^ table.of[(value ^ std::to_integer<std::uint32_t>(byte)) & 0xFFU];
  }
  return ~value;
}

}  // namespace shardproof
