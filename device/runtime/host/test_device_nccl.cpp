#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "device/runtime/host/nccl.h"
#include "device/runtime/host/reduction.h"

namespace shardproof::host {
namespace {

// Communicators of ncclCommInitAll on one runtime.
class Ranks {
 public:
  explicit Ranks(int count, std::uint64_t seed = 0)
      : runtime_(seed, 1), communicators_(static_cast<std::size_t>(count)) {
    REQUIRE(ncclCommInitAll(communicators_.data(), count, nullptr) == ncclSuccess);
  }
  ~Ranks() {
    for (ncclComm_t communicator : communicators_) ncclCommDestroy(communicator);
  }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  std::size_t size() const { return communicators_.size(); }
  ncclComm_t operator[](std::size_t rank) const { return communicators_[rank]; }
  Stream stream() { return {&runtime_}; }

 private:
  Runtime runtime_;
  std::vector<ncclComm_t> communicators_;
};

template <class T>
using PerRank = std::vector<std::vector<T>>;

PerRank<float> random_floats(std::size_t ranks, std::size_t count) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal;
  PerRank<float> values(ranks, std::vector<float>(count));
  for (auto& of_rank : values) {
    for (float& value : of_rank) value = normal(random);
  }
  return values;
}

// In place, from one thread.
template <class T>
ncclResult_t all_reduce(Ranks& ranks, PerRank<T>& values, ncclDataType_t type,
                        ncclRedOp_t operation) {
  ncclGroupStart();
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    ncclAllReduce(values[r].data(), values[r].data(), values[r].size(), type, operation, ranks[r],
                  ranks.stream());
  }
  return ncclGroupEnd();
}

template <class T>
T reduced(std::vector<T> operands, ncclDataType_t type, ncclRedOp_t operation) {
  Ranks ranks(static_cast<int>(operands.size()));
  PerRank<T> values;
  for (T operand : operands) values.push_back({operand});
  REQUIRE(all_reduce(ranks, values, type, operation) == ncclSuccess);
  return values[0][0];
}

using Bits = std::vector<std::uint32_t>;

Bits bits(const std::vector<float>& values) {
  Bits result;
  for (float value : values) result.push_back(std::bit_cast<std::uint32_t>(value));
  return result;
}

}  // namespace

TEST_CASE("an all-reduce gives every rank the same bits, near the exact sum") {
  for (int count = 1; count <= 7; ++count) {
    for (std::uint64_t seed = 0; seed <= 12; ++seed) {
      Ranks ranks(count, seed);
      const PerRank<float> sent = random_floats(ranks.size(), 23);
      PerRank<float> values = sent;
      REQUIRE(all_reduce(ranks, values, ncclFloat32, ncclSum) == ncclSuccess);
      for (std::size_t i = 0; i < 23; ++i) {
        double sum = 0.0, magnitude = 0.0;
        for (const auto& of_rank : sent) sum += of_rank[i];
        for (const auto& of_rank : sent) magnitude += std::fabs(of_rank[i]);
        REQUIRE(std::fabs(values[0][i] - sum) <= (count - 1) * 0x1p-24 * magnitude);
      }
      for (const auto& of_rank : values) REQUIRE(bits(of_rank) == bits(values[0]));
    }
  }
}

TEST_CASE("the seed and the number of elements choose the order of a reduction") {
  CHECK(reduction_order(0, 5) == ReductionOrder::by_rank);
  std::set<ReductionOrder> orders;
  std::set<Bits> results;
  for (std::uint64_t seed = 0; seed <= 30; ++seed) {
    orders.insert(reduction_order(seed, 0));
    Ranks ranks(7, seed), again(7, seed);
    PerRank<float> values = random_floats(7, 50), same = values;
    REQUIRE(all_reduce(ranks, values, ncclFloat32, ncclSum) == ncclSuccess);
    REQUIRE(all_reduce(again, same, ncclFloat32, ncclSum) == ncclSuccess);
    CHECK(bits(values[0]) == bits(same[0]));
    results.insert(bits(values[0]));
  }
  CHECK(orders.size() == 4);
  CHECK(results.size() > 10);
}

TEST_CASE("by rank, the sum is taken from rank 0 on") {
  CHECK(reduced<float>({0x1p24f, 1.0f, 1.0f}, ncclFloat32, ncclSum) == 0x1p24f);
  CHECK(reduced<float>({1.0f, 1.0f, 0x1p24f}, ncclFloat32, ncclSum) == 0x1p24f + 2.0f);
}

