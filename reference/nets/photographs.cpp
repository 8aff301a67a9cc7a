#include "reference/nets/photographs.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string_view>
#include <system_error>

#include "reference/nets/crc32.h"
#include "reference/numbers/random.h"

#define STBI_NO_STDIO
#include <stb/stb_image.h>

namespace shardproof {
namespace {

constexpr std::size_t file_limit = std::size_t{64} << 20U;
constexpr std::size_t pixel_limit = 50'000'000;
constexpr std::size_t scan_limit = std::size_t{1} << 30U;  // pixels times scans of a JPEG
constexpr std::size_t channels = 3;

Result<std::vector<std::byte>> read_file(const std::string& path) {
  if (path.empty()) return Error{"an image without a name: name a PNG or JPEG"};
  std::error_code code;
  const auto status = std::filesystem::status(path, code);
  if (code) return Error{path + ": " + code.message()};
  if (!std::filesystem::is_regular_file(status)) {
    return Error{path + ": is not a regular file; name a PNG or JPEG"};
  }
  const std::uintmax_t size = std::filesystem::file_size(path, code);
  if (code) return Error{path + ": " + code.message()};
  if (size > file_limit) {
    return Error{path + ": has " + std::to_string(size) + " bytes, above the limit of " +
                 std::to_string(file_limit) + "; use a smaller copy"};
  }
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{path + ": " + std::strerror(errno)};
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) return Error{path + ": could not be read to its end"};
  return bytes;
}

bool starts_with(std::span<const std::byte> bytes, std::string_view prefix) {
  return bytes.size() >= prefix.size() &&
         std::equal(prefix.begin(), prefix.end(), bytes.begin(), [](char a, std::byte b) {
           return static_cast<std::byte>(static_cast<unsigned char>(a)) == b;
         });
}

struct Extent {
  std::size_t height = 0, width = 0;
};

// The four bytes from `at` on.
std::size_t big_endian(std::span<const std::byte> bytes, std::size_t at) {
  std::size_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    value = value << 8U | std::to_integer<std::size_t>(bytes[at + i]);
  }
  return value;
}

// What a PNG's header states; stb_image gives no size where it refuses one.
Extent png_extent(std::span<const std::byte> bytes) {
  if (bytes.size() < 24) return {};
  return {big_endian(bytes, 20), big_endian(bytes, 16)};
}

// Where the first chunk of a PNG with a checksum not its own begins; stb_image does not look. A
// chunk is its length, its type, its data, and the CRC-32 of both (PNG specification, §5.3).
std::optional<std::size_t> corrupt_chunk(std::span<const std::byte> bytes) {
  constexpr std::size_t around = 12;  // bytes of a chunk beside its data
  for (std::size_t at = 8; at + around <= bytes.size();) {
    const std::size_t length = big_endian(bytes, at);
    if (length > bytes.size() - at - around) return std::nullopt;
    if (crc32(bytes.subspan(at + 4, 4 + length)) != big_endian(bytes, at + 8 + length)) return at;
    if (starts_with(bytes.subspan(at + 4), "IEND")) return std::nullopt;
    at += around + length;
  }
  return std::nullopt;
}

// The scans of a JPEG, or nothing where a Huffman table has more than its 256 codes: stb_image 2.27
// does not count them (fixed in 2.28). Walks the segments as stb_image does; where the file is
// broken otherwise, stb_image says so. JPEG: ITU-T T.81, annex B.
std::optional<std::size_t> count_scans(std::span<const std::byte> bytes) {
  const auto byte = [&](std::size_t at) {
    return at < bytes.size() ? std::to_integer<std::size_t>(bytes[at]) : 0;
  };
  std::size_t scans = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    while (at < bytes.size() && byte(at) != 0xFF) ++at;  // compressed data
    while (at < bytes.size() && byte(at) == 0xFF) ++at;
    const std::size_t marker = byte(at++);
    constexpr std::size_t define_huffman = 0xC4, restart = 0xD0, start = 0xD8, end = 0xD9,
                          scan = 0xDA;
    if (marker == end) break;
    if (marker == 0 || (marker >= restart && marker <= start)) continue;  // no segment follows
    if (marker == scan) ++scans;
    const std::size_t after = at + (byte(at) << 8U | byte(at + 1));
    if (marker == define_huffman) {
      std::size_t codes = 0;
      for (std::size_t table = at + 2; table < after; table += 17 + codes) {
        codes = 0;
        for (std::size_t length = 1; length <= 16; ++length) codes += byte(table + length);
        if (codes > 256) return std::nullopt;
      }
    }
    at = std::max(after, at + 2);
  }
  return scans;
}

