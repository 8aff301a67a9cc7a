#include "diff/digest.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

namespace shardproof {
namespace {

using nlohmann::json;

// FIPS 180-4, section 4.2.2: the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<std::uint32_t, 64> kRound = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

// Section 6.2.2: one block of 64 bytes.
void compress(std::array<std::uint32_t, 8>& hash, const char* block) {
  std::array<std::uint32_t, 64> w{};
  for (std::size_t t = 0; t < 64; ++t) {
    if (t < 16) {
      for (std::size_t i = 0; i < 4; ++i) {
        w[t] = w[t] << 8 | static_cast<unsigned char>(block[4 * t + i]);
      }
      continue;
    }
    const std::uint32_t early = w[t - 15], late = w[t - 2];
    w[t] = w[t - 16] + w[t - 7] + (std::rotr(early, 7) ^ std::rotr(early, 18) ^ early >> 3) +
           (std::rotr(late, 17) ^ std::rotr(late, 19) ^ late >> 10);
  }
  auto [a, b, c, d, e, f, g, h] = hash;
  for (std::size_t t = 0; t < 64; ++t) {
    const std::uint32_t first = h + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                                ((e & f) ^ (~e & g)) + kRound[t] + w[t];
    const std::uint32_t second =
        (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) + ((a & b) ^ (a & c) ^ (b & c));
    h = g;
    g = f;
    f = e;
    e = d + first;
    d = c;
    c = b;
    b = a;
    a = first + second;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < 8; ++i) hash[i] += added[i];
}

void drop_seconds(json& value) {
  if (value.is_object()) value.erase("seconds");
  if (!value.is_structured()) return;
  for (json& inner : value) drop_seconds(inner);
}

std::string digest_of(json document) {
  document.erase("digest");
  drop_seconds(document);
  return sha256(document.dump(-1, ' ', false, json::error_handler_t::replace));
}

}  // namespace

std::string sha256(std::string_view bytes) {
  std::array<std::uint32_t, 8> hash = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const std::size_t whole = bytes.size() / 64 * 64;
  for (std::size_t at = 0; at < whole; at += 64) compress(hash, bytes.data() + at);
  std::string last(bytes.substr(whole));
  last += '\x80';
  while (last.size() % 64 != 56) last += '\0';
  const std::uint64_t bits = std::uint64_t{bytes.size()} * 8;
  for (int shift = 56; shift >= 0; shift -= 8) last += static_cast<char>(bits >> shift & 0xff);
  for (std::size_t at = 0; at < last.size(); at += 64) compress(hash, last.data() + at);
  std::string text;
  for (const std::uint32_t word : hash) text += fmt::format("{:08x}", word);
  return text;
}

void seal(json& document) { document["digest"] = digest_of(document); }

std::string to_file_text(const json& document) {
  return document.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Result<bool> verify_digest(std::string_view json_text) {
  std::vector<std::set<std::string>> names;  // of the objects that are open
  std::string twice;
  const auto watch = [&](int, json::parse_event_t event, json& value) {
    if (event == json::parse_event_t::object_start) names.emplace_back();
    if (event == json::parse_event_t::object_end) names.pop_back();
    if (event == json::parse_event_t::key) {
      const auto& name = value.get_ref<const std::string&>();
      if (!names.back().insert(name).second) twice = name;
    }
    return true;
  };
  const json document = json::parse(json_text.begin(), json_text.end(), watch, false);
  if (!document.is_object()) {
    return Error{
        "not a report: the file is no JSON object; give the signoff.json that "
        "`signoff --report` wrote"};
  }
  if (!twice.empty()) {
    return Error{
        fmt::format("the field \"{}\" stands twice in one object, so readers may differ on "
                    "what the report says; have it written again",
                    twice)};
  }
  const auto schema = document.find("schema");
  if (schema == document.end() ||
      (*schema != "shardproof/signoff/1" && *schema != "shardproof/signoff-program/1")) {
    return Error{
        "the file's schema is not one that this version knows (shardproof/signoff/1, "
        "shardproof/signoff-program/1); use the version that wrote it"};
  }
  const auto digest = document.find("digest");
  if (digest == document.end() || !digest->is_string()) {
    return Error{"the report has no digest; sign off again with this version to get one"};
  }
  return *digest == digest_of(document);
}

}  // namespace shardproof
