// The sharded optimizer step under judgement: correct devices agree on every optimizer, and each
// device broken in one operation is caught, named, and shrunk to a few coordinates.
#include <bit>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <utility>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/program_report.h"
#include "diff/program_signoff.h"
#include "reference/slots/compile.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/text.h"

using namespace shardproof;
using Verdict = SignoffResult::Verdict;

namespace {

ArrayProgram optimizer(const std::string& name) {
  const auto text = parse_program(name, *optimizer_text(name));
  REQUIRE(text);
  auto program = compile_array(name, *text);
  REQUIRE(program);
  return *std::move(program);
}

std::unique_ptr<Device> host(int ranks) { return make_host_device(ranks, 5, 1); }

// A device that owns the one it forwards to.
class Owning : public ForwardingDevice {
 public:
  explicit Owning(int ranks) : Owning(host(ranks)) {}

 private:
  explicit Owning(std::unique_ptr<Device> device)
      : ForwardingDevice(*device), device_(std::move(device)) {}
  std::unique_ptr<Device> device_;
};

template <class Broken>
DeviceFactory made() {
  return [](int ranks) { return std::make_unique<Broken>(ranks); };
}

ProgramResult sign(const DeviceFactory& make, const std::string& name,
                   std::vector<ParameterShape> shapes, std::size_t ranks, OwnerMap owners,
                   std::size_t steps = 3) {
  const ArrayProgram program = optimizer(name);
  ProgramTask task{program, std::move(shapes), owners, {}, ranks, steps, 7};
  return sign_off_program(make, task);
}

std::string told(const ProgramResult& result) {
  ProgramReport report;
  report.result = result;
  return to_text(report);
}

// It disagrees on this claim among others, and some case of at most 4 coordinates shows it.
void check_caught(const ProgramResult& result, const std::string& claim) {
  INFO(told(result));
  CHECK(result.verdict() == Verdict::disagrees);
  const auto named =
      std::any_of(result.disagreements.begin(), result.disagreements.end(),
                  [&](const ProgramDisagreement& wrong) { return wrong.claim == claim; });
  CHECK(named);
  REQUIRE(result.smallest);
  CHECK(elements(Scope::coordinate, result.smallest->shapes) <= 4);
}

// The last rank's slice of a reduce-scatter begins one number early: its pads are counted wrong.
class ShiftedTail : public Owning {
 public:
  using Owning::Owning;
  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    Owning::reduce_scatter_mean(call);
    const int last = replicas() - 1;
    if (last == 0 || call.count < 2) return;
    std::vector<float> slice(call.count);
    float* const part = call.receive[static_cast<std::size_t>(last)];
    download(last, part, slice.data(), call.count);
    std::rotate(slice.begin(), slice.begin() + 1, slice.end());
    upload(last, part, slice.data(), call.count);
  }
};

// Each rank keeps the sum of its own shard.
class LocalNorm : public Owning {
 public:
  using Owning::Owning;
  void all_reduce_sums(const AllReduceSumsCall& call) override {
    for (std::size_t rank = 0; rank < call.sums.size(); ++rank) {
      base().all_reduce_sums({});
      std::vector<double> sums(call.count);
      download(static_cast<int>(rank), reinterpret_cast<const float*>(call.sums[rank]),
               reinterpret_cast<float*>(sums.data()), 2 * call.count);
      std::vector<float> rounded(sums.begin(), sums.end());
      upload(static_cast<int>(rank), call.result[rank], rounded.data(), call.count);
    }
  }
};

// The last rank, which owns nothing, leaves its counters alone.
class StuckCounter : public Owning {
 public:
  using Owning::Owning;
  void shared_step(const SharedStepCall& call) override {
    if (call.replica == 0 || call.replica + 1 < replicas()) Owning::shared_step(call);
  }
};

// Every rank but the first misses the first coordinate of a run.
class OwnerOffByOne : public Owning {
 public:
  using Owning::Owning;
  void owned_step(const OwnedStepCall& call) override {
    OwnedStepCall shifted = call;
    if (call.replica > 0) {
      ++shifted.first;
      ++shifted.first_element;
      --shifted.count;
    }
    if (shifted.count > 0) Owning::owned_step(shifted);
  }
};

// What is gathered is what was gathered a step before.
class StaleGather : public Owning {
 public:
  using Owning::Owning;
  void all_gather(const AllGatherCall& call) override {
    const std::size_t bytes = call.type == ElementType::float32 ? 4 : 2;
    const std::size_t words = (call.count * bytes + 3) / 4;
    auto& before = before_[call.send[0]];
    std::vector<std::vector<float>> now;
    for (std::size_t rank = 0; rank < call.send.size(); ++rank) {
      now.emplace_back(words);
      download(static_cast<int>(rank), static_cast<const float*>(call.send[rank]),
               now.back().data(), words);
    }
    std::swap(now, before);
    if (now.empty()) return Owning::all_gather(call);
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      upload(static_cast<int>(rank), static_cast<float*>(const_cast<void*>(call.send[rank])),
             now[rank].data(), words);
    }
    Owning::all_gather(call);
    for (std::size_t rank = 0; rank < now.size(); ++rank) {
      upload(static_cast<int>(rank), static_cast<float*>(const_cast<void*>(call.send[rank])),
             before[rank].data(), words);
    }
  }

 private:
  std::map<const void*, std::vector<std::vector<float>>> before_;
};

// Gradients are summed, not averaged.
class NoDivide : public Owning {
 public:
  using Owning::Owning;
  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    Owning::reduce_scatter_mean(call);
    for (int rank = 0; rank < replicas(); ++rank) {
      std::vector<float> slice(call.count);
      float* const part = call.receive[static_cast<std::size_t>(rank)];
      download(rank, part, slice.data(), call.count);
      for (float& x : slice) x *= static_cast<float>(replicas());
      upload(rank, part, slice.data(), call.count);
    }
  }
};

