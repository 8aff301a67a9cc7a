// Identity: a statement of the specification that is tried on random cases, against the reference
// alone or on a device. A case draws its sizes, its kinds and one 64-bit seed by name; arrays are
// functions of the seed, so that the few numbers drawn are the whole case: they can be recorded,
// shrunk and given again. RapidCheck draws each of them and says how it shrinks.
#pragma once

#include <rapidcheck.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "diff/drawn.h"

namespace shardproof {

// What one case draws, in order. The same calls must follow from the same values.
class Draws {
 public:
  // Numbers from RapidCheck. `size`, 0 to 100, is how much of the range of each size is used.
  Draws(std::uint64_t seed, int size) : random_(seed), size_(size) {}

  // A record given again: the value of each draw is the recorded one at its place, kept within the
  // range asked for, or, where the record has ended or has another name there, the lowest.
  explicit Draws(std::vector<Drawn> record) : given_(std::move(record)) {}

  // A whole number low … high; shrinks towards low.
  std::size_t size(std::string_view name, std::size_t low, std::size_t high);

  // One of several kinds, by its place among them; shrinks towards the first.
  std::size_t kind(std::string_view name, std::span<const std::string_view> kinds);

  // 1, 2, 3, 5 or 7; shrinks towards 1.
  std::size_t replicas();

  // Any 64 bits.
  std::uint64_t seed();

  const std::vector<Drawn>& record() const { return record_; }

  // What to try in place of draw i, simplest first.
  rc::Seq<std::uint64_t> simpler(std::size_t i) const {
    return rc::shrink::towards<std::uint64_t>(record_.at(i).value, lowest_.at(i));
  }

  // Whether every draw was the one given at its place, where any were given.
  bool as_given() const { return as_given_ && (!given_ || record_.size() == given_->size()); }

 private:
  std::uint64_t draw(std::string_view name, std::uint64_t low, std::uint64_t high, int size);

  std::optional<std::vector<Drawn>> given_;
  rc::Random random_;
  int size_ = 0;
  bool as_given_ = true;
  std::vector<Drawn> record_;
  std::vector<std::uint64_t> lowest_;  // of each draw
};

// A claim that failed, and a case outside of what an identity is about.
struct Refuted : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct Discarded {};

// Throws Refuted with the file and line of the claim unless it holds.
inline void claim(bool holds, const std::string& what = "", const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
  if (holds) return;
  std::string name = file;
  name.erase(0, name.rfind('/') + 1);
  throw Refuted(name + ":" + std::to_string(line) + (what.empty() ? "" : ": " + what));
}

inline void discard_unless(bool holds) {
  if (!holds) throw Discarded{};
}

// The device under test, and where a case of it that was found wrong is left (trial.h).
struct Trial;

struct Property {
  std::string name;
  enum class Form { reference, device } form = Form::reference;
  // Throws Refuted where the property fails.
  std::function<void(Draws&, Trial&)> holds;
  // Of so many cases asked for, one is tried: a case takes as long as that many of most others.
  std::size_t one_in = 1;
};

struct Identity {
  std::string name;       // its file's, with hyphens
  std::string label;      // as the specification calls it: "P1"
  std::string statement;  // in a line
  std::string theorem;    // its name in Lean; empty where there is none
  std::vector<Property> properties;
};

// All identities, in the order of the specification.
const std::vector<Identity>& all_identities();

}  // namespace shardproof
