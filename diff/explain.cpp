#include "diff/explain.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <type_traits>

#include "reference/numbers/interval.h"
#include "reference/numbers/nearest.h"
#include "reference/numbers/rational.h"

namespace shardproof {
namespace {

constexpr std::size_t kDigits = 20;  // of an exact value
constexpr std::size_t kShown = 40;   // rows of a table of terms

// ---- Exact values

struct Enclosed {
  Rational lower, upper;
};

Rational rational(float x) { return RealTraits<Rational>::from_double(static_cast<double>(x)); }

template <class Bound>
Rational rational_of(const Bound& bound) {
  mpq_t fraction;
  mpq_init(fraction);
  mpfr_get_q(fraction, bound.backend().data());
  Rational result{fraction};
  mpq_clear(fraction);
  return result;
}

// x^(−1/2). Throws std::domain_error unless x is positive.
Enclosed reciprocal_root(const Rational& x) {
  try {
    const Rational root = RealTraits<Rational>::rsqrt(x);
    return {root, root};
  } catch (const std::domain_error&) {
    const Interval<80> root = Interval<80>::rsqrt(Interval<80>(x));
    return {rational_of(root.lower()), rational_of(root.upper())};
  }
}

Rational positive(const Rational& x) { return x > 0 ? x : Rational(0); }

std::string digits_of(const Rational& x) {
  const Rational magnitude = x < 0 ? Rational(-x) : x;
  if (magnitude == 0) return "0";
  using Integer = boost::multiprecision::mpz_int;
  // 10^exponent ≤ |x| < 10^(exponent + 1)
  const auto power = [](int e) {
    const Integer ten = boost::multiprecision::pow(Integer(10), static_cast<unsigned>(std::abs(e)));
    return e >= 0 ? Rational(ten) : Rational(Rational(1) / Rational(ten));
  };
  int exponent = static_cast<int>(std::floor(std::log10(nearest_float64(magnitude))));
  while (power(exponent) > magnitude) --exponent;
  while (power(exponent + 1) <= magnitude) ++exponent;
  const Rational scaled = magnitude * power(static_cast<int>(kDigits) - 1 - exponent);
  const Integer whole = numerator(scaled) / denominator(scaled);
  const bool cut = Rational(whole) != scaled;
  std::string digits = whole.str();
  if (!cut) digits.erase(digits.find_last_not_of('0') + 1);
  std::string text = x < 0 ? "-" : "";
  const auto size = static_cast<int>(digits.size());
  if (exponent < -5 || exponent >= static_cast<int>(kDigits)) {
    text += digits.substr(0, 1) + (size > 1 ? "." + digits.substr(1) : "") + (cut ? "..." : "");
    return text + fmt::format("e{:+03d}", exponent);
  }
  if (exponent < 0) {
    text += "0." + std::string(static_cast<std::size_t>(-exponent - 1), '0') + digits;
  } else if (size <= exponent + 1) {
    text += digits + std::string(static_cast<std::size_t>(exponent + 1 - size), '0');
  } else {
    const auto point = static_cast<std::size_t>(exponent) + 1;
    text += digits.substr(0, point) + "." + digits.substr(point);
  }
  return text + (cut ? "..." : "");
}

ExactValue exact_of(const Enclosed& value) {
  ExactValue exact{nearest_float64(value.lower), nearest_float64(value.upper),
                   digits_of(value.lower)};
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const auto at = [](double x) { return RealTraits<Rational>::from_double(x); };
  if (at(exact.lower) > value.lower) exact.lower = std::nextafter(exact.lower, -kInfinity);
  if (at(exact.upper) < value.upper) exact.upper = std::nextafter(exact.upper, kInfinity);
  if (value.lower != value.upper && !exact.decimal.ends_with("...") &&
      exact.decimal.find("...e") == std::string::npos) {
    exact.decimal += "...";
  }
  return exact;
}

// ---- One case, with what was written

class Case {
 public:
  Case(const UnitCase& c, const UnitVerdict& verdict) : c_(c), verdict_(verdict) {}

