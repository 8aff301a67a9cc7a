// A user's own kernels, from the command line: signed off, compared with what they replace, checked
// and replayed.
#include <nlohmann/json.hpp>

#include "diff/cli/test_shell.h"

namespace shardproof::cli {

using Catch::Contains;
using nlohmann::json;

namespace {

const std::string kSmall = "signoff --size 32 --classes 10 --replicas 2 --batch 2 --candidate ";
const std::string kWrong = CANDIDATES "wrong_example.so",
                  kCorrect = CANDIDATES "correct_example.so";

}  // namespace

TEST_CASE("a wrong candidate's report names a small case that replays on it, and not on another") {
  const Folder folder;
  const Run run = shardproof(kSmall + kWrong + " --report " + folder.path.string());
  CHECK(run.exit_code == 1);
  const json report = json::parse(contents(folder / "signoff.json"));
  const auto again = report["replay"].get<std::string>();
  REQUIRE_THAT(again, Contains("failing-case.json --explain --candidate " + kWrong));
  CHECK_THAT(run.out, Contains("again: " + again));
  CHECK_THAT(contents(folder / "index.html"), Contains("failing-case.json"));
  const std::string arguments = again.substr(again.find(" replay "));
  const Run replayed = shardproof(arguments);
  CHECK(replayed.exit_code == 1);
  CHECK_THAT(replayed.out, Contains("got         0.333333313"));
  CHECK(shardproof("replay " + (folder / "failing-case.json") + " --candidate " + kCorrect)
            .exit_code == 0);
}

TEST_CASE("a candidate that loses precision against its baseline disagrees, with numbers") {
  const Folder folder;
  const Run run =
      shardproof(kSmall + kCorrect + " --baseline builtin --report " + folder.path.string());
  CHECK(run.exit_code == 1);
  CHECK_THAT(run.out, Contains("lose precision, more than 2 times its error"));
  const json report = json::parse(contents(folder / "signoff.json"));
  CHECK(report["verdict"] == "disagrees");
  CHECK(report["baseline"]["regression"] == true);
  CHECK(report["baseline"]["verdict"] == "agrees");
  CHECK(report["baseline"]["speed"].size() >= 9);
  CHECK(shardproof(kSmall + kCorrect + " --baseline " + kCorrect).exit_code == 0);
  CHECK(shardproof(kSmall + kCorrect + " --baseline builtin --regression 1000").exit_code == 0);
  CHECK_THAT(refused(kSmall + kCorrect + " --baseline nowhere.so").out,
             Contains("--baseline: candidate nowhere.so cannot be read"));
}

TEST_CASE("a baseline that does not end leaves no verdict, and none goes with a program") {
  const Run run = shardproof(kSmall + kCorrect + " --baseline " CANDIDATES "status.so");
  CHECK(run.exit_code == 4);
  CHECK_THAT(run.out,
             Contains("the baseline did not end, so nothing is said of a loss: candidate"));
  CHECK(refused("signoff --program adamw --baseline builtin").exit_code == 2);
  CHECK(refused(kSmall + kCorrect + " --regression 3").exit_code == 2);
}

TEST_CASE("a command that is told can be given to a shell as it stands") {
  const Folder folder;
  const std::string spaced = folder / "my 'own' report";
  const Run run = shardproof(kSmall + kWrong + " --report \"" + spaced + "\"");
  CHECK(run.exit_code == 1);
  const json report = json::parse(contents(spaced + "/signoff.json"));
  CHECK(shell(report["replay"].get<std::string>()).exit_code == 1);
}

TEST_CASE("check tries a candidate on random cases, and what it saves replays on it") {
  const Folder folder;
  const Run run = shardproof("check --identity P1 --cases 50 --save " + folder.path.string() +
                             " --candidate " + kWrong);
  CHECK(run.exit_code == 1);
  const std::size_t at = run.out.find("again: ");
  REQUIRE(at != std::string::npos);
  const std::string line = run.out.substr(at, run.out.find('\n', at) - at);
  CHECK(shardproof(line.substr(line.find(" replay "))).exit_code == 1);
  CHECK(shardproof("check --identity P1 --cases 50 --candidate " + kCorrect).exit_code == 0);
  CHECK(refused("check --candidate nowhere.so").exit_code == 2);
}

}  // namespace shardproof::cli
