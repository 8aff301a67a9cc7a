#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <catch2/catch.hpp>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>

#include "reference/nets/crc32.h"
#include "reference/nets/photographs.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

const fs::path fixtures = fs::path(SHARDPROOF_SOURCE_DIR) / "fixtures";

std::string image_path(const std::string& name) { return fixtures / "images" / name; }

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE(file);
  return {std::istreambuf_iterator<char>(file), {}};
}

Result<Image> decode(const std::string& text) {
  return decode_image(std::as_bytes(std::span(text)), "file");
}

Image image_of(const fs::path& path) {
  auto image = decode(text_of(path));
  REQUIRE(image);
  return *image;
}

// A function, since Catch's matchers take minutes to compile under sanitizers.
void expect(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    CAPTURE(message, part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::string error_of(const std::string& text) {
  const auto image = decode(text);
  REQUIRE_FALSE(image);
  CHECK(image.error().starts_with("file: "));
  CHECK(std::all_of(image.error().begin(), image.error().end(),
                    [](char c) { return c >= ' ' && c <= '~'; }));
  CHECK(image.error().find("()") == std::string::npos);
  return image.error();
}

std::string big_endian(std::uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xFFU);
  return text;
}

// A PNG of one header chunk, the given data chunk and an end; the checksums are wrong.
std::string png(std::uint32_t width, std::uint32_t height, const std::string& data,
                const std::string& form = std::string("\x08\x02\0\0\0", 5)) {
  const auto chunk = [](const std::string& type, const std::string& body) {
    return big_endian(static_cast<std::uint32_t>(body.size())) + type + body + "sums";
  };
  return "\x89PNG\r\n\x1A\n" + chunk("IHDR", big_endian(width) + big_endian(height) + form) +
         chunk("IDAT", data) + chunk("IEND", "");
}

// A folder that goes with the test.
struct Folder {
  fs::path path = fs::temp_directory_path() / ("shardproof_images_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path / name, std::ios::binary) << text;
    return path / name;
  }
};

// Expected values: fixtures/make_expected_crops.py, with Pillow.
TEST_CASE("centre crops are Pillow's, byte for byte") {
  for (const std::string name :
       {"rgb", "grey", "alpha", "grey_alpha", "palette", "bits", "narrow", "pixel"}) {
    const Image image = image_of(fixtures / "expected" / "crops" / (name + ".png"));
    for (const std::size_t size : {1U, 32U}) {
      CAPTURE(name, size);
      const std::string expected = name + "_" + std::to_string(size) + ".png";
      CHECK(centre_crop(image, size) == image_of(fixtures / "expected" / "crops" / expected));
    }
  }
  for (const auto& [name, size] :
       {std::pair("astronaut", 32U), {"coffee", 64U}, {"chelsea", 96U}}) {
    CAPTURE(name, size);
    const std::string expected = std::string(name) + "_" + std::to_string(size) + ".png";
    CHECK(centre_crop(image_of(image_path(std::string(name) + ".png")), size) ==
          image_of(fixtures / "expected" / "crops" / expected));
  }
}

TEST_CASE("a window of the resized image is cut from the whole") {
  const Image image = image_of(image_path("chelsea.png"));
  const Image whole = resized_window(image, 90, 90, 0, 0, 90);
  const Image window = resized_window(image, 90, 90, 17, 31, 40);
  std::size_t wrong = 0;
  for (std::size_t row = 0; row < 40; ++row) {
    for (std::size_t i = 0; i < 120; ++i) {
      wrong += window.pixels[row * 120 + i] != whole.pixels[(row + 17) * 270 + 93 + i];
    }
  }
  CHECK(wrong == 0);
  CHECK(resized_window(whole, 90, 90, 0, 0, 90) == whole);
}

TEST_CASE("normalised values are timm's to the bit, in planes of red, green, blue") {
  Image image{1, 5, {}};
  for (const int v : {0, 1, 127, 128, 255}) {
    image.pixels.insert(image.pixels.end(), 3, static_cast<std::uint8_t>(v));
  }
  const Tensor<float> tensor = normalised(image);
  CHECK(tensor.shape == Shape{1, 3, 1, 5});
  // From fixtures/make_expected_crops.py.
  constexpr std::array<std::uint32_t, 15> expected = {
      0xC0078BBD, 0xC006732B, 0x3D6939A6, 0x3D97AF32, 0x400FEE1D,   // red
      0xC0024924, 0xC0012A4F, 0x3E402DE4, 0x3E521B48, 0x401B6DB7,   // green
      0xBFE6F809, 0xBFE4BCEA, 0x3ED170BD, 0x3EDA5D3C, 0x4028F5C3};  // blue
  for (std::size_t i = 0; i < 15; ++i) {
    CHECK(std::bit_cast<std::uint32_t>(tensor.values[i]) == expected[i]);
  }
}

TEST_CASE("a JPEG decodes to its size and colours") {
  const Image rocket = image_of(image_path("rocket.jpg"));
  CHECK(rocket.width == 640);
  CHECK(rocket.height == 427);
  double mean = 0;
  for (const std::uint8_t v : rocket.pixels) mean += v;
  // Pillow 11.3.0: numpy.asarray(Image.open("rocket.jpg")).mean(); decoders differ by one step.
  CHECK(mean / static_cast<double>(rocket.pixels.size()) == Approx(65.277).margin(0.01));
}

TEST_CASE("a batch is the centre crops, then crops and flips of them, no two alike") {
  const std::vector<std::string> paths = {image_path("astronaut.png"), image_path("chelsea.png"),
                                          image_path("rocket.jpg")};
  const auto batch = load_batch(paths, 20, 32, 1);
  REQUIRE(batch);
  REQUIRE(batch->size() == 20);
  for (std::size_t i = 0; i < paths.size(); ++i) {
    CHECK((*batch)[i].values == normalised(centre_crop(image_of(paths[i]), 32)).values);
  }
  std::set<std::vector<float>> different;
  for (const auto& input : *batch) {
    CHECK(input.shape == Shape{1, 3, 32, 32});
    different.insert(input.values);
  }
  CHECK(different.size() == 20);

  const auto again = load_batch(paths, 20, 32, 1), other = load_batch(paths, 20, 32, 2);
  const auto fewer = load_batch(paths, 7, 32, 1);
  REQUIRE(again);
  REQUIRE(other);
  REQUIRE(fewer);
  for (std::size_t i = 0; i < 20; ++i) {
    CHECK((*again)[i].values == (*batch)[i].values);
    CHECK(((*other)[i].values == (*batch)[i].values) == (i < 3));
    if (i < 7) CHECK((*fewer)[i].values == (*batch)[i].values);
  }
}

TEST_CASE("small images are enlarged and still give different crops") {
  const std::vector<std::string> paths = {fixtures / "expected" / "crops" / "narrow.png"};
  const auto batch = load_batch(paths, 8, 64, 3);
  REQUIRE(batch);
  CHECK(batch->front().shape == Shape{1, 3, 64, 64});
}

TEST_CASE("a batch that cannot be of different images is refused") {
  const std::string cat = image_path("chelsea.png");
  const auto error = [](const std::vector<std::string>& paths, std::size_t count) {
    const auto batch = load_batch(paths, count, 32, 1);
    REQUIRE_FALSE(batch);
    return batch.error();
  };
  expect(error({}, 2), {"no images"});
  expect(error({cat, cat}, 1), {"2 images for 1 place:"});
  expect(error({cat, cat}, 2), {"gives the same picture as " + cat});
  const std::string pixel = fixtures / "expected" / "crops" / "pixel.png";
  expect(error({pixel}, 2), {"pixel.png: has too few different crops"});
  CHECK_FALSE(load_batch(std::vector{cat}, 1, 0, 1));
}

TEST_CASE("a path that is no picture is named") {
  const Folder folder;
  const auto error = [](const std::string& path) {
    const auto batch = load_batch(std::vector{path}, 1, 32, 1);
    REQUIRE_FALSE(batch);
    expect(batch.error(), {path});
    return batch.error();
  };
  expect(error(folder.path / "missing.png"), {"No such file or directory"});
  expect(error(""), {"an image without a name"});
  expect(error(folder.path), {"not a regular file"});
  expect(error(folder.write("empty.png", "")), {"neither a PNG nor a JPEG"});
  expect(error(folder.write("text.png", "not a picture")), {"neither"});
  const std::string sparse = folder.write("sparse.png", "\x89PNG\r\n\x1A\n");
  fs::resize_file(sparse, std::uintmax_t{1} << 40U);
  expect(error(sparse), {"above the limit of 67108864"});
}

TEST_CASE("a truncated picture is refused at every length") {
  for (const std::string& path :
       {std::string(fixtures / "expected" / "crops" / "rgb_1.png"), image_path("rocket.jpg")}) {
    const std::string whole = text_of(path);
    REQUIRE(decode(whole));
    const std::size_t step = std::max<std::size_t>(1, whole.size() / 97);
    for (std::size_t size = 0; size + 12 < whole.size(); size += step) {
      CAPTURE(path, size);
      (void)error_of(whole.substr(0, size));
    }
  }
}

TEST_CASE("a PNG of which a chunk does not have its checksum is refused") {
  const std::string whole = text_of(fixtures / "expected" / "crops" / "rgb_32.png");
  REQUIRE(decode(whole));
  std::string header = whole, end = whole;
  header[29] ^= 1;             // the last byte but three of the first chunk
  end[whole.size() - 1] ^= 1;  // the last of the last one
  expect(error_of(header), {"chunk at its byte 8 does not have the checksum"});
  expect(error_of(end),
         {"chunk at its byte " + std::to_string(whole.size() - 12) + " does not have"});
}

TEST_CASE("the checksum of nine digits is CRC-32's, whole or in parts") {
  const std::string digits = "123456789";
  const auto bytes = std::as_bytes(std::span(digits));
  CHECK(crc32(bytes) == 0xCBF43926);
  CHECK(crc32(bytes.subspan(4), crc32(bytes.first(4))) == 0xCBF43926);
}

TEST_CASE("absurd sizes, scans and compressed bombs are refused before they cost") {
  expect(error_of(png(60000, 60000, "")), {"60000x60000 pixels, above the limit"});
  expect(error_of(png(0x7FFFFFFF, 1, "")), {"2147483647x1 pixels, above the limit"});
  expect(error_of(png(0, 5, "")), {"its header is"});
  expect(error_of(png(5, 5, "")), {"cannot be decoded"});
  expect(error_of(png(5000, 5000, "\x78\x9C")), {"more than a PNG of 59 bytes can hold"});

  // The photograph with its first scan's header put in a thousand times over.
  std::string jpeg = text_of(image_path("rocket.jpg"));
  const std::size_t scan = jpeg.find("\xFF\xDA");
  REQUIRE(scan != std::string::npos);
  const std::string header = jpeg.substr(scan, 14);
  std::string headers;
  for (int i = 0; i < 5000; ++i) headers += header;
  jpeg.insert(scan, headers);
  expect(error_of(jpeg), {"5001 scans of 640x427"});

  // The first Huffman table with as many codes as 16 bytes can count.
  std::string tables = text_of(image_path("rocket.jpg"));
  const std::size_t table = tables.find("\xFF\xC4");
  REQUIRE(table != std::string::npos);
  tables.replace(table + 5, 16, 16, '\xFF');
  expect(error_of(tables), {"Huffman"});
  expect(error_of(text_of(image_path("rocket.jpg")).substr(0, 400)), {"JPEG"});
}

}  // namespace
}  // namespace shardproof
