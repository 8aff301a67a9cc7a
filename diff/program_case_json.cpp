// A ProgramCase as JSON, and read again: every size is checked against the program and the shapes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "diff/exact_number.h"
#include "diff/program_case.h"
#include "reference/slots/arithmetic.h"

namespace shardproof {
namespace {

using Json = nlohmann::ordered_json;
using Options = OwnedOptimizerOptions;
using Role = ArrayProgram::Role;

constexpr std::uint64_t kMostRanks = 1024;
constexpr std::uint64_t kMostSteps = 10'000;
constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 20U;    // of the program's text
constexpr std::uint64_t kMostNumbers = std::uint64_t{1} << 24U;  // in all that the ranks hold

template <class Enum, std::size_t N>
using Names = std::array<std::pair<Enum, std::string_view>, N>;
constexpr Names<OwnerMap, 3> kMaps{
    {{OwnerMap::mod, "mod"}, {OwnerMap::blocks, "blocks"}, {OwnerMap::greedy, "greedy"}}};
constexpr Names<Options::Parameters, 2> kParameters{
    {{Options::Parameters::float32, "float32"}, {Options::Parameters::bfloat16, "bfloat16"}}};
constexpr Names<Options::Reduction, 2> kReductions{
    {{Options::Reduction::reduce_scatter, "reduce_scatter"},
     {Options::Reduction::all_reduce, "all_reduce"}}};
constexpr Names<InputKind, 3> kKinds{{{InputKind::natural, "natural"},
                                      {InputKind::lattice, "lattice"},
                                      {InputKind::dithered, "dithered"}}};
constexpr Names<ChannelThreads, 4> kThreads{{{ChannelThreads::by_count, "by_count"},
                                             {ChannelThreads::one, "one"},
                                             {ChannelThreads::one_warp, "one_warp"},
                                             {ChannelThreads::several_warps, "several_warps"}}};

template <class Enum, std::size_t N>
std::string name_of(Enum value, const Names<Enum, N>& names) {
  return std::string(std::find_if(names.begin(), names.end(), [&](const auto& known) {
                       return known.first == value;
                     })->second);
}

// Whether a slot's start stands in the file.
bool is_given(const ArrayProgram::SlotInfo& info) {
  return info.role == Role::parameter || info.role == Role::state;
}
bool is_as_declared(const ArrayProgram::SlotInfo& info, const std::vector<float>& values) {
  if (!info.initial) return false;
  const std::uint32_t declared =
      std::bit_cast<std::uint32_t>(Arithmetic<float>::constant(*info.initial));
  return std::all_of(values.begin(), values.end(),
                     [&](float value) { return std::bit_cast<std::uint32_t>(value) == declared; });
}

template <class See>
void each_given_slot(const ArrayProgram& program, See see) {
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    for (std::size_t k = 0; k < program.slots[scope].size(); ++k) {
      const ArraySlot slot{static_cast<Scope>(scope), static_cast<std::uint16_t>(k)};
      if (is_given(program.info(slot))) see(slot, program.info(slot));
    }
  }
}

Json json_of(const std::vector<float>& values) {
  Json list = Json::array();
  for (const float value : values) list.push_back(exact_number(value));
  return list;
}

// Reads one document. The first complaint is kept; what is read afterwards is of no account.
class Reader {
 public:
  const std::string& complaint() const { return complaint_; }
  bool well() const { return complaint_.empty(); }
  void complain(const std::string& pointer, const std::string& what) {
    if (complaint_.empty()) complaint_ = (pointer.empty() ? "the case" : pointer) + ": " + what;
  }

  // A field of an object; null, with a complaint, where it is missing.
  const Json* field(const Json& object, const std::string& pointer, const char* name) {
    const auto found = object.find(name);
    if (found != object.end()) return &*found;
    complain(pointer + "/" + name, "missing");
    return nullptr;
  }
  void only(const Json& object, const std::string& pointer,
            const std::vector<std::string_view>& known) {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        std::string place = pointer;
        place.append("/").append(key);
        complain(place, "not known here; take it out");
      }
    }
  }
  const Json* list(const Json* value, const std::string& pointer) {
    if (value == nullptr) return nullptr;
    if (value->is_array()) return value;
    complain(pointer, "not a list");
    return nullptr;
  }
  const Json* list_of(const Json* value, const std::string& pointer, std::size_t size,
                      const std::string& of) {
    const Json* const found = list(value, pointer);
    if (found == nullptr || found->size() == size) return found;
    complain(pointer, fmt::format("a list of {}, needs {}: {}", found->size(), size, of));
    return nullptr;
  }
  std::uint64_t whole(const Json* value, const std::string& pointer, std::uint64_t low,
                      std::uint64_t high) {
    if (value == nullptr) return low;
    if (value->is_number_integer()) {
      const bool negative = !value->is_number_unsigned() && value->get<std::int64_t>() < 0;
      const auto number = negative ? 0 : value->get<std::uint64_t>();
      if (!negative && number >= low && number <= high) return number;
    }
    complain(pointer, fmt::format("not a whole number from {} to {}", low, high));
    return low;
  }
  std::string text(const Json* value, const std::string& pointer) {
    if (value == nullptr) return {};
    if (value->is_string()) return value->get<std::string>();
    complain(pointer, "not a text");
    return {};
  }
  template <class Enum, std::size_t N>
  Enum one_of(const Json* value, const std::string& pointer, const Names<Enum, N>& names) {
    const std::string name = text(value, pointer);
    std::string all;
    for (const auto& [known, spelled] : names) {
      if (spelled == name) return known;
      all += (all.empty() ? "" : ", ") + std::string(spelled);
    }
    complain(pointer, "not one of " + all);
    return names[0].first;
  }
  std::vector<float> numbers(const Json* value, const std::string& pointer, std::size_t size,
                             const std::string& of) {
    std::vector<float> numbers;
    const Json* const found = list_of(value, pointer, size, of);
    if (found == nullptr) return numbers;
    for (const Json& entry : *found) {
      const std::string place = pointer + "/" + std::to_string(numbers.size());
      const std::optional<float> number = exact_number_of(text(&entry, place));
      if (!number) {
        complain(place,
                 "not an exact float32 number such as \"0x1.8p+1\", \"inf\" or "
                 "\"nan:7fc00001\"");
        return numbers;
      }
      numbers.push_back(*number);
    }
    return numbers;
  }

 private:
  std::string complaint_;
};