  const Graph& graph() const { return c_.graph; }
  std::size_t replicas() const { return c_.inputs.at(0).size(); }
  const Tensor<float>& x(std::size_t r, std::size_t input = 0) const {
    return c_.inputs.at(input).at(r);
  }
  const std::vector<float>& weight(const std::string& name) const {
    return c_.weights.at(name).values;
  }

  std::optional<NodeId> node(const std::string& name) const {
    for (NodeId id = 0; id < graph().nodes().size(); ++id) {
      if (graph().node(id).name == name) return id;
    }
    return std::nullopt;
  }
  const Family<float>* written(NodeId node) const {
    for (const auto& [id, values] : verdict_.written) {
      if (id == node) return &values;
    }
    return nullptr;
  }

  // The nodes of a site.
  struct Site {
    NodeId own_mean, mean, own_variance, variance, y;
    const BnSync* operation;
    bool relu;
  };
  std::optional<Site> site() const {
    const NodeId end = graph().output();
    const bool relu = std::holds_alternative<Relu>(graph().node(end).operation) && end > 1;
    const NodeId y = relu ? end - 1 : end;
    const auto* operation = std::get_if<BnSync>(&graph().node(y).operation);
    if (operation == nullptr) return std::nullopt;
    const std::vector<NodeId>& statistics = graph().node(graph().node(y).operands[1]).operands;
    return Site{graph().node(statistics[0]).operands[0],
                statistics[0],
                graph().node(statistics[1]).operands[0],
                statistics[1],
                end,
                operation,
                relu};
  }

  // All numbers of a channel on one replica.
  std::vector<float> channel(std::size_t r, std::size_t channel) const {
    std::vector<float> numbers;
    for (std::size_t n = 0; n < x(r).shape.n; ++n) {
      const auto plane = x(r).plane(n, channel);
      numbers.insert(numbers.end(), plane.begin(), plane.end());
    }
    return numbers;
  }
  Rational mean_of(std::size_t r, std::size_t channel) const {
    Rational sum = 0;
    const std::vector<float> numbers = this->channel(r, channel);
    for (const float number : numbers) sum += rational(number);
    return sum / Rational(static_cast<long>(numbers.size()));
  }
  Rational batch_mean(std::size_t channel) const {
    Rational sum = 0;
    for (std::size_t r = 0; r < replicas(); ++r) sum += mean_of(r, channel);
    return sum / Rational(static_cast<long>(replicas()));
  }
  // (1/m) Σ (x − about)²: σ²_r + (μ_r − about)².
  Rational moment_about(std::size_t r, std::size_t channel, const Rational& about) const {
    Rational sum = 0;
    const std::vector<float> numbers = this->channel(r, channel);
    for (const float number : numbers) {
      const Rational distance = rational(number) - about;
      sum += distance * distance;
    }
    return sum / Rational(static_cast<long>(numbers.size()));
  }
  Rational batch_variance(std::size_t channel) const {
    const Rational mean = batch_mean(channel);
    Rational sum = 0;
    for (std::size_t r = 0; r < replicas(); ++r) sum += moment_about(r, channel, mean);
    return sum / Rational(static_cast<long>(replicas()));
  }
  Enclosed normalised(const Site& site, std::size_t channel, float number, const Rational& mean,
                      const Rational& variance) const {
    const Enclosed root = reciprocal_root(variance + rational(site.operation->epsilon));
    const Rational factor =
        rational(weight(site.operation->gamma)[channel]) * (rational(number) - mean);
    const Rational beta = rational(weight(site.operation->beta)[channel]);
    Enclosed y{factor * root.lower + beta, factor * root.upper + beta};
    if (y.lower > y.upper) std::swap(y.lower, y.upper);
    if (site.relu) y = {positive(y.lower), positive(y.upper)};
    return y;
  }

