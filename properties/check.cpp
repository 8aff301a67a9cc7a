#include "properties/check.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <exception>
#include <mutex>
#include <new>
#include <thread>
#include <utility>

#include "diff/shrink.h"
#include "reference/numbers/random.h"

namespace shardproof {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kSizes = 101;            // of Draws
constexpr std::size_t kShrinkingCases = 4000;  // tried to make a case small
constexpr std::size_t kCasesOfASize = 30;      // tried at each of the smallest sizes

std::string stream_of(const Identity& identity, const Property& property) {
  return identity.name + "/" + property.name;
}

// "5", "8-15": a whole number by itself when it is small, else with those of as many bits.
std::string bucket(std::uint64_t value) {
  if (value < 8) return std::to_string(value);
  const std::uint64_t low = std::bit_floor(value);
  return std::to_string(low) + "-" + std::to_string(low + (low - 1));
}

// Makes a failing case smaller by its draws.
class DrawShrinker {
 public:
  DrawShrinker(const Identity& identity, const Property& property, const DeviceMaker& make,
               CaseResult found)
      : stream_(stream_of(identity, property)),
        property_(property),
        make_(make),
        best_(std::move(found)),
        left_(std::max<std::size_t>(kShrinkingCases / property.one_in, 40)) {}

  CaseResult shrink() {
    start_small();
    descend();
    return std::move(best_);
  }

 private:
  bool fails(Draws draws) {
    if (left_ == 0) return false;
    --left_;
    CaseResult tried = try_case(property_, std::move(draws), make_);
    if (!tried.fails()) return false;
    best_ = std::move(tried);
    return true;
  }

  // What fails at some size often fails at a smaller one, with other numbers.
  void start_small() {
    const std::size_t before = left_;
    const std::size_t tries = std::max<std::size_t>(kCasesOfASize / property_.one_in, 3);
    for (const int size : {0, 3, 7, 15, 31}) {
      for (std::size_t k = 0; k < tries && before - left_ < before / 4; ++k) {
        const std::uint64_t seed = Random(static_cast<std::uint64_t>(size), stream_, k).next();
        if (fails(Draws(seed, size))) return;
      }
    }
  }

  // Replaces one draw after another by something simpler, as long as the case fails.
  void descend() {
    for (bool smaller = true; smaller && left_ > 0;) {
      smaller = false;
      for (std::size_t i = 0; i < best_.draws.record().size(); ++i) smaller |= simplify(i);
    }
  }
  bool simplify(std::size_t place) {
    const std::vector<Drawn> from = best_.draws.record();
    rc::Seq<std::uint64_t> simpler = best_.draws.simpler(place);
    for (int tries = 0; tries < 12 && left_ > 0; ++tries) {
      const rc::Maybe<std::uint64_t> value = simpler.next();
      if (!value) break;
      std::vector<Drawn> changed = from;
      changed[place].value = *value;
      if (fails(Draws(std::move(changed)))) return true;
    }
    return false;
  }

  std::string stream_;
  const Property& property_;
  const DeviceMaker& make_;
  CaseResult best_;
  std::size_t left_;  // cases that may still be tried
};

// Runs the cases of one property on several threads.
class PropertyRun {
 public:
  PropertyRun(const CheckTask& task, const Identity& identity, const Property& property,
              std::size_t cases, std::optional<Clock::time_point> end)
      : task_(task), identity_(identity), property_(property), cases_(cases), end_(end) {
    report_.identity = &identity;
    report_.property = &property;
  }

  PropertyReport run(const std::function<void(double)>& progress) {
    const auto start = Clock::now();
    // In rounds, so that what is kept of each case until it can be counted stays small.
    const std::size_t most =
        property_.one_in > 1 ? task_.threads : 256 * std::size_t{task_.threads};
    while (first_ < cases_ && !report_.failure && !(first_ > 0 && is_late())) {
      round(std::min(most, cases_ - first_));
      if (!progress) continue;
      const double by_cases = static_cast<double>(first_) / static_cast<double>(cases_);
      const double by_time = end_ ? std::chrono::duration<double>(Clock::now() - start) /
                                        std::max(std::chrono::duration<double>(*end_ - start), {})
                                  : 0;
      progress(std::clamp(std::max(by_cases, by_time), 0.0, 1.0));
    }
    if (report_.failure) {
      report_.failure->shrunk =
          shrink_case(identity_, property_, report_.failure->found, task_.make);
    }
    report_.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    return std::move(report_);
  }

 private:
  bool is_late() const { return end_ && Clock::now() >= *end_; }

  // Tries the next `count` cases, or those that time is left for, and counts them in order up to
  // the first that fails.
  void round(std::size_t count) {
    std::vector<std::optional<CaseResult>> results(count);
    std::atomic<std::size_t> next = 0, first_failing = count;
    std::exception_ptr broken;
    std::mutex mutex;
    const auto work = [&] {
      try {
        for (;;) {
          const bool must = first_ == 0 && next == 0;
          if (!must && is_late()) return;
          const std::size_t i = next++;
          if (i >= count || i > first_failing) return;
          results[i] = try_case(
              property_, draws_of_case(identity_, property_, task_.seed, first_ + i), task_.make);
          if (!results[i]->fails()) continue;
          std::size_t known = first_failing;
          while (i < known && !first_failing.compare_exchange_weak(known, i)) {
          }
        }
      } catch (...) {
        const std::lock_guard lock(mutex);
        broken = std::current_exception();
      }
    };
    std::vector<std::jthread> others;
    for (unsigned t = 1; t < std::min<std::size_t>(task_.threads, count); ++t) {
      others.emplace_back(work);
    }
    work();
    others.clear();
    if (broken) std::rethrow_exception(broken);
    for (std::size_t i = 0; i < count && results[i]; ++i) count_case(*results[i], first_ + i);
    first_ += count;
  }

