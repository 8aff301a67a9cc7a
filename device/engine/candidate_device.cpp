#include "device/engine/candidate_device.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <initializer_list>
#include <map>
#include <mutex>
#include <utility>
#include <variant>
#include <vector>

#include "device/engine/candidate_memory.h"
#include "device/engine/candidate_process.h"
#include "device/engine/forwarding_device.h"

namespace shardproof {
namespace {

constexpr std::size_t alignment = 64;

// An operand of a call as messages name it.
struct Operand {
  const char* name;
  const void* data;
  std::size_t bytes;
  bool output;
  std::size_t element_bytes = sizeof(float);
};

std::string signal_name(int signal) {
  const char* name = sigabbrev_np(signal);
  return name == nullptr ? "signal " + std::to_string(signal) : std::string("SIG") + name;
}

shardproof_tensor tensor(const float* data, std::initializer_list<std::size_t> shape) {
  shardproof_tensor result{};
  result.data = const_cast<float*>(data);
  result.dtype = SHARDPROOF_FLOAT32;
  result.rank = static_cast<std::uint32_t>(shape.size());
  std::copy(shape.begin(), shape.end(), result.shape);
  std::int64_t stride = 1;
  for (std::size_t axis = shape.size(); axis-- > 0;) {
    result.strides[axis] = stride;
    stride *= result.shape[axis];
  }
  return result;
}

Operand operand(const char* name, const shardproof_tensor& tensor, bool output) {
  std::size_t count = 1;
  for (std::uint32_t axis = 0; axis < tensor.rank; ++axis)
    count *= static_cast<std::size_t>(tensor.shape[axis]);
  return {name, tensor.data, count * sizeof(float), output};
}
Operand in(const char* name, const shardproof_tensor& tensor) {
  return operand(name, tensor, false);
}
Operand out(const char* name, const shardproof_tensor& tensor) {
  return operand(name, tensor, true);
}

template <class Enum>
void set(Enum& field, std::uint32_t declared) {
  if (declared != 0) field = static_cast<Enum>(declared - 1);
}

Contract contract_of(const shardproof_contract& declared) {
  Contract contract;
  set(contract.operands, declared.operands);
  set(contract.accumulate, declared.accumulate);
  set(contract.mean, declared.mean);
  set(contract.statistics, declared.statistics);
  set(contract.form, declared.form);
  if (declared.lanes != 0) contract.lanes = declared.lanes;
  if (declared.root != 0) contract.root = declared.root;
  set(contract.root_exact_at_powers_of_four, declared.root_exact_at_powers_of_four);
  set(contract.contraction, declared.contraction);
  set(contract.subnormals_kept, declared.subnormals_kept);
  return contract;
}

// What is wrong with a contract; empty: nothing.
std::string fault_of(const shardproof_contract& declared) {
  const auto unknown = [](const char* field, std::uint32_t value) {
    return std::string("declares the value ") + std::to_string(value) + " for `" + field +
           "` of a contract, which candidate.h does not have";
  };
  if (declared.operands > 4) return unknown("operands", declared.operands);
  if (declared.accumulate > 5) return unknown("accumulate", declared.accumulate);
  if (declared.mean > 3) return unknown("mean", declared.mean);
  if (declared.statistics > 5) return unknown("statistics", declared.statistics);
  if (declared.form > 2) return unknown("form", declared.form);
  for (const std::uint32_t flag :
       {declared.root_exact_at_powers_of_four, declared.contraction, declared.subnormals_kept})
    if (flag > 2) return unknown("a yes or no", flag);
  if (!(declared.root >= 0))
    return "declares an error of the reciprocal root that is no number of ulps";
  if (declared.winograd > 1)
    return "declares a Winograd convolution, for which the judge has no allowance";
  return "";
}

// What stays of a candidate from one device to the next.
struct Session {
  Session(const CandidateSource& source, int replicas, std::chrono::milliseconds time_limit)
      : process(source, static_cast<unsigned>(replicas), time_limit, memory) {}

  CandidateMemory memory;
  CandidateProcess process;
};

// Sessions that no device uses, by their number of replicas.
class Pool {
 public:
  // Null where there is none.
  std::unique_ptr<Session> take(int replicas) {
    const std::lock_guard lock(mutex_);
    const auto found = idle_.find(replicas);
    if (found == idle_.end()) return nullptr;
    std::unique_ptr<Session> session = std::move(found->second);
    idle_.erase(found);
    return session;
  }
  void give(int replicas, std::unique_ptr<Session> session) {
    if (!session->process.running() || !session->memory.empty()) return;
    const std::lock_guard lock(mutex_);
    idle_.emplace(replicas, std::move(session));
  }

