#include "diff/report.h"

#include <fmt/format.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <thread>

#include "diff/digest.h"

namespace shardproof {
namespace {

constexpr std::size_t kShown = 10;  // rows of a table of single differences

// The comparisons of one kind of input, counted.
struct Count {
  std::size_t comparisons = 0, agree = 0, wrong = 0, not_judged = 0, numbers = 0;
};

Count count(const SignoffResult& result, InputKind kind) {
  Count sum;
  for (const Comparison& comparison : result.comparisons) {
    if (comparison.kind != kind) continue;
    ++sum.comparisons;
    sum.numbers += comparison.compared;
    const Outcome outcome = comparison.outcome();
    sum.agree += outcome == Outcome::agrees ? 1U : 0U;
    sum.wrong += outcome == Outcome::wrong ? 1U : 0U;
    sum.not_judged += outcome == Outcome::not_judged ? 1U : 0U;
  }
  return sum;
}

// "replica 1 [0, 12, 3, 4]"
std::string place(const Comparison& comparison) {
  const Shape& shape = comparison.shape;
  const std::size_t index = comparison.worst.index;
  if (shape.n == 1 && shape.h == 1 && shape.w == 1) {
    return fmt::format("replica {} channel {}", comparison.worst.replica, index);
  }
  return fmt::format("replica {} [{}, {}, {}, {}]", comparison.worst.replica,
                     index / shape.example(), index / shape.plane() % shape.c,
                     index / shape.w % shape.h, index % shape.w);
}

std::string name(const Comparison& comparison) {
  return comparison.part.empty() ? comparison.node : comparison.node + ": " + comparison.part;
}

std::string row(const Comparison& comparison) {
  const Difference& worst = comparison.worst;
  return fmt::format(
      "  {:<44} {:<9} {:>9.3g} {:>9.3g}  {}\n{:>6}got {:.9g}, exact {:.9g}, bound {:.3g}\n",
      name(comparison), to_string(comparison.kind), worst.ratio, worst.ulps(), place(comparison),
      "", worst.got, worst.expected, worst.bound);
}

std::string table_head() {
  return fmt::format("  {:<44} {:<9} {:>9} {:>9}  {}\n", "node", "input", "err/bound", "ulps",
                     "where");
}

// Comparisons that some number differed in, nearest to (or furthest beyond) their bound first; each
// node and part once.
std::vector<const Comparison*> nearest(const SignoffResult& result) {
  std::vector<const Comparison*> sorted;
  for (const Comparison& comparison : result.comparisons) {
    if (comparison.worst.ratio > 0 && comparison.outcome() == Outcome::agrees) {
      sorted.push_back(&comparison);
    }
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const Comparison* a, const Comparison* b) {
    return a->worst.ratio > b->worst.ratio;
  });
  std::set<std::string> seen;
  std::erase_if(sorted,
                [&](const Comparison* c) { return !seen.insert(c->part + c->node).second; });
  return sorted;
}

nlohmann::json to_json(const StatedContract& stated) {
  constexpr std::array kOperands = {"float32", "tf32", "bfloat16", "float16"};
  constexpr std::array kAccumulate = {"float32", "float64", "tensor core", "bfloat16", "float16"};
  constexpr std::array kMean = {"divide", "reciprocal", "premultiply"};
  constexpr std::array kStatistics = {"two-pass", "shifted", "one-pass", "Welford", "merged"};
  constexpr std::array kForm = {"subtract first", "fused"};
  const auto name = [](const auto& names, auto field) {
    return names.at(static_cast<std::size_t>(field));
  };
  const Contract& contract = stated.contract;
  return {{"operation", to_string(stated.operation)},
          {"batch", stated.batch},
          {"plane", stated.plane},
          {"operands", name(kOperands, contract.operands)},
          {"accumulate", name(kAccumulate, contract.accumulate)},
          {"lanes", contract.lanes},
          {"mean", name(kMean, contract.mean)},
          {"statistics", name(kStatistics, contract.statistics)},
          {"form", name(kForm, contract.form)},
          {"root_ulps", contract.root},
          {"root_exact_at_powers_of_four", contract.root_exact_at_powers_of_four},
          {"contraction", contract.contraction},
          {"subnormals_kept", contract.subnormals_kept}};
}

nlohmann::json to_json(const ProbedSum& probed) {
  nlohmann::json entry = {{"operation", to_string(probed.sum.operation)},
                          {"terms", probed.terms},
                          {"lanes", probed.lanes},
                          {"varies_between_runs", probed.varies_between_runs},
                          {"varies_between_replicas", probed.varies_between_replicas},
                          {"varies_with_channels", probed.varies_with_channels}};
  if (probed.tree) entry["order"] = to_string(*probed.tree);
  return entry;
}

// By how much an error grew: "2.1", or "-" where the baseline has none.
std::string ratio(double device, double baseline) {
  return baseline > 0 ? fmt::format("{:.2f}", device / baseline) : "-";
}

std::string to_text(const Baseline& baseline) {
  std::vector<const PrecisionChange*> changes;
  for (const PrecisionChange& change : baseline.precision) changes.push_back(&change);
  std::stable_sort(changes.begin(), changes.end(), [](const auto* a, const auto* b) {
    const auto growth = [](const PrecisionChange& c) {
      return c.device.rms() / std::max(c.baseline.rms(), 1e-3);
    };
    return std::pair(a->regression, growth(*a)) > std::pair(b->regression, growth(*b));
  });
  const auto lost = static_cast<std::size_t>(std::count_if(
      changes.begin(), changes.end(), [](const auto* change) { return change->regression; }));
  std::string text = fmt::format(
      "\nbaseline: {} ({}); {} of {} lose precision, more than {:.3g} times its error\n"
      "  {:<44} {:>9} {:>9} {:>6}  {:>9} {:>9} {:>6}\n",
      baseline.device, to_string(baseline.verdict), lost,
      counted(changes.size(), "statement", "statements"), baseline.factor, "error in ulps", "rms",
      "baseline", "ratio", "worst", "baseline", "ratio");
  for (std::size_t i = 0; i < std::min(changes.size(), std::max(lost, kShown)) && i < 3 * kShown;
       ++i) {
    const PrecisionChange& c = *changes[i];
    text += fmt::format("  {:<44} {:>9.3g} {:>9.3g} {:>6}  {:>9.3g} {:>9.3g} {:>6}{}\n",
                        c.part.empty() ? c.node : c.node + ": " + c.part, c.device.rms(),
                        c.baseline.rms(), ratio(c.device.rms(), c.baseline.rms()), c.device.worst(),
                        c.baseline.worst(), ratio(c.device.worst(), c.baseline.worst()),
                        c.regression ? "  lost" : "");
  }
  if (!baseline.failure.empty()) {
    return text + "  the baseline did not end, so nothing is said of a loss: " + baseline.failure +
           "\n";
  }
  text += fmt::format("  {:<44} {:>9} {:>9} {:>6}\n", "seconds of a forward", "device", "baseline",
                      "ratio");
  for (const SpeedChange& change : baseline.speed) {
    text += fmt::format("  {:<44} {:>9.3g} {:>9.3g} {:>6}\n", to_string(change.operation),
                        change.device, change.baseline, ratio(change.device, change.baseline));
  }
  return text;
}

nlohmann::json to_json(const Precision& precision) {
  return {{"outputs", precision.outputs},
          {"rms_ulps", fmt::format("{:.6g}", precision.rms())},
          {"worst_ulps", fmt::format("{:.6g}", precision.worst())},
          {"counts", precision.counts}};
}

nlohmann::json to_json(const Baseline& baseline) {
  nlohmann::json precision = nlohmann::json::array(), speed = nlohmann::json::array();
  for (const PrecisionChange& change : baseline.precision) {
    precision.push_back({{"node", change.node},
                         {"part", change.part},
                         {"device", to_json(change.device)},
                         {"baseline", to_json(change.baseline)},
                         {"regression", change.regression}});
  }
  for (const SpeedChange& change : baseline.speed) {
    speed.push_back({{"operation", to_string(change.operation)},
                     {"calls", change.calls},
                     {"seconds", {{"device", change.device}, {"baseline", change.baseline}}}});
  }
  return {{"device", baseline.device},
          {"verdict", to_string(baseline.verdict)},
          {"failure", baseline.failure},
          {"regression_factor", baseline.factor},
          {"regression", baseline.has_regression()},
          {"precision", std::move(precision)},
          {"speed", std::move(speed)}};
}

}  // namespace