  void count_case(CaseResult& result, std::size_t index) {
    if (report_.failure) return;
    ++report_.cases;
    if (result.outcome == CaseResult::Outcome::discarded) ++report_.discards;
    for (const Drawn& drawn : result.draws.record()) {
      if (drawn.name == "seed") continue;
      ++report_.draws[drawn.name][drawn.label.empty() ? bucket(drawn.value) : drawn.label];
    }
    if (result.fails()) report_.failure = Failure{index, result, result};
  }

  const CheckTask& task_;
  const Identity& identity_;
  const Property& property_;
  const std::size_t cases_;
  const std::optional<Clock::time_point> end_;
  std::size_t first_ = 0;  // case of the next round
  PropertyReport report_;
};

}  // namespace

CaseResult try_case(const Property& property, Draws draws, const DeviceMaker& make) {
  CaseResult result{CaseResult::Outcome::holds, "", std::move(draws), {}};
  Trial trial{make, {}};
  try {
    property.holds(result.draws, trial);
  } catch (const Discarded&) {
    result.outcome = CaseResult::Outcome::discarded;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const OutOfDeviceMemory&) {
    throw;
  } catch (const std::exception& refuted) {
    result.outcome = CaseResult::Outcome::fails;
    result.message = refuted.what();
    result.wrong = std::move(trial.wrong);
  }
  return result;
}

Draws draws_of_case(const Identity& identity, const Property& property, std::uint64_t seed,
                    std::size_t index) {
  return Draws(Random(seed, stream_of(identity, property), index).next(),
               static_cast<int>(index % kSizes));
}

CaseResult shrink_case(const Identity& identity, const Property& property, CaseResult found,
                       const DeviceMaker& make) {
  CaseResult small = DrawShrinker(identity, property, make, std::move(found)).shrink();
  const auto shrink_numbers = [&](auto& content) {
    if constexpr (!std::is_same_v<std::decay_t<decltype(content)>, std::monostate>) {
      content = shrink(content, make);
      small.message = record(make, content).told;
    }
  };
  std::visit(shrink_numbers, small.wrong);
  return small;
}

std::vector<PropertyReport> check(const CheckTask& task,
                                  const std::function<void(const PropertyReport&)>& done,
                                  const std::function<void(double)>& progress) {
  std::vector<std::pair<const Identity*, const Property*>> all;
  for (const Identity* identity : task.identities) {
    for (const Property& property : identity->properties) all.emplace_back(identity, &property);
  }
  // A device is what is under test: its properties have more of the time.
  const auto weight = [](const Property& property) {
    return property.form == Property::Form::device ? 4.0 : 1.0;
  };
  double weights = 0;
  for (const auto& [identity, property] : all) weights += weight(*property);
  const auto start = Clock::now();
  std::vector<PropertyReport> reports;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto [identity, property] = all[i];
    std::size_t cases = std::numeric_limits<std::size_t>::max();
    if (task.cases) cases = std::max<std::size_t>(*task.cases / property->one_in, 1);
    std::optional<Clock::time_point> end;
    if (task.seconds) {  // its share of what is left
      const auto now = Clock::now();
      const std::chrono::duration<double> left =
          start + std::chrono::duration<double>(*task.seconds) - now;
      end = now + std::chrono::duration_cast<Clock::duration>(std::max(left, {}) *
                                                              weight(*property) / weights);
    }
    weights -= weight(*property);
    reports.push_back(PropertyRun(task, *identity, *property, cases, end).run([&](double share) {
      if (progress) {
        progress((static_cast<double>(i) + share) / static_cast<double>(all.size()));
      }
    }));
    if (done) done(reports.back());
  }
  return reports;
}

std::string first_failure(const Identity& identity, Property::Form form, std::size_t cases,
                          std::uint64_t seed, const DeviceMaker& make) {
  Identity of_form = identity;
  std::erase_if(of_form.properties,
                [&](const Property& property) { return property.form != form; });
  const CheckTask task{{&of_form}, cases, {}, seed, 1, make};
  for (const PropertyReport& report : check(task)) {
    if (report.holds()) continue;
    const std::string name = identity.name + ", " + report.property->name + ": ";
    if (!report.failure) return name + "every case was discarded";
    const CaseResult& shrunk = report.failure->shrunk;
    return name + shrunk.message + " (" + to_string(shrunk.draws.record()) + ")";
  }
  return of_form.properties.empty() ? identity.name + ": no property of that form" : "";
}

std::string to_string(const std::vector<Drawn>& draws) {
  std::string text;
  for (const Drawn& drawn : draws) {
    if (!text.empty()) text += ", ";
    text += drawn.name + " " + (drawn.label.empty() ? std::to_string(drawn.value) : drawn.label);
  }
  return text;
}

}  // namespace shardproof
