// The collectives that data-parallel training rests on (spec §1, §3): sums and means over replicas
// with the same bits on all of them, copies bit for bit, nothing beyond their arrays.
#include <fmt/format.h>

#include "device/engine/builtin_device.h"
#include "diff/bounds.h"
#include "properties/draws.h"
#include "properties/identities/identities.h"
#include "properties/trial.h"
#include "reference/numbers/certified.h"

namespace shardproof {
namespace {

enum Collective { all_reduce_sum, all_reduce_mean, reduce_scatter_mean, all_gather, broadcast };
constexpr std::array<std::string_view, 5> kCollectives = {
    "all-reduce sum", "all-reduce mean", "reduce-scatter mean", "all-gather", "broadcast"};

enum Numbers { small_integers, natural, magnitudes, alike, special };
constexpr std::array<std::string_view, 5> kNumbers = {"lattice", "natural", "magnitudes",
                                                      "alike on all", "a NaN or infinity"};

using Arrays = std::vector<std::vector<float>>;  // by replica

Arrays draw_arrays(Numbers numbers, std::size_t replicas, std::size_t count, Random random) {
  Arrays arrays(replicas, std::vector<float>(count));
  for (std::size_t i = 0; i < count; ++i) {
    for (std::size_t r = 0; r < replicas; ++r) {
      double value = 0;
      switch (numbers) {
        case small_integers:
          value = static_cast<double>(random.integer(-99, 99));
          break;
        case magnitudes:
          value = random.sign() *
                  std::ldexp(1 + random.uniform(), static_cast<int>(random.integer(-147, 90)));
          break;
        default:
          value = random.triangular(3);
      }
      arrays[r][i] = static_cast<float>(value);
      if (numbers == alike) arrays[r][i] = arrays[0][i];
    }
  }
  if (numbers == special && count > 0) {
    const float inf = std::numeric_limits<float>::infinity();
    const std::array<float, 3> all = {std::nanf(""), inf, -inf};
    arrays[random.below(replicas)][random.below(count)] = all[random.below(all.size())];
    arrays[random.below(replicas)][random.below(count)] = all[random.below(all.size())];
  }
  return arrays;
}

// One float array a replica, in its memory, given back in the end.
class OnDevice {
 public:
  OnDevice(Device& device, std::size_t count) : device_(device), count_(count) {
    for (int r = 0; r < device.replicas(); ++r) {
      arrays_.push_back(device.allocate(r, std::max<std::size_t>(count, 1)));
    }
  }
  ~OnDevice() {
    for (std::size_t r = 0; r < arrays_.size(); ++r) {
      device_.release(static_cast<int>(r), arrays_[r]);
    }
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

  void upload(const Arrays& from) {
    for (std::size_t r = 0; r < arrays_.size(); ++r) {
      device_.upload(static_cast<int>(r), arrays_[r], from[r].data(), count_);
    }
  }
  Arrays download() {
    Arrays to(arrays_.size(), std::vector<float>(count_));
    for (std::size_t r = 0; r < arrays_.size(); ++r) {
      device_.download(static_cast<int>(r), arrays_[r], to[r].data(), count_);
    }
    return to;
  }
  std::vector<const float*> sends() const { return {arrays_.begin(), arrays_.end()}; }
  const std::vector<float*>& receives() const { return arrays_; }

 private:
  Device& device_;
  std::size_t count_;
  std::vector<float*> arrays_;
};

bool same_bits(float a, float b) {
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) ||
         (std::isnan(a) && std::isnan(b));
}

// Element i of the sum or mean of those terms.
void claim_reduced(float got, const std::vector<float>& terms, bool is_mean,
                   const Contract& contract, const std::string& where) {
  float of_float = 0;
  Certified sum;
  bool finite = true;
  for (const float term : terms) {
    of_float += term;
    finite = finite && std::isfinite(term);
    if (std::isfinite(term)) sum = sum + Certified(static_cast<double>(term));
  }
  if (!finite) {
    claim(std::isnan(of_float) ? std::isnan(got) : got == of_float,
          fmt::format("{} got {}, exact {}", where, got, of_float));
    return;
  }
  const Allowance allowance =
      is_mean ? all_reduce_allowance(terms, contract) : all_reduce_sum_allowance(terms, contract);
  if (!std::isfinite(allowance.any)) return;  // may leave float32's range
  if (is_mean) sum = sum / Certified(static_cast<double>(terms.size()));
  const double flushed =
      contract.subnormals_kept ? 0 : 0x1p-126 * static_cast<double>(terms.size() + 1);
  const double bound = allowance.any + sum.radius + flushed;
  claim(std::abs(static_cast<double>(got) - sum.value) <= bound,
        fmt::format("{} got {:.9g}, exact {:.9g}, bound {:.3g}", where, got, sum.value, bound));
}

void on_the_device(Draws& draws, Trial& trial) {
  const std::size_t replicas = draws.replicas();
  const auto which = static_cast<Collective>(draws.kind("collective", kCollectives));
  static constexpr std::array<std::string_view, 4> edges = {"none", "none", "none", "an edge"};
  std::size_t count = draws.size("elements", 0, 40);
  if (draws.kind("at an edge", edges) == 3) {
    static constexpr std::array<std::string_view, 4> at = {"128", "256", "1024", "2048"};
    static constexpr std::array<std::size_t, 4> counts = {128, 256, 1024, 2048};
    count = counts[draws.kind("edge", at)] - 1 + draws.size("of the edge", 0, 2);
  }
  const std::size_t root = draws.size("root", 0, 6) % replicas;
  static constexpr std::array<std::string_view, 2> places = {"apart", "in place"};
  const bool in_place = draws.kind("receive", places) == 1;
  const auto numbers = static_cast<Numbers>(draws.kind("input", kNumbers));
  const std::uint64_t seed = draws.seed();
  Schedule schedule;
  schedule.seed = Random(seed, "schedule").next();
  const auto device = trial.make(static_cast<int>(replicas), schedule);

  const bool spreads = which == all_gather, gathers = which == reduce_scatter_mean;
  const std::size_t sent = gathers ? replicas * count : count;
  const Arrays from = draw_arrays(numbers, replicas, sent, Random(seed, "numbers"));
  OnDevice send(*device, sent), receive(*device, spreads ? replicas * count : count);
  const bool alias = in_place && !spreads && !gathers;
  const std::vector<float*>& to = alias ? send.receives() : receive.receives();
  send.upload(from);
  const std::string name(kCollectives[which]);
  Operation operation = Operation::all_gather;
  switch (which) {
    case all_reduce_sum:
      operation = Operation::all_reduce_sum;
      device->all_reduce_sum({send.sends(), to, count});
      break;
    case all_reduce_mean:
      operation = Operation::all_reduce_mean;
      device->all_reduce_mean({send.sends(), to, count});
      break;
    case reduce_scatter_mean:
      operation = Operation::reduce_scatter_mean;
      device->reduce_scatter_mean({send.sends(), to, count});
      break;
    case all_gather: {
      AllGatherCall call{{}, {}, count, ElementType::float32};
      for (const float* array : send.sends()) call.send.push_back(array);
      for (float* array : to) call.receive.push_back(array);
      device->all_gather(call);
      break;
    }
    case broadcast: {
      BroadcastCall call{std::vector<const float*>(replicas, nullptr), to, count, root};
      call.send[root] = send.sends()[root];
      device->broadcast(call);
    }
  }
  const Contract contract = device->contract(operation, 1, 1);
  const Arrays got = alias ? send.download() : receive.download();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (std::size_t i = 0; i < got[r].size(); ++i) {
      const std::string where = fmt::format("{}: replica {}, element {}", name, r, i);
      if (which == all_gather || which == broadcast) {
        const float exact = which == broadcast ? from[root][i] : from[i / count][i % count];
        claim(same_bits(got[r][i], exact),
              fmt::format("{} got {:.9g}, exact {:.9g}", where, got[r][i], exact));
        continue;
      }
      std::vector<float> terms;
      for (const std::vector<float>& array : from) {
        terms.push_back(array[gathers ? r * count + i : i]);
      }
      claim_reduced(got[r][i], terms, which != all_reduce_sum, contract, where);
      claim(gathers || same_bits(got[r][i], got[0][i]),
            where + " has other bits than on replica 0");
    }
  }
  if (alias) return;
  const Arrays kept = send.download();
  for (std::size_t r = 0; r < replicas; ++r) {
    for (std::size_t i = 0; i < sent; ++i) {
      claim(same_bits(kept[r][i], from[r][i]), name + " changed what was sent");
    }
  }
}

}  // namespace

Identity collectives_give_what_they_say() {
  return {.name = "collectives-give-what-they-say",
          .label = "collectives",
          .statement =
              "Sums and means over replicas are exact but for their roundings and have the same "
              "bits on all; copies are bit for bit.",
          .theorem = "",
          .properties = {
              {.name = "on the device", .form = Property::Form::device, .holds = on_the_device}}};
}

}  // namespace shardproof
