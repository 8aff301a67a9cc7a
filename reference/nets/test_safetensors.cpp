#include <sys/stat.h>
#include <unistd.h>

#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>

#include "reference/nets/safetensors.h"

namespace shardproof {
namespace {

namespace fs = std::filesystem;

std::string file_text(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  std::string text(sizeof size, '\0');
  std::memcpy(text.data(), &size, sizeof size);
  return text + header + data;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Result<StoredTensors> parse(const std::string& text) {
  return parse_safetensors(std::as_bytes(std::span(text)), "file");
}

// A function, since Catch's matchers take minutes to compile under sanitizers.
void expect(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    CAPTURE(message, part);
    CHECK(message.find(part) != std::string::npos);
  }
}

std::string error_of(const std::string& text) {
  const auto parsed = parse(text);
  REQUIRE_FALSE(parsed);
  CHECK(parsed.error().starts_with("file: "));
  CHECK(parsed.error().find('\n') == std::string::npos);
  CHECK(parsed.error().size() < 400);
  return parsed.error();
}

// The error of a file whose header is as given and whose data are `data` zero bytes.
std::string header_error(const std::string& header, std::size_t data = 0) {
  return error_of(file_text(header, std::string(data, '\0')));
}

std::string entry(const std::string& shape, std::size_t begin, std::size_t end,
                  const std::string& dtype = "F32") {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":[)" +
         std::to_string(begin) + "," + std::to_string(end) + "]}";
}

// A folder that goes with the test.
struct Folder {
  fs::path path =
      fs::temp_directory_path() / ("shardproof_safetensors_" + std::to_string(::getpid()));
  Folder() { fs::create_directories(path); }
  ~Folder() { fs::remove_all(path); }
};

TEST_CASE("a rank maps to the shape that the network gives such a tensor") {
  const std::string header =
      "{\"scalar\":" + entry("[]", 0, 4) + ",\"vector\":" + entry("[2]", 4, 12) +
      ",\"matrix\":" + entry("[1,3]", 12, 24) + ",\"cube\":" + entry("[1,1,1]", 24, 28) +
      ",\"filter\":" + entry("[1,2,1,1]", 28, 36) + ",\"none\":" + entry("[0,3]", 36, 36) +
      ",\"__metadata__\":{\"format\":\"pt\"}}   ";
  const auto tensors = parse(file_text(header, bytes_of<float>({1, 2, 3, 4, 5, 6, 7, 8, 9})));
  REQUIRE(tensors);
  CHECK(tensors->size() == 6);
  CHECK(tensors->at("scalar").tensor.shape == Shape{1, 1, 1, 1});
  CHECK(tensors->at("vector").tensor.shape == Shape{1, 2, 1, 1});
  CHECK(tensors->at("vector").tensor.values == std::vector<float>{2, 3});
  CHECK(tensors->at("matrix").tensor.shape == Shape{1, 1, 1, 3});
  CHECK(tensors->at("cube").tensor.shape == Shape{1, 1, 1, 1});
  CHECK(tensors->at("filter").tensor.shape == Shape{1, 2, 1, 1});
  CHECK(tensors->at("filter").dimensions == std::vector<std::size_t>{1, 2, 1, 1});
  CHECK(tensors->at("filter").tensor.values == std::vector<float>{8, 9});
  CHECK(tensors->at("none").tensor.values.empty());
}

TEST_CASE("every BF16 and F16 number widens exactly") {
  std::vector<std::uint16_t> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<std::uint16_t>(i);
  const std::string header = "{\"b\":" + entry("[65536]", 0, 131072, "BF16") +
                             ",\"h\":" + entry("[65536]", 131072, 262144, "F16") + "}";
  const auto tensors = parse(file_text(header, bytes_of(all) + bytes_of(all)));
  REQUIRE(tensors);
  const std::vector<float>& b = tensors->at("b").tensor.values;
  const std::vector<float>& h = tensors->at("h").tensor.values;
  std::size_t wrong = 0;
  for (std::uint32_t i = 0; i < 65536; ++i) {
    wrong += std::bit_cast<std::uint32_t>(b[i]) != i << 16U;
    // IEEE 754 binary16: sign, five bits of exponent biased by 15, ten bits of fraction.
    const int exponent = static_cast<int>(i >> 10U & 31U), fraction = static_cast<int>(i & 1023U);
    double expected =
        exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
    if (exponent == 31) {
      expected = fraction == 0 ? std::numeric_limits<double>::infinity() : std::nan("");
    }
    wrong +=
        std::isnan(expected) ? !std::isnan(h[i]) : static_cast<double>(std::fabs(h[i])) != expected;
    wrong += std::signbit(h[i]) != ((i >> 15U) != 0);
  }
  CHECK(wrong == 0);
}

TEST_CASE("what is written is read back bit for bit, and the same tensors give the same bytes") {
  const Folder folder;
  const std::string path = folder.path / "weights.safetensors";
  StoredTensors tensors;
  tensors["W"] = {{2, 1, 1, 2}, Tensor<float>({2, 1, 1, 2}, {1.5F, -0.0F, 1e-45F, 3e38F})};
  tensors["g"] = {{3}, Tensor<float>({1, 3, 1, 1}, {1, 2, 3})};
  tensors["empty"] = {{0}, Tensor<float>(Shape{1, 0, 1, 1})};
  REQUIRE(write_safetensors(path, tensors));
  const auto read = read_safetensors(path);
  REQUIRE(read);
  CHECK(read->size() == 3);
  for (const auto& [name, stored] : tensors) {
    CHECK(read->at(name).dimensions == stored.dimensions);
    CHECK(read->at(name).tensor.shape == stored.tensor.shape);
    CHECK(bytes_of(read->at(name).tensor.values) == bytes_of(stored.tensor.values));
  }
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  CHECK(bytes.size() % 8 == 4);  // the header is padded to 8; seven numbers follow
  REQUIRE(write_safetensors(path, *read));
  std::ifstream again(path, std::ios::binary);
  CHECK(bytes == std::string((std::istreambuf_iterator<char>(again)), {}));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
}

TEST_CASE("writing says why it cannot and leaves nothing behind") {
  const Folder folder;
  const auto absent = write_safetensors(folder.path / "no" / "w", {});
  REQUIRE_FALSE(absent);
  expect(absent.error(), {"no/w", "No such file"});
  fs::create_directory(folder.path / "taken");
  REQUIRE_FALSE(write_safetensors(folder.path / "taken", {}));
  CHECK(std::distance(fs::directory_iterator(folder.path), {}) == 1);
  const StoredTensors misfit = {{"W", {{3}, Tensor<float>(Shape{1, 2, 1, 1})}}};
  CHECK_THROWS_AS(write_safetensors(folder.path / "w", misfit), std::invalid_argument);
}

TEST_CASE("paths that are no file are named") {
  const Folder folder;
  const auto missing = read_safetensors(folder.path / "missing");
  REQUIRE_FALSE(missing);
  expect(missing.error(), {"missing: No such file"});
  const auto directory = read_safetensors(folder.path);
  REQUIRE_FALSE(directory);
  expect(directory.error(), {"not a regular file"});
  const fs::path pipe = folder.path / "pipe";
  REQUIRE(::mkfifo(pipe.c_str(), 0600) == 0);
  REQUIRE_FALSE(read_safetensors(pipe));
  const fs::path empty = folder.path / "empty";
  std::ofstream(empty).flush();
  const auto nothing = read_safetensors(empty);
  REQUIRE_FALSE(nothing);
  expect(nothing.error(), {"has 0 bytes"});
}

TEST_CASE("a sparse file that claims more than the limits costs neither memory nor time") {
  const Folder folder;
  const fs::path path = folder.path / "huge";
  const std::size_t data = std::size_t{1} << 40U;
  const std::string head = file_text("{\"W\":" + entry("[274877906944]", 0, data) + "}", "");
  std::ofstream(path, std::ios::binary) << head;
  fs::resize_file(path, head.size() + data);
  const auto read = read_safetensors(path);
  REQUIRE_FALSE(read);
  expect(read.error(), {"\"W\"", "above 268435456 numbers"});
}

TEST_CASE("a header length past the end or above the format's limit is refused") {
  expect(error_of(""), {"at least 8"});
  expect(error_of("1234567"), {"has 7 bytes"});
  std::string text = file_text("{}", "");
  text[0] = 3;
  expect(error_of(text), {"header of 3 bytes, but only 2 follow"});
  text[7] = '\x7F';
  expect(error_of(text), {"the 100,000,000 bytes"});
  std::string most(8, '\xFF');
  expect(error_of(most), {"is not a safetensors file"});
  expect(error_of(std::string(8, '\0')), {"does not begin with {"});
}

TEST_CASE("a truncated file is refused at every length") {
  const std::string whole =
      file_text("{\"a\":" + entry("[2]", 0, 8) + ",\"b\":" + entry("[1]", 8, 12) + "}",
                bytes_of<float>({1, 2, 3}));
  REQUIRE(parse(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    CAPTURE(size);
    CHECK_FALSE(parse(whole.substr(0, size)));
  }
  expect(error_of(whole + "x"), {"end at byte 12 of the data, the file at 13"});
}

TEST_CASE("ranges that overlap, leave a gap, run backwards or miss their size name the tensor") {
  const auto two = [](const std::string& a, const std::string& b, std::size_t data) {
    return header_error("{\"a\":" + a + ",\"b\":" + b + "}", data);
  };
  expect(two(entry("[2]", 0, 8), entry("[2]", 4, 12), 12), {"\"b\"", "inside the tensor before"});
  expect(two(entry("[2]", 0, 8), entry("[2]", 0, 8), 8), {"inside the tensor before"});
  expect(two(entry("[2]", 0, 8), entry("[1]", 12, 16), 16), {"\"b\"", "gap"});
  expect(two(entry("[1]", 4, 8), entry("[1]", 8, 12), 12), {"\"a\"", "gap"});
  expect(header_error("{\"a\":" + entry("[2]", 8, 0) + "}", 8), {"\"a\"", "before they begin"});
  expect(header_error("{\"a\":" + entry("[2]", 0, 8) + "}", 4), {"\"a\"", "past the 4 bytes"});
  expect(header_error("{\"a\":" + entry("[2]", 0, 4) + "}", 4),
         {"\"a\"", "needs 8 bytes, data_offsets give 4"});
  CHECK(parse(file_text("{\"a\":" + entry("[1]", 4, 8) + ",\"b\":" + entry("[1]", 0, 4) + "}",
                        bytes_of<float>({1, 2}))));
}

TEST_CASE("shapes that overflow are refused") {
  const std::string big = "1152921504606846976";  // 2^60
  for (const std::string& shape : {"[" + big + "]", "[" + big + "," + big + "]", "[" + big + ",16]",
                                   std::string("[4294967296,4294967296,4294967296,4294967296]"),
                                   std::string("[18446744073709551615,2]")}) {
    expect(header_error("{\"a\":" + entry(shape, 0, 4) + "}", 4),
           {"\"a\"", "above 268435456 numbers"});
  }
  expect(header_error("{\"a\":" + entry("[0," + big + "]", 0, 4) + "}", 4), {"needs 0"});
  expect(header_error("{\"a\":" + entry("[18446744073709551616]", 0, 4) + "}", 4),
         {"\"a\"", "no 64-bit whole number"});
  expect(header_error("{\"a\":" + entry("[1e999]", 0, 4) + "}", 4), {"not valid JSON"});
  expect(header_error("{\"a\":" + entry("[1,1,1,1,1]", 0, 4) + "}", 4), {"\"a\"", "more than 4"});
  expect(header_error("{\"a\":" + entry("[-1]", 0, 4) + "}", 4), {"negative"});
  expect(header_error("{\"a\":" + entry("[1.0]", 0, 4) + "}", 4), {"whole number"});
}

TEST_CASE("a dtype that does not widen exactly names tensor and dtype") {
  for (const std::string dtype : {"F64", "I8", "BOOL", "F8_E4M3", ""}) {
    expect(header_error("{\"a\":" + entry("[1]", 0, 4, dtype) + "}", 4),
           {"tensor \"a\"", "\"" + dtype + "\"", "F32"});
  }
}

TEST_CASE("a header of another form is refused where it departs") {
  expect(header_error("[]"), {"does not begin with {"});
  expect(header_error(" {}"), {"does not begin with {"});
  expect(header_error("{}{}"), {"not valid JSON"});
  expect(header_error(std::string("{}\0x", 4)), {"not valid JSON at its byte 3"});
  expect(header_error("{"), {"not valid JSON"});
  expect(header_error("{\"a\xFF\":1}"), {"not valid JSON"});
  expect(header_error("{\"a\":1}"), {"\"a\"", "a number"});
  expect(header_error("{\"a\":null}"), {"\"a\"", "null"});
  expect(header_error("{\"a\":[]}"), {"\"a\"", "a list"});
  expect(header_error("{\"a\":{}}"), {"\"a\"", "no dtype"});
  expect(header_error(R"({"a":{"dtype":"F32"}})"), {"no shape"});
  expect(header_error(R"({"a":{"dtype":"F32","shape":[]}})"), {"data_offsets"});
  expect(header_error(R"({"a":{"dtype":"F32","shape":[],"data_offsets":[0]}})"), {"two numbers"});
  expect(header_error(R"({"a":{"data_offsets":[0,0,0]}})"), {"more than 2"});
  expect(header_error(R"({"a":{"dtype":true}})"), {"true or false in its dtype"});
  expect(header_error(R"({"a":{"shape":{}}})"), {"an object in its shape"});
  expect(header_error(R"({"a":{"shape":[[1]]}})"), {"a list in its shape"});
  expect(header_error(R"({"a":{"size":[1]}})"), {"unknown field \"size\""});
  expect(header_error(R"({"a":{"dtype":"F32","dtype":"F32"}})"), {"\"dtype\" stands"});
  expect(header_error("{\"a\":" + entry("[1]", 0, 4) + ",\"a\":" + entry("[1]", 4, 8) + "}", 8),
         {"\"a\"", "stands twice"});
  expect(header_error(R"({"__metadata__":{"a":1}})"), {"__metadata__"});
  expect(header_error(R"({"__metadata__":{"a":"b"},"__metadata__":{}})"), {"twice"});
}

TEST_CASE("deep nesting, long names and many tensors stop early") {
  expect(header_error("{\"a\":" + std::string(10'000'000, '[')), {"\"a\""});
  std::string nested;
  for (int i = 0; i < 1'000'000; ++i) nested += "{\"a\":";
  expect(header_error(nested), {"unknown field \"a\""});
  expect(header_error("{\"" + std::string(1'000'000, 'n') + "\":1}"), {"nnn…\""});
  std::string many = "{";
  for (int i = 0; i <= 65536; ++i) {
    many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":" + entry("[0]", 0, 0);
  }
  expect(header_error(many + "}"), {"more than 65536 tensors"});
}

TEST_CASE("a name is shown on one line and never cut inside a UTF-8 sequence") {
  CHECK(quoted_name("u4qg") == "\"u4qg\"");
  CHECK(quoted_name("a\nb\x7F") == "\"a?b?\"");
  CHECK(quoted_name(std::string(59, 'x') + "γγ") == "\"" + std::string(59, 'x') + "…\"");
}

}  // namespace
}  // namespace shardproof
