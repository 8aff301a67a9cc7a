#include "diff/html_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <vector>

namespace shardproof {
namespace {

using nlohmann::json;

constexpr std::size_t kShown = 100;  // of the comparisons that are wrong

constexpr const char* kStyle = R"(
:root{color-scheme:light dark;--fg:#1a1a1a;--bg:#fff;--soft:#f1f3f5;--line:#8a8f94;--link:#0b4f9e;--bar:#3d6fa5}
@media (prefers-color-scheme:dark){:root{--fg:#ececec;--bg:#15181b;--soft:#23282d;--line:#858b91;--link:#8cc0ff;--bar:#7fb0e6}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);max-width:75rem;margin:0 auto;padding:1rem;overflow-wrap:anywhere}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px}
.skip{position:absolute;left:-99rem}.skip:focus{position:static}
.verdict{border:3px solid var(--fg);padding:.8rem 1rem;font-size:1.4rem;margin:1rem 0}
.disagrees{border-style:double;border-width:8px}.none{border-style:dashed}
table{border-collapse:collapse;font-size:.85rem;overflow-wrap:normal}
caption{text-align:left;padding-bottom:.2rem}
th,td{border:1px solid var(--line);padding:.2rem .5rem;text-align:left;vertical-align:top}
thead th{background:var(--soft)}
th[scope=row]{font-weight:normal;min-width:8rem;overflow-wrap:anywhere}
.number{text-align:right;font-variant-numeric:tabular-nums;white-space:nowrap}
.scroll{overflow-x:auto}
pre{background:var(--soft);padding:.6rem;white-space:pre-wrap}
.wrong{font-weight:bold;text-decoration:underline}
dt{font-weight:bold}dd{margin:0 0 .4rem 1rem}
svg{display:block}svg rect{fill:var(--bar)}svg text{fill:var(--fg);font:9px sans-serif}
@page{size:landscape}
@media print{.skip,nav{display:none}body{max-width:none;font-size:10pt;padding:0}.scroll{overflow:visible}table{font-size:7.5pt}tr{break-inside:avoid}h2{break-after:avoid}}
)";

std::string name(const json& comparison) {
  const auto& part = comparison.at("part").get_ref<const std::string&>();
  const auto& node = comparison.at("node").get_ref<const std::string&>();
  return part.empty() ? node : node + ": " + part;
}

double value(const json& number) {
  return std::strtod(number.get_ref<const std::string&>().c_str(), nullptr);
}

std::string text(const json& field) {
  return escaped(field.is_string() ? field.get<std::string>()
                                   : field.dump(-1, ' ', false, json::error_handler_t::replace));
}

// A hexadecimal float in nine decimal digits, its bits beside it for who points at it.
std::string number(const json& hexadecimal) {
  return fmt::format("<span title=\"{}\">{:.9g}</span>", text(hexadecimal), value(hexadecimal));
}

// The comparisons of one statement of a node, over all kinds of input.
struct Row {
  std::string name;
  std::vector<const json*> comparisons;

  const json* worst() const {
    const json* worst = nullptr;
    for (const json* comparison : comparisons) {
      if (!comparison->contains("worst")) continue;
      if (worst == nullptr ||
          value(comparison->at("worst").at("ratio")) > value(worst->at("worst").at("ratio"))) {
        worst = comparison;
      }
    }
    return worst;
  }
  double ulps() const {
    double most = 0;
    for (const json* comparison : comparisons) {
      if (comparison->contains("worst")) {
        most = std::fmax(most, value(comparison->at("worst").at("ulps")));
      }
    }
    return most;
  }
  // The comparison on the images, where outputs were counted; null: there is none.
  const json* precision() const {
    const auto found = std::find_if(comparisons.begin(), comparisons.end(), [](const json* each) {
      return each->contains("precision") && each->at("precision").at("outputs") > 0;
    });
    return found == comparisons.end() ? nullptr : *found;
  }
  std::size_t count(const char* outcome) const {
    return static_cast<std::size_t>(std::count_if(
        comparisons.begin(), comparisons.end(),
        [&](const json* comparison) { return comparison->at("outcome") == outcome; }));
  }
};

// In the order in which the statements were first judged.
std::vector<Row> rows_of(const json& report) {
  std::vector<Row> rows;
  std::map<std::string, std::size_t> place;
  for (const json& comparison : report.at("comparisons")) {
    const std::string key = name(comparison);
    const auto [found, added] = place.try_emplace(key, rows.size());
    if (added) rows.push_back({key, {}});
    rows[found->second].comparisons.push_back(&comparison);
  }
  return rows;
}

// Outputs by their error in ulps, in the classes of Precision: bars, and the same in words.
std::string histogram(const json& precision) {
  constexpr std::array kNames = {"0", "½", "1", "2", "4", "16", "256", "more"};
  const auto counts = precision.at("counts").get<std::vector<std::size_t>>();
  std::size_t all = 0;
  for (const std::size_t count : counts) all += count;
  std::string bars, words;
  for (std::size_t i = 0; i < std::min(counts.size(), kNames.size()); ++i) {
    bars += fmt::format("<text x=\"{}\" y=\"39\">{}</text>", 24 * i + 2, kNames[i]);
    if (counts[i] == 0) continue;
    const double share = static_cast<double>(counts[i]) / static_cast<double>(all);
    const auto height = static_cast<int>(std::ceil(18 * share));
    const std::string percent = share < 0.01 ? "<1" : fmt::format("{:.0f}", 100 * share);
    bars += fmt::format(
        "<rect x=\"{}\" y=\"{}\" width=\"20\" height=\"{}\"/><text x=\"{}\" y=\"{}\">{}</text>",
        24 * i + 2, 28 - height, height, 24 * i + 2, 26 - height, escaped(percent));
    words += fmt::format("{}{}{}: {} %", words.empty() ? "" : ", ",
                         i == 0   ? ""
                         : i == 7 ? ""
                                  : "up to ",
                         kNames[i], escaped(percent));
  }
  return fmt::format(
      "<svg width=\"196\" height=\"42\" viewBox=\"0 0 196 42\" role=\"img\" aria-label=\"{} "
      "outputs by "
      "ulps: {}\">{}</svg>",
      all, words, bars);
}

std::string place(const json& comparison) {
  const json& worst = comparison.at("worst");
  const json& shape = comparison.at("shape");
  const auto index = worst.at("index").get<std::size_t>();
  const auto c = shape[1].get<std::size_t>(), h = shape[2].get<std::size_t>(),
             w = shape[3].get<std::size_t>();
  const std::size_t plane = h * w;
  if (c * plane == 0) return fmt::format("{}", index);
  return fmt::format("[{}, {}, {}, {}]", index / (c * plane), index / plane % c, index / w % h,
                     index % w);
}

std::string table(const std::string& caption, const std::string& head, const std::string& body) {
  return fmt::format(
      "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}"
      "</caption><thead><tr>{1}</tr></thead><tbody>{2}</tbody></table></div>\n",
      caption, head, body);
}

std::string heads(const std::vector<std::string>& names) {
  std::string head;
  for (const std::string& column : names) head += "<th scope=\"col\">" + column + "</th>";
  return head;
}

bool loses_precision(const json& report) {
  return report.contains("baseline") && report.at("baseline").at("regression").get<bool>() &&
         std::none_of(report.at("comparisons").begin(), report.at("comparisons").end(),
                      [](const json& comparison) { return comparison.at("outcome") == "wrong"; });
}

std::string verdict(const json& report, const char* who) {
  const auto word = report.at("verdict").get<std::string>();
  const bool agrees = word == "agrees", disagrees = word == "disagrees";
  return fmt::format(
      "<p class=\"verdict {}\"><span aria-hidden=\"true\">{}</span> {} <strong>{}</strong>: "
      "{}</p>\n",
      agrees      ? "agrees"
      : disagrees ? "disagrees"
                  : "none",
      agrees      ? "✓"
      : disagrees ? "✗"
                  : "?",
      who, text(word),
      agrees      ? "no node is wrong, and every node was judged"
      : disagrees ? (loses_precision(report) ? "it loses precision against the baseline"
                                             : "see what is wrong below")
                  : "some node was not judged, or the run did not end");
}

std::string wrong(const json& report) {
  std::string body;
  std::size_t count = 0;
  for (const json& comparison : report.at("comparisons")) {
    if (comparison.at("outcome") != "wrong") continue;
    if (++count > kShown || !comparison.contains("worst")) continue;
    const json& worst = comparison.at("worst");
    body += fmt::format(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"number\">{}</td><td>{}</td><td "
        "class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td "
        "class=\"number\">{}</td><td class=\"number\">{}</td></tr>\n",
        escaped(name(comparison)), text(comparison.at("input")), text(worst.at("replica")),
        place(comparison), number(worst.at("exact")), number(worst.at("bound")),
        number(worst.at("got")), text(worst.at("ulps")), text(comparison.at("wrong")));
  }
  std::string out;
  for (const char* field : {"failure", "out_of_memory"}) {
    if (report.at(field) != "") {
      out += fmt::format("<p><strong>{}</strong></p><pre>{}</pre>\n",
                         field == std::string("failure") ? "A launch failed" : "Out of memory",
                         text(report.at(field)));
    }
  }
  if (count > 0) {
    out += table("Wrong numbers, in the order of the graph: the worst of each comparison",
                 heads({"node", "input", "replica", "index", "exact", "bound", "got", "ulps",
                        "outputs wrong"}),
                 body);
  }
  if (count > kShown) out += fmt::format("<p>And {} more, all in the JSON.</p>\n", count - kShown);
  if (!report.at("unjudged").empty()) {
    out += "<p>Judged by no kind of input:</p><ul>";
    for (const json& node : report.at("unjudged")) out += "<li>" + text(node) + "</li>";
    out += "</ul>\n";
  }
  if (report.at("replay") != "") {
    out += "<p>Run the failing case again:</p><pre>" + text(report.at("replay")) + "</pre>\n";
  }
  return out.empty() ? "<p>Nothing.</p>\n" : out;
}

std::string compared(const json& report) {
  const json& inputs = report.at("inputs");
  const auto file = [](const json& read) {
    return fmt::format("{} ({} bytes, CRC-32 {})", text(read.at("path")), text(read.at("bytes")),
                       text(read.at("crc32")));
  };
  std::string images;
  for (const json& image : inputs.at("images")) images += "<li>" + file(image) + "</li>";
  std::string out = fmt::format(
      "<dl><dt>network</dt><dd>{} at {} × {} pixels, {} classes, ε {}</dd><dt>replicas</dt><dd>{}, "
      "of {} images each</dd><dt>seed</dt><dd>{}</dd><dt>weights</dt><dd>{}</dd><dt>images</dt><dd>"
      "{}</dd></dl>\n",
      text(report.at("net")), text(report.at("size")), text(report.at("size")),
      text(report.at("classes")), number(report.at("epsilon")), text(report.at("replicas")),
      text(report.at("batch")), text(report.at("seed")),
      inputs.at("weights").is_object() ? file(inputs.at("weights")) : text(inputs.at("weights")),
      images.empty() ? "none" : "<ul>" + images + "</ul>");
  std::string body;
  for (const auto& [kind, counts] : report.at("counts").items()) {
    body += fmt::format("<tr><th scope=\"row\">{}</th>", escaped(kind));
    for (const char* field : {"comparisons", "agree", "wrong", "not_judged", "numbers"}) {
      body += "<td class=\"number\">" + text(counts.at(field)) + "</td>";
    }
    body += "</tr>\n";
  }
  return out + table("Comparisons by kind of input",
                     heads({"input", "comparisons", "agree", "wrong", "not judged", "numbers"}),
                     body);
}

std::string cells(const Row& row) {
  const json* worst = row.worst();
  const std::size_t wrong = row.count("wrong"), skipped = row.count("not judged");
  std::string out = wrong > 0     ? "<td class=\"wrong\">✗ wrong</td>"
                    : skipped > 0 ? "<td>? not judged by all</td>"
                                  : "<td>✓ agrees</td>";
  if (worst == nullptr) {
    return out + "<td class=\"number\">—</td><td class=\"number\">no error</td>" +
           "<td class=\"number\">0</td>";
  }
  const json& difference = worst->at("worst");
  return out + fmt::format(
                   "<td class=\"number\">{:.3g}</td><td class=\"number\">{}</td><td "
                   "class=\"number\">{:.3g}</td>",
                   value(difference.at("bound")), text(difference.at("ratio")), row.ulps());
}

std::string nodes(const json& report) {
  std::string body;
  for (const Row& row : rows_of(report)) {
    body += "<tr><th scope=\"row\">" + escaped(row.name) + "</th>" + cells(row);
    const json* precise = row.precision();
    body +=
        precise == nullptr ? "<td></td>" : "<td>" + histogram(precise->at("precision")) + "</td>";
    body += "</tr>\n";
  }
  return table("Every statement of every node",
               heads({"node", "outcome", "bound", "worst error ÷ bound", "worst ulps",
                      "outputs on the images, % by ulps"}),
               body);
}

// Device and baseline side by side.
std::string baseline(const json& of) {
  std::string body;
  const auto ratio = [](double device, double before) {
    return before > 0 ? fmt::format("{:.2f}", device / before) : "—";
  };
  for (const json& change : of.at("precision")) {
    const bool lost = change.at("regression").get<bool>();
    body += "<tr><th scope=\"row\">" + escaped(name(change)) + "</th>";
    body += lost ? "<td class=\"wrong\">✗ lost</td>" : "<td>✓ kept</td>";
    for (const char* field : {"rms_ulps", "worst_ulps"}) {
      const json &own = change.at("device").at(field), &before = change.at("baseline").at(field);
      body += fmt::format(
          "<td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td>",
          text(own), text(before), ratio(value(own), value(before)));
    }
    body += "<td>" + histogram(change.at("device")) + "</td><td>" +
            histogram(change.at("baseline")) + "</td></tr>\n";
  }
  std::string out = fmt::format(
      "<dl><dt>baseline</dt><dd>{}, judged alone: {}</dd><dt>a loss of precision</dt><dd>an error "
      "of more than {} times the baseline's, or a correct rounding's where that is larger: rms, or "
      "the worst of 1,000 outputs or more</dd></dl>\n",
      text(of.at("device")), text(of.at("verdict")), text(of.at("regression_factor")));
  if (of.at("failure") != "") {
    out += "<p>It did not end, so nothing is said of a loss:</p><pre>" + text(of.at("failure")) +
           "</pre>\n";
  }
  out +=
      table("Errors on the images, in units of 2^-23 of a statement's root mean square",
            heads({"node", "precision", "rms", "baseline: rms", "ratio", "worst", "baseline: worst",
                   "ratio", "outputs, % by ulps", "baseline: outputs, % by ulps"}),
            body);
  std::string rows;
  for (const json& change : of.at("speed")) {
    const double own = change.at("seconds").at("device").get<double>();
    const double before = change.at("seconds").at("baseline").get<double>();
    rows += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td><td class=\"number\">{:.3g}</td>"
        "<td class=\"number\">{:.3g}</td><td class=\"number\">{}</td></tr>\n",
        text(change.at("operation")), text(change.at("calls")), own, before, ratio(own, before));
  }
  return rows.empty()
             ? out
             : out + table("Seconds of a forward, the median of three in turn",
                           heads({"operation", "calls", "device", "baseline", "ratio"}), rows);
}

// Which replica holds the output that is nearest to its bound, or furthest beyond.
std::string heat_map(const json& report) {
  const auto replicas = report.at("replicas").get<std::size_t>();
  std::vector<std::string> columns = {"node"};
  for (std::size_t r = 0; r < replicas; ++r) columns.push_back(fmt::format("replica {}", r));
  std::string body;
  for (const Row& row : rows_of(report)) {
    std::vector<double> ratios(replicas, 0);
    std::vector<char> wrong(replicas, 0);
    for (const json* comparison : row.comparisons) {
      if (!comparison->contains("worst")) continue;
      const json& worst = comparison->at("worst");
      const auto replica = worst.at("replica").get<std::size_t>();
      if (replica < replicas) {
        if (comparison->at("outcome") == "wrong") wrong[replica] = 1;
        ratios[replica] = std::fmax(ratios[replica], value(worst.at("ratio")));
      }
    }
    if (std::all_of(ratios.begin(), ratios.end(), [](double ratio) { return ratio == 0; }))
      continue;
    body += "<tr><th scope=\"row\">" + escaped(row.name) + "</th>";
    for (std::size_t r = 0; r < replicas; ++r) {
      body += ratios[r] == 0  ? "<td class=\"number\">·</td>"
              : wrong[r] != 0 ? fmt::format("<td class=\"number wrong\">✗ {:.3g}</td>", ratios[r])
                              : fmt::format("<td class=\"number\">{:.3g}</td>", ratios[r]);
    }
    body += "</tr>\n";
  }
  return "<p>Largest error ÷ bound of the comparisons whose worst output lies on that replica; "
         "· where none does, ✗ wrong. A number over 1 without ✗ is a suspicion that fresh draws "
         "dropped. Nodes without any error are left out.</p>\n" +
         table("Worst outputs by node and replica", heads(columns), body);
}

std::string made_by(const json& report) {
  const json& machine = report.at("machine");
  std::string out = fmt::format(
      "<dl><dt>device</dt><dd>{}</dd><dt>shardproof</dt><dd>{}</dd><dt>machine</dt><dd>{}; {} "
      "processors, {} bytes of memory; {}</dd><dt>threads of the reference</dt><dd>{}</dd><dt>"
      "seconds</dt><dd>{}</dd><dt>digest (SHA-256)</dt><dd><code>{}</code></dd></dl>\n",
      text(report.at("device")), text(report.at("version")), text(machine.at("cpu")),
      text(machine.at("processors")), text(machine.at("memory")), text(machine.at("kernel")),
      text(report.at("threads")), text(report.at("seconds")), text(report.at("digest")));
  constexpr std::array kFields = {
      "batch",       "plane",          "operands", "accumulate", "lanes",
      "mean",        "statistics",     "form",     "root_ulps",  "root_exact_at_powers_of_four",
      "contraction", "subnormals_kept"};
  std::vector<std::string> columns = {"operation"};
  for (std::string field : kFields) {
    std::replace(field.begin(), field.end(), '_', ' ');
    columns.push_back(field);
  }
  std::string body;
  for (const json& contract : report.at("contracts")) {
    body += "<tr><th scope=\"row\">" + text(contract.at("operation")) + "</th>";
    for (const char* field : kFields) body += "<td>" + text(contract.at(field)) + "</td>";
    body += "</tr>\n";
  }
  return body.empty() ? out : out + table("Contract that the device states", heads(columns), body);
}

}  // namespace

std::string escaped(const std::string& text) {
  // A JSON text of the string replaces what is no UTF-8.
  const std::string valid =
      json::parse(json(text).dump(-1, ' ', false, json::error_handler_t::replace))
          .get<std::string>();
  std::string out;
  for (const char c : valid) {
    switch (c) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        if ((static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t') || c == 0x7f) {
          out += "\uFFFD";
        } else {
          out += c;
        }
    }
  }
  return out;
}

std::string to_html(const json& report) {
  std::string out = fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width,initial-scale=1\"><title>{}: {}</title><style>{}</style></head>"
      "\n<body><a class=\"skip\" href=\"#wrong\">Skip to what is wrong</a>\n<main>\n<h1>Sign-off "
      "of "
      "{}</h1>\n",
      text(report.at("verdict")), text(report.at("net")), kStyle, text(report.at("device")));
  out += verdict(report, "The device");
  const bool has_baseline = report.contains("baseline");
  out +=
      "<nav aria-label=\"Sections\"><a href=\"#wrong\">What is wrong</a> · <a href=\"#compared\">"
      "What was compared</a> · <a href=\"#nodes\">Nodes</a> · ";
  if (has_baseline) out += "<a href=\"#baseline\">Baseline</a> · ";
  out += "<a href=\"#replicas\">Replicas</a> · <a href=\"#made\">Device and machine</a></nav>\n";
  const auto section = [&](const char* id, const char* title, const std::string& content) {
    out += fmt::format(
        "<section id=\"{0}\" aria-labelledby=\"{0}-title\"><h2 id=\"{0}-title\">{1}"
        "</h2>\n{2}</section>\n",
        id, title, content);
  };
  section("wrong", "What is wrong", wrong(report));
  section("compared", "What was compared", compared(report));
  section("nodes", "Nodes", nodes(report));
  if (has_baseline) section("baseline", "Baseline", baseline(report.at("baseline")));
  section("replicas", "Replicas", heat_map(report));
  section("made", "Device and machine", made_by(report));
  return out + "</main></body></html>\n";
}

}  // namespace shardproof
