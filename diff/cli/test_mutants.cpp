// mutants as its users run it.
#include <nlohmann/json.hpp>

#include "diff/cli/test_shell.h"

namespace shardproof::cli {

using Catch::Contains;
using nlohmann::json;

TEST_CASE(
    "mutants catches what is wrong, leaves a control alone, and catches it without its contract") {
  const Run ran =
      shardproof("mutants variance-unbiased reduce-premultiplied --control-cases 300 --json");
  CHECK(ran.exit_code == 0);
  const json score = json::parse(ran.out);
  CHECK(score["schema"] == "shardproof/mutants/1");
  CHECK(score["verdict"] == "agrees");
  CHECK(score["mutants"] == 2);
  CHECK(score["caught"] == 2);
  CHECK(score["controls"] == 1);
  REQUIRE(score["entries"].size() == 3);
  CHECK(score["entries"][0]["by"]["numbers"] <= 16);
  CHECK(score["entries"][2]["contract_kept"] == false);
}

TEST_CASE("mutants lists what it has, and refuses what it has not") {
  const Run listed = shardproof("mutants --list");
  CHECK(listed.exit_code == 0);
  CHECK_THAT(listed.out,
             Contains("mutant   variance-unbiased: divides by m − 1 (pytorch/pytorch#40600)"));
  CHECK_THAT(listed.out, Contains("control  sums-compensated"));
  const Run unknown = refused("mutants variance-unbiased no-such-thing");
  CHECK(unknown.exit_code == 2);
  CHECK_THAT(unknown.out, Contains("no-such-thing: no such mutant"));
  CHECK(refused("mutants --cases 0").exit_code == 2);
  CHECK(refused("mutants --json --markdown").exit_code == 2);
}

TEST_CASE("mutants that are given too few cases survive, with exit 1") {
  const Run ran = shardproof("mutants pool-with-a-float16-count --cases 3");
  CHECK(ran.exit_code == 1);
  CHECK_THAT(ran.out, Contains("SURVIVES  pool-with-a-float16-count"));
}

}  // namespace shardproof::cli