SignoffResult::Verdict SignoffReport::verdict() const {
  const SignoffResult::Verdict own = result.verdict();
  const bool unknown = baseline && !baseline->failure.empty();
  if (own == SignoffResult::Verdict::agrees && unknown) return SignoffResult::Verdict::none;
  const bool lost = baseline && baseline->has_regression();
  return own == SignoffResult::Verdict::agrees && lost ? SignoffResult::Verdict::disagrees : own;
}

std::string to_string(Operation operation) {
  switch (operation) {
    case Operation::convolution:
      return "convolution";
    case Operation::depthwise:
      return "depthwise";
    case Operation::channel_mean:
      return "channel mean";
    case Operation::channel_variance:
      return "channel variance";
    case Operation::normalise:
      return "normalise";
    case Operation::relu:
      return "relu";
    case Operation::add:
      return "add";
    case Operation::global_average_pool:
      return "global average pool";
    case Operation::dense:
      return "dense";
    case Operation::all_reduce_mean:
      return "all-reduce mean";
    case Operation::running_statistics:
      return "running statistics";
    case Operation::all_reduce_sum:
      return "all-reduce sum";
    case Operation::broadcast:
      return "broadcast";
    default:
      return "operation of the optimizer step";
  }
}

Machine this_machine() {
  Machine machine;
  std::ifstream processors("/proc/cpuinfo");
  for (std::string line; machine.cpu.empty() && std::getline(processors, line);) {
    const std::size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      machine.cpu = line.substr(colon + 2);
    }
  }
  if (utsname kernel{}; uname(&kernel) == 0) {
    machine.kernel = fmt::format("{} {} {}", kernel.sysname, kernel.release, kernel.machine);
  }
  machine.processors = std::thread::hardware_concurrency();
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0) {
    machine.memory = static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page);
  }
  return machine;
}