// Rounds bfloat16 towards zero.
class TruncatingBFloat16 : public Owning {
 public:
  using Owning::Owning;
  void to_bfloat16(const ToBFloat16Call& call) override {
    std::vector<float> x(call.count);
    download(call.replica, call.x, x.data(), call.count);
    for (float& value : x) {
      value = std::bit_cast<float>(std::bit_cast<std::uint32_t>(value) & 0xffff0000U);
    }
    float* const cut = allocate(call.replica, call.count);
    upload(call.replica, cut, x.data(), call.count);
    Owning::to_bfloat16({call.replica, cut, call.y, call.count});
    synchronize();
    release(call.replica, cut);
  }
};

// Fuses a product with the sum that follows it, as a compiler that contracts does.
template <bool tells>
class Contracting : public Owning {
 public:
  using Owning::Owning;
  Contract contract(shardproof::Operation operation, std::size_t batch,
                    std::size_t plane) const override {
    Contract contract = Owning::contract(operation, batch, plane);
    if (operation == shardproof::Operation::owned_step) contract.contraction = tells;
    return contract;
  }
  void owned_step(const OwnedStepCall& call) override {
    OwnedStepCall fused = call;
    auto& list = fused.assignments;
    const auto same = [](ArraySlot a, ArraySlot b) {
      return a.scope == b.scope && a.index == b.index;
    };
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      const ArrayAssignment product = list[i];
      ArrayAssignment& sum = list[i + 1];
      if (product.function != ValueFunction::multiply || sum.function != ValueFunction::add ||
          !same(sum.reads[1], product.target) || same(sum.reads[0], product.target)) {
        continue;
      }
      sum = {sum.target,
             ValueFunction::fused_multiply_add,
             {product.reads[0], product.reads[1], sum.reads[0]}};
      list.erase(list.begin() + static_cast<std::ptrdiff_t>(i));
    }
    Owning::owned_step(fused);
  }
};

}  // namespace

TEST_CASE("the built-in device agrees on every separable optimizer, under every map to owners") {
  for (const std::string& name : optimizer_names()) {
    if (optimizer(name).across_coordinates()) continue;
    for (const std::size_t ranks : {1, 2, 3, 5}) {
      for (const OwnerMap owners : {OwnerMap::mod, OwnerMap::blocks, OwnerMap::greedy}) {
        const ProgramResult result = sign(host, name, {{5}, {0}, {1}, {2, 3}}, ranks, owners);
        INFO(name << "\n" << told(result));
        CHECK(result.verdict() == Verdict::agrees);
      }
    }
  }
}

TEST_CASE("a device that reduces in another order agrees") {
  for (const std::uint64_t seed : {0, 1, 2, 3}) {
    const auto make = [seed](int ranks) { return make_host_device(ranks, seed, 2); };
    const ProgramResult result =
        sign(make, "lamb-separable", {{300}, {7}, {0}, {40, 3}}, 5, OwnerMap::blocks, 4);
    INFO(told(result));
    CHECK(result.verdict() == Verdict::agrees);
  }
}

TEST_CASE("a table of owners agrees, and 50 steps stay in lockstep") {
  const ArrayProgram program = optimizer("adamw");
  const ProgramTask task{program, {{3}, {4}}, OwnerMap::table, {2, 2, 0, 1, 0, 2, 2}, 4, 50, 3};
  const ProgramResult result = sign_off_program(host, task);
  INFO(told(result));
  CHECK(result.verdict() == Verdict::agrees);
}

TEST_CASE("wrong tail padding is caught") {
  check_caught(sign(made<ShiftedTail>(), "adamw", {{5}, {4}}, 2, OwnerMap::blocks),
               "mean of the gradients");
}

TEST_CASE("a norm of the local shard only is caught") {
  check_caught(
      sign(made<LocalNorm>(), "global-norm-clipping-separable", {{6}}, 2, OwnerMap::blocks),
      "collectives of the program");
}

TEST_CASE("a step counter stuck on a rank that owns nothing is caught") {
  check_caught(sign(made<StuckCounter>(), "adamw", {{2}}, 3, OwnerMap::mod),
               "owned against replicated");
}

TEST_CASE("an owner map off by one is caught") {
  check_caught(sign(made<OwnerOffByOne>(), "momentum", {{6}, {3}}, 3, OwnerMap::blocks),
               "owned against replicated");
}

TEST_CASE("a stale gather is caught") {
  check_caught(sign(made<StaleGather>(), "adamw", {{6}}, 2, OwnerMap::blocks),
               "gathered parameters are the owners'");
}

TEST_CASE("gradients summed, not averaged, are caught") {
  check_caught(sign(made<NoDivide>(), "sgd", {{6}}, 2, OwnerMap::blocks), "mean of the gradients");
}

TEST_CASE("bfloat16 parameters rounded towards zero are caught") {
  const ProgramResult result = sign(made<TruncatingBFloat16>(), "sgd", {{6}}, 2, OwnerMap::blocks);
  INFO(told(result));
  CHECK(result.verdict() == Verdict::disagrees);
}

TEST_CASE("contraction that the contract does not tell of is wrong, and else within its bounds") {
  check_caught(sign(made<Contracting<false>>(), "adamw", {{40}}, 2, OwnerMap::blocks),
               "device against reference");
  for (const std::string name : {"adamw", "lamb-separable", "radam"}) {
    const ProgramResult result =
        sign(made<Contracting<true>>(), name, {{40}, {3, 3}}, 2, OwnerMap::blocks, 8);
    INFO(name << "\n" << told(result));
    CHECK(result.verdict() == Verdict::agrees);
  }
}