// The pixels that make one output pixel: coefficient i belongs to pixel first + i, in units of
// 2^-22.
struct Taps {
  std::size_t first = 0;
  std::vector<std::int32_t> coefficients;
};

constexpr int coefficient_bits = 22;

// Keys' cubic convolution kernel at a = −1/2.
double cubic(double x) {
  x = std::fabs(x);
  if (x < 1) return (1.5 * x - 2.5) * x * x + 1;
  if (x < 2) return ((-0.5 * x + 2.5) * x - 4) * x + 2;
  return 0;
}

// Taps of output pixels first … first + count − 1 when `in` pixels become `out`.
std::vector<Taps> bicubic_taps(std::size_t in, std::size_t out, std::size_t first,
                               std::size_t count) {
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double stretch = std::max(scale, 1.0);
  const double support = 2 * stretch;
  std::vector<Taps> taps(count);
  std::vector<double> weights;
  for (std::size_t i = 0; i < count; ++i) {
    const double centre = (static_cast<double>(first + i) + 0.5) * scale;
    const double low = std::max(centre - support + 0.5, 0.0);
    const double high = std::min(centre + support + 0.5, static_cast<double>(in));
    taps[i].first = static_cast<std::size_t>(low);
    const std::size_t end = static_cast<std::size_t>(high);
    weights.clear();
    double sum = 0;
    for (std::size_t pixel = taps[i].first; pixel < end; ++pixel) {
      weights.push_back(cubic((static_cast<double>(pixel) - centre + 0.5) / stretch));
      sum += weights.back();
    }
    for (const double weight : weights) {
      const double unit = weight / sum * (1U << coefficient_bits);
      taps[i].coefficients.push_back(static_cast<std::int32_t>(unit + std::copysign(0.5, unit)));
    }
  }
  return taps;
}

std::uint8_t to_byte(std::int64_t fixed) {
  constexpr std::int64_t half = std::int64_t{1} << (coefficient_bits - 1);
  return static_cast<std::uint8_t>(
      std::clamp<std::int64_t>((fixed + half) >> coefficient_bits, 0, 255));
}

Image cut(const Image& image, std::size_t top, std::size_t left, std::size_t extent) {
  Image square{extent, extent, {}};
  square.pixels.reserve(extent * extent * channels);
  for (std::size_t row = top; row < top + extent; ++row) {
    const auto begin =
        image.pixels.begin() + static_cast<std::ptrdiff_t>((row * image.width + left) * channels);
    square.pixels.insert(square.pixels.end(), begin,
                         begin + static_cast<std::ptrdiff_t>(extent * channels));
  }
  return square;
}

Image mirrored(const Image& image) {
  Image out = image;
  for (std::size_t row = 0; row < image.height; ++row) {
    for (std::size_t column = 0; column < image.width; ++column) {
      const std::size_t from = (row * image.width + column) * channels;
      const std::size_t to = (row * image.width + image.width - 1 - column) * channels;
      std::copy_n(&image.pixels[from], channels, &out.pixels[to]);
    }
  }
  return out;
}

// A square with a side between half and the whole of the shorter one; each call draws another.
Image drawn_crop(const Image& image, std::size_t size, Random& generator) {
  const std::size_t shorter = std::min(image.height, image.width);
  const std::size_t side = shorter - generator.next() % ((shorter + 1) / 2);
  const std::size_t top = generator.next() % (image.height - side + 1);
  const std::size_t left = generator.next() % (image.width - side + 1);
  const bool flip = generator.next() % 2 != 0;
  const Image crop = resized_window(cut(image, top, left, side), size, size, 0, 0, size);
  return flip ? mirrored(crop) : crop;
}

}  // namespace

