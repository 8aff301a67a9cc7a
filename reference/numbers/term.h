// Term: an expression over variables, constants and operations that satisfy no law: the free term
// algebra. What two evaluations agree on over terms, they agree on over every type of value (spec
// §1). Terms are shared: a store keeps one of each, so equal handles are equal expressions, and
// comparing takes no time at all.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "reference/numbers/rational.h"

namespace shardproof {

// Means something only to the store that made it.
struct Term {
  std::uint32_t index = 0;
  friend bool operator==(Term, Term) = default;
};

class TermStore {
 public:
  using Symbol = std::uint8_t;  // names an operation; the caller's own numbers, below 254

  TermStore();

  // The index-th variable: equal to nothing but itself.
  Term variable(std::uint32_t index) { return node({kVariable, {index, 0, 0}}); }
  // The number x: equal to another constant where the numbers are.
  Term constant(const Rational& x);
  // symbol(a, b, c), whose first `arity` (at most 3) operands count. Throws std::length_error past
  // 2^32 - 2 terms.
  Term apply(Symbol symbol, std::size_t arity, Term a, Term b = {}, Term c = {}) {
    return node({symbol, {a.index, arity > 1 ? b.index : kNone, arity > 2 ? c.index : kNone}});
  }

  std::size_t size() const { return nodes_.size(); }
  void reserve(std::size_t terms);

  struct Names {
    std::function<std::string(Symbol)> symbol;
    std::function<std::string(std::uint32_t)> variable;
  };
  // As "add(p, multiply(2, g))"; below `depth` applications "…" stands for what is left out.
  std::string print(Term term, const Names& names, std::size_t depth) const;

 private:
  static constexpr Symbol kVariable = 255, kConstant = 254;
  static constexpr std::uint32_t kNone = ~std::uint32_t{0};

  struct Node {
    Symbol symbol;
    std::array<std::uint32_t, 3> operands;
    friend bool operator==(const Node&, const Node&) = default;
  };

  static std::uint64_t hash(const Node& node) {
    std::uint64_t h = (node.symbol ^ std::uint64_t{node.operands[0]} << 8U) * 0x9E3779B97F4A7C15U;
    h = (h ^ h >> 32U ^ node.operands[1]) * 0xD6E8FEB86659FD93U;
    h = (h ^ h >> 32U ^ node.operands[2]) * 0xD6E8FEB86659FD93U;
    return h ^ h >> 32U;
  }

  Term node(const Node& wanted) {
    for (std::size_t place = hash(wanted) & mask_;; place = (place + 1) & mask_) {
      const std::uint32_t found = table_[place];
      if (found == kNone) return added(wanted, place);
      if (nodes_[found] == wanted) return Term{found};
    }
  }
  Term added(const Node& node, std::size_t place);

  std::vector<Node> nodes_;
  std::vector<std::uint32_t> table_;  // indices of nodes by hash, open addressing; half of it empty
  std::size_t mask_;
  std::vector<Rational> constants_;
  std::map<Rational, std::uint32_t> constant_indices_;
};

}  // namespace shardproof
