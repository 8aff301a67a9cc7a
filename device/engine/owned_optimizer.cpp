#include "device/engine/owned_optimizer.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <utility>

#include "device/engine/guarded_array.h"
#include "device/engine/owned_layout.h"
#include "device/engine/step_plan.h"
#include "reference/slots/array_elements.h"

namespace shardproof {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr std::size_t kPiece = std::size_t{1} << 18;          // numbers moved at a time
constexpr std::size_t kLongestSumRun = std::size_t{1} << 16;  // numbers of one running sum

using Parameters = OwnedOptimizerOptions::Parameters;

// Adds an index past those there: to the last run where it goes on, up to the longest run.
void add(std::vector<SumRun>& runs, std::size_t index) {
  const auto i = static_cast<std::uint32_t>(index);
  if (!runs.empty()) {
    SumRun& run = runs.back();
    const std::uint32_t step = run.count == 1 ? i - run.first : run.step;
    if (run.first + std::uint64_t{run.count} * step == i && run.count < kLongestSumRun) {
      run.step = step;
      ++run.count;
      return;
    }
  }
  runs.push_back({i, 1, 1});
}

}  // namespace

Ownership bucket_ownership(std::size_t coordinates, std::size_t owners, std::size_t bucket) {
  if (owners == 0) throw std::invalid_argument("buckets are cut among at least one owner");
  if (bucket == 0) bucket = std::max<std::size_t>(coordinates, 1);
  Ownership ownership{owners, std::vector<Owner>(coordinates)};
  for (std::size_t i = 0; i < coordinates; ++i) {
    const std::size_t in_bucket = std::min(bucket, coordinates - i / bucket * bucket);
    const std::size_t slice = (in_bucket + owners - 1) / owners;
    ownership.owner_of[i] = static_cast<Owner>(i % bucket / slice);
  }
  return ownership;
}

ArrayState<float> join(const ShardSet& shards) {
  ArrayState<float> state = shards.coarser.at(0);
  const std::size_t coordinates = shards.ownership.owner_of.size();
  const std::size_t slots = shards.owned.at(0).size();
  state.values[index_of(Scope::coordinate)].assign(slots, std::vector<float>(coordinates, kNan));
  std::vector<std::size_t> next(shards.owned.size(), 0);
  for (std::size_t i = 0; i < coordinates; ++i) {
    const Owner owner = shards.ownership.owner_of[i];
    for (std::size_t slot = 0; slot < slots; ++slot) {
      const std::vector<float>& values = shards.owned.at(owner)[slot];
      if (!values.empty())
        state.values[index_of(Scope::coordinate)][slot][i] = values.at(next[owner]);
    }
    ++next[owner];
  }
  return state;
}

class OwnedOptimizer::Implementation {
 public:
  Implementation(Device& device, const ArrayProgram& program, std::vector<ParameterShape> shapes,
                 Ownership ownership, const ArrayState<float>& initial,
                 OwnedOptimizerOptions options)
      : device_(device),
        program_(program),
        shapes_(std::move(shapes)),
        parameters_(place(shapes_)),
        ownership_(std::move(ownership)),
        options_(options),
        layout_(shapes_, ownership_, static_cast<std::size_t>(device.replicas()), options.bucket),
        plan_(program_) {
    check(initial);
    for (std::size_t rank = 0; rank < ranks(); ++rank) allocate(rank);
    for (std::size_t rank = 0; rank < ranks(); ++rank) fill(rank, initial);
    for (const StepPlan::Phase& phase : plan_.phases) {
      if (phase.together) prepare_sums(*phase.together);
      if (phase.alone) prepare_sum_alone(*phase.alone);
    }
    gather();
  }

  void step(std::span<const std::vector<float>> gradients) {
    if (plan_.reduced) {
      if (gradients.size() != ranks()) {
        throw std::invalid_argument("gradients of " + std::to_string(gradients.size()) +
                                    " ranks, the device has " + std::to_string(ranks()));
      }
      for (std::size_t rank = 0; rank < ranks(); ++rank) upload_gradient(rank, gradients[rank]);
      reduce();
    }
    run_program();
    gather();
  }

