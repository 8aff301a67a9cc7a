// The sharded optimizer step under judgement: correct devices agree on every optimizer, and each
// device broken in one operation is caught, named, and shrunk to a few coordinates.
#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "device/engine/builtin_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/case_file.h"
#include "diff/exact_number.h"
#include "diff/program_case.h"
#include "diff/program_report.h"
#include "diff/program_signoff.h"
#include "reference/numbers/bfloat16.h"
#include "reference/slots/compile.h"
#include "reference/slots/optimizers.h"
#include "reference/slots/text.h"

using namespace shardproof;
using Verdict = SignoffResult::Verdict;

namespace {

std::string text_of(const std::string& name) { return std::string(*optimizer_text(name)); }

ArrayProgram optimizer(const std::string& name) {
  const auto text = parse_program(name, text_of(name));
  REQUIRE(text);
  auto program = compile_array(name, *text);
  REQUIRE(program);
  return *std::move(program);
}

std::unique_ptr<Device> host(int ranks) { return make_host_device(ranks, 5, 1); }

// A device that owns the one it forwards to.
class Owning : public ForwardingDevice {
 public:
  explicit Owning(int ranks) : ForwardingDevice(host(ranks)) {}
};

template <class Broken>
DeviceFactory made() {
  return [](int ranks) { return std::make_unique<Broken>(ranks); };
}

ProgramResult sign(const DeviceFactory& make, const std::string& name,
                   std::vector<ParameterShape> shapes, std::size_t ranks, OwnerMap owners,
                   std::size_t steps = 3) {
  const ArrayProgram program = optimizer(name);
  ProgramTask task{program, std::move(shapes), owners, {}, ranks, steps, 7, text_of(name)};
  return sign_off_program(make, task);
}

std::string told(const ProgramResult& result) {
  ProgramReport report;
  report.result = result;
  return to_text(report);
}

// The device of a test: the same whatever the schedule.
DeviceMaker scheduled(const DeviceFactory& make) {
  return [make](int ranks, const Schedule&) { return make(ranks); };
}

// The case has numbers of its own, is wrong in the claim that it was drawn for, is as wrong when
// it is written and read again, and becomes small: at most 16 numbers on at most 3 ranks.
void check_shrinks(const DeviceFactory& factory, const SmallestCase& smallest) {
  const DeviceMaker make = scheduled(factory);
  const auto wrong = first_wrong(judge_program_case(make, smallest.numbers));
  REQUIRE(wrong);
  const ProgramCase small = shrink(smallest.numbers, make);
  INFO(laid_out(to_json(small)));
  const auto still = first_wrong(judge_program_case(make, small));
  REQUIRE(still);
  CHECK(still->claim == wrong->claim);
  CHECK(small.ranks <= 3);
  CHECK(count_of_numbers(small) <= 16);
  CHECK(to_json(shrink(smallest.numbers, make)) == to_json(small));
  const auto read = program_case_of(to_json(small));
  REQUIRE(read);
  const auto again = first_wrong(judge_program_case(make, *read));
  REQUIRE(again);
  CHECK(again->claim == still->claim);
  CHECK(again->slot == still->slot);
  CHECK(exact_number(static_cast<float>(again->got)) ==
        exact_number(static_cast<float>(still->got)));
}

// It disagrees on this claim among others, and some case of at most 4 coordinates shows it.
void check_caught(const DeviceFactory& make, const std::string& name,
                  std::vector<ParameterShape> shapes, std::size_t ranks, OwnerMap owners,
                  const std::string& claim) {
  const ProgramResult result = sign(make, name, std::move(shapes), ranks, owners);
  INFO(told(result));
  CHECK(result.verdict() == Verdict::disagrees);
  const auto named =
      std::any_of(result.disagreements.begin(), result.disagreements.end(),
                  [&](const ProgramDisagreement& wrong) { return wrong.claim == claim; });
  CHECK(named);
  REQUIRE(result.smallest);
  CHECK(elements(Scope::coordinate, result.smallest->shapes) <= 4);
  check_shrinks(make, *result.smallest);
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
    for (std::size_t i = 0; i + 1 < list.size(); ++i) {
      const ArrayAssignment product = list[i];
      ArrayAssignment& sum = list[i + 1];
      if (product.function != ValueFunction::multiply || sum.function != ValueFunction::add ||
          !(sum.reads[1] == product.target) || sum.reads[0] == product.target) {
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

// The mean of what all ranks hold, given to all, by a function of one coordinate's terms.
class OwnMean : public Owning {
 public:
  using Mean = std::function<float(const std::vector<float>&)>;
  OwnMean(int ranks, Mean mean) : Owning(ranks), mean_(std::move(mean)) {}
  void reduce_scatter_mean(const ReduceScatterMeanCall& call) override {
    const auto means = of(call.send, call.count * call.receive.size());
    for (std::size_t rank = 0; rank < call.receive.size(); ++rank) {
      upload(static_cast<int>(rank), call.receive[rank], means.data() + rank * call.count,
             call.count);
    }
  }
  void all_reduce_mean(const AllReduceMeanCall& call) override {
    const auto means = of(call.send, call.count);
    for (std::size_t rank = 0; rank < call.receive.size(); ++rank) {
      upload(static_cast<int>(rank), call.receive[rank], means.data(), call.count);
    }
  }

 private:
  std::vector<float> of(const std::vector<const float*>& send, std::size_t count) {
    std::vector<std::vector<float>> sent;
    for (std::size_t rank = 0; rank < send.size(); ++rank) {
      sent.emplace_back(count);
      download(static_cast<int>(rank), send[rank], sent.back().data(), count);
    }
    std::vector<float> means, terms(send.size());
    for (std::size_t i = 0; i < count; ++i) {
      for (std::size_t rank = 0; rank < send.size(); ++rank) terms[rank] = sent[rank][i];
      means.push_back(mean_(terms));
    }
    return means;
  }
  Mean mean_;
};

DeviceFactory with_mean(OwnMean::Mean mean) {
  return [mean = std::move(mean)](int ranks) { return std::make_unique<OwnMean>(ranks, mean); };
}

// What a step leaves in a field, changed.
class ChangedResults : public Owning {
 public:
  ChangedResults(int ranks, std::function<float(float)> change, bool contracts, bool subnormals)
      : Owning(ranks),
        change_(std::move(change)),
        contracts_(contracts),
        subnormals_kept_(subnormals) {}
  Contract contract(shardproof::Operation operation, std::size_t batch,
                    std::size_t plane) const override {
    Contract contract = Owning::contract(operation, batch, plane);
    if (operation != shardproof::Operation::owned_step) return contract;
    contract.contraction = contracts_;
    contract.subnormals_kept = subnormals_kept_;
    return contract;
  }
  void owned_step(const OwnedStepCall& call) override {
    Owning::owned_step(call);
    for (const ArrayAssignment& assignment : call.assignments) {
      float* const field = call.fields[assignment.target.index];
      if (field == nullptr) continue;
      std::vector<float> values(call.count);
      download(call.replica, field + call.first, values.data(), call.count);
      std::transform(values.begin(), values.end(), values.begin(), change_);
      upload(call.replica, field + call.first, values.data(), call.count);
    }
  }

 private:
  std::function<float(float)> change_;
  bool contracts_, subnormals_kept_;
};

DeviceFactory changing(std::function<float(float)> change, bool contracts = false,
                       bool subnormals_kept = true) {
  return [=](int ranks) {
    return std::make_unique<ChangedResults>(ranks, change, contracts, subnormals_kept);
  };
}

float flushed(float x) { return std::abs(x) < 0x1p-126F ? std::copysign(0.0F, x) : x; }

// Its collectives do nothing where all is on one rank.
class NoSumOnOneRank : public Owning {
 public:
  using Owning::Owning;
  void all_reduce_sums(const AllReduceSumsCall& call) override {
    if (replicas() > 1) return Owning::all_reduce_sums(call);
    const std::vector<float> zeros(call.count);
    upload(0, call.result[0], zeros.data(), call.count);
  }
};

// Adds up in float32 what it says that it adds up in float64.
class Float32Sums : public Owning {
 public:
  using Owning::Owning;
  void all_reduce_sums(const AllReduceSumsCall& call) override {
    for (std::size_t rank = 0; rank < call.sums.size(); ++rank) {
      const auto replica = static_cast<int>(rank);
      auto* const words = reinterpret_cast<float*>(call.sums[rank]);
      std::vector<double> sums(call.count);
      download(replica, words, reinterpret_cast<float*>(sums.data()), 2 * call.count);
      for (double& sum : sums) sum = static_cast<double>(static_cast<float>(sum));
      upload(replica, words, reinterpret_cast<const float*>(sums.data()), 2 * call.count);
    }
    Owning::all_reduce_sums(call);
  }
};

// The last rank's step writes a number into the pad behind its coordinates.
class WritesPads : public Owning {
 public:
  using Owning::Owning;
  void owned_step(const OwnedStepCall& call) override {
    Owning::owned_step(call);
    if (call.replica == 0 || call.replica + 1 < replicas()) return;
    float* const field = call.fields[call.assignments.back().target.index];
    const float one = 1;
    if (field != nullptr) upload(call.replica, field + call.first + call.count, &one, 1);
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
  check_caught(made<ShiftedTail>(), "adamw", {{5}, {4}}, 2, OwnerMap::blocks,
               "mean of the gradients");
}

TEST_CASE("a norm of the local shard only is caught") {
  check_caught(made<LocalNorm>(), "global-norm-clipping-separable", {{6}}, 2, OwnerMap::blocks,
               "collectives of the program");
}

TEST_CASE("a step counter stuck on a rank that owns nothing is caught") {
  check_caught(made<StuckCounter>(), "adamw", {{2}}, 3, OwnerMap::mod, "owned against replicated");
}

TEST_CASE("an owner map off by one is caught") {
  check_caught(made<OwnerOffByOne>(), "momentum", {{6}, {3}}, 3, OwnerMap::blocks,
               "owned against replicated");
}

TEST_CASE("a stale gather is caught") {
  check_caught(made<StaleGather>(), "adamw", {{6}}, 2, OwnerMap::blocks,
               "gathered parameters are the owners'");
}

TEST_CASE("gradients summed, not averaged, are caught") {
  check_caught(made<NoDivide>(), "sgd", {{6}}, 2, OwnerMap::blocks, "mean of the gradients");
}

TEST_CASE("bfloat16 parameters rounded towards zero are caught") {
  const ProgramResult result = sign(made<TruncatingBFloat16>(), "sgd", {{6}}, 2, OwnerMap::blocks);
  INFO(told(result));
  CHECK(result.verdict() == Verdict::disagrees);
}

TEST_CASE("contraction that the contract does not tell of is wrong, and else within its bounds") {
  check_caught(made<Contracting<false>>(), "adamw", {{40}}, 2, OwnerMap::blocks,
               "device against reference");
  for (const std::string name : {"adamw", "lamb-separable", "radam"}) {
    const ProgramResult result =
        sign(made<Contracting<true>>(), name, {{40}, {3, 3}}, 2, OwnerMap::blocks, 8);
    INFO(name << "\n" << told(result));
    CHECK(result.verdict() == Verdict::agrees);
  }
}

TEST_CASE("a reduction in bfloat16 is caught, and one by premultiplied terms unless it is told") {
  const auto bfloat16_mean = [](const std::vector<float>& terms) {
    float sum = 0;
    for (const float t : terms) sum = round_to_bfloat16(sum + round_to_bfloat16(t));
    return sum / static_cast<float>(terms.size());
  };
  check_caught(with_mean(bfloat16_mean), "sgd", {{5}, {4}}, 4, OwnerMap::blocks,
               "mean of the gradients");
  const auto premultiplied = [](const std::vector<float>& terms) {
    float sum = 0;
    for (const float t : terms) sum += t * (1 / static_cast<float>(terms.size()));
    return sum;
  };
  for (const std::size_t ranks : {3, 5, 6, 7}) {
    check_caught(with_mean(premultiplied), "sgd", {{5}, {4}}, ranks, OwnerMap::mod,
                 "mean of the gradients");
  }
  class Tells : public OwnMean {
   public:
    using OwnMean::OwnMean;
    Contract contract(shardproof::Operation operation, std::size_t batch,
                      std::size_t plane) const override {
      Contract contract = OwnMean::contract(operation, batch, plane);
      contract.mean = MeanDivision::premultiply;
      return contract;
    }
  };
  const auto tells = [&](int ranks) { return std::make_unique<Tells>(ranks, premultiplied); };
  const ProgramResult told_result = sign(tells, "sgd", {{5}, {4}}, 5, OwnerMap::mod);
  INFO(told(told_result));
  CHECK(told_result.verdict() == Verdict::agrees);
}

TEST_CASE("flushed subnormals are caught unless the contract tells of them") {
  for (const std::string name : {"adamw", "sgd", "lion"}) {
    const ProgramResult result = sign(changing(flushed), name, {{5}, {2, 3}}, 4, OwnerMap::blocks);
    INFO(name << told(result));
    CHECK(result.verdict() == Verdict::disagrees);
  }
  for (const std::string& name : optimizer_names()) {
    if (optimizer(name).across_coordinates()) continue;
    const ProgramResult result =
        sign(changing(flushed, true, false), name, {{5}, {2, 3}}, 3, OwnerMap::mod, 6);
    INFO(name << told(result));
    CHECK(result.verdict() == Verdict::agrees);
  }
}

TEST_CASE("a device that tells of contraction and uses none agrees on every optimizer") {
  for (const std::string& name : optimizer_names()) {
    if (optimizer(name).across_coordinates()) continue;
    const ProgramResult result = sign(changing([](float x) { return x; }, true), name,
                                      {{5}, {0}, {2, 3}}, 3, OwnerMap::blocks, 8);
    INFO(name << told(result));
    CHECK(result.verdict() == Verdict::agrees);
  }
}

TEST_CASE("NaN turned into a number is caught, also where contraction is told of") {
  const auto no_nan = [](float x) { return std::isnan(x) ? 0.0F : x; };
  for (const bool contracts : {false, true}) {
    const ProgramResult result =
        sign(changing(no_nan, contracts), "adamw", {{5}, {2, 3}}, 4, OwnerMap::blocks);
    INFO(told(result));
    CHECK(result.verdict() == Verdict::disagrees);
  }
}

TEST_CASE("collectives wrong on one rank, or rounded to float32 on each rank, are caught") {
  check_caught(made<NoSumOnOneRank>(), "lamb-separable", {{5}, {2, 3}}, 3, OwnerMap::blocks,
               "collectives of the program on one rank");
  check_caught(made<Float32Sums>(), "lamb-separable", {{5}, {7}}, 2, OwnerMap::blocks,
               "collectives of the program");
}

TEST_CASE("a step that writes past what is owned is caught and shrunk") {
  const ProgramResult result = sign(made<WritesPads>(), "adamw", {{5}, {2}}, 4, OwnerMap::mod);
  INFO(told(result));
  CHECK(result.verdict() == Verdict::disagrees);
  CHECK(!result.overwritten.empty());
  REQUIRE(result.smallest);
  CHECK(elements(Scope::coordinate, result.smallest->shapes) <= 4);
}

TEST_CASE("a run that compares no coordinate has no verdict") {
  const ProgramResult result = sign(host, "adamw", {{0}}, 2, OwnerMap::blocks);
  CHECK(result.verdict() == Verdict::none);
  CHECK(result.unjudged ==
        std::vector<std::string>{"gathered parameters are the owners'", "mean of the gradients"});
}