Result<Image> decode_image(std::span<const std::byte> bytes, const std::string& file) {
  const bool png = starts_with(bytes, "\x89PNG\r\n\x1A\n");
  if (!png && !starts_with(bytes, "\xFF\xD8\xFF")) {
    return Error{file + ": is neither a PNG nor a JPEG"};
  }
  if (bytes.size() > file_limit) {
    return Error{file + ": has more than " + std::to_string(file_limit) + " bytes"};
  }
  const std::string kind = png ? "PNG" : "JPEG";
  const auto* const data = reinterpret_cast<const stbi_uc*>(bytes.data());
  const int length = static_cast<int>(bytes.size());
  const std::optional<std::size_t> scans = png ? 1 : count_scans(bytes);
  if (!scans) return Error{file + ": cannot be decoded; a Huffman table has above 256 codes"};
  Extent extent = png ? png_extent(bytes) : Extent{};
  int width = 0, height = 0, components = 0;
  if (stbi_info_from_memory(data, length, &width, &height, &components) != 0) {
    extent = {static_cast<std::size_t>(height), static_cast<std::size_t>(width)};
  } else if (extent.height * extent.width <= pixel_limit) {
    return Error{file + ": its header is truncated, broken or of no common " + kind};
  }
  const std::size_t size = extent.height * extent.width;
  const std::string extent_text =
      std::to_string(extent.width) + "x" + std::to_string(extent.height) + " pixels";
  if (size > pixel_limit) {
    return Error{file + ": has " + extent_text + ", above the limit of " +
                 std::to_string(pixel_limit) + "; use a smaller copy"};
  }
  // The most that deflate shrinks is 1032 (1 bit a pixel); a JPEG spends a bit or more on 8×8
  // pixels.
  if (size > bytes.size() * (png ? 8 * 1032 : 8 * 64)) {
    return Error{file + ": has " + extent_text + ", more than a " + kind + " of " +
                 std::to_string(bytes.size()) + " bytes can hold; is it truncated?"};
  }
  if (size * *scans > scan_limit) {
    return Error{file + ": has " + std::to_string(*scans) + " scans of " + extent_text +
                 "; is it made to waste time?"};
  }
  const std::unique_ptr<stbi_uc, void (*)(void*)> pixels(
      stbi_load_from_memory(data, length, &width, &height, &components, channels), stbi_image_free);
  if (!pixels) {
    // The reason for an unknown chunk of a PNG begins with its four bytes, zeros past the file's
    // end.
    const std::string reason = stbi_failure_reason();
    const bool tells = !reason.empty() && std::all_of(reason.begin(), reason.end(),
                                                      [](char c) { return c >= ' ' && c <= '~'; });
    return Error{file + ": cannot be decoded; it is truncated, broken or of no common " + kind +
                 (tells ? " (" + reason + ")" : "")};
  }
  if (const auto at = png ? corrupt_chunk(bytes) : std::nullopt) {
    return Error{file + ": the chunk at its byte " + std::to_string(*at) +
                 " does not have the checksum that it states; the file is damaged"};
  }
  return Image{extent.height, extent.width,
               std::vector<std::uint8_t>(pixels.get(), pixels.get() + size * channels)};
}

Image resized_window(const Image& image, std::size_t height, std::size_t width, std::size_t top,
                     std::size_t left, std::size_t extent) {
  const std::vector<Taps> columns = bicubic_taps(image.width, width, left, extent);
  const std::vector<Taps> rows = bicubic_taps(image.height, height, top, extent);
  const std::size_t first_row = rows.front().first;
  const std::size_t end_row = rows.back().first + rows.back().coefficients.size();

  // Rows first_row … end_row − 1 of the image, `extent` pixels wide.
  std::vector<std::uint8_t> narrowed((end_row - first_row) * extent * channels);
  for (std::size_t row = first_row; row < end_row; ++row) {
    for (std::size_t column = 0; column < extent; ++column) {
      const auto& [first, coefficients] = columns[column];
      for (std::size_t channel = 0; channel < channels; ++channel) {
        std::int64_t sum = 0;
        const std::uint8_t* pixel = &image.pixels[(row * image.width + first) * channels + channel];
        for (const std::int32_t coefficient : coefficients) {
          sum += std::int64_t{coefficient} * *pixel;
          pixel += channels;
        }
        narrowed[((row - first_row) * extent + column) * channels + channel] = to_byte(sum);
      }
    }
  }

  Image window{extent, extent, std::vector<std::uint8_t>(extent * extent * channels)};
  const std::size_t stride = extent * channels;
  for (std::size_t row = 0; row < extent; ++row) {
    const auto& [first, coefficients] = rows[row];
    for (std::size_t i = 0; i < stride; ++i) {
      std::int64_t sum = 0;
      for (std::size_t tap = 0; tap < coefficients.size(); ++tap) {
        sum += std::int64_t{coefficients[tap]} * narrowed[(first - first_row + tap) * stride + i];
      }
      window.pixels[row * stride + i] = to_byte(sum);
    }
  }
  return window;
}