 private:
  std::mutex mutex_;
  std::multimap<int, std::unique_ptr<Session>> idle_;
};

// A tensor's memory with its second axis, the channels, innermost, for one call.
class ChannelsLast {
 public:
  // Copies the numbers of an input; an output's memory starts as any does.
  ChannelsLast(CandidateMemory& memory, const shardproof_tensor& dense, bool is_input)
      : memory_(memory), dense_(dense), last_(dense) {
    std::size_t count = 1;
    for (std::uint32_t axis = 0; axis < dense.rank; ++axis) {
      count *= static_cast<std::size_t>(dense.shape[axis]);
    }
    last_.data = memory.allocate(count * sizeof(float));
    last_.strides[1] = 1;
    std::int64_t stride = dense.shape[1];
    for (std::uint32_t axis = dense.rank; axis-- > 2;) {
      last_.strides[axis] = stride;
      stride *= dense.shape[axis];
    }
    last_.strides[0] = stride;
    if (is_input) each([](float& dense_number, float& last_number) { last_number = dense_number; });
  }
  ~ChannelsLast() { memory_.release(last_.data); }
  ChannelsLast(const ChannelsLast&) = delete;
  ChannelsLast& operator=(const ChannelsLast&) = delete;

  const shardproof_tensor& tensor() const { return last_; }
  void copy_back() {
    each([](float& dense_number, float& last_number) { dense_number = last_number; });
  }

 private:
  template <class F>
  void each(F f) {
    auto* dense = static_cast<float*>(dense_.data);
    auto* last = static_cast<float*>(last_.data);
    const std::int64_t channels = dense_.shape[1], plane = dense_.strides[1];
    for (std::int64_t n = 0; n < dense_.shape[0]; ++n) {
      for (std::int64_t c = 0; c < channels; ++c) {
        for (std::int64_t i = 0; i < plane; ++i) {
          f(dense[(n * channels + c) * plane + i], last[(n * plane + i) * channels + c]);
        }
      }
    }
  }

  CandidateMemory& memory_;
  shardproof_tensor dense_, last_;
};

class CandidateDevice final : public ForwardingDevice {
 public:
  // `pool` gets the session when the device is gone; null: nobody does.
  CandidateDevice(const CandidateSource& source, int replicas, const CandidateOptions& options,
                  std::shared_ptr<Pool> pool = nullptr)
      : ForwardingDevice(make_host_device(replicas, options.schedule, options.workers)),
        path_(std::holds_alternative<std::string>(source) ? std::get<std::string>(source) : ""),
        limit_(options.time_limit),
        pool_(std::move(pool)),
        session_(pool_ == nullptr ? nullptr : pool_->take(replicas)),
        loaded_(session_ != nullptr) {
    if (!loaded_) session_ = std::make_unique<Session>(source, replicas, options.time_limit);
  }
  ~CandidateDevice() override {
    if (pool_ != nullptr) pool_->give(replicas(), std::move(session_));
  }
  CandidateDevice(const CandidateDevice&) = delete;
  CandidateDevice& operator=(const CandidateDevice&) = delete;

  bool loaded() const { return loaded_; }

  // What is wrong with the library; empty: nothing.
  std::string load() {
    const CandidateOutcome outcome = session_->process.start();
    switch (outcome.kind) {
      case CandidateOutcome::Kind::done:
        break;
      case CandidateOutcome::Kind::signal:
        return "crashed while it was loaded (" + signal_name(outcome.status) + ")";
      case CandidateOutcome::Kind::hung:
        return "was not loaded within " + limit();
      case CandidateOutcome::Kind::exited:
        return "ended its process while it was loaded";
      default:
        return outcome.message;
    }
    const shardproof_candidate_table& table = session_->process.table();
    bool any = false;
    for (unsigned operation = 0; operation < SHARDPROOF_OPERATIONS; ++operation) {
      any = any || has(operation);
      if (std::string fault = fault_of(table.contracts[operation]); !fault.empty()) return fault;
    }
    const std::pair<bool, const char*> not_called[] = {
        {table.sync_batch_norm != nullptr, "sync_batch_norm"},
        {table.shard != nullptr, "shard"},
        {table.unshard != nullptr, "unshard"}};
    for (const auto& [filled, entry] : not_called) {
      if (filled) {
        return std::string("fills `") + entry +
               "`, which nothing calls yet: it would not be judged; leave it null";
      }
    }
    if (table.layouts > SHARDPROOF_CHANNELS_LAST) {
      return "states layouts that candidate.h does not have";
    }
    if (!any) return "fills no operation of the table";
    return "";
  }

  std::string name() const override {
    const std::string given = session_->process.given_name();
    return "candidate " + (given.empty() ? path_.substr(path_.rfind('/') + 1) : given);
  }