TEST_CASE("every reduction, on integers and floats") {
  CHECK(reduced<std::int32_t>({7, -3, 5}, ncclInt32, ncclSum) == 9);
  CHECK(reduced<std::int32_t>({7, -3, 5}, ncclInt32, ncclProd) == -105);
  CHECK(reduced<std::int32_t>({7, -3, 5}, ncclInt32, ncclMax) == 7);
  CHECK(reduced<std::int32_t>({7, -3, 5}, ncclInt32, ncclMin) == -3);
  CHECK(reduced<std::int32_t>({7, -3, 5}, ncclInt32, ncclAvg) == 3);
  CHECK(reduced<std::int32_t>({2, 4}, ncclInt32, ncclAvg) == 3);
  CHECK(reduced<std::int32_t>({2147483647, 1}, ncclInt32, ncclSum) == -2147483647 - 1);
  CHECK(reduced<std::int8_t>({-128, -1}, ncclInt8, ncclSum) == 127);
  CHECK(reduced<std::uint8_t>({200, 100}, ncclUint8, ncclSum) == 44);
  CHECK(reduced<std::uint32_t>({4000000000u, 1u}, ncclUint32, ncclMax) == 4000000000u);
  CHECK(reduced<std::int64_t>({1ll << 40, -1}, ncclInt64, ncclSum) == (1ll << 40) - 1);
  CHECK(reduced<std::uint64_t>({1ull << 63, 3}, ncclUint64, ncclMin) == 3);
  CHECK(reduced<double>({0.1, 0.2}, ncclFloat64, ncclSum) == 0.1 + 0.2);
  CHECK(reduced<double>({3.0, -2.0}, ncclFloat64, ncclProd) == -6.0);
  CHECK(reduced<float>({1.0f, 2.0f}, ncclFloat32, ncclMax) == 2.0f);
}

TEST_CASE("an average multiplies by 1/R before it adds") {
  const std::vector<float> x = {5.0f, 3.0f, 6.0f};
  const float third = 1.0f / 3.0f;
  CHECK(reduced<float>(x, ncclFloat32, ncclAvg) == (5.0f * third + 3.0f * third) + 6.0f * third);
}

TEST_CASE("16-bit formats are rounded to nearest even after every step") {
  const auto bfloat = [](std::uint16_t a, std::uint16_t b, ncclRedOp_t operation) {
    return reduced<std::uint16_t>({a, b}, ncclBfloat16, operation);
  };
  CHECK(bfloat(0x4380, 0x3f80, ncclSum) == 0x4380);  // 256 + 1 ties to 256
  CHECK(bfloat(0x4380, 0x4040, ncclSum) == 0x4382);  // 256 + 3 ties to 260
  CHECK(bfloat(0x3f80, 0x3f81, ncclMax) == 0x3f81);
  CHECK(bfloat(0x7f7f, 0x7f7f, ncclSum) == 0x7f80);  // overflow
  const auto half = [](std::uint16_t a, std::uint16_t b, ncclRedOp_t operation) {
    return reduced<std::uint16_t>({a, b}, ncclFloat16, operation);
  };
  CHECK(half(0x6800, 0x3c00, ncclSum) == 0x6800);  // 2048 + 1 ties to 2048
  CHECK(half(0x6800, 0x4200, ncclSum) == 0x6802);  // 2048 + 3 ties to 2052
  CHECK(half(0x7bff, 0x7bff, ncclSum) == 0x7c00);  // overflow
  CHECK(half(0x0001, 0x0001, ncclSum) == 0x0002);  // subnormals
  CHECK(half(0x0400, 0x8001, ncclSum) == 0x03ff);  // normal to subnormal
  CHECK(half(0x03ff, 0x0001, ncclSum) == 0x0400);
  CHECK(half(0x0001, 0x3800, ncclProd) == 0x0000);  // half the least ties to 0
  CHECK(half(0x0003, 0x3800, ncclProd) == 0x0002);
  CHECK(half(0xbc00, 0x3c00, ncclMin) == 0xbc00);
  CHECK(half(0x7c00, 0xfc00, ncclSum) == 0x7fff);        // ∞ − ∞
  for (std::uint32_t bits = 0; bits < 0x7c00; ++bits) {  // every finite value survives
    const auto value = static_cast<std::uint16_t>(bits);
    if (reduced<std::uint16_t>({value}, ncclFloat16, ncclSum) != value) FAIL(bits);
    bits += 36;
  }
}