std::string program_text(Reader& reader, const Json* value) {
  std::string text;
  const Json* const lines = reader.list(value, "/program");
  if (lines == nullptr) return text;
  for (std::size_t i = 0; i < lines->size(); ++i) {
    const std::string line = reader.text(&(*lines)[i], "/program/" + std::to_string(i));
    if (line.find('\n') != std::string::npos) {
      reader.complain("/program/" + std::to_string(i), "more than a line");
    }
    text += line + "\n";
    if (text.size() > kMostBytes) {
      reader.complain("/program", fmt::format("longer than {} bytes", kMostBytes));
      break;
    }
  }
  return text;
}

std::vector<ParameterShape> shapes_of(Reader& reader, const Json* value) {
  std::vector<ParameterShape> shapes;
  const Json* const list = reader.list(value, "/shapes");
  if (list == nullptr) return shapes;
  std::uint64_t numbers = 0;
  for (std::size_t i = 0; i < list->size() && reader.well(); ++i) {
    const std::string pointer = "/shapes/" + std::to_string(i);
    const Json* const pair =
        reader.list_of(&(*list)[i], pointer, 2, "rows and columns of a parameter");
    if (pair == nullptr) break;
    const std::uint64_t rows = reader.whole(&(*pair)[0], pointer + "/0", 0, kMostNumbers);
    const std::uint64_t columns = reader.whole(&(*pair)[1], pointer + "/1", 0, kMostNumbers);
    shapes.push_back({static_cast<std::size_t>(rows), static_cast<std::size_t>(columns)});
    numbers += rows * columns + rows + columns + 1;
    if (numbers > kMostNumbers) {
      reader.complain("/shapes",
                      fmt::format("more than {} numbers in all; a case is small", kMostNumbers));
    }
  }
  return shapes;
}

}  // namespace

std::size_t count_of_numbers(const ProgramCase& c) {
  std::size_t count = 0;
  const Result<ArrayProgram> program = compile_separable("program", c.program);
  if (program) {
    each_given_slot(*program, [&](ArraySlot slot, const ArrayProgram::SlotInfo& info) {
      if (!is_as_declared(info, c.start[slot])) count += c.start[slot].size();
    });
  }
  for (const auto& ranks : c.gradients) {
    for (const std::vector<float>& coordinates : ranks) count += coordinates.size();
  }
  return count;
}

Json to_json(const ProgramCase& c) {
  Json json;
  json["program"] = Json::array();
  for (std::size_t begin = 0; begin < c.program.size();) {
    const std::size_t end = std::min(c.program.find('\n', begin), c.program.size());
    json["program"].push_back(c.program.substr(begin, end - begin));
    begin = end + 1;
  }
  json["shapes"] = Json::array();
  for (const ParameterShape& shape : c.shapes) {
    json["shapes"].push_back(Json::array({shape.rows, shape.columns}));
  }
  json["ranks"] = c.ranks;
  if (c.owners == OwnerMap::table) {
    json["owners"] = c.table;
  } else {
    json["owners"] = name_of(c.owners, kMaps);
  }
  json["steps"] = c.steps;
  json["parameters"] = name_of(c.options.parameters, kParameters);
  json["reduction"] = name_of(c.options.reduction, kReductions);
  json["bucket"] = c.options.bucket;
  json["input"] = c.input;
  json["kind"] = name_of(c.kind, kKinds);
  json["schedule"] = {{"seed", c.schedule.seed},
                      {"threads", name_of(c.schedule.threads, kThreads)}};
  json["start"] = Json::object();
  const Result<ArrayProgram> program = compile_separable("program", c.program);
  if (program) {
    each_given_slot(*program, [&](ArraySlot slot, const ArrayProgram::SlotInfo& info) {
      if (!is_as_declared(info, c.start[slot])) json["start"][info.name] = json_of(c.start[slot]);
    });
  }
  json["gradients"] = Json::array();
  for (const auto& ranks : c.gradients) {
    Json step = Json::array();
    for (const std::vector<float>& coordinates : ranks) step.push_back(json_of(coordinates));
    json["gradients"].push_back(std::move(step));
  }
  return json;
}