  Contract contract(Operation operation, std::size_t batch, std::size_t plane) const override {
    const int own = candidate_operation(operation);
    if (own < 0 || !has(static_cast<unsigned>(own)))
      return const_cast<CandidateDevice*>(this)->base().contract(operation, batch, plane);
    return contract_of(session_->process.table().contracts[own]);
  }

  float* allocate(int, std::size_t count) override {
    return reinterpret_cast<float*>(session_->memory.allocate(count * sizeof(float)));
  }
  void release(int, float* pointer) override { session_->memory.release(pointer); }
  void upload(int, float* to, const float* from, std::size_t count) override {
    if (count == 0) return;
    inside(to, count * sizeof(float));
    std::memcpy(to, from, count * sizeof(float));
  }
  void download(int, const float* from, float* to, std::size_t count) override {
    if (count == 0) return;
    base().synchronize();
    inside(from, count * sizeof(float));
    std::memcpy(to, from, count * sizeof(float));
  }

  void convolution(const ConvolutionCall& call) override {
    if (!has(SHARDPROOF_CONVOLUTION)) return base().convolution(call);
    shardproof_convolution c{};
    c.x = tensor(call.x, {call.batch, call.in_channels, call.height, call.width});
    c.weight = tensor(call.weight, {call.out_channels, call.in_channels, call.kernel, call.kernel});
    c.bias = tensor(call.bias, {call.out_channels});
    c.y = tensor(call.y, {call.batch, call.out_channels, call.out_height, call.out_width});
    c.stride = call.stride, c.pad_begin = call.pad_begin, c.pad_end = call.pad_end;
    in_either_layout(c.x, &c.y, [&] {
      one(SHARDPROOF_CONVOLUTION, call.replica, c,
          {in("x", c.x), in("weight", c.weight), in("bias", c.bias), out("y", c.y)});
    });
  }
  void depthwise(const DepthwiseCall& call) override {
    if (!has(SHARDPROOF_DEPTHWISE)) return base().depthwise(call);
    shardproof_convolution c{};
    c.x = tensor(call.x, {call.batch, call.channels, call.height, call.width});
    c.weight = tensor(call.weight, {call.channels, 1, call.kernel, call.kernel});
    c.bias = tensor(call.bias, {call.channels});
    c.y = tensor(call.y, {call.batch, call.channels, call.out_height, call.out_width});
    c.stride = call.stride, c.pad_begin = call.pad_begin, c.pad_end = call.pad_end;
    in_either_layout(c.x, &c.y, [&] {
      one(SHARDPROOF_DEPTHWISE, call.replica, c,
          {in("x", c.x), in("weight", c.weight), in("bias", c.bias), out("y", c.y)});
    });
  }
  void channel_mean(const ChannelMeanCall& call) override {
    if (!has(SHARDPROOF_CHANNEL_MEAN)) return base().channel_mean(call);
    shardproof_channel_mean c{};
    c.x = tensor(call.x, {call.batch, call.channels, call.plane});
    c.mean = tensor(call.mean, {call.channels});
    in_either_layout(c.x, nullptr, [&] {
      one(SHARDPROOF_CHANNEL_MEAN, call.replica, c, {in("x", c.x), out("mean", c.mean)});
    });
  }
  void channel_variance(const ChannelVarianceCall& call) override {
    if (!has(SHARDPROOF_CHANNEL_VARIANCE)) return base().channel_variance(call);
    shardproof_channel_variance c{};
    c.x = tensor(call.x, {call.batch, call.channels, call.plane});
    c.own_mean = tensor(call.own_mean, {call.channels});
    c.mean = tensor(call.mean, {call.channels});
    c.variance = tensor(call.variance, {call.channels});
    in_either_layout(c.x, nullptr, [&] {
      one(SHARDPROOF_CHANNEL_VARIANCE, call.replica, c,
          {in("x", c.x), in("own_mean", c.own_mean), in("mean", c.mean),
           out("variance", c.variance)});
    });
  }
  void normalise(const NormaliseCall& call) override {
    if (!has(SHARDPROOF_NORMALISE)) return base().normalise(call);
    shardproof_normalise c{};
    c.x = tensor(call.x, {call.batch, call.channels, call.plane});
    c.y = tensor(call.y, {call.batch, call.channels, call.plane});
    c.mean = tensor(call.mean, {call.channels});
    c.variance = tensor(call.variance, {call.channels});
    c.gamma = tensor(call.gamma, {call.channels});
    c.beta = tensor(call.beta, {call.channels});
    c.epsilon = call.epsilon, c.relu = call.relu ? 1 : 0;
    in_either_layout(c.x, &c.y, [&] {
      one(SHARDPROOF_NORMALISE, call.replica, c,
          {in("x", c.x), in("mean", c.mean), in("variance", c.variance), in("gamma", c.gamma),
           in("beta", c.beta), out("y", c.y)});
    });
  }
  void relu(const PointwiseCall& call) override {
    if (!has(SHARDPROOF_RELU)) return base().relu(call);
    shardproof_unary c{};
    c.x = tensor(call.x, {call.count});
    c.y = tensor(call.y, {call.count});
    one(SHARDPROOF_RELU, call.replica, c, {in("x", c.x), out("y", c.y)});
  }
  void add(const AddCall& call) override {
    if (!has(SHARDPROOF_ADD)) return base().add(call);
    shardproof_add c{};
    c.a = tensor(call.a, {call.count});
    c.b = tensor(call.b, {call.count});
    c.y = tensor(call.y, {call.count});
    one(SHARDPROOF_ADD, call.replica, c, {in("a", c.a), in("b", c.b), out("y", c.y)});
  }
  void global_average_pool(const PoolCall& call) override {
    if (!has(SHARDPROOF_GLOBAL_AVERAGE_POOL)) return base().global_average_pool(call);
    shardproof_unary c{};
    c.x = tensor(call.x, {call.batch, call.channels, call.plane});
    c.y = tensor(call.y, {call.batch, call.channels});
    in_either_layout(c.x, nullptr, [&] {
      one(SHARDPROOF_GLOBAL_AVERAGE_POOL, call.replica, c, {in("x", c.x), out("y", c.y)});
    });
  }
  void dense(const DenseCall& call) override {
    if (!has(SHARDPROOF_DENSE)) return base().dense(call);
    shardproof_dense c{};
    c.x = tensor(call.x, {call.batch, call.in});
    c.weight = tensor(call.weight, {call.in, call.out});
    c.bias = tensor(call.bias, {call.out});
    c.y = tensor(call.y, {call.batch, call.out});
    one(SHARDPROOF_DENSE, call.replica, c,
        {in("x", c.x), in("weight", c.weight), in("bias", c.bias), out("y", c.y)});
  }

