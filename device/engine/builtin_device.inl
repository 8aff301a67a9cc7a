// The built-in device's launches: one text, compiled against the host's runtime by g++
// (builtin_host_device.cpp) and against CUDA, cuBLAS and NCCL by nvcc (builtin_cuda_device.cu).
// The including file has included the Backend of its namespace.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "device/engine/builtin_device.h"
#include "device/engine/device.h"
#include "device/engine/fused_step.h"
#include "device/kernels/channel_statistics.cuh"
#include "device/kernels/depthwise.cuh"
#include "device/kernels/fused_steps.cuh"
#include "device/kernels/im2col.cuh"
#include "device/kernels/normalise.cuh"
#include "device/kernels/pointwise.cuh"
#include "device/kernels/slot_program.cuh"
#include "device/kernels/slot_sums.cuh"
#include "device/kernels/windows.cuh"
#include "device/runtime/cuda_subset.h"

namespace shardproof::SHARDPROOF_BACKEND {

// Calls with(std::integral_constant) of a number of lanes.
template <class With>
void for_lanes(int lanes, With with) {
  switch (lanes) {
    case 1:
      return with(std::integral_constant<int, 1>{});
    case 8:
      return with(std::integral_constant<int, 8>{});
    case 32:
      return with(std::integral_constant<int, 32>{});
    case 64:
      return with(std::integral_constant<int, 64>{});
    case 128:
      return with(std::integral_constant<int, 128>{});
    default:
      return with(std::integral_constant<int, 256>{});
  }
}

class BuiltinDevice : public Device {
 public:
  template <class... Arguments>
  explicit BuiltinDevice(ChannelThreads threads, Arguments... arguments)
      : threads_(threads),
        backend_(arguments...),
        scratch_(static_cast<std::size_t>(backend_.replicas())),
        lists_(scratch_.size()) {}

  ~BuiltinDevice() override {
    for (std::size_t replica = 0; replica < scratch_.size(); ++replica) {
      try {
        release_lists(static_cast<int>(replica));
        if (scratch_[replica].data != nullptr) {
          backend_.release(static_cast<int>(replica), scratch_[replica].data);
        }
      } catch (const DeviceError&) {
        // The device failed before, and that was reported.
      }
    }
  }

  std::string name() const override { return backend_.name(); }
  int replicas() const override { return backend_.replicas(); }

  Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
    Contract contract;
    contract.root = 1.5;  // a correctly rounded root, then a correctly rounded quotient
    contract.root_exact_at_powers_of_four = true;
    switch (operation) {
      case Operation::channel_mean:
      case Operation::channel_variance:
        contract.lanes = static_cast<std::size_t>(lanes_of(batch * plane));
        break;
      case Operation::global_average_pool:
        contract.lanes = static_cast<std::size_t>(lanes_of(plane));
        break;
      case Operation::partial_sums:
      case Operation::all_reduce_sums:
        contract.accumulate = Accumulate::float64;
        break;
      case Operation::shared_step:
      case Operation::shared_sum:
      case Operation::owned_step:
        contract.contraction = false;  // the program's operations, each rounded, in its order
        break;
      default:
        break;  // products: whatever order the library takes
    }
    return contract;
  }

  float* allocate(int replica, std::size_t count) override {
    return backend_.allocate(replica, count);
  }
  void release(int replica, float* pointer) override { backend_.release(replica, pointer); }
  void upload(int replica, float* to, const float* from, std::size_t count) override {
    backend_.upload(replica, to, from, count);
  }
  void download(int replica, const float* from, float* to, std::size_t count) override {
    backend_.download(replica, from, to, count);
  }
  void synchronize() override { backend_.synchronize(); }

  void convolution(const ConvolutionCall& call) override {
    const std::size_t in_image = call.in_channels * call.height * call.width;
    const std::size_t out_plane = call.out_height * call.out_width;
    const std::size_t out_image = call.out_channels * out_plane;
    const std::size_t depth = call.in_channels * call.kernel * call.kernel;
    const bool is_product = call.kernel == 1 && call.stride == 1 && call.pad_begin == 0 &&
                            call.out_height == call.height && call.out_width == call.width;
    for (std::size_t image = 0; image < call.batch; ++image) {
      const float* columns = call.x + image * in_image;
      if (!is_product) columns = unfold(call, columns, depth);
      backend_.multiply(call.replica, call.out_channels, out_plane, depth, call.weight, columns,
                        call.y + image * out_image);
    }
    add_bias_to(call.replica, call.bias, call.batch, call.out_channels, out_plane, call.y);
  }

