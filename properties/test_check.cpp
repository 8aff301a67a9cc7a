// The runner of properties: which cases it tries, what it counts, and how small it makes what
// fails.
#include <catch2/catch.hpp>
#include <cmath>
#include <memory>
#include <mutex>
#include <utility>

#include "device/engine/forwarding_device.h"
#include "diff/shrink.h"
#include "properties/check.h"

namespace shardproof {
namespace {

using Holds = std::function<void(Draws&, Trial&)>;

Identity of(Holds holds, std::size_t one_in = 1) {
  return {"made-for-a-test", "test", "", "", {{"a property", {}, std::move(holds), one_in}}};
}

PropertyReport run(const Identity& identity, std::size_t cases, unsigned threads = 1,
                   std::uint64_t seed = 1) {
  CheckTask task;
  task.identities = {&identity};
  task.cases = cases;
  task.seed = seed;
  task.threads = threads;
  return check(task).at(0);
}

TEST_CASE("the cases of a run are the beginning of a longer run's, other ones under another seed") {
  const auto seeds = [](std::size_t cases, std::uint64_t seed) {
    std::vector<std::uint64_t> drawn;
    const Identity identity = of([&](Draws& draws, Trial&) { drawn.push_back(draws.seed()); });
    CHECK(run(identity, cases, 1, seed).cases == cases);
    return drawn;
  };
  std::vector<std::uint64_t> longer = seeds(700, 1);
  const std::vector<std::uint64_t> other = seeds(50, 2);
  CHECK(std::vector(longer.begin(), longer.begin() + 50) != other);
  longer.resize(50);
  CHECK(longer == seeds(50, 1));
  std::sort(longer.begin(), longer.end());
  CHECK(std::adjacent_find(longer.begin(), longer.end()) == longer.end());
}

TEST_CASE("any number of threads tries and counts the same cases up to the first that fails") {
  const Identity identity = of([](Draws& draws, Trial&) {
    const std::size_t rows = draws.size("rows", 1, 100);
    discard_unless(rows % 7 != 0);
    claim(draws.seed() % 997 != 0, "no seed is a multiple of 997");
  });
  const PropertyReport one = run(identity, 5000), four = run(identity, 5000, 4);
  REQUIRE(one.failure);
  REQUIRE(four.failure);
  CHECK(one.failure->index == four.failure->index);
  CHECK(one.cases == one.failure->index + 1);
  CHECK(one.cases == four.cases);
  CHECK(one.discards == four.discards);
  CHECK(one.discards > 0);
  CHECK(one.draws == four.draws);
  CHECK(to_string(one.failure->shrunk.draws.record()) ==
        to_string(four.failure->shrunk.draws.record()));
}

TEST_CASE("a failing case shrinks to the smallest draws that fail, kinds towards the first") {
  static constexpr std::string_view kinds[] = {"plain", "odd", "worst"};
  const Identity identity = of([](Draws& draws, Trial&) {
    const std::size_t rows = draws.size("rows", 1, 100), columns = draws.size("columns", 1, 100);
    const std::size_t kind = draws.kind("kind", kinds);
    draws.seed();
    claim(rows < 13 || kind == 0, "rows stay below 13 unless plain");
    claim(columns < 200, "columns stay below 200");
  });
  const PropertyReport report = run(identity, 2000);
  REQUIRE(report.failure);
  CHECK(to_string(report.failure->shrunk.draws.record()) == "rows 13, columns 1, kind odd, seed 0");
  CHECK_THAT(report.failure->shrunk.message, Catch::Contains("rows stay below 13 unless plain"));
  CHECK(first_failure(identity, Property::Form::reference, 2000) != "");
}

TEST_CASE("a property that discards every case, or throws anything, does not hold") {
  CHECK(!run(of([](Draws&, Trial&) { discard_unless(false); }), 20).holds());
  const PropertyReport broken =
      run(of([](Draws&, Trial&) { throw std::out_of_range("broken"); }), 20);
  REQUIRE(broken.failure);
  CHECK(broken.failure->found.message == "broken");
  CHECK(broken.failure->index == 0);
  CHECK(run(of([](Draws&, Trial&) {}), 20).holds());
}

TEST_CASE("a costly property is tried on one case of so many, on one at least") {
  CHECK(run(of([](Draws&, Trial&) {}, 10), 95).cases == 9);
  CHECK(run(of([](Draws&, Trial&) {}, 1000), 95).cases == 1);
}

TEST_CASE("a case that was recorded is given again as it was, and one that does not fit is told") {
  const auto draw = [](Draws& draws) {
    static constexpr std::string_view kinds[] = {"plain", "odd"};
    const std::size_t rows = draws.size("rows", 1, 9);
    const std::size_t kind = draws.kind("kind", kinds);
    return std::tuple(rows, kind, draws.seed());
  };
  Draws drawn(5, 100);
  const auto values = draw(drawn);
  Draws given(drawn.record());
  CHECK(draw(given) == values);
  CHECK(given.as_given());
  std::vector<Drawn> record = drawn.record();
  record[0].value = 10;
  Draws outside(record);
  CHECK(std::get<0>(draw(outside)) == 9);
  CHECK(!outside.as_given());
  record = drawn.record();
  record.push_back({"more", 1, ""});
  Draws longer(record);
  draw(longer);
  CHECK(!longer.as_given());
}

// A device that is wrong in one operation.
class Faulty : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  // Divides by m − 1.
  void channel_variance(const ChannelVarianceCall& call) override {
    base().channel_variance(call);
    const float m = static_cast<float>(call.batch * call.plane);
    if (m < 2) return;
    for (std::size_t c = 0; c < call.channels; ++c) call.variance[c] *= m / (m - 1);
  }
};

// Gives every replica rank 0's term only.
class NotReduced : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void all_reduce_mean(const AllReduceMeanCall& call) override {
    for (std::size_t i = 0; i < call.count; ++i) {
      const float first = call.send[0][i];
      for (float* to : call.receive) to[i] = first;
    }
  }
};