  void running_statistics(const RunningStatisticsCall& call) override {
    if (!has(SHARDPROOF_RUNNING_STATISTICS)) return base().running_statistics(call);
    shardproof_running_statistics c{};
    c.mean = tensor(call.mean, {call.channels});
    c.variance = tensor(call.variance, {call.channels});
    c.running_mean = tensor(call.running_mean, {call.channels});
    c.running_variance = tensor(call.running_variance, {call.channels});
    c.momentum = call.momentum, c.count = call.count;
    one(SHARDPROOF_RUNNING_STATISTICS, call.replica, c,
        {in("mean", c.mean), in("variance", c.variance), out("running_mean", c.running_mean),
         out("running_variance", c.running_variance)});
  }

  void all_reduce_mean(const AllReduceMeanCall& call) override {
    if (!has(SHARDPROOF_ALL_REDUCE_MEAN)) return base().all_reduce_mean(call);
    const std::size_t bytes = call.count * sizeof(float);
    all(SHARDPROOF_ALL_REDUCE_MEAN, {call.send.begin(), call.send.end()},
        {call.receive.begin(), call.receive.end()}, call.count, bytes, bytes, SHARDPROOF_FLOAT32);
  }
  void all_reduce_sum(const AllReduceSumCall& call) override {
    if (!has(SHARDPROOF_ALL_REDUCE_SUM)) return base().all_reduce_sum(call);
    const std::size_t bytes = call.count * sizeof(float);
    all(SHARDPROOF_ALL_REDUCE_SUM, {call.send.begin(), call.send.end()},
        {call.receive.begin(), call.receive.end()}, call.count, bytes, bytes, SHARDPROOF_FLOAT32);
  }
  void broadcast(const BroadcastCall& call) override {
    if (!has(SHARDPROOF_BROADCAST)) return base().broadcast(call);
    const std::size_t bytes = call.count * sizeof(float);
    all(SHARDPROOF_BROADCAST, {call.send.begin(), call.send.end()},
        {call.receive.begin(), call.receive.end()}, call.count, bytes, bytes, SHARDPROOF_FLOAT32,
        call.root);
  }
  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    if (!has(SHARDPROOF_REDUCE_SCATTER_MEAN)) return base().reduce_scatter_mean(call);
    const std::size_t bytes = call.count * sizeof(float);
    all(SHARDPROOF_REDUCE_SCATTER_MEAN, {call.send.begin(), call.send.end()},
        {call.receive.begin(), call.receive.end()}, call.count, call.send.size() * bytes, bytes,
        SHARDPROOF_FLOAT32);
  }
  void all_gather(const AllGatherCall& call) override {
    if (!has(SHARDPROOF_ALL_GATHER)) return base().all_gather(call);
    const bool half = call.type == ElementType::bfloat16;
    const std::size_t bytes = call.count * (half ? 2 : 4);
    all(SHARDPROOF_ALL_GATHER, call.send, call.receive, call.count, bytes, call.send.size() * bytes,
        half ? SHARDPROOF_BFLOAT16 : SHARDPROOF_FLOAT32);
  }

