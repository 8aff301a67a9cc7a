// shardproof run: the reference alone, logits of images under batch BN.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "diff/cli/command.h"
#include "reference/graph/batch_shard.h"
#include "reference/graph/denote.h"
#include "reference/graph/evaluate.h"
#include "reference/nets/weights.h"
#include "reference/numbers/double_double.h"
#include "reference/numbers/interval.h"

namespace shardproof::cli {
namespace {

constexpr double kBitsPerDigit = 3.3219280948873623;  // log2(10)
constexpr double kRigorousMultiplyAdds = 1e9;         // about five minutes

struct RunArguments {
  NetArguments net;
  std::size_t batch = 0;  // 0: as many as images were named, or 8
  int rigorous = 0;
  std::string save_weights;  // empty: not asked for
};

// A logit as the digits that two evaluations share.
struct Logit {
  double value = 0;
  std::string digits;
};

// `number` to as many significant digits as it shares with `other`, both rounded; at most `most`.
std::string shared_digits(double number, double other, int most) {
  if (number == 0 && other == 0) return "0";
  for (int digits = most; digits > 0; --digits) {
    std::string text = fmt::format("{:.{}e}", number, digits - 1);
    if (text == fmt::format("{:.{}e}", other, digits - 1)) return text;
  }
  return "?";
}

std::vector<Logit> confirmed(const NetInputs& inputs, const Tensor<float>& images,
                             unsigned threads) {
  const Tensor<double> first = evaluate<double>(inputs.batch, inputs.weights, images, threads);
  const Tensor<DoubleDouble> second =
      evaluate<DoubleDouble>(inputs.batch, inputs.weights, images, threads);
  std::vector<Logit> logits;
  for (std::size_t i = 0; i < first.values.size(); ++i) {
    const double confirmation = second.values[i].high;
    logits.push_back({confirmation, shared_digits(first.values[i], confirmation, 17)});
  }
  return logits;
}

template <int Digits>
std::vector<Logit> enclosed(const NetInputs& inputs, const Tensor<float>& images) {
  const auto enclosures = denote_on_one_device<Interval<Digits>>(inputs.batch, inputs.weights,
                                                                 exact<Interval<Digits>>(images));
  std::vector<Logit> logits;
  for (const Interval<Digits>& enclosure : enclosures.values) {
    const auto low = enclosure.lower();
    const auto high = enclosure.upper();
    std::string digits = "?";
    for (int places = std::min(Digits, 40); places > 0 && digits == "?"; --places) {
      const std::string text = low.str(places, std::ios_base::scientific);
      if (text == high.str(places, std::ios_base::scientific)) digits = text;
    }
    logits.push_back({static_cast<double>(low), digits});
  }
  return logits;
}

bool all_known(const std::vector<Logit>& logits) {
  return std::none_of(logits.begin(), logits.end(),
                      [](const Logit& logit) { return logit.digits == "?"; });
}

struct Proved {
  std::vector<Logit> logits;
  int digits;  // decimal, of the bounds
};

// At the first of the fixed precisions that has the bits and encloses every logit to a digit or
// more.
template <int Digits, int... Wider>
Result<Proved> rigorous(const NetInputs& inputs, const Tensor<float>& images, int bits) {
  if (bits <= Digits * kBitsPerDigit || sizeof...(Wider) == 0) {
    if (isatty(STDERR_FILENO) != 0) {
      fmt::print(stderr, "intervals of {} decimal digits; this can take minutes\n", Digits);
    }
    try {
      std::vector<Logit> logits = enclosed<Digits>(inputs, images);
      if (all_known(logits)) return Proved{std::move(logits), Digits};
    } catch (const std::domain_error&) {  // a variance whose enclosure reaches 0
    }
  }
  if constexpr (sizeof...(Wider) > 0) {
    return rigorous<Wider...>(inputs, images, bits);
  } else {
    return Error{
        fmt::format("--rigorous: no digit of some logit is certain at {} decimal digits; batch BN "
                    "over few images divides by tiny deviations, so try a larger --batch",
                    Digits)};
  }
}

double multiply_adds(const Graph& graph) {
  double sum = 0;
  for (const Node& node : graph.nodes()) {
    double terms = 0;
    if (const auto* convolution = std::get_if<Convolution>(&node.operation)) {
      terms = static_cast<double>(graph.node(node.operands[0]).shape.c * convolution->kernel *
                                  convolution->kernel);
    } else if (const auto* depthwise = std::get_if<Depthwise>(&node.operation)) {
      terms = static_cast<double>(depthwise->kernel * depthwise->kernel);
    } else if (std::holds_alternative<Dense>(node.operation)) {
      terms = static_cast<double>(graph.node(node.operands[0]).shape.size());
    }
    sum += terms * static_cast<double>(node.shape.size());
  }
  return sum;
}

// `proved`: the decimal digits of the interval arithmetic, 0 where none was used.
std::string statement(int proved) {
  return proved > 0
             ? fmt::format(
                   "digits proved by interval arithmetic at {} decimal digits ({:.0f} bits)",
                   proved, proved * kBitsPerDigit)
             : "digits of a float64 evaluation that a second one in double-double (106 bits) "
               "confirms; confirmed is not proved";
}

std::string to_text(const RunArguments& arguments, const ReportedInputs& inputs,
                    const std::string& digits, const std::vector<Logit>& logits,
                    std::size_t images) {
  const std::size_t classes = arguments.net.classes;
  std::string text =
      fmt::format("mobilenetv4-conv-m at {}x{}, batch BN over {}, the largest of {} of each\n",
                  arguments.net.size, arguments.net.size, counted(images, "image", "images"),
                  counted(classes, "logit", "logits"));
  text += to_text(inputs) + digits + "\n\n";
  std::vector<std::size_t> order(classes);
  for (std::size_t n = 0; n < images; ++n) {
    const Logit* of_image = &logits[n * classes];
    std::iota(order.begin(), order.end(), std::size_t{0});
    const std::size_t shown = std::min<std::size_t>(5, classes);
    std::partial_sort(
        order.begin(), order.begin() + static_cast<std::ptrdiff_t>(shown), order.end(),
        [&](std::size_t a, std::size_t b) { return of_image[a].value > of_image[b].value; });
    text += fmt::format("image {}\n", n);
    for (std::size_t i = 0; i < shown; ++i) {
      text += fmt::format("  class {:>5}  {}\n", order[i], of_image[order[i]].digits);
    }
  }
  return text;
}

int run(const RunArguments& arguments) {
  const auto start = std::chrono::steady_clock::now();
  const std::size_t count = arguments.batch != 0            ? arguments.batch
                            : !arguments.net.images.empty() ? arguments.net.images.size()
                                                            : 8;
  const Result<NetInputs> inputs = prepare(arguments.net, 1, count);
  if (!inputs) return fail(inputs.error(), bad_input);
  if (!arguments.save_weights.empty()) {
    const auto saved =
        save_weights(arguments.save_weights, inputs->batch.parameters(), inputs->weights);
    if (!saved) return fail("--save-weights " + saved.error(), bad_input);
  }
  const Tensor<float> images = unshard(inputs->images);
  std::vector<Logit> logits;
  int digits_proved = 0;
  if (arguments.rigorous > 0) {
    const double work = multiply_adds(inputs->batch) * static_cast<double>(count);
    if (work > kRigorousMultiplyAdds) {
      return fail(
          fmt::format("--rigorous: {} images at {}x{} take {:.3g} interval products, at most "
                      "{:.0e} are done: give a smaller --size or --batch",
                      count, arguments.net.size, arguments.net.size, work, kRigorousMultiplyAdds),
          bad_input);
    }
    Result<Proved> proved = rigorous<30, 80, 160, 320>(*inputs, images, arguments.rigorous);
    if (!proved) return fail(proved.error(), no_verdict);
    logits = std::move(proved->logits);
    digits_proved = proved->digits;
  } else {
    logits = confirmed(*inputs, images, threads_of(arguments.net.threads));
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!arguments.net.json) {
    const std::string text =
        to_text(arguments, inputs->reported, statement(digits_proved), logits, count);
    return print(fmt::format("{}\ntook {:.1f} s\n", text, seconds)) ? agrees : no_verdict;
  }
  nlohmann::json rows = nlohmann::json::array();
  for (std::size_t n = 0; n < count; ++n) {
    nlohmann::json row = nlohmann::json::array();
    for (std::size_t c = 0; c < arguments.net.classes; ++c) {
      row.push_back(logits[n * arguments.net.classes + c].digits);
    }
    rows.push_back(std::move(row));
  }
  const nlohmann::json document{
      {"schema", "shardproof/run/1"},        {"net", "mobilenetv4-conv-m"},
      {"size", arguments.net.size},          {"seed", arguments.net.seed},
      {"inputs", to_json(inputs->reported)}, {"digits", statement(digits_proved)},
      {"logits", std::move(rows)},           {"seconds", seconds}};
  return print(document.dump(1) + "\n") ? agrees : no_verdict;
}

}  // namespace

void add_run(CLI::App& program, int& exit_code) {
  auto arguments = std::make_shared<RunArguments>();
  CLI::App* command =
      program.add_subcommand("run", "The reference alone: logits of images under batch BN");
  add_net_options(*command, arguments->net);
  command
      ->add_option("--batch", arguments->batch,
                   "Images in the batch (default: as many as are named, or 8)")
      ->check(whole_number(1, 1'000'000));
  command
      ->add_option("--rigorous", arguments->rigorous,
                   "Prove the digits by interval arithmetic at so many bits (small sizes)")
      ->check(CLI::Range(53, 1063));
  command
      ->add_option("--save-weights", arguments->save_weights,
                   "Write the weights that are used to a safetensors file")
      ->check(some_name());
  command->footer("Example: shardproof run --size 32 --batch 4 --rigorous 500");
  command->callback([arguments, &exit_code] { exit_code = run(*arguments); });
}

}  // namespace shardproof::cli
