#include "diff/case_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <type_traits>
#include <utility>

#include "diff/exact_number.h"

namespace shardproof {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "shardproof/case/";
constexpr std::uint64_t kVersion = 1;
constexpr std::uint64_t kMostBytes = std::uint64_t{4} << 20U;
constexpr std::uint64_t kMostNumbers = kMostBytes / sizeof(float);  // of one value of a node
constexpr std::uint64_t kMostReplicas = 1024;
constexpr std::size_t kDeepest = 8;  // levels of a case
constexpr std::size_t kLine = 100;   // columns

// ---- Names

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;

constexpr Names<InputKind, 3> kKinds{{{InputKind::natural, "natural"},
                                      {InputKind::lattice, "lattice"},
                                      {InputKind::dithered, "dithered"}}};
constexpr Names<Outcome, 4> kOutcomes{{{Outcome::agrees, "agrees"},
                                       {Outcome::suspect, "suspect"},
                                       {Outcome::wrong, "wrong"},
                                       {Outcome::not_judged, "not judged"}}};
constexpr Names<ChannelThreads, 4> kThreads{{{ChannelThreads::by_count, "by_count"},
                                             {ChannelThreads::one, "one"},
                                             {ChannelThreads::one_warp, "one_warp"},
                                             {ChannelThreads::several_warps, "several_warps"}}};
constexpr Names<Operation, 21> kOperations{{{Operation::convolution, "convolution"},
                                            {Operation::depthwise, "depthwise"},
                                            {Operation::channel_mean, "channel_mean"},
                                            {Operation::channel_variance, "channel_variance"},
                                            {Operation::normalise, "normalise"},
                                            {Operation::relu, "relu"},
                                            {Operation::add, "add"},
                                            {Operation::global_average_pool, "global_average_pool"},
                                            {Operation::dense, "dense"},
                                            {Operation::all_reduce_mean, "all_reduce_mean"},
                                            {Operation::reduce_scatter_mean, "reduce_scatter_mean"},
                                            {Operation::all_gather, "all_gather"},
                                            {Operation::all_reduce_sums, "all_reduce_sums"},
                                            {Operation::partial_sums, "partial_sums"},
                                            {Operation::shared_step, "shared_step"},
                                            {Operation::shared_sum, "shared_sum"},
                                            {Operation::owned_step, "owned_step"},
                                            {Operation::to_bfloat16, "to_bfloat16"},
                                            {Operation::running_statistics, "running_statistics"},
                                            {Operation::all_reduce_sum, "all_reduce_sum"},
                                            {Operation::broadcast, "broadcast"}}};
constexpr Names<Operands, 4> kOperands{{{Operands::float32, "float32"},
                                        {Operands::tf32, "tf32"},
                                        {Operands::bfloat16, "bfloat16"},
                                        {Operands::float16, "float16"}}};
constexpr Names<Accumulate, 5> kAccumulates{{{Accumulate::float32, "float32"},
                                             {Accumulate::float64, "float64"},
                                             {Accumulate::tensor_core, "tensor_core"},
                                             {Accumulate::bfloat16, "bfloat16"},
                                             {Accumulate::float16, "float16"}}};
constexpr Names<MeanDivision, 3> kMeans{{{MeanDivision::divide, "divide"},
                                         {MeanDivision::reciprocal, "reciprocal"},
                                         {MeanDivision::premultiply, "premultiply"}}};
constexpr Names<StatisticsMethod, 5> kStatistics{{{StatisticsMethod::two_pass, "two_pass"},
                                                  {StatisticsMethod::shifted, "shifted"},
                                                  {StatisticsMethod::one_pass, "one_pass"},
                                                  {StatisticsMethod::welford, "welford"},
                                                  {StatisticsMethod::merged, "merged"}}};
constexpr Names<NormaliseForm, 2> kForms{
    {{NormaliseForm::subtract_first, "subtract_first"}, {NormaliseForm::fused, "fused"}}};

template <class Enum, std::size_t N>
std::string name_of(Enum value, const Names<Enum, N>& names) {
  for (const auto& [known, name] : names) {
    if (known == value) return std::string(name);
  }
  throw std::logic_error("a value without a name");
}

// ---- Writing

Json json_of(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(exact_number(value));
  return list;
}

Json json_of(const Shape& shape) { return {shape.n, shape.c, shape.h, shape.w}; }

Json json_of(const Family<float>& family) {
  Json replicas = Json::array();
  for (const Tensor<float>& tensor : family) replicas.push_back(json_of(tensor.values));
  return replicas;
}

Json json_of(const Schedule& schedule) {
  return {{"seed", schedule.seed}, {"threads", name_of(schedule.threads, kThreads)}};
}

Json json_of_operation(const UnitLayout& layout) {
  Json json;
  std::visit(
      [&](const auto& op) {
        using T = std::decay_t<decltype(op)>;
        const auto window = [&](const auto& of) {
          json["kernel"] = of.kernel;
          json["stride"] = of.stride;
          json["pad_begin"] = of.pad_begin;
          json["pad_end"] = of.pad_end;
        };
        if constexpr (std::is_same_v<T, Convolution>) {
          json = {{"operation", "convolution"}, {"weight", op.weight}};
          if (!op.bias.empty()) json["bias"] = op.bias;
          json["outputs"] = layout.outputs;
          window(op);
        } else if constexpr (std::is_same_v<T, Depthwise>) {
          json = {{"operation", "depthwise"}, {"weight", op.weight}};
          window(op);
        } else if constexpr (std::is_same_v<T, Dense>) {
          json = {{"operation", "dense"},
                  {"weight", op.weight},
                  {"bias", op.bias},
                  {"outputs", layout.outputs}};
        } else if constexpr (std::is_same_v<T, Add>) {
          json = {{"operation", "add"}, {"name", layout.name}};
        } else if constexpr (std::is_same_v<T, GlobalAveragePool>) {
          json = {{"operation", "global_average_pool"}, {"name", layout.name}};
        } else if constexpr (std::is_same_v<T, Relu>) {
          json = {{"operation", "relu"}, {"name", layout.name}};
        } else if constexpr (std::is_same_v<T, BnSync>) {
          json = {{"operation", "bn_sync"},
                  {"gamma", op.gamma},
                  {"beta", op.beta},
                  {"epsilon", exact_number(op.epsilon)}};
          if (layout.relu) json["relu"] = layout.name;
        }
      },
      layout.operation);
  return json;
}

Json json_of(const UnitCase& c) {
  const UnitLayout layout = layout_of(c.graph);
  Json json = json_of_operation(layout);
  json["kind"] = name_of(c.kind, kKinds);
  json["schedule"] = json_of(c.schedule);
  json["seed"] = c.seed;
  json["inputs"] = Json::array();
  for (std::size_t i = 0; i < c.inputs.size(); ++i) {
    json["inputs"].push_back({{"name", layout.inputs[i].first},
                              {"shape", json_of(c.inputs[i].at(0).shape)},
                              {"replicas", json_of(c.inputs[i])}});
  }
  json["weights"] = Json::array();
  for (const Parameter& parameter : c.graph.parameters()) {
    json["weights"].push_back({{"name", parameter.name},
                               {"shape", json_of(parameter.shape)},
                               {"values", json_of(c.weights.at(parameter.name).values)}});
  }
  return json;
}

Json json_of(Operation operation, const Contract& contract) {
  return {{"operation", name_of(operation, kOperations)},
          {"operands", name_of(contract.operands, kOperands)},
          {"accumulate", name_of(contract.accumulate, kAccumulates)},
          {"lanes", contract.lanes},
          {"mean", name_of(contract.mean, kMeans)},
          {"statistics", name_of(contract.statistics, kStatistics)},
          {"form", name_of(contract.form, kForms)},
          {"root", exact_number(contract.root)},
          {"root_exact_at_powers_of_four", contract.root_exact_at_powers_of_four},
          {"contraction", contract.contraction},
          {"subnormals_kept", contract.subnormals_kept}};
}

Json json_of(const Recorded& recorded, const UnitCase* unit) {
  Json json = {{"device", recorded.device},
               {"verdict", name_of(recorded.verdict, kOutcomes)},
               {"told", recorded.told}};
  if (recorded.worst) {
    const RecordedWorst& worst = *recorded.worst;
    json["worst"] = {{"node", worst.node},
                     {"part", worst.part},
                     {"replica", worst.difference.replica},
                     {"index", worst.difference.index},
                     {"got", exact_number(worst.difference.got)},
                     {"expected", exact_number(worst.difference.expected)},
                     {"enclosure", {exact_number(worst.lower), exact_number(worst.upper)}},
                     {"bound", exact_number(worst.difference.bound)}};
  }
  if (unit == nullptr) return json;
  json["contracts"] = Json::array();
  for (const auto& [operation, contract] : recorded.contracts) {
    json["contracts"].push_back(json_of(operation, contract));
  }
  json["written"] = Json::array();
  for (const auto& [node, values] : recorded.written) {
    json["written"].push_back(
        {{"node", unit->graph.node(node).name}, {"replicas", json_of(values)}});
  }
  return json;
}

std::string json_text(const Json& plain) {
  return plain.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string on_one_line(const Json& json) {
  if (!json.is_structured()) return json_text(json);
  std::string text;
  for (const auto& [key, value] : json.items()) {
    if (!text.empty()) text += ", ";
    if (json.is_object()) text += json_text(key) + ": ";
    text += on_one_line(value);
  }
  return json.is_object() ? "{" + text + "}" : "[" + text + "]";
}

// `json` where `column` characters stand before it, the next lines `indent` spaces in.
void lay_out(const Json& json, std::size_t column, std::size_t indent, std::string& text) {
  const std::string whole = on_one_line(json);
  if (!json.is_structured() || column + whole.size() < kLine || json.empty()) {
    text += whole;
    return;
  }
  const std::string start = "\n" + std::string(indent + 1, ' ');
  text += json.is_object() ? "{" : "[";
  // Of a structure of plain values, as many stand on a line as there is room for.
  const bool plain =
      std::none_of(json.begin(), json.end(), [](const Json& v) { return v.is_structured(); });
  std::size_t at = kLine;
  bool first = true;
  for (const auto& [key, value] : json.items()) {
    if (!first) text += ",";
    first = false;
    const std::string name = json.is_object() ? json_text(key) + ": " : "";
    if (plain) {
      const std::string entry = name + on_one_line(value);
      if (at + 2 + entry.size() >= kLine) {
        text += start;
        at = indent + 1;
      } else {
        text += " ";
        at += 1;
      }
      text += entry;
      at += entry.size() + 1;
      continue;
    }
    text += start + name;
    lay_out(value, indent + 1 + name.size(), indent + 1, text);
  }
  text += "\n" + std::string(indent, ' ') + (json.is_object() ? "}" : "]");
}

// ---- Reading

// A place in a document. The first complaint of any place is kept; afterwards every value read is
// empty, so that reading goes on to its end without harm.
class Place {
 public:
  Place(const Json* value, std::string pointer, std::string& complaint)
      : value_(value), pointer_(std::move(pointer)), complaint_(complaint) {}

  bool well() const { return complaint_.empty() && value_ != nullptr; }
  const std::string& pointer() const { return pointer_; }
  void complain(const std::string& what) const {
    if (complaint_.empty()) complaint_ = (pointer_.empty() ? "the file" : pointer_) + ": " + what;
  }

  // An object with those fields, none missing, and perhaps some of the optional ones.
  void object(const std::vector<std::string_view>& fields,
              const std::vector<std::string_view>& optional = {}) const {
    if (!is(value_t::object, "an object")) return;
    for (const std::string_view field : fields) {
      if (!value_->contains(field)) {
        return Place(nullptr, pointer_ + "/" + std::string(field), complaint_).complain("missing");
      }
    }
    for (auto field = value_->begin(); field != value_->end(); ++field) {
      const auto among = [&](const std::vector<std::string_view>& list) {
        return std::find(list.begin(), list.end(), field.key()) != list.end();
      };
      if (!among(fields) && !among(optional)) {
        return at(field.key()).complain("no field of that name");
      }
    }
  }
  bool has(std::string_view field) const { return well() && value_->contains(field); }
  Place at(const std::string& field) const {
    const bool found = well() && value_->is_object() && value_->contains(field);
    return {found ? &value_->at(field) : nullptr, pointer_ + "/" + field, complaint_};
  }
  std::size_t count() const { return is(value_t::array, "a list") ? value_->size() : 0; }
  Place at(std::size_t index) const {
    return {well() ? &value_->at(index) : nullptr, pointer_ + "/" + std::to_string(index),
            complaint_};
  }

  std::string text() const {
    return is(value_t::string, "a string") ? value_->get<std::string>() : std::string();
  }
  bool flag() const { return is(value_t::boolean, "true or false") && value_->get<bool>(); }
  std::uint64_t whole(std::uint64_t most = std::numeric_limits<std::uint64_t>::max()) const {
    if (!is(value_t::number_unsigned, "a whole number")) return 0;
    const auto number = value_->get<std::uint64_t>();
    if (number > most) complain(fmt::format("{} is more than {}", number, most));
    return number > most ? 0 : number;
  }
  float float32() const { return number<float>("float32"); }
  double float64() const { return number<double>("float64"); }
  std::vector<float> floats(std::size_t expected) const {
    const std::size_t found = count();
    if (well() && found != expected) {
      complain(fmt::format("{} numbers in place of {}", found, expected));
    }
    std::vector<float> numbers;
    for (std::size_t i = 0; i < found && well(); ++i) numbers.push_back(at(i).float32());
    return numbers;
  }
  template <class Enum, std::size_t N>
  Enum one_of(const Names<Enum, N>& names) const {
    const std::string given = text();
    for (const auto& [value, name] : names) {
      if (name == given) return value;
    }
    std::string known;
    for (const auto& [value, name] : names)
      known += (known.empty() ? "" : ", ") + std::string(name);
    complain("\"" + given + "\" is none of " + known);
    return names[0].first;
  }

 private:
  using value_t = Json::value_t;

  bool is(value_t type, const std::string& what) const {
    if (!well()) return false;
    if (value_->type() == type) return true;
    static constexpr std::array<const char*, 10> kTypes{"null",           "an object",
                                                        "a list",         "a string",
                                                        "true or false",  "a negative number",
                                                        "a whole number", "a fraction",
                                                        "binary data",    "nothing"};
    complain(std::string(kTypes.at(static_cast<std::size_t>(value_->type()))) + " in place of " +
             what);
    return false;
  }
  template <class Float>
  Float number(const std::string& format) const {
    const std::string given = text();
    if (!well()) return 0;
    const auto number = exact_number_of<Float>(given);
    if (!number) {
      complain("\"" + given.substr(0, 40) + "\" is no " + format +
               " number as it is written here (\"0x1.8p+1\", \"inf\", \"nan:7fc00001\")");
    }
    return number.value_or(0);
  }

  const Json* value_;
  std::string pointer_;
  std::string& complaint_;
};

// Σ over the product, or the largest number where it is more than kMostNumbers.
std::uint64_t numbers_of(const Shape& shape, std::uint64_t times = 1) {
  std::uint64_t product = times;
  for (const std::size_t extent : {shape.n, shape.c, shape.h, shape.w}) {
    if (extent > kMostNumbers || product > kMostNumbers) {
      return std::numeric_limits<std::uint64_t>::max();
    }
    product *= extent;
  }
  return product > kMostNumbers ? std::numeric_limits<std::uint64_t>::max() : product;
}

Shape read_shape(const Place& place) {
  Shape shape;
  const std::size_t found = place.count();
  if (place.well() && found != 4) {
    place.complain(fmt::format("{} extents in place of 4: images, channels, height, width", found));
    return {};
  }
  if (!place.well()) return {};
  std::size_t index = 0;
  for (std::size_t* extent : {&shape.n, &shape.c, &shape.h, &shape.w}) {
    *extent = place.at(index).whole(kMostNumbers);
    if (place.well() && *extent == 0) place.at(index).complain("an extent of 0");
    ++index;
  }
  if (place.well() && numbers_of(shape) > kMostNumbers) {
    place.complain(fmt::format("more than {} numbers", kMostNumbers));
  }
  return place.well() ? shape : Shape{};
}

NodeOperation read_operation(const Place& unit, UnitLayout& layout) {
  const std::string name = unit.at("operation").text();
  const auto fields = [&](std::vector<std::string_view> own,
                          const std::vector<std::string_view>& optional = {}) {
    for (const std::string_view shared :
         {"operation", "kind", "schedule", "seed", "inputs", "weights"}) {
      own.push_back(shared);
    }
    unit.object(own, optional);
  };
  const auto window = [&](auto& op) {
    op.weight = unit.at("weight").text();
    op.kernel = unit.at("kernel").whole(31);
    op.stride = unit.at("stride").whole(4096);
    for (auto [field, pad] :
         {std::pair("pad_begin", &op.pad_begin), std::pair("pad_end", &op.pad_end)}) {
      *pad = unit.at(field).whole(4096);
      if (unit.well() && *pad >= op.kernel) {
        unit.at(field).complain("padding as wide as the kernel");
      }
    }
  };
  if (name == "convolution") {
    Convolution op;
    fields({"weight", "outputs", "kernel", "stride", "pad_begin", "pad_end"}, {"bias"});
    window(op);
    if (unit.has("bias")) op.bias = unit.at("bias").text();
    layout.outputs = unit.at("outputs").whole(kMostNumbers);
    return op;
  }
  if (name == "depthwise") {
    Depthwise op;
    fields({"weight", "kernel", "stride", "pad_begin", "pad_end"});
    window(op);
    return op;
  }
  if (name == "dense") {
    fields({"weight", "bias", "outputs"});
    layout.outputs = unit.at("outputs").whole(kMostNumbers);
    return Dense{unit.at("weight").text(), unit.at("bias").text()};
  }
  if (name == "bn_sync") {
    fields({"gamma", "beta", "epsilon"}, {"relu"});
    layout.relu = unit.has("relu");
    if (layout.relu) layout.name = unit.at("relu").text();
    const float epsilon = unit.at("epsilon").float32();
    if (unit.well() && !(epsilon >= 0 && std::isfinite(epsilon))) {
      unit.at("epsilon").complain("not a finite number of 0 or more");
    }
    return BnSync{unit.at("gamma").text(), unit.at("beta").text(), epsilon};
  }
  if (name == "add" || name == "global_average_pool" || name == "relu") {
    fields({"name"});
    layout.name = unit.at("name").text();
    if (name == "add") return Add{};
    if (name == "relu") return Relu{};
    return GlobalAveragePool{};
  }
  unit.at("operation")
      .complain("\"" + name +
                "\" is none of convolution, depthwise, dense, add, global_average_pool, relu, "
                "bn_sync");
  return Relu{};
}

Schedule read_schedule(const Place& place) {
  place.object({"seed", "threads"});
  Schedule schedule;
  schedule.seed = place.at("seed").whole();
  schedule.threads = place.at("threads").one_of(kThreads);
  return schedule;
}

Family<float> read_family(const Place& place, const Shape& shape, std::size_t replicas) {
  Family<float> family;
  if (place.count() != replicas) {
    place.complain(fmt::format("{} replicas in place of {}", place.count(), replicas));
  }
  for (std::size_t r = 0; r < replicas && place.well(); ++r) {
    family.emplace_back(shape, place.at(r).floats(shape.size()));
  }
  return family;
}

// The graph of a layout, with no value of more numbers than are allowed.
std::optional<Graph> read_graph(const Place& unit, const UnitLayout& layout, std::size_t batch) {
  Graph graph;
  try {
    graph = graph_of(layout);
  } catch (const std::invalid_argument& error) {
    unit.complain(error.what());
    return std::nullopt;
  }
  std::uint64_t numbers = 0;
  for (const Node& node : graph.nodes()) {
    numbers = std::max(numbers, numbers_of(node.shape, node.per_example ? batch : 1));
  }
  for (const Parameter& parameter : graph.parameters()) {
    numbers = std::max(numbers, numbers_of(parameter.shape));
  }
  if (numbers > kMostNumbers || numbers == 0) {
    unit.complain(numbers == 0 ? "a value of no numbers"
                               : fmt::format("a value of more than {} numbers", kMostNumbers));
    return std::nullopt;
  }
  return graph;
}

void read_unit(const Place& unit, UnitCase& c) {
  if (!unit.has("operation")) unit.object({"operation"});
  UnitLayout layout;
  layout.operation = read_operation(unit, layout);
  c.kind = unit.at("kind").one_of(kKinds);
  c.schedule = read_schedule(unit.at("schedule"));
  c.seed = unit.at("seed").whole();

  const Place inputs = unit.at("inputs");
  std::vector<Shape> shapes;
  for (std::size_t i = 0; i < inputs.count() && unit.well(); ++i) {
    inputs.at(i).object({"name", "shape", "replicas"});
    shapes.push_back(read_shape(inputs.at(i).at("shape")));
    Shape example = shapes.back();
    example.n = 1;
    layout.inputs.emplace_back(inputs.at(i).at("name").text(), example);
    if (shapes.back().n != shapes.front().n) {
      inputs.at(i).at("shape").complain("another number of images than the first input has");
    }
  }
  if (!unit.well()) return;
  if (shapes.empty()) return inputs.complain("no input");
  auto graph = read_graph(unit, layout, shapes[0].n);
  if (!graph) return;
  c.graph = std::move(*graph);

  const std::size_t replicas = inputs.at(std::size_t{0}).at("replicas").count();
  if (replicas < 1 || replicas > kMostReplicas) {
    inputs.at(std::size_t{0})
        .at("replicas")
        .complain(fmt::format("{} replicas; 1 to {} can be", replicas, kMostReplicas));
  }
  for (std::size_t i = 0; i < shapes.size() && unit.well(); ++i) {
    c.inputs.push_back(read_family(inputs.at(i).at("replicas"), shapes[i], replicas));
  }
  const Place weights = unit.at("weights");
  const std::vector<Parameter>& parameters = c.graph.parameters();
  if (weights.count() != parameters.size()) {
    weights.complain(fmt::format("{} weights in place of {}", weights.count(), parameters.size()));
  }
  for (std::size_t i = 0; i < parameters.size() && unit.well(); ++i) {
    const Place weight = weights.at(i);
    weight.object({"name", "shape", "values"});
    if (weight.at("name").text() != parameters[i].name) {
      weight.at("name").complain("the weight " + parameters[i].name + " belongs here");
    }
    if (read_shape(weight.at("shape")) != parameters[i].shape) {
      weight.at("shape").complain("the unit's is " + to_string(parameters[i].shape));
    }
    c.weights.emplace(
        parameters[i].name,
        Tensor<float>(parameters[i].shape, weight.at("values").floats(parameters[i].shape.size())));
  }
}

Contract read_contract(const Place& place) {
  place.object({"operation", "operands", "accumulate", "lanes", "mean", "statistics", "form",
                "root", "root_exact_at_powers_of_four", "contraction", "subnormals_kept"});
  Contract contract;
  contract.operands = place.at("operands").one_of(kOperands);
  contract.accumulate = place.at("accumulate").one_of(kAccumulates);
  contract.lanes = place.at("lanes").whole();
  contract.mean = place.at("mean").one_of(kMeans);
  contract.statistics = place.at("statistics").one_of(kStatistics);
  contract.form = place.at("form").one_of(kForms);
  contract.root = place.at("root").float64();
  contract.root_exact_at_powers_of_four = place.at("root_exact_at_powers_of_four").flag();
  contract.contraction = place.at("contraction").flag();
  contract.subnormals_kept = place.at("subnormals_kept").flag();
  if (place.well() && contract.lanes == 0) place.at("lanes").complain("no lanes");
  if (place.well() && !(contract.root >= 0 && contract.root < 1e6)) {
    place.at("root").complain("not a number of ulps");
  }
  return contract;
}

RecordedWorst read_worst(const Place& place) {
  place.object({"node", "part", "replica", "index", "got", "expected", "enclosure", "bound"});
  RecordedWorst worst;
  worst.node = place.at("node").text();
  worst.part = place.at("part").text();
  Difference& difference = worst.difference;
  difference.replica = place.at("replica").whole();
  difference.index = place.at("index").whole();
  difference.got = place.at("got").float64();
  difference.expected = place.at("expected").float64();
  difference.bound = place.at("bound").float64();
  difference.ratio = difference.bound > 0 ? difference.error() / difference.bound
                                          : std::numeric_limits<double>::infinity();
  const Place enclosure = place.at("enclosure");
  if (enclosure.count() != 2) enclosure.complain("not two numbers");
  if (!place.well()) return worst;
  worst.lower = enclosure.at(std::size_t{0}).float64();
  worst.upper = enclosure.at(std::size_t{1}).float64();
  return worst;
}

void read_launches(const Place& place, const UnitCase& unit, Recorded& recorded) {
  const std::vector<Launch> launches = launches_of(unit.graph);
  const Place contracts = place.at("contracts");
  for (std::size_t i = 0; i < contracts.count() && place.well(); ++i) {
    const Contract contract = read_contract(contracts.at(i));
    const Place of = contracts.at(i).at("operation");
    const Operation operation = of.one_of(kOperations);
    const auto is_it = [&](const auto& other) { return other.first == operation; };
    if (std::any_of(recorded.contracts.begin(), recorded.contracts.end(), is_it)) {
      of.complain("a second contract of " + name_of(operation, kOperations));
    }
    recorded.contracts.emplace_back(operation, contract);
  }
  for (const Launch& launch : launches) {
    const auto is_it = [&](const auto& other) { return other.first == launch.operation; };
    if (place.well() && std::none_of(recorded.contracts.begin(), recorded.contracts.end(), is_it)) {
      contracts.complain("none of " + name_of(launch.operation, kOperations));
    }
  }
  const Place written = place.at("written");
  if (written.count() > launches.size()) {
    written.complain(fmt::format("{} launches in place of {}", written.count(), launches.size()));
  }
  for (std::size_t i = 0; i < written.count() && place.well(); ++i) {
    const Place launch = written.at(i);
    const Node& node = unit.graph.node(launches[i].writes);
    launch.object({"node", "replicas"});
    if (launch.at("node").text() != node.name) {
      launch.at("node").complain("a launch that writes " + node.name + " belongs here");
    }
    Shape shape = node.shape;
    if (node.per_example) shape.n = unit.inputs[0][0].shape.n;
    recorded.written.emplace_back(launches[i].writes,
                                  read_family(launch.at("replicas"), shape, unit.inputs[0].size()));
  }
}

Recorded read_recorded(const Place& place, const UnitCase* unit) {
  std::vector<std::string_view> fields{"device", "verdict", "told"};
  if (unit != nullptr) fields.insert(fields.end(), {"contracts", "written"});
  place.object(fields, {"worst"});
  Recorded recorded;
  recorded.device = place.at("device").text();
  recorded.verdict = place.at("verdict").one_of(kOutcomes);
  recorded.told = place.at("told").text();
  if (place.has("worst")) recorded.worst = read_worst(place.at("worst"));
  if (unit != nullptr && place.well()) read_launches(place, *unit, recorded);
  return recorded;
}

std::vector<Drawn> read_draws(const Place& place) {
  std::vector<Drawn> draws;
  for (std::size_t i = 0; i < place.count() && place.well(); ++i) {
    const Place drawn = place.at(i);
    drawn.object({"name", "value"}, {"label"});
    draws.push_back({drawn.at("name").text(), drawn.at("value").whole(),
                     drawn.has("label") ? drawn.at("label").text() : ""});
    if (drawn.has("label") && draws.back().label.empty()) drawn.at("label").complain("empty");
  }
  return draws;
}

// "line 3, column 7"
std::string line_and_column(std::string_view text, std::size_t byte) {
  const std::string_view before = text.substr(0, std::min(byte == 0 ? 0 : byte - 1, text.size()));
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  return fmt::format("line {}, column {}", line, before.size() - (before.rfind('\n') + 1) + 1);
}

Result<Json> parsed(std::string_view text) {
  if (text.size() > kMostBytes) {
    return Error{fmt::format("{} bytes; a case has at most {}", text.size(), kMostBytes)};
  }
  std::string complaint;
  std::vector<std::set<std::string>> keys;
  std::size_t level = 0;
  const auto callback = [&](int, Json::parse_event_t event, Json& value) {
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        ++level;
        keys.resize(std::min(level, kDeepest + 1));
        if (level <= kDeepest) keys[level - 1].clear();
        if (level > kDeepest) {
          if (complaint.empty()) complaint = fmt::format("more than {} levels", kDeepest);
          return false;
        }
        return true;
      case Json::parse_event_t::object_end:
      case Json::parse_event_t::array_end:
        --level;
        return true;
      case Json::parse_event_t::key: {
        const auto& name = value.get_ref<const std::string&>();
        if (level <= kDeepest && !keys[level - 1].insert(name).second && complaint.empty()) {
          complaint = "two fields named \"" + name + "\"";
        }
        return true;
      }
      case Json::parse_event_t::value:
        return true;
    }
    return true;
  };
  try {
    Json json = Json::parse(text, callback);
    if (!complaint.empty()) return Error{complaint};
    return json;
  } catch (const Json::parse_error& error) {
    if (error.byte > text.size()) {
      return Error{"not whole: the JSON ends at " + line_and_column(text, text.size() + 1) +
                   ", before its last bracket"};
    }
    return Error{"not JSON at " + line_and_column(text, error.byte)};
  } catch (const Json::out_of_range&) {
    return Error{"a number beyond the range of float64"};
  }
}

Result<std::monostate> known_schema(const Json& json) {
  const bool first = json.is_object() && !json.empty() && json.begin().key() == "schema" &&
                     json.begin()->is_string();
  if (!first) return Error{"not a case: a case begins with \"schema\": \"shardproof/case/1\""};
  const auto schema = json.begin()->get<std::string>();
  std::uint64_t version = 0;
  const char* const end = schema.data() + schema.size();
  const bool ours = schema.starts_with(kSchema);
  const auto number = ours ? std::from_chars(schema.data() + kSchema.size(), end, version)
                           : std::from_chars_result{};
  if (!ours || number.ec != std::errc{} || number.ptr != end || version == 0) {
    return Error{"not a case: its schema is \"" + schema.substr(0, 80) +
                 "\", a case's \"shardproof/case/1\""};
  }
  if (version > kVersion) {
    return Error{
        fmt::format("case of schema {}; this program reads up to {}: update it", schema, kVersion)};
  }
  return std::monostate{};
}

// A file's own words may stand in a complaint: cut where they are long, and of one line.
std::string one_line(std::string text) {
  constexpr std::size_t kLongest = 400;
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  if (text.size() <= kLongest) return text;
  std::size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) --end;
  return text.substr(0, end) + "...";
}

}  // namespace