  void owned_step(const OwnedStepCall& call) override {
    if (!has(SHARDPROOF_OWNED_STEP)) return base().owned_step(call);
    shardproof_owned_step c{};
    std::size_t room = aligned(sizeof c);
    std::vector<shardproof_assignment> assignments;
    std::vector<char> written(call.fields.size());
    for (const ArrayAssignment& from : call.assignments) {
      shardproof_assignment to{};
      to.target_scope = static_cast<std::uint8_t>(from.target.scope);
      to.target = from.target.index;
      to.function = static_cast<std::uint8_t>(from.function);
      for (std::size_t read = 0; read < 3; ++read) {
        to.read_scopes[read] = static_cast<std::uint8_t>(from.reads[read].scope);
        to.reads[read] = from.reads[read].index;
      }
      written[from.target.index] = 1;
      assignments.push_back(to);
    }
    c.assignments = place(room, assignments.data(), assignments.size());
    c.fields = place(room, call.fields.data(), call.fields.size());
    c.assignment_count = assignments.size();
    c.field_count = call.fields.size();
    const CoarseValues& coarse = call.values;
    c.shared = coarse.shared, c.parameter_values = coarse.parameter;
    c.row = coarse.row, c.column = coarse.column;
    c.element_at = call.element_at;
    c.parameters = coarse.parameters, c.rows = coarse.rows, c.all_columns = coarse.columns;
    c.first = call.first, c.count = call.count, c.parameter = call.parameter;
    c.first_row = call.first_row, c.first_column = call.first_column, c.columns = call.columns;
    c.first_element = call.first_element;
    std::vector<std::string> names(call.fields.size());
    std::vector<Operand> operands;
    for (std::size_t slot = 0; slot < call.fields.size(); ++slot) {
      if (call.fields[slot] == nullptr) continue;
      names[slot] = "field " + std::to_string(slot);
      operands.push_back({names[slot].c_str(), call.fields[slot] + call.first,
                          call.count * sizeof(float), written[slot] != 0});
    }
    one(SHARDPROOF_OWNED_STEP, call.replica, c, operands);
  }

 private:
  static const char* operation_name(unsigned operation) {
    static constexpr const char* names[SHARDPROOF_OPERATIONS] = {"channel_mean",
                                                                 "channel_variance",
                                                                 "normalise",
                                                                 "sync_batch_norm",
                                                                 "running_statistics",
                                                                 "convolution",
                                                                 "depthwise",
                                                                 "relu",
                                                                 "global_average_pool",
                                                                 "dense",
                                                                 "add",
                                                                 "all_reduce_mean",
                                                                 "all_reduce_sum",
                                                                 "reduce_scatter_mean",
                                                                 "all_gather",
                                                                 "broadcast",
                                                                 "shard",
                                                                 "unshard",
                                                                 "owned_step"};
    return names[operation];
  }

  static int candidate_operation(Operation operation) {
    switch (operation) {
      case Operation::convolution:
        return SHARDPROOF_CONVOLUTION;
      case Operation::depthwise:
        return SHARDPROOF_DEPTHWISE;
      case Operation::channel_mean:
        return SHARDPROOF_CHANNEL_MEAN;
      case Operation::channel_variance:
        return SHARDPROOF_CHANNEL_VARIANCE;
      case Operation::normalise:
        return SHARDPROOF_NORMALISE;
      case Operation::relu:
        return SHARDPROOF_RELU;
      case Operation::add:
        return SHARDPROOF_ADD;
      case Operation::global_average_pool:
        return SHARDPROOF_GLOBAL_AVERAGE_POOL;
      case Operation::dense:
        return SHARDPROOF_DENSE;
      case Operation::all_reduce_mean:
        return SHARDPROOF_ALL_REDUCE_MEAN;
      case Operation::running_statistics:
        return SHARDPROOF_RUNNING_STATISTICS;
      case Operation::all_reduce_sum:
        return SHARDPROOF_ALL_REDUCE_SUM;
      case Operation::broadcast:
        return SHARDPROOF_BROADCAST;
      case Operation::reduce_scatter_mean:
        return SHARDPROOF_REDUCE_SCATTER_MEAN;
      case Operation::all_gather:
        return SHARDPROOF_ALL_GATHER;
      case Operation::owned_step:
        return SHARDPROOF_OWNED_STEP;
      default:
        return -1;
    }
  }

