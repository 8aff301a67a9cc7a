#include <catch2/catch.hpp>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "diff/digest.h"
#include "diff/html_report.h"
#include "diff/report.h"

namespace shardproof {
namespace {

constexpr const char* kHostile = "</title><script src=\"//x\">'&\x01\xff";

SignoffReport report_of(bool wrong) {
  SignoffReport report;
  report.net = "mobilenetv4-conv-m";
  report.device = kHostile;
  report.version = "1";
  report.size = 224;
  report.classes = 1000;
  report.replicas = 4;
  report.batch = 2;
  report.epsilon = 0x1p-17;
  report.threads = 2;
  report.machine = {"a CPU", "a kernel", 2, 1 << 30};
  report.contracts.push_back({Operation::convolution, 2, 49, {}});
  report.inputs.images.push_back({"<img>.png", 10, 0xabc});
  for (const InputKind kind : {InputKind::natural, InputKind::lattice, InputKind::dithered}) {
    for (int node = 0; node < 120; ++node) {
      Comparison comparison;
      comparison.node = "stage" + std::to_string(node) + ".convolution";
      comparison.kind = kind;
      comparison.shape = {2, 8, 7, 7};
      for (std::size_t r = 0; r < 4; ++r) {
        comparison.see(r, 100 + r, 1.0F, 1 + 0x1p-23 * static_cast<double>(r + 1), {1e-5, 1e-6});
      }
      if (wrong && node == 3) comparison.see(2, 391, 2.0F, 1, {1e-5, 1e-6});
      report.result.comparisons.push_back(comparison);
    }
  }
  if (wrong) report.replay = "shardproof replay 'a<b.json'";
  return report;
}

// Pages for ci/test to look at, where a folder for them is named.
void keep(const std::string& name, const std::string& page) {
  if (const char* folder = std::getenv("SHARDPROOF_PAGES")) {
    std::ofstream(std::string(folder) + "/" + name) << page;
  }
}

TEST_CASE("hostile names stand on the page as text") {
  const std::string page = to_html(to_json(report_of(true)));
  CHECK(page.find("<script") == std::string::npos);
  CHECK(page.find("<img>") == std::string::npos);
  CHECK(page.find("&lt;/title&gt;&lt;script src=&quot;//x&quot;&gt;&#39;&amp;\uFFFD\uFFFD") !=
        std::string::npos);
  CHECK(page.find("a&lt;b.json") != std::string::npos);
}

TEST_CASE("a page asks for nothing beyond itself") {
  const std::string page = to_html(to_json(report_of(true)));
  for (const char* way : {"<link", "<img", "<iframe", "@import", "url(", " src=", "http"}) {
    INFO(way);
    const bool only_text = std::string(way) == " src=";  // of the hostile name
    CHECK((only_text || page.find(way) == std::string::npos));
  }
}

TEST_CASE("the verdict stands in words, before everything else") {
  for (const bool wrong : {false, true}) {
    const std::string page = to_html(to_json(report_of(wrong)));
    keep(wrong ? "disagrees.html" : "agrees.html", page);
    CHECK(page.find(wrong ? "<strong>disagrees</strong>" : "<strong>agrees</strong>") <
          page.find("<h2"));
  }
}

TEST_CASE("a wrong number stands with node, replica, index, exact, bound and got") {
  const std::string page = to_html(to_json(report_of(true)));
  const std::string row = page.substr(page.find("stage3.convolution"));
  CHECK(row.find("[0, 7, 6, 6]") < row.find("</tr>"));  // 391 = 7·49 + 48
  CHECK(row.find(">2</span>") < row.find("</tr>"));
  CHECK(row.find("0x1.0c6f7a0b5ed8dp-20") < row.find("</tr>"));
}

TEST_CASE("a baseline stands beside its device, with errors, histograms and speed") {
  SignoffReport report = report_of(false);
  PrecisionChange change;
  change.node = "stage1";
  for (int i = 0; i < 100; ++i) {
    change.device.add(1 + 0x1p-21 * i, 1);
    change.baseline.add(1 + 0x1p-23 * (i % 2), 1);
  }
  change.regression = true;
  report.baseline =
      Baseline{"the \"old\" kernels", SignoffResult::Verdict::agrees, "", 2, {change}, {}};
  report.baseline->speed.push_back({Operation::dense, 3, 0.5, 0.25});
  CHECK(report.verdict() == SignoffResult::Verdict::disagrees);
  const std::string page = to_html(to_json(report));
  keep("baseline.html", page);
  CHECK(page.find("it loses precision against the baseline") != std::string::npos);
  CHECK(page.find("the &quot;old&quot; kernels, judged alone: agrees") != std::string::npos);
  CHECK(page.find("✗ lost") != std::string::npos);
  CHECK(page.find("aria-label=\"100 outputs by ulps: 0: 50 %, up to 1: 50 %\"") !=
        std::string::npos);
  CHECK(page.find("<td class=\"number\">0.5</td><td class=\"number\">0.25</td><td "
                  "class=\"number\">2.00</td>") != std::string::npos);
  const std::string lines = to_text(report);
  CHECK(lines.find("1 of 1 statement lose precision") != std::string::npos);
}

TEST_CASE("the same report gives the same bytes and a digest that its seconds do not move") {
  SignoffReport report = report_of(true);
  const nlohmann::json first = to_json(report);
  CHECK(to_html(first) == to_html(to_json(report)));
  report.seconds = 9;
  CHECK(to_json(report).at("digest") == first.at("digest"));
  CHECK(*verify_digest(to_file_text(first)));
  report.replicas = 5;
  CHECK(to_json(report).at("digest") != first.at("digest"));
}

}  // namespace
}  // namespace shardproof