  // One output of a product: its terms and its bias.
  struct Term {
    std::string place;  // of the operand in its example
    float x, w;
  };
  struct Product {
    std::vector<Term> terms;
    std::optional<float> bias;
  };
  Product product(std::size_t r, std::size_t index) const {
    const Node& node = graph().node(graph().output());
    const Tensor<float>& operand = x(r);
    const std::size_t image = index / node.shape.size();
    const std::size_t channel = index / node.shape.plane() % node.shape.c;
    const std::size_t row = index / node.shape.w % node.shape.h;
    const std::size_t column = index % node.shape.w;
    Product product;
    const auto bias_of = [&](const std::string& name) {
      if (!name.empty()) product.bias = weight(name)[channel];
    };
    const auto window = [&](const auto& op, std::size_t first, std::size_t count) {
      for (std::size_t i = 0; i < count; ++i) {
        for (std::size_t tap = 0; tap < op.kernel * op.kernel; ++tap) {
          const std::size_t h = row * op.stride + tap / op.kernel - op.pad_begin;  // may wrap
          const std::size_t w = column * op.stride + tap % op.kernel - op.pad_begin;
          if (h >= operand.shape.h || w >= operand.shape.w) continue;
          product.terms.push_back(
              {fmt::format("[{}, {}, {}, {}]", image, first + i, h, w),
               operand.at(image, first + i, h, w),
               weight(op.weight)[(channel * count + i) * op.kernel * op.kernel + tap]});
        }
      }
    };
    if (const auto* convolution = std::get_if<Convolution>(&node.operation)) {
      window(*convolution, 0, operand.shape.c);
      bias_of(convolution->bias);
    } else if (const auto* depthwise = std::get_if<Depthwise>(&node.operation)) {
      window(*depthwise, channel, 1);
    } else if (const auto* dense = std::get_if<Dense>(&node.operation)) {
      const std::size_t in = operand.shape.example();
      for (std::size_t i = 0; i < in; ++i) {
        product.terms.push_back({fmt::format("[{}, {}]", image, i), operand.values[image * in + i],
                                 weight(dense->weight)[i * node.shape.c + channel]});
      }
      bias_of(dense->bias);
    }
    return product;
  }

  bool rounds_operands() const {
    return std::any_of(verdict_.contracts.begin(), verdict_.contracts.end(),
                       [](const auto& of) { return of.second.operands != Operands::float32; });
  }

  Enclosed value(const Comparison& comparison) const {
    const std::size_t replica = comparison.worst.replica;
    const std::size_t index = comparison.worst.index;
    const auto exactly = [](const Rational& x) { return Enclosed{x, x}; };
    const auto id = node(comparison.node);
    if (!id) throw std::domain_error("a node of another graph");
    const Node& node = graph().node(*id);
    const auto site = this->site();
    const auto wrote = [&](NodeId other, std::size_t i) {
      const Family<float>* values = written(other);
      if (values == nullptr) throw std::domain_error("not written");
      return rational(values->at(replica).values.at(i));
    };
    const std::size_t channel = index / node.shape.plane() % node.shape.c;
    const std::size_t of_channel = site && node.per_example ? channel : index;
    if (comparison.part == "equal on all replicas" ||
        comparison.part == "unrecorded run repeats the bits") {
      return exactly(rational(static_cast<float>(comparison.worst.expected)));
    }
    if (comparison.part == "batch mean") return exactly(batch_mean(of_channel));
    if (comparison.part == "batch variance") return exactly(batch_variance(of_channel));
    if (comparison.part == "y on own statistics") {
      return normalised(*site, channel, x(replica).values.at(index), wrote(site->mean, channel),
                        wrote(site->variance, channel));
    }
    if (comparison.part == "y against its shard of batch BN") {
      return normalised(*site, channel, x(replica).values.at(index), batch_mean(channel),
                        batch_variance(channel));
    }
    return std::visit(
        [&](const auto& op) -> Enclosed {
          using T = std::decay_t<decltype(op)>;
          if constexpr (std::is_same_v<T, Add>) {
            return exactly(rational(x(replica, 0).values.at(index)) +
                           rational(x(replica, 1).values.at(index)));
          } else if constexpr (std::is_same_v<T, Relu>) {
            return exactly(positive(rational(x(replica).values.at(index))));
          } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
            Rational sum = 0;
            const auto plane = x(replica).plane(index / node.shape.c, index % node.shape.c);
            for (const float number : plane) sum += rational(number);
            return exactly(sum / Rational(static_cast<long>(plane.size())));
          } else if constexpr (std::is_same_v<T, BnMean>) {
            return exactly(mean_of(replica, index));
          } else if constexpr (std::is_same_v<T, BnVarAt>) {
            return exactly(moment_about(replica, index, wrote(site->mean, index)));
          } else if constexpr (std::is_same_v<T, AllReduceMean>) {
            const Family<float>* sent = written(node.operands[0]);
            if (sent == nullptr) throw std::domain_error("not written");
            Rational sum = 0;
            for (const Tensor<float>& of : *sent) sum += rational(of.values.at(index));
            return exactly(sum / Rational(static_cast<long>(sent->size())));
          } else {
            if (rounds_operands()) throw std::domain_error("rounded operands");
            const Product product = this->product(replica, index);
            Rational sum = product.bias ? rational(*product.bias) : Rational(0);
            for (const Term& term : product.terms) sum += rational(term.x) * rational(term.w);
            return exactly(sum);
          }
        },
        node.operation);
  }