  bool has(unsigned operation) const {
    const shardproof_candidate_table& table = session_->process.table();
    switch (operation) {
      case SHARDPROOF_CHANNEL_MEAN:
        return table.channel_mean != nullptr;
      case SHARDPROOF_CHANNEL_VARIANCE:
        return table.channel_variance != nullptr;
      case SHARDPROOF_NORMALISE:
        return table.normalise != nullptr;
      case SHARDPROOF_RUNNING_STATISTICS:
        return table.running_statistics != nullptr;
      case SHARDPROOF_CONVOLUTION:
        return table.convolution != nullptr;
      case SHARDPROOF_DEPTHWISE:
        return table.depthwise != nullptr;
      case SHARDPROOF_RELU:
        return table.relu != nullptr;
      case SHARDPROOF_GLOBAL_AVERAGE_POOL:
        return table.global_average_pool != nullptr;
      case SHARDPROOF_DENSE:
        return table.dense != nullptr;
      case SHARDPROOF_ADD:
        return table.add != nullptr;
      case SHARDPROOF_ALL_REDUCE_MEAN:
        return table.all_reduce_mean != nullptr;
      case SHARDPROOF_ALL_REDUCE_SUM:
        return table.all_reduce_sum != nullptr;
      case SHARDPROOF_BROADCAST:
        return table.broadcast != nullptr;
      case SHARDPROOF_REDUCE_SCATTER_MEAN:
        return table.reduce_scatter_mean != nullptr;
      case SHARDPROOF_ALL_GATHER:
        return table.all_gather != nullptr;
      case SHARDPROOF_OWNED_STEP:
        return table.owned_step != nullptr;
      default:  // no launch of the engine runs these
        return false;
    }
  }

  static std::size_t aligned(std::size_t bytes) {
    return (bytes + alignment - 1) / alignment * alignment;
  }

  // Copies a list into the payload, behind `room` bytes that are taken.
  template <class T>
  const T* place(std::size_t& room, const T* from, std::size_t count) {
    const std::size_t bytes = aligned(count * sizeof(T));
    if (room + bytes > CandidateProcess::payload_bytes)
      throw DeviceError(name() + ": a call's lists are longer than a candidate's call can hold");
    char* to = session_->process.payload() + room;
    if (count != 0) std::memcpy(to, from, count * sizeof(T));
    room += bytes;
    return reinterpret_cast<const T*>(to);
  }

  void inside(const void* pointer, std::size_t bytes) const {
    const CandidateMemory::Allocation* allocation = session_->memory.find(pointer);
    if (allocation == nullptr ||
        static_cast<const char*>(pointer) + bytes > allocation->start + allocation->bytes)
      throw DeviceError("a copy leaves device memory");
  }

  shardproof_header header(unsigned operation, std::size_t bytes, std::size_t replica,
                           const std::vector<Operand>& operands) const {
    shardproof_header header{};
    header.size = bytes;
    header.operation = operation;
    header.memory = SHARDPROOF_HOST;
    header.replica = static_cast<std::uint32_t>(replica);
    header.replicas = static_cast<std::uint32_t>(replicas());
    for (const Operand& a : operands)
      for (const Operand& b : operands)
        if (a.output && !b.output && a.data != nullptr && a.data == b.data) header.in_place = 1;
    return header;
  }

  // Calls with x, and y where it has that layout, as they are or channels last, by the shape of x
  // alone, so that a second run does the same.
  template <class Call>
  void in_either_layout(shardproof_tensor& x, shardproof_tensor* y, Call call) {
    const bool takes_both = (session_->process.table().layouts & SHARDPROOF_CHANNELS_LAST) != 0;
    std::uint64_t mixed = 1;
    for (std::uint32_t axis = 0; axis < x.rank; ++axis) {
      mixed = (mixed + static_cast<std::uint64_t>(x.shape[axis])) * 0x9E3779B97F4A7C15U;
    }
    if (!takes_both || mixed >> 63 == 0 || x.strides[1] == 0) return call();
    const ChannelsLast last_x(session_->memory, x, true);
    x = last_x.tensor();
    if (y == nullptr) return call();
    ChannelsLast last_y(session_->memory, *y, false);
    *y = last_y.tensor();
    call();
    last_y.copy_back();
  }

  template <class Call>
  void one(unsigned operation, int replica, Call& call, const std::vector<Operand>& operands) {
    call.header = header(operation, sizeof call, static_cast<std::size_t>(replica), operands);
    std::memcpy(session_->process.payload(), &call, sizeof call);
    launch(operation, replica, 1, sizeof call, operands);
  }

