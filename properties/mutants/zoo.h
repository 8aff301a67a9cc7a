// The zoo: mutants and controls (mutant.h) tried on the random cases of `check`, one after another,
// each in a child process as a user's candidate is. It measures the harness: a mutant must be
// caught, a control must not, and a control that needs its contract must be caught without it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "properties/check.h"
#include "properties/mutants/mutant.h"

namespace shardproof {

struct ZooTask {
  std::vector<const Mutant*> mutants;
  std::vector<const Identity*> identities;  // whose device properties are tried, in turn
  // Cases of each property that a mutant is given to be caught, fewer where they are costly.
  std::size_t cases = 5000;
  std::size_t control_cases = 100'000;  // of all controls and all properties together
  std::uint64_t seed = 1;
  unsigned threads = 1;
};

// What a usual test would have found on the same cases: the arrays that come back from the device
// against those of the built-in one, |a − e| <= 1e-5 + 1.3e-6·|e|, the defaults of
// torch.testing.assert_close in float32 (PyTorch 2, torch/testing/_comparison.py), NaN equal to
// NaN. Of controls every eighth case is looked at.
struct UsualTolerance {
  std::size_t cases = 0, beyond = 0;
};

struct Caught {
  const Identity* identity = nullptr;
  const Property* property = nullptr;
  std::size_t index = 0;  // of the property's case
  CaseResult found, shrunk;
  std::string input;                   // the kind of numbers drawn; empty where there is one kind
  std::optional<std::size_t> numbers;  // of the shrunk case
};

struct ZooEntry {
  const Mutant* mutant = nullptr;
  bool contract_kept = true;  // false: a control without the contract that it needs
  std::size_t cases = 0, discards = 0;
  std::optional<Caught> caught;
  UsualTolerance usual;
  double seconds = 0;  // to the first failure, or of all cases

  bool must_be_caught() const { return !mutant->control || !contract_kept; }
  bool as_expected() const { return must_be_caught() == caught.has_value(); }
};

// Entries in the order of the mutants, a control without its contract right after it. The same at
// any number of threads, but for `seconds`. `done` is told how many are done.
std::vector<ZooEntry> run_zoo(const ZooTask& task,
                              const std::function<void(std::size_t done, std::size_t all)>& done);

// How tight the bounds are (agreement §3): of each kind of comparison, the least bound ÷ error over
// the outputs of dithered cases of at most 98 numbers a sum on the built-in device.
struct Tightness {
  std::string what;  // "convolution", "BN site: mean"
  std::size_t outputs = 0;
  double least = 0;  // infinite where nothing rounded
};
std::vector<Tightness> measure_tightness(std::size_t outputs, std::uint64_t seed);

}  // namespace shardproof