  const UnitCase& c_;
  const UnitVerdict& verdict_;
};

// ---- Words

std::string with_bits(float x) { return fmt::format("{:.9g} ({:a})", x, x); }

std::string short_of(const Enclosed& value) {
  return fmt::format("{:.9g}", nearest_float64(value.lower));
}

std::string short_or_none(auto compute) {
  try {
    return short_of(compute());
  } catch (const std::domain_error&) {
    return "none";
  }
}

std::string place_of(const Shape& shape, std::size_t index) {
  if (shape.n == 1 && shape.plane() == 1) return fmt::format("channel {}", index);
  return fmt::format("image {}, channel {}, row {}, column {}", index / shape.example(),
                     index / shape.plane() % shape.c, index / shape.w % shape.h, index % shape.w);
}

std::string statement_of(const Graph& graph, NodeId id, const std::string& part) {
  if (part == "equal on all replicas") return "the same bits on every replica (first: replica 0)";
  if (part == "unrecorded run repeats the bits") return "a second run gives the bits of the first";
  if (part == "batch mean") return "μ = mean of x over all replicas";
  if (part == "batch variance") return "σ² = mean of (x − μ)² over all replicas";
  const bool relu = std::holds_alternative<Relu>(graph.node(id).operation);
  const std::string y =
      relu ? "y = max(γ·(x − μ)·(σ² + ε)^(−1/2) + β, 0)" : "y = γ·(x − μ)·(σ² + ε)^(−1/2) + β";
  if (part == "y on own statistics") return y + ", with the μ and σ² that the device wrote";
  if (part == "y against its shard of batch BN") return y + ", with μ and σ² of all replicas' x";
  static constexpr std::array<const char*, 13> kStatements{
      "",
      "y = Σ x·w over the window and all input channels, and the bias",
      "y = Σ x·w over the window of the channel",
      "y = Σ x·w, and the bias",
      "y = max(x, 0)",
      "y = a + b, rounded once",
      "y = mean of x over height and width",
      "μ_r = mean of x on replica r",
      "σ²_r + (μ_r − μ)² = mean of (x − μ)² on replica r, about the μ that the device wrote",
      "mean over the replicas of what they wrote",
      "",
      "",
      ""};
  return kStatements.at(graph.node(id).operation.index());
}

std::string schedule_of(const UnitCase& c) {
  static constexpr std::array<const char*, 4> kThreads{"as many threads a channel as the work asks",
                                                       "one thread a channel", "a warp a channel",
                                                       "several warps a channel"};
  return fmt::format("seed {}, {}", c.schedule.seed,
                     kThreads.at(static_cast<std::size_t>(c.schedule.threads)));
}

// Those of the tested operation that matter to a reader: all that differ from the defaults.
std::string contract_of(const UnitVerdict& verdict, Operation operation) {
  for (const auto& [of, contract] : verdict.contracts) {
    if (of != operation) continue;
    static constexpr std::array<const char*, 4> kOperands{"float32", "tf32", "bfloat16", "float16"};
    static constexpr std::array<const char*, 5> kSums{"float32", "float64", "tensor core",
                                                      "bfloat16", "float16"};
    static constexpr std::array<const char*, 3> kMeans{"divide", "reciprocal", "premultiply"};
    static constexpr std::array<const char*, 5> kStatistics{"two-pass", "shifted", "one-pass",
                                                            "Welford", "merged"};
    const auto name = [](const auto& names, auto value) {
      return names.at(static_cast<std::size_t>(value));
    };
    return fmt::format(
        "operands {}, sums {} in {} {}, mean: {}, statistics: {}, {}, root within {:g} ulps{}, "
        "contraction {}, subnormals {}",
        name(kOperands, contract.operands), name(kSums, contract.accumulate), contract.lanes,
        contract.lanes == 1 ? "lane" : "lanes", name(kMeans, contract.mean),
        name(kStatistics, contract.statistics),
        contract.form == NormaliseForm::fused ? "fused scale and shift" : "subtract first",
        contract.root, contract.root_exact_at_powers_of_four ? " and exact at powers of four" : "",
        contract.contraction ? "allowed" : "no", contract.subnormals_kept ? "kept" : "flushed");
  }
  return "";
}

using Table = Explanation::Table;

Table terms_table(const Case& of, std::size_t replica, std::size_t index) {
  const Case::Product product = of.product(replica, index);
  Table table{fmt::format("terms on replica {}", replica), {"x at", "x", "w", "x·w", "sum"}, {}};
  Rational sum = 0;
  bool finite = true;
  for (const Case::Term& term : product.terms) {
    finite = finite && std::isfinite(term.x) && std::isfinite(term.w);
    if (finite) sum += rational(term.x) * rational(term.w);
    if (table.rows.size() == kShown) {
      ++table.left_out;
      continue;
    }
    table.rows.push_back(
        {term.place, fmt::format("{:.9g}", term.x), fmt::format("{:.9g}", term.w),
         fmt::format("{:.9g}", static_cast<double>(term.x) * static_cast<double>(term.w)),
         finite ? short_of({sum, sum}) : "none"});
  }
  if (product.bias) {
    finite = finite && std::isfinite(*product.bias);
    if (finite) sum += rational(*product.bias);
    table.rows.push_back({"bias", "", "", fmt::format("{:.9g}", *product.bias),
                          finite ? short_of({sum, sum}) : "none"});
  }
  return table;
}

// The numbers that enter one mean, of each replica.
Table numbers_table(const std::string& title, const std::vector<std::vector<float>>& numbers) {
  constexpr std::size_t kNumbers = 8;
  Table table{title, {"replica", "x"}, {}};
  for (std::size_t r = 0; r < numbers.size(); ++r) {
    std::vector<std::string> row{std::to_string(r)};
    for (std::size_t i = 0; i < std::min(kNumbers, numbers[r].size()); ++i) {
      row.push_back(fmt::format("{:.9g}", numbers[r][i]));
    }
    if (numbers[r].size() > kNumbers) {
      row.push_back(fmt::format("and {} more", numbers[r].size() - kNumbers));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

// Each replica's partial values of one channel, and y at one place.
void add_site_tables(const Case& of, const Case::Site& site, std::size_t channel,
                     std::optional<std::size_t> index, Explanation& explanation) {
  Table table{fmt::format("replicas, channel {}; exact: from x alone", channel),
              {"replica", "", "μ_r", "σ²_r + (μ_r − μ)²", "μ", "σ²"},
              {}};
  if (index) table.columns.push_back("y");
  std::vector<std::vector<float>> numbers;
  for (std::size_t r = 0; r < of.replicas(); ++r) {
    numbers.push_back(of.channel(r, channel));
    const auto got = [&](NodeId node, std::size_t i) {
      const Family<float>* values = of.written(node);
      return values == nullptr ? std::string("none")
                               : fmt::format("{:.9g}", values->at(r).values.at(i));
    };
    std::vector<std::string> device{std::to_string(r), "device"};
    for (const NodeId node : {site.own_mean, site.own_variance, site.mean, site.variance}) {
      device.push_back(got(node, channel));
    }
    const auto exactly = [](const Rational& x) { return Enclosed{x, x}; };
    std::vector<std::string> exact{
        "",
        "exact",
        short_or_none([&] { return exactly(of.mean_of(r, channel)); }),
        short_or_none([&] { return exactly(of.moment_about(r, channel, of.batch_mean(channel))); }),
        short_or_none([&] { return exactly(of.batch_mean(channel)); }),
        short_or_none([&] { return exactly(of.batch_variance(channel)); })};
    if (index) {
      device.push_back(got(site.y, *index));
      exact.push_back(short_or_none([&] {
        return of.normalised(site, channel, of.x(r).values.at(*index), of.batch_mean(channel),
                             of.batch_variance(channel));
      }));
    }
    table.rows.push_back(std::move(device));
    table.rows.push_back(std::move(exact));
  }
  explanation.tables.push_back(std::move(table));
  explanation.tables.push_back(numbers_table(fmt::format("x of channel {}", channel), numbers));
}

void add_tables(const Case& of, const Comparison& comparison, Explanation& explanation) {
  const Difference& worst = comparison.worst;
  const Graph& graph = of.graph();
  const NodeId end = graph.output();
  if (const auto site = of.site()) {
    const Node& node = graph.node(*of.node(comparison.node));
    const std::size_t channel = worst.index / node.shape.plane() % node.shape.c;
    add_site_tables(of, *site, channel,
                    node.per_example ? std::optional(worst.index) : std::nullopt, explanation);
    return;
  }
  const Node& node = graph.node(end);
  const bool add = std::holds_alternative<Add>(node.operation);
  const bool point = add || std::holds_alternative<Relu>(node.operation);
  Table table{"replicas, at the same place", {"replica", "got"}, {}};
  if (point) table.columns.push_back(add ? "a" : "x");
  if (add) table.columns.push_back("b");
  table.columns.push_back("exact");
  const Family<float>* got = of.written(end);
  std::vector<std::vector<float>> numbers;
  for (std::size_t r = 0; r < of.replicas(); ++r) {
    Comparison there = comparison;
    there.worst.replica = r;
    there.part = "";
    std::vector<std::string> row{std::to_string(r)};
    row.push_back(got == nullptr ? "none"
                                 : fmt::format("{:.9g}", got->at(r).values.at(worst.index)));
    if (point) row.push_back(fmt::format("{:.9g}", of.x(r).values.at(worst.index)));
    if (add) row.push_back(fmt::format("{:.9g}", of.x(r, 1).values.at(worst.index)));
    row.push_back(short_or_none([&] { return of.value(there); }));
    table.rows.push_back(std::move(row));
    if (std::holds_alternative<GlobalAveragePool>(node.operation)) {
      const auto plane = of.x(r).plane(worst.index / node.shape.c, worst.index % node.shape.c);
      numbers.emplace_back(plane.begin(), plane.end());
    }
  }
  explanation.tables.push_back(std::move(table));
  if (!numbers.empty()) {
    explanation.tables.push_back(numbers_table("x of that image and channel", numbers));
  } else if (!point) {
    explanation.tables.push_back(terms_table(of, worst.replica, worst.index));
  }
}

void add_case_facts(const UnitCase& c, const UnitVerdict& verdict, Explanation& explanation) {
  const auto fact = [&](const std::string& name, const std::string& text) {
    explanation.facts.emplace_back(name, text);
  };
  fact("input", to_string(c.kind));
  fact("sizes",
       fmt::format("R = {}, N = {}, x of {}", c.inputs.at(0).size(), c.inputs.at(0).at(0).shape.n,
                   to_string(c.graph.node(c.graph.inputs().at(0)).shape)));
  fact("schedule", schedule_of(c));
  fact("device", verdict.device);
}

}  // namespace

std::optional<ExactValue> exact_value(const UnitCase& c, const UnitVerdict& verdict,
                                      const Comparison& comparison) {
  try {
    return exact_of(Case(c, verdict).value(comparison));
  } catch (const std::domain_error&) {
    return std::nullopt;
  }
}

Explanation explained(const UnitCase& c, const UnitVerdict& verdict) {
  Explanation explanation;
  const Comparison* wrong = verdict.first_wrong();
  if (wrong == nullptr) {
    explanation.verdict = verdict.failure.empty() ? to_string(verdict.outcome())
                                                  : "wrong: a launch failed: " + verdict.failure;
    add_case_facts(c, verdict, explanation);
    return explanation;
  }
  const Case of(c, verdict);
  const Difference& worst = wrong->worst;
  const NodeId id = *of.node(wrong->node);
  const bool own = wrong < verdict.comparisons.data() + verdict.own;
  explanation.verdict = fmt::format("wrong: {}{}, replica {}, {}", wrong->node,
                                    wrong->part.empty() ? "" : ": " + wrong->part, worst.replica,
                                    place_of(wrong->shape, worst.index));
  const auto fact = [&](const std::string& name, const std::string& text) {
    explanation.facts.emplace_back(name, text);
  };
  fact("statement", statement_of(of.graph(), id, wrong->part));
  const auto exact = own ? exact_value(c, verdict, *wrong) : std::nullopt;
  if (exact) {
    fact("exact", exact->decimal);
    const auto low = static_cast<float>(exact->lower);
    const auto high = static_cast<float>(exact->upper);
    if (low == high) fact("in float32", with_bits(low));
  } else {
    fact("expected", fmt::format("{:.17g}", worst.expected));
  }
  fact("got", with_bits(static_cast<float>(worst.got)));
  fact("bound", fmt::format("{:.3g}", worst.bound));
  fact("error", std::isfinite(worst.ratio)
                    ? fmt::format("{:.3g}, {:.3g} ulps, {:.3g} times the bound", worst.error(),
                                  worst.ulps(), worst.ratio)
                    : fmt::format("{:.3g}, {:.3g} ulps", worst.error(), worst.ulps()));
  if (!own) fact("found in", "a fresh dithered draw of the unit, whose numbers are not the case's");
  if (own && wrong->worst.ratio <= 1) {
    fact("found by", "fresh dithered draws of the unit, which confirmed a suspicion");
  }
  add_case_facts(c, verdict, explanation);
  for (const Launch& launch : launches_of(of.graph())) {
    if (launch.writes != id) continue;
    const std::string contract = contract_of(verdict, launch.operation);
    if (!contract.empty()) fact("contract", contract);
  }
  if (const auto site = of.site(); site && own) {
    const Node& node = of.graph().node(id);
    const std::size_t channel = worst.index / node.shape.plane() % node.shape.c;
    if (node.per_example) fact("x", with_bits(of.x(worst.replica).values.at(worst.index)));
    fact("γ", with_bits(of.weight(site->operation->gamma)[channel]));
    fact("β", with_bits(of.weight(site->operation->beta)[channel]));
    fact("ε", with_bits(site->operation->epsilon));
  }
  if (own) add_tables(of, *wrong, explanation);
  return explanation;
}

std::string to_text(const Explanation& explanation) {
  // In characters: those after the first byte of one begin with the bits 10.
  const auto width = [](const std::string& text) {
    return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
      return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U;
    }));
  };
  const auto spaces = [](std::size_t count) { return std::string(count, ' '); };
  std::string text = explanation.verdict + "\n";
  for (const auto& [name, fact] : explanation.facts) {
    text += "  " + name;
    text += spaces(12 - std::min<std::size_t>(width(name), 11)) + fact + "\n";
  }
  for (const Explanation::Table& table : explanation.tables) {
    text += "\n" + table.title + "\n";
    std::vector<std::vector<std::string>> rows{table.columns};
    rows.insert(rows.end(), table.rows.begin(), table.rows.end());
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
      if (widths.size() < row.size()) widths.resize(row.size(), 0);
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], width(row[i]));
    }
    for (const auto& row : rows) {
      std::string line;
      for (std::size_t i = 0; i < row.size(); ++i) {
        line += "  " + row[i] + spaces(widths[i] - width(row[i]));
      }
      line.erase(line.find_last_not_of(' ') + 1);
      text += line + "\n";
    }
    if (table.left_out > 0) text += fmt::format("  and {} more\n", table.left_out);
  }
  return text;
}

nlohmann::ordered_json to_json(const Explanation& explanation) {
  using Json = nlohmann::ordered_json;
  Json facts = Json::object();
  for (const auto& [name, fact] : explanation.facts) facts[name] = fact;
  Json tables = Json::array();
  for (const Explanation::Table& table : explanation.tables) {
    Json entry = {{"title", table.title}, {"columns", table.columns}, {"rows", table.rows}};
    if (table.left_out > 0) entry["left_out"] = table.left_out;
    tables.push_back(std::move(entry));
  }
  return {
      {"verdict", explanation.verdict}, {"facts", std::move(facts)}, {"tables", std::move(tables)}};
}

}  // namespace shardproof