std::vector<StatedContract> stated_contracts(const Device& device, std::size_t batch,
                                             std::size_t plane) {
  std::vector<StatedContract> stated;
  for (const Operation operation :
       {Operation::convolution, Operation::depthwise, Operation::channel_mean,
        Operation::channel_variance, Operation::normalise, Operation::relu, Operation::add,
        Operation::global_average_pool, Operation::dense, Operation::all_reduce_mean}) {
    stated.push_back({operation, batch, plane, device.contract(operation, batch, plane)});
  }
  return stated;
}

std::string to_string(SignoffResult::Verdict verdict) {
  switch (verdict) {
    case SignoffResult::Verdict::agrees:
      return "agrees";
    case SignoffResult::Verdict::disagrees:
      return "disagrees";
    case SignoffResult::Verdict::none:
      return "no verdict";
  }
  return "";
}

std::string counted(std::size_t count, const std::string& noun, const std::string& plural) {
  return fmt::format("{} {}", count, count == 1 ? noun : plural);
}

std::string to_text(const ReportedInputs& inputs) {
  const auto file = [](const InputFile& read) {
    return fmt::format("{} ({} bytes, crc32 {:08x})\n", read.path, read.bytes, read.crc32);
  };
  std::string text =
      "weights: " +
      (inputs.weights ? file(*inputs.weights) : fmt::format("drawn from seed {}\n", inputs.seed));
  const std::size_t shown = std::min(kShown, inputs.images.size());
  for (std::size_t i = 0; i < shown; ++i) text += "image: " + file(inputs.images[i]);
  if (inputs.images.size() > shown) {
    text += fmt::format("  and {} more, all in the JSON\n", inputs.images.size() - shown);
  }
  if (inputs.places > inputs.images.size()) {
    text += fmt::format("  and {} of these, drawn from seed {}\n",
                        counted(inputs.places - inputs.images.size(), "other crop", "other crops"),
                        inputs.seed);
  }
  if (!inputs.zero_weights.empty()) {
    text += fmt::format(
        "note: {} of {} weights are all zero ({}{}): a fault in how they are used cannot show on "
        "natural input\n",
        inputs.zero_weights.size(), inputs.parameters, inputs.zero_weights[0],
        inputs.zero_weights.size() > 1 ? ", ..." : "");
  }
  return text;
}

