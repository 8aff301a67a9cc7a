#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include "diff/digest.h"

namespace shardproof {
namespace {

using nlohmann::json;

// FIPS 180-4 examples (NIST, SHA256.pdf), and sha256sum of coreutils for the others.
TEST_CASE("SHA-256 gives the published digests") {
  CHECK(sha256("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  CHECK(sha256("abc") == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  CHECK(sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq") ==
        "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  CHECK(sha256(std::string(1000000, 'a')) ==
        "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

json sealed() {
  json document = {{"schema", "shardproof/signoff/1"},
                   {"verdict", "agrees"},
                   {"seconds", 1.5},
                   {"comparisons", {{{"node", "relu"}, {"seconds", 2}}}}};
  seal(document);
  return document;
}

TEST_CASE("a sealed report verifies, whatever its seconds, spaces and order") {
  json document = sealed();
  CHECK(*verify_digest(to_file_text(document)));
  document["seconds"] = 7;
  document["comparisons"][0]["seconds"] = 8;
  CHECK(*verify_digest(document.dump()));
}

TEST_CASE("a changed, added or dropped field does not verify") {
  json document = sealed();
  document["verdict"] = "disagrees";
  CHECK_FALSE(*verify_digest(document.dump()));
  document = sealed();
  document["comparisons"][0]["node"] = "add";
  CHECK_FALSE(*verify_digest(document.dump()));
  document = sealed();
  document["more"] = 1;
  CHECK_FALSE(*verify_digest(document.dump()));
  document = sealed();
  document.erase("comparisons");
  CHECK_FALSE(*verify_digest(document.dump()));
}

TEST_CASE("bytes that are no UTF-8 do not break the seal") {
  json document = sealed();
  document["device"] = "a\xff";
  seal(document);
  CHECK(*verify_digest(to_file_text(document)));
}

TEST_CASE("what is no report of this version is an error") {
  CHECK_FALSE(verify_digest("{"));
  CHECK_FALSE(verify_digest("[]"));
  CHECK_FALSE(verify_digest(R"({"schema": "shardproof/signoff/1"})"));
  CHECK_FALSE(verify_digest(R"({"schema": "shardproof/signoff/2", "digest": ""})"));
  std::string twice = sealed().dump();
  twice.insert(1, R"("verdict":"disagrees",)");
  CHECK_FALSE(verify_digest(twice));
}

}  // namespace
}  // namespace shardproof