// Leaves the last pixel of the last row alone.
class ShortNormalise : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void normalise(const NormaliseCall& call) override {
    base().normalise(call);
    call.y[call.batch * call.channels * call.plane - 1] = 0;
  }
};

// Takes the bottom right tap for the one before it.
class WrongTap : public ForwardingDevice {
 public:
  using ForwardingDevice::ForwardingDevice;

  void convolution(const ConvolutionCall& call) override {
    ConvolutionCall other = call;
    std::vector<float> weight(call.weight, call.weight + call.out_channels * call.in_channels *
                                                             call.kernel * call.kernel);
    if (call.kernel > 1) std::swap(weight[weight.size() - 1], weight[weight.size() - 2]);
    other.weight = weight.data();
    base().convolution(other);
  }
};

template <class Wrong>
void check_found(const std::string& label, std::size_t most_replicas, std::size_t most_numbers) {
  const DeviceMaker make = [](int replicas, const Schedule& schedule) {
    return std::make_unique<Wrong>(make_host_device(replicas, schedule, 1));
  };
  for (const Identity& identity : all_identities()) {
    if (identity.label != label) continue;
    CheckTask task;
    task.identities = {&identity};
    task.cases = 1000;
    task.make = make;
    bool found = false;
    for (const PropertyReport& report : check(task)) {
      if (report.property->form == Property::Form::reference) {
        CHECK(report.holds());
        continue;
      }
      REQUIRE(report.failure);
      found = true;
      const auto* small = std::get_if<UnitCase>(&report.failure->shrunk.wrong);
      REQUIRE(small != nullptr);
      CHECK(small->inputs.at(0).size() <= most_replicas);
      CHECK(count_of_numbers(*small) <= most_numbers);
      CHECK(judge_unit_case(make, *small).outcome() == Outcome::wrong);
    }
    CHECK(found);
  }
}

TEST_CASE("faults of a device are found and shrunk to two replicas and sixteen numbers") {
  check_found<Faulty>("P1", 1, 16);
  check_found<Faulty>("P1b", 1, 16);
  check_found<NotReduced>("P1", 2, 16);
  check_found<ShortNormalise>("P1a", 1, 16);
  check_found<WrongTap>("P3", 1, 16);
}

}  // namespace
}  // namespace shardproof