nlohmann::json to_json(const ReportedInputs& inputs) {
  using nlohmann::json;
  const auto file = [](const InputFile& read) -> json {
    return {
        {"path", read.path}, {"bytes", read.bytes}, {"crc32", fmt::format("{:08x}", read.crc32)}};
  };
  json images = json::array();
  for (const InputFile& image : inputs.images) images.push_back(file(image));
  return {{"weights", inputs.weights ? file(*inputs.weights) : json("drawn from the seed")},
          {"images", std::move(images)},
          {"zero_weights", inputs.zero_weights}};
}

std::string to_text(const SignoffReport& report) {
  const SignoffResult& result = report.result;
  std::string text = fmt::format(
      "{}: {} at {}x{}, {} of {}, {}, epsilon {:.6g}, seed {}\n", to_string(report.verdict()),
      report.net, report.size, report.size, counted(report.replicas, "replica", "replicas"),
      counted(report.batch, "image", "images"), counted(report.classes, "class", "classes"),
      report.epsilon, report.inputs.seed);
  text += "device: " + report.device + "\n" + to_text(report.inputs) + "\n";
  if (!result.failure.empty()) text += "a launch failed: " + result.failure + "\n\n";
  if (!result.out_of_memory.empty()) {
    text += "the device ran out of memory: " + result.out_of_memory +
            "; ask for fewer replicas or smaller images\n\n";
  }

  std::vector<const Comparison*> wrong;
  for (const Comparison& comparison : result.comparisons) {
    if (comparison.outcome() == Outcome::wrong) wrong.push_back(&comparison);
  }
  if (!wrong.empty()) {
    text += fmt::format("wrong: {}, in the order of the graph\n",
                        counted(wrong.size(), "comparison", "comparisons"));
    text += table_head();
    for (std::size_t i = 0; i < std::min(kShown, wrong.size()); ++i) text += row(*wrong[i]);
    if (wrong.size() > kShown) {
      text += fmt::format("  and {} more, all in the JSON\n", wrong.size() - kShown);
    }
    text += "\n";
  }
  if (!report.replay.empty()) text += "again: " + report.replay + "\n\n";
  if (!result.unjudged.empty()) {
    text += "judged by no kind of input:\n";
    for (const std::string& node : result.unjudged) text += "  " + node + "\n";
    text += "\n";
  }

  text += fmt::format("{:<12} {:>12} {:>8} {:>8} {:>11} {:>16}\n", "input", "comparisons", "agree",
                      "wrong", "not judged", "numbers");
  for (const InputKind kind : {InputKind::natural, InputKind::lattice, InputKind::dithered}) {
    const Count sum = count(result, kind);
    text += fmt::format("{:<12} {:>12} {:>8} {:>8} {:>11} {:>16}\n", to_string(kind),
                        sum.comparisons, sum.agree, sum.wrong, sum.not_judged, sum.numbers);
  }
  text += fmt::format("suspicions: {}, {} dropped; not judged at first: {}; fresh draws: {}\n",
                      result.suspicions, result.suspicions_dropped, result.unjudged_at_first,
                      result.fresh_draws);
  for (const ProbedSum& sum : report.sums) text += "order of sums: " + describe(sum) + "\n";
  if (!result.logits.empty()) {
    text += fmt::format(
        "logits: largest end-to-end error {:.3g}, largest logit {:.3g} (not part of the verdict)\n",
        report.logits_error, report.logits_largest);
  }
  if (report.baseline) text += to_text(*report.baseline);
  const std::vector<const Comparison*> closest = nearest(result);
  if (!closest.empty()) text += "\nnearest to their bounds\n" + table_head();
  for (std::size_t i = 0; i < std::min(kShown, closest.size()); ++i) text += row(*closest[i]);
  text += fmt::format("\ntook {:.1f} s\n", report.seconds);
  return text;
}

