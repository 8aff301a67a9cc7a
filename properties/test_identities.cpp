// Every identity's reference properties on random cases, the same ones on every run.
#include <catch2/catch.hpp>
#include <filesystem>
#include <set>
#include <stdexcept>

#include "properties/identity.h"

namespace shardproof {
struct Trial {};
namespace {

std::string first_failure(const Identity& identity, Property::Form form, std::size_t cases) {
  Trial trial;
  for (const Property& property : identity.properties) {
    if (property.form != form) continue;
    std::size_t tried = 0;
    for (std::size_t i = 0; i < std::max<std::size_t>(cases / property.one_in, 1); ++i) {
      Draws draws(i, static_cast<int>(i % 101));
      try {
        property.holds(draws, trial);
        ++tried;
      } catch (const Discarded&) {
      } catch (const std::exception& e) {
        std::string record;
        for (const Drawn& drawn : draws.record())
          record += " " + drawn.name + " " + std::to_string(drawn.value) + drawn.label;
        return property.name + ": " + e.what() + record;
      }
    }
    if (tried == 0) return property.name + ": no case";
  }
  return "";
}

const Identity& identity(const std::string& label) {
  for (const Identity& identity : all_identities()) {
    if (identity.label == label) return identity;
  }
  throw std::invalid_argument("no identity is called " + label);
}

// The identity holds on so many cases of each of its reference properties, fewer of the costly
// ones.
void check(const std::string& label, std::size_t cases) {
  CHECK(first_failure(identity(label), Property::Form::reference, cases) == "");
}

// Its first property holds on the case of that record.
void check_case(const std::string& label, std::vector<Drawn> record) {
  Draws draws(std::move(record));
  Trial trial;
  CHECK_NOTHROW(identity(label).properties.front().holds(draws, trial));
}

TEST_CASE("A1: owned programs reproduce the whole program") { check("A1", 20'000); }
TEST_CASE("A2: slots that an owner does not run may start with anything") { check("A2", 800); }
TEST_CASE("A3: owners write disjoint coordinates and agree on shared slots") { check("A3", 1000); }
TEST_CASE("A4: ownership holds at its corners") { check("A4", 1400); }
TEST_CASE("A5: any map to owners keeps the identity") { check("A5", 300); }
TEST_CASE("A6: reads across coordinates are told, mended, and their harm decided") {
  check("A6", 12'000);
}
TEST_CASE("P3: batch_shard commutes with lifts of maps of one example") { check("P3", 8000); }
TEST_CASE("P1a: normalise on given statistics commutes with batch_shard") { check("P1a", 1200); }
TEST_CASE("P1b: the replicas' moments give the global ones") { check("P1b", 400); }
TEST_CASE("P1: the sync-BN site is the shard of batch BN") { check("P1", 2000); }
TEST_CASE("per-replica BN is not batch BN") { check("per-replica-witness", 400); }
TEST_CASE("fast tiles, certified and float64 evaluation enclose what a node means") {
  check("two-routes", 800);
}
// At 0.6 s or more a case, each of the kinds once.
TEST_CASE("whole net: sync-BN MobileNetV4-Conv-M is the shard of the batch network") {
  for (std::uint64_t replicas = 0; replicas < 4; ++replicas) {
    check_case(
        "whole-net",
        {{"replicas", replicas, ""}, {"examples of a replica", 2, ""}, {"seed", replicas, ""}});
  }
}
TEST_CASE("a swap of the weights of two rows of the same shapes changes the network's logits") {
  for (std::uint64_t rows = 0; rows < 9; ++rows) {
    check_case("same-shape-rows", {{"rows", rows, ""}, {"seed", rows, ""}});
  }
}

TEST_CASE("an identity goes by its file's name, and by a label of its own") {
  std::set<std::string> labels;
  for (const Identity& identity : all_identities()) {
    CAPTURE(identity.name);
    std::string file = identity.name;
    std::replace(file.begin(), file.end(), '-', '_');
    CHECK(std::filesystem::exists(SHARDPROOF_SOURCE_DIR "/properties/identities/" + file + ".cpp"));
    CHECK(labels.insert(identity.label).second);
    std::set<std::string> names;
    for (const Property& property : identity.properties) CHECK(names.insert(property.name).second);
    CHECK(names.size() > 0);
  }
}

Identity of(std::function<void(Draws&, Trial&)> holds) {
  return {"an-identity", "I", "", "", {{.name = "property", .holds = std::move(holds)}}};
}
std::string failure(std::function<void(Draws&, Trial&)> holds) {
  return first_failure(of(std::move(holds)), Property::Form::reference, 200);
}

TEST_CASE("a property that throws, or discards every case, is not one that holds") {
  CHECK(failure([](Draws&, Trial&) {}) == "");
  CHECK(failure([](Draws&, Trial&) { throw std::runtime_error("broken"); }) != "");
  CHECK(failure([](Draws&, Trial&) { discard_unless(false); }) != "");
}

// Hidden; CMake runs it by name and expects a failure.
TEST_CASE("a false identity", "[.]") {
  CHECK(failure([](Draws&, Trial&) { claim(false); }) == "");
}

}  // namespace
}  // namespace shardproof
