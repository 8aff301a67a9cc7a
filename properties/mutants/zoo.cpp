#include "properties/mutants/zoo.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "device/engine/candidate_device.h"
#include "device/engine/forwarding_device.h"
#include "diff/shrink.h"
#include "properties/unit_cases.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kUsualOneIn = 8;  // of a control's cases

// What came back from a device, in order.
using Downloads = std::vector<std::vector<float>>;

class RecordingDevice final : public ForwardingDevice {
 public:
  RecordingDevice(std::unique_ptr<Device> base, Downloads& downloads)
      : ForwardingDevice(std::move(base)), downloads_(downloads) {}

  void download(int replica, const float* from, float* to, std::size_t count) override {
    ForwardingDevice::download(replica, from, to, count);
    downloads_.emplace_back(to, to + count);
  }

 private:
  Downloads& downloads_;
};

DeviceMaker recorded(const DeviceMaker& make, Downloads& downloads) {
  return [&make, &downloads](int replicas, const Schedule& schedule) {
    return std::make_unique<RecordingDevice>(make(replicas, schedule), downloads);
  };
}

bool usually_close(float actual, float expected) {
  if (std::isnan(actual) || std::isnan(expected)) {
    return std::isnan(actual) && std::isnan(expected);
  }
  if (actual == expected) return true;
  const double wanted = static_cast<double>(expected);
  return std::abs(static_cast<double>(actual) - wanted) <= 1e-5 + 1.3e-6 * std::abs(wanted);
}

// As far as both ran the same way.
bool usually_close(const Downloads& actual, const Downloads& expected) {
  for (std::size_t i = 0; i < std::min(actual.size(), expected.size()); ++i) {
    if (actual[i].size() != expected[i].size()) return true;
    for (std::size_t k = 0; k < actual[i].size(); ++k) {
      if (!usually_close(actual[i][k], expected[i][k])) return false;
    }
  }
  return true;
}

// One mutant, or a control with or without its contract.
class Visit {
 public:
  Visit(const ZooTask& task, const Mutant& mutant, bool contract_kept, std::size_t cases)
      : task_(task), cases_(cases) {
    entry_.mutant = &mutant;
    entry_.contract_kept = contract_kept;
    CandidateOptions options;
    options.time_limit = std::chrono::seconds(2);
    make_ = candidate_maker(
        [fill = mutant.fill, contract_kept](shardproof_candidate_table& table) {
          fill(table);
          if (contract_kept) return;
          for (shardproof_contract& contract : table.contracts) contract = {};
        },
        options);
  }

  // Case i of every property, then case i + 1.
  ZooEntry run() {
    const auto start = Clock::now();
    for (std::size_t i = 0; i < cases_ && !entry_.caught; ++i) {
      for (const Identity* identity : task_.identities) {
        for (const Property& property : identity->properties) {
          // A costly property comes after as many cases of the others as it costs.
          if (property.form != Property::Form::device || (i + 1) % property.one_in != 0) continue;
          try_one(*identity, property, i / property.one_in);
          if (entry_.caught) break;
        }
        if (entry_.caught) break;
      }
    }
    entry_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    if (entry_.caught) shrink_caught();
    return std::move(entry_);
  }

 private:
  void try_one(const Identity& identity, const Property& property, std::size_t index) {
    const Draws draws = draws_of_case(identity, property, task_.seed, index);
    Downloads downloads;
    CaseResult result = try_case(property, draws, recorded(make_, downloads));
    ++entry_.cases;
    if (result.outcome == CaseResult::Outcome::discarded) ++entry_.discards;
    if (entry_.must_be_caught() || entry_.cases % kUsualOneIn == 0) {
      Downloads expected;
      const DeviceMaker builtin = [](int replicas, const Schedule& schedule) {
        return make_host_device(replicas, schedule, 1);
      };
      try_case(property, draws, recorded(builtin, expected));
      ++entry_.usual.cases;
      if (!usually_close(downloads, expected)) ++entry_.usual.beyond;
    }
    if (!result.fails()) return;
    std::string input;
    for (const Drawn& drawn : result.draws.record()) {
      if (drawn.name == "input" || drawn.name == "gradients") input = drawn.label;
    }
    entry_.caught = Caught{&identity, &property, index, result, result, input, {}};
  }

  void shrink_caught() {
    Caught& caught = *entry_.caught;
    caught.shrunk = shrink_case(*caught.identity, *caught.property, caught.found, make_);
    std::visit(
        [&](const auto& content) {
          if constexpr (!std::is_same_v<std::decay_t<decltype(content)>, std::monostate>) {
            caught.numbers = count_of_numbers(content);
          }
        },
        caught.shrunk.wrong);
  }