  void step_reduced(std::span<const float> gradient) {
    if (plan_.reduced) {
      if (gradient.size() != coordinates()) {
        throw std::invalid_argument("a reduced gradient of " + std::to_string(gradient.size()) +
                                    " coordinates, there are " + std::to_string(coordinates()));
      }
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        upload_owned(rank, *memory_[rank].fields[*plan_.reduced], gradient);
      }
    }
    run_program();
    gather();
  }

  std::size_t ranks() const { return layout_.ranks(); }
  std::size_t coordinates() const { return layout_.starts().back(); }
  const Ownership& ownership() const { return ownership_; }
  const std::vector<Collective>& collectives() const { return collectives_; }

  std::vector<float> parameters(std::size_t rank) const {
    if (!plan_.parameter) return {};
    return by_coordinate(*memory_.at(rank).parameters, half());
  }
  std::vector<float> all_reduced_gradient(std::size_t rank) const {
    if (!plan_.reduced || options_.reduction != OwnedOptimizerOptions::Reduction::all_reduce) {
      return {};
    }
    return by_coordinate(*memory_.at(rank).gradients, false);
  }
  // A full array of a rank, in the order of coordinates.
  std::vector<float> by_coordinate(const GuardedArray& full, bool is_half) const {
    std::vector<float> result(coordinates(), kNan);
    for_slices([&](const OwnedLayout::Bucket& bucket, std::size_t owner) {
      const std::size_t begin = layout_.in_full(bucket, owner), count = bucket.count[owner];
      const std::vector<float> values =
          is_half ? download_half(full, begin, count) : download(full, begin, count);
      for (std::size_t i = 0; i < count; ++i) {
        result[layout_.owned(owner)[bucket.first[owner] + i]] = values[i];
      }
    });
    return result;
  }

  ArrayState<float> coarser(std::size_t rank) const {
    ArrayState<float> state;
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      const std::size_t slots = program_.slots[scope].size();
      state.values[scope].resize(slots);
      if (scope == index_of(Scope::coordinate)) continue;
      const std::size_t count = elements(static_cast<Scope>(scope), shapes_);
      for (std::size_t slot = 0; slot < slots; ++slot) {
        state.values[scope][slot] = download(*memory_.at(rank).coarse[scope], slot * count, count);
      }
    }
    return state;
  }

  std::vector<float> owned(std::size_t slot) const {
    std::vector<float> result(coordinates(), kNan);
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const std::vector<float> values = shard(rank, slot);
      for (std::size_t i = 0; i < values.size(); ++i) result[layout_.owned(rank)[i]] = values[i];
    }
    return result;
  }
  std::vector<float> owned(ArraySlot slot) const {
    if (slot.scope != Scope::coordinate ||
        std::find(plan_.kept.begin(), plan_.kept.end(), slot.index) == plan_.kept.end()) {
      throw std::invalid_argument("owners keep the parameter and the state, no other slot");
    }
    return owned(std::size_t{slot.index});
  }
  std::vector<float> reduced_gradient() const {
    return plan_.reduced ? owned(std::size_t{*plan_.reduced}) : std::vector<float>{};
  }

  std::vector<std::string> overwritten() const {
    std::vector<std::string> places;
    const auto pad_of = [&](std::size_t bucket, std::size_t owner) {
      return "a pad of bucket " + std::to_string(bucket) + ", slice " + std::to_string(owner);
    };
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const Memory& memory = memory_[rank];
      for_each_array(memory, [&](const GuardedArray& array) {
        const std::string broken = array.broken_guard();
        if (!broken.empty()) places.push_back(array.name() + ": " + broken);
      });
      for (std::size_t b = 0; b < layout_.buckets().size(); ++b) {
        const OwnedLayout::Bucket& bucket = layout_.buckets()[b];
        const std::size_t pad = bucket.position + bucket.count[rank];
        const std::size_t pads = bucket.length - bucket.count[rank];
        for (std::size_t slot = 0; slot < memory.fields.size(); ++slot) {
          if (memory.fields[slot] == nullptr) continue;
          // The mean of pads is NaN, of whatever payload.
          const bool reduced = plan_.reduced && slot == *plan_.reduced;
          if (!is_padding(download(*memory.fields[slot], pad, pads), !reduced)) {
            places.push_back(memory.fields[slot]->name() + ": " + pad_of(b, rank));
          }
        }
        if (memory.half_shard != nullptr &&
            !is_padding(download_half(*memory.half_shard, pad, pads), true)) {
          places.push_back(memory.half_shard->name() + ": " + pad_of(b, rank));
        }
        for (std::size_t owner = 0; owner < ranks(); ++owner) {
          const std::size_t in_full = layout_.in_full(bucket, owner) + bucket.count[owner];
          const std::size_t count = bucket.length - bucket.count[owner];
          if (memory.parameters != nullptr &&
              !is_padding(half() ? download_half(*memory.parameters, in_full, count)
                                 : download(*memory.parameters, in_full, count),
                          true)) {
            places.push_back(memory.parameters->name() + ": " + pad_of(b, owner));
          }
          if (memory.gradients != nullptr &&
              !is_padding(download(*memory.gradients, in_full, count), false)) {
            places.push_back(memory.gradients->name() + ": " + pad_of(b, owner));
          }
        }
      }
    }
    return places;
  }

  ShardSet save() const {
    ShardSet shards{ownership_, {}, {}};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      shards.owned.emplace_back(program_.slots[index_of(Scope::coordinate)].size());
      for (const std::uint16_t slot : plan_.kept) {
        shards.owned.back()[slot] = shard(rank, slot);
      }
      shards.coarser.push_back(coarser(rank));
    }
    return shards;
  }

 private:
  using Array = std::unique_ptr<GuardedArray>;

  // Of one rank. What the program does not need is null.
  struct Memory {
    std::vector<Array> fields;          // [coordinate slot]: positions
    std::array<Array, kScopes> coarse;  // [scope]: slots · elements
    Array parameter_of_row, parameter_of_column;
    Array element_at;  // by position
    Array parameters;  // the full copy, float32 or bfloat16
    Array half_shard;  // own slices in bfloat16
    Array gradients;   // the full copy
  };

  // Of one collective: what each rank adds up, and room for it.
  struct Sums {
    std::vector<Array> offsets, runs, sums, divisors;  // [rank]
    std::vector<std::size_t> run_counts;
  };
  using Scopes = std::pair<Scope, Scope>;  // of source and target

  bool half() const { return options_.parameters == Parameters::bfloat16; }

  template <class Each>
  void for_slices(Each each) const {
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) each(bucket, rank);
    }
  }

  static void for_each_array(const Memory& memory,
                             const std::function<void(const GuardedArray&)>& each) {
    const auto visit = [&](const Array& array) {
      if (array != nullptr) each(*array);
    };
    std::for_each(memory.fields.begin(), memory.fields.end(), visit);
    std::for_each(memory.coarse.begin(), memory.coarse.end(), visit);
    for (const Array* array :
         {&memory.parameter_of_row, &memory.parameter_of_column, &memory.element_at,
          &memory.parameters, &memory.half_shard, &memory.gradients}) {
      visit(*array);
    }
  }

  void check(const ArrayState<float>& initial) const {
    for (std::size_t scope = 0; scope < kScopes; ++scope) {
      const std::size_t count = elements(static_cast<Scope>(scope), shapes_);
      for (std::size_t slot = 0; slot < program_.slots[scope].size(); ++slot) {
        const bool needed =
            scope != index_of(Scope::coordinate) ||
            std::find(plan_.kept.begin(), plan_.kept.end(), slot) != plan_.kept.end();
        if (!needed) continue;
        if (slot < initial.values[scope].size() && initial.values[scope][slot].size() == count) {
          continue;
        }
        throw std::invalid_argument("the initial state of slot " +
                                    program_.slots[scope][slot].name + " needs " +
                                    std::to_string(count) + " values");
      }
    }
  }

  // ---- Memory

  Array array(std::size_t rank, std::size_t words, const std::string& name) {
    return std::make_unique<GuardedArray>(device_, static_cast<int>(rank), words,
                                          name + " of rank " + std::to_string(rank));
  }
  Array list(std::size_t rank, const std::vector<std::uint32_t>& values, const std::string& name) {
    Array result = array(rank, values.size(), name);
    result->upload(0, values.data(), values.size());
    return result;
  }

  std::string name_of(std::size_t slot) const {
    const auto& slots = program_.slots[index_of(Scope::coordinate)];
    if (plan_.parameter && slot == *plan_.parameter) return "the masters";
    if (plan_.reduced && slot == *plan_.reduced) return "the reduced gradient";
    return slots[slot].name.empty() ? "a temporary" : slots[slot].name;
  }

  // Whether a program's owned assignments read a slot of that scope.
  bool reads(Scope scope) const {
    for (const StepPlan::Phase& phase : plan_.phases) {
      for (const ArrayAssignment& assignment : phase.owned) {
        for (std::size_t k = 0; k < arity(assignment.function); ++k) {
          if (assignment.reads[k].scope == scope) return true;
        }
      }
    }
    return false;
  }

  // Which element of the run's parameter its i-th coordinate is.
  std::size_t element_at(std::size_t rank, const OwnedLayout::Run& run, std::size_t i) const {
    return layout_.owned(rank)[run.first + i] - layout_.starts()[run.parameter];
  }

  // Whether a run of the rank has other coordinates than those that follow its first.
  bool scattered(std::size_t rank) const {
    const std::vector<OwnedLayout::Run>& runs = layout_.runs(rank);
    return std::any_of(runs.begin(), runs.end(), [&](const OwnedLayout::Run& run) {
      return element_at(rank, run, run.count - 1) != element_at(rank, run, 0) + run.count - 1;
    });
  }

  void allocate(std::size_t rank) {
    Memory memory;
    const std::size_t positions = layout_.positions(), full = ranks() * positions;
    memory.fields.resize(plan_.in_memory.size());
    for (std::size_t slot = 0; slot < plan_.in_memory.size(); ++slot) {
      if (plan_.in_memory[slot]) memory.fields[slot] = array(rank, positions, name_of(slot));
    }
    constexpr std::array<const char*, kScopes> names{"shared slots", "slots of parameters",
                                                     "slots of rows", "slots of columns", ""};
    for (const Scope scope : {Scope::shared, Scope::parameter, Scope::row, Scope::column}) {
      const std::size_t slots = program_.slots[index_of(scope)].size();
      memory.coarse[index_of(scope)] =
          array(rank, slots * elements(scope, shapes_), names[index_of(scope)]);
    }
    if (!program_.slots[index_of(Scope::row)].empty()) {
      memory.parameter_of_row = list(
          rank, parameter_of([](const ParameterShape& shape) { return shape.rows; }), "row list");
    }
    if (!program_.slots[index_of(Scope::column)].empty()) {
      memory.parameter_of_column =
          list(rank, parameter_of([](const ParameterShape& shape) { return shape.columns; }),
               "column list");
    }
    if ((reads(Scope::row) || reads(Scope::column)) && scattered(rank)) {
      std::vector<std::uint32_t> element(positions, 0);
      for (const OwnedLayout::Run& run : layout_.runs(rank)) {
        for (std::size_t i = 0; i < run.count; ++i) {
          element[run.position + i] = static_cast<std::uint32_t>(element_at(rank, run, i));
        }
      }
      memory.element_at = list(rank, element, "element list");
    }
    if (plan_.parameter) {
      memory.parameters = array(rank, half() ? (full + 1) / 2 : full, "the gathered parameters");
      if (half()) memory.half_shard = array(rank, (positions + 1) / 2, "the bfloat16 masters");
    }
    if (plan_.reduced) memory.gradients = array(rank, full, "the gradients");
    memory_.push_back(std::move(memory));
  }

  template <class Count>
  std::vector<std::uint32_t> parameter_of(Count count) const {
    std::vector<std::uint32_t> result;
    for (std::size_t parameter = 0; parameter < shapes_.size(); ++parameter) {
      result.insert(result.end(), count(shapes_[parameter]), static_cast<std::uint32_t>(parameter));
    }
    return result;
  }

  void fill(std::size_t rank, const ArrayState<float>& initial) {
    Memory& memory = memory_[rank];
    for (const std::uint16_t slot : plan_.kept) {
      upload_owned(rank, *memory.fields[slot], initial.values[index_of(Scope::coordinate)][slot]);
    }
    for (std::size_t scope = 0; scope < index_of(Scope::coordinate); ++scope) {
      const std::size_t count = elements(static_cast<Scope>(scope), shapes_);
      for (std::size_t slot = 0; slot < program_.slots[scope].size(); ++slot) {
        memory.coarse[scope]->upload(slot * count, initial.values[scope][slot].data(), count);
      }
    }
  }

  // ---- Between coordinates and positions

  // values[owned coordinates] to the array from word `begin` on.
  void upload_slice(GuardedArray& array, std::size_t begin, std::span<const Coordinate> owned,
                    std::span<const float> values) {
    std::vector<float> piece(std::min(owned.size(), kPiece));
    for (std::size_t done = 0; done < owned.size(); done += piece.size()) {
      const std::size_t count = std::min(piece.size(), owned.size() - done);
      for (std::size_t i = 0; i < count; ++i) piece[i] = values[owned[done + i]];
      array.upload(begin + done, piece.data(), count);
    }
  }

  std::span<const Coordinate> slice(const OwnedLayout::Bucket& bucket, std::size_t rank) const {
    return std::span(layout_.owned(rank)).subspan(bucket.first[rank], bucket.count[rank]);
  }

  // A rank's own coordinates of `values` to their positions.
  void upload_owned(std::size_t rank, GuardedArray& array, std::span<const float> values) {
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      upload_slice(array, bucket.position, slice(bucket, rank), values);
    }
  }

  void upload_gradient(std::size_t rank, const std::vector<float>& gradient) {
    if (gradient.size() != coordinates()) {
      throw std::invalid_argument("rank " + std::to_string(rank) + " has a gradient of " +
                                  std::to_string(gradient.size()) + " coordinates, there are " +
                                  std::to_string(coordinates()));
    }
    for_slices([&](const OwnedLayout::Bucket& bucket, std::size_t owner) {
      upload_slice(*memory_[rank].gradients, layout_.in_full(bucket, owner), slice(bucket, owner),
                   gradient);
    });
  }

  static std::vector<float> download(const GuardedArray& array, std::size_t begin,
                                     std::size_t count) {
    std::vector<float> values(count);
    array.download(begin, values.data(), count);
    return values;
  }

  // bfloat16 numbers, `begin` counts them.
  static std::vector<float> download_half(const GuardedArray& array, std::size_t begin,
                                          std::size_t count) {
    const std::size_t first = begin / 2, last = (begin + count + 1) / 2;
    std::vector<std::uint16_t> bits(2 * (last - first));
    array.download(first, bits.data(), last - first);
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) {
      values[i] = std::bit_cast<float>(std::uint32_t{bits[begin % 2 + i]} << 16);
    }
    return values;
  }

  // The values of a slot at a rank's coordinates, in ascending order.
  std::vector<float> shard(std::size_t rank, std::size_t slot) const {
    std::vector<float> values;
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      const std::vector<float> part =
          download(*memory_[rank].fields[slot], bucket.position, bucket.count[rank]);
      values.insert(values.end(), part.begin(), part.end());
    }
    return values;
  }

  // NaN, and of the pads' own payload when `exactly`.
  static bool is_padding(const std::vector<float>& values, bool exactly) {
    constexpr std::uint32_t upper = 0xffff0000u;  // what bfloat16 keeps
    return std::all_of(values.begin(), values.end(), [&](float value) {
      return exactly ? (std::bit_cast<std::uint32_t>(value) & upper) == (kPadWord & upper)
                     : std::isnan(value);
    });
  }

  // ---- The step

  template <class T>
  std::vector<T*> on_all(Array Memory::*array, std::size_t element) const {
    std::vector<T*> pointers;
    for (const Memory& memory : memory_) {
      pointers.push_back((memory.*array)->template as<std::remove_const_t<T>>() + element);
    }
    return pointers;
  }

  void reduce() {
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      const std::size_t full = layout_.in_full(bucket, 0);
      if (options_.reduction == OwnedOptimizerOptions::Reduction::reduce_scatter) {
        ReduceScatterMeanCall call{
            on_all<const float>(&Memory::gradients, full), {}, bucket.length};
        for (Memory& memory : memory_) {
          call.receive.push_back(memory.fields[*plan_.reduced]->as() + bucket.position);
        }
        device_.reduce_scatter_mean(call);
      } else {
        device_.all_reduce_mean({on_all<const float>(&Memory::gradients, full),
                                 on_all<float>(&Memory::gradients, full), ranks() * bucket.length});
      }
    }
    if (options_.reduction == OwnedOptimizerOptions::Reduction::all_reduce) take_own_slices();
  }

  // Of the all-reduced gradients.
  void take_own_slices() {
    constexpr ArraySlot slice{Scope::coordinate, 0}, full{Scope::coordinate, 1};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      const Memory& memory = memory_[rank];
      auto bucket = layout_.buckets().begin();
      for (const OwnedLayout::Run& run : layout_.runs(rank)) {
        while (run.position >= bucket->position + bucket->length) ++bucket;
        OwnedStepCall call = call_of(rank, run, {{slice, ValueFunction::copy, {full}}});
        call.fields = {memory.fields[*plan_.reduced]->as(),
                       memory.gradients->as() + layout_.in_full(*bucket, rank) - bucket->position};
        device_.owned_step(call);
      }
    }
  }

  void run_program() {
    collectives_.clear();
    for (const StepPlan::Phase& phase : plan_.phases) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        if (phase.alone) sum_alone(rank, *phase.alone);
        if (!phase.coarse.empty()) {
          device_.shared_step({static_cast<int>(rank), phase.coarse, coarse_values(rank)});
        }
        if (phase.owned.empty()) continue;
        for (const OwnedLayout::Run& run : layout_.runs(rank)) {
          device_.owned_step(call_of(rank, run, phase.owned));
        }
      }
      if (phase.together) sum_together(phase);
    }
  }

  CoarseValues coarse_values(std::size_t rank) const {
    const Memory& memory = memory_[rank];
    const auto list_of = [](const Array& array) {
      return array == nullptr ? nullptr : array->as<std::uint32_t>();
    };
    return {memory.coarse[index_of(Scope::shared)]->as(),
            memory.coarse[index_of(Scope::parameter)]->as(),
            memory.coarse[index_of(Scope::row)]->as(),
            memory.coarse[index_of(Scope::column)]->as(),
            elements(Scope::parameter, shapes_),
            elements(Scope::row, shapes_),
            elements(Scope::column, shapes_),
            list_of(memory.parameter_of_row),
            list_of(memory.parameter_of_column)};
  }

  OwnedStepCall call_of(std::size_t rank, const OwnedLayout::Run& run,
                        const std::vector<ArrayAssignment>& assignments) const {
    const Memory& memory = memory_[rank];
    const PlacedParameter& parameter = parameters_[run.parameter];
    OwnedStepCall call{};
    call.replica = static_cast<int>(rank);
    call.assignments = assignments;
    for (const Array& field : memory.fields) {
      call.fields.push_back(field == nullptr ? nullptr : field->as());
    }
    call.values = coarse_values(rank);
    call.first = run.position;
    call.count = run.count;
    call.parameter = run.parameter;
    call.first_row = parameter.first[index_of(Scope::row)];
    call.first_column = parameter.first[index_of(Scope::column)];
    call.columns = parameter.shape.columns;
    call.element_at =
        memory.element_at == nullptr ? nullptr : memory.element_at->as<std::uint32_t>();
    call.first_element = element_at(rank, run, 0);
    return call;
  }

  float* slot_on(std::size_t rank, ArraySlot slot) const {
    const Memory& memory = memory_[rank];
    if (slot.scope == Scope::coordinate) return memory.fields[slot.index]->as();
    return memory.coarse[index_of(slot.scope)]->as() + slot.index * elements(slot.scope, shapes_);
  }

  // Masters to every rank's full copy.
  void gather() {
    if (!plan_.parameter) return;
    if (half()) {
      for (std::size_t rank = 0; rank < ranks(); ++rank) {
        const Memory& memory = memory_[rank];
        for (const OwnedLayout::Run& run : layout_.runs(rank)) {
          device_.to_bfloat16({static_cast<int>(rank),
                               memory.fields[*plan_.parameter]->as() + run.position,
                               memory.half_shard->as<std::uint16_t>() + run.position, run.count});
        }
      }
    }
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      const std::size_t full = layout_.in_full(bucket, 0);
      AllGatherCall call{
          {}, {}, bucket.length, half() ? ElementType::bfloat16 : ElementType::float32};
      for (const Memory& memory : memory_) {
        if (half()) {
          call.send.push_back(memory.half_shard->as<std::uint16_t>() + bucket.position);
          call.receive.push_back(memory.parameters->as<std::uint16_t>() + full);
        } else {
          call.send.push_back(memory.fields[*plan_.parameter]->as() + bucket.position);
          call.receive.push_back(memory.parameters->as() + full);
        }
      }
      device_.all_gather(call);
    }
  }

  // ---- Sums

  // Calls each(target, source) for every element of the source's scope, in order, with the element
  // of the target's scope that holds it.
  template <class Each>
  void for_elements(const Scopes& scopes, Each each) const {
    const auto [from, to] = scopes;
    for (const PlacedParameter& parameter : parameters_) {
      for (std::size_t i = 0; i < parameter.elements(from); ++i) {
        each(parameter.holder(to, from, i), parameter.holder(from, from, i));
      }
    }
  }

  // A rank's part of a sum: for each element of the target's scope the runs of positions, or of
  // elements of a coarser source, which rank 0 adds up for all.
  std::vector<std::vector<SumRun>> part(const Scopes& scopes, std::size_t rank) const {
    std::vector<std::vector<SumRun>> runs(elements(scopes.second, shapes_));
    if (scopes.first != Scope::coordinate) {
      if (rank == 0) {
        for_elements(scopes, [&](std::size_t to, std::size_t from) { add(runs[to], from); });
      }
      return runs;
    }
    std::vector<std::size_t> position;  // of each coordinate of the rank, in order
    for (const OwnedLayout::Bucket& bucket : layout_.buckets()) {
      for (std::size_t i = 0; i < bucket.count[rank]; ++i) position.push_back(bucket.position + i);
    }
    std::size_t next = 0;
    for_elements(scopes, [&](std::size_t to, std::size_t coordinate) {
      if (ownership_.owner_of[coordinate] == rank) add(runs[to], position[next++]);
    });
    return runs;
  }

  void prepare_sums(const ArrayProgram::Reduction& reduction) {
    const Scopes scopes{reduction.source.scope, reduction.target.scope};
    const auto [found, fresh] = sums_.try_emplace(scopes);
    if (!fresh) return;
    Sums& sums = found->second;
    std::vector<double> divisors(elements(scopes.second, shapes_), 0.0);
    for_elements(scopes, [&](std::size_t to, std::size_t) { divisors[to] += 1.0; });
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      std::vector<std::uint32_t> offsets{0}, runs;
      for (const std::vector<SumRun>& of_element : part(scopes, rank)) {
        for (const SumRun& run : of_element)
          runs.insert(runs.end(), {run.first, run.count, run.step});
        offsets.push_back(static_cast<std::uint32_t>(runs.size() / 3));
      }
      sums.run_counts.push_back(runs.size() / 3);
      sums.offsets.push_back(list(rank, offsets, "offsets of sums"));
      sums.runs.push_back(list(rank, runs, "runs of sums"));
      sums.sums.push_back(array(rank, 2 * divisors.size(), "partial sums"));
      sums.divisors.push_back(array(rank, 2 * divisors.size(), "divisors of means"));
      sums.divisors.back()->upload(0, divisors.data(), 2 * divisors.size());
    }
  }

  void sum_together(const StepPlan::Phase& phase) {
    const ArrayProgram::Reduction& reduction = *phase.together;
    const Sums& sums = sums_.at({reduction.source.scope, reduction.target.scope});
    const std::size_t count = elements(reduction.target.scope, shapes_);
    AllReduceSumsCall call{{}, {}, {}, count};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      double* const own = sums.sums[rank]->as<double>();
      device_.partial_sums({static_cast<int>(rank), slot_on(rank, reduction.source),
                            sums.offsets[rank]->as<std::uint32_t>(), sums.runs[rank]->as<SumRun>(),
                            count, sums.run_counts[rank], own});
      call.sums.push_back(own);
      if (reduction.mean) call.divisors.push_back(sums.divisors[rank]->as<double>());
      call.result.push_back(slot_on(rank, reduction.target));
    }
    device_.all_reduce_sums(call);
    Collective collective{phase.statement, {}};
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      collective.values.push_back(download(*memory_[rank].coarse[index_of(reduction.target.scope)],
                                           reduction.target.index * count, count));
    }
    collectives_.push_back(std::move(collective));
  }

  void prepare_sum_alone(const ArrayProgram::Reduction& reduction) {
    const Scopes scopes{reduction.source.scope, reduction.target.scope};
    const auto [found, fresh] = alone_.try_emplace(scopes);
    if (!fresh) return;
    std::vector<std::uint32_t> offsets(elements(scopes.second, shapes_) + 1, 0);
    for_elements(scopes, [&](std::size_t to, std::size_t) { ++offsets[to + 1]; });
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    for (std::size_t rank = 0; rank < ranks(); ++rank) {
      found->second.push_back(list(rank, offsets, "offsets of sums"));
    }
  }

  void sum_alone(std::size_t rank, const ArrayProgram::Reduction& reduction) {
    const Array& offsets = alone_.at({reduction.source.scope, reduction.target.scope})[rank];
    device_.shared_sum({static_cast<int>(rank), slot_on(rank, reduction.source),
                        offsets->as<std::uint32_t>(), elements(reduction.target.scope, shapes_),
                        reduction.mean, slot_on(rank, reduction.target)});
  }

  Device& device_;
  const ArrayProgram program_;
  const std::vector<ParameterShape> shapes_;
  const std::vector<PlacedParameter> parameters_;
  const Ownership ownership_;
  const OwnedOptimizerOptions options_;
  const OwnedLayout layout_;
  const StepPlan plan_;
  std::vector<Memory> memory_;  // [rank]
  std::map<Scopes, Sums> sums_;
  std::map<Scopes, std::vector<Array>> alone_;  // offsets, [rank]
  std::vector<Collective> collectives_;
};

