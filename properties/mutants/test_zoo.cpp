// The zoo itself: what is wrong is caught and shrunk, what is right is not, a control that needs
// its contract is caught without it, and the number of threads does not matter.
#include <catch2/catch.hpp>
#include <cmath>

#include "properties/mutants/zoo.h"

namespace shardproof {
namespace {

float* values(const shardproof_tensor& tensor) { return static_cast<float*>(tensor.data); }

template <bool lost, bool reciprocal>
int pool(const shardproof_unary* call) {
  const auto rows = static_cast<std::size_t>(call->x.shape[0] * call->x.shape[1]);
  const auto plane = static_cast<std::size_t>(call->x.shape[2]);
  for (std::size_t row = 0; row < rows; ++row) {
    float sum = 0;
    for (std::size_t i = 0; i + (lost ? 1 : 0) < plane; ++i)
      sum += values(call->x)[row * plane + i];
    const auto count = static_cast<float>(plane);
    values(call->y)[row] = reciprocal ? sum * (1 / count) : sum / count;
  }
  return 0;
}

template <bool lost, bool reciprocal>
void fill(shardproof_candidate_table& table) {
  table.global_average_pool = pool<lost, reciprocal>;
  if (reciprocal) {
    table.contracts[SHARDPROOF_GLOBAL_AVERAGE_POOL].mean = SHARDPROOF_MEAN_RECIPROCAL;
  }
}

const std::vector<Mutant>& made_for_the_test() {
  static const std::vector<Mutant> mutants = {
      {"last-pixel-lost", "", "", false, false, fill<true, false>},
      {"in-order", "", "", true, false, fill<false, false>},
      {"times-the-reciprocal", "", "", true, true, fill<false, true>},
  };
  return mutants;
}

std::vector<ZooEntry> visit(unsigned threads) {
  ZooTask task;
  for (const Mutant& mutant : made_for_the_test()) task.mutants.push_back(&mutant);
  for (const Identity& identity : all_identities()) {
    if (identity.name == "batch-shard-commutes-with-per-example-maps") {
      task.identities.push_back(&identity);
    }
  }
  task.control_cases = 600;
  task.threads = threads;
  return run_zoo(task, {});
}

TEST_CASE("mutants are caught, controls are not, and one that needs its contract is without it") {
  const std::vector<ZooEntry> entries = visit(1);
  REQUIRE(entries.size() == 4);
  for (const ZooEntry& entry : entries) {
    CAPTURE(entry.mutant->name, entry.contract_kept);
    CHECK(entry.as_expected());
    CHECK(entry.cases > entry.discards);
  }
  REQUIRE(entries[0].caught);
  CHECK(entries[0].caught->numbers.value() <= 4);
  CHECK(entries[0].usual.cases == entries[0].cases);
  CHECK(entries[1].cases == 300);
  CHECK_FALSE(entries[3].contract_kept);
}

TEST_CASE("a zoo is the same at any number of threads") {
  const std::vector<ZooEntry> one = visit(1), three = visit(3);
  REQUIRE(one.size() == three.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].cases == three[i].cases);
    CHECK(one[i].usual.beyond == three[i].usual.beyond);
    REQUIRE(one[i].caught.has_value() == three[i].caught.has_value());
    if (!one[i].caught) continue;
    CHECK(one[i].caught->found.message == three[i].caught->found.message);
    CHECK(one[i].caught->shrunk.message == three[i].caught->shrunk.message);
  }
}

}  // namespace
}  // namespace shardproof