  const ZooTask& task_;
  const std::size_t cases_;
  DeviceMaker make_;
  ZooEntry entry_;
};

// What one round of cases of every device property comes to, of so many.
double cases_of_a_round(const std::vector<const Identity*>& identities) {
  double cases = 0;
  for (const Identity* identity : identities) {
    for (const Property& property : identity->properties) {
      if (property.form == Property::Form::device) {
        cases += 1 / static_cast<double>(property.one_in);
      }
    }
  }
  return cases;
}

}  // namespace

std::vector<ZooEntry> run_zoo(const ZooTask& task,
                              const std::function<void(std::size_t done, std::size_t all)>& done) {
  struct Ask {
    const Mutant* mutant;
    bool contract_kept;
  };
  std::vector<Ask> asks;
  std::size_t controls = 0;
  for (const Mutant* mutant : task.mutants) {
    asks.push_back({mutant, true});
    if (mutant->control) ++controls;
    if (mutant->control && mutant->needs_contract) asks.push_back({mutant, false});
  }
  const double round = cases_of_a_round(task.identities);
  const auto control_rounds = static_cast<std::size_t>(
      std::ceil(static_cast<double>(task.control_cases) /
                (std::max(round, 1.0) * static_cast<double>(std::max<std::size_t>(controls, 1)))));
  std::vector<ZooEntry> entries(asks.size());
  std::atomic<std::size_t> next = 0, finished = 0;
  std::exception_ptr broken;
  std::mutex mutex;
  const auto work = [&] {
    try {
      for (std::size_t i; (i = next++) < asks.size();) {
        const auto& [mutant, contract_kept] = asks[i];
        const bool control = mutant->control && contract_kept;
        entries[i] =
            Visit(task, *mutant, contract_kept, control ? control_rounds : task.cases).run();
        const std::lock_guard lock(mutex);
        if (done) done(++finished, asks.size());
      }
    } catch (...) {
      const std::lock_guard lock(mutex);
      broken = std::current_exception();
    }
  };
  std::vector<std::jthread> others;
  for (unsigned t = 1; t < task.threads; ++t) others.emplace_back(work);
  work();
  others.clear();
  if (broken) std::rethrow_exception(broken);
  return entries;
}

std::vector<Tightness> measure_tightness(std::size_t outputs, std::uint64_t seed) {
  static constexpr std::array all = {
      UnitOperation::global_average_pool, UnitOperation::dense,
      UnitOperation::convolution_1x1,     UnitOperation::convolution_3x3,
      UnitOperation::convolution_5x5,     UnitOperation::depthwise_3x3,
      UnitOperation::depthwise_5x5,       UnitOperation::bn_site,
      UnitOperation::bn_site_with_relu,
  };
  static constexpr std::array names = {
      "average pool",  "dense",         "convolution 1x1", "convolution 3x3",   "convolution 5x5",
      "depthwise 3x3", "depthwise 5x5", "BN site",         "BN site with ReLU",
  };
  const DeviceMaker make = [](int replicas, const Schedule& schedule) {
    return make_host_device(replicas, schedule, 1);
  };
  std::vector<Tightness> result;
  for (std::size_t k = 0; k < all.size(); ++k) {
    std::map<std::string, Tightness> parts;
    const auto few = [&] {
      return parts.empty() || std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
               return part.second.outputs < outputs;
             });
    };
    for (std::uint64_t i = 0; few() && i < outputs; ++i) {
      Draws draws(Random(seed, names[k], i).next(), 60);
      const UnitCase drawn = draw_unit_case(draws, std::span(&all[k], 1));
      if (drawn.kind != InputKind::dithered) continue;
      const Shape& in = drawn.inputs.at(0).at(0).shape;
      if (in.n * in.plane() > 98) continue;
      const UnitVerdict verdict = judge_unit_case(make, drawn, Suspicions::left);
      for (std::size_t c = 0; c < verdict.own; ++c) {
        const Comparison& comparison = verdict.comparisons[c];
        if (comparison.worst.bound == 0 || comparison.outcome() != Outcome::agrees) continue;
        std::string what = names[k];
        if (!comparison.part.empty()) {
          what += ": " + comparison.part;
        } else if (comparison.node == "g.mean" || comparison.node == "g.var_at") {
          what += ": " + comparison.node.substr(2);  // mean, var_at
        } else if (comparison.node == "gmu" || comparison.node == "gvar") {
          what += ": all-reduced";
        }
        Tightness& part =
            parts.try_emplace(what, Tightness{what, 0, std::numeric_limits<double>::infinity()})
                .first->second;
        part.outputs += comparison.compared;
        part.least = std::min(part.least, comparison.tightness());
      }
    }
    for (auto& [what, part] : parts) result.push_back(std::move(part));
  }
  return result;
}

}  // namespace shardproof