Result<ProgramCase> program_case_of(const Json& json) {
  if (!json.is_object()) return Error{"the case: not an object"};
  Reader reader;
  ProgramCase c;
  reader.only(json, "",
              {"program", "shapes", "ranks", "owners", "steps", "parameters", "reduction", "bucket",
               "input", "kind", "schedule", "start", "gradients"});
  const auto field = [&](const char* name) { return reader.field(json, "", name); };
  c.program = program_text(reader, field("program"));
  c.shapes = shapes_of(reader, field("shapes"));
  c.ranks = static_cast<std::size_t>(reader.whole(field("ranks"), "/ranks", 1, kMostRanks));
  c.steps = static_cast<std::size_t>(reader.whole(field("steps"), "/steps", 1, kMostSteps));
  c.options.parameters = reader.one_of(field("parameters"), "/parameters", kParameters);
  c.options.reduction = reader.one_of(field("reduction"), "/reduction", kReductions);
  c.options.bucket =
      static_cast<std::size_t>(reader.whole(field("bucket"), "/bucket", 0, kMostNumbers));
  c.input = reader.text(field("input"), "/input");
  c.kind = reader.one_of(field("kind"), "/kind", kKinds);
  if (const Json* const schedule = field("schedule")) {
    if (!schedule->is_object()) return Error{"/schedule: not an object"};
    reader.only(*schedule, "/schedule", {"seed", "threads"});
    c.schedule.seed = reader.whole(reader.field(*schedule, "/schedule", "seed"), "/schedule/seed",
                                   0, std::numeric_limits<std::uint64_t>::max());
    c.schedule.threads = reader.one_of(reader.field(*schedule, "/schedule", "threads"),
                                       "/schedule/threads", kThreads);
  }
  const Json* const start = field("start");
  const Json* const gradients = reader.list(field("gradients"), "/gradients");
  if (!reader.well()) return Error{reader.complaint()};
  if (!start->is_object()) return Error{"/start: not an object"};

  const Result<ArrayProgram> program = compile_separable("/program", c.program);
  if (!program) return Error{program.error()};
  std::uint64_t numbers = 0;
  for (std::size_t scope = 0; scope < kScopes; ++scope) {
    numbers += elements(static_cast<Scope>(scope), c.shapes) * program->slots[scope].size();
  }
  const std::size_t coordinates = elements(Scope::coordinate, c.shapes);
  if ((numbers + 2 * coordinates) * (c.ranks + 1) > kMostNumbers) {
    return Error{fmt::format("/ranks: {} ranks hold more than {} numbers; a case is small", c.ranks,
                             kMostNumbers)};
  }

  const Json* const owners = field("owners");
  if (owners != nullptr && owners->is_array()) {
    c.owners = OwnerMap::table;
    reader.list_of(owners, "/owners", coordinates, "an owner for each coordinate");
    for (const Json& owner : *owners) {
      const std::string pointer = "/owners/" + std::to_string(c.table.size());
      c.table.push_back(static_cast<Owner>(reader.whole(&owner, pointer, 0, c.ranks - 1)));
    }
  } else {
    c.owners = reader.one_of(owners, "/owners", kMaps);
  }

  c.start = with_fixed_values({}, *program, c.shapes);
  std::vector<std::string_view> names;
  each_given_slot(*program, [&](ArraySlot slot, const ArrayProgram::SlotInfo& info) {
    names.push_back(info.name);
    const std::size_t count = elements(slot.scope, c.shapes);
    const auto found = start->find(info.name);
    if (found == start->end() && info.initial) {
      c.start[slot].assign(count, Arithmetic<float>::constant(*info.initial));
      return;
    }
    c.start[slot] = reader.numbers(
        found == start->end() ? reader.field(*start, "/start", info.name.c_str()) : &*found,
        "/start/" + info.name, count, "a number for each element of the slot");
  });
  reader.only(*start, "/start", names);

  if (!program->find(Role::gradient)) {
    reader.list_of(gradients, "/gradients", 0, "the program has no gradient");
  } else if (reader.list_of(gradients, "/gradients", c.steps, "one entry a step") != nullptr) {
    for (std::size_t step = 0; step < c.steps && reader.well(); ++step) {
      const std::string of_step = "/gradients/" + std::to_string(step);
      auto& ranks = c.gradients.emplace_back();
      const Json* const given =
          reader.list_of(&(*gradients)[step], of_step, c.ranks, "one entry a rank");
      for (std::size_t rank = 0; given != nullptr && rank < c.ranks; ++rank) {
        ranks.push_back(reader.numbers(&(*given)[rank], of_step + "/" + std::to_string(rank),
                                       coordinates, "a number for each coordinate"));
      }
    }
  }
  if (!reader.well()) return Error{reader.complaint()};
  return c;
}

}  // namespace shardproof