TEST_CASE("reduce-scatter then all-gather is an all-reduce") {
  for (int count = 1; count <= 7; ++count) {
    Ranks ranks(count);
    const std::size_t part = 3, total = part * ranks.size();
    PerRank<float> values = random_floats(ranks.size(), total);
    PerRank<float> whole = values;
    REQUIRE(all_reduce(ranks, whole, ncclFloat32, ncclSum) == ncclSuccess);
    ncclGroupStart();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ncclReduceScatter(values[r].data(), values[r].data() + r * part, part, ncclFloat32, ncclSum,
                        ranks[r], ranks.stream());
    }
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    ncclGroupStart();
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      ncclAllGather(values[r].data() + r * part, values[r].data(), part, ncclFloat32, ranks[r],
                    ranks.stream());
    }
    REQUIRE(ncclGroupEnd() == ncclSuccess);
    for (const auto& of_rank : values) CHECK(bits(of_rank) == bits(whole[0]));
  }
}

TEST_CASE("a broadcast gives all what the root sends") {
  Ranks ranks(5);
  PerRank<float> values = random_floats(5, 4);
  const std::vector<float> sent = values[3];
  ncclGroupStart();
  for (std::size_t r = 0; r < 5; ++r) {
    ncclBroadcast(r == 3 ? values[r].data() : nullptr, values[r].data(), 4, ncclFloat32, 3,
                  ranks[r], ranks.stream());
  }
  REQUIRE(ncclGroupEnd() == ncclSuccess);
  for (const auto& of_rank : values) CHECK(bits(of_rank) == bits(sent));
}

TEST_CASE("a thread a rank, with and without groups, any number of calls") {
  for (int count : {1, 2, 5}) {
    Runtime runtime(3, 1);
    ncclUniqueId id;
    REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
    std::vector<std::vector<float>> values = random_floats(static_cast<std::size_t>(count), 9);
    std::vector<std::thread> threads;
    std::vector<int> failures(static_cast<std::size_t>(count), 0);
    for (int rank = 0; rank < count; ++rank) {
      threads.emplace_back([&, rank] {
        const auto r = static_cast<std::size_t>(rank);
        ncclComm_t communicator;
        failures[r] += ncclCommInitRank(&communicator, count, id, rank) != ncclSuccess;
        for (int turn = 0; turn < 20; ++turn) {
          if (turn % 2 == 0) ncclGroupStart();
          failures[r] += ncclAllReduce(values[r].data(), values[r].data(), 9, ncclFloat32, ncclAvg,
                                       communicator, {&runtime}) != ncclSuccess;
          if (turn % 2 == 0) failures[r] += ncclGroupEnd() != ncclSuccess;
        }
        ncclCommDestroy(communicator);
      });
    }
    for (std::thread& thread : threads) thread.join();
    CHECK(std::accumulate(failures.begin(), failures.end(), 0) == 0);
    for (const auto& of_rank : values) CHECK(bits(of_rank) == bits(values[0]));
  }
}

TEST_CASE("ranks that disagree all get an error that names the rank, and go on") {
  Ranks ranks(3);
  std::vector<float> x(8, 1.0f);
  struct Wrong {
    std::size_t count;
    ncclDataType_t type;
    ncclRedOp_t operation;
    const char* message;
  };
  for (const Wrong& wrong :
       {Wrong{5, ncclFloat32, ncclSum, "rank 2 calls ncclAllReduce of 5 float32, sum where rank 0"},
        Wrong{4, ncclInt32, ncclSum, "of 4 int32, sum where"},
        Wrong{4, ncclFloat32, ncclAvg, "of 4 float32, avg where"}}) {
    ncclGroupStart();
    for (std::size_t r = 0; r < 3; ++r) {
      const bool odd = r == 2;
      ncclAllReduce(x.data(), x.data(), odd ? wrong.count : 4, odd ? wrong.type : ncclFloat32,
                    odd ? wrong.operation : ncclSum, ranks[r], ranks.stream());
    }
    CHECK(ncclGroupEnd() == ncclInvalidArgument);
    for (std::size_t r = 0; r < 3; ++r) {
      CHECK_THAT(ncclGetLastError(ranks[r]), Catch::Contains(wrong.message));
    }
    CHECK(x[0] == 1.0f);
  }
  PerRank<float> values(3, std::vector<float>(4, 2.0f));
  CHECK(all_reduce(ranks, values, ncclFloat32, ncclSum) == ncclSuccess);
  CHECK(values[1][3] == 6.0f);
}

