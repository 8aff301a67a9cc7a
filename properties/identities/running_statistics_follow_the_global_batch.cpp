// P1, the statistics handed back (spec §3): after each batch every replica's running averages are
// those of the global batch, the variance unbiased by the count of all replicas.
#include <fmt/format.h>

#include "diff/bounds.h"
#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "properties/trial.h"
#include "reference/graph/running_statistics.h"
#include "reference/numbers/certified.h"

namespace shardproof {
namespace {

using Running = RunningStatistics<Rational>;

// Of replicas that combine their moments, and of one that has the whole batch; against the closed
// form of a moving average.
void exactly(Draws& draws, Trial&) {
  const DrawnBatch drawn = draw_batch(draws, {4, 2, 3, 3});
  const std::size_t steps = draws.size("batches", 1, 4);
  const std::size_t count = drawn.shape.n * drawn.shape.plane();
  discard_unless(count > 1);
  Random random(draws.seed(), "running");
  const Rational momentum = Rational(static_cast<int>(random.below(11))) / 10;
  const Rational start(static_cast<int>(random.integer(-5, 5)));
  for (std::size_t c = 0; c < drawn.shape.c; ++c) {
    Running running{start, start}, of_replicas = running, of_own_count = running;
    Rational closed_mean = start, closed_variance = start;
    bool varies = false;
    for (std::size_t step = 0; step < steps; ++step) {
      const Tensor<Rational> batch = fractions(drawn.shape, Random(random.next(), "x"));
      const Moments global = moments(batch, c);
      running = updated<Rational>(running, global.mean, global.variance, momentum, count);
      Rational mean = 0, variance = 0;
      const Family<Rational> shards = shards_of(drawn.replicas, batch);
      for (const Tensor<Rational>& shard : shards) mean += moments(shard, c).mean;
      mean /= Rational(drawn.replicas);
      for (const Tensor<Rational>& shard : shards) {
        const Moments own = moments(shard, c);
        variance += own.variance + (own.mean - mean) * (own.mean - mean);
      }
      variance /= Rational(drawn.replicas);
      of_replicas = updated<Rational>(of_replicas, mean, variance, momentum, count);
      closed_mean += momentum * (global.mean - closed_mean);
      const Rational unbiased = global.variance * Rational(count) / Rational(count - 1);
      closed_variance += momentum * (unbiased - closed_variance);
      const std::size_t own_count = count / drawn.replicas;
      if (own_count > 1) {
        of_own_count = updated<Rational>(of_own_count, mean, variance, momentum, own_count);
        varies = varies || variance != 0;
      }
    }
    claim(of_replicas.mean == running.mean && of_replicas.variance == running.variance,
          "the replicas' combined moments give the running values of the global batch");
    claim(running.mean == closed_mean && running.variance == closed_variance,
          "they are moving averages");
    if (drawn.replicas > 1 && varies && momentum != 0 && count / drawn.replicas > 1) {
      claim(of_own_count.variance > running.variance,
            "a replica's own count makes the variance too large");
    }
    const Running kept = updated<Rational>(running, 7, 7, momentum, 0);
    claim(kept.mean == running.mean && kept.variance == running.variance,
          "a batch without numbers changes nothing");
  }
}

// Each replica's device memory after some batches, one operation's roundings at a time.
void on_the_device(Draws& draws, Trial& trial) {
  const std::size_t replicas = draws.replicas();
  const std::size_t channels = draws.size("channels", 1, 300);
  const std::size_t batches = draws.size("batches", 1, 3);
  static constexpr std::array<std::string_view, 5> momenta = {"0.1", "0.5", "0.01", "1", "0"};
  static constexpr std::array<float, 5> values = {0.1F, 0.5F, 0.01F, 1.0F, 0.0F};
  const float momentum = values[draws.kind("momentum", momenta)];
  static constexpr std::array<std::string_view, 5> counts = {"2", "3", "98", "2049", "none"};
  static constexpr std::array<std::size_t, 5> numbers = {2, 3, 98, 2049, 0};
  const std::size_t count = numbers[draws.kind("numbers of a channel", counts)];
  static constexpr std::array<std::string_view, 3> inputs = {"lattice", "natural", "corners"};
  const std::size_t input = draws.kind("input", inputs);
  const std::uint64_t seed = draws.seed();
  Random random(seed, "running statistics");
  const auto draw = [&] {
    if (input == 0) return static_cast<float>(random.integer(-64, 64));
    if (input == 1) return static_cast<float>(random.triangular(4));
    const int exponent = static_cast<int>(random.integer(-140, 60));
    return static_cast<float>(random.sign() * std::ldexp(1 + random.uniform(), exponent));
  };
  Schedule schedule;
  schedule.seed = random.next();
  const auto device = trial.make(static_cast<int>(replicas), schedule);
  const Contract contract = device->contract(Operation::running_statistics, 1, 1);
  struct Memory {
    std::array<float*, 4> arrays;  // mean, variance, running mean, running variance
  };
  std::vector<Memory> memories(replicas);
  std::vector<float> running_mean(channels), running_variance(channels);
  for (std::size_t c = 0; c < channels; ++c) {
    running_mean[c] = draw();
    running_variance[c] = std::abs(draw());
  }
  const auto upload = [&](std::size_t r, std::size_t array, const std::vector<float>& from) {
    device->upload(static_cast<int>(r), memories[r].arrays[array], from.data(), channels);
  };
  for (std::size_t r = 0; r < replicas; ++r) {
    for (float*& array : memories[r].arrays) {
      array = device->allocate(static_cast<int>(r), channels);
    }
    upload(r, 2, running_mean);
    upload(r, 3, running_variance);
  }
  for (std::size_t batch = 0; batch < batches; ++batch) {
    std::vector<float> mean(channels), variance(channels);
    for (std::size_t c = 0; c < channels; ++c) {
      mean[c] = draw();
      variance[c] = std::abs(draw());
    }
    std::vector<float> got_mean(channels), got_variance(channels);
    for (std::size_t r = 0; r < replicas; ++r) {
      const auto& [own_mean, own_variance, of_mean, of_variance] = memories[r].arrays;
      upload(r, 0, mean);
      upload(r, 1, variance);
      device->running_statistics({static_cast<int>(r), own_mean, own_variance, of_mean, of_variance,
                                  channels, momentum, count});
      std::vector<float> a(channels), b(channels);
      device->download(static_cast<int>(r), of_mean, a.data(), channels);
      device->download(static_cast<int>(r), of_variance, b.data(), channels);
      if (r == 0) {
        got_mean = a;
        got_variance = b;
      }
      for (std::size_t c = 0; c < channels; ++c) {
        claim(
            std::bit_cast<std::uint32_t>(a[c]) == std::bit_cast<std::uint32_t>(got_mean[c]) &&
                std::bit_cast<std::uint32_t>(b[c]) == std::bit_cast<std::uint32_t>(got_variance[c]),
            "the running values are equal on all replicas");
      }
    }
    const auto judge = [&](const char* what, std::size_t c, float before, float of_batch, float got,
                           double unbiased) {
      const Certified kept = Certified(1) - Certified(static_cast<double>(momentum));
      const Certified expected = kept * Certified(static_cast<double>(before)) +
                                 Certified(static_cast<double>(momentum)) *
                                     Certified(static_cast<double>(of_batch)) * Certified(unbiased);
      const double exact = count == 0 ? static_cast<double>(before) : expected.value;
      const double bound =
          count == 0
              ? 0
              : running_allowance(contract, before, of_batch, momentum, unbiased) + expected.radius;
      claim(std::abs(static_cast<double>(got) - exact) <= bound,
            fmt::format(
                "running {} after batch {}: channel {} got {:.9g}, exact {:.9g}, bound {:.3g}",
                what, batch + 1, c, got, exact, bound));
    };
    const auto n = static_cast<double>(count);
    for (std::size_t c = 0; c < channels; ++c) {
      judge("mean", c, running_mean[c], mean[c], got_mean[c], 1);
      judge("variance", c, running_variance[c], variance[c], got_variance[c], n / (n - 1));
    }
    running_mean = got_mean;
    running_variance = got_variance;
  }
  for (std::size_t r = 0; r < replicas; ++r) {
    for (float* array : memories[r].arrays) device->release(static_cast<int>(r), array);
  }
}

}  // namespace

Identity running_statistics_follow_the_global_batch() {
  return {.name = "running-statistics-follow-the-global-batch",
          .label = "P1-running",
          .statement =
              "Running averages of the statistics handed back are those of the global batch, on "
              "every replica.",
          .theorem = "den_bnStatsMeanB_allReduce, den_bnStatsVarB_allReduce",
          .properties = {
              {.name = "exactly", .holds = exactly, .one_in = 8},
              {.name = "on the device", .form = Property::Form::device, .holds = on_the_device}}};
}

}  // namespace shardproof