  void all(unsigned operation, const std::vector<const void*>& sends,
           const std::vector<void*>& receives, std::size_t count, std::size_t send_bytes,
           std::size_t receive_bytes, std::uint32_t dtype, std::size_t root = 0) {
    const std::size_t stride = aligned(sizeof(shardproof_collective_call));
    std::size_t room = stride * sends.size();
    shardproof_collective_call call{};
    call.sends = place(room, sends.data(), sends.size());
    call.receives = place(room, receives.data(), receives.size());
    call.count = count;
    call.dtype = dtype;
    call.root = static_cast<std::uint32_t>(root);
    const std::size_t element = dtype == SHARDPROOF_FLOAT32 ? 4 : 2;
    std::vector<std::string> names(2 * sends.size());
    std::vector<Operand> operands;
    for (std::size_t r = 0; r < sends.size(); ++r) {
      names[2 * r] = "sends[" + std::to_string(r) + "]";
      names[2 * r + 1] = "receives[" + std::to_string(r) + "]";
      operands.push_back({names[2 * r].c_str(), sends[r], send_bytes, false, element});
      operands.push_back({names[2 * r + 1].c_str(), receives[r], receive_bytes, true, element});
    }
    for (std::size_t r = 0; r < sends.size(); ++r) {
      call.header = header(operation, sizeof call, r, operands);
      std::memcpy(session_->process.payload() + r * stride, &call, sizeof call);
    }
    launch(operation, -1, static_cast<unsigned>(sends.size()), stride, operands);
  }

  // The bytes of an allocation that a call may write while others of it are not outputs.
  struct Kept {
    const CandidateMemory::Allocation* allocation;
    std::vector<char> before;
  };

  void launch(unsigned operation, int replica, unsigned calls, std::size_t stride,
              const std::vector<Operand>& operands) {
    base().synchronize();
    if (!session_->process.running()) start_anew();
    std::vector<const CandidateMemory::Allocation*> outputs;
    for (const Operand& operand : operands) {
      if (operand.data == nullptr) continue;
      const CandidateMemory::Allocation* allocation = session_->memory.find(operand.data);
      if (allocation == nullptr)
        throw DeviceError(name() + ": " + operation_name(operation) + " was given " + operand.name +
                          " outside device memory");
      if (operand.output && std::find(outputs.begin(), outputs.end(), allocation) == outputs.end())
        outputs.push_back(allocation);
    }
    std::vector<PageRange> writable;
    std::vector<Kept> kept;
    for (const CandidateMemory::Allocation* allocation : outputs) {
      writable.push_back(allocation->pages);
      writable.back().protection = PROT_READ | PROT_WRITE;
      const bool whole = std::any_of(operands.begin(), operands.end(), [&](const Operand& operand) {
        return operand.output && operand.data == allocation->start &&
               operand.bytes == allocation->bytes;
      });
      if (!whole)
        kept.push_back({allocation, {allocation->start, allocation->start + allocation->bytes}});
    }
    const CandidateOutcome outcome = session_->process.call(operation, calls, stride, writable);
    const std::string what = name() + ": " + operation_name(operation);
    if (outcome.kind != CandidateOutcome::Kind::done) {
      for (const CandidateMemory::Allocation* allocation : outputs)
        CandidateMemory::mend_canary(*allocation);
      const bool told = outcome.kind == CandidateOutcome::Kind::signal ||
                        outcome.kind == CandidateOutcome::Kind::status;
      const int at = replica >= 0 || !told ? replica : static_cast<int>(outcome.replica);
      throw DeviceError(what + (at < 0 ? "" : " on replica " + std::to_string(at)) + " " +
                        reason(outcome, operands));
    }
    const std::string where = replica < 0 ? "" : " on replica " + std::to_string(replica);
    for (const CandidateMemory::Allocation* allocation : outputs)
      if (const std::ptrdiff_t broken = CandidateMemory::broken_canary(*allocation); broken != 0) {
        CandidateMemory::mend_canary(*allocation);
        throw DeviceError(what + where + " wrote " +
                          place_of(allocation->start + broken, operands));
      }
    for (const Kept& each : kept) check_kept(each, what + where, operands);
  }

  void check_kept(const Kept& kept, const std::string& what,
                  const std::vector<Operand>& operands) const {
    for (std::size_t i = 0; i < kept.before.size(); ++i) {
      const char* at = kept.allocation->start + i;
      if (*at == kept.before[i]) continue;
      const bool output = std::any_of(operands.begin(), operands.end(), [&](const Operand& each) {
        return each.output && at >= each.data &&
               at < static_cast<const char*>(each.data) + each.bytes;
      });
      if (!output) throw DeviceError(what + " " + change_at(at, operands));
    }
  }

  // "changed its input x at index 17", or that the memory is no operand of the call.
  static std::string change_at(const char* address, const std::vector<Operand>& operands) {
    for (const Operand& operand : operands) {
      const auto* start = static_cast<const char*>(operand.data);
      if (start != nullptr && address >= start && address < start + operand.bytes)
        return std::string("changed its input ") + operand.name + " at index " +
               std::to_string(static_cast<std::size_t>(address - start) / operand.element_bytes);
    }
    return "wrote to memory that it was not given";
  }

