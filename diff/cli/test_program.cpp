// The program as its users run it: exit codes, one line for bad input, reports.
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "diff/cli/command.h"
#include "diff/cli/test_shell.h"

namespace shardproof::cli {
namespace {

using Catch::Contains;

const std::string kSmall = "--size 32 --classes 5 --threads 1 ";

}  // namespace

TEST_CASE("bad input is refused with exit 2 and one line that says what and where") {
  const std::array<std::array<const char*, 2>, 23> cases{{
      {"", "subcommand is required"},
      {"bogus", "\"bogus\" is no command"},
      {"signoff --candidate /nowhere/kernels.so", "--candidate /nowhere/kernels.so cannot be read"},
      {"signoff --verify /nowhere/signoff.json", "--verify /nowhere/signoff.json: cannot be read"},
      {"signoff --bogus 1", "not expected: --bogus 1; see shardproof signoff --help"},
      {"signoff --size ''", "--size: \"\" is not a whole number"},
      {"signoff --size 1000000000", "a multiple of 32, from 32 to 4096"},
      {"signoff --size 48", "a multiple of 32"},
      {"run --classes 1000000000", "--classes 1000000000: give 1 to 1000000"},
      {"run --size 4096 --batch 100000", "with 1000 classes take about"},
      {"signoff --replicas 0", "--replicas: \"0\" is not a whole number from 1 to 1000000"},
      {"signoff --batch 010", "--batch: \"010\" is not a whole number"},
      {"run --epsilon ''", "--epsilon: \"\" is not a positive float32 number"},
      {"run --epsilon 1e-60", "--epsilon: \"1e-60\" is not a positive"},
      {"run --threads 0", "--threads: \"0\""},
      {"signoff --net resnet", "--net \"resnet\": no such network"},
      {"signoff --weights ''", "--weights: the name is empty"},
      {"signoff --image ''", "--image: the name is empty"},
      {"signoff --report ''", "--report: the name is empty"},
      {"run --save-weights ''", "--save-weights: the name is empty"},
      {"run --weights /nowhere", "--weights /nowhere: No such file or directory"},
      {"run --image /nowhere", "/nowhere: No such file or directory"},
      {"signoff --size 32 --report /proc/nowhere", "--report /proc/nowhere: No such file"},
  }};
  for (const auto& [arguments, line] : cases) {
    CAPTURE(arguments);
    const Run run = refused(arguments);
    CHECK(run.exit_code == bad_input);
    CHECK_THAT(run.out, Contains(line));
  }
}

TEST_CASE("fewer than three images are refused without a verdict, before anything runs") {
  const Run run = refused("signoff --replicas 2 --batch 1 " + kSmall);
  CHECK(run.exit_code == no_verdict);
  CHECK_THAT(run.out, Contains("2 numbers a channel"));
}

TEST_CASE("weights that run wrote are signed off, and the report names them and the images") {
  const Folder folder;
  const std::string weights = folder / "weights.safetensors";
  REQUIRE(shardproof("run --batch 3 --save-weights " + weights + " " + kSmall).exit_code == agrees);
  const Run run = shardproof("signoff --replicas 1 --batch 3 --json --weights " + weights +
                             " --report " + (folder / "report") + " " + kSmall);
  CHECK(run.exit_code == agrees);
  const nlohmann::json report = nlohmann::json::parse(run.out);
  CHECK(report["verdict"] == "agrees");
  CHECK(report["inputs"]["weights"]["path"] == weights);
  CHECK(report["inputs"]["weights"]["bytes"] == std::filesystem::file_size(weights));
  CHECK(report["inputs"]["images"].size() == 3);
  CHECK(report["inputs"]["images"][2]["crc32"] == "c5ecbc0b");  // coffee.png
  CHECK(contents(folder / "report/signoff.json") == run.out);
  CHECK_THAT(contents(folder / "report/signoff.txt"), Contains("weights: " + weights + " ("));
  const auto files = std::filesystem::directory_iterator(folder / "report");
  CHECK(std::distance(begin(files), end(files)) == 3);
}

TEST_CASE("a verdict that cannot be printed is none") {
  const Run run = shell(SHARDPROOF_PROGRAM " run --batch 1 " + kSmall + "2>&1 >/dev/full");
  CHECK(run.exit_code == no_verdict);
  CHECK_THAT(run.out, Contains("cannot write to stdout: No space left on device"));
}

TEST_CASE("a disagreement stands even where it could not be written") {
  using Verdict = SignoffResult::Verdict;
  CHECK(exit_code(Verdict::agrees, true) == agrees);
  CHECK(exit_code(Verdict::agrees, false) == no_verdict);
  CHECK(exit_code(Verdict::disagrees, true) == disagrees);
  CHECK(exit_code(Verdict::disagrees, false) == disagrees);
  CHECK(exit_code(Verdict::none, true) == no_verdict);
}

TEST_CASE("of two files that must be written, neither is touched when one cannot be") {
  const Folder folder;
  REQUIRE(write_whole_files({{folder / "a", "old"}}));
  CHECK_FALSE(write_whole_files({{folder / "a", "new"}, {folder / "nowhere/b", "new"}}));
  CHECK(contents(folder / "a") == "old");
  const auto files = std::filesystem::directory_iterator(folder.path);
  CHECK(std::distance(begin(files), end(files)) == 1);
}

TEST_CASE("a report says which weights are zero, and that faults in them cannot show") {
  ReportedInputs inputs;
  inputs.parameters = 233;
  CHECK_THAT(to_text(inputs), !Contains("all zero"));
  inputs.zero_weights = {"sbt", "f0cbt"};
  CHECK_THAT(to_text(inputs), Contains("2 of 233 weights are all zero (sbt, ...)"));
}

TEST_CASE("programs are told separable or not, by exit code and by name") {
  const Run adamw = shardproof("separable adamw");
  CHECK(adamw.exit_code == agrees);
  CHECK_THAT(adamw.out, Contains("separable: adamw.slots, 10 coordinates"));
  const Run lamb = shardproof("separable lamb");
  CHECK(lamb.exit_code == disagrees);
  CHECK_THAT(lamb.out, Contains("p_square[0], shared, reads p[0][0] of coordinate 0") &&
                           Contains("coordinates 0, 1, 2, 3, 4, 5 with p_square[0]") &&
                           Contains("It breaks: owner 0 owns coordinate 0"));
  CHECK(shardproof("separable lamb-separable").exit_code == agrees);

  const Folder folder;
  const std::string file = folder / "harmless.slots";
  std::ofstream(file) << "coordinate 0: a, b\ncoordinate 1: c\nb = 2*c + 1\nb = a\n";
  const Run harmless = shardproof("separable --json " + file);
  CHECK(harmless.exit_code == disagrees);
  const auto json = nlohmann::json::parse(harmless.out);
  CHECK(json.at("harmless") == true);
  CHECK(json.at("line") == 3);
  CHECK(json.at("read") == "c");

  std::ofstream(file) << "shared a, b, norm, scale\nparameter p\ngradient g\nnorm = sum(g^2)\n"
                         "scale = 2*norm + 1\na = 2*b + 1\np = p - scale*g - a\n";
  const Run clipped = shardproof("separable --json " + file);
  CHECK(clipped.exit_code == disagrees);
  CHECK(nlohmann::json::parse(clipped.out).at("coarsening")[0].at("shared") ==
        nlohmann::json{"norm", "scale"});
}

TEST_CASE("an optimizer's sharded step is signed off") {
  const Run run =
      shardproof("signoff --json --program lamb-separable --sizes 5,0,2x3 --replicas 3");
  CHECK(run.exit_code == agrees);
  const auto json = nlohmann::json::parse(run.out);
  CHECK(json.at("verdict") == "agrees");
  CHECK(json.at("coordinates") == 11);
  CHECK(json.at("bit_for_bit") == true);

  const Folder folder;
  const std::string owners = folder / "owners";
  std::ofstream(owners) << "2 2 0 1\n";
  CHECK(shardproof("signoff --program sgd --sizes 4 --replicas 3 --owners " + owners).exit_code ==
        agrees);
}

TEST_CASE("bad programs and options of programs are refused with exit 2 and one line") {
  const Folder folder;
  const std::string file = folder / "bad.slots";
  const auto refuses = [&](const std::string& text, const std::string& message) {
    std::ofstream(file) << text;
    const Run run = refused("separable " + file);
    CHECK(run.exit_code == bad_input);
    CHECK_THAT(run.out, Contains(message));
  };
  refuses("", "assigns nothing");
  refuses("shared a\na = b\n", ":2:5: no slot is called b");
  refuses("shared a\na = " + std::string(1000000, '('), "nested more than 200 deep");
  for (const auto& [arguments, message] : {
           std::pair("separable nosuch", "no such file or optimizer"),
           std::pair("separable ''", "no program named"),
           std::pair("separable /", "is a folder"),
           std::pair("separable adamw --sizes 3,-1", "'3,-1'"),
           std::pair("separable adamw --sizes 0", "no coordinate"),
           std::pair("signoff --program adamw --replicas 5000", "1024"),
           std::pair("signoff --program lamb", "reads across coordinates"),
           std::pair("signoff --program adamw --batch 2", "excludes"),
           std::pair("signoff --program adamw --steps 0", "--steps"),
           std::pair("signoff --steps 3", "--program"),
           std::pair("signoff --program adamw --owners /nosuch", "No such file"),
           std::pair("signoff --program adamw --sizes 4000000000", "GB"),
       }) {
    const Run run = refused(arguments);
    CAPTURE(arguments, run.out);
    CHECK(run.exit_code == bad_input);
    CHECK_THAT(run.out, Contains(message));
  }
}

}  // namespace shardproof::cli
