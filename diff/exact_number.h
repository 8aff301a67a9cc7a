// Numbers of float32 and float64 as text that keeps every bit: a hexadecimal float ("0x1.8p+1"),
// "inf", "-inf", or a NaN with its bits ("nan:7fc00001").
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
#include <type_traits>

namespace shardproof {

template <class Float>
std::string exact_number(Float x) {
  using Bits = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  if (std::isnan(x)) return fmt::format("nan:{:0{}x}", std::bit_cast<Bits>(x), 2 * sizeof(x));
  return fmt::format("{:a}", x);
}

// None unless the text is the one that exact_number gives the number.
template <class Float = float>
std::optional<Float> exact_number_of(std::string_view text) {
  using Bits = std::conditional_t<sizeof(Float) == 4, std::uint32_t, std::uint64_t>;
  const char* const end = text.data() + text.size();
  Float number = 0;
  if (text.starts_with("nan:")) {
    Bits bits = 0;
    std::from_chars(text.data() + 4, end, bits, 16);
    number = std::bit_cast<Float>(bits);
  } else if (text == "inf" || text == "-inf") {
    number = std::numeric_limits<Float>::infinity() * static_cast<Float>(text == "inf" ? 1 : -1);
  } else {
    const bool negative = text.starts_with("-");
    const std::size_t digits = (negative ? 1 : 0) + 2;  // after "0x"
    if (text.size() <= digits) return std::nullopt;
    double magnitude = 0;
    std::from_chars(text.data() + digits, end, magnitude, std::chars_format::hex);
    number = static_cast<Float>(negative ? -magnitude : magnitude);
  }
  if (exact_number(number) != text) return std::nullopt;
  return number;
}

}  // namespace shardproof