  // "8 bytes past the end of its output y".
  static std::string place_of(const char* address, const std::vector<Operand>& operands) {
    const Operand* nearest = nullptr;
    std::ptrdiff_t distance = 0;  // negative before the start, else from the end
    for (const Operand& operand : operands) {
      const auto* start = static_cast<const char*>(operand.data);
      if (start == nullptr) continue;
      const std::ptrdiff_t from =
          address < start ? address - start
                          : address - start - static_cast<std::ptrdiff_t>(operand.bytes);
      if (nearest == nullptr || std::abs(from) < std::abs(distance) ||
          (std::abs(from) == std::abs(distance) && operand.output)) {
        nearest = &operand;
        distance = from;
      }
    }
    if (nearest == nullptr || std::abs(distance) > 1 << 30) return "far from its operands";
    return std::to_string(std::abs(distance)) +
           (distance < 0 ? " bytes before the start of its " : " bytes past the end of its ") +
           (nearest->output ? "output " : "input ") + nearest->name;
  }

  std::string reason(const CandidateOutcome& outcome, const std::vector<Operand>& operands) const {
    switch (outcome.kind) {
      case CandidateOutcome::Kind::status:
        return "returned status " + std::to_string(outcome.status) +
               (outcome.message.empty() ? "" : ": " + outcome.message);
      case CandidateOutcome::Kind::exited:
        return "ended its process";
      case CandidateOutcome::Kind::hung:
        return "did not return within " + limit();
      case CandidateOutcome::Kind::threads:
        return "left " + std::to_string(outcome.status) +
               (outcome.status == 1 ? " thread behind" : " threads behind");
      default:
        break;
    }
    std::string crash = "crashed (" + signal_name(outcome.status) + ")";
    const auto* address = static_cast<const char*>(outcome.address);
    if (!outcome.memory_fault) return crash;
    if (outcome.in_scratch) return crash + ": it touched memory next to its scratch";
    const CandidateMemory::Allocation* allocation = session_->memory.find(address);
    if (allocation != nullptr && address < allocation->start + allocation->bytes)
      return change_at(address, operands);
    if (reinterpret_cast<std::uintptr_t>(address) < 4096)
      return crash + ": it touched a null pointer";
    return crash + ": it touched memory " + place_of(address, operands);
  }

  std::string limit() const {
    const auto milliseconds = limit_.count();
    return milliseconds % 1000 == 0 ? std::to_string(milliseconds / 1000) + " s"
                                    : std::to_string(milliseconds) + " ms";
  }

  void start_anew() {
    const std::vector<char> call(session_->process.payload(),
                                 session_->process.payload() + CandidateProcess::payload_bytes);
    if (const std::string fault = load(); !fault.empty())
      throw DeviceError(name() + " " + fault + " when it was started anew");
    std::copy(call.begin(), call.end(), session_->process.payload());
  }

  std::string path_;
  std::chrono::milliseconds limit_;
  std::shared_ptr<Pool> pool_;
  std::unique_ptr<Session> session_;
  bool loaded_;  // before this device was made
};

Result<std::unique_ptr<Device>> made(const CandidateSource& source, int replicas,
                                     const CandidateOptions& options,
                                     std::shared_ptr<Pool> pool = nullptr) {
  CandidateSource whole = source;
  std::string told = "candidate ";
  if (const auto* path = std::get_if<std::string>(&source)) {
    told += *path + " ";
    if (access(path->c_str(), R_OK) != 0)
      return Error{told + "cannot be read: " + std::strerror(errno)};
    char* absolute = realpath(path->c_str(), nullptr);
    if (absolute != nullptr) whole = std::string(absolute);
    std::free(absolute);
  }
  auto device = std::make_unique<CandidateDevice>(whole, replicas, options, std::move(pool));
  if (device->loaded()) return std::unique_ptr<Device>(std::move(device));
  if (const std::string fault = device->load(); !fault.empty()) return Error{told + fault};
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace

Result<std::unique_ptr<Device>> make_candidate_device(const CandidateSource& source, int replicas,
                                                      const CandidateOptions& options) {
  return made(source, replicas, options);
}

std::function<std::unique_ptr<Device>(int, const Schedule&)> candidate_maker(
    const CandidateSource& source, const CandidateOptions& options) {
  return
      [source, options, pool = std::make_shared<Pool>()](int replicas, const Schedule& schedule) {
        CandidateOptions with_schedule = options;
        with_schedule.schedule = schedule;
        auto device = made(source, replicas, with_schedule, pool);
        if (!device) throw DeviceError(device.error());
        return *std::move(device);
      };
}

}  // namespace shardproof