Image centre_crop(const Image& image, std::size_t size) {
  const std::size_t shorter = std::min(image.height, image.width);
  const std::size_t scaled = size * 100 / 95;  // ⌊size / 0.95⌋
  const std::size_t height = scaled * image.height / shorter;
  const std::size_t width = scaled * image.width / shorter;
  // Half of what is left over, ties to even.
  const auto offset = [&](std::size_t whole) {
    const std::size_t over = whole - size;
    return over / 2 + (over % 4 == 3 ? 1 : 0);
  };
  return resized_window(image, height, width, offset(height), offset(width), size);
}

Tensor<float> normalised(const Image& image) {
  constexpr std::array<float, channels> mean = {0.485F, 0.456F, 0.406F};
  constexpr std::array<float, channels> deviation = {0.229F, 0.224F, 0.225F};
  Tensor<float> tensor(Shape{1, channels, image.height, image.width});
  for (std::size_t c = 0; c < channels; ++c) {
    for (std::size_t i = 0; i < image.height * image.width; ++i) {
      const float value = static_cast<float>(image.pixels[i * channels + c]) / 255.0F;
      tensor.values[c * image.height * image.width + i] = (value - mean[c]) / deviation[c];
    }
  }
  return tensor;
}

Result<std::vector<Tensor<float>>> load_batch(std::span<const std::string> paths, std::size_t count,
                                              std::size_t size, std::uint64_t seed) {
  if (paths.empty()) return Error{"no images: name at least one PNG or JPEG"};
  if (size == 0) return Error{"images of 0x0 pixels: ask for a size of at least 1"};
  if (paths.size() > count) {
    return Error{std::to_string(paths.size()) + " images for " + std::to_string(count) +
                 (count == 1 ? " place" : " places") +
                 ": name fewer images, or ask for more replicas or a larger batch"};
  }
  std::vector<Tensor<float>> batch(count);
  std::map<std::vector<std::uint8_t>, std::size_t> owners;  // pixels of a crop, index of its image
  // One image at a time: only crops stay in memory.
  for (std::size_t i = 0; i < paths.size(); ++i) {
    const auto bytes = read_file(paths[i]);
    if (!bytes) return Error{bytes.error()};
    const auto image = decode_image(*bytes, paths[i]);
    if (!image) return Error{image.error()};

    const Image centre = centre_crop(*image, size);
    const auto [owner, fresh] = owners.emplace(centre.pixels, i);
    if (!fresh) {
      return Error{paths[i] + ": gives the same picture as " + paths[owner->second] + " at " +
                   std::to_string(size) + "x" + std::to_string(size) + "; name another image"};
    }
    batch[i] = normalised(centre);
    for (std::size_t place = i + paths.size(); place < count; place += paths.size()) {
      Random generator(seed, "crop " + std::to_string(place));
      constexpr int draws = 100;
      for (int draw = 0; draw < draws && batch[place].values.empty(); ++draw) {
        const Image crop = drawn_crop(*image, size, generator);
        if (owners.emplace(crop.pixels, i).second) batch[place] = normalised(crop);
      }
      if (batch[place].values.empty()) {
        return Error{paths[i] + ": has too few different crops for a batch of " +
                     std::to_string(count) + "; name more images"};
      }
    }
  }
  return batch;
}

}  // namespace shardproof