  void depthwise(const DepthwiseCall& call) override {
    using Size3 = std::integral_constant<int, 3>;
    using Size5 = std::integral_constant<int, 5>;
    using Stride1 = std::integral_constant<int, 1>;
    using Stride2 = std::integral_constant<int, 2>;
    if (call.kernel == 3 && call.stride == 1) {
      launch_depthwise(call, Size3{}, Stride1{});
    } else if (call.kernel == 3 && call.stride == 2) {
      launch_depthwise(call, Size3{}, Stride2{});
    } else if (call.kernel == 5 && call.stride == 1) {
      launch_depthwise(call, Size5{}, Stride1{});
    } else if (call.kernel == 5 && call.stride == 2) {
      launch_depthwise(call, Size5{}, Stride2{});
    } else {
      throw DeviceError("the built-in device has no depthwise kernel of size " +
                        std::to_string(call.kernel) + " at stride " + std::to_string(call.stride) +
                        "; sizes 3 and 5 at strides 1 and 2 there are");
    }
    add_bias_to(call.replica, call.bias, call.batch, call.channels,
                call.out_height * call.out_width, call.y);
  }

  void channel_mean(const ChannelMeanCall& call) override {
    launch_mean(call.replica, call.x, call.batch, call.channels, call.plane, call.mean);
  }

  void channel_variance(const ChannelVarianceCall& call) override {
    if (call.channels == 0) return;
    for_lanes(lanes_of(call.batch * call.plane), [&](auto lanes_constant) {
      constexpr int lanes = decltype(lanes_constant)::value;
      const unsigned block = statistics_block(call.channels, lanes);
      launch(kernel<SHARDPROOF_BACKEND::channel_variance<lanes>>,
             blocks(call.channels * lanes, block), block, statistics_shared_bytes<lanes>,
             backend_.stream(call.replica), call.x, call.own_mean, call.mean, call.batch,
             call.channels, call.plane, call.variance);
    });
  }

  void normalise(const NormaliseCall& call) override {
    const std::size_t rows = call.batch * call.channels;
    if (rows * call.plane == 0) return;
    const unsigned lanes = normalise_lanes(call.plane);
    launch_threads(kernel<SHARDPROOF_BACKEND::normalise>, rows * lanes, normalise_block,
                   call.replica, call.x, call.mean, call.variance, call.gamma, call.beta,
                   call.epsilon, call.relu, rows, call.channels, call.plane, lanes, call.y);
  }

  void relu(const PointwiseCall& call) override {
    if (call.count == 0) return;
    launch_pointwise(kernel<SHARDPROOF_BACKEND::relu>, call.count, call.replica, call.x, call.count,
                     call.y);
  }

  void add(const AddCall& call) override {
    if (call.count == 0) return;
    launch_pointwise(kernel<SHARDPROOF_BACKEND::add>, call.count, call.replica, call.a, call.b,
                     call.count, call.y);
  }

  // The mean of each channel of each image: a channel mean of one image with batch·channels
  // channels.
  void global_average_pool(const PoolCall& call) override {
    launch_mean(call.replica, call.x, 1, call.batch * call.channels, call.plane, call.y);
  }

  void dense(const DenseCall& call) override {
    backend_.multiply(call.replica, call.batch, call.out, call.in, call.x, call.weight, call.y);
    add_bias_to(call.replica, call.bias, call.batch, call.out, 1, call.y);
  }

  void running_statistics(const RunningStatisticsCall& call) override {
    if (call.channels == 0 || call.count == 0) return;
    if (call.count == 1) throw DeviceError("a variance of one number has no unbiased estimate");
    const auto count = static_cast<double>(call.count);
    launch_pointwise(kernel<SHARDPROOF_BACKEND::running_statistics>, call.channels, call.replica,
                     call.mean, call.variance, call.channels, call.momentum,
                     static_cast<float>(count / (count - 1)), call.running_mean,
                     call.running_variance);
  }

