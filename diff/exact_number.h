// float32 numbers as text that keeps every bit: a hexadecimal float ("0x1.8p+1"), "inf", "-inf", or
// a NaN with its bits ("nan:7fc00001").
#pragma once

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace shardproof {

inline std::string exact_number(float x) {
  if (std::isnan(x)) return fmt::format("nan:{:08x}", std::bit_cast<std::uint32_t>(x));
  return fmt::format("{:a}", x);
}

// None unless the text is the one that exact_number gives the number.
inline std::optional<float> exact_number_of(std::string_view text) {
  const char* const end = text.data() + text.size();
  float number = 0;
  if (text.starts_with("nan:")) {
    std::uint32_t bits = 0;
    std::from_chars(text.data() + 4, end, bits, 16);
    number = std::bit_cast<float>(bits);
  } else if (text == "inf" || text == "-inf") {
    number = std::numeric_limits<float>::infinity() * (text == "inf" ? 1.0F : -1.0F);
  } else {
    const bool negative = text.starts_with("-");
    const std::size_t digits = (negative ? 1 : 0) + 2;  // after "0x"
    if (text.size() <= digits) return std::nullopt;
    double magnitude = 0;
    std::from_chars(text.data() + digits, end, magnitude, std::chars_format::hex);
    number = static_cast<float>(negative ? -magnitude : magnitude);
  }
  if (exact_number(number) != text) return std::nullopt;
  return number;
}

}  // namespace shardproof