nlohmann::json to_json(const SignoffReport& report) {
  using nlohmann::json;
  const SignoffResult& result = report.result;
  json comparisons = json::array();
  for (const Comparison& comparison : result.comparisons) {
    const Difference& worst = comparison.worst;
    json entry{{"node", comparison.node},
               {"part", comparison.part},
               {"input", to_string(comparison.kind)},
               {"outcome", to_string(comparison.outcome())},
               {"compared", comparison.compared},
               {"wrong", comparison.wrong},
               {"not_judged", comparison.not_judged},
               {"shape",
                {comparison.shape.n, comparison.shape.c, comparison.shape.h, comparison.shape.w}}};
    if (worst.ratio > 0) {
      entry["worst"] = {{"replica", worst.replica},
                        {"index", worst.index},
                        {"got", fmt::format("{:a}", worst.got)},
                        {"exact", fmt::format("{:a}", worst.expected)},
                        {"bound", fmt::format("{:a}", worst.bound)},
                        {"ratio", fmt::format("{:.6g}", worst.ratio)},
                        {"ulps", fmt::format("{:.6g}", worst.ulps())}};
    }
    if (comparison.precision) entry["precision"] = to_json(*comparison.precision);
    comparisons.push_back(std::move(entry));
  }
  json counts;
  for (const InputKind kind : {InputKind::natural, InputKind::lattice, InputKind::dithered}) {
    const Count sum = count(result, kind);
    counts[to_string(kind)] = {{"comparisons", sum.comparisons},
                               {"agree", sum.agree},
                               {"wrong", sum.wrong},
                               {"not_judged", sum.not_judged},
                               {"numbers", sum.numbers}};
  }
  json document{{"schema", "shardproof/signoff/1"},
                {"version", report.version},
                {"verdict", to_string(report.verdict())},
                {"net", report.net},
                {"size", report.size},
                {"classes", report.classes},
                {"replicas", report.replicas},
                {"batch", report.batch},
                {"epsilon", fmt::format("{:a}", report.epsilon)},
                {"seed", report.inputs.seed},
                {"inputs", to_json(report.inputs)},
                {"device", report.device},
                {"failure", result.failure},
                {"out_of_memory", result.out_of_memory},
                {"counts", std::move(counts)},
                {"suspicions", result.suspicions},
                {"suspicions_dropped", result.suspicions_dropped},
                {"unjudged_at_first", result.unjudged_at_first},
                {"fresh_draws", result.fresh_draws},
                {"unjudged", result.unjudged},
                {"comparisons", std::move(comparisons)},
                {"replay", report.replay},
                {"threads", report.threads},
                {"machine",
                 {{"cpu", report.machine.cpu},
                  {"kernel", report.machine.kernel},
                  {"processors", report.machine.processors},
                  {"memory", report.machine.memory}}},
                {"contracts", json::array()},
                {"seconds", report.seconds}};
  for (const StatedContract& stated : report.contracts) {
    document["contracts"].push_back(to_json(stated));
  }
  for (const ProbedSum& sum : report.sums) document["sums"].push_back(to_json(sum));
  if (report.baseline) document["baseline"] = to_json(*report.baseline);
  if (!result.logits.empty()) {
    document["logits"] = {{"largest_error", report.logits_error},
                          {"largest", report.logits_largest}};
  }
  seal(document);
  return document;
}

Result<std::monostate> write_whole_files(
    const std::vector<std::pair<std::string, std::string>>& texts_by_path) {
  // A link leads to its file; what is no file, as a terminal, is written to as it is.
  std::vector<std::pair<std::string, std::string>> files, streams;
  for (const auto& [path, text] : texts_by_path) {
    std::error_code error;
    const std::filesystem::path whole = std::filesystem::weakly_canonical(path, error);
    const bool is_stream =
        std::filesystem::exists(whole, error) && !std::filesystem::is_regular_file(whole, error);
    (is_stream ? streams : files)
        .emplace_back(error || whole.empty() ? path : whole.string(), text);
  }
  const std::string suffix = "." + std::to_string(getpid()) + ".part";
  const auto failed = [&](const std::string& path, const std::string& reason) {
    std::error_code ignored;
    for (const auto& written : files) {
      std::filesystem::remove(written.first + suffix, ignored);
    }
    return Error{path + ": cannot be written: " + reason};
  };
  for (const auto& [path, text] : files) {
    std::ofstream file(path + suffix, std::ios::binary | std::ios::trunc);
    file << text;
    file.close();
    if (!file) return failed(path, std::strerror(errno));
  }
  for (const auto& [path, text] : files) {
    std::error_code error;
    std::filesystem::rename(path + suffix, path, error);
    if (error) return failed(path, error.message());
  }
  for (const auto& [path, text] : streams) {
    std::ofstream stream(path, std::ios::binary);
    stream << text;
    stream.close();
    if (!stream) return failed(path, std::strerror(errno));
  }
  return std::monostate{};
}

}  // namespace shardproof