  void all_reduce_sum(const AllReduceSumCall& call) override {
    if (call.count == 0) return;
    check(ncclGroupStart());
    for (int rank = 0; rank < replicas(); ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      check(ncclAllReduce(call.send.at(replica), call.receive.at(replica), call.count, ncclFloat32,
                          ncclSum, backend_.communicator(rank), backend_.stream(rank)));
    }
    check(ncclGroupEnd());
  }

  void all_reduce_mean(const AllReduceMeanCall& call) override {
    all_reduce_sum(call);
    for (int rank = 0; rank < replicas() && call.count > 0; ++rank) {
      divide_by_ranks(rank, call.count, call.receive[static_cast<std::size_t>(rank)]);
    }
  }

  void broadcast(const BroadcastCall& call) override {
    if (call.count == 0) return;
    check(ncclGroupStart());
    for (int rank = 0; rank < replicas(); ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      check(ncclBroadcast(call.send.at(replica), call.receive.at(replica), call.count, ncclFloat32,
                          static_cast<int>(call.root), backend_.communicator(rank),
                          backend_.stream(rank)));
    }
    check(ncclGroupEnd());
  }

  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    if (call.count == 0) return;
    check(ncclGroupStart());
    for (int rank = 0; rank < replicas(); ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      check(ncclReduceScatter(call.send.at(replica), call.receive.at(replica), call.count,
                              ncclFloat32, ncclSum, backend_.communicator(rank),
                              backend_.stream(rank)));
    }
    check(ncclGroupEnd());
    for (int rank = 0; rank < replicas(); ++rank) {
      divide_by_ranks(rank, call.count, call.receive[static_cast<std::size_t>(rank)]);
    }
  }

  void all_gather(const AllGatherCall& call) override {
    if (call.count == 0) return;
    const ncclDataType_t type = call.type == ElementType::bfloat16 ? ncclBfloat16 : ncclFloat32;
    check(ncclGroupStart());
    for (int rank = 0; rank < replicas(); ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      check(ncclAllGather(call.send.at(replica), call.receive.at(replica), call.count, type,
                          backend_.communicator(rank), backend_.stream(rank)));
    }
    check(ncclGroupEnd());
  }

  void all_reduce_sums(const AllReduceSumsCall& call) override {
    if (call.count == 0) return;
    check(ncclGroupStart());
    for (int rank = 0; rank < replicas(); ++rank) {
      double* const sums = call.sums.at(static_cast<std::size_t>(rank));
      check(ncclAllReduce(sums, sums, call.count, ncclFloat64, ncclSum, backend_.communicator(rank),
                          backend_.stream(rank)));
    }
    check(ncclGroupEnd());
    for (int rank = 0; rank < replicas(); ++rank) {
      const auto replica = static_cast<std::size_t>(rank);
      const double* const divisors = call.divisors.empty() ? nullptr : call.divisors.at(replica);
      launch_threads(kernel<round_sums>, call.count, pointwise_block, rank, call.sums[replica],
                     divisors, call.count, call.result.at(replica));
    }
  }

  void partial_sums(const PartialSumsCall& call) override {
    if (call.elements == 0) return;
    // Float64 sums in scratch of float32 numbers.
    auto* const of_runs = reinterpret_cast<double*>(scratch(call.replica, 2 * call.run_count));
    if (call.run_count > 0) {
      launch(kernel<run_sums>, blocks(call.run_count, 1), run_sum_lanes,
             run_sum_lanes * sizeof(double), backend_.stream(call.replica), call.values, call.runs,
             of_runs);
    }
    launch_threads(kernel<sums_of_runs>, call.elements, pointwise_block, call.replica, of_runs,
                   call.offsets, call.elements, call.sums);
  }

  void shared_step(const SharedStepCall& call) override {
    const AssignmentList& list = list_of(call.replica, call.assignments, {}, call.values);
    const CoarseValues& values = call.values;
    // One launch for assignments to one scope that stand together: its elements are independent.
    for (std::size_t begin = 0, end = 0; begin < call.assignments.size(); begin = end) {
      const Scope scope = call.assignments[begin].target.scope;
      while (end < call.assignments.size() && call.assignments[end].target.scope == scope) ++end;
      std::size_t elements = 1;
      const std::uint32_t* parameter_of = nullptr;
      if (scope == Scope::parameter) elements = values.parameters;
      if (scope == Scope::row) elements = values.rows, parameter_of = values.parameter_of_row;
      if (scope == Scope::column)
        elements = values.columns, parameter_of = values.parameter_of_column;
      if (elements == 0) continue;
      launch_threads(kernel<SHARDPROOF_BACKEND::shared_step>, elements, pointwise_block,
                     call.replica, list.instructions() + begin, end - begin, elements,
                     parameter_of);
    }
  }

  void shared_sum(const SharedSumCall& call) override {
    if (call.elements == 0) return;
    launch_threads(kernel<SHARDPROOF_BACKEND::shared_sum>, call.elements, pointwise_block,
                   call.replica, call.values, call.offsets, call.elements, call.mean, call.result);
  }

  void owned_step(const OwnedStepCall& call) override {
    if (call.count == 0) return;
    const AssignmentList& list = list_of(call.replica, call.assignments, call.fields, call.values);
    if (list.fused) {
      switch (list.fused->kernel) {
        case FusedKernel::adamw:
          return launch_fused<AdamW>(call, *list.fused);
        case FusedKernel::momentum:
          return launch_fused<Momentum>(call, *list.fused);
        case FusedKernel::lion:
          return launch_fused<Lion>(call, *list.fused);
      }
    }
    const StepRun run{call.first,        call.count,   call.parameter,  call.first_row,
                      call.first_column, call.columns, call.element_at, call.first_element};
    const unsigned numbers = step_numbers_for(list.temporaries);
    launch(kernel<SHARDPROOF_BACKEND::owned_step>,
           blocks(call.count, std::size_t{step_block} * numbers), step_block,
           list.temporaries * numbers * step_block * sizeof(float), backend_.stream(call.replica),
           list.instructions(), call.assignments.size(), run, numbers);
  }

  void to_bfloat16(const ToBFloat16Call& call) override {
    if (call.count == 0) return;
    launch_pointwise(kernel<SHARDPROOF_BACKEND::to_bfloat16>, call.count, call.replica, call.x,
                     call.count, call.y);
  }

 private:
  struct Scratch {
    float* data = nullptr;
    std::size_t count = 0;
  };

  // Assignments as they lie in a replica's memory, with the pointers of the calls that run them.
  struct AssignmentList {
    std::vector<ArrayAssignment> assignments;
    std::vector<float*> fields;
    CoarseValues values;
    float* memory;
    std::size_t temporaries;  // of one coordinate, at a time
    std::optional<FusedStep> fused;

    const StepInstruction* instructions() const {
      return reinterpret_cast<const StepInstruction*>(memory);
    }
  };

  // Lanes of a channel of `count` numbers: what runs and what the contract says.
  int lanes_of(std::size_t count) const {
    switch (threads_) {
      case ChannelThreads::one:
        return 1;
      case ChannelThreads::one_warp:
        return 32;
      case ChannelThreads::several_warps:
        return 64;
      case ChannelThreads::by_count:
        break;
    }
    return sum_lanes(count);
  }

  static dim3 blocks(std::size_t threads, std::size_t block) {
    return dim3(static_cast<unsigned>((threads + block - 1) / block));
  }
  // In blocks of `most` threads, or a smaller one: a thread that has nothing to do costs the host
  // as much as one that has.
  template <auto function, class... Operands>
  void launch_threads(Kernel<function> kernel, std::size_t threads, unsigned most, int replica,
                      Operands... operands) {
    const unsigned block = threads < most ? static_cast<unsigned>(threads) : most;
    launch(kernel, blocks(threads, block), block, 0, backend_.stream(replica), operands...);
  }

  template <auto function, class... Operands>
  void launch_pointwise(Kernel<function> kernel, std::size_t count, int replica,
                        Operands... operands) {
    launch(kernel, dim3(static_cast<unsigned>(pointwise_blocks(count))), pointwise_threads(count),
           0, backend_.stream(replica), operands...);
  }

  static void check(ncclResult_t result) {
    if (result == ncclSuccess) return;
    throw DeviceError(std::string("NCCL: ") + ncclGetErrorString(result) + ": " +
                      ncclGetLastError(nullptr));
  }

  const float* unfold(const ConvolutionCall& call, const float* image, std::size_t depth) {
    const WindowGeometry geometry{call.height,    call.width,  call.out_height,
                                  call.out_width, call.stride, call.pad_begin};
    float* const columns = scratch(call.replica, depth * call.out_height * call.out_width);
    launch_threads(kernel<im2col>, depth * strips_per_plane(geometry), window_block, call.replica,
                   image, call.in_channels, call.kernel, geometry, columns);
    return columns;
  }

  // Grows to the largest use. Aligned for float64 too.
  float* scratch(int replica, std::size_t count) {
    count += count % 2;
    Scratch& scratch = scratch_.at(static_cast<std::size_t>(replica));
    if (scratch.count < count) {
      if (scratch.data != nullptr) backend_.release(replica, std::exchange(scratch.data, nullptr));
      scratch.data = backend_.allocate(replica, count);
      scratch.count = count;
    }
    return scratch.data;
  }

  template <class Size, class Stride>
  void launch_depthwise(const DepthwiseCall& call, Size, Stride) {
    const WindowGeometry geometry{call.height,    call.width,  call.out_height,
                                  call.out_width, call.stride, call.pad_begin};
    const std::size_t planes = call.batch * call.channels;
    if (planes == 0) return;
    launch_threads(kernel<SHARDPROOF_BACKEND::depthwise<Size::value, Stride::value>>,
                   planes * strips_per_plane(geometry), window_block, call.replica, call.x,
                   call.weight, planes, call.channels, geometry, call.y);
  }

  void launch_mean(int replica, const float* x, std::size_t batch, std::size_t channels,
                   std::size_t plane, float* mean) {
    if (channels == 0) return;
    for_lanes(lanes_of(batch * plane), [&](auto lanes_constant) {
      constexpr int lanes = decltype(lanes_constant)::value;
      const unsigned block = statistics_block(channels, lanes);
      launch(kernel<SHARDPROOF_BACKEND::channel_mean<lanes>>, blocks(channels * lanes, block),
             block, statistics_shared_bytes<lanes>, backend_.stream(replica), x, batch, channels,
             plane, mean);
    });
  }

  void add_bias_to(int replica, const float* bias, std::size_t batch, std::size_t channels,
                   std::size_t plane, float* y) {
    const std::size_t count = batch * channels * plane;
    if (bias == nullptr || count == 0) return;
    launch_pointwise(kernel<add_bias>, count, replica, bias, count, channels, plane, y);
  }

  void divide_by_ranks(int rank, std::size_t count, float* sums) {
    launch_pointwise(kernel<divide>, count, rank, count, static_cast<float>(replicas()), sums);
  }

  template <class Step>
  void launch_fused(const OwnedStepCall& call, const FusedStep& step) {
    FusedOperands<Step> operands{};
    for (std::size_t k = 0; k < step.fields.size(); ++k) {
      operands.field[k] = call.fields[step.fields[k]] + call.first;
    }
    for (std::size_t k = 0; k < step.scalars.size(); ++k) {
      const ArraySlot slot = step.scalars[k];
      operands.scalar[k] =
          coarse_data(call.values, slot) + (slot.scope == Scope::parameter ? call.parameter : 0);
    }
    launch_pointwise(kernel<fused_step<Step>>, call.count, call.replica, operands, call.count);
  }

  // ---- Assignments in device memory

  // A slot's values of a coarser scope.
  static float* coarse_data(const CoarseValues& values, ArraySlot slot) {
    switch (slot.scope) {
      case Scope::shared:
        return values.shared + slot.index;
      case Scope::parameter:
        return values.parameter + slot.index * values.parameters;
      case Scope::row:
        return values.row + slot.index * values.rows;
      case Scope::column:
        return values.column + slot.index * values.columns;
      case Scope::coordinate:
        break;
    }
    return nullptr;
  }

  static bool same(const std::vector<ArrayAssignment>& a, const std::vector<ArrayAssignment>& b) {
    const auto equal = [](const ArrayAssignment& x, const ArrayAssignment& y) {
      bool reads = x.function == y.function && x.target == y.target;
      for (std::size_t k = 0; reads && k < arity(x.function); ++k) {
        reads = x.reads[k] == y.reads[k];
      }
      return reads;
    };
    return a.size() == b.size() && std::equal(a.begin(), a.end(), b.begin(), equal);
  }

  static bool same(const CoarseValues& a, const CoarseValues& b) {
    return a.shared == b.shared && a.parameter == b.parameter && a.row == b.row &&
           a.column == b.column && a.parameters == b.parameters && a.rows == b.rows &&
           a.columns == b.columns;
  }

  // The list that an earlier call left, or a new one.
  const AssignmentList& list_of(int replica, const std::vector<ArrayAssignment>& assignments,
                                const std::vector<float*>& fields, const CoarseValues& values) {
    std::vector<AssignmentList>& lists = lists_.at(static_cast<std::size_t>(replica));
    for (const AssignmentList& list : lists) {
      if (list.fields == fields && same(list.values, values) &&
          same(list.assignments, assignments)) {
        return list;
      }
    }
    if (lists.size() == most_lists) release_lists(replica);
    AssignmentList list{assignments, fields, values, nullptr, 0, std::nullopt};
    const std::vector<StepInstruction> instructions = instructions_of(list);
    if (!fields.empty()) {
      std::vector<bool> kept;
      for (const float* field : fields) kept.push_back(field != nullptr);
      list.fused = fused_step(assignments, kept);
    }
    const std::size_t count = instructions.size() * sizeof(StepInstruction) / sizeof(float);
    list.memory = backend_.allocate(replica, count);
    backend_.upload(replica, list.memory, reinterpret_cast<const float*>(instructions.data()),
                    count);
    lists.push_back(std::move(list));
    return lists.back();
  }

  void release_lists(int replica) {
    std::vector<AssignmentList>& lists = lists_.at(static_cast<std::size_t>(replica));
    for (; !lists.empty(); lists.pop_back()) backend_.release(replica, lists.back().memory);
  }

  // A temporary takes a place from its first write to its last read; counts the places.
  static std::vector<StepInstruction> instructions_of(AssignmentList& list) {
    const std::vector<ArrayAssignment>& assignments = list.assignments;
    std::vector<std::size_t> last_read(list.fields.size(), 0);
    for (std::size_t i = 0; i < assignments.size(); ++i) {
      for (std::size_t k = 0; k < arity(assignments[i].function); ++k) {
        const ArraySlot read = assignments[i].reads[k];
        if (read.scope == Scope::coordinate) last_read.at(read.index) = i;
      }
    }
    constexpr std::uint32_t none = ~std::uint32_t{0};
    std::vector<std::uint32_t> place(list.fields.size(), none), free;
    const auto operand = [&](ArraySlot slot) -> StepOperand {
      if (slot.scope != Scope::coordinate) return {coarse_data(list.values, slot), 0, slot.scope};
      float* const field = list.fields.at(slot.index);
      if (field != nullptr) return {field, 0, slot.scope};
      if (place[slot.index] == none) {
        if (free.empty()) free.push_back(static_cast<std::uint32_t>(list.temporaries++));
        place[slot.index] = free.back();
        free.pop_back();
      }
      return {nullptr, place[slot.index], slot.scope};
    };
    std::vector<StepInstruction> instructions;
    for (std::size_t i = 0; i < assignments.size(); ++i) {
      const ArrayAssignment& assignment = assignments[i];
      StepInstruction instruction{};
      instruction.function = assignment.function;
      instruction.read_count = static_cast<std::uint32_t>(arity(assignment.function));
      for (std::size_t k = 0; k < arity(assignment.function); ++k) {
        instruction.reads[k] = operand(assignment.reads[k]);
      }
      const auto free_if_done = [&](ArraySlot slot) {
        if (slot.scope != Scope::coordinate || place[slot.index] == none) return;
        if (last_read[slot.index] > i) return;
        free.push_back(std::exchange(place[slot.index], none));
      };
      for (std::size_t k = 0; k < arity(assignment.function); ++k) {
        free_if_done(assignment.reads[k]);
      }
      instruction.target = operand(assignment.target);
      free_if_done(assignment.target);
      instructions.push_back(instruction);
    }
    if (list.temporaries > most_temporaries) {
      throw DeviceError("a program that needs " + std::to_string(list.temporaries) +
                        " temporaries at a time; the built-in device has room for " +
                        std::to_string(most_temporaries));
    }
    return instructions;
  }

  static constexpr std::size_t most_lists = 64;  // a replica keeps

  ChannelThreads threads_;
  Backend backend_;
  std::vector<Scratch> scratch_;
  std::vector<std::vector<AssignmentList>> lists_;
};

}  // namespace shardproof::SHARDPROOF_BACKEND