TEST_CASE("a group that forgets a rank is refused at once") {
  Ranks ranks(3);
  std::vector<float> x(4, 1.0f);
  ncclGroupStart();
  for (std::size_t r = 0; r < 2; ++r) {
    ncclAllReduce(x.data(), x.data(), 4, ncclFloat32, ncclSum, ranks[r], ranks.stream());
  }
  CHECK(ncclGroupEnd() == ncclInvalidUsage);
  CHECK_THAT(ncclGetLastError(nullptr), Catch::Contains("rank 2 makes 0 calls in this group"));
  PerRank<float> values(3, std::vector<float>(4, 2.0f));
  CHECK(all_reduce(ranks, values, ncclFloat32, ncclSum) == ncclSuccess);
}

TEST_CASE("bad arguments are refused without waiting for other ranks") {
  Ranks ranks(2);
  std::vector<float> x(4);
  float* const p = x.data();
  const Stream stream = ranks.stream();
  CHECK(ncclAllReduce(nullptr, p, 4, ncclFloat32, ncclSum, ranks[0], stream) ==
        ncclInvalidArgument);
  CHECK_THAT(ncclGetLastError(ranks[0]), Catch::Contains("send buffer is null"));
  CHECK(ncclAllReduce(p, nullptr, 4, ncclFloat32, ncclSum, ranks[0], stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(p, p, 4, ncclFloat32, ncclSum, nullptr, stream) == ncclInvalidArgument);
  CHECK(ncclAllReduce(p, p, 4, ncclFloat32, ncclSum, ranks[0], Stream{nullptr}) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(p, p, 4, static_cast<ncclDataType_t>(12), ncclSum, ranks[0], stream) ==
        ncclInvalidArgument);
  CHECK(ncclAllReduce(p, p, 4, ncclFloat32, static_cast<ncclRedOp_t>(7), ranks[0], stream) ==
        ncclInvalidArgument);
  CHECK(ncclBroadcast(p, p, 4, ncclFloat32, 2, ranks[0], stream) == ncclInvalidArgument);
  CHECK_THAT(ncclGetLastError(nullptr), Catch::Contains("root 2 is not one of 2 ranks"));

  ncclGroupStart();
  ncclAllReduce(p, nullptr, 4, ncclFloat32, ncclSum, ranks[0], stream);
  ncclAllReduce(p, p, 4, ncclFloat32, ncclSum, ranks[1], stream);
  CHECK(ncclGroupEnd() == ncclInvalidArgument);
  CHECK(ncclGroupEnd() == ncclInvalidUsage);

  ncclComm_t communicator;
  CHECK(ncclCommInitAll(&communicator, 0, nullptr) == ncclInvalidArgument);
  CHECK(ncclCommInitAll(nullptr, 2, nullptr) == ncclInvalidArgument);
  ncclUniqueId id;
  REQUIRE(ncclGetUniqueId(&id) == ncclSuccess);
  CHECK(ncclCommInitRank(&communicator, 2, id, 2) == ncclInvalidArgument);
  ncclComm_t first, second;
  CHECK(ncclCommInitRank(&first, 2, id, 0) == ncclSuccess);
  CHECK(ncclCommInitRank(&communicator, 2, id, 0) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&communicator, 3, id, 1) == ncclInvalidArgument);
  CHECK(ncclCommInitRank(&second, 2, id, 1) == ncclSuccess);
  ncclCommDestroy(first);
  ncclCommDestroy(second);
  CHECK(std::string(ncclGetErrorString(ncclInvalidUsage)) == "invalid usage");
}

TEST_CASE("nothing to do is done") {
  Ranks ranks(2);
  ncclGroupStart();
  for (std::size_t r = 0; r < 2; ++r) {
    CHECK(ncclAllReduce(nullptr, nullptr, 0, ncclFloat32, ncclSum, ranks[r], ranks.stream()) ==
          ncclSuccess);
  }
  CHECK(ncclGroupEnd() == ncclSuccess);
  CHECK(ncclGroupStart() == ncclSuccess);
  CHECK(ncclGroupEnd() == ncclSuccess);
}

}  // namespace shardproof::host
