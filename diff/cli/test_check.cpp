// check and replay as their users run them.
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "diff/cli/test_shell.h"

namespace shardproof::cli {
namespace {

using Catch::Contains;
using nlohmann::json;

// Without the fields that differ from run to run.
json without_seconds(json value) {
  if (value.is_object()) value.erase("seconds");
  for (auto& each : value) {
    if (each.is_structured()) each = without_seconds(each);
  }
  return value;
}

std::vector<std::string> saved_cases() {
  std::vector<std::string> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(SHARDPROOF_SOURCE_DIR "/fixtures/cases")) {
    paths.push_back(entry.path().string());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("check refuses bad input with exit 2 and one line") {
  const std::array<std::array<const char*, 2>, 9> cases{{
      {"check --identity P9",
       "--identity P9: no such identity; shardproof check --list names them"},
      {"check --identity \"\"", "the name is empty"},
      {"check --cases 0", "\"0\" is not a whole number from 1"},
      {"check --cases -3", "not a whole number"},
      {"check --time 0", "\"0\" is not a whole number from 1"},
      {"check --backend tpu", "--backend"},
      {"check --save /proc/none", "--save /proc/none"},
      {"replay", "CASE is required"},
      {"replay /nowhere/at-all.json", "/nowhere/at-all.json"},
  }};
  for (const auto& [arguments, message] : cases) {
    CAPTURE(arguments);
    const Run run = refused(arguments);
    CHECK(run.exit_code == 2);
    CHECK_THAT(run.out, Contains(message));
  }
}

TEST_CASE("check lists every identity with its properties") {
  const json listed = json::parse(shardproof("check --list --json").out);
  std::set<std::string> labels;
  for (const json& identity : listed) {
    labels.insert(identity.at("label"));
    CHECK(identity.at("statement").get<std::string>().size() > 20);
    CHECK(!identity.at("properties").empty());
  }
  for (const char* label : {"A1", "A2", "A3", "A4", "A5", "A6", "P3", "P1a", "P1b", "P1"}) {
    CAPTURE(label);
    CHECK(labels.contains(label));
  }
  // Those with a theorem on what a device computes are tried on the device too.
  for (const json& identity : listed) {
    const std::string label = identity.at("label");
    if (label.size() > 3 || label == "A6") continue;
    std::set<std::string> forms;
    for (const json& property : identity.at("properties")) forms.insert(property.at("form"));
    CAPTURE(label);
    CHECK(forms == std::set<std::string>{"device", "reference"});
  }
}

TEST_CASE("every identity holds, with the same bytes at any number of threads") {
  const Run one = shardproof("check --cases 60 --seed 3 --threads 1 --json");
  const Run two = shardproof("check --cases 60 --seed 3 --threads 2 --json");
  CHECK(one.exit_code == 0);
  CHECK(two.exit_code == 0);
  const json report = json::parse(one.out);
  CHECK(report.at("verdict") == "agrees");
  for (const json& property : report.at("properties")) {
    CAPTURE(property.at("identity"), property.at("property"));
    CHECK(property.at("outcome") == "holds");
    CHECK(property.at("cases") > property.at("discarded"));
    CHECK(!property.at("draws").empty());
  }
  CHECK(without_seconds(report) == without_seconds(json::parse(two.out)));
}

TEST_CASE("check writes JUnit, and says what was tried") {
  const Folder folder;
  const std::string path = folder / "out/check.xml";
  const Run run = shardproof("check --identity P3 --cases 50 --junit " + path);
  CHECK(run.exit_code == 0);
  CHECK_THAT(run.out, Contains("holds") && Contains("replicas") && Contains("lattice"));
  const std::string xml = contents(path);
  CHECK_THAT(xml, Contains("<testsuite name=\"P3\" ") && Contains("failures=\"0\"") &&
                      Contains("nodes on the device (device)"));
}

TEST_CASE("a check that is killed leaves no part of a file") {
  const Folder folder;
  const std::string path = folder / "check.xml";
  for (const char* after : {"0.05", "0.3", "0.9"}) {
    shell("timeout -s KILL " + std::string(after) +
          " " SHARDPROOF_PROGRAM " check --cases 300 --identity P1 --junit " + path +
          " >/dev/null 2>&1");
    if (!std::filesystem::exists(path)) continue;
    CHECK_THAT(contents(path), Contains("</testsuites>"));
  }
}

TEST_CASE("every case that once failed is judged as it was, and agrees on the device here") {
  const std::vector<std::string> paths = saved_cases();
  REQUIRE(paths.size() >= 10);
  for (const std::string& path : paths) {
    CAPTURE(path);
    CHECK(contents(path).size() < 20'000);
    const Run here = shardproof("replay " + path + " --explain");
    CHECK(here.exit_code == 0);
    CHECK_THAT(here.out, Contains("recorded: disagrees") && Contains("here: agrees"));
    CHECK(shardproof("replay " + path + " --explain").out == here.out);
    const Run recorded = shardproof("replay " + path + " --backend recorded --explain --json");
    CHECK(recorded.exit_code == 1);
    CHECK(json::parse(recorded.out).at("verdict") == "disagrees");
    CHECK(shardproof("replay " + path + " --seed 5").exit_code == 0);
  }
}

}  // namespace shardproof::cli