OwnedOptimizer::OwnedOptimizer(Device& device, const ArrayProgram& program,
                               std::vector<ParameterShape> shapes, Ownership ownership,
                               const ArrayState<float>& initial, OwnedOptimizerOptions options)
    : implementation_(std::make_unique<Implementation>(device, program, std::move(shapes),
                                                       std::move(ownership), initial, options)) {}

OwnedOptimizer::~OwnedOptimizer() = default;

void OwnedOptimizer::step(std::span<const std::vector<float>> gradients) {
  implementation_->step(gradients);
}

void OwnedOptimizer::step_reduced(std::span<const float> gradient) {
  implementation_->step_reduced(gradient);
}

int OwnedOptimizer::ranks() const { return static_cast<int>(implementation_->ranks()); }

std::size_t OwnedOptimizer::coordinates() const { return implementation_->coordinates(); }

const Ownership& OwnedOptimizer::ownership() const { return implementation_->ownership(); }

std::vector<float> OwnedOptimizer::parameters(int rank) const {
  return implementation_->parameters(static_cast<std::size_t>(rank));
}

ArrayState<float> OwnedOptimizer::coarser(int rank) const {
  return implementation_->coarser(static_cast<std::size_t>(rank));
}

std::vector<float> OwnedOptimizer::owned(ArraySlot slot) const {
  return implementation_->owned(slot);
}

std::vector<float> OwnedOptimizer::all_reduced_gradient(int rank) const {
  return implementation_->all_reduced_gradient(static_cast<std::size_t>(rank));
}

std::vector<float> OwnedOptimizer::reduced_gradient() const {
  return implementation_->reduced_gradient();
}

const std::vector<OwnedOptimizer::Collective>& OwnedOptimizer::collectives() const {
  return implementation_->collectives();
}

std::vector<std::string> OwnedOptimizer::overwritten() const {
  return implementation_->overwritten();
}

ShardSet OwnedOptimizer::save() const { return implementation_->save(); }

}  // namespace shardproof