nlohmann::ordered_json to_json(const std::vector<Drawn>& draws) {
  Json list = Json::array();
  for (const Drawn& drawn : draws) {
    Json entry = {{"name", drawn.name}, {"value", drawn.value}};
    if (!drawn.label.empty()) entry["label"] = drawn.label;
    list.push_back(std::move(entry));
  }
  return list;
}

std::string laid_out(const nlohmann::ordered_json& json) {
  std::string text;
  lay_out(json, 0, 0, text);
  return text + "\n";
}

std::string to_text(const CaseFile& file) {
  Json json = {{"schema", std::string(kSchema) + std::to_string(kVersion)},
               {"version", file.version},
               {"identity", file.identity},
               {"property", file.property},
               {"draws", to_json(file.draws)}};
  const auto* unit = std::get_if<UnitCase>(&file.content);
  if (unit != nullptr) json["unit"] = json_of(*unit);
  if (const auto* program = std::get_if<ProgramCase>(&file.content)) {
    json["program"] = to_json(*program);
  }
  if (file.recorded) json["recorded"] = json_of(*file.recorded, unit);
  return laid_out(json);
}

Result<CaseFile> read_case(std::string_view text) {
  const auto json = parsed(text);
  if (!json) return Error{one_line(json.error())};
  if (const auto known = known_schema(*json); !known) return Error{one_line(known.error())};
  std::string complaint;
  const Place top(&*json, "", complaint);
  top.object({"schema", "version", "identity", "property", "draws"},
             {"unit", "program", "recorded"});
  CaseFile file;
  file.version = top.at("version").text();
  file.identity = top.at("identity").text();
  file.property = top.at("property").text();
  file.draws = read_draws(top.at("draws"));
  UnitCase* unit = nullptr;
  if (top.has("unit")) {
    unit = &file.content.emplace<UnitCase>();
    read_unit(top.at("unit"), *unit);
  }
  if (top.has("program")) {
    if (unit != nullptr) top.at("program").complain("a second case beside the unit");
    auto program = program_case_of(json->at("program"));
    if (!program && complaint.empty()) {
      const std::string& error = program.error();
      complaint = error.starts_with("/") ? "/program" + error : "/program: " + error;
    } else if (program && unit == nullptr) {
      file.content = std::move(*program);
    }
  }
  if (top.has("recorded")) file.recorded = read_recorded(top.at("recorded"), unit);
  if (!complaint.empty()) return Error{one_line(complaint)};
  return file;
}

Result<CaseFile> read_case_file(const std::string& path) {
  std::error_code code;
  const std::filesystem::file_status status = std::filesystem::status(path, code);
  if (!std::filesystem::exists(status)) return Error{path + ": no such file"};
  if (std::filesystem::is_directory(status)) return Error{path + ": a folder, not a case file"};
  const auto bytes = std::filesystem::file_size(path, code);
  if (!code && bytes > kMostBytes) {
    return Error{fmt::format("{}: {} bytes; a case has at most {}", path, bytes, kMostBytes)};
  }
  std::ifstream stream(path, std::ios::binary);
  std::string text;
  std::vector<char> chunk(std::size_t{1} << 16U);
  while (text.size() <= kMostBytes &&
         (stream.read(chunk.data(), static_cast<std::streamsize>(chunk.size())),
          stream.gcount() > 0)) {
    text.append(chunk.data(), static_cast<std::size_t>(stream.gcount()));
  }
  if (stream.bad() || !stream.eof()) {
    if (text.size() <= kMostBytes) {
      return Error{path + ": cannot be read: " + std::strerror(errno)};
    }
  }
  auto file = read_case(text);
  if (!file) return Error{path + ": " + file.error()};
  return file;
}

}  // namespace shardproof
